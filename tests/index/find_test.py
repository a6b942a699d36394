"""Finding by an index: a dumb model beside it, and its plans explained: nothing sorts, nothing scans."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import roost
from roost.dialects import Statement
from roost.structures.index.declaration import OPS, While
from roost.structures.index.opened import OpenedIndex
from roost.structures.index.sqlite import read_table
from tests.index.model import Model
from tests.lengths import length

NAMES = ("id", "a", "b", "c")
COLUMNS = {"id": "INTEGER PRIMARY KEY", "a": "INT", "b": "TEXT", "c": "INT"}

values = st.one_of(st.none(), st.integers(-2, 3))
texts = st.one_of(st.none(), st.sampled_from(["", "a", "B", "é", "b"]))
OF = {"id": st.integers(-3, 20), "a": values, "b": texts, "c": values}


@st.composite
def cases(draw: Any) -> tuple[Model, str, list[Any], int, int, Any, list[Any]]:
    """Return a table, and a find."""
    listed = draw(st.lists(st.tuples(values, texts, values), max_size=14))
    rows = [(place, *row) for place, row in enumerate(listed)]
    key = draw(st.sampled_from([("id",), ("a",), ("b", "a"), ("a", "c"), ("a", "b", "c"), ("c", "b")]))
    descending = tuple([draw(st.booleans()) for _ in key]) if key != ("id",) else (False,)
    width = draw(st.integers(1, len(key)))
    wanted = [draw(OF[name]) for name in key[:width]]
    in_ = None
    if draw(st.integers(0, 3)) == 0:
        place = draw(st.integers(0, width - 1))
        in_ = (place, draw(st.lists(OF[key[place]], max_size=4)))
    filters = [
        draw(st.sampled_from([roost.Where, roost.While]))(
            name, draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">="])), draw(OF[name])
        )
        for name in draw(st.lists(st.sampled_from(NAMES), max_size=2))
    ]
    limit, offset = draw(st.integers(1, 20)), draw(st.integers(0, 6))
    return Model(NAMES, rows, key, descending), draw(st.sampled_from(OPS)), wanted, limit, offset, in_, filters


def database(model: Model) -> roost.Store:
    """Return a store in memory with the model's table."""
    store = roost.Store("sqlite://")
    store.create(roost.Counter("unused"))  # the store's connection is there now

    def fill(connection: Any) -> None:
        raw = connection.raw
        raw.execute(f"CREATE TABLE t ({', '.join([f'{name} {COLUMNS[name]}' for name in NAMES])})")
        raw.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", model.rows)
        if model.key != ("id",):
            parts = [f"{n}{' DESC' if d else ''}" for n, d in zip(model.key, model.descending, strict=True)]
            raw.execute(f"CREATE INDEX k ON t ({', '.join(parts)})")

    store._core.with_writer(fill)
    return store


@given(cases())
@settings(max_examples=length(150, 400), deadline=None)
def test_a_find_is_what_a_list_in_the_order_of_the_index_says(
    case: tuple[Model, str, list[Any], int, int, Any, list[Any]],
) -> None:
    model, op, wanted, limit, offset, in_, filters = case
    name = "PRIMARY" if model.key == ("id",) else "k"
    index = roost.Index("t", name, NAMES, filters=NAMES)
    with database(model) as store:
        found = store.run(index.find(op, wanted, limit, offset, in_, filters))  # type: ignore[arg-type]
    assert found == model.find(op, wanted, limit, offset, in_, filters)


@pytest.fixture
def tables() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    connection.executescript(
        """
        CREATE TABLE t (id INTEGER PRIMARY KEY, a INT, b TEXT COLLATE NOCASE, c INT NOT NULL, UNIQUE (c));
        CREATE INDEX mixed ON t (a, b DESC, c);
        CREATE INDEX other ON t (b COLLATE BINARY, a);
        CREATE TABLE w (a TEXT, b INT, n INT, PRIMARY KEY (a, b)) WITHOUT ROWID;
        CREATE INDEX wn ON w (n DESC);
        CREATE TABLE p (a TEXT, b INT, n INT, PRIMARY KEY (a, b));
        """
    )
    yield connection
    connection.close()


