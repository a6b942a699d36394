"""Inserts, and updates and deletes by a whole unique key: one statement for many requests, run for each of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from roost.dialects.dialect import Answer, Statement, Template
from roost.structures.index.budget import Budget
from roost.structures.index.opened import OpenedIndex, asking
from roost.structures.index.runs import Alone, Bulk, Columns, Results, Shape, exceptions, stored
from roost.structures.index.values import UNHELD


def one_by_one(
    template: Template,
    rows: Sequence[tuple[Any, ...]],
    alone_at: set[int],
    alone: Alone,
    budget: Budget,
    result: Any = UNHELD,
) -> Results:
    """Run a statement for one request after the other; exceptions, and requests that fail, are run alone.

    result: the result of each request that the statement has done; by default, what the statement returns.
    """
    results: list[Any] = []
    for end in (*sorted(alone_at), len(rows)):
        while (begin := len(results)) < end:
            done = yield Statement(template, rows[begin:end])  # stops at a failure, or when the time is over
            results += done if result is UNHELD else [result] * len(done)
            if len(results) == begin:
                results.append((yield from alone(begin)))
            if not budget.take(0):
                return results
        if end < len(rows):
            results.append((yield from alone(end)))
    return results


class Inserts(Bulk):
    """Inserts by the same statement, which is run for each row, so that a refused row does not affect the others."""

    def __init__(self, index: OpenedIndex, shape: Shape) -> None:
        self._columns = index.columns[: shape.to]
        automatic = index.table.automatic
        self._automatic = automatic is not None
        names = [column.name for column in self._columns]
        self._own = names.index(automatic) if automatic in names else -1  # the place of the column that generates ids
        text, _ = index.insertion(dict.fromkeys(self._columns))
        self._plain, self._numbering = Template(text, answer=Answer.DONE), Template(text, answer=Answer.IDS)

    @classmethod
    def of(cls, index: OpenedIndex, shape: Shape) -> Inserts | None:
        """Return the run; None if each request must be run alone."""
        columns = index.columns[: shape.to]
        if index.table.triggers or index.table.view or any([column.generated for column in columns]):
            return None
        return cls(index, shape) if shape.to and len(set(columns)) == len(columns) == shape.to else None

    def run(self, columns: Columns, alone: Alone, budget: Budget) -> Results:
        """Insert the rows."""
        numbering = self._automatic and self._own < 0
        values = [stored(column, each) for column, each in zip(self._columns, columns, strict=True)]
        if self._own >= 0:
            values[self._own] = asking(columns[self._own], partial(stored, self._columns[self._own]))
            numbering = None in values[self._own]
        rows = list(zip(*values, strict=True))
        number = 0 if self._automatic else None  # the result for a row with its own id
        if not numbering:
            return (yield from one_by_one(self._plain, rows, _unheld(values), alone, budget, number))
        results = yield from one_by_one(self._numbering, rows, _unheld(values), alone, budget)
        if self._own >= 0:
            for place, (row, result) in enumerate(zip(rows, results, strict=False)):
                if type(result) is int and row[self._own] is not None:
                    results[place] = number
        return results


class Deletes(Bulk):
    """Deletes of one row each. A result is the number of rows."""

    def __init__(self, index: OpenedIndex) -> None:
        self._keys = [part.column for part in index.key.parts]
        self._template = Template(
            f"DELETE FROM {index.table.sql}{index.key.hint} WHERE {index.key.whole}", answer=Answer.COUNTS
        )

    def run(self, columns: Columns, alone: Alone, budget: Budget) -> Results:
        """Delete row by row."""
        keys = [stored(column, each) for column, each in zip(self._keys, columns, strict=True)]
        return (yield from one_by_one(self._template, list(zip(*keys, strict=True)), exceptions(keys), alone, budget))


class Updates(Bulk):
    """Updates with the same number of values. A result is the number of rows."""

    def __init__(self, index: OpenedIndex, shape: Shape) -> None:
        self._keys = [part.column for part in index.key.parts]
        self._set = index.columns[: shape.to]
        sets = ", ".join([f"{column.sql} = ?" for column in self._set])
        self._template = Template(
            f"UPDATE OR ABORT {index.table.sql}{index.key.hint} SET {sets} WHERE {index.key.whole}",
            answer=Answer.COUNTS,
        )

    @classmethod
    def of(cls, index: OpenedIndex, shape: Shape) -> Updates | None:
        """Return the run; None if each request must be run alone."""
        columns = index.columns[: shape.to]
        if not shape.to or len(set(columns)) != shape.to or any([column.generated for column in columns]):
            return None
        return cls(index, shape)

    def run(self, columns: Columns, alone: Alone, budget: Budget) -> Results:
        """Update row by row."""
        keys = [stored(column, each) for column, each in zip(self._keys, columns, strict=False)]
        to = [stored(column, each) for column, each in zip(self._set, columns[len(keys) :], strict=True)]
        alone_at = exceptions(keys) | _unheld(to)
        return (yield from one_by_one(self._template, list(zip(*to, *keys, strict=True)), alone_at, alone, budget))


def _unheld(columns: Columns) -> set[int]:
    # The requests with a value that its column cannot hold; NULL may be stored.
    return {place for column in columns if UNHELD in column for place, value in enumerate(column) if value is UNHELD}
