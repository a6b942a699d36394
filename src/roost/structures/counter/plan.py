"""Counter: adds to one key become one upsert of one slot; a read sums the slots, in Python's ints.

An increment locks all slots of its key, and concurrent adds wait; so its sum is the total at one moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from roost.dialects.dialect import MOST_ANSWER, Answer, Control, Dialect, Exchange, Gather, Row, Statement, Template
from roost.errors import Overflow, StatementFailed
from roost.structures.counter.alter import ALTERATIONS
from roost.structures.counter.check import rules
from roost.structures.counter.declaration import Counter
from roost.structures.counter.view import VIEWS
from roost.structures.counter.wire import CounterWire
from roost.structures.operation import RUNS, Operation
from roost.structures.plan import (
    SLOT,
    Alteration,
    Careful,
    Context,
    N,
    Operations,
    Plan,
    Question,
    Rule,
    StructurePlan,
    Transaction,
    each,
    seizing,
    write,
)
from roost.types.column_types import INT_MAX, INT_MIN
from roost.types.columns import Column

ADD = {
    # The condition prevents a sum beyond 64 bits, which the number of changed rows shows; without it, STRICT would
    # refuse the REAL that SQLite makes of such a sum, and with it the whole statement.
    "sqlite": write(
        """\
INSERT INTO {rows_table} ({key}, slot, n) VALUES ({holes})
  ON CONFLICT ({key}, slot) DO UPDATE SET n = n + excluded.n
  WHERE typeof(n + excluded.n) = 'integer'""",
        "{holes}",
    ),
    "mariadb": Template(
        """\
INSERT INTO {rows_table} ({key}, slot, n) VALUES {{rows}}
  ON DUPLICATE KEY UPDATE n = n + VALUES(n)""",
        Gather.VALUES,
    ),
    "mysql": Template(  # an unqualified n would be ambiguous
        """\
INSERT INTO {rows_table} ({key}, slot, n) VALUES {{rows}} AS new
  ON DUPLICATE KEY UPDATE n = {rows_table}.n + new.n""",
        Gather.VALUES,
    ),
    "postgresql": Template(
        """\
INSERT INTO {rows_table} AS r ({key}, slot, n) SELECT * FROM unnest({arrays}, %s::bigint[], %s::bigint[])
  ON CONFLICT ({key}, slot) DO UPDATE SET n = r.n + excluded.n
  WHERE r.n::numeric + excluded.n BETWEEN -9223372036854775808 AND 9223372036854775807""",
        Gather.ARRAYS,
    ),
}

PUT = {
    "sqlite": Template("""\
INSERT INTO {rows_table} ({key}, slot, n) VALUES ({holes})
  ON CONFLICT ({key}, slot) DO UPDATE SET n = excluded.n"""),
    "mariadb": Template(
        """\
INSERT INTO {rows_table} ({key}, slot, n) VALUES {{rows}}
  ON DUPLICATE KEY UPDATE n = VALUES(n)""",
        Gather.VALUES,
    ),
    "mysql": Template(
        """\
INSERT INTO {rows_table} ({key}, slot, n) VALUES {{rows}} AS new
  ON DUPLICATE KEY UPDATE n = new.n""",
        Gather.VALUES,
    ),
    "postgresql": Template(
        """\
INSERT INTO {rows_table} AS r ({key}, slot, n) SELECT * FROM unnest({arrays}, %s::bigint[], %s::bigint[])
  ON CONFLICT ({key}, slot) DO UPDATE SET n = excluded.n""",
        Gather.ARRAYS,
    ),
}

SLOTS = {
    "sqlite": Template("SELECT n FROM {rows_table} WHERE {equal}", answer=Answer.ORDINAL),
    "mariadb": Template("SELECT {{i}}, n FROM {rows_table} WHERE {equal}", Gather.UNION, Answer.ORDINAL),
    "postgresql": Template(
        """\
