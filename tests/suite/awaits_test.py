"""Every await of every coroutine of an `AsyncStore` is cancelled in turn; afterwards nobody holds anything.

Neither a lease (F100), nor a lock, nor a transaction, nor a place in a queue, nor a task; and every promise is kept.
So is every call of a `Store` interrupted at each of its blocking calls: what it did is whole, or nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import sys
import threading
from collections.abc import Callable, Coroutine, Generator
from itertools import count
from types import FrameType
from typing import Any

import pytest

import roost
from tests.campaigns.foreign import is_flocked, is_locked
from tests.campaigns.processes import until
from tests.lengths import WHOLE, length
from tests.suite.application import Application
from tests.suite.shapes import Egg, Visit, baskets, likes, pageviews, visits
from tests.suite.ways import App, path_of

SOON = 30.0
jobs = roost.Lease("jobs", key=int)
pages = roost.Cache("pages", key=int, value=int)
HOW = ("before its answer", "with its answer", "and once more")


class Cut:
    """Awaits a coroutine, whose task is cancelled at one of its awaits."""

    def __init__(self, work: Coroutine[Any, Any, Any], at: int, how: str) -> None:
        self._work, self._at, self._how = work, at, how
        self.reached = False

    def __await__(self) -> Generator[Any, Any, Any]:
        error: BaseException | None = None
        for number in count(1):
            try:
                waited = self._work.send(None) if error is None else self._work.throw(error)
            except StopIteration as stop:
                return stop.value
            error = None
            task = asyncio.current_task()
            assert task is not None
            if number == self._at or (number == self._at + 1 and self._how == HOW[2]):
                self.reached = True
                if waited is not None and self._how == HOW[1]:
                    waited.add_done_callback(lambda _, task=task: task.cancel())
                else:
                    asyncio.get_running_loop().call_soon(task.cancel)
            try:
                yield waited
            except BaseException as failed:
                error = failed
        raise AssertionError


async def _hold(store: roost.AsyncStore, n: int) -> None:
    async with store.holding(jobs, n, ttl=3600):
        await asyncio.sleep(0)


async def _hold_other(store: roost.AsyncStore, n: int) -> None:
    with contextlib.suppress(roost.Busy):
        async with store.holding(jobs, 0, ttl=3600, wait=0.001):
            raise AssertionError("somebody else has it")


async def _make() -> int:
    await asyncio.sleep(0)
    return 5


def _row(n: int) -> Any:
    return roost.Counter(f"made_{n}")


Call = Callable[[roost.AsyncStore, int], Coroutine[Any, Any, Any]]
CALLS: dict[str, Call] = {
    "run": lambda store, n: store.run(pageviews.add("/")),
    "run what reads": lambda store, n: store.run(pageviews.total("/")),
    "run what is refused": lambda store, n: store.run(baskets.add(Egg(1, 1))),
    "run a lease": lambda store, n: store.run(jobs.acquire(n, "ada", 3600)),
    "run_all": lambda store, n: store.run_all(pageviews.add("/"), likes.add(n, "a"), visits.push(Visit(n, n))),
    "run once": lambda store, n: store.run(pageviews.add("/"), once=f"token {n}"),
    "create": lambda store, n: store.create(_row(n)),
    "alter": lambda store, n: store.alter(roost.Ring("visits", Visit, per="uid", keep=5 + n % 2)),
    "drop": lambda store, n: store.drop(_row(n)),
    "structures": lambda store, n: store.structures(),
    "check": lambda store, n: store.check(),
    "doctor": lambda store, n: store.doctor(),
    "get_or_set": lambda store, n: store.get_or_set(pages, n, _make, ttl=3600),
    "holding": _hold,
    "holding what another one has": _hold_other,
}


def test_every_coroutine_is_here() -> None:
    public = {name for name, _ in inspect.getmembers(roost.AsyncStore, inspect.iscoroutinefunction) if name[0] != "_"}
    assert public - {name.split()[0] for name in CALLS} == {"close"}  # which the last test cancels


def until_nobody_works(store_url: str) -> None:
    """Return when nobody has a lock or an open transaction in the database."""
    sql = Application(store_url)
    if sql.kind == "sqlite":
        path = path_of(store_url)
        until(lambda: not is_flocked(f"{path}-lock") and not is_locked(path), "the end of what was cancelled")
    # Not innodb_trx: who asks it more often than every 0.1 s gets what it was (InnoDB caches it for that long).
    others = "information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
    if sql.kind == "postgresql":
        others = "pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'"
    if sql.kind != "sqlite":
        until(lambda: sql(f"SELECT count(*) FROM {others}") == [(0,)], "the end of what was cancelled")
    sql.close()


@pytest.mark.parametrize("name", [*CALLS, "close"])
@pytest.mark.spread("run")
@pytest.mark.needs("second store", "cache")
def test_a_call_that_is_cancelled_at_any_await_leaves_nothing_behind(name: str, store_url: str) -> None:
    numbers = count(1)

    async def cut(store: roost.AsyncStore, at: int, how: str) -> bool:
        n = next(numbers)
        work = Cut(CALLS[name](store, n) if name != "close" else store.close(), at, how)
        with contextlib.suppress(roost.Duplicate, asyncio.CancelledError):
            await asyncio.wait_for(asyncio.ensure_future(_awaited(work)), SOON)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        if name != "close":
            assert name == "run a lease" or await asyncio.wait_for(store.run(jobs.holder(n)), SOON) is None
            assert await asyncio.wait_for(store.run(pages.lease(n, 60)), SOON) is not None
            assert await asyncio.wait_for(store.run(likes.add(-n, "b")), SOON) == 1
        return work.reached

    async def main() -> None:
        tried = 0
        async with roost.AsyncStore(store_url) as store:
            await store.create(jobs, pages, baskets, likes, pageviews, visits, view=False)
        for place, how in enumerate(HOW):
            for at in count(1 + place, length(3, 1)):  # in turn, each await in one of these ways
                async with roost.AsyncStore(store_url) as store:  # that is connected
                    await store.run(jobs.acquire(0, "eve", 3600))
                    with contextlib.suppress(roost.Duplicate):
                        await store.run(baskets.add(Egg(1, 1)))
                    if not await cut(store, at, how):
                        break
                    tried += 1
        assert tried
        async with roost.AsyncStore(store_url) as store:
            assert await store.check() == []

    asyncio.run(main())
    until_nobody_works(store_url)


async def _awaited(work: Cut) -> Any:
    return await work


@pytest.mark.ways("awaited")
def test_a_joined_call_that_is_cancelled_at_any_await_is_whole_or_not_there(
    open_store: Callable[..., Any], app: Callable[..., App]
) -> None:
    # Or the connection is lost, and the application's transaction with it.
    store = open_store(likes, visits, baskets)
    for place, how in enumerate(HOW):
        for n in count(1 + place, length(3, 1)):
            key = 100 * HOW.index(how) + n
            one = app()
            one.run(likes.add(key, "before"))
            work = Cut(one.joined.run_all(likes.add(key, "a"), visits.push(Visit(key, 1)), likes.add(key, "b")), n, how)
            with contextlib.suppress(asyncio.CancelledError):
                one.wait(work)
            lost = False
            try:
                one.run(likes.add(key, "after"))
                one.commit()
            except Exception:
                lost = True
            members, rows = store.run_all(likes.members(key), visits.latest(key))
            whole = {"before", "after", "a", "b"}, [Visit(key, 1)]
            assert (members, rows) in ([(set(), [])] if lost else [whole, ({"before", "after"}, [])])
            assert store.run(likes.add(key, "later"))
            if not work.reached:
                assert not lost
                break


# --- threads -----------------------------------------------------------------------------------------------------

# What may wait for somebody else: functions in C, and the one in which psycopg's, that no profile shows, are called.
BLOCKING = frozenset(
    ["acquire", "sleep", "flock", "connect", "recv_into", "sendall", "poll", "execute", "Limited.wait"]
)
EVENTS = {HOW[0]: ("c_call", "call"), HOW[1]: ("c_return", "return")}


class Interrupted:
    """While it is entered, this thread is interrupted at one of its blocking calls: before it, or behind it."""

    def __init__(self, at: int, how: str) -> None:
        self._left, self._events = at, EVENTS[how]

    @property
    def reached(self) -> bool:
        return self._left <= 0

    def __enter__(self) -> Interrupted:
        sys.setprofile(self._seen)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _seen(self, frame: FrameType, event: str, called: Any) -> None:
        if event not in self._events:
            return
        name = called.__name__ if event.startswith("c_") else frame.f_code.co_qualname
        if name in BLOCKING:
            self._left -= 1
            if not self._left:
                raise KeyboardInterrupt


def soon(work: Callable[[], Any]) -> Any:
    """Return what a call in another thread returns, which nobody may keep waiting."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()), daemon=True)
    thread.start()
    thread.join(SOON)
    assert found
    return found[0]


