"""What Roost has to answer where it differs from the original: its rules, once more, over rows in a list.

Only for what is no syntax error. Values are bytes as the tests compare them, see `differential`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cmp_to_key
from typing import Any

from tests.handlersocket.requests import Filter, Request, number, value
from tests.handlersocket.rules import Opened
from tests.handlersocket.tables import (
    BIGINT,
    Column,
    Key,
    Row,
    Table,
    Value,
    asks_for_number,
    is_finite,
    is_text,
    reads_as_number,
)

BLANKS = b" \t\n\v\f\r"


@dataclass(frozen=True)
class Outcome:
    """The rows that are found, as the index shows them, how many are counted, and all rows afterwards."""

    shown: list[tuple[Value, ...]]
    count: int
    rows: list[Row]


def canonical(column: Column, given: Value) -> Value:
    """Return a value that the column holds, as it is read again."""
    kind = column.kind
    if given is None or not (kind.is_number or kind.is_numeric) or (kind.is_numeric and not reads_as_number(given)):
        return None if given is None else kind.written(given)
    if kind.name in ("double", "decimal") or kind.is_numeric:
        digits = given.strip(BLANKS).lstrip(b"+-")
        if kind.is_numeric and digits.isdigit() and int(digits) < 2**63:
            return b"%d" % int(given.strip(BLANKS))  # kept to the last digit
        found = float(given)
        return b"%d" % int(found) if found.is_integer() and abs(found) < 1e15 else repr(found).encode()
    return b"%d" % int(Decimal(given.strip(BLANKS).decode()))


def comparable(column: Column, given: Value) -> Any:
    """Return a value as the column's collation compares it; NULL is less than everything."""
    if given is None:
        return (0,)
    if column.kind.is_numeric and not reads_as_number(given):
        return (2 if is_text(given) else 3, given)
    if column.kind.is_number or column.kind.is_numeric:
        return (1, Decimal(given.strip(BLANKS).decode()))
    if column.kind.name == "date" and not column.kind.is_numeric:
        return (1, column.kind.written(given) if column.kind.lite(given) else given)
    if column.kind.name == "mixed":
        return (1, bytes(byte + 32 if 65 <= byte <= 90 else byte for byte in given))
    return (1, given)


def _compare(one: Sequence[Any], other: Sequence[Any], down: Sequence[bool]) -> int:
    for mine, theirs, descending in zip(one, other, down, strict=False):
        if mine != theirs:
            return -1 if (mine < theirs) is not descending else 1
    return 0


def _distinct(rows: list[Row]) -> list[Row]:
    return list({id(row): row for row in rows}.values())


