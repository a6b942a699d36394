"""What runs have in common: the requests as columns of tokens, and the values that table columns make of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, ClassVar

from roost.databases.sqlite.apsw import ApswConnection, SQLiteError
from roost.server.room import Room
from roost.structures.index.schema import Part, TableColumn
from roost.structures.index.values import UNHELD
from roost.types.column_types import INT_MAX, INT_MIN

NULL = "\0"

Columns = Sequence[Sequence[str]]  # the tokens of all requests: one sequence for each place in a line
Plainly = Callable[[list[str]], str]  # answers one request by itself


class Run:
    """How requests of one shape are done. They have the same number of tokens, and no escapes."""

    modifies: ClassVar[bool] = True
    length: int  # of a request, in tokens
    fixed: tuple[tuple[int, str], ...]  # tokens that all of them have, and where; the first is not looked at

    def play(self, connection: ApswConnection, columns: Columns, plainly: Plainly, room: Room) -> list[str]:
        """Do requests, in their order, and return their answers: at least one, all if there is room for them.

        Raises: SQLiteError of a read; the transaction is to be played again, request by request.
        """
        raise NotImplementedError

    def columns(self, text: str) -> list[list[str]] | None:
        """Return the columns of several lines; None where not all of them are of this shape."""
        # An end of line stays at the token behind it, so a line with a token too few shows beside one with too many.
        tokens = text.replace("\n", "\t\n").split("\t")
        lines = text.count("\n") + 1
        length = self.length
        if len(tokens) != lines * length:
            return None
        columns = [tokens[place::length] for place in range(length)]
        if columns[0].count("\n" + tokens[0]) != lines - 1:
            return None
        for place, token in self.fixed:
            if columns[place].count(token) != lines:
                return None
        return columns


def stored(column: TableColumn, tokens: Sequence[str]) -> Sequence[Any]:
    """Return the values of tokens as a column stores them: None for NULL, UNHELD for what it cannot hold."""
    text = "".join(tokens)
    if text.isascii() and NULL not in text:
        if column.kind == "text":
            return tokens
        if column.kind == "integer" and text.replace("-", "").isdigit():
            try:
                numbers = list(map(int, tokens))
            except ValueError:
                pass  # one of them is empty, has its sign elsewhere, or thousands of digits
            else:
                if min(numbers) >= INT_MIN and max(numbers) <= INT_MAX:
                    return numbers
    hold = column.held
    return [None if token == NULL else hold(token) for token in tokens]


def rows_of(values: Sequence[Sequence[Any]]) -> tuple[list[tuple[Any, ...]], set[int]]:
    """Return columns of values as rows, and which of them have a value that their column cannot hold."""
    odd: set[int] = set()
    for column in values:
        if UNHELD in column:
            odd.update([place for place, value in enumerate(column) if value is UNHELD])
    return list(zip(*values, strict=True)), odd


def nulls(columns: Sequence[Sequence[str]]) -> set[int]:
    """Return the requests with a NULL in one of these columns."""
    found: set[int] = set()
    for column in columns:
        if NULL in column:
            found.update([place for place, token in enumerate(column) if token == NULL])
    return found


def one_by_one(
    connection: ApswConnection,
    text: str,
    columns: Columns,
    values: Sequence[Sequence[Any]],
    odd: set[int],
    plainly: Plainly,
    room: Room,
    told: Callable[[tuple[Any, ...]], str],
) -> list[str]:
    """Run a statement for one request after the other; those that fail, or are odd, go the plain way.

    values: what is bound, as columns.
    odd: requests that are to go the plain way, beside those with a value that cannot be held.
    told: the answer to a row that was bound, asked when it is done.
    """
    run = connection.run
    rows, unheld = rows_of(values)
    odd = odd | unheld
    answers = []
    left, deadline = room.left, room.deadline
    for place, row in enumerate(rows):
        try:
            if place in odd:
                answer = plainly(request(columns, place))
            else:
                run(text, row)
                answer = told(row)
        except (SQLiteError, UnicodeError):  # the plain way fails again, and says why; or not, and that is as good
            answer = plainly(request(columns, place))
        answers.append(answer)
        left -= len(answer)
        if left <= 0 or monotonic() >= deadline:
            break
    room.take(sum(map(len, answers)))
    return answers


def first(columns: Columns, number: int) -> Columns:
    """Return the first requests."""
    return [column[:number] for column in columns]


def plainly_all(columns: Columns, plainly: Plainly, room: Room) -> list[str]:
    """Do requests by themselves, while there is room."""
    answers = []
    for place in range(len(columns[0])):
        answers.append(plainly(request(columns, place)))
        if not room.take(len(answers[-1])):
            break
    return answers


def by_key(parts: Sequence[Part], verb: str) -> tuple[tuple[int, str], ...]:
    """Return what is fixed in a modification of one row by its whole key."""
    end = 3 + len(parts)
    return ((1, "="), (2, str(len(parts))), (end, "1"), (end + 1, "0"), (end + 2, verb))


def request(columns: Columns, place: int) -> list[str]:
    """Return the tokens of one request."""
    return [column[place] for column in columns]
