"""The storage of limits, on every database: each window is exact, whoever writes."""

from __future__ import annotations

import asyncio
import bisect
import datetime as dt
import random
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import limits
import roost
from roost.contrib.limits import AsyncRoostStorage, RoostStorage
from roost.contrib.windows import Windows
from tests import servers
from tests.campaigns.processes import at_once
from tests.lengths import length
from tests.suite import clients

DATABASES = ["sqlite", *servers.SERVERS]
STRATEGIES: Any = limits.strategies.STRATEGIES


@pytest.fixture
def statements() -> list[str]:
    return []


@pytest.fixture
def storage(any_url: str, statements: list[str]) -> Iterator[RoostStorage]:
    options: Any = {"trace": lambda sql, _: statements.append(sql)}
    storage: Any = limits.storage.storage_from_string(f"roost+{any_url}", **options)
    yield storage
    assert storage.store.check() == []
    storage.store.close()


Hit = tuple[str, float, float]  # the strategy, and the times before and after the call


def allowed(url: str, limit: str, seconds: float, n: int) -> list[Hit]:
    """What a process is allowed that asks `n` times of each strategy, or until the time is over."""
    storage: Any = limits.storage.storage_from_string(f"roost+{url}", timeout=60.0)
    limiters = {name: STRATEGIES[name](storage) for name in STRATEGIES}
    item, end, found = limits.parse(limit), time.time() + seconds, []
    for name in [*STRATEGIES] * n:
        before = time.time()
        if before > end:
            break
        if limiters[name].hit(item, name):
            found.append((name, before, time.time()))
    storage.store.close()
    return found


def in_processes(url: str, *work: Any, processes: int = 4) -> dict[str, list[Hit]]:
    found = [hit for hits in at_once(processes, lambda _: allowed(url, *work)) for hit in hits]
    return {name: [hit for hit in found if hit[0] == name] for name in STRATEGIES}


def most_within(hits: list[Hit], within: float) -> int:
    """The most hits that are sure to have been within a time; each was between two moments."""
    ordered = sorted((before, after) for _, before, after in hits)
    begins, most = [before for before, _ in ordered], 0
    for place, begin in enumerate(begins):
        last = bisect.bisect_right(begins, begin + within)
        most = max(most, sum(after <= begin + within for _, after in ordered[place:last]))
    return most


@pytest.mark.spread
def test_processes_are_never_allowed_more_than_the_limit(any_url: str, storage: RoostStorage) -> None:
    storage.reset()
    found = in_processes(any_url, "7/second", length(2.2, 3.5), 100_000, processes=length(2, 4))
    for name, hits in found.items():
        assert len(hits) >= 14
        # Of two fixed windows one may have its hits at the end, and the next one at its begin.
        assert most_within(hits, 1.0) <= (7 if name == "moving-window" else 14)


def test_a_burst_is_allowed_what_the_limit_says(any_url: str, storage: RoostStorage) -> None:
    storage.reset()
    assert {name: len(hits) for name, hits in in_processes(any_url, "10/hour", 60.0, 30).items()} == dict.fromkeys(
        STRATEGIES, 10
    )


def test_a_refusal_writes_and_locks_nothing(
    any_url: str, storage: RoostStorage, statements: list[str], database: str
) -> None:
    assert [storage.acquire_entry("k", 5, 60, n) for n in (2, 3, 1, 6)] == [True, True, False, False]
    assert [storage.acquire_sliding_window_entry("k", 5, 60, n) for n in (2, 3, 1, 6)] == [True, True, False, False]
    assert storage.get_moving_window("k", 5, 60)[1] == 5
    with closing(clients.connect(any_url)) as connection:
        connection.execute("BEGIN IMMEDIATE" if any_url.startswith("sqlite") else "BEGIN")
        storage.store.on(connection).run(storage.windows.hit("k", 60))
        statements.clear()
        for _ in range(20):  # though somebody else has locked the key
            assert not storage.acquire_entry("k", 5, 60)
            assert not storage.acquire_sliding_window_entry("k", 5, 60)
        # On MySQL every operation is a batch, which has a row of its own.
        assert database == "mysql" or {sql.split()[0] for sql in statements} <= {"SELECT", "SET"}
        connection.execute("ROLLBACK")
    assert storage.get_sliding_window("k", 60)[2] == storage.get_moving_window("k", 5, 60)[1] == 5


