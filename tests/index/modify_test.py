"""Inserting and modifying through an index: all or nothing, each row once, and what SQL maintains is maintained."""

from __future__ import annotations

import pickle
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import roost

SCHEMA = """
CREATE TABLE item (
  id INTEGER PRIMARY KEY, name TEXT UNIQUE, n INT DEFAULT 5, price REAL, raw BLOB, twice AS (n * 2),
  made TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP, CHECK (n < 1000)
);
CREATE TABLE part (item INT REFERENCES item (id), place INT, n INT, PRIMARY KEY (item, place)) WITHOUT ROWID;
CREATE TABLE log (what TEXT);
CREATE VIEW cheap AS SELECT name, price FROM item WHERE price < 10;
CREATE TRIGGER added INSTEAD OF INSERT ON cheap BEGIN INSERT INTO item (name, price) VALUES (new.name, new.price); END;
CREATE TRIGGER told AFTER UPDATE OF name ON item BEGIN INSERT INTO log VALUES (old.name || ' ' || new.name); END;
CREATE TRIGGER kept BEFORE DELETE ON item WHEN old.name = 'kept' BEGIN SELECT RAISE(ABORT, 'it is kept'); END;
"""

items = roost.Index("item", columns=["id", "name", "n"], filters=["n"])
numbers = roost.Index("item", columns=["n", "price"])
parts = roost.Index("part", columns=["item", "place", "n"])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "app.db"
    with sqlite3.connect(file) as connection:
        connection.executescript(SCHEMA)
        connection.executemany(
            "INSERT INTO item (id, name, n, price) VALUES (?, ?, ?, ?)",
            [(1, "one", 1, 0.5), (2, "two", 2, None), (3, "three", None, 3.0), (4, "kept", 4, 40.0)],
        )
        connection.executemany("INSERT INTO part VALUES (1, ?, ?)", [(1, 1), (2, 2), (3, 3)])
    return file


@pytest.fixture
def store(path: Path) -> Iterator[roost.Store]:
    with roost.Store(f"sqlite:///{path}") as store:
        yield store


def sql(path: Path, text: str) -> list[Any]:
    with sqlite3.connect(path) as connection:
        return connection.execute(text).fetchall()


def test_an_insert_answers_the_number_it_was_given(store: roost.Store, path: Path) -> None:
    assert store.run(items.insert((None, "five"))) == 5
    assert store.run(items.insert((0, "six"))) == 6
    assert store.run(items.insert((9, "nine", None))) == 0
    assert store.run(parts.insert((1, 4))) is None
    assert sql(path, "SELECT name, n, made > '2020' FROM item WHERE id > 4") == [
        ("five", 5, 1),
        ("six", 5, 1),
        ("nine", None, 1),
    ]


def test_an_insert_of_nothing_has_the_defaults(store: roost.Store, path: Path) -> None:
    assert store.run(roost.Index("item").insert(())) == 5
    assert sql(path, "SELECT name, n FROM item WHERE id = 5") == [(None, 5)]


@pytest.mark.parametrize(
    ("row", "word"),
    [
        ((None, "one"), "121"),
        ((1, "new"), "121"),
        (("abc", "new"), "type"),
        ((1.5, "new"), "type"),
        ((None, "new", "many"), "type"),
        ((None, "new", 1000), "check"),
    ],
)
def test_what_cannot_be_stored_is_refused(store: roost.Store, path: Path, row: tuple[Any, ...], word: str) -> None:
    before = sql(path, "SELECT * FROM item")
    with pytest.raises(roost.StatementFailed) as refused:
        store.run(items.insert(row))
    assert refused.value.word == word
    assert pickle.loads(pickle.dumps(refused.value)).word == word
    assert sql(path, "SELECT * FROM item") == before


def test_a_column_that_is_computed_cannot_be_written(store: roost.Store) -> None:
    computed = roost.Index("item", columns=["id", "twice"])
    assert store.run(computed.find("=", 2)) == [(2, 4)]
    for operation in (
        computed.insert((None, 1)),
        computed.update("=", 2, (2, 1)),
        computed.increment("=", 2, (None, 1)),
    ):
        with pytest.raises(roost.StatementFailed) as refused:
            store.run(operation)
        assert refused.value.word == "generated"


def test_an_update_leaves_the_columns_that_are_not_given(store: roost.Store, path: Path) -> None:
    assert store.run(items.update("=", 2, (2, "zwei"))) == 1
    assert store.run(items.update("=", 99, (99, "x"))) == 0
    assert sql(path, "SELECT id, name, n FROM item WHERE id = 2") == [(2, "zwei", 2)]
    assert sql(path, "SELECT what FROM log") == [("two zwei",)]


