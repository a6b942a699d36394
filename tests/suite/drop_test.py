"""Dropping structures: view, tables and entry go; what is beside them stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import roost
from roost.catalog.catalog import drop, drop_ddl
from tests.suite.shapes import Egg, Visit, baskets, by_hand, likes, pageviews, visits

Make = Callable[..., Any]
ALL = (pageviews, visits, baskets, likes)


def dropped(store: Any, *structures: Any) -> None:
    known = store._core.known
    store._core.exclusive(drop(known.catalog, [known.plan(each) for each in structures]))


def fill(store: Any) -> None:
    store.run_all(pageviews.add("/"), visits.push(Visit(1, 2)), baskets.add(Egg(1, 1)), likes.add(1, "a"))


@pytest.mark.parametrize("structure", ALL, ids=repr)
def test_a_dropped_structure_is_gone_and_can_be_made_anew(open_store: Make, structure: Any) -> None:
    store = open_store(*ALL)
    fill(store)
    dropped(store, structure)
    assert store.structures() == sorted(set(ALL) - {structure}, key=lambda each: each.name)
    with pytest.raises(roost.Missing):
        store.run(structure.clear(1 if structure is not pageviews else "/"))
    store.create(structure)
    assert store.run(structure.keys()) == []
    assert [len(store.run(each.keys())) for each in ALL if each is not structure] == [1, 1, 1]


@pytest.mark.needs("second store")
def test_who_has_used_a_structure_is_told_that_it_is_gone_or_another(open_store: Make) -> None:
    ring = roost.Ring("visits", Visit, per="uid", keep=5)
    store, other = open_store(pageviews, ring, baskets), open_store()
    for _ in range(2):  # from the second time on it is expected to be there
        store.run(pageviews.add("/"))
        store.run(ring.push(Visit(1, 2)))
    store.run(ring.latest(1))
    dropped(other, pageviews)
    larger = roost.Ring("visits", Visit, per="uid", keep=6)
    other.alter(larger)
    dropped(other, larger)
    other.create(roost.Counter("visits"))
    for operation in pageviews.add("/"), pageviews.total("/"):
        with pytest.raises(roost.Missing):
            store.run(operation)
    for again in ring.push(Visit(1, 3)), ring.latest(1):
        with pytest.raises(roost.Mismatch):
            store.run(again)
    with pytest.raises(roost.Missing):
        store.run_all(baskets.add(Egg(1, 1)), pageviews.add("/"))
    assert other.run(baskets.count(1)) == 0


def test_dropping_again_does_nothing(open_store: Make) -> None:
    store = open_store(pageviews, visits)
    dropped(store, pageviews)
    dropped(store, pageviews, likes)
    assert store.structures() == [visits]


def test_half_dropped_is_dropped_by_the_next(open_store: Make) -> None:
    store = open_store(baskets)
    store.alter(baskets, view=False)
    by_hand(store, "DROP TABLE roost_baskets_rows")
    dropped(store, baskets)
    assert store.structures() == []


def test_something_of_another_kind_is_left_alone(open_store: Make) -> None:
    store = open_store(visits)
    with pytest.raises(roost.Mismatch, match="visits is a ring in the database and not the counter to be dropped"):
        dropped(store, roost.Counter("visits"))
    assert store.structures() == [visits]


def test_the_statements_undo_those_of_ddl(open_store: Make) -> None:
    store = open_store(*ALL)
    known = store._core.known
    fill(store)
    by_hand(store, *drop_ddl(known.catalog, [known.plan(each) for each in ALL]))
    assert store.structures() == []
    by_hand(store, *store.ddl(*ALL))  # over a catalog that is there already
    assert store.run_all(*[each.keys() for each in ALL]) == ([], [], [], [])


@pytest.mark.needs("readable views")
def test_views_that_were_made_under_their_former_name_are_known_and_made_anew(open_store: Make) -> None:
    store = open_store(*ALL)
    known = store._core.known
    by_hand(store, *drop_ddl(known.catalog, [known.plan(each) for each in ALL]))
    made = "\0".join(store.ddl(*ALL))
    former = made.replace("a view, made by Roost", "a front, made by Roost").replace("`roost_view_", "`roost_front_")
    assert former != made
    by_hand(store, *former.split("\0"))
    assert {violation.rule for violation in store.check()} == {"view"}
    store.create(*ALL)
    assert store.check() == []
