"""Every promise broken once by hand, and found by `check`."""

from __future__ import annotations

import contextlib
import datetime as dt
import enum
import shutil
import sqlite3
import uuid
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pytest

import roost
from tests import servers
from tests.suite.shapes import Egg, Make, Visit, baskets, by_hand, likes, pageviews, visits

DAY = dt.timedelta(days=1)
NIL = uuid.UUID(int=0)


class Size(enum.Enum):
    SMALL = "it's small"


class Rank(enum.IntEnum):
    ONE = 1


@dataclass
class Valued:
    k: int
    s: Annotated[str, roost.text(3)] = ""
    b: Annotated[bytes, roost.binary(3)] = b""
    t: bool = True
    f: float = 0.0
    day: dt.date = dt.date(2026, 1, 1)
    moment: dt.datetime = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    price: Annotated[Decimal, roost.decimal(5, 2)] = Decimal(0)
    ident: uuid.UUID = NIL
    size: Size = Size.SMALL
    rank: Rank = Rank.ONE


valued = roost.Ring("valued", Valued, per="k", keep=2)
ALL = (pageviews, visits, baskets, likes, valued)

BROKEN = [
    ("pageviews", "slot", "/home", "UPDATE roost_pageviews_rows SET slot = 5000"),
    ("pageviews", "slot", "/home", "UPDATE roost_pageviews_rows SET slot = -1"),
    ("pageviews", "value", "x" * 256, f"UPDATE roost_pageviews_rows SET key = '{'x' * 256}'"),
    ("visits", "head", 5, "DELETE FROM roost_visits_head"),
    ("visits", "sequence", 5, "UPDATE roost_visits_head SET sequence = sequence - 1"),
    ("visits", "keep", 5, "UPDATE roost_visits_head SET sequence = sequence + 1"),
    ("visits", "slot", 5, "UPDATE roost_visits_rows SET slot = 9 WHERE slot = 3"),
    ("visits", "sequence", 5, "UPDATE roost_visits_rows SET sequence = -5 WHERE slot = 0"),
    ("visits", "at", 5, "UPDATE roost_visits_rows SET at = 'yesterday' WHERE slot = 0"),
    ("baskets", "count", 42, "UPDATE roost_baskets_head SET n = n + 1"),
    ("baskets", "count", 42, "DELETE FROM roost_baskets_rows WHERE egg = 3"),
    ("baskets", "head", 42, "DELETE FROM roost_baskets_head"),
    ("baskets", "sequence", 42, "UPDATE roost_baskets_head SET sequence = 1"),
    ("baskets", "order", 42, "UPDATE roost_baskets_rows SET sequence = 5 WHERE egg = 6"),
    (
        "baskets",
        "keep",
        42,
        "INSERT INTO roost_baskets_rows SELECT 42, egg + 100, colour, 1, at FROM roost_baskets_rows LIMIT 1",
    ),
    ("likes", "count", 7, "UPDATE roost_likes_head SET n = 0"),
    ("likes", "count", 7, "DELETE FROM roost_likes_rows WHERE member = 'ada'"),
    ("likes", "count", 9, "INSERT INTO roost_likes_head VALUES (9, 1)"),
    ("likes", "head", 7, "DELETE FROM roost_likes_head"),
    ("likes", "value", 7, f"UPDATE roost_likes_rows SET member = '{'x' * 256}' WHERE member = 'ada'"),
    ("valued", "value", 1, "UPDATE roost_valued_rows SET s = 'long'"),
    ("valued", "value", 1, "UPDATE roost_valued_rows SET b = x'00000000'"),
    ("valued", "value", 1, "UPDATE roost_valued_rows SET t = 2"),
    ("valued", "value", 1, "UPDATE roost_valued_rows SET f = 9e999"),
    ("valued", "value", 1, "UPDATE roost_valued_rows SET day = '2026-02-30'"),
    ("valued", "value", 1, "UPDATE roost_valued_rows SET moment = '2026-01-01 00:00:00'"),
    ("valued", "value", 1, "UPDATE roost_valued_rows SET price = '1e3'"),
    ("valued", "value", 1, "UPDATE roost_valued_rows SET ident = 'A' || substr(ident, 2)"),
    ("valued", "value", 1, "UPDATE roost_valued_rows SET size = 'large'"),
    ("valued", "value", 1, "UPDATE roost_valued_rows SET rank = 2"),
    ("visits", "catalog", None, "UPDATE roost_catalog SET definition = '{}' WHERE name = 'visits'"),
    ("visits", "catalog", None, "UPDATE roost_catalog SET definition = 'x' WHERE name = 'visits'"),
    ("roost_visits_rows", "catalog", None, "DELETE FROM roost_catalog WHERE name = 'visits'"),
    ("visits", "tables", None, "DROP TABLE roost_visits_head"),
    ("visits", "tables", None, "ALTER TABLE roost_visits_rows ADD COLUMN extra INTEGER"),
    (
        "visits",
        "tables",
        None,
        "DROP VIEW visits; DROP VIEW roost_visits_push; ALTER TABLE roost_visits_rows DROP COLUMN visitor",
    ),
    ("baskets", "tables", None, "DROP INDEX roost_baskets_newest"),
    ("visits", "view", None, "DROP TRIGGER roost_visits_insert"),
    ("visits", "view", None, "DROP VIEW visits"),
    ("likes", "view", None, "DROP VIEW likes; CREATE VIEW likes AS /* a view, made by Roost */ SELECT 1"),
    ("pageviews", "view", None, "DROP TRIGGER roost_pageviews_delete"),
]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file in which every promise is kept."""
    path = tmp_path_factory.mktemp("check") / "filled.db"
    with roost.Store(f"sqlite:///{path}") as store:
        store.create(*ALL)
        store.run_all(
            pageviews.add("/home"),
            *[visits.push(Visit(5, n)) for n in range(7)],
            *[baskets.add(Egg(42, n)) for n in range(13)],
            likes.add(7, "ada", "bob"),
            valued.push(Valued(1)),
        )
        assert store.check() == []
    return path


def broken(filled: Path, sql: str) -> roost.Store:
    """Return a store of a copy to which somebody has done something."""
    copy = shutil.copy(filled, filled.with_name("broken.db"))
    with contextlib.closing(sqlite3.connect(copy)) as connection:
        connection.executescript(sql)
    return roost.Store(f"sqlite:///{copy}")


def test_a_broken_promise_is_found(filled: Path) -> None:
    for structure, rule, key, sql in BROKEN:
        with broken(filled, sql) as store:
            found = store.check()
        assert (structure, rule, key) in [(each.structure, each.rule, each.key) for each in found], sql
        assert str(found[0]).startswith(found[0].structure)


def test_only_the_structures_named_are_checked(filled: Path) -> None:
    with broken(filled, "DELETE FROM roost_likes_head") as store:
        assert store.check(pageviews, visits) == []
        assert [violation.rule for violation in store.check(likes)] == ["head"]
        assert store.check(roost.Counter("nowhere"))[0].rule == "catalog"


def test_composite_keys_are_named_whole(url: str) -> None:
    @dataclass
    class Cell:
        x: int
        y: int

    cells = roost.Ring("cells", Cell, per=("x", "y"), keep=1)
    with roost.Store(url) as store:
        store.create(cells)
        store.run(cells.push(Cell(1, 2)))
        assert store._core._writer.connection is not None
        store._core._writer.connection.raw.execute("DELETE FROM roost_cells_head")
        assert [violation.key for violation in store.check()] == [(1, 2)]


# A row, what breaks it, on every database, and what mends it; the rule that tells of it, and of which key.
ROWS: list[tuple[Any, str, str, str, str]] = [
    (roost.Counter("views", window="day", keep=3).add("a"), "start = start + 1", "start = start - 1", "start", ""),
    (roost.RateLimit("logins", limit=3, within=DAY).take("ada"), "part = 3", "part = 2", "tat", "ada"),
    (roost.Lease("jobs").acquire("daily", "ada", DAY), "token = 0", "token = 1", "token", "daily"),
]


@pytest.mark.needs("second store")
def test_a_row_that_somebody_has_broken_is_found(open_store: Make) -> None:
    store = open_store(*[write.structure for write, *_ in ROWS])
    for write, broken, mended, rule, key in ROWS:
        store.run(write)
        by_hand(store, f"UPDATE roost_{write.structure.name}_rows SET {broken}")
        assert [(each.rule, each.key if key else "") for each in store.check()] == [(rule, key)]
        by_hand(store, f"UPDATE roost_{write.structure.name}_rows SET {mended}")


MYSQL = [
    (
        "ALTER TABLE roost_likes_rows CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
        "by utf8mb4_general_ci",
    ),
    ("ALTER TABLE roost_likes_head ENGINE=MyISAM", "roost_likes_head is stored by MyISAM"),
    ("ALTER TABLE roost_likes_rows DROP PRIMARY KEY", "the primary key of roost_likes_rows is not key, member"),
    (
        "DROP INDEX roost_baskets_newest ON roost_baskets_rows;"
        " CREATE INDEX roost_baskets_newest ON roost_likes_rows (`key`)",
        "there is no index roost_baskets_newest of roost_baskets_rows",
    ),
]
CHANGED: dict[str, list[tuple[str, str]]] = {
    "mariadb": MYSQL,
    "mysql": MYSQL,
    "postgresql": [
        ("ALTER TABLE roost_likes_rows SET UNLOGGED", "roost_likes_rows is not logged"),
        ("ALTER TABLE roost_likes_rows DROP CONSTRAINT roost_likes_rows_pkey", MYSQL[2][1]),
        ("CREATE RULE own AS ON INSERT TO roost_likes_rows DO INSTEAD NOTHING", "roost_likes_rows has the rule own"),
        (
            'DROP VIEW likes; ALTER TABLE roost_likes_rows ALTER COLUMN member TYPE text COLLATE "default"',
            'by "default"',
        ),
        (
            "DROP INDEX roost_baskets_newest; CREATE INDEX roost_baskets_newest ON roost_likes_rows (key)",
            MYSQL[3][1],
        ),
    ],
}


@pytest.mark.parametrize("kind", CHANGED)
def test_a_table_that_was_changed_otherwise_than_roost_makes_it_is_found(kind: str) -> None:
    with servers.own_database(kind) as url, roost.Store(url) as store:
        for sql, message in CHANGED[kind]:
            store.create(baskets, likes)
            assert store.check() == []
            by_hand(store, *sql.split(";"))
            assert [each.detail for each in store.check() if message in each.detail], sql
            store.drop(baskets, likes)


class Said(NamedTuple):
    said: int
    there: int


@pytest.mark.needs("second store")
def test_columns_may_have_any_name(open_store: Make) -> None:
    rooms = roost.Set("rooms", key=Said, member=int)
    store = open_store(rooms)
    store.run(rooms.add(Said(1, 2), 7))
    by_hand(store, "UPDATE roost_rooms_head SET n = 4")
    found = [(each.rule, each.key, each.detail) for each in store.check()]
    assert found == [("count", (1, 2), "the head says 4, there are 1")]
    by_hand(store, "UPDATE roost_rooms_head SET n = 1")


@pytest.mark.parametrize(
    ("kind", "asks", "changed"),
    [
        ("mariadb", "routine_comment", {"slots": 2}),
        ("mysql", "routine_comment", {"slots": 2}),
        ("postgresql", "pg_get_viewdef", {}),
    ],
)
def test_what_another_process_is_just_changing_is_no_violation(kind: str, asks: str, changed: dict[str, Any]) -> None:
    with servers.own_database(kind) as url, roost.Store(url) as other:
        other.create(pageviews)
        left = [1]

        def trace(sql: str, _: object) -> None:
            if asks in sql and left:  # the declaration that is stored has been read
                left.pop()
                other.alter(roost.Counter("pageviews", **changed), view=bool(changed))

        with roost.Store(url, trace=trace) as store:
            assert store.check() == []
            by_hand(other, f"DROP {'PROCEDURE' if changed else 'FUNCTION'} pageviews_increment")
            assert {each.rule for each in store.check()} == {"program"}
