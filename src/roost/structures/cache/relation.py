"""A cache to SQL clients: its values that have not expired, with their flags.

The column `expires` is the moment at which a value does (NULL: never). An INSERT sets a value, whether or not the key
has one; so does an UPDATE. Each calls a program. It is by the clock, which the structure's time may be ahead of.
"""

from __future__ import annotations

from typing import Any

from roost.structures.cache.declaration import EXPIRES, FLAGS_MAX, GIVEN_FLAGS, NEVER
from roost.structures.cache.programs import FLAGS, INVALIDATES, TTL, WANTED
from roost.structures.clock import at_moment
from roost.structures.relation import ByDatabase
from roost.structures.rules import DUE, due_with
from roost.structures.views.mysql import Inlet, Inlets, MySQLViewWords
from roost.structures.views.postgresql import PostgreSQLViewWords
from roost.structures.views.sqlite import SQLiteViewWords
from roost.structures.views.view import VALUE, Made

FLAGS_GIVEN = f"flags & {FLAGS_MAX}"  # without the bits of `meta.py`
FLAGS_SHOWN = f"{FLAGS_GIVEN} AS flags"
NO_FLAGS = f"{{}} NOT BETWEEN 0 AND {FLAGS_MAX}"
FLAGS_TAKE = f".flags: it takes a whole number from 0 to {FLAGS_MAX}"
REMOVED = {WANTED.name: "NULL", INVALIDATES.name: "0", TTL.name: "NULL"}
KEY_IS_FIXED = "a key cannot be changed; delete it and insert the other one"

SQLITE_UNTIL = (  # strftime rounds: .999999 would be the next second's
    f"coalesce(CAST(strftime('%s', substr({{0}}, 1, 19)) AS INTEGER) * 1000000 + CAST(substr({{0}}, 21) AS INTEGER)"
    f" + {{1}}, {NEVER})"
)
MARIADB_UNTIL = f"COALESCE(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', `new expires`) + `the ahead`, {NEVER})"
POSTGRESQL_UNTIL = f"coalesce((extract(epoch FROM NEW.expires) * 1000000)::bigint + {{}}, {NEVER})"


def _ahead(plan: Any) -> str:
    return f"(SELECT coalesce(max(t.ahead), 0) FROM {plan.words.times} t)"


def _shown(plan: Any) -> str:
    return f"CASE WHEN until < {NEVER} THEN {at_moment(plan.dialect, f'(until - {_ahead(plan)})')} END"


def on_sqlite(plan: Any, words: SQLiteViewWords) -> Made:
    """Return the view on SQLite, with its INSTEAD OF triggers."""
    value = plan.structure.columns[-1]
    until, flags = SQLITE_UNTIL.format(words.new(EXPIRES), _ahead(plan)), words.new(GIVEN_FLAGS)
    typed = f"CAST({FLAGS_GIVEN} AS INTEGER) AS flags"  # an expression has no type: to a text every number is less
    shown = f"{words.dialect.names(words.key)}, {words.shown([value])}, {_shown(plan)} AS expires, {typed}"
    set_ = [
        *words.call("set", {TTL.name: "NULL", FLAGS.name: f"coalesce({flags}, 0)"}),
        f"UPDATE {words.rows} SET until = {until} WHERE {words.is_new(words.key)}",
    ]
    no_flags = (NO_FLAGS.format(flags), VALUE, FLAGS_TAKE)
    fixed = words.fixed(words.key, KEY_IS_FIXED)
    return Made(
        view=f"SELECT {shown} FROM {words.rows}{words.where}",
        insert=[words.refuse(*words.rules([*words.key, value, EXPIRES, GIVEN_FLAGS]), no_flags), *set_],
        update=[words.refuse(fixed, *words.changes([value, EXPIRES, GIVEN_FLAGS]), no_flags), *set_],
        delete=words.call("remove", REMOVED, removes=True),
    )


def inlets(plan: Any) -> Inlets:
    """Return the view on MariaDB and MySQL, with what is inserted and removed through its inlets or procedures."""
    key, columns = plan.structure.key.columns, plan.structure.columns

    def add(words: MySQLViewWords) -> Inlet:
        called, declared = words.call("set", {TTL.name: "NULL", FLAGS.name: "COALESCE(`new flags`, 0)"})
        until = f"UPDATE {words.rows} SET {_until(plan, MARIADB_UNTIL)} WHERE {words.is_new(key, f'{words.rows}.')}"
        no_flags = words.refuse((NO_FLAGS.format("`new flags`"), VALUE, FLAGS_TAKE))
        ahead = f"SELECT {_ahead(plan)} INTO `the ahead`"  # in the UPDATE it would lock the clock
        body = [*no_flags, *called, ahead, until]
        return words.inlet([*columns, EXPIRES, GIVEN_FLAGS], body, [*declared, "DECLARE `the ahead` BIGINT"])

    def remove(words: MySQLViewWords) -> Inlet:
        return words.inlet(key, *words.call("remove", REMOVED))

    shown = f"{plan.dialect.names(columns)}, {_shown(plan)} AS expires, {FLAGS_SHOWN}"
    where = f"WHERE until > {plan.shown_now}"
    return Inlets(f"SELECT * FROM (SELECT {shown} FROM {plan.rows_table} {where}) {{mark}}", add, remove)


def on_postgresql(plan: Any, words: PostgreSQLViewWords) -> Made:
    """Return the view on PostgreSQL, with its INSTEAD OF triggers."""
    columns, value = plan.structure.columns, plan.structure.columns[-1]
    old, new = words.is_old(words.key), [*columns, EXPIRES, GIVEN_FLAGS]
    no_flags = (NO_FLAGS.format("NEW.flags"), VALUE, FLAGS_TAKE)
    shown = f"{words.dialect.names(columns)}, {_shown(plan)} AS expires, {FLAGS_SHOWN}"
    until = _until(plan, POSTGRESQL_UNTIL.format(_ahead(plan)))
    set_ = [
        *words.call("set", {TTL.name: "NULL", FLAGS.name: "coalesce(NEW.flags, 0)"}),
        f"UPDATE {words.rows} SET {until} WHERE {words.is_new(words.key)};",
    ]
    # As the view shows them, so that they are equal where nothing was written.
    row = f"ROW(value, {_shown(plan)}, {FLAGS_GIVEN})"
    as_it_was = f"{row}\n  IS NOT DISTINCT FROM ROW(OLD.value, OLD.expires, OLD.flags)"
    head = [f"PERFORM 1 FROM {words.head} WHERE id = 0 FOR UPDATE;"] if plan.structure.bounded else []
    removed = f"{words.name}_remove({', '.join(words.called('remove', REMOVED, words.old))})"
    return Made(
        view=f"SELECT {shown} FROM {words.rows}{words.where}",
        insert=[words.refuse(*words.rules(new), no_flags), *set_],
        update=[
            words.refuse(words.fixed(words.key, KEY_IS_FIXED), *words.changes([value, EXPIRES]), no_flags),
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


CACHE_RELATION = ByDatabase(on_sqlite, on_postgresql, inlets)
