"""The backend of cachelib's, on each engine."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import roost
from roost.contrib.cachelib import RoostCache
from tests import servers

PAGES = roost.Cache("pages")


@pytest.fixture(params=["sqlite", *servers.SERVERS])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with servers.own_database(request.param, f"{tmp_path}/app.db") as url:
        yield url


class Clock:
    """Of stores on SQLite, which the tests turn."""

    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)

    def __call__(self) -> dt.datetime:
        return self.now


@pytest.fixture
def store(url: str) -> Iterator[roost.Store]:
    with roost.Store(url) as store:
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
    assert (cache.get("f"), cache.get("nowhere"), cache.has("a"), cache.has("nowhere")) == (
        values["f"],
        None,
        True,
        False,
    )
    assert (cache.get_many(), cache.set_many({})) == ([], [])


def test_adding_deleting_clearing(cache: RoostCache) -> None:
    assert (cache.set("a", 1), cache.add("a", 2), cache.add("b", 3)) == (True, False, True)
    assert (cache.delete("a"), cache.delete("a"), cache.get("a"), cache.get("b")) == (True, False, None, 3)
    assert (cache.delete_many("a", "b"), cache.has("b"), cache.delete_many()) == (["a", "b"], False, [])
    cache.set("c", 1)
    assert (cache.clear(), cache.has("c")) == (True, False)


def test_counting_what_is_no_int_of_64_bits(cache: RoostCache) -> None:
    cache.set_many({"half": 1.5, "bool": True, "none": None, "large": 2**70, "text": "7"})
    assert [cache.inc(key) for key in ("half", "bool", "none", "large")] == [2.5, 2, 1, 2**70 + 1]
    assert (cache.inc("new", 1.5), cache.inc("new"), cache.dec("half", 0.5)) == (1.5, 2.5, 2.0)  # type: ignore[arg-type]
    assert (type(cache.inc("one", True)), cache.inc("one")) == (int, 2)
    assert (cache.inc("most", 2**63 - 1), cache.inc("most"), cache.inc("most")) == (2**63 - 1, 2**63, 2**63 + 1)
    assert (cache.dec("most", 2**63), cache.inc("most")) == (1, 2)
    with pytest.raises(TypeError):
        cache.inc("text")


def test_counting_below_zero_and_from_nothing(cache: RoostCache) -> None:
    assert (cache.inc("n"), cache.inc("n", 4), cache.dec("n", 7), cache.get("n"), cache.dec("m", 3)) == (
        1,
        5,
        -2,
        -2,
        -3,
    )


def test_sums_of_more_than_64_bits_are_right(cache: RoostCache) -> None:
    cache.set("n", 2**63 - 1)
    assert (cache.inc("n", 2), cache.get("n")) == (2**63 + 1, 2**63 + 1)
    cache.set("n", -(2**63))
    assert (cache.dec("n"), cache.get("n")) == (-(2**63) - 1, -(2**63) - 1)
    cache.set("n", 5)
    assert (cache.inc("n", 2**64 + 1), cache.get("n")) == (2**64 + 6, 2**64 + 6)
    cache.set("n", -1)
    assert (cache.inc("n", 2**63 - 1), cache.inc("none", 2**70)) == (2**63 - 2, 2**70)


def test_a_negative_timeout_is_over(cache: RoostCache) -> None:
    cache.set("gone", 1, timeout=-1)
    assert not cache.has("gone")


def test_threads_lose_no_count(cache: RoostCache) -> None:
    def work() -> None:
        for _ in range(25):
            cache.inc("n")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.get("n") == 200


def test_ends(tmp_path: Path) -> None:
    clock = Clock()
    with roost.Store(f"sqlite:///{tmp_path}/ends.db", clock=clock) as store:
        store.create(PAGES)
        cache = RoostCache(store, PAGES, default_timeout=60)
        cache.set("default", 1)
        cache.set("never", 1, timeout=0)
        cache.add("later", 1, timeout=dt.timedelta(minutes=5))
        clock.now += dt.timedelta(seconds=61)
        assert cache.get_many("default", "never", "later") == [None, 1, 1]
        clock.now += dt.timedelta(days=3650)
        assert cache.get_many("never", "later") == [1, None]
        endless = RoostCache(store, PAGES, default_timeout=0)
        endless.set("endless", 1)
        clock.now += dt.timedelta(days=3650)
        assert endless.get("endless") == 1


def test_what_cannot_be_stored_is_an_error(cache: RoostCache) -> None:
    with pytest.raises(roost.Invalid, match="pages: a value of the type lock could not be restored from json"):
        cache.set("a", threading.Lock())
    assert not cache.has("a")
