"""Format results as the text of answers.

Usually a row is formatted by one `%`, and one scan checks the text of all rows: if it contains no more control
characters than the separators added, no value contains any. Results with NULL, bytes, or characters that must be
escaped are formatted value by value.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from roost.errors import Error, Invalid
from roost.protocols.codec import Responder
from roost.protocols.handlersocket.requests import MOST_ROWS

_CONTROL = bytes(range(0x10))
_ESCAPES = {byte: f"\x01{chr(byte + 0x40)}" for byte in range(0x10)}
_PLAIN = frozenset([int, str, float])
_ONE_ROW, _NUMBERS, _NOTHING = {tuple}, {int}, {type(None)}
_COUNTS = [f"0\t1\t{number}" for number in range(64)]


def error(code: int, word: str) -> str:
    return f"{code}\t1\t{word}"


def refusal(failed: Error) -> str:
    """Return the answer to a request that the database, or a structure, refuses."""
    if isinstance(failed, Invalid) and failed.word == "value":  # a value that the structure's column type refuses
        return error(1, "type")
    if failed.word == "foreign":  # found at COMMIT, when it is unknown which side of the foreign key was violated
        return error(1, "151")
    return error(failed.code, failed.word)


def token(value: Any) -> str:
    r"""Return one value as a token; bytes that are not UTF-8 become lone surrogates.

    >>> token(None), token(1.5), token("a\tb"), token(b"\xff")
    ('\x00', '1.5', 'a\x01Ib', '\udcff')
    """
    kind = type(value)
    if value is None:
        return "\0"
    if kind is int or kind is float:
        return str(value)
    text: str = value.decode("utf-8", "surrogateescape") if kind is bytes else value
    return text if _controls(text) == 0 else text.translate(_ESCAPES)


def _controls(text: str) -> int:
    # The number of characters that a value may contain only escaped.
    data = text.encode("utf-8", "surrogateescape")
    return len(data) - len(data.translate(None, _CONTROL))


def _is_plain(rows: Iterable[Iterable[Any]]) -> bool:
    # Whether all values are numbers or texts.
    return _PLAIN.issuperset(map(type, chain.from_iterable(rows)))


def found(rows: Sequence[Sequence[Any]], width: int) -> str:
    if not rows or not width:
        return f"0\t{width}"
    if _is_plain(rows):
        text = (f"0\t{width}" + "\t%s" * (len(rows) * width)) % tuple(chain.from_iterable(rows))
        if _controls(text) == len(rows) * width + 1:
            return text
    return f"0\t{width}\t" + "\t".join(map(token, chain.from_iterable(rows)))


class Answers:
    """Formats the answers for one opened index. `roost.structures.index.runs` defines the results."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._none = f"0\t{width}"
        self._row = self._none + "\t%s" * width + "%.0s"

    def of(self, results: Sequence[Any], counted: Responder) -> list[str]:
        kinds = set(map(type, results))
        if kinds == _NUMBERS:
            counted.rows += len(results)
            return [_COUNTS[result] if 0 <= result < len(_COUNTS) else f"0\t1\t{result}" for result in results]
        if kinds == _NOTHING:
            counted.rows += len(results)
            return ["0\t1"] * len(results)
        if kinds == _ONE_ROW and _is_plain(results):
            form = self._row
            made = [form % row for row in results]
            if _controls("\n".join(made)) == len(results) * (self._width + 2) - 1:
                counted.rows += len(results)
                return made
        return [self._of(result, counted) for result in results]

    def _of(self, result: Any, counted: Responder) -> str:
        kind = type(result)
        if kind is int:
            counted.rows += 1
            return f"0\t1\t{result}"
        if kind is tuple:
            if result[-1] is None:
                return self._none
            counted.rows += 1
            return found([result[:-1]], self._width)
        if kind is str:
            counted.rows += (result.count("\t") + 1) // self._width
            return f"{self._none}\t{result}"
        if result is None:
            counted.rows += 1
            return "0\t1"
        if isinstance(result, Error):
            counted.errors += 1
            return refusal(result)
        if len(result) > MOST_ROWS:
            counted.errors += 1
            return error(2, "limit")
        counted.rows += len(result)
        return found(result, self._width)
