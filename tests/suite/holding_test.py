"""`store.holding`: a lease is renewed while its block runs, and tells when it is lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

import roost

Make = Callable[..., Any]

jobs = roost.Lease("jobs")

pytestmark = pytest.mark.needs("counter", "second store")


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
