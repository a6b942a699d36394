"""The types of columns: what a value may be, and how a refusal is worded.

A checked value is *neutral*: the same for every engine (a datetime in UTC, a Decimal of the declared scale, an Enum's
member). How an engine stores it is the dialect's affair.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
import keyword
import math
import re
import types
import typing
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Context, Decimal, InvalidOperation
from typing import Any, Generic, TypeVar

from roost.errors import Invalid

T = TypeVar("T")

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
KEY_LENGTH = 255  # of a str or bytes in a key, an id or a member that names no other limit, on every engine
LENGTH = 1_000_000  # of any other str or bytes: characters or bytes
DIGITS = 38  # of a Decimal: the most that every engine stores exactly
NAME_LENGTH = 40  # leaves room for "roost_" and "_newest" within PostgreSQL's 63 bytes

RESERVED = frozenset(["at", "sequence", "slot"])  # beside a row's own columns in the same table
RESERVED_IN_KEYS = RESERVED | {"n", "total"}  # beside a key's columns in the head, and in a counter

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_STRUCTURE_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
_SPEC = re.compile(r"\s*([a-z]+)\s*(?:\((.*)\))?\s*(\??)\s*\Z", re.DOTALL)


@dataclasses.dataclass(frozen=True, slots=True)
class ColumnType(Generic[T]):
    """The type of one column with its limits; made by `roost.text`, `roost.binary`, `roost.decimal`."""

    kind: str
    limit: int | None = None
    scale: int = 0
    enum: type[enum.Enum] | None = None

    @property
    def spec(self) -> str:
        """The type in words, as the catalog and the command line write it: `text(255)`."""
        match self.kind:
            case "text" | "binary":
                return f"{self.kind}({self.limit})"
            case "decimal":
                return f"decimal({self.limit},{self.scale})"
            case "enum":
                assert self.enum is not None
                return f"enum({','.join(json.dumps(member.value) for member in self.enum)})"
        return self.kind


def text(limit: int) -> ColumnType[str]:
    """Make the type of a str of at most `limit` characters (1 to 1,000,000; 255 is the default of keys).

    >>> import roost
    >>> roost.Counter("pageviews", key=roost.text(5)).add("/about")
    Traceback (most recent call last):
      ...
    roost.errors.Invalid: pageviews.key: '/about' has 6 characters; the limit is 5
    """
    return ColumnType("text", _limit("text", limit, LENGTH))


def binary(limit: int) -> ColumnType[bytes]:
    """Make the type of a bytes of at most `limit` bytes (1 to 1,000,000; 255 is the default of keys)."""
    return ColumnType("binary", _limit("binary", limit, LENGTH))


def decimal(digits: int, scale: int) -> ColumnType[Decimal]:
    """Make the type of a Decimal of `digits` digits (1 to 38), `scale` of them behind the point.

    Nothing is ever rounded: a value with more digits is refused.
    """
    _limit("decimal", digits, DIGITS)
    if type(scale) is not int or not 0 <= scale <= digits:
        raise Invalid(f"decimal: the scale is a whole number from 0 to {digits}, not {scale!r}")
    return ColumnType("decimal", digits, scale)


def _limit(name: str, limit: int, most: int) -> int:
    if type(limit) is not int or not 1 <= limit <= most:
        raise Invalid(f"{name}: the limit is a whole number from 1 to {most:,}, not {limit!r}")
    return limit


_PLAIN: dict[type, str] = {
    int: "int",
    float: "float",
    bool: "bool",
    dt.datetime: "datetime",
    dt.date: "date",
    uuid.UUID: "uuid",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """A named column: of a row, a key, an id or a member."""

    name: str
    type: ColumnType[Any]
    nullable: bool = False

    @property
    def spec(self) -> str:
        """The column's type in words, with a question mark when it may be None."""
        return self.type.spec + "?" * self.nullable

    @property
    def python(self) -> Any:
        """The type that a Python annotation would name."""
        match self.type.kind:
            case "text" | "binary" | "decimal":
                base: Any = {"text": str, "binary": bytes, "decimal": Decimal}[self.type.kind]
                annotation: Any = typing.Annotated[base, self.type]
            case "enum":
                annotation = self.type.enum
            case kind:
                annotation = next(python for python, name in _PLAIN.items() if name == kind)
        return annotation | None if self.nullable else annotation

    def checker(self, structure: str) -> Callable[[Any], Any]:
        """Return the function that checks and copies a value: its neutral form, or `Invalid`."""
        check = _CHECKS[self.type.kind](self.type)
        where = f"{structure}.{self.name}"
        nullable = self.nullable

        def checked(value: Any) -> Any:
            if value is None:
                if nullable:
                    return None
                raise Invalid(f"{where}: None is not allowed; it takes {self.type.spec}")
            try:
                return check(value)
            except _Refused as refused:
                raise Invalid(f"{where}: {refused}") from None

        return checked


