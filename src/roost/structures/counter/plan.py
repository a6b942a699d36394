"""A counter's table, programs and reads.

The table has a row for each key, window and slot. An add is one upsert into a slot that the connection's number
chooses, so that writers of one key do not wait for each other. An increment first locks all slots of its key: if it
read others that it has not locked, an add could be committed to one of them before it, and it would return a total that
no reader ever sees. Sums are exact, whatever their size.

On PostgreSQL a slot is a range of numbers, in which its row moves on (`ROOM`). So an increment also makes and locks the
first number of each, which somebody who has not seen the row may be about to insert.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from roost.dialects.conditions import wanted
from roost.dialects.dialect import Dialect, Row, Statement, execute, fetch
from roost.errors import Overflow, StatementFailed
from roost.structures import steps
from roost.structures.clock import at_moment, datetime_of
from roost.structures.counter.declaration import MAX_SLOTS, START, TOTAL, Counter, CounterWire
from roost.structures.operation import RUNS, Operation, first
from roost.structures.plan import SLOT, Context, Facts, N, Operations, Plan, Rule, Verb
from roost.structures.program import MAKES, Answering, Calling, ProgramPlan, Write
from roost.structures.reading import MOST, Ask
from roost.structures.relation import ByDatabase
from roost.structures.rules import gone, rule
from roost.structures.steps import BY_INDEX, IN_ORDER, Do, Door, Give, Let, Program, Step, number
from roost.structures.views.mysql import OUT_OF_RANGE, Inlet, Inlets, MySQLViewWords, signal
from roost.structures.views.postgresql import GONE, MOVES, ROOM, PostgreSQLViewWords
from roost.structures.views.sqlite import SQLiteViewWords
from roost.structures.views.view import STATEMENT, VALUE, Case, Made
from roost.structures.words.words import Words
from roost.types.column_types import INT_MAX, INT_MIN
from roost.types.columns import Column

# Parameters beside the columns of the key, whose names cannot be these.
BACK = number("roost_back")  # microseconds from the first window that is read to the current one
TOTALS = Column("total", steps.TOTAL)
SUM = re.compile(r"\bn\W? \+ ")  # in MariaDB's and MySQL's errors, where a session decides whether names are quoted


# To SQL clients it is a relation: keys with their totals, or keys and windows with theirs. An INSERT adds its total.
# Without windows, an UPDATE counts the difference to the total that it has read, so what others add meanwhile is not
# lost. With windows, an INSERT counts in the current one, and totals cannot be updated.
BEYOND = ": the sum would leave 64 bits"
KEY_FIXED = "a key cannot be changed; delete it and insert the other one"
SET_BY_ROOST: Case = "NEW.start IS NOT NULL", STATEMENT, ": start is set by Roost; leave it out"
FIXED: Case = "1 = 1", STATEMENT, ": a window's total cannot be changed; insert what is to be added"


def _view(plan: Any, total: str, group: bool = True) -> str:
    # The query: of the kept windows, or of all rows.
    key, rows = plan.dialect.names(plan.structure.key.columns), plan.rows_table
    if not plan.structure.size:
        return f"SELECT {key}, {total} AS total FROM {rows}{f' GROUP BY {key}' if group else ''}"
    kept = f"start >= {plan.start(plan.shown_clock)} - {(plan.structure.keep - 1) * plan.structure.size}"
    by = f" GROUP BY {key}, start" if group else ""
    summed = f"SELECT {key}, start, {total} AS total FROM {rows}\n    WHERE {kept}{by}"
    return f"SELECT {key}, {at_moment(plan.dialect, 'start')} AS start, total\n  FROM ({summed}) q"


def on_sqlite(plan: Any, words: SQLiteViewWords) -> Made:
    """Return the view on SQLite, with its INSTEAD OF triggers."""
    one, windows = plan.structure.slots in (None, 1), bool(plan.structure.size)
    # SUM errors past 64 bits, and the view with it: halves of 32 bits are summed, and a total past that is a REAL.
    low = "sum(n & 4294967295)"
    shown = "n" if one else f"(sum(n >> 32) + ({low} >> 32)) * 4294967296 + ({low} & 4294967295)"
    there = f"{words.is_new(words.key)} AND slot = 0{f' AND start = {plan.start(plan.shown_clock)}' if windows else ''}"
    beyond = [f"(SELECT typeof(n + {words.new(TOTAL)}) FROM {words.rows} WHERE {there})"]
    if not one and not windows:
        beyond.append(
            f"(SELECT typeof({shown} + {words.new(TOTAL)}) FROM {words.rows} WHERE {words.is_new(words.key)})"
        )
    add, clear = words.call("add", {"n": words.new(TOTAL)}), words.call("clear", removes=True)
    change = [words.refuse(words.fixed(words.key, KEY_FIXED), *words.changes([TOTAL])), *clear, *add]
    window = f"{words.is_old(words.key)}\n    AND start = CAST(strftime('%s', OLD.start) AS INTEGER) * 1000000"
    return Made(
        view=_view(plan, shown if one else f"CAST({shown} AS NUMERIC)", group=not one),  # as a column is compared
        insert=[
            words.refuse(
                *([SET_BY_ROOST] if windows else []),
                *words.rules([*words.key, TOTAL]),
                *((f"{each} = 'real'", VALUE, BEYOND) for each in beyond),
            ),
            *add,
        ],
        update=[words.refuse(FIXED)] if windows else change,
        delete=[f"DELETE FROM {words.rows} WHERE {window}"] if windows else clear,
    )


def inlets(plan: Any) -> Inlets:
    """Return the view on MariaDB and MySQL, with what is inserted and removed through its inlets or procedures."""

    def add(words: MySQLViewWords) -> Inlet:
        handler = f"DECLARE EXIT HANDLER FOR {OUT_OF_RANGE} {signal(f'{words.name}{BEYOND}')}"
        body, _ = words.call("add", {"n": words.new(TOTAL)})
        return words.inlet([*words.key, TOTAL], body, [handler])

    def remove(words: MySQLViewWords) -> Inlet:
        return words.inlet(words.key, *words.call("clear"))

    return Inlets(f"SELECT * FROM ({_view(plan, 'SUM(n)')}) {{mark}}", add, remove)


def on_postgresql(plan: Any, words: PostgreSQLViewWords) -> Made:
    """Return the view on PostgreSQL, with its INSTEAD OF triggers."""
    rows, windows = plan.rows_table, bool(plan.structure.size)
    mine, in_range = words.is_old(words.key), f"BETWEEN {INT_MIN}::numeric AND {INT_MAX}::numeric"
    total = (
        f"NEW.total IS NULL OR NEW.total <> trunc(NEW.total) OR NEW.total NOT {in_range}",
        VALUE,
        f".total: it takes {wanted(words.dialect, TOTAL)}",
    )
    (add,) = words.call("add", {"n": "NEW.total::bigint"})
    (more,) = words.call("add", {"n": "(NEW.total - OLD.total)::bigint"})
    clear = f"{words.name}_clear({words.olds(words.key)})"
    # A total that 64 bits cannot hold, in several slots, is replaced as a whole.
    count = f"IF NEW.total - OLD.total {in_range} THEN\n  {more}\nELSE\n  PERFORM {clear};\n  {add}\nEND IF;"
    told = f"SELECT sum(n) INTO NEW.total FROM {rows} WHERE {mine};"
    change = [words.refuse(words.fixed(words.key, KEY_FIXED), total), count, told]
    window = f"{mine}\n  AND start = (extract(epoch FROM OLD.start) * 1000000)::bigint"
    remove = (
        f"DELETE FROM {rows} WHERE {window};\n{GONE}"
        if windows
        else f"IF {clear} IS NULL THEN\n  RETURN NULL;\nEND IF;"
    )
    return Made(
        view=_view(plan, "sum(n)"),
        insert=[words.refuse(*([SET_BY_ROOST] if windows else []), total), add],
        update=[words.refuse(FIXED)] if windows else change,
        delete=[words.refuse(), remove],
    )


def _change_keep(plan: Any, old: Facts, new: Facts) -> Generator[Statement, Any, None]:
    # With a larger `keep`, windows that had expired and that no write has deleted yet would reappear.
    clock = "0" if plan.dialect.family == "sqlite" else plan.words.clock
    back = (old["keep"] - 1) * plan.structure.size
    ((start,),) = yield from fetch(f"SELECT {plan.start(clock)} - {back}")
    yield execute(f"DELETE FROM {plan.rows_table} WHERE start < {int(start)}")


class CounterPlan(ProgramPlan):
    """A counter in one dialect's words."""

    structure: Counter[Any]
    alterations: ClassVar[Any] = {"keep": _change_keep}
    wire = CounterWire
    own_time = False  # windows are of the calendar
    of_all = frozenset(["keys", "top"])

    def __init__(self, structure: Counter[Any], dialect: Dialect) -> None:
        # After `alter` a key may have other slots than these: every read sums what is there.
        self.slots = (structure.slots or dialect.slots) if dialect.is_server else 1
        self.expires = bool(structure.size)
        self.room = ROOM if dialect.name == "postgresql" else 1  # numbers of a slot
        super().__init__(structure, dialect)

    def made(self) -> Iterator[str]:
        key, dialect, structure = self.structure.key.columns, self.dialect, self.structure
        cell = [*key, *([START] if structure.size else [])]
        yield self.create(self.rows_table, [*cell, SLOT, N], f"{dialect.names(cell)}, slot", 50)  # 99.8 % HOT
        if structure.size:
            yield self.index("over", "start")

    # --- programs -------------------------------------------------------------------------------------------------

    def programs(self) -> Iterator[Program]:
        """Yield the programs. Adds go to the upper half of the slots, and increments to slot 0.

        The adds of batches go to the lower half, so that they do not wait for an application's open transaction.
        """
        key, slots = self.structure.key.columns, self.slots
        lower = max(1, slots // 2)
        number = {"postgresql": "pg_backend_pid()", "sqlite": "0"}.get(self.dialect.family, "CONNECTION_ID()")
        room = f" * {self.room}" if self.room > 1 else ""
        upper = f"({lower} + {self.dialect.modulo.format(number, slots - lower)}){room}" if slots > 1 else "0"
        batches = f"{self.dialect.modulo.format(number, lower)}{room}"
        yield Program("add", [*key, N], lambda w: self._adding(w, upper), pinned=IN_ORDER)
        yield Program("add_all", [*key, N], lambda w: self._adding(w, batches, w.source), many=True, pinned=BY_INDEX)
        yield Program(
            "increment",
            [*key, N],
            self._incrementing,
            [TOTALS],
            after=self._summing(current=True),
            tell=_told,
            door=Door(),
        )
        yield Program("clear", key, self._clearing, [TOTALS], before=self._summing(), tell=_told)
        if self.dialect.is_server:
            yield Program("lock", [*key, MAKES], self._locking)
        if self.structure.size:
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
        return f"GREATEST({now} DIV {size} * {size}, COALESCE({newest}, 0))"  # there, too, the clock may advance

    def _adding(self, w: Words, slot: str, source: str = "") -> Iterator[Step]:
        values = w.values(self.structure.key.columns)
        key = [*values]
        if self.structure.size:
            yield Let("start", self.start(w.clock))
            values["start"] = w["start"]
            key.append("start")
            if not source:  # the windows of this key that have gone by; those of other keys are swept by batches
                first = f"{w['start']} - {self._back(None)}"
                yield Do(f"DELETE FROM {w.rows} WHERE {w.mine()} AND start < {first}")
        values |= {"slot": slot, "n": w.new("n")}
        change = {"n": f"{w.rows}.n + {w.proposed('n')}"}
        if self.room > 1:
            change["slot"] = f"{w.rows}.slot + (random() < {MOVES}::double precision)::integer"
        if source:
            yield from w.write_all(w.rows, values, [*key, "slot"], change)
        else:
            yield Do(w.write(w.rows, values, [*key, "slot"], change))

    def _lock(self, w: Words) -> str:
        # Makes or locks every slot of a key, with windows those of the current one.
        values = w.values(self.structure.key.columns)
        if self.structure.size:
            values["start"] = self.start(w.clock)
        slots = " UNION ALL ".join(f"SELECT {slot * self.room} AS slot" for slot in range(self.slots))
        return w.put(w.rows, {**values, "slot": "s.slot", "n": "0"}, [*values, "slot"], source=f"({slots}) s")

    def _locking(self, w: Words) -> Iterator[Step]:
        makes, index = w.new(MAKES.name), " FORCE INDEX (PRIMARY)" if w.dialect.family == "mariadb" else ""
        there = f"FROM {w.rows}{index} WHERE {w.mine()}"
        yield Do(self._lock(w), when=f"{makes} = 1")
        if self.dialect.name == "postgresql":
            yield Do(f"PERFORM 1 {there} ORDER BY slot FOR UPDATE")
        else:
            yield Let("there", f"SELECT count(*) {there} AND {makes} = 0", locking=True)

    def _incrementing(self, w: Words) -> Iterator[Step]:
        if self.dialect.name == "postgresql":
            # Fails (40001) if one was deleted since the transaction's snapshot: an upsert would make a second one, and
            # the sum would have both.
            old = f"NOT ({self.dialect.read_committed})"
            yield Do(f"PERFORM 1 FROM {w.rows} WHERE {w.mine()} ORDER BY slot FOR UPDATE", when=old)
        if self.slots > 1:
            yield Do(self._lock(w))
        elif self.room > 1:
            yield Do(self._lock(w), when=f"NOT EXISTS (SELECT FROM {w.rows} WHERE {w.mine()} AND slot = 0)")
        yield from self._adding(w, "0")
        current = f" AND start = {w['start']}" if self.structure.size else ""
        read = f"{w.rows} WHERE {w.mine()}{current}"
        if self.room > 1:
            read = f"(SELECT n FROM {read} ORDER BY slot FOR UPDATE) q"
        yield Let("sum", f"SELECT sum(n) FROM {read}", steps.TOTAL, locking=True)
        yield Give([w["sum"]])

    def _clearing(self, w: Words) -> Iterator[Step]:
        value = "sum(n)"
        if self.structure.size:
            yield Let("start", self.start(w.clock))
            value = f"sum(CASE WHEN start >= {w['start']} - {self._back(None)} THEN n END)"
        if not self.dialect.is_server:
            yield Do(f"DELETE FROM {w.rows} WHERE {w.mine()}")
            return
        yield Do(self._lock(w), counts="made")
        if self.dialect.name == "postgresql" and not self.structure.size:
            # Where the lock made all rows, the key was gone, and there is no total. (What MariaDB counts depends on the
            # client's flags; there it is 0.)
            value = f"CASE WHEN count(*) > {w['made']} THEN {value} END"
        mine = f"{w.rows} WHERE {w.mine()}"
        locked = f"(SELECT * FROM {mine} FOR UPDATE) q" if self.dialect.name == "postgresql" else mine
        yield Let("had", f"SELECT {value} FROM {locked}", steps.TOTAL, locking=True)
        yield Do(f"DELETE FROM {mine}")
        yield Give([w["had"]])

    def _sweeping(self, w: Words) -> Iterator[Step]:
        yield Let("first", f"{self.start(w.clock)} - {self._back(None)}")
        cell = [*self.structure.key.columns, START, SLOT]
        yield from gone(w, w.rows, cell, f"start < {w['first']}", "start")

    def _back(self, last: int | None) -> int:
        # Microseconds from the start of the first of the last windows to that of the current one.
        keep = self.structure.keep or 1
        return (min(last or keep, keep) - 1) * self.structure.size

    # --- writes ---------------------------------------------------------------------------------------------------

    def written(self) -> Mapping[str, Write]:

        def rows(op: Operation[Any]) -> Sequence[Row]:
            if op.verb in RUNS:
                return [(*self.key_out(row[:-1]), row[-1]) for row in op.args]
            return [(*self.key_out(op.args[0]), op.args[1])]

        def total(op: Operation[Any], context: Context) -> Answering:
            return "coalesce({total}, 0)", int  # NULL of a key that is gone

        return {
            "add": Write("add", rows),
            "add_all": Write("add", rows),
            "increment": Write("increment", rows, first),
            "clear": Write("clear", self.key_of, first, answer=total),
            "forget": Write("clear", self.key_of, first, answer=total),
        }

    def verbs(self) -> dict[str, Verb]:
        return {
            "add": self._adds,
            "add_all": self._adds,
            "increment": lambda run, context: self._caught(run, self._writes(run, context)),
            "totals": self._totals,
            "top": self._top,
        }

    def _adds(self, run: Operations, context: Context) -> Plan:
        # Adds to one key are one row, unless their sum has more than 64 bits.
        merged: dict[Any, int] = {}
        for op in run:
            for key, n in [(row[:-1], row[-1]) for row in op.args] if op.verb in RUNS else [op.args]:
                merged[key] = merged.get(key, 0) + n
        out = self.key_out
        while merged:
            left = {key: n - max(INT_MIN, min(INT_MAX, n)) for key, n in merged.items() if not INT_MIN <= n <= INT_MAX}
            rows = [(*out(key), n - left.get(key, 0) if left else n) for key, n in merged.items()]
            yield from self._caught(run, self._added(rows, context))
            merged = left
        return [None] * len(run)

    def _added(self, rows: list[Row], context: Context) -> Calling:
        # The slots of batches are not to be held by an application's open transaction.
        if context.joined or not self.dialect.is_server:
            return (yield from self.call("add", rows, context))
        return (yield from self.call_all(self._programs["add_all"], sorted(rows)))

    def _caught(self, run: Operations, work: Plan) -> Plan:
        # A sum past 64 bits is the database's error. One operation alone is refused; of several, the batch finds which.
        try:
            return (yield from work)
        except StatementFailed as error:
            of_a_slot = error.word in ("range", "type") and (self.dialect.family != "mariadb" or SUM.search(str(error)))
            if not of_a_slot:  # it is of a column that somebody has added
                raise
            others = f", or one of {len(run) - 1} with it" if len(run) > 1 else ""
            raise Overflow(f"{run[0]!r}{others}: the sum of a slot would leave 64 bits") from error

    # --- reads ----------------------------------------------------------------------------------------------------

    def _summing(self, current: bool = False) -> str:
        # The query for a key's total, in two columns; current: of the current window.
        where = f" FROM {self.rows_table} WHERE {self.mine()}"
        if self.structure.size:
            start = self.start(self.clock)
            where += f" AND start = {start}" if current else f" AND {self.listed}"
        return f"SELECT {self.dialect.exact_sum('n')}{where}"

    @property
    def listed(self) -> str:
        return f"start >= {self.start(self.clock)} - {self._back(None)}" if self.structure.size else ""

    def asked(self) -> Mapping[str, Ask]:
        dialect, rows, key = self.dialect, self.rows_table, self.structure.key.columns
        names, mine = dialect.names(key), self.mine()
        start = self.start(self.clock) if self.structure.size else ""
        self._windowed: tuple[Column, ...] = (*self.timed, BACK) if start else ()
        since = f" AND start >= {start} - :{BACK.name}" if start else ""
        all_since = f" WHERE start >= {start} - :{BACK.name}" if start else ""
        asked, summed = [*key, *self._windowed], dialect.exact_sum("n")
        one = "0, n" if dialect.name == "sqlite" and not start else summed  # its one writer has used one slot
        self._total = self.read(f"SELECT {one} FROM {rows} WHERE {mine}{since}", asked, sums=True)
        order = "total DESC"
        if dialect.name == "sqlite":
            order = "sum(n >> 32) + (sum(n & 4294967295) >> 32) DESC, sum(n & 4294967295) & 4294967295 DESC"
        in_order = dialect.in_order(key)
        self._greatest = self.read(
            f"SELECT {names}, {summed} AS total FROM {rows}{all_since}\n"
            f"  GROUP BY {names} ORDER BY {order}, {in_order} LIMIT :roost_most",
            [*self._windowed, MOST],
        )

        def row(op: Operation[Any], context: Context) -> Row:
            return (*self.key_out(op.args[0]), *self._since(_last(op), context))

        asks = {"total": Ask(self._total, row if start else self._own_key, lambda _, found: _sum(found))}
        if start:
            windows = self.read(
                f"SELECT s.* FROM (SELECT {start} AS start, 0 AS n UNION ALL\n"
                f"  SELECT start, n FROM {rows} WHERE {mine}{since}) s",
                asked,
            )
            asks["series"] = Ask(windows, row, self._series)
        return asks

    def _since(self, last: int | None, context: Context) -> Row:
        return (*self.moment(context), self._back(last)) if self.structure.size else ()

    def _totals(self, run: Operations, context: Context) -> Plan:
        asked = [(*self.key_out(key), *self._since(_last(op), context)) for op in run for key in op.args[0]]
        found = (yield self._total.statement(asked)) if asked else []
        totals = iter([_sum(rows) for rows in found])
        value = self.structure.key.value
        return [{value(key): next(totals) for key in op.args[0]} for op in run]

    def _top(self, run: Operations, context: Context) -> Plan:
        results = []
        for op in run:
            values = (*self._since(_last(op), context), op.args[0])
            (rows,) = yield self._greatest.alone(values)
            width = self.key_width
            results.append([(self.key_value(row[:width]), _sum([row[width:]])) for row in rows])
        return results

    def _series(self, op: Operation[Any], rows: list[Row]) -> Any:
        totals: dict[int, int] = {}
        for start, n in rows:
            totals[start] = totals.get(start, 0) + n
        current, size = max(totals), self.structure.size
        starts = range(current - self._back(_last(op)), current + 1, size)
        return [(datetime_of(start), totals.get(start, 0)) for start in starts]

    def relation(self) -> ByDatabase:
        return ByDatabase(on_sqlite, on_postgresql, inlets)

    def expired(self) -> tuple[str, str]:
        return self.rows_table, f"start < {self.start(self.clock)} - {self._back(None)}"

    # --- alter and check --------------------------------------------------------------------------------

    def rules(self) -> Iterator[Rule]:
        # A slot beyond the declared ones is counted, and allowed.
        most = MAX_SLOTS * self.room
        yield rule(self, "slot", "slot ? of ?", "slot", str(most), where=f"slot NOT BETWEEN 0 AND {most - 1}")
        if self.structure.size:
            wrong = f"{self.dialect.modulo.format('start', self.structure.size)} <> 0"
            yield rule(self, "start", "no window begins at ?", "start", where=wrong)


def _last(op: Operation[Any]) -> int | None:
    # The number of windows that are read; None: all, or there are no windows.
    return op.args[1] if len(op.args) > 1 else None


def _sum(rows: Sequence[Row]) -> int:
    return sum([(int(high) << 32) + int(low) for high, low in rows])


def _told(before: Sequence[Any] | None, after: Sequence[Any] | None) -> int:
    return _sum([tuple(row) for row in (before, after) if row is not None])
