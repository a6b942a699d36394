"""RateLimit: the generic cell rate algorithm, in whole numbers.

A row has the moment at which all is there again, the theoretical arrival time `tat`; its part beyond whole microseconds
is counted in those of `1 / limit`, so an emission interval of `window / limit` is exact. What a key has taken and not
back is its debt, in the same unit: each one taken adds `window`, each microsecond takes `limit` off, and more than
`limit * window` is refused.

A plain read decides what is refused: a debt only becomes larger while others take. Only what may be allowed is locked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from roost.dialects.dialect import Answer, Control, Dialect, Exchange, Gather, Row, Statement, Template
from roost.structures.clock import SECOND, Clock
from roost.structures.operation import Operation
from roost.structures.plan import (
    Careful,
    Context,
    Operations,
    Plan,
    Question,
    Rule,
    StructurePlan,
    Transaction,
    each,
    locking,
    seizing,
)
from roost.structures.rate_limit.alter import ALTERATIONS
from roost.structures.rate_limit.check import rules
from roost.structures.rate_limit.declaration import RateLimit, Taken
from roost.structures.rate_limit.view import VIEWS
from roost.structures.rate_limit.wire import RateLimitWire
from roost.structures.sweep import EACH, Sweep
from roost.types.column_types import ColumnType
from roost.types.columns import Column

TAT, PART = Column("tat", ColumnType("int")), Column("part", ColumnType("int"))

SELECT = {
    "sqlite": Template("SELECT {now}tat, part FROM {rows} WHERE {equal}", answer=Answer.ORDINAL),
    "mariadb": Template(
        """\
SELECT q.`#`, {now}r.tat, r.part FROM (SELECT 0 AS `#`, {key} FROM {rows} WHERE 0 UNION ALL VALUES {{rows}}) q
  STRAIGHT_JOIN {rows} r ON {same}""",
        Gather.LIST,
        Answer.ORDINAL,
    ),
    "mysql": Template("(SELECT {{i}}, {now}tat, part FROM {rows} WHERE {equal})", Gather.UNION, Answer.ORDINAL),
    "postgresql": Template(
        """\
SELECT (q."#" - 1)::integer, {now}e.* FROM unnest({key_arrays}) WITH ORDINALITY AS q ({key}, "#")
  CROSS JOIN LATERAL (SELECT r.tat, r.part FROM {rows} r WHERE {same} OFFSET 0) e""",
        Gather.ARRAYS,
        Answer.ORDINAL,
    ),
}

# Creates the row or takes its lock, and changes nothing.
LOCK = {
    "mariadb": Template(
        "INSERT INTO {rows} ({key}, tat, part) VALUES {{rows}} ON DUPLICATE KEY UPDATE tat = tat", Gather.VALUES
    ),
    "postgresql": Template(
        """\
INSERT INTO {rows} ({key}, tat, part) SELECT * FROM unnest({arrays})
  ON CONFLICT ({key}) DO UPDATE SET tat = 0 WHERE false""",
        Gather.ARRAYS,
    ),
}

PUT = {
    "sqlite": Template("INSERT OR REPLACE INTO {rows} ({key}, tat, part) VALUES ({holes})"),
    "mariadb": Template(
        """\
INSERT INTO {rows} ({key}, tat, part) VALUES {{rows}}
  ON DUPLICATE KEY UPDATE tat = VALUES(tat), part = VALUES(part)""",
        Gather.VALUES,
    ),
    "mysql": Template(
        """\
INSERT INTO {rows} ({key}, tat, part) VALUES {{rows}} AS new
  ON DUPLICATE KEY UPDATE tat = new.tat, part = new.part""",
        Gather.VALUES,
    ),
    "postgresql": Template(
        """\
INSERT INTO {rows} ({key}, tat, part) SELECT * FROM unnest({arrays})
  ON CONFLICT ({key}) DO UPDATE SET tat = excluded.tat, part = excluded.part""",
        Gather.ARRAYS,
    ),
}

# The debt of a row. A microsecond of what is over is as good as all of it, and keeps the product in 64 bits.
DEBT = "LEAST(GREATEST(LEAST(GREATEST(r.tat - {moment}, -1), {window}) * {limit} + r.part, 0), {cap})"

# One take by itself. Where it is refused nothing is written, and there is no answer: the batch tells when to try again.
ONE_TAKE = {
    "mariadb": """\
SET `the moment` = {now};
SELECT COUNT(*), COALESCE(MAX({debt}), 0) INTO `the count`, `the debt` FROM {rows} r WHERE {r_equal} FOR UPDATE;
SET `the debt` = `the debt` + {cost};
IF `the debt` <= {cap} THEN
  IF `the count` THEN
    UPDATE {rows} SET tat = `the moment` + `the debt` DIV {limit}, part = MOD(`the debt`, {limit}) WHERE {equal};
  ELSE
    INSERT INTO {rows} ({key}, tat, part)
      VALUES ({key_holes}, `the moment` + `the debt` DIV {limit}, MOD(`the debt`, {limit}));
  END IF;
END IF""",
    "postgresql": """\