class _Refused(Exception):
    """The reason why a value is not allowed."""


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def _wrong(value: object, wanted: str) -> _Refused:
    return _Refused(f"{_shown(value)} is of type {type(value).__name__}; it takes {wanted}")


def _check_int(_: ColumnType[Any]) -> Callable[[Any], int]:
    def check(value: Any) -> int:
        if type(value) is not int:
            if isinstance(value, bool) or not isinstance(value, int):
                raise _wrong(value, "int")
            value = int(value)
        number: int = value
        if INT_MIN <= number <= INT_MAX:
            return number
        raise _Refused(f"{_shown(value)} does not fit in 64 bits ({INT_MIN} to {INT_MAX})")

    return check


def _check_float(_: ColumnType[Any]) -> Callable[[Any], float]:
    def check(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (float, int)):
            raise _wrong(value, "float")
        try:
            number = float(value)
        except OverflowError:
            raise _Refused(f"{_shown(value)} does not fit in a float") from None
        if not math.isfinite(number):
            raise _Refused(f"{number!r} is not a finite number")
        return number + 0.0  # -0.0 is 0.0: not every engine keeps its sign

    return check


def _check_bool(_: ColumnType[Any]) -> Callable[[Any], bool]:
    def check(value: Any) -> bool:
        if type(value) is bool:
            return value
        raise _wrong(value, "bool")

    return check


def _check_text(type_: ColumnType[Any]) -> Callable[[Any], str]:
    limit = type_.limit or LENGTH

    def check(value: Any) -> str:
        if type(value) is not str:
            if isinstance(value, enum.Enum) or not isinstance(value, str):
                raise _wrong(value, "str")
            value = str.__str__(value)
        checked: str = value
        if len(value) > limit:
            raise _Refused(f"{_shown(value)} has {len(value):,} characters; the limit is {limit:,}")
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise _Refused(f"{_shown(value)} has a lone surrogate at {error.start}") from None
        return checked

    return check


def _check_binary(type_: ColumnType[Any]) -> Callable[[Any], bytes]:
    limit = type_.limit or LENGTH

    def check(value: Any) -> bytes:
        if not isinstance(value, bytes):
            raise _wrong(value, "bytes")
        if len(value) > limit:
            raise _Refused(f"{_shown(value)} has {len(value):,} bytes; the limit is {limit:,}")
        return bytes(value)

    return check


def _check_datetime(_: ColumnType[Any]) -> Callable[[Any], dt.datetime]:
    def check(value: Any) -> dt.datetime:
        if not isinstance(value, dt.datetime):
            raise _wrong(value, "datetime")
        if value.utcoffset() is None:
            raise _Refused(f"{value!r} has no time zone; every datetime is kept in UTC")
        try:
            moment = value.astimezone(dt.UTC)
        except OverflowError:
            raise _Refused(f"{value!r} is outside the years 1 to 9999 in UTC") from None
        return dt.datetime.combine(moment.date(), moment.time().replace(fold=0), dt.UTC)

    return check


def _check_date(_: ColumnType[Any]) -> Callable[[Any], dt.date]:
    def check(value: Any) -> dt.date:
        if isinstance(value, dt.datetime) or not isinstance(value, dt.date):
            raise _wrong(value, "date")
        return dt.date(value.year, value.month, value.day)

    return check


def _check_decimal(type_: ColumnType[Any]) -> Callable[[Any], Decimal]:
    digits, scale = type_.limit or DIGITS, type_.scale
    step = Decimal((0, (1,), -scale))

    def check(value: Any) -> Decimal:
        if isinstance(value, bool) or not isinstance(value, (Decimal, int)):
            raise _wrong(value, "Decimal")
        value = Decimal(value)
        if not value.is_finite():
            raise _Refused(f"{value!r} is not a finite number")
        if value and value.adjusted() >= digits - scale:
            raise _Refused(f"{_shown(value)} does not fit in {digits} digits, {scale} behind the point")
        try:
            fixed: Decimal = value.quantize(step, context=_EXACT)
        except InvalidOperation:
            fixed = Decimal("NaN")
        if fixed != value:
            raise _Refused(f"{_shown(value)} has more than {scale} digits behind the point")
        return fixed if fixed else fixed.copy_abs()

    return check


# Room for every digit, whatever the application's own context says.
_EXACT = Context(prec=2 * DIGITS, traps=[InvalidOperation])


