"""Every call of a store ends, with one of Roost's errors, where the server stands still: within `BOUND`."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import roost
from tests import servers
from tests.campaigns.outage import DAEMONS
from tests.suite.shapes import Visit, baskets, likes, pageviews, visits

TIMEOUT = 1.0
# Seconds. docs/guarantees.md: a call ends half a second after its `timeout`; twice as many for a busy machine.
BOUND = 2 * (TIMEOUT + 0.5)
# The same for a call that may work for longer: 10 s of silence, and 5 s for asking whether the server is there.
BOUND_AT_LENGTH = 60.0

pages = roost.Cache("pages", value=str)
leader = roost.Lease("leader")
home = roost.Index("roost_pageviews_rows", columns=["n"])
STRUCTURES = (pageviews, visits, likes, baskets, pages, leader)

Calls = dict[str, Callable[[Any], Any]]
# The same of both kinds of store: what an `AsyncStore` returns is awaited.
CALLS: Calls = {
    "read": lambda store: store.run(pageviews.total("/home")),
    "write": lambda store: store.run(pageviews.add("/home")),
    "push": lambda store: store.run(visits.push(Visit(1, 1))),
    "run_all that reads": lambda store: store.run_all(pageviews.total("/home"), visits.latest(1)),
    "run_all that writes": lambda store: store.run_all(pageviews.add("/home"), likes.add(1, "b")),
    "once": lambda store: store.run(pageviews.add("/home"), once="token"),
    "clear": lambda store: store.run(visits.clear(1)),
    "forget": lambda store: store.run(visits.forget(1)),
    "keys": lambda store: store.run(likes.keys()),
    "find": lambda store: store.run(home.find("=", ("/home",))),
    "get_or_set": lambda store: store.get_or_set(pages, "/", lambda: "page", 60),
    "create": lambda store: store.create(*STRUCTURES),
    "create what is missing": lambda store: store.create(roost.Counter("missing")),
    "alter": lambda store: store.alter(roost.Ring("visits", Visit, per="uid", keep=50)),
    "structures": lambda store: store.structures(),
    "check": lambda store: store.check(),
    "doctor": lambda store: store.doctor(),
    "ddl": lambda store: store.ddl(pageviews),
    "stats": lambda store: store.stats(),
    "close": lambda store: store.close(),
}
HOLDING: Calls = {"holding": lambda store: store.holding(leader, "us").__enter__()}
ASYNC_HOLDING: Calls = {"holding": lambda store: store.holding(leader, "us").__aenter__()}
ASKS_NOBODY = {"ddl", "stats", "close"}
AT_LENGTH = {"create", "create what is missing", "alter", "structures", "check", "doctor"}


@pytest.fixture(scope="module", params=DAEMONS)
def place(request: pytest.FixtureRequest) -> Iterator[tuple[servers.Daemon, str]]:
    make, server = DAEMONS[request.param]
    try:
        daemon = make()
    except servers.NotHere as error:
        servers.not_run(error)
    with daemon:
        url = server(daemon.url).database("bounds")
        with roost.Store(url) as store:
            store.create(*STRUCTURES)
            store.run(pageviews.add("/home"))
        yield daemon, url


@contextmanager
def paused(daemon: servers.Daemon) -> Iterator[None]:
    daemon.pause()
    try:
        yield
    finally:
        daemon.resume()


class Outcomes:
    """How calls have ended, by their names."""

    def __init__(self, calls: Calls) -> None:
        self._names = {*calls}
        self.errors: dict[str, BaseException | None] = {}
        self.seconds: dict[str, float] = {}
        self._begun = time.monotonic()

    def ended(self, name: str, error: BaseException | None) -> None:
        """Note how a call has ended, and when."""
        self.errors[name] = error
        self.seconds[name] = time.monotonic() - self._begun

    def expect(self, threads: list[threading.Thread], *, nobody: set[str]) -> None:
        """Wait for them all; those but `nobody` have one of Roost's errors."""
        for thread in threads:
            thread.join(max(0.0, self._begun + BOUND_AT_LENGTH - time.monotonic()))
        assert self._names - {*self.errors} == set(), "these have not ended"
        assert {name for name, error in self.errors.items() if error is None} == nobody
        assert [error for error in self.errors.values() if not isinstance(error, (roost.Error, type(None)))] == []
        late = {name: seconds for name, seconds in self.seconds.items() if seconds > BOUND and name not in AT_LENGTH}
        assert late == {}


