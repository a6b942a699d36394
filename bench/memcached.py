"""Sets in memcached: adds and fetches beside the same recipe by hand, and beside SADD and SMEMBERS of Redis.

One thread, and 64 tasks of asyncio. By hand: the source text's recipe with pymemcache, its default of noreply turned
off; in tasks with `asyncio.to_thread` and a connection per thread. Redis: Debian's, nothing kept on disk, redis-py and
its own asyncio. Before every round all sets are made anew, so that no log is longer than another.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Awaitable, Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import redis
import redis.asyncio
from pymemcache.client.base import Client  # type: ignore[import-untyped]
from tests import servers

import roost
from bench.report import Line, rate, say, seconds, show, show_lines

SIZES = (10, 1_000, 100_000)
TASKS = 64
TARGET = 0.8

likes = roost.MemcachedSet("likes", int, str)
KEY = "by_hand"


class ByHand:
    """The recipe, as its text has it; what it loses, it loses."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._local = threading.local()

    @property
    def client(self) -> Any:
        try:
            return self._local.client
        except AttributeError:
            self._local.client = Client(("127.0.0.1", self._port), no_delay=True, default_noreply=False)
            return self._local.client

    def modify(self, op: str, *members: str) -> None:
        encoded = "".join(op + member + " " for member in members)
        if not self.client.append(KEY, encoded) and op == "+":
            self.client.add(KEY, encoded)

    def add(self, *members: str) -> None:
        self.modify("+", *members)

    def members(self) -> set[str]:
        data, cas = self.client.gets(KEY)
        members: set[str] = set()
        dirtiness = 0
        for token in data.decode().split():
            op, member = token[0], token[1:]
            if op == "+":
                members.add(member)
            elif op == "-":
                members.discard(member)
                dirtiness += 1
        if dirtiness > 1000:
            self.client.cas(KEY, "".join("+" + member + " " for member in members), cas)
        return members

    def fill(self, members: list[str]) -> None:
        self.client.delete(KEY)
        for begin in range(0, len(members), 10_000):
            self.add(*members[begin : begin + 10_000])


def redis_daemon(folder: str, *more: str) -> servers.Daemon:
    """Start a Redis that keeps nothing on disk, unless it is told to."""
    program = servers.binary("redis-server", ["/usr/bin"], "redis-server")
    port = servers.free_port()
    options = ["--bind", "127.0.0.1", "--port", str(port), "--save", "", "--appendonly", "no", "--dir", folder, *more]

    def is_up() -> None:
        with redis.Redis(port=port) as client:
            client.ping()

    return servers.Daemon(f"redis://127.0.0.1:{port}", [program, *options], None, Path(folder), is_up)


class Side:
    """One of the three: how it adds and fetches, in a thread and in a task, and how its set is made anew."""

    def __init__(
        self,
        fill: Callable[[list[str]], object],
        add: Callable[[str], object],
        fetch: Callable[[], object],
        aadd: Callable[[str], Awaitable[object]],
        afetch: Callable[[], Awaitable[object]],
    ) -> None:
        self.fill, self.add, self.fetch, self.aadd, self.afetch = fill, add, fetch, aadd, afetch


def main(quick: bool) -> bool:
    try:
        cache = servers.memcached_daemon("-m", "256")
        with tempfile.TemporaryDirectory() as folder:
            database = redis_daemon(folder)
            met = asyncio.run(_measure(cache, database, quick))
            database.kill()
        cache.kill()
        return met
    except servers.NotHere as error:
        say(str(error))
        return False


