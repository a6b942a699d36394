"""The catalog: definitions of structures and their versions; creating missing structures, and dropping."""

from __future__ import annotations

import logging
import re
from collections.abc import Generator, Sequence
from typing import Any

from roost.catalog.private import PRIVATE, guarded, owned
from roost.dialects.dialect import Control, Dialect, Statement, Wanted, execute, fetch
from roost.dialects.mariadb_definers import may
from roost.errors import Invalid, Mismatch, StatementFailed
from roost.structures import making
from roost.structures.plan import StructurePlan, definition_of
from roost.structures.structure import difference, facts_of
from roost.types.column_types import ColumnType
from roost.types.columns import NAME_LENGTH, Column

log = logging.getLogger("roost")

Making = Generator[Wanted, Any, None]

NAME = Column("name", ColumnType("text", NAME_LENGTH))
VERSION = Column("version", ColumnType("int"))
DEFINITION = Column("definition", ColumnType("text", 1_000_000))
HAS_VIEW = Column("has_view", ColumnType("bool"), nullable=True)  # NULL: nobody has said

# The columns of a table: name, type, whether it is NOT NULL, and whether it has a default.
COLUMNS = {
    "sqlite": 'SELECT name, type, "notnull", dflt_value IS NOT NULL FROM pragma_table_info(?)',
    "mariadb": "SELECT column_name, column_type, is_nullable = 'NO', column_default IS NOT NULL\n"
    "  FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = %s",
    # Under quote_all_identifiers even the names of types are quoted.
    "postgresql": "SELECT attname, replace(format_type(atttypid, atttypmod), '\"', ''), attnotnull::integer,\n"
    "    atthasdef::integer FROM pg_attribute\n"
    "  WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
}
# The role that an account acts as, of which its own privileges do not tell, and whether it may make functions.
MAKES = {
    "mariadb": "SELECT NULLIF(CONCAT(CURRENT_ROLE()), 'NONE'), FALSE",
    "postgresql": "SELECT current_user::text, has_schema_privilege(current_schema()::text, 'CREATE'::text)",
}
CHANGE = "UPDATE roost_catalog SET version = version + 1, definition = ? WHERE name = ?"

# A batch's number, so that a COMMIT whose answer was lost can be looked up: of each connection that writes to a server.
WRITER = Column("writer", ColumnType("uuid"))
BATCH = Column("batch", ColumnType("int"))
WRITTEN_AT = Column("at", ColumnType("datetime"))

TOKEN = Column("token", ColumnType("text", 255))
UNTIL = Column("until", ColumnType("int"))
ANSWER = Column("answer", ColumnType("text", 1_000_000))


class Catalog:
    """The catalog in one dialect's words."""

    def __init__(self, dialect: Dialect) -> None:
        self.speak(dialect)

    def speak(self, dialect: Dialect) -> None:
        """Go on in another dialect."""
        self.dialect = dialect
        # CREATE TABLE has an index that is not unique in MariaDB and MySQL alone.
        index = f"KEY roost_once_over ({dialect.name_of(UNTIL)})"
        if dialect.family != "mariadb":
            index = f"UNIQUE ({dialect.names([UNTIL, TOKEN])})"
        self.tables = {
            "roost_catalog": self._table("roost_catalog", [NAME, VERSION, DEFINITION, HAS_VIEW], [NAME]),
            "roost_former": self._table("roost_former", [NAME, VERSION, DEFINITION], [NAME, VERSION]),
            "roost_once": self._table("roost_once", [TOKEN, UNTIL, ANSWER], [TOKEN], index),
        }
        if dialect.is_server:
            self.tables["roost_writers"] = self._table("roost_writers", [WRITER, BATCH, WRITTEN_AT], [WRITER])
        self.definition = definition_of(dialect)
        self._lock = definition_of(dialect, dialect.for_update)

    def asking(self, sql: str) -> str:
        """Return SQL with ? for each value as the database takes it."""
        return sql.replace("?", self.dialect.placeholder)

    def change(self, sql: str, *values: Any) -> Statement:
        """Return the statement that changes the catalog's tables, given with ? for each value."""
        return execute(self.asking(sql), *values)

    def set_view(self, name: str, view: bool) -> Statement:
        """Return the statement by which a structure is to have a view, or none."""
        return self.change("UPDATE roost_catalog SET has_view = ? WHERE name = ?", view, name)

    def stored(self, name: str, *, lock: bool = False) -> Generator[Statement, Any, str | None]:
        """Return the definition that is stored; lock: before it is changed, so that nobody writes meanwhile."""
        (rows,) = yield Statement(self._lock if lock else self.definition, [(name,)])
        return rows[0][0] if rows else None

    def _table(self, name: str, columns: Sequence[Column], key: Sequence[Column], *more: str) -> str:
        lines = [*map(self.dialect.declared, columns), f"PRIMARY KEY ({self.dialect.names(key)})", *more]
        made = ",\n  ".join(lines)
        return f"CREATE TABLE IF NOT EXISTS {name} (\n  {made}\n){self.dialect.table_options}"


