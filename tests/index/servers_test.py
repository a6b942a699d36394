"""Indexes on servers: a dumb model beside them, their plans explained, and what is each database's own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import roost
from roost.dialects import MARIADB, MYSQL, POSTGRESQL, Statement, render
from roost.structures.index.bulk import bulk_of
from roost.structures.index.declaration import OPS
from roost.structures.index.finds import Finds, ServerLookups
from roost.structures.index.opened import READ_TABLE, OpenedIndex
from roost.structures.index.runs import Shape
from tests.index.databases import Database, database
from tests.index.find_test import NAMES, OF, cases
from tests.index.model import Model
from tests.proxy import Cut, Proxy

TYPES = {
    "mariadb": {"id": "INT PRIMARY KEY", "a": "INT", "b": "VARCHAR(9) COLLATE utf8mb4_nopad_bin", "c": "BIGINT"},
    "postgresql": {"id": "int PRIMARY KEY", "a": "int", "b": 'text COLLATE "C"', "c": "int8"},
}
TYPES["mysql"] = TYPES["mariadb"] | {"b": "VARCHAR(9) COLLATE utf8mb4_0900_bin"}
OPTIONS = {"mariadb": " CHARACTER SET utf8mb4", "mysql": " CHARACTER SET utf8mb4", "postgresql": ""}
SLOW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module", params=["mariadb", "mysql", "postgresql"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """A database on each server."""
    with database(request.param, Path()) as made, made.kept():
        yield made


@pytest.fixture(scope="module")
def running(server: Database) -> Iterator[roost.Store]:
    with roost.Store(server.url) as store:
        yield store


def fill(server: Database, model: Model) -> roost.Index:
    """Make the model's table, with an index in which NULL is less than everything and equals lie in order."""
    columns = ", ".join([f"{name} {kind}" for name, kind in TYPES[server.name].items()])
    texts = ["DROP TABLE IF EXISTS t", f"CREATE TABLE t ({columns}){OPTIONS[server.name]}"]
    if model.rows:
        rows = ", ".join(
            ["(" + ", ".join(["NULL" if value is None else repr(value) for value in row]) + ")" for row in model.rows]
        )
        texts.append(f"INSERT INTO t VALUES {rows}")
    if model.key != ("id",):
        key, descending = model.key, model.descending
        if server.name == "postgresql":
            key, descending = (*key, "id"), (*descending, False)
        parts = []
        for name, down in zip(key, descending, strict=True):
            nulls = f" NULLS {'LAST' if down else 'FIRST'}" if server.name == "postgresql" else ""
            parts.append(f"{name}{' DESC' if down else ''}{nulls}")
        texts.append(f"CREATE INDEX k ON t ({', '.join(parts)})")
    server.script(*texts)
    return roost.Index("t", "PRIMARY" if model.key == ("id",) else "k", NAMES, filters=NAMES)


@given(case=cases())
@SLOW
def test_a_find_is_what_a_list_in_the_order_of_the_index_says(
    server: Database, running: roost.Store, case: tuple[Model, str, list[Any], int, int, Any, list[Any]]
) -> None:
    model, op, wanted, limit, offset, in_, filters = case
    index = fill(server, model)
    expected = model.find(op, wanted, limit, offset, in_, filters)
    assert running.run(index.find(op, wanted, limit, offset, in_, filters)) == expected  # type: ignore[arg-type]
    several = [index.find(op, wanted, limit, offset, in_, filters)] * 6  # type: ignore[arg-type]
    assert running.run_all(*several) == (expected,) * 6


@given(
    case=cases(),
    verb=st.sampled_from(["update", "delete", "increment", "decrement"]),
    to=OF["c"],
    returns=st.booleans(),
)
@SLOW
def test_a_modification_changes_the_rows_that_are_found(
    server: Database,
    running: roost.Store,
    case: tuple[Model, str, list[Any], int, int, Any, list[Any]],
    verb: str,
    to: int | None,
    returns: bool,
) -> None:
    model, op, wanted, limit, offset, in_, filters = case
    fill(server, model)
    index = roost.Index("t", "PRIMARY" if model.key == ("id",) else "k", ["c", "id"], filters=NAMES)
    every = model.find(op, wanted, 2**32 if verb == "delete" or in_ else limit, offset, in_, filters)
    if verb != "delete" and in_:
        every = every[:limit]
    found = list(dict.fromkeys(every))[:limit]
    made: Any = getattr(index, verb)
    asked: tuple[Any, ...] = () if verb == "delete" else ((to,),)
    operation = made(op, wanted, *asked, limit, offset, in_, filters)
    expected, changed = {row[0]: row for row in model.rows}, 0
    for id, a, b, c in found:
        new: Any = to
        if verb == "delete":
            del expected[id]
        elif verb != "update":
            new = c if c is None or to is None else c + to if verb == "increment" else c - to
            if verb == "decrement" and to is not None and c is not None and c * new < 0:
                continue
        if verb != "delete":
            expected[id] = (id, a, b, new)
        changed += 1
    result = running.run(index.returning(operation) if returns else operation)
    assert result == ([(row[3], row[0]) for row in found] if returns else changed)
    assert [tuple(row) for row in server.sql("SELECT id, a, b, c FROM t ORDER BY id")] == [*expected.values()]


