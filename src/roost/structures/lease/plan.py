"""Lease: Python decides who holds a key, under the lock of the key's row.

A token is the moment of its grant, or the previous token plus one if that is larger. So keys need no common sequence,
and a row can be deleted: a later grant has a later moment. A row is kept for as long as a clock that jumps back can
set the time back, which is a second.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from roost.dialects.dialect import Dialect, Row, Statement, Template
from roost.structures.clock import SECOND, datetime_of
from roost.structures.ending import EndingPlan
from roost.structures.lease.check import rules
from roost.structures.lease.declaration import HOLDER, Grant, Lease
from roost.structures.lease.view import VIEWS
from roost.structures.lease.wire import LeaseWire
from roost.structures.operation import Operation
from roost.structures.plan import Careful, Context, Operations, Plan, Question, Rule
from roost.types.column_types import ColumnType
from roost.types.columns import Column

TOKEN, TTL, EXPIRES = (Column(name, ColumnType("int")) for name in ("token", "ttl", "expires"))

NOTHING = ("", 0, 0, 0)
STAYS = 2 * SECOND  # the time for which a row is kept after its lease has ended


class LeasePlan(EndingPlan):
    """A lease in one dialect's words: one table, whose row is its own head."""

    wire = LeaseWire

    structure: Lease[Any]
    views = VIEWS
    together: Mapping[str, str] = {"acquire": "change", "renew": "change", "release": "change"}

    def __init__(self, structure: Lease[Any], dialect: Dialect) -> None:
        super().__init__(structure, dialect, [HOLDER, TOKEN, TTL, EXPIRES], NOTHING)
        hole = dialect.placeholder
        self.end = Template(
            f"UPDATE {self.rows_table} SET expires = {hole} WHERE {self.words['equal']} AND expires > {hole}"
        )

    def rules(self) -> Iterator[Rule]:
        """Return the invariants of its table."""
        return rules(self)

    def plan_change(self, run: Operations, context: Context, _: bool) -> Plan:
        """Refuse by a plain read what it refuses; lock and simulate the others, and write each key once."""
        wanted = [(self.key_out(op.args[0]), op) for op in run]
        keys = sorted({key for key, _ in wanted})
        found = yield from self.read(keys, context)
        first = {key: _Key(row[0], row[1:]) for key, row in zip(keys, found, strict=True) if row is not None}
        changed: set[Row] = set()
        results = self._play(wanted, {key: first.get(key) or _Key(0, NOTHING) for key in keys}, changed)
        if context.joined and self.dialect.row_locks:  # its snapshot may be older than the holder's grant
            changed.update(key for key, op in wanted if op.verb != "acquire")
        if not changed:
            yield from self.mend(found, context)
            return results
        moment, rows = yield from self.locked(sorted(changed), context)
        states = {key: _Key(moment, row) for key, row in rows.items()}
        again = [place for place, (key, _) in enumerate(wanted) if key in states]
        written: set[Row] = set()
        for place, result in zip(again, self._play([wanted[place] for place in again], states, written), strict=True):
            results[place] = result
        put = [(*key, *states[key].row) for key in sorted(written)]
        yield from self.write(put, context, moment - STAYS, len(put))
        return results

    def ask_acquire(self, op: Operation[Any], context: Context) -> Question:
        """Refuse what a plain read refuses."""

        def refused(rows: list[Row]) -> None:
            moment, *row = rows[0]
            state = None if row[0] is None else _Key(moment, tuple(row))
            if state is None or state.is_beyond or not state.is_held_by_other(op.args[1]):
                raise Careful
            if self.clock.stands_still(context, moment):
                raise Careful

        return Question(self.one, self.clock.row(context) + self.key_out(op.args[0]), refused)

    def _play(self, run: Sequence[tuple[Row, Operation[Any]]], states: dict[Row, _Key], changed: set[Row]) -> list[Any]:
        changed.update(key for key, state in states.items() if state.is_beyond)
        results: list[Any] = []
        for key, op in run:
            state = states[key]
            match op.verb:
                case "acquire":
                    _, holder, ttl = op.args
                    done = state.acquire(holder, ttl)
                case "renew":
                    _, token, ttl = op.args
                    done = state.renew(token, ttl)
                case _:
                    done = state.release(op.args[1])
            if done:
                changed.add(key)
            if op.verb == "release":
                results.append(done)
            else:
                results.append(self._grant(op.args[0], state.row) if done else None)
        return results

    def _grant(self, key: Row, row: Row) -> Grant[Any]:
        holder, token, _, expires = row
        return Grant(self.structure.key.value(key), holder, token, datetime_of(expires))

    def plan_peek(self, run: Operations, context: Context, _: bool) -> Plan:
        """Read rows."""
        found = yield from self.read([self.key_out(op.args[0]) for op in run], context)
        return [self._peeked(op.args[0], row) for op, row in zip(run, found, strict=True)]

    def ask_peek(self, op: Operation[Any], context: Context) -> Question:
        """Read one row."""
        key = op.args[0]
        row = self.clock.row(context) + self.key_out(key)
        return Question(self.one, row, lambda rows: self._peeked(key, None if rows[0][1] is None else tuple(rows[0])))

    def _peeked(self, key: Row, found: Row | None) -> Grant[Any] | None:
        if found is None:
            return None
        state = _Key(found[0], found[1:])
        return self._grant(key, state.row) if state.is_held else None

    def plan_holder(self, run: Operations, context: Context, _: bool) -> Plan:
        """Read rows."""
        grants = yield from self.plan_peek(run, context, _)
        return [None if grant is None else grant.holder for grant in grants]

    def ask_holder(self, op: Operation[Any], context: Context) -> Question:
        """Read one row."""
        sql, row, peek, _ = self.ask_peek(op, context)
        return Question(sql, row, lambda rows: getattr(peek(rows), "holder", None))

    def plan_clear(self, run: Operations, context: Context, _: bool) -> Plan:
        """End the leases of keys."""
        keys = [self.key_out(op.args[0]) for op in run]
        moment = yield from self.removing(keys, context)
        results = []
        for key in keys:
            results.append((yield Statement(self.end, [(moment, *key, moment)])))
        return results

    plan_forget = plan_clear


