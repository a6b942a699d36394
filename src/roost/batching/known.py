"""The plans of a store. Runs operations of several structures in one transaction, comparing declarations. No I/O."""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from roost.batching.atoms import Atom
from roost.batching.once import Once
from roost.batching.overlap import run_overlapping
from roost.batching.stats import Stats
from roost.catalog.catalog import Catalog
from roost.dialects.dialect import Control, Dialect, Exchange, Row, Statement, Together, Wanted
from roost.errors import Error, Invalid, Mismatch, Missing, StatementFailed
from roost.structures.index.declaration import Index
from roost.structures.index.plan import IndexPlan
from roost.structures.operation import READS, Operation, Target
from roost.structures.overlap import difference
from roost.structures.plan import Careful, Context, Plan, Question, StructurePlan, TargetPlan, each
from roost.structures.registry import plan_for
from roost.structures.structure import Structure
from roost.types.column_types import shown

log = logging.getLogger("roost")

MOST_INDEXES = 1000  # plans of indexes that one store caches
MOST_STORES = 64  # stores that a plan remembers as having its declaration


class Known:
    """The plans of a store, in its dialect, and the declarations that its database was found to have.

    exact: a declaration must equal the stored one; otherwise a compatible one runs by the stored declaration.
    """

    def __init__(self, dialect: Dialect, *, exact: bool = False) -> None:
        self.dialect = dialect
        self.catalog = Catalog(dialect)
        self.once = Once(dialect)
        self._indexes: dict[Target, IndexPlan] = {}
        self.stats = Stats()
        self.made_by = ""  # how structures are made, for messages, if not by the store's create()
        self._exact = exact
        # A plan keeps this token in `trusted_by` while its declaration is in this store's catalog, as last compared.
        # Not the store itself, since a declaration may outlive it.
        self.token = object()
        self._logged: set[tuple[int, str]] = set()  # the structures whose difference was logged, with the process id

    def speak(self, dialect: Dialect) -> None:
        """Go on in another dialect, before anything was said: the server has told which it has."""
        self.catalog.speak(dialect)
        self.once.speak(dialect)
        self._indexes.clear()
        self.dialect = dialect

    def target(self, target: Target) -> TargetPlan:
        """Return the plan of a structure or index in this store's dialect."""
        return self.plan(target) if isinstance(target, Structure) else self._index(target)

    def _index(self, target: Target) -> IndexPlan:
        plan = self._indexes.get(target)
        if plan is None:
            if len(self._indexes) >= MOST_INDEXES:
                self._indexes.clear()
            assert isinstance(target, Index)
            plan = self._indexes[target] = IndexPlan(target, self.dialect)
        return plan

    def plan(self, structure: Structure) -> StructurePlan:
        """Return the structure's plan in this store's dialect."""
        plan: StructurePlan | None = structure.plans.get(self.dialect.name)
        if plan is None:
            plan = structure.plans[self.dialect.name] = plan_for(structure, self.dialect)
        return plan

    def _trust(self, plan: StructurePlan, found: bool) -> None:
        if not found:
            plan.trusted_by.discard(self.token)
        elif self.token not in plan.trusted_by:
            if len(plan.trusted_by) >= MOST_STORES:
                plan.trusted_by.clear()
            plan.trusted_by.add(self.token)

    def refuses(self, atom: Atom) -> bool:
        """Answer an atom with `Invalid` if it has a value that this dialect cannot store; return whether it has.

        This is checked before any statement, so that the value does not affect the other atoms of the batch.
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

    def exchange(self, atom: Atom, context: Context) -> Exchange | None:
        """Return an atom of one writing operation as a single exchange, if a server has its declaration; else None."""
        op = atom.operations[0]
        structure = op.structure
        if len(atom.operations) > 1 or op.verb in READS or not isinstance(structure, Structure):
            return None
        plan = self.plan(structure)
        if not self.dialect.exchanges or self.token not in plan.trusted_by:
            return None
        make = plan.transactions.get(op.verb)
        made = None if make is None else make(op, context)
        return made if isinstance(made, Exchange) else None

    def heads(self, atom: Atom) -> set[tuple[str, Row]]:
        """Return the keys that an atom locks: names of structures, with keys as they are stored."""
        return {
            (op.structure.name, head)
            for op in atom.operations
            if op.verb not in READS
            for head in self.target(op.structure).heads_of(op)
        }

    def work(self, target: Target, operations: Sequence[Operation[Any]], context: Context, only: bool = False) -> Plan:
        """Compare a declaration with the catalog, once in every transaction, and run operations of the structure.

        If the declarations were equal before, the plan's first statement is sent along with the comparison. If they
        differ now, that statement is undone, and the batch runs again, comparing before it writes. An index of a table
        is in no catalog, so it is not compared.

        only: the transaction has no other operations.
        """
        if not isinstance(target, Structure):
            return (yield from self._index(target).run(operations, context, only))
        structure = target
        plan = self.plan(structure)
        if plan.routines:
            return (yield from self._call(plan, operations, context, only))
        held = plan.held is not plan.stored and any([op.verb not in READS for op in operations])
        held_by = plan.held_nowait if context.nowait else plan.held
        question = held_by if held else plan.stored
        trusted = self.token in plan.trusted_by
        if trusted and self.dialect.exchanges and not context.joined and not context.careful:
            work = plan.run(operations, context)
            wanted = next(work, None)
            if isinstance(wanted, Statement):
                first = plan.compared if held and not context.nowait else (question,)
                try:
                    *_, stored, answer = yield Together((*first, wanted))
                except (Missing, StatementFailed):
                    raise Careful from None
                if not stored[0] or stored[0][0][0] != structure.definition:
                    raise Careful
                results: list[Any] = yield from _resumed(work, answer)
                return results
        asked = _question(plan, operations, context, only) if trusted else None
        if asked is not None and (rows := (yield Statement(each(asked.sql), [asked.row], last=True))[0]):
            return [asked.answer(rows)]
        definition = yield from self._stored(plan, question)
        if isinstance(definition, Missing):
            return [definition] * len(operations)
        trusted = definition == structure.definition
        self._trust(plan, trusted)
        found = plan if trusted else plan.as_stored(definition)
        if isinstance(found, Error):
            return [found] * len(operations)
        if found.overlaps:
            if mismatch := self._overlap(structure, definition, len(operations)):
                return [mismatch] * len(operations)
            return (yield from run_overlapping(found, operations, context))
        return (yield from found.run(operations, context))

    def _call(self, plan: StructurePlan, operations: Sequence[Operation[Any]], context: Context, only: bool) -> Plan:
        # Its promise is in the database's programs, so the declaration is compared only when this store first uses it,
        # and again after a program or a table was not found, or did not take what it was given.
        structure = plan.structure
        followed = plan.followed.get(self.token)
        if (followed or self.token in plan.trusted_by) and not context.careful:
            try:
                if followed is not None:
                    self.stats.overlaps += len(operations)
                    return (yield from run_overlapping(followed, operations, context))
                if (asked := _question(plan, operations, context, only)) is not None:
                    return [asked.answer((yield Statement(each(asked.sql), [asked.row], last=True))[0])]
                return (yield from plan.run(operations, context))
            except (Missing, StatementFailed) as error:
                if isinstance(error, StatementFailed) and error.word not in ("routine", "type", "error"):
                    raise  # "error": among others, a column that is not there
                raise Careful from None
        self._trust(plan, False)
        plan.followed.pop(self.token, None)
        definition = yield from self._stored(plan, plan.stored)
        if isinstance(definition, Missing):
            return [definition] * len(operations)
        found = plan
        if definition != structure.definition:
            stored = plan.as_stored(definition)
            if isinstance(stored, Error):
                return [stored] * len(operations)
            if wrong := self._overlap(structure, definition, len(operations)):
                return [wrong] * len(operations)
            found = stored
            if found.form == plan.form:
                found = plan  # what differs is in the programs
        try:
            if found is plan:
                self._trust(plan, True)
                return (yield from plan.run(operations, context))
            if len(plan.followed) >= MOST_STORES:
                plan.followed.clear()
            plan.followed[self.token] = found
            return (yield from run_overlapping(found, operations, context))
        except StatementFailed as error:
            if error.word != "routine":
                raise
            self._trust(plan, False)
            plan.followed.pop(self.token, None)
            raise Missing(f"{error}; store.create({structure.name}) makes the programs that are missing") from error

    def _stored(self, plan: StructurePlan, question: Statement) -> Generator[Wanted, Any, str | Missing]:
        # The stored definition.
        try:
            stored = (yield question)[0]
        except Missing as missing:
            return self._missing(plan) if self.made_by else missing
        definition: str | Missing = stored[0][0] if stored else self._missing(plan)
        return definition

    def _overlap(self, structure: Structure, definition: str, operations: int) -> Mismatch | None:
        # Whether operations of another declaration than the stored one are refused.
        message = difference(definition, structure.definition)
        if self._exact:
            return Mismatch(f"{structure.name} is declared otherwise than it is stored: {message}")
        self.log_differences({structure.name: message})
        self.stats.overlaps += operations
        return None

    def _missing(self, plan: StructurePlan) -> Missing:
        # A table of the application's own is not made by Roost, so its plan has a text of its own.
        made_by = self.made_by if self.made_by and plan.tables else plan.made_by
        return Missing(f"{plan.structure.name} is not in this database; {made_by}")

    def log_differences(self, differences: Mapping[str, str]) -> None:
        """Log once in this process, for each structure, that another declaration of it is stored."""
        for name, message in differences.items():
            if (process := (os.getpid(), name)) not in self._logged:
                self._logged.add(process)
                log.warning("%s is stored with another declaration, which is used: %s", name, message)


def _question(
    plan: StructurePlan, operations: Sequence[Operation[Any]], context: Context, only: bool
) -> Question | None:
    # What asks for a single read, of an application's transaction, in one statement.
    if context.joined and only and len(operations) == 1 and operations[0].verb in READS:
        ask = plan.questions.get(operations[0].verb)
        return None if ask is None else ask(operations[0], context)
    return None


def _path_of_nul(values: tuple[Any, ...]) -> tuple[int, ...] | None:
    # The path to the first text with a NUL.
    for place, value in enumerate(values):
        if type(value) is str:
            if "\0" in value:
                return (place,)
        elif type(value) is tuple and (path := _path_of_nul(value)) is not None:
            return (place, *path)
    return None


def perform(operations: Sequence[Operation[Any]], known: Known, context: Context) -> Plan:
    """Run operations inside an open transaction; return their results, which may be errors."""
    structure = operations[0].structure
    for op in operations:
        if op.structure is not structure:
            return (yield from _perform_several(operations, known, context))
    return (yield from known.work(structure, operations, context, only=True))


def performed(operations: Sequence[Operation[Any]], known: Known, context: Context, once: str | None) -> Plan:
    """Run one atom's operations inside an open transaction, or return the results stored for its token."""
    work = perform(operations, known, context)
    if once is None:
        return work
    return known.once.perform(once, work, context, [f"{op.structure.name}.{op.verb}" for op in operations])


def _perform_several(operations: Sequence[Operation[Any]], known: Known, context: Context) -> Plan:
    results: list[Any] = [None] * len(operations)
    begun: list[tuple[str, Plan, list[int], list[Any] | None]] = []
    # Structures run in the order of their names, and every plan first only to the point where it holds its locks. So
    # locks are taken in the order (structure, key, slot), and nothing is written before all are held.
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
    # Resume a plan with the answer to its last question (None if it has asked none). Run it to its end and return its
    # results, or to the point where it yields `until`, and return None.
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
    # Group the operations that one plan runs together: those of one structure. Two declarations of one name that differ
    # (other row classes, or not as stored) form separate runs, so that the order inside a structure is kept.
    runs: list[tuple[Target, list[int]]] = []
    latest: dict[str, tuple[Target, list[int]]] = {}
    for place, op in enumerate(operations):
        run = latest.get(op.structure.name)
        if run is None or not op.structure.is_like(run[0]):
            run = latest[op.structure.name] = (op.structure, [])
            runs.append(run)
        run[1].append(place)
    return runs
