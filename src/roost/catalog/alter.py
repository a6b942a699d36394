"""alter: change the stored structure to another declaration, in one transaction that holds the writer's lock.

These can change: a new column with a default or None, keep, on_full, on_duplicate, slots, the order of columns. Any
other change is refused with the reason, and nothing is changed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from roost.catalog.catalog import CHANGE, COLUMNS, Catalog, former_definitions, lock
from roost.catalog.private import PRIVATE, guarded
from roost.dialects.dialect import Control, Dialect, Statement, Wanted, execute, fetch
from roost.errors import Busy, Error, Invalid, Missing
from roost.structures import making
from roost.structures.clock import fact_in_words
from roost.structures.plan import Facts, StructurePlan
from roost.structures.registry import from_definition
from roost.structures.rows import RowStructure
from roost.structures.steps import Routine
from roost.structures.structure import Structure
from roost.types.columns import Column

Changes = Generator[Wanted, Any, list[str]]
_COPY = "create another structure and import into it"
_REASONS = {
    "kind": "it is another structure: create one under another name",
    "key": f"every stored key would have to be written anew: {_COPY}",
    "member": f"every stored member would have to be written anew: {_COPY}",
    "per": f"the rows would belong to other keys: {_COPY}",
    "unique": f"stored rows could clash: {_COPY}",
}


def alter(
    catalog: Catalog,
    plan: StructurePlan,
    view: bool | None = None,
    defaults: Mapping[str, Any] | None = None,
    *,
    keep_columns: bool = False,
) -> Changes:
    """Alter the stored structure to the plan's declaration; return the changes, as text.

    view: True adds the view, False drops it; None leaves it as it is.
    defaults: the values that existing rows get in added columns, by column name, instead of the dataclass's defaults.
    keep_columns: stored columns that the declaration lacks stay: for going back to an earlier one.
    """
    structure = given = plan.structure
    yield from lock(catalog)
    yield from guarded(catalog.dialect, PRIVATE, writes=True)
    definition = yield from catalog.stored(structure.name, lock=True)
    if definition is None:
        raise Missing(f"{structure.name} is not in this database; store.create({structure.name}) makes it")
    was = from_definition(definition)  # `Invalid` for one that somebody else has written
    if was.name != structure.name:
        raise Invalid(f"{structure.name}: its definition is that of {was.name}")
    old, new = json.loads(definition), json.loads(structure.definition)
    if keep_columns and "columns" in old and "columns" in new:
        declared = dict(new["columns"])
        new["columns"] += [column for column in old["columns"] if column[0] not in declared]
        structure = from_definition(json.dumps(new))
        plan = type(plan)(structure, plan.dialect)
    for fact in dict.fromkeys(["kind", *old, *new]):
        if old.get(fact) != new.get(fact) and fact not in (*structure.options, "columns"):
            reason = _REASONS.get(fact, _COPY)
            before, after = (fact_in_words(fact, facts.get(fact)) for facts in (old, new))
            raise Invalid(f"{structure.name}: {fact} cannot change from {before} to {after}: {reason}")
    added = _added(given, old, new, defaults or {})  # by its own defaults, which no definition has
    stored = yield from making.found_view(plan)
    had_view = bool(stored.objects)
    former = yield from former_definitions(catalog, structure.name)
    programs = making.all_programs(plan, [*former, definition])
    if view is False and stored.own:
        raise Invalid(f"{structure.name}: its view has triggers of your own, which would go with it; drop them first")
    anew = False
    if had_view and old != new:
        anew = yield from making.lock_view(plan)
        if plan.dialect.replaces and not plan.dialect.transactional_ddl:  # an older version's may have what is changed
            yield from making.make_view(type(plan)(was, plan.dialect))
    changes = yield from _change(catalog, plan, programs, definition, old, new, added)
    try:
        if view is False:
            yield from making.drop_view(plan)
        elif view or had_view:
            yield from making.make_view(plan, anew)
    except Error as error:
        if not changes or plan.dialect.transactional_ddl:
            raise
        raise type(error)(
            f"{structure.name} was changed ({', '.join(changes)}), but not its view: {error}; "
            f"store.alter({structure.name}{'' if view is None else f', view={view}'}) again does the rest"
        ) from error
    dropped = yield from making.drop_programs(plan, programs)  # by now the view calls the new ones
    if dropped and not plan.dialect.replaces:
        yield from _settle(plan, old, new, plan.settled.keys() & new)
    if view is not None:
        yield catalog.set_view(structure.name, view)
    if view is not None and view is not had_view:
        changes.append("view added" if view else "view dropped")
    return changes


def _change(
    catalog: Catalog,
    plan: StructurePlan,
    programs: Sequence[Routine],
    definition: str,
    old: Facts,
    new: Facts,
    added: Sequence[tuple[Column, Any]],
) -> Changes:
    name = plan.structure.name
    # A call above READ COMMITTED that has waited for the `alter` before this one went by the former declaration.
    late = old == new and plan.late and (yield from fetch(plan.late))
    if old != new or late:
        if plan.altering:  # after the view's lock: who writes through the view takes both in this order
            yield execute(plan.altering)
        yield from guarded(catalog.dialect, plan.layout, writes=True, inserts="columns" not in new)
    changes = (yield from _columns(plan, added)) if "columns" in new else []
    if not changes and "columns" in new and list(old["columns"]) != list(new["columns"]):
        changes = ["the order of the columns"]
    if not plan.dialect.replaces:  # beside those that are called, before the catalog tells of them
        yield from making.make_programs(plan, [each for each in programs if each.name.startswith("roost_")])
    if not plan.dialect.transactional_ddl:
        # The statements so far are committed, and the lock is released. If this ends here, the added column, which has
        # a default, does no harm.
        yield Control.BEGIN_ALONE
        if (yield from catalog.stored(name, lock=True)) != definition:
            raise Busy(f"{name}: another process changed it meanwhile")
    changed = ["keep"] if late else [each for each in plan.structure.options if old.get(each) != new.get(each)]
    for fact in changed:
        if fact in plan.alterations:
            yield from plan.alterations[fact](plan, old, new)
    if old != new:
        yield from _replace_definition(catalog, plan.structure)
    yield from making.make_programs(plan, programs)
    if plan.dialect.replaces and not plan.dialect.transactional_ddl:
        yield from _settle(plan, old, new, plan.settled.keys() & {*changed})
    return changes + [
        f"{fact}: {'of a late call' if late else fact_in_words(fact, old.get(fact))} ->"
        f" {fact_in_words(fact, new.get(fact))}"
        for fact in changed
    ]


def _replace_definition(catalog: Catalog, structure: Structure) -> Generator[Statement, Any, None]:
    # The former one is remembered. Those of a structure of this name that was dropped go: its versions begin anew.
    name, this = structure.name, "FROM roost_catalog WHERE name = ?"
    outdated = f"DELETE FROM roost_former WHERE name = ? AND version >= (SELECT version {this})"
    yield catalog.change(outdated, name, name)
    columns = "name, version, definition"
    yield catalog.change(f"INSERT INTO roost_former ({columns})\n  SELECT {columns} {this}", name)
    yield catalog.change(CHANGE, structure.definition, name)


def _settle(plan: StructurePlan, old: Facts, new: Facts, facts: Collection[str]) -> Generator[Wanted, Any, None]:
    # Until a program was replaced or dropped, which ends the transaction, its calls went by the former declaration.
    if facts:
        yield Control.BEGIN_ALONE
    for fact in facts:
        with suppress(Invalid):  # a collection that rejects drops no row
            yield from plan.settled[fact](plan, old, new)


def _added(structure: Structure, old: Facts, new: Facts, given: Mapping[str, Any]) -> Sequence[tuple[Column, Any]]:
    # The new columns, each with the value of the rows that are there; `Invalid` where columns cannot change so.
    if not isinstance(structure, RowStructure):
        return []
    before, after = dict(old["columns"]), dict(new["columns"])
    for name, spec in before.items():
        if name not in after:
            raise Invalid(f"{structure.name}: column {name} cannot be dropped: its values would be lost")
        if after[name] != spec:
            raise Invalid(
                f"{structure.name}: column {name} cannot change from {spec} to {after[name]}: stored values might not "
                "fit; add a column of another name"
            )
    return [(each, _value(structure, each, given)) for each in structure.columns if each.name not in before]


def _columns(plan: StructurePlan, added: Sequence[tuple[Column, Any]]) -> Changes:
    there: set[str] = set()  # since an alter that was cut short
    if added and not plan.dialect.transactional_ddl:
        there = {name for name, *_ in (yield from fetch(plan.dialect.choose(COLUMNS), plan.rows_table))}
    for column, value in added:
        declared = plan.dialect.declared(column)
        stored = _literal(plan.dialect, column, value)
        if plan.dialect.name == "mysql" and " MEDIUM" in declared:
            stored = f"({stored})"  # of so long a column it takes an expression alone (1101)
        if column.name not in there:
            yield execute(f"ALTER TABLE {plan.rows_table} ADD COLUMN {declared} DEFAULT {stored}")
    return [f"column {column.name} ({column.spec}) added" for column, _ in added]


def _value(structure: RowStructure[Any, Any], column: Column, given: Mapping[str, Any]) -> Any:
    try:
        value = given[column.name] if column.name in given else structure.rows.default(column)
    except LookupError:
        raise Invalid(
            f"{structure.name}: column {column.name} cannot be added without a default or `| None`: existing "
            "rows need a value"
        ) from None
    return column.checker(structure.name)(value)


def _literal(dialect: Dialect, column: Column, value: Any) -> str:
    encode = dialect.encoder([column])
    (stored,) = encode((value,)) if encode else (value,)
    match stored:
        case None:
            return "NULL"
        case int() | float():
            return repr(stored)
        case bytes():
            return dialect.literal(f"\\x{stored.hex()}") if dialect.name == "postgresql" else f"X'{stored.hex()}'"
    if "\x00" in str(stored):
        raise Invalid(f"{column.name}: a default cannot hold NUL")
    text = str(stored)
    if dialect.family == "mariadb" and ("'" in text or dialect.literal(text) != f"'{text}'"):
        # The default of a long column is kept as SQL: quotes, backslashes and what is not plain ASCII are written into
        # it by one sql_mode, or as no sql_mode reads it, and read by that of whoever opens the table.
        return f"(CONVERT(X'{text.encode().hex()}' USING utf8mb4))"
    return dialect.literal(text)
