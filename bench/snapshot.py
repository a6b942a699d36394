"""Hot keys while somebody holds an old snapshot, as `pg_dump` does: what is left of the speed.

32 tasks write 10 keys, each call by itself, before, under, and after a snapshot that is held for a minute, or for the
seconds of `--seconds=N`. What the database must keep for it is what each write passes.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from tests import servers
from tests.suite import clients

import roost
from bench.report import Line, rate, say, show_lines
from bench.shapes import Visit

TASKS, KEYS, IDS = 32, 10, 1_000
AROUND = 5.0  # seconds before and after, and the last ones under the snapshot
ENGINES = ("postgresql", "mariadb", "mysql")

counter = roost.Counter("pageviews", key=int, slots=1)
ring = roost.Ring("visits", Visit, per="uid", keep=12)
capped = roost.Capped("visitors", Visit, per="uid", keep=12, unique="visitor", on_duplicate="refresh")
likes = roost.Set("likes", key=int, member=int)
cache = roost.Cache("pages", key=int)

Make = Callable[[random.Random], roost.Operation[Any]]


def liked(chance: random.Random) -> roost.Operation[Any]:
    verb = likes.add if chance.random() < 0.5 else likes.remove
    return verb(chance.randrange(KEYS), chance.randrange(IDS))


# With what should be left: a ring and a counter have rows that each write must replace.
WORKS: list[tuple[Any, str, Make, float]] = [
    (counter, "counter: add, one slot", lambda chance: counter.add(chance.randrange(KEYS)), 0.45),
    (ring, "ring: push", lambda chance: ring.push(Visit(chance.randrange(KEYS), chance.randrange(IDS))), 0.45),
    (
        capped,
        "capped: add, refresh",
        lambda chance: capped.add(Visit(chance.randrange(KEYS), chance.randrange(IDS))),
        0.7,
    ),
    (likes, "set: add, remove", liked, 0.7),
    (cache, "cache: set", lambda chance: cache.set(chance.randrange(KEYS), b"x" * 100, ttl=3600), 0.7),
]


async def drive(store: roost.AsyncStore, make: Make, seconds: float, last: float) -> float:
    """Call by all tasks for some seconds; return how many a second in the last ones."""
    began, done = time.perf_counter(), count()
    counted_from = began + seconds - last
    before: list[int] = []

    async def task(number: int) -> None:
        chance = random.Random(number)
        while (now := time.perf_counter()) < began + seconds:
            await store.run(make(chance))
            calls = next(done)
            if now >= counted_from and not before:
                before.append(calls)

    await asyncio.gather(*[task(number) for number in range(TASKS)])
    return (next(done) - before[0]) / last


async def measure(url: str, held: float) -> list[Line]:
    lines = []
    for structure, name, make, target in WORKS:
        async with roost.AsyncStore(url) as store:
            await store.create(structure)
            await drive(store, make, 1.0, 1.0)
            before = await drive(store, make, AROUND, AROUND)
            sql = clients.connect(url)
            for statement in holding(url):
                sql.execute(statement)
            under = await drive(store, make, held, min(AROUND, held))
            sql.execute("ROLLBACK")
            if url.startswith("postgresql"):
                sql.execute("VACUUM")
            sql.close()
            after = await drive(store, make, AROUND, AROUND)
        beside = (before + after) / 2  # what else the machine does has changed meanwhile
        lines.append(Line(name, rate(beside), rate(under), under / beside, f">= {target}", under / beside >= target))
        say(f"{name}: {rate(before)} before, {rate(under)} under it, {rate(after)} after")
    return lines


def holding(url: str) -> Iterator[str]:
    """Yield the statements after which a client holds a snapshot."""
    if url.startswith("postgresql"):
        yield "BEGIN ISOLATION LEVEL REPEATABLE READ"
    else:
        yield "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"
        yield "START TRANSACTION WITH CONSISTENT SNAPSHOT"
    yield "SELECT count(*) FROM roost_catalog"


def main(quick: bool) -> bool:
    given = [argument.partition("=")[2] for argument in sys.argv if argument.startswith("--seconds=")]
    held = float(given[0]) if given else 10.0 if quick else 60.0
    met = True
    for name in ENGINES:
        with servers.database(name) as url:
            lines = asyncio.run(measure(url, held))
        title = f"{name}: {TASKS} tasks, {KEYS} keys, the last {AROUND:.0f} of {held:.0f} s of a held snapshot"
        met &= show_lines(title, "without", "under it", lines)
    return met
