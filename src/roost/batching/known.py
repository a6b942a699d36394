"""The structures and indexes that a store has met: their plans, the declarations found in its database, and one run.

While a change is deployed, a declaration may differ from the stored one: then the stored one is used (`as_stored`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Mapping
from functools import lru_cache
from typing import Any

from roost.batching.atoms import Atom
from roost.batching.once import Once
from roost.batching.stats import Stats
from roost.catalog.catalog import COLUMNS, Catalog
from roost.catalog.private import owned
from roost.dialects.dialect import Dialect, Exchange, Row, Statement, Wanted, fetch, query
from roost.errors import Error, Invalid, Mismatch, Missing, StatementFailed
from roost.structures.index.plan import IndexPlan
from roost.structures.operation import READS, RUNS, Operation, Target
from roost.structures.plan import Careful, Context, Operations, Plan, StructurePlan, TargetPlan
from roost.structures.registry import plan_for
from roost.structures.rows import RowStructure
from roost.structures.structure import Structure, difference
from roost.types.column_types import shown

log = logging.getLogger("roost")

MOST_INDEXES = 1000  # plans of indexes that one store caches
MOST_STORES = 64  # stores for which a plan remembers what they have found

WRITING = frozenset(["push", "add", *RUNS])  # verbs whose arguments are rows


class Known:
    """The plans of a store, in its dialect, and the declarations that its database was found to have.

    exact: a declaration must equal the stored one; otherwise a compatible one runs by the stored declaration.
    """

    def __init__(self, dialect: Dialect, *, exact: bool = False) -> None:
        self.dialect = dialect
        self.catalog = Catalog(dialect)
        self.once = Once(dialect)
        self._index_plan = lru_cache(MOST_INDEXES)(lambda index: IndexPlan(index, self.dialect))
        self.stats = Stats()
        self.made_by = ""  # how structures are made, for messages, if not by the store's create()
        self._exact = exact
        # Under this token a plan keeps in `found_by` which plan this store runs by, as it has last compared them.
        # Not under the store itself, since a declaration may outlive it.
        self.token = object()
        self._owned: set[str] = set()  # tables whose users can trust the owners of the catalog's
        self._logged: set[tuple[int, str]] = set()  # the structures whose difference was logged, with the process id

    def speak(self, dialect: Dialect) -> None:
        """Go on in another dialect, before anything was said: the server has told which it has."""
        self.catalog.speak(dialect)
        self.once.speak(dialect)
        self._index_plan.cache_clear()
        self.dialect = dialect

    def target(self, target: Target) -> TargetPlan:
        """Return the plan of a structure or index in this store's dialect."""
        if isinstance(target, Structure):
            return self.plan(target)
        return self._index_plan(target)

    def plan(self, structure: Structure) -> StructurePlan:
        plan: StructurePlan | None = structure.plans.get(self.dialect.name)
        if plan is None:
            plan = structure.plans[self.dialect.name] = plan_for(structure, self.dialect)
        return plan

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
        if not self.dialect.is_server or plan.found_by.get(self.token) is not plan:
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

    def perform(self, operations: Operations, context: Context, once: str | None = None) -> Plan:
        """Run operations inside an open transaction; return their results, which may be errors.

        once: a token, if these are an atom's; the results stored for it are returned if there are any.
        """
        structure = operations[0].structure
        if all([op.structure is structure for op in operations]):
            work = self._run_target(structure, operations, context, only=True)
        else:
            work = self._run_targets(operations, context)
        if once is None:
            return work
        verbs = [f"{op.structure.name}.{op.verb}" for op in operations]
        return self.once.perform(once, self.trusts(self.target(structure)), work, context, verbs)

    def _run_targets(self, operations: Operations, context: Context) -> Plan:
        # Structures run in the order of their names, each with its keys in order, so that no two batches deadlock.
        results: list[Any] = [None] * len(operations)
        for structure, places in sorted(_runs(operations), key=lambda run: run[0].name):
            found = yield from self._run_target(structure, [operations[place] for place in places], context)
            for place, value in zip(places, found, strict=True):
                results[place] = value
        return results

    def _run_target(self, target: Target, operations: Operations, context: Context, only: bool = False) -> Plan:
        """Run operations of one structure, or of one index.

        A declaration is compared with the catalog when this store first uses it (`_run_programs`); that of a table
        which only `roost cap` has changed, whose cap the catalog alone knows, in each transaction. An index is in none.

        only: the transaction has no other operations.
        """
        plan = self.target(target)
        if isinstance(plan, IndexPlan):
            return (yield from plan.run(operations, context, only))
        assert isinstance(plan, StructurePlan)
        if plan.routines:
            return (yield from self._run_programs(plan, operations, context, only))
        found: str | Error | StructurePlan = yield from self._stored(plan)
        if isinstance(found, str):
            found = plan if found == plan.structure.definition else plan.as_stored(found)
        if isinstance(found, Error):
            return [found] * len(operations)
        return (yield from found.run(operations, context))

    def _run_programs(self, plan: StructurePlan, operations: Operations, context: Context, only: bool) -> Plan:
        # Its promise is in the database's programs, so the declaration is compared only when this store first uses it,
        # and again after a program or a table was not found, or did not take what it was given; and each time while a
        # column is not stored yet, since nothing else tells when it is.
        found = plan.found_by.get(self.token)
        if found is not None and not context.careful and (found is plan or not _absent(found)):
            try:
                if found is plan and context.joined and only and (ask := _question(plan, operations, context)):
                    return [ask.answer((yield Statement(query(ask.sql), [ask.row], last=True))[0])]
                if found is not plan:
                    self.stats.overlaps += len(operations)
                return (yield from _run_as_stored(found, plan, operations, context))
            except (Missing, StatementFailed) as error:
                if isinstance(error, StatementFailed) and error.word not in ("routine", "type", "error"):
                    raise  # "error": among others, a column that is not there
                raise Careful from None
        plan.found_by.pop(self.token, None)
        chosen = yield from self._chosen(plan, len(operations), context)
        if isinstance(chosen, Error):
            return [chosen] * len(operations)
        if len(plan.found_by) >= MOST_STORES:
            plan.found_by.clear()
        plan.found_by[self.token] = chosen
        try:
            return (yield from _run_as_stored(chosen, plan, operations, context))
        except (Missing, StatementFailed) as error:
            if isinstance(error, StatementFailed) and error.word != "routine":
                raise
            lacks = "" if chosen is plan else _lacks(chosen, error)
            if isinstance(error, Missing) and not lacks:
                raise
            if not context.careful:  # `alter` has dropped it since, or a snapshot shows what was before
                raise Careful from None
            if lacks:
                never = "no stored declaration ever had just the columns of this one"
                raise Mismatch(f"{plan.structure.name}: what is stored has {lacks}; {never}") from error
            plan.found_by.pop(self.token, None)
            made_by = f"store.create({plan.structure.name}) makes the programs that are missing"
            raise Missing(f"{error}; {made_by}") from error

    def _chosen(
        self, plan: StructurePlan, operations: int, context: Context
    ) -> Generator[Wanted, Any, StructurePlan | Error]:
        # The plan by which operations of this declaration run.
        structure = plan.structure
        definition = yield from self._stored(plan, context.careful and not self.dialect.replaces)
        if isinstance(definition, Error):
            return definition
        if definition == structure.definition:
            return plan
        stored = plan.as_stored(definition)
        if isinstance(stored, Error):
            return stored
        message = difference(definition, structure.definition)
        if self._exact:
            return Mismatch(f"{structure.name} is declared otherwise than it is stored: {message}")
        self.log_differences({structure.name: message})
        self.stats.overlaps += operations
        return plan if stored.form == plan.form else stored  # all else that differs is in the programs

    def _stored(self, plan: StructurePlan, current: bool = False) -> Generator[Wanted, Any, str | Error]:
        # The stored definition; current: as it is now, whatever a snapshot shows, and until the transaction ends.
        # A table of the application's own is not made by Roost, so it has a text of its own.
        made_by = self.made_by if self.made_by and plan.tables else plan.made_by
        missing = Missing(f"{plan.structure.name} is not in this database; {made_by}")
        try:
            if not (yield from self.trusts(plan)):
                return missing
            stored = (yield plan.current if current else plan.stored)[0]
        except Missing as error:  # raised, since PostgreSQL's transaction has failed
            raise (missing if self.made_by else error) from error.__cause__
        except Invalid as error:
            return error
        return stored[0][0] if stored else missing

    def trusts(self, target: TargetPlan) -> Generator[Wanted, Any, bool]:
        """Return whether who uses it may touch the catalog's tables (see `owned`). It stays so: it is asked once."""
        table = target.rows_table if isinstance(target, StructurePlan) and target.layout else target.structure.name
        trusts = table in self._owned or (yield from owned(self.dialect, table))
        if trusts:
            self._owned.add(table)
        return trusts

    def log_differences(self, differences: Mapping[str, str]) -> None:
        """Log once in this process, for each structure, that another declaration of it is stored."""
        for name, message in differences.items():
            if (process := (os.getpid(), name)) not in self._logged:
                self._logged.add(process)
                log.warning("%s is stored with another declaration, which is used: %s", name, message)


