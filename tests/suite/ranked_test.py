"""What a ranked collection promises: the best rows of each key are kept, and nothing is known of the others."""

from __future__ import annotations

import datetime as dt
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

import roost
from tests.lengths import length
from tests.suite.clients import Client
from tests.suite.shapes import by_hand, rows

Make = Callable[..., Any]
pytestmark = pytest.mark.needs("capped")


@dataclass(frozen=True)
class Score:
    board: str
    player: int
    points: int


class Place(NamedTuple):
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


best = board("best", on_duplicate="best")
replacing = board("replacing", on_duplicate="refresh")
unequal = board("unequal")
ALL = (best, replacing, unequal)


def scored(structure: Any, *pairs: tuple[int, int]) -> list[roost.Operation[bool]]:
    return [structure.add(Score("go", player, points)) for player, points in pairs]


@pytest.mark.parametrize("structure", ALL, ids=repr)
def test_the_best_are_kept_and_add_says_whether_a_row_is_among_them(make: Make, structure: Any) -> None:
    store = make(structure)
    found = [store.run(op) for op in scored(structure, (1, 5), (2, 9), (3, 7), (4, 4), (5, 6), (6, 6), (7, 10))]
    assert found == [True, True, True, False, True, False, True]
    assert [row.player for row in store.run(structure.top("go"))] == [7, 2, 3]
    assert [row.player for row in store.run(structure.top("go", 2))] == [7, 2]
    ranks = store.run_all(*[structure.rank("go", player) for player in (7, 2, 3, 5)])
    assert ranks == (1, 2, 3, None)
    assert [store.run(structure.rank("go", player)) for player in (7, 2, 3, 5)] == [1, 2, 3, None]
    assert store.run_all(structure.count("go"), structure.get("go", 2), structure.get("go", 4)) == (
        3, Score("go", 2, 9), None,
    )  # fmt: skip
    assert store.run_all(structure.top("chess"), structure.rank("chess", 1)) == ([], None)


def test_of_equal_scores_the_earlier_is_better(make: Make) -> None:
    store = make(best)
    assert store.run_all(*scored(best, (1, 5), (2, 5), (3, 5), (4, 5))) == (True, True, True, False)
    assert store.run_all(best.rank("go", 1), best.rank("go", 3)) == (1, 3)
    assert store.run(best.add(Score("go", 5, 6))) is True
    assert [row.player for row in store.run(best.top("go"))] == [5, 1, 2]


def test_an_id_that_is_there(make: Make) -> None:
    store = make(*ALL)
    for structure in ALL:
        store.run_all(*scored(structure, (1, 5), (2, 9)))
    assert [store.run(op) for op in scored(best, (1, 5), (1, 4), (1, 6))] == [False, False, True]
    assert store.run(best.get("go", 1)) == Score("go", 1, 6)
    assert [store.run(op) for op in scored(replacing, (1, 4), (2, 4))] == [True, True]
    assert store.run(replacing.top("go")) == [Score("go", 1, 4), Score("go", 2, 4)]
    with pytest.raises(roost.Duplicate, match="is there already"):
        store.run(unequal.add(Score("go", 1, 6)))
    with pytest.raises(roost.Duplicate):
        store.run(unequal.add_all([Score("go", 3, 6), Score("go", 1, 6)]))
    assert store.run(unequal.count("go")) == 2


def test_add_all_answers_for_each_row(make: Make) -> None:
    store = make(best)
    added = [Score("go", 1, 5), Score("chess", 1, 1), Score("go", 2, 4), Score("go", 3, 3), Score("go", 4, 2)]
    assert store.run(best.add_all(added)) == [True, True, True, True, False]
    assert store.run(best.add_all([])) == []
    assert store.run_all(best.count("go"), best.count("chess"), best.keys()) == (3, 1, ["chess", "go"])


def test_a_removed_row_makes_room(make: Make) -> None:
    store = make(best)
    store.run_all(*scored(best, (1, 5), (2, 9), (3, 7)))
    assert store.run_all(best.remove("go", 2), *scored(best, (4, 1), (5, 1))) == (True, True, False)
    assert store.run(best.remove("go", 2)) is False
    assert [row.player for row in store.run(best.top("go"))] == [3, 1, 4]
    assert store.run_all(best.clear("go"), best.count("go"), best.forget("go"), best.keys()) == (3, 0, 0, [])


