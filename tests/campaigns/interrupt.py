"""The main thread is interrupted while it leads or waits, thousands of times, among other threads that work.

Nobody hangs, nothing that was answered is lost, nothing is there twice; the interrupted thread's own operation may or
may not have happened. Signals reach only a main thread, so a forked process is the victim: its interval timer goes off
after a random time, and the handler raises KeyboardInterrupt. A hang ends the process, with the stacks of its threads.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import threading
import time
import traceback
from dataclasses import astuple, dataclass
from types import FrameType

import roost
from tests import servers
from tests.campaigns.foreign import is_flocked, is_locked
from tests.campaigns.played import asked, database
from tests.campaigns.processes import Child, Gone, Line

LONGEST = 0.004  # seconds to the interrupt: as long as a few commits
VICTIM, WORKERS = 10**9, 10**8

pageviews = roost.Counter("pageviews", key=int)
likes = roost.Set("likes", key=int, member=int)


@dataclass
class Counts:
    """What a campaign has seen."""

    interrupts: int = 0
    happened: int = 0  # of the interrupted operations
    answers: int = 0

    def __str__(self) -> str:
        happened = f"{self.happened} of the operations had happened"
        return f"{self.interrupts} interrupts, {happened}, {self.answers} answers all there"


def interrupted(url: str, interrupts: int, seed: object, threads: int = 3, patience: float = 60.0) -> Counts:
    """Interrupt a process so often; return what was seen, or raise AssertionError."""
    texts: list[str] = []
    with Child(lambda line: _victim(line, url, interrupts, seed, threads), 3600) as child:
        try:
            while True:
                texts.append(child.hear(patience))
        except AssertionError as silence:
            raise AssertionError(f"{silence}; the last interrupts: {texts[-10:]}") from None
        except Gone:
            code = child.wait()
            assert code == 0, f"it ended with {code}; the last interrupts: {texts[-3:]}"
    counts = Counts(*map(int, texts[-1].split()))
    with roost.Store(url) as store:
        assert store.check() == []
    return counts


def _victim(line: Line, url: str, interrupts: int, seed: object, threads: int) -> None:
    counts = Counts()
    chance = random.Random(f"{seed}")
    store = roost.Store(url)
    store.create(pageviews, likes)
    stop = threading.Event()
    counted = [0] * threads

    def work(number: int) -> None:
        while not stop.is_set():
            n = counted[number]
            assert store.run_all(pageviews.add(WORKERS + number), likes.add(WORKERS + number, n)) == (None, 1)
            if n % 3 == 0:
                assert store.run(pageviews.total(WORKERS + number)) == n + 1
            counted[number] += 1

    errors: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.append(error)
            raise

    workers = [threading.Thread(target=guarded, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()

    rung = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal rung
        rung = True
        raise KeyboardInterrupt

    def arm() -> None:
        nonlocal rung
        rung = False
        signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-6, LONGEST))

    def arm_again() -> None:  # a function, since the jump of an `if` that ends a loop is outside of Python 3.14's `try`
        if rung:  # one that hits a finalizer is swallowed by Python itself
            arm()

    signal.signal(signal.SIGALRM, interrupt)
    sure: list[int] = []  # keys whose operation was answered
    unsure: list[int] = []
    key = 0
    while counts.interrupts < interrupts and not errors:
        key += 1
        answered = False
        if counts.interrupts % 10 == 0:
            store.run(pageviews.add(VICTIM, 0))  # with all the time it needs: a queue that stands still shows here
        try:
            arm()
            while True:
                # Now and then by a store that has to connect first, and is dropped by the interrupt.
                using = roost.Store(url, timeout=60) if chance.random() < 0.1 else store
                using.run_all(pageviews.add(key), likes.add(VICTIM, key))
                answered = True
                using.run(pageviews.total(key))
                if chance.random() < 0.2:
                    store.run(likes.size(VICTIM))
                key, answered = _next(sure, key)
                arm_again()
        except (KeyboardInterrupt, RuntimeError) as error:
            if isinstance(error, RuntimeError) and str(error) != "release unlocked lock":
                raise  # that one is what threading's Condition makes of an interrupt while a thread is started
            counts.interrupts += 1
            (sure if answered else unsure).append(key)
            line.say(f"{counts.interrupts} {_where(error)}")
    signal.signal(signal.SIGALRM, signal.SIG_IGN)

    stop.set()
    for worker in workers:
        worker.join()
    assert not errors, errors
    del using
    gc.collect()
    if url.startswith("sqlite"):
        path = url.removeprefix("sqlite:///")
        assert not is_flocked(f"{path}-lock"), "an idle store holds the lock file"
        assert not is_locked(path), "an idle store holds the write lock"

    members = store.run(likes.members(VICTIM))
    totals = store.run(pageviews.totals([*sure, *unsure]))
    wrong = [key for key in sure if totals[key] != 1 or key not in members]
    assert not wrong, f"answered, and {[(key, totals[key], key in members) for key in wrong]} is there"
    wrong = [key for key in unsure if (totals[key], key in members) not in ((0, False), (1, True))]
    assert not wrong, f"interrupted, and {[(key, totals[key], key in members) for key in wrong]} is there"
    assert len(members) == store.run(likes.size(VICTIM)) == sum(totals.values())
    for number, count in enumerate(counted):
        assert store.run_all(pageviews.total(WORKERS + number), likes.size(WORKERS + number)) == (count, count)
    counts.happened = sum(totals[key] for key in unsure)
    counts.answers = len(sure) + sum(counted)
    store.close()
    line.say(f"{counts.interrupts} {counts.happened} {counts.answers}")


def _next(sure: list[int], key: int) -> tuple[int, bool]:
    sure.append(key)
    return key + 1, False


def _where(interrupt: BaseException) -> str:
    frame, number = list(traceback.walk_tb(interrupt.__traceback__))[-2]  # the last is the handler's
    return f"{os.path.basename(frame.f_code.co_filename)}:{number} in {frame.f_code.co_name}"


def main() -> None:
    """Interrupt several processes, one after another, and say what was found."""
    options = asked(rounds=20, interrupts=1000, threads=3, server=servers.SERVERS)
    began = time.monotonic()
    sums = Counts()
    hangs = 0
    for round_ in range(options.rounds):
        with database(options.server) as url:
            try:
                found = interrupted(url, options.interrupts, f"{options.seed}/{round_}", options.threads, 30)
            except AssertionError as error:
                hangs += 1
                print(f"round {round_}: {error}")
                continue
        sums = Counts(*map(sum, zip(astuple(sums), astuple(found), strict=True)))
    print(f"{sums}; {hangs} of {options.rounds} processes failed; {time.monotonic() - began:.0f} s")
    raise SystemExit(hangs > 0)


if __name__ == "__main__":
    main()
