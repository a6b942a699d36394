"""What has expired, and is held by a transaction that stays open, is in nobody's way."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import roost
from roost.contrib.windows import Windows
from tests.servers import kind_of
from tests.suite import clients
from tests.suite.passing import passes


@dataclass(frozen=True)
class Row:
    key: int
    member: int


cache = roost.Cache("pages", key=int, value=str)
limit = roost.RateLimit("logins", key=int, limit=5, within=60)
lease = roost.Lease("jobs", key=int)
members = roost.Set("likes", key=int, member=int, keep_for=60)
ring = roost.Ring("visits", Row, per="key", keep=3, keep_for=60)
capped = roost.Capped("baskets", Row, per="key", keep=3, unique="member", keep_for=60)
windows = Windows("hits", key=int)
counter = roost.Counter("pageviews", key=int)

WRITES: list[tuple[Any, Callable[[int], roost.Operation[Any]]]] = [
    (cache, lambda key: cache.set(key, "x", ttl=60)),
    (limit, limit.take),
    (lease, lambda key: lease.acquire(key, "me", 60)),
    (members, lambda key: members.add(key, 1)),
    (ring, lambda key: ring.push(Row(key, 1))),
    (capped, lambda key: capped.add(Row(key, 1))),
    (windows, lambda key: windows.hit(key, 60)),
    (counter, counter.add),  # with tokens, which expire
]


@pytest.mark.parametrize(("structure", "write"), WRITES, ids=[each.name for each, _ in WRITES])
def test_those_who_write_other_keys_are_answered(
    server_url: str, structure: Any, write: Callable[[int], roost.Operation[Any]]
) -> None:
    def call(runner: Any, *keys: int) -> None:
        runner.run_all(*map(write, keys), once=f"{keys}" if structure is counter else None)

    with roost.Store(server_url) as store, contextlib.closing(clients.connect(server_url)) as sql:
        store.create(structure, view=False)
        for key in range(3):
            call(store, key)
        if structure is counter:
            sql.execute("UPDATE roost_once SET until = 0")
        else:
            passes(sql, structure, 3600)
        if kind_of(server_url) != "postgresql":  # above, they lock what lies between the keys
            sql.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        sql.execute("BEGIN")
        call(store.on(sql), 1)
        # This store's batches are as elsewhere those that are run again: they wait for no lock at all. Several writes
        # are followed by a sweep; one by itself meets the structure's time, which is being written.
        with roost.Store(server_url, lock_wait=0) as others:
            call(others, 3, 4)
            call(others, 5)
            assert others.stats().retries == 0
        sql.execute("COMMIT")
        assert store.check() == []
