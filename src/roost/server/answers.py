"""Values become the text of an answer.

The plain way is one format per row and one look over the whole text: where it has no more control characters than the
separators put in, no value has any. What is NULL, has bytes, or must be escaped goes value by value.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

_CONTROL = bytes(range(0x10))
_ESCAPES = {byte: f"\x01{chr(byte + 0x40)}" for byte in range(0x10)}
_PLAIN = frozenset([int, str, float])


def error(code: int, word: str) -> str:
    """Return the answer that refuses."""
    return f"{code}\t1\t{word}"


def token(value: Any) -> str:
    r"""Return one value as a token; bytes that are no UTF-8 as lone surrogates.

    >>> token(None), token(1.5), token("a\tb"), token(b"\xff")
    ('\x00', '1.5', 'a\x01Ib', '\udcff')
    """
    kind = type(value)
    if value is None:
        return "\0"
    if kind is int or kind is float:
        return str(value)
    text: str = value.decode("utf-8", "surrogateescape") if kind is bytes else value
    return text if controls(text) == 0 else text.translate(_ESCAPES)


def controls(text: str) -> int:
    """Return how many characters there are that a value may not have."""
    data = text.encode("utf-8", "surrogateescape")
    return len(data) - len(data.translate(None, _CONTROL))


def is_plain(rows: Iterable[Iterable[Any]]) -> bool:
    """Whether there are only numbers and texts."""
    return _PLAIN.issuperset(map(type, chain.from_iterable(rows)))


def found(rows: Sequence[Sequence[Any]], width: int) -> str:
    """Return the answer of a find: all of its rows, one after the other."""
    if not rows or not width:
        return f"0\t{width}"
    if is_plain(rows):
        text = (f"0\t{width}" + "\t%s" * (len(rows) * width)) % tuple(chain.from_iterable(rows))
        if controls(text) == len(rows) * width + 1:
            return text
    return f"0\t{width}\t" + "\t".join(map(token, chain.from_iterable(rows)))


class Lookup:
    """The answers of many finds of one row each.

    A row has one value more than is shown: NULL where nothing was found.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        self._none = f"0\t{width}"
        self._format = self._none + "\t%s" * width + "%.0s"

    def answers(self, rows: Sequence[Sequence[Any]]) -> tuple[list[str], int]:
        """Return an answer for each, and how many were found."""
        if is_plain(rows):
            form = self._format
            made = [form % row for row in rows]
            if controls("\n".join(made)) == len(rows) * (self._width + 2) - 1:
                return made, len(rows)
        told = [self._none if row[-1] is None else found([row[:-1]], self._width) for row in rows]
        return told, sum([row[-1] is not None for row in rows])
