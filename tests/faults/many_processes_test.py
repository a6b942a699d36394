"""Several processes on one file: nobody is lost, doubled or starved, and one that stands still is waited for."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import threading
from pathlib import Path

import pytest

import roost
from roost.databases.engine import Wait
from roost.databases.sqlite.filelock import FileLock
from tests.campaigns.foreign import is_flocked
from tests.campaigns.ledger import STRUCTURES, Event, counts, events, recent
from tests.campaigns.processes import Child, Line, Start, children, run_threads, started, until
from tests.campaigns.shares import together
from tests.conftest import MakeStore


def test_eight_processes_create_one_missing_file_at_once(url: str) -> None:
    for round_ in range(6):
        path = f"{url}-{round_}"
        start = Start()

        def work(line: Line, number: int, start: Start = start, path: str = path) -> None:
            store = roost.Store(path)
            start.wait()
            store.create(*STRUCTURES)
            store.run(counts.add(1))
            store.close()

        with children(8, work) as found:
            start.go()
            assert [child.wait() for child in found] == [0] * 8
        with roost.Store(path) as store:
            assert store.run(counts.total(1)) == 8
            assert store.structures() == sorted(STRUCTURES, key=lambda each: each.name)
            assert store.check() == []


def test_one_of_two_declarations_is_made_and_the_other_is_told(url: str) -> None:
    other = roost.Capped("recent", Event, per="owner", keep=9, unique="number")
    start = Start()

    def work(line: Line, number: int) -> None:
        mine = other if number % 2 else recent
        store = roost.Store(url)
        start.wait()
        try:
            store.create(counts, mine)
        except roost.Mismatch as error:
            line.say("told" if "keep is" in str(error) else error)
        else:
            line.say("made")
        store.close()

    with children(8, work) as found:
        start.go()
        outcome = [child.hear() for child in found]
        assert [child.wait() for child in found] == [0] * 8
    assert outcome in (["made", "told"] * 4, ["told", "made"] * 4)


def fair(url: str, processes: int, seconds: float, threads: int = 1) -> None:
    """Once in three times is enough: whom the lock starves it starves always, a busy machine now this one, now that."""
    found = [together(f"{url}-0", processes, seconds, seed=1, threads=threads)]
    while found[-1].least <= 1 / 3:
        assert len(found) < 3, found
        found.append(together(f"{url}-{len(found)}", processes, seconds, seed=1, threads=threads))


def test_four_writing_processes_lose_nothing_and_have_fair_shares(url: str) -> None:
    fair(url, processes=4, seconds=2.5)


def test_processes_of_several_threads_have_fair_shares_too(url: str) -> None:
    fair(url, processes=3, seconds=1.0, threads=3)


@pytest.mark.parametrize("stopped_before", ["BEGIN IMMEDIATE", "COMMIT"])  # with the lock file alone; with both locks
def test_a_process_that_stands_still_with_the_lock_is_waited_for(
    make_store: MakeStore, url: str, stopped_before: str
) -> None:
    make_store(*STRUCTURES).close()

    def work(line: Line) -> None:
        def trace(sql: str, row: object) -> None:
            if sql == stopped_before:
                os.kill(os.getpid(), signal.SIGSTOP)

        line.hear()
        with roost.Store(url, trace=trace) as own:
            own.run_all(counts.add(2), events.push(Event(1, 1)))

    with Child(work) as child:
        store = make_store(timeout=0.2)
        store.run(counts.add(3))
        child.say("go")
        child.stopped()
        for _ in range(2):  # the second one finds a place in the kernel's queue that the first has left
            with pytest.raises(roost.Busy, match=r"another process has held .*test\.db-lock") as caught:
                store.run_all(counts.add(3), recent.add(Event(3, 1)))
            assert caught.value.retry
        errors: list[Exception] = []

        def try_it() -> None:
            try:
                store.run(counts.add(3))
            except roost.Busy as error:
                errors.append(error)

        run_threads(*[threading.Thread(target=try_it) for _ in range(3)])
        assert len(errors) == 3
        assert store.run_all(counts.totals([2, 3]), recent.count(3)) == ({2: 0, 3: 1}, 0)  # reading goes on
        assert store.stats().waits >= 3
        child.kill(signal.SIGCONT)
        assert child.wait() == 0
    store.run(counts.add(3))
    assert store.run_all(counts.totals([2, 3]), recent.count(3)) == ({2: 1, 3: 2}, 0)
    assert not is_flocked(f"{url.removeprefix('sqlite:///')}-lock")


def test_a_waiting_thread_goes_on_when_the_process_does(make_store: MakeStore, url: str) -> None:
    make_store(*STRUCTURES).close()

    def work(line: Line) -> None:
        def trace(sql: str, row: object) -> None:
            if sql == "COMMIT":
                os.kill(os.getpid(), signal.SIGSTOP)

        line.hear()
        with roost.Store(url, trace=trace) as own:
            own.run(counts.add(1))

    with Child(work) as child:
        store = make_store(timeout=60)
        store.run(counts.add(2))
        child.say("go")
        child.stopped()
        answers: list[tuple[None, int]] = []
        threads = started(
            *[
                threading.Thread(target=lambda: answers.append(store.run_all(counts.add(2), counts.total(1))))
                for _ in range(5)
            ]
        )
        until(lambda: store.stats().waits, "a thread that waits")
        child.kill(signal.SIGCONT)
        for thread in threads:
            thread.join()
        assert child.wait() == 0
    assert answers == [(None, 1)] * 5
    assert store.run(counts.totals([1, 2])) == {1: 1, 2: 6}


def test_waiting_before_the_first_connection_is_counted_too(make_store: MakeStore, url: str) -> None:
    make_store(*STRUCTURES).close()
    store = make_store(timeout=0.05)
    fd = os.open(f"{url.removeprefix('sqlite:///')}-lock", os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    with pytest.raises(roost.Busy):
        store.run(counts.add(1))
    assert store.stats().waits == 1
    os.close(fd)
    store.run(counts.add(1))
    assert store.run(counts.total(1)) == 1


def test_a_turn_that_comes_after_its_waiter_has_given_up_is_given_on(tmp_path: Path) -> None:
    path = str(tmp_path / "test.db-lock")
    holder, waiting = FileLock(path), FileLock(path)
    holder.acquire(Wait(0.0))
    with pytest.raises(roost.Busy):
        waiting.acquire(Wait(0.0))
    with pytest.raises(roost.Busy):
        waiting.acquire(Wait(0.0))  # it stands in the kernel's queue
    assert waiting._place is not None
    holder.release()
    until(lambda: waiting._place is None, "the turn of who has given up")
    with waiting._mutex:
        assert not is_flocked(path)
    for lock in (holder, waiting):
        lock.acquire(Wait(0.0))
        lock.close()


def test_processes_that_give_up_leave_their_place_to_others(url: str) -> None:
    with roost.Store(url) as store:
        store.create(*STRUCTURES)

    def stand_still(line: Line) -> None:
        def trace(sql: str, row: object) -> None:
            if sql == "COMMIT":
                os.kill(os.getpid(), signal.SIGSTOP)

        with roost.Store(url, trace=trace) as own:
            own.run(counts.add(1))

    def work(line: Line, number: int) -> None:
        store = roost.Store(url, timeout=0.1)
        busy = 0
        while True:
            try:
                store.run(counts.add(2))
                break
            except roost.Busy:
                busy += 1
                if busy == 2:
                    line.say("busy")
        store.run(counts.add(2))
        store.close()

    with Child(stand_still) as child:
        child.stopped()
        with children(4, work) as found:
            for each in found:
                assert each.hear() == "busy"
            child.kill(signal.SIGCONT)
            assert [each.wait() for each in found] == [0] * 4
        assert child.wait() == 0
    with roost.Store(url) as store:
        assert store.run(counts.totals([1, 2])) == {1: 1, 2: 8}
        assert store.check() == []


def test_where_no_thread_can_wait_for_the_lock_a_call_is_busy_and_leaves_no_file_open(
    make_store: MakeStore, url: str
) -> None:
    make_store(*STRUCTURES).close()

    def work(line: Line) -> None:
        store = roost.Store(url)
        store.run(counts.add(1))
        store.run(counts.total(1))  # its connections are open, as later the file is not to be reached
        other = os.open(f"{url.removeprefix('sqlite:///')}-lock", os.O_RDWR)
        fcntl.flock(other, fcntl.LOCK_EX)
        if os.getuid() == 0:
            os.setresuid(65_534, 65_534, 65_534)  # root has no such limit
        resource.setrlimit(resource.RLIMIT_NPROC, (0, resource.getrlimit(resource.RLIMIT_NPROC)[1]))
        descriptors = os.listdir("/proc/self/fd")
        for _ in range(3):
            with pytest.raises(roost.Busy, match="can't start new thread"):
                store.run(counts.add(1))
        assert os.listdir("/proc/self/fd") == descriptors
        fcntl.flock(other, fcntl.LOCK_UN)
        store.run(counts.add(1))
        assert store.run(counts.total(1)) == 2

    with Child(work) as child:
        assert child.wait() == 0
