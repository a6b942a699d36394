"""get_or_set: one caller computes, whatever the others are: threads, tasks, stores."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

import roost
from tests.suite.clients import Client
from tests.suite.passing import passes
from tests.suite.shapes import Make
from tests.suite.ways import App

pytestmark = [pytest.mark.needs("cache"), pytest.mark.shared]

pages = roost.Cache("pages", value=str)


def test_a_lease_is_one_callers_until_it_is_released(make: Make) -> None:
    store = make(pages)
    token = store.run(pages.lease("/", 30))
    assert token > 0
    assert store.run(pages.lease("/", 30)) is None
    assert store.run(pages.release("/", token + 1)) is False
    assert store.run(pages.lease("/a", 30)) is not None
    assert store.run(pages.release("/", token)) is True
    assert store.run(pages.release("/", token)) is False
    again = store.run(pages.lease("/", 30))
    assert again > token
    assert store.run_all(pages.set("/", "x"), pages.release("/", again), pages.lease("/a", 30)) == (None, True, None)
    first, second, given, third = store.run_all(
        pages.lease("/", 30), pages.lease("/", 30), pages.get("/"), pages.lease("/b", 1)
    )
    assert (first is None, second, given, third is None) == (False, None, "x", False)


@pytest.mark.needs("second store")
def test_a_lease_ends_by_itself(make: Make, sql: Client) -> None:
    store = make(pages)
    token = store.run(pages.lease("/", 30))
    for n in range(5):
        store.run(pages.lease(f"/{n}", 5))
    passes(sql, pages, 29)
    assert store.run(pages.lease("/", 30)) is None
    passes(sql, pages, 1)
    assert store.run(pages.lease("/", 30)) > token
    assert store.run(pages.release("/", token)) is False
    for _ in range(20):  # some of the writes delete expired leases
        store.run(pages.set("/", "x"))
    found: Any = sql.execute("SELECT count(*) FROM roost_pages_leases").fetchone()
    assert found[0] == 1


def test_what_is_there_is_not_computed(open_store: Make) -> None:
    store = open_store(pages)
    assert store.get_or_set(pages, "/", lambda: "one", ttl=60) == "one"
    assert store.get_or_set(pages, "/", lambda: "two", ttl=60) == "one"
    assert store.run(pages.gets("/")).ttl <= 60
    assert store.get_or_set(pages, "/a", lambda: "for ever") == "for ever"
    assert store.run(pages.gets("/a")).ttl is None


def test_an_error_goes_to_who_computes_and_the_next_one_may(open_store: Make) -> None:
    store = open_store(pages)

    def fails() -> str:
        raise KeyError("no page")

    with pytest.raises(KeyError, match="no page"):
        store.get_or_set(pages, "/", fails)
    assert store.get_or_set(pages, "/", lambda: "one") == "one"
    with pytest.raises(roost.Invalid):
        store.get_or_set(pages, "/b", lambda: 7)
    assert store.get_or_set(pages, "/b", lambda: "b") == "b"
    with pytest.raises(roost.Invalid, match="stale"):
        store.get_or_set(pages, "/c", lambda: "c", ttl=10, stale=10)
    with pytest.raises(roost.Invalid, match="takes a Cache"):
        store.get_or_set(roost.Counter("pages"), "/c", lambda: "c")


@pytest.mark.needs("second store")
def test_one_of_many_computes(open_store: Make) -> None:
    stores = [open_store(pages, timeout=60.0) for _ in range(2)]
    computed: list[int] = []
    answers: list[str] = []
    begin = threading.Barrier(8)
    waiting = threading.Event()

    def compute() -> str:
        computed.append(1)
        waiting.wait(0.05)  # never set: the others look meanwhile
        return "page"

    def ask(store: roost.Store) -> None:
        begin.wait()
        answers.append(store.get_or_set(pages, "/", compute, ttl=60))

    threads = [threading.Thread(target=ask, args=(store,)) for store in stores * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == ["page"] * 8
    assert computed == [1]


@pytest.mark.needs("second store")
def test_others_take_what_ends_soon(open_store: Make, sql: Client) -> None:
    store = open_store(pages)
    store.get_or_set(pages, "/", lambda: "old", ttl=60, stale=20)
    passes(sql, pages, 39)
    assert store.get_or_set(pages, "/", lambda: "new", ttl=60, stale=20) == "old"
    passes(sql, pages, 2)

    def slow() -> str:
        assert store.get_or_set(pages, "/", lambda: "another", ttl=60, stale=20) == "old"
        return "new"

    assert store.get_or_set(pages, "/", slow, ttl=60, stale=20) == "new"
    assert store.get_or_set(pages, "/", lambda: "another", ttl=60, stale=20) == "new"


@pytest.mark.needs("second store")
@pytest.mark.parametrize("stale", [0, 20])
def test_who_is_late_stores_nothing_over_what_another_has_stored(open_store: Make, sql: Client, stale: int) -> None:
    store = open_store(pages)
    if stale:
        store.run(pages.set("/", "former", 10))

    def late() -> str:
        passes(sql, pages, 6)
        assert store.get_or_set(pages, "/", lambda: "new", ttl=60, stale=stale, lease=5) == "new"
        return "old"

    assert store.get_or_set(pages, "/", late, ttl=60, stale=stale, lease=5) == "old"
    assert store.run(pages.get("/")) == "new"


@pytest.mark.needs("second store")
def test_what_expires_while_it_is_computed_anew_is_stored(open_store: Make, sql: Client) -> None:
    store = open_store(pages)
    store.run(pages.set("/", "former", 10))

    def slow() -> str:
        passes(sql, pages, 11)
        return "new"

    assert store.get_or_set(pages, "/", slow, ttl=60, stale=20) == "new"
    assert store.run(pages.get("/")) == "new"


def test_in_asyncio_make_may_be_awaited(store_url: str) -> None:
    computed: list[str] = []

    async def compute() -> str:
        computed.append("once")
        await asyncio.sleep(0)
        return "page"

    async def main() -> list[str]:
        async with roost.AsyncStore(store_url) as store:
            await store.create(pages)
            found = await asyncio.gather(*[store.get_or_set(pages, "/", compute, ttl=60) for _ in range(20)])
            with pytest.raises(ZeroDivisionError):
                await store.get_or_set(pages, "/a", lambda: str(1 / 0))
            return [*found, await store.get_or_set(pages, "/a", lambda: "plain")]

    assert asyncio.run(main()) == ["page"] * 20 + ["plain"]
    assert computed == ["once"]


def test_who_is_cancelled_gives_the_lease_back(store_url: str) -> None:
    async def main() -> str:
        async with roost.AsyncStore(store_url) as store:
            await store.create(pages)
            begun = asyncio.Event()

            async def never() -> str:
                begun.set()
                await asyncio.Event().wait()
                return ""

            task = asyncio.create_task(store.get_or_set(pages, "/", never))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return await store.get_or_set(pages, "/", lambda: "page")

    assert asyncio.run(main()) == "page"


def test_a_lease_in_the_applications_transaction(open_store: Make, app: Callable[..., App]) -> None:
    store, one = open_store(pages), app()
    token = one.run(pages.lease("/", 30))
    one.rollback()
    assert store.run(pages.lease("/", 30)) is not None
    assert one.run_all(pages.set("/", "x"), pages.release("/", token)) in [(None, False), (None, True)]
    one.commit()
    assert store.run(pages.get("/")) == "x"
