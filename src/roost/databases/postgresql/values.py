"""Values as literals of PostgreSQL that mean the same under every setting of a session.

What has a backslash is written as E'…', so that it does not matter what one is in '…' (standard_conforming_strings).
Nothing has a cast: it becomes what the parameter in its place is.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

from roost.dialects import POSTGRESQL
from roost.errors import Invalid


def literal(value: Any) -> str:
    """Return a value as a literal.

    >>> print(literal(7), literal("it's"), literal(["a", None, 'b"']), literal(b"\\0"))
    7 'it''s'  E'{"a",NULL,"b\\\\""}'  E'\\\\x00'
    """
    kind = type(value)
    if kind is int:
        return str(value)
    if value is None:
        return "NULL"
    if kind is list:
        return _array(value)
    if kind is bool:
        return "true" if value else "false"
    return _quoted(_text(value))


def parameter(value: Any) -> bytes | None:
    """Return a value as a parameter of a prepared statement, in the text format.

    >>> parameter(7), parameter("it's"), parameter(None), parameter(b"\\0")
    (b'7', b"it's", None, b'\\\\x00')
    """
    kind = type(value)
    if kind is int:
        return b"%d" % value
    if value is None:
        return None
    if kind is bool:
        return b"t" if value else b"f"
    return _whole(_text(value)).encode()


def spelt_out(value: Any) -> str:
    """Return a value as a literal that does not depend on array_nulls either; an array with NULL needs a cast.

    >>> spelt_out(["a", None])
    "ARRAY['a', NULL]"
    """
    if type(value) is list and None in value:
        return f"ARRAY[{', '.join(map(literal, value))}]"
    return literal(value)


def filled_in(sql: str, row: Sequence[Any]) -> str:
    """Return a statement with its values in its text, which any driver can send without parameters.

    >>> filled_in("SELECT %s %% 2", (7,)), filled_in("SELECT 7 % 2", ())
    ('SELECT 7 % 2', 'SELECT 7 % 2')
    """
    return sql % tuple([spelt_out(value) for value in row]) if row else sql


def _quoted(text: str) -> str:
    return POSTGRESQL.literal(_whole(text))


def _whole(text: str) -> str:
    if "\0" in text:  # libpq would take the text up to there
        raise Invalid("PostgreSQL has no text with NUL in it")
    return text


def _text(value: Any) -> str:
    # As the server's input functions take it, whatever DateStyle is: years have four digits and come first.
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    if isinstance(value, dt.datetime):
        return _moment(value)
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, float):
        return repr(float(value))  # the shortest text that gives the same number
    if isinstance(value, (int, Decimal, uuid.UUID)):
        return str(value)
    raise Invalid(f"{value!r} is of type {type(value).__name__}, which has no literal")


@lru_cache(256)
def _moment(value: dt.datetime) -> str:
    return value.isoformat(" ")  # a batch has one for all its rows


def _array(values: list[Any]) -> str:
    # Most are of one kind, and none needs a look at each value.
    kinds = {*map(type, values)}
    if kinds == {int}:
        return f"'{{{','.join(map(str, values))}}}'"
    if kinds == {dt.datetime}:
        return f"""'{{"{'","'.join(map(_moment, values))}"}}'"""
    if kinds == {str}:
        text = '"' + '","'.join(values) + '"'
        if "\\" not in text and text.count('"') == 2 * len(values):
            return _quoted(f"{{{text}}}")
    return _quoted(f"{{{','.join(map(_item, values))}}}")


def _item(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "t" if value else "f"
    return '"' + _text(value).replace("\\", "\\\\").replace('"', '\\"') + '"'
