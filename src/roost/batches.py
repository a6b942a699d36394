"""A batch is one transaction: what goes in, what is refused, what is run again. No I/O.

`Batch.run` and `joined` are generators like the plans, one level up: they yield statements and `Control` words,
and whoever drives them throws the errors of an engine into them. So the policy is written once, for every engine, for
threads and for asyncio:

- The batch runs merged and optimistic. Nobody is answered before COMMIT.
- An operation that its plan refuses (duplicate, full, overflow) fails alone. When it is one of several in an atom, the
  batch is rolled back, run without that atom, and the atom is then run by itself: its outcome there is its answer.
- A statement that fails all the same undoes the batch, which is run again in halves until the culprit stands alone.
- An atom that needs a lock which somebody else holds for long leaves the batch, and waits aside (`detours.py`).
- A connection that is lost before COMMIT costs a new one, and the batch is run again. When it is lost during COMMIT,
  the engine is asked for the outcome; only where that cannot be known, `OutcomeUnknown` is the answer.
- What is known to concern the whole database (a full disk, a lost file, one that takes no writes) is every atom's
  answer. An error that nobody knows is a statement's.
"""

from __future__ import annotations

import copy
import logging
import math
import os
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from roost.dialects.dialect import Control, Dialect, Row, Statement, Together, Wanted
from roost.engines.engine import GRACE
from roost.errors import (
    Busy,
    CannotOpen,
    Conflict,
    ConnectionLost,
    DiskFull,
    Error,
    Invalid,
    Mismatch,
    Missing,
    OutcomeUnknown,
    ReadOnly,
    StatementFailed,
)
from roost.plans import Careful, Context, Plan, StructurePlan, TargetPlan, index_plan_for, plan_for
from roost.plans.catalog import Catalog
from roost.plans.overlap import run_overlapping
from roost.plans.plan import difference
from roost.structures.operation import READS, Operation, Target
from roost.structures.structure import Structure
from roost.structures.types import shown

log = logging.getLogger("roost")

Work = Generator[Wanted, Any, None]
E = TypeVar("E", bound=BaseException)

HASTY = {Control.BEGIN: Control.BEGIN_HASTY, Control.BEGIN_READ: Control.BEGIN_READ_HASTY}

MAX_OPERATIONS = 10_000  # in a batch of several atoms: bounds how long the write lock is held
MAX_CONFLICTS = 20  # deadlocks and the like after which a batch is given up
SHORT = 0.1  # seconds, with which nobody is sent back to the queue
MAX_LOST = 3  # connections lost in one batch after which it is taken for the cause
MOST_INDEXES = 1000  # whose tables one store remembers
MAX_BYTES = 16 * 2**20  # of their values, likewise
FEW = 64  # operations whose bytes are not counted: that takes a good part of the time for running them

OF_ALL = (CannotOpen, DiskFull, ReadOnly)  # errors of the whole database, whatever statement was told them


class Atom:
    """What one caller asked for at once: all or nothing."""

    __slots__ = ("aside", "deadline", "done", "error", "future", "operations", "results", "writes")

    def __init__(self, operations: Sequence[Operation[Any]]) -> None:
        writes = False
        for op in operations:
            if type(op) is not Operation:
                raise Invalid(f"{op!r} is not an operation; make one with a structure's method, such as add()")
            if op.verb not in READS:
                writes = True
        self.operations = operations
        self.writes = writes
        self.results: Sequence[Any] = ()
        self.error: BaseException | None = None
        self.done = False
        self.aside: int | None = None  # the lane in which it is to wait for a lock
        self.deadline = 0.0  # by the monotonic clock: until when
        self.future: Any = None  # what its task awaits, in asyncio

    @property
    def answer(self) -> tuple[Any, ...]:
        """The results, or the error raised."""
        if self.error is not None:
            try:
                raise self.error
            finally:
                self.error = None  # a raised error holds this frame: let go of the circle
        return tuple(self.results)

    def weight(self) -> int:
        """About how many bytes its values have."""
        return sum([_weight(op.args) for op in self.operations])


def _weight(values: tuple[Any, ...]) -> int:
    weight = 8
    for value in values:
        kind = type(value)
        if kind is tuple:
            weight += _weight(value)
        elif kind is str or kind is bytes:
            weight += len(value)
        else:
            weight += 8
    return weight


