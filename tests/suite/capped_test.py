"""What a capped collection promises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import roost
from tests.suite.shapes import Egg, Place, Seen, Visit, baskets, inner

Make = Callable[..., Any]
pytestmark = pytest.mark.needs("capped")

rejecting = roost.Capped("rejecting", Egg, per="basket", keep=3, unique="egg", on_full="reject")
refreshing = roost.Capped("refreshing", Visit, per="uid", keep=3, unique="visitor", on_duplicate="refresh")
small = roost.Capped("small", Egg, per="basket", keep=3, unique="egg")


def eggs(store: Any, collection: Any, basket: int = 42) -> list[int]:
    return [egg.egg for egg in reversed(store.run(collection.latest(basket)))]


def visitors(store: Any, uid: int = 5) -> list[int]:
    return [visit.visitor for visit in store.run(refreshing.latest(uid))]


def raw(store: Any) -> Any:
    """The store's own sqlite3 connection, to do what the application's DBA would."""
    return inner(store)._core._writer.connection.raw


def test_source_text_thirteen_eggs_into_basket_42_leave_2_to_13(make: Make) -> None:
    store = make(baskets)
    for egg in range(1, 14):
        store.run(baskets.add(Egg(42, egg)))
    assert eggs(store, baskets) == list(range(2, 14))
    assert store.run(baskets.count(42)) == 12


def test_an_empty_key(make: Make) -> None:
    store = make(small)
    assert store.run_all(
        small.latest(1), small.entries(1), small.count(1), small.get(1, 1), small.remove(1, 1), small.clear(1)
    ) == ([], [], 0, None, False, 0)


def test_get_remove_and_count(make: Make) -> None:
    store = make(small)
    store.run_all(small.add(Egg(1, 7, "brown")), small.add(Egg(1, 8)))
    assert store.run(small.get(1, 7)) == Egg(1, 7, "brown")
    assert store.run(small.remove(1, 7)) is True
    assert store.run(small.remove(1, 7)) is False
    assert store.run_all(small.get(1, 7), small.count(1)) == (None, 1)


def test_the_oldest_row_of_a_full_key_is_a_duplicate_too(make: Make) -> None:
    store = make(small)
    for egg in (1, 2, 3):
        store.run(small.add(Egg(1, egg)))
    for collect in (store.run, store.run_all):
        with pytest.raises(roost.Duplicate):
            collect(small.add(Egg(1, 1, "brown")))
    assert eggs(store, small, 1) == [1, 2, 3]


def test_a_removed_row_makes_room(make: Make) -> None:
    store = make(small)
    store.run_all(*[small.add(Egg(1, n)) for n in (1, 2, 3)])
    store.run(small.remove(1, 2))
    store.run(small.add(Egg(1, 4)))
    assert eggs(store, small, 1) == [1, 3, 4]
    store.run(small.add(Egg(1, 5)))
    assert eggs(store, small, 1) == [3, 4, 5]


def test_pitfall_random_ids_within_one_second_lose_nothing(make: Make) -> None:
    """A single writer lost 149 of 200 acknowledged inserts when ties of the clock fell to the id."""
    store = make(small)
    for n in range(50):
        egg = n * 7919 % 1009
        store.run(small.add(Egg(1, egg)))
        assert store.run(small.latest(1, 1)) == [Egg(1, egg)]


def test_duplicate_is_an_error_of_that_atom_alone(make: Make) -> None:
    store = make(small)
    store.run(small.add(Egg(1, 7, "brown")))
    with pytest.raises(roost.Duplicate, match=r"small\.add.*7 is there already"):
        store.run(small.add(Egg(1, 7, "white")))
    with pytest.raises(roost.Duplicate):
        store.run_all(small.add(Egg(1, 8)), small.add(Egg(1, 7)))
    assert store.run(small.latest(1)) == [Egg(1, 7, "brown")]


def test_pitfall_an_id_evicted_earlier_in_the_batch_is_no_duplicate(make: Make) -> None:
    store = make(small)
    store.run_all(*[small.add(Egg(1, n)) for n in (1, 2, 3)])
    store.run_all(*[small.add(Egg(1, n)) for n in (4, 5, 1)])
    assert eggs(store, small, 1) == [4, 5, 1]
    with pytest.raises(roost.Duplicate):
        store.run_all(small.add(Egg(1, 6)), small.add(Egg(1, 1)))


def test_more_adds_than_keep_in_one_batch(make: Make) -> None:
    store = make(small)
    store.run_all(*[small.add(Egg(1, n)) for n in range(10)])
    assert eggs(store, small, 1) == [7, 8, 9]
    assert store.run(small.entries(1))[0].sequence == 8


def test_reject_refuses_the_one_too_many_and_names_the_limit(make: Make) -> None:
    store = make(rejecting)
    store.run_all(*[rejecting.add(Egg(1, n)) for n in (1, 2, 3)])
    with pytest.raises(roost.Full, match="keep is 3"):
        store.run(rejecting.add(Egg(1, 4)))
    with pytest.raises(roost.Duplicate):
        store.run(rejecting.add(Egg(1, 2)))
    store.run_all(rejecting.remove(1, 2), rejecting.add(Egg(1, 4)))
    assert eggs(store, rejecting, 1) == [1, 3, 4]


def test_refresh_replaces_the_row_and_makes_it_the_newest(make: Make) -> None:
    store = make(refreshing)
    for visitor in (1, 2, 3, 1):
        store.run(refreshing.add(Visit(5, visitor)))
    assert visitors(store) == [1, 3, 2]
    store.run(refreshing.add(Visit(5, 4)))
    assert visitors(store) == [4, 1, 3]
    assert store.run(refreshing.count(5)) == 3


def test_refresh_in_one_batch_with_evictions(make: Make) -> None:
    store = make(refreshing)
    store.run_all(*[refreshing.add(Visit(5, n)) for n in (1, 2, 3)])
    store.run_all(*[refreshing.add(Visit(5, n)) for n in (1, 4, 2, 1, 5)])
    assert visitors(store) == [5, 1, 2]


def test_pitfall_one_insistent_visitor_does_not_fill_the_collection(make: Make) -> None:
    store = make(refreshing)
    store.run_all(*[refreshing.add(Visit(5, n)) for n in (1, 2, *[9] * 20)])
    assert visitors(store) == [9, 2, 1]


def test_refresh_on_full_reject_is_no_new_row(make: Make) -> None:
    both = roost.Capped("both", Egg, per="basket", keep=2, unique="egg", on_full="reject", on_duplicate="refresh")
    store = make(both)
    store.run_all(both.add(Egg(1, 1)), both.add(Egg(1, 2)), both.add(Egg(1, 1, "brown")))
    assert store.run(both.latest(1)) == [Egg(1, 1, "brown"), Egg(1, 2)]
    with pytest.raises(roost.Full):
        store.run(both.add(Egg(1, 3)))


def test_clear_and_forget(make: Make) -> None:
    store = make(small)
    store.run_all(*[small.add(Egg(1, n)) for n in range(5)])
    assert store.run(small.clear(1)) == 3
    assert store.run_all(small.count(1), small.keys()) == (0, [1])
    store.run(small.add(Egg(1, 9)))
    assert store.run(small.entries(1))[0].sequence == 6
    assert store.run(small.forget(1)) == 1
    assert store.run(small.keys()) == []
    store.run(small.add(Egg(1, 9)))
    assert store.run(small.entries(1))[0].sequence == 1


def test_entries_go_on_from_a_sequence(make: Make) -> None:
    store = make(refreshing)
    store.run_all(*[refreshing.add(Visit(5, n)) for n in (1, 2, 3, 2)])
    assert [(entry.sequence, entry.row.visitor) for entry in store.run(refreshing.entries(5))] == [
        (1, 1), (3, 3), (4, 2)
    ]  # fmt: skip
    assert [entry.sequence for entry in store.run(refreshing.entries(5, after=1, n=1))] == [3]


def test_composite_keys_and_ids(make: Make) -> None:
    seen = roost.Capped("seen", Seen, per="site", keep=2, unique=("page", "who"), on_duplicate="refresh")
    store = make(seen)
    rows = [Seen("a", 1, 10), Seen("a", 2, 10), Seen("a", 1, 10), Seen("a", 3, 10)]
    store.run_all(*[seen.add(row) for row in rows])
    assert store.run(seen.latest("a")) == [rows[3], rows[2]]
    assert store.run(seen.get("a", (3, 10))) == rows[3]
    assert store.run(seen.remove("a", (1, 10))) is True
    per_place = roost.Capped("per_place", Seen, per=Place, keep=1, unique="who")
    other = make(per_place)
    other.run(per_place.add(Seen("a", 1, 7)))
    assert other.run(per_place.get(Place("a", 1), 7)) == Seen("a", 1, 7)


@pytest.mark.needs("sqlite3")
def test_pitfall_truncate_by_somebody_else_heals_at_the_next_add(make: Make) -> None:
    """A count that is too high must not evict the new row; under the lock it is counted anew."""
    store = make(small)
    store.run_all(*[small.add(Egg(1, n)) for n in (1, 2, 3)])
    raw(store).execute("DELETE FROM roost_small_rows")
    assert [violation.rule for violation in store.check()] == ["count"]
    store.run(small.add(Egg(1, 4)))
    assert eggs(store, small, 1) == [4]
    assert store.run(small.count(1)) == 1


@pytest.mark.needs("sqlite3")
@pytest.mark.parametrize("gone", [(1,), (3,), (2, 3), (1, 2), (1, 3)])
def test_pitfall_rows_deleted_by_somebody_else_never_cost_one_of_the_newest_keep_sequences(
    make: Make, gone: tuple[int, ...]
) -> None:
    store = make(small)
    store.run_all(*[small.add(Egg(1, n)) for n in (1, 2, 3)])
    raw(store).execute(f"DELETE FROM roost_small_rows WHERE egg IN ({', '.join(map(str, gone))})")
    there = [n for n in (1, 2, 3) if n not in gone]
    for n in range(4, 12):
        store.run(small.add(Egg(1, n)))
        there.append(n)
        found = eggs(store, small, 1)
        assert [each for each in there if each > n - 3] == [each for each in found if each > n - 3]
    assert found == [9, 10, 11]
    assert store.run(small.count(1)) == 3


@pytest.mark.needs("sqlite3")
def test_a_full_collection_is_counted_anew_before_it_rejects(make: Make) -> None:
    store = make(rejecting)
    store.run_all(*[rejecting.add(Egg(1, n)) for n in (1, 2, 3)])
    raw(store).execute("DELETE FROM roost_rejecting_rows WHERE egg = 2")
    store.run(rejecting.add(Egg(1, 4)))
    assert eggs(store, rejecting, 1) == [1, 3, 4]


@pytest.mark.needs("sqlite3")
def test_reading_the_newest_does_not_depend_on_ids_or_clock(make: Make) -> None:
    store = make(small)
    store.run_all(*[small.add(Egg(1, n)) for n in (9, 1, 5)])
    raw(store).execute("UPDATE roost_small_rows SET at = '1999-01-01 00:00:00.000000' WHERE egg = 5")
    assert eggs(store, small, 1) == [9, 1, 5]
