"""Operations inside a transaction on a connection of sqlite3: what SQLite alone has to say about it."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiosqlite
import pytest

import roost
from tests.suite.shapes import Make, Visit, baskets, likes, pageviews, visits

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


@pytest.mark.parametrize("level", ["DEFERRED", "IMMEDIATE", "EXCLUSIVE"])
def test_every_isolation_level_of_sqlite3(store: Any, connect: Any, level: str) -> None:
    connection, other = connect(isolation_level=level, timeout=0), connect(isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(roost.Busy):
        store.on(connection).run(pageviews.add("/home"))
    other.execute("ROLLBACK")
    store.on(connection).run(pageviews.add("/home"))
    connection.commit()
    assert store.run(pageviews.total("/home")) == 1


def test_reading_without_a_transaction_opens_none(store: Any, connect: Any) -> None:
    connection = connect()
    assert store.on(connection).run(pageviews.total("/home")) == 0
    assert not connection.in_transaction


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


@pytest.mark.parametrize("old", [False, True])
def test_a_lock_that_is_not_had_by_who_has_read_is_a_conflict(store: Any, connect: Any, old: bool) -> None:
    other, connection = connect(isolation_level=None), connect(isolation_level=None, timeout=0)
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM roost_catalog").fetchall()
    if old:
        store.run(pageviews.add("/home"))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(roost.Conflict, match="is writing, and this transaction has begun to read"):
        store.on(connection).run(pageviews.add("/home"))
    connection.execute("ROLLBACK")
    connection.execute("BEGIN")
    with pytest.raises(roost.Busy):
        store.on(connection).run(pageviews.add("/home"))
    other.execute("ROLLBACK")
    store.on(connection).run(pageviews.add("/home"))
    connection.execute("COMMIT")
    assert store.run(pageviews.total("/home")) == 1 + old


@pytest.mark.parametrize("word", ["roost_catalog", "pageviews_add"])
def test_a_call_that_is_cancelled_is_undone_by_the_thread_of_its_connection(
    store: Any, store_url: str, tmp_path: Path, word: str
) -> None:
    async def main() -> None:
        loop, cancelled = asyncio.get_running_loop(), threading.Event()

        def look(sql: str, _: Any) -> None:
            if word in sql and not cancelled.is_set():
                loop.call_soon_threadsafe(task.cancel)
                cancelled.wait()

        async with roost.AsyncStore(store_url, trace=look) as one, aiosqlite.connect(tmp_path / "suite.db") as driver:
            task = asyncio.create_task(one.on(driver).run(pageviews.add("/home")))
            with pytest.raises(asyncio.CancelledError):
                await task
            cancelled.set()
            await one.on(driver).run(pageviews.add("/about"))
            await driver.commit()

    asyncio.run(main())
    assert store.run(pageviews.totals(["/home", "/about"])) == {"/home": 0, "/about": 1}


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