class Load:
    """How much a batch of several callers has, and whether that is enough."""

    __slots__ = ("_operations", "_weight")

    def __init__(self) -> None:
        self._operations = 0
        self._weight = 0

    def add(self, atoms: Iterable[Atom]) -> bool:
        """Count atoms that the batch takes, whatever their size; return whether it is to take no more."""
        for atom in atoms:
            self._operations += len(atom.operations)
            if self._operations > FEW:
                self._weight += atom.weight()
        return self._operations >= MAX_OPERATIONS or self._weight >= MAX_BYTES


def fitting(atoms: Sequence[Atom], most: int) -> int:
    """Return how many of the first atoms, `most` of them at most, are enough for a batch."""
    load = Load()
    for number in range(1, most):
        if load.add(atoms[number - 1 : number]):
            return number
    return most


def refuse_all(atoms: Iterable[Atom], error: BaseException) -> None:
    """Answer every atom that has no answer with an error of its own, since a raised error belongs to one thread."""
    for atom in atoms:
        if not atom.done and atom.aside is None:
            atom.error = copied(error)
            atom.done = True


def copied(error: E) -> E:
    """Return a copy of an error, for one more caller; the same where the application's own class allows none."""
    try:
        made = copy.copy(error)
    except Exception:
        made = error
    return (made if isinstance(made, type(error)) else error).with_traceback(None)


@dataclass(slots=True)
class Stats:
    """What a store has done since it was made, in this process."""

    batches: int = 0  # transactions committed, those that only read included
    operations: int = 0  # in them
    waits: int = 0  # times that a batch waited for a lock that somebody else held
    retries: int = 0  # transactions that were undone and run again
    overlaps: int = 0  # operations of a declaration that is not the stored one: a change is being deployed


class Known:
    """What a store knows before it asks: the words of its dialect. Nothing of what is stored is kept.

    exact: a declaration has to be the stored one; otherwise one that can be understood is run as what is stored.
    """

    def __init__(self, dialect: Dialect, *, exact: bool = False) -> None:
        self.dialect = dialect
        self.catalog = Catalog(dialect)
        self.stats = Stats()
        self.made_by = ""  # what makes structures, where that is not the store's create()
        self._exact = exact
        self._told: set[tuple[int, str]] = set()  # processes, and the structures of which they were told
        self._indexes: dict[Target, TargetPlan] = {}

    def target(self, target: Target) -> TargetPlan:
        """Return the plan of a structure or index in this store's dialect."""
        if isinstance(target, Structure):
            return self.plan(target)
        plan = self._indexes.get(target)
        if plan is None:
            if len(self._indexes) >= MOST_INDEXES:
                self._indexes.clear()
            plan = self._indexes[target] = index_plan_for(target, self.dialect)
        return plan

    def plan(self, structure: Structure) -> StructurePlan:
        """Return the structure's plan in this store's dialect."""
        plan: StructurePlan | None = structure.plans.get(self.dialect.name)
        if plan is None:
            plan = structure.plans[self.dialect.name] = plan_for(structure, self.dialect)
        return plan

    def refuses(self, atom: Atom) -> bool:
        """Answer an atom with `Invalid` if it has a value that this dialect cannot store; return whether it has.

        Before a statement is made of it: it is to cost the others of its batch nothing.
        """
        if self.dialect.nul:
            return False
        for op in atom.operations:
            if isinstance(op.structure, Structure) and (path := _path_of_nul(op.args)) is not None:
                value: Any = op.args
                for place in path:
                    value = value[place]
                atom.error = Invalid(
                    f"{op.structure.name}.{op.structure.column_at(op, path)}: {shown(value)} has a NUL, which no text "
                    "of PostgreSQL can have"
                )
                atom.done = True
                return True
        return False

    def heads(self, atom: Atom) -> set[tuple[str, Row]]:
        """Return what an atom locks: names of structures, and keys as they are stored."""
        return {
            (op.structure.name, self.target(op.structure).head_of(op)) for op in atom.operations if op.verb not in READS
        }

    def work(self, target: Target, operations: Sequence[Operation[Any]], context: Context, alone: bool = False) -> Plan:
        """Compare a declaration with the catalog, first in every transaction, and run operations of the structure.

        Where the comparison held before, the plan's first statement goes along with it. When it does not hold now, what
        was done is undone, and the batch asks before it writes. An index of a table is in no catalog.

        alone: the transaction has no other operations.
        """
        if not isinstance(target, Structure):
            return (yield from self.target(target).run(operations, context))
        structure = target
        plan = self.plan(structure)
        held = plan.held is not plan.stored and any([op.verb not in READS for op in operations])
        held_by = plan.held_at_once if context.hasty else plan.held
        question = held_by if held else plan.stored
        if plan.trusted_by is self and self.dialect.exchanges and not context.joined and not context.careful:
            work = plan.run(operations, context)
            wanted = next(work, None)
            if isinstance(wanted, Statement):
                try:
                    last = alone and wanted.last and len({op.verb for op in operations}) == 1
                    stored, answer = yield Together((question, wanted), last)
                except (Missing, StatementFailed):
                    raise Careful from None
                if not stored[0] or stored[0][0][0] != structure.definition:
                    raise Careful
                results: list[Any] = yield from _resumed(work, answer)
                return results
        try:
            stored = yield question
        except Missing as missing:
            return [self._missing(plan) if self.made_by else missing] * len(operations)
        if not stored[0]:
            return [self._missing(plan)] * len(operations)
        definition = stored[0][0][0]
        plan.trusted_by = self if definition == structure.definition else None
        found = plan if plan.trusted_by is self else plan.as_stored(definition)
        if isinstance(found, Error):
            return [found] * len(operations)
        if found.overlaps:
            told = difference(definition, structure.definition)
            if self._exact:
                return [Mismatch(f"{structure.name} is declared otherwise than it is stored: {told}")] * len(operations)
            self.tell({structure.name: told})
            self.stats.overlaps += len(operations)
            return (yield from run_overlapping(found, operations, context))
        return (yield from found.run(operations, context))

    def _missing(self, plan: StructurePlan) -> Missing:
        made_by = self.made_by if self.made_by and plan.tables else plan.made_by  # a table of one's own is not made
        return Missing(f"{plan.structure.name} is not in this database; {made_by}")

    def tell(self, differences: Mapping[str, str]) -> None:
        """Log once in this process, for each structure, that another declaration of it is stored."""
        for name, told in differences.items():
            if (process := (os.getpid(), name)) not in self._told:
                self._told.add(process)
                log.warning("%s is declared otherwise than it is stored, and used as it is stored: %s", name, told)


