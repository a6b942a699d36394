"""Whether private tables may be used: what somebody else has made under their names would run his code.

A table is identified by its name only, and any account that may create objects in the schema could have made it: a
view, or a table with triggers, which runs its creator's code with the rights of the account that reads or writes it.
Objects of the same role are no danger to it, and a superuser can do everything anyway.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any

from roost.dialects.dialect import Dialect, Row, Statement, execute, fetch
from roost.dialects.postgresql import FOREIGN
from roost.errors import Conflict, Invalid

INVISIBLE = "is not visible"  # another transaction has made it since the snapshot of this one
WHOSE = ". What somebody made of it would run by the rights of this account"
# The catalog, what structures were before they were altered, tokens of what is done once, and the last batches.
PRIVATE = ("roost_catalog", "roost_former", "roost_once", "roost_writers")

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


def strange(
    dialect: Dialect, tables: Iterable[str], *, writes: bool = False, inserts: bool = True
) -> Generator[Statement, Any, dict[str, str]]:
    """Return the existing private tables, each with the reason why it must not be used, or "" if it may be.

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
