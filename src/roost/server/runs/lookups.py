"""Finds by a whole unique key: many in one statement, in their order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from roost.databases.sqlite.apsw import ApswConnection, SQLiteError, integers, size_of, texts
from roost.server.answers import Lookup
from roost.server.counters import Counters
from roost.server.room import Room
from roost.server.runs.run import NULL, Columns, Plainly, Run, first, nulls, plainly_all, rows_of, stored
from roost.structures.index.opened import OpenedIndex
from roost.structures.index.values import UNHELD

FEW = 2  # so many lookups, or fewer, are sooner done one by one
HELD = 2**20  # bytes of rows that are held before they become answers
LOTS = (128, 16, 4)  # of keys of several columns, in one statement


class Lookups(Run):
    """Finds with `=`, a limit of 1 and no filter."""

    modifies = False

    def __init__(self, index: OpenedIndex, length: int, counters: Counters) -> None:
        key = index.key
        self.length = length
        self._parts = [part.column for part in key.parts]
        self._kind = self._parts[0].kind if len(self._parts) == 1 else ""
        self.fixed = (
            (1, "="),
            (2, str(len(self._parts))),
            *zip(range(3 + len(self._parts), length), "10", strict=False),
        )
        self._counters = counters
        self._width = index.width
        self._answers = Lookup(index.width).answers
        # A row has one value more than is shown: NULL where nothing was found.
        shown = "".join([f"t.{column.sql}, " for column in index.columns]) + f"t.{self._parts[0].sql}"
        source = f"{index.table.sql} t{key.hint}"
        terms = [f"t.{part.term}" for part in key.parts]
        self._one = f"SELECT {shown} FROM {source} WHERE {' AND '.join([f'{term} = ?' for term in terms])}"
        self._shown, self._source, self._terms = shown, source, terms
        self._array = f"SELECT {shown} FROM carray(?) k LEFT JOIN {source} ON {terms[0]} = k.value"
        self._lots: dict[int, str] = {}

    def play(self, connection: ApswConnection, columns: Columns, plainly: Plainly, room: Room) -> list[str]:
        """Look up all keys."""
        keys = columns[3 : 3 + len(self._parts)]
        odd = nulls(keys)
        if 0 in odd:
            return plainly_all(first(columns, 1), plainly, room)
        if odd:  # the others are played when these are
            return self.play(connection, first(columns, min(odd)), plainly, room)
        rows = connection.short(lambda: self._rows(connection, keys), len(keys[0]) * (self._width + 1))
        if rows is None:
            return self._one_by_one(connection, columns, keys, plainly, room)
        answers, found = self._answers(rows)
        self._counters.rows += found
        room.take(sum(map(len, answers)))
        return answers

    def _one_by_one(
        self, connection: ApswConnection, columns: Columns, keys: Columns, plainly: Plainly, room: Room
    ) -> list[str]:
        # One row may have a gigabyte, so few are held. Where the first is not answered, the plain way says why.
        answers: list[str] = []
        rows: list[Any] = []
        held = 0

        def answer() -> None:
            made, found = self._answers(rows)
            self._counters.rows += found
            answers.extend(made)
            rows.clear()
            room.take(sum(map(len, made)))

        try:
            for row in self._each_row(connection, keys):
                size = size_of(row)
                if size > connection.most_bytes:
                    break
                rows.append(row)
                held += size
                if held > min(room.left, HELD):
                    answer()
                    held = 0
                    if not room.open:
                        break
        except (SQLiteError, UnicodeDecodeError):
            pass
        answer()
        return answers or plainly_all(first(columns, 1), plainly, room)

    def _each_row(self, connection: ApswConnection, keys: Columns) -> Iterator[Any]:
        run = connection.run
        values = [stored(column, tokens) for column, tokens in zip(self._parts, keys, strict=True)]
        for key in zip(*values, strict=True):
            yield (None if UNHELD in key else run(self._one, key).fetchone()) or (None,)

    def _rows(self, connection: ApswConnection, keys: Columns) -> list[Any]:
        run = connection.run
        values = [stored(column, tokens) for column, tokens in zip(self._parts, keys, strict=True)]
        if len(keys[0]) > FEW:
            if self._kind == "integer" or (self._kind == "text" and NULL not in "".join(keys[0])):
                return self._by_array(run, values[0])
            if len(self._parts) > 1:
                rows, odd = rows_of(values)
                if not odd:
                    return self._in_lots(run, rows)
        found = [None if UNHELD in key else run(self._one, key).fetchone() for key in zip(*values, strict=True)]
        return [row or (None,) for row in found]

    def _by_array(self, run: Any, values: Sequence[Any]) -> list[Any]:
        if UNHELD in values:
            got = iter(self._by_array(run, [value for value in values if value is not UNHELD]))
            return [(None,) if value is UNHELD else next(got) for value in values]
        if not values:
            return []
        array = integers(values) if self._kind == "integer" else texts(values)
        return run(self._array, (array,)).fetchall()  # type: ignore[no-any-return]

    def _in_lots(self, run: Any, keys: Sequence[tuple[Any, ...]]) -> list[Any]:
        # Lots of a few fixed sizes, so that each has its text, and what is left one by one.
        rows: list[Any] = []
        begin = 0
        for size in LOTS:
            while len(keys) - begin >= size:
                lot = keys[begin : begin + size]
                rows += run(self._lot(size), [value for key in lot for value in key]).fetchall()
                begin += size
        return rows + [run(self._one, key).fetchone() or (None,) for key in keys[begin:]]

    def _lot(self, size: int) -> str:
        text = self._lots.get(size)
        if text is None:
            names = [f"k{place}" for place in range(len(self._terms))]
            holes = f"({', '.join(['?'] * len(names))})"
            on = " AND ".join([f"{term} = k.{name}" for term, name in zip(self._terms, names, strict=True)])
            text = self._lots[size] = (
                f"WITH k ({', '.join(names)}) AS (VALUES {', '.join([holes] * size)}) "
                f"SELECT {self._shown} FROM k LEFT JOIN {self._source} ON {on}"
            )
        return text