def _path_of_nul(values: tuple[Any, ...]) -> tuple[int, ...] | None:
    # Where the first text with a NUL stands.
    for place, value in enumerate(values):
        if type(value) is str:
            if "\0" in value:
                return (place,)
        elif type(value) is tuple and (path := _path_of_nul(value)) is not None:
            return (place, *path)
    return None


def perform(operations: Sequence[Operation[Any]], known: Known, context: Context) -> Plan:
    """Run operations inside a transaction that is open; return their results, errors among them."""
    structure = operations[0].structure
    for op in operations:
        if op.structure is not structure:
            return (yield from _perform_several(operations, known, context))
    return (yield from known.work(structure, operations, context, alone=True))


def _perform_several(operations: Sequence[Operation[Any]], known: Known, context: Context) -> Plan:
    results: list[Any] = [None] * len(operations)
    begun: list[tuple[str, Plan, list[int], list[Any] | None]] = []
    # By name, and every plan first only to the point where it holds its locks: the order of locks is (structure, key,
    # slot), and nothing is written before all are had.
    for structure, places in sorted(_runs(operations), key=lambda run: run[0].name):
        work = known.work(structure, [operations[place] for place in places], context)
        first = not begun or begun[-1][0] != structure.name
        begun.append(
            (structure.name, work, places, (yield from _resumed(work, None, Control.LOCKED)) if first else None)
        )
    yield Control.LOCKED
    for _, work, places, outcome in begun:
        for place, value in zip(places, (yield from work) if outcome is None else outcome, strict=True):
            results[place] = value
    return results


def _resumed(work: Plan, answer: Any, until: Control | None = None) -> Generator[Wanted, Any, Any]:
    # Runs a plan whose last question has this answer, None where it has asked none: to its end, its results; or to the
    # point where it yields `until`, None.
    try:
        wanted = work.send(answer)
        while wanted is not until:
            try:
                answer = yield wanted
            except Exception as error:
                wanted = work.throw(error)
            else:
                wanted = work.send(answer)
    except StopIteration as stop:
        return stop.value
    return None


