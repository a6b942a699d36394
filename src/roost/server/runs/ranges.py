"""Finds of many rows: along an index, with a limit, an offset and filters that skip.

Where the columns allow it, SQLite itself writes the answer: `group_concat` over the rows as they come costs a third of
making a Python value of each and a text of them again (measured: 27 instead of 47 µs for 50 rows of 2 columns). Its
order is that of the subquery, whose LIMIT keeps SQLite from merging it with the aggregate; tests hold it to that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roost.engines.apsw import ApswConnection, SQLiteError
from roost.plans.index.opened import OpenedIndex
from roost.plans.index.scan import Filtering
from roost.plans.index.schema import TableColumn
from roost.plans.index.values import UNHELD
from roost.protocols.requests import Refused, number
from roost.server import answers as say
from roost.server.counters import Counters
from roost.server.runs.run import Columns, Plainly, Run, request, stored

MOST_TEXT = 10_000  # rows of an answer that SQLite writes


class Ranges(Run):
    """Finds that one statement answers."""

    modifies = False

    def __init__(
        self, index: OpenedIndex, tokens: list[str], counters: Counters, sql: str, places: Sequence[int]
    ) -> None:
        self.length = len(tokens)
        end = 3 + int(tokens[2])
        self.fixed = (
            *((1, tokens[1]), (2, tokens[2])),
            *[(place, tokens[place]) for place in range(end + 2, self.length) if (place - end - 2) % 4 != 3],
        )
        self._counters = counters
        self._index = index
        self._end = end if self.length > end else 0  # where the limit is
        self._keys = [(3 + place, index.key.parts[place].column) for place in places]
        self._filters = [
            (place + 3, index.fcolumns[int(tokens[place + 2])]) for place in range(end + 2, self.length, 4)
        ]
        self._rows = sql
        self._text = _text_of(index, sql)
        self._none = f"0\t{index.width}"

    @classmethod
    def of(cls, index: OpenedIndex, tokens: list[str], counters: Counters) -> Ranges | None:
        """Return the run of such requests; None where they are several statements."""
        end = 3 + int(tokens[2])
        filters = [
            Filtering(False, tokens[place + 1], index.fcolumns[int(tokens[place + 2])].sql, "")
            for place in range(end + 2, len(tokens), 4)
        ]
        texts = index.statements(tokens[1], ("",) * (end - 3), filters)
        return cls(index, tokens, counters, texts[0].rows.sql, texts[0].places) if len(texts) == 1 else None

    def play(self, connection: ApswConnection, columns: Columns, plainly: Plainly) -> list[str]:
        """Find, one after the other."""
        requests = len(columns[0])
        values = [stored(column, columns[place]) for place, column in self._keys]
        values += [_against(column, columns[place]) for place, column in self._filters]
        if self._end:
            values += [self._limits(columns[self._end], 1), self._limits(columns[self._end + 1], 0)]
        else:
            values += [[1] * requests, [0] * requests]
        told = []
        for place, row in enumerate(zip(*values, strict=True)):
            if None in row or UNHELD in row:
                told.append(plainly(request(columns, place)))
                continue
            try:
                told.append(self._answer(connection, row))
            except (SQLiteError, UnicodeDecodeError, _Plainly):
                told.append(plainly(request(columns, place)))
        return told

    def _limits(self, tokens: Sequence[str], least: int) -> list[int | None]:
        first = tokens[0]
        if tokens.count(first) == len(tokens):
            return [self._limit(first, least)] * len(tokens)
        return [self._limit(token, least) for token in tokens]

    def _limit(self, token: str, least: int) -> int | None:
        try:
            return max(least, number(token))
        except Refused:
            return None

    def _answer(self, connection: ApswConnection, row: tuple[Any, ...]) -> str:
        width = self._index.width
        if self._text and row[-2] <= MOST_TEXT:
            ((rows, text, *unlike),) = connection.run(self._text, row)
            if not rows:
                return self._none
            if not any(unlike) and say.controls(text) == rows * width - 1:
                self._counters.rows += rows
                return f"{self._none}\t{text}"
        elif row[-2] > MOST_TEXT:
            raise _Plainly
        found = connection.run(self._rows, row).fetchall()
        self._counters.rows += len(found)
        return say.found(found, width)


class _Plainly(Exception):
    """The plain way has the limits."""


def _against(column: TableColumn, tokens: Sequence[str]) -> list[Any]:
    if tokens.count(tokens[0]) == len(tokens):
        return [column.against(None if tokens[0] == "\0" else tokens[0])] * len(tokens)
    return [column.against(None if token == "\0" else token) for token in tokens]


def _text_of(index: OpenedIndex, sql: str) -> str:
    # The statement that has the whole answer as one text; "" where some value's text is Python's affair: it is made
    # of whole numbers and texts. An integer column can have a real in it, which SQLite would write another way.
    columns = index.columns
    if not columns or index.table.view or len(set(columns)) < len(columns):
        return ""
    if any([column.kind not in ("integer", "text") for column in columns]):
        return ""
    tab = "'\t'"
    each = f" || {tab} || ".join(
        [f"coalesce({column.sql}, char(0))" if column.nullable else column.sql for column in columns]
    )
    doubtful = [column for column in columns if column.kind == "integer" and column.name != index.table.automatic]
    unlike = "".join([f", max(typeof({column.sql}) = 'real')" for column in doubtful])
    return f"SELECT count(*), group_concat({each}, {tab}){unlike} FROM ({sql})"
