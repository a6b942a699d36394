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

from roost.capping.adoption import KEPT, Adoption, Column
from roost.capping.cap import EPOCHS, FIRST, Asking, Words, answered, tells_no_time
from roost.dialects.conditions import no_utf8
from roost.dialects.dialect import Row, Statement, Template, execute, fetch
from roost.dialects.sqlite import SQLITE
from roost.errors import Invalid
from roost.structures.adopted import Cap

ROWID = ("rowid", "_rowid_", "oid")
STORED = (int, float, str, bytes)  # the types of values in a column
EACH = 2  # old rows that each written row deletes: more than one, so that the table shrinks
SLICE = 50  # rows that one statement of a burst selects: about a millisecond
SAMPLE = 100  # the number of oldest, and of newest, times that are examined
# `julianday()` takes '2026' for the number of a day, and '19:50' for a time on 1 January 2000.
DAY_FIRST = "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*"
IS_DAY_FIRST = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
ZONED = re.compile(r"[+-](?!00:00$)\d\d:\d\d$")
LISTED = "FROM pragma_table_list t WHERE schema = 'main' AND lower(name) = lower(?)"


class SQLiteWords(Words):
    """A cap's SQL for SQLite."""

    def limit(self, by: str) -> str:
        """The index has texts in the order of their characters: with 'T' between day and hour a row stays for up to a
        day longer. `julianday` detects texts that are not times, or only a day.
        """
        if self.unit:
            return f"CAST(strftime('%s', 'now') AS INTEGER) * {self.unit} - {self.cap.older_than * self.unit}"
        now = f"'now', '{-self.seconds:+d} seconds'"
        text = f"date({now})" if self.cap.time == "date" else f"strftime('%Y-%m-%d %H:%M:%f', {now})"
        return f"{text} AND {by} GLOB '{DAY_FIRST}' AND julianday({by}) + (length({by}) <= 10) <= julianday({now})"

    def excess(self, limit: int, row: str = "") -> str:
        """Return the query for excess rows, of a key newest first, by age oldest first; it returns their `id`.

        row: of a trigger, from which the key is taken; if empty, the key is given by parameters.
        """
        quoted, cap = self.dialect.quoted, self.cap
        # With an alias, so that it is not confused with the row of a trigger.
        if cap.older_than:
            which, end = self.over("i"), f"i.{self.by} LIMIT {limit}"
        else:
            which = " AND ".join(f"i.{quoted(name)} = {row + quoted(name) if row else '?'}" for name in cap.per)
            end = f"{', '.join(f'i.{quoted(name)} DESC' for name in cap.order)} LIMIT {limit} OFFSET {cap.keep}"
        return f"SELECT {self.columns(cap.id, 'i.')} FROM {self.table} AS i WHERE {which}\n    ORDER BY {end}"

    @property
    def triggers(self) -> dict[str, str]:
        table, quoted, by_age = self.cap.table, self.dialect.quoted, self.cap.older_than
        written = [self.cap.by or ""] if by_age else self.cap.per
        changed = " OR ".join(f"NEW.{quoted(name)} IS NOT OLD.{quoted(name)}" for name in written)
        any_over = f" WHEN EXISTS (SELECT 1 FROM {self.table} AS i WHERE {self.over('i')})" if by_age else ""
        excess = f"\n    ({self.excess(1, 'NEW.')})"
        body = f"  {self.delete(excess)};\n" * (EACH if by_age else 1)
        events = {"insert": "INSERT", "update": f"UPDATE OF {self.columns(written)}"}
        when = {"insert": any_over, "update": any_over or f" WHEN {changed}"}
        return {
            f"roostcap_{table}_{event}": (
                f"CREATE TRIGGER {quoted(f'roostcap_{table}_{event}')} AFTER {of} ON {self.table}{when[event]} BEGIN\n"
                f"{body}END"
            )
            for event, of in events.items()
        }


