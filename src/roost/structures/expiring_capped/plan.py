"""Expiring capped: like a capped collection; expired rows are deleted before a key's rows are read.

So a change finds only live rows, and the head's count is the number of stored rows, as always. Expired rows of other
keys are deleted under the locks of their heads, if no other session holds these.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from roost.dialects.dialect import (
    Answer,
    Control,
    Dialect,
    Exchange,
    Gather,
    Row,
    Statement,
    Template,
    Together,
    Wanted,
)
from roost.structures.capped.plan import CappedPlan
from roost.structures.checks import lasting
from roost.structures.expiring_capped.declaration import ExpiringCapped
from roost.structures.keep_for import ALTERATIONS, UNTIL, Lasting
from roost.structures.operation import Operation
from roost.structures.plan import MOST_FOUND, Alteration, Context, Locked, Operations, Plan, Rule, each, is_locked
from roost.structures.sweep import EACH, MOST
from roost.types.columns import Column

# The ids of a key's expired rows; the parameters are a key and a moment.
OVER = {
    "sqlite": Template("SELECT {ids} FROM {rows} WHERE {equal} AND until <= ?", answer=Answer.ORDINAL),
    "mariadb": Template(
        "(SELECT {{i}}, {ids} FROM {rows} WHERE {equal} AND until <= %s)", Gather.UNION, Answer.ORDINAL
    ),
    "postgresql": Template(
        """\
SELECT (q."#" - 1)::integer, e.* FROM unnest({key_arrays}, %s::bigint[]) WITH ORDINALITY AS q ({key}, now, "#")
  CROSS JOIN LATERAL (SELECT {r_ids} FROM {rows} r WHERE {same_key} AND r.until <= q.now OFFSET 0) e""",
        Gather.ARRAYS,
        Answer.ORDINAL,
    ),
}

# Which of these rows have expired, under their locks: the application's transaction may have an older snapshot. (A
# locking read of all rows of a key would lock the gap after them.)
STILL_OVER = {
    "mariadb": Template(
        "(SELECT {{i}}, 1 FROM {rows} WHERE {equal_pair} AND until <= %s FOR UPDATE)", Gather.UNION, Answer.ORDINAL
    )
}

# The keys of the rows that expired first. PostgreSQL also locks their heads, and skips those that other sessions hold;
# MariaDB locks them by their primary key (FREE), since a search by the moment would lock the rows behind it, too.
OVER_KEYS = {
    "sqlite": "SELECT {key} FROM {rows} WHERE until <= ? ORDER BY until LIMIT ?",
    "mariadb": "SELECT {key} FROM {rows} FORCE INDEX ({index}) WHERE until <= %s ORDER BY until LIMIT %s",
    "postgresql": """\
