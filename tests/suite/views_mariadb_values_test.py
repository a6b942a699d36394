"""Views on MariaDB and MySQL: what is written as a value is what Python may write, whatever the client's settings."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from typing import Any

import pytest

from tests.suite.shapes import Egg, Open, Visit, baskets, likes, pageviews, visits
from tests.suite.views import Colour, Everything, Level, ring
from tests.suite.views_values_test import MOMENT, SETTINGS, UUID, set_by_client

pytestmark = pytest.mark.needs("inlets")

ID = uuid.UUID(UUID)

# Column, what a SQL client writes as SQL, what Python reads.
TAKEN: list[tuple[str, str, Any]] = [
    *[("i", given, 7) for given in ("7", "'7'", "7.0", "7e0", "CAST(7 AS UNSIGNED)", "'007'", "3.5 + 3.5")],
    ("i", str(2**63 - 1), 2**63 - 1),
    ("i", str(-(2**63)), -(2**63)),
    *[("f", given, 1.5) for given in ("1.5", "'1.5'", "1.5e0", "'15e-1'", "'.15E1'")],
    ("f", "0.1e0 + 0.2e0", 0.1 + 0.2),
    ("f", "5e-324", 5e-324),
    ("f", "-1.2286330049896492e-185", -1.2286330049896492e-185),
    ("f", "-1.7976931348623157e308", -1.7976931348623157e308),
    ("f", "-0e0", 0.0),
    ("s", "''", ""),
    ("s", "'a  '", "a  "),
    ("s", "'😀éx'", "😀éx"),
    ("s", r"'a\0b'", "a\0b"),
    ("s", "12", "12"),
    ("b", "X'00FF00'", b"\0\xff\0"),
    ("t", "TRUE", True),
    ("t", "'0'", False),
    *[("moment", given, MOMENT) for given in ("'2008-01-01 22:03:23'", "TIMESTAMP'2008-01-01 22:03:23.000000'",
                                              "'2008-01-01T22:03:23.0'")],
    ("moment", "'2008-01-01 22:03:23.000001'", MOMENT.replace(microsecond=1)),
    ("moment", "'0001-01-01 00:00:00'", dt.datetime(1, 1, 1, tzinfo=dt.UTC)),
    ("moment", "'9999-12-31 23:59:59.999999'", dt.datetime.max.replace(tzinfo=dt.UTC)),
    *[("day", given, dt.date(2008, 2, 29)) for given in ("'2008-02-29'", "DATE'2008-02-29'")],
    *[("price", given, Decimal("-123.40")) for given in ("-123.4", "'-123.40'", "'-0123.400'", "-1234e-1")],
    ("price", "0", Decimal("0.00")),
    ("whole", "999", Decimal(999)),
    ("part", "-.01", Decimal("-0.01")),
    *[("ident", given, ID) for given in (f"'{UUID}'", f"'{UUID.upper()}'", f"X'{ID.hex}'")],
    ("colour", "'it''s'", Colour.QUOTED),
    ("level", "-1", Level.LOW),
    ("level", "'2.0'", Level.HIGH),
]  # fmt: skip
REFUSED: list[tuple[str, str]] = [
    *[("i", bad) for bad in ("'1x'", "''", "'one'", "1.5", "'1 '", r"'1\n'", str(2**63), str(-(2**63) - 1), "1e30",
                             "'0x10'", "REPEAT('9', 200)", "'--1'")],
    *[("f", bad) for bad in ("'x'", "''", "'1.5x'", "'1e309'", "'-1e999'", "'inf'", "'nan'", "'.'", r"'1\n'")],
    *[("s", bad) for bad in ("'long'", "'abc '", "REPEAT('é', 4)", "REPEAT('x', 70000)")],
    *[("b", bad) for bad in ("'long'", "X'00000000'")],
    *[("t", bad) for bad in ("2", "-1", "'true'", "''", "0.5", "b'1'")],
    *[("moment", bad) for bad in (
        "'2008-01-01'", "'2008-02-30 00:00:00'", "'2008-01-01 24:00:00'", "'2008-13-01 00:00:00'", "'now'", "''", "0",
        "'0000-00-00 00:00:00'", "'2008-00-01 00:00:00'", "'0000-01-01 00:00:00'", "'2008-01-01 22:03:23.1234567'",
        "'2008-01-01 22:03:60'", "1199224203", "20080101220323", r"'2008-01-01 22:03:23\n'")],
    *[("day", bad) for bad in (
        "'2007-02-29'", "'2008-1-1'", "20080101", "''", "'0000-01-01'", "'2008-01-01 22:03:23'")],
    *[("price", bad) for bad in ("1.505", "1234", "'NaN'", "''", "'.'", "'-'", "'1,00'", "1e30", r"'1\n'")],
    *[("whole", bad) for bad in ("1000", "0.5")],
    *[("part", bad) for bad in ("1", "0.999")],
    *[("ident", bad) for bad in (f"'{UUID[:-1]}'", f"'{{{UUID}}}'", f"'{ID.hex}'", f"'g{UUID[1:]}'", "'x'", "1")],
    *[("colour", bad) for bad in ("'blue'", "'White'", "'white '", "''", "1")],
    *[("level", bad) for bad in ("0", "3", "'x'", "2.5", "1e30")],
]  # fmt: skip


@pytest.fixture(params=SETTINGS)
def settings(request: pytest.FixtureRequest, sql: Any) -> None:
    """A client's own settings."""
    set_by_client(sql, request.param)


