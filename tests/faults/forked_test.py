"""Fork with open stores: a child starts anew, and neither side harms the other."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
import threading
from pathlib import Path

import pytest

import roost
from roost.store import links
from tests.campaigns.foreign import is_flocked
from tests.campaigns.forks import generation
from tests.campaigns.ledger import STRUCTURES, Event, counts, events
from tests.campaigns.processes import Child, Gone, Halt, Line, fork, program, run_threads, until
from tests.conftest import MakeStore
from tests.lengths import length

HOURS = 20_000.0


def _files(url: str) -> dict[int, str]:
    """Return the descriptors of this process that are the database's files."""
    path = os.path.realpath(url.removeprefix("sqlite:///"))
    found = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:
            continue  # that of the listing itself
        if target.startswith(path):
            found[int(fd)] = target
    return found


def test_a_child_uses_no_descriptor_of_its_parent(make_store: MakeStore, url: str) -> None:
    store = make_store(*STRUCTURES)
    store.run(counts.add(1))
    assert store.run(counts.total(1)) == 1
    nowhere = os.open("/dev/null", os.O_RDWR)

    def work(line: Line) -> None:
        for fd in _files(url):
            os.dup2(nowhere, fd)  # whoever reads, writes or locks through one of these will notice
        assert store.run_all(counts.add(1), counts.total(1)) == (None, 2)
        assert store.run(counts.total(1)) == 2
        assert _files(url), "it has opened files of its own"
        line.say("done")

    with Child(work) as child:
        assert child.hear() == "done"
        assert child.wait() == 0
    os.close(nowhere)
    assert store.run(counts.total(1)) == 2


def test_a_child_keeps_what_it_was_answered_when_the_parent_closes(make_store: MakeStore, url: str) -> None:
    store = make_store(*STRUCTURES)
    store.run(counts.add(1))

    def work(line: Line) -> None:
        store.run(counts.add(2))
        line.say("connected")
        assert line.hear() == "closed"
        for _ in range(10):
            store.run(counts.add(2))
        assert store.run(counts.total(2)) == 11
        line.say("answered")
        line.hear()

    with Child(work) as child:
        assert child.hear() == "connected"
        store.close()
        child.say("closed")
        assert child.hear() == "answered"
        with roost.Store(url) as fresh:
            assert fresh.run(counts.totals([1, 2])) == {1: 1, 2: 11}
            fresh.run(counts.add(1))
        child.say("end")
        assert child.wait() == 0
    with roost.Store(url) as fresh:
        assert fresh.run(counts.totals([1, 2])) == {1: 2, 2: 11}


def test_a_child_and_a_newcomer_agree_after_the_parent_was_killed(url: str) -> None:
    with roost.Store(url) as store:
        store.create(*STRUCTURES)

    def family(line: Line) -> None:
        store = roost.Store(url)
        store.run_all(counts.add(1), counts.total(1))

        def work(_: Line) -> None:
            try:
                while True:
                    line.hear()
                    line.say(store.run_all(counts.add(2), counts.total(2))[1])
            except Gone:
                pass

        Child(work)
        signal.pause()

    with Child(family) as parent:
        parent.say("go")
        assert parent.hear() == "1"
        parent.kill()
        for round_ in range(3):  # each time the newcomer believes to be the first and, at its end, the last
            with roost.Store(url) as newcomer:
                assert newcomer.run_all(counts.add(3), counts.total(2)) == (None, 1 + 2 * round_)
                parent.say("go")
                assert parent.hear() == str(2 + 2 * round_)
                assert newcomer.run(counts.total(2)) == 2 + 2 * round_
            parent.say("go")
            assert parent.hear() == str(3 + 2 * round_)
    with roost.Store(url) as store:
        assert store.run(counts.totals([1, 2, 3])) == {1: 1, 2: 7, 3: 3}
        assert store.check() == []