SELECT (q."#" - 1)::integer, e.n FROM unnest({arrays}) WITH ORDINALITY AS q ({key}, "#")
  CROSS JOIN LATERAL (SELECT r.n FROM {rows_table} r WHERE {q_rows} OFFSET 0) e""",
        Gather.ARRAYS,
        Answer.ORDINAL,
    ),
}

# All slots of a key with their contents, after the statement that has locked them.
EACH_SLOT = {
    "sqlite": Template("SELECT slot, n FROM {rows_table} WHERE {equal}", answer=Answer.ORDINAL),
    "mariadb": Template(
        "(SELECT {{i}}, slot, n FROM {rows_table} WHERE {equal} FOR UPDATE)", Gather.UNION, Answer.ORDINAL
    ),
    "postgresql": Template(
        """\
SELECT (q."#" - 1)::integer, e.* FROM unnest({arrays}) WITH ORDINALITY AS q ({key}, "#")
  CROSS JOIN LATERAL (SELECT r.slot, r.n FROM {rows_table} r WHERE {q_rows} OFFSET 0) e""",
        Gather.ARRAYS,
        Answer.ORDINAL,
    ),
}

# A single add. It fails beyond 64 bits; on SQLite because STRICT refuses the REAL.
ONE_ADD = {
    "sqlite": """\
INSERT INTO {rows_table} ({key}, slot, n) VALUES ({one_slot}, {one_n})
  ON CONFLICT ({key}, slot) DO UPDATE SET n = n + excluded.n""",
    "mariadb": """\
INSERT INTO {rows_table} ({key}, slot, n) VALUES ({one_slot}, {one_n})
  ON DUPLICATE KEY UPDATE n = n + VALUES(n)""",
    "postgresql": """\
a AS (INSERT INTO {rows_table} AS r ({key}, slot, n) VALUES ({one_slot}, {one_n})
  ON CONFLICT ({key}, slot) DO UPDATE SET n = r.n + excluded.n)""",
}

# A single increment, of a counter with one slot.
ONE_INCREMENT = {
    "mariadb": """\
{one_add};
SELECT n INTO `the count` FROM {rows_table} WHERE {equal} AND slot = 0 FOR UPDATE""",
    "postgresql": """\
a AS (INSERT INTO {rows_table} AS r ({key}, slot, n) VALUES ({one_slot}, {one_n})
  ON CONFLICT ({key}, slot) DO UPDATE SET n = r.n + excluded.n RETURNING r.n)""",
}
INCREMENTED = {"mariadb": "`the count`", "postgresql": "n"}

# What a write depends on is read under its lock. SQLite's one writer has it already.
ONE_SLOT = {
    "sqlite": "SELECT n FROM {rows_table} WHERE {equal} AND slot = ?",
    "mariadb": "SELECT n FROM {rows_table} WHERE {equal} AND slot = %s FOR UPDATE",
    "postgresql": "SELECT n FROM {rows_table} WHERE {equal} AND slot = %s FOR UPDATE",
}

# With concurrent writers, only the DELETE itself can return what it has deleted. If the database cannot do that, the
# rows are read under their locks before it; no other slot of the key can appear in between, since all of them were
# created or locked.
CLEAR = {
    "sqlite": None,
    "mariadb": "DELETE FROM {rows_table} WHERE {equal} RETURNING n",
    "mysql": "SELECT n FROM {rows_table} WHERE {equal} FOR UPDATE",
}
CLEAR["postgresql"] = CLEAR["mariadb"]

# SQLite's SUM fails beyond 64 bits: halves of 32 bits are summed instead, and give the same order.
TOP = {
    "sqlite": """\
SELECT {key}, SUM(n >> 32), SUM(n & 4294967295) FROM {rows_table} GROUP BY {key}
  ORDER BY SUM(n >> 32) + (SUM(n & 4294967295) >> 32) DESC, SUM(n & 4294967295) & 4294967295 DESC, {key} LIMIT ?""",
    "mariadb": """\