def _runs(operations: Sequence[Operation[Any]]) -> list[tuple[Target, list[int]]]:
    # Which operations one plan takes together: those of one structure. Two declarations of one name that are not alike
    # (other classes of rows, or not what is stored) take turns, so that the order inside a structure is kept.
    runs: list[tuple[Target, list[int]]] = []
    latest: dict[str, tuple[Target, list[int]]] = {}
    for place, op in enumerate(operations):
        run = latest.get(op.structure.name)
        if run is None or not op.structure.is_like(run[0]):
            run = latest[op.structure.name] = (op.structure, [])
            runs.append(run)
        run[1].append(place)
    return runs


def _halves(part: list[Atom]) -> list[list[Atom]]:
    # In the order in which they are to be run, the first one last; nothing of what stands alone.
    middle = len(part) // 2
    return [part[middle:], part[:middle]] if middle else []


class Aside(Protocol):
    """Where atoms go that need a lock which somebody else holds."""

    def concerns(self, atom: Atom) -> bool:
        """Whether the atom needs one that is waited for already; if so it is sent there."""
        ...

    def send(self, atom: Atom, error: Busy) -> None:
        """Send it there."""
        ...


class Batch:
    """The work of one turn: what is taken from the queue, run in a transaction, and answered.

    aside: where atoms are sent that would hold up the others; None: they wait here.
    """

    def __init__(self, known: Known, context: Context, stats: Stats, aside: Aside | None = None) -> None:
        self._known = known
        self._context = context
        self._stats = stats
        self._aside = aside
        self._begin = Control.BEGIN
        self._conflicts = 0
        self._lost_times = 0
        self._failures = self._most_failures = 0  # one after the other, of which each might be everybody's
        self.committing: Sequence[Atom] = ()  # whose COMMIT is under way

    def run(self, begin: Control, take: Callable[[], list[Atom]]) -> Work:
        """Begin, then take what waits by then, run it and answer it, or send it aside.

        An error of the first BEGIN is raised, with nothing taken. After that every atom taken gets an answer.
        """
        yield begin
        taken = [atom for atom in take() if not self._known.refuses(atom)]
        if self._aside is not None:
            taken = [atom for atom in taken if not self._aside.concerns(atom)]
        if not taken:
            yield Control.ROLLBACK
            return
        parts = [taken]
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
                if self.committing and not isinstance(error, Error):
                    raise  # an interrupt of the application's own: who drives the batch asks for the outcome
                yield from self._failed(part, parts, error, begins)

    def _failed(self, part: list[Atom], parts: list[list[Atom]], error: Exception, begins: bool) -> Work:
        # Undoes what failed, and refuses it, sends it aside, or puts it back into `parts`, what is to be run again.
        # begins: it was BEGIN that failed, and no statement of theirs.
        self.committing = ()
        yield Control.ROLLBACK
        if isinstance(error, Conflict):
            self._conflicts += 1
            if self._conflicts <= MAX_CONFLICTS:  # others were in the way: all of it again
                parts.append(part)
                yield Control.JITTER
                return
            error = Busy(f"{error}, {MAX_CONFLICTS} times and more")
        if isinstance(error, Busy) and self._aside is not None:
            self._begin = HASTY.get(self._begin, self._begin)
            if len(part) == 1:
                self._aside.send(part[0], error)
            parts += _halves(part)
        elif isinstance(error, Busy) and self._known.dialect.row_locks:
            late = [atom for atom in part if atom.deadline <= time.monotonic()]
            if late or len(part) == 1:
                refuse_all(late or part, error)
                parts.clear()  # who still has time goes back to the queue
            else:  # it was told before its time: a statement that was cancelled, or a trigger's own
                parts += _halves(part)
        elif (isinstance(error, OF_ALL) and self._is_of_all(part)) or (
            isinstance(error, Error) and (begins or isinstance(error, Busy))
        ):
            # A lock that is waited for here is the one of a whole file.
            refuse_all([atom for each in [part, *parts] for atom in each], error)
            parts.clear()
        else:  # a statement, a defect, or the caller's own trace function: the others must not suffer
            if len(part) == 1:
                refuse_all(part, error)
            parts += _halves(part)

    def _is_of_all(self, part: list[Atom]) -> bool:
        # A trigger may tell any number, or meet a full table of its own. So the batch is halved as for a culprit; when
        # what is left fails as well after the culprit stood alone, the error is everybody's.
        if not self._known.dialect.row_locks:
            return True  # a file's triggers cannot
        if not self._failures:
            self._most_failures = len(part).bit_length() + 2
        self._failures += 1
        return self._failures > self._most_failures

    def _lost(self, part: list[Atom], parts: list[list[Atom]], error: ConnectionLost) -> Work:
        # Connects anew, and puts back into `parts` what was not committed. What costs the connection again and again
        # (more than the server takes, say) is run in halves, like any other culprit.
        if not any([atom.writes for atom in self.committing]):
            self.committing = ()  # nothing to commit
        committing = self.committing  # stands until the outcome is known: an interrupt may come before
        try:
            committed = yield Control.OUTCOME if committing else Control.RECONNECT
        except Error as failed:
            self.committing = ()
            if committing:
                refuse_all(part, OutcomeUnknown(f"{error}; whether it was committed cannot be asked: {failed}"))
            # Who came later than the leader has time left, and goes back to the queue: the server may be there again.
            until = time.monotonic() + SHORT if isinstance(failed, ConnectionLost) else math.inf
            refuse_all([atom for each in [part, *parts] for atom in each if atom.deadline <= until], failed)
            parts.clear()
            return
        if committing and committed:
            self.committed()
            return
        self.committing = ()
        if committing and committed is None:
            refuse_all(part, OutcomeUnknown(f"{error}, during COMMIT, and the outcome could not be looked up"))
        else:
            # Whose time went by while the server said nothing: another attempt would take as long.
            late = time.monotonic() - GRACE / 2
            refuse_all([atom for each in [part, *parts] for atom in each if atom.deadline <= late], error)
            parts[:] = [rest for each in parts if (rest := [atom for atom in each if not atom.done])]
            part = [atom for atom in part if not atom.done]
            self._lost_times += 1
            if part and self._lost_times < MAX_LOST:
                parts.append(part)
                return
            if len(part) == 1:
                refuse_all(part, error)
            parts += _halves(part)

    def _attempt(self, part: list[Atom]) -> Generator[Wanted, Any, list[list[Atom]]]:
        # Runs and answers atoms together, or rolls back and returns how they are to be run instead, last first.
        operations = part[0].operations if len(part) == 1 else [op for atom in part for op in atom.operations]
        context = self._context.hastily() if self._begin is Control.BEGIN_HASTY else self._context
        try:
            results = yield from perform(operations, self._known, context)
        except Careful:
            yield Control.ROLLBACK
            yield self._begin
            self._stats.retries += 1
            results = yield from perform(operations, self._known, context.carefully())
        if answer(part, results):
            if len(part) == 1:
                yield Control.ROLLBACK
                part[0].done = True
                return []
            alone = [atom for atom in part if atom.error is not None and len(atom.operations) > 1]
            if alone:  # what they did must be undone, and only a transaction of their own can tell their answer
                yield Control.ROLLBACK
                rest = [atom for atom in part if atom not in alone]
                return [[atom] for atom in reversed(alone)] + ([rest] if rest else [])
        self.committing = part
        yield Control.COMMIT
        self.committed()
        return []

    def committed(self) -> None:
        """Answer those whose COMMIT went through."""
        operations = 0
        for atom in self.committing:
            atom.done = True
            operations += len(atom.operations)
        self._stats.batches += 1
        self._stats.operations += operations
        self.committing = ()
        self._failures = 0


