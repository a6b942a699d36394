"""On SQLite every read walks an index that has the order already: nothing is sorted, nothing is scanned for a key."""

from __future__ import annotations

import contextlib
import datetime as dt
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import roost
from roost.databases.sqlite.engine import text_of
from roost.dialects import SQLITE, Gather, Statement, render
from roost.dialects.dialect import Template
from roost.structures.plan import Context
from roost.structures.registry import plan_for
from roost.structures.structure import Structure
from tests.values.shapes import (
    Colour,
    Place,
    Points,
    Visit,
    baskets,
    hourly,
    likes,
    named,
    pageviews,
    places,
    ranking,
    seen,
    sightings,
    tags,
    visits,
)

wide = roost.Ring("wide", Visit, per="uid", keep=1000)
STRUCTURES: list[Structure] = [pageviews, places, visits, wide, seen, baskets, sightings, likes, tags, ranking, hourly]
KEYS, EACH = 200, 12
NOW = dt.datetime(2008, 1, 1, tzinfo=dt.UTC)


@pytest.fixture(scope="module", params=["empty", "full", "analyzed"])
def database(request: pytest.FixtureRequest) -> Iterator[sqlite3.Connection]:
    """Make the tables, empty, full, or full and with the statistics that ANALYZE leaves behind."""
    connection = sqlite3.connect(":memory:")
    for structure in STRUCTURES:
        plan = plan_for(structure, SQLITE)
        for sql in plan.tables:
            connection.execute(sql)
        if request.param == "empty":
            continue
        for table, columns in plan.layout.items():
            holes = ", ".join("?" * len(columns))
            per_key = 1 if table.endswith("_head") else EACH
            width = len(structure.key.columns)
            rows = [
                tuple(value(column, key if place < width else j) for place, column in enumerate(columns))
                for key in range(KEYS)
                for j in range(per_key)
            ]
            connection.executemany(f"INSERT OR IGNORE INTO {table} VALUES ({holes})", rows)
    if request.param == "analyzed":
        connection.execute("ANALYZE")
    yield connection
    connection.close()


def value(column: Any, number: int) -> Any:
    return number if column.type.kind == "int" else f"{number:03}"


def explained(connection: sqlite3.Connection, template: Template, *row: Any) -> list[str]:
    """Return what SQLite says of its plan, without the words around subqueries."""
    ((sql, params),) = render(Statement(template, [row]))
    found = [line[3] for line in connection.execute(f"EXPLAIN QUERY PLAN {sql}", params)]
    return [line for line in found if line.startswith(("SEARCH", "SCAN", "USE")) and "subquery" not in line]


def reads(operation: roost.Operation[Any]) -> tuple[Template, Any]:
    """Return the first statement of an operation, with its row."""
    assert isinstance(operation.structure, roost.Structure)
    plan = plan_for(operation.structure, SQLITE)
    work = plan.run([operation], Context(lambda: NOW))
    statement = next(work)
    work.close()
    assert isinstance(statement, Statement)
    (row,) = statement.rows
    return statement.template, row


