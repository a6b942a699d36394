"""A batch is one transaction: what goes in, what is refused, what is run again. No I/O.

`Batch.run` and `joined` are generators like the plans, one level up: they yield statements and `Control` words,
and whoever drives them throws the errors of an engine into them. So the policy is written once, for every engine, for
threads and for asyncio:

- The batch runs merged and optimistic. Nobody is answered before COMMIT.
- An operation that its plan refuses (duplicate, full, overflow) fails alone. When it is one of several in an atom, the
  batch is rolled back, run without that atom, and the atom is then run by itself: its outcome there is its answer.
- A statement that fails all the same undoes the batch, which is run again in halves until the culprit stands alone.
- What concerns the whole database (a full disk, a lost file) is every atom's answer.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from roost.dialects.dialect import Control, Dialect, Statement
from roost.errors import Conflict, Error, Invalid, Missing, StatementFailed
from roost.plans import Careful, Context, Plan, StructurePlan, plan_for
from roost.plans.catalog import Catalog
from roost.structures.operation import READS, Operation
from roost.structures.structure import Structure

Work = Generator[Statement | Control, Any, None]

MAX_OPERATIONS = 10_000  # in a batch of several atoms: bounds how long the write lock is held
MAX_CONFLICTS = 20  # deadlocks and the like after which a batch is given up
MAX_BYTES = 16 * 2**20  # of their values, likewise


class Atom:
    """What one caller asked for at once: all or nothing."""

    __slots__ = ("done", "error", "operations", "results", "writes")

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


def _weight(value: Any) -> int:
    if isinstance(value, tuple):
        return 8 + sum([_weight(part) for part in value])
    return len(value) if isinstance(value, (str, bytes)) else 8


def refuse_all(atoms: Iterable[Atom], error: BaseException) -> None:
    """Answer every atom that has no answer with an error of its own, since a raised error belongs to one thread."""
    for atom in atoms:
        if not atom.done:
            atom.error = copy.copy(error).with_traceback(None)
            atom.done = True


@dataclass(slots=True)
class Stats:
    """What a store has done since it was made, in this process."""

    batches: int = 0  # transactions committed, those that only read included
    operations: int = 0  # in them
    waits: int = 0  # times that a batch waited for a lock that somebody else held
    retries: int = 0  # transactions that were undone and run again


class Known:
    """What a store knows before it asks: the words of its dialect. Nothing of what is stored is kept."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.catalog = Catalog(dialect)

    def plan(self, structure: Structure) -> StructurePlan:
        """Return the structure's plan in this store's dialect."""
        plan: StructurePlan | None = structure.plans.get(self.dialect.name)
        if plan is None:
            plan = structure.plans[self.dialect.name] = plan_for(structure, self.dialect)
        return plan

    def verify(
        self, plan: StructurePlan, operations: Iterable[Operation[Any]], context: Context
    ) -> Generator[Statement | Control, Any, StructurePlan | Error]:
        """Compare a declaration with the catalog; return the plan, or what is wrong. First in every transaction.

        One of the application's may have taken its snapshot long ago, and may stay open for as long: where it writes,
        the definition is locked.
        """
        locks = context.joined and any(op.writes for op in operations)
        try:
            stored = yield plan.stored_now if locks else plan.stored
        except Missing as missing:
            return missing
        if not stored[0]:
            return Missing(f"{plan.structure.name} is not in this database; {plan.made_by}")
        definition = stored[0][0][0]
        return plan if definition == plan.structure.definition else plan.as_stored(definition)


def perform(operations: Sequence[Operation[Any]], known: Known, context: Context) -> Plan:
    """Run operations inside a transaction that is open; return their results, errors among them."""
    structure = operations[0].structure
    for op in operations:
        if op.structure is not structure:
            return (yield from _perform_several(operations, known, context))
    plan = yield from known.verify(known.plan(structure), operations, context)
    if isinstance(plan, Error):
        return [plan] * len(operations)
    return (yield from plan.run(operations, context))


def _perform_several(operations: Sequence[Operation[Any]], known: Known, context: Context) -> Plan:
    results: list[Any] = [None] * len(operations)
    begun: list[tuple[str, Plan, list[int], list[Any] | None]] = []
    # By name, and every plan first only to the point where it holds its locks: the order of locks is (structure, key,
    # slot), and nothing is written before all are had.
    for structure, places in sorted(_runs(operations), key=lambda each: each[0].name):
        run = [operations[place] for place in places]
        plan = yield from known.verify(known.plan(structure), run, context)
        if isinstance(plan, Error):
            for place in places:
                results[place] = plan
            continue
        work = plan.run(run, context)
        first = not begun or begun[-1][0] != structure.name
        begun.append((structure.name, work, places, (yield from _until_locked(work)) if first else None))
    for _, work, places, outcome in begun:
        for place, value in zip(places, (yield from work) if outcome is None else outcome, strict=True):
            results[place] = value
    return results


