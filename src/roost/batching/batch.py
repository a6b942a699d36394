"""A batch, which is one transaction: the operations it takes, the ones it refuses, and the retries. No I/O.

`Batch.run` and `joined` are generators like the plans, one level up: they yield statements and `Control` words,
and their driver throws the errors of an engine into them. So the policy is written once, for every engine, for threads
and for asyncio:

- Like operations are merged, and run optimistically. No caller is answered before COMMIT.
- An operation that its plan refuses (duplicate, full, overflow) fails alone. If it is one of several in an atom, the
  batch is rolled back and run without that atom. The atom then runs by itself, and gets the outcome of that run.
- If a statement fails, the batch is rolled back and run again in halves, until the failing operation is alone.
- An atom that needs a lock which another session holds for long leaves the batch for the slow path (`SlowPath`).
- If the connection is lost before COMMIT, the batch is run again on a new one. If it is lost during COMMIT, the engine
  looks up the outcome; only if that cannot be known, the answer is `OutcomeUnknown`.
- An error that is known to concern the whole database (a full disk, a lost file, a read-only database) is the answer
  of every atom. An unknown error is treated as that of a statement.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import Any, Protocol

from roost.batching.atoms import Atom, SlowPath, answer, refuse_all
from roost.batching.known import Known
from roost.batching.stats import Stats
from roost.databases.engine import GRACE, Connection, drive
from roost.dialects.dialect import LEAVES, Control, Dialect, Wanted
from roost.errors import Busy, CannotOpen, Conflict, ConnectionLost, DiskFull, Error, OutcomeUnknown, ReadOnly
from roost.structures.plan import Careful, Context, Operations, Plan

Work = Generator[Wanted, Any, None]
Running = Generator[Wanted, Any, "Sequence[Part] | None"]

NOWAIT = {Control.BEGIN: Control.BEGIN_NOWAIT, Control.BEGIN_READ: Control.BEGIN_READ_NOWAIT}

MAX_CONFLICTS = 20  # deadlocks and similar conflicts after which a batch fails
SHORT = 0.1  # seconds; an atom with less time left is refused instead of returned to the queue
MAX_LOST = 3  # connections lost in one batch after which the batch counts as the cause

OF_ALL = (CannotOpen, DiskFull, ReadOnly)  # errors of the whole database, whichever statement raises them


class Part(Protocol):
    """Requests that run together. Its length is their number; a part of length 1 cannot be halved."""

    def __len__(self) -> int: ...

    @property
    def writes(self) -> bool:
        """Whether there is something to commit."""

    def apart(self) -> list[Part]:
        """Return the requests in parts, each of which has a transaction of its own, the first one last."""
        return [self]

    def run(self, context: Context) -> Running:
        """Run the requests.

        Return None if they are to be committed. Otherwise everything is rolled back, and the returned parts are run
        instead, the last one first.
        """

    def committed(self, stats: Stats) -> None:
        """Answer and count the requests, since COMMIT has succeeded."""

    def refuse(self, error: BaseException) -> None:
        """Answer the unanswered requests with an error."""

    def halves(self) -> list[Part]:
        """Return both halves, the first one last, since parts are run from the end; nothing for a single request."""

    def late(self, until: float) -> Part | None:
        """Return the requests whose deadline is not after `until`; None if there are none."""

    def left(self) -> Part | None:
        """Return the unanswered requests; None if there are none."""

    def send_to(self, slow_path: SlowPath, error: Busy) -> None:
        """Send the only request to the slow path, where it waits for a lock of another session."""


class _Atoms(Part):
    """Atoms of a store's callers."""

    __slots__ = ("_atoms", "_known")

    def __init__(self, atoms: list[Atom], known: Known) -> None:
        self._atoms = atoms
        self._known = known

    def __len__(self) -> int:
        return len(self._atoms)

    @property
    def writes(self) -> bool:
        return any([atom.writes for atom in self._atoms])

    def apart(self) -> list[Part]:
        once = [atom for atom in self._atoms if atom.once is not None]
        rest = [atom for atom in self._atoms if atom.once is None] if once else self._atoms
        return [self._part([atom]) for atom in reversed(once)] + ([self._part(rest)] if rest else [])

    def run(self, context: Context) -> Running:
        atoms = self._atoms
        if len(atoms) == 1:
            results = yield from self._known.perform(atoms[0].operations, context, atoms[0].once)
        else:
            results = yield from self._known.perform([op for atom in atoms for op in atom.operations], context)
        if not answer(atoms, results):
            return None
        if len(atoms) == 1:
            atoms[0].done = True
            return []
        alone = [atom for atom in atoms if atom.error is not None and atom.size > 1]
        if not alone:
            return None
        # Their changes must be undone, and only a transaction of its own can determine the answer of each.
        rest = [atom for atom in atoms if atom not in alone]
        return [self._part([atom]) for atom in reversed(alone)] + ([self._part(rest)] if rest else [])

    def _part(self, atoms: list[Atom]) -> Part:
        return _Atoms(atoms, self._known)

    def committed(self, stats: Stats) -> None:
        atoms = self._atoms
        for atom in atoms:
            atom.done = True
        operations = sum([len(atom.operations) for atom in atoms])
        stats.batches += 1
        stats.operations += operations
        stats.sizes.add(operations)
        stats.micros.add(int((time.monotonic() - atoms[0].begun) * 1e6), len(atoms))

    def refuse(self, error: BaseException) -> None:
        refuse_all(self._atoms, error)

    def halves(self) -> list[Part]:
        middle = len(self._atoms) // 2
        return [self._part(self._atoms[middle:]), self._part(self._atoms[:middle])] if middle else []

    def late(self, until: float) -> Part | None:
        late = [atom for atom in self._atoms if atom.deadline <= until]
        return self._part(late) if late else None

    def left(self) -> Part | None:
        left = [atom for atom in self._atoms if not atom.done]
        return self._part(left) if left else None

    def send_to(self, slow_path: SlowPath, error: Busy) -> None:
        slow_path.send(self._atoms[0], error)