def make_private(catalog: Catalog) -> Making:
    """Create the catalog's own missing tables; `Invalid` if an existing one would run another account's code."""
    yield from guarded(catalog.dialect, PRIVATE, writes=True)
    for sql in catalog.tables.values():
        yield execute(sql)
    yield from guarded(catalog.dialect, PRIVATE, writes=True)  # somebody may have been first


def entry(plan: StructurePlan, view: bool) -> str:
    """Return the statement that enters a structure into the catalog, and whether it is to have a view."""
    structure = plan.structure
    values = f"{plan.dialect.literal(structure.name)}, 1, {plan.dialect.literal(structure.definition)}"
    columns = "name, version, definition, has_view"
    return f"INSERT INTO roost_catalog ({columns})\n  VALUES ({values}, {str(view and plan.has_view).lower()})"


def ddl(catalog: Catalog, plans: Sequence[StructurePlan], view: bool = True) -> list[str]:
    """Return every statement that makes structures, and their views, in a database that has none of them."""
    made = [*catalog.tables.values()]
    for plan in plans:
        programs = [sql for routine in plan.routines for sql in routine.make]
        made += [
            *plan.tables,
            *programs,
            entry(plan, view),
            *(making.view_of(plan).make if view and plan.has_view else ()),
        ]
    return made


def script(dialect: Dialect, statements: Sequence[str]) -> list[str]:
    """Return the lines of a file of statements for the database's own client."""
    if dialect.family != "mariadb":
        return [f"{sql};" for sql in statements]
    # Their clients end a statement at any `;`, also in a program. A program is of the charset of its connection.
    return ["SET NAMES utf8mb4;", "DELIMITER ;;", *[f"{sql};;" for sql in statements], "DELIMITER ;"]


def lock(catalog: Catalog) -> Generator[Wanted, Any, None]:
    if (yield Control.LOCK_CATALOG):
        yield from make_private(catalog)
        yield Control.LOCK_CLUSTER


def create(
    catalog: Catalog, plans: Sequence[StructurePlan], view: bool = True, *, exact: bool = True
) -> Generator[Wanted, Any, dict[str, str]]:
    """Create missing structures; `Mismatch` if one is stored differently. Runs under the catalog's lock.

    exact: with False, a declaration that was stored before the last `alter`, and that is compatible with the stored
        one, is accepted: a process of the previous release may start while the next one is being deployed.

    Returns these, by name, with the difference.
    """
    declared: dict[str, StructurePlan] = {}
    for plan in plans:
        if declared.setdefault(plan.structure.name, plan).structure.definition != plan.structure.definition:
            raise Invalid(f"two different structures are named {plan.structure.name}")
    plans = [*declared.values()]
    # Also where nothing can be written. SQLite's write lock is taken before anything is read.
    if catalog.dialect.is_server and (made := (yield from _is_made(catalog, plans, view, exact))) is not None:
        return made
    yield from lock(catalog)
    yield from make_private(catalog)
    yield from owned(catalog.dialect)
    missing, _, former = yield from _compared(catalog, plans, exact)
    for plan in missing if view and not catalog.dialect.transactional_ddl else ():
        if plan.has_view and not (yield from making.found_view(plan)).objects:
            yield from making.refuse_taken(plan)
    for plan in missing:
        yield from _make(catalog, plan, view)
    others = [plan for plan in plans if plan not in missing and plan.structure.name not in former]
    for plan in others:
        definitions = yield from former_definitions(catalog, plan.structure.name)
        yield from making.make_programs(plan, making.all_programs(plan, definitions))
    for plan in [*missing, *others] if view else ():
        if plan.has_view and (yield from making.make_view(plan)) and plan in others:
            yield catalog.set_view(plan.structure.name, True)
    return former