def _runs(operations: Sequence[Operation[Any]]) -> list[tuple[Structure, list[int]]]:
    # Which operations one plan takes together: those of one structure. Two declarations of one name that are not alike
    # (other classes of rows, or not what is stored) take turns, so that the order inside a structure is kept.
    runs: list[tuple[Structure, list[int]]] = []
    latest: dict[str, tuple[Structure, list[int]]] = {}
    for place, op in enumerate(operations):
        run = latest.get(op.structure.name)
        if run is None or not op.structure.is_like(run[0]):
            run = latest[op.structure.name] = (op.structure, [])
            runs.append(run)
        run[1].append(place)
    return runs


def _until_locked(plan: Plan) -> Generator[Statement | Control, Any, list[Any] | None]:
    # Brings a plan to the point where it holds all its locks: None; or to its end: its results.
    try:
        wanted = next(plan)
        while wanted is not Control.LOCKED:
            wanted = plan.send((yield wanted))
    except StopIteration as stop:
        results: list[Any] = stop.value
        return results
    return None


class Batch:
    """The work of one turn: what is taken from the queue, run in a transaction, and answered."""

    def __init__(self, known: Known, context: Context, stats: Stats) -> None:
        self._known = known
        self._context = context
        self._stats = stats
        self.committing: Sequence[Atom] = ()  # whose COMMIT is under way

    def run(self, begin: Control, take: Callable[[], list[Atom]]) -> Work:
        """Begin, then take what waits by then, run it and answer it.

        An error of the first BEGIN is raised, with nothing taken. After that every atom taken gets an answer.
        """
        yield begin
        parts = [take()]
        begun, conflicts = True, 0
        while parts:
            part = parts.pop()
            try:
                if not begun:
                    self._stats.retries += 1
                    yield begin
                begun = False
                parts += yield from self._attempt(begin, part)
            except Exception as error:
                self.committing = ()
                yield Control.ROLLBACK
                if isinstance(error, Conflict) and conflicts < MAX_CONFLICTS:  # others were in the way: all of it again
                    conflicts += 1
                    parts.append(part)
                    yield Control.JITTER
                    continue
                if isinstance(error, Error) and not isinstance(error, (StatementFailed, Missing)):
                    # It concerns the whole database: a full disk, a lost file.
                    refuse_all([atom for each in [part, *parts] for atom in each], error)
                    return
                # A statement, a defect, or the caller's own trace function: the others must not suffer.
                if len(part) == 1:
                    refuse_all(part, error)
                else:
                    middle = len(part) // 2
                    parts += [part[middle:], part[:middle]]

    def _attempt(self, begin: Control, part: list[Atom]) -> Generator[Statement | Control, Any, list[list[Atom]]]:
        # Runs and answers atoms together, or rolls back and returns how they are to be run instead, last first.
        operations = part[0].operations if len(part) == 1 else [op for atom in part for op in atom.operations]
        try:
            results = yield from perform(operations, self._known, self._context)
        except Careful:
            yield Control.ROLLBACK
            yield begin
            self._stats.retries += 1
            results = yield from perform(operations, self._known, self._context.carefully())
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


def joined(atom: Atom, known: Known, context: Context) -> Work:
    """Run one atom inside the application's own transaction, and answer it; nothing is committed."""
    yield Control.SAVEPOINT
    try:
        try:
            results = yield from perform(atom.operations, known, context)
        except Careful:
            yield Control.BACK
            results = yield from perform(atom.operations, known, context.carefully())
        answer([atom], results)
    except Exception as failed:
        atom.error = failed
    if atom.error is not None:
        yield Control.BACK
    yield Control.RELEASE
    atom.done = True


def answer(atoms: Sequence[Atom], results: list[Any]) -> bool:
    """Give each atom its results, or a copy of the first error among them; return whether there was an error."""
    errors = False
    for kind in set(map(type, results)):
        if issubclass(kind, Error):
            errors = True
    place = 0
    for atom in atoms:
        end = place + len(atom.operations)
        atom.results = results[place:end]
        if errors:
            atom.error = next((copy.copy(each) for each in atom.results if isinstance(each, Error)), None)
        place = end
    return errors
