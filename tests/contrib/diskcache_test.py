"""The local cache in the manner of diskcache."""

from __future__ import annotations

import math
import pickle
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import roost
from roost.contrib.diskcache import STORED, Cache
from tests.campaigns.processes import children
from tests.contrib.serializers_test import Planted


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    with Cache(tmp_path / "cache") as cache:
        yield cache
        assert cache.store.check() == []


def test_values_under_keys_of_many_types(cache: Cache) -> None:
    keys: list[Any] = ["a", "~a", "", 1, "1", 1.5, b"a", ("a", 1), None, "ä", 2**70]
    for n, key in enumerate(keys):
        cache[key] = [n]
    assert [cache[key] for key in keys] == [[n] for n in range(len(keys))]
    assert (len(cache), set(cache)) == (len(keys), set(keys))
    del cache["a"]
    assert ("a" in cache, cache.get("a", 7), cache.delete("a"), cache.pop("1"), cache.pop("1", 8)) == (
        *(False, 7, False),
        *([4], 8),
    )
    for wrong in (lambda: cache["a"], lambda: cache.__delitem__("a")):
        with pytest.raises(KeyError):
            wrong()
    for key in ("k" * 256, object(), {"a"}, math.nan, ("\ud800",)):
        with pytest.raises(roost.Invalid):
            cache["a" if isinstance(key, set) else key] = object()
    assert (cache.clear(), len(cache), list(cache)) == (len(keys) - 2, 0, [])


def test_adding_and_counting(cache: Cache) -> None:
    assert (cache.add("a", 1), cache.add("a", 2), cache.incr("a", 4), cache.decr("a", 9), cache.get("a")) == (
        *(True, False),
        *(5, -4, -4),
    )
    assert (cache.incr("b"), cache.incr("c", default=10), cache.decr("d", 2)) == (1, 11, -2)
    with pytest.raises(KeyError):
        cache.incr("e", default=None)
    with pytest.raises(roost.Invalid):
        cache.incr("e", default=1.5)  # type: ignore[arg-type]
    cache["most"] = 2**63 - 1
    with pytest.raises(roost.Overflow):
        cache.incr("most")
    assert cache["most"] == 2**63 - 1
    cache["text"] = "x"
    with pytest.raises(roost.Invalid):
        cache.incr("text")


def test_what_expires(cache: Cache) -> None:
    cache.set("a", 1, expire=60, tag="t")
    value, ends, tag = cache.get("a", expire_time=True, tag=True)
    assert (value, 55 < ends - time.time() <= 60, tag) == (1, True, "t")
    assert cache.get("b", 5, expire_time=True, tag=True) == (5, None, None)
    for n in range(20):
        cache.set(n, "gone", expire=0)
    assert (cache.get(1), cache.touch("a", 0), cache.touch("a"), cache.get("a")) == (None, True, False, None)
    cache.set("b", 1)
    for n in range(2_000):
        cache.set(n, "gone", expire=0)
    stored = cache._ask(STORED)
    with cache.transact():
        assert cache.expire() == 0
    assert (cache.expire(), list(cache), cache._ask(STORED)) == (stored - 1, ["b"], 1)


def test_tags(cache: Cache) -> None:
    for n in range(10):
        cache.set(n, n, tag=("odd" if n % 2 else 2))
    cache.set(1, "untagged")
    assert cache.get(2, tag=True) == (2, 2)
    assert (cache.evict("odd"), cache.evict(2), cache.evict("none"), cache.evict(None), list(cache)) == (
        4,
        5,
        0,
        0,
        [1],
    )


