"""Expiring set: each member's row is its own head, so adds of different members of a key do not wait for each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import compress
from typing import Any

from roost.dialects.dialect import Control, Dialect, Exchange, Row, Statement
from roost.structures import keep_for
from roost.structures.checks import lasting
from roost.structures.clock import SECOND
from roost.structures.ending import EndingPlan
from roost.structures.expiring_set.declaration import ExpiringSet
from roost.structures.expiring_set.view import VIEWS
from roost.structures.operation import RUNS, Operation
from roost.structures.plan import (
    CUT,
    Careful,
    Context,
    Operations,
    Plan,
    Question,
    Rule,
    Transaction,
    by_key,
    each,
    same,
    same_columns,
    write,
)
from roost.structures.set.plan import answers, changes_of
from roost.structures.set.wire import SetWire
from roost.structures.sweep import EACH

# A single add: creates or locks the member's row, and returns its previous contents. A batch runs instead if the latest
# time must be stored, and on PostgreSQL if another session has just created the row. On MariaDB, where a DELETE cannot
# skip locked rows, a batch also deletes the expired rows.
ONE_ADD = {
    "mariadb": """\
INSERT INTO {rows} ({columns}) VALUES ({key_holes}, {now} + {lasts}) ON DUPLICATE KEY UPDATE until = until;
SET `the count` = ROW_COUNT() * {one};
IF NOT `the count` THEN
  UPDATE {rows} SET until = {now} + {lasts} WHERE {equal} AND until <= {now};
  SET `the count` = ROW_COUNT();
  UPDATE {rows} SET until = GREATEST(until, {now} + {lasts}) WHERE {equal};
END IF""",
    "postgresql": """\
c AS MATERIALIZED (SELECT {now} AS now FROM roost_catalog c WHERE {stays_stored} AND {goes_on}),
o AS MATERIALIZED (SELECT r.until, c.now FROM c JOIN {rows} r ON {r_equal} FOR UPDATE OF r),
u AS (UPDATE {rows} r SET until = greatest(o.until, o.now + {lasts}) FROM o WHERE {r_equal}),
i AS (INSERT INTO {rows} ({columns}) SELECT {key_holes}, c.now + {lasts} FROM c WHERE NOT EXISTS (SELECT FROM o)
  ON CONFLICT DO NOTHING RETURNING 1),
