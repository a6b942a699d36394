"""Converts values and durations to text and back: for fields of files, arguments, JSON and tables."""

from __future__ import annotations

import csv
import datetime as dt
import enum
import json
import re
import uuid
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import click

import roost
from roost.structures.adopted import FURTHEST
from roost.structures.clock import WANTED, seconds_of
from roost.structures.counter.declaration import SECONDS
from roost.structures.structure import Structure
from roost.types.column_types import ColumnType
from roost.types.columns import Column

Parse = Callable[[str], Any]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_SECONDS = re.compile(r"[+-]?\d+(\.\d*)?\Z", re.ASCII)
_NUMERIC = ("int", "float", "decimal", "datetime")


class Number(str):
    """A number of a JSON document, as its text: so no digit is lost before it becomes a Decimal."""

    __slots__ = ()


def _number(make: Parse) -> Parse:
    def parse(text: str) -> Any:
        if "_" in text:  # Python allows 1_000, which is an error in data
            raise ValueError(text)
        return make(text)

    return parse


def _bool(text: str) -> bool:
    return {"true": True, "false": False, "1": True, "0": False, "t": True, "f": False}[text.lower()]


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix(r"\x"))  # as PostgreSQL exports them, like the "t" and "f" above


def _datetime(text: str) -> dt.datetime:
    # Plain numbers first: fromisoformat would parse 20080101 as a date.
    if _SECONDS.match(text):
        return _EPOCH + dt.timedelta(microseconds=round(Decimal(text) * 10**6))  # a float has not all digits
    found = dt.datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=dt.UTC)  # as the views of SQLite and MariaDB show it


# By kind of column: the parser, and the expected input in words. An enum is parsed by the values of its column.
_PARSERS: dict[str, tuple[Parse, str]] = {
    "int": (_number(int), "a whole number"),
    "float": (_number(float), "a number"),
    "decimal": (_number(Decimal), "a decimal number"),
    "text": (str, "text"),
    "binary": (_bytes, "bytes in hexadecimal"),
    "bool": (_bool, "true, false, 1 or 0"),
    "datetime": (_datetime, "a moment such as 2008-01-01T22:03:23Z, or unix seconds"),
    "date": (dt.date.fromisoformat, "a day such as 2008-01-01"),
    "uuid": (uuid.UUID, "a UUID"),
}


def _parser_of(type_: ColumnType[Any]) -> tuple[Parse, str]:
    if type_.enum is None:
        return _PARSERS[type_.kind]
    members = {str(member.value): member for member in type_.enum}
    return members.__getitem__, f"one of {', '.join(members)}"


def text_parser(structure: str, column: Column) -> Parse:
    """Make a parser that turns text into a value of the column, or raises `Invalid`.

    An empty text becomes None if the column allows it. The parser checks no limits: the operation does that.
    """
    parse, wanted = _parser_of(column.type)
    nullable = column.nullable

    def parsed(text: str) -> Any:
        if nullable and not text:
            return None
        try:
            return parse(text)
        except (ValueError, LookupError, ArithmeticError):
            raise roost.Invalid(f"{structure}.{column.name}: {_shortened(text)} is not {wanted}") from None

    return parsed


def json_parser(structure: str, column: Column) -> Callable[[Any], Any]:
    """Make a parser that turns a value of a JSON document into one of the column, or raises `Invalid`.

    JSON has no type for times, bytes and UUIDs: they are strings, parsed like text; but an empty string is not null.
    """
    parse, wanted = _parser_of(column.type)
    takes_numbers = column.type.kind in _NUMERIC or _has_numbers(column.type)

    def parsed(value: Any) -> Any:
        if value is None:
            return None
        if type(value) is str or (type(value) is Number and takes_numbers):
            try:
                return parse(value)
            except (ValueError, LookupError, ArithmeticError):
                pass
        elif type(value) is bool and column.type.kind == "bool":
            return value
        raise roost.Invalid(f"{structure}.{column.name}: {_shortened(value)} is not {wanted}")

    return parsed


def _has_numbers(type_: ColumnType[Any]) -> bool:
    return type_.enum is not None and any([type(member.value) is int for member in type_.enum])


