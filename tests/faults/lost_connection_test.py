"""A connection that is cut at every point of the exchange, COMMIT included: nothing is lost, nothing doubled."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

import roost
from roost.databases.postgresql import engine as postgresql
from tests.proxy import Cut, Proxy
from tests.suite.shapes import Egg, Visit, baskets, likes, pageviews, visits


@pytest.fixture
def proxy(server_url: str) -> Iterator[Proxy]:
    with Proxy(urlsplit(server_url).port or 0) as proxy:
        yield proxy


def through(proxy: Proxy, url: str, **options: Any) -> roost.Store:
    return roost.Store(proxy.url(url), **{"random": random.Random(3), "timeout": 20, **options})


@pytest.fixture
def store(server_url: str, proxy: Proxy) -> Iterator[roost.Store]:
    with through(proxy, server_url) as store:
        store.create(pageviews, visits, baskets, likes)
        yield store
    with roost.Store(server_url) as direct:
        assert direct.check() == []


def at_every_point(proxy: Proxy, cut: Cut, call: Callable[[int], object]) -> int:
    """Call again and again, cut off one message later each time, until nothing is left to cut; return the calls."""
    for n in range(100):
        proxy.arm(n, cut)
        call(n)
        if proxy.disarm():
            return n + 1
    raise AssertionError("there is no end")


@pytest.mark.parametrize("cut", Cut, ids=[cut.name for cut in Cut])
def test_a_batch_that_writes_is_done_once(store: roost.Store, proxy: Proxy, cut: Cut) -> None:
    def call(n: int) -> None:
        sequence = store.run_all(
            pageviews.add("/home"), visits.push(Visit(1, n)), baskets.add(Egg(1, n)), likes.add(1, str(n))
        )
        assert sequence == (None, n + 1, None, 1)

    calls = at_every_point(proxy, cut, call)
    assert calls > 10
    assert proxy.cuts == calls - 1
    assert store.run_all(pageviews.total("/home"), visits.latest(1), baskets.count(1), likes.members(1)) == (
        calls,
        [Visit(1, n) for n in reversed(range(calls - 5, calls))],
        min(calls, 12),
        {str(n) for n in range(calls)},
    )


@pytest.mark.parametrize("place", [0, 1], ids=["before", "at COMMIT"])
@pytest.mark.parametrize("cut", Cut, ids=[cut.name for cut in Cut])
def test_a_connection_that_is_lost_once_more_costs_another_one(
    store: roost.Store, proxy: Proxy, cut: Cut, place: int
) -> None:
    store.run(pageviews.add("/home"))
    for n in range(20):
        proxy.arm(place, cut, again=n)
        store.run(pageviews.add("/home"))
        if proxy.disarm():
            break
    assert proxy.cuts == 2 * n + 1 > 7
    assert store.run(pageviews.total("/home")) == n + 2


@pytest.mark.parametrize("again", range(5))
def test_connections_that_are_all_lost_end_in_an_error(server_url: str, proxy: Proxy, again: int) -> None:
    told: list[BaseException] = []

    def call(store: roost.Store) -> None:
        try:
            store.run(pageviews.add("/home"))
        except roost.Error as error:
            told.append(error)

    with through(proxy, server_url, timeout=1) as store:
        store.create(pageviews)
        assert store.run(pageviews.total("/home")) == 0
        proxy.arm(0, Cut.BEFORE, again=again, endless=True)
        caller = threading.Thread(target=call, args=(store,), daemon=True)
        caller.start()
        caller.join(60)
        assert not caller.is_alive()
        proxy.disarm()
        before = store.run(pageviews.total("/home"))
    assert not told or before == 0  # with enough messages between two cuts it is done
    assert all(isinstance(error, roost.ConnectionLost) for error in told)
    assert again > 1 or told


def test_an_alter_whose_answer_was_lost_may_be_done(server_url: str, proxy: Proxy) -> None:
    larger = roost.Ring("visits", Visit, per="uid", keep=6)
    armed = False

    def trace(sql: str, row: object) -> None:
        if armed and sql == "COMMIT":
            proxy.arm(0, Cut.AFTER)

    with through(proxy, server_url, trace=trace) as store:
        store.create(visits)
        armed = True
        with pytest.raises(roost.OutcomeUnknown):
            store.alter(larger)
        armed = False
        assert store.structures() == [larger]


@pytest.mark.parametrize("cut", Cut, ids=[cut.name for cut in Cut])
def test_the_first_batch_of_a_connection_is_done_once(
    store: roost.Store, server_url: str, proxy: Proxy, cut: Cut
) -> None:
    for n in range(20):
        with through(proxy, server_url) as fresh:
            fresh.structures()  # the server has been there
            proxy.arm(n, cut)
            fresh.run(pageviews.add("/home"))
            ended = proxy.disarm()
            assert fresh.run(pageviews.total("/home")) == n + 1
        if ended:
            break
    assert ended
    assert proxy.cuts == n > 3


@pytest.mark.parametrize("cut", Cut, ids=[cut.name for cut in Cut])
def test_a_writer_that_is_renewed_finds_its_batches(
    store: roost.Store, proxy: Proxy, cut: Cut, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql, "MOST_BATCHES", 1)  # MariaDB has none: there it is the plain case
    calls = at_every_point(proxy, cut, lambda _: store.run(pageviews.add("/home")))
    assert store.run(pageviews.total("/home")) == calls > 2


@pytest.mark.parametrize("cut", Cut, ids=[cut.name for cut in Cut])
def test_a_batch_that_reads_is_answered(store: roost.Store, proxy: Proxy, cut: Cut) -> None:
    store.run(pageviews.add("/home", 3))

    def call(_: int) -> None:
        assert store.run(pageviews.total("/home")) == 3

    calls = at_every_point(proxy, cut, call)
    assert proxy.cuts == calls - 1 > 1


def test_an_add_is_two_messages(store: roost.Store, proxy: Proxy) -> None:
    store.run(pageviews.add("/home"))  # from now on this store knows the declaration
    calls = at_every_point(proxy, Cut.BEFORE, lambda _: store.run(pageviews.add("/home")))
    assert proxy.cuts == calls - 1 == 2
    assert store.run(pageviews.total("/home")) == 1 + calls
