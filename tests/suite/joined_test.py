"""Operations inside the application's own transaction."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import roost
from tests.suite.shapes import Egg, Visit, baskets, likes, pageviews, visits

Make = Callable[..., Any]
ALL = (pageviews, visits, baskets, likes)
pytestmark = pytest.mark.needs("sqlite3", "file")


@pytest.fixture
def store(open_store: Make) -> Any:
    return open_store(*ALL)


@pytest.fixture
def connect(store: Any, tmp_path: Path) -> Iterator[Callable[..., sqlite3.Connection]]:
    made: list[sqlite3.Connection] = []

    def connect_(**options: Any) -> sqlite3.Connection:
        made.append(sqlite3.connect(tmp_path / "suite.db", **options))
        return made[-1]

    yield connect_
    for connection in made:
        connection.close()


def test_it_commits_and_rolls_back_with_the_application(store: Any, connect: Any) -> None:
    connection = connect()
    connection.execute("CREATE TABLE orders (id INTEGER)")
    connection.execute("INSERT INTO orders VALUES (1)")
    assert store.on(connection).run_all(pageviews.add("/home"), visits.push(Visit(5, 7)))[1] == 1
    assert store.on(connection).run(pageviews.total("/home")) == 1
    assert store.run(pageviews.total("/home")) == 0
    connection.rollback()
    assert store.run_all(pageviews.total("/home"), visits.latest(5)) == (0, [])
    store.on(connection).run(pageviews.add("/home"))
    connection.commit()
    assert store.run(pageviews.total("/home")) == 1


def test_a_failed_operation_leaves_the_transaction_usable(store: Any, connect: Any) -> None:
    connection = connect()
    joined = store.on(connection)
    joined.run(baskets.add(Egg(1, 1)))
    with pytest.raises(roost.Duplicate):
        joined.run_all(pageviews.add("/home"), baskets.add(Egg(1, 1)))
    with pytest.raises(roost.Missing):
        joined.run(roost.Counter("nowhere").add("a"))
    with pytest.raises(roost.Overflow):
        joined.run_all(pageviews.add("/x", 2**63 - 1), pageviews.add("/x", 1))
    assert connection.in_transaction
    joined.run(likes.add(1, "a"))
    connection.commit()
    assert store.run_all(pageviews.totals(["/home", "/x"]), baskets.count(1), likes.size(1)) == (
        {"/home": 0, "/x": 0}, 1, 1,
    )  # fmt: skip


def test_what_the_driver_begins_implicitly_is_begun_and_left_open(store: Any, connect: Any) -> None:
    connection = connect()
    store.on(connection).run(pageviews.add("/home"))
    assert connection.in_transaction
    connection.rollback()
    assert store.run(pageviews.total("/home")) == 0


@pytest.mark.parametrize("level", ["DEFERRED", "IMMEDIATE", "EXCLUSIVE"])
def test_every_isolation_level_of_sqlite3(store: Any, connect: Any, level: str) -> None:
    connection = connect(isolation_level=level)
    store.on(connection).run(pageviews.add("/home"))
    connection.commit()
    assert store.run(pageviews.total("/home")) == 1


def test_reading_without_a_transaction_opens_none(store: Any, connect: Any) -> None:
    connection = connect()
    assert store.on(connection).run(pageviews.total("/home")) == 0
    assert not connection.in_transaction


def test_under_autocommit_writing_without_a_transaction_is_refused(store: Any, connect: Any) -> None:
    connection = connect(isolation_level=None)
    with pytest.raises(roost.Invalid, match="autocommit"):
        store.on(connection).run(pageviews.add("/home"))
    connection.execute("BEGIN")
    store.on(connection).run(pageviews.add("/home"))
    connection.execute("COMMIT")
    assert store.run(pageviews.total("/home")) == 1


@pytest.mark.skipif(not hasattr(sqlite3.Connection, "autocommit"), reason="sqlite3 has `autocommit` from Python 3.12")
@pytest.mark.parametrize("autocommit", [True, False])
def test_the_autocommit_attribute_of_python_3_12(store: Any, connect: Any, autocommit: bool) -> None:
    connection = connect(autocommit=autocommit)
    if autocommit:
        with pytest.raises(roost.Invalid, match="autocommit"):
            store.on(connection).run(pageviews.add("/home"))
        connection.execute("BEGIN")
    store.on(connection).run(pageviews.add("/home"))
    connection.execute("COMMIT") if autocommit else connection.commit()
    assert store.run(pageviews.total("/home")) == 1


def test_the_callers_factories_do_not_matter(store: Any, connect: Any) -> None:
    class Cursor(sqlite3.Cursor):
        def execute(self, *_: Any) -> Any:
            raise AssertionError("not this one")

    class Connection(sqlite3.Connection):
        def cursor(self, factory: Any = Cursor) -> Any:
            return super().cursor(factory)

    connection = connect(factory=Connection)
    connection.row_factory = lambda *_: {"no": "tuple"}
    connection.text_factory = bytes
    joined = store.on(connection)
    joined.run_all(pageviews.add("/home"), likes.add(1, "ada"), visits.push(Visit(1, 2)))
    assert joined.run_all(likes.members(1), pageviews.keys(), visits.latest(1)) == ({"ada"}, ["/home"], [Visit(1, 2)])
    assert connection.text_factory is bytes
    connection.commit()


def test_a_snapshot_that_is_too_old_is_a_conflict_that_says_what_to_do(store: Any, connect: Any) -> None:
    connection = connect(isolation_level=None)
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM roost_catalog").fetchall()
    store.run(pageviews.add("/home"))
    with pytest.raises(roost.Conflict, match="BEGIN IMMEDIATE"):
        store.on(connection).run(pageviews.add("/home"))
    connection.execute("ROLLBACK")
    connection.execute("BEGIN IMMEDIATE")
    store.on(connection).run(pageviews.add("/home"))
    connection.execute("COMMIT")
    assert store.run(pageviews.total("/home")) == 2


def test_a_lock_that_is_not_had_is_busy(store: Any, connect: Any) -> None:
    other, connection = connect(isolation_level=None), connect(timeout=0)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(roost.Busy):
        store.on(connection).run(pageviews.add("/home"))
    other.execute("ROLLBACK")
    store.on(connection).run(pageviews.add("/home"))
    connection.commit()
    assert store.run(pageviews.total("/home")) == 1


def test_joined_adds_take_other_slots_than_batches(open_store: Make, connect: Any) -> None:
    spread = roost.Counter("spread", slots=8)
    store = open_store(spread)
    store.run(spread.add("/home"))
    connection = connect()
    store.on(connection).run(spread.add("/home"))
    connection.commit()
    slots = connection.execute("SELECT slot FROM roost_spread_rows").fetchall()
    assert len(slots) == 2
    assert sorted(slot >= 6 for (slot,) in slots) == [False, True]


def test_store_run_by_the_thread_whose_transaction_holds_the_lock_says_so(open_store: Make, connect: Any) -> None:
    store = open_store(pageviews, timeout=60.0, lock_wait=0.01)
    connection = connect()
    store.on(connection).run(pageviews.add("/home"))
    with pytest.raises(roost.Busy, match=r"would wait for itself: use store\.on"):
        store.run(pageviews.add("/home"))
    connection.commit()
    store.run(pageviews.add("/home"))
    assert store.run(pageviews.total("/home")) == 2


def test_with_asyncio(store: Any, store_url: str, connect: Any) -> None:
    async def main() -> Any:
        async with roost.AsyncStore(store_url) as other:
            connection = connect()
            joined = other.on(connection)
            await joined.run(pageviews.add("/home"))
            assert await joined.run_all(visits.push(Visit(1, 2)), pageviews.total("/home")) == (1, 1)
            assert await other.run(pageviews.total("/home")) == 0
            connection.commit()
            return await other.run(pageviews.total("/home"))

    assert asyncio.run(main()) == 1


def test_what_is_no_connection_is_refused(store: Any) -> None:
    with pytest.raises(roost.Invalid, match="not there yet"):
        store.on("connection")


def test_mixed_with_batches_from_threads_nothing_is_lost(store: Any, connect: Any) -> None:
    done = threading.Event()
    errors: list[BaseException] = []

    def batches() -> None:
        try:
            while not done.is_set():
                store.run_all(pageviews.add("/batch"), visits.push(Visit(5, 1)))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=batches) for _ in range(3)]
    for thread in threads:
        thread.start()
    connection = connect(timeout=60)
    for n in range(100):
        store.on(connection).run_all(pageviews.add("/joined"), visits.push(Visit(5, 2)))
        connection.commit() if n % 2 else connection.rollback()
    done.set()
    for thread in threads:
        thread.join()
    assert errors == []
    totals = store.run(pageviews.totals(["/batch", "/joined"]))
    assert totals["/joined"] == 50
    assert store.run(visits.entries(5))[-1].sequence == sum(totals.values())
