"""What a capped collection promises, with an order and without; `model_test.py` has what every operation answers."""

from __future__ import annotations

import datetime as dt
import random
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import pytest

import roost
from tests.suite.shapes import Egg, Make, Place, Seen, Visit, baskets, by_hand, in_threads, rows
from tests.suite.views import insert, remove

pytestmark = pytest.mark.needs("capped")


@dataclass(frozen=True)
class Score:
    board: str
    player: int
    points: int


class Level(NamedTuple):
    site: str
    level: int


@dataclass(frozen=True)
class Run:
    site: str
    level: int
    runner: str
    when: dt.datetime
    seconds: float
    note: str | None = None


def board(name: str, keep: int = 3, **options: Any) -> roost.Capped[Score, Any, bool]:
    return roost.Capped(name, Score, per="board", keep=keep, unique="player", order="points", **options)


rejecting = roost.Capped("rejecting", Egg, per="basket", keep=3, unique="egg", on_full="reject")
refreshing = roost.Capped("refreshing", Visit, per="uid", keep=3, unique="visitor", on_duplicate="refresh")
small = roost.Capped("small", Egg, per="basket", keep=3, unique="egg")
best = board("best", on_duplicate="best")
replacing = board("replacing", on_duplicate="refresh")
unequal = board("unequal")


def eggs(store: Any, collection: Any, basket: int = 42) -> list[int]:
    return [egg.egg for egg in reversed(store.run(collection.latest(basket)))]


def top(store: Any, collection: Any) -> list[int]:
    return [row.player for row in store.run(collection.top("go"))]


def scored(structure: Any, *pairs: tuple[int, int]) -> list[roost.Operation[bool]]:
    return [structure.add(Score("go", player, points)) for player, points in pairs]


def test_source_text_thirteen_eggs_into_basket_42_leave_2_to_13(make: Make) -> None:
    """Pitfalls: of random ids within one second a writer lost 149 of 200; one insistent visitor fills a collection."""
    store = make(baskets, small, refreshing)
    for egg in range(1, 14):
        store.run(baskets.add(Egg(42, egg)))
    assert (eggs(store, baskets), store.run(baskets.count(42))) == ([*range(2, 14)], 12)
    for n in range(50):
        egg = n * 7919 % 1009
        store.run(small.add(Egg(1, egg)))
        assert store.run(small.latest(1, 1)) == [Egg(1, egg)]
    store.run_all(*[refreshing.add(Visit(5, n)) for n in (1, 2, *[9] * 20)])
    assert [visit.visitor for visit in store.run(refreshing.latest(5))] == [9, 2, 1]


def test_what_is_refused_is_told_with_the_row_and_the_limit(make: Make) -> None:
    store = make(small, rejecting)
    store.run_all(*[each.add(Egg(1, egg)) for each in (small, rejecting) for egg in (1, 2, 3)])
    for collect in (store.run, store.run_all):  # the oldest row of a full key is a duplicate, too
        with pytest.raises(roost.Duplicate, match=r"small\.add.*1 is there already"):
            collect(small.add(Egg(1, 1, "brown")))
        with pytest.raises(roost.Full, match="keep is 3"):
            collect(rejecting.add(Egg(1, 4)))
    with pytest.raises(roost.Duplicate):
        store.run_all(small.add(Egg(1, 8)), small.add(Egg(1, 3)))
    assert store.run(small.latest(1)) == [Egg(1, 3), Egg(1, 2), Egg(1, 1)]


def test_composite_keys_and_ids(make: Make) -> None:
    seen = roost.Capped("seen", Seen, per="site", keep=2, unique=("page", "who"), on_duplicate="refresh")
    per_place = roost.Capped("per_place", Seen, per=Place, keep=1, unique="who")
    store = make(seen, per_place)
    found = [Seen("a", 1, 10), Seen("a", 2, 10), Seen("a", 1, 10), Seen("a", 3, 10)]
    store.run_all(*[seen.add(row) for row in found])
    assert store.run(seen.latest("a")) == [found[3], found[2]]
    assert store.run(seen.get("a", (3, 10))) == found[3]
    assert store.run(seen.remove("a", (1, 10))) is True
    store.run(per_place.add(Seen("a", 1, 7)))
    assert store.run(per_place.get(Place("a", 1), 7)) == Seen("a", 1, 7)


def test_moments_and_floats_are_scores(make: Make) -> None:
    start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    runs = [Run("a", 1, f"r{n}", start + dt.timedelta(microseconds=n % 4), n / 3 - 1) for n in range(9)]
    latest: Any = roost.Capped("latest", Run, per=Level, keep=4, unique="runner", order="when")
    longest: Any = roost.Capped("longest", Run, per=Level, keep=4, unique="runner", order="seconds")
    store = make(latest, longest)
    for run in runs:
        store.run_all(latest.add(run), longest.add(run))
    key = Level("a", 1)
    assert [row.runner for row in store.run(latest.top(key))] == ["r3", "r7", "r2", "r6"]
    assert store.run(longest.top(key)) == runs[:4:-1]
    assert store.run_all(latest.rank(key, "r6"), longest.rank(key, "r6")) == (4, 3)