def opened(connection: Any, dialect: str, table: str, name: str) -> OpenedIndex:
    cursor = connection.cursor()

    def answer(wanted: Statement) -> Any:
        found = []
        for row in wanted.rows:
            cursor.execute(wanted.template.sql, row or None)
            found.append(list(cursor.fetchall()))
        return found

    work = READ_TABLE[dialect](table, True)  # where more columns are shown as something else
    wanted: Any = next(work)
    try:
        while True:
            several = getattr(wanted, "statements", None)
            wanted = work.send(answer(wanted) if several is None else [answer(each) for each in several])
    except StopIteration as stop:
        found = stop.value
    key = found.key(name)
    assert key is not None
    return OpenedIndex(found, key, list(found.columns.values()))


EXPLAINED = {
    "mariadb": [
        "DROP TABLE IF EXISTS e",
        "CREATE TABLE e (id INT PRIMARY KEY, a INT, b VARCHAR(9), c INT NOT NULL UNIQUE, l VARCHAR(9) CHARACTER SET"
        " latin1, s ENUM('x', 'y'), d DECIMAL(9,2), KEY mixed (a, b DESC, c), KEY other (b, a), UNIQUE KEY l (l),"
        " KEY s (s, a), KEY d (d)) CHARACTER SET utf8mb4",
        "INSERT INTO e SELECT seq, seq MOD 200, CONCAT('b', seq MOD 7), seq * 2, CONCAT('l', seq), 'x', seq FROM"
        " seq_1_to_5000",
        "ANALYZE TABLE e",
    ],
    "postgresql": [
        "DROP TABLE IF EXISTS e",
        'CREATE TABLE e (id int PRIMARY KEY, a int, b varchar(9), c int NOT NULL UNIQUE, l text COLLATE "C", s text,'
        " d numeric)",
        "CREATE INDEX mixed ON e (a, b DESC, c)",
        "CREATE INDEX other ON e (b, a)",
        'CREATE INDEX l ON e (l COLLATE "POSIX" DESC NULLS LAST)',
        "CREATE INDEX s ON e (s NULLS FIRST, a)",
        "CREATE INDEX d ON e (d)",
        "INSERT INTO e SELECT n, n % 200, 'b' || n % 7, n * 2, 'l' || n, 'x', n FROM generate_series(1, 5000) n",
        "ANALYZE e",
    ],
}


EXPLAINED["mysql"] = [
    "SET cte_max_recursion_depth = 5000",
    *[
        text.replace(
            "seq_1_to_5000", "(WITH RECURSIVE r (seq) AS (SELECT 1 UNION ALL SELECT seq + 1 FROM r WHERE seq < 5000)"
            " SELECT seq FROM r) AS numbers"
        )
        for text in EXPLAINED["mariadb"]
    ],
]  # fmt: skip


def explained(cursor: Any, server: Database, sql: str, row: Any) -> list[Any]:
    """Return the plan; MySQL's in MariaDB's columns."""
    cursor.execute(f"EXPLAIN {'FORMAT=TRADITIONAL ' if server.name == 'mysql' else ''}{sql}", row)
    found = cursor.fetchall()
    return [(*line[:3], *line[4:10], line[11] or "") for line in found] if server.name == "mysql" else found


@pytest.fixture(scope="module")
def full(server: Database) -> None:
    """Make a table with rows and statistics."""
    server.script(*EXPLAINED[server.name])


VALUES = {"id": 100, "a": 100, "b": "b3", "c": 100, "l": "l3", "s": "x", "d": 100}


@pytest.mark.parametrize("name", ["PRIMARY", "mixed", "other", "c", "l", "s", "d"])
@pytest.mark.parametrize("op", OPS)
def test_every_find_is_a_search_in_its_index(server: Database, full: None, name: str, op: str) -> None:
    with closing(server.connect()) as connection:
        cursor = connection.cursor()
        index = opened(connection, server.name, "e", "e_c_key" if (server.name, name) == ("postgresql", "c") else name)
        for width in range(1, len(index.key.parts) + 1):
            nullable = [part.column.nullable for part in index.key.parts[:width]]
            for nulls in range(2**width):
                names = [part.column.name for part in index.key.parts[:width]]
                given = tuple(
                    [
                        None if nulls >> place & 1 and nullable[place] else VALUES[name]
                        for place, name in enumerate(names)
                    ]
                )
                for texts in index.statements(op, given, ()):
                    row = (*[given[place] for place in texts.places], 1, 0)
                    rows = explained(cursor, server, texts.rows.sql, row)
                    if server.name != "postgresql":
                        ((_, _, _, kind, _, key, *_, extra),) = rows
                        whole = " WHERE " not in texts.rows.sql or "IS NOT NULL" in texts.rows.sql
                        assert (
                            kind in ("const", "ref", "range")
                            or (kind == "index" and (whole or name == "s"))
                            or (extra == "Impossible WHERE noticed after reading const tables")
                        ), (texts.rows.sql, row, rows)
                        assert key == index.key.name or extra.startswith("Impossible"), (texts.rows.sql, rows)
                        if (server.name, name) != ("mysql", "mixed"):  # which MySQL cannot read backwards from a place
                            assert "filesort" not in (extra or ""), (texts.rows.sql, row, rows)
                    else:
                        text = " ".join([line for (line,) in rows])
                        assert "Index" in text, (texts.rows.sql, row, text)
                        assert "Sort" not in text, (texts.rows.sql, row, text)
                        assert "Seq Scan" not in text, (texts.rows.sql, row, text)


