"""Connections that are older than every timeout, on servers that are started anew, drop sessions, hold locks or stand
still: no call lasts longer than its `timeout` and a little, and the same store works when the cause is gone.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import pymysql
import pytest

import roost
from roost.databases import engine
from roost.databases import server as server_engine
from roost.dialects import Statement
from roost.dialects.dialect import Answer, Template
from tests import servers
from tests.campaigns.processes import Call, until
from tests.suite import clients
from tests.suite.shapes import likes, pageviews

LIMIT = 40.0  # seconds, for calls that waited for ever: timeout, what is granted beyond it, a look-up, a slow machine


@dataclass
class Place:
    """A server of the test's own, and a database on it."""

    name: str
    daemon: servers.Daemon
    server: servers.Server
    url: str

    @property
    def is_mariadb(self) -> bool:
        return self.name in ("mariadb", "mysql")  # what follows is the same on MySQL

    @contextmanager
    def paused(self) -> Iterator[None]:
        self.daemon.pause()
        try:
            yield
        finally:
            self.daemon.resume()

    def end_sessions(self) -> None:
        """End every session of the database, as an administrator does."""
        with clients.connect(self.url) as sql:
            if not self.is_mariadb:
                ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                sql.execute(f"{ended} WHERE datname = current_database() AND pid <> pg_backend_pid()")
            else:
                listed = "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
                for (number,) in sql.execute(listed).fetchall():
                    with suppress(pymysql.OperationalError):  # one that was closed a moment ago has ended by itself
                        sql.execute(f"KILL {number}")
        servers.wait_for_silence(self.url)

    @contextmanager
    def locked(self, table: str) -> Iterator[None]:
        """Let somebody else hold the lock of a whole table."""
        sql = clients.connect(self.url)
        if self.is_mariadb:
            sql.execute(f"LOCK TABLES {table} WRITE")
        else:
            sql.execute("BEGIN")
            sql.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        try:
            yield
        finally:
            sql.close()


@pytest.fixture
def place(own_server: str) -> Iterator[Place]:
    with servers.killable(own_server) as (daemon, server, url):
        with roost.Store(url) as store:
            store.create(pageviews, likes, view=False)
            store.run_all(pageviews.add("/home"), likes.add(1, "a"))
        yield Place(own_server, daemon, server, url)
        with roost.Store(url) as store:
            assert store.check() == []


def going_on(call: Callable[[], object], *failing: type[roost.Error]) -> None:
    """Call a server that goes on, again while it is too slow to let anybody in: nothing was done then."""

    nothing_done: tuple[type[roost.Error], ...] = (roost.Busy, roost.CannotOpen, *failing)

    def done() -> bool:
        try:
            call()
        except nothing_done:
            return False
        return True

    until(done, "a call that is answered", LIMIT)


def grow_old(store: roost.Store) -> None:
    """Open the connections for reading and writing, and let their first deadlines pass; add one to /home."""
    inner: Any = store._core
    timeout, inner.timeout = inner.timeout, 0.0  # for which a busy machine may be too slow
    going_on(lambda: store.run(likes.add(1, "a")), roost.Error)
    going_on(lambda: store.run(likes.size(1)), roost.Error)
    inner.timeout = timeout
    going_on(lambda: store.run(pageviews.add("/home")))


class Asked(threading.Event):
    """Set when a store says something to its server."""

    def trace(self, sql: str, row: object) -> None:
        self.set()

    def awaited(self) -> None:
        assert self.wait(LIMIT)


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)


READS: dict[str, Callable[[roost.Store], object]] = {
    "run": lambda store: store.run(pageviews.total("/home")),
    "check": lambda store: store.check(),
    "structures": lambda store: store.structures(),
}


def test_f6_a_read_waits_for_a_server_that_is_started_anew(place: Place) -> None:
    asked = Asked()
    with ExitStack() as stack:
        stores = {name: stack.enter_context(roost.Store(place.url, timeout=LIMIT)) for name in READS}
        stores["run"] = stack.enter_context(roost.Store(place.url, timeout=LIMIT, trace=asked.trace))
        before = {}
        for name, store in reversed(stores.items()):  # the connection of `run` is the last that is used
            grow_old(store)
            before[name] = READS[name](store)
        place.daemon.kill()
        asked.clear()
        calls = {name: Call(partial(READS[name], store)) for name, store in stores.items()}
        asked.awaited()  # the others connect anew
        place.daemon.start()
        assert {name: call.answer() for name, call in calls.items()} == before