SELECT {key}, 0, SUM(n) AS total FROM {rows_table} GROUP BY {key} ORDER BY total DESC, {in_order} LIMIT %s""",
}
TOP["postgresql"] = TOP["mariadb"]

OPTIONS = {"postgresql": " WITH (fillfactor = 50)"}  # room for HOT updates: 99.8 % of them instead of 0.4 %


class CounterPlan(StructurePlan):
    """A counter in one dialect's words."""

    wire = CounterWire

    structure: Counter[Any]
    views = VIEWS
    alterations: ClassVar[Mapping[str, Alteration]] = ALTERATIONS
    together: ClassVar[Mapping[str, str]] = {"add": "add", "add_all": "add"}

    def __init__(self, structure: Counter[Any], dialect: Dialect) -> None:
        super().__init__(structure, dialect)
        columns = self.cell()
        key = dialect.names(columns)
        words = {
            "rows_table": self.rows_table,
            "key": key,
            "in_order": dialect.in_order(columns),
            "equal": dialect.equal(columns),
            "holes": dialect.holes(len(columns) + 2),
            "arrays": dialect.arrays(columns),
            "q_rows": dialect.same(columns, "r.", "q."),
            "one_slot": f"{self.one_cell()}, {dialect.placeholder}",
            "one_n": self.guarded("%s::bigint" if dialect.name == "postgresql" else dialect.placeholder),
        }

        self.tables = (
            self.create(self.rows_table, [*columns, SLOT, N], f"{key}, slot") + OPTIONS.get(dialect.name, ""),
        )
        self.slots = structure.slots or dialect.slots
        self.add = dialect.choose(ADD).format(words)
        self.lock = None if dialect.name == "sqlite" else self.add
        self.put = dialect.choose(PUT).format(words)
        self.select = dialect.choose(SLOTS).format(words)
        self.one_slot = each(dialect.choose(ONE_SLOT).format(**words))
        clear = dialect.choose(CLEAR)
        self.clear = None if clear is None else each(clear.format(**words))
        self.top = each(dialect.choose(TOP).format(**words))
        self.delete = write(f"DELETE FROM {self.rows_table} WHERE {words['equal']}")
        self.first_keys, self.later_keys = self.key_after(self.rows_table)
        self.seize = seizing(dialect, self.rows_table, (*columns, SLOT))
        self.each_slot = dialect.choose(EACH_SLOT).format(words)
        self._one_add = ONE_ADD.get(dialect.name, "").format(**words)
        self._one_increment = ONE_INCREMENT.get(dialect.name, "").format(**words, one_add=self._one_add)
        total = INCREMENTED.get(dialect.name)
        self._incremented = f"CASE WHEN {total} BETWEEN 0 AND {MOST_ANSWER - 1} THEN {total} END"
        self._one_total = self.question_sql("r.n", self.rows_table, dialect.equal(columns, "r."))

    def cell(self) -> tuple[Column, ...]:
        """Return the columns that identify a total, which is spread over slots."""
        return self.structure.key.columns

    def one_cell(self) -> str:
        """Return the placeholders of their values in a single add."""
        return self.dialect.holes(len(self.cell()))

    def rules(self) -> Iterator[Rule]:
        """Return the invariants of its tables."""
        return rules(self, self.slots)

    def slot(self, context: Context) -> int:
        """Return the slot to which a store writes: one of the last quarter if joined, one of the others in a batch."""
        if self.slots == 1:
            return 0
        joined = max(1, self.slots // 4)
        if context.joined:
            return self.slots - joined + context.spot % joined
        return context.spot % (self.slots - joined)

    def plan_add(self, run: Operations, context: Context, locked: bool) -> Plan:
        """Merge the adds per key; if a sum would exceed 64 bits, try them in order instead."""
        merged: dict[Any, int] = {}
        for op in run:
            if op.verb in RUNS:
                for *parts, n in op.args:
                    key = tuple(parts)
                    merged[key] = merged.get(key, 0) + n
            else:
                key, n = op.args
                merged[key] = merged.get(key, 0) + n
        if not merged:
            return [None] * len(run)
        if context.careful:
            return (yield from self._add_in_order(run, list(merged), self.slot(context)))
        slot = self.slot(context)
        out = self.key_out
        rows = [(*out(key), slot, n) for key, n in merged.items()]
        rows.sort()
        if any(not INT_MIN <= n <= INT_MAX for n in merged.values()):
            raise Careful
        try:
            changed = yield Statement(self.add, rows)
        except StatementFailed as error:
            if error.word == "range":  # MariaDB's error for it; adds that also fail in order get their errors there
                raise Careful from None
            raise
        if self.dialect.family != "mariadb" and changed != len(rows):
            raise Careful
        return [None] * len(run)

    def _add_in_order(self, run: Operations, keys: list[Any], slot: int) -> Plan:
        stored = sorted(self.key_out(key) for key in keys)
        yield Statement(self.add, [(*key, slot, 0) for key in stored])  # creates or locks the slot
        found = yield Statement(self.one_slot, [(*key, slot) for key in stored])
        values = {key: rows[0][0] for key, rows in zip(stored, found, strict=True)}
        adds = [(place, self.key_out(key), n) for place, op in enumerate(run) for key, n in self._adds_of(op)]
        refused = self._play(run, adds, values)
        yield Statement(self.put, [(*key, slot, values[key]) for key in stored])
        return [refused.get(place) for place in range(len(run))]

    def _play(
        self, run: Operations, adds: Sequence[tuple[int, Row, int]], values: dict[Row, int]
    ) -> dict[int, Overflow]:
        # Adds to the slot of each key; returns the errors of the operations that do not fit, by their place.
        sums = dict(values)
        for _, key, n in adds:  # if the merged sum fits, no add is refused because of its order
            sums[key] += n
        fits = {key for key, total in sums.items() if INT_MIN <= total <= INT_MAX}
        values.update({key: sums[key] for key in fits})
        refused: dict[int, Overflow] = {}
        for place, key, n in adds:
            if key in fits:
                continue
            total = values[key] + n
            if INT_MIN <= total <= INT_MAX:
                values[key] = total
            elif place not in refused:
                make = self.structure.increment if run[place].verb == "increment" else self.structure.add
                op = make(self.key_value(key), n)
                refused[place] = Overflow(
                    f"{op!r}: the slot holds {values[key]}, and the sum {total} would leave 64 bits"
                )
        return refused

    def plan_increment(self, run: Operations, context: Context, locked: bool) -> Plan:
        """Lock and read all slots of the keys, add in Python, in order, and write one slot of each."""
        slot = self.slot(context)
        adds = [(place, self.key_out(op.args[0]), op.args[1]) for place, op in enumerate(run)]
        if self.lock is not None and not locked:
            yield Statement(self.lock, self.locks(run, context))
        if not locked:
            yield Control.LOCKED
        keys = sorted({key for _, key, _ in adds})
        found = yield Statement(self.each_slot, keys)
        slots = {key: dict(rows) for key, rows in zip(keys, found, strict=True)}
        values = {key: slots[key].get(slot, 0) for key in keys}
        totals = {key: sum(slots[key].values()) for key in keys}
        refused = self._play(run, adds, values)
        yield Statement(self.put, [(*key, slot, values[key]) for key in keys])
        results: list[Any] = []
        for place, key, n in adds:
            if place not in refused:
                totals[key] += n
            results.append(refused.get(place, totals[key]))
        return results

    @staticmethod
    def _adds_of(op: Operation[Any]) -> Iterable[tuple[Row, int]]:
        return [(row[:-1], row[-1]) for row in op.args] if op.verb in RUNS else [op.args]

    def heads_of(self, op: Operation[Any]) -> Iterable[Row]:
        """Return the keys, as they are stored, that an operation writes."""
        return {self.key_out(row[:-1]) for row in op.args} if op.verb in RUNS else super().heads_of(op)

    def plan_total(self, run: Operations, _: Context, __: bool) -> Plan:
        """Sum the slots of one key each."""
        found = yield Statement(self.select, [self.key_out(op.args[0]) for op in run])
        return [sum([n for (n,) in rows]) for rows in found]

    def transact_add(self, op: Operation[Any], context: Context) -> Transaction:
        """Add to one key."""
        key, n = op.args
        yield self._one_add, (*self.key_out(key), self.slot(context), n)

    def exchange_add(self, op: Operation[Any], context: Context) -> Exchange:
        """Add to one key."""
        key, n = op.args
        return Exchange(self._one_add, (*self.key_out(key), self.slot(context), n))

    def transact_increment(self, op: Operation[Any], context: Context) -> Transaction:
        """Add to one key, and sum its slots."""
        yield from self.transact_add(op, context)
        return _total((yield self.select.sql, self.key_out(op.args[0])))

    def exchange_increment(self, op: Operation[Any], context: Context) -> Exchange | None:
        """Add to one key that has one slot; if an exchange cannot return the total, it takes a batch."""
        if self.slots > 1:
            return None
        key, n = op.args
        stored = self.key_out(key)
        row = (*stored, 0, n, *stored) if self.dialect.family == "mariadb" else (*stored, 0, n)
        return Exchange(self._one_increment, row, self._incremented, "FROM a", int)

    def ask_total(self, op: Operation[Any], _: Context) -> Question:
        """Sum the slots of one key."""
        return Question(self._one_total, self.key_out(op.args[0]), _total)

    def plan_totals(self, run: Operations, _: Context, __: bool) -> Plan:
        """Sum the slots of many keys."""
        keys = [key for op in run for key in op.args[0]]
        found = (yield Statement(self.select, [self.key_out(key) for key in keys])) if keys else []
        totals = iter([sum([n for (n,) in rows]) for rows in found])
        value = self.structure.key.value
        return [{value(key): next(totals) for key in op.args[0]} for op in run]

    def plan_top(self, run: Operations, _: Context, __: bool) -> Plan:
        """Read every key."""
        found = yield Statement(self.top, [op.args for op in run])
        width = self.key_width
        return [
            [(self.key_value(row[:width]), (int(row[width]) << 32) + int(row[width + 1])) for row in rows]
            for rows in found
        ]

    def plan_clear(self, run: Operations, context: Context, locked: bool) -> Plan:
        """Delete the slots of a key; return the total that it had."""
        if self.lock is not None and self.clear is not None:
            if not locked:
                yield Statement(self.lock, self.locks(run, context))
                yield Control.LOCKED
            keys = [self.key_out(op.args[0]) for op in run]
            asked = sorted(set(keys))
            removed = yield Statement(self.clear, asked)
            if not self.dialect.returning:
                yield Statement(self.delete, asked)
            totals = {key: sum([n for (n,) in rows]) for key, rows in zip(asked, removed, strict=True)}
            return [totals.pop(key, 0) for key in keys]
        results = []
        for op in run:
            key = self.key_out(op.args[0])
            found = yield Statement(self.select, [key])
            yield Statement(self.delete, [key])
            results.append(sum(n for (n,) in found[0]))
        return results

    plan_forget = plan_clear

    def seized(self, operations: Operations, context: Context) -> list[Row]:
        """Return the slots that operations will write, if they exist."""
        return [row[:-1] for row in self.locks(operations, context)]

    def locks(self, operations: Operations, context: Context) -> list[Row]:
        """Return the slots that operations will write, to be created or locked: one for an add, all for others."""
        slot = self.slot(context)
        rows = {(*key, slot, 0) for op in operations if op.verb in ("add", "add_all") for key in self.heads_of(op)}
        keys = {self.key_out(op.args[0]) for op in operations if op.verb in ("clear", "forget", "increment")}
        rows |= {(*key, each, 0) for key in keys for each in range(self.slots)}
        return sorted(rows)


def _total(rows: list[Row]) -> int:
    return sum([n for (n,) in rows if n is not None])
