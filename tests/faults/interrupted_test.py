"""KeyboardInterrupt while the main thread leads or waits: the others go on, and nothing is lost or doubled.

Each test is a process of its own, whose main thread is interrupted: an interrupt that comes late must not hit pytest.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable

import pytest

import roost
from tests.campaigns.foreign import held, is_flocked, is_locked
from tests.campaigns.interrupt import interrupted
from tests.campaigns.ledger import STRUCTURES, Event, counts, events, tags
from tests.campaigns.processes import Child, Halt, Line, started, until
from tests.lengths import length

INTERRUPTS = length(120, 1000)
ON_A_SERVER = length(60, 200)


@pytest.mark.parametrize("threads", [0, 1, 4])
def test_thousands_of_interrupts_at_random_moments(url: str, threads: int) -> None:
    found = interrupted(url, interrupts=INTERRUPTS, seed=threads, threads=threads)
    assert found.interrupts >= INTERRUPTS
    assert found.answers > 0


def test_hundreds_of_them_on_a_server(server_url: str) -> None:
    found = interrupted(server_url, interrupts=ON_A_SERVER, seed=1, threads=3, patience=30)
    assert found.interrupts >= ON_A_SERVER
    assert found.answers > 0


BEFORE = ["BEGIN IMMEDIATE", "INSERT INTO roost_counts_add", "INSERT INTO roost_tags_add", "COMMIT"]


@pytest.mark.parametrize("before", BEFORE)
def test_a_leader_is_interrupted_before_a_statement_and_its_followers_are_answered(url: str, before: str) -> None:
    def work(line: Line) -> None:
        main, armed = threading.main_thread(), False
        answers: list[tuple[None, int]] = []

        def trace(sql: str, row: object) -> None:
            nonlocal armed
            if armed and threading.current_thread() is main and sql.startswith(before):
                armed = False
                os.kill(os.getpid(), signal.SIGINT)
                while True:  # the interrupt comes at the next turn
                    pass

        store = roost.Store(url, trace=trace)
        store.create(*STRUCTURES)
        sure = 0

        def lead() -> None:
            nonlocal sure
            for other in others:
                other.start()
            while True:
                store.run_all(counts.add(1), tags.add(1, 1000 * round_ + sure))
                sure += 1

        for round_ in range(1, 11):
            others = [
                threading.Thread(target=lambda: answers.append(store.run_all(counts.add(2), events.push(Event(2, 1)))))
                for _ in range(4)
            ]
            armed = True
            with pytest.raises(KeyboardInterrupt):
                lead()
            for other in others:
                other.join(30)
                assert not other.is_alive()
            assert store.run(counts.total(2)) == len(answers) == 4 * round_
        assert sorted(answers) == [(None, n) for n in range(1, 41)]
        total, size = store.run_all(counts.total(1), tags.size(1))
        assert total == size
        assert sure <= total <= sure + 10
        path = url.removeprefix("sqlite:///")
        assert not is_flocked(f"{path}-lock")
        assert not is_locked(path)
        assert store.check() == []
        store.close()

    with Child(work) as child:
        assert child.wait() == 0


def interrupted_leader(store: roost.Store) -> list[threading.Thread]:
    """Lead a batch that has to wait, and be interrupted while others follow; return those."""
    others: list[threading.Thread] = []

    def interrupt() -> None:
        until(lambda: store.stats().waits, "a leader that waits")
        others.extend(started(*[threading.Thread(target=store.run, args=(counts.add(2),)) for _ in range(3)]))
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    helper = threading.Thread(target=interrupt)
    helper.start()
    with pytest.raises(KeyboardInterrupt):
        store.run(counts.add(1))
    helper.join()
    return others


def test_a_leader_that_waits_for_somebody_elses_lock_is_interrupted(url: str) -> None:
    with roost.Store(url) as store:
        store.create(*STRUCTURES)
    path = url.removeprefix("sqlite:///")

    def work(line: Line) -> None:
        with held(path) as holder:
            store = roost.Store(url, timeout=600)
            others = interrupted_leader(store)
            assert is_locked(path)
            holder.release()
        for other in others:
            other.join()
        assert store.run(counts.totals([1, 2])) == {1: 0, 2: 3}
        store.close()

    with Child(work) as child:
        assert child.wait() == 0


def test_a_leader_that_waits_for_another_process_is_interrupted(url: str) -> None:
    with roost.Store(url) as store:
        store.create(*STRUCTURES)
    path = url.removeprefix("sqlite:///")

    def stand_still(line: Line) -> None:
        def trace(sql: str, row: object) -> None:
            if sql == "COMMIT":
                line.say("inside")
                line.hear()

        with roost.Store(url, trace=trace) as own:
            own.run(counts.add(3))

    def work(line: Line) -> None:
        store = roost.Store(url, timeout=600)
        store.run(counts.add(2))
        line.say("ready")
        line.hear()
        others = interrupted_leader(store)
        line.say("interrupted")
        for other in others:
            other.join()
        assert store.run(counts.totals([1, 2, 3])) == {1: 0, 2: 4, 3: 1}
        assert not is_flocked(f"{path}-lock")
        store.close()

    with Child(work) as child:
        assert child.hear() == "ready"
        with Child(stand_still) as holder:
            assert holder.hear() == "inside"
            child.say("go")
            assert child.hear() == "interrupted"
            holder.say("go")
            assert holder.wait() == 0
        assert child.wait() == 0


def call_interrupted(seconds: float, work: Callable[[], object]) -> None:
    """Call, and interrupt. Python misses a signal that arrives just before it waits for a lock, so more follow."""
    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds, 0.1)
    work()


def interrupt(number: int, frame: object) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0)
    raise KeyboardInterrupt


def test_a_follower_is_interrupted_and_nobody_else_notices(url: str) -> None:
    def work(line: Line) -> None:
        halt = Halt("^COMMIT", thread="leader")
        store = roost.Store(url, trace=halt.trace)
        store.create(*STRUCTURES)
        for round_ in range(1, 21):
            halt.again()
            leader = threading.Thread(target=store.run, args=(counts.add(2),), name="leader")
            leader.start()
            halt.reached()
            others = started(*[threading.Thread(target=store.run, args=(counts.add(3),)) for _ in range(3)])
            with pytest.raises(KeyboardInterrupt):
                call_interrupted(0.005, lambda: store.run(counts.add(1)))
            halt.release()
            leader.join()
            for other in others:
                other.join()
            assert store.run(counts.totals([2, 3])) == {2: round_, 3: 3 * round_}
        assert store.run(counts.total(1)) <= 20
        store.close()

    with Child(work) as child:
        assert child.wait() == 0


def test_a_follower_that_has_left_does_not_lead_when_its_batch_fails(url: str) -> None:
    # It was put back among those that wait, and named to lead: nobody led any more.
    def work(line: Line) -> None:
        left, main = threading.Event(), threading.main_thread().ident or 0

        def trace(sql: str, row: object) -> None:
            if threading.current_thread().name != "leader" or left.is_set():
                return
            if sql.startswith("BEGIN"):
                until(lambda: len(store._core.writers._waiting) == 2, "a call that waits")
            elif sql == "COMMIT":
                while not left.wait(0.1):
                    signal.pthread_kill(main, signal.SIGUSR1)
                sys.exit()

        def leave(number: int, frame: object) -> None:
            signal.signal(number, signal.SIG_IGN)
            raise KeyboardInterrupt

        signal.signal(signal.SIGUSR1, leave)
        store = roost.Store(url, trace=trace)
        store.create(*STRUCTURES)
        leader = threading.Thread(target=store.run_all, args=(counts.add(2), counts.add(3)), name="leader")
        leader.start()
        until(lambda: store._core.writers.led, "a leader")
        with pytest.raises(KeyboardInterrupt):
            store.run(counts.add(1))
        left.set()
        leader.join()
        assert store.run_all(counts.add(4), counts.totals([1, 2, 3, 4]))[1] == {1: 0, 2: 0, 3: 0, 4: 1}
        store.close()

    with Child(work) as child:
        assert child.wait() == 0


def test_close_is_interrupted_and_can_be_called_again(url: str) -> None:
    def work(line: Line) -> None:
        halt = Halt("^COMMIT", thread="leader")
        store = roost.Store(url, trace=halt.trace)
        store.create(*STRUCTURES)
        leader = threading.Thread(target=store.run, args=(counts.add(2),), name="leader")
        leader.start()
        halt.reached()
        with pytest.raises(KeyboardInterrupt):
            call_interrupted(0.01, store.close)
        halt.release()
        leader.join()
        store.close()
        with pytest.raises(roost.Closed):
            store.run(counts.add(1))

    with Child(work) as child:
        assert child.wait() == 0
    with roost.Store(url) as store:
        assert store.run(counts.total(2)) == 1


def test_a_handler_that_interrupts_a_waiting_call_is_told_and_both_end(url: str) -> None:
    # Its own call stood behind the one that it had interrupted, whose thread was to wake it.
    def work(line: Line) -> None:
        halt = Halt("^COMMIT", thread="leader")
        store = roost.Store(url, trace=halt.trace)
        store.create(*STRUCTURES)
        told: list[str] = []

        def handler(*_: object) -> None:
            try:
                store.run(counts.add(9))
            except roost.Busy as error:
                told.append(str(error))
            halt.release()

        def interrupts() -> None:
            until(lambda: store._core.writers._waiting, "a call that waits")
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

        signal.signal(signal.SIGUSR1, handler)
        halt.again()
        leader = threading.Thread(target=store.run, args=(counts.add(2),), name="leader")
        leader.start()
        halt.reached()
        others = started(threading.Thread(target=interrupts))
        store.run(counts.add(1))
        for thread in (leader, *others):
            thread.join()
        assert told == ["this thread is already inside another call of the same store"]
        assert store.run(counts.totals([1, 2, 9])) == {1: 1, 2: 1, 9: 0}
        store.close()

    with Child(work) as child:
        assert child.wait() == 0


@pytest.mark.parametrize("operations", [1, 2])
def test_a_handler_that_closes_the_store_in_a_call_does_not_wait_for_it(url: str, operations: int) -> None:
    # SIGTERM's, say: it waited for ever for the call that it had interrupted.
    def work(line: Line) -> None:
        armed = False

        def trace(sql: str, row: object) -> None:
            nonlocal armed
            if armed:
                armed = False
                signal.raise_signal(signal.SIGTERM)

        store = roost.Store(url, trace=trace)
        store.create(*STRUCTURES)
        signal.signal(signal.SIGTERM, lambda *_: store.close())
        for _ in range(3):
            store.run(counts.add(1))
        armed = True
        store.run_all(*[counts.add(2)] * operations)
        assert not armed
        with pytest.raises(roost.Closed):
            store.run(counts.add(2))
        assert all(link.connection is None for link in store._core._links)
        with roost.Store(url) as other:
            assert other.run(counts.total(2)) == operations

    with Child(work) as child:
        assert child.wait() == 0
