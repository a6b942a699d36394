"""How tables are capped in MariaDB: triggers record the keys that have grown (*notes*), and passes process the notes.

    CREATE TRIGGER roostcap_visits_insert AFTER INSERT ON visits FOR EACH ROW …
      INSERT INTO roostcap_visits_grown (roostcap_n, uid) VALUES (UUID_SHORT(), NEW.uid)

A trigger may not modify its own table (1442), so a key has at most `keep` rows plus those inserted since the last pass.
Passes are run by a server event, every second, or by `roost cap --watch`. Each INSERT adds a separate note. A single
note per key would be a lock shared by all writers of the key: with four INSERTs in a transaction, eight writers had 406
deadlocks in 1.5 s, and none with separate notes, which cost them 5 %. Notes do not use AUTO_INCREMENT, whose lock an
INSERT … SELECT holds to its end.

A pass never waits for locks: it skips rows that another session holds; their notes stay for the next pass.
"""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from roost.capping.age import EPOCHS, Age
from roost.capping.cap import Cap, CapWords, read, write
from roost.capping.foreign_keys import Asking
from roost.capping.installation import KEPT, PRIVATE, Adoption, Layout, Making
from roost.capping.mariadb_accounts import dangerous, definer, definers
from roost.capping.mariadb_sql import AT, CUT, IN_UTC, NTH, NUMBER, MariaDBAgeWords, MariaDBWords
from roost.capping.mariadb_types import INEXACT, INTEGERS, KEYS, NUMBERS, SHAPES, TIMES, fitting
from roost.catalog.catalog import Catalog, guarded, make_private, strange
from roost.dialects.dialect import Control, Gather, Row, Statement, Template, Wanted
from roost.dialects.mariadb import MARIADB, without_introducers
from roost.dialects.mariadb_definers import powerless
from roost.errors import Busy, DatabaseError, Invalid, Missing, StatementFailed

LATE = 10  # seconds after which a note should have been processed: a pass runs every second
LONGEST = 64  # characters of a name
INDEXED = 3072  # bytes of an index's columns
NOT_ALLOWED = ("(1044)", "(1227)")  # how errors end that say so
HERE = "TABLE_SCHEMA = DATABASE()"
IN_ORDER = "INDEX_TYPE = 'BTREE' AND SUB_PART IS NULL AND COLLATION = 'A' AND IGNORED = 'NO'"

Noted = tuple[Row, list[int]]  # a key, and the numbers of its notes


