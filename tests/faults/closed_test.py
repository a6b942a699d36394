"""The end of a store: what waits is answered, what comes later is refused, nothing is left open."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import os
import random
import sys
import threading
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import roost
from tests.campaigns.foreign import held, is_locked
from tests.campaigns.ledger import STRUCTURES, Event, counts, events
from tests.campaigns.processes import Child, Line, program, started, until
from tests.conftest import MakeStore
from tests.lengths import length


def _descriptors(directory: Path) -> list[str]:
    """Return the files in a directory that this process has open, once per descriptor."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:
            continue  # that of the listing itself
        if target.startswith(str(directory)):
            found.append(target)
    return sorted(found)


def test_close_answers_what_waits(make_store: MakeStore, tmp_path: Path) -> None:
    make_store(*STRUCTURES).close()
    store = make_store(timeout=600)
    answers: list[tuple[None, int]] = []
    refused: list[roost.Closed] = []
    threads: list[threading.Thread] = []

    def work() -> None:
        try:
            answers.append(store.run_all(counts.add(1), events.push(Event(1, 1))))
        except roost.Closed as error:
            refused.append(error)

    def one_more_is_refused() -> bool:
        threads.append(threading.Thread(target=work))
        threads[-1].start()
        return bool(refused)

    with held(tmp_path / "test.db") as holder:
        for _ in range(6):
            one_more_is_refused()
        until(lambda: store.stats().waits, "a batch that waits")
        closing = threading.Thread(target=store.close)
        closing.start()
        until(one_more_is_refused, "the refusal of what comes later")
        assert is_locked(tmp_path / "test.db")
        assert closing.is_alive(), "it waits for those that waited before"
        assert not answers
        holder.release()
        closing.join()
        for thread in threads:
            thread.join()
    assert len(answers) >= 6
    assert len(answers) + len(refused) == len(threads)
    assert sorted(answers) == [(None, n) for n in range(1, len(answers) + 1)]
    with roost.Store(f"sqlite:///{tmp_path}/test.db") as fresh:
        assert fresh.run(counts.total(1)) == len(answers)


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("kind", ["file", "memory"])
def test_what_comes_later_is_refused(make_store: MakeStore, tmp_path: Path, used: bool, kind: str) -> None:
    make_store(*STRUCTURES).close()
    store = roost.Store(f"sqlite:///{tmp_path}/test.db" if kind == "file" else "sqlite://")
    if used:
        store.create(*STRUCTURES)
        assert store.run_all(counts.add(1), counts.total(1)) == (None, 1)
    store.close()
    store.close()
    calls: list[Callable[[], object]] = [
        lambda: store.run(counts.add(1)),
        lambda: store.run(counts.total(1)),
        lambda: store.run_all(counts.add(1), events.push(Event(1, 1))),
        lambda: store.create(roost.Counter("later")),
        lambda: store.alter(roost.Counter("counts", key=int, slots=2)),
        store.check,
        store.structures,
    ]
    for call in calls:
        with pytest.raises(roost.Closed, match="the store was closed") as caught:
            call()
        assert not caught.value.retry
    assert _descriptors(tmp_path) == []


def test_a_with_block_closes_also_when_it_fails(url: str, tmp_path: Path) -> None:
    store = roost.Store(url)
    store.create(*STRUCTURES)
    with pytest.raises(ZeroDivisionError), store:
        raise ZeroDivisionError
    with pytest.raises(roost.Closed):
        store.run(counts.add(1))
    assert _descriptors(tmp_path) == []


def test_nothing_is_open_before_the_first_operation(url: str, tmp_path: Path) -> None:
    store = roost.Store(url)
    assert _descriptors(tmp_path) == os.listdir(tmp_path) == []
    store.close()
    assert os.listdir(tmp_path) == []


def test_close_by_several_threads_at_once(make_store: MakeStore, tmp_path: Path) -> None:
    for _ in range(20):
        assert _closed_at_work(make_store(*STRUCTURES)) == 4
        assert _descriptors(tmp_path) == []


def _closed_at_work(store: roost.Store) -> int:
    refused: list[roost.Closed] = []

    def work() -> None:
        try:
            while True:
                store.run(counts.add(1))
                store.run(counts.total(1))
        except roost.Closed as error:
            refused.append(error)

    workers = started(*[threading.Thread(target=work) for _ in range(4)])
    until(lambda: store.stats().operations > 10, "some work")
    closers = started(*[threading.Thread(target=store.close) for _ in range(3)])
    for each in [*closers, *workers]:
        each.join()
    return len(refused)


def test_descriptors_do_not_grow(url: str, tmp_path: Path) -> None:
    with roost.Store(url) as store:
        store.create(*STRUCTURES)
        store.run_all(counts.add(1), counts.total(1))
        store.run(counts.total(1))
        store.check()  # SQLite keeps a descriptor that it cannot close yet, for the next connection
        open_ = _descriptors(tmp_path)
        assert open_.count(f"{tmp_path}/test.db-lock") == 1
        for _ in range(50):
            store.check()
            store.structures()
            store.run(counts.add(1))
            store.create(*STRUCTURES)
            with pytest.raises(roost.Missing):
                store.run(roost.Counter("missing").add("x"))
        assert _descriptors(tmp_path) == open_


def test_a_store_dropped_without_close_leaves_nothing(url: str, tmp_path: Path) -> None:
    # Warnings are errors here: one that is raised by a finalizer, too.
    before = threading.active_count()
    for n in range(1, length(3, 10) + 1):
        store = roost.Store(url)
        store.create(*STRUCTURES)
        store.run(counts.add(1))
        assert store.run(counts.total(1)) == n
        assert _descriptors(tmp_path)
        gone = weakref.ref(store)
        del store
        gc.collect()
        assert gone() is None
        assert _descriptors(tmp_path) == []
    assert threading.active_count() == before


