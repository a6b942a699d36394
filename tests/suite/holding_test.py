"""`store.holding`: a lease is renewed while its block runs, and tells when it is lost."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest

import roost
from tests.lengths import length
from tests.suite.shapes import Make

jobs = roost.Lease("jobs")

pytestmark = [pytest.mark.needs("counter", "second store"), pytest.mark.shared]


def test_it_is_held_while_the_block_runs(open_store: Make) -> None:
    store, other = open_store(jobs), open_store()
    with store.holding(jobs, "daily", ttl=60, holder="ada") as held:
        assert other.run(jobs.holder("daily")) == "ada"
        assert other.run(jobs.peek("daily")) == held.grant
        assert held.token == held.grant.token
        assert not held.lost
        held.check()
        with pytest.raises(roost.Busy, match="'daily' is held by somebody else"), other.holding(jobs, "daily"):
            pass
        with other.holding(jobs, "weekly") as mine:
            assert mine.grant.holder != held.grant.holder
    assert other.run(jobs.holder("daily")) is None
    with other.holding(jobs, "daily", ttl=60) as later:
        assert later.token > held.token


def test_it_is_renewed_in_the_background(open_store: Make) -> None:
    store, other = open_store(jobs), open_store()
    with store.holding(jobs, "daily", ttl=2) as held:
        first = other.run(jobs.peek("daily"))
        found = first
        while found == first:
            found = other.run(jobs.peek("daily"))
            assert found is not None
            assert found.token == first.token
        assert found.expires > first.expires
        assert not held.lost


def test_who_waits_has_it_next(open_store: Make) -> None:
    store, other = open_store(jobs), open_store()
    inside, found = threading.Event(), list[int]()

    def work() -> None:
        inside.set()
        with other.holding(jobs, "daily", ttl=60, wait=60) as held:
            found.append(held.token)

    with store.holding(jobs, "daily", ttl=60) as held:
        thread = threading.Thread(target=work)
        thread.start()
        inside.wait()
        assert found == []
    thread.join()
    assert found[0] > held.token


def test_an_error_of_the_block_comes_out_and_the_lease_ends(open_store: Make) -> None:
    store = open_store(jobs)
    with pytest.raises(ZeroDivisionError), store.holding(jobs, "daily"):
        print(1 // 0)
    assert store.run(jobs.holder("daily")) is None


def test_a_lease_that_somebody_has_ended_is_lost(open_store: Make) -> None:
    store, other = open_store(jobs), open_store()
    holding = store.holding(jobs, "daily", ttl=60)
    with pytest.raises(roost.LeaseLost, match="'daily' is not held any more"), holding:
        assert other.run(jobs.clear("daily")) == 1
    assert holding.lost

    def until_it_is_lost() -> None:
        with store.holding(jobs, "daily", ttl=0.5) as held:
            taken = None
            while taken is None:
                other.run(jobs.clear("daily"))
                taken = other.run(jobs.acquire("daily", "bob", 60))
            while not held.lost:
                other.run(jobs.peek("daily"))
            held.check()

    with pytest.raises(roost.LeaseLost):
        until_it_is_lost()
    assert other.run(jobs.holder("daily")) == "bob"


def test_a_lease_that_cannot_be_renewed_is_lost(open_store: Make, store_url: str) -> None:
    store, other = roost.Store(store_url), open_store(jobs)

    def until_it_is_lost() -> None:
        with store.holding(jobs, "daily", ttl=0.5) as held:
            store.close()
            while not held.lost:
                other.run(jobs.peek("daily"))

    with pytest.raises(roost.LeaseLost):
        until_it_is_lost()


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="there is no clock that goes on during sleep")
def test_after_its_machine_has_slept_for_longer_it_is_lost(open_store: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    store, real = open_store(jobs), time.clock_gettime
    with store.holding(jobs, "daily", ttl=60) as held:
        assert not held.lost
        # The monotonic clock stood still meanwhile.
        monkeypatch.setattr(time, "clock_gettime", lambda clock: real(clock) + 61 * (clock == time.CLOCK_BOOTTIME))
        with pytest.raises(roost.LeaseLost):
            held.check()
        monkeypatch.undo()


def test_asyncio(store_url: str) -> None:
    async def main() -> None:
        async with roost.AsyncStore(store_url) as store:
            await store.create(jobs)
            async with store.holding(jobs, "daily", ttl=2, holder="ada") as held:
                assert await store.run(jobs.holder("daily")) == "ada"
                with pytest.raises(roost.Busy):
                    async with store.holding(jobs, "daily"):
                        pass
                first = held.grant
                while held.grant == first:
                    await store.run(jobs.peek("daily"))
                assert held.token == first.token
            assert await store.run(jobs.holder("daily")) is None
            with pytest.raises(ZeroDivisionError):
                async with store.holding(jobs, "daily"):
                    print(1 // 0)
            assert await store.run(jobs.holder("daily")) is None

    asyncio.run(main())


def test_in_asyncio_the_block_is_cancelled_when_the_lease_is_lost(store_url: str) -> None:
    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        async with roost.AsyncStore(store_url) as store:
            await store.create(jobs)
            passed: list[str] = []

            async def wait_for_ever() -> None:
                async with store.holding(jobs, "daily", ttl=0.5):
                    await store.run(jobs.clear("daily"))
                    await asyncio.Event().wait()
                    passed.append("the block")

            with pytest.raises(roost.LeaseLost):
                await wait_for_ever()
            assert passed == []
            assert task.cancelling() == 0
            with pytest.raises(roost.LeaseLost):
                async with store.holding(jobs, "daily", ttl=60):
                    await store.run(jobs.clear("daily"))
            await store.run(jobs.acquire("daily", "bob", 60))
            assert task.cancelling() == 0

    asyncio.run(main())


def test_in_asyncio_a_cancelled_block_stays_cancelled(store_url: str) -> None:
    async def main() -> None:
        async with roost.AsyncStore(store_url) as store:
            await store.create(jobs)
            inside = asyncio.Event()

            async def work() -> None:
                async with store.holding(jobs, "daily", ttl=60):
                    inside.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(work())
            await inside.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await store.run(jobs.holder("daily")) is None

    asyncio.run(main())


def test_it_is_not_held_before_the_block(open_store: Make) -> None:
    store = open_store(jobs)
    with pytest.raises(RuntimeError, match="this is for `with`"):
        print(store.holding(jobs, "daily").token)


# --- interrupted (awaits_test.py has tasks that are cancelled) ------------------------------------------------------

values = roost.Cache("values", value=str)


class Stop(Exception):
    pass


@pytest.fixture
def stop() -> Iterator[Callable[[], None]]:
    """Raise `Stop` in the main thread, as Celery's soft time limit does, and wait until it is raised."""
    raised = threading.Event()
    raised.set()

    def handle(number: int, frame: object) -> None:
        if not raised.is_set():
            raised.set()
            raise Stop

    def stop_() -> None:
        raised.clear()
        while not raised.is_set():  # a signal that comes just before the main thread waits is handled after the wait
            os.kill(os.getpid(), signal.SIGUSR1)
            raised.wait(0.05)

    before = signal.signal(signal.SIGUSR1, handle)
    yield stop_
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("by", ["holding", "get_or_set"])
@pytest.mark.spread
def test_f100_a_thread_in_which_an_exception_is_raised_leaves_no_lease_behind(
    open_store: Make, stop: Callable[[], None], by: str
) -> None:
    sent: list[str] = []
    at = -1

    def trace(sql: str, row: object) -> None:
        sent.append(sql)
        if len(sent) == at:
            stop()

    other, store = open_store(jobs, values), open_store(trace=trace)

    def work() -> None:
        if by == "holding":
            with store.holding(jobs, "daily", ttl=60):
                pass
        else:
            store.get_or_set(values, "daily", lambda: "computed", ttl=60)

    work()
    interrupted = 0
    for at in range(1, length(2, 4) * len(sent)):
        other.run_all(jobs.forget("daily"), values.delete("daily"))
        sent.clear()
        try:
            work()
        except Stop:
            interrupted += 1
        at = -1
        assert other.run(jobs.holder("daily")) is None
        token = other.run(values.lease("daily", 60))
        assert token is not None
        other.run(values.release("daily", token))
    assert interrupted


def test_a_child_that_is_forked_in_the_block_leaves_its_parents_lease_alone(open_store: Make) -> None:
    store, other = open_store(jobs), open_store()
    with store.holding(jobs, "daily", ttl=60, holder="ada") as held:
        pid = os.fork()
        if not pid:
            try:
                held.__exit__(None, None, None)  # as the end of the block does
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0
        assert other.run(jobs.holder("daily")) == "ada"
