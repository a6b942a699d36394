"""Increments and decrements by a whole unique key: each row is read once and written once.

Rows are told apart by what names them, not by the key as it was written: a collation may take two for one. Equal
requests are looked at once. Where sums of whole numbers cannot leave 64 bits in any order, they are added up in one go;
everything else is added in the order of the requests.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

from roost.databases.sqlite.apsw import ApswConnection, SQLiteError, size_of
from roost.errors import Error
from roost.server import answers as say
from roost.server.counters import Counters
from roost.server.room import Room
from roost.server.runs.run import NULL, Columns, Plainly, Run, by_key, first, nulls, request
from roost.structures.index.opened import Change, OpenedIndex
from roost.structures.index.values import UNHELD
from roost.types.column_types import INT_MAX, INT_MIN

Name = tuple[Any, ...]  # what names a row
DONE, NOT_DONE = "0\t1\t1", "0\t1\t0"


class _Sum(NamedTuple):
    """Requests that are equal."""

    places: list[int]  # among all requests
    addends: list[tuple[int, int | float]]


class Sums(Run):
    """Sums of one kind, with the same number of values."""

    def __init__(self, index: OpenedIndex, length: int, verb: str, counters: Counters) -> None:
        parts = index.key.parts
        self.length = length
        self.fixed = by_key(parts, verb)
        self._index, self._verb, self._counters = index, verb, counters
        self._begin = 6 + len(parts)
        self._keys = [part.column for part in parts]
        self._named = len(index.table.identity)
        names = ", ".join(index.table.identity)
        self._read = f"SELECT {names}, {index.shown} FROM {index.table.sql}{index.key.hint} WHERE {index.key.whole}"
        self._by = " AND ".join([f"{name} = ?" for name in index.table.identity])

    @classmethod
    def of(cls, index: OpenedIndex, length: int, verb: str, counters: Counters) -> Sums | None:
        """Return the run; None where the plain way is the only one."""
        own = {part.column for part in index.key.parts} & set(index.columns)
        names = {column.sql for column in index.columns} & set(index.table.identity)
        if index.table.triggers or own or names or not index.table.identity or len(set(index.columns)) < index.width:
            return None
        return cls(index, length, verb, counters)

    def play(self, connection: ApswConnection, columns: Columns, plainly: Plainly, room: Room) -> list[str]:
        """Read each row, add up, and write each row that changed."""
        keys = len(self._keys)
        rows: dict[Name, list[Any]] = {}  # by their names: the values of the opened columns
        names: dict[tuple[str, ...], Name | None] = {}
        for place, key in enumerate(zip(*columns[3 : 3 + keys], strict=True)):
            if key not in names:
                if names and not room.open:
                    columns = first(columns, place)
                    break
                name = names[key] = self._meet(connection, key, rows)
                room.take(0 if name is None else size_of(rows[name]))  # they are held until all are read
        lines = zip(*columns[3 : 3 + keys], *columns[self._begin :], strict=True)
        alike: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)  # requests by their tokens
        for place, line in enumerate(lines):
            alike[line].append(place)
        told = [DONE] * len(columns[0])
        sums: dict[Name, list[_Sum]] = {}
        for line, places in alike.items():
            name = names[line[:keys]]
            answer = NOT_DONE  # there is no such row, or NULL is looked for, and answered below
            if name is not None:
                try:
                    values = tuple([None if token == NULL else token for token in line[keys:]])
                    addends = self._index.addends(Change(self._verb, values))
                except Error as error:
                    answer = self._refusal(error)
                else:
                    sums.setdefault(name, []).append(_Sum(places, addends))
                    continue
            for place in places:
                told[place] = answer
        for place in nulls(columns[3 : 3 + keys]):
            told[place] = plainly(request(columns, place))
        for name, asked in sums.items():
            old = rows[name]
            new = self._at_once(old, asked)
            if new is None:
                new = self._in_order(old, asked, told)
            try:
                self._store(connection, name, old, new)
            except SQLiteError:
                for place in sorted([place for each in asked for place in each.places]):
                    told[place] = plainly(request(columns, place))
        return told

    def _meet(self, connection: ApswConnection, key: tuple[str, ...], rows: dict[Name, list[Any]]) -> Name | None:
        # What names the row of a key; its values are in `rows` then.
        if NULL in key:
            return None
        values = [column.held(token) for column, token in zip(self._keys, key, strict=True)]
        found: Any = None if UNHELD in values else connection.run(self._read, values).fetchone()
        if found is None:
            return None
        name = tuple(found[: self._named])
        rows[name] = list(found[self._named :])
        return name

    def _at_once(self, old: list[Any], asked: list[_Sum]) -> list[Any] | None:
        # The sums where their order does not matter: of whole numbers that stay within 64 bits however they are added.
        if self._verb != "+":
            return None
        sums: dict[int, tuple[int, int]] = {}  # what is added, and taken away, by the column's place
        for each in asked:
            for place, addend in each.addends:
                if type(addend) is not int or (old[place] is not None and type(old[place]) is not int):
                    return None
                more, less = sums.get(place, (0, 0))
                added = addend * len(each.places)
                sums[place] = (more + added, less) if added > 0 else (more, less + added)
        new = list(old)
        for place, (more, less) in sums.items():
            value = old[place]
            if value is not None:
                if value + more > INT_MAX or value + less < INT_MIN:
                    return None
                new[place] = value + more + less
        return new

    def _in_order(self, old: list[Any], asked: list[_Sum], told: list[str]) -> list[Any]:
        # The sums request by request: what is refused, or left alone, depends on those before it.
        new = list(old)
        for request_, addends in sorted([(place, each.addends) for each in asked for place in each.places]):
            try:
                sums = self._index.sums(new, addends, self._verb)
            except Error as error:
                told[request_] = self._refusal(error)
                continue
            if sums is None:
                told[request_] = NOT_DONE
                continue
            for (place, _), value in zip(addends, sums, strict=True):
                new[place] = value
        return new

    def _refusal(self, error: Error) -> str:
        self._counters.errors += 1
        return say.error(error.code, error.word)

    def _store(self, connection: ApswConnection, name: Name, old: list[Any], new: list[Any]) -> None:
        places = [place for place, (before, after) in enumerate(zip(old, new, strict=True)) if before is not after]
        if places:
            sets = ", ".join([f"{self._index.columns[place].sql} = ?" for place in places])
            text = f"UPDATE OR ABORT {self._index.table.sql} SET {sets} WHERE {self._by}"
            connection.run(text, [*[new[place] for place in places], *name])
