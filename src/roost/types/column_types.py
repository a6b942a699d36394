"""The types of columns: which values each allows, and the messages for values that it does not.

A checked value is *neutral*: the same for every engine (a datetime in UTC, a Decimal of the declared scale, an Enum's
member). The dialect decides how an engine stores it.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
import math
import uuid
from collections.abc import Callable, Sequence
from decimal import Context, Decimal, InvalidOperation
from functools import partial
from typing import Any, Generic, TypeVar

from roost.errors import Invalid

T = TypeVar("T")

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
LENGTH = 1_000_000  # characters or bytes: the limit of a str or bytes that is not in a key and declares no limit
# The greatest limits that can be declared. Text: MariaDB's MEDIUMTEXT holds this many characters of 4 bytes. Binary: a
# statement of 16 MiB, the default limit of a server, holds this many bytes in hexadecimal.
MOST_TEXT, MOST_BINARY = 4_000_000, 8_000_000
DIGITS = 38  # of a Decimal: the most that every engine stores exactly


@dataclasses.dataclass(frozen=True, slots=True)
class ColumnType(Generic[T]):
    """The type of one column with its limits; `roost.text`, `roost.binary` and `roost.decimal` return one."""

    kind: str
    limit: int | None = None
    scale: int = 0
    enum: type[enum.Enum] | None = None

    @property
    def members(self) -> list[Any]:
        """What is stored for an Enum's members: whole numbers, or texts."""
        return [member.value for member in self.enum or ()]

    @property
    def numbered(self) -> bool:
        """Whether these are numbers."""
        return isinstance(self.members[0], int)

    @property
    def spec(self) -> str:
        """The type as the catalog and the command line write it: `text(255)`."""
        match self.kind:
            case "text" | "binary":
                return f"{self.kind}({self.limit})"
            case "decimal":
                return f"decimal({self.limit},{self.scale})"
            case "enum":
                return f"enum({','.join(map(json.dumps, self.members))})"
        return self.kind


def text(limit: int) -> ColumnType[str]:
    """Make the type of a str of at most `limit` characters (1 to 4,000,000; 255 is the default of keys).

    >>> import roost
    >>> roost.Counter("pageviews", key=roost.text(5)).add("/about")
    Traceback (most recent call last):
      ...
    roost.errors.Invalid: pageviews.key: '/about' has 6 characters; the limit is 5
    """
    return ColumnType("text", _limit("text", limit, MOST_TEXT))


def binary(limit: int) -> ColumnType[bytes]:
    """Make the type of a bytes value of at most `limit` bytes (1 to 8,000,000; 255 is the default of keys)."""
    return ColumnType("binary", _limit("binary", limit, MOST_BINARY))


def decimal(digits: int, scale: int) -> ColumnType[Decimal]:
    """Make the type of a Decimal of `digits` digits (1 to 38), `scale` of them after the decimal point.

    Nothing is ever rounded: a value with more digits is refused.
    """
    digits = _limit("decimal", digits, DIGITS)
    what = f"decimal: the scale is a whole number from 0 to {digits}"
    return ColumnType("decimal", digits, checked_whole(what, scale, 0, digits))


def _limit(name: str, limit: int, most: int) -> int:
    return checked_whole(f"{name}: the limit is a whole number from 1 to {most:,}", limit, 1, most)


def whole(value: Any, least: int, most: int) -> int | None:
    """Return the value as a plain int if it is a whole number from `least` to `most`; else None.

    A subclass of int (an IntEnum's member) is converted to int. A bool is rejected: it is probably a mistake.
    """
    if type(value) is not int:
        if isinstance(value, bool) or not isinstance(value, int):
            return None
        value = int(value)
    return value if least <= value <= most else None


def checked_whole(what: str, value: Any, least: int, most: int) -> int:
    """Return a value that is a whole number in these limits, or raise `Invalid`, which begins with `what`."""
    found = whole(value, least, most)
    if found is None:
        raise Invalid(f"{what}, not {shown(value)}")
    return found


# The types of the values of these kinds in their neutral form; others may have to be changed.
NEUTRAL: dict[str, type] = {"int": int, "text": str, "binary": bytes, "bool": bool, "date": dt.date}


def fits(type_: ColumnType[Any], values: Sequence[Any]) -> bool:
    """Whether a whole column (not empty) is known to be neutral already; if not, each value is checked by itself."""
    if {*map(type, values)} != {type_.enum or NEUTRAL.get(type_.kind)}:
        return False
    match type_.kind:
        case "int":
            return bool(min(values) >= INT_MIN and max(values) <= INT_MAX)
        case "text":
            return max(map(len, values)) <= (type_.limit or LENGTH) and all(map(str.isascii, values))
        case "binary":
            return max(map(len, values)) <= (type_.limit or LENGTH)
    return True


class Refused(Exception):
    """The reason why a value is not allowed."""


