"""Finds of many rows on SQLite: along an index, with a limit, an offset and filters that skip.

If the columns allow it, many finds are one statement, in which SQLite formats the rows of each find as a text: a
subquery for each key of an array, with `group_concat` over its rows. For 50 rows of 2 columns this takes 15 µs per
find; with one statement per find it takes 24, and 50 if Python formats the rows. `group_concat` keeps the order of its
subquery, whose LIMIT prevents SQLite from merging the two; tests verify this.

Such a text contains the values of the rows, one after the other, separated by TAB. If a value is NULL, or contains a
character below 16, the result is the list of the rows instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from roost.dialects.dialect import Dialect, Statement, Template
from roost.structures.index.budget import Budget
from roost.structures.index.opened import OpenedIndex
from roost.structures.index.runs import Alone, Bulk, Columns, Results, Shape, exceptions, read, stored
from roost.structures.index.scan import filtering
from roost.structures.index.schema import TableColumn
from roost.structures.plan import each

MOST_ROWS = 10_000  # the maximum sum of the limits of finds in one statement

_CONTROL = bytes(range(0x10))


def controls(text: str) -> int:
    """Return the number of characters below 16."""
    data = text.encode("utf-8", "surrogateescape")
    return len(data) - len(data.translate(None, _CONTROL))


class Ranges(Bulk):
    """Finds of one range of the index each. A result is a text, or a list of rows."""

    def __init__(self, index: OpenedIndex, dialect: Dialect, shape: Shape, sql: str, places: Sequence[int]) -> None:
        self._width = index.width
        self._dialect = dialect
        self._bounded = shape.bounded
        self._keys = [(place, index.key.parts[place].column) for place in places]
        begin = shape.keys + 2 * shape.bounded
        self._filters = [(begin + i, index.fcolumns[place]) for i, (_, place) in enumerate(shape.filters)]
        self._limits = shape.keys  # the place of the limits in the columns
        self._ranged = len(places) - 1  # the place of the value that comes from the array
        self._rows = each(sql)
        self.text = _text_of(index, dialect, sql, self._keys[-1][1], self._ranged, len(places) + len(self._filters) + 2)

    @classmethod
    def of(cls, index: OpenedIndex, dialect: Dialect, shape: Shape) -> Ranges | None:
        """Return the run of such requests; None if each takes several statements."""
        filters = [filtering(False, op, index.fcolumns[place], "") for op, place in shape.filters]
        found = index.statements(shape.op, ("",) * shape.keys, filters)
        return cls(index, dialect, shape, found[0].rows.sql, found[0].places) if len(found) == 1 else None

    def run(self, columns: Columns, alone: Alone, budget: Budget) -> Results:
        """Find; requests with a very large limit are run alone, too."""
        total = len(columns[0])
        values = [stored(column, columns[place]) for place, column in self._keys]
        values += [_once(columns[place], column.against) for place, column in self._filters]
        alone_at = exceptions(values)
        limits: Columns = ([1] * total, [0] * total)
        if self._bounded:
            limits = columns[self._limits : self._limits + 2]
            if max(limits[0]) > MOST_ROWS:
                alone_at.update([place for place, limit in enumerate(limits[0]) if limit > MOST_ROWS])
        values += limits
        rows = list(zip(*values, strict=True))
        # The values that requests in one statement must have in common: all but the one that comes from the array.
        others = list(zip(*values[: self._ranged], *values[self._ranged + 1 :], strict=True))

        def fetch(begin: int, end: int) -> Results:
            common = others[begin]
            most = min(end, begin + max(1, MOST_ROWS // common[-2]))
            last = begin + 1
            while last < most and others[last] == common:
                last += 1
            return (yield from self._fetch(rows[begin:last], common))

        return (yield from read(self, total, alone_at, fetch, alone, budget))

    def _fetch(self, rows: Sequence[tuple[Any, ...]], common: tuple[Any, ...]) -> Results:
        starts = [row[self._ranged] for row in rows]
        if self.text is None or (type(starts[0]) is str and "\0" in "".join(starts)):
            results: list[Any] = [None] * len(rows)
        else:
            asked = (*common, self._dialect.pack(starts))
            (found,) = yield Statement(self.text, [asked], values=len(rows))
            results = self._texts(found)
        doubtful = [place for place, result in enumerate(results) if result is None]
        if doubtful:
            values = len(doubtful) * max(1, common[-2] * self._width)
            found = yield Statement(self._rows, [rows[place] for place in doubtful], values=values)
            for place, each_ in zip(doubtful, found, strict=True):
                results[place] = each_
        return results

    def _texts(self, found: Sequence[tuple[str | None]]) -> list[Any]:
        # None for a text from which the values cannot be read.
        width = self._width
        results: list[Any] = []
        for (text,) in found:
            if text is None:
                results.append([])
                continue
            number, _, values = text.partition("\t")
            plain = number != "real" and controls(values) == int(number) * width - 1
            results.append(values if plain else None)
        return results


def _once(values: Sequence[Any], make: Callable[[Any], Any]) -> list[Any]:
    # Usually all requests have the same value.
    first = values[0]
    return [make(first)] * len(values) if values.count(first) == len(values) else list(map(make, values))


def _text_of(
    index: OpenedIndex, dialect: Dialect, sql: str, key: TableColumn, ranged: int, values: int
) -> Template | None:
    # Returns the statement that finds for many keys, and formats each result as a text: the number of rows, and their
    # values. None if there are columns other than whole numbers and texts, which only Python formats right. An integer
    # column may contain a real, which SQLite would format differently.
    columns = index.columns
    if not columns or index.table.view or len(set(columns)) < len(columns) or sql.count("?") != values:
        return None
    if any([column.kind not in ("integer", "text") for column in (*columns, key)]):
        return None
    row = " || '\t' || ".join(
        [f"coalesce({column.sql}, char(0))" if column.nullable else column.sql for column in columns]
    )
    doubtful = [column for column in columns if column.kind == "integer" and column.name != index.table.automatic]
    number = "count(*)"
    if doubtful:
        real = " OR ".join([f"max(typeof({column.sql}) = 'real')" for column in doubtful])
        number = f"iif({real}, 'real', count(*))"
    holes = sql.split("?")
    # Without the plus, SQLite replaces the column by k.value, in ORDER BY too, and then sorts.
    asked = "?".join(holes[: ranged + 1]) + "+k.value" + "?".join(holes[ranged + 1 :])
    return each(f"SELECT (SELECT {number} || '\t' || group_concat({row}, '\t') FROM ({asked})) FROM {dialect.array} k")