def _check_uuid(_: ColumnType[Any]) -> Callable[[Any], uuid.UUID]:
    def check(value: Any) -> uuid.UUID:
        if isinstance(value, uuid.UUID):
            return value
        raise _wrong(value, "UUID")

    return check


def _check_enum(type_: ColumnType[Any]) -> Callable[[Any], enum.Enum]:
    members = type_.enum
    assert members is not None

    def check(value: Any) -> enum.Enum:
        if isinstance(value, members):
            return value
        raise _wrong(value, members.__name__)

    return check


_CHECKS: dict[str, Callable[[ColumnType[Any]], Callable[[Any], Any]]] = {
    "int": _check_int,
    "float": _check_float,
    "bool": _check_bool,
    "text": _check_text,
    "binary": _check_binary,
    "datetime": _check_datetime,
    "date": _check_date,
    "decimal": _check_decimal,
    "uuid": _check_uuid,
    "enum": _check_enum,
}


def structure_name(name: object) -> str:
    """Return the name of a structure, or raise `Invalid`."""
    if not isinstance(name, str) or not _STRUCTURE_NAME.match(name) or len(name) > NAME_LENGTH:
        raise Invalid(
            f"{_shown(name)} is no name for a structure: lower-case letters, digits and _, "
            f"a letter first, at most {NAME_LENGTH} characters"
        )
    if name.startswith("roost_"):
        raise Invalid(f"{name!r} is no name for a structure: roost_ is kept for its private tables")
    return name


def column_name(structure: str, name: str, *, key: bool) -> str:
    """Return the name of a column, or raise `Invalid`."""
    if not _IDENTIFIER.match(name) or len(name) > NAME_LENGTH or keyword.iskeyword(name):
        raise Invalid(
            f"{structure}: {_shown(name)} is no name for a column: ASCII letters, digits and _, no digit first, "
            f"no word of Python's, at most {NAME_LENGTH} characters"
        )
    if name.lower() in (RESERVED_IN_KEYS if key else RESERVED):
        raise Invalid(f"{structure}: a column cannot be called {name!r}, which is a column of Roost's own")
    return name


def column(structure: str, name: str, annotation: Any, *, key: bool) -> Column:
    """Make a column from a Python annotation, or raise `Invalid`; `key` gives str and bytes the key's limit."""
    column_name(structure, name, key=key)
    where = f"{structure}.{name}"
    limits: Sequence[Any] = ()
    if typing.get_origin(annotation) is typing.Annotated:
        annotation, *limits = typing.get_args(annotation)
    nullable = False
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        others = [part for part in typing.get_args(annotation) if part is not types.NoneType]
        nullable = len(others) < len(typing.get_args(annotation))
        if len(others) != 1:
            raise Invalid(f"{where}: one type, or one type and None, not {annotation}")
        annotation = others[0]
        if typing.get_origin(annotation) is typing.Annotated:
            annotation, *limits = typing.get_args(annotation)
    if nullable and key:
        raise Invalid(f"{where}: None cannot be a key, an id or a member")
    declared = annotation if isinstance(annotation, ColumnType) else None
    for limit in limits:
        if isinstance(limit, ColumnType):
            declared = limit
    type_ = declared or _column_type(where, annotation, key)
    if declared and declared is not annotation:
        wanted = _column_type(where, annotation, key, digits=False).kind
        if wanted != declared.kind:
            raise Invalid(f"{where}: {declared.spec} is no limit for {annotation.__name__}")
    if key and type_.kind == "float":
        raise Invalid(f"{where}: a float is no key, id or member, since equal ones may differ; take a Decimal")
    return Column(name, type_, nullable)


def _column_type(where: str, annotation: Any, key: bool, digits: bool = True) -> ColumnType[Any]:
    if isinstance(annotation, type) and annotation in _PLAIN:
        return ColumnType(_PLAIN[annotation])
    if annotation is str:
        return ColumnType("text", KEY_LENGTH if key else LENGTH)
    if annotation is bytes:
        return ColumnType("binary", KEY_LENGTH if key else LENGTH)
    if annotation is Decimal:
        if digits:
            raise Invalid(f"{where}: a Decimal needs its digits: Annotated[Decimal, roost.decimal(12, 2)]")
        return ColumnType("decimal")
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        values = [member.value for member in annotation]
        if issubclass(annotation, enum.Flag) or not values or len({type(value) for value in values}) != 1:
            raise Invalid(f"{where}: an Enum has values that are all int or all str, and is no Flag")
        check = {int: _check_int, str: _check_text}.get(type(values[0]))
        if check is None:
            raise Invalid(f"{where}: an Enum has values that are all int or all str")
        for value in values:
            try:
                check(ColumnType("text", KEY_LENGTH))(value)
            except _Refused as refused:
                raise Invalid(f"{where}: {refused}") from None
        return ColumnType("enum", enum=annotation)
    shown = getattr(annotation, "__name__", annotation)
    raise Invalid(
        f"{where}: {shown} is not a column's type; there are int, float, str, bytes, bool, datetime, date, "
        f"Decimal, UUID, Enum, and X | None"
    )


