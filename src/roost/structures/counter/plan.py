"""A counter's table, programs and reads.

The table has a row for each key, window and slot. An add is one upsert into a slot that the connection's number
chooses, so that writers of one key do not wait for each other. An increment first locks all slots of its key: if it
read others that it has not locked, an add could be committed to one of them before it, and it would return a total that
no reader ever sees. Sums are exact, whatever their size.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from roost.dialects.dialect import Dialect, Exchange, Row, Statement, Template
from roost.errors import Overflow, StatementFailed
from roost.structures.clock import CLOCK, datetime_of
from roost.structures.counter.declaration import MAX_SLOTS, START, Counter
from roost.structures.counter.relation import VIEWS
from roost.structures.counter.wire import CounterWire
from roost.structures.operation import RUNS, Operation
from roost.structures.plan import (
    CUT,
    SLOT,
    Context,
    Facts,
    N,
    Operations,
    Plan,
    Question,
    Rule,
    Transaction,
    Verb,
    each,
    seizing,
)
from roost.structures.program import Calling, ProgramPlan, Read
from roost.structures.rules import RuleWords
from roost.structures.steps import INT, TOTAL, Count, Do, Give, Let, Program, Step, Take
from roost.structures.words.words import Words
from roost.types.column_types import INT_MAX, INT_MIN
from roost.types.columns import Column

# Parameters beside the columns of the key, whose names cannot be these.
BACK = Column("roost_back", INT)  # microseconds from the first window that is read to the current one
NOW = Column("roost_now", INT)
MOST = Column("roost_most", INT)

SWEPT = 16  # expired rows that are deleted for each written one, by a batch of the store's own
SWEEPS = 16  # writes after which a batch deletes expired rows


class CounterPlan(ProgramPlan):
    """A counter in one dialect's words."""

    structure: Counter[Any]
    views = VIEWS
    wire = CounterWire
    together: ClassVar[Mapping[str, str]] = {"add": "add", "add_all": "add"}

    def __init__(self, structure: Counter[Any], dialect: Dialect) -> None:
        # After `alter` a key may have other slots than these: every read sums what is there.
        self.slots = (structure.slots or dialect.slots) if dialect.row_locks else 1
        self._owed = 0  # writes since expired rows were deleted
        super().__init__(structure, dialect)
        key = structure.key.columns
        cell = [*key, *([START] if structure.size else [])]
        fill = " WITH (fillfactor = 50)" if dialect.name == "postgresql" else ""  # for HOT updates: 99.8 % of them
        self.tables = (self.create(self.rows_table, [*cell, SLOT, N], f"{dialect.names(cell)}, slot") + fill,)
        if structure.size:
            index = f"roost_{structure.name}_over"
            self.indexes = (index,)
            self.tables += (f"CREATE INDEX {index} ON {self.rows_table} (start)",)
        self.seize = seizing(dialect, self.rows_table, key)
        self._make_reads()
        self._expired: Template | None = None  # MariaDB and MySQL: a DELETE there cannot skip rows that others hold
        if structure.size and dialect.family == "mariadb":
            cell = [*key, START, SLOT]
            names, first = dialect.names(cell), f"{self.start(CLOCK['mariadb'])} - {self._back(None)}"
            self._expired = each(
                f"SELECT {names} FROM {self.rows_table} FORCE INDEX ({self.indexes[0]})\n"
                f"  WHERE start < {first} ORDER BY start LIMIT %s FOR UPDATE SKIP LOCKED"
            )
            pairs = {"pairs": names, "same_pair": dialect.same(cell, "q.", "r.")}
            self._cut = dialect.choose(CUT).format({"rows": self.rows_table, **pairs})
        if dialect.singles:
            self.questions = {"total": self._ask_total}
            self.transactions = (
                {"add": self._add_alone, "increment": self._increment_alone}
                if dialect.exchanges
                else {"add": self._add_on_file, "increment": self._increment_on_file}
            )

    def verbs(self) -> dict[str, Verb]:
        """Return what runs operations."""
        return {
            "add": self._adds,
            "increment": self._increments,
            "clear": self._clears,
            "forget": self._clears,
            "total": self._totals_of_one,
            "totals": self._totals,
            "top": self._top,
            "series": self._series,
            "keys": self._keys,
        }

    # --- programs -------------------------------------------------------------------------------------------------

    def programs(self) -> Iterator[Program]:
        """Yield the programs. Adds go to the upper half of the slots, and increments to slot 0.

        The adds of batches go to the lower half, so that they do not wait for an application's open transaction.
        """
        key, slots = self.structure.key.columns, self.slots
        lower = max(1, slots // 2)
        number = {"postgresql": "pg_backend_pid()", "sqlite": "0"}.get(self.dialect.family, "CONNECTION_ID()")
        upper = f"{lower} + {self.dialect.modulo.format(number, slots - lower)}" if slots > 1 else "0"
        batches = self.dialect.modulo.format(number, lower)
        yield Program("add", [*key, N], lambda w: self._adding(w, upper))
        yield Program("add_all", [*key, N], lambda w: self._adding(w, batches, w.source), many=True)
        yield Program("increment", [*key, N], self._incrementing, gives=TOTAL)
        yield Program("clear", key, self._clearing, gives=TOTAL)
        if self.dialect.row_locks:
            yield Program("lock", key, lambda w: iter([Do(self._lock(w))]))
        if self.structure.size and self.dialect.family != "mariadb":
            yield Program("sweep", [MOST], self._sweeping)

    def start(self, now: str) -> str:
        """Return the start of the current window; of the newest stored one, if that is later.

        So no window reappears after a clock has jumped back.
        """
        size, newest = self.structure.size, f"(SELECT max(start) FROM {self.rows_table})"
        match self.dialect.family:
            case "sqlite":
                return f"max({now} - {now} % {size}, coalesce({newest}, 0))"
            case "postgresql":
                # The clock advances, and an index cannot be searched for what may change: it is read once.
                begun = f"greatest(m - MOD(m, {size}), coalesce({newest}, 0))"
                return f"(SELECT {begun} FROM (SELECT {now} AS m) c)"
        return f"GREATEST({now} - MOD({now}, {size}), COALESCE({newest}, 0))"

    def _adding(self, w: Words, slot: str, source: str = "") -> Iterator[Step]:
        values = w.values(self.structure.key.columns)
        key = [*values]
        if self.structure.size:
            yield Let("start", INT, self.start(w.now))
            values["start"] = w["start"]
            key.append("start")
            if not source:  # the windows of this key that have gone by; those of other keys are swept by batches
                first = f"{w['start']} - {self._back(None)}"
                yield Do(f"DELETE FROM {w.rows} WHERE {w.mine()} AND start < {first}")
        values |= {"slot": slot, "n": w.new("n")}
        yield Do(w.put(w.rows, values, [*key, "slot"], {"n": f"{w.rows}.n + {w.proposed('n')}"}, source))

    def _lock(self, w: Words) -> str:
        # Makes or locks every slot of a key, with windows those of the current one.
        values = w.values(self.structure.key.columns)
        if self.structure.size:
            values["start"] = self.start(w.now)
        slots = " UNION ALL ".join(f"SELECT {slot} AS slot" for slot in range(self.slots))
        return w.put(w.rows, {**values, "slot": "s.slot", "n": "0"}, [*values, "slot"], source=f"({slots}) s")

    def _incrementing(self, w: Words) -> Iterator[Step]:
        if self.dialect.name == "postgresql":
            # Fails (40001) if one was deleted since the transaction's snapshot: an upsert would make a second one, and
            # the sum would have both.
            old = f"NOT ({self.dialect.read_committed})"
            yield Do(f"PERFORM 1 FROM {w.rows} WHERE {w.mine()} ORDER BY slot FOR UPDATE", when=old)
        if self.slots > 1:
            yield Do(self._lock(w))
        yield from self._adding(w, "0")
        current = f" AND start = {w['start']}" if self.structure.size else ""
        yield Let("sum", TOTAL, f"SELECT sum(n) FROM {w.rows} WHERE {w.mine()}{current}", locking=True)
        yield Give(w["sum"])

    def _clearing(self, w: Words) -> Iterator[Step]:
        value = "sum(n)"
        if self.structure.size:
            yield Let("start", INT, self.start(w.now))
            value = f"sum(CASE WHEN start >= {w['start']} - {self._back(None)} THEN n END)"
        if not self.dialect.row_locks:
            yield Do(f"DELETE FROM {w.rows} WHERE {w.mine()}")
            return
        yield Do(self._lock(w))
        yield Count("made")
        if self.dialect.name == "postgresql" and not self.structure.size:
            # Where the lock made all rows, the key was gone, and there is no total. (What MariaDB counts depends on the
            # client's flags; there it is 0.)
            value = f"CASE WHEN count(*) > {w['made']} THEN {value} END"
        yield Take("had", w.rows, w.mine(), value)
        yield Give(w["had"])

    def _sweeping(self, w: Words) -> Iterator[Step]:
        # The oldest first; rows that other sessions hold are skipped.
        rows, most = w.rows, w.new(MOST.name)
        yield Let("first", INT, f"{self.start(w.now)} - {self._back(None)}")
        names = self.dialect.names([*self.structure.key.columns, START, SLOT])
        expired = f"FROM {rows} WHERE start < {w['first']} ORDER BY start LIMIT {most}"
        match self.dialect.family:
            case "sqlite":
                yield Do(f"DELETE FROM {rows} WHERE ({names}) IN (SELECT {names} {expired})")
            case "postgresql":
                yield Do(f"DELETE FROM {rows} WHERE ctid = ANY (ARRAY(SELECT ctid {expired} FOR UPDATE SKIP LOCKED))")

    def _back(self, last: int | None) -> int:
        # Microseconds from the start of the first of the last windows to that of the current one.
        keep = self.structure.keep or 1
        return (min(last or keep, keep) - 1) * self.structure.size

    def moment(self, context: Context) -> Row:
        """Return the moment that SQLite's programs and reads are given; without windows none of them looks at it."""
        return super().moment(context) if self.structure.size or not self._by_store else (0,)

    # --- writes ---------------------------------------------------------------------------------------------------

    def run(self, operations: Operations, context: Context) -> Plan:
        """Run operations; a batch of the store's own also deletes expired rows, in proportion to what it writes."""
        results = yield from super().run(operations, context)
        if self.structure.size and not context.joined and any([op.writes for op in operations]):
            self._owed += sum([len(op.args) if op.verb in RUNS else 1 for op in operations if op.writes])
            if self._owed >= SWEEPS or len(operations) > 1:
                most, self._owed = SWEPT * self._owed, 0
                if self._expired is None:
                    yield from self.call_one("sweep", (most,), context)
                else:
                    (found,) = yield Statement(self._expired, [(most,)])
                    if found:
                        yield Statement(self._cut, sorted([tuple(row) for row in found]))
        return results

    def locks(self, operations: Operations, context: Context) -> list[Row]:
        """Return the keys that operations write, in their order."""
        return self.seized(operations, context)

    def take_heads(self, operations: Operations, context: Context) -> Generator[Any, Any, bool]:
        """Lock what operations of several kinds write, in key order."""
        if self.dialect.row_locks and (keys := self.locks(operations, context)):
            yield from self.call_each("lock", keys, context)
        return True

    def heads_of(self, op: Operation[Any]) -> Iterable[Row]:
        """Return the keys, as they are stored, that an operation writes."""
        return {self.key_out(row[:-1]) for row in op.args} if op.verb in RUNS else super().heads_of(op)

    def _adds(self, run: Operations, context: Context, _: bool) -> Plan:
        # Adds to one key are one row, unless their sum has more than 64 bits.
        merged: dict[Any, int] = {}
        for op in run:
            for *parts, n in op.args if op.verb in RUNS else [(*op.args[0], op.args[1])]:
                key = tuple(parts)
                merged[key] = merged.get(key, 0) + n
        out = self.key_out
        while merged:
            rows = [(*out(key), max(INT_MIN, min(INT_MAX, n))) for key, n in merged.items()]
            rows.sort()
            # The slots of batches are not to be held by an application's open transaction.
            call = self.call_each if context.joined and self.dialect.exchanges else self.call_all
            yield from self._caught(run, call("add", rows, context))
            merged = {key: left for key, n in merged.items() if (left := n - max(INT_MIN, min(INT_MAX, n)))}
        return [None] * len(run)

    def _increments(self, run: Operations, context: Context, _: bool) -> Plan:
        rows = [self._row(op) for op in run]
        if self.dialect.exchanges:
            found = yield from self._caught(run, self._in_key_order("increment", rows, context))
            return [int(total) for total in found]
        results = []
        for op, row in zip(run, rows, strict=True):
            yield from self._caught([op], self.call_all("increment", [row], context))
            results.append(_sum((yield self._current.statement([(*row[:-1], *self.moment(context))]))[0]))
        return results

    def _clears(self, run: Operations, context: Context, _: bool) -> Plan:
        keys = [self.key_out(op.args[0]) for op in run]
        if self.dialect.exchanges:
            return [int(had or 0) for had in (yield from self._in_key_order("clear", keys, context))]
        results = []
        for key in keys:
            had = (yield self._total.statement([self._asked(key, None, context)]))[0]
            yield from self.call_all("clear", [key], context)
            results.append(_sum(had))
        return results

    def _in_key_order(self, verb: str, rows: Sequence[Row], context: Context) -> Calling:
        # Calls a program for each row, in the order in which locks are taken; the results are in the order of the rows.
        order = sorted(range(len(rows)), key=lambda place: rows[place][: self.key_width])
        found = yield from self.call_each(verb, [rows[place] for place in order], context)
        results = dict(zip(order, found, strict=True))
        return [results[place] for place in range(len(rows))]

    def _caught(self, run: Operations, work: Plan) -> Plan:
        # A sum past 64 bits is the database's error. One operation alone is refused; of several, the batch finds which.
        try:
            return (yield from work)
        except StatementFailed as error:
            of_a_slot = error.word in ("range", "type") and (self.dialect.family != "mariadb" or "`n` + " in str(error))
            if not of_a_slot:  # it is of a column that somebody has added
                raise
            raise Overflow(f"{run[0]!r}: the sum of a slot would leave 64 bits") from error

    def _add_alone(self, op: Operation[Any], context: Context) -> Exchange | None:
        return self.exchange("add", self._row(op)) if self._goes_alone() else None

    def _increment_alone(self, op: Operation[Any], context: Context) -> Exchange | None:
        return self.exchange("increment", self._row(op), int) if self._goes_alone() else None

    def _add_on_file(self, op: Operation[Any], context: Context) -> Transaction | None:
        return self._on_file("add", op, context) if self._goes_alone() else None

    def _increment_on_file(self, op: Operation[Any], context: Context) -> Transaction | None:
        return self._on_file("increment", op, context) if self._goes_alone() else None

    def _on_file(self, verb: str, op: Operation[Any], context: Context) -> Transaction:
        row, now = self._row(op), self.moment(context)
        yield self._one[verb], (*row, *now)
        if verb == "add":
            return None
        return _sum((yield self._current.sql, self._current.row((*row[:-1], *now))))

    def _row(self, op: Operation[Any]) -> Row:
        key, n = op.args
        return (*self.key_out(key), n)

    def _goes_alone(self) -> bool:
        # Of some writes by themselves one runs as a batch, which deletes expired rows.
        if not self.structure.size:
            return True
        self._owed += 1
        return self._owed < SWEEPS

    # --- reads ----------------------------------------------------------------------------------------------------

    def _make_reads(self) -> None:
        dialect, rows, key = self.dialect, self.rows_table, self.structure.key.columns
        names = dialect.names(key)
        mine = " AND ".join(f"{dialect.name_of(each)} = :{each.name}" for each in key)
        now = {"sqlite": ":roost_now"}.get(dialect.family, dialect.choose(CLOCK))
        start = self.start(now) if self.structure.size else ""
        self._windowed: tuple[Column, ...] = ()
        since = all_since = current = ""
        if start:
            self._windowed = (*([NOW] if self._by_store else []), BACK)
            since = f" AND start >= {start} - :roost_back"
            all_since = f" WHERE start >= {start} - :roost_back"
            current = f" AND start = {start}"
        asked = [*key, *self._windowed]
        # SQLite's SUM fails beyond 64 bits: halves of 32 bits are summed instead, and give the same order.
        halves = "coalesce(sum(n >> 32), 0), coalesce(sum(n & 4294967295), 0)"
        summed = halves if dialect.name == "sqlite" else "0, coalesce(sum(n), 0)"
        one = "0, n" if dialect.name == "sqlite" and not start else summed  # its one writer has used one slot
        self._total = self.read(f"SELECT {one} FROM {rows} WHERE {mine}{since}", asked)
        self._current: Read = self.read(
            f"SELECT {summed} FROM {rows} WHERE {mine}{current}", [*key, *([NOW] if self._by_store else [])]
        )
        order = "total DESC"
        if dialect.name == "sqlite":
            order = "sum(n >> 32) + (sum(n & 4294967295) >> 32) DESC, sum(n & 4294967295) & 4294967295 DESC"
        in_order = dialect.in_order(key)
        self._greatest = self.read(
            f"SELECT {names}, {summed} AS total FROM {rows}{all_since}\n"
            f"  GROUP BY {names} ORDER BY {order}, {in_order} LIMIT :roost_most",
            [*self._windowed, MOST],
        )
        listed = f"SELECT DISTINCT {names} FROM {rows}"
        after = f"({names}) > ({', '.join(f':{each.name}' for each in key)})"
        tail = f"ORDER BY {names} LIMIT :roost_most"
        self._first = self.read(f"{listed}{all_since} {tail}", [*self._windowed, MOST])
        self._later = self.read(
            f"{listed}{all_since or ' WHERE true'} AND {after} {tail}", [*self._windowed, *key, MOST]
        )
        if start:
            self._windows = self.read(
                f"SELECT s.* FROM (SELECT {start} AS start, 0 AS n UNION ALL\n"
                f"  SELECT start, n FROM {rows} WHERE {mine}{since}) s",
                asked,
            )

    def _asked(self, key: Row, last: int | None, context: Context) -> Row:
        return (*key, *self._since(last, context))

    def _since(self, last: int | None, context: Context) -> Row:
        return (*self.moment(context), self._back(last)) if self.structure.size else ()

    def _ask_total(self, op: Operation[Any], context: Context) -> Question:
        row = self.key_out(op.args[0])
        if self.structure.size:
            row = self._total.row((*row, *self._since(op.args[1], context)))
        return Question(self._total.sql, row, _sum, False)

    def _totals_of_one(self, run: Operations, context: Context, _: bool) -> Plan:
        asked = [self._asked(self.key_out(op.args[0]), _last(op), context) for op in run]
        return [_sum(rows) for rows in (yield self._total.statement(asked))]

    def _totals(self, run: Operations, context: Context, _: bool) -> Plan:
        asked = [self._asked(self.key_out(key), _last(op), context) for op in run for key in op.args[0]]
        found = (yield self._total.statement(asked)) if asked else []
        totals = iter([_sum(rows) for rows in found])
        value = self.structure.key.value
        return [{value(key): next(totals) for key in op.args[0]} for op in run]

    def _top(self, run: Operations, context: Context, _: bool) -> Plan:
        results = []
        for op in run:
            values = (*self._since(_last(op), context), op.args[0])
            (rows,) = yield Statement(each(self._greatest.sql), [self._greatest.row(values)])
            width = self.key_width
            results.append([(self.key_value(row[:width]), _sum([row[width:]])) for row in rows])
        return results

    def _series(self, run: Operations, context: Context, _: bool) -> Plan:
        asked = [self._asked(self.key_out(op.args[0]), _last(op), context) for op in run]
        found = yield self._windows.statement(asked)
        results: list[Any] = []
        for op, rows in zip(run, found, strict=True):
            totals: dict[int, int] = {}
            for start, n in rows:
                totals[start] = totals.get(start, 0) + n
            current, size = max(totals), self.structure.size
            starts = range(current - self._back(_last(op)), current + 1, size)
            results.append([(datetime_of(start), totals.get(start, 0)) for start in starts])
        return results

    def _keys(self, run: Operations, context: Context, _: bool) -> Plan:
        results = []
        for op in run:
            after, n = op.args
            read = self._first if after is None else self._later
            values = (*self._since(None, context), *(() if after is None else self.key_out(after)), n)
            (rows,) = yield Statement(each(read.sql), [read.row(values)])
            results.append([self.key_value(row) for row in rows])
        return results

    # --- alter and check --------------------------------------------------------------------------------

    def rules(self) -> Iterator[Rule]:
        """Return the invariants of its tables. A slot beyond the declared ones is counted, and allowed."""
        words = RuleWords(self)
        yield (
            "slot",
            f"SELECT {words.r_key}, {words.message('slot ? of ?', 'slot', str(MAX_SLOTS))} FROM {words.rows} r\n"
            f"  WHERE slot NOT BETWEEN 0 AND {MAX_SLOTS - 1}",
        )
        if self.structure.size:
            yield (
                "start",
                f"SELECT {words.r_key}, {words.message('no window begins at ?', 'start')} FROM {words.rows} r\n"
                f"  WHERE {words.dialect.modulo.format('start', self.structure.size)} <> 0",
            )


def _change_keep(plan: Any, old: Facts, new: Facts) -> Generator[Statement, Any, None]:
    # With a larger `keep`, windows that had expired and that no write has deleted yet would reappear.
    clock = "0" if plan.dialect.family == "sqlite" else plan.words.now
    back = (old["keep"] - 1) * plan.structure.size
    (rows,) = yield Statement(each(f"SELECT {plan.start(clock)} - {back}"), [()])
    yield Statement(Template(f"DELETE FROM {plan.rows_table} WHERE start < {int(rows[0][0])}"), [()])


CounterPlan.alterations = {"keep": _change_keep}


def _last(op: Operation[Any]) -> int | None:
    # The number of windows that are read; None: all, or there are no windows.
    return op.args[1] if len(op.args) > 1 else None


def _sum(rows: Sequence[Row]) -> int:
    return sum([(int(high) << 32) + int(low) for high, low in rows])
