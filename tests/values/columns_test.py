"""Every type of column: what is accepted and in which neutral form, what is refused and in which words.

Longer than 500 lines: each type of a column is tried at its limits.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import functools
import math
import uuid
from collections import OrderedDict
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Optional

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import roost
from tests.values.shapes import Colour, Level, Mode

INT_MAX, INT_MIN = 2**63 - 1, -(2**63)
UTC = dt.UTC
EAST = dt.timezone(dt.timedelta(hours=5, minutes=30))
WEST = dt.timezone(dt.timedelta(hours=-8))
NAIVE = dt.datetime(2008, 1, 1)
Text3 = Annotated[str, roost.text(3)]
Binary3 = Annotated[bytes, roost.binary(3)]
Price = Annotated[Decimal, roost.decimal(6, 2)]
Whole = Annotated[Decimal, roost.decimal(38, 0)]
Tiny = Annotated[Decimal, roost.decimal(38, 38)]


class Autumn(dt.tzinfo):
    """East of UTC by two hours until 2026-10-25 03:00, by one from then on: the hour before that is there twice."""

    def utcoffset(self, when: dt.datetime | None) -> dt.timedelta:
        assert when is not None
        naive = when.replace(tzinfo=None)
        summer = naive < dt.datetime(2026, 10, 25, 3 - when.fold)
        return dt.timedelta(hours=2 if summer else 1)

    def dst(self, _: dt.datetime | None) -> None:
        return None

    def tzname(self, _: dt.datetime | None) -> str:
        return "autumn"


AUTUMN = Autumn()


class Text(str):
    def __str__(self) -> str:
        return "another"


class Raw(bytes):
    pass


class Number(int):
    pass


class Real(float):
    pass


class Moment(dt.datetime):
    pass


class Day(dt.date):
    pass


class Money(Decimal):
    pass


class Shade(enum.StrEnum):
    DARK = "dark"


class Other(enum.Enum):
    WHITE = "white"


def declare(annotation: Any) -> roost.Ring[Any, Any]:
    """Declare a ring whose rows have one column of this type."""
    row = dataclasses.make_dataclass("Row", [("uid", int), ("v", annotation)])
    return roost.Ring("rows", row, per="uid", keep=1)


declared = functools.cache(declare)


def push(annotation: Any, value: Any) -> roost.Operation[Any]:
    """Return the operation that pushes a row with this one value."""
    ring = declared(annotation)
    return ring.push(ring.rows.type(1, value))


def neutral(annotation: Any, value: Any) -> Any:
    """Return the value as the operation has it."""
    return push(annotation, value).args[0][1]


def refused(annotation: Any, value: Any) -> str:
    """Return the reason for which the value is refused, without the place."""
    with pytest.raises(roost.Invalid) as caught:
        push(annotation, value)
    place, reason = str(caught.value).split(": ", 1)
    assert place == "rows.v"
    return reason


# annotation, value, neutral form
ACCEPTED: list[tuple[Any, Any, Any]] = [
    (int, 0, 0),
    (int, INT_MAX, INT_MAX),
    (int, INT_MIN, INT_MIN),
    (int, Number(5), 5),
    (float, 1.5, 1.5),
    (float, 1, 1.0),
    (float, -(10**300), -1e300),
    (float, Real(0.1), 0.1),
    (float, 5e-324, 5e-324),
    (float, 1.7976931348623157e308, 1.7976931348623157e308),
    (float, -0.0, 0.0),
    (bool, True, True),
    (bool, False, False),
    (str, "", ""),
    (str, "x" * 1_000_000, "x" * 1_000_000),
    (str, "\0 '\"\\%s{rows}\n", "\0 '\"\\%s{rows}\n"),
    (str, Text("itself"), "itself"),
    (str, "e\u0301", "e\u0301"),  # nothing is normalized
    (Text3, "äöü", "äöü"),
    (Text3, "😀😀😀", "😀😀😀"),  # characters, not bytes, and not UTF-16's halves
    (bytes, b"", b""),
    (bytes, b"x" * 1_000_000, b"x" * 1_000_000),
    (bytes, Raw(b"\0\xff"), b"\0\xff"),
    (Binary3, b"\0\0\0", b"\0\0\0"),
    (dt.datetime, dt.datetime(2008, 1, 1, 22, 3, 23, tzinfo=UTC), dt.datetime(2008, 1, 1, 22, 3, 23, tzinfo=UTC)),
    (dt.datetime, dt.datetime(2008, 1, 1, 3, tzinfo=EAST), dt.datetime(2007, 12, 31, 21, 30, tzinfo=UTC)),
    (dt.datetime, dt.datetime(2008, 1, 1, 3, tzinfo=WEST), dt.datetime(2008, 1, 1, 11, tzinfo=UTC)),
    (dt.datetime, dt.datetime(2026, 10, 25, 2, 30, tzinfo=AUTUMN), dt.datetime(2026, 10, 25, 0, 30, tzinfo=UTC)),
    (
        dt.datetime,
        dt.datetime(2026, 10, 25, 2, 30, tzinfo=AUTUMN, fold=1),
        dt.datetime(2026, 10, 25, 1, 30, tzinfo=UTC),
    ),
    (dt.datetime, dt.datetime(1, 1, 1, tzinfo=UTC), dt.datetime(1, 1, 1, tzinfo=UTC)),
    (dt.datetime, dt.datetime(1, 1, 1, 5, 30, tzinfo=EAST), dt.datetime(1, 1, 1, tzinfo=UTC)),
    (dt.datetime, dt.datetime.max.replace(tzinfo=UTC), dt.datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)),
    (
        dt.datetime,
        dt.datetime(9999, 12, 31, 15, 59, 59, 999999, WEST),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
    ),
    (dt.datetime, Moment(2008, 1, 1, tzinfo=UTC), dt.datetime(2008, 1, 1, tzinfo=UTC)),
    (dt.date, dt.date(1, 1, 1), dt.date(1, 1, 1)),
    (dt.date, dt.date(9999, 12, 31), dt.date(9999, 12, 31)),
    (dt.date, Day(2008, 2, 29), dt.date(2008, 2, 29)),
    (Price, Decimal("1.5"), Decimal("1.50")),
    (Price, Decimal("9999.99"), Decimal("9999.99")),
    (Price, Decimal("-9999.99"), Decimal("-9999.99")),
    (Price, Decimal("1.5000000000000000000000000000000000000000000000000000"), Decimal("1.50")),
    (Price, Decimal("0E+1000000"), Decimal("0.00")),
    (Price, Decimal("0E-1000000"), Decimal("0.00")),
    (Price, Decimal("-0"), Decimal("0.00")),
    (Price, Decimal("-0.00"), Decimal("0.00")),
    (Price, Decimal("1E+3"), Decimal("1000.00")),
    (Price, Decimal("1E-2"), Decimal("0.01")),
    (Price, 12, Decimal("12.00")),
    (Price, Money("1.5"), Decimal("1.50")),
    (Whole, Decimal("9" * 38), Decimal("9" * 38)),
    (Tiny, Decimal("0." + "9" * 38), Decimal("0." + "9" * 38)),
    (Tiny, Decimal("-1E-38"), Decimal("-0." + "0" * 37 + "1")),
    (uuid.UUID, uuid.UUID(int=0), uuid.UUID(int=0)),
    (uuid.UUID, uuid.UUID(int=2**128 - 1), uuid.UUID(int=2**128 - 1)),
    (Colour, Colour.BROWN, Colour.BROWN),
    (Level, Level.HIGH, Level.HIGH),
    (Shade, Shade.DARK, Shade.DARK),
    (int | None, None, None),
    (int | None, 5, 5),
    (Optional[str], None, None),  # noqa: UP045
    (Text3 | None, "abc", "abc"),
    (Annotated[str | None, roost.text(3)], None, None),
    (Annotated[str | None, "a remark", roost.text(3)], "abc", "abc"),
    (Colour | None, None, None),
    (roost.text(3), "abc", "abc"),
]


@pytest.mark.parametrize(("annotation", "value", "wanted"), ACCEPTED, ids=lambda value: repr(value)[:40])
def test_a_value_is_kept_in_its_neutral_form(annotation: Any, value: Any, wanted: Any) -> None:
    found = neutral(annotation, value)
    assert found == wanted
    assert type(found) is type(wanted)
    assert repr(found) == repr(wanted)  # also the scale of a Decimal, the sign of a zero, the zone of a datetime
    assert neutral(annotation, found) == found
    assert repr(neutral(annotation, found)) == repr(found)


# annotation, value, what is told beside `rows.v: `
REFUSED: list[tuple[Any, Any, str]] = [
    (int, INT_MAX + 1, f"{INT_MAX + 1} does not fit in 64 bits ({INT_MIN} to {INT_MAX})"),
    (int, INT_MIN - 1, f"{INT_MIN - 1} does not fit in 64 bits ({INT_MIN} to {INT_MAX})"),
    (int, Number(INT_MAX + 1), f"{INT_MAX + 1} does not fit in 64 bits ({INT_MIN} to {INT_MAX})"),
    (int, True, "True is of type bool; it takes int"),
    (int, 1.0, "1.0 is of type float; it takes int"),
    (int, "1", "'1' is of type str; it takes int"),
    (int, Decimal(1), "Decimal('1') is of type Decimal; it takes int"),
    (float, math.nan, "nan is not a finite number"),
    (float, math.inf, "inf is not a finite number"),
    (float, -math.inf, "-inf is not a finite number"),
    (float, True, "True is of type bool; it takes float"),
    (float, "1.5", "'1.5' is of type str; it takes float"),
    (float, Decimal("1.5"), "Decimal('1.5') is of type Decimal; it takes float"),
    (float, Fraction(1, 2), "Fraction(1, 2) is of type Fraction; it takes float"),
    (float, 1j, "1j is of type complex; it takes float"),
    (bool, 1, "1 is of type int; it takes bool"),
    (bool, 0, "0 is of type int; it takes bool"),
    (bool, "true", "'true' is of type str; it takes bool"),
    (str, 5, "5 is of type int; it takes str"),
    (str, b"abc", "b'abc' is of type bytes; it takes str"),
    (str, Shade.DARK, f"{Shade.DARK!r} is of type Shade; it takes str"),
    (str, "\ud800", r"'\ud800' has a lone surrogate at 0"),
    (str, "ab\udfff", r"'ab\udfff' has a lone surrogate at 2"),
    (Text3, "abcd", "'abcd' has 4 characters; the limit is 3"),
    (Text3, "a   ", "'a   ' has 4 characters; the limit is 3"),
    (Text3, "e\u0301e\u0301", "'e\u0301e\u0301' has 4 characters; the limit is 3"),
    (roost.text(3), "abcd", "'abcd' has 4 characters; the limit is 3"),
    (bytes, "abc", "'abc' is of type str; it takes bytes"),
    (bytes, bytearray(b"abc"), "bytearray(b'abc') is of type bytearray; it takes bytes"),
    (Binary3, b"abcd", "b'abcd' has 4 bytes; the limit is 3"),
    (dt.datetime, NAIVE, f"{NAIVE!r} has no time zone; every datetime is kept in UTC"),
    (dt.datetime, dt.date(2008, 1, 1), "datetime.date(2008, 1, 1) is of type date; it takes datetime"),
    (dt.datetime, "2008-01-01", "'2008-01-01' is of type str; it takes datetime"),
    (
        dt.datetime,
        dt.datetime(1, 1, 1, 5, 29, 59, tzinfo=EAST),
        f"{dt.datetime(1, 1, 1, 5, 29, 59, tzinfo=EAST)!r} is outside the years 1 to 9999 in UTC",
    ),
    (
        dt.datetime,
        dt.datetime(9999, 12, 31, 16, tzinfo=WEST),
        f"{dt.datetime(9999, 12, 31, 16, tzinfo=WEST)!r} is outside the years 1 to 9999 in UTC",
    ),
    (dt.date, NAIVE, f"{NAIVE!r} is of type datetime; it takes date"),
    (dt.date, "2008-01-01", "'2008-01-01' is of type str; it takes date"),
    (Price, Decimal("1.505"), "Decimal('1.505') has more than 2 digits after the decimal point"),
    (Price, Decimal("1E-3"), "Decimal('0.001') has more than 2 digits after the decimal point"),
    (Price, Decimal("1E-1000000"), "Decimal('1E-1000000') has more than 2 digits after the decimal point"),
    (Price, Decimal("9999.999"), "Decimal('9999.999') has more than 2 digits after the decimal point"),
    (Price, Decimal("10000"), "Decimal('10000') does not fit in 6 digits, 2 after the decimal point"),
    (Price, Decimal("-1E+4"), "Decimal('-1E+4') does not fit in 6 digits, 2 after the decimal point"),
    (Price, Decimal("1E+1000000"), "Decimal('1E+1000000') does not fit in 6 digits, 2 after the decimal point"),
    (Price, 10_000, "Decimal('10000') does not fit in 6 digits, 2 after the decimal point"),
    (Price, Decimal("NaN"), "Decimal('NaN') is not a finite number"),
    (Price, Decimal("sNaN"), "Decimal('sNaN') is not a finite number"),
    (Price, Decimal("-Infinity"), "Decimal('-Infinity') is not a finite number"),
    (Price, 1.5, "1.5 is of type float; it takes Decimal"),
    (Price, True, "True is of type bool; it takes Decimal"),
    (Price, "1.50", "'1.50' is of type str; it takes Decimal"),
    (Whole, Decimal("1E+38"), "Decimal('1E+38') does not fit in 38 digits, 0 after the decimal point"),
    (Whole, Decimal("0.5"), "Decimal('0.5') has more than 0 digits after the decimal point"),
    (Tiny, Decimal(1), "Decimal('1') does not fit in 38 digits, 38 after the decimal point"),
    (Tiny, Decimal("1E-39"), "Decimal('1E-39') has more than 38 digits after the decimal point"),
    (uuid.UUID, str(uuid.UUID(int=0)), f"{str(uuid.UUID(int=0))!r} is of type str; it takes UUID"),
    (uuid.UUID, b"\0" * 16, f"{bytes(16)!r}"[:57] + "... is of type bytes; it takes UUID"),
    (Colour, "white", "'white' is of type str; it takes Colour"),
    (Colour, Other.WHITE, "<Other.WHITE: 'white'> is of type Other; it takes Colour"),
    (Level, 7, "7 is of type int; it takes Level"),
    (Shade, "dark", "'dark' is of type str; it takes Shade"),
    (int, None, "None is not allowed; it takes int"),
    (Text3, None, "None is not allowed; it takes text(3)"),
    (Price, None, "None is not allowed; it takes decimal(6,2)"),
    (Colour, None, 'None is not allowed; it takes enum("white","brown")'),
    (int | None, "x", "'x' is of type str; it takes int"),
    (str, ["a"], "['a'] is of type list; it takes str"),
    (int, object, "<class 'object'> is of type type; it takes int"),
]  # fmt: skip


@pytest.mark.parametrize(("annotation", "value", "reason"), REFUSED, ids=lambda value: repr(value)[:40])
def test_a_refusal_names_structure_column_value_and_limit(annotation: Any, value: Any, reason: str) -> None:
    assert refused(annotation, value) == reason


def test_a_refused_value_is_shown_in_short() -> None:
    assert refused(Text3, "x" * 10**6) == f"'{'x' * 56}... has 1,000,000 characters; the limit is 3"
    assert refused(str, "x" * 1_000_001) == f"'{'x' * 56}... has 1,000,001 characters; the limit is 1,000,000"
    assert refused(bytes, b"x" * 1_000_001) == f"b'{'x' * 55}... has 1,000,001 bytes; the limit is 1,000,000"
    assert refused(float, 10**400) == f"1{'0' * 56}... does not fit in a float"


def test_a_refusal_is_a_value_error_without_the_inner_one() -> None:
    with pytest.raises(ValueError, match="takes int") as caught:
        push(int, "x")
    assert isinstance(caught.value, roost.Invalid)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    assert not caught.value.retry


# A str or bytes that is part of a key has 255 characters or bytes, unless it says otherwise.
KEY_LIMITS: list[tuple[Any, Any, Any]] = [
    (str, "ä" * 255, "ä" * 256),
    (bytes, b"x" * 255, b"x" * 256),
    (roost.text(300), "x" * 300, "x" * 301),
    (roost.binary(300), b"x" * 300, b"x" * 301),
    (Annotated[str, roost.text(2)], "xx", "xxx"),
]


@pytest.mark.parametrize(("key", "fits", "too_long"), KEY_LIMITS, ids=repr)
def test_a_key_has_its_own_limit(key: Any, fits: Any, too_long: Any) -> None:
    limit = len(fits)
    counter: roost.Counter[Any] = roost.Counter("c", key=key)
    assert counter.total(fits).args == ((fits,),)
    with pytest.raises(roost.Invalid, match=rf"^c\.key: .* has {limit + 1} .*; the limit is {limit}$"):
        counter.total(too_long)
    with pytest.raises(roost.Invalid, match=rf"^c\.key: .* the limit is {limit}$"):
        counter.totals([fits, too_long])
    with pytest.raises(roost.Invalid, match=rf"^c\.key: .* the limit is {limit}$"):
        counter.keys(after=too_long)
    members: roost.Set[int, Any] = roost.Set("s", key=int, member=key)
    with pytest.raises(roost.Invalid, match=rf"^s\.member: .* the limit is {limit}$"):
        members.add(1, fits, too_long)
    row = dataclasses.make_dataclass("Row", [("basket", int), ("egg", key)])
    capped: roost.Capped[Any, int] = roost.Capped("e", row, per="basket", keep=1, unique="egg")
    assert capped.get(1, fits).args == ((1,), (fits,))
    with pytest.raises(roost.Invalid, match=rf"^e\.egg: .* the limit is {limit}$"):
        capped.remove(1, too_long)
    with pytest.raises(roost.Invalid, match=rf"^e\.egg: .* the limit is {limit}$"):
        capped.add(row(1, too_long))


KEYS = [int, str, bytes, bool, dt.date, dt.datetime, uuid.UUID, Colour, Level, roost.decimal(6, 2), roost.text(9)]


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_a_key_is_never_none(key: Any) -> None:
    counter: roost.Counter[Any] = roost.Counter("c", key=key)
    with pytest.raises(roost.Invalid, match=r"^c\.key: None is not allowed; it takes "):
        counter.add(None)


NO_COLUMN: list[tuple[Any, str]] = [
    (list, "list is not a column's type"),
    (list[int], "list is not a column's type"),
    (dict[str, int], "dict is not a column's type"),
    (tuple, "tuple is not a column's type"),
    (object, "object is not a column's type"),
    (complex, "complex is not a column's type"),
    (dt.time, "time is not a column's type"),
    (dt.timedelta, "timedelta is not a column's type"),
    (type(None), "NoneType is not a column's type"),
    (Any, "Any is not a column's type"),
    (OrderedDict, "OrderedDict is not a column's type"),
    ({"site": str}, "{'site': <class 'str'>} is not a column's type"),  # a composite key is a NamedTuple, never a dict
    ([int], "[<class 'int'>] is not a column's type"),
    (roost.text, "text is not a column's type"),
    (5, "5 is not a column's type"),
    (int | str, "one type, or one type and None, not int | str"),
    (int | str | None, "one type, or one type and None, not int | str | None"),
    (Decimal, "a Decimal needs its digits: Annotated[Decimal, roost.decimal(12, 2)]"),
    (Annotated[Decimal, "no digits"], "a Decimal needs its digits"),
    (Annotated[str, roost.binary(3)], "binary(3) is no limit for str"),
    (Annotated[int, roost.text(3)], "text(3) is no limit for int"),
    (Annotated[bytes, roost.decimal(3, 0)], "decimal(3,0) is no limit for bytes"),
    (Annotated[Colour, roost.text(9)], "text(9) is no limit for Colour"),
    (Mode, "an Enum has values that are all int or all str, and is no Flag"),
    (enum.Enum("None_", []), "an Enum has values that are all int or all str"),
    (enum.Enum("Mixed", {"A": 1, "B": "b"}), "an Enum has values that are all int or all str"),
    (enum.Enum("Bools", {"A": True, "B": False}), "an Enum has values that are all int or all str"),
    (enum.Enum("Floats", {"A": 1.5}), "an Enum has values that are all int or all str"),
    (enum.Enum("Tuples", {"A": (1, 2)}), "an Enum has values that are all int or all str"),
    (enum.Enum("Big", {"A": 2**63}), f"{2**63} does not fit in 64 bits"),
    (enum.Enum("Long", {"A": "x" * 256}), "has 256 characters; the limit is 255"),
    (enum.Enum("Broken", {"A": "\ud800"}), "has a lone surrogate at 0"),
]  # fmt: skip


@pytest.mark.parametrize(("annotation", "reason"), NO_COLUMN, ids=lambda value: repr(value).partition(" at 0x")[0][:40])
def test_what_is_no_type_of_a_column_is_told_when_it_is_declared(annotation: Any, reason: str) -> None:
    with pytest.raises(roost.Invalid) as caught:
        roost.Counter("c", key=annotation)
    assert str(caught.value).startswith("c.key: ")
    found = str(caught.value)
    assert reason in found
    with pytest.raises(roost.Invalid) as caught:
        roost.Set("s", key=int, member=annotation)
    assert str(caught.value) == found.replace("c.key", "s.member", 1)
    row = dataclasses.make_dataclass("Row", [("uid", int), ("v", annotation)])
    with pytest.raises(roost.Invalid) as caught:
        roost.Ring("r", row, per="uid", keep=1)
    assert str(caught.value) == found.replace("c.key", "r.v", 1)


def test_a_float_or_none_is_no_key_but_a_value() -> None:
    with pytest.raises(roost.Invalid, match=r"^c\.key: a float is no key, id or member"):
        roost.Counter("c", key=float)
    with pytest.raises(roost.Invalid, match=r"^s\.member: a float is no key, id or member"):
        roost.Set("s", member=float)
    for optional in (Optional[int], int | None, Annotated[str | None, roost.text(3)]):  # noqa: UP045
        annotation: Any = optional
        with pytest.raises(roost.Invalid, match=r"^c\.key: None cannot be a key, an id or a member$"):
            roost.Counter("c", key=annotation)
        with pytest.raises(roost.Invalid, match=r"^s\.member: None cannot be a key, an id or a member$"):
            roost.Set("s", key=int, member=annotation)
    row = dataclasses.make_dataclass("Row", [("uid", int | None), ("v", float | None)])
    with pytest.raises(roost.Invalid, match=r"^r\.uid: None cannot be a key, an id or a member$"):
        roost.Ring("r", row, per="uid", keep=1)
    row = dataclasses.make_dataclass("Row", [("uid", int), ("v", float)])
    with pytest.raises(roost.Invalid, match=r"^e\.v: a float is no key, id or member"):
        roost.Capped("e", row, per="uid", keep=1, unique="v")
    assert roost.Ring("r", row, per="uid", keep=1).columns[1].spec == "float"


# make, what it makes in words, or the reason
LIMITS: list[tuple[Any, str]] = [
    (lambda: roost.text(1), "text(1)"),
    (lambda: roost.text(4_000_000), "text(4000000)"),
    (lambda: roost.binary(255), "binary(255)"),
    (lambda: roost.decimal(1, 0), "decimal(1,0)"),
    (lambda: roost.decimal(38, 38), "decimal(38,38)"),
    (lambda: roost.text(0), "text: the limit is a whole number from 1 to 4,000,000, not 0"),
    (lambda: roost.text(4_000_001), "text: the limit is a whole number from 1 to 4,000,000, not 4000001"),
    (lambda: roost.text(True), "text: the limit is a whole number from 1 to 4,000,000, not True"),
    (lambda: roost.text("9"), "text: the limit is a whole number from 1 to 4,000,000, not '9'"),  # type: ignore[arg-type]
    (lambda: roost.binary(-1), "binary: the limit is a whole number from 1 to 8,000,000, not -1"),
    (lambda: roost.binary(2.0), "binary: the limit is a whole number from 1 to 8,000,000, not 2.0"),  # type: ignore[arg-type]
    (lambda: roost.decimal(0, 0), "decimal: the limit is a whole number from 1 to 38, not 0"),
    (lambda: roost.decimal(39, 0), "decimal: the limit is a whole number from 1 to 38, not 39"),
    (lambda: roost.decimal(6, 7), "decimal: the scale is a whole number from 0 to 6, not 7"),
    (lambda: roost.decimal(6, -1), "decimal: the scale is a whole number from 0 to 6, not -1"),
    (lambda: roost.decimal(6, False), "decimal: the scale is a whole number from 0 to 6, not False"),
]


@pytest.mark.parametrize(("make", "message"), LIMITS, ids=[message for _, message in LIMITS])
def test_the_limits_of_limits(make: Any, message: str) -> None:
    if "not" not in message:
        assert make().spec == message
        return
    with pytest.raises(roost.Invalid) as caught:
        make()
    assert str(caught.value) == message


# A context of the application's own that allows almost nothing must not matter, when declaring or when checking.
FOREIGN = decimal.Context(
    prec=1,
    rounding=decimal.ROUND_UP,
    Emin=-1,
    Emax=1,
    traps=[decimal.Clamped, decimal.Inexact, decimal.Rounded, decimal.Subnormal, decimal.InvalidOperation],
)


@pytest.mark.parametrize("value", ["1234.56", "-0.01", "-0.00", "0E+9", "0E-9", "1E+3", "-0"])
def test_a_foreign_decimal_context_changes_nothing(value: str) -> None:
    wanted = neutral(Price, Decimal(value))
    with decimal.localcontext(FOREIGN) as context:
        ring = declare(Price)
        found = ring.push(ring.rows.type(1, Decimal(value))).args[0][1]
        flags = [flag for flag, raised in context.flags.items() if raised]
    assert repr(found) == repr(wanted)
    assert flags == []
    with decimal.localcontext(FOREIGN):
        assert refused(Price, Decimal("1.505")) == "Decimal('1.505') has more than 2 digits after the decimal point"


@settings(deadline=None)
@given(
    st.integers(1, 38).flatmap(lambda digits: st.tuples(st.just(digits), st.integers(0, digits))),
    st.integers(-(10**38) + 1, 10**38 - 1),
    st.integers(-45, 3),
)
def test_a_decimal_is_kept_exactly_or_refused(limits: tuple[int, int], coefficient: int, exponent: int) -> None:
    digits, scale = limits
    annotation = Annotated[Decimal, roost.decimal(digits, scale)]
    sign, figures = int(coefficient < 0), tuple(map(int, str(abs(coefficient))))
    value = Decimal((sign, figures, exponent))
    exact = Fraction(coefficient) * Fraction(10) ** exponent
    fits = abs(exact) < 10 ** (digits - scale) and (exact * 10**scale).denominator == 1
    if not fits:
        assert "digits" in refused(annotation, value)
        return
    found = neutral(annotation, value)
    assert Fraction(found) == exact
    assert found.as_tuple().exponent == -scale
    assert len(found.as_tuple().digits) <= max(digits, scale + 1)
    assert not (found == 0 and found.is_signed())


@settings(deadline=None)
@given(st.datetimes(timezones=st.sampled_from([UTC, EAST, WEST, AUTUMN])), st.integers(0, 1))
def test_a_datetime_is_the_same_moment_in_utc(value: dt.datetime, fold: int) -> None:
    value = value.replace(fold=fold)
    try:
        wanted = value.astimezone(UTC)
    except OverflowError:
        assert refused(dt.datetime, value).endswith("is outside the years 1 to 9999 in UTC")
        return
    found = neutral(dt.datetime, value)
    assert found == wanted
    assert found.tzinfo is UTC
    assert found.fold == 0


@settings(deadline=None)
@given(st.one_of(st.integers(), st.floats(), st.text(), st.binary(), st.booleans(), st.none(), st.decimals()))
def test_no_value_is_turned_into_another(value: Any) -> None:
    for annotation in (int, float, str, bytes, bool, Price, Text3, Binary3, int | None):
        try:
            found = neutral(annotation, value)
        except roost.Invalid:
            continue
        assert found == value or (annotation is float and found == float(value))