@pytest.mark.parametrize("connected", [True, False], ids=["connected", "new"])
def test_every_call_ends(place: tuple[servers.Daemon, str], connected: bool) -> None:
    daemon, url = place
    calls = CALLS | HOLDING
    stores = {name: roost.Store(url, timeout=TIMEOUT) for name in calls}
    for store in stores.values() if connected else ():
        store.run_all(pageviews.add("/other"), pageviews.total("/other"))
        store.run(pageviews.total("/other"))
    with paused(daemon):
        outcomes = Outcomes(calls)

        def work(name: str) -> None:
            try:
                calls[name](stores[name])
                outcomes.ended(name, None)
            except BaseException as error:
                outcomes.ended(name, error)

        threads = [threading.Thread(target=work, args=(name,), daemon=True) for name in calls]
        for thread in threads:
            thread.start()
        outcomes.expect(threads, nobody=ASKS_NOBODY)
        calls = dict.fromkeys(stores, CALLS["close"])
        outcomes = Outcomes(calls)
        threads = [threading.Thread(target=work, args=(name,), daemon=True) for name in calls]
        for thread in threads:
            thread.start()
        outcomes.expect(threads, nobody={*stores})
    works_again(url)


@pytest.mark.parametrize("connected", [True, False], ids=["connected", "new"])
def test_every_call_of_asyncio_ends(place: tuple[servers.Daemon, str], connected: bool) -> None:
    daemon, url = place
    calls = CALLS | ASYNC_HOLDING
    ready, go_on = threading.Event(), threading.Event()
    outcomes = Outcomes(calls)

    async def call(name: str, store: roost.AsyncStore) -> None:
        try:
            answer = calls[name](store)
            if asyncio.iscoroutine(answer):
                await answer
            outcomes.ended(name, None)
        except Exception as error:
            outcomes.ended(name, error)

    async def work() -> None:
        stores = {name: roost.AsyncStore(url, timeout=TIMEOUT) for name in calls}
        for store in stores.values() if connected else ():
            await store.run_all(pageviews.add("/other"), pageviews.total("/other"))
            await store.run(pageviews.total("/other"))
        ready.set()
        await asyncio.to_thread(go_on.wait)
        await asyncio.gather(*[call(name, store) for name, store in stores.items()])
        await asyncio.gather(*[store.close() for store in stores.values()])

    thread = threading.Thread(target=lambda: asyncio.run(work()), daemon=True)
    thread.start()
    assert ready.wait(BOUND_AT_LENGTH)
    with paused(daemon):
        outcomes = Outcomes(calls)
        go_on.set()
        outcomes.expect([thread], nobody=ASKS_NOBODY)
        assert not thread.is_alive()
    works_again(url)


@pytest.mark.parametrize("reads", ["", "?reads=replica"], ids=["primary", "replica"])
@pytest.mark.parametrize("connected", [True, False], ids=["connected", "new"])
def test_f109_many_calls_of_a_store_with_several_hosts_end_each_at_its_deadline(
    place: tuple[servers.Daemon, str], connected: bool, reads: str, request: pytest.FixtureRequest
) -> None:
    daemon, url = place
    if reads and "mysql" in request.node.callspec.id:
        pytest.skip("MySQL has no reads=replica")
    account, _, server = url.rpartition("/")[0].rpartition("@")
    names = [f"{kind} {wave}" for wave in range(3) for kind in ("read", "write", "run_all that reads")]
    outcomes = Outcomes(dict.fromkeys(names, CALLS["read"]))
    store = roost.Store(f"{account}@{server},{server},{server}/{url.rpartition('/')[2]}{reads}", timeout=TIMEOUT)
    if connected:
        store.run_all(pageviews.add("/other"), pageviews.total("/other"))
        store.run(pageviews.total("/other"))

    def work(wave: int, name: str) -> None:
        begun = time.monotonic()
        try:
            CALLS[name.removesuffix(f" {wave}")](store)
            outcomes.errors[name] = None
        except BaseException as error:
            outcomes.errors[name] = error
        outcomes.seconds[name] = time.monotonic() - begun

    with paused(daemon):
        threads: list[threading.Thread] = []
        for wave in range(3):  # each begins when the first of the one before it has ended
            if threads:
                threads[-3].join()
            threads += [
                threading.Thread(target=work, args=(wave, name), daemon=True) for name in names[3 * wave : 3 * wave + 3]
            ]
            for thread in threads[-3:]:
                thread.start()
        outcomes.expect(threads, nobody=set())
    store.close()
    works_again(url)


def works_again(url: str) -> None:
    """See that the server does, and that nothing is half done."""
    with roost.Store(url, timeout=BOUND_AT_LENGTH) as store:
        store.run(pageviews.add("/home"))
        assert store.check() == []
