"""asyncio: tasks that are cancelled, loops that end, stores that are closed, while others wait."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import threading
import weakref
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

import roost
from roost.store.links import MOST_THREADS
from tests.campaigns.cancel import cancelled, likes, pageviews
from tests.campaigns.foreign import held, is_flocked, is_locked
from tests.campaigns.ledger import STRUCTURES, Event, counts, recent
from tests.campaigns.processes import Child, Line, run_threads, until

NOBODY = 65_534  # the number of an account
SOON = 30.0  # seconds after which a task that is not done is taken for one that never will be


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with roost.Store(f"sqlite:///{tmp_path}/test.db") as store:
        store.create(*STRUCTURES, pageviews, likes)
    return tmp_path / "test.db"


def _run(main: Coroutine[Any, Any, None]) -> None:
    async def soon() -> None:
        await asyncio.wait_for(main, 2 * SOON)

    asyncio.run(soon())


async def _waiting(store: roost.AsyncStore) -> None:
    """Return when a batch of the store waits for somebody else's lock."""
    while not store.stats().waits:
        await asyncio.sleep(0.001)


def test_tasks_cancelled_at_random_take_nothing_from_the_others(url: str, path: Path) -> None:
    async def main() -> None:
        async with roost.AsyncStore(url) as store:
            for round_ in range(8):
                found = await cancelled(store, 200, seed=round_, first=1 + round_ * 200)
                assert found.cancelled > 0
                assert found.answers > 0
            assert await store.check() == []

    _run(main())


def test_what_is_awaited_together_shares_a_commit(url: str, path: Path) -> None:
    async def main() -> None:
        async with roost.AsyncStore(url) as store:
            answers = await asyncio.gather(
                *[store.run_all(counts.add(n, n), counts.total(n)) for n in range(1, 501)],
                *[store.run(recent.add(Event(n, n))) for n in range(500)],
            )
            assert answers == [(None, n) for n in range(1, 501)] + [None] * 500
            stats = store.stats()
            assert stats.operations == 1500
            assert stats.batches <= 2
            await asyncio.gather(*[store.run(counts.total(n)) for n in range(500)])
            assert store.stats().batches <= stats.batches + 2

    _run(main())


def test_what_comes_during_a_commit_shares_the_next(url: str, path: Path) -> None:
    async def main() -> None:
        async with roost.AsyncStore(url, timeout=600) as store:
            with held(path) as holder:
                first = asyncio.create_task(store.run(counts.add(1)))
                await _waiting(store)
                others = [asyncio.create_task(store.run(counts.add(2))) for _ in range(100)]
                await asyncio.sleep(0)
                assert is_locked(path)
                holder.release()
                await asyncio.gather(first, *others)
            assert store.stats().batches <= 2
            assert await store.run(counts.totals([1, 2])) == {1: 1, 2: 100}

    _run(main())


def test_all_are_cancelled_and_the_store_goes_on(url: str, path: Path) -> None:
    async def main() -> None:
        async with roost.AsyncStore(url, timeout=600) as store:
            with held(path) as holder:
                tasks: list[asyncio.Task[Any]] = [
                    asyncio.create_task(store.run_all(counts.add(1), recent.add(Event(1, n)))) for n in range(50)
                ]
                await _waiting(store)
                tasks += [asyncio.create_task(store.run(counts.add(2))) for n in range(50)]
                tasks.append(asyncio.create_task(store.run(counts.total(1))))
                await asyncio.sleep(0)
                for task in tasks:
                    task.cancel()
                assert is_locked(path)
                holder.release()
                outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            assert {type(outcome) for outcome in outcomes} == {asyncio.CancelledError}
            assert await store.run_all(counts.add(3), counts.total(3)) == (None, 1)
            assert await store.run(counts.total(2)) == 0, "what no batch had taken is not done"
            total, count = await store.run_all(counts.total(1), recent.count(1))
            assert (total, count) in ((0, 0), (50, 7))
            assert await store.check() == []

    _run(main())


def test_a_task_that_is_cancelled_twice_and_one_cancelled_by_a_timeout(url: str, path: Path) -> None:
    async def main() -> None:
        async with roost.AsyncStore(url, timeout=600) as store:
            with held(path) as holder:
                stubborn = asyncio.create_task(store.run(counts.add(1)))
                patient = asyncio.create_task(store.run_all(counts.add(2), counts.total(2)))
                await _waiting(store)
                stubborn.cancel()
                stubborn.cancel()
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(store.run(counts.add(3)), 0.02)
                assert is_locked(path)
                holder.release()
            assert await patient == (None, 1)
            assert stubborn.cancelled()
            assert await store.run(counts.total(3)) == 0

    _run(main())