def test_what_a_transaction_has_taken_it_can_give_back(any_url: str, storage: RoostStorage) -> None:
    windows = storage.windows
    assert storage.acquire_entry("k", 3, 60)
    with closing(clients.connect(any_url)) as connection:
        connection.execute("BEGIN")
        joined = storage.store.on(connection)
        taken = joined.run_all(*[windows.take("k", 3, 60) for _ in range(3)], *[windows.slide("k", 1, 60)] * 2)
        assert taken == (True, True, False, True, False)
        assert joined.run(windows.hit("k", 60, 2)) == 2
        connection.execute("ROLLBACK")
    assert storage.acquire_entry("k", 3, 60, 2)
    assert (storage.get("k"), storage.get_sliding_window("k", 60)[2]) == (0, 0)


def test_the_limit_of_the_call_decides(storage: RoostStorage) -> None:
    assert [storage.acquire_entry("k", 3, 60) for _ in range(4)] == [True, True, True, False]
    assert [storage.acquire_entry("k", 5, 60) for _ in range(3)] == [True, True, False]
    assert not storage.acquire_entry("k", 3, 60)
    assert [storage.acquire_sliding_window_entry("k", 3, 60) for _ in range(4)] == [True, True, True, False]
    assert [storage.acquire_sliding_window_entry("k", 4, 60) for _ in range(2)] == [True, False]
    with pytest.raises(roost.Invalid, match="at most 10,000"):
        storage.acquire_entry("k", 10_001, 60)
    assert storage.acquire_entry("k", 10_000, 60, 9_995)
    assert not storage.acquire_entry("k", 10_000, 60)
    with pytest.raises(roost.Invalid, match="too high"):
        storage.acquire_sliding_window_entry("k", 10**12, 86_400 * 366)


@pytest.mark.parametrize("name", STRATEGIES)
def test_what_costs_nothing_is_allowed_and_counts_nothing(storage: RoostStorage, name: str) -> None:
    limiter, item = STRATEGIES[name](storage), limits.parse("2/minute")
    assert [limiter.hit(item, "k", cost=cost) for cost in (0, 1, 0, 1, 0)] == [True] * 5
    assert limiter.get_window_stats(item, "k").remaining == 0
    with pytest.raises(roost.Invalid):
        limiter.hit(item, "k", cost=-1)


def test_a_sliding_window_lasts_for_a_millisecond(storage: RoostStorage) -> None:
    assert storage.acquire_sliding_window_entry("k", 2, 1)
    with pytest.raises(roost.Invalid, match="a millisecond"):
        storage.store.run_all(*[storage.windows.slide("k", 2, 0.0005)] * 3)
    assert storage.store.run_all(*[storage.windows.slide("k", 2, 0.001)] * 3)[0]


def test_windows_count_and_end(storage: RoostStorage) -> None:
    assert (storage.get("k"), storage.get_expiry("k") <= time.time()) == (0, True)
    assert [storage.incr("k", 60), storage.incr("k", 60, 4), storage.get("k")] == [1, 5, 5]
    assert 55 < storage.get_expiry("k") - time.time() <= 60
    assert storage.get_moving_window("nobody", 5, 60)[1] == 0
    storage.acquire_entry("k", 5, 60)
    start, n = storage.get_moving_window("k", 5, 60)
    assert (n, time.time() - 5 < start <= time.time()) == (1, True)
    storage.clear("k")
    assert (storage.get("k"), storage.get_moving_window("k", 5, 60)[1]) == (0, 0)
    for n in range(3):
        storage.incr(f"key {n}", 60)
    assert (storage.check(), storage.reset(), storage.reset()) == (True, 3, 0)


