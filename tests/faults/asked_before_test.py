"""asyncio: what was asked for has its answer, whatever becomes of the store and of the others who asked."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

import roost
from roost.batching import atoms
from roost.batching import batch as batches
from tests.campaigns.processes import PATIENCE, started
from tests.faults.slow_transaction_test import held
from tests.suite.shapes import Visit, likes, pageviews, visits

HEAD = "SELECT * FROM roost_visits_head WHERE uid = 1 FOR UPDATE"


class NoCopy(Exception):
    """Made of other arguments than it keeps, as `copy` finds out."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(main, PATIENCE))


def blocked(store: Any) -> set[Any]:
    """The keys that are waited for aside."""
    found: set[Any] = store._core._slow_writes._blocked
    return found


@pytest.mark.parametrize("failing", ["BEGIN", "INSERT", "COMMIT"])
def test_f9_an_error_that_cannot_be_copied_is_told_to_all(url: str, failing: str) -> None:
    fails = False

    def trace(sql: str, row: object) -> None:
        if fails and sql.startswith(failing):
            raise NoCopy(1, 2)

    async def main() -> None:
        nonlocal fails
        async with roost.AsyncStore(url, trace=trace) as store:
            await store.create(pageviews, view=False)
            fails = True
            calls = [store.run(pageviews.add(f"/{n}")) for n in range(5)]
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            fails = False
            assert [type(each) for each in outcomes] == [NoCopy] * 5
            assert await store.run(pageviews.totals([f"/{n}" for n in range(5)])) == {f"/{n}": 0 for n in range(5)}

    run(main())
    with roost.Store(url, trace=trace) as store:
        fails = True
        with pytest.raises(NoCopy):
            store.run(pageviews.add("/0"))
        fails = False
        assert store.run(pageviews.total("/0")) == 0


def test_f12_close_answers_who_waits_aside(server_url: str) -> None:
    async def main() -> None:
        store = roost.AsyncStore(server_url, timeout=PATIENCE)
        await store.create(visits, view=False)
        await store.run(visits.push(Visit(1, 0)))
        with held(server_url, HEAD):
            waiting = [asyncio.create_task(store.run(visits.push(Visit(1, n)))) for n in range(1, 4)]
            while not blocked(store):
                await asyncio.sleep(0.001)
            waiting.append(asyncio.create_task(store.run(visits.push(Visit(1, 4)))))
            await asyncio.sleep(0)
            closing = asyncio.create_task(store.close())
            await asyncio.sleep(0)
            with pytest.raises(roost.Closed):
                await store.run(visits.push(Visit(2, 1)))
            assert not closing.done()
        await closing
        assert sorted(await asyncio.gather(*waiting)) == [2, 3, 4, 5]

    run(main())
    with roost.Store(server_url) as store:
        assert {visit.visitor for visit in store.run(visits.latest(1))} == {0, 1, 2, 3, 4}


def test_f12_close_answers_who_is_about_to_be_sent_aside(server_url: str) -> None:
    async def main() -> None:
        store = roost.AsyncStore(server_url, timeout=PATIENCE)
        await store.create(visits, view=False)
        await store.run(visits.push(Visit(1, 0)))
        with held(server_url, HEAD):
            waiting = asyncio.create_task(store.run(visits.push(Visit(1, 1))))
            await asyncio.sleep(0)
            closing = asyncio.create_task(store.close())
            while not blocked(store):
                await asyncio.sleep(0.001)
            assert not closing.done()
        await closing
        assert await waiting == 2

    run(main())


@pytest.mark.parametrize(("limit", "most"), [("MAX_OPERATIONS", 100), ("MAX_BYTES", 20_000)])
def test_f13_the_limits_of_a_batch_hold_in_asyncio(
    url: str, monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    sizes: dict[Any, list[int]] = defaultdict(list)  # by store: that of another test may commit as well
    monkeypatch.setattr(atoms, limit, most)
    real = batches.Batch.committed

    def committed(self: batches.Batch) -> None:
        assert self.committing is not None
        sizes[getattr(self.committing, "_known", None)].append(len(self.committing))
        real(self)

    monkeypatch.setattr(batches.Batch, "committed", committed)

    async def main() -> list[int]:
        async with roost.AsyncStore(url) as store:
            await store.create(likes, pageviews, view=False)
            await asyncio.gather(*[store.run(likes.add(n % 7, f"{n}{'x' * 200}")) for n in range(500)])
            assert sum(await store.run_all(*[likes.size(n) for n in range(7)])) == 500
            reads = await asyncio.gather(*[store.run(likes.contains(n % 7, f"{n}{'x' * 200}")) for n in range(500)])
            assert reads == [True] * 500
            return sizes[store._core.known]

    own = run(main())
    assert sum(own) == 1001
    assert max(own) <= (100 if limit == "MAX_OPERATIONS" else 64 + 20_000 // 200)


def test_f22_a_task_that_is_cancelled_blocks_no_key(server_url: str) -> None:
    async def main() -> None:
        async with roost.AsyncStore(server_url, timeout=PATIENCE) as store:
            await store.create(visits, view=False)
            await store.run(visits.push(Visit(1, 0)))
            with held(server_url, HEAD):
                sent = asyncio.create_task(store.run(visits.push(Visit(1, 1))))
                while not store._core.writers.led:  # its batch waits for the lock
                    await asyncio.sleep(0.001)
                sent.cancel()
                await asyncio.gather(sent, return_exceptions=True)
                while store._core.writers.led or blocked(store):
                    await asyncio.sleep(0.001)
                assert await store.run(visits.push(Visit(2, 1))) == 1
            assert await store.run(visits.push(Visit(1, 2))) in (2, 3)

    run(main())


def test_f22_what_many_threads_do_is_counted(server_url: str) -> None:
    """Readers, the writer, and those aside count at the same time."""
    with roost.Store(server_url, timeout=PATIENCE) as store:
        store.create(pageviews, view=False)
        before = store.stats().operations

        def work() -> None:
            for _ in range(50):
                store.run_all(pageviews.add("/home"), pageviews.add("/about"))
                store.run(pageviews.total("/home"))

        threads = started(*[threading.Thread(target=work) for _ in range(8)])
        for thread in threads:
            thread.join(PATIENCE)
        assert store.stats().operations - before == 8 * 50 * 3