def joined(atom: Atom, known: Known, context: Context) -> Work:
    """Run one atom inside the application's own transaction, and answer it; nothing is committed."""
    if known.refuses(atom):
        return
    yield Control.SAVEPOINT
    try:
        answer([atom], (yield from retried(atom.operations, known, context)))
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


def retried(operations: Sequence[Operation[Any]], known: Known, context: Context) -> Plan:
    """Run operations behind a savepoint; where they hoped in vain, undo them, and run them reading first."""
    try:
        return (yield from perform(operations, known, context))
    except Careful:
        yield Control.BACK
        return (yield from perform(operations, known, context.carefully()))


def answer(atoms: Sequence[Atom], results: list[Any]) -> bool:
    """Give each atom its results, or a copy of the first error among them; return whether there was an error."""
    errors = False
    for kind in set(map(type, results)):
        if issubclass(kind, Error):
            errors = True
    place = 0
    for atom in atoms:
        if len(atom.operations) == 1:
            atom.results = (results[place],)
            place += 1
        else:
            end = place + len(atom.operations)
            atom.results = results[place:end]
            place = end
        # That of an attempt before is no answer: what was refused there may be done here.
        atom.error = next((copied(each) for each in atom.results if isinstance(each, Error)), None) if errors else None
    return errors
