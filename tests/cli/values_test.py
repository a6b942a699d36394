"""Values in words: what each type of column is read from, in a field and in JSON, and how it is written."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from decimal import Decimal
from typing import Any

import pytest

import roost
from roost.cli.values import Number, json_parser, load_json, plain, text_parser, words
from roost.types.column_types import CHECKS
from roost.types.columns import parse_column

UUID = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")
UTC = dt.UTC

GOOD: list[tuple[str, str, Any]] = [
    ("int", "5", 5),
    ("int", " -5 ", -5),
    ("int", "9223372036854775808", 2**63),  # the operation refuses it
    ("float", "1e3", 1000.0),
    ("decimal(12,2)", "12.50", Decimal("12.50")),
    ("decimal(38,18)", "12345678901234567890.123456789012345678", Decimal("12345678901234567890.123456789012345678")),
    ("text(9)", " größe ", " größe "),
    ("text(9)", "", ""),
    ("binary(9)", "00fF", b"\x00\xff"),
    ("binary(9)", r"\x00ff", b"\x00\xff"),  # of PostgreSQL's \copy
    ("binary(9)", "", b""),
    ("bool", "true", True),
    ("bool", "FALSE", False),
    ("bool", "1", True),
    ("bool", "0", False),
    ("bool", "t", True),
    ("bool", "f", False),
    ("datetime", "2008-01-01T22:03:23Z", dt.datetime(2008, 1, 1, 22, 3, 23, tzinfo=UTC)),
    ("datetime", "2008-01-01 23:03:23.5+01:00", dt.datetime(2008, 1, 1, 22, 3, 23, 500000, tzinfo=UTC)),
    ("datetime", "2008-01-01 22:03:23.500000", dt.datetime(2008, 1, 1, 22, 3, 23, 500000, tzinfo=UTC)),  # a view's
    ("datetime", "1120184716", dt.datetime(2005, 7, 1, 2, 25, 16, tzinfo=UTC)),
    ("datetime", "1120184716.25", dt.datetime(2005, 7, 1, 2, 25, 16, 250000, tzinfo=UTC)),
    ("datetime", "253402300799.999999", dt.datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)),
    ("datetime", "-62135596799.999999", dt.datetime(1, 1, 1, 0, 0, 0, 1, UTC)),
    ("datetime", "-1", dt.datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)),
    ("datetime", "20080101", dt.datetime(1970, 8, 21, 9, 48, 21, tzinfo=UTC)),  # seconds, not a day
    ("date", "2008-01-01", dt.date(2008, 1, 1)),
    ("uuid", str(UUID), UUID),
    ("uuid", UUID.hex.upper(), UUID),
]

BAD = [
    ("int", "five", "'five' is not a whole number"),
    ("int", "", "'' is not a whole number"),
    ("int", "5.0", "'5.0' is not a whole number"),
    ("int", "1_000", "'1_000' is not a whole number"),
    ("int", "9" * 5000, "is not a whole number"),
    ("float", "x", "'x' is not a number"),
    ("float", "1_0.5", "'1_0.5' is not a number"),
    ("decimal(12,2)", "1,5", "'1,5' is not a decimal number"),
    ("binary(9)", "0g", "'0g' is not bytes in hexadecimal"),
    ("bool", "yes", "'yes' is not true, false, 1 or 0"),
    ("datetime", "yesterday", "'yesterday' is not a moment such as 2008-01-01T22:03:23Z, or unix seconds"),
    ("datetime", "9" * 400, "is not a moment"),
    ("datetime", "99999999999999", "is not a moment"),
    ("date", "01/02/2008", "'01/02/2008' is not a day such as 2008-01-01"),
    ("uuid", "5", "'5' is not a UUID"),
    ('enum("a","b")', "c", "'c' is not one of a, b"),
    ("enum(1,2)", "3", "'3' is not one of 1, 2"),
]


def kind(spec: str) -> str:
    return spec.partition("(")[0]


def test_every_type_of_column_is_here() -> None:
    assert {kind(spec) for spec, *_ in BAD} | {"text"} == set(CHECKS)


@pytest.mark.parametrize(("spec", "text", "value"), GOOD)
def test_a_field_is_read(spec: str, text: str, value: Any) -> None:
    parsed = text_parser("things", parse_column("things", "it", spec))(text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(("spec", "text", "message"), BAD)
def test_a_field_that_cannot_be_read_is_told(spec: str, text: str, message: str) -> None:
    for parser in (text_parser, json_parser):
        with pytest.raises(roost.Invalid) as caught:
            parser("things", parse_column("things", "it", spec))(text)
        assert str(caught.value).startswith("things.it: ")
        assert message in str(caught.value)
        assert len(str(caught.value)) < 200


@pytest.mark.parametrize("spec", sorted({spec for spec, *_ in GOOD}))
def test_an_empty_field_is_none_where_the_column_may_be_empty(spec: str) -> None:
    column = parse_column("things", "it", f"{spec}?")
    assert text_parser("things", column)("") is None
    assert json_parser("things", column)(None) is None


def test_an_empty_string_of_json_is_no_null() -> None:
    assert json_parser("things", parse_column("things", "it", "text(9)?"))("") == ""
    with pytest.raises(roost.Invalid):
        json_parser("things", parse_column("things", "it", "int?"))("")


def test_an_enum_is_read_by_its_values() -> None:
    words_ = parse_column("things", "it", 'enum("dark blue","red")')
    numbers = parse_column("things", "it", "enum(1,2)")
    assert text_parser("things", words_)("dark blue").value == "dark blue"
    assert json_parser("things", words_)("red").value == "red"
    assert text_parser("things", numbers)("2").value == 2
    assert json_parser("things", numbers)(Number("2")).value == 2


@pytest.mark.parametrize(
    ("spec", "document", "value"),
    [
        ("int", "5", 5),
        ("int", '"5"', 5),
        ("float", "5", 5.0),
        ("float", "1e-3", 0.001),
        (
            "decimal(38,18)",
            "12345678901234567890.123456789012345678",
            Decimal("12345678901234567890.123456789012345678"),
        ),
        ("bool", "true", True),
        ("bool", '"false"', False),
        ("datetime", "1120184716", dt.datetime(2005, 7, 1, 2, 25, 16, tzinfo=UTC)),
        ("text(9)", '"5"', "5"),
        ("text(9)", "null", None),
    ],
)
def test_a_value_of_json_is_read(spec: str, document: str, value: Any) -> None:
    parsed = json_parser("things", parse_column("things", "it", spec))(load_json(document))
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("spec", "document", "message"),
    [
        ("int", "5.5", "5.5 is not a whole number"),
        ("int", "true", "True is not a whole number"),
        ("int", "[5]", "['5'] is not a whole number"),
        ("bool", "1", "1 is not true, false"),
        ("text(9)", "5", "5 is not text"),
        ("text(9)", "{}", "{} is not text"),
        ("date", "20080101", "20080101 is not a day"),
        ('enum("1")', "1", "1 is not one of 1"),
    ],
)
def test_a_value_of_json_of_another_type_is_told(spec: str, document: str, message: str) -> None:
    with pytest.raises(roost.Invalid) as caught:
        json_parser("things", parse_column("things", "it", spec))(load_json(document))
    assert message in str(caught.value)


@pytest.mark.parametrize("document", ["{", "NaN", "-Infinity", "[" * 100_000, ""])
def test_what_is_no_json_is_a_value_error(document: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        load_json(document)


@pytest.mark.parametrize(
    ("value", "written", "shown"),
    [
        (None, None, ""),
        (5, 5, "5"),
        (2**70, 2**70, str(2**70)),
        (0.5, 0.5, "0.5"),
        (True, True, "true"),
        ("a\tb\n", "a\tb\n", "a\\tb\\n"),
        (b"\x00\xff", "00ff", "00ff"),
        (Decimal("1E-7"), "0.0000001", "0.0000001"),
        (dt.date(2008, 1, 1), "2008-01-01", "2008-01-01"),
        (dt.datetime(2008, 1, 1, 22, 3, 23, tzinfo=UTC), "2008-01-01T22:03:23+00:00", "2008-01-01T22:03:23+00:00"),
        (UUID, str(UUID), str(UUID)),
        ((7, "/home"), [7, "/home"], "7,/home"),
    ],
)
def test_a_value_is_written(value: Any, written: Any, shown: str) -> None:
    assert plain(value) == written
    assert json.loads(json.dumps(plain(value))) == written
    assert words(value) == shown


@pytest.mark.parametrize(("spec", "text", "value"), [each for each in GOOD if kind(each[0]) != "text"])
def test_what_is_shown_can_be_read_again(spec: str, text: str, value: Any) -> None:
    parse = text_parser("things", parse_column("things", "it", spec))
    assert parse(words(parse(text))) == value
