"""Opened indexes, shared by the connections that opened them; the connections; and the forms of their lines.

Lines have the same form if they differ only in their values. Such lines become a run, as columns of tokens, without
being parsed one by one. A line without a form (an escape, an IN list, an error) is parsed by `requests.parse`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from roost.protocols import codec
from roost.protocols.handlersocket.answers import Answers
from roost.protocols.handlersocket.requests import MOST_FILTERS, MOST_ROWS, NULL, VERBS, Open, Refused, number
from roost.structures.index.declaration import COMPARISONS, OPS
from roost.structures.index.runs import Columns, Shape

MOST_FORMS = 64  # cached per opened index
UNAUTHORIZED = "3\t1\tunauth"
ONE_ROW = ["1", "0"]  # limit and offset


class Target(Protocol):
    """An object that can be opened: an index of a table, or a structure."""

    parts: int  # the number of the key's columns
    width: int  # the number of columns that are read and written
    filters: Sequence[str]  # the names of the columns opened for filters
    bulk: bool  # whether like requests run together; if not, only inserts do, see `Inserts` in responder.py


class Form:
    """The common pattern of lines: their number of tokens, the tokens that are equal, and the places of the values.

    length: the number of tokens of a line.
    fixed: the places and texts of the equal tokens; the first token is not compared.
    places: the places of the values, in the order of the shape's columns.
    """

    __slots__ = ("_bounds", "_fixed", "_length", "_places", "shape")

    def __init__(self, shape: Shape, length: int, fixed: Sequence[tuple[int, str]], places: Sequence[int]) -> None:
        self.shape = shape
        self._length = length
        self._fixed = fixed
        self._places = places
        self._bounds = 3 + shape.keys  # the place of the limit, which the offset follows

    def columns(self, text: str) -> list[list[str]] | None:
        """Return the tokens of lines as columns; None unless all lines have this form, as the first one has."""
        if "\n" not in text:
            return [[token] for token in text.split("\t")]
        # Each LF stays at the start of the token behind it. So a line with a token too few is noticed even if another
        # line has one too many.
        tokens = text.replace("\n", "\t\n").split("\t")
        lines = text.count("\n") + 1
        length = self._length
        if len(tokens) != lines * length:
            return None
        columns = [tokens[place::length] for place in range(length)]
        if columns[0].count("\n" + tokens[0]) != lines - 1:
            return None
        for place, token in self._fixed:
            if columns[place].count(token) != lines:
                return None
        return columns

    def values(self, columns: Sequence[Sequence[str]]) -> Columns:
        """Convert columns of tokens to columns of values, in the order of the shape.

        Raises: Refused if a limit or an offset is not a number.
        """
        made: list[Sequence[Any]] = []
        for place in self._places:
            column = columns[place]
            made.append([None if token == NULL else token for token in column] if NULL in column else column)
        if self.shape.bounded:
            keys, bounds = self.shape.keys, self._bounds
            made[keys:keys] = [_once(columns[bounds], _limit), _once(columns[bounds + 1], number)]
        return made

    def fits(self, tokens: list[str]) -> bool:
        """Whether the limit and the offset of a line are numbers."""
        try:
            return not self.shape.bounded or bool(_limit(tokens[self._bounds]) + number(tokens[self._bounds + 1]))
        except Refused:
            return False


def _limit(token: str) -> int:
    return min(number(token) or 1, MOST_ROWS + 1)


def _once(tokens: Sequence[str], make: Callable[[str], int]) -> list[int]:
    # Usually all lines have the same token.
    first = tokens[0]
    return [make(first)] * len(tokens) if tokens.count(first) == len(tokens) else list(map(make, tokens))


class Opened:
    """One opened index, shared by the sessions that opened it; a new version of the schema gets a new object."""

    __slots__ = ("__weakref__", "_ends", "_forms", "answers", "asked", "target", "version", "writes")

    def __init__(self, asked: Open, target: Target, version: int, writes: bool) -> None:
        self.asked = asked
        self.target, self.version, self.writes = target, version, writes
        self.answers = Answers(target.width)
        self._forms: dict[tuple[str | int, ...], Form | None] = {}  # None: such lines are parsed one by one
        # The place behind a find's values, by their number as it stands in the line.
        self._ends = {str(values): 3 + values for values in range(1, target.parts + 1)} if target.bulk else {}

    def form(self, tokens: list[str]) -> Form | None:
        """Return the form of a line, None if it has none. No token may be escaped."""
        key = self._key(tokens)
        if key is None:
            return None
        try:
            return self._forms[key]
        except KeyError:
            if len(self._forms) >= MOST_FORMS:
                self._forms.clear()
            form = self._forms[key] = self._made(tokens)
            return form

    def _key(self, tokens: list[str]) -> tuple[str | int, ...] | None:
        # The parts that must be equal: the operation, the number of tokens, whether limit and offset are 1 and 0, and
        # the tokens behind them except the values.
        length = len(tokens)
        if length < 4:
            return None
        op, width = tokens[1], tokens[2]
        if op == "+":
            return (length, op, width) if self.writes else None
        end = self._ends.get(width)
        if end is None or op not in OPS:
            return None
        if length == end:
            return (length, op, width)
        one = tokens[end : end + 2] == ONE_ROW
        if length == end + 2:
            return (length, op, width, one)
        if length < end + 3:
            return None
        verb = tokens[end + 2]
        if verb in VERBS:
            return (length, op, width, one, verb) if one and self.writes else None
        if (length - end - 2) % 4 == 0 and length - end - 2 <= 4 * MOST_FILTERS:
            return (length, op, width, one, *[token for place, token in enumerate(tokens[end + 2 :]) if place % 4 != 3])
        return None

    def _made(self, tokens: list[str]) -> Form | None:
        length, op, width = len(tokens), tokens[1], tokens[2]
        shown = self.target.width
        if op == "+":
            to = min(length - 3, shown)
            fixed = [(1, op), (2, width)]
            if width != str(length - 3) or not to:
                return None
            return Form(Shape("insert", to=to), length, fixed, range(3, 3 + to))
        keys = int(width)
        end = 3 + keys
        fixed = [(1, op), (2, width)]
        places = list(range(3, end))
        bounded = length > end and tokens[end : end + 2] != ONE_ROW
        if not bounded:
            fixed += zip(range(end, length), "10", strict=False)
        verb = tokens[end + 2] if length > end + 2 else ""
        if verb in VERBS:
            to = 0 if verb == "D" else min(length - end - 3, shown)
            fixed.append((end + 2, verb))
            return Form(Shape(VERBS[verb], op, keys, to=to), length, fixed, [*places, *range(end + 3, end + 3 + to)])
        filters = []
        for place in range(end + 2, length, 4):
            kind, comparison, column = tokens[place : place + 3]
            if kind != "F" or comparison not in COMPARISONS or not _is_place(column, len(self.target.filters)):
                return None
            filters.append((comparison, int(column)))
            fixed += [(place, kind), (place + 1, comparison), (place + 2, column)]
            places.append(place + 3)
        return Form(Shape("find", op, keys, bounded, tuple(filters)), length, fixed, places)


def _is_place(token: str, columns: int) -> bool:
    return token.isascii() and token.isdigit() and len(token) < 4 and int(token) < columns


class Openings:
    """The indexes that any connection has opened in one database.

    may: returns whether a table may be opened, by the names of the database and the table.
    looks: whether each turn compares the schema's version first; if so, an index already opened in the current version
        can be opened again without asking the database.
    """

    def __init__(self, may: Callable[[str, str], bool], *, writes: bool, looks: bool = True) -> None:
        self.may = may
        self.writes = writes
        self.looks = looks
        self._opened: weakref.WeakValueDictionary[Open, Opened] = weakref.WeakValueDictionary()

    def find(self, asked: Open) -> Opened | None:
        """Return the index opened by the same names, under any number; None if there is none."""
        return self._opened.get(asked._replace(number=0))

    def keep(self, asked: Open, target: Target, version: int) -> Opened:
        """Return the opened index for this target in this version, the same object for every session."""
        asked = asked._replace(number=0)
        opened = self._opened.get(asked)
        if opened is None or opened.version != version or opened.target is not target:
            opened = self._opened[asked] = Opened(asked, target, version, self.writes)
        return opened


class Session(codec.Session):
    """The protocol's state of one connection. most: the number of indexes that it may open."""

    __slots__ = ("known", "most", "opened")

    def __init__(self, secret: bytes | None, most: int) -> None:
        super().__init__(secret)
        self.most = most
        self.opened: dict[str, Opened] = {}  # by their numbers
        # Whether it has sent something that only a HandlerSocket client sends. A connection that needs a secret counts
        # as known: until it has sent the secret, it can do nothing in any protocol.
        self.known = not self.authorized

    def state(self) -> tuple[Any, ...]:
        return super().state(), dict(self.opened), self.known

    def restore(self, state: tuple[Any, ...]) -> None:
        before, self.opened, self.known = state
        super().restore(before)

    def open(self, number: int, opened: Opened) -> bool:
        """Store an opened index under its number, replacing the one there; False if too many are open."""
        if len(self.opened) >= self.most and str(number) not in self.opened:
            return False
        self.opened[str(number)] = opened
        self.known = True
        return True

    def authorize(self, tokens: list[str]) -> str:
        if len(tokens) < 2 or tokens[1] != "1":
            return "3\t1\tauthtype"
        said = (tokens[2] if len(tokens) > 2 else "").encode("utf-8", "surrogateescape")
        return "0\t1" if self.says(said) else UNAUTHORIZED