s AS (DELETE FROM {rows} WHERE ctid = ANY (ARRAY(SELECT r.ctid FROM {rows} r WHERE until <= (SELECT now FROM c)
    AND NOT ({r_equal}) ORDER BY until LIMIT {sweep} FOR UPDATE SKIP LOCKED)))""",
}
ADDED = {
    "mariadb": "`the count`",
    "postgresql": "CASE WHEN EXISTS (SELECT FROM i) THEN 1 ELSE (SELECT (until <= now)::int FROM o) END",
}


class ExpiringSetPlan(EndingPlan):
    """An expiring set in one dialect's words."""

    wire = SetWire

    structure: ExpiringSet[Any, Any]
    views = VIEWS
    alterations = keep_for.ALTERATIONS
    together: Mapping[str, str] = {"add": "change", "add_all": "change", "remove": "change"}

    def __init__(self, structure: ExpiringSet[Any, Any], dialect: Dialect) -> None:
        key, member = structure.key.columns, structure.member.columns
        pair = (*key, *member)
        super().__init__(structure, dialect, [keep_for.UNTIL], (0,), pair)
        rows, names, hole = self.rows_table, dialect.names(pair), dialect.placeholder
        self.lasts = structure.keep_for * SECOND
        words = {**self.words, "pairs": names, "equal_pair": self.words["equal"], "same_pair": self.words["same"]}
        self.cut = dialect.choose(CUT).format({**words, "pair_arrays": self.words["key_arrays"]})
        of_key, living = dialect.equal(key), dialect.equal(key, "r.") + f" AND r.until > {self.clock.now}"
        members = dialect.names(member, "r.")
        self.all = each(f"SELECT {members} FROM {rows} r WHERE {living}")
        self.count = each(f"SELECT count(*) FROM {rows} r WHERE {living}")
        self._one_set = self.question_sql(members, rows, living)
        self._one_size = self.question_sql(f"count(r.{dialect.name_of(key[0])})", rows, living, " GROUP BY c.name")
        self._one_add = ONE_ADD.get(dialect.name, "").format(
            **self.words,
            now=self.clock.now,
            lasts=self.lasts,
            one=f"(SELECT 1 FROM roost_catalog c WHERE {self.clock.goes_on} AND {self.stays_stored})",
            stays_stored=self.stays_stored,
            goes_on=self.clock.goes_on,
            sweep=EACH,
        )
        if dialect.row_locks:
            self.take = each(f"SELECT 1 FROM {rows} WHERE {of_key} ORDER BY {names}{dialect.for_update}")
        self.delete_over = write(f"DELETE {by_key(dialect, rows)} WHERE {of_key} AND until <= {hole}")
        self.delete_living = write(f"DELETE {by_key(dialect, rows)} WHERE {of_key} AND until > {hole}")
        self._columns_out = dialect.column_encoder(pair) or same_columns
        self.member_out: Callable[[Row], Row] = dialect.encoder(member) or same
        self._member_in: Callable[[Row], Row] = dialect.decoder(member) or same

    def rules(self) -> Iterator[Rule]:
        """Return the invariants of its table."""
        yield lasting(self)

    def heads_of(self, op: Operation[Any]) -> Iterable[Row]:
        """Return the keys, as they are stored, whose rows an operation writes."""
        if op.verb in RUNS:
            return {self.key_out(pair[: self.key_width]) for pair in op.args}
        return super().heads_of(op)

    # --- writes ---------------------------------------------------------------------------------------------------

    def plan_change(self, run: Operations, context: Context, _: bool) -> Plan:
        """Lock the members' rows, simulate adds and removes in Python, in their order, and write their net effect."""
        rows, adds = changes_of(run)
        if not rows:
            return answers(run, [])
        pairs: list[Row] = list(zip(*self._columns_out(list(zip(*rows, strict=True))), strict=True))
        wanted = set(pairs)
        if not context.joined:  # the application's transaction may have an older snapshot
            absent = yield from self._absent(sorted(wanted.difference(compress(pairs, adds))), context)
            wanted.difference_update(absent)
        if not wanted:
            return answers(run, [False] * len(pairs))
        moment, states = yield from self.locked(sorted(wanted), context)
        now = dict.fromkeys(pairs, False) | {pair: until > moment for pair, (until,) in states.items()}
        changed: list[bool] = []
        for pair, there in zip(pairs, adds, strict=True):
            changed.append(now[pair] is not there)
            now[pair] = there
        put = [(*pair, moment + self.lasts) for pair in states if now[pair]]
        gone = [pair for pair, (until,) in states.items() if not now[pair] and (until or self.dialect.row_locks)]
        work = [Statement(self.cut, gone)] if gone else []
        work += [Statement(self.put, put)] if put else []
        yield from self.sweep.remove(moment, len(states) + self.clock.settled(context), context, work)
        return answers(run, changed)

    def _absent(self, pairs: list[Row], context: Context) -> Plan:
        # Which of these pairs do not exist: to remove them, no row is locked, or created to be locked.
        found = (yield from self.read(pairs, context)) if pairs else []
        return [pair for pair, row in zip(pairs, found, strict=True) if row is None or row[1] <= row[0]]

    def transact_add(self, op: Operation[Any], context: Context) -> Transaction | None:
        """Add one member."""
        return self._added(op, context) if len(op.args[1]) == 1 and not self.clock.is_due(context) else None

    def exchange_add(self, op: Operation[Any], context: Context) -> Exchange | None:
        """Add one member."""
        key, members = op.args
        if len(members) != 1 or context.joined or self.clock.is_due(context):
            return None
        pair = self.key_out(key) + self.member_out(members[0])
        if self.dialect.name == "postgresql":
            return Exchange(self._one_add, pair * 4, ADDED[self.dialect.name], "FROM c", int)
        if self.clock.owes(context):
            return None
        return Exchange(self._one_add, pair * 3, ADDED[self.dialect.name], "FROM c", int)

    def _added(self, op: Operation[Any], context: Context) -> Transaction:
        key, (member,) = op.args
        pair = self.key_out(key) + self.member_out(member)
        found = yield self.one, self.clock.row(context) + pair
        if not found:
            raise Careful  # the declaration is not stored
        moment, until = found[0]
        yield self.put.sql, (*pair, moment + self.lasts)
        yield from self.sweep.remove_alone(moment)
        return int(until is None or until <= moment)

    def plan_clear(self, run: Operations, context: Context, _: bool) -> Plan:
        """Delete the rows of keys; expired rows are not counted."""
        keys = [self.key_out(op.args[0]) for op in run]
        if self.take is not None:
            yield Statement(self.take, sorted(set(keys)))
            yield Control.LOCKED
        moment = yield from self.clock.read(context)
        results = []
        for key in keys:
            results.append((yield Statement(self.delete_living, [(*key, moment)])))
            yield Statement(self.delete_over, [(*key, moment)])
        return results

    plan_forget = plan_clear

    # --- reads ----------------------------------------------------------------------------------------------------

    def plan_members(self, run: Operations, context: Context, _: bool) -> Plan:
        """Read all members."""
        now = self.clock.row(context)
        found = yield Statement(self.all, [self.key_out(op.args[0]) + now for op in run])
        return [self._members(rows) for rows in found]

    def plan_contains(self, run: Operations, context: Context, _: bool) -> Plan:
        """Look up pairs."""
        pairs = [self.key_out(op.args[0]) + self.member_out(op.args[1]) for op in run]
        found = yield from self.read(pairs, context)
        return [row is not None and row[1] > row[0] for row in found]

    def plan_size(self, run: Operations, context: Context, _: bool) -> Plan:
        """Count members."""
        now = self.clock.row(context)
        found = yield Statement(self.count, [self.key_out(op.args[0]) + now for op in run])
        return [rows[0][0] for rows in found]

    def ask_members(self, op: Operation[Any], context: Context) -> Question:
        """Read the members of one set."""
        row = self.key_out(op.args[0]) + self.clock.row(context)
        return Question(self._one_set, row, lambda rows: set() if rows[0][0] is None else self._members(rows))

    def ask_contains(self, op: Operation[Any], context: Context) -> Question:
        """Look up one pair."""
        key, member = op.args
        row = self.clock.row(context) + self.key_out(key) + self.member_out(member)
        return Question(self.one, row, lambda rows: rows[0][1] is not None and rows[0][1] > rows[0][0])

    def ask_size(self, op: Operation[Any], context: Context) -> Question:
        """Count the members of one set."""
        return Question(self._one_size, self.key_out(op.args[0]) + self.clock.row(context), lambda rows: rows[0][0])

    def _members(self, rows: list[Row]) -> set[Any]:
        value, convert = self.structure.member.value, self._member_in
        return {value(convert(row)) for row in rows}
