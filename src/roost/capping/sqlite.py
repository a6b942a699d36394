"""How tables are capped in SQLite: two triggers delete the row that a new one displaces, or two rows that are too old.

    CREATE TRIGGER roostcap_visits_insert AFTER INSERT ON visits BEGIN
      DELETE FROM visits WHERE id =
        (SELECT i.id FROM visits AS i WHERE i.uid = NEW.uid ORDER BY i.at DESC, i.id DESC LIMIT 1 OFFSET 5);
    END

REPLACE fires no DELETE trigger, and needs none here. A key that already had excess rows keeps their number; `roost cap`
trims it. The row is selected by `=`: with IN, and statistics from a time when the table was small, SQLite would scan
the table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from roost.capping.age import EPOCHS, FIRST, PER_SECOND, Age
from roost.capping.cap import Cap, CapWords, read, write
from roost.capping.foreign_keys import Asking
from roost.capping.installation import KEPT, PRIVATE, SLICE, Adoption, Layout, Making
from roost.catalog.catalog import Catalog, make_private
from roost.dialects.conditions import no_utf8
from roost.dialects.dialect import Row, Statement, Template
from roost.dialects.sqlite import SQLITE
from roost.errors import Invalid, Missing

ROWID = ("rowid", "_rowid_", "oid")
ROWS = ("new", "old")  # the names of the row in a trigger
STORED = (int, float, str, bytes)  # the types of values in a column
EACH = 2  # old rows that each written row deletes: more than one, so that the table shrinks
SAMPLE = 100  # the number of oldest, and of newest, times that are examined
# `julianday()` takes '2026' for the number of a day, and '19:50' for a time on 1 January 2000.
DAY_FIRST = "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*"
IS_DAY_FIRST = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
ZONED = re.compile(r"[+-](?!00:00$)\d\d:\d\d$")


class SQLiteWords(CapWords):
    """A cap's SQL for SQLite."""

    def excess(self, limit: int, prefix: str = "") -> str:
        """Return the query for the excess rows of a key, newest first; it returns the columns that identify them.

        prefix: the row of a trigger from which the key is taken; if empty, the key is given by parameters.
        """
        # With an alias, so that it is not confused with the row of a trigger.
        quoted, cap = self.dialect.quoted, self.cap
        order = ", ".join(f"i.{quoted(name)} DESC" for name in cap.order)
        is_key = " AND ".join(f"i.{quoted(name)} = {prefix + quoted(name) if prefix else '?'}" for name in cap.per)
        return (
            f"SELECT {self.columns(cap.id, 'i.')} FROM {self.table} AS i WHERE {is_key}\n"
            f"    ORDER BY {order} LIMIT {limit} OFFSET {cap.keep}"
        )

    @property
    def triggers(self) -> dict[str, str]:
        """The statements that create the triggers, by name."""
        table, quoted = self.cap.table, self.dialect.quoted
        changed = " OR ".join(f"NEW.{quoted(name)} IS NOT OLD.{quoted(name)}" for name in self.cap.per)
        body = self.delete(f"\n    ({self.excess(1, 'NEW.')})")
        events = {"insert": "AFTER INSERT", "update": f"AFTER UPDATE OF {self.columns(self.cap.per)}"}
        return {
            f"roostcap_{table}_{event}": (
                f"CREATE TRIGGER {quoted(f'roostcap_{table}_{event}')} {when} ON {self.table}"
                f"{f' WHEN {changed}' if event == 'update' else ''} BEGIN\n  {body};\nEND"
            )
            for event, when in events.items()
        }


class SQLiteAgeWords(SQLiteWords):
    """A cap by age: its SQL for SQLite."""

    cap: Age

    def over(self, row: str) -> str:
        """Return the condition that a row is too old.

        The index has texts in the order of their characters: with 'T' between day and hour a row stays for up to a day
                longer. `julianday` detects texts that are not times, or only a day.
        """
        cap, by = self.cap, f"{row}.{self.dialect.quoted(self.cap.by)}"
        since = f"{by} > {cap.first} AND {by} <"
        if cap.time in PER_SECOND:
            return f"{since} CAST(strftime('%s', 'now') AS INTEGER) * {PER_SECOND[cap.time]} - {cap.units}"
        now = f"'now', '{-cap.seconds:+d} seconds'"
        text = f"date({now})" if cap.time == "date" else f"strftime('%Y-%m-%d %H:%M:%f', {now})"
        is_over = f"julianday({by}) + (length({by}) <= 10) <= julianday({now})"
        return f"{since} {text} AND {by} GLOB '{DAY_FIRST}' AND {is_over}"

    def excess(self, limit: int, prefix: str = "") -> str:
        """Return the query for rows that are too old, oldest first; it returns the columns that identify them."""
        return (
            f"SELECT {self.columns(self.cap.id, 'i.')} FROM {self.table} AS i WHERE {self.over('i')}\n"
            f"    ORDER BY i.{self.dialect.quoted(self.cap.by)} LIMIT {limit}"
        )

    @property
    def triggers(self) -> dict[str, str]:
        """The statements that create the triggers, by name."""
        table, quoted = self.cap.table, self.dialect.quoted
        excess = f"\n    ({self.excess(1)})"
        body = f"  {self.delete(excess)};\n" * EACH
        events = {"insert": "INSERT", "update": f"UPDATE OF {quoted(self.cap.by)}"}
        any_over = f"EXISTS (SELECT 1 FROM {self.table} AS i WHERE {self.over('i')})"
        return {
            f"roostcap_{table}_{event}": (
                f"CREATE TRIGGER {quoted(f'roostcap_{table}_{event}')} AFTER {when} ON {self.table}\n"
                f"  WHEN {any_over}\nBEGIN\n{body}END"
            )
            for event, when in events.items()
        }


