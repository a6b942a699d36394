"""Reads of a cache: one statement for one key, or for many."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

from roost.dialects.dialect import Row, Statement, Template, Wanted
from roost.errors import StatementFailed
from roost.structures.cache.bounds import Bounds
from roost.structures.cache.declaration import FLAGS_MAX, NEVER, SECOND, Cache, Item
from roost.structures.cache.play import Held, touched
from roost.structures.clock import Clock
from roost.structures.operation import Operation
from roost.structures.plan import Careful, Context, Operations, Plan, Question, StructurePlan

FEW = 3  # from this number of keys on, one statement for all is faster


class CacheReads(StructurePlan):
    """The reading half of a cache's plan."""

    structure: Cache[Any, Any]
    clock: Clock
    bounds: Bounds | None
    read: Template
    fetch: Template | None = None
    _timed: bool
    _now: Template
    _one: str
    _one_item: str
    _one_left: str
    _value_in: Callable[[Row], Row]

    def _found(self, keys: Sequence[Row], context: Context) -> Generator[Wanted, Any, list[Any]]:
        # The value and the token of each key, none if there is none.
        asked: list[Row] = [self.key_out(key) for key in keys]
        if self._timed and asked:
            now = yield from self._moment(context)
            asked = [(now, now, *key) for key in asked]
        found = (yield Statement(self.read, asked)) if asked else []
        if self.bounds is not None:
            for key, rows in zip(keys, found, strict=True):
                if rows and rows[0][4]:
                    self.bounds.note(context, self.key_out(key))
        return [rows[0] if rows else None for rows in found]

    def _moment(self, context: Context) -> Generator[Wanted, Any, int]:
        # The current moment, for operations that only read.
        found = yield Statement(self._now, [self.clock.row(context)])
        moment: int = found[0][0][0]
        return moment

    def _value(self, stored: Any) -> Any:
        return self._value_in((stored,))[0]

    def plan_get(self, run: Operations, context: Context, _: bool) -> Plan:
        """Look up keys."""
        found = yield from self._found([op.args[0] for op in run], context)
        return [None if row is None else self._value(row[0]) for row in found]

    def plan_gets(self, run: Operations, context: Context, _: bool) -> Plan:
        """Look up keys, with their tokens."""
        found = yield from self._found([op.args[0] for op in run], context)
        return [None if row is None else self._item([row]) for row in found]

    def plan_fetch(self, run: Operations, context: Context, _: bool) -> Plan:
        """Look up many keys, for memcached's protocol: the rows as they are stored, or None, in the order of the keys.

        A row has the value, the token, the remaining time, and the flags with the bits of `meta.py`.
        """
        keys = [key for op in run for key in op.args[0]]
        found: list[Any] | None = None
        if self.fetch is not None and len(keys) >= FEW:
            found = yield from self._fetched(self.fetch, keys, context)
        if found is None:
            found = yield from self._found(keys, context)
        if len(run) == 1:
            return [found]
        results, place = [], 0
        for op in run:
            results.append(found[place : place + len(op.args[0])])
            place += len(op.args[0])
        return results

    def _fetched(
        self, fetch: Template, keys: Sequence[Row], context: Context
    ) -> Generator[Wanted, Any, list[Any] | None]:
        # All keys in one statement; None if that is impossible: a text in an array ends at its first NUL, and values
        # that are fetched all at once must not be long.
        texts = [key for (key,) in keys]
        if "\0" in "".join(texts):
            return None
        try:
            asked = (*self.clock.row(context), self.dialect.pack(texts))
            (found,) = yield Statement(fetch, [asked], values=len(keys))
        except StatementFailed:
            return None
        rows = [None if row[0] is None else row for row in found]
        if self.bounds is not None:
            for key, row in zip(keys, rows, strict=True):
                if row is not None and row[4]:
                    self.bounds.note(context, self.key_out(key))
        return rows

    def plan_gets_many(self, run: Operations, context: Context, _: bool) -> Plan:
        """Look up many keys, with their tokens."""
        return (yield from self._many(run, context, lambda row: self._item([row])))

    def plan_get_many(self, run: Operations, context: Context, _: bool) -> Plan:
        """Look up many keys."""
        return (yield from self._many(run, context, lambda row: self._value(row[0])))

    def _many(self, run: Operations, context: Context, made: Callable[[Row], Any]) -> Plan:
        found = iter((yield from self._found([key for op in run for key in op.args[0]], context)))
        value = self.structure.key.value
        results = []
        for op in run:
            rows = [(value(key), next(found)) for key in op.args[0]]
            results.append({key: made(row) for key, row in rows if row is not None})
        return results

    def ask_get(self, op: Operation[Any], context: Context) -> Question:
        """Look up one key."""
        return self._question(self._one, op, self.clock.row(context), context, self._answer)

    def ask_gets(self, op: Operation[Any], context: Context) -> Question:
        """Look up one key, with its token."""
        now = self.clock.row(context)
        return self._question(self._one_item, op, now, context, self._item)

    def _question(
        self, sql: str, op: Operation[Any], now: Row, context: Context, answer: Callable[[list[Row]], Any]
    ) -> Question:
        key, bounds = self.key_out(op.args[0]), self.bounds
        row = (*key, *now) if sql is self._one else (*now, *key, *now)
        if bounds is None:
            return Question(sql, row, answer)

        def noting(rows: list[Row]) -> Any:
            if rows[0][-1]:
                bounds.note(context, key)
            return answer(rows)

        return Question(sql, row, noting)

    def ask_touch(self, op: Operation[Any], context: Context) -> Question:
        """Check whether the expiry time is close enough: then nothing is written, and no lock is taken."""
        key, ttl = op.args
        now = self.clock.row(context)

        def answer(rows: list[Row]) -> bool:
            left = rows[0][0]
            if left is None:
                return False
            if touched(0, ttl, Held(None, left, 0, 0)).until != left and (ttl is not None or left < NEVER // 2):
                raise Careful
            return True

        return Question(self._one_left, (*now, *self.key_out(key), *now), answer)

    def _answer(self, rows: list[Row]) -> Any:
        value = rows[0][0]
        return None if value is None else self._value(value)

    def _item(self, rows: list[Row]) -> Any:
        value, token, left, flags = rows[0][:4]
        if value is None:
            return None
        return Item(self._value(value), token, None if left > NEVER // 2 else left / SECOND, flags & FLAGS_MAX)

    def plan_keys(self, run: Operations, context: Context, __: bool) -> Plan:
        """List keys whose value has not expired."""
        now = yield from self._moment(context)
        results = []
        for op in run:
            after, n = op.args
            if after is None:
                found = yield Statement(self.first_keys, [(now, n)])
            else:
                found = yield Statement(self.later_keys, [(now, *self.key_out(after), n)])
            results.append([self.key_value(row) for row in found[0]])
        return results
