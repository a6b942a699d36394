"""Changing a declaration on a live store: what can change is changed, what cannot is refused with the reason."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest

import roost
from roost.databases.mariadb.statements import CREATE_LOCK
from tests.model.operations import Points
from tests.suite.age_test import KINDS
from tests.suite.shapes import Egg, Visit, baskets, by_hand, likes, pageviews, rows, visits

Make = Callable[..., Any]
MOST = 2**63 - 1


class Mood(enum.Enum):
    GOOD = "it's good"


@dataclass(frozen=True)
class LongVisit:
    uid: int
    visitor: int
    seconds: int = 0
    note: str | None = None
    tag: Annotated[str, roost.text(9)] = "o'clock"
    mood: Mood = Mood.GOOD
    raw: bytes = field(default=b"\x00'")
    said: str = "déjà\tvu"


def ring(keep: int, name: str = "visits") -> Any:
    return roost.Ring(name, Visit, per="uid", keep=keep)


def capped(**options: Any) -> Any:
    return roost.Capped("baskets", Egg, **{"per": "basket", "keep": 12, "unique": "egg", **options})


def test_the_same_declaration_changes_nothing(open_store: Make) -> None:
    store = open_store(visits)
    assert store.alter(visits) == []


def test_altering_what_is_not_there_is_missing(open_store: Make) -> None:
    with pytest.raises(roost.Missing):
        open_store(visits).alter(pageviews)


def test_a_ring_keeps_its_newest_rows_and_its_sequence(open_store: Make) -> None:
    """Pitfall: shrinking 5 to 3 leaves slots 3 and 4 readable for ever."""
    keeps = (1, 3, 4, 6, 11)
    store = open_store(*[ring(5, f"visits_{keep}") for keep in keeps])
    pushed = dict(enumerate((3, 4, 5, 6, 12, 13), 1))  # fewer than it keeps, as many, and more
    for keep in keeps:
        before, changed = ring(5, f"visits_{keep}"), ring(keep, f"visits_{keep}")
        for uid, last in pushed.items():
            store.run_all(*[before.push(Visit(uid, n)) for n in range(1, last + 1)])
        assert store.alter(changed) == [f"keep: 5 -> {keep}"]
        for uid, last in pushed.items():
            there = list(range(max(1, last - min(5, keep) + 1), last + 1))
            assert [visit.visitor for visit in store.run(changed.latest(uid))] == there[::-1]
            assert [entry.sequence for entry in store.run(changed.entries(uid))] == there
            for n in range(last + 1, last + 15):
                assert store.run(changed.push(Visit(uid, n))) == n
                there = [*there, n][-keep:]
                assert [visit.visitor for visit in store.run(changed.latest(uid))] == there[::-1]


@pytest.mark.parametrize("keep_for", [None, 300], ids=["for ever", "keep_for"])
def test_a_smaller_keep_leaves_the_newest_or_the_best(open_store: Make, keep_for: int | None) -> None:
    tried = [kind for kind in KINDS if "keep" in kind.options and kind.name != "rejecting"]
    store = open_store(*[kind.declare(keep_for) for kind in tried])
    for kind in tried:
        three, two, four = [kind.declare(keep_for, keep=keep) for keep in (3, 2, 4)]
        store.run_all(*[kind.put(three, (5, n)) for n in (3, 1, 2)], kind.put(three, (6, 1)))
        assert store.alter(two) == ["keep: 3 -> 2"]
        left = [2, 3] if "order" in kind.options else [1, 2]
        assert kind.numbers(store, two, 5) == left
        store.run(kind.put(three, (5, 4)))  # by an older release
        assert kind.numbers(store, two, 5) == [left[1], 4]
        assert store.alter(four) == ["keep: 2 -> 4"]
        store.run_all(*[kind.put(four, (5, n)) for n in (5, 6, 7)])
        assert kind.numbers(store, four, 5) == [4, 5, 6, 7]
        assert kind.numbers(store, four, 6) == [1]


def test_on_full_and_on_duplicate(open_store: Make) -> None:
    store = open_store(baskets)
    store.run_all(*[baskets.add(Egg(1, n)) for n in range(12)])
    changed = capped(on_full="reject", on_duplicate="refresh")
    assert store.alter(changed) == ["on_full: evict -> reject", "on_duplicate: error -> refresh"]
    with pytest.raises(roost.Full):
        store.run(changed.add(Egg(1, 99)))
    store.run(changed.add(Egg(1, 0)))
    assert store.run(changed.latest(1, 1)) == [Egg(1, 0)]


def test_a_collection_that_rejects_is_not_cut(open_store: Make) -> None:
    rejecting = capped(on_full="reject")
    store = open_store(rejecting)
    store.run_all(*[rejecting.add(Egg(1, n)) for n in range(6)])
    with pytest.raises(roost.Invalid, match="1 keys hold more"):
        store.alter(capped(on_full="reject", keep=5))
    store.alter(capped(on_full="reject", keep=6))


def test_slots_of_a_counter(open_store: Make) -> None:
    store = open_store(pageviews)
    store.run(pageviews.add("/home", 5))
    four = roost.Counter("pageviews", slots=4)
    store.alter(four)
    store.run(four.add("/home", 5))
    by_hand(store, "INSERT INTO roost_pageviews_rows VALUES ('/other', 3, 7)")
    two = roost.Counter("pageviews", slots=2)
    assert store.alter(two) == ["slots: 4 -> 2"]
    assert store.run(two.totals(["/home", "/other"])) == {"/home": 10, "/other": 7}


def test_a_new_column_gets_its_default_in_the_rows_that_are_there(open_store: Make) -> None:
    store = open_store(visits)
    store.run(visits.push(Visit(5, 7)))
    longer = roost.Ring("visits", LongVisit, per="uid", keep=5)
    found = store.alter(longer)
    assert found == [
        "column seconds (int) added",
        "column note (text(1000000)?) added",
        "column tag (text(9)) added",
        'column mood (enum("it\'s good")) added',
        "column raw (binary(1000000)) added",
        "column said (text(1000000)) added",
    ]
    assert store.run(longer.latest(5)) == [LongVisit(5, 7)]
    store.run(longer.push(LongVisit(5, 8, 3, "x", "y")))
    assert store.run(longer.latest(5, 1)) == [LongVisit(5, 8, 3, "x", "y")]


@dataclass
class NoDefault:
    uid: int
    visitor: int
    seconds: int


@dataclass
class OtherType:
    uid: int
    visitor: str


@dataclass
class Fewer:
    uid: int


best = roost.Capped("best", Points, per="uid", keep=3, unique="visitor", order="points")
REFUSED: list[tuple[Any, Any, str]] = [
    (visits, roost.Ring("visits", NoDefault, per="uid", keep=5), "without a default"),
    (visits, roost.Ring("visits", OtherType, per="uid", keep=5), "column visitor cannot change from int"),
    (visits, roost.Ring("visits", Fewer, per="uid", keep=5), "column visitor cannot be dropped"),
    (visits, roost.Ring("visits", Visit, per="visitor", keep=5), "per cannot change.*other keys"),
    (visits, roost.Set("visits"), "kind cannot change from ring to set: it is another structure"),
    (baskets, capped(unique="colour"), "unique cannot change"),
    (best, roost.Capped("best", Points, per="uid", keep=3, unique="visitor"), "order cannot change"),
    (pageviews, roost.Counter("pageviews", key=int), "key cannot change"),
    (likes, roost.Set("likes", key=int, member=int), "member cannot change"),
]


def test_what_cannot_be_changed_is_refused_with_the_reason(open_store: Make) -> None:
    store = open_store(visits, baskets, best, pageviews, likes)
    for stored, changed, reason in REFUSED:
        with pytest.raises(roost.Invalid, match=reason):
            store.alter(changed)
        assert store.ddl(stored) != store.ddl(changed)
        store.create(stored)


@pytest.mark.needs("pymysql")
def test_f83_a_refused_change_gives_the_lock_of_the_session_back(open_store: Make, sql: Any) -> None:
    store = open_store(visits)
    with pytest.raises(roost.Invalid):
        store.alter(roost.Ring("visits", Fewer, per="uid", keep=5))
    assert [tuple(row) for row in rows(sql, f"SELECT IS_FREE_LOCK({CREATE_LOCK})")] == [(1,)]
    store.create(visits)
    assert [tuple(row) for row in rows(sql, f"SELECT IS_FREE_LOCK({CREATE_LOCK})")] == [(1,)]