async def _measure(cache: servers.Daemon, database: servers.Daemon, quick: bool) -> bool:
    port = int(database.url.rpartition(":")[2])
    hand = ByHand(int(cache.url.rpartition(":")[2]))
    store = roost.Store(cache.url)
    astore = roost.AsyncStore(cache.url)
    plain, aplain = redis.Redis(port=port), redis.asyncio.Redis(port=port, socket_timeout=None)

    def fill_redis(members: list[str]) -> None:
        plain.delete("likes")
        for begin in range(0, len(members), 10_000):
            plain.sadd("likes", *members[begin : begin + 10_000])

    async def ahand(member: str) -> None:
        await asyncio.to_thread(hand.add, member)

    async def ahand_fetch() -> object:
        return await asyncio.to_thread(hand.members)

    sides = [
        Side(hand.fill, hand.add, hand.members, ahand, ahand_fetch),
        Side(
            lambda members: store.run(likes.replace(7, members)),
            lambda member: store.run(likes.add(7, member)),
            lambda: store.run(likes.members(7)),
            lambda member: astore.run(likes.add(7, member)),
            lambda: astore.run(likes.members(7)),
        ),
        Side(
            fill_redis,
            lambda member: plain.sadd("likes", member),
            lambda: plain.smembers("likes"),
            lambda member: aplain.sadd("likes", member),
            lambda: aplain.smembers("likes"),
        ),
    ]
    lines: list[Line] = []
    beside: list[tuple[str, str, str, str]] = []
    for size in SIZES:
        members = [f"m{n}" for n in range(size)]  # longer, and the recipe would lose the last of them silently
        for work, number, call in (
            ("add, one thread", 500, _adds),
            (f"add, {TASKS} tasks", TASKS * 20, _task_adds),
            ("fetch, one thread", {10: 500, 1_000: 100, 100_000: 2}[size], _fetches),
            (f"fetch, {TASKS} tasks", TASKS * {10: 20, 1_000: 4, 100_000: 1}[size], _task_fetches),
        ):
            say(f"{size:,} members: {work}")
            rounds = 3 if quick else 7 if size < 100_000 or "add" in work else 3
            found: list[list[float]] = [[] for _ in sides]
            for _ in range(rounds):
                for side, times in zip(sides, found, strict=True):
                    side.fill(members)
                    times.append(await call(side, members, number))
            base, ours, other = (number / sorted(times)[len(times) // 2] for times in found)
            # What disturbed one side of a round most often disturbed the other too.
            ratio = sorted(theirs / mine for theirs, mine in zip(found[0], found[1], strict=True))[rounds // 2]
            title = f"{size:,}: {work}"
            lines.append(Line(title, rate(base), rate(ours), ratio, f">= {TARGET}", ratio >= TARGET))
            beside.append((title, rate(ours), rate(other), f"{ours / other:.2f}"))
    store.close()
    await astore.close()
    await aplain.aclose()
    plain.close()
    met = show_lines("MemcachedSet beside the recipe by hand", "by hand", "Roost", lines)
    show("and beside SADD and SMEMBERS of Redis", ["work", "Roost", "Redis", "ratio"], beside)
    return met


async def _adds(side: Side, members: list[str], number: int) -> float:
    given = cycle(members)

    def work() -> None:
        for _ in range(number):
            side.add(next(given))

    return seconds(work)


async def _fetches(side: Side, members: list[str], number: int) -> float:
    def work() -> None:
        for _ in range(number):
            assert len(side.fetch()) == len(members)  # type: ignore[arg-type]

    return seconds(work)


async def _task_adds(side: Side, members: list[str], number: int) -> float:
    given = cycle(members)

    async def task() -> None:
        for _ in range(number // TASKS):
            await side.aadd(next(given))

    return await _together(task)


async def _task_fetches(side: Side, members: list[str], number: int) -> float:
    async def task() -> None:
        for _ in range(number // TASKS):
            assert len(await side.afetch()) == len(members)  # type: ignore[arg-type]

    return await _together(task)


async def _together(task: Callable[[], Awaitable[None]]) -> float:
    clock = asyncio.get_running_loop().time
    began = clock()
    await asyncio.gather(*[task() for _ in range(TASKS)])
    return clock() - began
