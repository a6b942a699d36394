"""Views: what SQL clients may write as a value is what Python may, and is stored the same way."""

from __future__ import annotations

import datetime as dt
import sqlite3
import uuid
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import roost
from tests.suite.clients import Client, MariaDBClient, is_mariadb
from tests.suite.engines import Engine
from tests.suite.shapes import Egg, Open, Visit, baskets, likes, pageviews, rows, visits
from tests.suite.views import Colour, Everything, Level, forms, insert, into, remove, ring


@dataclass(frozen=True)
class Text:
    k: int
    s: str


inlets = pytest.mark.needs("inlets")

UUID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
MOMENT = dt.datetime(2008, 1, 1, 22, 3, 23, tzinfo=dt.UTC)

# Column, what a SQL client writes, what Python reads.
TAKEN: list[tuple[str, Any, Any]] = [
    ("i", 2**63 - 1, 2**63 - 1),
    ("i", -(2**63), -(2**63)),
    ("i", "-7", -7),
    ("i", 7.0, 7),
    ("f", "1.5", 1.5),
    ("f", 1.5, 1.5),
    ("f", 2, 2.0),
    ("f", -0.0, 0.0),
    ("f", 1.7976931348623157e308, 1.7976931348623157e308),
    ("s", "", ""),
    ("s", "😀éx", "😀éx"),
    ("b", b"\0\xff\0", b"\0\xff\0"),
    ("t", "1", True),
    ("t", "0", False),
    ("moment", "2008-01-01 22:03:23", MOMENT),
    ("moment", "2008-01-01 22:03:23.000001", MOMENT.replace(microsecond=1)),
    ("moment", "0001-01-01 00:00:00", dt.datetime(1, 1, 1, tzinfo=dt.UTC)),
    ("moment", "9999-12-31 23:59:59.999999", dt.datetime.max.replace(tzinfo=dt.UTC)),
    ("day", "2008-02-29", dt.date(2008, 2, 29)),
    ("price", "-123.40", Decimal("-123.40")),
    ("price", "0.00", Decimal("0.00")),
    ("whole", "999", Decimal(999)),
    ("whole", "0", Decimal(0)),
    ("part", "0.99", Decimal("0.99")),
    ("part", "-0.01", Decimal("-0.01")),
    ("ident", UUID, uuid.UUID(UUID)),
    ("ident", UUID.upper(), uuid.UUID(UUID)),
    ("colour", "it's", Colour.QUOTED),
    ("level", "2", Level.HIGH),
    ("level", 2.0, Level.HIGH),
    ("level", -1, Level.LOW),
]
TAKEN_BY_SQLITE: list[tuple[str, Any, Any]] = [
    ("s", "a\0b", "a\0b"),
    ("t", 0.0, False),
    ("t", 1, True),
    ("t", 0, False),
]
# PostgreSQL makes of what is written what the column's type makes of it, as for any table.
TAKEN_BY_POSTGRESQL: list[tuple[str, Any, Any]] = [
    ("i", 1.5, 2),
    ("s", 5, "5"),
    ("t", True, True),
    ("t", "true", True),
    ("moment", MOMENT, MOMENT),
    ("moment", "2008-01-01T22:03:23Z", MOMENT),
    ("moment", "2008-01-01 23:03:23+01", MOMENT),
    ("moment", dt.datetime(2008, 1, 1, 23, 3, 23, tzinfo=dt.timezone(dt.timedelta(hours=1))), MOMENT),
    ("day", dt.date(2008, 2, 29), dt.date(2008, 2, 29)),
    ("day", "20080229", dt.date(2008, 2, 29)),
    ("price", Decimal("1.5"), Decimal("1.50")),
    ("price", "1.567", Decimal("1.57")),
    ("price", 1, Decimal("1.00")),
    ("ident", uuid.UUID(UUID), uuid.UUID(UUID)),
    ("ident", UUID.replace("-", ""), uuid.UUID(UUID)),
]
REFUSED: list[tuple[str, Any]] = [
    *[("i", bad) for bad in ("1x", "", "one", b"1", 2.0**63, str(2**63))],
    *[("f", bad) for bad in ("x", "", "1.5x", float("inf"), float("-inf"), b"")],
    *[("s", bad) for bad in ("long", b"a", "a\0bc")],
    *[("b", bad) for bad in (b"long", 1)],
    *[("t", bad) for bad in (2, -1, 0.5, b"")],
    *[
        ("moment", bad)
        for bad in (
            *("2008-13-01 00:00:00", "2008-02-30 00:00:00", "2008-01-01 22:60:23", "", "2008-01-01 22:03:23\0"),
            *(1199224203, b"", "0000-01-01 00:00:00"),
        )
    ],
    *[("day", bad) for bad in ("2008-02-30", "", "2008-01-01\0", "0000-01-01", 1)],
    *[
        ("price", bad)
        for bad in ("1234.00", "-1234.00", "1.5e", "NaN", "", "--1.00", "1.-0", "1,00", "1.00\0", "1..0", "-")
    ],
    *[("whole", bad) for bad in ("1000", "", "-")],
    *[("part", bad) for bad in ("1.00",)],
    *[("ident", bad) for bad in (UUID[:-1], f"{UUID}\0", "g" + UUID[1:], b"x" * 16)],
    *[("colour", bad) for bad in ("blue", "White", "", "white ", "white\0", 1)],
    *[("level", bad) for bad in (0, 3, "x")],
]
REFUSED_BY_SQLITE: list[tuple[str, Any]] = [
    *[("i", bad) for bad in (1.5, "0x10")],
    ("b", "abc"),
    ("t", "true"),
    *[
        ("moment", bad)
        for bad in (
            *("2008-01-01", "2008-01-01T22:03:23", "2008-01-01 22:03:23Z", "2008-01-01 22:03", "-001-01-01 00:00:00"),
            *("2008-01-01 24:00:00", "2008-01-01 22:03:60", "now"),
            *("2008-01-01 22:03:23.123", "2008-01-01 22:03:23.1234567"),
        )
    ],
    *[("day", bad) for bad in ("2008-1-1", "today", "20080101")],
    *[("price", bad) for bad in ("1.5", "1", "1.500", "+1.00", "01.00", ".50", "1e2", "-0.00", " 1.00", 1, 1.5)],
    *[("whole", bad) for bad in ("1.", "1.0", "-0", "007")],
    *[("part", bad) for bad in (".99", "-0.00", "0.9", "00.99")],
    *[("ident", bad) for bad in (UUID.replace("-", ""), f"{{{UUID}}}")],
    ("level", 2.5),
]
# What its types would take.
REFUSED_BY_POSTGRESQL: list[tuple[str, Any]] = [
    *[("f", bad) for bad in ("NaN", "Infinity", "-Infinity", float("nan"))],
    *[("moment", bad) for bad in ("infinity", "-infinity", "0044-03-15 00:00:00 BC", "10000-01-01 00:00:00")],
    *[("day", bad) for bad in ("infinity", "0044-03-15 BC", "10000-01-01")],
    *[("price", bad) for bad in (Decimal("NaN"), "nan")],
    *[("s", bad) for bad in ("😀éxx", 12345)],
    ("b", "\\x00112233"),
]
ID = uuid.UUID(UUID)
# The same on MariaDB and MySQL: what a SQL client writes as SQL.
TAKEN_AS_SQL: list[tuple[str, str, Any]] = [
    *[("i", given, 7) for given in ("7", "'7'", "7.0", "7e0", "CAST(7 AS UNSIGNED)", "'007'", "3.5 + 3.5")],
    ("i", str(2**63 - 1), 2**63 - 1),
    ("i", str(-(2**63)), -(2**63)),
    *[("i", given, 10**15) for given in ("1e15", "'1.0e15'")],
    ("i", "-9007199254740993e0", -(2**53)),
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
REFUSED_AS_SQL: list[tuple[str, str]] = [
    *[("i", bad) for bad in ("'1x'", "''", "'one'", "1.5", "'1 '", r"'1\n'", str(2**63), str(-(2**63) - 1), "1e30",
                             "1152921504606846976e0", "'1.5e0'", "'0x10'", "REPEAT('9', 200)", "'--1'")],
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


OURS, ANY = r"ring\.{}: it takes .* or NULL", "."
TAKEN_BY = {"sqlite-file": TAKEN + TAKEN_BY_SQLITE, "postgresql": TAKEN + TAKEN_BY_POSTGRESQL}
REFUSED_BY = {
    "sqlite-file": [(OURS, *each) for each in REFUSED + REFUSED_BY_SQLITE],
    "postgresql": [*[(ANY, *each) for each in REFUSED], *[(OURS, *each) for each in REFUSED_BY_POSTGRESQL]],
}


SETTINGS = {"strict": "STRICT_ALL_TABLES", "lax": "", "ansi": "ANSI,TRADITIONAL,NO_BACKSLASH_ESCAPES"}


def set_by_client(sql: Any, mode: str) -> None:
    """Set what a client of MariaDB's or MySQL's may have."""
    if isinstance(sql, MariaDBClient):
        sql.execute("SET sql_mode = ?", (SETTINGS[mode],))
        if is_mariadb(sql):
            sql.execute("SET default_regex_flags = 'MULTILINE,EXTENDED,DOTALL'")
        sql.execute("SET collation_connection = utf8mb4_unicode_ci, time_zone = '+05:00'")


@pytest.mark.needs("views")
def test_a_value_is_stored_as_python_stores_it(open_store: Open, sql: Client, engine: Engine) -> None:
    store = open_store(ring)
    for column, value, read in TAKEN_BY[engine.name]:
        sql.execute(f"INSERT INTO ring (k, {column}) VALUES (1, ?)", (value,))
        store.run(ring.push(Everything(2, **{column: read})))
        by_sql, by_python = (rows(sql, f"SELECT {sql.as_stored(column)} FROM ring WHERE k = {k}") for k in (1, 2))
        assert (column, value, by_sql) == (column, value, by_python)
        sql.execute(f"UPDATE ring SET {column} = NULL")
        assert store.run_all(ring.latest(1), ring.latest(2)) == ([Everything(1)], [Everything(2)])
        sql.execute(f"UPDATE ring SET {column} = ? WHERE k = 1", (value,))
        assert store.run_all(ring.latest(1), ring.latest(2)) == ([Everything(1, **{column: read})], [Everything(2)])
        sql.execute("DELETE FROM ring")


@pytest.mark.needs("views")
def test_a_value_that_is_not_declared_is_refused(open_store: Open, sql: Client, engine: Engine) -> None:
    store = open_store(ring)
    store.run(ring.push(Everything(1)))
    inserts = [form for form in ("INSERT", "INSERT OR IGNORE") if form in forms(sql)]
    for message, column, value in REFUSED_BY[engine.name]:
        for statement in [
            *[f"{form} INTO ring (k, {column}) VALUES (2, ?)" for form in inserts],
            f"UPDATE ring SET {column} = ?",
        ]:
            with pytest.raises(sql.Error, match=message.format(column)):
                sql.execute(statement, (value,))
        assert (column, value, store.run_all(ring.latest(1), ring.keys())) == (column, value, ([Everything(1)], [1]))


KEYS: list[tuple[Any, Any, Any]] = [
    (uuid.UUID, UUID.upper(), uuid.UUID(UUID)),
    (dt.datetime, "2008-01-01 22:03:23", MOMENT),
    (dt.date, "2008-01-01", dt.date(2008, 1, 1)),
    (roost.decimal(6, 2), "1.50", Decimal("1.5")),
    (bool, "1", True),
    (bytes, b"a\0b", b"a\0b"),
    (str, "it's 😀", "it's 😀"),
    (Colour, "it's", Colour.QUOTED),
    (Level, 2, Level.HIGH),
]


@pytest.mark.needs("readable views")
def test_what_is_left_out_is_null_and_only_optional_columns_take_it(open_store: Open, sql: Any) -> None:
    store = open_store(ring)
    for mode in SETTINGS:
        set_by_client(sql, mode)
        sql.execute(f"INSERT INTO {into(sql, 'ring')} (k) VALUES (1)")
        assert store.run(ring.latest(1)) == [Everything(1)]
        with pytest.raises(sql.Error, match=r"ring\.k: it takes an integer"):
            sql.execute(f"INSERT INTO {into(sql, 'ring')} (i) VALUES (1)")
        with pytest.raises(sql.Error, match=r"ring\.k: it takes an integer"):
            sql.execute(f"INSERT INTO {into(sql, 'ring')} (k) VALUES (1), (NULL)")
        assert store.run(ring.latest(1)) == [Everything(1)]
        store.run(ring.clear(1))


@pytest.mark.needs("readable views")
def test_keys_and_members_meet_those_of_python(open_store: Open, sql: Any) -> None:
    store = open_store()
    declared = [
        (roost.Counter(f"counter{number}", key=kind), roost.Set(f"members{number}", key=kind, member=kind), *values)
        for number, (kind, *values) in enumerate(KEYS)
    ]
    for counter, members, *_ in declared:
        store.create(counter, members)
    for mode, (counter, members, written, read) in product(SETTINGS, declared):
        set_by_client(sql, mode)
        store.run_all(counter.clear(read), members.clear(read))
        store.run_all(counter.add(read), members.add(read, read))
        sql.execute(f"INSERT INTO {into(sql, counter.name)} VALUES (?, 2)", (written,))
        sql.execute(f"INSERT INTO {into(sql, members.name)} VALUES (?, ?)", (written, written))
        found = store.run_all(counter.totals([read]), members.members(read), members.size(read))
        assert found == ({read: 3}, {read}, 1)
        if isinstance(sql, MariaDBClient):
            remove(sql, counter.name, key=written)
            remove(sql, members.name, key=written, member=written)
            assert store.run_all(counter.total(read), members.size(read)) == (0, 0)


@pytest.mark.needs("sqlite3")
def test_a_number_is_no_text(open_store: Open, sql: sqlite3.Connection) -> None:
    store = open_store(ring)
    with pytest.raises(sqlite3.IntegrityError, match=r"ring\.s: it takes a text"):
        sql.execute("INSERT INTO ring (k, s) VALUES (1, 5)")
    sql.execute("INSERT INTO ring (k, price) VALUES (1, '12.34')")
    for change in ("s = 5", "price = price + 0.16", "price = 12.5", "day = 2008", "colour = 1"):
        with pytest.raises(sqlite3.IntegrityError, match="it takes"):
            sql.execute(f"UPDATE ring SET {change}")
    assert store.run(ring.latest(1)) == [Everything(1, price=Decimal("12.34"))]


@pytest.mark.needs("sqlite3")
def test_only_what_an_update_changes_is_judged(open_store: Open, sql: sqlite3.Connection) -> None:
    store = open_store(ring)
    store.run(ring.push(Everything(1, s="é\0é")))  # three characters, which SQLite cannot count
    sql.execute("UPDATE ring SET i = 7")
    assert store.run(ring.latest(1)) == [Everything(1, i=7, s="é\0é")]


def test_a_database_in_utf16(tmp_path: Path) -> None:
    path = tmp_path / "utf16.db"
    sql = sqlite3.connect(path, isolation_level=None)
    sql.executescript("PRAGMA encoding = 'UTF-16le'; CREATE TABLE own (a)")
    with roost.Store(f"sqlite:///{path}") as store:
        store.create(ring)
        insert = "INSERT INTO ring (k, s, moment, price, ident) VALUES (1, 'abc', '2008-01-01 22:03:23', '1.50', ?)"
        sql.execute(insert, (UUID,))
        row = Everything(1, s="abc", moment=MOMENT, price=Decimal("1.50"), ident=uuid.UUID(UUID))
        assert store.run(ring.latest(1)) == [row]
        for bad in ("'abcd', NULL", "'a' || char(0) || 'bc', NULL", "NULL, '2008-01-01 22:03:23' || char(0)"):
            with pytest.raises(sqlite3.IntegrityError):
                sql.execute(f"INSERT INTO ring (k, s, moment) VALUES (1, {bad})")
        texts, data = roost.Cache("texts", value=roost.text(3)), roost.Cache("data", value=roost.binary(5))
        store.create(texts, data)
        store.run_all(texts.set("n", "12"), texts.set("s", "a\0"), data.set("d", b"abc"))
        assert store.run_all(texts.increment("n"), texts.append("n", "é"), texts.get("n")) == (13, True, "13é")
        assert store.run_all(data.append("d", b"\xff"), data.prepend("d", b"\0"), data.get("d"))[2] == b"\0abc\xff"
        for refused in (texts.append("n", "é"), texts.increment("s"), data.append("d", b"d")):
            with pytest.raises(roost.Invalid):
                store.run(refused)
        assert store.check() == []
    sql.close()


# --- on MariaDB and MySQL, whatever the client's settings ------------------------------------------------------------


@inlets
def test_a_value_written_as_sql_is_stored_as_python_stores_it(open_store: Open, sql: Any) -> None:
    store = open_store(ring)
    for mode in SETTINGS:
        set_by_client(sql, mode)
        for column, given, read in TAKEN_AS_SQL:
            if "\\" in given and "NO_BACKSLASH" in sql.execute("SELECT @@sql_mode").fetchone()[0]:
                given = "CONCAT('a', CHAR(0), 'b')"
            sql.execute(f"INSERT INTO ring_in (k, {column}) VALUES (1, {given})")
            store.run(ring.push(Everything(2, **{column: read})))
            assert store.run(ring.latest(1, 1)) == [Everything(1, **{column: read})], (column, given)
            stored = f"SELECT HEX({column}), {column} FROM roost_ring_rows WHERE k = ? ORDER BY sequence DESC LIMIT 1"
            assert sql.execute(stored, (1,)).fetchall() == sql.execute(stored, (2,)).fetchall(), (column, given)


@inlets
def test_a_value_written_as_sql_that_is_not_declared_is_refused(open_store: Open, sql: Any) -> None:
    store = open_store(ring)
    for mode, form in product(SETTINGS, ("INSERT", "INSERT IGNORE")):
        set_by_client(sql, mode)
        for column, given in REFUSED_AS_SQL:
            with pytest.raises(sql.Error) as error:
                sql.execute(f"{form} INTO ring_in (k, {column}) VALUES (1, {given})")
            number, text = error.value.args
            if number == 1292 and given in ("'1e309'", "'-1e999'"):  # MySQL finds by itself that this is no double
                continue
            assert (number, text.startswith(f"ring.{column}: it takes "), text[-8:]) == (1644, True, " or NULL"), (
                column, given, error.value
            )  # fmt: skip
        assert store.run(ring.keys()) == []


@inlets
def test_keys_are_compared_byte_for_byte(open_store: Open, sql: Any) -> None:
    store = open_store(pageviews, likes)
    keys = ["/Home", "/home", "/home ", "/hömé", "", " ", "😀"]
    for mode in SETTINGS:
        set_by_client(sql, mode)
        for key in keys:
            sql.execute("INSERT INTO pageviews_in VALUES (?, 1), (?, 1)", (key, key))
            sql.execute("INSERT INTO likes_in VALUES (1, ?), (1, ?)", (key, key))
        assert store.run_all(pageviews.totals(keys), likes.members(1)) == (dict.fromkeys(keys, 2), set(keys))
        for key in keys:
            assert sql.execute("SELECT total FROM pageviews WHERE `key` = ?", (key,)).fetchall() == ((2,),)
        sql.execute("INSERT INTO pageviews_out VALUES ('/home')")
        sql.execute("INSERT INTO likes_out VALUES (1, '/home')")
        assert store.run_all(pageviews.total("/home "), pageviews.total("/home"), likes.size(1)) == (2, 0, 6)
        store.run_all(likes.clear(1), *[pageviews.clear(key) for key in keys])


@inlets
def test_a_client_in_another_character_set(open_store: Open, sql: Any) -> None:
    store = open_store(likes, baskets)
    sql.execute("SET NAMES latin1")
    sql.execute("INSERT INTO likes_in VALUES (1, _latin1 X'E9')")
    assert store.run(likes.members(1)) == {"é"}


@inlets
def test_the_clock_is_utc_whatever_the_client_s_zone(open_store: Open, sql: Any) -> None:
    store = open_store(visits, baskets)
    for mode in SETTINGS:
        set_by_client(sql, mode)
        sql.execute("INSERT INTO visits_in VALUES (5, 1)")
        sql.execute("INSERT INTO baskets_in VALUES (5, 1, 'white')")
        store.run_all(visits.push(Visit(5, 2)), baskets.add(Egg(5, 2)))
        for entries in store.run_all(visits.entries(5), baskets.entries(5)):
            by_sql, by_python = entries[-2:]
            assert abs(by_python.at - by_sql.at) < dt.timedelta(minutes=1)
        store.run(baskets.clear(5))


# --- names -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Words:
    """Names that SQL has words for, and that triggers and functions use themselves."""

    group: int
    order: int
    select: str | None
    it: int
    last: int
    gone: int
    made: int
    found: int
    new: int
    old: int
    s: int
    Group_: int = 0


class Key(NamedTuple):
    it: int
    had: int
    made: int
    s: int
    r: int


lines = roost.Capped("index", Words, per=("group", "new", "s"), keep=2, unique=("order", "made"))
table = roost.Ring("table", Words, per=("group", "new", "s"), keep=2)
counts = roost.Counter("select", key=Key)
pairs = roost.Set("pairs", key=Key, member=str)


@pytest.mark.needs("readable views")
def test_columns_and_structures_of_any_name(open_store: Open, sql: Any) -> None:
    store, in_place = open_store(lines, table, counts, pairs), not isinstance(sql, MariaDBClient)
    quote = '"' if in_place else "`"
    written = [Words(1, n, "x", 1, 2, 3, 4, 5, 6, 7, 8) for n in range(4)]
    for name in ("index", "table"):
        for row in written:
            insert(sql, name, **asdict(row))
        if in_place:
            sql.execute(f'UPDATE "{name}" SET found = found + 1, gone = 0, "select" = NULL')
        shown = f"SELECT sequence FROM {quote}{name}{quote} WHERE {quote}order{quote} = 2"
        key = {"group": 1, "new": 6, "s": 8}
        remove(
            sql, name, **key, **({"order": 2, "made": 4} if name == "index" else {"sequence": rows(sql, shown)[0][0]})
        )
    left = replace(written[3], gone=0, found=6, select=None) if in_place else written[3]
    assert store.run_all(lines.latest((1, 6, 8)), table.latest((1, 6, 8))) == ([left], [left])
    assert store.run_all(lines.keys(), table.keys()) == ([(1, 6, 8)],) * 2
    insert(sql, "select", it=1, had=2, made=3, s=4, r=5, total=13)
    for _ in range(2):
        insert(sql, "pairs", it=1, had=2, made=3, s=4, r=5, member="a")
    assert store.run_all(counts.total(Key(1, 2, 3, 4, 5)), pairs.size(Key(1, 2, 3, 4, 5))) == (13, 1)
    if in_place:
        sql.execute('UPDATE "select" SET total = total + 1')
        assert store.run(counts.total(Key(1, 2, 3, 4, 5))) == 14
    remove(sql, "select", it=1, had=2, made=3, s=4, r=5)
    remove(sql, "pairs", it=1, had=2, made=3, s=4, r=5, member="a")
    assert store.run_all(counts.total(Key(1, 2, 3, 4, 5)), pairs.size(Key(1, 2, 3, 4, 5))) == (0, 0)