class _Key:
    """The state of a key at a moment, and its changes."""

    def __init__(self, moment: int, row: Row) -> None:
        self._moment = moment
        self._holder, self._token, self._ttl, self._expires = row
        # No lease lasts that long, so the clock has jumped: the lease lasts for its whole ttl from now, and no longer.
        self.is_beyond = self._expires - moment > self._ttl + SECOND
        if self.is_beyond:
            self._expires = moment + self._ttl

    @property
    def row(self) -> Row:
        """The row as it is now."""
        return self._holder, self._token, self._ttl, self._expires

    @property
    def is_held(self) -> bool:
        """Whether somebody holds it."""
        return bool(self._expires > self._moment)

    def is_held_by_other(self, holder: str) -> bool:
        """Whether somebody else holds it."""
        return self.is_held and self._holder != holder

    def acquire(self, holder: str, ttl: int) -> bool:
        """Acquire or renew the lease; return whether this succeeded."""
        if self.is_held:
            return self._holder == holder and self._renewed(ttl)
        self._holder, self._token = holder, max(self._moment, self._token + 1)
        return self._renewed(ttl)

    def renew(self, token: int, ttl: int) -> bool:
        """Renew the lease if this is its token; return whether it was renewed."""
        return self.is_held and self._token == token and self._renewed(ttl)

    def release(self, token: int) -> bool:
        """End the lease if this is its token; return whether it was ended."""
        if not self.is_held or self._token != token:
            return False
        self._expires = self._moment
        return True

    def _renewed(self, ttl: int) -> bool:
        self._ttl, self._expires = ttl, self._moment + ttl
        return True