def _question(plan: StructurePlan, operations: Operations, context: Context) -> Any:
    # What asks for a single read, of an application's transaction, in one statement.
    ask = plan.questions.get(operations[0].verb) if len(operations) == 1 and operations[0].verb in READS else None
    return None if ask is None else ask(operations[0], context)


def _run_as_stored(found: StructurePlan, plan: StructurePlan, operations: Operations, context: Context) -> Plan:
    # Operations of a plan's declaration, by the plan of what is stored. `Mismatch` only if a value would be lost, or if
    # a column needs a value that the operation does not have.
    structure = found.structure
    if found is plan or not isinstance(structure, RowStructure):
        return (yield from found.run(operations, context))
    demanded = ""
    unknown = {column.name for column in structure.rows.unknown if not column.nullable}
    if unknown and any([op.verb in WRITING for op in operations]):
        columns = yield from fetch(found.dialect.choose(COLUMNS), found.rows_table)
        needed = {name for name, _, not_null, has_default in columns if not_null and not has_default}
        demanded = ", ".join(sorted(unknown & needed))
    refused = [_refused(structure, op, demanded) for op in operations]
    wanted = [op for op, error in zip(operations, refused, strict=True) if error is None]
    results = iter((yield from found.run(wanted, context)) if wanted else ())
    return [next(results) if error is None else error for error in refused]


def _absent(found: StructurePlan) -> tuple[str, ...]:
    # The columns that are declared and not stored.
    return found.structure.rows.absent if isinstance(found.structure, RowStructure) else ()


def _lacks(stored: StructurePlan, error: Error) -> str:
    # The columns without which no program was made: the declaration that lacks them was never stored here.
    structure = stored.structure
    if not isinstance(structure, RowStructure) or not any(each.name in str(error) for each in stored.routines):
        return ""
    return ", ".join(sorted(each.name for each in structure.rows.unknown))


def _refused(structure: RowStructure[Any, Any], op: Operation[Any], demanded: str) -> Mismatch | None:
    if op.verb not in WRITING:
        return None
    if demanded:
        return Mismatch(f"{op!r}: what is stored has {demanded}, without a default; the declaration lacks it")
    for row in op.args:
        if lost := structure.rows.loses(row):
            return Mismatch(
                f"{op!r}: the column {lost} is only in the declaration; store.alter({structure.name}) adds it"
            )
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


def _runs(operations: Operations) -> list[tuple[Target, list[int]]]:
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