def shown(value: object) -> str:
    """Return a value as messages show it: its repr, shortened if it is long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _wrong(value: object, wanted: str) -> Refused:
    return Refused(f"{shown(value)} is of type {type(value).__name__}; it takes {wanted}")


def _check_int(_: ColumnType[Any], value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(value, "int")
    number = whole(value, INT_MIN, INT_MAX)
    if number is None:
        raise Refused(f"{shown(value)} does not fit in 64 bits ({INT_MIN} to {INT_MAX})")
    return number


def _check_float(_: ColumnType[Any], value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (float, int)):
        raise _wrong(value, "float")
    try:
        number = float(value)
    except OverflowError:
        raise Refused(f"{shown(value)} does not fit in a float") from None
    if not math.isfinite(number):
        raise Refused(f"{number!r} is not a finite number")
    return number + 0.0  # -0.0 is 0.0: not every engine keeps its sign


def _check_text(type_: ColumnType[Any], value: Any) -> str:
    limit = type_.limit or LENGTH
    if type(value) is not str:
        if isinstance(value, enum.Enum) or not isinstance(value, str):
            raise _wrong(value, "str")
        value = str.__str__(value)
    checked: str = value
    if len(value) > limit:
        raise Refused(f"{shown(value)} has {len(value):,} characters; the limit is {limit:,}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise Refused(f"{shown(value)} has a lone surrogate at {error.start}") from None
    return checked


def _check_binary(type_: ColumnType[Any], value: Any) -> bytes:
    limit = type_.limit or LENGTH
    if not isinstance(value, bytes):
        raise _wrong(value, "bytes")
    if len(value) > limit:
        raise Refused(f"{shown(value)} has {len(value):,} bytes; the limit is {limit:,}")
    return bytes(value)


def _check_datetime(_: ColumnType[Any], value: Any) -> dt.datetime:
    if not isinstance(value, dt.datetime):
        raise _wrong(value, "datetime")
    if value.utcoffset() is None:
        raise Refused(f"{value!r} has no time zone; every datetime is kept in UTC")
    try:
        moment = value.astimezone(dt.UTC)
    except OverflowError:
        raise Refused(f"{value!r} is outside the years 1 to 9999 in UTC") from None
    return dt.datetime.combine(moment.date(), moment.time().replace(fold=0), dt.UTC)


def _check_date(_: ColumnType[Any], value: Any) -> dt.date:
    if isinstance(value, dt.datetime) or not isinstance(value, dt.date):
        raise _wrong(value, "date")
    return dt.date(value.year, value.month, value.day)


# Precise enough for every digit, whatever the application's own decimal context is.
_EXACT = Context(prec=2 * DIGITS, traps=[InvalidOperation])


def _check_decimal(type_: ColumnType[Any], value: Any) -> Decimal:
    digits, scale = type_.limit or DIGITS, type_.scale
    if isinstance(value, bool) or not isinstance(value, (Decimal, int)):
        raise _wrong(value, "Decimal")
    value = Decimal(value)
    if not value.is_finite():
        raise Refused(f"{value!r} is not a finite number")
    if value and value.adjusted() >= digits - scale:
        raise Refused(f"{shown(value)} does not fit in {digits} digits, {scale} after the decimal point")
    try:
        fixed: Decimal = value.quantize(Decimal((0, (1,), -scale)), context=_EXACT)
    except InvalidOperation:
        fixed = Decimal("NaN")
    if fixed != value:
        raise Refused(f"{shown(value)} has more than {scale} digits after the decimal point")
    return fixed if fixed else fixed.copy_abs()


def _check_instance(type_: ColumnType[Any], value: Any) -> Any:
    wanted: type = type_.enum or {"bool": bool, "uuid": uuid.UUID}[type_.kind]
    if isinstance(value, wanted):
        return value
    raise _wrong(value, wanted.__name__)


# By kind: what returns a value's neutral form, or raises `Refused`.
CHECKS: dict[str, Callable[[ColumnType[Any], Any], Any]] = {
    "int": _check_int,
    "float": _check_float,
    "bool": _check_instance,
    "text": _check_text,
    "binary": _check_binary,
    "datetime": _check_datetime,
    "date": _check_date,
    "decimal": _check_decimal,
    "uuid": _check_instance,
    "enum": _check_instance,
}


def checker(type_: ColumnType[Any], where: str, nullable: bool = False) -> Callable[[Any], Any]:
    """Return a function that returns a value's neutral form, or raises `Invalid` with the name `where`."""
    check = partial(CHECKS[type_.kind], type_)
    limit = type_.limit or LENGTH

    def checked(value: Any) -> Any:
        if value is None:
            if nullable:
                return None
            raise Invalid(f"{where}: None is not allowed; it takes {type_.spec}")
        try:
            return check(value)
        except Refused as refused:
            raise Invalid(f"{where}: {refused}") from None

    # The common case, non-null columns: one call per value instead of two.
    def checked_int(value: Any) -> Any:
        return value if type(value) is int and INT_MIN <= value <= INT_MAX else checked(value)

    def checked_text(value: Any) -> Any:
        return value if type(value) is str and len(value) <= limit and value.isascii() else checked(value)

    return {"int": checked_int, "text": checked_text}.get(type_.kind, checked)