def _compared(
    catalog: Catalog, plans: Sequence[StructurePlan], exact: bool
) -> Generator[Wanted, Any, tuple[list[StructurePlan], list[StructurePlan], dict[str, str]]]:
    # Those that are missing, those whose programs differ, how former declarations do. All are compared before one is
    # made: not every engine can take back a table.
    missing: list[StructurePlan] = []
    stale: list[StructurePlan] = []
    former: dict[str, str] = {}
    for plan in plans:
        name = plan.structure.name
        stored = yield from catalog.stored(name)
        if stored is None:
            missing.append(plan)
        elif stored != plan.structure.definition:
            former[name] = difference(stored, plan.structure.definition)
            if exact or not (yield from _was_stored(catalog, plan, stored)):
                raise Mismatch(
                    f"{name} is declared otherwise than it is stored: {former[name]}. "
                    f"store.alter({name}) changes what is stored, where it can be changed; "
                    f"store.drop({name}) drops it, with all that it holds"
                )
        elif (yield from making.programs_differ(plan)):
            yield from _with_columns(plan)
            stale.append(plan)
    return missing, stale, former


def _make(catalog: Catalog, plan: StructurePlan, view: bool) -> Making:
    yield from _clear_away(plan)
    try:
        for sql in plan.tables:
            yield execute(sql)
    except StatementFailed as error:
        if not catalog.dialect.transactional_ddl:
            yield from _clear_away(plan)
        if error.word != "toobig":
            raise
        raise Invalid(
            f"{plan.structure.name}: its rows, or what identifies them, may have more bytes than it takes;"
            f" give texts and bytes shorter limits, as roost.text(100): {str(error).partition(' in CREATE')[0]}"
        ) from error
    yield from making.make_programs(plan, plan.routines)  # before the entry: what is in the catalog can be called
    yield execute(entry(plan, view))


def _with_columns(plan: StructurePlan) -> Generator[Statement, Any, None]:
    """`Mismatch` if a table lacks a column that new programs would write: those that are there go on."""
    for table, columns in plan.layout.items():
        there = {name for name, *_ in (yield from fetch(plan.dialect.choose(COLUMNS), table))}
        name = plan.structure.name
        if not there:
            raise Mismatch(f"{name}: there is no {table}: a drop was interrupted; store.drop({name}) drops the rest")
        if lacking := [column.name for column in columns if column.name not in there]:
            raise Mismatch(
                f"{name}: {table} has no column {', '.join(lacking)}: it was made by another version of Roost. "
                f"Add it, or take the rows out, and store.drop({name}) and create it anew"
            )


def _is_made(
    catalog: Catalog, plans: Sequence[StructurePlan], view: bool, exact: bool
) -> Generator[Wanted, Any, dict[str, str] | None]:
    # What `create` returns where it has nothing to make; else None.
    there = yield from guarded(catalog.dialect, catalog.tables)
    if not there >= {*catalog.tables}:
        return None
    for plan in plans:
        if not (yield from owned(catalog.dialect, plan.rows_table)):
            return None
    try:
        missing, stale, former = yield from _compared(catalog, plans, exact)
    except Mismatch:
        return None  # another process may be altering it: compared again under the lock
    if missing:
        return None
    shown = []
    for plan in plans if view else ():
        if plan.has_view and plan.structure.name not in former and not (yield from making.is_made(plan)):
            shown.append(plan)
    if (stale or shown) and (exact or not (yield from _is_of_others(catalog.dialect, stale, shown))):
        return None
    return former


def _is_of_others(
    dialect: Dialect, stale: Sequence[StructurePlan], shown: Sequence[StructurePlan]
) -> Generator[Wanted, Any, bool]:
    # Whether these programs and views are there, of another version, and another account's to replace: a process of the
    # older version may start during an upgrade.
    role, makes = (yield from fetch(MAKES[dialect.family]))[0]
    if makes or (dialect.family == "mariadb" and (role or (yield from may("CREATE ROUTINE")))):
        return False
    for plan in stale:
        if {each.name for each in plan.routines} > {*(yield from making.found_programs(plan, plan.routines))}:
            return False
    for plan in shown:
        if {*(yield from making.found_view(plan)).objects} != {*(yield from making.wanted_view(plan)).objects}:
            return False
    names = ", ".join(sorted({plan.structure.name for plan in (*stale, *shown)}))
    log.warning("what is made of %s is of another version of Roost, and not this account's to replace", names)
    return True