def test_f6_so_does_a_read_of_asyncio(place: Place) -> None:
    asked = Asked()

    async def work() -> None:
        async with roost.AsyncStore(place.url, timeout=LIMIT, trace=asked.trace) as store:
            grow: Any = store._working
            grow.timeout = 0.0
            assert await store.run(pageviews.total("/home")) == 1
            grow.timeout = LIMIT
            place.daemon.kill()
            asked.clear()
            read = asyncio.ensure_future(store.run(pageviews.total("/home")))
            await asyncio.to_thread(asked.awaited)
            await asyncio.to_thread(place.daemon.start)
            assert await read == 1

    Call(lambda: asyncio.run(work())).answer()


def test_sessions_that_were_ended_cost_no_call_anything(place: Place) -> None:
    with roost.Store(place.url) as store:
        grow_old(store)
        for n in range(2):
            place.end_sessions()
            store.run(pageviews.add("/home"))
            place.end_sessions()
            assert store.run(pageviews.total("/home")) == 3 + n
            assert store.check() == []
        place.end_sessions()
        store.create(roost.Counter("others"))


def test_nor_do_sessions_that_were_idle_for_too_long(place: Place) -> None:
    limits = ("SET GLOBAL wait_timeout = {}", "ALTER SYSTEM SET idle_session_timeout = '{}s'")
    with roost.Store(place.url) as store:
        with clients.connect(place.url) as sql:
            sql.execute(limits[not place.is_mariadb].format(1))
            if not place.is_mariadb:
                sql.execute("SELECT pg_reload_conf()")
        try:
            grow_old(store)
            servers.wait_for_silence(place.url)
            store.run(pageviews.add("/home"))
            assert store.run(pageviews.total("/home")) == 3
        finally:
            place.server.run(limits[not place.is_mariadb].format(28800 if place.is_mariadb else 0))
            if not place.is_mariadb:
                place.server.run("SELECT pg_reload_conf()")


def test_f7_who_reads_what_is_locked_is_busy_and_holds_up_nobody(place: Place) -> None:
    # MySQL waits for a lock in whole seconds; those who wait behind such a call have to be able to.
    with roost.Store(place.url, timeout=3) as store, roost.Store(place.url, timeout=LIMIT) as patient:
        grow_old(store)
        with place.locked("roost_pageviews_rows"):
            waiting = Call(lambda: patient.run(pageviews.total("/home")))
            assert patient.run(likes.members(1)) == {"a"}
            call = Call(lambda: store.run(pageviews.total("/home")))
            both = Call(lambda: store.run_all(pageviews.total("/home"), likes.size(1)))
            assert store.run(likes.members(1)) == {"a"}
            assert isinstance(call.ended().error, roost.Busy)
            assert isinstance(both.ended().error, roost.Busy)
            for _ in range(10):  # PostgreSQL's are prepared by then
                assert patient.run(likes.members(1)) == {"a"}
            assert waiting.is_alive()
        assert waiting.answer() == 2
        assert store.run_all(pageviews.total("/home"), likes.size(1)) == (2, 1)


def test_f7_in_asyncio_too(place: Place) -> None:
    async def work() -> None:
        async with roost.AsyncStore(place.url, timeout=3) as store:
            assert await store.run(pageviews.total("/home")) == 1
            with place.locked("roost_pageviews_rows"):
                found = await asyncio.gather(
                    *[store.run(pageviews.total("/home")) for _ in range(3)],
                    *[store.run(likes.members(1)) for _ in range(3)],
                    return_exceptions=True,
                )
            assert [type(each) for each in found] == [roost.Busy] * 3 + [set] * 3
            assert await store.run(pageviews.total("/home")) == 1

    Call(lambda: asyncio.run(work())).answer()


ENDS = (roost.Busy, roost.CannotOpen, roost.OutcomeUnknown)


