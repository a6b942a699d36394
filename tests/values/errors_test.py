"""What the databases' errors mean: for each number its class and its word, in one table for each database."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import psycopg
import pymysql
import pytest

import roost
from roost.databases.mariadb import errors as mariadb
from roost.databases.postgresql import errors as postgresql
from roost.databases.sqlite.engine import failure

Told = list[tuple[type[roost.Error], str, str]]  # the class, the word, and the numbers that mean it

REFUSED = roost.StatementFailed
MARIADB: Told = [
    (roost.Conflict, "error", "1213 1020 1412 1684 3058 3101 9007 8022 8028"),
    (roost.Busy, "146", "1205 3572 1317"),
    (roost.Busy, "timeout", "1969 3024"),
    (roost.DiskFull, "135", "1021 1114 3 3675"),
    (roost.ReadOnly, "165", "1290 1792 1036 1836"),
    (
        roost.ConnectionLost,
        "unavailable",
        "2002 2003 2006 2013 2055 1927 1053 1040 1047 1153 1158 1159 1160 1161 3032 4031",
    ),
    (roost.CannotOpen, "unavailable", "1044 1045 1049 1129 1130 1203 1226 1698 1820 1862 4151 2005 2026 2059 2061"),
    (REFUSED, "121", "1022 1062 1169 1586 1859"),
    (REFUSED, "151", "1216 1452"),
    (REFUSED, "152", "1217 1451"),
    (REFUSED, "167", "167 1467"),
    (REFUSED, "notnull", "1048 1364"),
    (REFUSED, "check", "1369 3819 4025"),
    (REFUSED, "range", "1264 1690"),
    (REFUSED, "type", "1265 1292 1366 1411 1525"),
    (REFUSED, "toobig", "1071 1118 1170 1406"),
    (REFUSED, "generated", "1906 3105"),
    (REFUSED, "routine", "1305 1318"),
    (REFUSED, "trigger", "1643 1644"),
    (REFUSED, "denied", "1142 1143 1227 1370"),
    (REFUSED, "error", "1064 1146 1419 1665 1999 3000 5000"),
    (roost.DatabaseError, "error", "1023 1030 1034 1194 1712 1877 1932 1 122 2000 2999"),
]
POSTGRESQL: Told = [
    (roost.Conflict, "error", "40001 40P01"),
    (roost.Busy, "146", "55P03"),
    (roost.Busy, "timeout", "57014"),
    (roost.Invalid, "type", "22P05"),
    (roost.Invalid, "value", "2BP01"),
    (roost.DiskFull, "135", "53100"),
    (roost.ReadOnly, "165", "25006"),
    (roost.ConnectionLost, "unavailable", "57P01 57P02 57P03 25P03 25P04 57P05"),
    (roost.CannotOpen, "unavailable", "57000 57P04"),
    (roost.DatabaseError, "error", "08006 25000 28P01 3D000 53200 53300 58030 F0000 XX000 XX001"),
    (REFUSED, "121", "23505 23P01"),
    (REFUSED, "152", "23001"),
    (REFUSED, "foreign", "23503"),
    (REFUSED, "notnull", "23502"),
    (REFUSED, "check", "23514 44000"),
    (REFUSED, "range", "22003"),
    (REFUSED, "toobig", "22001 22026 54000"),
    (REFUSED, "type", "22P02 22007 22008 42804"),
    (REFUSED, "routine", "42883"),
    (REFUSED, "generated", "428C9"),
    (REFUSED, "trigger", "P0001"),
    (REFUSED, "denied", "42501"),
    (REFUSED, "error", "42P01 42601 3F000 P0002 RO001 99999"),
]
SQLITE: Told = [
    (roost.Conflict, "error", "517"),
    (roost.Busy, "146", "5 6 261 262 773"),
    (roost.DiskFull, "135", "13 4874"),
    (roost.ReadOnly, "165", "8 264 1032"),
    (roost.CannotOpen, "unavailable", "11 14 26 526"),
    (REFUSED, "check", "275"),
    (REFUSED, "foreign", "787"),
    (REFUSED, "notnull", "1299"),
    (REFUSED, "121", "1555 2067 2579"),
    (REFUSED, "trigger", "1811"),
    (REFUSED, "type", "20 3091"),
    (REFUSED, "toobig", "18"),
    (REFUSED, "error", "0 1 19 531 1043"),
    (roost.DatabaseError, "error", "2 7 10 266 778"),
]


def of_mariadb(number: str) -> roost.Error:
    return mariadb.translate(pymysql.OperationalError(int(number), "said so"), "place", "SELECT 1")


def of_postgresql(number: str) -> roost.Error:
    class Told(Exception):
        sqlstate = number

    return postgresql.translate(postgresql.as_psycopg(Told("said so")), "place", "SELECT 1")


def of_sqlite(number: str) -> roost.Error:
    return failure(int(number), "said so", "/app.db", "SELECT 1")


@pytest.mark.parametrize(
    ("told", "translated"),
    [(MARIADB, of_mariadb), (POSTGRESQL, of_postgresql), (SQLITE, of_sqlite)],
    ids=["mariadb", "postgresql", "sqlite"],
)
def test_every_number_has_its_class_and_its_word(told: Told, translated: Callable[[str], roost.Error]) -> None:
    wanted = {number: (kind, word) for kind, word, numbers in told for number in numbers.split()}
    found = {number: translated(number) for number in wanted}
    assert {number: (type(error), error.word) for number, error in found.items()} == wanted
    for error in found.values():  # values stay out of the log, where all is retried
        assert (" in SELECT 1" in str(error)) == (type(error) in (REFUSED, roost.DatabaseError)), error


def test_the_tables_have_no_other_numbers() -> None:
    def named(told: Told) -> set[str]:
        return {number for _, _, numbers in told for number in numbers.split()}

    assert {*postgresql.FAILURES} - {
        state[: len(key)] for state in named(POSTGRESQL) for key in postgresql.FAILURES
    } == set()
    broken = {*map(str, range(1023, 1031)), "1035", "1037", "1038", "1041", "1195", "1812"}
    assert {*mariadb.FAILURES} - named(MARIADB) <= broken


SYNTAX = "You have an error in your SQL syntax"


@pytest.mark.parametrize(
    ("number", "message", "sql", "kind"),
    [
        (1146, "Table 'app.roost_visits_rows' doesn't exist", "", roost.Missing),
        (1146, "Table 'app.theirs' doesn't exist", "", REFUSED),
        (1142, "SELECT command denied to user 'a'@'h' for table `app`.`roost_catalog`", "", roost.Missing),
        (1142, "SELECT command denied to user 'a'@'h' for table `app`.`theirs`", "", REFUSED),
        (1044, "Access denied", "CREATE VIEW v AS SELECT 1", REFUSED),
        (1064, "Unknown trigger has an error in its body: 'Query was empty'", "", roost.Conflict),
        (1064, f"Trigger 'x' has an error in its body: '{SYNTAX}'", "", REFUSED),
    ],
)
def test_what_mariadb_says_decides_where_the_number_does_not(
    number: int, message: str, sql: str, kind: type[roost.Error]
) -> None:
    assert type(mariadb.translate(pymysql.ProgrammingError(number, message), "place", sql)) is kind


@pytest.mark.parametrize(
    ("number", "message", "tables"),
    [
        (1064, f"Trigger 'roost_seen_deleted' has an error in its body: '{SYNTAX}'", "roost_seen_rows"),
        (1064, f"Unknown trigger has an error in its body: '{SYNTAX}'", "roost_visits_rows"),
        (1146, "Table 'my-app.h' doesn't exist", "roost_visits_rows"),
        (1146, "Table 'my-app.theirs' doesn't exist", ""),
        (1064, SYNTAX, ""),
    ],
)
def test_a_trigger_that_a_node_of_galera_takes_for_broken_is_known(number: int, message: str, tables: str) -> None:
    call = "CALL roost_visits_add_all_5a71363a('[]')"
    assert mariadb.unparsed(pymysql.ProgrammingError(number, message), call) == tables


@pytest.mark.parametrize(
    ("state", "message", "sql", "kind"),
    [
        ("42P01", 'relation "roost_visits_rows" does not exist', "", roost.Missing),
        ("42P01", 'relation "roost_tenant.theirs" does not exist', "", REFUSED),
        ("42501", "permission denied for table roost_writers", "", roost.Missing),
        ("42501", "permission denied for function visits_add", "", REFUSED),
        ("3F000", "no schema has been selected to create in", "CREATE TABLE t", roost.Invalid),
        ("3F000", 'schema "gone" does not exist', "SELECT 1", REFUSED),
    ],
)
def test_what_postgresql_says_decides_where_the_sqlstate_does_not(
    state: str, message: str, sql: str, kind: type[roost.Error]
) -> None:
    assert postgresql.meaning(state, message, sql).error is kind


def test_what_a_driver_itself_refuses() -> None:
    closed: Any = pymysql.InterfaceError(0, "")
    assert type(mariadb.translate(closed, "place")) is roost.ConnectionLost
    assert type(postgresql.translate(psycopg.DataError("NUL"), "place")) is REFUSED
    assert type(postgresql.translate(psycopg.OperationalError("gone"), "place")) is roost.DatabaseError
    raw = sqlite3.connect(":memory:")
    with pytest.raises(sqlite3.Error) as caught:
        raw.execute("SELECT ?", (object(),))
    raw.close()
    assert type(failure(getattr(caught.value, "sqlite_errorcode", 0), str(caught.value), "f")) is REFUSED


@pytest.mark.parametrize(
    ("message", "kind", "word"),
    [
        ("no such table: roost_visits_rows", roost.Missing, "open_table"),
        ("no such table: theirs", REFUSED, "error"),
        ("table visits has 3 columns but 4 values were supplied", REFUSED, "routine"),
    ],
)
def test_what_sqlite_says_decides_where_the_code_does_not(message: str, kind: type[roost.Error], word: str) -> None:
    found = failure(1, message, "/app.db")
    assert (type(found), found.word) == (kind, word)
