"""The catalog: definitions of structures, their versions, making what is missing, and dropping."""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Sequence
from typing import Any

from roost.dialects.dialect import Answer, Control, Dialect, Statement, Template, Wanted
from roost.errors import Invalid, Mismatch
from roost.plans.fronts import drop_front, front_of, make_front
from roost.plans.plan import StructurePlan, definition_of, difference, each
from roost.structures.columns import NAME_LENGTH, Column
from roost.structures.types import ColumnType

Making = Generator[Wanted, Any, None]

NAME = Column("name", ColumnType("text", NAME_LENGTH))
VERSION = Column("version", ColumnType("int"))
DEFINITION = Column("definition", ColumnType("text", 1_000_000))


# Asked first: where there is none, an error would end a transaction of PostgreSQL.
THERE = {
    "sqlite": "SELECT count(*) FROM sqlite_master WHERE name = '{}'",
    "postgresql": "SELECT count(*) FROM pg_class WHERE relname = '{}' AND pg_table_is_visible(oid)",
    "mariadb": "SELECT count(*) FROM information_schema.TABLES\n"
    "  WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '{}'",
}

# The last batch of each connection that writes to a server, so that a COMMIT whose answer was lost can be looked up.
WRITERS = {
    "mariadb": """\
CREATE TABLE IF NOT EXISTS roost_writers (
  `writer` BINARY(16) NOT NULL,
  `batch` BIGINT NOT NULL,
  `at` DATETIME NOT NULL,
  PRIMARY KEY (`writer`)
) ENGINE=InnoDB""",
    "postgresql": """\
CREATE TABLE IF NOT EXISTS roost_writers (
  writer uuid NOT NULL,
  batch bigint NOT NULL,
  at timestamptz NOT NULL,
  PRIMARY KEY (writer)
)""",
}