def done(store: roost.Store, n: int) -> tuple[Any, ...]:
    """What the calls of a number have stored."""
    return store.run_all(pageviews.total("/"), likes.members(n), visits.latest(n), jobs.holder(n))


# What a call stores, beside the total that was there: each of `CALLS` that begins with "run" is here.
STORED: dict[str, Callable[[int, int], tuple[Any, ...]]] = {
    "run": lambda total, n: (total + 1, set(), [], None),
    "run what reads": lambda total, n: (total, set(), [], None),
    "run what is refused": lambda total, n: (total, set(), [], None),
    "run a lease": lambda total, n: (total, set(), [], "ada"),
    "run_all": lambda total, n: (total + 1, {"a"}, [Visit(n, n)], None),
    "run once": lambda total, n: (total + 1, set(), [], None),
}


@pytest.mark.filterwarnings("ignore:unclosed <socket")  # of socket.create_connection, which closes none then
@pytest.mark.parametrize("behind", [False, True], ids=["alone", "behind another"])
@pytest.mark.parametrize("name", [name for name in CALLS if name.startswith("run")])
@pytest.mark.spread("run")
@pytest.mark.needs("second store", "cache")
def test_a_call_that_is_interrupted_at_any_blocking_call_is_whole_or_not_there(
    name: str, behind: bool, store_url: str
) -> None:
    call: Any = CALLS[name]
    numbers = count(1)

    def cut(at: int, how: str, connected: bool) -> bool:
        n, over = next(numbers), threading.Event()

        def trace(_: str, __: Any) -> None:
            if threading.current_thread() is other and not over.is_set():  # the call is to wait for this batch
                until(lambda: over.is_set() or store._core.writers._waiting, "a call that waits, or is over")
                over.set()

        with roost.Store(store_url, trace=trace) as store:
            other = threading.Thread(target=lambda: store.run_all(likes.add(0, str(n)), likes.size(0)))
            total = soon(lambda: done(first, n)[0])
            if connected:
                store.run_all(pageviews.add("/other"), likes.members(0))
            if behind:
                other.start()
                until(lambda: over.is_set() or store._core.writers.led, "the other call leads")
            interrupted, cutting = True, Interrupted(at, how)
            with contextlib.suppress(KeyboardInterrupt, roost.Duplicate):
                with cutting:
                    call(store, n)
                interrupted = name == "run what is refused"
            over.set()
            if behind:
                other.join(SOON)
                assert not other.is_alive()
            assert soon(lambda: store.run(likes.add(-n, "b"))) == 1
            assert soon(lambda: done(store, n)) in (
                STORED[name](total, n),
                *([(total, set(), [], None)] if interrupted else []),
            )
            if name == "run once":
                soon(lambda: [call(store, n)])
                assert done(store, n) == STORED[name](total, n)
        return cutting.reached

    with roost.Store(store_url) as first:
        first.create(jobs, pages, baskets, likes, pageviews, visits, view=False)
        first.run_all(jobs.acquire(0, "eve", 3600), baskets.add(Egg(1, 1)))
        # A store connects alike for whatever it writes, or reads.
        connects = not behind and (WHOLE or name in ("run", "run what reads"))
        for place, how in enumerate(HOW[:2]):
            for connected in [False, True] if connects else [True]:
                assert next(at for at in count(1 + place, length(2, 1)) if not cut(at, how, connected)) > 1
        assert first.check() == []
    until_nobody_works(store_url)
