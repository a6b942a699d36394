"""Cache as a SQL view: what plain SQL clients see, and the effect of their statements.

The view shows values that have not expired, with the expiry time in the column `expires` (NULL: never) and their flags.
INSERT sets a value, whether or not the key has one; UPDATE sets the value, expiry time and flags; DELETE removes. The
view of a cache with bounds accepts only DELETE.
"""

from __future__ import annotations

from roost.structures.cache.declaration import FLAGS_MAX, NEVER, Cache
from roost.structures.clock import Clock
from roost.structures.plan import StructurePlan
from roost.structures.views import mariadb, postgresql, sqlite
from roost.types.column_types import ColumnType
from roost.types.columns import Column

EXPIRES = Column("expires", ColumnType("datetime"), nullable=True)
FLAGS = Column("flags", ColumnType("int"), nullable=True)  # none are 0
FLAGS_GIVEN = f"flags & {FLAGS_MAX}"  # without the bits of `meta.py`
FLAGS_SHOWN = f"{FLAGS_GIVEN} AS flags"
NO_FLAGS = f"{{}} NOT BETWEEN 0 AND {FLAGS_MAX}"
FLAGS_TAKE = f".flags: it takes a whole number from 0 to {FLAGS_MAX}"
BOUNDED = ": a cache with bounds takes only DELETE by SQL; store by Python's set, HandlerSocket or memcached's protocol"
KEY_IS_FIXED = "a key cannot be changed; delete it and insert the other one"

# SQLite's own clock, to a millisecond: a view knows no store's.
SQLITE_NOW = """\
(SELECT max(m.column1 + coalesce(t.ahead, 0), coalesce(t.latest, 0))
      FROM (VALUES (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000)) m LEFT JOIN {clock} t)"""
SQLITE_SHOWN = (
    f"CASE WHEN until < {NEVER} THEN "
    "strftime('%Y-%m-%d %H:%M:%S', until / 1000000, 'unixepoch') || printf('.%06d', until % 1000000) END"
)
SQLITE_UNTIL = (  # strftime rounds: .999999 would be the next second's
    f"coalesce(CAST(strftime('%s', substr({{0}}, 1, 19)) AS INTEGER) * 1000000 + CAST(substr({{0}}, 21) AS INTEGER), "
    f"{NEVER})"
)
MARIADB_SHOWN = f"IF(until < {NEVER}, CAST('1970-01-01' AS DATETIME(6)) + INTERVAL until MICROSECOND, NULL)"
MARIADB_UNTIL = f"COALESCE(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', `new expires`), {NEVER})"
# An interval is multiplied by a float, which has no microseconds of a far year.
POSTGRESQL_SHOWN = f"""\
CASE WHEN until < {NEVER} THEN to_timestamp(0) + until / 1000000 * interval '1 second'
    + until % 1000000 * interval '1 microsecond' END"""
POSTGRESQL_UNTIL = f"coalesce((extract(epoch FROM NEW.expires) * 1000000)::bigint, {NEVER})"


def on_sqlite(plan: StructurePlan) -> sqlite.Made:
    """Return the view on SQLite, with its INSTEAD OF triggers."""
    words, value = sqlite.ViewWords(plan), plan.structure.columns[-1]
    rows, key = words.rows, words.dialect.names(words.key)
    now = SQLITE_NOW.format(clock=f"roost_{words.name}_clock")
    until = SQLITE_UNTIL.format(words.new(EXPIRES))
    shown = f"{key}, {words.shown([value])}, {SQLITE_SHOWN} AS expires, {FLAGS_SHOWN}"
    view = f"SELECT {shown} FROM {rows}\n  WHERE until > {now}"
    old, flags = words.is_old(words.key), words.new(FLAGS)
    no_flags = (NO_FLAGS.format(flags), FLAGS_TAKE)
    if _bounded(plan):
        return sqlite.Made(
            view=view,
            insert=[words.refuse(("1", BOUNDED))],
            update=[words.refuse(("1", BOUNDED))],
            delete=[
                f"UPDATE {words.head} SET n = n - 1, bytes = bytes - (SELECT size FROM {rows} WHERE {old})\n"
                f"    WHERE id = 0 AND EXISTS (SELECT 1 FROM {rows} WHERE {old})",
                f"DELETE FROM {rows} WHERE {old}",
            ],
        )
    return sqlite.Made(
        view=view,
        insert=[
            words.refuse(*words.rules([*words.key, value, EXPIRES, FLAGS]), no_flags),
            f"INSERT INTO {rows} ({key}, value, until, token, flags)\n"
            f"    VALUES ({words.news([*words.key, value])}, {until}, {now}, coalesce({flags}, 0))\n"
            f"    ON CONFLICT ({key}) DO UPDATE SET value = excluded.value, until = excluded.until,\n"
            "      token = max(excluded.token, token + 1), flags = excluded.flags",
        ],
        update=[
            words.refuse(
                words.fixed(words.key, KEY_IS_FIXED),
                *words.changes([value, EXPIRES, FLAGS]),
                no_flags,
            ),
            f"UPDATE {rows} SET value = {words.new(value)}, until = {until}, token = max({now}, token + 1),\n"
            f"    flags = coalesce({flags}, 0) WHERE {old}",
        ],
        delete=[f"DELETE FROM {rows} WHERE {old}"],
    )


