"""The types of MariaDB's columns that can be in a cap's key, and the values of Python that fit them."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any

SHAPES = ("geometry", "geometrycollection", "point", "linestring", "polygon")  # and several of the last three: multi…
NUMBERS = frozenset(["tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "year"])
TEXTS = frozenset(["char", "varchar", "enum"])
BYTES = frozenset(["binary", "varbinary"])
INTEGERS = NUMBERS - {"decimal", "year"}
INEXACT = ("float", "bit")  # a value that was read does not find its row again
TIMES = {"timestamp": "zoned", "datetime": "plain", "date": "date"}
# What compares in MariaDB as it does when it has been in Python.
KEYS = NUMBERS | TEXTS | BYTES | {"date", "datetime", "timestamp", "uuid"}


def fitting(type_: str, value: Any) -> Any:
    """Return the value as it may be compared with a column of this type; None when it cannot be equal to any."""
    if type_ in NUMBERS and isinstance(value, str):
        try:
            number = Decimal(value)
        except InvalidOperation:
            return None
        return number if number.is_finite() else None
    if type_ in NUMBERS:
        return None if isinstance(value, bytes) else value
    if type_ in TEXTS:
        return value if isinstance(value, str) else None
    if type_ in BYTES:
        return value if isinstance(value, bytes) else value.encode() if isinstance(value, str) else None
    return value
