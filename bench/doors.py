"""Roost behind each library beside Redis on the same machine, one thread; and in place of diskcache, beside it.

Redis keeps nothing on disk; SQLite is FULL and in WAL mode, as diskcache's is NORMAL and so ours beside it; the servers
are as tests start them. The values have 100 bytes, and each library has its own serializer for Redis, and JSON for
Roost. The least of several rounds is shown.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiocache  # type: ignore[import-untyped]
import cachelib
import diskcache  # type: ignore[import-untyped]
import redis
import redis.asyncio
from celery import Celery  # type: ignore[import-untyped]
from dogpile.cache import make_region
from requests_cache.backends.redis import RedisCache as HttpRedisCache
from requests_cache.models.response import CachedResponse
from starsessions.stores.redis import RedisStore
from tests import servers

import limits
import roost
import roost.contrib.dogpile
import roost.contrib.limits
from bench.memcached import redis_daemon
from bench.report import micros, say, seconds, show
from roost.contrib.aiocache import RoostCache as AioCache
from roost.contrib.cachelib import RoostCache
from roost.contrib.diskcache import Cache
from roost.contrib.requests_cache import RoostCache as HttpCache
from roost.contrib.starsessions import RoostStore

KEYS = 1_000
VALUE = "".join(random.Random(1).choices("abcdefgh", k=100))
ROUNDS, CALLS = 9, 50
FREE, FULL = limits.parse("10000/hour"), limits.parse("1/hour")
WEEK = 7 * 86_400

Work = Callable[[], object]


def main(quick: bool) -> bool:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as made:
        Path(folder, "redis").mkdir()
        urls = {"SQLite": f"sqlite:///{folder}/doors.db"}
        try:
            daemon = redis_daemon(f"{folder}/redis")
            made.callback(daemon.kill)
            for name, shown in (("mariadb", "MariaDB"), ("mysql", "MySQL"), ("postgresql", "PostgreSQL")):
                urls[shown] = made.enter_context(servers.database(name))
        except servers.NotHere as error:
            say(str(error))
            return False
        loop = made.enter_context(asyncio.Runner())
        works = {"Redis": _of_redis(daemon.url, loop), **{shown: _of_roost(url, loop) for shown, url in urls.items()}}
        rows = []
        for work in works["Redis"]:
            times = _least(quick, *[_repeated(each[work]) for each in works.values()])
            rows.append([work, *[micros(each / CALLS) for each in times]])
        show("doors: one call, one thread", ["work", *works], rows)
        with diskcache.Cache(f"{folder}/theirs") as theirs, Cache(f"{folder}/ours") as ours:
            both = [_cached("diskcache", each) for each in (theirs, ours)]
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


def _repeated(work: Work) -> Work:
    def run() -> None:
        for _ in range(CALLS):
            work()

    return run


def _of_redis(url: str, loop: asyncio.Runner) -> dict[str, Work]:
    parts = urlsplit(url)
    address: dict[str, Any] = {"host": parts.hostname or "", "port": parts.port or 6379}
    return {
        **_limited(limits.storage.storage_from_string(url)),
        **_celery(Celery("bench", backend=url, set_as_current=False)),
        **_dogpile(make_region().configure("dogpile.cache.redis", arguments=address)),
        **_aiocache(aiocache.RedisCache(endpoint=address["host"], port=address["port"]), loop),
        **_starsessions(RedisStore(connection=redis.asyncio.Redis(**address)), loop),
        **_responses(HttpRedisCache(connection=redis.Redis(**address))),
        **_cached("cachelib", cachelib.RedisCache(address["host"], address["port"])),
    }


def _of_roost(url: str, loop: asyncio.Runner) -> dict[str, Work]:
    store, pages = roost.Store(url), roost.Cache("pages")
    store.create(pages)
    app = Celery("bench", backend=f"roost+{url}", set_as_current=False)
    app.loader.override_backends = {"roost": "roost.contrib.celery:RoostBackend"}  # as its entry point says
    return {
        **_limited(limits.storage.storage_from_string(f"roost+{url}")),
        **_celery(app),
        **_dogpile(make_region().configure("roost", arguments={"store": store})),
        **_aiocache(AioCache(url), loop),
        **_starsessions(RoostStore(url), loop),
        **_responses(HttpCache(store)),
        **_cached("cachelib", RoostCache(store, pages)),
    }


def _limited(storage: Any) -> dict[str, Work]:
    strategies: Any = limits.strategies.STRATEGIES
    limiters = {name: strategies[name](storage) for name in strategies}
    numbers = count()
    found: dict[str, Work] = {}
    for name, limiter in limiters.items():
        limiter.hit(FULL, name)
        found[f"limits, {name}: allowed"] = partial(_hit, limiter, name, numbers)
        found[f"limits, {name}: refused"] = partial(limiter.hit, FULL, name)
    return found


def _hit(limiter: Any, name: str, numbers: Iterator[int]) -> object:
    return limiter.hit(FREE, name, f"{next(numbers) % KEYS}")


def _in_turn(library: str, get: Callable[[str], object], set_: Callable[[str], object]) -> dict[str, Work]:
    numbers = count()
    for n in range(KEYS):
        set_(f"{library} {n}")
    return {
        f"{library}: get": lambda: get(f"{library} {next(numbers) % KEYS}"),
        f"{library}: set": lambda: set_(f"{library} {next(numbers) % KEYS}"),
    }


def _cached(library: str, cache: Any) -> dict[str, Work]:
    return _in_turn(library, cache.get, lambda key: cache.set(key, VALUE))


def _celery(app: Any) -> dict[str, Work]:
    backend, numbers = app.backend, count()
    found = _in_turn("Celery", backend._get_task_meta_for, lambda key: backend.store_result(key, VALUE, "SUCCESS"))
    # Celery does not store a result again.
    return {**found, "Celery: set": lambda: backend.store_result(f"another {next(numbers)}", VALUE, "SUCCESS")}


def _dogpile(region: Any) -> dict[str, Work]:
    return _in_turn("dogpile.cache", region.get, lambda key: region.set(key, VALUE))


def _responses(cache: Any) -> dict[str, Work]:
    response = CachedResponse(content=VALUE.encode(), status_code=200)

    def store(key: str) -> None:
        cache.responses[key] = response

    return _in_turn("requests-cache", lambda key: cache.responses[key], store)


def _aiocache(cache: Any, loop: asyncio.Runner) -> dict[str, Work]:
    return _awaited("aiocache", cache.get, lambda key: cache.set(key, VALUE), loop)


def _starsessions(store: Any, loop: asyncio.Runner) -> dict[str, Work]:
    def write(key: str) -> Awaitable[object]:
        written: Awaitable[object] = store.write(key, VALUE.encode(), WEEK, WEEK)
        return written

    return _awaited("starsessions", lambda key: store.read(key, WEEK), write, loop)


def _awaited(
    library: str,
    get: Callable[[str], Awaitable[object]],
    set_: Callable[[str], Awaitable[object]],
    loop: asyncio.Runner,
) -> dict[str, Work]:
    # Each call is a run of the loop, which takes 30 µs of its own, for Redis as for Roost.
    async def one(call: Callable[[str], Awaitable[object]], key: str) -> object:
        return await call(key)

    return _in_turn(library, lambda key: loop.run(one(get, key)), lambda key: loop.run(one(set_, key)))