def load_json(text: str) -> Any:
    """Parse a JSON document; its numbers become `Number`. ValueError if it is not valid."""
    try:
        return json.loads(text, parse_int=Number, parse_float=Number, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")


def key_from_text(structure: Structure, text: str) -> Any:
    """Parse a key from an argument; for several columns, it has commas or is a JSON list.

    >>> import roost
    >>> from typing import NamedTuple
    >>> Page = NamedTuple("Page", [("site", int), ("path", str)])
    >>> hits = roost.Counter("hits", key=Page)
    >>> key_from_text(hits, "7,/home")
    Page(site=7, path='/home')
    >>> key_from_text(hits, '[7, "/a,b"]')
    Page(site=7, path='/a,b')
    """
    columns = structure.key.columns
    name = structure.name
    if not columns:  # a table of the application, whose column types are unknown; SQLite converts texts to numbers
        parts, _ = _parts(text)
        return text if len(structure.key.names) == 1 else structure.key.value([str(part) for part in parts])
    if len(columns) == 1:
        return text_parser(name, columns[0])(text)
    parts, parser = _parts(text)
    if len(parts) != len(columns):
        names = ", ".join(column.name for column in columns)
        raise roost.Invalid(f"{name}: {text!r} is not a key; it takes {names}, with commas between or as a JSON list")
    return structure.key.value([parser(name, column)(part) for column, part in zip(columns, parts, strict=True)])


def _parts(text: str) -> tuple[Sequence[Any], Callable[[str, Column], Callable[[Any], Any]]]:
    if text.startswith("["):
        try:
            found = load_json(text)
        except ValueError:
            found = None
        if isinstance(found, list):
            return found, json_parser
    try:
        return next(csv.reader([text]), []), text_parser
    except csv.Error:  # the end of a line, outside of quotes
        raise roost.Invalid(f"{_shortened(text)} is not a key: write it as a JSON list") from None


def key_in_words(key: Any) -> str:
    """Return the text from which `key_from_text` makes this key.

    >>> key_in_words("/home"), key_in_words((7, "/a,b"))
    ('/home', '[7, "/a,b"]')
    """
    return json.dumps(plain(key)) if isinstance(key, tuple) else words(key)


def plain(value: Any) -> Any:
    """Convert a value, or values in lists and dicts, to the types of JSON.

    Times become ISO 8601, bytes hexadecimal; a Decimal and a UUID become strings.
    """
    match value:
        case enum.Enum():
            return value.value
        case dt.date():
            return value.isoformat()
        case bytes():
            return value.hex()
        case Decimal():
            return f"{value:f}"
        case uuid.UUID():
            return str(value)
        case tuple() | list():
            return [plain(part) for part in value]
        case dict():
            return {name: plain(part) for name, part in value.items()}
    return value


def words(value: Any) -> str:
    """Format a value for a table: on one line, with control characters escaped."""
    value = plain(value)
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case list():
            return ",".join(map(words, value))
        case str():
            return printable(value)
    return str(value)


def printable(text: str) -> str:
    r"""Return the text with control characters escaped.

    >>> printable("one\ttwo \x1b[31m")
    'one\\ttwo \\x1b[31m'
    """
    if text.isprintable():
        return text
    return "".join([char if char.isprintable() else char.encode("unicode_escape").decode() for char in text])


def _shortened(value: object) -> str:
    shown = str(value) if isinstance(value, Number) else repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def duration(text: str) -> int:
    """Return the number of seconds of an option's value.

    >>> duration("30d")
    2592000
    """
    found = seconds_of(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is no time{_of_what(text)}: {WANTED}")
    return found


def window(text: str) -> str:
    """Return the word for a counter's window, or the number of seconds as text, as definitions store it."""
    found = seconds_of(text)
    if found is None and text not in SECONDS:
        raise click.BadParameter(f"{text!r} is no window{_of_what(text)}: {', '.join(SECONDS)}, or {WANTED}")
    return text if found is None else str(found)


def _of_what(value: str) -> str:
    return f" ({value} of what?)" if value.isdigit() else ""


def offset(text: str) -> int:
    """Return the minutes by which a zone is ahead of UTC.

    >>> offset("-05:30")
    -330
    """
    found = re.fullmatch(r"([+-])(\d\d):([0-5]\d)", text)
    minutes = int(found[2]) * 60 + int(found[3]) if found else FURTHEST + 1
    if found is None or minutes > FURTHEST:
        raise click.BadParameter(f"{text!r} is not a zone: + or -, hours and minutes, such as +01:00")
    return -minutes if found[1] == "-" else minutes