def on_mariadb(plan: StructurePlan) -> mariadb.Made:
    """Return the view on MariaDB, with what is inserted and removed through its inlets or procedures."""
    key, columns, rows = plan.structure.key.columns, plan.structure.columns, plan.rows_table
    now = Clock(plan).now

    def add(words: mariadb.ViewWords) -> mariadb.Door:
        if _bounded(plan):
            return words.door([*columns, EXPIRES, FLAGS], [], [words.signal(f"{words.name}{BOUNDED}")])
        return words.door(
            [*columns, EXPIRES, FLAGS],
            [],
            [
                f"IF {NO_FLAGS.format('`new flags`')} THEN {words.signal(f'{words.name}{FLAGS_TAKE}')}; END IF",
                f"INSERT INTO {rows} ({words.names(columns)}, until, token, flags)\n"
                f"    VALUES ({words.news(columns)}, {MARIADB_UNTIL}, {now}, COALESCE(`new flags`, 0))\n"
                "    ON DUPLICATE KEY UPDATE value = VALUES(value), until = VALUES(until),\n"
                "      token = GREATEST(VALUES(token), token + 1), flags = VALUES(flags)",
            ],
        )

    def remove(words: mariadb.ViewWords) -> mariadb.Door:
        delete = f"DELETE FROM {rows} WHERE {words.is_new(key, f'{rows}.')}"
        if not _bounded(plan):
            return words.door(key, [], [delete])
        lock = f"SELECT COUNT(*) INTO `locked` FROM {words.head} h WHERE h.id = 0 FOR UPDATE"
        count = (
            f"UPDATE {words.head} h JOIN {rows} r ON {words.is_new(key, 'r.')}\n"
            "    SET h.n = h.n - 1, h.bytes = h.bytes - r.size WHERE h.id = 0"
        )
        return words.door(key, [mariadb.LOCKED], [lock, count, delete])

    names = plan.dialect.names(columns)
    shown = f"SELECT {names}, {MARIADB_SHOWN} AS expires, {FLAGS_SHOWN} FROM {rows} WHERE until > {now}"
    return mariadb.Made(f"SELECT * FROM ({shown}) {{mark}}", add, remove, False)


def on_postgresql(plan: StructurePlan) -> postgresql.Made:
    """Return the view on PostgreSQL, with its INSTEAD OF triggers."""
    words, columns, value = postgresql.ViewWords(plan), plan.structure.columns, plan.structure.columns[-1]
    rows, old, new, now = words.rows, words.equal(words.key, "OLD"), [*columns, EXPIRES, FLAGS], Clock(plan).now
    no_flags = (NO_FLAGS.format("NEW.flags"), "23514", FLAGS_TAKE)
    shown = f"{words.names(columns)}, {POSTGRESQL_SHOWN} AS expires, {FLAGS_SHOWN}"
    view = f"SELECT {shown} FROM {rows}\n  WHERE until > {now}"
    # As the view shows them, so that they are equal where nothing was written.
    as_it_was = (
        f"ROW(value, {POSTGRESQL_SHOWN}, {FLAGS_GIVEN})\n  IS NOT DISTINCT FROM ROW(OLD.value, OLD.expires, OLD.flags)"
    )
    if _bounded(plan):
        return postgresql.Made(
            view=view,
            insert=[words.stop("0A000", BOUNDED)],
            update=[words.stop("0A000", BOUNDED)],
            delete=[
                words.refuse(),
                f"PERFORM 1 FROM {words.head} WHERE id = 0 FOR UPDATE;",
                f"DELETE FROM {rows} WHERE {old} RETURNING size INTO it.size;",
                "IF NOT FOUND THEN\n  RETURN NULL;\nEND IF;",
                f"UPDATE {words.head} SET n = n - 1, bytes = bytes - it.size WHERE id = 0;",
                "RETURN OLD;",
            ],
            variables=("size bigint",),
        )
    return postgresql.Made(
        view=view,
        insert=[
            words.refuse(*words.rules(new), no_flags),
            *words.normal(new),
            f"INSERT INTO {rows} AS r ({words.names(columns)}, until, token, flags)\n"
            f"  VALUES ({words.values(columns)}, {POSTGRESQL_UNTIL}, {now}, coalesce(NEW.flags, 0))\n"
            f"  ON CONFLICT ({words.names(words.key)}) DO UPDATE SET value = excluded.value, until = excluded.until,\n"
            "    token = greatest(excluded.token, r.token + 1), flags = excluded.flags;",
            "RETURN NEW;",
        ],
        update=[
            words.refuse(words.fixed(words.key, KEY_IS_FIXED), *words.changes([value, EXPIRES]), no_flags),
            *words.normal([value, EXPIRES]),
            f"UPDATE {rows} SET value = NEW.value, until = {POSTGRESQL_UNTIL}, flags = coalesce(NEW.flags, 0),\n"
            f"  token = greatest({now}, token + 1) WHERE {old} AND {as_it_was};",
            words.unless_changed(old),
            "RETURN NEW;",
        ],
        delete=[
            words.refuse(),
            f"DELETE FROM {rows} WHERE {old};",
            "IF NOT FOUND THEN\n  RETURN NULL;\nEND IF;",
            "RETURN OLD;",
        ],
    )


def _bounded(plan: StructurePlan) -> bool:
    assert isinstance(plan.structure, Cache)
    return plan.structure.bounded


VIEWS = {"sqlite": on_sqlite, "mariadb": on_mariadb, "postgresql": on_postgresql}
