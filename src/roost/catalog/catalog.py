"""The catalog: definitions of structures and their versions; creating missing structures, and dropping."""

from __future__ import annotations

import logging
import re
from collections.abc import Generator, Iterable, Sequence
from typing import Any

from roost.dialects.dialect import Control, Dialect, Row, Statement, Wanted, execute, fetch
from roost.dialects.mariadb_definers import may
from roost.dialects.postgresql import FOREIGN
from roost.errors import Conflict, Invalid, Mismatch, StatementFailed
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


# Examines the private tables before they are read: on PostgreSQL, reading a missing one would abort the transaction.
# Columns: name, why it must not be touched, owner, whether to lock it. Every operator here has operands of exactly the
# types for which pg_catalog defines it: otherwise another operator of the same name in the search path could be called.
# Expressions of constraints, indexes and statistics are called by the planner, for a SELECT already.
THERE = {
    "sqlite": "SELECT name, '', '', 0 FROM sqlite_master WHERE name IN ({names})",
    "mariadb": "SELECT TABLE_NAME, IF(TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED'), '', 'is no table'), '', 0\n"
    "  FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME IN ({names})",
    "postgresql": """\
SELECT w.name,
  CASE WHEN c.oid IS NULL THEN 'is not visible'
    WHEN c.relkind <> 'r' THEN 'is no table'
    WHEN c.relowner = me.oid AND current_user = session_user AND NOT me.rolsuper THEN ''
    WHEN {writes} AND EXISTS (SELECT 1 FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
        JOIN pg_roles o ON o.oid = p.proowner
      WHERE t.tgrelid = c.oid AND NOT t.tgisinternal
        AND (t.tgqual IS NOT NULL OR NOT o.rolsuper AND o.oid <> me.oid)) THEN 'has a trigger'
    WHEN {writes} AND EXISTS (SELECT 1 FROM pg_constraint f JOIN pg_class r ON r.oid = f.conrelid
        JOIN pg_roles o ON o.oid = r.relowner
      WHERE f.contype = 'f' AND f.confrelid = c.oid AND NOT o.rolsuper AND o.oid <> me.oid)
      THEN 'is referred to by a foreign key'
    WHEN c.relowner = me.oid OR owner.rolsuper THEN ''
    WHEN {private} AND (SELECT string_agg(format_type(a.atttypid, a.atttypmod), ', ' ORDER BY a.attnum)
      FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)
      <> CASE w.name WHEN 'roost_writers' THEN 'uuid, bigint, timestamp with time zone'
        WHEN 'roost_catalog' THEN 'text, bigint, text, boolean' ELSE 'text, bigint, text' END
      THEN 'has other columns'
    WHEN NOT {writes} AND NOT me.rolsuper AND NOT {private} THEN ''
    WHEN EXISTS (SELECT 1 FROM pg_constraint k WHERE k.conrelid = c.oid AND k.contype IN ('c', 'x', 'f', 't'))
      THEN 'has a constraint'
    WHEN EXISTS (SELECT 1 FROM pg_index i
      WHERE i.indrelid = c.oid AND (i.indexprs IS NOT NULL OR i.indpred IS NOT NULL))
      THEN 'has an index of an expression'
    WHEN EXISTS (SELECT 1 FROM pg_statistic_ext x WHERE x.stxrelid = c.oid) THEN 'has statistics of its own'
    WHEN c.relrowsecurity THEN 'has row-level security'
    WHEN NOT {writes} THEN ''
    WHEN c.relhasrules THEN 'has a rule'
    WHEN EXISTS (SELECT 1 FROM pg_inherits i WHERE i.inhparent = c.oid OR i.inhrelid = c.oid)
      THEN 'is inherited from, or inherits'
    WHEN EXISTS (SELECT 1 FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
      WHERE a.attrelid = c.oid AND a.attnum > 0
        AND (a.attgenerated <> '' OR {inserts} AND a.atthasdef OR t.typnamespace <> 'pg_catalog'::regnamespace::oid))
      THEN 'has a column with an expression, or of a type of its own'
    ELSE '' END,
  coalesce(pg_get_userbyid(c.relowner), ''),
  (me.rolsuper OR {private} AND NOT {writes} AND NOT owner.rolsuper AND c.relowner <> me.oid
      AND has_table_privilege(c.oid, 'SELECT'::text))
    AND c.relkind = 'r' AND EXISTS (SELECT 1 FROM pg_language l WHERE l.lanname = 'plpgsql')
  FROM unnest(ARRAY[{names}]::text[]) AS w (name)
    JOIN LATERAL (SELECT to_regclass(quote_ident(w.name))::oid AS oid) found ON found.oid IS NOT NULL
    LEFT JOIN pg_class c ON c.oid = found.oid
    LEFT JOIN pg_roles owner ON owner.oid = c.relowner
    CROSS JOIN (SELECT s.oid, s.rolsuper OR u.rolsuper AS rolsuper FROM pg_roles s, pg_roles u
      WHERE s.rolname = session_user AND u.rolname = current_user) me""",
}
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
INVISIBLE = "is not visible"  # another transaction has made it since the snapshot of this one
WHOSE = ". What somebody made of it would run by the rights of this account"
# The catalog, what structures were before they were altered, tokens of what is done once, and the last batches.
PRIVATE = ("roost_catalog", "roost_former", "roost_once", "roost_writers")

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