@pytest.mark.parametrize("before", ["BEGIN IMMEDIATE", "INSERT", "COMMIT", "BEGIN", "SELECT"])
def test_fork_while_another_thread_is_in_the_middle_of_a_batch(make_store: MakeStore, before: str, url: str) -> None:
    halt = Halt(
        f"^{before}", seconds=0.2
    )  # no longer, so that a fork that waits for the batch to end can go on as well
    store = make_store(*STRUCTURES, trace=halt.trace, timeout=5)
    store.run(counts.add(1))
    reads = before in ("BEGIN", "SELECT")
    operation: roost.Operation[object] = counts.total(1) if reads else counts.add(1)
    answers: list[object] = []
    other = threading.Thread(target=lambda: answers.append(store.run(operation)), name="other")
    other.start()
    halt.reached()

    def work(line: Line) -> None:
        assert line.hear() == "go"
        for n in range(1, 4):
            assert store.run_all(counts.add(2), counts.total(2)) == (None, n)
        assert store.run(counts.total(2)) == 3
        run_threads(*[threading.Thread(target=store.run, args=(counts.add(3),)) for _ in range(4)])
        store.close()

    with Child(work) as child:
        halt.release()
        other.join()
        child.say("go")
        assert child.wait() == 0
    assert answers == [1 if reads else None]
    assert store.run(counts.totals([1, 2, 3])) == {1: 1 if reads else 2, 2: 3, 3: 4}
    with roost.Store(url) as fresh:
        assert fresh.run(counts.totals([1, 2, 3])) == {1: 1 if reads else 2, 2: 3, 3: 4}


def test_fork_while_another_thread_waits_longer_than_the_timeout_of_the_store(make_store: MakeStore) -> None:
    # The timeout is for locks of somebody else: a batch that takes longer is no reason to fork in the middle of it.
    halt = Halt("^COMMIT", seconds=0.3)
    store = make_store(*STRUCTURES, trace=halt.trace, timeout=0.02)
    other = threading.Thread(target=store.run, args=(counts.add(1),), name="other")
    other.start()
    halt.reached()

    def work(line: Line) -> None:
        assert line.hear() == "go"
        for n in range(1, 4):
            assert store.run_all(counts.add(2), counts.total(2)) == (None, n)

    with Child(work) as child:
        halt.release()
        other.join()
        child.say("go")
        assert child.wait() == 0
    assert store.run(counts.totals([1, 2])) == {1: 1, 2: 3}


def test_fork_while_another_thread_reads_at_length(make_store: MakeStore, url: str) -> None:
    # check() has a connection of its own, and SQLite's locks are those of a process.
    halt = Halt("roost_events_rows", seconds=0.3)
    store = make_store(*STRUCTURES, trace=halt.trace)
    store.run(counts.add(1))
    found: list[list[roost.Violation]] = []
    other = threading.Thread(target=lambda: found.append(store.check()), name="other")
    other.start()
    halt.reached()

    def work(line: Line) -> None:
        store.run(counts.add(2))
        line.say("connected")
        assert line.hear() == "closed"
        store.run(counts.add(2))
        line.say("answered")
        line.hear()

    with Child(work) as child:
        halt.release()
        other.join()
        assert found == [[]]
        assert child.hear() == "connected"
        store.close()
        child.say("closed")
        assert child.hear() == "answered"
        with roost.Store(url) as fresh:
            assert fresh.run(counts.totals([1, 2])) == {1: 1, 2: 2}


