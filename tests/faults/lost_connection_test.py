"""A connection that is cut at every point of the exchange, COMMIT included: nothing is lost, nothing doubled."""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest

import roost
from roost.databases import replicas, server
from tests import servers
from tests.campaigns.processes import until
from tests.faults.messages import expected
from tests.proxy import Cut, Proxy
from tests.suite.application import Application
from tests.suite.shapes import Egg, Visit, baskets, likes, pageviews, visits

CUTS = (Cut.BEFORE, Cut.AFTER, Cut.ORPHAN)


@pytest.fixture(autouse=True)
def steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no server asked again for its role, which would be one message more."""
    monkeypatch.setattr(replicas, "ROLE", 3600.0)


@pytest.fixture
def proxy(server_url: str) -> Iterator[Proxy]:
    with Proxy(urlsplit(server_url).port or 0) as proxy:
        yield proxy


def through(proxy: Proxy, url: str, **options: Any) -> roost.Store:
    return roost.Store(proxy.url(url), **{"random": random.Random(3), "timeout": 20, **options})


MOST = 2  # connections of a store that one thread uses: its writer's and a reader's


def connected(url: str) -> int:
    """Return how many clients the server has in a database, beside who asks."""
    sql = Application(url)
    listed = "information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
    if sql.kind == "postgresql":
        listed = "pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    ((number,),) = sql(f"SELECT count(*) FROM {listed}")
    sql.close()
    return int(number)


@pytest.fixture
def store(server_url: str, proxy: Proxy) -> Iterator[roost.Store]:
    with through(proxy, server_url) as store:
        store.create(pageviews, visits, baskets, likes, view=False)
        yield store
        until(lambda: proxy.orphaned or connected(server_url) <= MOST, "the end of connections that were lost")
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


@pytest.mark.parametrize("cut", CUTS, ids=[cut.name for cut in CUTS])
def test_a_batch_that_writes_is_done_once(store: roost.Store, proxy: Proxy, cut: Cut) -> None:
    def call(n: int) -> None:
        sequence = store.run_all(
            pageviews.add("/home"), visits.push(Visit(1, n)), baskets.add(Egg(1, n)), likes.add(1, str(n))
        )
        assert sequence == (None, n + 1, None, 1)

    calls = at_every_point(proxy, cut, call)
    assert calls > 5
    assert proxy.cuts == calls - 1
    assert store.run_all(pageviews.total("/home"), visits.latest(1), baskets.count(1), likes.members(1)) == (
        calls,
        [Visit(1, n) for n in reversed(range(calls - 5, calls))],
        min(calls, 12),
        {str(n) for n in range(calls)},
    )


@pytest.mark.parametrize("cut", CUTS, ids=[cut.name for cut in CUTS])
def test_a_connection_that_is_lost_once_more_costs_another_one(store: roost.Store, proxy: Proxy, cut: Cut) -> None:
    for place in (0, 1):  # before, and at COMMIT
        before = proxy.cuts
        batch = (pageviews.add(f"/{place}"), pageviews.total(f"/{place}"))
        store.run_all(*batch)
        for n in range(20):
            proxy.arm(place, cut, again=n)
            store.run_all(*batch)
            if proxy.disarm():
                break
        assert proxy.cuts - before == 2 * n + 1 > 7
        assert store.run(pageviews.total(f"/{place}")) == n + 2


@pytest.mark.parametrize("again", range(5))
def test_connections_that_are_all_lost_end_in_an_error(server_url: str, proxy: Proxy, again: int) -> None:
    found: list[BaseException] = []

    def call(store: roost.Store) -> None:
        try:
            store.run(pageviews.add("/home"))
        except roost.Error as error:
            found.append(error)

    with through(proxy, server_url, timeout=1) as store:
        store.create(pageviews, view=False)
        assert store.run(pageviews.total("/home")) == 0
        proxy.arm(0, Cut.BEFORE, again=again, endless=True)
        caller = threading.Thread(target=call, args=(store,), daemon=True)
        caller.start()
        caller.join(60)
        assert not caller.is_alive()
        proxy.disarm()
        before = store.run(pageviews.total("/home"))
    assert not found or before == 0  # with enough messages between two cuts it is done
    assert all(isinstance(error, roost.ConnectionLost) for error in found)
    assert again > 1 or found


def test_an_alter_whose_answer_was_lost_may_be_done(server_url: str, proxy: Proxy) -> None:
    larger = roost.Ring("visits", Visit, per="uid", keep=6)
    armed = False

    def trace(sql: str, row: object) -> None:
        if armed and sql == "COMMIT":
            proxy.arm(0, Cut.AFTER)

    with through(proxy, server_url, trace=trace) as store:
        store.create(visits, view=False)
        armed = True
        with pytest.raises(roost.OutcomeUnknown):
            store.alter(larger)
        armed = False
        assert store.structures() == [larger]


@pytest.mark.parametrize("cut", CUTS, ids=[cut.name for cut in CUTS])
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


@pytest.mark.parametrize("cut", CUTS, ids=[cut.name for cut in CUTS])
def test_a_writer_that_is_renewed_finds_its_batches(
    store: roost.Store, proxy: Proxy, cut: Cut, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MOST_BATCHES", 1)
    calls = at_every_point(proxy, cut, lambda _: store.run(pageviews.add("/home")))
    assert store.run(pageviews.total("/home")) == calls > 1


@pytest.mark.parametrize("cut", CUTS, ids=[cut.name for cut in CUTS])
def test_a_batch_that_reads_is_answered(store: roost.Store, proxy: Proxy, cut: Cut) -> None:
    store.run(pageviews.add("/home", 3))

    def call(_: int) -> None:
        assert store.run(pageviews.total("/home")) == 3

    calls = at_every_point(proxy, cut, call)
    assert proxy.cuts == calls - 1 > 0


MESSAGES: dict[str, tuple[Callable[[int], roost.Operation[Any]], int]] = {
    "add": (lambda _: pageviews.add("/home"), 1),
    "push": (lambda n: visits.push(Visit(1, n)), 1),
    "add to a set": (lambda n: likes.add(1, str(n)), 1),
    "add to a full collection": (lambda n: baskets.add(Egg(1, n)), 1),
    "total": (lambda _: pageviews.total("/home"), 1),
    "latest": (lambda _: visits.latest(1), 1),
    "contains": (lambda _: likes.contains(1, "0"), 1),
}


def test_how_many_messages_an_operation_is(store: roost.Store, server_url: str, proxy: Proxy) -> None:
    baskets.plans.clear()  # one that has met a duplicate looks first for a while
    for name, (make, messages) in MESSAGES.items():
        for n in range(20):  # from now on this store knows the declaration, and the server has it prepared
            store.run(make(n))
        assert proxy.counted(partial(store.run, make(20))) in expected(server_url, messages), name


def test_stores_that_share_a_declaration_take_nothing_from_each_other(
    store: roost.Store, server_url: str, proxy: Proxy
) -> None:
    with roost.Store(server_url) as other:
        for _ in range(3):
            store.run(pageviews.add("/home"))
            other.run(pageviews.add("/home"))
        assert proxy.counted(partial(store.run, pageviews.add("/home"))) in expected(server_url, 1)
    with roost.Store("sqlite://") as without, pytest.raises(roost.Missing):
        without.run(pageviews.add("/home"))


@pytest.mark.usefixtures("store")
def test_how_many_messages_an_awaited_operation_is(server_url: str, proxy: Proxy) -> None:
    baskets.plans.clear()
    with asyncio.Runner() as runner:
        awaited = roost.AsyncStore(proxy.url(server_url))

        async def run(operation: roost.Operation[Any]) -> None:
            await awaited.run(operation)

        for name, (make, messages) in MESSAGES.items():
            for n in range(20):
                runner.run(run(make(n)))
            assert proxy.counted(lambda make=make: runner.run(run(make(20)))) in expected(server_url, messages), name  # type: ignore[misc]
        runner.run(awaited.close())


def test_a_batch_is_two_messages(store: roost.Store, proxy: Proxy) -> None:
    batch = (pageviews.add("/home"), pageviews.add("/home"))
    for _ in range(10):
        store.run_all(*batch)
    assert proxy.counted(lambda: store.run_all(*batch)) == 2


@pytest.mark.parametrize("cut", CUTS, ids=[cut.name for cut in CUTS])
def test_an_operation_by_itself_is_done_once(store: roost.Store, proxy: Proxy, cut: Cut) -> None:
    """Each begins without a batch, as the one before it was answered."""
    for n in range(10):
        assert store.run(visits.push(Visit(1, n))) == n + 1
        assert store.run(likes.add(1, f"before {n}")) == 1
        store.run(pageviews.add("/home"))
        store.run(baskets.add(Egg(1, -1 - n)))
    adds = at_every_point(proxy, cut, lambda _: store.run(pageviews.add("/home")))
    for _ in range(2):
        store.run(pageviews.add("/home"))
    assert store.run(pageviews.total("/home")) == 12 + adds

    def push(n: int) -> None:
        assert store.run(visits.push(Visit(1, n))) == 11 + 2 * n
        assert store.run(visits.push(Visit(1, n))) == 12 + 2 * n  # on the connection that came after

    pushes = at_every_point(proxy, cut, push)
    assert store.run(visits.push(Visit(1, 7))) == 11 + 2 * pushes

    def like(n: int) -> None:
        assert store.run(likes.add(1, str(n))) == 1
        assert store.run(likes.add(1, str(n))) == 0

    added = at_every_point(proxy, cut, like)
    assert store.run(likes.size(1)) == 10 + added
    laid = at_every_point(proxy, cut, lambda n: store.run(baskets.add(Egg(1, n))))
    assert [egg.egg for egg in store.run(baskets.latest(1))] == [*reversed(range(laid)), *range(-10, 0)][:12]
    assert min(adds, pushes, added, laid) > 1


@pytest.mark.parametrize("verb", ["add", "push", "like"])
def test_a_message_that_is_late_is_not_carried_out(store: roost.Store, proxy: Proxy, verb: str) -> None:
    """It reaches the server when the store has been told that it was not, and has done it again."""
    late: dict[str, roost.Operation[Any]] = {
        "add": pageviews.add("/home"),
        "push": visits.push(Visit(1, 1)),
        "like": likes.add(1, "a"),
    }
    for _ in range(10):
        store.run(pageviews.add("/home"))
        store.run(visits.push(Visit(1, 0)))
        store.run(likes.add(1, "b"))
    proxy.arm(0, Cut.LATE)
    store.run(late[verb])
    assert proxy.cuts == 1
    assert proxy.deliver()
    assert store.run_all(pageviews.total("/home"), visits.push(Visit(1, 0)), likes.size(1)) == (
        10 + (verb == "add"),
        11 + (verb == "push"),
        1 + (verb == "like"),
    )


def test_a_reset_that_shows_as_an_error_alone_is_a_lost_connection() -> None:
    # For a moment the kernel shows it so, and psycopg then raises without telling libpq: the store went on with that
    # connection, and every later call failed.
    reads, error_alone = os.pipe()  # its end, for whoever polls it for an answer
    os.close(reads)
    over = threading.Event()

    with (
        servers.database("postgresql") as url,
        Proxy(urlsplit(url).port or 0) as proxy,
        through(proxy, url) as through_it,
    ):

        def reset() -> None:
            connection: Any = through_it._core._writer.connection
            os.dup2(error_alone, connection.raw.fileno())
            over.wait()  # the proxy would end it otherwise, which shows as well

        through_it.create(pageviews)
        for n, operations in ((0, 1), (0, 2), (1, 2)):
            through_it.run_all(pageviews.add("/warm"), pageviews.add("/warm"))
            over.clear()
            proxy.arm(n, Cut.AFTER, reset)
            try:
                through_it.run_all(*[pageviews.add(f"/{n}/{operations}")] * operations)
            finally:
                assert not proxy.disarm()
                over.set()
            assert through_it.run(pageviews.total(f"/{n}/{operations}")) == operations
    os.close(error_alone)
