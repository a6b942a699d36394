"""Updates and deletes by a whole unique key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roost.engines.apsw import ApswConnection, SQLiteError
from roost.plans.index.opened import OpenedIndex
from roost.plans.index.schema import Part
from roost.server.runs.run import Columns, Plainly, Run, nulls, request, rows_of, stored


class Deletes(Run):
    """One row each."""

    def __init__(self, index: OpenedIndex, length: int, verb: str = "D") -> None:
        parts = index.key.parts
        end = 3 + len(parts)
        self.length = length
        self.fixed = ((1, "="), (2, str(len(parts))), (end, "1"), (end + 1, "0"), (end + 2, verb))
        self._keys = [(3 + place, part.column) for place, part in enumerate(parts)]
        self._where = f"WHERE {' AND '.join([f'{part.term} = ?' for part in parts])}"
        self._text = f"DELETE FROM {index.table.sql}{index.key.hint} {self._where}"

    @classmethod
    def of(cls, index: OpenedIndex, length: int) -> Deletes | None:
        """Return the run; None where the plain way is the only one."""
        return cls(index, length)

    def play(self, connection: ApswConnection, columns: Columns, plainly: Plainly) -> list[str]:
        """Delete row by row: each is told whether there was one."""
        rows, odd = self._bound(columns, self._keys)
        return self._each(connection, columns, rows, odd, plainly)

    def _bound(self, columns: Columns, bound: Sequence[tuple[int, Any]]) -> tuple[list[tuple[Any, ...]], set[int]]:
        rows, odd = rows_of([stored(column, columns[place]) for place, column in bound])
        return rows, odd | nulls([columns[place] for place, _ in self._keys])

    def _each(
        self,
        connection: ApswConnection,
        columns: Columns,
        rows: list[tuple[Any, ...]],
        odd: set[int],
        plainly: Plainly,
    ) -> list[str]:
        run, raw, text = connection.run, connection.raw, self._text
        told = []
        for place, row in enumerate(rows):
            try:
                if place not in odd:
                    run(text, row)
            except (SQLiteError, UnicodeError):
                odd.add(place)
            told.append(plainly(request(columns, place)) if place in odd else f"0\t1\t{raw.changes()}")
        return told


class Updates(Deletes):
    """Updates with the same number of values.

    As a rule every row is there, and all are updated by one call. Where fewer were, it is done once more row by row,
    to see which: setting what is set already changes nothing.
    """

    def __init__(self, index: OpenedIndex, length: int) -> None:
        super().__init__(index, length, "U")
        begin = 6 + len(self._keys)
        columns = index.columns[: length - begin]
        self._set = [(begin + place, column) for place, column in enumerate(columns)]
        sets = ", ".join([f"{column.sql} = ?" for column in columns])
        self._text = f"UPDATE OR ABORT {index.table.sql}{index.key.hint} SET {sets} {self._where}"
        # What may not be done twice, or may change other rows too: a column of a key. Its own key may be set to itself.
        key = {part.column.name: (3 + place, part) for place, part in enumerate(index.key.parts)}
        keys = [(place, column) for place, column in self._set if column.name in index.table.unique]
        self._again = not index.table.triggers and all(
            [column.name in key and _is_exact(key[column.name][1]) for _, column in keys]
        )
        self._same = [(place, key[column.name][0]) for place, column in keys] if self._again else []

    @classmethod
    def of(cls, index: OpenedIndex, length: int) -> Updates | None:
        """Return the run; None where the plain way is the only one."""
        columns = index.columns[: length - 6 - len(index.key.parts)]
        if not columns or len(set(columns)) < len(columns) or any([column.generated for column in columns]):
            return None
        return cls(index, length)

    def play(self, connection: ApswConnection, columns: Columns, plainly: Plainly) -> list[str]:
        """Update the rows, in the order of the requests."""
        rows, odd = self._bound(columns, [*self._set, *self._keys])
        again = self._again and not odd and len(rows) > 1
        if again and all([list(columns[place]) == list(columns[key]) for place, key in self._same]):
            before = connection.raw.total_changes()
            try:
                connection.run_many(self._text, iter(rows))
            except (SQLiteError, UnicodeError):
                pass  # one of them was refused: which, is found out row by row
            else:
                if connection.raw.total_changes() - before == len(rows):
                    return ["0\t1\t1"] * len(rows)
        return self._each(connection, columns, rows, odd, plainly)


def _is_exact(part: Part) -> bool:
    return part.column.kind == "integer" or part.collation == "BINARY"
