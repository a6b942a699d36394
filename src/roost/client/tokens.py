"""Encodes values and names for the protocol."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import TypeAlias

from roost.errors import Invalid
from roost.protocols.handlersocket import NULL, escape

Value: TypeAlias = str | bytes | int | float | Decimal | bool | None
"""A value of a column; the server converts its text to the column's type."""

Values: TypeAlias = Value | Sequence[Value]
"""One value, or several in the order of the columns."""


def token(value: Value) -> bytes:
    r"""Return the token of a value: text in UTF-8, numbers in decimal, True as 1, None as NULL.

    Raises: Invalid for a type that is not a `Value`, for NaN and infinities, and for text with lone surrogates.

    >>> token("é\n"), token(-5), token(0.5), token(True), token(None), token(b"\xff")
    (b'\xc3\xa9\x01J', b'-5', b'0.5', b'1', b'\x00', b'\xff')
    """
    if value is None:
        return NULL
    if isinstance(value, str):
        try:
            return escape(value.encode())
        except UnicodeEncodeError:
            raise Invalid(f"{value!r} has lone surrogates, which UTF-8 cannot encode") from None
    if isinstance(value, bytes):
        return escape(value)
    if isinstance(value, int):
        return b"%d" % value
    if isinstance(value, (float, Decimal)):
        text = repr(value) if isinstance(value, float) else format(value, "f")
        if text.lstrip("-")[:1].isdigit():
            return text.encode()
    raise Invalid(f"{value!r} is not a value: str, bytes, int, float, Decimal, bool or None")


def tokens(values: Values) -> list[bytes]:
    """Return the tokens of one value, or of several."""
    if values is None or isinstance(values, (str, bytes, int, float, Decimal)):
        return [token(values)]
    if not isinstance(values, Sequence):
        raise Invalid(f"{values!r} is not a value, nor a sequence of values")
    return [token(value) for value in values]


def name(text: str, what: str) -> bytes:
    """Encode the name of a database, table, index or column: names are never escaped.

    Raises: Invalid if it is not a str, or has control characters below U+0010, which the protocol cannot express.
    """
    if not isinstance(text, str):
        raise Invalid(f"{what} {text!r} is not a name")
    try:
        written = text.encode()
    except UnicodeEncodeError:
        raise Invalid(f"{what} {text!r} has lone surrogates, which UTF-8 cannot encode") from None
    if escape(written) != written:
        raise Invalid(f"{what} {text!r} has control characters, which the protocol cannot express")
    return written


def names(texts: Iterable[str], what: str) -> bytes:
    """Encode the names of columns, separated by commas.

    Raises: Invalid as `name` does, and for an empty name or one with a comma.
    """
    written = [name(text, what) for text in texts]
    for each in written:
        if not each or b"," in each:
            raise Invalid(f"{what} {each.decode()!r}: the protocol cannot express an empty name or a comma")
    return b",".join(written)
