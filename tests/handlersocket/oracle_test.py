"""The oracle of the differential tests says what the rules say."""

from __future__ import annotations

import pytest

from tests.handlersocket.oracle import Rows
from tests.handlersocket.requests import Request, read
from tests.handlersocket.rules import Opened
from tests.handlersocket.tables import KINDS, Column, Key, Row, Table

INT, TEXT = KINDS[0], KINDS[2]
ID, GROUP, NAME = Column("id", INT, False), Column("g", INT, True), Column("name", TEXT, True, b"new")
DOWN = Key("down", ((GROUP, True), (NAME, False)), False)
TABLE = Table("t", (ID, GROUP, NAME), (Key("PRIMARY", ((ID, False),), True), DOWN))
BY_ID = Opened(TABLE, TABLE.keys[0], (ID,), (GROUP, NAME))
BY_GROUP = Opened(TABLE, DOWN, (ID,), ())
ROWS: list[Row] = [(b"1", b"10", b"a"), (b"2", b"10", b"b"), (b"3", b"20", b"c"), (b"4", None, None)]


def asked(line: bytes) -> Request:
    found = read(line)
    assert isinstance(found, Request)
    return found


@pytest.mark.parametrize(
    ("line", "index", "ids"),
    [
        (b"0\t>=\t1\t2\t9", BY_ID, b"234"),
        (b"0\t<\t1\t3\t9", BY_ID, b"21"),
        (b"0\t=\t1\tabc\t9", BY_ID, b""),
        (b"0\t=\t1\t 1.0 \t9", BY_ID, b"1"),
        (b"0\t>=\t1\t1\t2\t1", BY_ID, b"23"),
        (b"0\t=\t1\t10\t9", BY_GROUP, b"12"),
        (b"0\t>\t1\t20\t9", BY_GROUP, b"124"),  # the directions are those of the index
        (b"0\t<\t1\t\0\t9", BY_GROUP, b"213"),
        (b"0\t=\t1\t\0\t9", BY_GROUP, b"4"),
        (b"0\t=\t1\t\t9\t0\t@\t0\t3\t20\t\0\t10", BY_GROUP, b"3412"),
        (b"0\t>=\t1\t1\t9\t0\tF\t<\t0\t20", BY_ID, b"124"),
        (b"0\t>=\t1\t1\t9\t0\tW\t!=\t1\tc", BY_ID, b"12"),
        (b"0\t>=\t1\t1\t9\t0\tF\t=\t0\tabc", BY_ID, b""),
    ],
)
def test_finds(line: bytes, index: Opened, ids: bytes) -> None:
    found = Rows(TABLE, ROWS).find(asked(line), index)
    assert b"".join(row[0] or b"" for row in found) == ids


@pytest.mark.parametrize(
    ("line", "count", "after"),
    [
        (b"0\t=\t1\t1\t1\t0\tD", 1, ROWS[1:]),
        (b"0\t>=\t1\t2\t9\t0\t+\t100", 3, [ROWS[0], *[(b"10%d" % at, *ROWS[at - 1][1:]) for at in (2, 3, 4)]]),
        (b"0\t=\t1\t1\t1\t0\t-\t2", 0, ROWS),
        (b"0\t=\t1\t1\t1\t0\tU\t 7 ", 1, [(b"7", b"10", b"a"), *ROWS[1:]]),
        (b"0\t=\t1\t1\t1\t0\tU", 1, ROWS),
        (b"0\t=\t1\t\t9\t0\t@\t0\t2\t1\t1\t+\t1", 1, [(b"2", b"10", b"a"), *ROWS[1:]]),
        (b"0\t+\t1\t9", 1, [*ROWS, (b"9", None, b"new")]),
    ],
)
def test_modifications(line: bytes, count: int, after: list[Row]) -> None:
    outcome = Rows(TABLE, ROWS).play(asked(line), BY_ID, b"0\t1\n")
    assert (outcome.count, outcome.rows) == (count, after)


def test_the_number_of_a_new_row_is_the_one_that_was_answered() -> None:
    table = Table("t", (ID, NAME), (Key("PRIMARY", ((ID, False),), True),), automatic=True)
    index = Opened(table, table.keys[0], (NAME,), ())
    assert Rows(table, []).play(asked(b"0\t+\t1\tx"), index, b"0\t1\t41\n").rows == [(b"41", b"x")]