def test_moments_floats_and_keys_of_several_columns(make: Make) -> None:
    start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    runs = [Run("a", 1, f"r{n}", start + dt.timedelta(microseconds=n % 4), n / 3 - 1) for n in range(9)]
    latest: Any = roost.Capped("latest", Run, per=Place, keep=4, unique="runner", order="when")
    longest: Any = roost.Capped("longest", Run, per=Place, keep=4, unique="runner", order="seconds")
    store = make(latest, longest)
    for run in runs:
        store.run_all(latest.add(run), longest.add(run))
    key = Place("a", 1)
    assert [row.runner for row in store.run(latest.top(key))] == ["r3", "r7", "r2", "r6"]
    assert store.run(longest.top(key)) == runs[:4:-1]
    assert store.run_all(latest.rank(key, "r6"), longest.rank(key, "r6")) == (4, 3)


def test_entries_and_latest_are_in_the_order_of_adding(make: Make) -> None:
    store = make(best)
    store.run_all(*scored(best, (1, 5), (2, 9), (3, 7), (4, 8)))
    assert [row.player for row in store.run(best.latest("go"))] == [4, 3, 2]
    assert [(each.sequence, each.row.player) for each in store.run(best.entries("go", after=2))] == [(3, 3), (4, 4)]


@pytest.mark.parametrize("seed", range(length(1, 3)))
@pytest.mark.parametrize("structure", ALL, ids=repr)
def test_it_answers_as_a_sorted_list_does(make: Make, structure: Any, seed: int) -> None:
    chance = random.Random(seed)
    store = make(structure)
    there: dict[int, tuple[int, int]] = {}  # by player: points, and the negative of a sequence
    sequence = 0
    for _ in range(60):
        ops, wanted = [], []
        for _ in range(chance.randint(1, 8)):
            player, points = chance.randrange(8), chance.randrange(6)
            if chance.random() < 0.2:
                ops.append(structure.remove("go", player))
                wanted.append(there.pop(player, None) is not None)
                continue
            if player in there and structure is unequal:
                continue
            ops.append(structure.add(Score("go", player, points)))
            worst = min(there, key=lambda each: there[each]) if there else None
            if player in there:
                kept = structure is replacing or points > there[player][0]
            else:
                kept = len(there) < 3 or worst is None or points > there[worst][0]
                if kept and len(there) == 3 and worst is not None:
                    del there[worst]
            wanted.append(kept)
            if kept:
                sequence += 1
                there[player] = (points, -sequence)
        assert list(store.run_all(*ops)) == wanted if ops else True
        order = sorted(there, key=lambda each: there[each], reverse=True)
        assert [row.player for row in store.run(structure.top("go"))] == order
        for place, player in enumerate(order, 1):
            assert store.run(structure.rank("go", player)) == place