@pytest.mark.parametrize("name", ["PRIMARY", "mixed", "other", "c", "l", "d"])
@pytest.mark.parametrize("op", ["lookup", "=", ">=", "<="])
def test_many_finds_are_searches_in_the_index(server: Database, full: None, name: str, op: str) -> None:
    with closing(server.connect()) as connection:
        index = opened(connection, server.name, "e", "e_c_key" if (server.name, name) == ("postgresql", "c") else name)
        keys = tuple([VALUES[part.column.name] for part in index.key.parts])
        lookup = op == "lookup"
        shape = Shape("find", "=", len(keys)) if lookup else Shape("find", op, 1, bounded=True)
        if lookup and not index.key.unique:
            return
        run = bulk_of(index, shape, {"mariadb": MARIADB, "mysql": MYSQL, "postgresql": POSTGRESQL}[server.name])
        if not isinstance(run, ServerLookups if lookup else Finds):
            return  # NULLs lie beyond: two ranges each; or MariaDB would compare a text of latin1 with a list
        template, row = run.template, keys if lookup else (keys[0], 2, 0)
        assert template is not None
        ((sql, values),) = render(Statement(template, [row] * 3))
        cursor = connection.cursor()
        rows = explained(cursor, server, sql, values)
        if server.name != "postgresql":
            searches = [line for line in rows if line[2] in ("t", "e") and "Impossible" not in line[-1]]
            assert searches
            for _, _, _, kind, _, key, *_, extra in searches:
                assert kind in ("const", "eq_ref", "ref", "range"), (sql, rows)
                assert key == index.key.name, (sql, rows)
                assert "filesort" not in (extra or ""), (sql, rows)
        else:
            text = " ".join([line for (line,) in rows])
            assert "Index" in text, (sql, text)
            assert "Sort" not in text, (sql, text)
            assert "Seq Scan" not in text, (sql, text)


def test_a_find_is_one_exchange_with_the_question_whether_the_table_has_changed(server: Database, full: None) -> None:
    asked: list[str] = []
    index = roost.Index("e", columns=["id", "a"])
    with roost.Store(server.url, trace=lambda sql, _: asked.append(sql)) as store:
        assert store.run(index.find("=", 1)) == [(1, 1)]
        asked.clear()
        assert store.run(index.find("=", 2)) == [(2, 2)]
    questions = {"mariadb": "SHOW CREATE TABLE", "mysql": "SHOW CREATE TABLE", "postgresql": "pg_catalog.pg_attribute"}
    assert len([sql for sql in asked if questions[server.name] in sql]) == 1


def test_a_find_by_itself_is_one_message(server: Database, full: None) -> None:
    index = roost.Index("e", columns=["id", "a"], filters=["a"])
    operations = [
        index.find("=", 2),
        index.find(">=", 1, limit=2),
        index.find("<", 3, filters=[roost.Where("a", ">=", 1)]),
    ]
    with Proxy(urlsplit(server.url).port or 0) as proxy, roost.Store(proxy.url(server.url)) as store:
        for operation in operations:
            found = [store.run(operation) for _ in range(8)]  # until what is prepared is prepared
            assert proxy.counted(partial(store.run, operation)) == 1
            proxy.arm(0, Cut.AFTER)
            found.append(store.run(operation))
            assert found == found[:1] * len(found)
            assert found[0]
    assert proxy.cuts == len(operations)


def test_a_table_that_is_rebuilt_is_always_there(server: Database) -> None:
    if server.name == "postgresql":
        return  # a table that was rewritten after a query's snapshot is empty to it, also by SQL
    server.script("DROP TABLE IF EXISTS rebuilt", "CREATE TABLE rebuilt (id int PRIMARY KEY, v int)")
    server.script("INSERT INTO rebuilt VALUES (1, 7)")
    rebuilding = threading.Event()

    def rebuild() -> None:
        for _ in range(40):
            server.script("ALTER TABLE rebuilt ENGINE=InnoDB")
        rebuilding.set()

    index = roost.Index("rebuilt", "PRIMARY", ["v"])
    thread = threading.Thread(target=rebuild)
    thread.start()
    try:
        while not rebuilding.is_set():
            with roost.Store(server.url, timeout=60.0) as store:
                assert [int(v) for (v,) in store.run(index.find("=", (1,)))] == [7]
    finally:
        thread.join()