m AS (SELECT {now} AS moment, {cost} AS cost),
t AS (INSERT INTO {rows} AS r ({key}, tat, part)
  SELECT {key_holes}, m.moment + m.cost / {limit}, m.cost % {limit} FROM m
    WHERE NOT EXISTS (SELECT FROM {rows} r WHERE {r_equal} AND {debt} > {cap} - m.cost)
  ON CONFLICT ({key}) DO UPDATE
    SET tat = (SELECT m.moment + ({debt} + m.cost) / {limit} FROM m), part = (SELECT ({debt} + m.cost) % {limit} FROM m)
    WHERE {debt_now} <= {cap} - (SELECT cost FROM m)
  RETURNING r.tat, r.part)""",
}
REMAINING = {
    "mariadb": "CASE WHEN `the debt` <= {cap} THEN ({cap} - `the debt`) DIV {window} END",
    "postgresql": "({cap} - (t.tat - m.moment) * {limit} - t.part) / {window}",
}

OPTIONS = {"postgresql": " WITH (fillfactor = 80)"}


class RateLimitPlan(StructurePlan):
    """A rate limit in one dialect's words: one table, whose row is its own head."""

    wire = RateLimitWire

    structure: RateLimit[Any]
    views = VIEWS
    alterations = ALTERATIONS

    def __init__(self, structure: RateLimit[Any], dialect: Dialect) -> None:
        super().__init__(structure, dialect)
        key = structure.key.columns
        self.limit, self.window = structure.limit, structure.window
        self.cap = self.limit * self.window
        self.clock = Clock(self)
        self.sweep = Sweep(self, TAT.name)
        self.indexes = (self.sweep.name,)
        hole, rows, equal = dialect.placeholder, self.rows_table, dialect.equal(key)
        numbers = {"limit": str(self.limit), "window": str(self.window), "cap": str(self.cap)}
        moment = "m.moment" if dialect.name == "postgresql" else "`the moment`"
        words = {
            **numbers,
            "rows": rows,
            "key": dialect.names(key),
            "key_holes": dialect.holes(len(key)),
            "key_arrays": dialect.arrays(key),
            "holes": dialect.holes(len(key) + 2),
            "arrays": dialect.arrays([*key, TAT, PART]),
            "equal": equal,
            "r_equal": dialect.equal(key, "r."),
            "same": dialect.same(key, "q.", "r."),
            "cost": self.guarded("%s::bigint" if dialect.name == "postgresql" else hole),
            "debt": DEBT.format(moment=moment, **numbers),
            "debt_now": DEBT.format(moment="(SELECT moment FROM m)", **numbers),
        }
        now = f"{self.clock.now}, "
        self.tables = (
            self.create(rows, [*key, TAT, PART], words["key"]) + OPTIONS.get(dialect.name, ""),
            self.sweep.index,
            self.clock.table,
        )
        self.seize = seizing(dialect, rows, key)
        self.select = dialect.choose(SELECT).format({**words, "now": now})
        self.select_locked = locking(dialect.choose(SELECT).format({**words, "now": ""}), dialect)
        self.put = dialect.choose(PUT).format(words)
        if dialect.row_locks:
            self._lock = dialect.choose(LOCK).format(words)
            self.take = each(f"SELECT 1 FROM {rows} WHERE {equal}{dialect.for_update}")
        self.delete = Template(f"DELETE FROM {rows} WHERE {equal} AND tat >= {hole}")
        self.first_keys, self.later_keys = self.clock.keys(TAT.name)
        self._ask = self.asked_alone(f"{now}r.tat, r.part", rows, words["r_equal"])
        percent = "%%" if dialect.placeholder == "%s" else "%"
        one_take = ONE_TAKE.get(dialect.name, "").replace("%", percent)
        self._one_take = one_take.format(**{**words, "now": self.clock.now})
        self._remaining = REMAINING.get(dialect.name, "").format(**numbers)

    def rules(self) -> Iterator[Rule]:
        """Return the invariants of its table."""
        return rules(self, self.limit)

    def _debt(self, moment: int, tat: int, part: int) -> int:
        if self._is_beyond(moment, tat):
            return self.cap
        return max((tat - moment) * self.limit + part, 0)

    def _is_beyond(self, moment: int, tat: int) -> bool:
        # Nobody has taken so much: the window was longer, or the clock has jumped. It is written anew as a window.
        # (Who has waited for a lock may have a moment that is a little older than the row.)
        return tat - moment > self.window + SECOND

    def _taken(self, debt: int, n: int) -> Taken:
        over = debt + n * self.window - self.cap
        if over > 0:
            return Taken(False, self._left(debt), -(-over // self.limit) / SECOND)
        return Taken(True, -over // self.window, 0.0)

    def _left(self, debt: int) -> int:
        return max(self.cap - debt, 0) // self.window

    def _play(self, run: Sequence[tuple[Row, int]], debts: dict[Row, int]) -> list[Taken]:
        # In their order; what each key owes then is in `debts`.
        results = []
        for key, n in run:
            taken = self._taken(debts[key], n)
            if taken.allowed:
                debts[key] += n * self.window
            results.append(taken)
        return results

    def plan_take(self, run: Operations, context: Context, _: bool) -> Plan:
        """Refuse by a plain read what it refuses; lock and play the others, and write each key once."""
        wanted = [(self.key_out(op.args[0]), op.args[1]) for op in run]
        asked = sorted({key for key, _ in wanted})
        now = self.clock.row(context)
        found = yield Statement(self.select, [now + key for key in asked])
        debts = {key: self._debt(*rows[0]) if rows else 0 for key, rows in zip(asked, found, strict=True)}
        beyond = {key for key, rows in zip(asked, found, strict=True) if rows and self._is_beyond(*rows[0][:2])}
        before = dict(debts)
        results = self._play(wanted, debts)
        changed = [key for key in asked if debts[key] != before[key] or key in beyond]
        if not changed:
            if self.clock.stands(context, max([rows[0][0] for rows in found if rows])):
                yield from self.clock.read(context, writes=False)
            return results
        if self.dialect.row_locks:
            yield Statement(self._lock, [(*key, 0, 0) for key in changed])
            yield Control.LOCKED
            found = yield Statement(self.select_locked, changed)
            there = {key: rows[0] for key, rows in zip(changed, found, strict=True)}
        else:
            there = {key: rows[0][1:] for key, rows in zip(asked, found, strict=True) if rows}
        moment = yield from self.clock.read(context)
        before = {key: self._debt(moment, *there.get(key, (0, 0))) for key in changed}
        debts = dict(before)
        again = [place for place, (key, _) in enumerate(wanted) if key in before]
        for place, taken in zip(again, self._play([wanted[place] for place in again], debts), strict=True):
            results[place] = taken
        rows = [self._row(key, moment, debts[key]) for key in changed if debts[key] != before[key] or key in beyond]
        if rows:
            yield Statement(self.put, rows)
        # A row whose moment is this one may have a part.
        yield from self.sweep.remove(moment - 1, len(rows) + self.clock.settled(context), context)
        return results

    def _row(self, key: Row, moment: int, debt: int) -> Row:
        return (*key, moment + debt // self.limit, debt % self.limit)

    def transact_take(self, op: Operation[Any], context: Context) -> Transaction | None:
        """Take from one key."""
        return None if self.clock.is_due(context) else self._one(op, context)

    def _one(self, op: Operation[Any], context: Context) -> Transaction:
        key, n = self.key_out(op.args[0]), op.args[1]
        found = yield self._ask, self.clock.row(context) + key
        if not found:
            raise Careful
        moment, tat, part = found[0]
        debt = self._debt(moment, tat or 0, part or 0)
        taken = self._taken(debt, n)
        if taken.allowed or self._is_beyond(moment, tat or 0):
            yield self.put.sql, self._row(key, moment, debt + n * self.window * taken.allowed)
            yield self.sweep.statement.sql, (moment - 1, EACH)
        return taken

    def exchange_take(self, op: Operation[Any], context: Context) -> Exchange | None:
        """Take from one key; the answer is how many remain. Some leave what is over to a batch, which removes more."""
        if context.joined or self.clock.is_due(context) or self.clock.owes(context):
            return None
        key, cost = self.key_out(op.args[0]), op.args[1] * self.window
        row = (*key, cost, *key, *key) if self.dialect.family == "mariadb" else (cost, *key, *key)
        return Exchange(self._one_take, row, self._remaining, "FROM t, m", answers=True, result=_allowed)

    def plan_peek(self, run: Operations, context: Context, _: bool) -> Plan:
        """Read rows."""
        now = self.clock.row(context)
        found = yield Statement(self.select, [now + self.key_out(op.args[0]) for op in run])
        return [self._peeked(rows[0] if rows else None) for rows in found]

    def ask_peek(self, op: Operation[Any], context: Context) -> Question:
        """Read one row."""
        return Question(self._ask, self.clock.row(context) + self.key_out(op.args[0]), self._answer)

    def _answer(self, rows: list[Row]) -> Taken:
        return self._peeked(None if rows[0][1] is None else rows[0])

    def _peeked(self, row: Row | None) -> Taken:
        debt = 0 if row is None else self._debt(*row)
        taken = self._taken(debt, 1)
        return Taken(taken.allowed, self._left(debt), taken.retry_after)

    def plan_clear(self, run: Operations, context: Context, _: bool) -> Plan:
        """Delete the rows of keys; one that is over was none."""
        keys = [self.key_out(op.args[0]) for op in run]
        if self.take is not None:
            yield Statement(self.take, sorted(set(keys)))
            yield Control.LOCKED
        moment = yield from self.clock.read(context)
        results = []
        for key in keys:
            results.append((yield Statement(self.delete, [(*key, moment)])))
        return results

    plan_forget = plan_clear

    def moment(self, context: Context) -> Row:
        """Return the parameters of the present moment."""
        return self.clock.row(context)

    def heads_of(self, op: Operation[Any]) -> Iterable[Row]:
        """Return the key, as it is stored, whose row an operation locks."""
        return [self.key_out(op.args[0])]


def _allowed(remaining: int) -> Taken:
    return Taken(True, remaining, 0.0)
