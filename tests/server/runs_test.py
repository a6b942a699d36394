"""Requests that run together are answered as each would be by itself, and leave the same rows."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roost.protocols.handlersocket.opened import Opened, Session
from roost.server.settings import Role
from roost.structures.index.finds import Texts
from tests.server.playing import Bench, bench, played

SCHEMA = """
CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT COLLATE NOCASE UNIQUE, n INT, r REAL, b BLOB, CHECK (n <> 7));
CREATE INDEX by_n ON t (n, a DESC);
CREATE TABLE two (x INT, y TEXT, n INT NOT NULL DEFAULT 5, PRIMARY KEY (x, y)) WITHOUT ROWID;
"""
OPENED = [
    *("P\t0\tmain\tt\tPRIMARY\tid,a,n\tn,a", "P\t1\tmain\tt\ta\ta,n\tn", "P\t2\tmain\tt\tPRIMARY\tn\tr,b"),
    *("P\t3\tmain\tt\tby_n\tn,a,id\ta", "P\t4\tmain\ttwo\tPRIMARY\tx,y,n\tn", "P\t5\tmain\ttwo\tPRIMARY\tn"),
    *("P\t6\tmain\tt\tPRIMARY\tid,r,b,a", "P\t7\tmain\tt\tPRIMARY\tn,a,r"),
]
KEYS = {0: 1, 1: 1, 2: 1, 3: 2, 4: 2, 5: 2, 6: 1, 7: 1}  # how many columns
WIDTHS = {0: 3, 1: 2, 2: 1, 3: 3, 4: 3, 5: 1, 6: 4, 7: 3}
FILTERS = {0: 2, 1: 1, 2: 2, 3: 1, 4: 1, 5: 0, 6: 0, 7: 0}

numbers = st.integers(-2, 9).map(str)
odd = st.sampled_from(
    [
        "",
        "\0",
        "1.5",
        "abc",
        "ABC",
        "\udcff",
        "é",
        "a\x07",
        "-",
        "9" * 20,
        "4611686018427387905",
        "007",
        " 3",
        "x\0y",
        "1e1",
    ]
)
values = st.one_of(numbers, numbers, numbers, st.sampled_from(["a", "A", "b"]), odd)
limits: st.SearchStrategy[list[str]] = st.one_of(
    st.just([]), st.just([]), st.just(["1", "0"]), st.just(["1", "0"]),
    st.lists(st.sampled_from(["0", "1", "2", "50", "4294967295", "x", ""]), min_size=2, max_size=2),
)  # fmt: skip


def finds(index: int) -> st.SearchStrategy[list[str]]:
    """Finds, with and without filters."""
    keys = st.lists(values, min_size=1, max_size=KEYS[index])
    ops = st.sampled_from(["=", "=", "=", ">=", ">", "<", "<="])
    filters = st.just(list[str]())
    if FILTERS[index]:
        one = st.tuples(
            st.sampled_from(["F", "F", "W"]),
            st.sampled_from(["=", "!=", ">", "<="]),
            st.integers(0, FILTERS[index] - 1).map(str),
            values,
        )
        filters = st.lists(one, max_size=2).map(lambda each: [token for part in each for token in part])
    return st.builds(
        lambda op, key, limit, given: [str(index), op, str(len(key)), *key, *limit, *(given if limit else [])],
        *(ops, keys, limits, filters),
    )


def changes(index: int) -> st.SearchStrategy[list[str]]:
    """Modifications by a whole key, and inserts."""
    keys = st.lists(values, min_size=KEYS[index], max_size=KEYS[index])
    to = st.lists(values, min_size=1, max_size=WIDTHS[index])
    changed = st.builds(
        lambda key, verb, to: [str(index), "=", str(len(key)), *key, "1", "0", verb, *(to if verb != "D" else [])],
        *(keys, st.sampled_from(["U", "U", "+", "+", "-", "D"]), to),
    )
    inserted = st.builds(lambda to: [str(index), "+", str(len(to)), *to], to)
    return st.one_of(changed, changed, inserted)


def sums(index: int) -> st.SearchStrategy[list[str]]:
    """Increments and decrements of what mostly can be added to."""
    keys = st.lists(numbers, min_size=KEYS[index], max_size=KEYS[index])
    addends = st.lists(st.one_of(st.just("\0"), numbers, numbers, values), min_size=1, max_size=WIDTHS[index])
    return st.builds(
        lambda key, verb, to: [str(index), "=", str(len(key)), *key, "1", "0", verb, to[0], *["\0"] * (len(to) - 1)],
        *(keys, st.sampled_from("++-"), addends),
    )


asked = st.sampled_from(sorted(KEYS)).flatmap(finds)
changing = st.one_of(st.sampled_from(sorted(KEYS)).flatmap(changes), st.sampled_from([2, 5, 7]).flatmap(sums))


def repeated(requests: st.SearchStrategy[list[str]]) -> st.SearchStrategy[list[str]]:
    """Lines in which the same shape comes again and again, with other values."""
    several = st.tuples(requests, st.lists(values, min_size=1, max_size=5)).map(
        lambda each: [each[0], *[_with(each[0], value) for value in each[1]]]
    )
    return st.lists(several, min_size=1, max_size=4).map(
        lambda lots: ["\t".join(tokens) for tokens in itertools.chain.from_iterable(lots)]
    )


def _with(tokens: list[str], value: str) -> list[str]:
    return [*tokens[:3], value, *tokens[4:]]


@contextmanager
def made_of(folder: Path, rows: list[tuple[object, ...]], role: Role) -> Iterator[Bench]:
    """Turns on a file with these rows."""
    path = folder / "app.db"
    for end in ("", "-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;" + SCHEMA)
        connection.executemany("INSERT OR IGNORE INTO t VALUES (?, ?, ?, ?, ?)", rows)
        pairs = [(n % 3, a if isinstance(a, str) else "z", id) for id, a, n, *_ in rows if isinstance(n, int)]
        connection.executemany("INSERT OR IGNORE INTO two VALUES (?, ?, ?)", pairs)
        connection.commit()
    with closing(bench(path, role)) as made:
        yield made


def opened(made: Bench) -> Session:
    session = made.session()
    assert made.say(session, "\n".join(OPENED)) == ["0\t1"] * len(OPENED)
    return session


def contents(made: Bench) -> list[object]:
    fetch = made.file._connection.fetch
    return [
        fetch("SELECT id, CAST(a AS BLOB), n, typeof(n), r, CAST(b AS BLOB) FROM t ORDER BY id"),
        fetch("SELECT x, CAST(y AS BLOB), n, typeof(n) FROM two ORDER BY x, y"),
    ]


plain = st.integers(0, 30).map(lambda number: f"t{number}")
texts = st.one_of(plain, plain, plain, st.none(), st.sampled_from(["a", "A", "c\x02", "é", "x\0y", b"\xff\x00"]))
counts = st.one_of(st.integers(-2, 9), st.integers(-2, 9), st.sampled_from([None, 1.5, 1e22, "x", 2**62, 2**63 - 2]))
reals = st.one_of(st.none(), st.floats(allow_nan=False, width=32))
rows = st.one_of(
    st.lists(st.tuples(st.integers(-1, 9), plain, counts, reals, st.none()), max_size=12),
    st.lists(st.tuples(st.integers(-1, 9), texts, counts, reals, st.none() | st.binary(max_size=3)), max_size=12),
)
ONE_AND_TWO: list[tuple[object, ...]] = [(1, "one", 10, None, None), (2, "two", 20, None, None)]
often = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@often
@given(rows, st.lists(repeated(asked), min_size=1, max_size=4))
def test_finds_of_many_connections(tmp_path: Path, rows: list[tuple[object, ...]], chunks: list[list[str]]) -> None:
    some = [row for row in rows if row[2] != "x"] if len(rows) % 2 else rows
    with made_of(tmp_path, some, "read") as made:
        sessions = [opened(made) for _ in chunks]
        arrived = [(session, "\n".join(lines)) for session, lines in zip(sessions, chunks, strict=True)]
        answers = made.play(*arrived).texts
        with mock.patch.object(Opened, "form", return_value=None):
            assert answers == [
                "".join(made.play((session, line)).texts[0] for line in text.split("\n")) for session, text in arrived
            ]


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        ("CREATE TABLE t (id INTEGER PRIMARY KEY, n INT CHECK (n <> 7))", "check"),
        ("CREATE TABLE t (id INTEGER PRIMARY KEY, n INT UNIQUE)", "121"),
        ("CREATE TABLE t (id INTEGER PRIMARY KEY, n INT); CREATE UNIQUE INDEX u ON t (n) WHERE n > 0", "121"),
        ("CREATE TABLE t (id INTEGER PRIMARY KEY, n INT); CREATE UNIQUE INDEX u ON t (n + 0)", "121"),
        ("CREATE TABLE t (id INTEGER PRIMARY KEY, n INT, g INT AS (n) UNIQUE)", "121"),
    ],
)
def test_sums_of_one_row_do_not_pass_by_a_value_that_is_refused(tmp_path: Path, schema: str, word: str) -> None:
    more = ", (2, 7)" if word == "121" else ""
    with played(tmp_path, f"{schema}; INSERT INTO t (id, n) VALUES (1, 4){more}") as made:
        answers = made.say(made.session(), "\n".join(["P\t0\tmain\tt\tPRIMARY\tn"] + ["0\t=\t1\t1\t1\t0\t+\t3"] * 3))
        assert answers == ["0\t1"] + [f"1\t1\t{word}"] * 3
        assert made.sql("SELECT n FROM t WHERE id = 1") == [(4,)]


@often
@given(rows, repeated(changing))
def test_changes_in_one_turn(tmp_path: Path, rows: list[tuple[object, ...]], lines: list[str]) -> None:
    outcomes = []
    for together in (True, False):
        with made_of(tmp_path, rows, "write") as made:
            session = opened(made)
            if together:
                answers = made.say(session, "\n".join(lines))
            else:
                with mock.patch.object(Opened, "form", return_value=None):
                    answers = [made.say(session, line)[0] for line in lines]
            outcomes.append((answers, contents(made)))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize(
    "line",
    [
        *("0\t>=\t1\t3\t9\t0", "0\t<\t1\t3\t9\t0", "1\t>\t1\ta\t9\t2\tF\t>\t0\t1"),
        *("3\t=\t1\t5\t9\t0", "4\t=\t1\t1\t9\t0", "4\t=\t2\t1\ta\t9\t0"),
    ],
)
def test_ranges_are_searched_in_their_index_and_never_sorted(tmp_path: Path, line: str) -> None:
    with made_of(tmp_path, [(1, "one", 5, None, None), (4, "two", 20, None, None)], "read") as made:
        session = opened(made)
        assert made.say(session, line)[0].count("\t") >= 1
        target: Any = session.opened[line[0]].target
        (run,) = target.compiled.values()
        assert isinstance(run, Texts)
        assert run.template is not None
        values = (None,) * run.template.sql.count("?")
        plan = [row[-1] for row in made.file._connection.fetch(f"EXPLAIN QUERY PLAN {run.template.sql}", values)]
        assert [step.split()[0] for step in plan if step.split()[1] in ("t", "two")] == ["SEARCH"]
        assert not [step for step in plan if "TEMP B-TREE" in step]


def test_an_update_that_moves_a_row_is_done_once(tmp_path: Path) -> None:
    with made_of(tmp_path, ONE_AND_TWO, "write") as made:
        lines = ["0\t=\t1\t1\t1\t0\tU\t11", "0\t=\t1\t9\t1\t0\tU\t12", "0\t=\t1\t11\t1\t0\tU\t1"]
        assert made.say(opened(made), "\n".join(lines)) == ["0\t1\t1", "0\t1\t0", "0\t1\t1"]
        assert made.sql("SELECT id FROM t") == [(1,), (2,)]


@pytest.mark.parametrize(
    ("lines", "answers"),
    [
        # A line with a token too few beside one with as many too many are no two lookups.
        (["0\t=\t1\t1\t1", "=\t1\t2"], ["0\t3\t1\tone\t10", "2\t1\tcmd"]),
        (["0\t=\t1\t1", "0\t=\t1", "0\t=\t1\t2\t1"], ["0\t3\t1\tone\t10", "0\t3", "0\t3\t2\ttwo\t20"]),
        (["0\t=\t1\t1", "00\t=\t1\t2", "0\t=\t1\t1"], ["0\t3\t1\tone\t10", "0\t3\t2\ttwo\t20", "0\t3\t1\tone\t10"]),
    ],
)
def test_lines_that_look_alike(tmp_path: Path, lines: list[str], answers: list[str]) -> None:
    with made_of(tmp_path, ONE_AND_TWO, "read") as made:
        assert made.say(opened(made), "\n".join(lines)) == answers
