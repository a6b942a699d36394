"""What a ring promises; `model_test.py` has what every operation answers, `age_test.py` what expires."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest

import roost
from tests.lengths import length
from tests.suite.shapes import Place, Seen, Visit, by_hand, visits

Make = Callable[..., Any]
pytestmark = pytest.mark.needs("ring")


def test_entries_go_on_from_any_sequence(make: Make) -> None:
    store = make(visits)
    for pushed in length((1, 4, 5, 6, 10, 12), range(1, 13)):  # to a key of its own
        store.run_all(*[visits.push(Visit(pushed, n)) for n in range(1, pushed + 1)])
        there = list(range(max(1, pushed - 4), pushed + 1))
        for after in [*range(pushed + 3), 2**63 - 1]:
            for n in (None, 1, 2, 3, 100):
                found = [entry.sequence for entry in store.run(visits.entries(pushed, after=after, n=n))]
                assert found == [each for each in there if each > after][:n], (pushed, after, n)
        assert [entry.row.visitor for entry in store.run(visits.entries(pushed))] == there


def test_the_clock_is_shown_and_never_decides(make: Make, store_url: str) -> None:
    """Pitfall: the clock goes back, or stands still within a second, and visits are lost."""
    hours = iter([4, 3, 2, 2, 1, 1, 0])
    store = make(visits, clock=lambda: dt.datetime(2026, 10, 25, next(hours), tzinfo=dt.UTC))
    for n in range(7):
        store.run(visits.push(Visit(5, n)))
    entries = store.run(visits.entries(5))
    assert [entry.row.visitor for entry in entries] == [2, 3, 4, 5, 6]
    if store_url.startswith("sqlite"):  # on servers it is their clock
        assert [entry.at.hour for entry in entries] == [2, 2, 1, 1, 0]
    assert entries[0].at.utcoffset() == dt.timedelta(0)


def test_f81_the_latest_are_as_many_as_asked_for_where_a_row_is_gone(make: Make) -> None:
    """Somebody else's DELETE leaves a hole; also in a ring that is not full yet."""
    store = make(visits)
    for gone in (2, 7, 8, 9):
        store.run_all(visits.forget(5), visits.forget(6))
        store.run_all(*[visits.push(Visit(key, n)) for key, last in ((5, 9), (6, 3)) for n in range(1, last + 1)])
        by_hand(store, f"DELETE FROM roost_visits_rows WHERE sequence = {gone}")
        left = {5: [n for n in (9, 8, 7, 6, 5) if n != gone], 6: [n for n in (3, 2, 1) if n != gone]}
        for n in range(1, 6):
            asked = [(5, n), (6, n), (7, n)]
            found = store.run_all(*[visits.latest(*each) for each in asked])
            assert [[row.visitor for row in rows] for rows in found] == [left[5][:n], left[6][:n], []]
            assert tuple([store.run(visits.latest(*each)) for each in asked]) == found


def test_composite_keys(make: Make) -> None:
    seen = roost.Ring("seen", Seen, per=Place, keep=2)
    store = make(seen)
    rows = [Seen("a", 1, 10), Seen("a", 2, 11), Seen("b", 1, 12), Seen("a", 1, 13), Seen("a", 1, 14)]
    assert store.run_all(*[seen.push(row) for row in rows]) == (1, 1, 1, 2, 3)
    assert store.run(seen.latest(Place("a", 1))) == [rows[4], rows[3]]
    assert store.run(seen.latest(Place("b", 1))) == [rows[2]]
    assert store.run(seen.keys()) == [Place("a", 1), Place("a", 2), Place("b", 1)]
    assert store.run(seen.keys(after=Place("a", 1), n=1)) == [Place("a", 2)]


def test_a_ring_of_one_and_a_ring_past_a_tinyint(make: Make) -> None:
    """Pitfall: tinyint limits a ring to 256."""
    one, many = (
        roost.Ring("one", Visit, per="uid", keep=1),
        roost.Ring("many", Visit, per="uid", keep=300),
    )
    store = make(one, many)
    for ring, keep in ((one, 1), (many, 300)):
        store.run_all(*[ring.push(Visit(1, n)) for n in range(700)])
        assert store.run(ring.latest(1)) == [Visit(1, n) for n in range(699, 699 - keep, -1)]


def test_source_text_the_visitor_after_1270881_takes_the_next_slot(make: Make) -> None:
    """The round-robin text's second listing: sequence 2 is the newest of uid 5, so 1400254 goes into slot 3.

    Pitfalls: the first push of an empty ring is lost; so is who comes in the same second.
    """
    store = make(visits)
    listed = (1400251, 620098, 3548743, 940873, 1270881, 1400254)
    for number, visitor in enumerate(listed, 1):
        assert store.run(visits.push(Visit(5, visitor))) == number
        assert [row.visitor for row in store.run(visits.latest(5))] == [*listed[max(0, number - 5) : number]][::-1]
    (oldest, *_, newest) = store.run(visits.entries(5))
    assert (oldest.row.visitor, newest.sequence % 5) == (620098, 1)  # where 1400251 was


@pytest.mark.needs("sqlite3")
def test_pitfall_no_statement_replaces_or_locks_tables(open_store: Make, statements: list[str]) -> None:
    store = open_store(visits)
    for n in range(12):
        store.run(visits.push(Visit(5, n)))
    assert statements
    assert not [sql for sql in statements if "REPLACE" in sql.upper() or "LOCK TABLE" in sql.upper()]
