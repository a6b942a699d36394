"""A connection that is cut at every point of the exchange, COMMIT included: nothing is lost, nothing doubled."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest

import roost
from tests.proxy import Cut, Proxy
from tests.suite.shapes import Egg, Visit, baskets, likes, pageviews, visits


@pytest.fixture
def proxy(server_url: str) -> Iterator[Proxy]:
    with Proxy(urlsplit(server_url).port or 0) as proxy:
        yield proxy


@pytest.fixture
def store(server_url: str, proxy: Proxy) -> Iterator[roost.Store]:
    parts = urlsplit(server_url)
    url = parts._replace(netloc=f"{parts.username}@127.0.0.1:{proxy.port}").geturl()
    with roost.Store(url, random=random.Random(3), timeout=20) as store:
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
