"""Converts values to the form in which a SQLite column stores them, or finds that the column cannot hold them.

From the wire come texts, from Python any of the neutral types. The column's type decides, by SQLite's affinity
(https://sqlite.org/datatype3.html), but more strictly in three points, since a value that cannot be stored as it is
meant is an error here: an integer column takes only whole numbers of 64 bits, a real one numbers, a text one valid
UTF-8.

Bytes that are not UTF-8 are represented in text as lone surrogates (PEP 383).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final

from roost.types.column_types import INT_MAX, INT_MIN

Value = int | str | float | bytes | None


class Unheld:
    """A value that a column cannot hold."""

    def __repr__(self) -> str:
        return "UNHELD"


UNHELD: Final = Unheld()
KNOWN: Final = frozenset([int, float, str, bytes])  # SQLite's own types
_NUMBER = re.compile(r"[ \t\n\v\f\r]*[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?[ \t\n\v\f\r]*", re.ASCII)


def number(value: Any) -> int | float | Unheld:
    """Return a value as a number, as SQLite reads it: `12`, ` -1 `, `1.50`, `1e2` (which is 100).

    >>> number("12"), number("1.5"), number("1e2"), number("abc"), number("1_0")
    (12, 1.5, 100, UNHELD, UNHELD)
    """
    if type(value) is int:
        return value if INT_MIN <= value <= INT_MAX else float(value)
    if type(value) is float:
        return UNHELD if not math.isfinite(value) else int(value) if _is_whole(value) else value
    if type(value) is not str or not _NUMBER.fullmatch(value):
        return UNHELD
    text = value.strip()
    if text.lstrip("+-").isdigit():
        digits = text.lstrip("+-").lstrip("0")
        if len(digits) <= 19:
            whole = int(text)
            if INT_MIN <= whole <= INT_MAX:
                return whole
    found = float(text)
    if math.isinf(found):
        return UNHELD
    return int(found) if _is_whole(found) else found


def _is_whole(value: float) -> bool:
    # SQLite turns such a float into an integer: up to 2^53 no digit is lost; beyond, digits may be missing already.
    return value.is_integer() and -(2.0**53) <= value <= 2.0**53


def is_utf8(text: str) -> bool:
    """Whether text has no lone surrogates."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_bytes(text: str) -> bytes:
    """Return the bytes that this text represents."""
    return text.encode("utf-8", "surrogateescape")


def _integer(value: Any) -> Value | Unheld:
    if type(value) is int:
        return value if INT_MIN <= value <= INT_MAX else UNHELD
    if type(value) is str and value.isascii() and value.isdigit() and len(value) < 19:
        return int(value)
    found = number(value)
    return found if type(found) is int and INT_MIN <= found <= INT_MAX else UNHELD


def _real(value: Any) -> Value | Unheld:
    found = number(value)
    return float(found) if type(found) is int else found


def _numeric(value: Any) -> Value | Unheld:
    if type(value) is str and "\0" in value and number(value.partition("\0")[0]) is not UNHELD:
        return UNHELD  # SQLite 3.54 would cut it at the NUL, and store the number
    return _any(value)


def _text(value: Any) -> Value | Unheld:
    if type(value) is bytes:
        try:
            return value.decode()
        except UnicodeDecodeError:
            return UNHELD
    if type(value) is not str:
        return str(value) if type(value) in KNOWN else UNHELD
    return value if is_utf8(value) else UNHELD


def _blob(value: Any) -> Value | Unheld:
    if type(value) is str:
        return as_bytes(value)
    return value if type(value) is bytes else UNHELD


def _any(value: Any) -> Value | Unheld:
    if type(value) is str:
        return value if is_utf8(value) else as_bytes(value)
    too_large = type(value) is int and not INT_MIN <= value <= INT_MAX
    refused = type(value) not in KNOWN or too_large or (type(value) is float and math.isnan(value))
    return UNHELD if refused else value


KINDS: dict[str, Callable[[Any], Value | Unheld]] = {
    "integer": _integer,
    "real": _real,
    "numeric": _numeric,
    "text": _text,
    "blob": _blob,
    "any": _any,
}


def kind_of(declared: str) -> str:
    """Return the kind of a declared type, by SQLite's rules (section 3.1 of datatype3.html) and one more.

    A type with BINARY in its name would be numeric by those rules; here it is for bytes, as its name says.

    >>> kind_of("VARCHAR(64)"), kind_of("BIGINT UNSIGNED"), kind_of("DATETIME"), kind_of("VARBINARY(16)"), kind_of("")
    ('text', 'integer', 'numeric', 'blob', 'any')
    """
    name = declared.upper()
    if "INT" in name:
        return "integer"
    if "CHAR" in name or "CLOB" in name or "TEXT" in name:
        return "text"
    if "BLOB" in name or "BINARY" in name:
        return "blob"
    if name in ("", "ANY"):
        return "any"
    if "REAL" in name or "FLOA" in name or "DOUB" in name:
        return "real"
    return "numeric"
