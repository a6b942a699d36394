"""How tables are capped in MariaDB: triggers record the keys that have grown (*notes*), and passes process the notes.

    CREATE TRIGGER roostcap_visits_insert AFTER INSERT ON visits FOR EACH ROW …
      INSERT INTO roostcap_visits_grown (roostcap_n, uid) VALUES (UUID_SHORT(), NEW.uid)

A trigger may not modify its own table (1442), so a key has at most `keep` rows plus those inserted since the last pass.
Passes are run by a server event, every second, or by `roost cap --watch`. Each INSERT adds a separate note. A single
note per key would be a lock shared by all writers of the key: with four INSERTs in a transaction, eight writers had 406
deadlocks in 1.5 s, and none with separate notes, which cost them 5 %. Notes do not use AUTO_INCREMENT, whose lock an
INSERT … SELECT holds to its end.

A pass never waits for locks: it skips rows that another session holds; their notes stay for the next pass.

Triggers and event name tables, and who may create views in the database may put one in a table's place: what it calls
runs with the rights of the definer. So that is an account with no more rights than needed, or else the account that
caps the table.
"""

from __future__ import annotations

import datetime as dt
import re
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from typing import Any, ClassVar

from roost.capping.adoption import KEPT, Adoption, Column
from roost.capping.cap import Asking, answered
from roost.capping.mariadb_sql import AT, CUT, NTH, NUMBER, MariaDBWords
from roost.catalog.private import guarded, strange
from roost.dialects.dialect import Gather, Row, Statement, Template, execute, fetch
from roost.dialects.mariadb import MARIADB, compared
from roost.dialects.mariadb_definers import mighty, powerless
from roost.errors import Busy, DatabaseError, Invalid, StatementFailed
from roost.structures.adopted import Cap