def test_what_a_batch_had_does_not_wait_for_the_garbage_collector(make_store: MakeStore) -> None:
    store = make_store(*STRUCTURES)
    store.run_all(counts.add(1), counts.add(2))
    gc.collect()
    gc.disable()
    try:
        operation = counts.add(1)
        before = sys.getrefcount(operation)
        for _ in range(10):
            store.run_all(operation, counts.add(2))
        assert sys.getrefcount(operation) <= before + 1  # the last batch's may stay
    finally:
        gc.enable()


def test_an_asyncio_store_dropped_without_close_leaves_nothing(url: str, tmp_path: Path) -> None:
    def is_gone(store: weakref.ref[roost.AsyncStore]) -> bool:
        gc.collect()
        return store() is None

    async def use() -> weakref.ref[roost.AsyncStore]:
        store = roost.AsyncStore(url)
        await store.create(*STRUCTURES)
        await asyncio.gather(*[store.run(counts.add(1)) for _ in range(10)], store.run(counts.total(1)))
        return weakref.ref(store)

    before = threading.active_count()
    for _ in range(5):
        until(partial(is_gone, asyncio.run(use())), "the end of the last thread's call")
        until(lambda: not _descriptors(tmp_path), "the end of the connections")
    until(lambda: threading.active_count() == before, "the end of the threads", 10)


def test_an_asyncio_store_that_was_closed_leaves_no_threads(url: str, tmp_path: Path) -> None:
    async def use() -> None:
        async with roost.AsyncStore(url) as store:
            await store.create(*STRUCTURES)
            await asyncio.gather(*[store.run(counts.add(1)) for _ in range(10)], store.run(counts.total(1)))

    before = threading.active_count()
    asyncio.run(use())
    assert _descriptors(tmp_path) == []
    until(lambda: threading.active_count() == before, "the end of the threads", 10)


def test_closed_while_a_place_in_the_queue_of_the_lock_is_still_held(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store(*STRUCTURES, timeout=0.05)
    fd = os.open(tmp_path / "test.db-lock", os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    with pytest.raises(roost.Busy):
        store.run(counts.add(1))
    store.close()
    os.close(fd)  # which lets the place go
    until(lambda: not _descriptors(tmp_path), "the end of the descriptors")


@pytest.mark.parametrize("kind", ["Store", "AsyncStore"])
def test_a_program_that_ends_without_close(url: str, kind: str) -> None:
    text = f"""
import asyncio
import roost
from tests.campaigns.ledger import STRUCTURES, counts

store = roost.{kind}({url!r})

async def main():
    asyncio.get_running_loop().slow_callback_duration = 600  # on a busy machine any is slow
    await store.create(*STRUCTURES)
    await asyncio.gather(*[store.run(counts.add(1)) for _ in range(10)])
    assert await store.run(counts.total(1)) == 10

if {kind == "Store"}:
    store.create(*STRUCTURES)
    for _ in range(10):
        store.run(counts.add(1))
    assert store.run(counts.total(1)) == 10
else:
    asyncio.run(main())
"""
    program(text, "-X", "dev", "-W", "error")
    with roost.Store(url) as store:
        assert store.run(counts.total(1)) == 10


@pytest.mark.parametrize("work", ["store.run_all(*reads)", "store.run_all(*writes)", "store.run(counts.add(1))"])
def test_a_program_that_ends_while_its_threads_work(url: str, work: str) -> None:
    text = f"""
import threading
import roost
from tests.campaigns.ledger import STRUCTURES, counts

store = roost.Store({url!r})
store.create(*STRUCTURES)
reads = [counts.total(n) for n in range(500)]
writes = [counts.add(n % 2) if n % 3 else counts.total(n) for n in range(500)]
done = threading.Semaphore(0)

def work():
    while True:
        {work}
        done.release()

for _ in range(2):
    threading.Thread(target=work, daemon=True).start()
for _ in range(20):
    done.acquire()
"""
    for _ in range(length(2, 4)):
        program(text)
    with roost.Store(url) as store:
        assert store.check() == []


def test_asyncio_stores_dropped_while_their_batches_are_under_way(url: str) -> None:
    def work(line: Line) -> None:  # a process of its own: what may happen is a crash
        reads = [counts.total(n) for n in range(1000)]

        async def leave() -> None:
            store = roost.AsyncStore(url)
            await store.create(*STRUCTURES)
            tasks = [asyncio.create_task(store.run_all(*reads)), asyncio.create_task(store.run(counts.add(1)))]
            while not store.stats().batches:
                await asyncio.sleep(0)
                if chance.random() < 0.2:
                    break
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

        chance = random.Random(1)
        for _ in range(length(6, 15)):
            asyncio.run(leave())
            gc.collect()

    with Child(work) as child:
        assert child.wait() == 0
    with roost.Store(url) as store:
        assert store.check() == []
        assert store.run_all(counts.add(2), counts.total(2)) == (None, 1)


def test_threads_that_worked_for_asyncio_end_when_their_store_is_gone(tmp_path: Path) -> None:
    """Whoever still has a part of it: the executor alone would keep them."""
    before = {*threading.enumerate()}
    store = roost.AsyncStore(f"sqlite:///{tmp_path / 'test.db'}")

    async def work() -> None:
        await store.create(counts)
        await store.run(counts.add(1))

    asyncio.run(work())
    core = store._core
    threads = {each for each in threading.enumerate() if each.name.startswith("roost")} - before
    assert threads
    core.dispose()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
    with pytest.raises(roost.Closed):
        asyncio.run(store.run(counts.add(1)))