def test_every_row_is_modified_once_although_it_moves_along_the_index(store: roost.Store, path: Path) -> None:
    assert store.run(roost.Index("item", columns=["id"]).increment(">=", 1, 10, limit=100)) == 4
    assert sql(path, "SELECT id FROM item ORDER BY id") == [(11,), (12,), (13,), (14,)]
    assert store.run(roost.Index("item", columns=["id"]).increment("<=", 99, 1, limit=100)) == 4
    assert sql(path, "SELECT id FROM item ORDER BY id") == [(12,), (13,), (14,), (15,)]


def test_an_error_on_the_third_row_undoes_the_first_two(store: roost.Store, path: Path) -> None:
    before = sql(path, "SELECT * FROM item"), sql(path, "SELECT * FROM part")
    with pytest.raises(roost.StatementFailed) as refused:
        store.run(items.delete(">=", 2, limit=9))
    assert refused.value.word == "trigger"
    with pytest.raises(roost.StatementFailed):
        store.run(parts.update(">=", (1, 1), (1, 3), limit=9))
    assert (sql(path, "SELECT * FROM item"), sql(path, "SELECT * FROM part")) == before


def test_a_modification_can_return_the_rows_as_they_were(store: roost.Store) -> None:
    assert store.run(items.returning(items.update("<", 3, (None,), filters=[("n", ">", 5)]))) == []
    assert store.run(parts.returning(parts.delete(">", (1, 1), limit=9))) == [(1, 2, 2), (1, 3, 3)]
    assert store.run(items.returning(items.increment("=", 2, (None, None, 5)))) == [(2, "two", 2)]
    assert store.run(items.find("=", 2)) == [(2, "two", 7)]


def test_sums(store: roost.Store, path: Path) -> None:
    assert store.run(numbers.increment(">=", 1, (1, 0.5), limit=9)) == 4
    assert sql(path, "SELECT n, price FROM item") == [(2, 1.0), (3, None), (None, 3.5), (5, 40.5)]
    assert store.run(numbers.decrement("=", 1, (2, None))) == 1  # to 0
    assert store.run(numbers.decrement("=", 1, (9, None))) == 1  # from 0
    assert store.run(numbers.increment("=", 1, (19,))) == 1
    assert store.run(numbers.decrement("=", 1, (11, None))) == 0  # across 0: the row is left alone
    assert sql(path, "SELECT n, price FROM item WHERE id = 1") == [(10, 1.0)]


@pytest.mark.parametrize(
    ("index", "by", "word"),
    [
        (items, (None, 1), "type"),
        (numbers, ("many",), "type"),
        (numbers, (1.5,), "type"),
        (numbers, (2**63 - 1,), "range"),
        (numbers, (999,), "check"),
    ],
)
def test_sums_that_are_refused_leave_the_row(
    store: roost.Store, path: Path, index: roost.Index, by: tuple[Any, ...], word: str
) -> None:
    before = sql(path, "SELECT * FROM item")
    with pytest.raises(roost.StatementFailed) as refused:
        store.run(index.increment(">=", 1, by, limit=9))
    assert refused.value.word == word
    assert sql(path, "SELECT * FROM item") == before


def test_a_view_is_opened_by_the_columns_that_are_named_first(store: roost.Store, path: Path) -> None:
    cheap = roost.Index("cheap", columns=["name", "price"])
    assert store.run(cheap.find(">=", "o", limit=9)) == [("one", 0.5), ("three", 3.0)]
    assert store.run(cheap.insert(("five", 5.0))) is None
    assert sql(path, "SELECT price FROM item WHERE name = 'five'") == [(5.0,)]
    with pytest.raises(roost.Invalid, match="view"):
        store.run(cheap.delete("=", "one"))


def test_what_is_not_there_is_missing(store: roost.Store) -> None:
    for index, told in (
        (roost.Index("nothing", columns=["id"]), "no table or view nothing"),
        (roost.Index("sqlite_schema", columns=["name"]), "sqlite_schema"),
        (roost.Index("item", "by_size", ["id"]), "there are: PRIMARY, name"),
        (roost.Index("item", columns=["size"]), "no column size"),
        (roost.Index("item", columns=["Name"]), "no column Name"),
    ):
        with pytest.raises(roost.Missing, match=told):
            store.run(index.find("=", 1))
    with pytest.raises(roost.Invalid, match="1 columns"):
        store.run(items.find("=", (1, 2)))


