"""Nothing on the good path is undone and run again, and what a plain read refuses writes nothing."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from typing import Any

import pytest

import roost
from roost.databases import replicas
from tests.lengths import length
from tests.suite.application import Application
from tests.suite.boundaries import Egg, plain
from tests.suite.clients import Client
from tests.suite.shapes import Visit

HOUR = 3600
counters = roost.Counter("counters", key=int)
windows = roost.Counter("windows", key=int, window="hour", keep=2)
rings = roost.Ring("rings", Visit, per="uid", keep=2)
fading = roost.Ring("fading", Visit, per="uid", keep=2, keep_for=HOUR)
eggs = roost.Capped(
    "eggs",
    Egg,
    per="basket",
    keep=100,  # MariaDB undoes an add that evicts beside a hole
    unique="egg",
)
refreshing = roost.Capped("refreshing", Egg, per="basket", keep=5, unique="egg", on_duplicate="refresh")
fading_eggs = roost.Capped("fading_eggs", Egg, per="basket", keep=5, unique="egg", keep_for=HOUR)
best: Any = roost.Capped("best", Egg, per="basket", keep=5, unique="egg", order="points")
members: Any = roost.Set("members", key=int, member=int)
fading_members: Any = roost.Set("fading_members", key=int, member=int, keep_for=HOUR)
caches = roost.Cache("caches", key=int, value=int)
texts = roost.Cache("texts", key=int, value=roost.text(100))
bounded = roost.Cache("bounded", key=int, value=int, max_items=100)
limits = roost.RateLimit("limits", key=int, limit=1_000, within=HOUR)
leases = roost.Lease("leases", key=int)
OVER = roost.Grant(2, "ada", 7, dt.datetime.now(dt.UTC))


def of_counter(counter: Any) -> Callable[[int], list[Any]]:
    return lambda n: [
        counter.add(1),
        counter.add_all({1: 2, 2: 3}),
        counter.increment(1),
        *(counter.clear(9), counter.forget(9), counter.clear(2)),
        counter.total(1),
        counter.totals([1, 2]),
        counter.top(),
        counter.keys(),
    ]


def of_ring(ring: Any) -> Callable[[int], list[Any]]:
    return lambda n: [
        *(ring.push(Visit(1, n)), ring.push_all([Visit(1, n), Visit(2, n)]), ring.latest(1), ring.entries(1)),
        *(ring.keys(), ring.clear(2), ring.clear(9), ring.forget(3)),
    ]


def of_capped(capped: Any) -> Callable[[int], list[Any]]:
    return lambda n: [
        *(capped.add(Egg(1, n, n)), capped.add_all([Egg(1, 100 + n, n), Egg(2, n, n)]), capped.remove(1, 100 + n)),
        *(capped.remove(9, 1), capped.get(1, n), capped.count(1), capped.latest(1), capped.entries(1), capped.keys()),
        *(capped.clear(2), capped.forget(3)),
    ]


def of_set(some: Any) -> Callable[[int], list[Any]]:
    return lambda n: [
        *(some.add(1, n), some.add(1, 1), some.add(1, n, n + 100), some.add_all([(1, n), (2, n)]), some.remove(1, 1)),
        *(some.remove(9, 1), some.members(1), some.contains(1, n), some.size(1), some.keys(), some.clear(2)),
        some.forget(3),
    ]


def of_cache(cache: Any, value: Any) -> Callable[[int], list[Any]]:
    return lambda n: [
        *(
            cache.set(1, value, ttl=HOUR),
            cache.set_many({1: value, 2: value}),
            cache.add(n, value),
            cache.add(1, value),
        ),
        *(cache.replace(1, value), cache.cas(1, value, 1), cache.touch(1, HOUR), cache.touch(99), cache.get(1)),
        *(cache.get_many([1, 2]), cache.gets(1), cache.keys(), cache.lease(n, HOUR), cache.release(n, 1)),
        *(cache.delete(2), cache.delete(99), cache.increment(1), cache.decrement(1), cache.clear(3), cache.forget(3)),
    ]


CALLS: dict[Any, Callable[[int], list[Any]]] = {
    counters: of_counter(counters),
    windows: of_counter(windows),
    rings: of_ring(rings),
    fading: of_ring(fading),
    eggs: of_capped(eggs),
    refreshing: of_capped(refreshing),
    fading_eggs: of_capped(fading_eggs),
    best: lambda n: [*of_capped(best)(n), best.top(1), best.rank(1, n)],
    members: of_set(members),
    fading_members: of_set(fading_members),
    caches: of_cache(caches, 5),
    texts: lambda n: [*of_cache(texts, "7")(n), texts.append(1, "1"), texts.prepend(1, "1"), texts.append(99, "1")],
    bounded: of_cache(bounded, 5),
    limits: lambda n: [limits.take(1), limits.take(n), limits.peek(1), limits.keys(), limits.clear(1)],
    leases: lambda n: [
        *(leases.acquire(1, "ada", HOUR), leases.acquire(1, "bob", HOUR), leases.acquire(n, "ada", HOUR)),
        *(leases.holder(1), leases.peek(1), leases.keys(), leases.clear(n)),
    ],
}


@pytest.mark.needs("cache", "counter", "ring", "capped", "set")
def test_f98_no_call_is_run_again(open_store: Callable[..., Any]) -> None:
    store = open_store(*CALLS)
    for calls in CALLS.values():
        for op in calls(1):  # the first use of a connection, a declaration and a key has more to do
            store.run(op)
        for n in range(2, length(4, 8)):
            for op in calls(n):
                before = store.stats().retries
                store.run(op)
                assert store.stats().retries == before, op


unbounded: Any = roost.Capped("unbounded", Egg, per="basket", keep=None, unique="egg", keep_for=HOUR)
rejecting: Any = roost.Capped("rejecting", Egg, per="basket", keep=1, unique="egg", on_full="reject")

# What is there, and what then changes nothing.
NOTHING: list[tuple[list[Any], list[Any]]] = [
    ([counters.add(1)], [counters.clear(9), counters.forget(9), windows.clear(9)]),
    ([], [rings.clear(9), rings.forget(9), fading.clear(9), fading.forget(9)]),
    (
        [each.add(Egg(1, 1, 5)) for each in (eggs, rejecting, unbounded, best)],
        [
            *(each.add(Egg(1, 1, 5)) for each in (eggs, rejecting, unbounded, best)),
            *(rejecting.add(Egg(1, 2, 5)), eggs.remove(1, 9), eggs.remove(9, 1), unbounded.remove(1, 9)),
            *(eggs.clear(9), eggs.forget(9)),
        ],
    ),
    (
        [members.add(1, 1), fading_members.add(1, 1)],
        [members.add(1, 1), *(op for each in (members, fading_members) for op in (each.remove(1, 9), each.clear(9)))],
    ),
    (
        [caches.set(1, 5), texts.set(1, "5"), caches.lease(1, HOUR)],
        [
            *(caches.add(1, 6), caches.replace(9, 6), caches.cas(9, 6, 1), caches.cas(1, 6, 1), caches.delete(9)),
            *(caches.touch(9), caches.increment(9), caches.lease(1, HOUR), caches.release(1, 1), caches.clear(9)),
            *(caches.forget(9), texts.append(9, "1"), texts.prepend(9, "1")),
        ],
    ),
    ([limits.take(1, 1_000)], [limits.take(1, 500), limits.clear(9), limits.forget(9)]),
    (
        [leases.acquire(1, "ada", HOUR), leases.acquire(2, "ada", HOUR), leases.clear(2)],
        [
            *(leases.acquire(1, "bob", HOUR), leases.clear(9), leases.forget(9)),
            *(leases.renew(OVER, HOUR), leases.release(OVER)),
        ],
    ),
]


@pytest.mark.needs("second store", "cache")
def test_what_changes_nothing_fails_nowhere_and_on_a_file_writes_nothing(
    open_store: Callable[..., Any], application: Application
) -> None:
    store = open_store(*{op.structure: op for before, nothing in NOTHING for op in [*before, *nothing]})

    def refused(op: Any) -> Any:
        try:
            return plain((store.run(op),), (op,))
        except (roost.Duplicate, roost.Full) as error:
            return type(error)

    for before, nothing in NOTHING:
        store.run_all(*before)
        for op in nothing:
            answer = refused(op)
            refused(op)
            retries = store.stats().retries
            version = application("PRAGMA data_version") if application.kind == "sqlite" else None
            assert [refused(op) for _ in range(3)] == [answer] * 3, op
            assert store.stats().retries == retries, op
            assert version in (None, application("PRAGMA data_version") if version else None), op


@pytest.mark.needs("second store", "cache", "operations by themselves")
def test_f97_refused_takes_and_acquires_write_nothing(
    open_store: Callable[..., Any], statements: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "ROLE", 0.0)  # as long after the last batch as can be
    limit, jobs = roost.RateLimit("limit", limit=2, within=HOUR), roost.Lease("jobs")
    over = roost.Grant("a", "ada", 7, OVER.expires)
    store = open_store(limit, jobs)
    for _ in range(4):
        store.run(limit.take("a"))
    store.run(jobs.acquire("a", "ada", HOUR))
    store.run(jobs.holder("a"))
    statements.clear()
    for _ in range(50):
        taken = store.run(limit.take("a"))
        assert (taken.allowed, taken.remaining) == (False, 0)
        assert store.run(jobs.acquire("a", "bob", HOUR)) is None
    assert [sql for sql in statements if not sql.startswith("SELECT") and "PREPARE" not in sql] == []
    assert store.run_all(jobs.acquire("a", "bob", HOUR), jobs.renew(over, 1), jobs.release(over)) == (None, None, False)
    assert [each.allowed for each in store.run_all(limit.take("a"), limit.take("a", 2))] == [False, False]
    rows = [sql for sql in statements if re.search("roost_(limit|jobs)_rows", sql)]
    assert [sql for sql in rows if re.search("INSERT|UPDATE|DELETE|FOR SHARE", sql)] == []
    store.run(limit.clear("a"))
    assert store.run(limit.take("a")).allowed
    store.run(jobs.clear("a"))
    assert store.run(jobs.acquire("a", "bob", HOUR)).holder == "bob"


@pytest.mark.needs("file", "cache")
def test_f97_a_refusal_does_not_wait_for_another_writer(open_store: Callable[..., Any], sql: Client) -> None:
    limit, jobs = roost.RateLimit("limit", limit=1, within=HOUR), roost.Lease("jobs")
    store = open_store(limit, jobs, timeout=0.5)
    store.run(limit.take("a"))
    store.run(jobs.acquire("a", "ada", HOUR))
    sql.execute("BEGIN IMMEDIATE")
    assert not store.run(limit.take("a")).allowed
    assert store.run(jobs.acquire("a", "bob", HOUR)) is None
    sql.execute("ROLLBACK")
