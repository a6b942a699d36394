"""Runs: similar requests of one index, as columns, so that many of them become one statement.

Requests are similar if they have the same shape and differ only in their values. A shape is compiled once for each
opened index. If a run could not give a request the same result as running it alone would (a NULL in its key, a value
that its column cannot hold, a statement that fails), the request is an exception: it is run alone, in its turn.

A result is what the library's operation returns, or an error. A find may also have a result that is cheaper to make: a
row with one more value than the index shows, which is NULL if nothing was found; or a text, see `Texts` in `finds.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

from roost.dialects.dialect import Wanted
from roost.errors import StatementFailed
from roost.structures.index.budget import Budget
from roost.structures.index.opened import OpenedIndex
from roost.structures.index.schema import TableColumn
from roost.structures.index.values import UNHELD
from roost.types.column_types import INT_MAX, INT_MIN

MOST_AT_ONCE = 2**14

Columns = Sequence[Sequence[Any]]  # the values of all requests: one sequence for each place of a shape
Results = Generator[Wanted, Any, list[Any]]
# Runs one of the requests alone; the request's own errors are its result, and not raised.
Alone = Callable[[int], Generator[Wanted, Any, Any]]


class Shape(NamedTuple):
    """The common properties of similar requests.

    The columns are the values of the key, limit and offset if `bounded`, the values of the filters, the new values.
    """

    verb: str  # find, insert, update, delete, increment, decrement
    op: str = "="
    keys: int = 0
    bounded: bool = False  # limit and offset are columns; otherwise they are 1 and 0
    filters: tuple[tuple[str, int], ...] = ()  # those that skip rows: the operator, and the place of the filter column
    to: int = 0


class Bulk:
    """Runs requests of one shape: here one by one, in subclasses together."""

    lot = MOST_AT_ONCE  # requests in one statement: fewer after one that took too long, more after one that did not

    def __init__(self, index: OpenedIndex, shape: Shape) -> None:
        self.index, self.shape = index, shape
        self.keys = [part.column for part in index.key.parts[: shape.keys]]
        self.to = index.columns[: shape.to]

    def run(self, columns: Columns, alone: Alone, budget: Budget) -> Results:
        """Run requests, in their order, and return their results: at least one, all if the budget allows."""
        results = []
        for place in range(len(columns[0])):
            results.append((yield from alone(place)))
            if not budget.take(0):
                break
        return results


def stored(column: TableColumn, values: Sequence[Any]) -> Sequence[Any]:
    """Return values as a column stores them: None for NULL, UNHELD for a value that it cannot hold."""
    kinds = set(map(type, values)) if column.plain else set()
    if kinds == {str}:
        text = "".join(values)
        if text.isascii():
            if column.kind == "text":
                return values
            if column.kind == "integer" and text.replace("-", "").isdigit():
                try:
                    numbers = list(map(int, values))
                except ValueError:
                    pass  # one of them is empty, has a sign elsewhere, or thousands of digits
                else:
                    if min(numbers) >= INT_MIN and max(numbers) <= INT_MAX:
                        return numbers
    elif kinds == {int} and column.kind == "integer":
        return values
    return list(map(column.holds, values))


def all_stored(columns: Sequence[TableColumn], values: Columns) -> list[Sequence[Any]]:
    """Return the values of several columns as these store them."""
    return [stored(column, given) for column, given in zip(columns, values, strict=False)]


def exceptions(columns: Columns, *, nulls: bool = True) -> set[int]:
    """Return the requests with a value that its column cannot hold in one of these columns, or, if `nulls`, a NULL."""
    found: set[int] = set()
    for column in columns:
        if (nulls and None in column) or UNHELD in column:
            found.update([place for place, v in enumerate(column) if v is UNHELD or (nulls and v is None)])
    return found


# Returns the results of the requests from the first place up to, but not including, the second; or of the first ones.
Fetch = Callable[[int, int], Results]


def read(bulk: Bulk, total: int, alone_at: set[int], fetch: Fetch, alone: Alone, budget: Budget) -> Results:
    """Return the results of requests that read: many at a time, the exceptions alone.

    fetch: fails if the rows are too long to be fetched all at once, or if the turn's time is over; then it is called
        for fewer requests. After a timeout, the next turn begins with this smaller number, too.
    """
    results: list[Any] = []
    ends = sorted(alone_at)
    lot = bulk.lot
    while len(results) < total and (not results or budget.goes_on):
        begin = len(results)
        while ends and ends[0] < begin:
            del ends[0]
        end = min(begin + lot, ends[0] if ends else total)
        if begin < end:
            try:
                results += yield from fetch(begin, end)
            except StatementFailed as error:
                lot = (end - begin) // 8 or 1
                if error.word == "timeout":
                    bulk.lot = lot
                elif end - begin > 1:
                    continue
            else:
                if end - begin == lot == bulk.lot < MOST_AT_ONCE:
                    lot = bulk.lot = 2 * lot
                continue
        results.append((yield from alone(begin)))
    return results