class SQLiteAdoption(Adoption[SQLiteWords]):
    """Caps tables in SQLite by triggers."""

    dialect = SQLITE
    words_class = SQLiteWords
    definition_sql = "SELECT definition FROM roost_catalog WHERE lower(name) = lower(?)"
    # DELETE resolves NEW and OLD first, and a trigger cannot give its table an alias.
    table_sql = (
        "SELECT name, CASE WHEN type <> 'table' THEN 'is a ' || type || '; only a table can be capped'\n"
        "  WHEN lower(name) IN ('new', 'old') THEN 'has a name that in its triggers is the name of the row that came'\n"
        f"    || ' or went, so rows of other keys would be deleted; rename the table' END {LISTED}"
    )
    columns_sql = (
        "SELECT name, upper(type), pk, false, hidden <> 1 FROM pragma_table_xinfo("
        "  (SELECT name FROM sqlite_master WHERE type = 'table' AND lower(name) = lower(?))) ORDER BY cid"
    )
    foreign_keys_sql = (
        'SELECT m.name, f.id, f."from", f.on_delete FROM sqlite_master m, pragma_foreign_key_list(m.name) f'
        " WHERE m.type = 'table' AND lower(f.\"table\") = lower(?) ORDER BY 1, 2, f.seq"
    )
    made_sql = r"SELECT type, name, tbl_name FROM sqlite_master WHERE name LIKE 'roostcap\_%' ESCAPE '\'"
    fixed_sql = 'SELECT name FROM pragma_table_xinfo(?) WHERE "notnull" OR pk'
    referring_sql = (
        'SELECT m.name, f."from", f."to" FROM sqlite_master m, pragma_foreign_key_list(m.name) f'
        " WHERE m.type = 'table' AND lower(f.\"table\") = lower(?) AND f.on_update NOT IN ('CASCADE', 'SET NULL')"
    )

    def folded(self, name: str) -> str:
        """Return a name as SQLite compares it: only ASCII letters have a case."""
        return "".join([each.lower() if each.isascii() else each for each in name])

    def _id(self, table: str, columns: Sequence[Column], by: str | None) -> Asking:
        found = yield from fetch(
            f"SELECT wr, (SELECT count(*) FROM pragma_index_list(t.name) WHERE origin = 'pk') {LISTED}", table
        )
        without_rowid, own_key = found[0]
        primary = sorted([each for each in columns if each.place], key=lambda each: each.place)
        if without_rowid and by is None:
            raise Invalid(
                f"{table} is a table WITHOUT ROWID, so nothing tells which row is newer: say --newest-by COLUMN"
            )
        is_rowid = len(primary) == 1 and primary[0].type == "INTEGER" and not own_key
        if without_rowid or is_rowid:
            return tuple([each.name for each in primary])
        taken = [self.folded(each.name) for each in columns]
        if not (free := [alias for alias in ROWID if alias not in taken]):
            raise Invalid(f"{table} has columns called rowid, _rowid_ and oid: nothing is left to tell its rows apart")
        return (free[0],)

    def _fits(self, cap: Cap, columns: Sequence[Column]) -> Asking:
        found = yield from fetch("SELECT name FROM pragma_table_xinfo(?) WHERE hidden IN (2, 3)", cap.table)
        if generated := [name for (name,) in found if name in cap.per]:
            raise Invalid(f"{cap.table}.{generated[0]} is generated, so an UPDATE that changes it cannot be seen")
        # If a primary key compares differently from its columns, two rows could be confused.
        words = self.words(cap)
        where = " AND ".join(f"{words.column(name)} = ?" for name in cap.id)
        found = yield from fetch(f"EXPLAIN QUERY PLAN SELECT 1 FROM {words.table} WHERE {where}", *(0,) * len(cap.id))
        if not found[0][-1].count("=?") >= len(cap.id):
            raise Invalid(f"{cap.table}: its primary key and the columns of it have different collations")
        if not cap.per:
            return
        damaged = " OR ".join(f"typeof({each}) = 'text' AND {no_utf8(each)}" for each in map(words.column, cap.per))
        found = yield from fetch(
            f"SELECT count(*) FROM (SELECT {damaged} AS damaged FROM {words.table} WHERE {words.has_key} "
            f"GROUP BY {words.key}) WHERE damaged"
        )
        if found[0][0]:
            raise Invalid(
                f"{cap.table}: there is a text in {', '.join(cap.per)} that is not UTF-8, so Python cannot read it"
            )

    def _time(self, cap: Cap, epoch: str | None) -> Asking:
        # The type of a column says little, so its oldest and newest values are examined.
        words = self.words(cap)
        by = words.column(cap.by or "")
        found = yield from fetch(
            "SELECT upper(type) = 'DATE' FROM pragma_table_xinfo(?) WHERE name = ?", cap.table, cap.by
        )
        is_date = bool(found[0][0])
        # The least and the greatest values that are not texts sort before all texts.
        some = f"SELECT typeof({by}), {by} FROM {words.table} WHERE {by} IS NOT NULL ORDER BY {by}"
        found = yield from fetch(
            f"SELECT * FROM ({some} LIMIT {SAMPLE}) UNION SELECT * FROM ({some} DESC LIMIT {SAMPLE})"
        )
        for type_, value in found:
            if type_ == "blob" or (type_ == "text") is (epoch is not None):
                number = type_ in ("integer", "real") and epoch is None
                raise tells_no_time(cap, f"{type_}, such as {value!r}", epoch if type_ == "text" else None, number)
        if epoch is not None:
            return EPOCHS[epoch]
        texts = [value for _, value in found if value > FIRST]
        for text in texts:
            known = yield from fetch("SELECT julianday(?)", text)
            if known[0][0] is None or not IS_DAY_FIRST.match(text) or ZONED.search(text):
                why = "which has a zone" if ZONED.search(text) else "which is no time"
                wanted = "SQLite can order times that are written as 2008-01-01 22:03:23, all in one zone"
                raise Invalid(f"{cap.table}.{cap.by} holds {text!r}, {why}; {wanted}")
        return "date" if is_date or (texts and all(len(text) <= 10 for text in texts)) else "plain"

    def _is_indexed(self, table: str, columns: Sequence[str]) -> Asking:
        name = self.dialect.quoted(table)
        equal = " AND ".join(f"{name}.{self.dialect.quoted(column)} = ?" for column in columns)
        found = yield from fetch(f"EXPLAIN QUERY PLAN SELECT 1 FROM {name} WHERE {equal}", *(0,) * len(columns))
        return found[0][-1].startswith("SEARCH")

    def _index(self, cap: Cap) -> Asking:
        # The plan, which must use all columns of the key, and need no sort.
        found = yield from fetch(f"EXPLAIN QUERY PLAN {self.words(cap).excess(1)}", *(0,) * len(cap.per))
        steps = [step for *_, step in found]
        good = len(steps) == 1 and steps[0].startswith("SEARCH") and steps[0].count("=?") >= len(cap.per)
        return str(steps[0]).replace(" i ", f" {cap.table} ", 1) if good else ""

    def _size(self, cap: Cap, columns: Sequence[Column], rows: int) -> Asking:
        # Estimated from a hundred rows; only the order of magnitude matters.
        words = self.words(cap)
        size = " + ".join(f"coalesce(length(CAST({words.column(each.name)} AS BLOB)), 1)" for each in columns)
        found = yield from fetch(
            f"SELECT coalesce(avg(size), 0) FROM (SELECT {size} AS size FROM {words.table} LIMIT 100)"
        )
        return int(rows * found[0][0])

    def _make(self, cap: Cap, old: Cap | None, make_index: bool) -> Asking:
        words, quoted = self.words(cap), self.dialect.quoted
        if old is not None:
            yield from self._drop(old, old.index and (make_index or not cap.index))
        if make_index:
            yield execute(words.index_sql)
        yield from self.leads(cap)
        # SQLite fires the newest trigger first. Roost's trigger may delete the inserted row itself, if it is older than
        # the others. So it must be the oldest trigger: the application's triggers then see the row first.
        own = [] if cap.by is None else (yield from self._triggers_on(cap.table))
        for sql in words.triggers.values():
            yield execute(sql)
        for name, sql in own:
            yield execute(f"DROP TRIGGER {quoted(name)}")
            yield execute(sql)

    def _triggers_on(self, table: str) -> Asking:
        # Name and text, in the order of their creation.
        made = "type = 'trigger' AND lower(tbl_name) = lower(?)"
        return fetch(f"SELECT name, sql FROM sqlite_master WHERE {made} ORDER BY rowid", table)

    def _drop(self, cap: Cap, index: bool) -> Asking:
        words = self.words(cap)
        for name in words.triggers:
            yield execute(f"DROP TRIGGER IF EXISTS {self.dialect.quoted(name)}")
        if index:
            yield execute(words.drop_index_sql)

    def _cut(self, words: SQLiteWords, key: Row, is_over: Callable[[], bool]) -> Asking:
        # Row by row: the lock blocks all writers, and one row may take long.
        cap = words.cap
        found = yield from fetch(words.excess(SLICE), *key)
        holes = self.dialect.holes(len(cap.id))
        delete = Template(words.delete(f"({holes})" if len(cap.id) > 1 else holes))
        deleted = 0
        for row in found:
            if not (yield Statement(delete, [row])):
                raise Invalid(f"{cap.table}: {KEPT}")
            deleted += 1
            if is_over():
                return deleted, False
        return deleted, len(found) < SLICE

    def _changed(self, cap: Cap) -> Asking:
        stored = dict((yield from self._triggers_on(cap.table)))
        return [name for name, sql in self.words(cap).triggers.items() if stored.get(name) != sql]

    def key_values(self, cap: Cap, key: Row) -> Asking:
        """Return the key; `Invalid` for a value that SQLite cannot store."""
        for value in key:
            if not isinstance(value, STORED):
                raise Invalid(f"{cap.table}: {value!r} is no key; SQLite has int, float, str and bytes")
        return answered(key)
