"""Increments and decrements by a complete unique key: each row is read once and written once.

Rows are distinguished by the columns that identify them, not by the text of the key: a collation may treat two keys as
equal. Equal requests are processed once. Whole numbers are added in one step if no order of the additions can exceed 64
bits; all others are added in the order of the requests.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from roost.dialects.dialect import Answer, Dialect, Statement, Template
from roost.errors import Error, StatementFailed
from roost.structures.index.budget import Budget
from roost.structures.index.lookups import Lookups
from roost.structures.index.opened import OpenedIndex
from roost.structures.index.runs import Alone, Bulk, Columns, EachAlone, Results, Shape, exceptions, stored
from roost.types.column_types import INT_MAX, INT_MIN

Name = tuple[Any, ...]  # the values that identify a row
Key = tuple[Any, ...]  # the values by which a request searches it


class _Alike(NamedTuple):
    """Equal requests."""

    places: list[int]  # among all requests
    addends: list[tuple[int, int | float]]


class _Changed(NamedTuple):
    """A row to be written."""

    places: tuple[int, ...]  # of the columns with new values
    row: tuple[Any, ...]  # these values, and those that identify the row
    alike: list[_Alike]


class Sums(Bulk):
    """Increments, or decrements, with the same number of values. A result is the number of changed rows."""

    def __init__(self, index: OpenedIndex, shape: Shape, dialect: Dialect) -> None:
        self._index, self._verb = index, shape.verb
        self._keys = [part.column for part in index.key.parts]
        self._named = len(index.table.identity)
        self._lookups = Lookups(index, dialect, index.table.identity)
        self._by = " AND ".join([f"{name} = ?" for name in index.table.identity])
        self._updates: dict[tuple[int, ...], Template] = {}  # by the places of the columns that they set

    @classmethod
    def of(cls, index: OpenedIndex, shape: Shape, dialect: Dialect) -> Sums | None:
        """Return the run; None if each request must be run alone."""
        table, names = index.table, {column.name for column in index.columns}
        # Adding several numbers in one step must not skip an intermediate value that would be refused.
        if table.triggers or table.judged or names & (table.unique | table.children):
            return None
        own = {part.column for part in index.key.parts} & set(index.columns)
        identity = {column.sql for column in index.columns} & set(table.identity)
        if own or identity or not table.identity or len(set(index.columns)) < index.width:
            return None
        return cls(index, shape, dialect)

    def run(self, columns: Columns, alone: Alone, budget: Budget) -> Results:
        """Read each row, add the numbers, and write each row that changed."""
        width = len(self._keys)
        keys = list(zip(*columns[:width], strict=True))
        distinct = list(dict.fromkeys(keys))
        values = [stored(column, each_) for column, each_ in zip(self._keys, zip(*distinct, strict=True), strict=True)]
        nameless = exceptions(values)
        asked = values
        if nameless:
            asked = [[value for place, value in enumerate(column) if place not in nameless] for column in values]
        try:
            found = iter((yield from self._lookups.fetch(asked)) if asked[0] else ())
        except StatementFailed:  # the rows are too long to be fetched together
            return (yield from EachAlone().run(columns, alone, budget))
        rows: dict[Name, Sequence[Any]] = {}  # the values of the opened columns
        names: dict[Key, Name | None] = {}  # None if there is no row
        for place, key in enumerate(distinct):
            row = None if nameless and place in nameless else next(found)
            if row is None or row[-1] is None:
                names[key] = None
            else:
                name = names[key] = row[: self._named]
                rows[name] = row[self._named : -1]
        results: list[Any] = [1] * len(keys)
        changed: list[_Changed] = []
        for name, alike in self._by_row(columns, keys, names, results).items():
            old = rows[name]
            new = self._at_once(old, alike)
            if new is None:
                new = self._in_order(old, alike, results)
            places = tuple([place for place, value in enumerate(new) if value is not old[place]])
            if places:
                changed.append(_Changed(places, (*[new[place] for place in places], *name), alike))
        yield from self._store(changed, alone, results)
        for place in sorted(exceptions(columns[:width])):  # a search for NULL may find several rows
            results[place] = yield from alone(place)
        return results

    def _by_row(
        self,
        columns: Columns,
        keys: list[tuple[Any, ...]],
        names: dict[tuple[Any, ...], Name | None],
        results: list[Any],
    ) -> dict[Name, list[_Alike]]:
        # Returns the requests that add to each row, and stores the results of the others: those without a row, or
        # whose values cannot be added.
        alike: defaultdict[tuple[Any, ...], list[int]] = defaultdict(list)  # requests by their values
        for place, line in enumerate(zip(keys, *columns[len(self._keys) :], strict=True)):
            alike[line].append(place)
        sums: dict[Name, list[_Alike]] = {}
        read: dict[tuple[Any, ...], Any] = {}  # addends, or the error, by the values
        for (key, *values), places in alike.items():
            name = names[key]
            result: Any = 0
            if name is not None:
                to = tuple(values)
                if to not in read:
                    read[to] = self._addends(to)
                result = read[to]
                if not isinstance(result, Error):
                    sums.setdefault(name, []).append(_Alike(places, result))
                    continue
            for place in places:
                results[place] = result
        return sums

    def _addends(self, to: Sequence[Any]) -> list[tuple[int, int | float]] | Error:
        try:
            return self._index.addends(to)
        except Error as error:
            return error

    def _at_once(self, old: Sequence[Any], alike: list[_Alike]) -> list[Any] | None:
        # Returns the sums if the order does not matter: for whole numbers that stay within 64 bits in any order.
        if self._verb != "increment":
            return None
        sums: dict[int, tuple[int, int]] = {}  # the sums of the positive and of the negative numbers, by column
        for places, addends in alike:
            for place, addend in addends:
                if type(addend) is not int or (old[place] is not None and type(old[place]) is not int):
                    return None
                more, less = sums.get(place, (0, 0))
                added = addend * len(places)
                sums[place] = (more + added, less) if added > 0 else (more, less + added)
        new = list(old)
        for place, (more, less) in sums.items():
            value = old[place]
            if value is not None:
                if value + more > INT_MAX or value + less < INT_MIN:
                    return None
                new[place] = value + more + less
        return new

    def _in_order(self, old: Sequence[Any], alike: list[_Alike], results: list[Any]) -> list[Any]:
        # Returns the sums request by request: whether one is refused, or changes nothing, depends on those before it.
        new = list(old)
        for request, addends in sorted([(place, each_.addends) for each_ in alike for place in each_.places]):
            try:
                sums = self._index.sums(new, addends, self._verb)
            except Error as error:
                results[request] = error
                continue
            if sums is None:
                results[request] = 0
                continue
            for (place, _), value in zip(addends, sums, strict=True):
                new[place] = value
        return new

    def _store(self, changed: list[_Changed], alone: Alone, results: list[Any]) -> Results:
        # Writes the rows, by one statement for consecutive ones with the same changed columns; if a row cannot be
        # stored, its requests are run alone.
        begin = 0
        while begin < len(changed):
            places = changed[begin].places
            end = begin + 1
            while end < len(changed) and changed[end].places == places:
                end += 1
            counts = yield Statement(self._update(places), [each.row for each in changed[begin:end]])
            done = 0  # the number of rows written before one failed, or the time was over
            while done < len(counts) and counts[done]:
                done += 1
            if not done:
                for place in sorted([place for each in changed[begin].alike for place in each.places]):
                    results[place] = yield from alone(place)
            begin += done or 1
        return results

    def _update(self, places: tuple[int, ...]) -> Template:
        template = self._updates.get(places)
        if template is None:
            sets = ", ".join([f"{self._index.columns[place].sql} = ?" for place in places])
            text = f"UPDATE OR ABORT {self._index.table.sql} SET {sets} WHERE {self._by}"
            template = self._updates[places] = Template(text, answer=Answer.COUNTS)
        return template