def test_two_tags_with_one_checksum_are_two(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zlib.crc32", lambda _: 2**32 - 1)
    for tag in "abc":
        cache.set(tag, tag, tag=tag)
    assert (cache.evict("b"), sorted(cache), cache.get("c", tag=True)) == (1, ["a", "c"], ("c", "c"))


def test_it_is_bounded_in_bytes(tmp_path: Path) -> None:
    with Cache(tmp_path, size_limit=10_000) as cache:
        for n in range(100):
            cache[n] = "x" * 500
        assert (len(cache) > 10, cache.volume() <= 10_000, 99 in cache, 0 in cache) == (True, True, True, False)
    for limit in (2_000, 10_000, 2_000):  # also one that it had before
        with Cache(tmp_path, size_limit=limit) as cache:
            for n in range(100):
                cache[n] = "x" * 500
            assert limit / 2 < cache.volume() <= limit
            assert cache.store.check() == []


def test_a_block_is_all_or_nothing(cache: Cache) -> None:
    with cache.transact():
        cache["a"] = 1
        with cache.transact():
            assert cache.incr("a") == 2
        cache.set("b", 1, tag="t")
        assert (len(cache), cache.evict("t")) == (2, 1)
    with suppress(ZeroDivisionError), cache.transact():
        cache.set("a", 5, tag="taken back")
        raise ZeroDivisionError
    assert (cache["a"], cache.set("c", 1, tag="taken back"), cache.evict("taken back")) == (2, True, 1)


@pytest.mark.parametrize("name", ["a?b", "a%20b", "a#b", "ä b"])
def test_a_directory_has_any_name_and_may_be_relative(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Cache(name) as cache:
        monkeypatch.chdir("/")
        with cache.transact():
            cache["a"] = 1
        assert (cache["a"], len(cache), ThreadPoolExecutor(1).submit(cache.get, "a").result()) == (1, 1, 1)
    assert (tmp_path / name / "cache.db").exists()


def test_a_call_that_has_waited_for_others_long_enough_is_busy(cache: Cache) -> None:
    with Cache(cache.directory, timeout=0.01) as other, cache.transact():
        for call in (lambda: other.evict("t"), lambda: other.transact().__enter__()):
            with pytest.raises(roost.Busy):
                call()


def test_memoized_functions(cache: Cache) -> None:
    calls = []

    @cache.memoize(expire=60, tag="f", ignore={"verbose", 2})
    def add(x: float, y: float = 0, verbose: bool = False) -> float:
        calls.append((x, y))
        return x + y

    assert [add(1, 2), add(1, 2), add(1, 2, True), add(1, y=2), add(1.5)] == [3, 3, 3, 3, 1.5]
    assert len(calls) == 3
    assert add.__cache_key__(1, 2) in cache  # type: ignore[attr-defined]
    assert (cache.evict("f"), add(1, 2), len(calls)) == (3, 3, 4)

    @cache.memoize("typed", typed=True)
    def kind(x: float) -> str:
        return type(x).__name__

    assert [kind(1), kind(True), kind(1)] == ["int", "bool", "int"]


def test_hits_and_misses(cache: Cache) -> None:
    cache["a"] = 1
    assert (cache["a"], cache.get("b"), cache.stats(enable=True, reset=True), cache.stats()) == (
        1,
        None,
        (1, 1),
        (0, 0),
    )


def test_a_planted_pickle_is_a_miss(cache: Cache, tmp_path: Path) -> None:
    cache.store.run(cache._values.set("a", pickle.dumps(Planted(tmp_path / "executed"))))
    assert (cache.get("a", "a miss"), "a" in cache) == ("a miss", True)
    assert not (tmp_path / "executed").exists()


def counting(path: Path, n: int) -> None:
    with Cache(path) as cache:
        for _ in range(n):
            cache.incr("n")
            with cache.transact():
                cache["m"] = cache.get("m", 0) + 1


def test_processes_and_threads_lose_no_count(cache: Cache) -> None:
    with children(2, lambda line, _: counting(cache.directory, 50)) as made, ThreadPoolExecutor(2) as threads:
        list(threads.map(counting, [cache.directory] * 2, [50] * 2))
        assert [child.wait() for child in made] == [0, 0]
    assert (cache["n"], cache["m"]) == (200, 200)
