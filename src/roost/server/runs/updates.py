"""Updates and deletes by a whole unique key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roost.databases.sqlite.apsw import ApswConnection, SQLiteError
from roost.server.room import Room
from roost.server.runs.run import Columns, Plainly, Run, by_key, nulls, one_by_one, rows_of, stored
from roost.structures.index.opened import OpenedIndex
from roost.structures.index.schema import Part, TableColumn


class Deletes(Run):
    """One row each."""

    def __init__(self, index: OpenedIndex, length: int, verb: str = "D") -> None:
        parts = index.key.parts
        self.length = length
        self.fixed = by_key(parts, verb)
        self._keys = [(3 + place, part.column) for place, part in enumerate(parts)]
        self._text = f"DELETE FROM {index.table.sql}{index.key.hint} WHERE {index.key.whole}"

    def play(self, connection: ApswConnection, columns: Columns, plainly: Plainly, room: Room) -> list[str]:
        """Delete row by row: each is told whether there was one."""
        return self._each(connection, columns, self._values(columns, self._keys), plainly, room)

    def _values(self, columns: Columns, bound: Sequence[tuple[int, TableColumn]]) -> list[Sequence[Any]]:
        return [stored(column, columns[place]) for place, column in bound]

    def _odd(self, columns: Columns) -> set[int]:
        # NULL in a key may be several rows.
        return nulls([columns[place] for place, _ in self._keys])

    def _each(
        self,
        connection: ApswConnection,
        columns: Columns,
        values: Sequence[Sequence[Any]],
        plainly: Plainly,
        room: Room,
    ) -> list[str]:
        raw = connection.raw
        bound = (connection, self._text, columns, values, self._odd(columns), plainly, room)
        return one_by_one(*bound, lambda _: f"0\t1\t{raw.changes()}")


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
        self._text = f"UPDATE OR ABORT {index.table.sql}{index.key.hint} SET {sets} WHERE {index.key.whole}"
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

    def play(self, connection: ApswConnection, columns: Columns, plainly: Plainly, room: Room) -> list[str]:
        """Update the rows, in the order of the requests."""
        values = self._values(columns, [*self._set, *self._keys])
        rows, odd = rows_of(values)
        again = self._again and len(rows) > 1 and not odd and not self._odd(columns)
        if again and all([columns[place] == columns[key] for place, key in self._same]):
            before = connection.raw.total_changes()
            try:
                connection.run_many(self._text, rows)
            except (SQLiteError, UnicodeError):
                pass  # one of them was refused: which, is found out row by row
            else:
                if connection.raw.total_changes() - before == len(rows):
                    return ["0\t1\t1"] * len(rows)
        return self._each(connection, columns, values, plainly, room)


def _is_exact(part: Part) -> bool:
    return part.column.kind == "integer" or part.collation == "BINARY"
