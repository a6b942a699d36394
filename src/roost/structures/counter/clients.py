"""A counter for other clients: plain SQL, HandlerSocket, the command line.

To SQL clients it is a relation of its own name: keys with their totals, or keys and windows with theirs. An INSERT adds
its total. Without windows, an UPDATE counts the difference to the total that it has read, so what others add meanwhile
is not lost. With windows, an INSERT counts in the current one, and totals cannot be updated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from roost.dialects.conditions import wanted
from roost.errors import Invalid, StatementFailed, worded
from roost.structures.clock import SHOWN
from roost.structures.console import Console, Table
from roost.structures.counter.declaration import Counter
from roost.structures.index.values import number
from roost.structures.operation import Operation
from roost.structures.views.mysql import OUT_OF_RANGE, Door, MadeDoors, MySQLViewWords
from roost.structures.views.postgresql import GONE, PostgreSQLViewWords
from roost.structures.views.sqlite import SQLiteViewWords
from roost.structures.views.view import STATEMENT, VALUE, Case, Made
from roost.structures.wire import Steps, Values, Wire
from roost.types.column_types import INT_MAX, INT_MIN, ColumnType
from roost.types.columns import Column

TOTAL = Column("total", ColumnType("int"))
BEYOND = ": the sum would leave 64 bits"
KEY_FIXED = "a key cannot be changed; delete it and insert the other one"
SET_BY_ROOST: Case = "NEW.start IS NOT NULL", STATEMENT, ": start is set by Roost; leave it out"
FIXED: Case = "1 = 1", STATEMENT, ": a window's total cannot be changed; insert what is to be added"


def _view(plan: Any, total: str, group: bool = True) -> str:
    # The query: of the kept windows, or of all rows.
    key, family = plan.dialect.names(plan.structure.key.columns), plan.dialect.family
    if not plan.structure.size:
        return f"SELECT {key}, {total} AS total FROM {plan.rows_table}" + (f" GROUP BY {key}" if group else "")
    kept = f"start >= {plan.start(plan.shown_clock)} - {(plan.structure.keep - 1) * plan.structure.size}"
    summed = f"SELECT {key}, start, {total} AS total FROM {plan.rows_table}\n    WHERE {kept}" + (
        f" GROUP BY {key}, start" if group else ""
    )
    return f"SELECT {key}, {SHOWN[family].format('start')} AS start, total\n  FROM ({summed}) q"


def on_sqlite(plan: Any) -> Made:
    """Return the view on SQLite, with its INSTEAD OF triggers."""
    words, one, windows = SQLiteViewWords(plan), plan.structure.slots in (None, 1), bool(plan.structure.size)
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
        view=_view(plan, shown, group=not one),
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


def doors(plan: Any) -> MadeDoors:
    """Return the view on MariaDB and MySQL, with what is inserted and removed through its inlets or procedures."""

    def add(words: MySQLViewWords) -> Door:
        handler = f"DECLARE EXIT HANDLER FOR {OUT_OF_RANGE} {words.signal(f'{words.name}{BEYOND}')}"
        body, _ = words.call("add", {"n": words.new(TOTAL)})
        return words.door([*words.key, TOTAL], body, [handler])

    def remove(words: MySQLViewWords) -> Door:
        return words.door(words.key, *words.call("clear"))

    return MadeDoors(f"SELECT * FROM ({_view(plan, 'SUM(n)')}) {{mark}}", add, remove)


def on_postgresql(plan: Any) -> Made:
    """Return the view on PostgreSQL, with its INSTEAD OF triggers."""
    words, rows, windows = PostgreSQLViewWords(plan), plan.rows_table, bool(plan.structure.size)
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


VIEWS = {"sqlite": on_sqlite, "mariadb": doors, "postgresql": on_postgresql}


class CounterWire(Wire):
    """Every key has a row; its total is 0 where it was never counted."""

    more = (TOTAL,)
    written = frozenset(["total"])
    verbs = frozenset(["increment", "decrement", "delete"])
    of_key = "total"

    def rows(self, key: Values, found: Any) -> list[Values]:
        return [(*key, found)]

    def insert(self, head: Any, row: Values, given: dict[str, Any]) -> Operation[Any]:
        n = given.get("total")
        return self.structure.add(head, 1 if n is None else n)  # type: ignore[no-any-return]

    def change(self, verb: str, head: Any, id_: Values, found: Any, to: Sequence[Any]) -> Steps:
        if verb == "delete":
            yield self.structure.clear(head)
            return True
        addend = self._addend(to)
        new = found + addend if verb == "increment" else found - addend
        # A total that `-` would take across 0 is not changed.
        if verb == "decrement" and ((found > 0 and new < 0) or (found < 0 and new > 0)):
            return False
        yield self.structure.add(head, addend if verb == "increment" else -addend)
        return True

    def _addend(self, to: Sequence[str | None]) -> int:
        total = 0
        for column, token in zip(self.columns, to, strict=False):
            if token is None:
                continue
            addend = number(token)
            if column is not TOTAL or type(addend) is not int:
                raise worded(StatementFailed(f"{self.structure.name}: {token!r} cannot be added"), "type")
            total += addend
        return total


class CounterConsole(Console[Counter[Any]]):
    """Keys with their totals; an imported record adds its total, or 1 where it has none.

    With windows also those of one key in which something was counted, newest first.
    """

    takes: ClassVar[Mapping[str, Any]] = {"key": (), "slots": None, "window": None, "keep": None}
    changes: ClassVar[Sequence[str]] = ("keep", "slots")
    reads = "total"
    headers = ("total",)

    def contents(self, key: Any, n: int | None) -> Operation[Any]:
        return self.structure.series(key) if self.structure.window else self.structure.total(key)

    def content(self, found: Any, n: int | None) -> Table:
        if not self.structure.window:
            return Table(("total",), [(found,)], {"total": found})
        rows = [(start, total) for start, total in reversed(found) if total][:n]
        windows = [{"start": start, "total": total} for start, total in rows]
        return Table(("start", "total"), rows, {"total": sum(total for _, total in found), "windows": windows})

    @property
    def fields(self) -> Sequence[Column]:
        start = [Column("start", ColumnType("datetime"), nullable=True)] if self.structure.window else []
        return (*self.structure.key.columns, Column("total", ColumnType("int"), nullable=True), *start)

    def insertion(self, values: Sequence[Any]) -> Operation[Any]:
        width = len(self.structure.key.columns)
        key, n, start = values[:width], values[width], values[width + 1 :]
        if any(each is not None for each in start):
            raise Invalid(f"{self.structure.name}: start cannot be given: a line counts in the current window")
        return self.structure.add(self.structure.key.value(key), 1 if n is None else n)

    def removed(self, number: int) -> str:
        return f"a total of {number:,}"
