"""Finds by a whole unique key: many in one statement, in their order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from roost.engines.apsw import ApswConnection, SQLiteError, integers, texts
from roost.plans.index.opened import OpenedIndex
from roost.plans.index.values import UNHELD
from roost.server.answers import Lookup
from roost.server.counters import Counters
from roost.server.room import Room
from roost.server.runs.run import NULL, Columns, Plainly, Run, first, nulls, plainly_all, rows_of, stored

FEW = 2  # so many lookups, or fewer, are sooner done one by one
AT_ONCE, HELD = 256, 2**20  # rows, and bytes of them, that are held before they become answers
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
        lookup = Lookup(index.width)
        self._answers, self._form = lookup.answers, lookup.form
        self._nothing = (None,) * (index.width + 1)
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
        rows = self._look_up(connection, keys)
        answers: list[str] = []
        more = True
        while more and (room.open or not answers):
            some, made, more = self._some(rows, min(room.left, HELD))
            told, found = self._answers(some, made)
            self._counters.rows += found
            answers += told
            room.take(sum(map(len, told)))
        return answers or plainly_all(first(columns, 1), plainly, room)

    def _some(self, rows: Iterator[Any], left: float) -> tuple[list[Any], list[str], bool]:
        # The next rows, what the form makes of them, and whether there may be more: one row may have a gigabyte.
        some: list[Any] = []
        made: list[str] = []
        form = self._form
        try:
            for row in islice(rows, AT_ONCE):
                text = form % row
                some.append(row)
                made.append(text)
                left -= len(text)
                if left <= 0:
                    break
        except (SQLiteError, UnicodeDecodeError):
            return some, made, False
        return some, made, bool(some)

    def _look_up(self, connection: ApswConnection, keys: Columns) -> Iterator[Any]:
        run = connection.run
        values = [stored(column, tokens) for column, tokens in zip(self._parts, keys, strict=True)]
        if len(keys[0]) > FEW:
            if self._kind == "integer" or (self._kind == "text" and NULL not in "".join(keys[0])):
                return self._by_array(run, values[0])
            if len(self._parts) > 1:
                rows, odd = rows_of(values)
                if not odd:
                    return self._in_lots(run, rows)
        found = (None if UNHELD in key else run(self._one, key).fetchone() for key in zip(*values, strict=True))
        return (row or self._nothing for row in found)

    def _by_array(self, run: Any, values: Sequence[Any]) -> Iterator[Any]:
        if UNHELD in values:
            held = [value for value in values if value is not UNHELD]
            got = self._by_array(run, held)
            return (self._nothing if value is UNHELD else next(got) for value in values)
        if not values:
            return iter(())
        array = integers(values) if self._kind == "integer" else texts(values)
        return run(self._array, (array,))  # type: ignore[no-any-return]

    def _in_lots(self, run: Any, keys: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
        # Lots of a few fixed sizes, so that each has its text, and what is left one by one.
        begin = 0
        for size in LOTS:
            while len(keys) - begin >= size:
                lot = keys[begin : begin + size]
                yield from run(self._lot(size), [value for key in lot for value in key])
                begin += size
        for key in keys[begin:]:
            yield run(self._one, key).fetchone() or self._nothing

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