def test_a_value_is_stored_as_python_does(open_store: Open, sql: Any, settings: None) -> None:
    store = open_store(ring)
    for column, given, read in TAKEN:
        if "\\" in given and "NO_BACKSLASH" in sql.execute("SELECT @@sql_mode").fetchone()[0]:
            given = "CONCAT('a', CHAR(0), 'b')"
        sql.execute(f"INSERT INTO ring_in (k, {column}) VALUES (1, {given})")
        store.run(ring.push(Everything(2, **{column: read})))
        assert store.run(ring.latest(1, 1)) == [Everything(1, **{column: read})], (column, given)
        stored = f"SELECT HEX({column}), {column} FROM roost_ring_rows WHERE k = ? ORDER BY sequence DESC LIMIT 1"
        assert sql.execute(stored, (1,)).fetchall() == sql.execute(stored, (2,)).fetchall(), (column, given)


@pytest.mark.parametrize("form", ["INSERT", "INSERT IGNORE"])
def test_a_value_that_is_not_declared_is_refused(open_store: Open, sql: Any, settings: None, form: str) -> None:
    store = open_store(ring)
    for column, given in REFUSED:
        with pytest.raises(sql.Error) as error:
            sql.execute(f"{form} INTO ring_in (k, {column}) VALUES (1, {given})")
        number, text = error.value.args
        if number == 1292 and given in ("'1e309'", "'-1e999'"):  # MySQL finds by itself that this is no double
            continue
        assert (number, text.startswith(f"ring.{column}: it takes "), text[-8:]) == (1644, True, " or NULL"), (
            column, given, error.value
        )  # fmt: skip
    assert store.run(ring.keys()) == []


def test_keys_are_compared_byte_for_byte(open_store: Open, sql: Any, settings: None) -> None:
    store = open_store(pageviews, likes)
    keys = ["/Home", "/home", "/home ", "/hömé", "", " ", "😀"]
    for key in keys:
        sql.execute("INSERT INTO pageviews_in VALUES (?, 1), (?, 1)", (key, key))
        sql.execute("INSERT INTO likes_in VALUES (1, ?), (1, ?)", (key, key))
    assert store.run_all(pageviews.totals(keys), likes.members(1)) == (dict.fromkeys(keys, 2), set(keys))
    for key in keys:
        assert sql.execute("SELECT total FROM pageviews WHERE `key` = ?", (key,)).fetchall() == ((2,),)
    sql.execute("INSERT INTO pageviews_out VALUES ('/home')")
    sql.execute("INSERT INTO likes_out VALUES (1, '/home')")
    assert store.run_all(pageviews.total("/home "), pageviews.total("/home"), likes.size(1)) == (2, 0, 6)


def test_a_client_in_another_character_set(open_store: Open, sql: Any) -> None:
    store = open_store(likes, baskets)
    sql.execute("SET NAMES latin1")
    sql.execute("INSERT INTO likes_in VALUES (1, _latin1 X'E9')")
    assert store.run(likes.members(1)) == {"é"}


def test_the_clock_is_utc_whatever_the_client_s_zone(open_store: Open, sql: Any, settings: None) -> None:
    store = open_store(visits, baskets)
    sql.execute("INSERT INTO visits_in VALUES (5, 1)")
    sql.execute("INSERT INTO baskets_in VALUES (5, 1, 'white')")
    store.run_all(visits.push(Visit(5, 2)), baskets.add(Egg(5, 2)))
    for entries in store.run_all(visits.entries(5), baskets.entries(5)):
        by_sql, by_python = entries
        assert abs(by_python.at - by_sql.at) < dt.timedelta(minutes=1)
