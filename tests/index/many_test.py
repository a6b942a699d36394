"""Requests that go out together are answered as each would be by itself, and leave the same rows."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import roost
from roost.databases.engine import drive
from roost.dialects import Control
from roost.errors import Error
from roost.structures.index.budget import Budget
from roost.structures.index.bulk import args_of, bulk_of
from roost.structures.index.opened import OpenedIndex, guarded, open_index
from roost.structures.index.runs import Bulk, Shape
from tests.index.databases import Database, database
from tests.lengths import length

TABLES = {
    "mariadb": "CREATE TABLE {} (id INT PRIMARY KEY, u VARCHAR(3) UNIQUE, n INT, d DECIMAL(6, 2), x INT NOT NULL,"
    " y VARCHAR(3) CHARACTER SET latin1, UNIQUE KEY xy (x, y), KEY n (n), CHECK (n < 50)) CHARACTER SET utf8mb4",
    "postgresql": "CREATE TABLE {0} (id int PRIMARY KEY, u varchar(3) UNIQUE, n int CHECK (n < 50), d numeric(6, 2),"
    " x int NOT NULL, y text); CREATE UNIQUE INDEX {0}_xy ON {0} (x, y); CREATE INDEX {0}_n ON {0} (n)",
}
TABLES["mysql"] = TABLES["mariadb"]
COLUMNS: dict[str, tuple[str, ...]] = {"PRIMARY": ("n", "d", "u"), "u": ("n", "d"), "xy": ("d", "n"), "n": ("id", "n")}
NAMES = {"u": "{}_u_key", "xy": "{}_xy", "n": "{}_n", "PRIMARY": "PRIMARY"}  # on PostgreSQL

numbers = st.one_of(st.integers(-2, 9), st.sampled_from([None, 49, 60, "7", "1.5", "x", 2**40]))
texts = st.one_of(st.sampled_from(["a", "A", "b", "é", "a ", "", "long", None, "日"]))
KEYS: dict[str, list[Any]] = {"PRIMARY": [numbers], "u": [texts], "xy": [numbers, texts], "n": [numbers]}
OF = {"n": numbers, "d": st.one_of(numbers, st.just("0.25")), "u": texts, "id": numbers}


@st.composite
def runs(draw: Any) -> tuple[str, Shape, list[tuple[Any, ...]], bool]:
    """Return an index, a shape, and the values of requests."""
    name = draw(st.sampled_from(sorted(COLUMNS)))
    verb = draw(st.sampled_from(["find", "find", "update", "delete", "increment", "decrement", "insert"]))
    columns = COLUMNS[name]
    if verb == "insert":
        shape = Shape(verb, to=5)
        each = st.tuples(numbers, texts, numbers, numbers, st.integers(0, 5))
        return name, shape, draw(st.lists(each, min_size=1, max_size=8)), False
    bounded = verb == "find" and draw(st.booleans())
    filters: tuple[tuple[str, int], ...] = (("=", 0),) if bounded and draw(st.booleans()) else ()
    op = draw(st.sampled_from(["=", ">=", "<"])) if verb == "find" else "="
    most = 0 if verb in ("find", "delete") else draw(st.integers(1, len(columns)))
    to = columns[:most]
    parts: list[Any] = [*KEYS[name]]
    if bounded:
        parts += [st.integers(1, 4), st.integers(0, 2)]
    parts += [numbers] * len(filters)
    parts += [OF[column] for column in to]
    shape = Shape(verb, op, len(KEYS[name]), bounded, filters, len(to))
    return name, shape, draw(st.lists(st.tuples(*parts), min_size=1, max_size=8)), draw(st.booleans())


@pytest.fixture(scope="module", params=["mariadb", "mysql", "postgresql"])
def server(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A database on each server, with twin tables."""
    with database(request.param, Path()) as made, made.kept():
        made.script(*[TABLES[made.name].format(name) for name in ("one", "two")])
        yield made


@pytest.fixture(scope="module")
def running(server: Database) -> Iterator[roost.Store]:
    with roost.Store(server.url) as store:
        store.create(roost.Counter("unused"))
        yield store


ROWS = "(0, 'a', 1, 1.5, 0, 'a'), (1, 'b', 2, NULL, 0, 'b'), (2, NULL, 0, 0, 1, 'a'), (3, 'c', 5, 9999.75, 1, NULL)"
ROWS += ", (7, '', NULL, 2, 2, 'a')"


def told(result: Any) -> Any:
    """Return a result so that two can be compared."""
    if isinstance(result, Error):
        return type(result).__name__, result.word
    if type(result) is tuple:
        return [] if result[-1] is None else [result[:-1]]
    return result


@given(case=runs())
@settings(max_examples=length(40, 150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_run_is_not_seen(server: Database, running: roost.Store, case: Any) -> None:
    name, shape, requests, _ = case
    server.script(*[f"DELETE FROM {table}" for table in ("one", "two")])
    server.script(*[f"INSERT INTO {table} VALUES {ROWS}" for table in ("one", "two")])
    columns = ["id", "u", "n", "d", "x"] if shape.verb == "insert" else COLUMNS[name]

    def play(table: str, together: bool) -> Generator[Any, Any, Any]:
        key = NAMES[name].format(table) if server.name == "postgresql" else name
        index = yield from open_index(table, key, columns, ["n"], server.name)
        assert isinstance(index, OpenedIndex), index
        values = list(zip(*requests, strict=True))

        def alone(place: int) -> Any:
            return guarded(index.perform(shape.verb, args_of(index, shape, values, place)))

        results: list[Any] = []
        bulk = bulk_of(index, shape) if together else Bulk(index, shape)
        while len(results) < len(requests):
            rest = [column[len(results) :] for column in values]
            begin = len(results)
            results += yield from bulk.run(rest, lambda place, begin=begin: alone(begin + place), Budget())  # type: ignore[misc]
        return results

    found: list[list[Any]] = []

    def work(connection: Any) -> None:
        connection.execute(Control.BEGIN)
        try:
            found[:] = [list(map(told, drive(play(table, table == "one"), connection))) for table in ("one", "two")]
            connection.execute(Control.COMMIT)
        finally:
            connection.settle()

    running._core.with_writer(work)
    assert found[0] == found[1]
    rows = [server.sql(f"SELECT * FROM {table} ORDER BY id") for table in ("one", "two")]
    assert rows[0] == rows[1]


def test_inserts_that_go_out_together_are_numbered_in_their_order(server: Database, running: roost.Store) -> None:
    kind = "INT PRIMARY KEY AUTO_INCREMENT" if server.name != "postgresql" else "serial PRIMARY KEY"
    server.script(f"CREATE TABLE numbered (id {kind}, n INT)")
    rows = roost.Index("numbered", columns=["id", "n"])
    found = running.run_all(
        *[rows.insert((None, n)) for n in range(100)], rows.insert((1000, 1)), rows.insert((1001, 1))
    )
    assert list(found) == [*range(1, 101), 0, 0]
    assert [tuple(row) for row in server.sql("SELECT id, n FROM numbered WHERE id < 1000 ORDER BY id")] == [
        (n + 1, n) for n in range(100)
    ]
