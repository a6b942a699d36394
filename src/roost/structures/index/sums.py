"""Increments and decrements by a whole unique key: each row is read once and written once.

Rows are told apart by what names them, not by the key as it was written: a collation may take two for one. Equal
requests are looked at once. Where sums of whole numbers cannot leave 64 bits in any order, they are added up in one go;
everything else is added in the order of the requests.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

from roost.dialects.dialect import Answer, Statement, Template
from roost.errors import Error, StatementFailed
from roost.structures.index.budget import Budget
from roost.structures.index.opened import OpenedIndex
from roost.structures.index.runs import Alone, Bulk, Columns, EachAlone, Results, Shape, exceptions, stored
from roost.structures.plan import each
from roost.types.column_types import INT_MAX, INT_MIN

Name = tuple[Any, ...]  # what names a row
Key = tuple[Any, ...]  # by which it is looked for


class _Alike(NamedTuple):
    """Requests that are equal."""

    places: list[int]  # among all requests
    addends: list[tuple[int, int | float]]


class Sums(Bulk):
    """Sums of one kind, with the same number of values. A result is how many rows were changed."""

    def __init__(self, index: OpenedIndex, shape: Shape) -> None:
        self._index, self._verb = index, shape.verb
        self._keys = [part.column for part in index.key.parts]
        self._named = len(index.table.identity)
        names = ", ".join(index.table.identity)
        self._read = each(
            f"SELECT {names}, {index.shown} FROM {index.table.sql}{index.key.hint} WHERE {index.key.whole}"
        )
        self._by = " AND ".join([f"{name} = ?" for name in index.table.identity])

    @classmethod
    def of(cls, index: OpenedIndex, shape: Shape) -> Sums | None:
        """Return the run; None where each request is to be done alone."""
        own = {part.column for part in index.key.parts} & set(index.columns)
        names = {column.sql for column in index.columns} & set(index.table.identity)
        if index.table.triggers or own or names or not index.table.identity or len(set(index.columns)) < index.width:
            return None
        return cls(index, shape)

    def run(self, columns: Columns, alone: Alone, budget: Budget) -> Results:
        """Read each row, add up, and write each row that changed."""
        width = len(self._keys)
        keys = list(zip(*columns[:width], strict=True))
        distinct = list(dict.fromkeys(keys))
        values = [stored(column, each_) for column, each_ in zip(self._keys, zip(*distinct, strict=True), strict=True)]
        nameless = exceptions(values)
        asked = [row for place, row in enumerate(zip(*values, strict=True)) if place not in nameless]
        try:
            found = iter((yield Statement(self._read, asked)))
        except StatementFailed:  # the rows are too long to be held together
            return (yield from EachAlone().run(columns, alone, budget))
        rows: dict[Name, list[Any]] = {}  # by their names: the values of the opened columns
        names: dict[Key, Name | None] = {}  # of rows, by their keys
        for place, key in enumerate(distinct):
            row: Any = () if place in nameless else next(iter(next(found)), ())
            name = names[key] = tuple(row[: self._named]) or None
            if name is not None:
                rows[name] = list(row[self._named :])
        results: list[Any] = [1] * len(keys)
        for name, alike in self._by_row(columns, keys, names, results).items():
            old = rows[name]
            new = self._at_once(old, alike)
            if new is None:
                new = self._in_order(old, alike, results)
            if not (yield from self._store(name, old, new)):
                for place in sorted([place for each_ in alike for place in each_.places]):
                    results[place] = yield from alone(place)
        for place in sorted(exceptions(columns[:width])):  # to look for NULL may find several rows
            results[place] = yield from alone(place)
        return results

    def _by_row(
        self,
        columns: Columns,
        keys: list[tuple[Any, ...]],
        names: dict[tuple[Any, ...], Name | None],
        results: list[Any],
    ) -> dict[Name, list[_Alike]]:
        # What is added to which row. The others have their results: there is no row, or nothing that could be added.
        alike: defaultdict[tuple[Any, ...], list[int]] = defaultdict(list)  # requests by their values
        for place, line in enumerate(zip(keys, *columns[len(self._keys) :], strict=True)):
            alike[line].append(place)
        sums: dict[Name, list[_Alike]] = {}
        for (key, *to), places in alike.items():
            name = names[key]
            result: Any = 0
            if name is not None:
                try:
                    addends = self._index.addends(to)
                except Error as error:
                    result = error
                else:
                    sums.setdefault(name, []).append(_Alike(places, addends))
                    continue
            for place in places:
                results[place] = result
        return sums

    def _at_once(self, old: list[Any], alike: list[_Alike]) -> list[Any] | None:
        # The sums where their order does not matter: of whole numbers that stay within 64 bits however they are added.
        if self._verb != "increment":
            return None
        sums: dict[int, tuple[int, int]] = {}  # what is added, and taken away, by the column's place
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

    def _in_order(self, old: list[Any], alike: list[_Alike], results: list[Any]) -> list[Any]:
        # The sums request by request: what is refused, or left alone, depends on those before it.
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

    def _store(self, name: Name, old: list[Any], new: list[Any]) -> Any:
        # Returns whether it could be done.
        places = [place for place, (before, after) in enumerate(zip(old, new, strict=True)) if before is not after]
        if not places:
            return True
        sets = ", ".join([f"{self._index.columns[place].sql} = ?" for place in places])
        text = f"UPDATE OR ABORT {self._index.table.sql} SET {sets} WHERE {self._by}"
        row = (*[new[place] for place in places], *name)
        return bool((yield Statement(Template(text, answer=Answer.COUNTS), [row])))
