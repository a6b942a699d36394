"""An opened index: what is found, inserted and modified through it, as statements.

A modification first finds its rows, and then changes them by what names each of them: so a row is met once, also when
the column that is scanned changes. What can be refused is refused before the one statement that writes, which SQLite
does wholly or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from functools import cached_property
from typing import Any, Final

from roost.dialects.dialect import Control, Statement, Wanted
from roost.errors import Error, Invalid, Missing, StatementFailed, worded
from roost.structures.index.declaration import Where, While
from roost.structures.index.scan import Filtering, Finder, Rows, Scan, Texts
from roost.structures.index.schema import Key, Table, TableColumn, ask, opened_key, read_table
from roost.structures.index.values import UNHELD, Unheld, number
from roost.structures.plan import each, write
from roost.types.column_types import INT_MAX, INT_MIN

Working = Generator[Wanted, Any, Any]

ASKING: Final = frozenset([None, "", "0", 0])  # what a column that numbers itself takes as being asked for a number


class OpenedIndex:
    """One key of a table, the columns to read and write, and those that filters name.

    undecoded: texts are read as bytes.
    """

    bulk = True  # like requests are done as a run

    def __init__(
        self,
        table: Table,
        key: Key,
        columns: Sequence[TableColumn],
        fcolumns: Sequence[TableColumn] = (),
        *,
        undecoded: bool = False,
    ) -> None:
        self.table = table
        self.key = key
        self.columns = tuple(columns)
        self.fcolumns = tuple(fcolumns)
        self.width = len(self.columns)
        self.parts = len(key.parts)
        self.filters = [column.name for column in self.fcolumns]
        self.compiled: dict[Any, Any] = {}  # how like requests are done, by their shapes; see bulk.py
        shown = [_bytes_of(column.sql) if undecoded else column.sql for column in self.columns]
        self.shown = ", ".join(shown) or "NULL"
        self._read = Finder(table, key, self.shown, self.width)
        named, names = len(table.identity), ", ".join(table.identity)
        self._meet = Finder(table, key, f"{names}, {self.shown}", named + max(1, self.width))
        self._name = Finder(table, key, names, named)

    @cached_property
    def undecoded(self) -> OpenedIndex:
        """The same index, for rows with texts that are no UTF-8: whoever wrote them, they can be read."""
        return OpenedIndex(self.table, self.key, self.columns, self.fcolumns, undecoded=True)

    def rows_of(self, result: Any) -> Any:
        """Return the result of a run as that of the operation."""
        if type(result) is tuple:
            return [] if result[-1] is None else [result[:-1]]
        if type(result) is not str:
            return result
        width = self.width
        values: list[Any] = result.split("\t")
        for place, column in enumerate(self.columns):
            if column.kind == "integer":
                values[place::width] = map(int, values[place::width])
        return list(zip(*[iter(values)] * width, strict=True))

    def perform(self, verb: str, args: Sequence[Any]) -> Working:
        """Do what an operation of `roost.Index` asks for; return its result."""
        if verb == "insert":
            return (yield from self.insert(args[0]))
        scan = self._scan(*args[:6])
        if verb == "find":
            return (yield from self._read.find(scan))
        return (yield from self._modify(verb, scan, *args[6:]))

    def _scan(
        self,
        op: str,
        values: Sequence[Any],
        limit: int,
        offset: int,
        in_: tuple[int, Sequence[Any]] | None,
        filters: Sequence[Where | While],
    ) -> Scan:
        # What is looked for, with the values as the columns store them.
        columns = [part.column for part in self.key.parts]
        if len(values) > len(columns):
            told = f"the key {self.key.name} of {self.table.name} has {len(columns)} columns, not {len(values)}"
            raise worded(Invalid(told), "kpnum")
        held = tuple([column.holds(value) for column, value in zip(columns, values, strict=False)])
        place, listed = in_ or (None, ())
        if place is not None:
            listed = [columns[place].holds(value) for value in listed]
        judged = [(self.table.columns[each_.column], each_) for each_ in filters]
        made = [Filtering(isinstance(f, While), f.op, column.sql, column.against(f.value)) for column, f in judged]
        return Scan(op, held, limit, offset, place, tuple(listed), tuple(made))

    def statements(self, op: str, values: tuple[Any, ...], filters: Sequence[Filtering]) -> tuple[Texts, ...]:
        """Return the statements of a find like this, in their order."""
        return self._read.texts(op, values, filters)

    # --- insert ---------------------------------------------------------------------------------------------------

    def insert(self, values: Sequence[Any]) -> Working:
        """Insert a row; return the number that it was given, 0 where it brought its own, None where there is none.

        Columns that are not listed have their defaults. Values beyond the columns are not looked at.
        """
        table = self.table
        if table.view and not table.triggers:
            raise worded(StatementFailed(f"{table.name} is a view without a trigger, and takes no rows"), "notimpl", 2)
        automatic = table.automatic
        numbered = automatic is not None
        given: dict[str, Any] = {}
        for column, value in zip(self.columns, values, strict=False):
            if column.name == automatic and value in ASKING:
                numbered = True
                given[column.sql] = None
                continue
            if column.name == automatic:
                numbered = False
            given[column.sql] = self._stored(column, value)
        text, row = self.insertion(given)
        try:
            if automatic is None:
                yield Statement(write(text), [row])
                return None
            (found,) = yield ask(each(f"{text} RETURNING {table.columns[automatic].sql}"), *row)
        except StatementFailed as error:
            raise self._foreign(error, "151") from None
        return found[0][0] if numbered and found else 0

    def insertion(self, given: dict[str, Any]) -> tuple[str, tuple[Any, ...]]:
        """Return the text of an INSERT, and its values."""
        if not given:
            return f"INSERT OR ABORT INTO {self.table.sql} DEFAULT VALUES", ()
        holes = ", ".join(["?"] * len(given))
        return f"INSERT OR ABORT INTO {self.table.sql} ({', '.join(given)}) VALUES ({holes})", tuple(given.values())

    def _stored(self, column: TableColumn, value: Any) -> Any:
        if column.generated:
            raise worded(StatementFailed(f"{self.table.name}.{column.name} is a generated column"), "generated")
        stored = column.holds(value)
        if stored is UNHELD:
            raise worded(StatementFailed(f"{self.table.name}.{column.name} ({column.kind}) cannot hold it"), "type")
        return stored

    def _foreign(self, error: StatementFailed, word: str) -> StatementFailed:
        # Which side of a foreign key failed, only the statement knows.
        return worded(error, word) if error.word == "foreign" else error

    # --- modify ---------------------------------------------------------------------------------------------------

    def _modify(self, verb: str, scan: Scan, to: Sequence[Any], returning: bool) -> Working:
        # Changes the rows that are found; returns how many there were, or, `returning`, what they were before.
        if self.table.view:
            raise worded(Invalid(f"{self.table.name} is a view; its rows cannot be named one by one"), "notimpl")
        if not self.table.identity:
            raise worded(Invalid(f"{self.table.name} hides its rowid behind columns of its own"), "notimpl")
        sums = verb in ("increment", "decrement")
        # A value may be listed twice, and ranges overlap: what is deleted once is not there to be counted again.
        again = verb == "delete" and scan.place is not None
        finder = self._meet if returning or sums else self._name
        found: Rows = yield from finder.find(scan._replace(limit=INT_MAX - scan.offset) if again else scan)
        named = len(self.table.identity)
        if scan.place is not None:
            found = list({row[:named]: row for row in found}.values())[: scan.limit]
        before = [row[named : named + self.width] for row in found]
        rows = [row[:named] for row in found]
        if not rows:
            return before if returning else 0
        if sums:
            changed = yield from self._add(rows, before, verb, to)
        elif verb == "update":
            changed = yield from self._update(rows, to)
        else:
            changed = yield from self._write(f"DELETE FROM {self.table.sql}", (), rows, "152")
        return before if returning else changed

    def _update(self, rows: Rows, values: Sequence[Any]) -> Working:
        # A column that is listed twice has the last of its values.
        given = {column.sql: self._stored(column, value) for column, value in zip(self.columns, values, strict=False)}
        if not given:
            return len(rows)
        own = {column.name for column, _ in zip(self.columns, values, strict=False)}
        word = "151" if own & self.table.children else "152"
        text = f"UPDATE OR ABORT {self.table.sql} SET {', '.join([f'{column} = ?' for column in given])}"
        return (yield from self._write(text, tuple(given.values()), rows, word))

    def _add(self, rows: Rows, before: Rows, verb: str, to: Sequence[Any]) -> Working:
        addends = self.addends(to)
        passed = []
        for row, old in zip(rows, before, strict=True):
            sums = self.sums(old, addends, verb)
            if sums is not None:
                passed.append(row)
        given: dict[str, list[int | float]] = {}
        for place, addend in addends:
            given.setdefault(self.columns[place].sql, []).append(addend)
        if not passed or not given:
            return len(passed)
        sign = " + ?" if verb == "increment" else " - ?"
        text = f"UPDATE OR ABORT {self.table.sql} SET " + ", ".join(
            [f"{column} = {column}{sign * len(each_)}" for column, each_ in given.items()]
        )
        bound = tuple([addend for each_ in given.values() for addend in each_])
        # Whether a unique value is free depends on what was moved before: the order of the scan counts.
        own = {self.columns[place].name for place, _ in addends}
        return (yield from self._write(text, bound, passed, "152", bool(own & self.table.unique)))

    def addends(self, to: Sequence[Any]) -> list[tuple[int, int | float]]:
        """Return what is added to which of the columns: none where NULL is given, or nothing."""
        found = []
        for place, (column, value) in enumerate(zip(self.columns, to, strict=False)):
            if value is None:
                continue
            addend = number(value)
            name = f"{self.table.name}.{column.name}"
            if column.kind not in ("integer", "real", "numeric", "any"):
                raise worded(StatementFailed(f"{name} ({column.kind}) is not numeric"), "type")
            if column.generated:
                raise worded(StatementFailed(f"{name} is a generated column"), "generated")
            if addend is UNHELD or (column.kind == "integer" and type(addend) is not int):
                raise worded(StatementFailed(f"{name}: {value!r} cannot be added to it"), "type")
            assert not isinstance(addend, Unheld)
            found.append((place, addend))
        return found

    def sums(self, old: Sequence[Any], addends: Sequence[tuple[int, int | float]], verb: str) -> list[Any] | None:
        """Return the new values, column by column; None where a `-` would cross zero: the row stays as it is."""
        found: list[Any] = []
        running: dict[str, Any] = {}  # a column that is listed twice is added to twice
        for place, addend in addends:
            column = self.columns[place]
            value = running.get(column.name, old[place])
            if value is None:
                found.append(None)
                continue
            name = f"{self.table.name}.{column.name}"
            if not isinstance(value, (int, float)):
                raise worded(StatementFailed(f"{name}: {value!r} is no number"), "type")
            new = value + addend if verb == "increment" else value - addend
            if isinstance(new, int) and not INT_MIN <= new <= INT_MAX:
                raise worded(StatementFailed(f"{name}: the sum leaves 64 bits"), "range")
            if verb == "decrement" and ((value > 0 and new < 0) or (value < 0 and new > 0)):
                return None
            running[column.name] = new
            found.append(new)
        return found

    def _write(self, text: str, bound: tuple[Any, ...], rows: Rows, word: str, ordered: bool = False) -> Working:
        # By what names the rows. Many by their rowids are one statement; by keys of several columns one each.
        names = self.table.identity
        try:
            if len(rows) == 1:
                where = " AND ".join([f"{name} = ?" for name in names])
                return (yield Statement(write(f"{text} WHERE {where}"), [(*bound, *rows[0])]))
            if self.table.by_rowid and not ordered:
                listed = json.dumps([row[0] for row in rows])
                where = f"{names[0]} IN (SELECT value FROM json_each(?))"
                return (yield Statement(write(f"{text} WHERE {where}"), [(*bound, listed)]))
            return (yield from self._write_each(text, bound, rows))
        except StatementFailed as error:
            raise self._foreign(error, word) from None

    def _write_each(self, text: str, bound: tuple[Any, ...], rows: Rows) -> Working:
        where = " AND ".join([f"{name} = ?" for name in self.table.identity])
        yield Control.SAVEPOINT
        try:
            changed = yield Statement(write(f"{text} WHERE {where}"), [(*bound, *row) for row in rows])
        except Error:
            yield Control.BACK
            yield Control.RELEASE
            raise
        yield Control.RELEASE
        return changed


def open_index(name: str, index: str, columns: Sequence[str], filters: Sequence[str]) -> Working:
    """Return what can be opened under these names, as it is now; `Missing`, as a value, says what is not there."""
    table: Table | None = yield from read_table(name)
    if table is None:
        return Missing(f"there is no table or view {name} that can be opened")
    shown = [table.columns[each_] for each_ in columns if each_ in table.columns]
    key = opened_key(table, index, shown)
    if key is None:
        there = ", ".join([each_.name for each_ in table.keys]) or "none"
        return worded(Missing(f"{name} has no key {index}; there are: {there}"), "idxnum", 2)
    for each_ in (*columns, *filters):
        if each_ not in table.columns:
            return worded(Missing(f"{name} has no column {each_}"), "fld", 2)
    return OpenedIndex(table, key, shown, [table.columns[each_] for each_ in filters])


def _bytes_of(column: str) -> str:
    return f"CASE typeof({column}) WHEN 'text' THEN CAST({column} AS BLOB) ELSE {column} END"