class Catalog:
    """The catalog in one dialect's words."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        hole = dialect.placeholder
        columns = ",\n  ".join(dialect.declared(column) for column in (NAME, VERSION, DEFINITION))
        self.table = (
            f"CREATE TABLE IF NOT EXISTS roost_catalog (\n  {columns},\n"
            f"  PRIMARY KEY ({dialect.name_of(NAME)})\n){dialect.table_options}"
        )
        self.there = each(dialect.choose(THERE).format("roost_catalog"))
        self.tables = {"roost_catalog": self.table}
        if dialect.family in WRITERS:
            self.tables["roost_writers"] = WRITERS[dialect.family]
        self.definition = definition_of(dialect)
        self.lock = definition_of(dialect, dialect.for_update)  # before it is changed: nobody writes meanwhile
        self.all = Template("SELECT name, version, definition FROM roost_catalog ORDER BY name", answer=Answer.ORDINAL)
        self.change = Template(
            f"UPDATE roost_catalog SET version = version + 1, definition = {hole} WHERE name = {hole}"
        )
        self.remove = Template(f"DELETE FROM roost_catalog WHERE name = {hole}")
        # What structures were before they were altered: made by the first `alter`.
        self.former_there = each(dialect.choose(THERE).format("roost_former"))
        self.former_table = self.table.replace("roost_catalog", "roost_former").replace(
            f"PRIMARY KEY ({dialect.name_of(NAME)})", f"PRIMARY KEY ({dialect.names([NAME, VERSION])})"
        )
        self.former = each(f"SELECT definition FROM roost_former WHERE name = {hole}")
        # Those of a structure of this name that was dropped go: its versions begin anew.
        self.outdated = Template(
            f"DELETE FROM roost_former WHERE name = {hole}\n"
            f"  AND version >= (SELECT version FROM roost_catalog WHERE name = {hole})"
        )
        self.remember = Template(
            "INSERT INTO roost_former (name, version, definition)\n"
            f"  SELECT name, version, definition FROM roost_catalog WHERE name = {hole}"
        )
        self.forget = Template(f"DELETE FROM roost_former WHERE name = {hole}")


def entry(plan: StructurePlan) -> str:
    """Return the statement that enters a structure into the catalog."""
    structure = plan.structure
    values = f"{plan.dialect.literal(structure.name)}, 1, {plan.dialect.literal(structure.definition)}"
    return f"INSERT INTO roost_catalog (name, version, definition)\n  VALUES ({values})"


def ddl(catalog: Catalog, plans: Sequence[StructurePlan], front: bool = True) -> list[str]:
    """Return every statement that makes structures, and their fronts, in a database that has none of them."""
    made = [*catalog.tables.values()]
    for plan in plans:
        has_front = front and catalog.dialect.fronts
        made += [*plan.tables, entry(plan), *(front_of(plan).make if has_front else ())]
    return made


def create(
    catalog: Catalog, plans: Sequence[StructurePlan], front: bool = True, *, exact: bool = True
) -> Generator[Wanted, Any, dict[str, str]]:
    """Make what is missing; `Mismatch` when something is stored otherwise. Runs under the lock of the catalog.

    exact: False: a declaration that was stored before the last `alter`, and can be used with what is stored now, is
        left as it is: a process of the release before is starting while the next one is deployed.

    Returns these, by name, with the difference.
    """
    yield Control.LOCK_CATALOG
    for sql in catalog.tables.values():
        yield Statement(Template(sql), [()])
    missing: list[StructurePlan] = []
    former: dict[str, str] = {}
    for plan in plans:  # all are compared before one is made: not every engine can take back a table
        name = plan.structure.name
        found = yield Statement(catalog.definition, [(name,)])
        if not found[0]:
            missing.append(plan)
        elif found[0][0][0] != plan.structure.definition:
            told = difference(found[0][0][0], plan.structure.definition)
            if not exact and (yield from _was_stored(catalog, plan, found[0][0][0])):
                former[name] = told
                continue
            raise Mismatch(
                f"{name} is declared otherwise than it is stored: {told}. "
                f"store.alter({name}) changes what is stored, where it can be changed"
            )
    for plan in dict.fromkeys(missing):
        if not catalog.dialect.transactional_ddl:
            yield from _clear_away(plan)
        for sql in [*plan.tables, entry(plan)]:
            yield Statement(Template(sql), [()])
    if front and catalog.dialect.fronts:
        for plan in plans:
            if plan.structure.name not in former:
                yield from make_front(plan)
    return former


def _was_stored(catalog: Catalog, plan: StructurePlan, definition: str) -> Generator[Wanted, Any, bool]:
    if isinstance(plan.as_stored(definition), Mismatch):
        return False
    there = yield Statement(catalog.former_there, [()])
    if not there[0][0][0]:
        return False
    found = yield Statement(catalog.former, [(plan.structure.name,)])
    return (plan.structure.definition,) in [tuple(row) for row in found[0]]


def _clear_away(plan: StructurePlan) -> Making:
    # What a create that was cut short has left: tables without an entry, in which nobody can have written.
    for table in plan.layout:
        named = plan.dialect.literal(table)
        there = yield Statement(
            each(
                f"SELECT 1 FROM information_schema.tables\n  WHERE table_schema = DATABASE() AND table_name = {named}"
            ),
            [()],
        )
        if not there[0]:
            continue
        rows = yield Statement(each(f"SELECT 1 FROM {table} LIMIT 1"), [()])
        if rows[0]:
            raise Invalid(
                f"{plan.structure.name}: there is a table {table} with rows, and the catalog has no entry of it; "
                "rename or drop it"
            )
        yield Statement(Template(f"DROP TABLE {table}"), [()])


def drop_ddl(catalog: Catalog, plans: Sequence[StructurePlan], front: bool = True) -> list[str]:
    """Return every statement that drops structures, and their fronts, which `ddl` made."""
    made: list[str] = []
    for plan in plans:
        if front and catalog.dialect.fronts:
            objects = front_of(plan)  # what takes back a last step may have taken what an earlier one made
            undo = [re.sub(r"\ADROP (\w+) ", r"DROP \1 IF EXISTS ", sql) for sql in reversed(objects.undo)]
            made += objects.drop or undo
        name = plan.dialect.literal(plan.structure.name)
        made += [*_drop_tables(plan), f"DELETE FROM roost_catalog WHERE name = {name}"]
    return made


def drop(catalog: Catalog, plans: Sequence[StructurePlan]) -> Making:
    """Drop structures with all that they hold: front, tables, entry. What the catalog does not have is left out.

    The application's own triggers on a front go with it. `Mismatch` when something of another kind has the name: it
    has other tables. Where an engine cannot take back a dropped table, the same can be asked for again: the entry goes
    last.
    """
    yield Control.LOCK_CATALOG
    for plan in plans:
        structure = plan.structure
        found = yield Statement(catalog.lock, [(structure.name,)])
        if not found[0]:
            continue
        kind = json.loads(found[0][0][0])["kind"]
        if kind != structure.kind:
            raise Mismatch(f"{structure.name} is a {kind} in the database and not the {structure.kind} to be dropped")
        yield from drop_front(plan)
        for sql in _drop_tables(plan):
            yield Statement(Template(sql), [()])
        there = yield Statement(catalog.former_there, [()])
        if there[0][0][0]:
            yield Statement(catalog.forget, [(structure.name,)])
        yield Statement(catalog.remove, [(structure.name,)])


def _drop_tables(plan: StructurePlan) -> list[str]:
    return [f"DROP TABLE IF EXISTS {table}" for table in plan.layout]


def listed(catalog: Catalog) -> Generator[Statement, Any, list[tuple[str, int, str]]]:
    """Return name, version and definition of every structure; none where there is no catalog."""
    there = yield Statement(catalog.there, [()])
    if not there[0][0][0]:
        return []
    found = yield Statement(catalog.all, [()])
    rows: list[tuple[str, int, str]] = found[0]
    return rows