def test_close_answers_what_waits(url: str, path: Path) -> None:
    async def main() -> None:
        store = roost.AsyncStore(url, timeout=600)
        with held(path) as holder:
            waiting = [asyncio.create_task(store.run_all(counts.add(1), counts.total(1))) for _ in range(20)]
            await _waiting(store)
            waiting += [asyncio.create_task(store.run_all(counts.add(1), counts.total(1))) for _ in range(20)]
            await asyncio.sleep(0)
            closing = asyncio.create_task(store.close())
            await asyncio.sleep(0)
            with pytest.raises(roost.Closed):
                await asyncio.wait_for(store.run(counts.add(2)), SOON)
            assert not closing.done()
            assert is_locked(path)
            holder.release()
            await asyncio.wait_for(closing, SOON)
        assert [task.done() for task in waiting] == [True] * 40
        assert [task.result() for task in waiting] == [(None, n) for n in range(1, 41)]

    _run(main())
    with roost.Store(url) as store:
        assert store.run(counts.totals([1, 2])) == {1: 40, 2: 0}


def test_closed_twice_at_once_and_once_more(url: str, path: Path) -> None:
    async def main() -> None:
        store = roost.AsyncStore(url)
        tasks = [asyncio.create_task(store.run(counts.add(1))) for _ in range(50)]
        await asyncio.sleep(0)
        await asyncio.wait_for(asyncio.gather(store.close(), store.close()), SOON)
        assert await asyncio.gather(*tasks) == [None] * 50
        await asyncio.wait_for(store.close(), SOON)
        with pytest.raises(roost.Closed):
            await store.run(counts.add(1))

    _run(main())


def test_a_close_that_is_cancelled_can_be_called_again(url: str, path: Path) -> None:
    async def main() -> None:
        store = roost.AsyncStore(url, timeout=600)
        with held(path) as holder:
            task = asyncio.create_task(store.run(counts.add(1)))
            await _waiting(store)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(store.close(), 0.02)
            assert is_locked(path)
            holder.release()
            await asyncio.wait_for(store.close(), SOON)
        assert task.done()
        await task

    _run(main())
    with roost.Store(url) as store:
        assert store.run(counts.total(1)) == 1


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("call", ["run", "read", "run_all", "create", "alter"])
def test_what_comes_after_close_is_refused_in_every_loop(url: str, path: Path, used: bool, call: str) -> None:
    store = roost.AsyncStore(url)

    def ask() -> Coroutine[Any, Any, Any]:
        match call:
            case "run":
                return store.run(counts.add(1))
            case "read":
                return store.run(counts.total(1))
            case "run_all":
                return store.run_all(counts.add(1), recent.add(Event(1, 1)))
            case "create":
                return store.create(roost.Counter("later"))
        return store.alter(roost.Counter("counts", key=int, slots=2))

    async def close() -> None:
        if used:
            await store.run(counts.add(1))
            await store.run(counts.total(1))
        await store.close()
        with pytest.raises(roost.Closed):
            await asyncio.wait_for(ask(), SOON)

    async def another_loop() -> None:
        with pytest.raises(roost.Closed):
            await asyncio.wait_for(ask(), SOON)

    asyncio.run(close())
    asyncio.run(another_loop())


def test_two_loops_one_after_the_other(url: str, path: Path) -> None:
    store = roost.AsyncStore(url)  # made where no loop runs, as at module level

    async def add() -> None:
        await asyncio.gather(*[store.run(counts.add(1)) for _ in range(20)])

    for _ in range(5):
        asyncio.run(add())

    async def end() -> None:
        assert await store.run(counts.total(1)) == 100
        await store.close()

    asyncio.run(end())


def test_a_loop_that_ends_while_its_tasks_wait_harms_no_other(url: str, path: Path) -> None:
    store = roost.AsyncStore(url, timeout=600)

    async def leave() -> None:
        asyncio.create_task(store.run(counts.add(1)))  # noqa: RUF006  # nobody will wait for it
        await _waiting(store)

    async def add() -> None:
        await asyncio.wait_for(store.run(counts.add(2)), SOON)
        assert await store.run(counts.total(2)) == 1
        assert await store.run(counts.total(1)) in (0, 1)
        await store.close()

    with held(path) as holder:
        asyncio.run(leave())
        holder.release()
        asyncio.run(add())


def test_loops_of_two_threads_at_once(url: str, path: Path) -> None:
    store = roost.AsyncStore(url)
    errors: list[BaseException] = []

    async def add(mine: int) -> None:
        for round_ in range(1, 21):
            answers = await asyncio.gather(
                *[store.run_all(pageviews.add(mine * 1000 + n, n), pageviews.total(mine * 1000 + n)) for n in range(20)]
            )
            assert answers == [(None, n * round_) for n in range(20)]

    def live(mine: int) -> None:
        try:
            asyncio.run(add(mine))
        except BaseException as error:
            errors.append(error)

    run_threads(*[threading.Thread(target=live, args=(mine,)) for mine in range(2)])
    assert errors == []

    async def end() -> None:
        totals = await store.run(pageviews.totals([mine * 1000 + n for mine in range(2) for n in range(20)]))
        assert totals == {mine * 1000 + n: 20 * n for mine in range(2) for n in range(20)}
        assert await store.check() == []
        await store.close()

    asyncio.run(end())


