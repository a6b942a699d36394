"""Windowed counter: a counter whose slots belong to a key and a window; an add counts in the current one.

A batch that writes reads the clock first, and counts everything in the window of that moment. After its writes it
deletes a bounded number of expired rows, the oldest first; it skips rows that other sessions hold.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from roost.dialects.dialect import Answer, Dialect, Exchange, Row, Statement, Template, Wanted
from roost.structures.clock import CLOCK, datetime_of, joined_only, microseconds
from roost.structures.counter.plan import CounterPlan
from roost.structures.operation import RUNS, Operation
from roost.structures.plan import CUT, SLOT, Careful, Context, Operations, Plan, Question, Rule, Transaction, each, same
from roost.structures.windowed_counter.alter import ALTERATIONS
from roost.structures.windowed_counter.check import rules
from roost.structures.windowed_counter.declaration import WindowedCounter
from roost.structures.windowed_counter.sql import CLEAR, KEYS, LOOK, OVER, START, TOP, WINDOWS
from roost.structures.windowed_counter.start import START_COLUMN
from roost.structures.windowed_counter.view import VIEWS
from roost.types.columns import Column

SWEEPS = 4  # expired rows that a batch deletes for each row that it writes
SWEEPS_LEAST = 128  # the minimum number of expired rows that a batch deletes
WINDOWS_READ = frozenset(["total", "totals", "series"])
ALONE = 16  # of this number of single adds, one runs as a batch, which deletes expired rows


class WindowedCounterPlan(CounterPlan):
    """A windowed counter in one dialect's words."""

    structure: WindowedCounter[Any]
    views = VIEWS
    alterations = ALTERATIONS

    def __init__(self, structure: WindowedCounter[Any], dialect: Dialect) -> None:
        rows = f"roost_{structure.name}_rows"
        self._start = dialect.choose(START).format(clock=dialect.choose(CLOCK), size=structure.size, rows=rows)
        super().__init__(structure, dialect)
        if dialect.name == "mariadb":  # an INSERT cannot read its own table, and SET would lock the rows that it reads
            self._one_add = f"SELECT {self._start} INTO `the moment`;\n{self._one_add}"
        key, cell = structure.key.columns, self.cell()
        self.key_out = dialect.encoder(cell) or same
        self._bare_out: Callable[[Row], Row] = dialect.encoder(key) or same
        self._by_store = dialect.name == "sqlite"
        index = f"roost_{structure.name}_over"
        self.indexes = (index,)
        self.tables = (*self.tables, f"CREATE INDEX {index} ON {self.rows_table} (start)")
        pair = (*cell, SLOT)
        words = {
            "rows": self.rows_table,
            "key": dialect.names(key),
            "cell": dialect.names(cell),
            "equal": dialect.equal(key),
            "arrays": dialect.arrays(key),
            "same": dialect.same(key, "r.", "q."),
            "in_order": dialect.in_order(key),
            "clock": dialect.choose(CLOCK),
            "start": self._start,
            "index": index,
            "pairs": dialect.names(pair),
            "equal_pair": dialect.equal(pair),
            "same_pair": dialect.same(pair, "q.", "r."),
            "pair_arrays": dialect.arrays(pair),
        }
        since = {"postgresql": "q.back"}.get(dialect.name, hole := dialect.placeholder)
        by_clock = f"{self._start} - {since}"
        windows = dialect.choose(WINDOWS)
        self.windows = windows.format({**words, "since": by_clock})
        self.windows_at = windows.format({**words, "since": since})  # relative to a moment that the batch has read
        words["since"] = by_clock
        self.top = each(dialect.choose(TOP).format(**words))
        keys = dialect.choose(KEYS)
        behind = f" AND ({words['key']}) > ({dialect.holes(len(key))})"
        self.first_keys, self.later_keys = (each(keys.format(**words, after=after)) for after in ("", behind))
        self.look = each(dialect.choose(LOOK).format(**words))
        self.clear_key = each(dialect.choose(CLEAR).format(**words))
        self.delete_key = Template(f"DELETE FROM {self.rows_table} WHERE {words['equal']}")
        self.cut = dialect.choose(CUT).format(words)
        answer = Answer.ORDINAL if dialect.family == "mariadb" else Answer.NONE
        self.over, self._over_joined = (
            Template(dialect.choose(OVER).format(**words, committed=committed), answer=answer)
            for committed in ("", joined_only(dialect))
        )
        self._one_total = self.question_sql(
            "r.n",
            self.rows_table,
            f"{dialect.equal(key, 'r.')} AND r.start >= {self._start} - {hole}",
        )
        self._one_newest = f"SELECT (SELECT max(start) FROM {rows}) FROM roost_catalog c WHERE {self.is_stored}"
        self._alone = 0

    def cell(self) -> tuple[Column, ...]:
        """Return the columns of a key, and that of the start of a window."""
        return (*self.structure.key.columns, START_COLUMN)

    def one_cell(self) -> str:
        """Return the SQL of their values in a single add, which on a server reads the clock."""
        start = {"sqlite": "?", "mariadb": "`the moment`"}.get(self.dialect.name, self._start)
        return f"{self.dialect.holes(len(self.structure.key.columns))}, {start}"

    def rules(self) -> Iterator[Rule]:
        """Return the invariants of its tables."""
        yield from super().rules()
        yield from rules(self, self.structure.size)

    def key_value(self, stored: Sequence[Any]) -> Any:
        """Return the caller's key for its stored columns, which may be followed by that of a window."""
        return super().key_value(stored[: self.key_width])

    def heads_of(self, op: Operation[Any]) -> Iterable[Row]:
        """Return the keys, as they are stored, that an operation writes."""
        rows = op.args if op.verb in RUNS else [op.args[0]]
        return {self._bare_out(row[: self.key_width]) for row in rows}

    def locks(self, operations: Operations, context: Context) -> list[Row]:
        """Return the slots of the current window that operations will write: one for an add, all for others."""
        slot, out = self.slot(context), self.key_out
        rows = {(*out(cell), slot, 0) for op in operations if op.verb in ("add", "add_all") for cell in _cells_of(op)}
        cells = {out(op.args[0]) for op in operations if op.verb in ("clear", "forget", "increment")}
        rows |= {(*cell, each, 0) for cell in cells for each in range(self.slots)}
        return sorted(rows)

    # --- writes ---------------------------------------------------------------------------------------------------

    def run(self, operations: Operations, context: Context) -> Plan:
        """Run operations; if one of them writes, read the clock first, and delete expired rows afterwards."""
        if not any([op.writes for op in operations]):
            return (yield from super().run(operations, context))
        found = yield Statement(self.look, [()])
        clock, oldest, newest = found[0][0]
        start = self._begin(microseconds(context.clock()) if self._by_store else clock, newest)
        placed = [self._placed(op, start) for op in operations]
        results = yield from super().run(placed, context)
        first = start - (self.structure.keep - 1) * self.structure.size
        if oldest is not None and oldest < first:
            written = sum([len(op.args) if op.verb in RUNS else 1 for op in placed])
            most = max(SWEEPS_LEAST, SWEEPS * written)
            yield from self._remove_over(self._over_joined if context.joined else self.over, first, most)
        return results

    def _begin(self, moment: int, newest: int | None = None) -> int:
        # The start of the window of a moment; or of the newest window, if that is later.
        size: int = self.structure.size
        return max(moment - moment % size, newest or 0)

    @staticmethod
    def _placed(op: Operation[Any], start: int) -> Operation[Any]:
        # Converts an operation to one of a counter whose key includes the window; one that reads windows gets the
        # current one as an argument.
        if not op.writes:
            return Operation(op.structure, op.verb, (*op.args, start) if op.verb in WINDOWS_READ else op.args)
        if op.verb in RUNS:
            return Operation(op.structure, op.verb, tuple([(*row[:-1], start, row[-1]) for row in op.args]))
        return Operation(op.structure, op.verb, ((*op.args[0], start), *op.args[1:]))

    def _remove_over(self, over: Template, first: int, most: int) -> Generator[Wanted, Any, None]:
        found = yield Statement(over, [(first, most)])
        if over.returns and found[0]:
            yield Statement(self.cut, sorted([tuple(row) for row in found[0]]))

    def _goes_alone(self) -> bool:
        self._alone += 1
        return self._alone % ALONE != 0

    def transact_add(self, op: Operation[Any], context: Context) -> Transaction | None:  # type: ignore[override]
        """Add to one key."""
        return self._add(op, context) if self._goes_alone() else None

    def _add(self, op: Operation[Any], context: Context) -> Transaction:
        placed = yield from self._now(op, context)
        yield from CounterPlan.transact_add(self, placed, context)

    def transact_increment(self, op: Operation[Any], context: Context) -> Transaction | None:  # type: ignore[override]
        """Add to one key, and sum the slots of the window."""
        return self._increment(op, context) if self._goes_alone() else None

    def _increment(self, op: Operation[Any], context: Context) -> Transaction:
        placed = yield from self._now(op, context)
        yield from CounterPlan.transact_add(self, placed, context)
        rows = yield self.select.sql, self.key_out(placed.args[0])
        return sum([n for (n,) in rows])

    def _now(self, op: Operation[Any], context: Context) -> Transaction:
        found = yield self._one_newest, ()
        if not found:
            raise Careful  # the declaration is not stored
        return self._placed(op, self._begin(microseconds(context.clock()), found[0][0]))

    def exchange_add(self, op: Operation[Any], context: Context) -> Exchange | None:  # type: ignore[override]
        """Add to one key."""
        if not self._goes_alone():
            return None
        key, n = op.args
        return Exchange(self._one_add, (*self._bare_out(key), self.slot(context), n))

    def exchange_increment(self, op: Operation[Any], context: Context) -> None:
        """Leave it to a batch."""

    def plan_clear(self, run: Operations, context: Context, locked: bool) -> Plan:
        """Delete the windows of keys; return the total of those that had not expired."""
        if self.lock is not None and not locked:
            yield from self.take_heads(run, context)
        keys = [self._bare_out(op.args[0][:-1]) for op in run]
        asked = sorted(set(keys))
        removed = yield Statement(self.clear_key, asked)
        if not self.dialect.returning:
            yield Statement(self.delete_key, asked)
        first = run[0].args[0][-1] - (self.structure.keep - 1) * self.structure.size if run else 0
        totals = {
            key: sum([n for start, n in rows if start >= first]) for key, rows in zip(asked, removed, strict=True)
        }
        return [totals.pop(key, 0) for key in keys]

    plan_forget = plan_clear

    # --- reads ----------------------------------------------------------------------------------------------------

    def _since(self, last: int | None, context: Context, current: int | None = None) -> Row:
        # The parameters for the first of the last windows: its start; or its distance from the current window, if the
        # start of that is not known.
        keep: int = self.structure.keep
        back = (min(last or keep, keep) - 1) * self.structure.size
        if current is not None:
            return (current - back,)
        return (self._begin(microseconds(context.clock())), back) if self._by_store else (back,)

    def _windows(self, asked: Sequence[tuple[Row, int | None]], context: Context, current: int | None) -> Plan:
        # The windows of keys; each key is given with the number of windows to be read.
        rows = [(*self._bare_out(key), *self._since(last, context, current)) for key, last in asked]
        template = self.windows if current is None else self.windows_at
        found: list[Any] = (yield Statement(template, rows)) if rows else []
        return found

    def plan_total(self, run: Operations, context: Context, __: bool) -> Plan:
        """Sum the windows of one key each."""
        found = yield from self._windows([op.args[:2] for op in run], context, _current(run))
        return [sum([n for _, n in rows]) for rows in found]

    def ask_total(self, op: Operation[Any], context: Context) -> Question:
        """Sum the windows of one key."""
        key, last = op.args
        return Question(self._one_total, (*self._bare_out(key), *self._since(last, context)), _total)

    def plan_totals(self, run: Operations, context: Context, __: bool) -> Plan:
        """Sum the windows of many keys."""
        asked = [(key, op.args[1]) for op in run for key in op.args[0]]
        found = yield from self._windows(asked, context, _current(run))
        totals = iter([sum([n for _, n in rows]) for rows in found])
        value = self.structure.key.value
        return [{value(key): next(totals) for key in op.args[0]} for op in run]

    def plan_series(self, run: Operations, context: Context, _: bool) -> Plan:
        """Sum the slots of each window of one key each."""
        current = _current(run)
        if current is None:
            looked = yield Statement(self.look, [()])
            clock, _oldest, newest = looked[0][0]
            current = self._begin(microseconds(context.clock()) if self._by_store else clock, newest)
        size, keep = self.structure.size, self.structure.keep
        found = yield from self._windows([op.args[:2] for op in run], context, current)
        results: list[list[tuple[datetime, int]]] = []
        for op, rows in zip(run, found, strict=True):
            totals: dict[int, int] = {}
            for start, n in rows:
                totals[start] = totals.get(start, 0) + n
            starts = [current - n * size for n in range(min(op.args[1] or keep, keep) - 1, -1, -1)]
            results.append([(datetime_of(start), totals.get(start, 0)) for start in starts])
        return results

    def plan_top(self, run: Operations, context: Context, __: bool) -> Plan:
        """Read every key."""
        asked = [(*self._since(last, context), n) for n, last in [op.args for op in run]]
        found = yield Statement(self.top, asked)
        width = self.key_width
        return [
            [(self.key_value(row), (int(row[width]) << 32) + int(row[width + 1])) for row in rows] for rows in found
        ]

    def plan_keys(self, run: Operations, context: Context, __: bool) -> Plan:
        """List the keys that were counted in a window that is kept."""
        results = []
        since = self._since(None, context)
        for op in run:
            after, n = op.args
            if after is None:
                found = yield Statement(self.first_keys, [(*since, n)])
            else:
                found = yield Statement(self.later_keys, [(*since, *self._bare_out(after), n)])
            results.append([self.key_value(row) for row in found[0]])
        return results


def _current(run: Operations) -> int | None:
    # The start of the current window, if the run belongs to a batch that writes.
    return run[0].args[2] if len(run[0].args) > 2 else None


def _cells_of(op: Operation[Any]) -> list[Row]:
    return [row[:-1] for row in op.args] if op.verb in RUNS else [op.args[0]]


def _total(rows: list[Row]) -> int:
    return sum([n for (n,) in rows if n is not None])
