"""Columns, as declared by a row's annotations or by type names on the command line."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
import keyword
import re
import types
import typing
import uuid
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any

from roost.errors import Invalid
from roost.types.column_types import CHECKS, LENGTH, ColumnType, Refused, binary, checker, decimal, fits, shown, text

KEY_LENGTH = 255  # the default limit of a str or bytes in a key, an id or a member, on every engine
NAME_LENGTH = 40  # leaves room for "roost_" and "_newest" within PostgreSQL's 63 bytes

RESERVED = frozenset(["at", "sequence", "slot"])  # Roost's own columns in the table of the rows
RESERVED_IN_KEYS = RESERVED | {"n", "total"}  # Roost's own columns beside a key's: in head tables and counters

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_STRUCTURE_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
_SPEC = re.compile(r"\s*([a-z]+)\s*(?:\((.*)\))?\s*(\??)\s*\Z", re.DOTALL)

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
    """A named column of a row, a key, an id or a member."""

    name: str
    type: ColumnType[Any]
    nullable: bool = False

    @property
    def spec(self) -> str:
        """The column's type as the catalog writes it, with a question mark if None is allowed."""
        return self.type.spec + "?" * self.nullable

    @property
    def python(self) -> Any:
        """The Python type that an annotation would name."""
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
        """Return a function that returns a value's neutral form, or raises `Invalid`."""
        return checker(self.type, f"{structure}.{self.name}", self.nullable)


def checked_columns(
    columns: Sequence[Column], checks: Sequence[Callable[[Any], Any]], rows: Sequence[tuple[Any, ...]]
) -> Sequence[tuple[Any, ...]]:
    """Return the neutral values of many rows, checked column by column; `Invalid` if a value is not allowed."""
    if not rows:
        return ()
    changed = False
    neutral = []
    for column, check, values in zip(columns, checks, zip(*rows, strict=True), strict=True):
        if fits(column.type, values):
            neutral.append(values)
        else:
            neutral.append(tuple(map(check, values)))
            changed = True
    return tuple(zip(*neutral, strict=True)) if changed else rows


def structure_name(name: object) -> str:
    """Return the name of a structure, or raise `Invalid`."""
    if not isinstance(name, str) or not _STRUCTURE_NAME.match(name) or len(name) > NAME_LENGTH:
        raise Invalid(
            f"{shown(name)} cannot name a structure: lower-case letters, digits and _, "
            f"a letter first, at most {NAME_LENGTH} characters"
        )
    if name.startswith("roost_"):
        raise Invalid(f"{name!r} cannot name a structure: roost_ is reserved for its private tables")
    if name.startswith(("sqlite_", "pragma_")):
        raise Invalid(f"{name!r} cannot name a structure: SQLite reserves {name.partition('_')[0]}_")
    return name


def column_name(structure: str, name: str, *, key: bool) -> str:
    """Return the name of a column, or raise `Invalid`."""
    if not _IDENTIFIER.match(name) or len(name) > NAME_LENGTH or keyword.iskeyword(name):
        raise Invalid(
            f"{structure}: {shown(name)} cannot name a column: ASCII letters, digits and _, no digit first, "
            f"not a Python keyword, at most {NAME_LENGTH} characters"
        )
    if name.lower() in (RESERVED_IN_KEYS if key else RESERVED) or name.lower().startswith("roost_"):
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
        types_of_values = {type(value) for value in values}
        kind = {int: "int", str: "text"}.get(types_of_values.pop()) if len(types_of_values) == 1 else None
        if kind is None or issubclass(annotation, enum.Flag):
            raise Invalid(f"{where}: an Enum has values that are all int or all str, and is no Flag")
        for value in values:
            try:
                CHECKS[kind](ColumnType(kind, KEY_LENGTH), value)
            except Refused as refused:
                raise Invalid(f"{where}: {refused}") from None
            if isinstance(value, str) and "\0" in value:
                raise Invalid(f"{where}: {value!r} has a NUL, which no text of SQL can have")
        return ColumnType("enum", enum=annotation)
    shown = getattr(annotation, "__name__", annotation)
    raise Invalid(
        f"{where}: {shown} is not a column's type; there are int, float, str, bytes, bool, datetime, date, "
        f"Decimal, UUID, Enum, and X | None"
    )


def columns_of(structure: str, row: Any, keys: Iterable[str]) -> tuple[Column, ...]:
    """Return the columns of a dataclass or a NamedTuple, or raise `Invalid`; `keys` are the fields of a key or id."""
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
    """Raise `Invalid` if some engine would treat the names of two columns as equal."""
    seen: dict[str, str] = {}
    for each in columns:
        other = seen.get(each.name.lower())
        if other is not None:
            raise Invalid(f"{structure}: {other!r} and {each.name!r} are one column for SQL, which ignores case")
        seen[each.name.lower()] = each.name


def parse_column(structure: str, name: str, spec: str, *, key: bool = False) -> Column:
    """Make a column from a type such as `text(255)?`, as the catalog and the command line write it.

    >>> parse_column("visits", "note", "text(40)?")
    Column(name='note', type=ColumnType(kind='text', limit=40, scale=0, enum=None), nullable=True)
    """
    try:
        annotation, nullable = _annotation(name, spec)
    except Invalid as error:
        raise Invalid(f"{structure}.{name}: {error}") from None
    made = column(structure, name, annotation, key=key)
    if nullable and key:
        raise Invalid(f"{structure}.{name}: None cannot be a key, an id or a member")
    return dataclasses.replace(made, nullable=nullable)


def _annotation(name: str, spec: str) -> tuple[Any, bool]:
    # What an annotation would have, and whether None is allowed.
    found = _SPEC.match(spec)
    if not found:
        raise Invalid(f"{shown(spec)} is not a type")
    kind, inside, nullable = found.groups()
    kind = {"str": "text", "bytes": "binary"}.get(kind, kind)
    try:
        values = json.loads(f"[{inside or ''}]")
    except (ValueError, RecursionError):
        raise Invalid(f"{shown(spec)} is not a type") from None
    annotation: Any
    match kind, values:
        case "text" | "binary", [limit]:
            annotation = {"text": text, "binary": binary}[kind](limit)
        case "text" | "binary", []:
            annotation = {"text": str, "binary": bytes}[kind]
        case "decimal", [digits, scale]:
            annotation = decimal(digits, scale)
        case "enum", [_, *_]:
            annotation = _enum_of(name, values)
        case other, [] if other in _PLAIN.values():
            annotation = next(python for python, plain in _PLAIN.items() if plain == other)
        case _:
            raise Invalid(
                f"{shown(spec)} is not a type; there are int, float, text(n), binary(n), bool, datetime, date, "
                'decimal(digits,scale), uuid and enum("a","b"), each with ? when it may be empty'
            )
    return annotation, bool(nullable)


def _enum_of(name: str, values: Sequence[Any]) -> type[enum.Enum]:
    # Values that lead to the same member name ("a b", "A-B") get underscores appended.
    members: dict[str, Any] = {}
    for value in values:
        if type(value) not in (int, str) or value in members.values():
            raise Invalid(f"an Enum has different values that are all int or all str, not {shown(value)}")
        member = re.sub(r"\W", "_", str(value)).upper()
        if not member.isidentifier() or member.startswith("_"):
            member = f"VALUE_{member}"
        while member in members:
            member += "_"
        members[member] = value
    make: Any = enum.Enum  # the functional API, since the names are known only at run time
    made: type[enum.Enum] = make(name, members)
    return made
