"""What a column holds: a value is converted to the form in which the column stores it, exactly or not at all.

Never by a server's lax comparisons. What a column cannot hold is `UNHELD`. From the wire come texts, from Python also
values of the drivers' types. Each database's file says which of its columns holds what.

Bytes that are not UTF-8 are represented in text as lone surrogates (PEP 383).
"""

from __future__ import annotations

import datetime as dt
import math
import re
import struct
import uuid
from collections.abc import Callable
from decimal import Context, Decimal, InvalidOperation
from typing import Any, Final

from roost.types.column_types import INT_MAX, INT_MIN


class Unheld:
    """A value that a column cannot hold."""

    def __repr__(self) -> str:
        return "UNHELD"


UNHELD: Final = Unheld()
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


Held = Callable[[Any], Any]

DIGITS: Final = Context(prec=150_000)  # more than any database has in a number
_EXACT = re.compile(r"[ \t\n\v\f\r]*[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,6})?[ \t\n\v\f\r]*", re.ASCII)
_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})", re.ASCII)
_TIME = re.compile(r"(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,6}))?)?", re.ASCII)
_SPAN = re.compile(r"(-?)(\d{1,3}):(\d{2})(?::(\d{2})(?:\.(\d{1,6}))?)?", re.ASCII)


def exact(value: Any) -> Any:
    """Return a value as a number; a float is converted by its shortest text that gives the same float.

    >>> exact("1.50"), exact(0.1), exact(" -2e2 "), exact("1_0"), exact(b"1")
    (Decimal('1.50'), Decimal('0.1'), Decimal('-2E+2'), UNHELD, UNHELD)
    """
    if isinstance(value, bool):
        return UNHELD
    if isinstance(value, int):
        return Decimal(value)
    if isinstance(value, float):
        value = repr(value)
    if isinstance(value, str):
        if not _EXACT.fullmatch(value):
            return UNHELD
        try:
            value = Decimal(value.strip())
        except InvalidOperation:
            return UNHELD
    return value if isinstance(value, Decimal) and value.is_finite() else UNHELD


def whole_or_exact(value: Any) -> Any:
    """Return a value as a number, as an int if it is whole."""
    found = exact(value)
    if found is UNHELD or abs(found.adjusted()) > 40 or found != found.to_integral_value(context=DIGITS):
        return found
    return int(found)


def integer(low: int, high: int, value: Any) -> Any:
    """Return a whole number within the bounds."""
    if type(value) is not int:
        if type(value) is str and value.isascii() and value.isdigit() and len(value) < 19:
            value = int(value)
        else:
            value = whole_or_exact(value)
            if type(value) is not int:
                return UNHELD
    return value if low <= value <= high else UNHELD


def decimal(precision: int, scale: int, low: int | None, value: Any) -> Any:
    """Return a number of at most `precision` digits, `scale` of them after the decimal point."""
    found = exact(value)
    if found is UNHELD or (low is not None and found < low):
        return UNHELD
    if found == 0:
        return Decimal(0).scaleb(-scale)
    if found.adjusted() >= precision - scale or found.adjusted() < -scale:
        return UNHELD
    made = found.quantize(Decimal(1).scaleb(-scale), context=DIGITS)
    return made if made == found else UNHELD


def any_decimal(value: Any) -> Any:
    """Return a number of any length that databases support."""
    found = exact(value)
    return UNHELD if found is UNHELD or not -16_000 < found.adjusted() < 130_000 else found


def real(value: Any) -> Any:
    """Return the nearest float of 64 bits; a nonzero number too small for one is not held."""
    found = value if type(value) is float else exact(value)
    if found is UNHELD:
        return UNHELD
    made = float(found)
    return made if made - made == 0 and (made or not found) else UNHELD


def single(value: Any) -> Any:
    """Return the nearest float of 32 bits, as `real` does."""
    found = real(value)
    if found is UNHELD:
        return UNHELD
    try:
        (made,) = struct.unpack("f", struct.pack("f", found))
    except OverflowError:
        return UNHELD
    return made if made - made == 0 and (made or not found) else UNHELD