def test_a_changed_table_is_seen_by_the_next_operation(store: roost.Store, path: Path) -> None:
    sizes = roost.Index("item", "by_size", ["id", "size"])
    with pytest.raises(roost.Missing):
        store.run(sizes.find("=", 1))
    sql(path, "ALTER TABLE item ADD COLUMN size INT DEFAULT 1")
    sql(path, "CREATE INDEX by_size ON item (size)")
    assert store.run(sizes.find("=", 1, limit=2)) == [(1, 1), (2, 1)]
    sql(path, "DROP INDEX by_size")
    with pytest.raises(roost.Missing):
        store.run(sizes.find("=", 1))


def test_indexes_and_structures_share_a_transaction(store: roost.Store, path: Path) -> None:
    views = roost.Counter("views")
    store.create(views)
    assert store.run_all(items.insert((7, "seven")), views.add("/7"), items.find("=", 7)) == (
        0,
        None,
        [(7, "seven", 5)],
    )
    with pytest.raises(roost.StatementFailed):
        store.run_all(views.add("/7"), items.insert((7, "again")))
    assert store.run(views.total("/7")) == 1


def test_inside_the_transaction_of_the_application(store: roost.Store, path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("INSERT INTO item (id, name) VALUES (7, 'seven')")
    joined = store.on(connection)
    assert joined.run(items.update("=", 7, (8,))) == 1
    with pytest.raises(roost.StatementFailed):
        joined.run(items.insert((8, "again")))
    assert joined.run(items.find("=", 8)) == [(8, "seven", 5)]
    connection.rollback()
    connection.close()
    assert sql(path, "SELECT count(*) FROM item") == [(4,)]


def test_a_store_on_another_engine_says_so() -> None:
    with (
        roost.Store("postgresql://nobody@127.0.0.1:1/none", timeout=0.2) as store,
        pytest.raises(roost.Error, match=r"indexes are for SQLite|connect"),
    ):
        store.run(items.find("=", 1))


@pytest.mark.parametrize(
    "make",
    [
        lambda: roost.Index("", columns=["id"]),
        lambda: roost.Index("item", columns="id"),
        lambda: roost.Index("item", columns=[""]),
        lambda: items.find("==", 1),  # type: ignore[arg-type]
        lambda: items.find("=", ()),
        lambda: items.find("=", 1, limit=0),
        lambda: items.find("=", 1, offset=-1),
        lambda: items.find("=", 1, in_=(1, [2])),
        lambda: items.find("=", 1, filters=[("name", "=", 1)]),
        lambda: items.find("=", 1, filters=[("n", "<>", 1)]),  # type: ignore[list-item]
        lambda: items.find("=", object()),  # type: ignore[arg-type]
        lambda: items.find("=", 2**63),
        lambda: items.find("=", "\ud800"),
        lambda: items.insert((1, 2, 3, 4)),
        lambda: items.update("=", 1, (1, 2, 3, 4)),
        lambda: items.returning(items.find("=", 1)),  # type: ignore[arg-type]
        lambda: items.returning(numbers.delete("=", 1)),
    ],
)
def test_what_is_no_request_is_refused_when_it_is_made(make: Any) -> None:
    with pytest.raises(roost.Invalid):
        make()


def test_operations_are_values() -> None:
    one, other = items.update(">", [1], ["x"], limit=3, filters=[("n", "<", 5)]), items.update("=", 1, 2)
    assert one == items.update(">", (1,), ("x",), limit=3, filters=[roost.Where("n", "<", 5)]) != other
    assert len({one, other, pickle.loads(pickle.dumps(one))}) == 2
    assert repr(one) == "item.update('>', (1,), ('x',), limit=3, filters=(Where(column='n', op='<', value=5),))"
    assert repr(items.insert((1, "x"))) == "item.insert((1, 'x'))"
    assert not items.find("=", 1).writes
    assert one.writes


@pytest.mark.parametrize("by", [(), (None,), (None, None)])
def test_an_increment_by_nothing_counts_the_rows_and_changes_none(
    store: roost.Store, path: Path, by: tuple[Any, ...]
) -> None:
    before = sql(path, "SELECT * FROM item")
    assert store.run(numbers.increment(">=", 1, by, limit=3)) == 3
    assert sql(path, "SELECT * FROM item") == before


def test_bytes_that_are_no_text_are_not_stored_as_one(store: roost.Store, path: Path) -> None:
    assert store.run(items.insert((None, b"caf\xc3\xa9"))) == 5
    with pytest.raises(roost.StatementFailed) as refused:
        store.run(items.insert((None, b"caf\xe9")))
    assert refused.value.word == "type"
    assert sql(path, "SELECT name FROM item WHERE id > 4") == [("café",)]