def opened(connection: sqlite3.Connection, table: str, name: str) -> OpenedIndex:
    work = read_table(table)
    wanted = next(work)
    try:
        while True:
            assert isinstance(wanted, Statement)
            wanted = work.send([connection.execute(wanted.template.sql, row).fetchall() for row in wanted.rows])
    except StopIteration as stop:
        found = stop.value
    key = found.key(name)
    assert key is not None
    return OpenedIndex(found, key, list(found.columns.values()))


KEYS = [("t", "PRIMARY"), ("t", "mixed"), ("t", "other"), ("t", "c"), ("w", "PRIMARY"), ("w", "wn"), ("p", "PRIMARY")]


@pytest.mark.parametrize(("table", "name"), KEYS)
@pytest.mark.parametrize("op", OPS)
def test_every_find_is_a_search_in_its_index(tables: sqlite3.Connection, table: str, name: str, op: str) -> None:
    index = opened(tables, table, name)
    for width in range(1, len(index.key.parts) + 1):
        nullable = [part.column.nullable for part in index.key.parts[:width]]
        for nulls in range(2**width):
            given = [None if nulls >> place & 1 and nullable[place] else 1 for place in range(width)]
            for sql in [text.rows.sql for text in index.statements(op, tuple(given), ())]:
                found = [row[3] for row in tables.execute(f"EXPLAIN QUERY PLAN {sql}", [1] * sql.count("?"))]
                assert len(found) == 1, (sql, found)
                # What begins at NULL begins at the index's first entry; there is nothing to search for. And SQLite
                # cannot search for what is not NULL in an index that has another collation than its column.
                whole = " WHERE " not in sql or (name == "other" and 'WHERE "b" IS NOT NULL ORDER' in sql)
                assert found[0].startswith("SCAN" if whole else "SEARCH"), (sql, found)
                if whole:
                    assert "USING" in found[0] or name == "PRIMARY", (sql, found)


def test_filters_are_values_of_their_columns(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, n INT, s TEXT)")
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", [(1, 9, "9"), (2, 10, "10"), (3, 11, "x")])
    index = roost.Index("t", columns=["id"], filters=["n", "s"])
    with roost.Store(f"sqlite:///{path}") as store:

        def found(*filters: Any) -> list[int]:
            return [id for (id,) in store.run(index.find(">=", 1, limit=9, filters=filters))]

        assert found(("n", ">", "10")) == [3]
        assert found(("n", ">", 10.4)) == [3]
        assert found(("n", "=", "ten")) == []
        assert found(("n", "!=", "ten")) == [1, 2, 3]
        assert found(("s", ">", "9")) == [3]  # texts: '10' < '9' < 'x'
        assert found(While("n", "<", 11), ("s", "!=", "9")) == [2]


def test_a_value_that_a_column_cannot_hold_matches_nothing(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, b BLOB, UNIQUE (b))")
        connection.execute("INSERT INTO t VALUES (0, x''), (1, x'31')")
    by_id, by_b = roost.Index("t", columns=["id"]), roost.Index("t", "b", ["id"])
    with roost.Store(f"sqlite:///{path}") as store:
        for op in OPS:
            assert store.run(by_id.find(op, "abc", limit=9)) == []
            assert store.run(by_id.find(op, "1.5", limit=9)) == []
            assert store.run(by_b.find(op, 1, limit=9)) == []
        assert store.run(by_id.find("=", " +1.0 ")) == [(1,)]
        assert store.run(by_b.find("=", b"1")) == [(1,)]


def test_a_null_in_a_primary_key_of_text_comes_before_its_values(tmp_path: Path) -> None:
    file = tmp_path / "app.db"
    with sqlite3.connect(file) as connection:  # SQLite takes NULL there, but for INTEGER PRIMARY KEY and WITHOUT ROWID
        connection.execute("CREATE TABLE t (name TEXT PRIMARY KEY)")
        connection.executemany("INSERT INTO t VALUES (?)", [("a",), (None,), ("b",)])
    names = roost.Index("t", columns=["name"])
    with roost.Store(f"sqlite:///{file}") as store:
        assert store.run(names.find("<", "b", limit=9)) == [("a",), (None,)]
        assert store.run(names.find("<=", "a", limit=9)) == [("a",), (None,)]
