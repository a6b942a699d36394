"""Views: what plain SQL clients may do, beyond the tables in docs/sql-views.md, on every engine that has them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

import roost
from tests.suite.clients import Client, SQLiteClient
from tests.suite.shapes import Egg, Place, Seen, Visit, likes, pageviews, rows, visits
from tests.suite.views import (
    FILL,
    baskets,
    both,
    forms,
    newest_first,
    obeys_its_declaration,
    refreshing,
    rejecting,
    slotted,
)

pytestmark = pytest.mark.needs("views")

Open = Callable[..., roost.Store]


class Cell(NamedTuple):
    x: int
    y: int


def test_on_full_and_on_duplicate_rule(open_store: Open, sql: Client) -> None:
    obeys_its_declaration(open_store(refreshing, rejecting, both), sql, "INSERT")


def test_the_sequence_goes_on_after_a_delete_and_the_head_is_right(open_store: Open, sql: Client) -> None:
    store = open_store(visits, baskets, likes)
    store.run_all(*FILL[2:])
    for name in ("visits", "baskets", "likes"):
        sql.execute(f"DELETE FROM {name}")
    assert store.run_all(baskets.count(42), likes.size(7), visits.keys(), baskets.keys()) == (0, 0, [5, 6], [42, 43])
    sql.execute("INSERT INTO visits (uid, visitor) VALUES (5, 1)")
    sql.execute("INSERT INTO baskets (basket, egg, colour) VALUES (42, 1, 'red')")
    assert [each.sequence for each in store.run(visits.entries(5))] == [8]
    assert [each.sequence for each in store.run(baskets.entries(42))] == [5]
    assert store.run_all(visits.push(Visit(5, 2)), baskets.add(Egg(42, 2)), baskets.count(42)) == (9, None, 2)


def test_a_place_that_was_freed_is_taken_again(open_store: Open, sql: Client) -> None:
    store = open_store(rejecting)
    sql.execute("INSERT INTO rejecting (uid, visitor) VALUES (5, 1), (5, 2)")
    sql.execute("DELETE FROM rejecting WHERE visitor = 1")
    sql.execute("INSERT INTO rejecting (uid, visitor) VALUES (5, 3)")
    assert store.run(rejecting.latest(5)) == [Visit(5, 3), Visit(5, 2)]


@pytest.mark.parametrize("structure", [baskets, rejecting, both], ids=lambda each: each.name)
@pytest.mark.parametrize("left", [0, 1])
def test_a_wrong_count_heals_and_costs_none_of_the_newest(
    open_store: Open, sql: Client, structure: Any, left: int
) -> None:
    """Somebody has deleted from the private table: the count is too high, and must evict or refuse nothing."""
    store = open_store(structure)
    name, keep = structure.name, structure.keep
    make = (lambda n: Egg(5, n)) if structure is baskets else (lambda n: Visit(5, n))
    store.run_all(*[structure.add(make(n)) for n in range(keep)])
    sql.execute(f"DELETE FROM roost_{name}_rows WHERE sequence <= {keep - left}")
    if structure is baskets:
        sql.execute("INSERT INTO baskets (basket, egg, colour) VALUES (5, 9, 'white')")
    else:
        sql.execute(f"INSERT INTO {name} (uid, visitor) VALUES (5, 9)")
    newest = [make(9), make(keep - 1)][: left + 1]
    assert store.run_all(structure.latest(5), structure.count(5)) == (newest, left + 1)


def test_the_slots_of_a_counter_are_one_total(open_store: Open, sql: Client) -> None:
    with_slots = [open_store(slotted, random=random.Random(n)) for n in range(6)]
    for store in with_slots:
        store.run_all(slotted.add("a", 10), slotted.add("b", 1))
    sql.execute("INSERT INTO slotted VALUES ('a', 5)")
    used = rows(sql, "SELECT * FROM roost_slotted_rows WHERE key = 'a'")
    assert len(used) > 1 or isinstance(sql, SQLiteClient)  # a file has one writer
    assert rows(sql, "SELECT * FROM slotted ORDER BY key") == [("a", 65), ("b", 6)]
    sql.execute("UPDATE slotted SET total = total - 33 WHERE key = 'a'")
    assert store.run_all(slotted.total("a"), slotted.total("b")) == (32, 6)
    sql.execute("DELETE FROM slotted WHERE key = 'a'")
    assert store.run(slotted.totals(["a", "b"])) == {"a": 0, "b": 6}


def test_a_sum_beyond_64_bits_is_refused(open_store: Open, sql: Client) -> None:
    store = open_store(pageviews)
    sql.execute("INSERT INTO pageviews VALUES ('a', ?)", (2**63 - 2,))
    for form in forms(sql):
        with pytest.raises(sql.Error, match=r"64 bits|bigint out of range"):
            sql.execute(f"{form} INTO pageviews VALUES ('a', 2)")
    sql.execute("INSERT INTO pageviews VALUES ('a', 1)")
    assert store.run(pageviews.total("a")) == 2**63 - 1


def test_keys_of_several_columns(open_store: Open, sql: Client) -> None:
    places = roost.Counter("places", key=Place)
    ring = roost.Ring("ring", Seen, per=("site", "page"), keep=2)
    capped = roost.Capped("capped", Seen, per=Place, keep=2, unique="who", on_duplicate="refresh")
    pairs = roost.Set("pairs", key=Place, member=Cell)
    store = open_store(places, ring, capped, pairs)
    sql.execute("INSERT INTO places (site, page, total) VALUES ('a', 1, 2), ('a', 2, 3), ('b', 1, 4), ('a', 1, 5)")
    for name in ("ring", "capped"):
        cells = [("a", 1, 1), ("a", 1, 2), ("a", 2, 1), ("a", 1, 1), ("a", 1, 3)]
        sql.executemany(f"INSERT INTO {name} (site, page, who) VALUES (?, ?, ?)", cells)
        assert rows(sql, f"SELECT site, page, who FROM {name} {newest_first(sql, 'site, page DESC, ')}") == [
            ("a", 2, 1),
            ("a", 1, 3),
            ("a", 1, 1),
        ]
        assert rows(sql, f"SELECT who FROM {name} WHERE site = 'a' AND page = 1 {newest_first(sql)}") == [(3,), (1,)]
    sql.execute("INSERT INTO pairs (site, page, x, y) VALUES ('a', 1, 2, 3), ('a', 1, 2, 3), ('a', 1, 3, 2)")
    assert store.run(pairs.members(Place("a", 1))) == {Cell(2, 3), Cell(3, 2)}
    sql.execute("DELETE FROM pairs WHERE x = 3")
    assert store.run(pairs.size(Place("a", 1))) == 1
    assert store.run(places.totals([Place("a", 1), Place("b", 1)])) == {Place("a", 1): 7, Place("b", 1): 4}
    sql.execute("DELETE FROM ring WHERE who = 3")
    sql.execute("UPDATE capped SET who = who WHERE page = 2")
    assert store.run(ring.latest(("a", 1))) == [Seen("a", 1, 1)]


# A view comes and goes


def test_a_view_is_optional_and_can_be_added_and_dropped_later(open_store: Open, sql: Client) -> None:
    store = open_store()
    store.create(visits, view=False)
    store.run(visits.push(Visit(5, 1)))
    assert sql.view_objects() == []
    assert store.alter(visits, view=True) == ["view added"]
    assert sql.view_objects() == ["roost_visits_delete", "roost_visits_insert", "roost_visits_update", "visits"]
    sql.execute("INSERT INTO visits (uid, visitor) VALUES (5, 2)")
    assert store.run_all(visits.push(Visit(5, 3)), visits.latest(5)) == (3, [Visit(5, 3), Visit(5, 2), Visit(5, 1)])
    assert store.alter(visits, view=True) == []
    assert store.alter(visits) == []
    assert store.alter(visits, view=False) == ["view dropped"]
    assert store.alter(visits, view=False) == []
    assert sql.view_objects() == []
    assert store.run(visits.push(Visit(5, 4))) == 4
    store.create(visits)
    assert len(sql.view_objects()) == 4


def test_a_view_follows_what_is_altered(open_store: Open, sql: Client) -> None:
    @dataclass(frozen=True)
    class Longer:
        uid: int
        visitor: int
        note: str | None = None

    store = open_store(visits, slotted, refreshing)
    store.run_all(*[visits.push(Visit(5, n)) for n in range(8)], slotted.add("a", 3))
    longer = roost.Ring("visits", Longer, per="uid", keep=3)
    assert store.alter(longer) == ["column note (text(1000000)?) added", "keep: 5 -> 3"]
    for visitor in (8, 9):
        sql.execute("INSERT INTO visits (uid, visitor, note) VALUES (5, ?, 'x')", (visitor,))
    assert rows(sql, f"SELECT visitor, note FROM visits {newest_first(sql)}") == [(9, "x"), (8, "x"), (7, None)]
    assert store.run(longer.latest(5, 1)) == [Longer(5, 9, "x")]
    fewer, full = (
        roost.Counter("slotted", slots=1),
        roost.Capped(
            "refreshing", Visit, per="uid", keep=2, unique="visitor", on_full="reject", on_duplicate="refresh"
        ),
    )
    store.alter(fewer)
    store.alter(full)
    sql.execute("INSERT INTO slotted VALUES ('a', 4)")
    assert rows(sql, "SELECT * FROM slotted") == [("a", 7)]
    with pytest.raises(sql.Error, match="keep is 2"):
        sql.execute("INSERT INTO refreshing (uid, visitor) VALUES (1, 1), (1, 2), (1, 1), (1, 3)")


def test_a_view_that_somebody_has_changed_is_made_anew(open_store: Open, sql: Client) -> None:
    store = open_store(visits)
    sql.drop_trigger("roost_visits_insert", "visits")
    assert [each.rule for each in store.check()] == ["view"]
    assert store.alter(visits, view=True) == []
    assert rows(sql, "SELECT * FROM visits") == []
    sql.execute("INSERT INTO visits (uid, visitor) VALUES (5, 2)")


@pytest.mark.parametrize(
    "taken", ["CREATE TABLE visits (a int)", "CREATE VIEW Visits AS SELECT 1", "CREATE INDEX visits ON t (a)"]
)
def test_a_name_that_is_taken_is_refused_unless_without_a_view(open_store: Open, sql: Client, taken: str) -> None:
    sql.execute("CREATE TABLE t (a int)")
    sql.execute(taken)
    store = open_store()
    with pytest.raises(roost.Invalid, match=r"of that name already \((table|view|index) [vV]isits\); .*view=False"):
        store.create(pageviews, visits)
    assert sql.private_tables() == []
    store.create(visits, view=False)
    with pytest.raises(roost.Invalid, match="of that name already"):
        store.alter(visits, view=True)
    assert store.alter(visits, view=False) == []
    assert store.alter(visits) == []
    assert store.alter(roost.Ring("visits", Visit, per="uid", keep=9)) == ["keep: 5 -> 9"]
    assert store.check() == []
    store.alter(visits)


def test_a_view_of_somebody_else_is_never_touched(open_store: Open, sql: Client) -> None:
    store = open_store()
    store.create(visits, view=False)
    sql.execute("CREATE VIEW visits AS SELECT uid, count(*) AS hits FROM roost_visits_rows GROUP BY uid")
    before = sql.view("visits")
    assert store.check() == []
    for change in (lambda: store.create(visits), lambda: store.alter(visits, view=True)):
        with pytest.raises(roost.Invalid, match="of that name already"):
            change()
    assert store.alter(visits, view=False) == []
    assert store.alter(roost.Ring("visits", Visit, per="uid", keep=9)) == ["keep: 5 -> 9"]
    assert sql.view("visits") == before