@pytest.mark.parametrize("busy", [False, True])
def test_one_loop_closes_while_tasks_of_another_wait(url: str, path: Path, busy: bool) -> None:
    store = roost.AsyncStore(url, timeout=600)
    outcomes: list[object] = []
    lined_up, closed = threading.Event(), threading.Event()

    async def wait() -> None:
        tasks = [asyncio.create_task(store.run(counts.add(1))) for _ in range(10)]
        await _waiting(store)
        tasks += [asyncio.create_task(store.run(counts.add(1))) for _ in range(10)]  # these are in no batch yet
        await asyncio.sleep(0)
        lined_up.set()
        if busy:
            closed.wait(1)  # a loop that is busy with something else, meanwhile
        outcomes.extend(await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), SOON))

    async def close() -> None:
        closing = asyncio.create_task(store.close())
        for _ in range(10):
            await asyncio.sleep(0)
        assert is_locked(path)
        assert not closing.done()
        holder.release()
        await asyncio.wait_for(closing, SOON)
        closed.set()

    with held(path) as holder:
        thread = threading.Thread(target=lambda: asyncio.run(wait()))
        thread.start()
        lined_up.wait()
        asyncio.run(close())
        thread.join()
    assert {type(outcome) for outcome in outcomes} <= {type(None), roost.Closed}
    assert len(outcomes) == 20
    with roost.Store(url) as fresh:
        assert fresh.run(counts.total(1)) == outcomes.count(None) >= 10


def test_nothing_is_kept_of_a_loop_that_has_ended(url: str, path: Path) -> None:
    store = roost.AsyncStore(url)  # of a web server that makes a loop per request

    async def use() -> weakref.ref[asyncio.AbstractEventLoop]:
        await store.run_all(counts.add(1), counts.total(1))
        await store.run(counts.total(1))
        return weakref.ref(asyncio.get_running_loop())

    loops = [asyncio.run(use()) for _ in range(5)]

    async def end() -> None:
        await store.close()

    def all_gone() -> bool:  # the last thread may still be putting its work away
        gc.collect()
        return [loop() for loop in loops] == [None] * 5

    until(all_gone, "the end of the loops")
    asyncio.run(end())


def test_an_error_is_the_awaiting_tasks_own(url: str, path: Path) -> None:
    strict = roost.Capped("strict", Event, per="owner", keep=7, unique="number")

    async def main() -> None:
        async with roost.AsyncStore(url) as store:
            await store.create(strict)
            await store.run(strict.add(Event(1, 1)))
            outcomes = await asyncio.gather(
                *[store.run(strict.add(Event(owner, 1))) for owner in (1, 2, 1, 3, 1)], return_exceptions=True
            )
            assert [type(outcome) for outcome in outcomes] == [
                roost.Duplicate, type(None), roost.Duplicate, type(None), roost.Duplicate
            ]  # fmt: skip
            assert len({id(outcome) for outcome in outcomes}) == 4

    _run(main())


def test_a_store_that_is_dropped_while_its_batch_is_under_way(url: str, path: Path) -> None:
    async def leave() -> None:
        store = roost.AsyncStore(url, timeout=600)
        task = asyncio.create_task(store.run(counts.add(1)))
        await _waiting(store)
        task.cancel()
        await asyncio.wait([task])

    with held(path) as holder:
        asyncio.run(leave())
        gc.collect()
        holder.release()
    until(lambda: not is_flocked(f"{path}-lock") and not is_locked(path), "the end of the batch")
    with roost.Store(url) as store:
        assert store.run(counts.total(1)) in (0, 1)
        assert store.run_all(counts.add(2), counts.total(2)) == (None, 1)


def test_as_many_checks_as_there_are_threads_keep_no_operation_back(url: str, path: Path) -> None:
    # An operation waited for a free thread beyond every timeout; a check whose caller is cancelled goes on, too.
    begun = threading.Semaphore(0)
    over = threading.Event()

    def holds_up(sql: str, _: object) -> None:
        if "roost_likes" in sql:
            begun.release()
            over.wait()

    async def main() -> None:
        async with roost.AsyncStore(url, trace=holds_up) as store:
            checks = [asyncio.ensure_future(store.check(likes)) for _ in range(MOST_THREADS)]
            try:
                await asyncio.to_thread(lambda: [begun.acquire() for _ in checks])
                async with asyncio.timeout(SOON):
                    await store.run(counts.add(1, 1))
            finally:
                over.set()
            assert await asyncio.gather(*checks) == [[]] * MOST_THREADS

    _run(main())


def test_what_finds_no_thread_is_told_so_and_not_done_later() -> None:
    # As in a container at its limit: it was told Closed, and done when a thread could be started again.
    def work(_: Line) -> None:
        if os.getuid() == 0:
            os.setresuid(NOBODY, NOBODY, NOBODY)  # root has no such limit

        async def main() -> None:
            async with roost.AsyncStore("sqlite://") as store, roost.AsyncStore("sqlite://") as other:
                await store.create(*STRUCTURES)
                soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
                resource.setrlimit(resource.RLIMIT_NPROC, (0, hard))
                for refused in (store.run(counts.add(1)), other.create(*STRUCTURES)):
                    with pytest.raises(roost.Busy):
                        await refused
                resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))
                assert await store.run(counts.total(1)) == 0
                assert await other.structures() == []

        _run(main())

    with Child(work) as child:
        assert child.wait() == 0
