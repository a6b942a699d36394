"""An opened index: what is found, inserted and modified through it, as statements.

A modification first finds its rows, and then changes them by what names each of them: so a row is met once, also when
the column that is scanned changes. What can be refused is refused before the one statement that writes, which SQLite
does wholly or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

from roost.dialects.dialect import Control, Statement, Wanted
from roost.errors import Error, Invalid, StatementFailed, worded
from roost.structures.index.scan import Filtering, Finder, Finding, Rows, Scan, Texts
from roost.structures.index.schema import Key, Table, TableColumn, ask
from roost.structures.index.values import UNHELD, Unheld, number
from roost.structures.plan import each, write
from roost.types.column_types import INT_MAX, INT_MIN

Working = Generator[Wanted, Any, Any]

ASKING: Final = (None, "", "0", 0)  # what a column that numbers itself takes as being asked for a number


class Change(NamedTuple):
    """What is done to the rows that are found."""

    verb: str  # U, D, + or -
    values: tuple[Any, ...]  # for the opened columns, in their order; what is missing stays as it is
    returning: bool = False  # the rows as they were, instead of how many


class OpenedIndex:
    """One key of a table, the columns to read and write, and those that filters name.

    undecoded: texts are read as bytes.
    """

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

    def scan(
        self,
        op: str,
        values: Sequence[Any],
        limit: int,
        offset: int,
        among: tuple[int, Sequence[Any]] | None,
        filters: Sequence[Filtering],
    ) -> Scan:
        """Return what is looked for, with the values as the columns of the key store them.

        among: IN: the place of the value that is replaced, and by which.
        """
        columns = [part.column for part in self.key.parts]
        held = tuple([column.key(value) for column, value in zip(columns, values, strict=False)])
        place, listed = among or (None, ())
        if place is not None:
            listed = [columns[place].key(value) for value in listed]
        return Scan(op, held, limit, offset, place, tuple(listed), tuple(filters))

    def find(self, scan: Scan) -> Finding:
        """Return the rows that are found."""
        return self._read.find(scan)

    def statements(self, op: str, values: tuple[Any, ...], filters: Sequence[Filtering]) -> tuple[Texts, ...]:
        """Return the statements of a find like this, in their order."""
        return self._read.texts(op, values, filters)

    # --- insert ---------------------------------------------------------------------------------------------------

    def insert(self, values: Sequence[Any]) -> Working:
        """Insert a row; return the number that it was given, 0 where it brought its own, None where there is none.

        Columns that are not listed have their defaults. Values beyond the columns are not looked at.
        """
        table = self.table
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

    def modify(self, scan: Scan, change: Change) -> Working:
        """Change the rows that are found; return how many were, or, `returning`, what they were before."""
        if self.table.view:
            raise worded(Invalid(f"{self.table.name} is a view; its rows cannot be named one by one"), "notimpl")
        if not self.table.identity:
            raise worded(Invalid(f"{self.table.name} hides its rowid behind columns of its own"), "notimpl")
        # A value may be listed twice, and ranges overlap: what is deleted once is not there to be counted again.
        again = change.verb == "D" and scan.place is not None
        needed = change.returning or change.verb in "+-"
        finder = self._meet if needed else self._name
        found: Rows = yield from finder.find(scan._replace(limit=INT_MAX - scan.offset) if again else scan)
        named = len(self.table.identity)
        if scan.place is not None:
            found = list({row[:named]: row for row in found}.values())[: scan.limit]
        before = [row[named : named + self.width] for row in found]
        rows = [row[:named] for row in found]
        if not rows:
            return before if change.returning else 0
        if change.verb in "+-":
            changed = yield from self._add(rows, before, change)
        elif change.verb == "U":
            changed = yield from self._update(rows, change.values)
        else:
            changed = yield from self._write(f"DELETE FROM {self.table.sql}", (), rows, "152")
        return before if change.returning else changed

    def _update(self, rows: Rows, values: Sequence[Any]) -> Working:
        # A column that is listed twice has the last of its values.
        given = {column.sql: self._stored(column, value) for column, value in zip(self.columns, values, strict=False)}
        if not given:
            return len(rows)
        own = {column.name for column, _ in zip(self.columns, values, strict=False)}
        word = "151" if own & self.table.children else "152"
        text = f"UPDATE OR ABORT {self.table.sql} SET {', '.join([f'{column} = ?' for column in given])}"
        return (yield from self._write(text, tuple(given.values()), rows, word))

    def _add(self, rows: Rows, before: Rows, change: Change) -> Working:
        addends = self.addends(change)
        passed = []
        for row, old in zip(rows, before, strict=True):
            sums = self.sums(old, addends, change.verb)
            if sums is not None:
                passed.append(row)
        given: dict[str, list[int | float]] = {}
        for place, addend in addends:
            given.setdefault(self.columns[place].sql, []).append(addend)
        if not passed or not given:
            return len(passed)
        text = f"UPDATE OR ABORT {self.table.sql} SET " + ", ".join(
            [f"{column} = {column}{f' {change.verb} ?' * len(each)}" for column, each in given.items()]
        )
        bound = tuple([addend for each in given.values() for addend in each])
        # Whether a unique value is free depends on what was moved before: the order of the scan counts.
        own = {self.columns[place].name for place, _ in addends}
        return (yield from self._write(text, bound, passed, "152", bool(own & self.table.unique)))

    def addends(self, change: Change) -> list[tuple[int, int | float]]:
        """Return what is added to which of the columns: none where NULL is given, or nothing."""
        found = []
        for place, (column, value) in enumerate(zip(self.columns, change.values, strict=False)):
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
            new = value + addend if verb == "+" else value - addend
            if isinstance(new, int) and not INT_MIN <= new <= INT_MAX:
                raise worded(StatementFailed(f"{name}: the sum leaves 64 bits"), "range")
            if verb == "-" and ((value > 0 and new < 0) or (value < 0 and new > 0)):
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


def _bytes_of(column: str) -> str:
    return f"CASE typeof({column}) WHEN 'text' THEN CAST({column} AS BLOB) ELSE {column} END"