class Rows:
    """The rows of a table, in a list."""

    def __init__(self, table: Table, rows: Sequence[Row]) -> None:
        self.table, self.rows = table, list(rows)

    def cell(self, row: Row, column: Column) -> Value:
        """Return the value of one column."""
        return row[self.table.columns.index(column)]

    def ordered(self, key: Key) -> list[Row]:
        """Return the rows as the index has them: equals by the primary key."""
        parts = [*key.parts, *self.table.keys[0].parts]
        down = [descending for _, descending in parts]

        def place(row: Any) -> list[Any]:
            return [comparable(column, self.cell(row, column)) for column, _ in parts]

        return sorted(self.rows, key=cmp_to_key(lambda one, other: _compare(place(one), place(other), down)))

    def scan(self, key: Key, op: bytes, wanted: Sequence[Value]) -> list[Row]:
        """Return what is found by a key, all of it."""
        parts = key.parts[: len(wanted)]
        if any(
            each is not None and not column.kind.lite(each) for (column, _), each in zip(parts, wanted, strict=True)
        ):
            return []
        bound = [comparable(column, each) for (column, _), each in zip(parts, wanted, strict=True)]
        down = [descending for _, descending in parts]
        fits = {b"=": (0,), b"<": (-1,), b"<=": (-1, 0), b">": (1,), b">=": (0, 1)}[op]
        found = [
            row
            for row in self.ordered(key)
            if _compare([comparable(column, self.cell(row, column)) for column, _ in parts], bound, down) in fits
        ]
        return found[::-1] if op[:1] == b"<" else found

    def find(self, request: Request, index: Opened) -> list[Row]:
        """Return the rows of a find, filtered and limited."""
        wanted = [*map(value, request.key)]
        lists = [wanted]
        if request.icol is not None:
            place = number(request.icol)
            lists = [[*wanted[:place], value(each), *wanted[place + 1 :]] for each in request.members]
        passed: list[Row] = []
        for each in lists:
            for row in self.scan(index.key, request.op, each):
                verdict = next((one.type for one in request.filters if not self._passes(one, index, row)), b"")
                if verdict == b"W":
                    return self._limited(passed, request)
                if not verdict:
                    passed.append(row)
        return self._limited(passed, request)

    def _limited(self, rows: list[Row], request: Request) -> list[Row]:
        start, most = number(request.offset), max(1, number(request.limit))
        rows = rows[start:]
        if request.mop[:1] == b"D":
            return _distinct(rows)[:most]  # what is deleted is not found again
        return _distinct(rows[:most]) if request.mop else rows[:most]

    def _passes(self, filter: Filter, index: Opened, row: Row) -> bool:
        column = index.filters[number(filter.column)]
        given = value(filter.value)
        if given is not None and column.kind.is_number and not column.kind.is_numeric:
            if not (column.kind.compares or is_finite)(given):
                return filter.op == b"!="
        elif given is not None and not column.kind.lite(given):
            return filter.op == b"!="
        mine, theirs = comparable(column, self.cell(row, column)), comparable(column, given)
        result: bool = {
            b"=": mine == theirs,
            b"!=": mine != theirs,
            b"<": mine < theirs,
            b"<=": mine <= theirs,
            b">": mine > theirs,
            b">=": mine >= theirs,
        }[filter.op]
        return result

    def play(self, request: Request, index: Opened, answer: bytes) -> Outcome:
        """Return what a request finds and does. answer: Roost's, for the number that it gave to a row."""
        if request.is_insert:
            return Outcome([], 1, [*self.rows, self._inserted(request, index, answer)])
        found = self.find(request, index)
        shown = [tuple(self.cell(row, column) for column in index.columns) for row in found]
        mop = request.mop[:1]
        if not mop:
            return Outcome(shown, 0, self.rows)
        changed = {id(row): self._changed(row, mop, request, index) for row in found}
        count = sum(new is not row for row in found for new in [changed[id(row)]])
        after = [changed.get(id(row), row) for row in self.rows]
        return Outcome(shown, len(found) if mop == b"U" else count, [row for row in after if row is not None])

    def _inserted(self, request: Request, index: Opened, answer: bytes) -> Row:
        given = dict(zip(index.columns, map(value, request.key), strict=False))
        cells = []
        for at, column in enumerate(self.table.columns):
            if at == 0 and self.table.automatic and asks_for_number(given.get(column)):
                cells.append(answer.rstrip(b"\n").split(b"\t")[2])
            else:
                cells.append(canonical(column, given.get(column, column.default)))  # type: ignore[arg-type]
        return tuple(cells)

    def _changed(self, row: Row, mop: bytes, request: Request, index: Opened) -> Row | None:
        """Return the row as it is afterwards: the same object when it is left alone, None when it is gone."""
        if mop == b"D":
            return None
        cells = list(row)
        for column, given in zip(index.columns, map(value, request.values), strict=False):
            at = self.table.columns.index(column)
            if mop == b"U":
                cells[at] = canonical(column, given)
                continue
            old = cells[at]
            if old is None or given is None:
                continue
            one, operand = Decimal(old.decode()), Decimal(given.strip(BLANKS).decode())
            new = one + operand if mop == b"+" else one - operand
            if mop == b"-" and (one > 0 > new or one < 0 < new):
                return row
            if column.kind.name in ("int", "bigint"):
                assert -BIGINT <= new < BIGINT, "it leaves 64 bits"
            cells[at] = canonical(column, str(new).encode())
        return tuple(cells)
