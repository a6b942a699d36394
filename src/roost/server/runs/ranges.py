"""Finds of many rows: along an index, with a limit, an offset and filters that skip.

Where the columns allow it, SQLite itself writes the answers of many requests in one statement: a subquery for each key
of an array, with `group_concat` over its rows. For 50 rows of 2 columns that takes 15 µs each; one statement each takes
24, and rows that Python makes a text of take 50. The order of `group_concat` is that of its subquery, whose LIMIT keeps
SQLite from merging the two; tests hold it to that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import Any

from roost.databases.sqlite.apsw import ApswConnection, SQLiteError, integers, texts
from roost.errors import Error
from roost.protocols.requests import Refused, number
from roost.server import answers as say
from roost.server.counters import Counters
from roost.server.room import Room
from roost.server.runs.run import NULL, Columns, Plainly, Run, plainly_all, stored
from roost.structures.index.opened import OpenedIndex
from roost.structures.index.scan import Filtering
from roost.structures.index.schema import TableColumn
from roost.structures.index.values import UNHELD

MOST_ROWS = 10_000  # of answers that are made in one statement, as far as limits tell


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
        self._ranged = len(places) - 1  # which of the values comes from the array
        self._text = _texts_of(index, sql, self._keys[-1][1], self._ranged, len(places) + len(self._filters) + 2)
        self._array = integers if self._keys[-1][1].kind == "integer" else texts
        self._none = f"0\t{index.width}"

    @classmethod
    def of(cls, index: OpenedIndex, tokens: list[str], counters: Counters) -> Ranges | None:
        """Return the run of such requests; None where they are several statements."""
        end = 3 + int(tokens[2])
        filters = [
            Filtering(False, tokens[place + 1], index.fcolumns[int(tokens[place + 2])].sql, "")
            for place in range(end + 2, len(tokens), 4)
        ]
        found = index.statements(tokens[1], ("",) * (end - 3), filters)
        return cls(index, tokens, counters, found[0].rows.sql, found[0].places) if len(found) == 1 else None

    def play(self, connection: ApswConnection, columns: Columns, plainly: Plainly, room: Room) -> list[str]:
        """Find; what looks for a NULL, has a very great limit or a value that no row has goes the plain way."""
        requests = len(columns[0])
        values = [stored(column, columns[place]) for place, column in self._keys]
        values += [_once(columns[place], partial(_against, column)) for place, column in self._filters]
        if self._end:
            values += [_once(columns[self._end], lambda token: _limit(token, 1))]
            values += [_once(columns[self._end + 1], lambda token: _limit(token, 0))]
        else:
            values += [[1] * requests, [0] * requests]
        rows = list(zip(*values, strict=True))
        odd = self._odd(values)
        others = list(zip(*values[: self._ranged], *values[self._ranged + 1 :], strict=True))
        told: list[str] = []
        while len(told) < requests and (room.open or not told):
            begin = len(told)
            answers: list[str] = []
            if begin not in odd:
                common = others[begin]  # requests that differ in the value that is ranged over alone
                end, most = begin + 1, min(requests, begin + max(1, MOST_ROWS // common[-2]))
                while end < most and others[end] == common and end not in odd:
                    end += 1
                answers = self._answers(connection, rows[begin:end], common, room)
            # Where the first of them is not answered: the plain way says why, or it is the plain way's.
            told += answers or plainly_all([column[begin : begin + 1] for column in columns], plainly, room)
        return told

    def _odd(self, values: Sequence[Sequence[Any]]) -> set[int]:
        # The requests that are the plain way's.
        odd: set[int] = set()
        for column in values:
            if None in column or UNHELD in column:
                odd.update([place for place, value in enumerate(column) if value is None or value is UNHELD])
        if odd or max(values[-2]) > MOST_ROWS:
            odd.update([place for place, limit in enumerate(values[-2]) if limit is not None and limit > MOST_ROWS])
        return odd

    def _answers(
        self, connection: ApswConnection, rows: Sequence[tuple[Any, ...]], common: tuple[Any, ...], room: Room
    ) -> list[str]:
        # The answers of the first requests: as far as there is room, and nothing fails.
        starts = [row[self._ranged] for row in rows]
        answers: list[str] = []
        left = room.left
        if not self._text or (self._array is texts and "\0" in "".join(starts)):
            answers = [""] * len(rows)
            doubtful = list(range(len(rows)))
        else:
            left, doubtful = self._by_sqlite(connection, (*common, self._array(starts)), answers, room.left)
        for place in doubtful:
            try:
                answers[place] = self._by_python(connection, rows[place])
            except (Error, SQLiteError, UnicodeDecodeError):
                del answers[place:]
                break
            left -= len(answers[place])
            if left <= 0 or monotonic() >= room.deadline:
                del answers[place + 1 :]
                break
        room.take(sum(map(len, answers)))
        return answers

    def _by_sqlite(
        self, connection: ApswConnection, values: tuple[Any, ...], answers: list[str], left: float
    ) -> tuple[float, list[int]]:
        # Adds answers, and returns how much is left, and which of them are Python's to make.
        width, none = self._index.width, self._none
        doubtful = []
        shown = 0
        try:
            for (text,) in connection.run(self._text, values):
                if text is None:
                    answers.append(none)
                    continue
                number, _, row = text.partition("\t")
                if (
                    number != "real"
                    and len(text) <= connection.most_bytes
                    and (say.controls(row) == int(number) * width - 1)
                ):
                    shown += int(number)
                    answers.append(f"{none}\t{row}")
                    left -= len(text)
                    if left <= 0:
                        break
                else:
                    doubtful.append(len(answers))
                    answers.append("")
        except (SQLiteError, UnicodeDecodeError):
            pass
        self._counters.rows += shown
        return left, doubtful

    def _by_python(self, connection: ApswConnection, row: tuple[Any, ...]) -> str:
        width = self._index.width
        found = connection.short(lambda: connection.run(self._rows, row).fetchall(), max(1, row[-2] * width))
        if found is None:
            connection.left = connection.most_bytes
            found = connection.rows(self._rows, row)
        self._counters.rows += len(found)
        return say.found(found, width)


def _once(tokens: Sequence[str], make: Callable[[str], Any]) -> list[Any]:
    # As a rule all requests have the same.
    first = tokens[0]
    return [make(first)] * len(tokens) if tokens.count(first) == len(tokens) else list(map(make, tokens))


def _limit(token: str, least: int) -> int | None:
    try:
        return max(least, number(token))
    except Refused:
        return None


def _against(column: TableColumn, token: str) -> Any:
    return None if token == NULL else column.against(token)


def _texts_of(index: OpenedIndex, sql: str, key: TableColumn, ranged: int, values: int) -> str:
    # The statement that has the answers of many requests, each as one text: how many rows, and their values. "" where
    # some value's text is Python's affair: here there are whole numbers and texts. An integer column can have a real in
    # it, which SQLite would write another way.
    columns = index.columns
    if not columns or index.table.view or len(set(columns)) < len(columns) or sql.count("?") != values:
        return ""
    if any([column.kind not in ("integer", "text") for column in (*columns, key)]):
        return ""
    row = " || '\t' || ".join(
        [f"coalesce({column.sql}, char(0))" if column.nullable else column.sql for column in columns]
    )
    doubtful = [column for column in columns if column.kind == "integer" and column.name != index.table.automatic]
    number = "count(*)"
    if doubtful:
        real = " OR ".join([f"max(typeof({column.sql}) = 'real')" for column in doubtful])
        number = f"iif({real}, 'real', count(*))"
    holes = sql.split("?")
    # Without the plus SQLite puts k.value in the place of the column, in ORDER BY too, and then sorts.
    asked = "?".join(holes[: ranged + 1]) + "+k.value" + "?".join(holes[ranged + 1 :])
    return f"SELECT (SELECT {number} || '\t' || group_concat({row}, '\t') FROM ({asked})) FROM carray(?) k"
