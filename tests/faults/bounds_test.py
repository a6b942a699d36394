"""Every call of a store ends, with one of Roost's errors, where the server stands still: within `BOUND`.

When the server goes on, so does the store.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

import roost
from roost.databases import engine
from roost.databases import server as server_engine
from tests import servers
from tests.campaigns.processes import started
from tests.faults.old_connections_test import going_on, grow_old
from tests.suite.shapes import Visit, baskets, likes, pageviews, visits

TIMEOUT = 0.5
# Seconds. docs/guarantees.md: a call ends half a second after its `timeout`; three times as many for a busy machine.
BOUND = 3 * (TIMEOUT + 0.5)
# The same for a call that may work for longer, and for what else may have no end.
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
    "create": lambda store: store.create(*STRUCTURES, view=False),
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
READS = {"read", "run_all that reads", "keys", "find", "structures", "check", "doctor"}
COUNTING = {"write", "run_all that writes", "once"}
GO_ON = {"read", "write", "push", "structures", "check", "doctor", "create", "alter"}  # with the same stores
AT_LENGTH = {"create", "create what is missing", "alter", "structures", "check", "doctor"}


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Grant a call that may work for longer fewer seconds of silence, and for asking whether the server is there."""
    monkeypatch.setattr(engine, "PATIENCE", 0.5)
    monkeypatch.setattr(server_engine, "LOOKUP", 0.5)


@pytest.fixture(scope="module", params=servers.SERVERS)
def place(request: pytest.FixtureRequest) -> Iterator[tuple[servers.Daemon, str]]:
    with servers.killable(request.param) as (daemon, _, url):
        with roost.Store(url) as store:
            store.create(*STRUCTURES, view=False)
            store.run(pageviews.add("/home"))
        yield daemon, url


@contextmanager
def paused(daemon: servers.Daemon) -> Iterator[None]:
    daemon.pause()
    try:
        yield
    finally:
        daemon.resume()


async def patiently(call: Callable[[], Awaitable[Any]]) -> None:
    """Await what a busy machine may be too slow for, until it is answered."""
    answered = False
    while not answered:
        with suppress(roost.Error):
            await call()
            answered = True


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
        grow_old(store)
    with roost.Store(url) as store:
        before = store.run(pageviews.total("/home"))

    def work(name: str) -> None:
        try:
            calls[name](stores[name])
            outcomes.ended(name, None)
        except BaseException as error:
            outcomes.ended(name, error)

    def all_end(nobody: set[str]) -> None:
        threads = started(*[threading.Thread(target=work, args=(name,), daemon=True) for name in calls])
        outcomes.expect(threads, nobody=nobody)

    with paused(daemon):
        outcomes = Outcomes(calls)
        all_end(ASKS_NOBODY)
        unknown = {name for name, error in outcomes.errors.items() if isinstance(error, roost.OutcomeUnknown)}
        assert not unknown & READS
        if not connected:
            assert {type(outcomes.errors[name]) for name in ("read", "write")} == {roost.CannotOpen}
        calls = dict.fromkeys(stores.keys() - GO_ON, CALLS["close"])
        outcomes = Outcomes(calls)
        all_end({*calls})
    for name in GO_ON:
        going_on(lambda name=name: CALLS[name](stores[name]))  # type: ignore[misc]
    added = before + 1
    assert added <= stores["read"].run(pageviews.total("/home")) <= added + len(unknown & COUNTING)
    for name in GO_ON:
        stores[name].close()
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
            await patiently(lambda store=store: store.run(pageviews.add("/other")))  # type: ignore[misc]
            await patiently(lambda store=store: store.run(pageviews.total("/other")))  # type: ignore[misc]
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
        grow_old(store)

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