SELECT {r_key} FROM {rows} r JOIN {head} h ON {join}
  WHERE r.until <= %s ORDER BY r.until LIMIT %s FOR UPDATE OF h SKIP LOCKED""",
}


FREE = {
    "mariadb": Template(
        "(SELECT {{i}}, 1 FROM {head} WHERE {equal} FOR UPDATE SKIP LOCKED)", Gather.UNION, Answer.ORDINAL
    )
}


class ExpiringCappedPlan(CappedPlan):
    """An expiring capped collection in one dialect's words."""

    structure: ExpiringCapped[Any, Any]
    alterations: ClassVar[Mapping[str, Alteration]] = {**CappedPlan.alterations, **ALTERATIONS}
    further: ClassVar[tuple[Column, ...]] = (UNTIL,)
    lasting: Lasting

    def __init__(self, structure: ExpiringCapped[Any, Any], dialect: Dialect) -> None:
        super().__init__(structure, dialect)
        self.optimistic = None  # expired rows must be found first
        rows, key = self.rows_table, dialect.equal(structure.key.columns)
        self.tables = (*self.tables, *self.lasting.tables)
        self.indexes = (*self.indexes, self.lasting.sweep.name)
        self.over = dialect.choose(OVER).format(self.words)
        self.still_over = STILL_OVER[dialect.family].format(self.words) if dialect.family in STILL_OVER else None
        words = {
            **self.words,
            "r_key": dialect.names(structure.key.columns, "r."),
            "join": dialect.same(structure.key.columns, "h.", "r."),
            "index": self.lasting.sweep.name,
        }
        self.over_keys = each(dialect.choose(OVER_KEYS).format(**words))
        self._free = FREE[dialect.family].format(self.words) if dialect.family in FREE else None
        self.count = each(f"SELECT count(*) FROM {rows} WHERE {key}{self.living()}")
        of_key = dialect.equal(structure.key.columns, "r.")
        self._one_count = self.question_sql("count(r.sequence)", rows, of_key + self.living(), " GROUP BY c.name")

    def living(self) -> str:
        """Return the condition that a row has not expired, to follow others; `now` returns its parameters."""
        if not hasattr(self, "lasting"):
            self.lasting = Lasting(
                self, self.structure.keep_for, (*self.structure.key.columns, *self.structure.id.columns)
            )
        return f" AND until > {self.lasting.clock.now}"

    def now(self, context: Context) -> Row:
        """Return the parameters of the current moment."""
        return self.lasting.clock.row(context)

    def rules(self) -> Iterator[Rule]:
        """Return the invariants of its tables."""
        yield from super().rules()
        yield lasting(self)

    # --- writes ---------------------------------------------------------------------------------------------------

    def stamp(self, context: Context) -> Generator[Wanted, Any, Row]:
        """Return the values of `at` and `until` for new rows."""
        until = yield from self.lasting.stamp(context)
        return (*self._at_out((context.clock(),)), until)

    def plan_change(self, run: Operations, context: Context, locked: Locked) -> Plan:
        """Delete the keys' expired rows, simulate adds and removes, and delete expired rows of some other keys."""
        keys = sorted({head for op in run for head in self.heads_of(op)})
        if not keys:
            return (yield from super().plan_change(run, context, locked))
        if self.lock is not None and locked is False:
            locked = yield from self.take_heads(run, context)
        elif locked is False:
            yield Control.LOCKED
            locked = True
        moment = yield from self.lasting.clock.read(context)
        yield from self._remove_over([key for key in keys if is_locked(key, locked)], moment, context)
        results = yield from super().plan_change(run, context, locked)
        # In the application's transaction the heads of other keys would stay locked until its end.
        if not (context.joined and self.dialect.row_locks):
            yield from self._remove_over_elsewhere(keys, moment, context)
        return results

    def _remove_over(self, keys: Sequence[Row], moment: int, context: Context) -> Plan:
        # Runs under the locks of the heads. A view's trigger counts deletes, too, so the counts are read before the
        # deletes, and written after them as they are then.
        found = yield Statement(self.over, [(*key, moment) for key in keys])
        if context.joined and self.still_over is not None:
            pairs = [key + tuple(id_) for key, ids in zip(keys, found, strict=True) for id_ in ids]
            still = iter((yield Statement(self.still_over, [(*pair, moment) for pair in pairs])) if pairs else [])
            found = [[id_ for id_ in ids if next(still)] for ids in found]
        some = [(key, ids) for key, ids in zip(keys, found, strict=True) if ids]
        if some:
            reads = self.reads_now if context.joined else self.reads
            heads = yield Statement(reads.head, [key for key, _ in some])
            dead = [key + tuple(id_) for key, ids in some for id_ in ids]
            counted = [
                (*key, head[0][0], max(0, head[0][1] - len(ids)))
                for (key, ids), head in zip(some, heads, strict=True)
                if head
            ]
            yield Together([Statement(self.delete_row, dead), Statement(self.put_head, counted)])
        return []

    def _remove_over_elsewhere(self, written: Sequence[Row], moment: int, context: Context) -> Plan:
        keys: list[Row] = []
        for limit in (min(EACH * len(written), MOST), MOST_FOUND):
            found = yield Statement(self.over_keys, [(moment, limit)])
            keys = named = sorted({tuple(key) for key in found[0]}.difference(written))
            if keys and self._free is not None:
                there = yield Statement(self._free, keys)
                keys = [key for key, rows in zip(keys, there, strict=True) if rows]
            if len(keys) == len(named):  # otherwise those of heads that others hold stand before others
                break
        if keys:
            yield from self._remove_over(keys, moment, context)
        return []

    def transact_add(self, op: Operation[Any], context: Context) -> None:
        """Leave it to a batch."""

    def exchange_add(self, op: Operation[Any], context: Context) -> Exchange | None:
        """Leave it to a batch."""
        return None

    def plan_clear(self, run: Operations, context: Context, locked: Locked) -> Plan:
        """Delete a key's rows; the head stays, so the sequence goes on."""
        return (yield from self.lasting.remove_keys(run, context, locked, self.empty))

    def plan_forget(self, run: Operations, context: Context, locked: Locked) -> Plan:
        """Delete a key's rows and its head."""
        return (yield from self.lasting.remove_keys(run, context, locked, self.drop))

    # --- reads ----------------------------------------------------------------------------------------------------

    def plan_count(self, run: Operations, context: Context, _: bool) -> Plan:
        """Count rows."""
        now = self.now(context)
        found = yield Statement(self.count, [self.key_out(op.args[0]) + now for op in run])
        return [rows[0][0] for rows in found]
