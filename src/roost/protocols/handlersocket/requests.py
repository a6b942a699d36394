"""The requests of HandlerSocket: the tokens of a line are parsed into a request, or refused with an error.

Lines are text here. Bytes that are not UTF-8 become lone surrogates (PEP 383), so that any bytes pass unchanged. The
checks and their order are those of the original; docs/handlersocket.md lists the differences in numbers and filters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from roost.errors import Invalid
from roost.protocols.handlersocket import unescape
from roost.structures.index.declaration import COMPARISONS, OPS, Where, While

MOST = 2**32 - 1  # the largest number
MOST_VALUES = 100_000  # values of one IN list: each is a lookup, and no other client is served meanwhile
MOST_ROWS = 1_000_000  # rows of one answer
MOST_COLUMNS = 4096  # of an opened index, and as many for filters: no table has more
MOST_FILTERS = 900  # of one find: SQLite's expressions have a depth of 1,000

# The errors that are found before an index is looked at.
SPELLING = frozenset(["number", "escape", "invalueslen", "limit", "filtertype", "filterfld", "fop"])

NULL = "\0"
VERBS: Final = {"U": "update", "D": "delete", "+": "increment", "-": "decrement"}

_SMALL: Final = {"": 0, **{str(number): number for number in range(1024)}}  # most numbers are

Token = str | None


class Refused(Exception):
    """The request is answered with an error: code 2 and this word."""

    def __init__(self, word: str) -> None:
        super().__init__(word)
        self.word = word


class Open(NamedTuple):
    """`P <id> <db> <table> <index> <columns> [<fcolumns>]`."""

    number: int
    database: str
    table: str
    key: str
    columns: tuple[str, ...]
    fcolumns: tuple[str, ...]


def is_request(first: str) -> bool:
    """Whether a line with this first token is a request, valid or not; other lines belong to another protocol.

    >>> is_request("P"), is_request("17"), is_request("POST / HTTP/1.1"), is_request("1 /x HTTP/1.1"), is_request("")
    (True, True, False, False, False)
    """
    return first in ("A", "P") or (first.isascii() and first.isdigit())


def number(token: str) -> int:
    """Return a number of the protocol; an empty one is 0.

    >>> number("12"), number("")
    (12, 0)
    >>> number("-1")
    Traceback (most recent call last):
    roost.protocols.handlersocket.requests.Refused: number
    """
    small = _SMALL.get(token)
    if small is not None:
        return small
    if not (token.isascii() and token.isdigit()):
        raise Refused("number")
    found = int(token.lstrip("0")[:11] or "0")
    if found > MOST:
        raise Refused("number")
    return found


def value(token: str) -> Token:
    """Return the value of a token; None is NULL."""
    if token == NULL:
        return None
    if "\x01" not in token:
        return token
    try:
        return unescape(token.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")
    except Invalid:
        raise Refused("escape") from None


def values(tokens: Sequence[str]) -> list[Token]:
    """Return the values of tokens.

    Raises: Refused for a broken escape.
    """
    return [value(token) for token in tokens]


def parse_open(tokens: Sequence[str]) -> Open:
    """Parse the tokens of a `P`. Names are not unescaped, and end at the first NUL.

    Raises: Refused.
    """
    names = [token.partition("\0")[0] for token in tokens[2:7]]
    database, table, index, columns, fcolumns = names + [""] * (5 - len(names))
    if columns.count(",") >= MOST_COLUMNS or fcolumns.count(",") >= MOST_COLUMNS:
        raise Refused("limit")
    return Open(
        number(tokens[1]) if len(tokens) > 1 else 0,
        database,
        table,
        index,
        tuple(columns.split(",")) if columns else (),
        tuple(fcolumns.split(",")) if fcolumns else (),
    )


def operation(
    tokens: list[str], *, writes: bool, parts: int, width: int, filters: Sequence[str]
) -> tuple[str, tuple[Any, ...]]:
    """Translate a find, a modification or an insert into the verb and the arguments of an operation of `roost.Index`.

    `<id> <op> <vlen> … [LIM] [IN] [FILTER …] [MOD]`, or `<id> + <vlen> …`. Missing values count as empty ones.

    writes: whether modifications are allowed.
    parts, width, filters: the number of the key's columns, of the opened columns, and the names of those for filters.

    Raises: Refused, for the first error.
    """
    op = tokens[1] if len(tokens) > 1 else ""
    announced = number(tokens[2]) if len(tokens) > 2 else 0
    given = values(tokens[3 : 3 + min(announced, MOST_COLUMNS)])  # nothing takes more
    at = 3 + announced
    limit = number(tokens[at]) if len(tokens) > at else 0
    offset = number(tokens[at + 1]) if len(tokens) > at + 1 else 0
    at += 2
    in_: tuple[int, list[Token]] | None = None
    if len(tokens) > at and tokens[at][:1] == "@":
        in_, at = _among(tokens, at + 1, announced)
    judged: list[Where | While] = []
    while len(tokens) > at and tokens[at][:1] in ("F", "W"):
        if len(judged) == MOST_FILTERS:
            raise Refused("limit")
        judged.append(_filter(tokens, at, filters))
        at += 4
    if op != "+" and op not in OPS and op != "S":
        raise Refused("op")
    if not announced:
        raise Refused("klen")
    if op == "S":
        raise Refused("notimpl")
    word = tokens[at] if len(tokens) > at and op != "+" else ""
    to = values(tokens[at + 1 : at + 1 + MOST_COLUMNS]) if word and word[0] != "D" else []
    if not writes and (word or op == "+"):
        raise Refused("readonly")
    if op == "+":
        return "insert", (_padded(given, min(announced, width)),)
    if word and word[0] not in VERBS:
        raise Refused("modop")
    if announced > parts:
        raise Refused("kpnum")
    most = MOST_ROWS if word else MOST_ROWS + 1
    args = (op, _padded(given, announced), min(limit or 1, most), offset, in_, judged)
    return (VERBS[word[0]], (*args, to, word[1:2] == "?")) if word else ("find", args)


def _among(tokens: list[str], at: int, width: int) -> tuple[tuple[int, list[Token]], int]:
    # IN: the place of the value that is replaced, and the list; and the place of the next token.
    place = number(tokens[at]) if len(tokens) > at else 0
    length = number(tokens[at + 1]) if len(tokens) > at + 1 else 0
    if not length or place >= width > 0:  # width 0 is reported later, as klen
        raise Refused("invalueslen")
    if length > MOST_VALUES:
        raise Refused("limit")
    at += 2
    return (place, _padded(values(tokens[at : at + length]), length)), at + length


def _filter(tokens: list[str], at: int, filters: Sequence[str]) -> Where | While:
    kind, op, place, against = [*tokens[at : at + 4], "", "", ""][:4]
    if len(kind) > 1:
        raise Refused("filtertype")
    column = number(place)
    if column >= len(filters):
        raise Refused("filterfld")
    if op not in COMPARISONS:
        raise Refused("fop")
    return (While if kind == "W" else Where)(filters[column], op, value(against))  # type: ignore[arg-type]


def _padded(given: list[Token], wanted: int) -> list[Token]:
    return given[:wanted] if len(given) >= wanted else [*given, *[""] * (wanted - len(given))]
