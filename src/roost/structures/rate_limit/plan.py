"""RateLimit: the generic cell rate algorithm, in whole numbers.

A row has the time at which the whole limit is restored, the theoretical arrival time `tat`; its fraction of a
microsecond is counted in units of `1 / limit`, so an emission interval of `window / limit` is exact. The requests of a
key that are not yet restored are its debt, in the same unit: each request adds `window`, each microsecond subtracts
`limit`, and a debt above `limit * window` is refused. Concurrent requests can only increase a debt, so a refusal by a
plain read is final.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from roost.dialects.dialect import Dialect, Exchange, Row, Statement, Template
from roost.structures.clock import SECOND
from roost.structures.ending import EndingPlan
from roost.structures.operation import Operation
from roost.structures.plan import Careful, Context, Operations, Plan, Question, Rule, Transaction, by_key
from roost.structures.rate_limit.alter import ALTERATIONS
from roost.structures.rate_limit.check import rules
from roost.structures.rate_limit.declaration import RateLimit, Taken
from roost.structures.rate_limit.view import VIEWS
from roost.structures.rate_limit.wire import RateLimitWire
from roost.types.column_types import ColumnType
from roost.types.columns import Column

PART, TAT = Column("part", ColumnType("int")), Column("tat", ColumnType("int"))

STAYS = (
    SECOND  # the time for which a row is kept after it is no longer needed, so that it is not created again and again
)

# The debt of a row. A `tat` in the past counts as one microsecond ago, which keeps the product within 64 bits.
DEBT = "LEAST(GREATEST(LEAST(GREATEST(r.tat - {moment}, -1), {window}) * {limit} + r.part, 0), {cap})"

# A single take. If it is refused, nothing is written and nothing returned; a batch then finds out when to try again.
ONE_TAKE = {
    "mariadb": """\
SET `the moment` = {now};
SELECT COUNT(*), COALESCE(MAX({debt}), 0) INTO `the count`, `the debt` FROM {rows} r WHERE {r_equal} FOR UPDATE;
SET `the debt` = `the debt` + {cost};
IF `the debt` <= {cap} THEN
  IF `the count` THEN
    UPDATE {rows} SET part = MOD(`the debt`, {limit}), tat = `the moment` + `the debt` DIV {limit} WHERE {equal};
  ELSE
    INSERT INTO {rows} ({columns})
      VALUES ({key_holes}, MOD(`the debt`, {limit}), `the moment` + `the debt` DIV {limit});
  END IF;
END IF""",
    "postgresql": """\
