"""The writer queue of leveldb, for threads: the first waiter leads, and commits for all.

A thread that finds no leader becomes the leader: it runs what waits as a batch, answers it, and hands the lead to the
first waiter that has arrived meanwhile. There is no timer, no extra thread, and no delay on an idle queue. The batch is
whatever arrived while the last commit ran (`DBImpl::Write` and `BuildBatchGroup` in leveldb's db/db_impl.cc).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from roost.batching.atoms import Atom, Load, refuse_all
from roost.databases.engine import GRACE
from roost.errors import Busy, Closed, Error

LATE = "the calls before this one are still waiting for the database; this call was not started"

_NOBODY = threading.Lock()  # of those who need not be woken

Take = Callable[[], list[Atom]]
Work = Callable[[float, Take, Callable[[], None]], None]


class Waiter:
    """Atoms that one thread waits for."""

    __slots__ = ("atoms", "deadline", "errand", "following", "gone", "leads", "taken", "wake")

    def __init__(self, atoms: Sequence[Atom], deadline: float, errand: Callable[[float], None] | None = None) -> None:
        self.atoms = atoms
        self.errand = errand  # what it does instead when it leads
        self.deadline = deadline  # by the monotonic clock: until when it waits for somebody else's lock
        self.leads = False
        self.taken: list[Waiter] = []  # whom it works for when it leads
        self.following: Waiter | None = None  # whom it wakes when it is woken
        self.gone = False  # its thread was interrupted
        self.wake: threading.Lock = _NOBODY

    def pass_on(self) -> None:
        """Wake the next one, and those behind it while nobody is there to do so; once.

        May be interrupted anywhere and called again: one who is woken twice does not notice.
        """
        while self.following is not None:
            following = self.following
            try:
                following.wake.release()
            except RuntimeError:  # it was woken already
                pass
            self.following = following.following if following.gone else None


class Queue:
    """Atoms in order of arrival, worked off by one of the threads that wait for them, or sent to the slow path.

    work: called by the leader with its deadline, a function that takes the waiting atoms, and one that wakes the
        threads answered by the previous leader. It answers all that it takes. It wakes them before it waits for
        anything, at the latest when it returns: they can run while the leader waits for the disk; while it works, they
        would compete with it for the interpreter (measured: 12 % more operations).
    led: somebody leads. Who sees that need not try to work alone, but comes along with the others.
    patience: seconds after which a waiter asks `worry`, once, whether the lock is held by its own thread.
    """

    def __init__(self, work: Work, patience: float, worry: Callable[[], Error | None]) -> None:
        self._work = work
        self._patience = patience
        self._worry = worry
        self._mutex = threading.Lock()  # guards what follows
        self._waiting: deque[Waiter] = deque()
        self.led = False
        self._closed = False
        self._idle = threading.Condition(self._mutex)

    def submit(self, atoms: Sequence[Atom], deadline: float, errand: Callable[[float], None] | None = None) -> None:
        """Return when every atom has its answer. Atoms submitted together are answered by the same batch.

        errand: called instead, with the deadline, when it is its turn and no batch runs.
        """
        waiter = Waiter(atoms, deadline, errand)
        try:
            with self._mutex:
                if self._closed:
                    raise Closed("the store was closed")
                self._waiting.append(waiter)
                if self.led:
                    waiter.wake = threading.Lock()
                    waiter.wake.acquire()
                else:
                    self.led = waiter.leads = True
            if not waiter.leads:
                self._wait(waiter)
            if waiter.leads:
                self._lead(waiter)
        except BaseException:
            self._leave(waiter)
            raise

    def close(self) -> None:
        """Refuse what comes from now on, and return when what waits has been answered."""
        with self._mutex:
            self._closed = True
            while self.led:
                self._idle.wait()

    def _wait(self, waiter: Waiter) -> None:
        if not waiter.wake.acquire(timeout=self._patience):
            error = self._worry()
            if error is not None and self._withdraw(waiter):
                raise error
            left = waiter.deadline + GRACE - time.monotonic()
            if not waiter.wake.acquire(timeout=max(0.0, min(left, threading.TIMEOUT_MAX))):
                if self._withdraw(waiter):
                    raise Busy(LATE)
                waiter.wake.acquire()  # its batch is running, or about to, and has time limits of its own
        if not waiter.leads:
            waiter.pass_on()

    def _withdraw(self, waiter: Waiter) -> bool:
        # Removes a waiter that was not begun, in one step: after `Busy` it must not be run.
        with self._mutex:
            if waiter.leads or waiter not in self._waiting:
                return False
            self._waiting.remove(waiter)
            return True

    def _leave(self, waiter: Waiter) -> None:
        # The thread was interrupted or refused, at whatever point: nobody may be left waiting for it.
        waiter.gone = True
        with self._mutex:
            if waiter in self._waiting:
                self._waiting.remove(waiter)  # from now on it cannot be named to lead
        if waiter.leads:
            self._finish(waiter)
        waiter.pass_on()

    def _lead(self, leader: Waiter) -> None:
        def take() -> list[Atom]:
            with self._mutex:
                self._take(leader.taken)
            return [atom for waiter in leader.taken for atom in waiter.atoms if not atom.done]

        try:
            if leader.errand is None:
                self._work(leader.deadline, take, leader.pass_on)
            else:
                leader.pass_on()
                leader.errand(leader.deadline)
        except Error as error:
            if leader.errand is not None:
                raise
            # If nothing was taken, BEGIN failed: the error is the leader's answer; the others try for themselves.
            refuse_all([atom for waiter in leader.taken or [leader] for atom in waiter.atoms], error)
        finally:
            self._finish(leader)

    def _finish(self, leader: Waiter) -> None:
        # Whatever happened, an interrupt included: unanswered atoms go back to the queue, and another waiter leads.
        leader.pass_on()
        unanswered = []
        first = last = None
        for waiter in leader.taken:
            if waiter is leader:
                continue
            if not all([atom.done or atom.slow_path is not None for atom in waiter.atoms]):
                unanswered.append(waiter)
            elif last is None:
                first = last = waiter
            else:
                last.following = last = waiter
        with self._mutex:
            waiting = self._waiting
            if unanswered:
                waiting.extendleft(waiter for waiter in reversed(unanswered) if waiter not in waiting)
            if waiting and waiting[0] is leader:
                waiting.popleft()
            successor = self._successor()
            if successor is None:
                leader.following = first
            else:
                successor.following = first
                leader.following = successor
            leader.leads = False
        leader.pass_on()

    def _successor(self) -> Waiter | None:
        # Under the mutex: names the next leader, who must then be woken.
        if self._waiting:
            self._waiting[0].leads = True
            return self._waiting[0]
        self.led = False
        if self._closed:
            self._idle.notify_all()
        return None

    def _take(self, taken: list[Waiter]) -> None:
        waiting = self._waiting
        load = Load()
        while waiting and waiting[0].errand is None:
            if taken and load.add(taken[-1].atoms):  # the first is taken whatever its size
                break
            taken.append(waiting[0])  # in both for a moment, so that an interrupt loses nobody
            waiting.popleft()
