"""The queues of an asyncio event loop: atoms wait in them for the next batch, which runs in a thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial

from roost.batching.atoms import Atom, copied, fitting
from roost.batching.queue import LATE
from roost.databases.engine import GRACE
from roost.errors import Busy, Closed
from roost.store.core import Core
from roost.store.links import start
from roost.store.memcached import CacheCore


class LoopQueues:
    """The queues of one event loop."""

    def __init__(self, core: Core | CacheCore) -> None:
        self._core = core
        self.reads = LoopQueue(self, core, [partial(core.submit, reader=n) for n in range(core.reading)])
        self.writes = LoopQueue(self, core, [core.submit])
        self._slow: dict[int, LoopQueue] = {}

    def slow_path(self, number: int) -> LoopQueue:
        """Return a slow-path queue: its atoms wait for locks that another transaction holds for long."""
        if number not in self._slow:
            assert isinstance(self._core, Core)  # memcached has no locks
            self._slow[number] = LoopQueue(self, self._core, [self._core.submit_slow], slow=True)
        return self._slow[number]

    async def drained(self) -> None:
        for queue in (self.reads, self.writes):
            await queue.drained()
        for queue in self._slow.values():  # last, since the other queues move atoms into these
            await queue.drained()


# The least number of reads that form a second batch, on the other connection, while one is running: Python makes the
# results of one batch while the server works on the other. (A second batch of writes would gain nothing.)
MANY = 128

Submit = Callable[[Sequence[Atom]], None]


class LoopQueue:
    """The atoms of one loop that wait for the next batch, which runs in a thread.

    submits: functions that run a batch; the number of batches at once is theirs.
    slow: it is a slow-path queue; the deadlines of its atoms are never extended.

    There is no task that could be cancelled: a finished batch calls back into the loop, which sends the next one. The
    loop itself is referred to only while a batch runs.
    """

    def __init__(
        self, queues: LoopQueues, core: Core | CacheCore, submits: Sequence[Submit], slow: bool = False
    ) -> None:
        self._queues = queues
        self._core = core
        self._slow = slow
        self._free = list(submits)
        self._most = len(submits)
        self._waiting: list[Atom] = []
        self._called = False  # `_send` is scheduled
        self._watched = False  # `_watch` is scheduled
        self._answered = 0.0  # the time of the last result, by the monotonic clock
        self._idle: list[asyncio.Future[None]] = []

    def join(self, atom: Atom, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        """Queue an atom; return the future that is done when the atom has its answer."""
        if self._core.closed:
            raise Closed("the store was closed")
        future = atom.future = loop.create_future()
        atom.begun = time.monotonic()
        atom.deadline = atom.begun + self._core.timeout
        self._add(atom, loop)
        return future

    def _add(self, atom: Atom, loop: asyncio.AbstractEventLoop) -> None:
        self._waiting.append(atom)
        if not self._called and self._may_send():
            self._called = True
            loop.call_soon(self._send, loop)  # not at once, so that later operations of this loop iteration join

    def _may_send(self) -> bool:
        free = len(self._free)
        return free == self._most or (free > 0 and len(self._waiting) >= MANY)

    async def drained(self) -> None:
        if self._called or len(self._free) < self._most:
            idle = asyncio.get_running_loop().create_future()
            self._idle.append(idle)
            await idle

    def _send(self, loop: asyncio.AbstractEventLoop) -> None:
        self._called = False
        self._waiting = waiting = [atom for atom in self._waiting if not self._given_up(atom)]
        while waiting and self._may_send():
            part = len(waiting)
            if len(self._free) > 1 and part >= 2 * MANY:
                part = (part + 1) // 2
            part = fitting(zip(waiting[:part]))
            batch, self._waiting = waiting[:part], waiting[part:]
            waiting = self._waiting
            self._send_one(loop, batch)
        if len(self._free) == self._most:
            for idle in self._idle:
                if not idle.done():
                    idle.set_result(None)
            self._idle.clear()

    def _deadline(self, atom: Atom) -> float:
        # An atom that waits behind others gets the full `timeout` again with each batch that is answered: `timeout`
        # limits the wait for the database, not for operations that the application itself has queued.
        return atom.deadline if self._slow else max(atom.deadline, self._answered + self._core.timeout)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        # Refuse atoms that have waited too long behind a batch without an answer.
        self._watched = False
        late = time.monotonic() - GRACE
        while self._waiting and self._deadline(self._waiting[0]) <= late:
            atom = self._waiting.pop(0)
            self._core.give_up(atom)
            if not atom.future.done():
                atom.future.set_exception(Busy(LATE))
        if len(self._free) < self._most:
            self._watch_later(loop, self._deadline(self._waiting[0]) - late if self._waiting else None)

    def _watch_later(self, loop: asyncio.AbstractEventLoop, seconds: float | None = None) -> None:
        if not self._watched:
            self._watched = True
            loop.call_later(min(self._core.timeout + GRACE if seconds is None else seconds, 3600), self._watch, loop)

    def _send_one(self, loop: asyncio.AbstractEventLoop, batch: list[Atom]) -> None:
        submit = self._free.pop()
        batch[0].deadline = self._deadline(batch[0])  # the deadline of the whole batch
        self._watch_later(loop)

        def finished(error: BaseException | None) -> None:
            try:
                loop.call_soon_threadsafe(self._answer, loop, submit, batch, error)
            except RuntimeError:  # the loop is closed, so nobody waits for these atoms
                self._free.append(submit)
                for atom in batch:
                    atom.future = None
                    self._core.give_up(atom)

        def work() -> None:
            failed: BaseException | None = None
            try:
                submit(batch)
            except BaseException as error:
                failed = error
            finished(failed)
            del failed  # which refers to this frame

        try:
            start(self._core.threads, work)
        except (Busy, Closed) as error:  # another loop has closed the store, or the program is exiting
            finished(error)

    def _answer(
        self, loop: asyncio.AbstractEventLoop, submit: Submit, batch: list[Atom], error: BaseException | None
    ) -> None:
        self._free.append(submit)
        if any(atom.error is None for atom in batch) and error is None:
            self._answered = time.monotonic()
        for atom in batch:
            if self._given_up(atom):
                atom.future = None
                continue
            future, atom.future = atom.future, None  # a connection may keep its last batch, but must not keep the loop
            if error is not None and not atom.done:
                self._core.give_up(atom)
                future.set_exception(copied(error))
            elif atom.slow_path is None:
                future.set_result(None)
            else:
                atom.future = future
                self._queues.slow_path(atom.slow_path)._add(atom, loop)
        self._send(loop)

    def _given_up(self, atom: Atom) -> bool:
        # Whether its caller was cancelled; then it no longer waits for the lock that sent it to the slow path.
        if not atom.future.done():
            return False
        self._core.give_up(atom)
        return True