class SQLiteAdoption(Adoption):
    """Caps tables in SQLite by triggers."""

    dialect = SQLITE
    definition_of = "SELECT definition FROM roost_catalog WHERE lower(name) = lower({name})"

    def words(self, cap: Cap) -> SQLiteWords:
        """Return a cap's SQL for SQLite."""
        return SQLiteAgeWords(cap, SQLITE) if isinstance(cap, Age) else SQLiteWords(cap, SQLITE)

    def folded(self, name: str) -> str:
        """Return a name as SQLite compares it: only ASCII letters have a case."""
        return "".join([each.lower() if each.isascii() else each for each in name])

    def layout(self, table: str, newest_by: str | None) -> Asking:
        """Return a table's `Layout`, or raise the reason why it cannot be capped."""
        found = yield read(
            "SELECT name, type, wr FROM pragma_table_list WHERE schema = 'main' AND lower(name) = lower(?)", table
        )
        if not found[0]:
            raise Missing(f"the database has no table {table!r}")
        name, type_, without_rowid = found[0][0]
        if type_ != "table":
            raise Invalid(f"{name} is a {type_}; only a table can be capped")
        if name.lower().startswith(PRIVATE):
            raise Invalid(f"{name} belongs to {name.partition('_')[0]}; only a table of your own can be capped")
        found = yield read("SELECT name, upper(type), pk FROM pragma_table_xinfo(?) ORDER BY cid", name)
        columns = tuple(column for column, *_ in found[0])
        own_key = yield read("SELECT count(*) FROM pragma_index_list(?) WHERE origin = 'pk'", name)
        primary = [(pk, column, type_) for column, type_, pk in found[0] if pk]
        id_ = tuple(column for _, column, _ in sorted(primary))
        if without_rowid and newest_by is None:
            raise Invalid(
                f"{name} is a table WITHOUT ROWID, so nothing tells which row is newer: say --newest-by COLUMN"
            )
        is_rowid = len(primary) == 1 and primary[0][2] == "INTEGER" and not own_key[0][0][0]
        if not without_rowid and not is_rowid:
            id_ = tuple([alias for alias in ROWID if alias not in map(self.folded, columns)][:1])
            if not id_:
                raise Invalid(
                    f"{name} has columns called rowid, _rowid_ and oid: nothing is left to tell its rows apart"
                )
        return Layout(name, columns, id_)

    def default_order(self, cap: Cap) -> str:
        """Return in words how the newer row is determined by default."""
        return "rowid"

    def fits(self, cap: Cap) -> Asking:
        """Raise `Invalid` if a column of the key is generated, or rows may be confused."""
        if unfit := self.unfit(cap.table):
            raise Invalid(f"{unfit}; rename the table")
        found = yield read("SELECT name FROM pragma_table_xinfo(?) WHERE hidden IN (2, 3)", cap.table)
        generated = [name for (name,) in found[0] if name in cap.per]
        if generated:
            raise Invalid(f"{cap.table}.{generated[0]} is generated, so an UPDATE that changes it cannot be seen")
        # If a primary key compares differently from its columns, two rows could be confused.
        words = self.words(cap)
        where = " AND ".join(f"{words.column(name)} = ?" for name in cap.id)
        found = yield read(f"EXPLAIN QUERY PLAN SELECT 1 FROM {words.table} WHERE {where}", *(0,) * len(cap.id))
        if not found[0][0][-1].count("=?") >= len(cap.id):
            raise Invalid(f"{cap.table}: its primary key and the columns of it have different collations")
        if not cap.per:
            return
        damaged = " OR ".join(
            f"typeof({words.column(name)}) = 'text' AND {no_utf8(words.column(name))}" for name in cap.per
        )
        found = yield read(
            f"SELECT count(*) FROM (SELECT {damaged} AS damaged FROM {words.table} WHERE {words.has_key} "
            f"GROUP BY {words.key}) WHERE damaged"
        )
        if found[0][0][0]:
            raise Invalid(
                f"{cap.table}: there is a text in {', '.join(cap.per)} that is not UTF-8, so Python cannot read it"
            )

    def time(self, age: Age, epoch: str | None) -> Asking:
        """Return the form of the column's times: its type says little, so its oldest and newest values are examined."""
        words, table = self.words(age), age.table
        by = words.column(age.by)
        found = yield read("SELECT upper(type) FROM pragma_table_xinfo(?) WHERE name = ?", table, age.by)
        is_date = found[0] == [("DATE",)] or found[0] == [["DATE"]]
        # The least and the greatest values that are not texts sort before all texts.
        some = f"SELECT typeof({by}), {by} FROM {words.table} WHERE {by} IS NOT NULL ORDER BY {by}"
        found = yield read(f"SELECT * FROM ({some} LIMIT {SAMPLE}) UNION SELECT * FROM ({some} DESC LIMIT {SAMPLE})")
        for type_, value in found[0]:
            if type_ == "blob" or (type_ == "text") is (epoch is not None):
                number = type_ in ("integer", "real") and epoch is None
                raise age.tells_no_time(f"{type_}, such as {value!r}", epoch if type_ == "text" else None, number)
        if epoch is not None:
            return EPOCHS[epoch]
        texts = [value for _, value in found[0] if value > FIRST]
        for text in texts:
            known = yield read("SELECT julianday(?)", text)
            if known[0][0][0] is None or not IS_DAY_FIRST.match(text) or ZONED.search(text):
                why = "which has a zone" if ZONED.search(text) else "which is no time"
                wanted = "SQLite can order times that are written as 2008-01-01 22:03:23, all in one zone"
                raise Invalid(f"{table}.{age.by} holds {text!r}, {why}; {wanted}")
        return "date" if is_date or (texts and all(len(text) <= 10 for text in texts)) else "plain"

    def unfit(self, table: str) -> str:
        """Return why no table of this name can be capped; "" if it can."""
        # DELETE resolves this name first, and a trigger cannot give its table an alias.
        reason = "in its triggers that is the name of the row that came or went, so rows of other keys would be deleted"
        return f"{table}: {reason}" if self.folded(table) in ROWS else ""

    def leftovers(self, cap: Cap) -> Statement:
        """Return the query for objects of a cap that kept their names when their table was renamed."""
        names = (*self.words(cap).triggers, cap.index_name)
        return read(
            "SELECT type, name, tbl_name FROM sqlite_master\n"
            r"  WHERE (name IN (?, ?, ?) AND lower(tbl_name) <> lower(?))"
            r" OR (lower(tbl_name) = lower(?) AND name LIKE 'roostcap\_%' ESCAPE '\' AND name NOT IN (?, ?, ?))",
            *(*names, cap.table, cap.table, *names),
        )

    def foreign_keys(self, parent: str) -> Asking:
        """Return the foreign keys to a table: rows of table, number, column and the ON DELETE action."""
        found = yield read(
            'SELECT m.name, f.id, f."from", f.on_delete FROM sqlite_master m, pragma_foreign_key_list(m.name) f'
            " WHERE m.type = 'table' AND lower(f.\"table\") = lower(?) ORDER BY 1, 2, f.seq",
            parent,
        )
        return found[0]

    def fixed_columns(self, table: str) -> Asking:
        """Return the names of the columns that may not be NULL."""
        found = yield read('SELECT name FROM pragma_table_xinfo(?) WHERE "notnull" OR pk', table)
        return [name for (name,) in found[0]]

    def referring(self, table: str, columns: Sequence[str]) -> Asking:
        """Return table and column of the foreign keys that forbid changing some columns."""
        found = yield read(
            'SELECT m.name, f."from" FROM sqlite_master m, pragma_foreign_key_list(m.name) f'
            " WHERE m.type = 'table' AND lower(f.\"table\") = lower(?) AND f.on_update NOT IN ('CASCADE', 'SET NULL')"
            f' AND lower(f."to") IN ({self.dialect.holes(len(columns))})',
            *(table, *[column.lower() for column in columns]),
        )
        return found[0]

    def is_indexed(self, table: str, columns: Sequence[str]) -> Asking:
        """Return whether rows are found by these columns without reading all of them."""
        name = self.dialect.quoted(table)
        equal = " AND ".join(f"{name}.{self.dialect.quoted(column)} = ?" for column in columns)
        found = yield read(f"EXPLAIN QUERY PLAN SELECT 1 FROM {name} WHERE {equal}", *(0,) * len(columns))
        return found[0][0][-1].startswith("SEARCH")

    def index(self, cap: Cap) -> Asking:
        """Return the plan by which a key's rows are found; it must use all columns of the key, and need no sort."""
        found = yield read(f"EXPLAIN QUERY PLAN {self.words(cap).excess(1)}", *(0,) * len(cap.per))
        steps = [step for *_, step in found[0]]
        good = len(steps) == 1 and steps[0].startswith("SEARCH") and steps[0].count("=?") >= len(cap.per)
        return str(steps[0]).replace(" i ", f" {cap.table} ", 1) if good else ""

    def is_own_index(self, cap: Cap, old: Cap | None, index: str) -> bool:
        """Return whether Roost has made the index that finds a key's rows."""
        return old is not None and old.index and old.index_name in index

    def size(self, cap: Cap, columns: Sequence[str], rows: int) -> Asking:
        """Estimate the bytes of a table from a hundred rows; only the order of magnitude matters."""
        words = self.words(cap)
        size = " + ".join(f"coalesce(length(CAST({words.column(name)} AS BLOB)), 1)" for name in columns)
        found = yield read(f"SELECT coalesce(avg(size), 0) FROM (SELECT {size} AS size FROM {words.table} LIMIT 100)")
        return int(rows * found[0][0][0])

    def install(self, catalog: Catalog, cap: Cap, old: Cap | None, make_index: bool) -> Making:
        """Create the triggers: from then on no key gets more rows."""
        yield from self.probe(cap)
        yield from make_private(catalog)
        yield from self.still(cap, old)
        if old is not None:
            yield from self.drop(old, keep_index=cap.index)
        if make_index:
            cap = replace(cap, index=True)
            yield write(self.words(cap).index_sql)
        yield from self.leads(cap)
        own = yield from self._own_triggers(cap)
        for sql in self.words(cap).triggers.values():
            yield write(sql)
        for name, sql in own:
            yield write(f"DROP TRIGGER {self.dialect.quoted(name)}")
            yield write(sql)
        yield from self.entered(catalog, cap, old)
        return cap

    def _own_triggers(self, cap: Cap) -> Asking:
        # SQLite fires the newest trigger first. Roost's trigger may delete the inserted row itself, if it is older than
        # the others. So it must be the oldest trigger: the application's triggers then see the row first.
        if cap.newest_by is None:
            return []
        found = yield from self._triggers_on(cap.table)
        return [(name, sql) for name, sql in found if name not in self.words(cap).triggers]

    def _triggers_on(self, table: str) -> Asking:
        # Name and text, in the order of their creation.
        found = yield read(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND lower(tbl_name) = lower(?) ORDER BY rowid",
            table,
        )
        return found[0]

    def drop(self, cap: Cap, keep_index: bool) -> Asking:
        """Drop the triggers, and the index if Roost has made it."""
        for name in self.words(cap).triggers:
            yield write(f"DROP TRIGGER IF EXISTS {self.dialect.quoted(name)}")
        if cap.index and not keep_index:
            yield write(f"DROP INDEX IF EXISTS {self.dialect.quoted(cap.index_name)}")

    def cut(self, words: CapWords, key: Row, is_over: Callable[[], bool]) -> Asking:
        """Delete row by row: the lock blocks all writers, and one row may take long."""
        assert isinstance(words, SQLiteWords)
        cap = words.cap
        found = yield read(words.excess(SLICE), *key)
        holes = self.dialect.holes(len(cap.id))
        delete = Template(words.delete(f"({holes})" if len(cap.id) > 1 else holes))
        deleted = 0
        for row in found[0]:
            if not (yield Statement(delete, [row])):
                raise Invalid(f"{cap.table}: {KEPT}")
            deleted += 1
            if is_over():
                return deleted, False
        return deleted, len(found[0]) < SLICE

    def changed(self, cap: Cap) -> Asking:
        """Return the names of the triggers that differ from those that Roost makes."""
        stored = dict((yield from self._triggers_on(cap.table)))
        return [name for name, sql in self.words(cap).triggers.items() if stored.get(name) != sql]

    def shown_columns(self, cap: Cap) -> Asking:
        """Return the names of the columns of SELECT *: only virtual tables have hidden ones."""
        found = yield read("SELECT name FROM pragma_table_xinfo(?) WHERE hidden <> 1", cap.table)
        return tuple([name for (name,) in found[0]])

    def key_values(self, cap: Cap, key: Row) -> Asking:
        """Return the key, or what is wrong with it: SQLite cannot store every Python value."""
        yield from ()
        odd = [value for value in key if not isinstance(value, STORED)]
        return Invalid(f"{cap.table}: {odd[0]!r} is no key; SQLite has int, float, str and bytes") if odd else key
