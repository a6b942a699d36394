"""Roost behind limits, cachelib and in place of diskcache, one thread, beside Redis on the same machine and diskcache.

Redis keeps nothing on disk; SQLite is FULL and in WAL mode, as diskcache's is NORMAL and so ours beside it; the servers
are as tests start them. The values have 100 bytes. The least of several rounds is shown.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import cachelib
import diskcache  # type: ignore[import-untyped]
from tests import servers

import limits
import roost
import roost.contrib.limits
from bench.memcached import redis_daemon
from bench.report import micros, say, seconds, show
from roost.contrib.cachelib import RoostCache
from roost.contrib.diskcache import Cache

KEYS = 1_000
VALUE = "".join(random.Random(1).choices("abcdefgh", k=100))
ROUNDS, CALLS = 9, 50
FREE, FULL = limits.parse("10000/hour"), limits.parse("1/hour")

Work = Callable[[], object]


def main(quick: bool) -> bool:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as made:
        Path(folder, "redis").mkdir()
        urls = {"SQLite": f"sqlite:///{folder}/doors.db"}
        try:
            redis = redis_daemon(f"{folder}/redis")
            made.callback(redis.kill)
            for name, shown in (("mariadb", "MariaDB"), ("mysql", "MySQL"), ("postgresql", "PostgreSQL")):
                urls[shown] = made.enter_context(servers.database(name))
        except servers.NotHere as error:
            say(str(error))
            return False
        works = {"Redis": _works(limits.storage.storage_from_string(redis.url), _of_redis(redis.url))}
        for shown, url in urls.items():
            store = made.enter_context(roost.Store(url))
            pages = roost.Cache("pages")
            store.create(pages)
            works[shown] = _works(limits.storage.storage_from_string(f"roost+{url}"), RoostCache(store, pages))
        rows = []
        for work in next(iter(works.values())):
            times = _least(quick, *[_repeated(each[work]) for each in works.values()])
            rows.append([work, *[micros(each / CALLS) for each in times]])
        show("doors: one call, one thread", ["work", *works], rows)
        with diskcache.Cache(f"{folder}/theirs") as theirs, Cache(f"{folder}/ours") as ours:
            both = [_of_cache(each) for each in (theirs, ours)]
            rows = []
            for work in both[0]:
                times = _least(quick, *[_repeated(each[work]) for each in both])
                rows.append([work, *[micros(each / CALLS) for each in times]])
        show("doors: a local cache", ["work", "diskcache", "roost.contrib.diskcache"], rows)
    return True


def _least(quick: bool, *calls: Work) -> list[float]:
    # Of short rounds in turn: one that other work has disturbed does not count.
    rounds = [[seconds(call) for call in calls] for _ in range(ROUNDS if quick else 3 * ROUNDS)]
    return [min(found) for found in zip(*rounds, strict=True)]


def _of_redis(url: str) -> Any:
    parts = urlsplit(url)
    return cachelib.RedisCache(parts.hostname or "", parts.port or 6379)


def _repeated(work: Work) -> Work:
    def run() -> None:
        for _ in range(CALLS):
            work()

    return run


def _works(storage: Any, cache: Any) -> dict[str, Work]:
    strategies: Any = limits.strategies.STRATEGIES
    limiters = {name: strategies[name](storage) for name in strategies}
    numbers = count()
    found: dict[str, Work] = {}
    for name, limiter in limiters.items():
        limiter.hit(FULL, name)
        found[f"limits, {name}: allowed"] = partial(_hit, limiter, name, numbers)
        found[f"limits, {name}: refused"] = partial(limiter.hit, FULL, name)
    return found | {f"cachelib, {work}": call for work, call in _of_cache(cache).items()}


def _hit(limiter: Any, name: str, numbers: Iterator[int]) -> object:
    return limiter.hit(FREE, name, f"{next(numbers) % KEYS}")


def _of_cache(cache: Any) -> dict[str, Work]:
    numbers = count()
    for n in range(KEYS):
        cache.set(f"key {n}", VALUE)
    return {
        "get": lambda: cache.get(f"key {next(numbers) % KEYS}"),
        "set": lambda: cache.set(f"key {next(numbers) % KEYS}", VALUE),
    }