LATE = 10  # seconds after which a note should have been processed: a pass runs every second
LONGEST = 64  # characters of a name
INDEXED = 3072  # bytes of an index's columns
ACCOUNT = "roostcap@localhost"  # proposed as the definer
NOT_ALLOWED = ("(1044)", "(1227)")  # how errors end that say so
HERE = "TABLE_SCHEMA = DATABASE()"
KEYS_OF_OTHERS = (
    "FROM information_schema.KEY_COLUMN_USAGE k JOIN information_schema.REFERENTIAL_CONSTRAINTS c\n"
    "    ON c.CONSTRAINT_SCHEMA = k.CONSTRAINT_SCHEMA AND c.CONSTRAINT_NAME = k.CONSTRAINT_NAME\n"
    "    AND c.TABLE_NAME = k.TABLE_NAME"
)
NAMED = "IF(k.{0}TABLE_SCHEMA = DATABASE(), k.{0}TABLE_NAME, CONCAT(k.{0}TABLE_SCHEMA, '.', k.{0}TABLE_NAME))"
EVENT = "FROM information_schema.EVENTS WHERE EVENT_SCHEMA = DATABASE() AND EVENT_NAME = %s"
SHAPES = ("geometry", "geometrycollection", "point", "linestring", "polygon")  # and several of the last three: multi…
NUMBERS = frozenset(["tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "year"])
TEXTS = frozenset(["char", "varchar", "enum"])
BYTES = frozenset(["binary", "varbinary"])
# What compares in MariaDB as it does when it has been in Python.
KEYS = NUMBERS | TEXTS | BYTES | {"date", "datetime", "timestamp", "uuid"}


class MariaDBAdoption(Adoption[MariaDBWords]):
    """Notes of the keys that grow, and passes."""

    dialect = MARIADB
    words_class = MariaDBWords
    by_itself = False
    integers = NUMBERS - {"decimal", "year"}
    times: ClassVar = {"timestamp": "zoned", "datetime": "plain", "date": "date"}
    inexact = ("float", "bit")
    # With lower_case_table_names the table is called otherwise than it was asked for, and so is its entry.
    definition_sql = (
        "SELECT definition FROM roost_catalog WHERE name = %s OR @@lower_case_table_names = 1 AND name = LOWER(%s)"
    )
    table_sql = (
        "SELECT TABLE_NAME, CASE\n"
        "  WHEN TABLE_TYPE <> 'BASE TABLE' THEN CONCAT('is a ', LOWER(TABLE_TYPE), '; only a table can be capped')\n"
        "  WHEN ENGINE <> 'InnoDB' THEN CONCAT('is of the engine ', ENGINE, '; only one of InnoDB can be capped')\n"
        # The rows of a key may be in several partitions, and no index leads through all of them in order.
        "  WHEN CREATE_OPTIONS LIKE '%%partitioned%%' THEN 'is a partitioned table; only a plain one can be capped'\n"
        "  WHEN @@log_bin AND @@binlog_format = 'STATEMENT' THEN CONCAT('cannot be capped: binlog_format is ',\n"
        "    'STATEMENT, and what the triggers note differs on a replica: set ROW or MIXED') END\n"
        f"  FROM information_schema.TABLES WHERE {HERE} AND TABLE_NAME = %s\n"
        "  ORDER BY BINARY TABLE_NAME = %s DESC LIMIT 1"
    )
    columns_sql = (
        "SELECT c.COLUMN_NAME, c.DATA_TYPE, s.SEQ_IN_INDEX, c.EXTRA LIKE '%%auto_increment%%',\n"
        "  c.EXTRA NOT LIKE '%%INVISIBLE%%'\n"
        "  FROM information_schema.COLUMNS c LEFT JOIN information_schema.STATISTICS s\n"
        "    ON s.TABLE_SCHEMA = c.TABLE_SCHEMA AND s.TABLE_NAME = c.TABLE_NAME\n"
        "    AND s.COLUMN_NAME = c.COLUMN_NAME AND s.INDEX_NAME = 'PRIMARY'\n"
        f"  WHERE c.{HERE} AND c.TABLE_NAME = %s ORDER BY c.ORDINAL_POSITION"
    )
    made_sql = (
        "SELECT 'trigger', TRIGGER_NAME, EVENT_OBJECT_TABLE FROM information_schema.TRIGGERS\n"
        "  WHERE EVENT_OBJECT_SCHEMA = DATABASE() AND LEFT(TRIGGER_NAME, 9) = 'roostcap_'"
    )
    indexes_sql = (
        "SELECT INDEX_NAME, COLUMN_NAME,\n"
        "  INDEX_TYPE = 'BTREE' AND SUB_PART IS NULL AND COLLATION = 'A' AND IGNORED = 'NO'\n"
        f"  FROM information_schema.STATISTICS WHERE {HERE} AND TABLE_NAME = %s ORDER BY INDEX_NAME, SEQ_IN_INDEX"
    )
    foreign_keys_sql = (
        f"SELECT {NAMED.format('')}, k.CONSTRAINT_NAME, k.COLUMN_NAME, c.DELETE_RULE {KEYS_OF_OTHERS}\n"
        f"  WHERE k.REFERENCED_TABLE_SCHEMA IS NOT NULL AND {NAMED.format('REFERENCED_')} = %s\n"
        "  ORDER BY 1, 2, k.ORDINAL_POSITION"
    )
    own_keys_sql = (
        "SELECT CONSTRAINT_NAME, COLUMN_NAME FROM information_schema.KEY_COLUMN_USAGE\n"
        f"  WHERE {HERE} AND TABLE_NAME = %s AND REFERENCED_TABLE_NAME IS NOT NULL\n"
        "  ORDER BY CONSTRAINT_NAME, ORDINAL_POSITION"
    )
    referring_sql = (
        f"SELECT k.TABLE_NAME, k.COLUMN_NAME, k.REFERENCED_COLUMN_NAME {KEYS_OF_OTHERS}\n"
        "  WHERE k.REFERENCED_TABLE_SCHEMA = DATABASE() AND k.REFERENCED_TABLE_NAME = %s\n"
        "    AND c.UPDATE_RULE NOT IN ('CASCADE', 'SET NULL')"
    )

    def here(self, cap: Cap) -> Asking:
        """Return a cap's words; `Invalid` if a view has taken the table's place."""
        yield from guarded(self.dialect, [cap.table])
        return self.words(cap)

    def _fits(self, cap: Cap, columns: Sequence[Column]) -> Asking:
        if odd := [name for name in (cap.table, *cap.per, *cap.order) if "%" in name]:
            raise Invalid(f"{cap.table}: a table whose names have % in them, as {odd[0]!r}, cannot be capped")
        words = self.words(cap)
        long = max([*words.triggers, words.grown, cap.index_name], key=len)
        if len(long) > LONGEST:
            raise Invalid(f"{cap.table}: its name is too long, since {long} has to be one of {LONGEST} characters")
        if taken := [name for name in cap.per if self.folded(name) in (NUMBER, AT, NTH)]:
            raise Invalid(f"{cap.table}: a column of the key is called {taken[0]}, as that of Roost's notes")
        types = {each.name: each.type for each in columns}
        for name in cap.per:
            if types[name] not in KEYS:
                raise Invalid(f"{cap.table}.{name} is a {types[name]}, which cannot be a key")
        # Whether an index can have them: nothing could be rolled back once the catalog has the entry.
        names = [*cap.per, *([cap.by] if cap.by else [])]
        found = yield from fetch(
            "SELECT COLUMN_NAME, DATA_TYPE,\n"
            "  DATA_TYPE IN ('varchar', 'varbinary') AND COLUMN_TYPE LIKE '%%COMPRESSED%%',\n"
            "  IF(DATA_TYPE IN ('enum', 'set'), 0, COALESCE(CHARACTER_OCTET_LENGTH, 0))\n"
            "  FROM information_schema.COLUMNS\n"
            f"  WHERE {HERE} AND TABLE_NAME = %s AND COLUMN_NAME IN ({self.dialect.holes(len(names))})",
            *(cap.table, *names),
        )
        for name, type_, compressed, _ in found:
            if compressed or type_.endswith(("text", "blob", "json")) or type_.removeprefix("multi") in SHAPES:
                what = f"a compressed {type_}" if compressed else f"a {type_}"
                raise Invalid(f"{cap.table}.{name} is {what}, which cannot be in the index that is needed")
        if (length := sum(row[-1] for row in found)) > INDEXED:
            most = f"up to {length:,} bytes, and an index takes {INDEXED:,} at most"
            raise Invalid(f"{cap.table}: {' and '.join(names)} have {most}")

    def _is_indexed(self, table: str, columns: Sequence[str]) -> Asking:
        return answered(True)  # InnoDB has an index for every foreign key

    # With whose rights triggers and event run

    def _runs_as(self, cap: Cap) -> Asking:
        me, is_mighty, _ = yield from mighty()
        if not is_mighty or (yield from self._definer(cap)) or me in (yield from self._definers(cap)):  # agreed to
            return ""
        return (
            f"{cap.table}: what keeps it short would run with the rights that {me} has on the whole server, and who "
            "may put a view in a table's place in this database could have code of their own run with them. Better: "
            f"{yield from _made(ACCOUNT)}; then --definer {ACCOUNT}"
        )

    def _definers(self, cap: Cap) -> Asking:
        # Of the triggers and the event that there are.
        found = yield from fetch(
            f"SELECT DEFINER {EVENT}\n"
            "UNION SELECT DEFINER FROM information_schema.TRIGGERS WHERE EVENT_OBJECT_SCHEMA = DATABASE()\n"
            "  AND EVENT_OBJECT_TABLE = %s AND TRIGGER_NAME IN (%s, %s)",
            *(cap.index_name, cap.table, *(list(self.words(cap).bodies) or ["", ""])),
        )
        return [each for (each,) in found]

    def _definer(self, cap: Cap) -> Asking:
        # The account named for a cap, or the one that it has, unless that cannot be named; "" for the own one.
        grown = self.words(cap).grown
        rights = [("*", "EVENT"), *[(cap.table, right) for right in ("SELECT", "DELETE", "TRIGGER")]]
        rights += [(grown, right) for right in ("SELECT", "INSERT", "DELETE") if grown]
        me, _, names_others = yield from mighty()
        if cap.definer:
            if not names_others and cap.definer != me:
                raise Invalid(f"{me} may name no other definer: run this as an account with the right SET USER")
            if (yield from powerless({cap.table: (cap.definer, rights)})):
                raise Invalid(f"{cap.definer} is no account that has the rights: {yield from _made(cap.definer)}")
            return cap.definer
        there = yield from self._definers(cap)
        if not names_others or me in there:
            return ""
        lost = yield from powerless({each: (each, rights) for each in there})
        return next((each for each in there if each not in lost), "")

    # Installing

    def _make(self, cap: Cap, old: Cap | None, make_index: bool) -> Asking:
        # The table of notes, the triggers that write them, and the event if that is allowed.
        words = self.words(cap)
        # For ALTER: while it waits for somebody, others wait behind it.
        yield execute("SET SESSION lock_wait_timeout = 1")
        if make_index and not (yield from self._index(cap)):
            yield from self._make_index(words)
        elif old is not None and old.index and not cap.index:
            yield from self._make_index(words, makes=False)
        yield from self.leads(cap)
        if words.grown:
            yield from guarded(self.dialect, [words.grown])
            changed = yield from self._changed(cap)
            others = {*(yield from self._definers(cap))} - {cap.definer} if cap.definer else ()
            if words.grown in changed:  # what comes meanwhile is without a note, and found by the trimming that follows
                for name in words.bodies:
                    yield execute(f"DROP TRIGGER IF EXISTS {self.dialect.quoted(name)}")
                yield execute(f"DROP TABLE IF EXISTS {words.notes}")
                yield execute(words.notes_sql)
            for name, sql in words.triggers.items() if changed or others else ():
                yield from self._replace("TRIGGER", name, sql)
        found = yield from fetch("SELECT @@event_scheduler")
        if found[0][0] == "ON":
            try:
                yield from self._replace("EVENT", cap.index_name, (yield from self._event(words)))
            except DatabaseError as error:
                if not any(code in str(error) for code in NOT_ALLOWED):
                    raise
        else:  # one that is there would go by the rule of before when it is switched on
            yield from self._drop_event(cap)
        yield execute("SET SESSION lock_wait_timeout = DEFAULT")

    def _event(self, words: MariaDBWords) -> Asking:
        # The statement that creates the event.
        return answered(words.event({}))

    def _replace(self, what: str, name: str, sql: str) -> Asking:
        # Makes a trigger or an event in place of one that may be there.
        yield execute(sql)

    def _drop(self, cap: Cap, index: bool) -> Asking:
        words = self.words(cap)
        yield execute("SET SESSION lock_wait_timeout = 1")
        yield from self._drop_event(cap)
        for name in words.bodies:
            yield execute(f"DROP TRIGGER IF EXISTS {self.dialect.quoted(name)}")
        if words.grown:
            yield execute(f"DROP TABLE IF EXISTS {words.notes}")
        if index:
            yield from self._make_index(words, makes=False)
        yield execute("SET SESSION lock_wait_timeout = DEFAULT")

    def _make_index(self, words: MariaDBWords, *, makes: bool = True) -> Asking:
        # In place of the one that is there, or drops that. For Roost's index InnoDB drops the one that it has made for
        # a foreign key itself, and then Roost's cannot be dropped (1553) unless there is another one.
        cap, name = words.cap, self.dialect.quoted(words.cap.index_name)
        there = {each: [column for column, _ in parts] for each, parts in (yield from self._indexes(cap.table)).items()}
        if there.pop(cap.index_name, None) is None:
            if makes:
                yield execute(f"{words.index_sql} ALGORITHM=INPLACE LOCK=NONE")
            return
        changes = [f"DROP INDEX {name}"]
        if makes:
            there[name] = [*words.index_columns]
            changes.append(f"ADD INDEX {name} ({words.columns(words.index_columns)})")
        keys: dict[str, list[str]] = {}
        for each, column in (yield from self.ask(self.own_keys_sql, cap.table)):
            keys.setdefault(each, []).append(column)
        for key in keys.values():
            if not any(columns[: len(key)] == key for columns in there.values()):
                changes.append(f"ADD INDEX ({words.columns(key)})")
        yield execute(f"ALTER TABLE {words.table} {', '.join(changes)}, ALGORITHM=INPLACE, LOCK=NONE")

    def _drop_event(self, cap: Cap) -> Asking:
        found = yield from fetch(f"SELECT count(*) {EVENT}", cap.index_name)
        if found[0][0]:
            yield execute(f"DROP EVENT IF EXISTS {self.dialect.quoted(cap.index_name)}")

    # Trimming

    def _cut(self, words: MariaDBWords, key: Row, is_over: Callable[[], bool]) -> Asking:
        # What nobody holds; the locks are on rows that nobody writes any more.
        in_utc = not any(isinstance(value, dt.datetime) for value in key)  # keys were read in the session's zone
        past, deleted, full = words.cap.keep, 0, True
        while full and not deleted:
            victims = yield from fetch(words.reading(words.victims(past), in_utc), *key, *key)
            full = len(victims) == CUT
            deleted, refused = yield from self._delete(words, victims, in_utc)
            if victims and not deleted and not refused:
                raise Invalid(f"{words.cap.table}: {KEPT}")
            past += refused
        return deleted, not full

    def _delete(self, words: MariaDBWords, rows: Sequence[Row], in_utc: bool) -> Asking:
        # Returns how many rows were deleted, and how many are refused, by the application's trigger or a foreign key.
        if not rows:
            return 0, 0
        with suppress(StatementFailed):
            return (yield words.delete_all(rows, in_utc)), 0
        deleted = 0
        for row in rows:
            with suppress(StatementFailed):
                deleted += yield words.delete_all([row], in_utc)
        return deleted, len(rows) - deleted

    def _finished(self, words: MariaDBWords, key: Row, notes: Sequence[int]) -> Asking:
        # A key of which somebody holds rows has a note for the next pass; another's notes go.
        if not words.grown:
            return
        left = yield from fetch(f"SELECT {words.is_long(words.cap.keep)}", *key)
        if left[0][0] and not notes:
            columns, values = words.columns(words.cap.per), self.dialect.holes(len(key))
            yield execute(f"INSERT INTO {words.notes} ({NUMBER}, {columns}) VALUES (UUID_SHORT(), {values})", *key)
        elif notes and not left[0][0]:
            delete = words.by_key(words.notes, [NUMBER])
            yield Statement(Template(delete, Gather.VALUES), [(n,) for n in notes])

    def added(self, cap: Cap, key: Row) -> Asking:
        """Trim a key that the library has added to; locked rows are left to the note and the next pass."""
        try:
            values = yield from self.key_values(cap, key)
        except Invalid:
            return
        with suppress(Busy):
            yield from self._cut(self.words(cap), values, lambda: False)

    def noted(self, cap: Cap, after: int, n: int) -> Asking:
        """Return the next notes behind a number, gathered by key, as `waiting` does, and the number of the last one."""
        yield from self.as_made(cap)
        words = self.words(cap)
        found = yield from fetch(
            f"SELECT {NUMBER}, {words.columns(cap.per)} FROM {words.notes} WHERE {NUMBER} > %s\n"
            f"  ORDER BY {NUMBER} LIMIT %s",
            *(after, n),
        )
        keys: dict[Row, list[int]] = {}
        for number, *key in found:
            keys.setdefault(tuple(key), []).append(number)
        newest = yield from fetch(f"SELECT COALESCE(MAX({NUMBER}), 0) FROM {words.notes}")
        return deque(keys.items()), newest[0][0]

    def claim(self, cap: Cap, seconds: int) -> Asking:
        """Take the lock for running passes, for the lifetime of the connection; return whether it was granted."""
        lock = self.words(cap).lock
        found = yield from fetch(
            f"SELECT IS_USED_LOCK({lock}) <=> CONNECTION_ID() OR GET_LOCK({lock}, %s) <=> 1", seconds
        )
        return bool(found[0][0])

    # Checking

    def has_event(self, cap: Cap) -> Asking:
        """Return whether a server event makes the passes."""
        found = yield from fetch(f"SELECT STATUS = 'ENABLED' AND @@event_scheduler = 'ON' {EVENT}", cap.index_name)
        return bool(found and found[0][0] and not (yield from self.idle(cap)))

    def grace(self, cap: Cap) -> Asking:
        """Return the seconds after which a pass should have come; 0 without passes.

        The lock for passes says that they are claimed, and not that they are made.
        """
        claimed = yield from fetch(f"SELECT IS_USED_LOCK({self.words(cap).lock}) IS NOT NULL")
        return LATE if claimed[0][0] or (yield from self.has_event(cap)) else 0

    def idle(self, cap: Cap) -> Asking:
        words = self.words(cap)
        found = yield from fetch(
            "SELECT EVENT_DEFINITION, DEFINER, STATUS,\n"
            f"  STATUS = 'ENABLED' OR CONCAT(@@read_only) NOT IN ('0', 'OFF') {EVENT}",
            cap.index_name,
        )
        if not found:
            return []
        body, definer, status, is_on = found[0]
        is_same = compared(body) == compared((yield from self._event(words)).partition(" DO\n")[2])
        if not is_on:  # a replica's events are off, also when it has become the primary
            return [f"{cap.index_name}, whose status is {status},"]
        rights = [(table, right) for table in words.tables for right in ("SELECT", "DELETE")]
        lost = yield from powerless({cap.index_name: (definer, [("*", "EVENT"), *rights])})
        return [] if is_same and not lost else [cap.index_name]

    def _changed(self, cap: Cap) -> Asking:
        # A view of one of these names would run its maker's code by the rights of whoever makes the passes.
        words = self.words(cap)
        views = yield from strange(self.dialect, words.tables[-1:])
        if not words.grown:
            return [cap.table] if any(views.values()) else []
        found = yield from fetch(
            "SELECT TRIGGER_NAME, ACTION_STATEMENT, DEFINER FROM information_schema.TRIGGERS\n"
            "  WHERE EVENT_OBJECT_SCHEMA = DATABASE() AND EVENT_OBJECT_TABLE = %s",
            cap.table,
        )
        # Who has no right to triggers sees no text, and is told nothing of it.
        stored = {name: words.bodies.get(name, "") if body is None else body for name, body, _ in found}
        rights = [(cap.table, "TRIGGER"), (words.grown, "INSERT")]
        lost = yield from powerless({name: (of, rights) for name, _, of in found if name in words.bodies})
        changed = [
            name
            for name, body in words.bodies.items()
            if compared(stored.get(name, "")) != compared(body) or name in lost
        ]
        found = yield from fetch(
            "SELECT COLUMN_NAME, COLUMN_TYPE, COLLATION_NAME, count(*) FROM information_schema.COLUMNS\n"
            f"  WHERE {HERE} AND TABLE_NAME IN (%s, %s) GROUP BY 1, 2, 3",
            *words.tables,
        )
        there = {name for name, *_ in found}
        both = [name for name, *_, n in found if n == 2]
        right = not any(views.values()) and {NUMBER, AT} <= there and all(name in both for name in cap.per)
        return changed if right else [*changed, words.grown]

    def _overdue(self, cap: Cap, keys: list[Row], changed: bool) -> Asking:
        # The keys without a note, and those that a pass should have trimmed; all keys if no passes are run.
        words = self.words(cap)
        if not keys or changed or not (yield from self.grace(cap)):
            return keys
        where = " AND ".join(f"{self.dialect.quoted(name)} = %s" for name in cap.per)
        recent = f"SELECT MIN({AT}) > CURRENT_TIMESTAMP - INTERVAL {LATE} SECOND FROM {words.notes} WHERE {where}"
        overdue = []
        for key in keys:
            found = yield from fetch(recent, *key)
            if not found[0][0]:  # NULL: there is no note
                overdue.append(key)
        return overdue

    def key_values(self, cap: Cap, key: Row) -> Asking:
        """Return the key as its columns compare it; `Invalid` if it is none: MariaDB takes 'abc' for the number 0."""
        types = {each.name: each.type for each in (yield from self.columns(cap.table))}
        values = []
        for name, value in zip(cap.per, key, strict=True):
            fits = _fitting(types.get(name, ""), value)
            if fits is None:
                raise Invalid(f"{cap.table}: {value!r} is no key; {name} is a {types.get(name)}")
            values.append(fits)
        return tuple(values)


def _made(account: str) -> Asking:
    # The statements that make an account that has no other rights, and that nobody can log in to.
    found = yield from fetch("SELECT DATABASE()")
    user, _, host = account.rpartition("@")
    named = f"{MARIADB.quoted(user)}@{MARIADB.quoted(host)}"
    place = MARIADB.quoted(re.sub(r"([_%\\])", r"\\\1", found[0][0]))
    return (
        f"CREATE USER IF NOT EXISTS {named} ACCOUNT LOCK; "
        f"GRANT SELECT, INSERT, DELETE, TRIGGER, EVENT ON {place}.* TO {named}"
    )


def _fitting(type_: str, value: Any) -> Any:
    # The value as it may be compared with a column of this type; None when it cannot be equal to any.
    if type_ in NUMBERS and isinstance(value, str):
        try:
            number = Decimal(value)
        except InvalidOperation:
            return None
        return number if number.is_finite() else None
    if type_ in NUMBERS:
        return None if isinstance(value, bytes) else value
    if type_ in TEXTS:
        return value if isinstance(value, str) else None
    if type_ in BYTES:
        return value if isinstance(value, bytes) else value.encode() if isinstance(value, str) else None
    return value
