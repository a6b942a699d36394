"""check: verifies every promise about the tables, each by a query for its violations. Reads everything."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from roost.catalog.catalog import COLUMNS, Catalog, listed
from roost.catalog.private import PRIVATE, strange
from roost.dialects.conditions import no_utf8, wrong
from roost.dialects.dialect import Statement, fetch
from roost.errors import Invalid
from roost.structures import making
from roost.structures.plan import MORE, MOST, Rule, StructurePlan
from roost.structures.registry import from_definition, plan_for
from roost.types.columns import Column

INDEX = {
    "sqlite": "SELECT 1 FROM sqlite_master WHERE type = 'index' AND name = ? AND tbl_name = ?",
    "mariadb": "SELECT 1 FROM information_schema.statistics\n"
    "  WHERE table_schema = DATABASE() AND index_name = %s AND table_name = %s",
    "postgresql": "SELECT 1 FROM pg_index WHERE indexrelid = to_regclass(%s)::oid AND indrelid = to_regclass(%s)::oid",
}
# The columns of a table's primary key, and what else it must not be.
FORM = {
    "mariadb": """\
SELECT s.column_name,
    (SELECT IF(t.engine <> 'InnoDB', CONCAT('is stored by ', t.engine), NULL) FROM information_schema.tables t
      WHERE t.table_schema = DATABASE() AND t.table_name = {table}),
    (SELECT MAX(CONCAT('compares texts by ', c.collation_name)) FROM information_schema.columns c
      WHERE c.table_schema = DATABASE() AND c.table_name = {table}
        AND c.collation_name NOT IN ('utf8mb4_nopad_bin', 'utf8mb4_0900_bin'))
  FROM information_schema.statistics s
  WHERE s.table_schema = DATABASE() AND s.table_name = {table} AND s.index_name = 'PRIMARY' ORDER BY s.seq_in_index""",
    "postgresql": """\
SELECT (SELECT string_agg(a.attname::text, ', '::text ORDER BY k.place)
    FROM pg_index i CROSS JOIN unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, place)
      JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
    WHERE i.indrelid = c.oid AND i.indisprimary),
  CASE WHEN c.relpersistence <> 'p' THEN 'is not logged' END,
  (SELECT 'has the rule ' || max(r.rulename::text) FROM pg_rewrite r WHERE r.ev_class = c.oid),
  (SELECT 'compares texts by ' || max(a.attcollation::regcollation::text) FROM pg_attribute a
    WHERE a.attrelid = c.oid AND a.attnum > 0 AND a.attcollation NOT IN (0, 'pg_catalog."C"'::regcollation::oid))
  FROM pg_class c WHERE c.oid = to_regclass({table})::oid""",
}
TABLES = {
    "sqlite": r"SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'roost\_%' ESCAPE '\'",
    "mariadb": "SELECT table_name FROM information_schema.tables\n"
    "  WHERE table_schema = DATABASE() AND left(table_name, 6) = 'roost_'",
    "postgresql": "SELECT tablename FROM pg_tables\n"
    "  WHERE schemaname = current_schema() AND left(tablename, 6) = 'roost_'",
}


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was found broken.

    `key` is None if the rule is not about one key. At most 100 are reported per rule, plus one that says so.
    """

    structure: str
    rule: str
    key: Any
    detail: str

    def __str__(self) -> str:
        where = self.structure if self.key is None else f"{self.structure}[{self.key!r}]"
        return f"{where}: {self.rule}: {self.detail}"


MADE = ("catalog", "program", "tables", "view")  # the rules about what is made by statements, one after the other

Checking = Generator[Statement, Any, list[Violation]]
Broken = list[tuple[str, Any, str]]  # the rule, the key, and what is wrong


def check(catalog: Catalog, names: Sequence[str]) -> Checking:
    """Verify the structures of these names (all, when there is none); return what is broken.

    No query is sent twice: what an account may do, and what a server has, is asked for each structure.
    """
    work = _checked(catalog, names)
    answers: dict[tuple[Any, ...], Any] = {}
    ahead, given = work.send, None
    while True:
        try:
            wanted = ahead(given)
        except StopIteration as ended:
            result: list[Violation] = ended.value
            return result
        query = (wanted.template, repr(wanted.rows))  # which may have lists
        try:
            if query not in answers:
                answers[query] = yield wanted
            ahead, given = work.send, answers[query]
        except Exception as error:
            ahead, given = work.throw, error


def _checked(catalog: Catalog, names: Sequence[str]) -> Checking:
    found: list[Violation] = []
    entries = yield from listed(catalog)
    stored = {name: definition for name, _, definition in entries}
    found += [Violation(name, "catalog", None, "is not in the catalog") for name in names if name not in stored]
    private, unread = {*PRIVATE}, []
    viewed = (yield from fetch("SELECT name FROM roost_catalog WHERE has_view")) if stored else []
    for name, definition in stored.items():
        try:
            plan = plan_for(from_definition(definition), catalog.dialect)
        except Invalid as error:
            found.append(Violation(name, "catalog", None, str(error)))
            unread.append(f"roost_{name}_")
            continue
        private |= set(plan.layout)
        if names and name not in names:
            continue
        if plan.structure.name != name:
            found.append(Violation(name, "catalog", None, f"its definition is that of {plan.structure.name}"))
        else:
            found += [Violation(name, *broken) for broken in (yield from _broken(plan, (name,) in viewed))]
    if not names:
        tables = yield from fetch(catalog.dialect.choose(TABLES))
        found += [
            Violation(table, "catalog", None, "a private table that belongs to no structure")
            for (table,) in tables
            if table not in private and not table.startswith(tuple(unread))
        ]
    return found