def test_many_callers_at_once_keep_the_best(open_store: Make, store_url: str) -> None:
    stores = [open_store(best)]
    if store_url != "sqlite://":
        stores.append(open_store(random=random.Random(8)))
    scores = [[Score("go", player * 50 + n, (player * 53 + n * 7919) % 1009) for n in range(25)] for player in range(6)]

    def work(me: int) -> None:
        for row in scores[me]:
            stores[me % len(stores)].run(best.add(row))

    in_threads(*[partial(work, me) for me in range(6)])
    wanted = sorted([row.points for mine in scores for row in mine], reverse=True)[:3]
    assert [row.points for row in stores[0].run(best.top("go"))] == wanted
    assert stores[0].run(best.count("go")) == 3


# --- what somebody else has done to the rows ---------------------------------------------------------------------


@pytest.mark.needs("sqlite3")
def test_pitfall_rows_deleted_by_somebody_else_never_cost_one_of_the_newest_keep_sequences(make: Make) -> None:
    store = make(small)
    for key, gone in enumerate([(1,), (3,), (2, 3), (1, 2), (1, 3)]):
        store.run_all(*[small.add(Egg(key, n)) for n in (1, 2, 3)])
        by_hand(store, *[f"DELETE FROM roost_small_rows WHERE basket = {key} AND egg = {egg}" for egg in gone])
        there = [n for n in (1, 2, 3) if n not in gone]
        for n in range(4, 12):
            store.run(small.add(Egg(key, n)))
            there.append(n)
            found = eggs(store, small, key)
            assert [each for each in there if each > n - 3] == [each for each in found if each > n - 3]
        assert (found, store.run(small.count(key))) == ([9, 10, 11], 3)


@pytest.mark.needs("sqlite3")
def test_reading_the_newest_does_not_depend_on_ids_or_clock(make: Make) -> None:
    store = make(small)
    store.run_all(*[small.add(Egg(1, n)) for n in (9, 1, 5)])
    by_hand(store, "UPDATE roost_small_rows SET at = '1999-01-01 00:00:00.000000' WHERE egg = 5")
    assert eggs(store, small, 1) == [9, 1, 5]


def test_a_wrong_count_of_the_best_heals_within_keep_adds(make: Make) -> None:
    store = make(best)
    store.run_all(*scored(best, (1, 5), (2, 9), (3, 7)))
    by_hand(store, "DELETE FROM roost_best_rows")
    assert store.run(best.add(Score("go", 4, 1))) is True
    assert store.run_all(best.count("go"), best.top("go")) == (1, [Score("go", 4, 1)])
    store.run_all(*scored(best, (5, 2), (6, 3)))
    by_hand(store, "DELETE FROM roost_best_rows WHERE player = 6")
    store.run_all(*[op for n in range(4) for op in scored(best, (10 + n, 10 + n))])
    assert store.run_all(best.count("go"), best.rank("go", 13)) == (3, 1)


@pytest.mark.needs("application", "capped tables")
def test_sql_clients_see_and_keep_the_best(open_store: Make, sql: Any) -> None:
    store = open_store(best, replacing, unequal)

    def put(structure: Any, *pairs: tuple[int, int]) -> None:
        for player, points in pairs:
            insert(sql, structure.name, board="go", player=player, points=points)

    for structure in (best, replacing, unequal):
        put(structure, (1, 5), (2, 9), (3, 7), (4, 5), (5, 6), (6, 4), (7, 10))
        shown = f"SELECT player FROM {structure.name} WHERE board = 'go' ORDER BY points DESC, sequence"
        assert [player for (player,) in rows(sql, shown)] == [7, 2, 3]
        assert store.run_all(structure.count("go"), structure.rank("go", 3)) == (3, 3)
    for structure in (best, replacing):
        for points in (3, 12):
            put(structure, (3, points))
            assert store.run(structure.get("go", 3)).points == (7 if structure is best and points == 3 else points)
    with pytest.raises(sql.Error, match="is there already"):
        put(unequal, (3, 12))
    remove(sql, "best", board="go", player=7)
    put(best, (8, 1), (9, 1), (10, 2))
    assert top(store, best) == [3, 2, 10]
    by_hand(store, "DELETE FROM roost_best_rows WHERE player = 2", "UPDATE roost_best_head SET n = 3")
    put(best, (4, 1))  # a count that is wrong heals
    assert top(store, best) == [3, 10, 4]
