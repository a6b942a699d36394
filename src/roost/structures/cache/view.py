"""Cache as a SQL view: what plain SQL clients see, and what their statements do to it.

The view shows what is not over, with its end in the column `expires`, NULL for none. INSERT sets a value, whatever was
there; UPDATE sets value and end, DELETE removes.
"""

from __future__ import annotations

from roost.structures.cache.declaration import NEVER
from roost.structures.plan import StructurePlan
from roost.structures.views import mariadb, postgresql, sqlite
from roost.types.column_types import ColumnType
from roost.types.columns import Column

EXPIRES = Column("expires", ColumnType("datetime"), nullable=True)
KEY_IS_FIXED = "a key cannot be changed; delete it and insert the other one"

# The clock is that of the database's machine, on SQLite to a millisecond. `max` keeps it from going back.
SQLITE_NOW = """\
(SELECT max(m.column1 + coalesce(t.ahead, 0), coalesce(t.latest, 0))
    FROM (VALUES (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000)) m LEFT JOIN {clock} t)"""
SQLITE_SHOWN = (
    "CASE WHEN until < {never} THEN "
    "strftime('%Y-%m-%d %H:%M:%S', until / 1000000, 'unixepoch') || printf('.%06d', until % 1000000) END"
)
SQLITE_UNTIL = (
    "coalesce(CAST(strftime('%s', {0}) AS INTEGER) * 1000000 + CAST(substr({0}, 21) AS INTEGER), {never})"
)
MARIADB_SHOWN = "IF(until < {never}, TIMESTAMPADD(MICROSECOND, until, '1970-01-01 00:00:00.000000'), NULL)"
MARIADB_UNTIL = "COALESCE(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', `new expires`), {never})"
POSTGRESQL_SHOWN = "CASE WHEN until < {never} THEN to_timestamp(0) + until * interval '1 microsecond' END"
POSTGRESQL_UNTIL = "coalesce((extract(epoch FROM NEW.expires) * 1000000)::bigint, {never})"


def on_sqlite(plan: StructurePlan) -> sqlite.Made:
    """Return the view on SQLite, with its INSTEAD OF triggers."""
    words, value = sqlite.Words(plan), plan.structure.columns[-1]
    rows, key = words.rows, words.dialect.names(words.key)
    now = SQLITE_NOW.format(clock=f"roost_{words.name}_clock")
    until = SQLITE_UNTIL.format(words.new(EXPIRES), never=NEVER)
    return sqlite.Made(
        view=f"SELECT {key}, {words.shown([value])}, +{SQLITE_SHOWN.format(never=NEVER)} AS expires FROM {rows}\n"
        f"  WHERE until > {now}",
        insert=[
            words.refuse(*words.rules([*words.key, value, EXPIRES])),
            f"INSERT INTO {rows} ({key}, value, until, token)\n"
            f"    VALUES ({words.news([*words.key, value])}, {until}, random() & {NEVER})\n"
            f"    ON CONFLICT ({key}) DO UPDATE SET value = excluded.value, until = excluded.until,\n"
            "      token = excluded.token",
        ],
        update=[
            words.refuse(words.fixed(words.key, KEY_IS_FIXED), *words.changes([value, EXPIRES])),
            f"UPDATE {rows} SET value = {words.new(value)}, until = {until}, token = random() & {NEVER}\n"
            f"    WHERE {words.is_old(words.key)}",
        ],
        delete=[f"DELETE FROM {rows} WHERE {words.is_old(words.key)}"],
    )


def on_mariadb(plan: StructurePlan) -> mariadb.Made:
    """Return the view on MariaDB, with what is inserted and removed through its inlets or procedures."""
    key, columns = plan.structure.key.columns, plan.structure.columns
    rows = plan.rows_table

    def add(words: mariadb.Words) -> mariadb.Door:
        until = MARIADB_UNTIL.format(never=NEVER)
        return words.door(
            [*columns, EXPIRES],
            [],
            [
                f"INSERT INTO {rows} ({words.names(columns)}, until, token)\n"
                f"    VALUES ({words.news(columns)}, {until}, UUID_SHORT() & {NEVER})\n"
                "    ON DUPLICATE KEY UPDATE value = VALUES(value), until = VALUES(until), token = VALUES(token)"
            ],
        )

    def remove(words: mariadb.Words) -> mariadb.Door:
        return words.door(key, [], [f"DELETE FROM {rows} WHERE {words.is_new(key, f'{rows}.')}"])

    now = _now(plan)
    names = plan.dialect.names(columns)
    shown = MARIADB_SHOWN.format(never=NEVER)
    query = f"SELECT * FROM (SELECT {names}, {shown} AS expires FROM {rows} WHERE until > {now}) {{mark}}"
    return mariadb.Made(query, add, remove, False)


def on_postgresql(plan: StructurePlan) -> postgresql.Made:
    """Return the view on PostgreSQL, with its INSTEAD OF triggers."""
    words, columns, value = postgresql.Words(plan), plan.structure.columns, plan.structure.columns[-1]
    rows, old, new = words.rows, words.equal(words.key, "OLD"), [*columns, EXPIRES]
    until = POSTGRESQL_UNTIL.format(never=NEVER)
    token = f"('x' || translate(gen_random_uuid()::text, '-', ''))::bit(64)::bigint & {NEVER}"
    return postgresql.Made(
        view=f"SELECT {words.names(columns)}, {POSTGRESQL_SHOWN.format(never=NEVER)} AS expires FROM {rows}\n"
        f"  WHERE until > {_now(plan)}",
        insert=[
            words.refuse(*words.rules(new)),
            *words.normal(new),
            f"INSERT INTO {rows} ({words.names(columns)}, until, token)\n"
            f"  VALUES ({words.values(columns)}, {until}, {token})\n"
            f"  ON CONFLICT ({words.names(words.key)}) DO UPDATE SET value = excluded.value,\n"
            "    until = excluded.until, token = excluded.token;",
            "RETURN NEW;",
        ],
        update=[
            words.refuse(words.fixed(words.key, KEY_IS_FIXED), *words.changes([value, EXPIRES])),
            *words.normal([value, EXPIRES]),
            f"UPDATE {rows} SET value = NEW.value, until = {until}, token = {token} WHERE {old};",
            "IF NOT FOUND THEN\n  RETURN NULL;\nEND IF;",
            "RETURN NEW;",
        ],
        delete=[
            words.refuse(),
            f"DELETE FROM {rows} WHERE {old};",
            "IF NOT FOUND THEN\n  RETURN NULL;\nEND IF;",
            "RETURN OLD;",
        ],
    )


def _now(plan: StructurePlan) -> str:
    from roost.structures.clock import Clock

    return Clock(plan).now


VIEWS = {"sqlite": on_sqlite, "mariadb": on_mariadb, "postgresql": on_postgresql}
