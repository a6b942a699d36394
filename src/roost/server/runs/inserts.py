"""Inserts with the same number of values."""

from __future__ import annotations

from operator import length_hint
from typing import Any

from roost.databases.sqlite.apsw import ApswConnection, SQLiteError
from roost.server.room import Room
from roost.server.runs.run import NULL, Columns, Plainly, Run, one_by_one, request, stored
from roost.structures.index.opened import ASKING, OpenedIndex

_ASKING = frozenset([NULL, *[value for value in ASKING if isinstance(value, str)]])  # as tokens


class Inserts(Run):
    """Rows of one statement. Each is inserted by itself, so that one that is refused costs no other."""

    def __init__(self, index: OpenedIndex, length: int) -> None:
        self.length = length
        self.fixed = ((1, "+"), (2, str(length - 3)))
        self._columns = index.columns[: length - 3]
        automatic = index.table.automatic
        self._automatic = automatic is not None
        names = [column.name for column in self._columns]
        self._own = names.index(automatic) if automatic in names else -1  # the column that numbers itself
        self._text, _ = index.insertion({column.sql: None for column in self._columns})

    @classmethod
    def of(cls, index: OpenedIndex, length: int, width: str) -> Inserts | None:
        """Return the run; None where the plain way is the only one."""
        columns = index.columns[: length - 3]
        plain = index.table.triggers or index.table.view or any([column.generated for column in columns])
        if plain or width != str(length - 3) or not columns or len(set(columns)) < len(columns):
            return None
        return cls(index, length)

    def play(self, connection: ApswConnection, columns: Columns, plainly: Plainly, room: Room) -> list[str]:
        """Insert the rows."""
        given = [columns[3 + place] for place in range(len(self._columns))]
        numbered = self._automatic and self._own < 0
        if self._own >= 0 and not _ASKING.isdisjoint(given[self._own]):
            given[self._own] = [NULL if token in _ASKING else token for token in given[self._own]]
            numbered = True
        values = [stored(column, tokens) for column, tokens in zip(self._columns, given, strict=True)]
        if numbered:
            raw = connection.raw
            return one_by_one(
                *(connection, self._text, columns, values, set(), plainly, room),
                lambda row: "0\t1\t0" if self._brings(row) else f"0\t1\t{raw.last_insert_rowid()}",
            )
        rows = list(zip(*values, strict=True))
        told = ["0\t1\t0" if self._automatic else "0\t1"] * len(rows)
        left = iter(rows)
        while True:
            try:
                connection.run_many(self._text, left)
                return told
            except (SQLiteError, UnicodeError, TypeError):  # a TypeError is of a value that its column cannot hold
                place = len(rows) - length_hint(left) - 1
                told[place] = plainly(request(columns, place))
                if not room.take(len(told[place])):
                    return told[: place + 1]

    def _brings(self, row: tuple[Any, ...]) -> bool:
        # Whether a row has a number of its own.
        return self._own >= 0 and row[self._own] is not None