def text(value: Any, fits: Callable[[str], bool]) -> Any:
    """Return a text that fits; a number becomes Python's text of it."""
    if type(value) is bytes:
        value = _made(bytes.decode, value)
    elif type(value) in (int, float, Decimal):
        value = str(value)
    if not isinstance(value, str) or not is_utf8(value):
        return UNHELD
    return value if fits(value) else UNHELD


def binary(most: int | None, padded: bool, value: Any) -> Any:
    """Return bytes; padded for a column of fixed length."""
    if isinstance(value, str):
        value = as_bytes(value)
    if not isinstance(value, bytes) or (most is not None and len(value) > most):
        return UNHELD
    return value.ljust(most, b"\0") if padded and most is not None else value


def date(value: Any) -> Any:
    """Return a day."""
    if isinstance(value, dt.datetime):
        return value.date() if value.timetz() == dt.time() else UNHELD
    if isinstance(value, dt.date):
        return value
    found = _DATE.fullmatch(value) if isinstance(value, str) else None
    return UNHELD if found is None else _made(dt.date, *map(int, found.groups()))


def time(digits: int, value: Any) -> Any:
    """Return a time of day."""
    if isinstance(value, str):
        found = _TIME.fullmatch(value)
        value = UNHELD if found is None else _clock(found)
    return _precise(dt.time, digits, value)


def moment(digits: int, value: Any) -> Any:
    """Return a datetime without a zone."""
    if isinstance(value, str):
        day, sign, clock = value.partition("T" if "T" in value else " ")
        begin, found = date(day), _TIME.fullmatch(clock)
        if begin is UNHELD or (sign and found is None):
            return UNHELD
        hour = _clock(found) if found else dt.time()
        value = UNHELD if hour is UNHELD else dt.datetime.combine(begin, hour)
    elif isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        value = dt.datetime.combine(value, dt.time())
    return _precise(dt.datetime, digits, value)


def zoned(digits: int, value: Any) -> Any:
    """Return a datetime, which must have a zone."""
    if isinstance(value, str):
        value = _made(dt.datetime.fromisoformat, value)
    return _precise(dt.datetime, digits, value, zoned=True)


def span(digits: int, most: dt.timedelta, value: Any) -> Any:
    """Return a duration, as MariaDB's TIME stores it."""
    if isinstance(value, str):
        found = _SPAN.fullmatch(value)
        if found is None or int(found[3]) > 59 or int(found[4] or 0) > 59:
            return UNHELD
        seconds = int(found[2]) * 3600 + int(found[3]) * 60 + int(found[4] or 0)
        made = dt.timedelta(seconds=seconds, microseconds=int((found[5] or "").ljust(6, "0")))
        value = -made if found[1] else made
    if not isinstance(value, dt.timedelta) or abs(value) > most or value.microseconds % 10 ** (6 - digits):
        return UNHELD
    return value


def unique_id(value: Any) -> Any:
    """Return a UUID."""
    if isinstance(value, uuid.UUID):
        return value
    if isinstance(value, bytes):
        return uuid.UUID(bytes=value) if len(value) == 16 else UNHELD
    return _made(uuid.UUID, value) if isinstance(value, str) else UNHELD


def truth(value: Any) -> Any:
    """Return a bool."""
    if isinstance(value, str):
        return {"t": True, "true": True, "1": True, "f": False, "false": False, "0": False}.get(value.lower(), UNHELD)
    return bool(value) if isinstance(value, int) and value in (0, 1) else UNHELD


def never(_: Any) -> Any:
    """Return `UNHELD`, for a type that is not supported."""
    return UNHELD


def _made(kind: Callable[..., Any], *parts: Any) -> Any:
    try:
        return kind(*parts)
    except ValueError:
        return UNHELD


def _clock(found: re.Match[str]) -> Any:
    hour, minute, second, fraction = found.groups()
    return _made(dt.time, int(hour), int(minute), int(second or 0), int((fraction or "").ljust(6, "0")))


def _precise(kind: type[dt.time | dt.datetime], digits: int, value: Any, zoned: bool = False) -> Any:
    if not isinstance(value, kind) or (value.tzinfo is not None) is not zoned:
        return UNHELD
    return UNHELD if value.microsecond % 10 ** (6 - digits) else value
