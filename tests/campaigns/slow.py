"""A transaction is left open after `store.on(connection).run(…)`: how long do 63 others wait, with and without it?

It holds a counter's key, which they all add to (in other slots), a ring's key, which one of them pushes to as well (and
waits), and nothing of what the others push to.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import roost
from tests import servers
from tests.campaigns.played import asked, database
from tests.suite.shapes import Visit, pageviews, visits

TASKS = 63
HELD = 0  # the ring's key that the transaction holds


@dataclass
class Waits:
    """How long writers waited, in seconds, by what they wrote."""

    same_key: list[float]
    other_keys: list[float]

    def __str__(self) -> str:
        return ", ".join(
            f"{name} p50 {1000 * cuts[49]:.1f} ms, p99 {1000 * cuts[98]:.1f} ms"
            for name, cuts in (
                ("same key", statistics.quantiles(self.same_key, n=100)),
                ("other keys", statistics.quantiles(self.other_keys, n=100)),
            )
        )


async def writers(store: roost.AsyncStore, seconds: float) -> Waits:
    """Let tasks write for some seconds."""
    waits = Waits([], [])
    end = time.monotonic() + seconds

    async def timed(waited: list[float], work: Callable[[], Awaitable[Any]]) -> None:
        while time.monotonic() < end:
            began = time.perf_counter()
            await work()
            waited.append(time.perf_counter() - began)

    async def push(task: int) -> None:
        await store.run(visits.push(Visit(random.randrange(1, 1000), task)))

    tasks = [timed(waits.same_key, lambda: store.run(pageviews.add("/home"))) for _ in range(TASKS // 2)]
    tasks += [timed(waits.other_keys, lambda task=task: push(task)) for task in range(TASKS - len(tasks))]  # type: ignore[misc]
    await asyncio.gather(*tasks)
    return waits


def opened(url: str) -> Any:
    """A connection of the application's own."""
    if url.startswith("postgresql"):
        import psycopg

        return psycopg.connect(url)
    import pymysql

    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname, port=parts.port or 3306, user=parts.username, database=parts.path[1:], charset="utf8mb4"
    )


def slow(url: str, seconds: float) -> tuple[Waits, Waits]:
    """Return the waits without, and with a transaction that is left open."""
    with roost.Store(url) as store:
        store.create(pageviews, visits)
        store.run_all(*[visits.push(Visit(uid, 0)) for uid in range(1000)])

        async def main() -> tuple[Waits, Waits]:
            async with roost.AsyncStore(url, timeout=seconds + 60) as other:
                await writers(other, 0.5)
                without = await writers(other, seconds)
                connection = opened(url)
                store.on(connection).run_all(pageviews.add("/home"), visits.push(Visit(HELD, 7)))
                held = asyncio.create_task(other.run(visits.push(Visit(HELD, 8))))
                beside = await writers(other, seconds)
                assert not held.done()
                connection.commit()
                connection.close()
                assert await held == 3
                return without, beside

        found = asyncio.run(main())
        assert store.check() == []
    return found


def main() -> None:
    """Run on each server and say what was found."""
    options = asked(seeded=False, seconds=10.0, server=servers.SERVERS)
    worst = 0.0
    for name in [options.server] if options.server else servers.SERVERS:
        with database(name) as url:
            without, beside = slow(url, options.seconds)
        print(f"{name}, without: {without}\n{name}, beside it: {beside}", flush=True)
        for before, after in ((without.same_key, beside.same_key), (without.other_keys, beside.other_keys)):
            worst = max(worst, statistics.quantiles(after, n=100)[98] / statistics.quantiles(before, n=100)[98])
    print(f"p99 beside it is at most {worst:.2f} of that without")
    raise SystemExit(worst > 2)


if __name__ == "__main__":
    main()
