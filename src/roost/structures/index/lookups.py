"""Finds by a complete unique key: many in one statement, in their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roost.dialects.dialect import Dialect, Statement
from roost.errors import StatementFailed
from roost.structures.index.budget import Budget
from roost.structures.index.opened import OpenedIndex
from roost.structures.index.runs import Alone, Bulk, Columns, Results, exceptions, read, stored
from roost.structures.plan import each

FEW = 2  # up to this number of lookups, running them one by one is faster
LOTS = (128, 16, 4)  # keys of several columns in one statement


class Lookups(Bulk):
    """Finds with `=`, a limit of 1 and no filter. A result is a row followed by a column of the key, or only NULLs.

    names: columns that are read before those of the index.
    """

    def __init__(self, index: OpenedIndex, dialect: Dialect, names: Sequence[str] = ()) -> None:
        key = index.key
        self._dialect = dialect
        self._columns = [part.column for part in key.parts]
        self._width = len(names) + index.width + 1
        self._none = (None,) * self._width
        read = (*names, *[column.sql for column in index.columns], self._columns[0].sql)
        shown = ", ".join([f"t.{name}" for name in read])
        source = f"{index.table.sql} t{key.hint}"
        terms = [f"t.{part.term}" for part in key.parts]
        self._one = each(f"SELECT {shown} FROM {source} WHERE {' AND '.join([f'{term} = ?' for term in terms])}")
        self._by_array = None
        if len(terms) == 1 and self._columns[0].kind in ("integer", "text"):
            self._by_array = each(f"SELECT {shown} FROM {dialect.array} k LEFT JOIN {source} ON {terms[0]} = k.value")
        self._of_lot = {}
        if len(terms) > 1:
            names = [f"k{place}" for place in range(len(terms))]
            holes = f"({', '.join(['?'] * len(names))})"
            on = " AND ".join([f"{term} = k.{name}" for term, name in zip(terms, names, strict=True)])
            self._of_lot = {
                size: each(
                    f"WITH k ({', '.join(names)}) AS (VALUES {', '.join([holes] * size)}) "
                    f"SELECT {shown} FROM k LEFT JOIN {source} ON {on}"
                )
                for size in LOTS
            }

    def run(self, columns: Columns, alone: Alone, budget: Budget) -> Results:
        """Look up all keys."""
        keys = [stored(column, values) for column, values in zip(self._columns, columns, strict=False)]
        total = len(keys[0])
        alone_at = exceptions(keys)
        if not alone_at and total <= self.lot:
            try:
                return (yield from self.fetch(keys))
            except StatementFailed:
                pass  # the rows are too long to be fetched all at once

        def fetch(begin: int, end: int) -> Results:
            return self.fetch([column[begin:end] for column in keys])

        return (yield from read(self, total, alone_at, fetch, alone, budget))

    def fetch(self, keys: Columns) -> Results:
        """Look up keys, given in the form in which their columns store them, none of them NULL.

        Raises: StatementFailed.
        """
        total = len(keys[0])
        if total <= FEW:
            return (yield from self._one_by_one(list(zip(*keys, strict=True)), total * self._width))
        if self._by_array is None:
            return (yield from self._lots(list(zip(*keys, strict=True))))
        if self._columns[0].kind == "text" and "\0" in "".join(keys[0]):  # an array's texts end at their first NUL
            return (yield from self._lots(list(zip(*keys, strict=True))))
        (rows,) = yield Statement(self._by_array, [(self._dialect.pack(keys[0]),)], values=total * self._width)
        return rows  # type: ignore[no-any-return]

    def _lots(self, keys: Sequence[tuple[Any, ...]]) -> Results:
        # Looks keys up in lots of a few fixed sizes, so that there are few texts, and the rest one by one.
        rows: list[Any] = []
        begin = 0
        values = len(keys) * self._width
        for size, template in self._of_lot.items():
            lots = []
            while len(keys) - begin >= size:
                lots.append(tuple([value for key in keys[begin : begin + size] for value in key]))
                begin += size
            if lots:
                for found in (yield Statement(template, lots, values=values)):
                    rows += found
        if begin < len(keys):
            rows += yield from self._one_by_one(keys[begin:], values)
        return rows

    def _one_by_one(self, keys: Sequence[tuple[Any, ...]], values: int) -> Results:
        found = yield Statement(self._one, keys, values=values)
        return [rows[0] if rows else self._none for rows in found]