def strange(
    dialect: Dialect, tables: Iterable[str], *, writes: bool = False, inserts: bool = True
) -> Generator[Statement, Any, dict[str, str]]:
    """Return the existing private tables, each with the reason why it must not be used, or "" if it may be.

    A table is identified by its name only, and any account that may create objects in the schema could have made it: a
    view, or a table with triggers, which runs its creator's code with the rights of the account that reads or writes
    it. Objects of the same role are no danger to it, and a superuser can do everything anyway.

    writes: rows are to be written too; inserts: some with columns left out.
    """
    names = tuple(tables)
    sql = dialect.choose(THERE).format(
        names=", ".join(map(dialect.literal, names)),
        writes=str(writes).lower(),
        inserts=str(inserts).lower(),
        private=str(set(names) <= {*PRIVATE}).lower(),
    )
    found = yield from _there(sql)
    if locked := [name for name, *_, locks in found if locks]:
        # So that nothing of it changes until the transaction ends: CREATE TRIGGER waits for ROW EXCLUSIVE. By DO,
        # since a migration may run outside of a transaction.
        mode = "ROW EXCLUSIVE" if writes else "ACCESS SHARE"
        yield execute(f"/* guarded */ DO $$ BEGIN LOCK TABLE {', '.join(locked)} IN {mode} MODE; END $$")
        found = yield from _there(sql)
    return {
        name: problem and f"{name} {problem}{f'; {owner} owns it' if owner else ''}"
        for name, problem, owner, _ in found
    }


def _there(sql: str) -> Generator[Statement, Any, Sequence[Row]]:
    # At READ COMMITTED the next statement sees what another process has just made; in one snapshot, no statement does.
    for _ in range(2):
        rows = yield from fetch(sql)
        unseen = [name for name, problem, *_ in rows if problem == INVISIBLE]
        if not unseen:
            return rows
    raise Conflict(f"{unseen[0]} was created by another session in the meantime")


def guarded(
    dialect: Dialect, tables: Iterable[str], *, writes: bool = False, inserts: bool = True
) -> Generator[Statement, Any, set[str]]:
    """Return which private tables exist; `Invalid` if one would run another account's code. See `strange`."""
    found = yield from strange(dialect, tables, writes=writes, inserts=inserts)
    for problem in filter(None, found.values()):
        raise Invalid(f"{problem}{WHOSE}: run this as the owner, or drop what Roost has not made")
    return {*found}


def owned(dialect: Dialect, table: str = "") -> Generator[Statement, Any, bool]:
    """`Invalid` if somebody who is not trusted owns one of the catalog's tables: he may change what it is at any time.

    What this account does with it from then on, and the programs of what it has made, would run his code (`FOREIGN`).

    table: that of a structure, whose owner is trusted by whoever uses it; False if that is not there.
    """
    if dialect.family != "postgresql":
        return True
    rows = f"r.oid = to_regclass({dialect.literal(dialect.quoted(table))})::oid" if table else "false"
    found = yield from fetch(FOREIGN.format(names=", ".join(map(dialect.literal, PRIVATE)), rows=rows))
    for name, owner, there in sorted(found):
        if table and not there:
            return False
        raise Invalid(
            f"{name} belongs to {owner}, {f'and {table} does not' if table else 'and not to this account'}{WHOSE}: give"
            " it to the owner of the structures, or drop what Roost has not made"
        )
    return True


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