def _was_stored(catalog: Catalog, plan: StructurePlan, definition: str) -> Generator[Wanted, Any, bool]:
    if isinstance(plan.as_stored(definition), Mismatch):
        return False
    return plan.structure.definition in (yield from former_definitions(catalog, plan.structure.name))


def former_definitions(catalog: Catalog, name: str) -> Generator[Statement, Any, list[str]]:
    """Return the definitions that a structure had before it was altered."""
    if not (yield from guarded(catalog.dialect, ["roost_former"])):
        return []
    former = yield from fetch(catalog.asking("SELECT definition FROM roost_former WHERE name = ?"), name)
    return [definition for (definition,) in former]


def _clear_away(plan: StructurePlan) -> Making:
    # Left by an interrupted create, or by a restore of the schema alone: tables without an entry, with no more rows
    # than create itself inserts.
    there = sorted((yield from guarded(plan.dialect, plan.layout)))
    for table in there:
        made = sum([sql.startswith(f"INSERT INTO {table} ") for sql in plan.tables])
        if len((yield from fetch(f"SELECT 1 FROM {table} LIMIT {made + 1}"))) > made:
            raise Invalid(
                f"{plan.structure.name}: there is a table {table} with rows, and the catalog has no entry of it; "
                "rename or drop it"
            )
    if there and plan.dialect.transactional_ddl:  # elsewhere tables are dropped from under a view, which is replaced
        yield from making.drop_view(plan)
    for table in there:
        yield execute(f"DROP TABLE {table}")


def drop_ddl(catalog: Catalog, plans: Sequence[StructurePlan], view: bool = True) -> list[str]:
    """Return every statement that drops structures, and their views, which `ddl` made."""
    made: list[str] = []
    for plan in plans:
        if view and plan.has_view:
            objects = making.view_of(plan)  # what takes back a last step may have taken what an earlier one made
            undo = [re.sub(r"\ADROP (\w+) ", r"DROP \1 IF EXISTS ", sql) for sql in reversed(objects.undo)]
            made += objects.drop or undo
        name = plan.dialect.literal(plan.structure.name)
        made += [*_drop_tables(plan), f"DELETE FROM roost_catalog WHERE name = {name}"]
    return made


def drop(catalog: Catalog, plans: Sequence[StructurePlan]) -> Making:
    """Drop structures with all their data: view, tables, entry. Structures that the catalog lacks are skipped.

    The application's own triggers on a view are dropped with it. `Mismatch` if the name belongs to another kind of
    structure, which has other tables; `Invalid` for a table of the application. On engines that cannot roll back a
    dropped table, the call can be repeated: the entry is deleted last.
    """
    yield from lock(catalog)
    if "roost_catalog" not in (yield from guarded(catalog.dialect, PRIVATE, writes=True)):
        return
    for plan in plans:
        structure = plan.structure
        stored = yield from catalog.stored(structure.name, lock=True)
        if stored is None:
            continue
        kind = facts_of(stored)["kind"]
        if kind != structure.kind:
            raise Mismatch(f"{structure.name} is a {kind} in the database and not the {structure.kind} to be dropped")
        if not plan.layout:
            raise Invalid(f"{structure.name} is a table of your own; `roost uncap {structure.name}` undoes `roost cap`")
        yield from making.drop_view(plan)
        yield from making.drop_programs(plan)
        for sql in _drop_tables(plan):
            yield execute(sql)
        for table in ("roost_former", "roost_catalog"):
            yield catalog.change(f"DELETE FROM {table} WHERE name = ?", structure.name)


def _drop_tables(plan: StructurePlan) -> list[str]:
    return [
        *(sql for routine in plan.routines for sql in routine.drop),
        *(f"DROP TABLE IF EXISTS {table}" for table in plan.layout),
    ]


def listed(catalog: Catalog) -> Generator[Statement, Any, list[tuple[str, int, str]]]:
    """Return the name, version and definition of every structure; none if there is no catalog."""
    if not (yield from guarded(catalog.dialect, ["roost_catalog"])):
        return []
    return (yield from fetch("SELECT name, version, definition FROM roost_catalog ORDER BY name"))
