"""`RateLimit.take` by 64 tasks on a server, beside the same by hand: a locked row, a transaction each.

By hand it is asyncpg and asyncmy, a connection for each task: it reads the row FOR UPDATE, decides, writes and commits.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

import asyncmy
import asyncpg  # type: ignore[import-untyped]
from tests import servers

import roost
from bench.report import Line, show_lines
from roost.databases.mariadb.address import arguments

TASKS, KEYS = 64, 1_000
LIMIT, PER = 1_000_000, 3600
TARGET = 2.0  # aim 4

TABLE = "CREATE TABLE by_hand (k VARCHAR(255) NOT NULL PRIMARY KEY, tat DOUBLE PRECISION NOT NULL)"

Take = Callable[[str], Awaitable[bool]]


def decided(tat: float) -> float | None:
    """Return the new moment of a key, None where it is refused."""
    now = time.time()
    new = max(tat, now) + PER / LIMIT
    return new if new - now <= PER else None


async def on_postgresql(url: str) -> tuple[list[Take], list[Any]]:
    connections = [await asyncpg.connect(url) for _ in range(TASKS)]
    await connections[0].execute(TABLE)
    await connections[0].executemany("INSERT INTO by_hand VALUES ($1, 0)", [(f"user {n}",) for n in range(KEYS)])

    def taking(connection: Any) -> Take:
        async def take(key: str) -> bool:
            async with connection.transaction():
                tat = await connection.fetchval("SELECT tat FROM by_hand WHERE k = $1 FOR UPDATE", key)
                new = decided(tat)
                if new is not None:
                    await connection.execute("UPDATE by_hand SET tat = $1 WHERE k = $2", new, key)
                return new is not None

        return take

    return [taking(connection) for connection in connections], connections


async def on_mariadb(url: str) -> tuple[list[Take], list[Any]]:
    given = arguments(url)[0]
    names = {name: given[name] for name in ("host", "port", "user", "password", "database") if name in given}
    connections = [await asyncmy.connect(**names) for _ in range(TASKS)]
    async with connections[0].cursor() as cursor:
        await cursor.execute(TABLE)
        await cursor.executemany("INSERT INTO by_hand VALUES (%s, 0)", [(f"user {n}",) for n in range(KEYS)])
    await connections[0].commit()

    def taking(connection: Any) -> Take:
        async def take(key: str) -> bool:
            async with connection.cursor() as cursor:
                await cursor.execute("SELECT tat FROM by_hand WHERE k = %s FOR UPDATE", (key,))
                ((tat,),) = await cursor.fetchall()
                new = decided(tat)
                if new is not None:
                    await cursor.execute("UPDATE by_hand SET tat = %s WHERE k = %s", (new, key))
                await connection.commit()
                return new is not None

        return take

    return [taking(connection) for connection in connections], connections


async def drive(takes: list[Take], seconds: float) -> float:
    """Take by all tasks for some seconds; return how many a second."""
    end, done = time.perf_counter() + seconds, 0

    async def task(number: int, take: Take) -> None:
        nonlocal done
        chance = random.Random(number)
        while time.perf_counter() < end:
            assert await take(f"user {chance.randrange(KEYS)}")
            done += 1

    began = time.perf_counter()
    await asyncio.gather(*[task(number, take) for number, take in enumerate(takes)])
    return done / (time.perf_counter() - began)


async def measure(name: str, url: str, rounds: int, seconds: float) -> Line:
    limit = roost.RateLimit("limits", limit=LIMIT, within=PER)
    by_hand, connections = await (on_postgresql if name == "postgresql" else on_mariadb)(url)
    async with roost.AsyncStore(url) as store:
        await store.create(limit)

        async def take(key: str) -> bool:
            return (await store.run(limit.take(key))).allowed

        found: list[tuple[float, float]] = []
        for _ in range(rounds):
            found.append((await drive(by_hand, seconds), await drive([take] * TASKS, seconds)))
    for connection in connections:
        closed = connection.close()
        if closed is not None:
            await closed
    theirs, ours = (statistics.median(each) for each in zip(*found, strict=True))
    ratio = statistics.median(mine / hand for hand, mine in found)
    return Line(name, f"{theirs:,.0f}/s", f"{ours:,.0f}/s", ratio, f">= {TARGET}", ratio >= TARGET)


def main(quick: bool) -> bool:
    lines = []
    for name in ("mariadb", "postgresql"):
        with servers.database(name) as url:
            lines.append(asyncio.run(measure(name, url, 3 if quick else 7, 1.0 if quick else 3.0)))
    return show_lines(f"RateLimit.take, {TASKS} tasks, {KEYS:,} keys", "a locked row by hand", "ours", lines)