m AS (SELECT {now} AS moment, {cost} AS cost),
t AS (INSERT INTO {rows} AS r ({columns})
  SELECT {key_holes}, m.cost % {limit}, m.moment + m.cost / {limit} FROM m
    WHERE NOT EXISTS (SELECT FROM {rows} r WHERE {r_equal} AND {debt} > {cap} - m.cost)
  ON CONFLICT ({key}) DO UPDATE
    SET part = (SELECT ({debt} + m.cost) % {limit} FROM m), tat = (SELECT m.moment + ({debt} + m.cost) / {limit} FROM m)
    WHERE {debt_now} <= {cap} - (SELECT cost FROM m)
  RETURNING r.part, r.tat)""",
}
REMAINING = {
    "mariadb": "CASE WHEN `the debt` <= {cap} THEN ({cap} - `the debt`) DIV {window} END",
    "postgresql": "({cap} - (t.tat - m.moment) * {limit} - t.part) / {window}",
}


class RateLimitPlan(EndingPlan):
    """A rate limit in one dialect's words: one table, whose row is its own head."""

    wire = RateLimitWire

    structure: RateLimit[Any]
    views = VIEWS
    alterations = ALTERATIONS

    def __init__(self, structure: RateLimit[Any], dialect: Dialect) -> None:
        super().__init__(structure, dialect, [PART, TAT], (0, 0))
        self.limit, self.window = structure.limit, structure.window
        self.cap = self.limit * self.window
        self.delete = Template(
            f"DELETE {by_key(dialect, self.rows_table)} WHERE {self.words['equal']} AND tat >= {dialect.placeholder}"
        )
        numbers = {"limit": str(self.limit), "window": str(self.window), "cap": str(self.cap)}
        moment = "m.moment" if dialect.name == "postgresql" else "`the moment`"
        words = {
            **self.words,
            **numbers,
            "now": self.clock.now,
            "cost": self.guarded("%s::bigint" if dialect.name == "postgresql" else dialect.placeholder),
            "debt": DEBT.format(moment=moment, **numbers),
            "debt_now": DEBT.format(moment="(SELECT moment FROM m)", **numbers),
        }
        self._one_take = ONE_TAKE.get(dialect.name, "").replace("%", "%%").format(**words)
        self._remaining = REMAINING.get(dialect.name, "").format(**numbers)

    def rules(self) -> Iterator[Rule]:
        """Return the invariants of its table."""
        return rules(self, self.limit)

    def _debt(self, row: Row | None) -> int:
        if row is None:
            return 0
        moment, part, tat = row
        return self.cap if self._is_beyond(row) else max((tat - moment) * self.limit + part, 0)

    def _is_beyond(self, row: Row | None) -> bool:
        # No key can have taken that much: the window was longer before, or the clock has jumped. The row is rewritten
        # with a `tat` one window from now. (A writer that has waited for a lock may have a slightly older moment than
        # the row.)
        return row is not None and row[2] - row[0] > self.window + SECOND

    def _taken(self, debt: int, n: int) -> Taken:
        over = debt + n * self.window - self.cap
        if over > 0:
            return Taken(False, self._left(debt), -(-over // self.limit) / SECOND)
        return Taken(True, -over // self.window, 0.0)

    def _left(self, debt: int) -> int:
        return max(self.cap - debt, 0) // self.window

    def _play(self, run: Sequence[tuple[Row, int]], debts: dict[Row, int]) -> list[Taken]:
        # Takes in the order of the requests; `debts` has the debt of each key, which is updated.
        results = []
        for key, n in run:
            taken = self._taken(debts[key], n)
            if taken.allowed:
                debts[key] += n * self.window
            results.append(taken)
        return results

    def plan_take(self, run: Operations, context: Context, _: bool) -> Plan:
        """Refuse by a plain read what it refuses; lock and simulate the others, and write each key once."""
        wanted = [(self.key_out(op.args[0]), op.args[1]) for op in run]
        keys = sorted({key for key, _ in wanted})
        found = yield from self.read(keys, context)
        before = {key: self._debt(row) for key, row in zip(keys, found, strict=True)}
        debts = dict(before)
        results = self._play(wanted, debts)
        beyond = {key for key, row in zip(keys, found, strict=True) if self._is_beyond(row)}
        changed = [key for key in keys if debts[key] != before[key] or key in beyond]
        if not changed:
            yield from self.mend(found, context)
            for (key, _), taken in zip(wanted, results, strict=True):
                if not taken.allowed:
                    self.clock.refuses(context, key)
            return results
        moments = {row[0] for row in found if row is not None}
        if not beyond and len(moments) == 1 and self.may_change(context):
            (moment,) = moments
            there = dict(zip(keys, found, strict=True))
            put = [((there[key] or ())[1:] or None, self._row(key, moment, debts[key])) for key in changed]
            yield from self.change(put, context, moment - STAYS, len(put) + self.clock.settled(context))
            return results
        moment, rows = yield from self.locked(changed, context)
        before = {key: self._debt((moment, *row)) for key, row in rows.items()}
        debts = dict(before)
        again = [place for place, (key, _) in enumerate(wanted) if key in rows]
        for place, taken in zip(again, self._play([wanted[place] for place in again], debts), strict=True):
            results[place] = taken
        written = [self._row(key, moment, debts[key]) for key in changed if debts[key] != before[key] or key in beyond]
        yield from self.write(written, context, moment - STAYS, len(written) + self.clock.settled(context))
        return results

    def _row(self, key: Row, moment: int, debt: int) -> Row:
        return (*key, debt % self.limit, moment + debt // self.limit)

    def ask_take(self, op: Operation[Any], context: Context) -> Question | None:
        """Refuse what a plain read refuses."""
        key, n = self.key_out(op.args[0]), op.args[1]
        if not self.clock.may_refuse(context, key):
            return None

        def refused(rows: list[Row]) -> Taken:
            row = _there(rows)
            taken = self._taken(self._debt(row), n)
            if taken.allowed or self._is_beyond(row) or self.clock.stands_still(context, rows[0][0]):
                raise Careful
            self.clock.refuses(context, key)
            return taken

        return Question(self.one, self.clock.row(context) + key, refused)

    def transact_take(self, op: Operation[Any], context: Context) -> Transaction | None:
        """Take from one key."""
        return None if self.clock.is_due(context) else self._one(op, context)

    def _one(self, op: Operation[Any], context: Context) -> Transaction:
        key, n = self.key_out(op.args[0]), op.args[1]
        found = yield self.one, self.clock.row(context) + key
        if not found:
            raise Careful
        row, moment = _there(found), found[0][0]
        debt = self._debt(row)
        taken = self._taken(debt, n)
        if taken.allowed or self._is_beyond(row):
            yield self.put.sql, self._row(key, moment, debt + n * self.window * taken.allowed)
            yield from self.sweep.remove_alone(moment - STAYS)
        return taken

    def exchange_take(self, op: Operation[Any], context: Context) -> Exchange | None:
        """Take from one key; return how many remain. Some takes run as a batch, which also deletes rows."""
        if context.joined or self.clock.is_due(context) or self.clock.owes(context):
            return None
        key, cost = self.key_out(op.args[0]), op.args[1] * self.window
        row = (*key, cost, *key, *key) if self.dialect.family == "mariadb" else (cost, *key, *key)
        return Exchange(self._one_take, row, self._remaining, "FROM t, m", _allowed)

    def plan_peek(self, run: Operations, context: Context, _: bool) -> Plan:
        """Read rows."""
        found = yield from self.read([self.key_out(op.args[0]) for op in run], context)
        return [self._peeked(row) for row in found]

    def ask_peek(self, op: Operation[Any], context: Context) -> Question:
        """Read one row."""
        row = self.clock.row(context) + self.key_out(op.args[0])
        return Question(self.one, row, lambda rows: self._peeked(_there(rows)))

    def _peeked(self, row: Row | None) -> Taken:
        debt = self._debt(row)
        taken = self._taken(debt, 1)
        return Taken(taken.allowed, self._left(debt), taken.retry_after)

    def plan_clear(self, run: Operations, context: Context, _: bool) -> Plan:
        """Delete the rows of keys; rows of fully restored limits are not counted."""
        keys = [self.key_out(op.args[0]) for op in run]
        moment = yield from self.removing(keys, context)
        results = []
        for key in keys:
            results.append((yield Statement(self.delete, [(*key, moment)])))
        return results

    plan_forget = plan_clear


def _there(found: list[Row]) -> Row | None:
    return None if found[0][1] is None else tuple(found[0])


def _allowed(remaining: int) -> Taken:
    return Taken(True, remaining, 0.0)
