"""The backend of cachelib's, on each engine."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

import roost
from roost.contrib.cachelib import RoostCache
from roost.contrib.serializers import Signed
from tests.suite import clients

PAGES = roost.Cache("pages")
SERIALIZERS: dict[str, Any] = {"json": "json", "signed": Signed("secret")}


@pytest.fixture
def store(any_url: str) -> Iterator[roost.Store]:
    with roost.Store(any_url) as store:
        store.create(PAGES)
        yield store
        assert store.check() == []


@pytest.fixture
def cache(store: roost.Store) -> RoostCache:
    return RoostCache(store, PAGES)


def test_values_come_back_as_they_went(cache: RoostCache) -> None:
    values: dict[str, Any] = {"a": None, "b": -5, "c": True, "d": "7", "e": b"7", "f": [{"g": 2**80}]}
    assert cache.set_many(values) == list(values)
    assert cache.get_many(*values, "nowhere") == [*values.values(), None]
    assert cache.get_dict("b", "d") == {"b": -5, "d": "7"}
    assert (cache.get("f"), cache.get("nowhere")) == (values["f"], None)
    assert (cache.has("a"), cache.has("nowhere")) == (True, False)
    assert (cache.get_many(), cache.set_many({})) == ([], [])


def test_adding_deleting_clearing(cache: RoostCache) -> None:
    assert (cache.set("a", 1), cache.add("a", 2), cache.add("b", 3)) == (True, False, True)
    assert (cache.delete("a"), cache.delete("a"), cache.get("a"), cache.get("b")) == (True, False, None, 3)
    assert (cache.delete_many("a", "b"), cache.has("b"), cache.delete_many()) == (["a", "b"], False, [])
    cache.set("c", 1)
    assert (cache.clear(), cache.has("c")) == (True, False)


COUNTED: list[tuple[Any, list[Any], list[Any]]] = [  # what is stored, what is added to it, and what it is then
    (None, [1, 4, -7, 3], [1, 5, -2, 1]),
    (None, [True, 1], [1, 2]),
    (None, [1.5, 1], [1.5, 2.5]),
    (None, [2**70], [2**70]),
    (None, [2**63 - 1, 1, 1, -(2**63), 1], [2**63 - 1, 2**63, 2**63 + 1, 1, 2]),
    (1.5, [1, -0.5], [2.5, 2.0]),
    (True, [1], [2]),
    (2**70, [1], [2**70 + 1]),
    (2**63 - 1, [2], [2**63 + 1]),
    (-(2**63), [-1], [-(2**63) - 1]),
    (5, [2**64 + 1], [2**64 + 6]),
    (-1, [2**63 - 1], [2**63 - 2]),
]


@pytest.mark.parametrize("serializer", SERIALIZERS, ids=SERIALIZERS)
def test_counting_from_anything_by_anything(store: roost.Store, serializer: str) -> None:
    cache = RoostCache(store, PAGES, serializer=SERIALIZERS[serializer])
    for n, (begin, added, wanted) in enumerate(COUNTED):
        key = str(n)
        if begin is not None:
            cache.set(key, begin)
        found = [cache.inc(key, delta) if delta > 0 else cache.dec(key, -delta) for delta in added]
        assert (found, cache.get(key)) == (wanted, wanted[-1])
        assert [type(each) for each in found] == [type(each) for each in wanted]
    cache.set_many({"none": None, "text": "7"})
    assert cache.inc("none") == 1
    with pytest.raises(TypeError):
        cache.inc("text")


def test_a_negative_timeout_is_over(cache: RoostCache) -> None:
    cache.set("gone", 1, timeout=-1)
    assert not cache.has("gone")


@pytest.mark.parametrize("serializer", SERIALIZERS, ids=SERIALIZERS)
def test_threads_lose_no_count(store: roost.Store, serializer: str) -> None:
    cache = RoostCache(store, PAGES, serializer=SERIALIZERS[serializer])
    with ThreadPoolExecutor(16) as threads:  # of which one may be too late more than a hundred times
        list(threads.map(lambda _: cache.inc("n"), range(300)))
    assert cache.get("n") == 300


def test_a_signed_int_that_was_changed_since_the_snapshot_is_a_conflict(store: roost.Store, any_url: str) -> None:
    cache = RoostCache(store, PAGES, serializer=Signed("secret"))
    cache.set("n", 1)
    with closing(clients.connect(any_url)) as connection:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ" if any_url.startswith("postgresql") else "BEGIN")
        joined = RoostCache(cast(Any, store.on(connection)), PAGES, serializer=Signed("secret"))
        assert joined.get("n") == 1
        assert (cache.inc("n"), cache.get("n")) == (2, 2)
        with pytest.raises(roost.Conflict):
            joined.inc("n")
        connection.execute("ROLLBACK")
    assert cache.inc("n") == 3


def test_ends(tmp_path: Path) -> None:
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    with roost.Store(f"sqlite:///{tmp_path}/ends.db", clock=lambda: now) as store:
        store.create(PAGES)
        cache = RoostCache(store, PAGES, default_timeout=60)
        cache.set("default", 1)
        cache.set("never", 1, timeout=0)
        cache.add("later", 1, timeout=dt.timedelta(minutes=5))
        now += dt.timedelta(seconds=61)
        assert cache.get_many("default", "never", "later") == [None, 1, 1]
        now += dt.timedelta(days=3650)
        assert cache.get_many("never", "later") == [1, None]
        endless = RoostCache(store, PAGES, default_timeout=0)
        endless.set("endless", 1)
        now += dt.timedelta(days=3650)
        assert endless.get("endless") == 1


def test_what_cannot_be_stored_is_an_error(cache: RoostCache) -> None:
    with pytest.raises(roost.Invalid, match="pages: a value of the type lock could not be restored from json"):
        cache.set("a", threading.Lock())
    assert not cache.has("a")