def test_many_callers_at_once_keep_the_best(open_store: Make, store_url: str) -> None:
    stores = [open_store(best)]
    if store_url != "sqlite://":
        stores.append(open_store(random=random.Random(8)))
    scores = [[Score("go", player * 50 + n, (player * 53 + n * 7919) % 1009) for n in range(25)] for player in range(6)]
    start = threading.Barrier(6)

    def work(me: int) -> None:
        start.wait()
        for row in scores[me]:
            stores[me % len(stores)].run(best.add(row))

    threads = [threading.Thread(target=work, args=(me,)) for me in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wanted = sorted([row.points for mine in scores for row in mine], reverse=True)[:3]
    assert [row.points for row in stores[0].run(best.top("go"))] == wanted
    assert stores[0].run(best.count("go")) == 3


def test_a_wrong_count_heals_within_keep_adds(make: Make) -> None:
    store = make(best)
    store.run_all(*scored(best, (1, 5), (2, 9), (3, 7)))
    by_hand(store, "DELETE FROM roost_best_rows")
    assert store.run(best.add(Score("go", 4, 1))) is True
    assert store.run_all(best.count("go"), best.top("go")) == (1, [Score("go", 4, 1)])
    store.run_all(*scored(best, (5, 2), (6, 3)))
    by_hand(store, "DELETE FROM roost_best_rows WHERE player = 6")
    store.run_all(*[op for n in range(4) for op in scored(best, (10 + n, 10 + n))])
    assert store.run_all(best.count("go"), best.rank("go", 13)) == (3, 1)


def test_altering_keep_drops_the_worst(open_store: Make) -> None:
    store = open_store(best)
    store.run_all(*scored(best, (1, 5), (2, 9), (3, 7)))
    store.alter(board("best", keep=2, on_duplicate="best"))
    narrow = board("best", keep=2, on_duplicate="refresh")
    store.alter(narrow)
    assert store.run_all(narrow.top("go"), narrow.count("go")) == ([Score("go", 2, 9), Score("go", 3, 7)], 2)
    with pytest.raises(roost.Invalid, match="order cannot change"):
        store.alter(roost.Capped("best", Score, per="board", keep=2, unique="player"))


@pytest.mark.needs("application", "capped tables")
def test_sql_clients_see_and_keep_the_best(open_store: Make, sql: Client, store_url: str) -> None:
    store = open_store(*ALL)
    into = "_in" if store_url.startswith("mysql") else ""
    for structure in ALL:
        for player, points in [(1, 5), (2, 9), (3, 7), (4, 5), (5, 6), (6, 4), (7, 10)]:
            sql.execute(f"INSERT INTO {structure.name}{into} (board, player, points) VALUES ('go', {player}, {points})")
        shown = f"SELECT player FROM {structure.name} WHERE board = 'go' ORDER BY points DESC, sequence"
        assert [player for (player,) in rows(sql, shown)] == [7, 2, 3]
        assert store.run_all(structure.count("go"), structure.rank("go", 3)) == (3, 3)
    for structure in (best, replacing):
        for points in (3, 12):
            sql.execute(f"INSERT INTO {structure.name}{into} (board, player, points) VALUES ('go', 3, {points})")
            assert store.run(structure.get("go", 3)).points == (7 if structure is best and points == 3 else points)
    with pytest.raises(Exception, match="is there already"):
        sql.execute(f"INSERT INTO unequal{into} (board, player, points) VALUES ('go', 3, 12)")
    gone = "INSERT INTO best_out (board, player) VALUES ('go', 7)" if into else "DELETE FROM best WHERE player = 7"
    sql.execute(gone)
    sql.execute(f"INSERT INTO best{into} (board, player, points) VALUES ('go', 8, 1), ('go', 9, 1), ('go', 10, 2)")
    assert [row.player for row in store.run(best.top("go"))] == [3, 2, 10]
    assert store.run(best.add(Score("go", 11, 3))) is True
    assert store.run(best.count("go")) == 3


@pytest.mark.needs("application", "capped tables")
def test_sql_clients_heal_a_wrong_count(open_store: Make, sql: Client, store_url: str) -> None:
    store = open_store(best)
    into = "_in" if store_url.startswith("mysql") else ""
    store.run_all(*scored(best, (1, 5), (2, 9), (3, 7)))
    by_hand(store, "DELETE FROM roost_best_rows WHERE player = 2", "UPDATE roost_best_head SET n = 3")
    sql.execute(f"INSERT INTO best{into} (board, player, points) VALUES ('go', 4, 1)")
    assert [row.player for row in store.run(best.top("go"))] == [3, 1, 4]


@pytest.mark.parametrize(
    ("order", "why"), [("player", "not in per"), ("nothing", "not in per"), ("note", "note is text"), (5, "not 5")]
)
def test_order_names_a_number_or_a_moment_of_the_row(order: Any, why: str) -> None:
    with pytest.raises(roost.Invalid, match=why):
        roost.Capped("runs", Run, per=Place, keep=4, unique="runner", order="runner" if order == "player" else order)
    with pytest.raises(roost.Invalid, match="on_full"):
        board("best", on_full="reject")
