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
from itertools import islice
from typing import Any

from roost.dialects.dialect import Control, Dialect, Statement
from roost.errors import Error, Invalid, Mismatch, Missing, StatementFailed
from roost.plans import Careful, Context, Plan, StructurePlan, plan_for
from roost.plans.catalog import Catalog, difference
from roost.structures.operation import READS, Operation
from roost.structures.structure import Structure

Work = Generator[Statement | Control, Any, None]
Performance = Generator[Statement | Control, Any, list[Any]]

MAX_OPERATIONS = 10_000  # in a batch of several atoms: bounds how long the write lock is held
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

    def refuse(self, error: BaseException) -> None:
        """Answer with an error."""
        self.error = error
        self.done = True

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
            atom.refuse(copy.copy(error).with_traceback(None))


@dataclass(slots=True)
class Stats:
    """What a store has done since it was made, in this process."""

    batches: int = 0  # transactions committed, those that only read included
    operations: int = 0  # in them
    waits: int = 0  # times that a batch waited for a lock that somebody else held
    retries: int = 0  # transactions that were undone and run again


class Known:
    """What a store knows of the structures it met: their plans in its dialect. Nothing of what is stored is kept."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.catalog = Catalog(dialect)
        self._plans: dict[Structure, StructurePlan] = {}

    def plan(self, structure: Structure) -> StructurePlan:
        """Return the structure's plan in this store's dialect."""
        plan = self._plans.get(structure)
        if plan is None:
            plan = self._plans[structure] = plan_for(structure, self.dialect)
        return plan

    def verify(self, structures: Iterable[Structure]) -> Generator[Statement | Control, Any, dict[Structure, Error]]:
        """Compare declarations with the catalog; return what is wrong. Goes first in every transaction."""
        wanted = list(structures)
        try:
            stored = yield Statement(self.catalog.definition, [(each.name,) for each in wanted])
        except Missing as missing:
            return dict.fromkeys(wanted, missing)
        errors: dict[Structure, Error] = {}
        for structure, rows in zip(wanted, stored, strict=True):
            name = structure.name
            if not rows:
                errors[structure] = Missing(f"{name} is not in this database; store.create({name}) makes it")
            elif rows[0][0] != structure.definition:
                told = difference(rows[0][0], structure.definition)
                errors[structure] = Mismatch(f"{name} is declared otherwise than it is stored: {told}")
        return errors


def perform(atoms: Sequence[Atom], known: Known, context: Context) -> Performance:
    """Run atoms inside a transaction that is open; return the results of all their operations, errors among them."""
    structures = {id(op.structure): op.structure for atom in atoms for op in atom.operations}
    errors = yield from known.verify(dict.fromkeys(structures.values()))
    if errors:
        return (yield from _without(errors, atoms, known, context))
    operations = [op for atom in atoms for op in atom.operations]
    if len(structures) == 1:
        plan = known.plan(operations[0].structure).run(operations, context)
        outcome = yield from _until_locked(plan)
        return (yield from plan) if outcome is None else outcome

    groups: dict[str, list[int]] = {}
    for place, op in enumerate(operations):
        groups.setdefault(op.structure.name, []).append(place)
    plans = []
    for _, places in sorted(groups.items()):  # by name: the order of locks is (structure, key, slot)
        plan = known.plan(operations[places[0]].structure).run([operations[place] for place in places], context)
        plans.append((plan, places, (yield from _until_locked(plan))))
    results: list[Any] = [None] * len(operations)
    for plan, places, outcome in plans:
        for place, value in zip(places, (yield from plan) if outcome is None else outcome, strict=True):
            results[place] = value
    return results


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


def _without(errors: dict[Structure, Error], atoms: Sequence[Atom], known: Known, context: Context) -> Performance:
    refused = {
        id(atom): copy.copy(errors[op.structure]) for atom in atoms for op in atom.operations if op.structure in errors
    }
    rest = [atom for atom in atoms if id(atom) not in refused]
    answers = iter((yield from perform(rest, known, context)) if rest else [])
    results: list[Any] = []
    for atom in atoms:
        error = refused.get(id(atom))
        results += [next(answers) if error is None else error for _ in atom.operations]
    return results


class Batch:
    """The work of one turn: what is taken from the queue, run in a transaction, and answered."""

    def __init__(self, known: Known, context: Callable[[], Context], stats: Stats) -> None:
        self._known = known
        self._context = context
        self._stats = stats
        self.committing: Sequence[Atom] = ()  # whose COMMIT is under way

    def run(self, begin: Control, take: Callable[[], list[Atom]]) -> Work:
        """Begin, then take what waits by then, run it and answer it.

        An error of the first BEGIN is raised, with nothing taken. After that every atom taken has an answer.
        """
        yield begin
        parts = [take()]
        begun = True
        while parts:
            part = parts.pop()
            try:
                if not begun:
                    self._stats.retries += 1
                    yield begin
                begun = False
                results = yield from self._perform(begin, part)
                refused = self._refused(part, results)
                if refused:
                    yield Control.ROLLBACK
                    if len(part) == 1:
                        answer(part, results)
                        part[0].done = True
                        continue
                    rest = [atom for atom in part if atom not in refused]
                    parts += [[atom] for atom in reversed(refused)]
                    parts += [rest] if rest else []
                    continue
                answer(part, results)
                self.committing = part
                yield Control.COMMIT
                self.committed()
            except Error as error:
                yield Control.ROLLBACK
                if isinstance(error, StatementFailed) and len(part) > 1:
                    middle = len(part) // 2
                    parts += [part[middle:], part[:middle]]
                    continue
                refuse_all(part, error)
                if not isinstance(error, StatementFailed):
                    for other in parts:
                        refuse_all(other, error)
                    return
            except Exception as error:  # a defect, or the caller's own trace function: the others must not suffer
                yield Control.ROLLBACK
                if len(part) > 1:
                    middle = len(part) // 2
                    parts += [part[middle:], part[:middle]]
                else:
                    part[0].refuse(error)

    def _perform(self, begin: Control, part: Sequence[Atom]) -> Performance:
        try:
            return (yield from perform(part, self._known, self._context()))
        except Careful:
            yield Control.ROLLBACK
            yield begin
            self._stats.retries += 1
            return (yield from perform(part, self._known, self._context()._replace(careful=True)))

    @staticmethod
    def _refused(part: Sequence[Atom], results: list[Any]) -> list[Atom]:
        # The atoms for which the transaction must be undone: an error among several operations, or an error alone.
        if not has_errors(results):
            return []
        refused = []
        rest = iter(results)
        for atom in part:
            found = list(islice(rest, len(atom.operations)))
            if has_errors(found) and (len(found) > 1 or len(part) == 1):
                refused.append(atom)
        return refused

    def committed(self) -> None:
        """Answer those whose COMMIT went through."""
        for atom in self.committing:
            atom.done = True
        self._stats.batches += 1
        self._stats.operations += sum([len(atom.operations) for atom in self.committing])
        self.committing = ()


def joined(atom: Atom, known: Known, context: Context) -> Work:
    """Run one atom inside the application's own transaction, and answer it; nothing is committed."""
    yield Control.SAVEPOINT
    try:
        try:
            results = yield from perform([atom], known, context)
        except Careful:
            yield Control.BACK
            results = yield from perform([atom], known, context._replace(careful=True))
        answer([atom], results)
    except Exception as failed:
        atom.error = failed
    if atom.error is not None:
        yield Control.BACK
    yield Control.RELEASE
    atom.done = True


def has_errors(results: Sequence[Any]) -> bool:
    """Whether an error is among results."""
    return any([issubclass(kind, Error) for kind in set(map(type, results))])


def answer(atoms: Sequence[Atom], results: list[Any]) -> None:
    """Give each atom its results, or the first error among them."""
    errors = has_errors(results)
    place = 0
    for atom in atoms:
        end = place + len(atom.operations)
        atom.results = results[place:end]
        atom.error = next((each for each in atom.results if isinstance(each, Error)), None) if errors else None
        place = end