def test_who_waits_behind_a_call_to_a_server_that_stands_still_does_not_wait_for_ever(place: Place) -> None:
    with roost.Store(place.url, timeout=1) as store:
        grow_old(store)
        with place.paused():
            reads = [Call(lambda: store.run(pageviews.total("/home"))) for _ in range(8)]
            adds = [Call(lambda: store.run(pageviews.add("/home"))) for _ in range(8)]
            for call in [*reads, *adds]:
                assert isinstance(call.ended().error, ENDS)
            unknown = sum(isinstance(call.error, roost.OutcomeUnknown) for call in adds)
            assert unknown <= 1  # of the first one, which was sent with its COMMIT
        going_on(lambda: store.run(pageviews.add("/home")))
        assert 3 <= store.run(pageviews.total("/home")) <= 3 + unknown


def test_nor_do_calls_of_asyncio(place: Place) -> None:
    async def work() -> None:
        async with roost.AsyncStore(place.url, timeout=1) as store:
            await store.run(pageviews.add("/home"))
            assert await store.run(pageviews.total("/home")) == 2
            with place.paused():
                first: list[asyncio.Future[Any]] = []
                first += [asyncio.ensure_future(store.run(pageviews.total("/home"))) for _ in range(3)]
                first += [asyncio.ensure_future(store.run(pageviews.add("/home"))) for _ in range(3)]
                for _ in range(3):
                    await asyncio.sleep(0)  # their batches are under way
                behind = [asyncio.ensure_future(store.run(pageviews.total("/home"))) for _ in range(3)]
                for error in await asyncio.gather(*first, *behind, return_exceptions=True):
                    assert isinstance(error, (roost.Busy, roost.CannotOpen))
            await store.run(pageviews.add("/home"))
            assert await store.run(pageviews.total("/home")) == 3

    Call(lambda: asyncio.run(work())).answer()


def test_a_commit_that_has_no_answer_is_looked_up_and_that_ends_too(place: Place) -> None:
    armed = False

    def trace(sql: str, row: object) -> None:
        if armed and sql == "COMMIT":
            place.daemon.pause()

    with roost.Store(place.url, timeout=1, trace=trace) as store:
        grow_old(store)
        armed = True
        try:
            call = Call(lambda: store.run(pageviews.add("/home"))).ended()
            armed = False
        finally:
            place.daemon.resume()
        assert isinstance(call.error, roost.OutcomeUnknown)
        before = store.run(pageviews.total("/home"))
        assert before in (2, 3)
        store.run(pageviews.add("/other"))
        wait_until(lambda: store.run(pageviews.total("/other")) == 1)
        assert store.run(pageviews.total("/home")) in (2, 3)


def test_a_commit_that_is_late_is_answered_once(place: Place) -> None:
    armed, paused = False, threading.Event()

    def trace(sql: str, row: object) -> None:
        nonlocal armed
        if armed and sql == "COMMIT":
            armed = False
            place.daemon.pause()
            paused.set()

    with roost.Store(place.url, timeout=1, trace=trace) as store:
        grow_old(store)
        armed = True
        call = Call(lambda: store.run(pageviews.add("/home")))
        try:
            assert paused.wait(LIMIT)
        finally:
            place.daemon.resume()
        assert call.answer() is None
        assert store.run(pageviews.total("/home")) == 3


SLEEP = {"mariadb": "SELECT 0, SLEEP(1)", "mysql": "SELECT 0, SLEEP(1)", "postgresql": "SELECT 0, pg_sleep(1)"}


def long(store: roost.Store, place: Place) -> Call:
    """Begin what takes the server longer than everything that is granted to a batch."""

    def work() -> Any:
        yield Statement(Template(SLEEP[place.name], answer=Answer.ORDINAL), [()])
        return "done"

    return Call(lambda: store._core.exclusive(work()))


@pytest.mark.parametrize("paused", [False, True], ids=["works", "stands still"])
def test_what_takes_long_is_waited_for_as_long_as_the_server_answers_others(
    place: Place, paused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "PATIENCE", 0.2)
    monkeypatch.setattr(server_engine, "SILENCE", 0.2)
    if paused:
        monkeypatch.setattr(server_engine, "LOOKUP", 0.5)
    with roost.Store(place.url, timeout=0.1) as store:
        store.structures()
        call = long(store, place)
        if paused:
            wait_until(lambda: store._core._writer.connection is not None)
            with place.paused():
                assert isinstance(call.ended().error, (roost.CannotOpen, roost.OutcomeUnknown))
        else:
            assert call.answer() == "done"