@pytest.mark.parametrize("before", ["COMMIT", "SELECT"])
def test_a_child_that_could_not_wait_may_not_open_the_file(
    make_store: MakeStore, url: str, before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It would share a file with its parent and respect none of its locks.
    monkeypatch.setattr(links, "FORK_PATIENCE", 0.02)
    halt = Halt(f"^{before}")
    store = make_store(*STRUCTURES, trace=halt.trace, timeout=0.02)
    store.run(counts.add(1))
    assert store.run(counts.total(1)) == 1
    operation: roost.Operation[object] = counts.add(1) if before == "COMMIT" else counts.total(1)
    other = threading.Thread(target=store.run, args=(operation,), name="other")
    other.start()
    halt.reached()

    def work(line: Line) -> None:
        for each in (store, roost.Store(url)):
            for operation in (counts.add(2), counts.total(2)):
                with pytest.raises(roost.CannotOpen, match="forked"):
                    each.run(operation)
            with pytest.raises(roost.CannotOpen, match="forked"):
                each.check()
        with roost.Store(f"{url}-2") as elsewhere:
            elsewhere.create(*STRUCTURES)

    with Child(work) as child:
        assert child.wait() == 0
    halt.release()
    other.join()
    assert store.run_all(counts.add(1), counts.totals([1, 2]))[1] == {1: 3 if before == "COMMIT" else 2, 2: 0}


def test_a_fork_by_a_trace_function_waits_for_nobody(make_store: MakeStore, url: str) -> None:
    children: list[Child] = []

    def work(line: Line) -> None:
        with pytest.raises(roost.CannotOpen, match="forked"), roost.Store(url) as own:
            own.run(counts.add(2))

    def trace(sql: str, row: object) -> None:
        if sql == "COMMIT" and store.stats().batches == 1:
            children.append(Child(work))

    make_store(*STRUCTURES)
    store = make_store(trace=trace, timeout=HOURS)
    store.run(counts.add(1))
    store.run(counts.add(1))
    (child,) = children
    with child:
        assert child.wait() == 0
    assert store.run(counts.total(1)) == 2


@pytest.mark.parametrize("timeout", [0.0, 5.0])
def test_two_threads_that_fork_at_once(make_store: MakeStore, timeout: float) -> None:
    store = make_store(*STRUCTURES, timeout=timeout)
    others = [make_store(timeout=timeout) for _ in range(20)]
    errors: list[BaseException] = []
    forked = threading.Barrier(2)

    def fork_often() -> None:
        try:
            for _ in range(length(20, 50)):
                forked.wait(60)
                pid = fork()
                if pid == 0:
                    os._exit(0)
                os.waitpid(pid, 0)
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=fork_often) for _ in range(2)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert errors == []
    answers: list[int] = []

    def write() -> None:
        for each in [store, *others]:
            each.run(counts.add(1))
            answers.append(each.run(counts.total(1)))

    last = threading.Thread(target=write, daemon=True)  # a store that stands still must not hang the test with it
    last.start()
    last.join(20)
    assert answers == list(range(1, 22))


@pytest.mark.parametrize("end", ["close", "exit", "kill"])
def test_forks_at_random_moments(url: str, end: str) -> None:
    found = generation(url, forks=4, seed=1, end=end)
    assert found.answers >= 4 * 2 * 16


def test_the_lock_is_not_held_by_a_child_that_outlives_its_killed_parent(url: str) -> None:
    with roost.Store(url) as store:
        store.create(*STRUCTURES)

    def family(line: Line) -> None:
        halt = Halt("^COMMIT", seconds=0.2)
        store = roost.Store(url, trace=halt.trace)
        threading.Thread(target=store.run, args=(counts.add(1),), name="other", daemon=True).start()
        halt.reached()
        Child(lambda _: signal.pause())
        os.kill(os.getpid(), signal.SIGKILL)

    with Child(family) as parent:
        assert parent.wait() == -signal.SIGKILL
        with roost.Store(url, timeout=2) as store:
            assert store.run_all(counts.add(2), counts.total(2)) == (None, 1)


