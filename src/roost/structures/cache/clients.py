"""A cache for other clients: plain SQL, HandlerSocket, the command line.

The view shows values that have not expired, with the expiry time in the column `expires` (NULL: never) and their flags.
INSERT sets a value, whether or not the key has one; UPDATE sets the value, expiry time and flags; DELETE removes. Each
calls a program.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from roost.structures.cache.declaration import FLAGS_MAX, NEVER, Cache
from roost.structures.cache.programs import INVALIDATES, TTL, WANTED
from roost.structures.console import Console
from roost.structures.operation import Operation
from roost.structures.rules import DUE, due_with
from roost.structures.structure import Structure
from roost.structures.views.mysql import Door, MadeDoors, MySQLViewWords
from roost.structures.views.postgresql import PostgreSQLViewWords
from roost.structures.views.sqlite import SQLiteViewWords
from roost.structures.views.view import VALUE, Made
from roost.structures.wire import Values, Wire
from roost.types.column_types import ColumnType
from roost.types.columns import Column

EXPIRES = Column("expires", ColumnType("datetime"), nullable=True)
FLAGS = Column("flags", ColumnType("int"), nullable=True)  # none are 0
FLAGS_GIVEN = f"flags & {FLAGS_MAX}"  # without the bits of `meta.py`
FLAGS_SHOWN = f"{FLAGS_GIVEN} AS flags"
NO_FLAGS = f"{{}} NOT BETWEEN 0 AND {FLAGS_MAX}"
FLAGS_TAKE = f".flags: it takes a whole number from 0 to {FLAGS_MAX}"
REMOVED = {WANTED.name: "NULL", INVALIDATES.name: "0", TTL.name: "NULL"}
KEY_IS_FIXED = "a key cannot be changed; delete it and insert the other one"

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


def on_sqlite(plan: Any) -> Made:
    """Return the view on SQLite, with its INSTEAD OF triggers."""
    words, value = SQLiteViewWords(plan), plan.structure.columns[-1]
    until, flags = SQLITE_UNTIL.format(words.new(EXPIRES)), words.new(FLAGS)
    shown = f"{words.dialect.names(words.key)}, {words.shown([value])}, {SQLITE_SHOWN} AS expires, {FLAGS_SHOWN}"
    set_ = [
        *words.call("set", {TTL.name: "NULL", FLAGS.name: f"coalesce({flags}, 0)"}),
        f"UPDATE {words.rows} SET until = {until} WHERE {words.is_new(words.key)}",
    ]
    no_flags = (NO_FLAGS.format(flags), VALUE, FLAGS_TAKE)
    fixed = words.fixed(words.key, KEY_IS_FIXED)
    return Made(
        view=f"SELECT {shown} FROM {words.rows}{words.where}",
        insert=[words.refuse(*words.rules([*words.key, value, EXPIRES, FLAGS]), no_flags), *set_],
        update=[words.refuse(fixed, *words.changes([value, EXPIRES, FLAGS]), no_flags), *set_],
        delete=words.call("remove", REMOVED, removes=True),
    )


def doors(plan: Any) -> MadeDoors:
    """Return the view on MariaDB and MySQL, with what is inserted and removed through its inlets or procedures."""
    key, columns = plan.structure.key.columns, plan.structure.columns

    def add(words: MySQLViewWords) -> Door:
        called, declared = words.call("set", {TTL.name: "NULL", FLAGS.name: "COALESCE(`new flags`, 0)"})
        until = f"UPDATE {words.rows} SET {_until(plan, MARIADB_UNTIL)} WHERE {words.is_new(key, f'{words.rows}.')}"
        no_flags = words.refuse((NO_FLAGS.format("`new flags`"), VALUE, FLAGS_TAKE))
        return words.door([*columns, EXPIRES, FLAGS], [*no_flags, *called, until], declared)

    def remove(words: MySQLViewWords) -> Door:
        return words.door(key, *words.call("remove", REMOVED))

    shown = f"{plan.dialect.names(columns)}, {MARIADB_SHOWN} AS expires, {FLAGS_SHOWN}"
    where = f"WHERE until > {plan.shown_now}"
    return MadeDoors(f"SELECT * FROM (SELECT {shown} FROM {plan.rows_table} {where}) {{mark}}", add, remove)


def on_postgresql(plan: Any) -> Made:
    """Return the view on PostgreSQL, with its INSTEAD OF triggers."""
    words, columns, value = PostgreSQLViewWords(plan), plan.structure.columns, plan.structure.columns[-1]
    old, new = words.is_old(words.key), [*columns, EXPIRES, FLAGS]
    no_flags = (NO_FLAGS.format("NEW.flags"), VALUE, FLAGS_TAKE)
    shown = f"{words.dialect.names(columns)}, {POSTGRESQL_SHOWN} AS expires, {FLAGS_SHOWN}"
    set_ = [
        *words.call("set", {TTL.name: "NULL", FLAGS.name: "coalesce(NEW.flags, 0)"}),
        f"UPDATE {words.rows} SET {_until(plan, POSTGRESQL_UNTIL)} WHERE {words.is_new(words.key)};",
    ]
    # As the view shows them, so that they are equal where nothing was written.
    as_it_was = (
        f"ROW(value, {POSTGRESQL_SHOWN}, {FLAGS_GIVEN})\n  IS NOT DISTINCT FROM ROW(OLD.value, OLD.expires, OLD.flags)"
    )
    head = [f"PERFORM 1 FROM {words.head} WHERE id = 0 FOR UPDATE;"] if plan.structure.bounded else []
    removed = f"{words.name}_remove({', '.join(words.called('remove', REMOVED, words.old))})"
    return Made(
        view=f"SELECT {shown} FROM {words.rows}{words.where}",
        insert=[words.refuse(*words.rules(new), no_flags), *words.normal(new), *set_],
        update=[
            words.refuse(words.fixed(words.key, KEY_IS_FIXED), *words.changes([value, EXPIRES]), no_flags),
            *words.normal([value, EXPIRES]),
            *head,
            f"PERFORM 1 FROM {words.rows} WHERE {old} AND {as_it_was} FOR UPDATE;",
            words.unless_changed(old),
            *set_,
        ],
        delete=[words.refuse(), f"IF {removed} = 0 THEN\n  RETURN NULL;\nEND IF;"],
    )


def _until(plan: Any, until: str) -> str:
    # What follows the program, which has stored the row as one that never expires.
    return f"until = {until}{f', due = {due_with(until)}' if plan.expiry == DUE.name else ''}"


VIEWS = {"sqlite": on_sqlite, "mariadb": doors, "postgresql": on_postgresql}


class CacheWire(Wire):
    """The value of a key; an insert sets it, without expiry, and a delete removes it."""

    def rows(self, key: Values, found: Any) -> list[Values]:
        return [] if found is None else [(*key, found)]

    def insert(self, head: Any, row: Values, given: dict[str, Any]) -> Operation[Any]:
        return self.structure.set(head, row[self.key])  # type: ignore[no-any-return]


class CacheConsole(Console[Cache[Any, Any]]):
    """Keys, and the value of one; an imported record may have an expiry time and flags, with the names of the view."""

    takes: ClassVar[Mapping[str, Any]] = {
        "key": (),
        "value": [("value", "binary")],
        "max_items": None,
        "max_bytes": None,
    }
    changes = ("max_items", "max_bytes")

    def contents(self, key: Any, n: int | None) -> Operation[Any]:
        return self.structure.get(key)

    @property
    def fields(self) -> Sequence[Column]:
        return *self.structure.columns, EXPIRES, FLAGS

    def insertion(self, values: Sequence[Any]) -> Operation[Any]:
        """Return the operation that stores a value; its expiry time is compared with the clock of this machine.

        An expired record removes the value of its key.
        """
        *key, value, expires, flags = values
        key = self.structure.key.value(key)
        if expires is None:
            return self.structure.set(key, value, None, flags or 0)
        end = expires if expires.tzinfo else expires.replace(tzinfo=dt.UTC)
        ttl = end - dt.datetime.now(dt.UTC)
        return self.structure.set(key, value, ttl, flags or 0) if ttl > dt.timedelta(0) else self.structure.delete(key)

    def deletes(self, new: Structure) -> str:
        for bound in self.changes:
            before, after = getattr(self.structure, bound), getattr(new, bound)
            if after is not None and (before is None or after < before):
                return f"{bound} becomes {after:,}: what was used longest ago is deleted"
        return ""

    def removed(self, number: int) -> str:
        return f"{number:,} value{'' if number == 1 else 's'}"
