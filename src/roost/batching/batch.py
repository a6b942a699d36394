"""A batch is one transaction: what it takes, what it refuses, what is run again. No I/O.

`Batch.run` and `joined` are generators like the plans, one level up: they yield statements and `Control` words,
and their driver throws the errors of an engine into them. So the policy is written once, for every engine, for threads
and for asyncio:

- The batch runs merged and optimistic. Nobody is answered before COMMIT.
- An operation that its plan refuses (duplicate, full, overflow) fails alone. When it is one of several in an atom, the
  batch is rolled back, run without that atom, and the atom is then run by itself: its outcome there is its answer.
- If a statement fails all the same, the batch is rolled back and run again in halves, until the culprit stands alone.
- An atom that needs a lock which somebody else holds for long leaves the batch for the slow path (`slow_path.py`).
- If the connection is lost before COMMIT, the batch is run again on a new one. If it is lost during COMMIT, the engine
  looks up the outcome; only if that cannot be known, the answer is `OutcomeUnknown`.
- An error that is known to concern the whole database (a full disk, a lost file, a read-only one) is every atom's
  answer. An unknown error is taken for that of a statement.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any

from roost.batching.atoms import Atom, answer
from roost.batching.known import Known, performed
from roost.batching.parts import Part, SlowPath
from roost.batching.stats import Stats
from roost.databases.engine import GRACE
from roost.dialects.dialect import LEAVES, Control, Dialect, Wanted
from roost.errors import (
    Busy,
    CannotOpen,
    Conflict,
    ConnectionLost,
    DiskFull,
    Error,
    OutcomeUnknown,
    ReadOnly,
)
from roost.structures.operation import Operation
from roost.structures.plan import Careful, Context, Plan

Work = Generator[Wanted, Any, None]

NOWAIT = {Control.BEGIN: Control.BEGIN_NOWAIT, Control.BEGIN_READ: Control.BEGIN_READ_NOWAIT}

MAX_CONFLICTS = 20  # deadlocks and the like after which a batch is given up
SHORT = 0.1  # seconds; an atom with less time left is refused, not sent back to the queue
MAX_LOST = 3  # connections lost in one batch, after which the batch is taken for the cause

OF_ALL = (CannotOpen, DiskFull, ReadOnly)  # errors of the whole database, whichever statement met them


class Batch:
    """The work of one turn: what is taken from the queue, run in a transaction, and answered.

    slow_path: where atoms are sent that would hold up the others; None: they wait here.
    until: by the monotonic clock, how long locks are waited for; an atom that has more time than that goes back to the
        queue.
    """

    def __init__(
        self,
        dialect: Dialect,
        context: Context,
        stats: Stats,
        slow_path: SlowPath | None = None,
        until: float = math.inf,
    ) -> None:
        self._dialect = dialect
        self._context = context
        self._stats = stats
        self._slow_path = slow_path
        self._until = until
        self._begin = Control.BEGIN
        self._conflicts = 0
        self._lost_times = 0
        self._left = 0  # servers that only read
        self._failures = self._most_failures = 0  # consecutive ones, each of which might concern the whole database
        self.committing: Part | None = None  # whose COMMIT is under way

    def run(self, begin: Control, take: Callable[[], Part]) -> Work:
        """Begin, then take what waits by then, run it and answer it, or send it to the slow path.

        An error of the first BEGIN is raised, with nothing taken. After that every request taken gets an answer, unless
        its part leaves it to a later batch.
        """
        yield begin
        taken = take()
        if not len(taken):
            yield Control.ROLLBACK
            return
        parts: list[Part] = [taken]
        self._begin = begin
        begun = True
        while parts:
            part = parts.pop()
            begins = not begun
            begun = False
            try:
                if begins:
                    self._stats.retries += 1
                    yield self._begin
                begins = False
                parts += yield from self._attempt(part)
            except ConnectionLost as error:
                yield from self._lost(part, parts, error)
            except Exception as error:
                if self.committing is not None and not isinstance(error, Error):
                    raise  # an interrupt of the application's own: the driver of the batch looks up the outcome
                yield from self._failed(part, parts, error, begins)

    def _failed(self, part: Part, parts: list[Part], error: Exception, begins: bool) -> Work:
        # Undoes what failed, and refuses it, sends it to the slow path, or puts it back into `parts`: to be run again.
        # begins: it was BEGIN that failed, and no statement of theirs.
        self.committing = None
        yield Control.ROLLBACK
        conflicts = isinstance(error, Conflict)
        if isinstance(error, Conflict):
            self._conflicts += 1
            if self._conflicts <= MAX_CONFLICTS:  # others were in the way: all of it again
                parts.append(part)
                yield Control.JITTER
                return
            error = Busy(f"{error}, {MAX_CONFLICTS} times and more")
        if isinstance(error, ReadOnly) and self._dialect.exchanges and self._left < LEAVES:
            self._left += 1
            try:
                yield Control.LEAVE
            except Error:
                pass  # nobody else was found
            else:
                parts.append(part)
                return
        if isinstance(error, Busy) and self._slow_path is not None:
            self._begin = NOWAIT.get(self._begin, self._begin)
            if len(part) == 1:
                self._stats.slow += 1
                part.send_to(self._slow_path, error)
            parts += part.halves()
        elif isinstance(error, Busy) and self._dialect.row_locks:
            now = time.monotonic()
            late = part.late(now)
            if late is not None:
                late.refuse(error)
                parts.clear()  # who still has time goes back to the queue
            elif conflicts or now > self._until - SHORT:
                parts.clear()
            elif len(part) == 1:  # before the deadline: a cancelled statement, or an error raised by a trigger
                part.refuse(error)
                parts.clear()
            else:
                parts += part.halves()
        elif (isinstance(error, OF_ALL) and self._is_of_all(part, error)) or (
            isinstance(error, Error) and (begins or isinstance(error, Busy))
        ):
            # Here a Busy is for the lock of the whole file.
            for each in [part, *parts]:
                each.refuse(error)
            parts.clear()
        else:  # a statement, a defect, or the caller's own trace function: it must not affect the others
            if len(part) == 1:
                part.refuse(error)
            parts += part.halves()

    def _is_of_all(self, part: Part, error: Exception) -> bool:
        # A trigger may raise any error number, or meet a full table of its own. So the batch is halved as for a
        # culprit; if the rest still fails after the culprit stood alone, the error concerns the whole database.
        if not self._dialect.row_locks and not isinstance(error, DiskFull):
            return True  # SQLite's triggers cannot; but a single request may be too large for the disk
        if not self._failures:
            self._most_failures = len(part).bit_length() + 2
        self._failures += 1
        return self._failures > self._most_failures

    def _lost(self, part: Part, parts: list[Part], error: ConnectionLost) -> Work:
        # Reconnects, and puts back into `parts` what was not committed. A part that breaks the connection repeatedly
        # (by a statement that is too large for the server, say) is run in halves, like any other culprit.
        if self.committing is not None and not self.committing.writes:
            self.committing = None  # nothing to commit
        committing = self.committing is not None  # stands until the outcome is known: an interrupt may come before
        try:
            committed = yield Control.OUTCOME if committing else Control.RECONNECT
        except Error as failed:
            self.committing = None
            if committing:
                self._stats.unknown += len(part)
                part.refuse(OutcomeUnknown(f"{error}; whether it was committed cannot be asked: {failed}"))
            # Atoms that arrived after the leader have time left and go back to the queue: the server may come back.
            until = time.monotonic() + SHORT if isinstance(failed, ConnectionLost) else math.inf
            _refuse_late([part, *parts], until, failed)
            parts.clear()
            return
        if committing and committed:
            self.committed()
            return
        self.committing = None
        if committing and committed is None:
            self._stats.unknown += len(part)
            part.refuse(OutcomeUnknown(f"{error}, during COMMIT, and the outcome could not be looked up"))
            return
        # For atoms whose time ran out while the server did not respond: another attempt would take as long.
        _refuse_late([part, *parts], time.monotonic() - GRACE / 2, error)
        parts[:] = [left for each in parts if (left := each.left()) is not None]
        left = part.left()
        if left is None:
            return
        self._lost_times += 1
        if self._lost_times < MAX_LOST:
            parts.append(left)
            return
        if len(left) == 1:
            left.refuse(error)
        parts += left.halves()

    def _attempt(self, part: Part) -> Generator[Wanted, Any, Sequence[Part]]:
        # Runs and answers a part, or rolls back and returns what is to be run instead, last first.
        context = self._context.without_waiting() if self._begin is Control.BEGIN_NOWAIT else self._context
        try:
            instead: Sequence[Part] | None = yield from part.run(context)
        except Careful:
            yield Control.ROLLBACK
            yield self._begin
            self._stats.retries += 1
            instead = yield from part.run(context.carefully())
        if instead is not None:
            yield Control.ROLLBACK
            return instead
        self.committing = part
        yield Control.COMMIT
        self.committed()
        return []

    def committed(self) -> None:
        """Answer those whose COMMIT went through."""
        assert self.committing is not None
        self.committing.committed(self._stats)
        self.committing = None
        self._failures = 0


def _refuse_late(parts: Sequence[Part], until: float, error: Error) -> None:
    for part in parts:
        late = part.late(until)
        if late is not None:
            late.refuse(error)


def joined(atom: Atom, known: Known, context: Context) -> Work:
    """Run one atom inside the application's own transaction, and answer it; nothing is committed."""
    if known.refuses(atom):
        return
    exchange = known.exchange(atom, context) if atom.once is None else None
    if exchange is not None:
        found = yield exchange
        if found is not None:
            atom.results = (None if exchange.result is None else exchange.result(found[0]),)
            atom.done = True
            return
    yield Control.SAVEPOINT
    try:
        answer([atom], (yield from retried(atom.operations, known, context, atom.once)))
    except Exception as failed:
        atom.error = failed
    if atom.error is not None:
        try:
            yield Control.BACK
        except Conflict as gone:  # the savepoint went with the whole transaction
            if not isinstance(atom.error, Conflict):
                atom.error = gone
    yield Control.RELEASE
    atom.done = True


def retried(operations: Sequence[Operation[Any]], known: Known, context: Context, once: str | None = None) -> Plan:
    """Run operations behind a savepoint; where an optimistic run fails, undo it, and run them carefully."""
    try:
        return (yield from performed(operations, known, context, once))
    except Careful:
        yield Control.BACK
        return (yield from performed(operations, known, context.carefully(), once))