def _broken(plan: StructurePlan, view: bool) -> Generator[Statement, Any, Broken]:
    # view: whether there is to be one.
    wrong = yield from plan.broken()
    if wrong or not plan.layout:
        return [(rule, key and plan.structure.key.value(key), message) for rule, key, message in wrong]
    there = yield from strange(plan.dialect, plan.layout)
    found: Broken = [("tables", None, message) for message in there.values() if message]
    found = found or (yield from _broken_layout(plan))
    if found:
        return found
    for name in (yield from making.programs_differ(plan)):
        message = f"{name} is not as Roost makes it; store.create({plan.structure.name}) makes it anew"
        found.append(("program", None, message))
    for rule, sql in _rules(plan):
        broken = yield from fetch(f"{sql} LIMIT {MOST + 1}")
        for row in broken[:MOST]:
            try:
                key = plan.key_value(row[:-1])
            except (ValueError, TypeError):
                key = tuple(row[:-1])  # a key that cannot be read is itself what is broken
            found.append((rule, key, row[-1]))
        if len(broken) > MOST:
            found.append((rule, None, MORE))
    message = yield from _broken_view(plan, view)
    return [*found, ("view", None, message)] if message else found


def _broken_view(plan: StructurePlan, view: bool) -> Generator[Statement, Any, str]:
    name = plan.structure.name
    stored = (yield from making.found_view(plan)).objects
    if not stored:
        makes = f"store.alter({name}, view=True) makes it anew, view=False says that none is wanted"
        return f"it is not there; {makes}" if view else ""
    wanted = (yield from making.wanted_view(plan)).objects
    if stored == wanted:
        return ""
    wrong = sorted(each for each in {*wanted, *stored} if stored.get(each) != wanted.get(each))
    return f"{', '.join(wrong)} not as Roost makes it; store.alter({name}, view=True) makes the view anew"


def _broken_layout(plan: StructurePlan) -> Generator[Statement, Any, Broken]:
    dialect = plan.dialect
    found: Broken = []
    for table, columns in plan.layout.items():
        there = yield from fetch(dialect.choose(COLUMNS), table)
        if not there:
            found.append(("tables", None, f"there is no table {table}"))
            continue
        wanted = {(c.name, _type(dialect.types[c.type.kind](c)), int(not c.nullable)) for c in columns}
        stored = {(column, _type(type_), int(not_null)) for column, type_, not_null, _ in there}
        for column, type_, not_null in sorted(wanted ^ stored):
            what = "is missing" if (column, type_, not_null) in wanted else "should not be there"
            message = f"column {column} {type_}{' NOT NULL' if not_null else ''} of {table} {what}"
            found.append(("tables", None, message))
        if dialect.is_server:
            form = yield from fetch(dialect.choose(FORM).format(table=dialect.literal(table)))
            if ", ".join(row[0] for row in form if row[0]) != plan.primary[table]:
                found.append(("tables", None, f"the primary key of {table} is not {plan.primary[table]}"))
            found += [("tables", None, f"{table} {what}") for what in (form[0][1:] if form else ()) if what]
    for index, table in plan.indexes:
        if not (yield from fetch(dialect.choose(INDEX), index, table)):
            found.append(("tables", None, f"there is no index {index} of {table}"))
    clock = f"roost_{plan.structure.name}_clock"
    if clock in plan.layout and not found and not (yield from fetch(f"SELECT 1 FROM {clock}")):
        make = next(sql for sql in plan.tables if sql.startswith(f"INSERT INTO {clock} "))
        found.append(("clock", None, f"its time may go back: {clock} has lost its row; run {make}"))
    return found


def _type(declared: str) -> str:
    # As an engine tells it: without its collation, blanks, and the width with which MySQL shows a number.
    bare = re.split(" character set| collate", declared.lower())[0].replace(" ", "")
    bare = {"timestampwithtimezone": "timestamptz"}.get(bare, bare)
    return re.sub(r"(int)\(\d+\)", r"\1", bare)


def _rules(plan: StructurePlan) -> Iterator[Rule]:
    key = ", ".join(
        _readable(plan, column, f"r.{plan.dialect.name_of(column)}") for column in plan.structure.key.columns
    )
    for column in plan.structure.columns:
        name = plan.dialect.name_of(column)
        if condition := wrong(plan.dialect, column, name):
            message = plan.dialect.literal(f"{column.name} does not fit {column.type.spec}")
            where = f"{name} IS NOT NULL AND ({condition})"
            yield "value", f"SELECT {key}, {message}\n  FROM {plan.rows_table} r WHERE {where}"
    yield from plan.rules()


def _readable(plan: StructurePlan, column: Column, name: str) -> str:
    # SQLite's driver fails at texts that are not UTF-8.
    if plan.dialect.name != "sqlite" or column.type.kind != "text":
        return name
    return f"CASE WHEN {no_utf8(name)} THEN CAST({name} AS BLOB) ELSE {name} END"