PK = "USING PRIMARY KEY"
# operation, what SQLite does for it
READS: list[tuple[roost.Operation[Any], list[str]]] = [
    (pageviews.total("/a"), [f"SEARCH roost_pageviews_rows {PK} (key=?)"]),
    (places.totals([Place("a", 1)]), [f"SEARCH roost_places_rows {PK} (site=? AND page=?)"]),
    (pageviews.keys(), ["SCAN roost_pageviews_rows"]),
    (pageviews.keys("/a"), [f"SEARCH roost_pageviews_rows {PK} (key>?)"]),
    (places.keys(Place("a", 1)), [f"SEARCH roost_places_rows {PK} ((site,page)>(?,?))"]),
    (visits.latest(5), [f"SEARCH r {PK} (uid=?)"]),
    (visits.entries(5, after=7, n=3), [f"SEARCH r {PK} (uid=?)"]),
    (seen.latest(Place("a", 1), 3), [f"SEARCH r {PK} (site=? AND page=?)"]),
    (
        wide.latest(5),
        [
            f"SEARCH h {PK} (uid=?)",
            f"SEARCH r {PK} (uid=? AND slot>? AND slot<?)",
            "SCAN a",  # of what the two runs have found
            f"SEARCH h {PK} (uid=?)",
            f"SEARCH r {PK} (uid=? AND slot>?)",
            "SCAN b",
        ],
    ),
    (visits.keys(), ["SCAN roost_visits_head"]),
    (visits.keys(5), [f"SEARCH roost_visits_head {PK} (uid>?)"]),
    (seen.keys(Place("a", 1)), [f"SEARCH roost_seen_head {PK} ((site,page)>(?,?))"]),
    (baskets.get(42, 1), [f"SEARCH roost_baskets_rows {PK} (basket=? AND egg=?)"]),
    (baskets.count(42), [f"SEARCH roost_baskets_head {PK} (basket=?)"]),
    (baskets.latest(42), ["SEARCH roost_baskets_rows USING INDEX roost_baskets_newest (basket=?)"]),
    (
        baskets.entries(42, after=3),
        ["SEARCH roost_baskets_rows USING INDEX roost_baskets_newest (basket=? AND sequence>?)"],
    ),
    (baskets.keys(), ["SCAN roost_baskets_head"]),
    (baskets.keys(42), [f"SEARCH roost_baskets_head {PK} (basket>?)"]),
    (sightings.latest("a"), ["SEARCH roost_sightings_rows USING INDEX roost_sightings_newest (site=?)"]),
    (
        sightings.entries("a"),
        ["SEARCH roost_sightings_rows USING INDEX roost_sightings_newest (site=? AND sequence>?)"],
    ),
    (ranking.top("a", 3), ["SEARCH roost_ranking_rows USING INDEX roost_ranking_best (board=?)"]),
    (
        ranking.rank("a", 7),
        [f"SEARCH r {PK} (board=? AND player=?)", "SEARCH b USING INDEX roost_ranking_best (board=? AND points>?)"],
    ),
    (
        hourly.total("/a", last=3),
        [
            f"SEARCH roost_hourly_rows {PK} (key=? AND start>?)",
            "SEARCH roost_hourly_rows USING INDEX roost_hourly_over",  # one row, the newest window
        ],
    ),
    (likes.members(7), [f"SEARCH roost_likes_rows {PK} (key=?)"]),
    (likes.contains(7, "ada"), [f"SEARCH roost_likes_rows {PK} (key=? AND member=?)"]),
    (likes.add(7, "ada"), [f"SEARCH roost_likes_rows {PK} (key=? AND member=?)"]),
    (likes.size(7), [f"SEARCH roost_likes_head {PK} (key=?)"]),
    (likes.keys(), ["SCAN roost_likes_head"]),
    (tags.contains(Place("a", 1), Colour.WHITE), [f"SEARCH roost_tags_rows {PK} (site=? AND page=? AND member=?)"]),
    (tags.keys(Place("a", 1)), [f"SEARCH roost_tags_head {PK} ((site,page)>(?,?))"]),
]


@pytest.mark.parametrize(("operation", "wanted"), READS, ids=[repr(operation) for operation, _ in READS])
def test_a_read_walks_an_index_in_its_order(
    database: sqlite3.Connection, operation: roost.Operation[Any], wanted: list[str]
) -> None:
    template, row = reads(operation)
    found = explained(database, template, *row)
    # An index may be covering or not, and a scan in key order may name the index: both are the same walk.
    found = [re.sub(r"(?<=^SCAN )(\w+) USING .*", r"\1", line.replace("COVERING ", "")) for line in found]
    assert found == wanted


def test_only_top_sorts_and_says_so(database: sqlite3.Connection) -> None:
    template, row = reads(pageviews.top(3))
    assert "USE TEMP B-TREE FOR ORDER BY" in explained(database, template, *row)
    assert "Scans every key." in (roost.Counter.top.__doc__ or "")


def test_top_is_in_order_whatever_the_columns_of_a_key_are_called() -> None:
    counter = roost.Counter("ranges", key=named("Range", low=int, high=int))
    plan = plan_for(counter, SQLITE)
    connection = sqlite3.connect(":memory:")
    for sql in plan.tables:
        connection.execute(sql)
    connection.executemany("INSERT INTO roost_ranges_rows VALUES (?, ?, 0, ?)", [(1, 9, 3), (2, 1, 5), (3, 5, 4)])
    template, row = reads(counter.top())
    found = connection.execute(template.sql, row).fetchall()
    connection.close()
    assert [(low, high) for low, high, *_ in found] == [(2, 1), (3, 5), (1, 9)]