def columns_of(structure: str, row: Any, keys: Iterable[str]) -> tuple[Column, ...]:
    """Return the columns of a dataclass or a NamedTuple, or raise `Invalid`; `keys` are those of a key or an id."""
    title = row.__name__
    try:
        hints = typing.get_type_hints(row, include_extras=True)
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        raise Invalid(f"{structure}: an annotation of {title} cannot be read: {error}") from None
    if dataclasses.is_dataclass(row):
        fields = dataclasses.fields(row)
        names = [field.name for field in fields if field.init]
        left_out = [field.name for field in fields if not field.init]
        for name, hint in hints.items():
            if hint is dataclasses.InitVar or isinstance(hint, dataclasses.InitVar):
                raise Invalid(f"{structure}: {title}.{name} is an InitVar, so a row that was kept cannot be made again")
        if left_out:
            raise Invalid(f"{structure}: {title}.{left_out[0]} is not set by __init__, so it cannot be kept")
    else:
        names = list(row._fields)
    keys = set(keys)
    columns = tuple(column(structure, name, hints.get(name, Any), key=name in keys) for name in names)
    unique_names(structure, columns)
    return columns


def unique_names(structure: str, columns: Sequence[Column]) -> None:
    """Raise `Invalid` when two columns have the same name for some engine."""
    seen: dict[str, str] = {}
    for each in columns:
        other = seen.get(each.name.lower())
        if other is not None:
            raise Invalid(f"{structure}: {other!r} and {each.name!r} are one column for SQL, which ignores case")
        seen[each.name.lower()] = each.name


def parse_column(structure: str, name: str, spec: str, *, key: bool = False) -> Column:
    """Make a column from its type in words, `text(255)?`, as the catalog and the command line have it.

    >>> parse_column("visits", "note", "text(40)?")
    Column(name='note', type=ColumnType(kind='text', limit=40, scale=0, enum=None), nullable=True)
    """
    found = _SPEC.match(spec)
    if not found:
        raise Invalid(f"{structure}.{name}: {_shown(spec)} is not a type")
    kind, inside, nullable = found.groups()
    kind = {"str": "text", "bytes": "binary"}.get(kind, kind)
    annotation: Any
    try:
        values = json.loads(f"[{inside or ''}]")
    except (ValueError, RecursionError):
        raise Invalid(f"{structure}.{name}: {_shown(spec)} is not a type") from None
    match kind, values:
        case "text" | "binary", [limit]:
            with _at(structure, name):
                annotation = {"text": text, "binary": binary}[kind](limit)
        case "text" | "binary", []:
            annotation = {"text": str, "binary": bytes}[kind]
        case "decimal", [digits, scale]:
            with _at(structure, name):
                annotation = decimal(digits, scale)
        case "enum", [_, *_]:
            with _at(structure, name):
                annotation = _enum_of(name, values)
        case other, [] if other in _PLAIN.values():
            annotation = next(python for python, plain in _PLAIN.items() if plain == other)
        case _:
            raise Invalid(
                f"{structure}.{name}: {_shown(spec)} is not a type; there are int, float, text(n), binary(n), bool, "
                'datetime, date, decimal(digits,scale), uuid and enum("a","b"), each with ? when it may be empty'
            )
    made = column(structure, name, annotation, key=key)
    if nullable and key:
        raise Invalid(f"{structure}.{name}: None cannot be a key, an id or a member")
    return dataclasses.replace(made, nullable=bool(nullable))


@contextmanager
def _at(structure: str, name: str) -> Iterator[None]:
    try:
        yield
    except Invalid as error:
        raise Invalid(f"{structure}.{name}: {error}") from None


def _enum_of(name: str, values: Sequence[Any]) -> type[enum.Enum]:
    # Values that make the same name ("a b", "A-B") are told apart by underscores behind it.
    members: dict[str, Any] = {}
    for value in values:
        if type(value) not in (int, str) or value in members.values():
            raise Invalid(f"an Enum has different values that are all int or all str, not {_shown(value)}")
        member = re.sub(r"\W", "_", str(value)).upper()
        if not member.isidentifier() or member.startswith("_"):
            member = f"VALUE_{member}"
        while member in members:
            member += "_"
        members[member] = value
    make: Any = enum.Enum  # its functional form, with names that are known only now
    made: type[enum.Enum] = make(name, members)
    return made
