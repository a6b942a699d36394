"""alter: bring what is stored to another declaration, in one transaction that holds the writer's lock.

What can change: a new column with a default or None, keep, on_full, on_duplicate, slots, the order of columns. What
cannot is refused with the reason, and nothing is changed.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from typing import Any

from roost.catalog.catalog import PRIVATE, Catalog, guarded
from roost.catalog.check import COLUMNS
from roost.dialects.dialect import Control, Dialect, Statement, Template, Wanted
from roost.errors import Busy, Error, Invalid, Missing, Overflow, StatementFailed
from roost.structures.capped.plan import CappedPlan
from roost.structures.counter.plan import CounterPlan
from roost.structures.plan import StructurePlan, each
from roost.structures.registry import from_definition
from roost.structures.ring.plan import RingPlan
from roost.structures.rows import RowStructure
from roost.structures.views.making import drop_view, found_view, make_view
from roost.structures.views.view import NO_VIEW
from roost.types.columns import Column

Changes = Generator[Wanted, Any, list[str]]
Facts = dict[str, Any]

_FIXED = {
    "kind": "it is another structure: create one under another name",
    "key": "every stored key would have to be told anew: create another structure and import into it",
    "member": "every stored member would have to be told anew: create another structure and import into it",
    "per": "the rows would belong to other keys: create another structure and import into it",
    "unique": "stored rows could clash: create another structure and import into it",
}


def alter(
    catalog: Catalog, plan: StructurePlan, view: bool | None = None, defaults: Mapping[str, Any] | None = None
) -> Changes:
    """Change what is stored to the plan's declaration; return what was changed, in words.

    view: add it, or drop it; None: as it is.
    defaults: what rows that are there get in an added column, by its name, instead of what the row's dataclass says.
    """
    structure = plan.structure
    yield Control.LOCK_CATALOG
    yield from guarded(catalog.dialect, PRIVATE, writes=True)
    found = yield Statement(catalog.lock, [(structure.name,)])
    if not found[0]:
        raise Missing(f"{structure.name} is not in this database; store.create({structure.name}) makes it")
    was = from_definition(found[0][0][0])  # `Invalid` for one that somebody else has written
    if was.name != structure.name:
        raise Invalid(f"{structure.name}: its definition is that of {was.name}")
    old, new = json.loads(found[0][0][0]), json.loads(structure.definition)
    for fact, reason in _FIXED.items():
        if old.get(fact) != new.get(fact):
            raise Invalid(f"{structure.name}: {fact} cannot change from {old.get(fact)} to {new.get(fact)}: {reason}")
    stored = yield from found_view(plan)
    had_view = bool(stored.objects)
    if view is False and stored.own:
        raise Invalid(f"{structure.name}: its view has triggers of your own, which would go with it; drop them first")
    if plan.dialect.transactional_ddl:
        dropped = (yield from drop_view(plan)) if view is False or old != new else NO_VIEW
        told = yield from _change(catalog, plan, found, old, new, defaults or {})
        if view or (view is None and dropped.objects):
            yield from make_view(plan, dropped)
    else:
        if had_view and old != new:  # one of an older version may have what is to be changed written into it
            yield from make_view(type(plan)(was, plan.dialect))
        told = yield from _change(catalog, plan, found, old, new, defaults or {})
        try:
            if view is False:
                yield from drop_view(plan)
            elif view or had_view:
                yield from make_view(plan)
        except Error as error:
            if not told:
                raise
            raise type(error)(
                f"{structure.name} was changed ({', '.join(told)}), but not its view: {error}; "
                f"store.alter({structure.name}{'' if view is None else f', view={view}'}) again does the rest"
            ) from error
    if view is not None and view is not had_view:
        told.append("view added" if view else "view dropped")
    return told


def _change(
    catalog: Catalog, plan: StructurePlan, found: Any, old: Facts, new: Facts, defaults: Mapping[str, Any]
) -> Changes:
    name = plan.structure.name
    if old != new:
        yield Statement(Template(catalog.former_table), [()])
        yield from guarded(catalog.dialect, PRIVATE, writes=True)
        yield from guarded(catalog.dialect, plan.layout, writes=True, inserts=isinstance(plan, CounterPlan))
    told = (yield from _columns(plan, old, new, defaults)) if "columns" in new else []
    if not plan.dialect.transactional_ddl:
        # What was made so far is committed, and the lock is gone. A column that is there already, with its default, is
        # in nobody's way if this ends here.
        yield Control.BEGIN_ALONE
        again = yield Statement(catalog.lock, [(name,)])
        if again != found:
            raise Busy(f"{name}: another process changed it meanwhile")
    for fact, change in (("slots", _slots), ("keep", _keep)):
        if old.get(fact) != new.get(fact):
            yield from change(plan, old, new)
            told.append(f"{fact}: {old[fact]} -> {new[fact]}")
    if old != new:
        yield Statement(catalog.outdated, [(name, name)])
        yield Statement(catalog.remember, [(name,)])
        yield Statement(catalog.change, [(plan.structure.definition, name)])
    return told + [
        f"{fact}: {old[fact]} -> {new[fact]}" for fact in ("on_full", "on_duplicate") if old.get(fact) != new.get(fact)
    ]


def _columns(plan: StructurePlan, old: Facts, new: Facts, given: Mapping[str, Any]) -> Changes:
    structure = plan.structure
    assert isinstance(structure, RowStructure)
    before, after = dict(old["columns"]), dict(new["columns"])
    for name, spec in before.items():
        if name not in after:
            raise Invalid(f"{structure.name}: column {name} cannot go: what it holds would be lost")
        if after[name] != spec:
            raise Invalid(
                f"{structure.name}: column {name} cannot change from {spec} to {after[name]}: stored values might not "
                "fit; add a column of another name"
            )
    added = [column for column in structure.columns if column.name not in before]
    there: set[str] = set()  # since an alter that was cut short
    if added and not plan.dialect.transactional_ddl:
        found = yield Statement(each(plan.dialect.choose(COLUMNS)), [(plan.rows_table,)])
        there = {row[0] for row in found[0]}
    for column in added:
        if column.name in given:
            value = column.checker(structure.name)(given[column.name])
        else:
            value = _default(structure, column)
        declared = plan.dialect.declared(column)
        stored = _literal(plan.dialect, column, value)
        if plan.dialect.name == "mysql" and " MEDIUM" in declared:
            stored = f"({stored})"  # of so long a column it takes an expression alone (1101)
        if column.name not in there:
            yield Statement(Template(f"ALTER TABLE {plan.rows_table} ADD COLUMN {declared} DEFAULT {stored}"), [()])
    told = [f"column {column.name} ({column.spec}) added" for column in added]
    if not told and list(before) != list(after):
        told = ["the order of the columns"]
    return told


def _default(structure: RowStructure[Any, Any], column: Column) -> Any:
    try:
        value = structure.rows.default(column)
    except LookupError:
        raise Invalid(
            f"{structure.name}: column {column.name} cannot be added without a default or `| None`: what would the "
            "rows have that are there?"
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
    if dialect.name == "mariadb" and (not text or "'" in text or "\\" in text):
        # MariaDB keeps the default of a long column as SQL, writes quotes and backslashes into it by one sql_mode, and
        # reads it by that of whoever opens the table.
        return f"(CONVERT(X'{text.encode().hex()}' USING utf8mb4))"
    return dialect.literal(text)


def _slots(plan: StructurePlan, old: Facts, new: Facts) -> Generator[Statement, Any, None]:
    assert isinstance(plan, CounterPlan)
    before, after = old["slots"] or plan.dialect.slots, plan.slots
    key = plan.dialect.names(plan.structure.key.columns)
    table = plan.rows_table
    try:
        for slot in range(after, before):
            moved = f"SELECT {key}, 0, n FROM {table} WHERE slot = {slot}"
            if plan.dialect.family == "mariadb":
                moved = f"SELECT * FROM (SELECT {key}, 0 AS slot, n AS total FROM {table} WHERE slot = {slot}) moved"
                put = (
                    f"INSERT INTO {table} ({key}, slot, n) {moved}\n"
                    f"  ON DUPLICATE KEY UPDATE n = {table}.n + moved.total"
                )
            else:
                put = (
                    f"INSERT INTO {table} AS r ({key}, slot, n) {moved}\n"
                    f"  ON CONFLICT ({key}, slot) DO UPDATE SET n = r.n + excluded.n"
                )
            yield Statement(Template(put), [()])
    except StatementFailed as error:
        raise Overflow(f"{plan.structure.name}: a total would not fit into {after} slots: {error}") from error
    yield Statement(Template(f"DELETE FROM {table} WHERE slot >= {after}"), [()])


def _keep(plan: StructurePlan, old: Facts, new: Facts) -> Generator[Statement, Any, None]:
    keep = new["keep"]
    rows, head = plan.rows_table, plan.head_table
    key = plan.structure.key.columns
    names = plan.dialect.names(key)
    if isinstance(plan, RingPlan):
        yield Statement(
            Template(
                f"DELETE FROM {rows} WHERE sequence <= (SELECT h.sequence FROM {head} h\n"
                f"  WHERE {plan.dialect.same(key, 'h.', f'{rows}.')}) - {keep}"
            ),
            [()],
        )
        # By way of negative slots: a row never lands on one that has yet to move.
        slot = plan.dialect.modulo.format("sequence", keep)
        yield Statement(Template(f"UPDATE {rows} SET slot = -1 - {slot}"), [()])
        yield Statement(Template(f"UPDATE {rows} SET slot = -1 - slot"), [()])
        return
    assert isinstance(plan, CappedPlan)
    if keep > old["keep"]:
        return
    if "reject" in (old["on_full"], new["on_full"]):
        found = yield Statement(each(f"SELECT count(*) FROM {head} WHERE n > {keep}"), [()])
        if found[0][0][0]:
            raise Invalid(
                f"{plan.structure.name}: keep cannot go down to {keep} while {found[0][0][0]} keys hold more: a "
                "collection that rejects never drops a row; remove some first"
            )
    ids = plan.dialect.names(plan.structure.id.columns)
    yield Statement(
        Template(
            f"DELETE FROM {rows} WHERE ({names}, {ids}) IN (SELECT {names}, {ids} FROM (SELECT {names}, {ids}, "
            f"row_number() OVER (PARTITION BY {names} ORDER BY sequence DESC) AS place FROM {rows}) ranked "
            f"WHERE place > {keep})"
        ),
        [()],
    )
    yield Statement(
        Template(
            f"UPDATE {head} SET n = (SELECT count(*) FROM {rows} r WHERE {plan.dialect.same(key, 'r.', f'{head}.')})\n"
            f"  WHERE n > {keep}"
        ),
        [()],
    )