def taking(take: Callable[[], list[Atom]], known: Known, slow_path: SlowPath | None) -> Callable[[], Part]:
    """Make a function that takes the waiting atoms, except those refused or sent to the slow path at once."""

    def taken() -> Part:
        atoms = [atom for atom in take() if not known.refuses(atom)]
        if slow_path is not None:
            atoms = [atom for atom in atoms if not slow_path.concerns(atom)]
        return _Atoms(atoms, known)

    return taken


class Batch:
    """One batch: takes requests from the queue, runs them in a transaction, and answers them.

    slow_path: gets the atoms that would delay the others; None: they wait for their locks in the batch.
    until: the end of the wait for locks, by the monotonic clock; an atom with a later deadline goes back to the queue.
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
        self._left = 0  # the number of read-only servers that it has left
        self._failures = self._most_failures = 0  # consecutive failures that might concern the whole database
        self._careful: Part | None = None  # the part whose optimistic run has failed
        self.committing: Part | None = None  # the part whose COMMIT has been sent and not answered

    def run(self, begin: Control, take: Callable[[], Part]) -> Work:
        """Begin, then take the waiting requests, run them, and answer them or send them to the slow path.

        An error of the first BEGIN is raised before anything is taken. After that every request taken gets an answer,
        unless its part leaves it to a later batch.
        """
        yield begin
        taken = take()
        if not len(taken):
            yield Control.ROLLBACK
            return
        parts = taken.apart()
        self._begin = begin
        begun, undone = True, False
        while parts:
            part = parts.pop()
            begins = not begun
            begun = False
            try:
                if begins:
                    self._stats.retries += undone
                    yield self._begin
                begins = undone = False
                instead = yield from self._attempt(part)
                parts += instead
                undone = bool(instead)
            except ConnectionLost as error:
                undone = True
                yield from self._lost(part, parts, error)
            except Exception as error:
                if self.committing is not None and not isinstance(error, Error):
                    raise  # from a signal handler of the application: the batch's driver looks up the outcome
                undone = True
                yield from self._failed(part, parts, error, begins)

    def drive(self, begin: Control, take: Callable[[], Part], connection: Connection) -> None:
        """Run it on a connection; if it is interrupted between COMMIT and its answer, look up the outcome."""
        try:
            drive(self.run(begin, take), connection)
        except BaseException:
            if self.committing is not None and self.committing.writes:
                committed = None
                try:
                    committed = connection.outcome()
                finally:  # `outcome` may be interrupted too
                    if committed:
                        self.committed()
                    elif committed is None:
                        self._stats.unknown += len(self.committing)
                        self.committing.refuse(OutcomeUnknown("the store was interrupted during COMMIT"))
            connection.settle()
            raise

    def _failed(self, part: Part, parts: list[Part], error: Exception, begins: bool) -> Work:
        # Roll back, and refuse the failed part, send it to the slow path, or put it back into `parts` for another run.
        # begins: BEGIN failed, not a statement of the part.
        self.committing = None
        yield Control.ROLLBACK
        conflicts = isinstance(error, Conflict)
        if isinstance(error, Conflict):
            self._conflicts += 1
            if self._conflicts <= MAX_CONFLICTS:  # caused by other transactions: run the whole part again
                parts.append(part)
                yield Control.JITTER
                return
            error = Busy(f"{error}, {MAX_CONFLICTS} times and more")
        if isinstance(error, ReadOnly) and self._dialect.is_server and self._left < LEAVES:
            self._left += 1
            try:
                yield Control.LEAVE
            except Error:
                pass  # no other server was found
            else:
                parts.append(part)
                return
        if isinstance(error, Busy) and self._slow_path is not None:
            self._begin = NOWAIT.get(self._begin, self._begin)
            if len(part) == 1:
                self._stats.slow += 1
                part.send_to(self._slow_path, error)
            parts += part.halves()
        elif isinstance(error, Busy) and self._dialect.is_server:
            now = time.monotonic()
            late = part.late(now)
            if late is not None:
                late.refuse(error)
                parts.clear()  # atoms with time left go back to the queue
            elif conflicts or now > self._until - SHORT:
                parts.clear()
            elif len(part) == 1:  # `Busy` before the deadline: a cancelled statement, or an error raised by a trigger
                part.refuse(error)
                parts.clear()
            else:
                parts += part.halves()
        elif (isinstance(error, OF_ALL) and self._is_of_all(part, error)) or (
            isinstance(error, Error) and (begins or isinstance(error, Busy))
        ):
            # A Busy here means the lock of the whole file.
            for each in [part, *parts]:
                each.refuse(error)
            parts.clear()
        else:  # from a statement, a defect, or the caller's own trace function: it must not affect the others
            if len(part) == 1:
                part.refuse(error)
            parts += part.halves()

    def _is_of_all(self, part: Part, error: Exception) -> bool:
        # A trigger may raise any error number, or meet a full table of its own. So the batch is first halved, as for
        # any failing operation. If the rest still fails after one was run alone, the whole database is concerned.
        if not self._dialect.is_server and not isinstance(error, DiskFull):
            return True  # SQLite's triggers cannot raise these; but one request may be too large for the disk
        if not self._failures:
            self._most_failures = len(part).bit_length() + 2
        self._failures += 1
        return self._failures > self._most_failures

    def _lost(self, part: Part, parts: list[Part], error: ConnectionLost) -> Work:
        # Reconnect, and put back into `parts` what was not committed. A part that breaks the connection repeatedly
        # (for example, by a statement that is too large for the server) is run in halves, like any failing part.
        if self.committing is not None and not self.committing.writes:
            self.committing = None  # it has only read
        committing = self.committing is not None  # the attribute stays set: an interrupt may come before the outcome
        try:
            committed = yield Control.OUTCOME if committing else Control.RECONNECT
        except Error as failed:
            self.committing = None
            if committing:
                self._stats.unknown += len(part)
                part.refuse(OutcomeUnknown(f"{error}; whether it was committed cannot be asked: {failed}"))
            # Atoms that arrived after the leader have time left, and go back to the queue: the server may return.
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
        # Refuse atoms whose time ran out while the server did not respond: another attempt would take as long.
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
        # Run and answer a part; or roll back, and return the parts to run instead, in reverse order.
        context = self._context
        careful, nowait = part is self._careful, self._begin is Control.BEGIN_NOWAIT
        self._careful = None
        if careful or nowait:
            context = replace(context, careful=careful, nowait=nowait)
        try:
            instead = yield from part.run(context)
        except Careful:
            self._careful, instead = part, [part]
        if instead is not None:
            yield Control.ROLLBACK
            return instead
        self.committing = part
        yield Control.COMMIT
        self.committed()
        return []

    def committed(self) -> None:
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
        except Conflict as gone:  # the savepoint is gone: the database has undone the whole transaction
            if not isinstance(atom.error, Conflict):
                atom.error = gone
    yield Control.RELEASE
    atom.done = True


def retried(operations: Operations, known: Known, context: Context, once: str | None = None) -> Plan:
    """Run operations behind a savepoint; if the optimistic run fails, undo it, and run them the careful way."""
    try:
        return (yield from known.perform(operations, context, once))
    except Careful:
        yield Control.BACK
        return (yield from known.perform(operations, replace(context, careful=True), once))