def test_keys_of_any_length_are_told_apart(storage: RoostStorage) -> None:
    names = ["k" * 255, "k" * 256, "k" * 257, "k" * 256 + "\0", "\0", "K", "k", "k ", "ä", "a", "\ud800", ""]
    assert [storage.incr(name, 60) for name in names] == [1] * len(names)


@pytest.mark.parametrize("scheme", ["sqlite+pysqlite", "postgresql+psycopg2", "postgresql+asyncpg", "mysql+aiomysql"])
def test_urls_as_sqlalchemy_has_them_are_known(scheme: str) -> None:
    for prefix, kind in (("", RoostStorage), ("async+", AsyncRoostStorage)):
        assert isinstance(limits.storage.storage_from_string(f"{prefix}roost+{scheme}:///app.db"), kind)


def test_a_store_that_may_not_create_says_what_is_missing(any_url: str) -> None:
    storage = RoostStorage(f"roost+{any_url}", create=False, name="own_limits", wrap_exceptions=True)
    with storage.store, pytest.raises(limits.errors.StorageError):
        storage.incr("k", 60)
    assert not storage.check()


def test_tasks_share_the_limit_and_the_loop_goes_on(any_url: str) -> None:
    async def main() -> None:
        storage: Any = limits.storage.storage_from_string(f"async+roost+{any_url}")
        assert isinstance(storage, AsyncRoostStorage)
        strategies: Any = limits.aio.strategies.STRATEGIES
        for name in strategies:
            limiter = strategies[name](storage)
            allowed = await asyncio.gather(*[limiter.hit(limits.parse("10/hour"), name) for _ in range(50)])
            assert sum(allowed) == 10
            assert not await limiter.test(limits.parse("10/hour"), name)
            reset, remaining = await limiter.get_window_stats(limits.parse("10/hour"), name)
            assert (remaining, reset > time.time()) == (0, True)
            await limiter.clear(limits.parse("10/hour"), name)
            assert await limiter.hit(limits.parse("10/hour"), name)
        assert (await storage.check(), await storage.reset()) == (True, 3)
        assert await storage.store.check() == []
        await storage.store.close()

    asyncio.run(main())


def test_what_random_calls_answer_is_what_a_list_answers(tmp_path: Path) -> None:
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    windows: Windows[str] = Windows("windows")
    dice, taken, moment = random.Random(3), dict[str, list[int]](), 0
    with roost.Store(f"sqlite:///{tmp_path}/w.db", clock=lambda: now + dt.timedelta(microseconds=moment)) as store:
        store.create(windows)
        for _ in range(3_000):
            moment += dice.choice([0, 1, 250_000, 1_000_000, 3_000_000, 10_000_000])
            key, limit, n = dice.choice("ab"), dice.randrange(1, 8), dice.randrange(1, 4)
            if n > limit:
                continue
            mine = taken.setdefault(key, [])
            fits = sum(at >= moment - 10_000_000 for at in mine) + n <= limit
            if dice.random() < 0.3:
                found = store.run_all(windows.take(key, limit, 10, n), windows.keys())[0]
            else:
                found = store.run(windows.take(key, limit, 10, n))
            assert found == fits
            mine += [moment] * (n if fits else 0)
            peeked = store.run(windows.peek(key, 10))
            assert peeked.hits == sum(at >= moment - 10_000_000 for at in mine)
        assert store.check() == []
        moment += 60_000_000
        for n in range(64):  # what is over is deleted by later writes
            store.run(windows.take(f"key {n}", 1, 1))
            moment += 3_000_000
        assert len(store.run(windows.keys())) <= 2
        assert store.check() == []