def test_a_server_that_takes_no_writes_for_a_while(place: Place) -> None:
    url = place.url
    if place.is_mariadb:  # root may always write
        place.server.run("CREATE USER IF NOT EXISTS plain@'%'")
        place.server.run("GRANT ALL ON *.* TO plain@'%'")
        exempt = "SUPER, CONNECTION_ADMIN" if place.name == "mysql" else "SUPER, READ_ONLY ADMIN"
        place.server.run(f"REVOKE {exempt} ON *.* FROM plain@'%'")
        url = url.replace("root@", "plain@")
    with roost.Store(url, timeout=3) as store:
        grow_old(store)
        switch = ("SET GLOBAL read_only = {}", "ALTER SYSTEM SET default_transaction_read_only = {}")
        try:
            place.server.run(switch[not place.is_mariadb].format("ON"))
            if not place.is_mariadb:
                place.server.run("SELECT pg_reload_conf()")
            wait_until(lambda: isinstance(Call(lambda: store.run(pageviews.add("/other"))).ended().error, roost.Error))
            call = Call(lambda: store.run(pageviews.add("/home")))
            assert isinstance(call.ended().error, roost.ReadOnly)
            assert store.run(pageviews.total("/home")) == 2
        finally:
            place.server.run(
                "SET GLOBAL read_only = OFF" if place.is_mariadb else "ALTER SYSTEM RESET default_transaction_read_only"
            )
            if not place.is_mariadb:
                place.server.run("SELECT pg_reload_conf()")
        wait_until(lambda: Call(lambda: store.run(pageviews.add("/other"))).ended().error is None)
        store.run(pageviews.add("/home"))
        assert store.run(pageviews.total("/home")) == 3


def test_f11_a_waiting_time_does_not_depend_on_the_name_of_the_database(place: Place) -> None:
    urls = [place.server.database(name) for name in ("permissions", "connect_timeout", "authentication")]
    asked = Asked()
    try:
        with ExitStack() as stack:
            stores = [stack.enter_context(roost.Store(url, timeout=LIMIT, trace=asked.trace)) for url in urls]
            for store in stores:
                store.create(pageviews, likes, view=False)
                grow_old(store)
            place.daemon.kill()
            asked.clear()
            calls = [Call(partial(store.run, pageviews.add("/home"))) for store in stores]
            asked.awaited()
            place.daemon.start()
            for call in calls:
                call.answer()
            assert [store.run(pageviews.total("/home")) for store in stores] == [2, 2, 2]
    finally:
        for url in urls:
            place.server.drop(url)


def test_f11_a_missing_table_of_somebody_else_is_not_one_of_roost(place: Place) -> None:
    url = place.server.database("roost_app")
    try:
        with roost.Store(url) as store:
            store.create(pageviews)

            def work() -> Any:
                yield Statement(Template("SELECT n AS roost_n FROM orders"), [()])

            with pytest.raises(roost.StatementFailed):
                store._core.exclusive(work())
            with pytest.raises(roost.Missing):
                store.run(likes.size(1))
    finally:
        place.server.drop(url)


def test_f65_whoever_never_was_there_cannot_be_opened(place: Place) -> None:
    place.daemon.kill()
    try:
        with roost.Store(place.url, timeout=LIMIT) as store:
            calls: list[Callable[[roost.Store], object]] = [
                *READS.values(),
                lambda store: store.run(pageviews.add("/home")),
            ]
            for call in calls:
                began = time.monotonic()
                with pytest.raises(roost.CannotOpen) as caught:
                    call(store)
                assert type(caught.value) is roost.CannotOpen
                assert time.monotonic() - began < LIMIT / 2  # answered at once
    finally:
        place.daemon.start()
    with roost.Store(f"{place.url}_missing", timeout=LIMIT) as store, pytest.raises(roost.CannotOpen) as caught:
        store.run(pageviews.add("/home"))
    assert type(caught.value) is roost.CannotOpen


def test_an_applications_own_connection_that_is_lost_says_so(place: Place) -> None:
    sql = clients.connect(place.url)
    with roost.Store(place.url) as store:
        sql.execute("BEGIN")
        store.on(sql).run(pageviews.add("/home"))
        if place.is_mariadb:
            place.daemon.kill()
        else:
            os.kill(sql.info.backend_pid, signal.SIGKILL)  # which says nothing more; all others are ended by the server
        try:
            with pytest.raises(roost.ConnectionLost):
                store.on(sql).run(pageviews.add("/home"))
        finally:
            place.daemon.kill()
            place.daemon.start()