class MariaDBAdoption(Adoption):
    """Notes of the keys that grow, and passes."""

    dialect = MARIADB
    # With lower_case_table_names the table is called otherwise than it was asked for, and so is its entry.
    definition_of = (
        "SELECT definition FROM roost_catalog\n"
        "  WHERE name = {name} OR @@lower_case_table_names = 1 AND name = LOWER({name})"
    )
    by_itself = False

    def words(self, cap: Cap) -> MariaDBWords:
        """Return a cap in MariaDB's words."""
        return MariaDBAgeWords(cap, MARIADB) if isinstance(cap, Age) else MariaDBWords(cap, MARIADB)

    def here(self, cap: Cap) -> Asking:
        """Return a cap's words; `Invalid` if a view has taken the table's place."""
        yield from guarded(self.dialect, [cap.table])
        return self.words(cap)

    def layout(self, table: str, newest_by: str | None) -> Asking:
        """Return a table's `Layout`, or raise what keeps it from being capped."""
        found = yield read(
            "SELECT TABLE_NAME, TABLE_TYPE, ENGINE, CREATE_OPTIONS LIKE '%%partitioned%%'\n"
            f"  FROM information_schema.TABLES WHERE {HERE} AND TABLE_NAME = %s\n"
            "  ORDER BY BINARY TABLE_NAME = %s DESC LIMIT 1",
            *(table, table),
        )
        if not found[0]:
            raise Missing(f"the database has no table {table!r}")
        name, type_, engine, partitioned = found[0][0]
        if type_ != "BASE TABLE":
            raise Invalid(f"{name} is a {type_.lower()}; only a table can be capped")
        if name.lower().startswith(PRIVATE):
            raise Invalid(f"{name} belongs to roost; only a table of your own can be capped")
        if engine != "InnoDB":
            raise Invalid(f"{name} is a table of the engine {engine}; only one of InnoDB can be capped")
        if partitioned:  # the rows of a key may be in several, and no index leads through all of them in order
            raise Invalid(f"{name} is a partitioned table; only a plain one can be capped")
        found = yield read("SELECT @@log_bin AND @@binlog_format = 'STATEMENT'")
        if found[0][0][0]:
            raise Invalid(
                "binlog_format is STATEMENT, and what the triggers note differs on a replica: set ROW or MIXED"
            )
        found = yield read(
            "SELECT c.COLUMN_NAME, c.DATA_TYPE, s.SEQ_IN_INDEX, c.EXTRA LIKE '%%auto_increment%%'\n"
            "  FROM information_schema.COLUMNS c LEFT JOIN information_schema.STATISTICS s\n"
            "    ON s.TABLE_SCHEMA = c.TABLE_SCHEMA AND s.TABLE_NAME = c.TABLE_NAME\n"
            "    AND s.COLUMN_NAME = c.COLUMN_NAME AND s.INDEX_NAME = 'PRIMARY'\n"
            f"  WHERE c.{HERE} AND c.TABLE_NAME = %s ORDER BY c.ORDINAL_POSITION",
            name,
        )
        primary = sorted([(place, column, type_, auto) for column, type_, place, auto in found[0] if place])
        if not primary:
            raise Invalid(f"{name} has no primary key, so nothing tells its rows apart")
        if odd := [(column, type_) for _, column, type_, _ in primary if type_ in INEXACT]:
            column, type_ = odd[0]
            raise Invalid(f"{name}.{column} is a {type_}, and by a primary key of that type no row is found again")
        if newest_by is None and not (len(primary) == 1 and primary[0][2] in NUMBERS and primary[0][3]):
            raise Invalid(
                f"{name}: its primary key is not AUTO_INCREMENT, so nothing tells which row is newer: say --newest-by "
                "COLUMN"
            )
        return Layout(name, tuple(column for column, *_ in found[0]), tuple(column for _, column, *_ in primary))

    def fits(self, cap: Cap) -> Asking:
        """Raise `Invalid` when a name or a type cannot be used."""
        odd = [name for name in (cap.table, *cap.per, *cap.order) if "%" in name]
        if odd:
            raise Invalid(f"{cap.table}: a table whose names have % in them, as {odd[0]!r}, cannot be capped")
        words = self.words(cap)
        long = max([*words.triggers, words.grown, cap.index_name], key=len)
        if len(long) > LONGEST:
            raise Invalid(f"{cap.table}: its name is too long, since {long} has to be one of {LONGEST} characters")
        if taken := [name for name in cap.per if self.folded(name) in (NUMBER, AT, NTH)]:
            raise Invalid(f"{cap.table}: a column of the key is called {taken[0]}, as that of Roost's notes")
        types = yield from self._types(cap)
        for name in cap.per:
            if types[name] not in KEYS:
                raise Invalid(f"{cap.table}.{name} is a {types[name]}, which cannot be a key")
        yield from self._fits_an_index(cap)

    def _fits_an_index(self, cap: Cap) -> Asking:
        # Nothing could be rolled back once the catalog has the entry.
        names = [*cap.per, *([cap.newest_by] if cap.newest_by else [])]
        found = yield read(
            "SELECT COLUMN_NAME, DATA_TYPE,\n"
            "  DATA_TYPE IN ('varchar', 'varbinary') AND COLUMN_TYPE LIKE '%%COMPRESSED%%',\n"
            "  IF(DATA_TYPE IN ('enum', 'set'), 0, COALESCE(CHARACTER_OCTET_LENGTH, 0))\n"
            "  FROM information_schema.COLUMNS\n"
            f"  WHERE {HERE} AND TABLE_NAME = %s AND COLUMN_NAME IN ({self.dialect.holes(len(names))})",
            *(cap.table, *names),
        )
        for name, type_, compressed, _ in found[0]:
            if compressed or type_.endswith(("text", "blob")) or type_.removeprefix("multi") in SHAPES:
                what = f"a compressed {type_}" if compressed else f"a {type_}"
                raise Invalid(f"{cap.table}.{name} is {what}, which cannot be in the index that is needed")
        if (length := sum(row[-1] for row in found[0])) > INDEXED:
            most = f"up to {length:,} bytes, and an index takes {INDEXED:,} at most"
            raise Invalid(f"{cap.table}: {' and '.join(names)} have {most}")

    def time(self, age: Age, epoch: str | None) -> Asking:
        """Return how the column tells the time, by its type."""
        type_ = (yield from self._types(age))[age.by]
        if type_ in INTEGERS and epoch is not None:
            return EPOCHS[epoch]
        if type_ not in TIMES or epoch is not None:
            raise age.tells_no_time(type_, epoch, type_ in INTEGERS)
        return TIMES[type_]

    def _types(self, cap: Cap) -> Asking:
        found = yield read(
            f"SELECT COLUMN_NAME, DATA_TYPE FROM information_schema.COLUMNS WHERE {HERE} AND TABLE_NAME = %s", cap.table
        )
        return dict(found[0])

    def leftovers(self, cap: Cap) -> Statement:
        """Return the query for objects of a cap that kept their names when their table was renamed."""
        names = list(self.words(cap).triggers) or ["", ""]
        return read(
            "SELECT 'trigger', TRIGGER_NAME, EVENT_OBJECT_TABLE FROM information_schema.TRIGGERS\n"
            "  WHERE EVENT_OBJECT_SCHEMA = DATABASE() AND (TRIGGER_NAME IN (%s, %s) AND EVENT_OBJECT_TABLE <> %s\n"
            "    OR EVENT_OBJECT_TABLE = %s AND LEFT(TRIGGER_NAME, 9) = 'roostcap_' AND TRIGGER_NAME NOT IN (%s, %s))",
            *(*names, cap.table, cap.table, *names),
        )

    def foreign_keys(self, parent: str) -> Asking:
        """Return the foreign keys to a table: rows of table, name, column and what ON DELETE says."""
        found = yield read(
            "SELECT IF(k.TABLE_SCHEMA = DATABASE(), k.TABLE_NAME, CONCAT(k.TABLE_SCHEMA, '.', k.TABLE_NAME)),\n"
            "  k.CONSTRAINT_NAME, k.COLUMN_NAME, c.DELETE_RULE\n"
            "  FROM information_schema.KEY_COLUMN_USAGE k JOIN information_schema.REFERENTIAL_CONSTRAINTS c\n"
            "    ON c.CONSTRAINT_SCHEMA = k.CONSTRAINT_SCHEMA AND c.CONSTRAINT_NAME = k.CONSTRAINT_NAME\n"
            "    AND c.TABLE_NAME = k.TABLE_NAME\n"
            "  WHERE k.REFERENCED_TABLE_SCHEMA IS NOT NULL AND IF(k.REFERENCED_TABLE_SCHEMA = DATABASE(),\n"
            "    k.REFERENCED_TABLE_NAME, CONCAT(k.REFERENCED_TABLE_SCHEMA, '.', k.REFERENCED_TABLE_NAME)) = %s\n"
            "  ORDER BY 1, 2, k.ORDINAL_POSITION",
            parent,
        )
        return found[0]

    def fixed_columns(self, table: str) -> Asking:
        """Return none: InnoDB makes no SET NULL where NULL may not be."""
        yield from ()
        return []

    def referring(self, table: str, columns: Sequence[str]) -> Asking:
        """Return table and column of the foreign keys that forbid to change some columns."""
        found = yield read(
            "SELECT k.TABLE_NAME, k.COLUMN_NAME\n"
            "  FROM information_schema.KEY_COLUMN_USAGE k JOIN information_schema.REFERENTIAL_CONSTRAINTS c\n"
            "    ON c.CONSTRAINT_SCHEMA = k.CONSTRAINT_SCHEMA AND c.CONSTRAINT_NAME = k.CONSTRAINT_NAME\n"
            "    AND c.TABLE_NAME = k.TABLE_NAME\n"
            "  WHERE k.REFERENCED_TABLE_SCHEMA = DATABASE() AND k.REFERENCED_TABLE_NAME = %s\n"
            f"    AND k.REFERENCED_COLUMN_NAME IN ({self.dialect.holes(len(columns))})\n"
            "    AND c.UPDATE_RULE NOT IN ('CASCADE', 'SET NULL')",
            *(table, *columns),
        )
        return found[0]

    def is_indexed(self, table: str, columns: Sequence[str]) -> Asking:
        """Return True: InnoDB has an index for every foreign key."""
        yield from ()
        return True

    def index(self, cap: Cap) -> Asking:
        """Return the index that has a key's rows in their order; the primary key stands at the end of every one."""
        found = yield read(
            f"SELECT INDEX_NAME, COLUMN_NAME, {IN_ORDER} FROM information_schema.STATISTICS\n"
            f"  WHERE {HERE} AND TABLE_NAME = %s ORDER BY INDEX_NAME, SEQ_IN_INDEX",
            cap.table,
        )
        indexes: dict[str, list[tuple[str, bool]]] = {}
        for name, column, in_order in found[0]:
            indexes.setdefault(name, []).append((column, bool(in_order)))
        width = len(cap.per)
        for name, columns in indexes.items():
            named = [column for column, _ in columns]
            rest = [*named[width:], *([] if name == "PRIMARY" else [each for each in cap.id if each not in named])]
            wanted = [each for each in cap.order[: 1 if isinstance(cap, Age) else None] if each not in cap.per]
            leads = set(named[:width]) == set(cap.per) and rest[: len(wanted)] == wanted
            if leads and all(good for _, good in columns):
                return f"{name} ({', '.join(named)})"
        return ""

    def runs_as(self, cap: Cap) -> Asking:
        """Return what is dangerous about the account with whose rights triggers and event would run; "" if nothing."""
        return (yield from dangerous(self.words(cap)))

    def install(self, catalog: Catalog, cap: Cap, old: Cap | None, make_index: bool) -> Making:
        """Create the table of notes, the triggers that write them, and the event if that is allowed.

        None of these statements can be rolled back, so the catalog's entry comes first: with it, the created objects
        can be removed or created again.
        """
        yield Control.LOCK_CATALOG
        yield from self.here(cap)  # whoever runs the command may have been asked meanwhile
        yield from self.probe(cap)
        yield from make_private(catalog)
        now = yield from self.still(cap, old)
        cap = replace(cap, index=cap.index or make_index, definer=(yield from definer(self.words(cap))))
        yield from self.entered(catalog, cap, now)
        words = self.words(cap)
        yield write(
            "SET SESSION lock_wait_timeout = 1"
        )  # for ALTER: while it waits for somebody, others wait behind it
        if make_index and not (yield from self.index(cap)):
            yield write(words.index_sql.replace("CREATE", "CREATE OR REPLACE", 1) + " ALGORITHM=INPLACE LOCK=NONE")
        elif old is not None and old.index and not cap.index:
            yield write(f"DROP INDEX IF EXISTS {self.dialect.quoted(cap.index_name)} ON {words.table}")
        yield from self.leads(cap)
        if not isinstance(cap, Age):
            yield from self._make_notes(cap, words)
        yield from self._make_event(words)
        yield write("SET SESSION lock_wait_timeout = DEFAULT")
        return cap

    def _make_notes(self, cap: Cap, words: MariaDBWords) -> Asking:
        yield from guarded(self.dialect, [words.grown])
        changed = yield from self.changed(cap)
        others = {*(yield from definers(words))} - {cap.definer} if cap.definer else ()
        if changed or others:
            for name in words.triggers if words.grown in changed else ():
                yield write(f"DROP TRIGGER IF EXISTS {self.dialect.quoted(name)}")
            if words.grown in changed:  # what comes meanwhile is without a note, and found by the trimming that follows
                yield write(f"DROP TABLE IF EXISTS {words.notes}")
                yield write(words.notes_sql)
            for sql in words.triggers.values():
                yield write(sql)

    def _make_event(self, words: MariaDBWords) -> Asking:
        found = yield read("SELECT @@event_scheduler")
        if found[0][0][0] != "ON":  # one that is there would go by the rule of before when it is switched on
            yield from self._drop_event(words.cap)
            return
        try:
            yield write(words.event)
        except DatabaseError as error:
            if not any(code in str(error) for code in NOT_ALLOWED):
                raise

    def drop(self, cap: Cap, keep_index: bool) -> Asking:
        """Remove the event, the triggers, the notes, and the index if Roost has made it."""
        words = self.words(cap)
        yield write("SET SESSION lock_wait_timeout = 1")
        yield from self._drop_event(cap)
        for name in words.triggers:
            yield write(f"DROP TRIGGER IF EXISTS {self.dialect.quoted(name)}")
        if not isinstance(cap, Age):
            yield write(f"DROP TABLE IF EXISTS {words.notes}")
        found = yield read(
            f"SELECT count(*) FROM information_schema.TABLES WHERE {HERE} AND TABLE_NAME = %s", cap.table
        )
        if cap.index and not keep_index and found[0][0][0]:
            yield write(f"DROP INDEX IF EXISTS {self.dialect.quoted(cap.index_name)} ON {words.table}")
        yield write("SET SESSION lock_wait_timeout = DEFAULT")

    def _drop_event(self, cap: Cap) -> Asking:
        found = yield read(
            "SELECT count(*) FROM information_schema.EVENTS WHERE EVENT_SCHEMA = DATABASE() AND EVENT_NAME = %s",
            cap.index_name,
        )
        if found[0][0][0]:
            yield write(f"DROP EVENT IF EXISTS {self.dialect.quoted(cap.index_name)}")

    def cut(self, words: CapWords, key: Row, is_over: Callable[[], bool]) -> Asking:
        """Delete what nobody holds; the locks are on rows that nobody writes any more."""
        assert isinstance(words, MariaDBWords)
        in_utc = not any(isinstance(value, dt.datetime) for value in key)  # keys were read in the session's zone
        past, deleted, full = words.cap.keep, 0, True
        while full and not deleted:
            victims = yield read((IN_UTC if in_utc else "") + words.victims("%s", str(past)), *key, *key)
            full = len(victims[0]) == CUT
            deleted, refused = yield from self._delete(words, victims[0], in_utc)
            if victims[0] and not deleted and not refused:
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

    def burst(self, cap: Cap, keys: deque[Row], is_over: Callable[[], bool]) -> Generator[Wanted, Any, int]:
        """Delete excess rows of keys; rows that another session holds are noted for the passes."""
        words, listed = self.words(cap), list(keys)
        deleted = yield from super().burst(cap, keys, is_over)
        if isinstance(cap, Age):
            return deleted
        for key in listed[: len(listed) - len(keys)]:
            left = yield read(f"SELECT {words.is_long()}", *key)
            if left[0][0][0]:
                per = words.columns(cap.per)
                values = self.dialect.holes(len(key))
                yield write(f"INSERT INTO {words.notes} ({NUMBER}, {per}) VALUES (UUID_SHORT(), {values})", *key)
        return deleted

    def added(self, cap: Cap, key: Row) -> Asking:
        """Trim a key that the library has added to; locked rows are left to the note and the next pass."""
        values = yield from self.key_values(cap, key)
        if not isinstance(values, Invalid):
            with suppress(Busy):
                yield from self.cut(self.words(cap), values, lambda: False)

    def noted(self, cap: Cap, after: int, n: int) -> Asking:
        """Return the next notes behind a number, gathered by key, and the last number."""
        yield from self.as_made(cap)
        words = self.words(cap)
        found = yield read(
            f"SELECT {NUMBER}, {words.columns(cap.per)} FROM {words.notes} WHERE {NUMBER} > %s\n"
            f"  ORDER BY {NUMBER} LIMIT %s",
            *(after, n),
        )
        keys: dict[Row, list[int]] = {}
        for number, *key in found[0]:
            keys.setdefault(tuple(key), []).append(number)
        return deque(keys.items()), found[0][-1][0] if found[0] else after

    def work_off(self, cap: Cap, noted: deque[Noted], is_over: Callable[[], bool]) -> Generator[Wanted, Any, int]:
        """Trim keys that have notes until it is over; those that are done leave the queue. Returns the rows deleted."""
        yield from self.as_made(cap)
        words, deleted = self.words(cap), 0
        while noted:
            key, numbers = noted[0]
            gone, done = yield from self.cut(words, key, is_over)
            deleted += gone
            if done:
                noted.popleft()
                left = yield read(f"SELECT {words.is_long()}", *key)
                if not left[0][0][0]:  # else somebody holds a row: the notes stay for the next pass
                    yield Statement(
                        Template(f"DELETE FROM {words.notes} WHERE {NUMBER} IN ({{rows}})", Gather.VALUES),
                        [(n,) for n in numbers],
                    )
            if is_over():
                break
        return deleted

    def claim(self, cap: Cap, seconds: int) -> Asking:
        """Take the lock for running passes, for the lifetime of the connection; return whether it was granted."""
        lock = self.words(cap).lock
        found = yield read(f"SELECT IS_USED_LOCK({lock}) <=> CONNECTION_ID() OR GET_LOCK({lock}, %s) <=> 1", seconds)
        return bool(found[0][0][0])

    def has_event(self, cap: Cap) -> Asking:
        """Return whether a server event makes the passes."""
        found = yield read(
            "SELECT STATUS = 'ENABLED' AND @@event_scheduler = 'ON'\n"
            "  FROM information_schema.EVENTS WHERE EVENT_SCHEMA = DATABASE() AND EVENT_NAME = %s",
            cap.index_name,
        )
        return bool(found[0] and found[0][0][0] and not (yield from self.idle(cap)))

    def grace(self, age: Age) -> Asking:
        """Return the seconds until the next pass should be over; 0 without passes, None while one is under way."""
        if (yield from self._is_passing(age)):
            return None
        return LATE if (yield from self.has_event(age)) else 0

    def _is_passing(self, cap: Cap) -> Asking:
        found = yield read(f"SELECT IS_USED_LOCK({self.words(cap).lock}) IS NOT NULL")
        return bool(found[0][0][0])

    def idle(self, cap: Cap) -> Asking:
        """Return the name of the event, where there is one that is not as Roost makes it, or has lost its rights."""
        words = self.words(cap)
        found = yield read(
            "SELECT EVENT_DEFINITION = %s, DEFINER, STATUS,\n"
            "  STATUS = 'ENABLED' OR CONCAT(@@read_only) NOT IN ('0', 'OFF')\n"
            "  FROM information_schema.EVENTS WHERE EVENT_SCHEMA = DATABASE() AND EVENT_NAME = %s",
            *(without_introducers(words.event.partition(" DO\n")[2]), cap.index_name),
        )
        if not found[0]:
            return []
        is_same, definer, status, is_on = found[0][0]
        if not is_on:  # a replica's events are off, also when it has become the primary
            return [f"{cap.index_name}, whose status is {status},"]
        tables = [cap.table] if isinstance(cap, Age) else [cap.table, words.grown]
        rights = [(table, right) for table in tables for right in ("SELECT", "DELETE")]
        lost = yield from powerless({cap.index_name: (definer, [("*", "EVENT"), *rights])})
        return [] if is_same and not lost else [cap.index_name]

    def changed(self, cap: Cap) -> Asking:
        """Return the names of the triggers that are not as Roost makes them, and of the notes if these are not."""
        if isinstance(cap, Age):
            views = yield from strange(self.dialect, [cap.table])
            return [cap.table] if any(views.values()) else []
        words = self.words(cap)
        found = yield read(
            "SELECT TRIGGER_NAME, ACTION_STATEMENT, DEFINER FROM information_schema.TRIGGERS\n"
            "  WHERE EVENT_OBJECT_SCHEMA = DATABASE() AND EVENT_OBJECT_TABLE = %s",
            cap.table,
        )
        stored = {name: body for name, body, _ in found[0]}
        rights = [(cap.table, "TRIGGER"), (words.grown, "INSERT")]
        lost = yield from powerless({name: (of, rights) for name, _, of in found[0] if name in words.bodies})
        changed = [name for name, body in words.bodies.items() if stored.get(name) != body or name in lost]
        found = yield read(
            "SELECT COLUMN_NAME, COLUMN_TYPE, COLLATION_NAME, count(*) FROM information_schema.COLUMNS\n"
            f"  WHERE {HERE} AND TABLE_NAME IN (%s, %s) GROUP BY 1, 2, 3",
            *(cap.table, words.grown),
        )
        there = {name for name, *_ in found[0]}
        both = [name for name, *_, n in found[0] if n == 2]
        # A view of that name would run its maker's code by the rights of whoever makes the passes.
        views = yield from strange(self.dialect, [words.grown])
        right = not any(views.values()) and {NUMBER, AT} <= there and all(name in both for name in cap.per)
        return changed if right else [*changed, words.grown]

    def overdue(self, cap: Cap, keys: list[Row], changed: bool) -> Asking:
        """Return the keys without a note, and those that a pass should have trimmed; all keys if no passes are run."""
        words = self.words(cap)
        if not keys or changed or not ((yield from self._is_passing(cap)) or (yield from self.has_event(cap))):
            return keys
        where = " AND ".join(f"{self.dialect.quoted(name)} = %s" for name in cap.per)
        overdue = []
        for key in keys:
            recent = f"MIN({AT}) > CURRENT_TIMESTAMP - INTERVAL {LATE} SECOND"
            found = yield read(f"SELECT {recent} FROM {words.notes} WHERE {where}", *key)
            if not found[0][0][0]:  # NULL: there is no note
                overdue.append(key)
        return overdue

    def shown_columns(self, cap: Cap) -> Asking:
        """Return the names of the columns that SELECT * shows."""
        found = yield read(
            f"SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE {HERE} AND TABLE_NAME = %s\n"
            "  AND EXTRA NOT LIKE '%%INVISIBLE%%' ORDER BY ORDINAL_POSITION",
            cap.table,
        )
        return tuple([name for (name,) in found[0]])

    def key_values(self, cap: Cap, key: Row) -> Asking:
        """Return the key as its columns compare it, or what is wrong: MariaDB takes 'abc' for the number 0."""
        types = yield from self._types(cap)
        values = []
        for name, value in zip(cap.per, key, strict=True):
            fits = fitting(types.get(name, ""), value)
            if fits is None:
                return Invalid(f"{cap.table}: {value!r} is no key; {name} is a {types.get(name)}")
            values.append(fits)
        return tuple(values)