def test_every_query_of_every_plan_is_named_here(database: sqlite3.Connection) -> None:
    # A new template must not slip in unexplained: none but `top` sorts, and none but the first keys scans.
    for structure in STRUCTURES:
        plan = plan_for(structure, SQLITE)
        for name, template in [*vars(plan).items(), *vars(getattr(plan, "_set_form", None) or plan).items()]:
            if not isinstance(template, Template) or name == "_time":  # the one row of a structure whose rows expire
                continue
            row = [1] * template.sql.count("?")
            found = explained(database, template, *row)
            all_are_read = name == "top" or (structure is ranking and name in ("latest", "entries"))
            assert all_are_read or not [line for line in found if "TEMP B-TREE" in line], (structure, name)
            assert name in ("top", "first_keys") or not [line for line in found if line.startswith("SCAN")], name


def test_so_is_every_statement_for_many_rows(database: sqlite3.Connection) -> None:
    explained_tables = set()
    for structure in STRUCTURES:
        plan = plan_for(structure, SQLITE)
        for name, template in [*vars(plan).items(), *vars(getattr(plan, "_set_form", None) or plan).items()]:
            many = template.many if isinstance(template, Template) else None
            if many is None or many.gather is not Gather.LIST:
                continue
            width = template.sql.count("?")
            sql = text_of(many, 8, width)
            found = [line[3] for line in database.execute(f"EXPLAIN QUERY PLAN {sql}", [1] * 8 * width)]
            searched = [line for line in found if line.startswith("SEARCH")]
            assert len(searched) == 1, (structure, name, found)
            assert searched[0].startswith(f"SEARCH r {PK} ("), (structure, name, found)
            assert searched[0].count("=?") == width, (structure, name, found)
            assert not [line for line in found if "AUTOMATIC" in line or "TEMP" in line or line == "SCAN r"]
            explained_tables.add(name)
    assert explained_tables == {"_find", "_heads"}


def steps(database: sqlite3.Connection, sql: str, params: Any) -> int:
    """Return how many steps SQLite's machine takes for a statement: they are the same on every computer."""
    count = 0

    def step() -> int:
        nonlocal count
        count += 1
        return 0

    database.set_progress_handler(step, 1)
    try:
        database.execute(sql, params).fetchall()
    finally:
        database.set_progress_handler(None, 1)
    return count


def test_the_newest_rows_are_read_without_the_others(database: sqlite3.Connection) -> None:
    # One row of 12 costs less than half of them.
    def steps_of(operation: roost.Operation[Any]) -> int:
        template, row = reads(operation)
        ((sql, params),) = render(Statement(template, [row]))
        return steps(database, sql, params)

    some: list[tuple[Any, Any]] = [
        (baskets.latest(5, 1), baskets.latest(5)),
        (baskets.entries(5, n=1), baskets.entries(5)),
        (baskets.entries(5, after=EACH - 2), baskets.entries(5)),
        (visits.keys(n=1), visits.keys(n=KEYS)),
        (visits.keys(KEYS - 2), visits.keys(n=KEYS)),
    ]
    if database.execute("SELECT count(*) FROM roost_baskets_rows").fetchone()[0]:
        for one, all_ in some:
            assert 0 < 2 * steps_of(one) < steps_of(all_), one


def test_an_add_to_a_leaderboard_does_not_pass_its_rows(tmp_path: Path) -> None:
    best = roost.Capped("best", Points, per="board", keep=1000, unique="player", order="points")
    with roost.Store(f"sqlite:///{tmp_path}/best.db") as store:
        store.create(best)
        store.run(
            best.add_all([Points(board, n, n) for board, rows in (("few", 10), ("many", 900)) for n in range(rows)])
        )
    with contextlib.closing(sqlite3.connect(tmp_path / "best.db")) as connection:
        insert = "INSERT INTO best (board, player, points) VALUES (?, 5000, 5000)"
        few, many = [steps(connection, insert, (board,)) for board in ("few", "many")]
    assert many < 2 * few
