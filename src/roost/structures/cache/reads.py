"""Reads of a cache, which write nothing, and the statements by hand of writes.

A read of a cache with bounds that finds a value whose last use is long ago records the key in the store's memory, and
the store's next write to the cache stores the use.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any

from roost.dialects.dialect import Row, Statement, Template, Wanted, execute, query
from roost.errors import StatementFailed
from roost.structures.cache.declaration import FLAGS_MAX, NEVER, Cache, Item
from roost.structures.clock import SECOND
from roost.structures.operation import Operation
from roost.structures.plan import Careful, Context, Operations, Plan, Question, write
from roost.structures.program import ProgramPlan
from roost.structures.reading import Read
from roost.structures.structure import facts_of

PART = 8  # a read is a use if more uses than this part of all values occurred since the last one
SLACK = 16  # `touch` writes nothing if the stored expiry time is early by less than this part of the ttl
FEW = 16  # from this number of keys on, SQLite finds all of them by one statement faster
MOST_NOTES = 1024  # keys that a store remembers as used; it forgets the others


class CacheReads(ProgramPlan):
    """The reading half of a cache's plan."""

    structure: Cache[Any, Any]
    _value_in: Callable[[Row], Row]

    def put_all(self, rows: Sequence[Row], context: Context) -> Generator[Wanted, Any, None]:
        """Store values of different keys on SQLite; where none is evicted, a trigger takes up to twice as long."""
        if self.structure.bounded:
            yield from self.call("put", rows, context)
            yield execute(self._one["evict"], len(rows), *self.moment(context))
            return
        ((now,),) = (yield self._time.alone(self.moment(context)))[0]
        ends = [NEVER if row[-2] is None else now + row[-2] for row in rows]
        yield Statement(self._put, [(*row[:-2], end, now, row[-1]) for row, end in zip(rows, ends, strict=True)])

    def fits(self, largest: int) -> Generator[Wanted, Any, None]:
        """Raise `Careful` if a value is larger than the stored `max_bytes`: `alter` has ended or waits for the head."""
        (stored,) = yield self.stored
        most = facts_of(stored[0][0])["max_bytes"] if stored else None
        if most is not None and largest > most:
            raise Careful

    def make_reads(self) -> None:
        """Make the queries."""
        key, columns = self.structure.key.columns, "r.value, r.token, r.until - {now}, r.flags{noted}"
        noted = ""
        if self.structure.bounded:  # whether the last use is long ago
            head = f"SELECT h.sequence - h.n / {PART} FROM {self.head_table} h WHERE h.id = 0"
            noted = f", r.used < ({head})"
        living = f"FROM {self.rows_table} r WHERE {self.mine('r.')} AND r.until > {self.now}"
        given = [*key, *self.timed]
        self._values = self.read(f"SELECT r.value{noted} {living}", given)
        self._items = self.read(f"SELECT {columns.format(now=self.now, noted=noted)} {living}", given)
        leased = f"SELECT 1 {living}".replace(self.rows_table, f"roost_{self.structure.name}_leases")
        if self.dialect.singles:
            self.questions |= {
                **dict.fromkeys(("get", "gets"), self._ask),
                "touch": partial(self._question, self.ask(f"SELECT r.until - {self.now} {living}", self._close_enough)),
                "lease": partial(self._question, self.ask(leased, self._is_held)),
            }
        self._fetch = None
        if self.dialect.name == "sqlite" and [column.type.kind for column in key] == ["text"]:
            name, array = self.dialect.name_of(key[0]), self.dialect.array.replace("?", f":{key[0].name}")
            self._fetch = self.read(
                f"WITH m AS MATERIALIZED (SELECT {self.now} AS now)\n"
                f"  SELECT {columns.format(now='m.now', noted=noted)} FROM m CROSS JOIN {array} q\n"
                f"  LEFT JOIN {self.rows_table} r ON r.{name} = q.value AND r.until > m.now",
                given,
            )
        if self._by_store:
            self._time = self.read(f"SELECT {self.now}", self.timed)
            names, holes = self.dialect.names(key), self.dialect.holes(len(key) + 4)
            put = (
                f"INSERT INTO {self.rows_table} ({names}, value, until, token, flags) VALUES ({holes})\n"
                f"  ON CONFLICT ({names}) DO UPDATE SET value = excluded.value, until = excluded.until,\n"
                "  flags = excluded.flags, token = max(excluded.token, token + 1)"
            )
            self._put = write(put, holes)
            self._tokens = self.read(f"SELECT token FROM {self.rows_table} WHERE {self.mine()}", key)
        rows, nowait, waiting = self.rows_table, self.dialect.nowait or " NOWAIT", ""
        over = f"count(CASE WHEN until > {self.now} THEN 1 END) FROM"
        self._count = self.read(f"SELECT {over} {rows}", self.timed)
        self._count_now, self._delete_now = self._count, Template(f"DELETE FROM {rows}")
        if self.dialect.family == "mariadb":
            waiting = "SET STATEMENT innodb_lock_wait_timeout = 0 FOR " if self.dialect.name == "mariadb" else ""
            self._count_now = self.read(f"SELECT {over} {rows} FORCE INDEX (PRIMARY) FOR UPDATE{nowait}", self.timed)
            self._delete_now = Template(f"{waiting}DELETE FROM {rows}")
        elif self.dialect.is_server:
            self._count_now = self.read(f"SELECT {over} (SELECT until FROM {rows} FOR UPDATE{nowait}) q", self.timed)

    def _note(self, context: Context, key: Row, row: Row | None) -> None:
        # Remembers a value that was used whose last use is long ago.
        if self.structure.bounded and row is not None and row[-1]:
            notes = context.used.setdefault(self.structure.name, {})
            if len(notes) < MOST_NOTES:
                notes[key] = None

    def _gets(self, run: Operations, context: Context) -> Plan:
        # Operations of one verb.
        verb = run[0].verb
        read, made = self._reading(verb)
        keys = [key for op in run for key in (op.args[0] if verb not in ("get", "gets") else op.args)]
        stored = [self.key_out(key) for key in keys]
        found: list[Any] | None = None
        if verb == "fetch" and self._fetch is not None and len(keys) >= FEW:
            found = yield from self._fetched(self._fetch, [key for (key,) in keys], context)
        if found is None:
            now = self.moment(context)
            answers = (yield read.statement([(*key, *now) for key in stored])) if keys else []
            found = [rows[0] if rows else None for rows in answers]
        for key, row in zip(stored, found, strict=True):
            self._note(context, key, row)
        if verb == "fetch":
            rows = iter(found)
            return [[next(rows) for _ in op.args[0]] for op in run]
        results = map(made, found)
        if verb in ("get", "gets"):
            return list(results)
        value = self.structure.key.value
        dicts = [{value(key): next(results) for key in op.args[0]} for op in run]
        return [{key: result for key, result in each.items() if result is not None} for each in dicts]

    def _reading(self, verb: str) -> tuple[Read, Callable[[Row | None], Any]]:
        return (self._values, self._value) if verb in ("get", "get_many") else (self._items, self._item)

    def _fetched(self, fetch: Read, texts: Sequence[str], context: Context) -> Generator[Wanted, Any, list[Any] | None]:
        # All keys in one statement; None if that is impossible: a text in an array ends at its first NUL, and values
        # that are fetched all at once must not be long.
        if "\0" in "".join(texts):
            return None
        asked = fetch.row((self.dialect.pack(texts), *self.moment(context)))
        try:
            (found,) = yield Statement(query(fetch.sql), [asked], values=len(texts))
        except StatementFailed:
            return None
        return [None if row[0] is None else row for row in found]

    def _value(self, row: Row | None) -> Any:
        return None if row is None else self._value_in((row[0],))[0]

    def _item(self, row: Row | None) -> Any:
        if row is None:
            return None
        value, token, left, flags = row[:4]
        left = left_of(left)
        return Item(self._value((value,)), token, None if left is None else left / SECOND, flags & FLAGS_MAX)

    def _ask(self, op: Operation[Any], context: Context) -> Question:
        key = self.key_out(op.args[0])
        read, made = self._reading(op.verb)

        def answer(rows: list[Row]) -> Any:
            row = rows[0] if rows else None
            self._note(context, key, row)
            return made(row)

        return Question(read.sql, read.row((*key, *self.moment(context))), answer)

    def _close_enough(self, op: Operation[Any], rows: list[Row]) -> bool:
        # Whether the expiry time that is asked for is so close that nothing is written, and no lock is taken.
        ttl, left = op.args[1], left_of(rows[0][0]) if rows else 0
        if rows and (left is not ttl if left is None or ttl is None else not 0 <= ttl - left < max(ttl // SLACK, 1)):
            raise Careful
        return bool(rows)

    def _is_held(self, _: Operation[Any], rows: list[Row]) -> None:
        # A lease that somebody has is refused without a lock.
        if not rows:
            raise Careful


def left_of(left: int) -> int | None:
    """Return the time that a value has left; None if it never expires."""
    return None if left > NEVER // 2 else left
