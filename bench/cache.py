"""A cache on SQLite, one thread: `get` beside Redis and memcached on this machine, `set` beside a Redis that fsyncs.

10,000 keys with values of 100 bytes, each with an end. redis-py and pymemcache are as they come, over loopback; SQLite
is FULL, Redis has appendfsync always for `set`: an answer means on disk in both.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import redis
from pymemcache.client.base import Client  # type: ignore[import-untyped]
from tests import servers

import roost
from bench.memcached import redis_daemon
from bench.report import Line, in_turn, micros, say, show_lines

KEYS = 10_000
VALUE = bytes(random.Random(1).randrange(256) for _ in range(100))
TTL = 3600
ROUNDS = 15

pages = roost.Cache("pages")
few = roost.Cache("few", max_items=KEYS)


def main(quick: bool) -> bool:
    try:
        memcached = servers.memcached_daemon("-m", "256")
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "redis").mkdir()
            kept = redis_daemon(f"{folder}/redis", "--appendonly", "yes", "--appendfsync", "always")
            try:
                return _measured(f"sqlite:///{folder}/roost.db", memcached, kept, 5 if quick else ROUNDS)
            finally:
                kept.kill()
                memcached.kill()
    except servers.NotHere as error:
        say(str(error))
        return False


def _measured(url: str, memcached: servers.Daemon, kept: servers.Daemon, rounds: int) -> bool:
    cache = Client(("127.0.0.1", int(memcached.url.rpartition(":")[2])), default_noreply=False)
    plain = redis.Redis(port=int(kept.url.rpartition(":")[2]))
    dice = random.Random(2)
    with roost.Store(url) as store:
        store.create(pages, few)
        names = [f"page:{n}" for n in range(KEYS)]
        for structure in (pages, few):
            store.run(structure.set_many(dict.fromkeys(names, VALUE), ttl=TTL))
        with plain.pipeline() as pipeline:
            for name in names:
                cache.set(name, VALUE, expire=TTL)
                pipeline.set(name, VALUE, ex=TTL)
            pipeline.execute()

        def redis_gets() -> None:
            for name in asked:
                plain.get(name)

        def memcached_gets() -> None:
            for name in asked:
                cache.get(name)

        def gets(structure: roost.Cache[str, bytes]) -> None:
            for name in asked:
                store.run(structure.get(name))

        def redis_sets() -> None:
            for name in written:
                plain.set(name, VALUE, ex=TTL)

        def sets(structure: roost.Cache[str, bytes]) -> None:
            for name in written:
                store.run(structure.set(name, VALUE, TTL))

        asked, written = [dice.choice(names) for _ in range(1000)], [dice.choice(names) for _ in range(200)]
        for call in (redis_gets, memcached_gets, redis_sets):
            call()
        by_redis, by_memcached, ours, bounded = in_turn(
            rounds, redis_gets, memcached_gets, lambda: gets(pages), lambda: gets(few)
        )
        redis_set, our_set, bounded_set = in_turn(rounds, redis_sets, lambda: sets(pages), lambda: sets(few))
    lines = [
        _line("get, beside redis-py", by_redis / 1000, ours / 1000, 3),
        _line("get, beside pymemcache", by_memcached / 1000, ours / 1000, 3),
        _line("get with max_items, beside redis-py", by_redis / 1000, bounded / 1000, 0),
        _line("set, beside redis-py, always", redis_set / 200, our_set / 200, 1.5),
        _line("set with max_items, beside redis-py, always", redis_set / 200, bounded_set / 200, 0),
    ]
    return show_lines("A cache on SQLite, FULL, one thread", "beside", "Roost", lines)


def _line(work: str, beside: float, ours: float, must: float) -> Line:
    return Line(work, micros(beside), micros(ours), beside / ours, f">= {must}" if must else "", beside / ours >= must)
