"""Dropping structures: view, tables and entry go; what is beside them stays."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import roost
from roost.catalog.catalog import drop_ddl, entry
from tests.suite.shapes import Egg, Make, Visit, baskets, by_hand, likes, pageviews, visits

ALL = (pageviews, visits, baskets, likes)


def fill(store: Any) -> None:
    store.run_all(pageviews.add("/"), visits.push(Visit(1, 2)), baskets.add(Egg(1, 1)), likes.add(1, "a"))


def test_a_dropped_structure_is_gone_and_can_be_made_anew(open_store: Make) -> None:
    store = open_store()
    store.create(*ALL)
    fill(store)
    left: list[Any] = [*ALL]
    structure: Any
    for structure in ALL:
        left.remove(structure)
        store.drop(structure)
        assert store.structures() == sorted(set(ALL) - {structure}, key=lambda each: each.name)
        with pytest.raises(roost.Missing):
            store.run(structure.clear(1 if structure is not pageviews else "/"))
        store.create(structure)
        assert [len(store.run(each.keys())) for each in ALL] == [int(each in left) for each in ALL]


@pytest.mark.needs("second store")
def test_who_has_used_a_structure_is_told_that_it_is_gone_or_another(open_store: Make) -> None:
    ring = roost.Ring("visits", Visit, per="uid", keep=5)
    store, other = open_store(pageviews, ring, baskets), open_store()
    for _ in range(2):  # from the second time on it is expected to be there
        store.run(pageviews.add("/"))
        store.run(ring.push(Visit(1, 2)))
    store.run(ring.latest(1))
    other.drop(pageviews)
    larger = roost.Ring("visits", Visit, per="uid", keep=6)
    other.alter(larger)
    other.drop(larger)
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
    store.drop(pageviews)
    store.drop(pageviews, likes)
    assert store.structures() == [visits]


def test_where_nothing_was_made_there_is_nothing_to_drop(open_store: Make) -> None:
    store = open_store(likes)
    store.drop(likes)
    by_hand(store, *[f"DROP TABLE {table}" for table in store._core.known.catalog.tables])
    store.drop(pageviews)
    assert store.structures() == []


def test_half_dropped_is_dropped_by_the_next(open_store: Make) -> None:
    store = open_store(baskets)
    store.alter(baskets, view=False)
    by_hand(store, "DROP TABLE roost_baskets_rows")
    with pytest.raises(roost.Missing) as found:
        store.run(baskets.latest(1))
    assert "\n" not in str(found.value)  # PostgreSQL points at a place in the statement, by a ^ below it
    store.drop(baskets)
    assert store.structures() == []


class Stop(BaseException):
    """A process that ends."""


def test_half_created_is_created_by_the_next(store_url: str, open_store: Make) -> None:
    """Its clock has the row that create inserts."""
    expiring = roost.Ring("visits", Visit, per="uid", keep=3, keep_for=60)

    def traced(sql: str, _: object) -> None:
        if sql.startswith("INSERT INTO roost_catalog"):
            raise Stop

    with roost.Store(store_url, trace=traced) as store, pytest.raises(Stop):
        store.create(expiring)
    store = open_store(expiring)
    store.run(expiring.push(Visit(1, 2)))
    assert store.check() == []


def test_what_a_restore_of_the_schema_alone_has_made_is_made_anew_unless_it_has_rows(open_store: Make) -> None:
    store = open_store(*ALL)
    by_hand(store, "DELETE FROM roost_catalog")
    store.create(*ALL)
    fill(store)
    assert store.check() == []
    by_hand(store, "DELETE FROM roost_catalog")
    with pytest.raises(
        roost.Invalid, match=r"there is a table roost_\w+ with rows, and the catalog has no entry of it"
    ):
        store.create(*ALL)
    by_hand(store, *[entry(store._core.known.plan(each), True) for each in ALL])


def test_f122_a_wrong_declaration_is_dropped_and_made_anew(open_store: Make) -> None:
    store = open_store(visits)
    other = roost.Ring("visits", Egg, per="basket", keep=5)
    with pytest.raises(roost.Mismatch, match=r"store\.drop\(visits\) drops it, with all that it holds"):
        store.create(other)
    store.drop(other)
    store.create(other)
    assert store.run(other.push(Egg(1, 1))) == 1


def test_something_of_another_kind_is_left_alone(open_store: Make) -> None:
    store = open_store(visits)
    with pytest.raises(roost.Mismatch, match="visits is a ring in the database and not the counter to be dropped"):
        store.drop(roost.Counter("visits"))
    assert store.structures() == [visits]


def test_the_statements_undo_those_of_ddl(open_store: Make) -> None:
    store = open_store()
    store.create(*ALL)
    known = store._core.known
    fill(store)
    by_hand(store, *drop_ddl(known.catalog, [known.plan(each) for each in ALL]))
    assert store.structures() == []
    by_hand(store, *store.ddl(*ALL))  # over a catalog that is there already
    assert store.run_all(*[each.keys() for each in ALL]) == ([], [], [], [])


def test_f122_from_asyncio_and_not_from_memcached() -> None:
    async def work() -> None:
        async with roost.AsyncStore("sqlite://") as store:
            await store.create(visits)
            await store.drop(visits)
            assert await store.structures() == []

    asyncio.run(work())
    with roost.Store("sqlite://") as store, pytest.raises(roost.Invalid, match="`roost uncap log` undoes it"):
        store.drop(roost.Capped.of("log"))
    with roost.Store("memcached://127.0.0.1:1") as store, pytest.raises(roost.Invalid):
        store.drop(visits)
