"""Expiring ring: like a ring; each row has the moment at which it expires, and reads skip expired rows.

Pushes of a key are serialized, and time never goes back: so the expired rows of a key are always its oldest ones.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Any, ClassVar

from roost.dialects.dialect import Dialect, Exchange, Row, Statement, Wanted
from roost.structures.expiring_ring.declaration import ExpiringRing
from roost.structures.keep_for import ALTERATIONS, UNTIL, Lasting
from roost.structures.operation import Operation
from roost.structures.plan import SLOT, Alteration, Careful, Context, Locked, Operations, Plan, Rule, Transaction
from roost.structures.ring.plan import ONE_PUSH, RingPlan
from roost.structures.rules import lasting
from roost.types.columns import Column


class ExpiringRingPlan(RingPlan):
    """An expiring ring in one dialect's words."""

    structure: ExpiringRing[Any, Any]
    alterations: ClassVar[Mapping[str, Alteration]] = {**RingPlan.alterations, **ALTERATIONS}
    further: ClassVar[tuple[Column, ...]] = (UNTIL,)

    def __init__(self, structure: ExpiringRing[Any, Any], dialect: Dialect) -> None:
        super().__init__(structure, dialect)
        key = structure.key.columns
        self.lasting = Lasting(self, structure.keep_for, (*key, SLOT))
        self.tables = (*self.tables, *self.lasting.tables)
        self.indexes = (self.lasting.sweep.name,)
        now = self.lasting.clock.now
        self._one_head = self.question_sql(f"r.sequence, {now}", self.head_table, dialect.equal(key, "r."))
        others = ["%s"] * (len(structure.columns) - len(key))
        holes = ", ".join(["%s", f"{now} + {self.lasting.lasts}", *others])
        self._one_push = ONE_PUSH.get(dialect.name, "").format(
            **{**self.words, "other_holes": holes, "lock": "", "locked": ""}
        )
        columns = f"{self.words['r_row']}, {now}"
        self._one_ring = self.question_sql(columns, self.rows_table, dialect.equal(key, "r."))

    def rules(self) -> Iterator[Rule]:
        """Return the invariants of its tables."""
        yield from super().rules()
        yield lasting(self)

    # --- writes ---------------------------------------------------------------------------------------------------

    def stamp(self, context: Context) -> Generator[Wanted, Any, Row]:
        """Return the values of `at` and `until` for new rows."""
        until = yield from self.lasting.stamp(context)
        return (*self._at_out((context.clock(),)), until)

    def remove_over(self, stamp: Row, written: int, context: Context) -> Generator[Wanted, Any, None]:
        """Delete expired rows, some for each row that was written."""
        lasting = self.lasting
        yield from lasting.sweep.remove(stamp[-1] - lasting.lasts, written + lasting.clock.settled(context), context)

    def transact_push(self, op: Operation[Any], context: Context) -> Transaction | None:
        """Allocate a sequence for one push, write it, and delete expired rows."""
        return None if self.lasting.clock.is_due(context) else self._one(op, context)

    def _one(self, op: Operation[Any], context: Context) -> Transaction:
        values = op.args[0]
        key = self._key_of(values)
        found = yield self._one_head, self.now(context) + key
        if not found:
            raise Careful  # the declaration is not stored
        last, moment = found[0]
        sequence = (last or 0) + 1
        yield self.put_head.sql, (*key, sequence)
        stamp = (*self._at_out((context.clock(),)), moment + self.lasting.lasts)
        yield self.write.sql, (*key, sequence % self.keep, sequence, *stamp, *self._others_of(values))
        yield from self.lasting.sweep.remove_alone(moment)
        return sequence

    def exchange_push(self, op: Operation[Any], context: Context) -> Exchange | None:
        """Allocate a sequence for one push, and write it. Some pushes take a batch, which also deletes expired rows."""
        clock = self.lasting.clock
        if context.joined or clock.is_due(context) or clock.owes(context):
            return None
        return super().exchange_push(op, context)

    def plan_clear(self, run: Operations, context: Context, locked: Locked) -> Plan:
        """Delete a key's rows; the head stays, so the sequence goes on."""
        unmake = self.unmake if locked is not False and self.lock is not None else None
        return (yield from self.lasting.remove_keys(run, context, locked, unmake))

    def plan_forget(self, run: Operations, context: Context, locked: Locked) -> Plan:
        """Delete a key's rows and its head."""
        return (yield from self.lasting.remove_keys(run, context, locked, self.drop))

    # --- reads ----------------------------------------------------------------------------------------------------

    def newest_rows(self, asked: list[Row], context: Context) -> Plan:
        """Return the rows of each request that have not expired, newest first."""
        moment = yield from self.lasting.moment(context)
        found = yield from super().newest_rows(asked, context)
        return [[row[:-1] for row in rows if row[-1] > moment] for rows in found]

    def of_ring(self, rows: list[Row]) -> list[Row]:
        """Return the values, without the key, of the rows that have not expired."""
        return [row[1:-2] for row in rows if row[-2] > row[-1]]

    def now(self, context: Context) -> Row:
        """Return the parameters of the current moment."""
        return self.lasting.clock.row(context)

    def plan_entries(self, run: Operations, context: Context, _: bool) -> Plan:
        """Read all slots after `after`: expired rows come first."""
        moment = yield from self.lasting.moment(context)
        found = yield Statement(self.entries, [(*self.key_out(key), after, self.keep) for key, after, _ in _args(run)])
        results = []
        for rows, (_, _, n) in zip(found, _args(run), strict=True):
            rows.sort()
            results.append([self.entry(row[:-1]) for row in rows if row[-1] > moment][:n])
        return results


def _args(run: Operations) -> list[Any]:
    return [op.args for op in run]
