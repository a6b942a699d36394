"""The writer queue of leveldb, for threads: the first waiter leads, and commits for all.

A thread that finds no leader becomes the leader: it runs all waiting atoms as a batch, answers them, and passes the
lead to the first waiter that has arrived meanwhile. There is no timer, no extra thread, and no delay on an idle queue.
A batch has the atoms that arrived during the last commit (`DBImpl::Write` and `BuildBatchGroup` in leveldb's
db/db_impl.cc).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import takewhile

from roost.batching.atoms import Atom, fitting, refuse_all
from roost.databases.engine import GRACE
from roost.databases.waits import Mutex
from roost.errors import Busy, Closed, Error

LATE = "the calls before this one are still waiting for the database; this call was not started"
INSIDE = "this thread is already inside another call of the same store"  # a signal handler's or a finalizer's call

LOOKS = 0.05  # seconds between two looks of a waiter whose time is over

_NOBODY = threading.Lock()  # the `wake` of waiters that never wait

Take = Callable[[], list[Atom]]
Wake = Callable[[], None]
Work = Callable[[float, Take, Wake], None]


class Waiter:
    """Atoms that one thread waits for."""

    __slots__ = ("atoms", "deadline", "errand", "following", "gone", "leads", "taken", "wake")

    def __init__(self, atoms: Sequence[Atom], deadline: float, errand: Callable[[float], None] | None = None) -> None:
        self.atoms = atoms
        self.errand = errand  # the work to do instead of a batch when it leads
        self.deadline = deadline  # the end of its wait for locks of other sessions, by the monotonic clock
        self.leads = False
        self.taken: list[Waiter] = []  # the waiters of its batch when it leads
        self.following: Waiter | None = None  # the waiter that it wakes after it is woken
        self.gone = False  # its thread was interrupted
        self.wake: threading.Lock = _NOBODY

    @property
    def is_answered(self) -> bool:
        return all([atom.done or atom.slow_path is not None for atom in self.atoms])

    def pass_on(self) -> None:
        """Wake the following waiter once; if its thread was interrupted, wake the one behind it too, and so on.

        It may be interrupted anywhere and called again: waking a waiter twice has no effect.
        """
        while self.following is not None:
            following = self.following
            try:
                following.wake.release()
            except RuntimeError:  # it was woken already
                pass
            self.following = following.following if following.gone else None


class Queue:
    """Atoms in order of arrival. One of the threads that wait for them runs them, or sends them to the slow path.

    work: called by the leader with its deadline, a function that takes the waiting atoms, and one that wakes the
        threads answered by the previous leader. It answers all atoms that it takes. It wakes the threads just before it
        waits for anything, at the latest when it returns: they can run while the leader waits for the disk; while it
        works, they would compete with it for the interpreter (measured: 12 % more operations).
    led: whether a leader exists. If so, a caller need not try a single operation, but can join the next batch.
    """

    def __init__(self, work: Work) -> None:
        self._work = work
        self._mutex = Mutex()  # guards the attributes below
        self._waiting: deque[Waiter] = deque()
        self.led = False
        self._closed = False
        self._inside: set[int] = set()  # the ids of the threads that submit: none may wait for itself
        self._idle = threading.Condition(self._mutex)

    def submit(self, atoms: Sequence[Atom], deadline: float, errand: Callable[[float], None] | None = None) -> None:
        """Wait until every atom has its answer. Atoms submitted together are answered by the same batch.

        errand: called instead of a batch, with the deadline, when the waiter leads and no batch runs.
        """
        thread = threading.get_ident()
        if thread in self._inside:
            raise Busy(INSIDE)
        waiter = Waiter(atoms, deadline, errand)
        try:
            self._inside.add(thread)
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
        finally:
            self._inside.discard(thread)

    def close(self) -> None:
        """Refuse later submits, and wait until the waiting atoms are answered, unless they wait for this thread."""
        self._closed = True
        if threading.get_ident() in self._inside:
            return
        with self._mutex:
            while self.led:
                self._idle.wait()

    def _wait(self, waiter: Waiter) -> None:
        left = waiter.deadline + GRACE - time.monotonic()
        if not waiter.wake.acquire(timeout=max(0.0, min(left, threading.TIMEOUT_MAX))):
            if self._withdraw(waiter):
                raise Busy(LATE)
            # Its batch is running, or about to, and has time limits of its own. But the next leader, who wakes whom it
            # has answered, may wait for the server before.
            while not waiter.wake.acquire(timeout=LOOKS):
                if waiter.is_answered and not waiter.leads:
                    waiter.gone = True
                    break
        if not waiter.leads:
            waiter.pass_on()

    def _withdraw(self, waiter: Waiter) -> bool:
        # Remove a waiter that no batch has taken, in one step: after `Busy` its atoms must not run.
        with self._mutex:
            if waiter.leads or waiter not in self._waiting:
                return False
            self._waiting.remove(waiter)
            return True

    def _leave(self, waiter: Waiter) -> None:
        # The thread was interrupted or refused, at any point: no other thread may be left waiting for it.
        waiter.gone = True
        with self._mutex:
            if waiter in self._waiting:
                self._waiting.remove(waiter)  # from now on it cannot be named to lead
        if waiter.leads:
            self._finish(waiter)
        waiter.pass_on()

    def _lead(self, leader: Waiter) -> None:
        def take() -> list[Atom]:
            taken, waiting = leader.taken, self._waiting
            with self._mutex:
                batch = takewhile(lambda waiter: waiter.errand is None, waiting)
                for _ in range(fitting(waiter.atoms for waiter in batch)):
                    taken.append(waiting[0])  # in both lists for a moment, so that an interrupt loses no waiter
                    waiting.popleft()
            return [atom for waiter in taken for atom in waiter.atoms if not atom.done]

        try:
            if leader.errand is None:
                self._work(leader.deadline, take, leader.pass_on)
            else:
                leader.pass_on()
                leader.errand(leader.deadline)
        except Error as error:
            if leader.errand is not None:
                raise
            # If nothing was taken, BEGIN failed: the error is the answer of the leader only; the others try again.
            refuse_all([atom for waiter in leader.taken or [leader] for atom in waiter.atoms], error)
        finally:
            self._finish(leader)

    def _finish(self, leader: Waiter) -> None:
        # Called in every case, after an interrupt too: unanswered atoms go back to the queue, and another waiter leads.
        leader.pass_on()
        unanswered = []
        first = last = None
        for waiter in leader.taken:
            if waiter is leader:
                continue
            if not waiter.is_answered:
                unanswered.append(waiter)
            elif last is None:
                first = last = waiter
            else:
                last.following = last = waiter
        with self._mutex:
            waiting = self._waiting
            if unanswered:
                waiting.extendleft(each for each in reversed(unanswered) if each not in waiting and not each.gone)
            if waiting and waiting[0] is leader:
                waiting.popleft()
            if waiting:
                successor = waiting[0]
                successor.leads = True
                successor.following = first
                leader.following = successor
            else:
                self.led = False
                if self._closed:
                    self._idle.notify_all()
                leader.following = first
            leader.leads = False
        leader.pass_on()
        leader.taken = []  # it has the leader, too: with all values it would wait for the garbage collector
