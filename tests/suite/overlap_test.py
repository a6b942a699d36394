"""Two declarations of one structure at once, while a change is deployed: what is stored decides, and nobody fails."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

import roost
from tests.model.operations import Points
from tests.suite.alter_test import LongVisit, Mood, capped, ring
from tests.suite.shapes import Egg, Visit, baskets, by_hand, pageviews, visits

pytestmark = pytest.mark.needs("second store")

Make = Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class Reordered:
    visitor: int
    seconds: int = 0
    tags: bytes = field(default_factory=lambda: b"new")
    uid: int
    note: str | None


@dataclass
class ShortEgg:
    basket: int
    egg: int


@dataclass
class Weighed(ShortEgg):
    weight: int | None = None


@dataclass
class LongEgg:
    basket: int
    egg: int
    colour: str = "white"
    weight: int | None = None


def short_eggs(**options: Any) -> Any:
    return roost.Capped("baskets", ShortEgg, **{"per": "basket", "unique": "egg", **options})


def long_eggs(**options: Any) -> Any:
    return roost.Capped("baskets", LongEgg, **{"per": "basket", "keep": 12, "unique": "egg", **options})


def test_f42_a_ring_of_another_keep_is_used_as_it_is_stored(open_store: Make) -> None:
    keeps = (1, 3, 4, 6, 12)
    old, new = open_store(pageviews, *[ring(5, f"visits_{keep}") for keep in keeps]), open_store()
    for keep in keeps:
        before, changed = ring(5, f"visits_{keep}"), ring(keep, f"visits_{keep}")
        old.run_all(*[before.push(Visit(5, n)) for n in range(1, 8)])
        new.alter(changed)
        there = list(range(max(3, 8 - keep), 8))
        for n in range(8, 30):
            store, declared = [(old, before), (new, changed)][n % 2]
            assert store.run(declared.push(Visit(5, n))) == n
            there = [*there, n][-keep:]
            for store, declared in (old, before), (new, changed):
                assert [visit.visitor for visit in store.run(declared.latest(5))] == there[::-1]
                assert [entry.sequence for entry in store.run(declared.entries(5, after=n - 2))] == there[-2:]
        assert old.run_all(pageviews.total("/"), before.push(Visit(5, 30)))[1] == 30


def test_a_column_is_seen_as_soon_as_it_is_stored(open_store: Make) -> None:
    # A process that had begun before the migration read the default for ever, and could write nothing else.
    new, other = open_store(ring(5)), open_store()
    longer, after = [roost.Ring("visits", LongVisit, per="uid", keep=5) for _ in range(2)]
    new.run_all(longer.push(LongVisit(5, 1)), longer.latest(5))
    other.alter(after)
    other.run(after.push(LongVisit(5, 2, 60)))
    assert new.run(longer.latest(5)) == [LongVisit(5, 2, 60), LongVisit(5, 1)]
    assert new.run(longer.push(LongVisit(5, 3, 70))) == 3
    assert other.run(after.latest(5, 1)) == new.run(longer.latest(5, 1)) == [LongVisit(5, 3, 70)]


def test_f42_it_is_counted_and_told_once(open_store: Make, caplog: pytest.LogCaptureFixture) -> None:
    old, new = open_store(visits, baskets), open_store()
    for _ in range(3):  # from the second time on it is expected to be what is stored
        old.run(visits.push(Visit(5, 1)))
    assert old.stats().overlaps == 0
    new.alter(ring(3))
    new.alter(capped(keep=2))
    with caplog.at_level(logging.WARNING, "roost"):
        for _ in range(3):
            old.run_all(visits.push(Visit(5, 1)), visits.latest(5))
            old.run(baskets.count(1))
    # Programs have the new `keep`: processes need not know, and compare but once; on MySQL their names are others.
    replaces = old._core.known.dialect.replaces
    assert old.stats().overlaps == (1 if replaces else 9)
    assert new.stats().overlaps == 0
    message = "is stored with another declaration, which is used: keep is"
    assert [record.getMessage() for record in caplog.records] == [
        *([] if replaces else [f"visits {message} 3 in the database and 5 in the declaration"]),
        f"baskets {message} 2 in the database and 12 in the declaration",
    ]


def test_f42_a_collection_of_other_options(open_store: Make) -> None:
    old, new = open_store(baskets), open_store()
    old.run_all(*[baskets.add(Egg(1, n)) for n in range(12)])
    changed = capped(keep=14, on_full="reject", on_duplicate="refresh")
    new.alter(changed)
    old.run_all(baskets.add(Egg(1, 12)), baskets.add(Egg(1, 3)), baskets.add(Egg(1, 13)))
    assert [egg.egg for egg in new.run(changed.latest(1, 3))] == [13, 3, 12]
    with pytest.raises(roost.Full, match="is full"):
        old.run(baskets.add(Egg(1, 14)))
    old.run(baskets.add_all([Egg(2, n) for n in range(14)]))
    assert old.run_all(baskets.count(1), baskets.count(2)) == (14, 14)


@pytest.mark.parametrize("order", [None, "points"])
def test_a_duplicate_is_one_though_the_declaration_refreshes(order: str | None, open_store: Make) -> None:
    was, now = (
        roost.Capped("best", Points, per="uid", keep=9, unique="visitor", order=order, on_duplicate=word)
        for word in ("refresh", "error")
    )
    old, new = open_store(was), open_store()
    old.run_all(*[was.add(Points(board, 1, 5)) for board in (1, 2)])
    new.alter(now)
    new_ones = [(3, player) for player in range(9)]
    for added in ([(1, 1)], [(1, 1), (2, 1)], [(1, 2), (2, 1)], [(1, 3), (1, 3)], [*new_ones, (1, 4), (2, 1)]):
        rows = [Points(board, player, 7) for board, player in added]
        for operations in ([was.add(row) for row in rows], [was.add_all(rows)]):
            with pytest.raises(roost.Duplicate, match="is there already"):
                old.run_all(*operations)
    assert new.run_all(*[now.latest(board) for board in (1, 2)]) == ([Points(1, 1, 5)], [Points(2, 1, 5)])
    assert new.check() == []


def test_f42_a_counter_of_other_slots(open_store: Make) -> None:
    changes = [
        [roost.Counter(f"pageviews_{n}", slots=slots) for slots in change]
        for n, change in enumerate([(4, 2), (2, 4), (4, 1), (1, 4), (None, 3)])
    ]
    old, new = open_store(*[declared for declared, _ in changes]), open_store()
    for declared, changed in changes:
        old.run(declared.add("/", 5))
        new.alter(changed)
        old.run(declared.add("/", 5))
        new.run(changed.add("/", 5))
        assert old.run_all(declared.total("/"), declared.add("/", 5), declared.clear("/")) == (15, None, 20)
        assert new.run(changed.total("/")) == 0


@pytest.mark.parametrize("many", [False, True])
def test_f42_a_column_that_the_declaration_does_not_know_gets_its_default(open_store: Make, many: bool) -> None:
    old, new = open_store(visits), open_store()
    old.run_all(*[visits.push(Visit(5, n)) for n in range(6)])
    longer = roost.Ring("visits", LongVisit, per="uid", keep=5)
    new.alter(longer)
    new.run_all(*[longer.push(LongVisit(5, n, 9, "x", "y", Mood.GOOD, b"z")) for n in range(6, 9)])
    if many:  # the first call after the change, too
        old.run(visits.push_all([Visit(5, n) for n in (*range(9), 9, 10)]))
        old.run_all(*[visits.push(Visit(5, n)) for n in (11, 12, 13)])
    else:
        assert [visit.visitor for visit in old.run(visits.latest(5))] == [8, 7, 6, 5, 4]
        assert type(old.run(visits.latest(5))[0]) is Visit
        for n in range(9, 14):  # over every slot
            old.run(visits.push(Visit(5, n)))
    assert new.run(longer.latest(5)) == [LongVisit(5, n) for n in range(13, 8, -1)]
    assert [entry.row for entry in old.run(visits.entries(5))] == [Visit(5, n) for n in range(9, 14)]


@pytest.mark.parametrize("on_duplicate", ["error", "refresh"])
def test_f42_a_collection_with_a_column_that_the_declaration_does_not_know(open_store: Make, on_duplicate: str) -> None:
    baskets, longer = (make(keep=3, on_duplicate=on_duplicate) for make in (short_eggs, long_eggs))
    old, new = open_store(baskets), open_store()
    old.run_all(*[baskets.add(ShortEgg(1, n)) for n in range(3)])
    new.alter(longer)
    new.run_all(*[longer.add(LongEgg(1, n, "red", 7)) for n in range(3, 6)])
    for n in range(6, 8):
        old.run(baskets.add(ShortEgg(1, n)))
    if on_duplicate == "refresh":
        old.run(baskets.add(ShortEgg(1, 5)))
    else:
        with pytest.raises(roost.Duplicate):
            old.run(baskets.add(ShortEgg(1, 5)))
        old.run_all(baskets.remove(1, 5), baskets.add(ShortEgg(1, 5)))
    assert new.run(longer.latest(1)) == [LongEgg(1, n) for n in (5, 7, 6)]
    assert old.run_all(baskets.get(1, 7), baskets.latest(1, 1)) == (ShortEgg(1, 7), [ShortEgg(1, 5)])


def test_f42_a_column_that_is_not_stored_yet(open_store: Make) -> None:
    """The next release comes before its migration."""
    longer = roost.Ring("visits", Reordered, per="uid", keep=5)
    old, new = open_store(visits), open_store()
    old.run(visits.push(Visit(5, 1)))
    assert new.run(longer.latest(5)) == [Reordered(uid=5, visitor=1, note=None)]
    assert new.run(longer.push(Reordered(uid=5, visitor=2, note=None))) == 2
    assert new.run(longer.entries(5, after=1))[0].row == Reordered(uid=5, visitor=2, note=None)
    with pytest.raises(roost.Mismatch, match="the column note is only in the declaration"):
        new.run(longer.push(Reordered(uid=5, visitor=3, note="kept")))
    assert old.run(visits.latest(5)) == [Visit(5, 2), Visit(5, 1)]


def test_f42_a_column_without_a_default_can_be_read_past_but_not_written(open_store: Make) -> None:
    longer = long_eggs(keep=3)
    new, old = open_store(longer), open_store()
    new.run(longer.add(LongEgg(1, 1)))
    shorter = short_eggs(keep=3)
    assert old.run_all(shorter.latest(1), shorter.remove(1, 2)) == ([ShortEgg(1, 1)], False)
    with pytest.raises(roost.Mismatch, match="what is stored has colour, without a default"):
        old.run(shorter.add(ShortEgg(1, 2)))


def test_a_declaration_that_lacks_a_column_from_the_beginning_is_a_mismatch(open_store: Make) -> None:
    # It was `Missing`, with the advice to create what is there: no program was made for rows without the column.
    known, lacking = (
        roost.Ring("eggs", Weighed, per="basket", keep=5),
        roost.Ring("eggs", ShortEgg, per="basket", keep=5),
    )
    new, old = open_store(known), open_store()
    for n in (1, 12, 1):
        with pytest.raises(
            roost.Mismatch, match="what is stored has weight; no stored declaration ever had just the col"
        ):
            old.run(lacking.push_all([ShortEgg(5, egg) for egg in range(n)]))
    new.run(known.push(Weighed(5, 1, 60)))
    assert old.run(lacking.latest(5)) == [ShortEgg(5, 1)]
    assert old.run(lacking.clear(5)) == 1


def test_f42_what_cannot_be_understood_is_a_mismatch(open_store: Make) -> None:
    old, new = open_store(visits), open_store()
    declared: Any
    for declared in (
        roost.Ring("visits", Visit, per="visitor", keep=5),
        roost.Counter("visits"),
        roost.Capped("visits", Visit, per="uid", keep=5, unique="visitor"),
    ):
        for operation in declared.keys(), declared.clear(1 if declared.kind != "counter" else "1"):
            with pytest.raises(roost.Mismatch):
                new.run(operation)
    assert old.run(visits.latest(5)) == []


def test_f42_create_of_the_release_before(open_store: Make) -> None:
    old, new = open_store(visits, baskets), open_store()
    with pytest.raises(roost.Mismatch, match="keep is 5 in the database and 7 in the declaration"):
        new.create(ring(7))  # before its migration
    new.alter(ring(7))
    new.alter(roost.Ring("visits", LongVisit, per="uid", keep=7))
    later = open_store(visits, baskets)  # a process of the release before begins
    later.create(ring(7))
    later.run(visits.push(Visit(5, 1)))
    with pytest.raises(roost.Mismatch, match="keep is 7 in the database and 8 in the declaration"):
        later.create(ring(8))  # it never was
    assert old.run(visits.latest(5)) == [Visit(5, 1)]


def test_f42_former_declarations_go_with_their_structure(open_store: Make) -> None:
    old, new = open_store(), open_store()
    old.create(visits, view=False)
    new.alter(ring(7))
    by_hand(old, "DELETE FROM roost_catalog WHERE name = 'visits'")  # as the printed statements drop it
    by_hand(old, "DROP TABLE roost_visits_rows", "DROP TABLE roost_visits_head")
    new.create(ring(6))
    new.alter(ring(8))
    assert old.run(visits.latest(5)) == []