def test_nor_when_the_parent_was_forked_and_killed_while_it_connected(url: str, tmp_path: Path) -> None:
    raw = sqlite3.connect(tmp_path / "test.db", isolation_level=None)  # not in WAL mode: connecting has to wait for us
    raw.execute("CREATE TABLE t (n)")
    raw.execute("BEGIN EXCLUSIVE")

    def family(line: Line) -> None:
        store = roost.Store(url, timeout=60)
        threading.Thread(target=store.create, args=STRUCTURES, daemon=True).start()
        until(lambda: is_flocked(tmp_path / "test.db-lock"), "a thread that connects")
        threading.Thread(target=_kill_soon, args=(line,), daemon=True).start()
        Child(lambda _: signal.pause())
        signal.pause()

    with Child(family) as parent:
        assert parent.wait() == -signal.SIGKILL
        raw.execute("ROLLBACK")
        raw.close()
        with roost.Store(url, timeout=2) as store:
            store.create(*STRUCTURES)
            assert store.run_all(counts.add(2), counts.total(2)) == (None, 1)


def _kill_soon(line: Line) -> None:
    line.overhear(0.3)  # in which the other thread forks, unless forking waits for those that connect
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("end", ["sys.exit(0)", "os._exit(0)", "store.close(); sys.exit(0)", "raise SystemExit(0)"])
def test_a_child_that_ends_does_not_harm_its_parent(url: str, end: str) -> None:
    # A process of its own, since a child that ends like a program must not end like pytest.
    rounds = length(8, 20)
    text = f"""
import os, sys, threading
import roost
from tests.campaigns.ledger import counts, STRUCTURES
from tests.campaigns.processes import fork

store = roost.Store({url!r})
store.create(*STRUCTURES)
for n in range(1, {rounds} + 1):
    store.run(counts.add(1))
    assert store.run(counts.total(1)) == n
    thread = threading.Thread(target=store.run, args=(counts.add(2),))
    thread.start()
    if fork() == 0:
        if n % 2:
            store.run(counts.add(3))
        {end}
    thread.join()
    store.run(counts.add(2))
    assert os.wait()[1] == 0
    assert store.run(counts.totals([2, 3])) == {{2: 2 * n, 3: (n + 1) // 2}}
"""
    program(text)
    with roost.Store(url) as store:
        assert store.run(counts.totals([1, 2, 3])) == {1: rounds, 2: 2 * rounds, 3: rounds // 2}
        assert store.check() == []


def test_an_asyncio_store_in_a_child(url: str) -> None:
    store = roost.AsyncStore(url)

    async def prepare() -> None:
        await store.create(*STRUCTURES)
        await asyncio.gather(*[store.run(counts.add(1)) for _ in range(20)])

    asyncio.run(prepare())

    async def work() -> None:
        await asyncio.gather(*[store.run(counts.add(2)) for _ in range(20)])
        assert 20 <= await store.run(counts.total(1)) <= 40

    async def fork_meanwhile() -> None:
        tasks = [asyncio.create_task(store.run(counts.add(1))) for _ in range(20)]
        await asyncio.sleep(0)
        with Child(lambda _: asyncio.run(work())) as child:
            await asyncio.gather(*tasks)
            assert child.wait() == 0
        assert await store.run(counts.totals([1, 2])) == {1: 40, 2: 20}
        await store.close()

    asyncio.run(fork_meanwhile())
    with roost.Store(url) as fresh:
        assert fresh.run(counts.totals([1, 2])) == {1: 40, 2: 20}
        assert fresh.check() == []


def test_children_of_children(make_store: MakeStore) -> None:
    store = make_store(*STRUCTURES)
    store.run(events.push(_event(0)))

    def work(line: Line, depth: int = 1) -> None:
        assert store.run(events.push(_event(depth))) == depth + 1
        if depth < 4:
            with Child(lambda line: work(line, depth + 1)) as child:
                assert child.wait() == 0
        assert store.run(events.push(_event(depth))) == 10 - depth

    with Child(work) as child:
        assert child.wait() == 0
    assert store.run(events.push(_event(0))) == 10
    assert [entry.row.number for entry in store.run(events.entries(1))] == [3, 4, 4, 3, 2, 1, 0]


def _event(number: int) -> Event:
    return Event(1, number)
