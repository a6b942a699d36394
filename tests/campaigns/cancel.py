"""Asyncio tasks are cancelled at random: no other is left without its answer, or gets somebody else's.

Every task adds its own number to its own key and asks for the total in the same atom, so an answer that belongs to
another shows. A task that was cancelled may have been too late: its atom is there, whole, or not at all.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import astuple, dataclass

import roost
from tests.campaigns.played import asked, database
from tests.campaigns.processes import PATIENCE

pageviews = roost.Counter("pageviews", key=int)
likes = roost.Set("likes", key=int, member=int)


@dataclass
class Counts:
    """What a campaign has seen."""

    answers: int = 0
    cancelled: int = 0
    happened: int = 0  # of those that were cancelled

    def __str__(self) -> str:
        return f"{self.answers} right answers, {self.cancelled} cancelled of which {self.happened} had happened"


async def cancelled(store: roost.AsyncStore, tasks: int, seed: object, first: int = 1) -> Counts:
    """Start tasks, cancel some of them at random moments, and look at everyone's answer.

    first: the key of the first task; each has its own.
    """
    chance, counts = random.Random(f"{seed}"), Counts()
    running: dict[int, asyncio.Task[tuple[None, int, int]]] = {}
    for key in range(first, first + tasks):
        running[key] = asyncio.create_task(_one(store, key, chance.random() < 0.5))
        while chance.random() < 0.3:
            await asyncio.sleep(0)
        if chance.random() < 0.4:
            running[chance.choice(list(running))].cancel()
        if chance.random() < 0.05:
            await asyncio.wait([running[chance.choice(list(running))]], timeout=PATIENCE)
    _, late = await asyncio.wait(running.values(), timeout=PATIENCE)
    assert not late, f"{len(late)} of {len(running)} tasks have no answer after {PATIENCE} seconds"
    totals = await store.run(pageviews.totals(running))
    for key, task in running.items():
        size = await store.run(likes.size(key))
        if task.cancelled():
            counts.cancelled += 1
            counts.happened += size
            assert (totals[key], size) in ((0, 0), (key, 1)), f"cancelled task {key} left {totals[key], size}"
        else:
            counts.answers += 1
            assert task.result() == (None, 1, key), f"task {key} was answered {task.result()}"
            assert (totals[key], size) == (key, 1), f"task {key} was answered, and {totals[key], size} is there"
    return counts


async def _one(store: roost.AsyncStore, key: int, at_once: bool) -> tuple[None, int, int]:
    if at_once:
        return await store.run_all(pageviews.add(key, key), likes.add(key, key), pageviews.total(key))
    await asyncio.sleep(0)
    return await store.run_all(pageviews.add(key, key), likes.add(key, key), pageviews.total(key))


async def _campaign(url: str, rounds: int, tasks: int, seed: object) -> Counts:
    sums = Counts()
    async with roost.AsyncStore(url) as store:
        await store.create(pageviews, likes)
        for round_ in range(rounds):
            found = await cancelled(store, tasks, f"{seed}/{round_}", first=1 + round_ * tasks)
            sums = Counts(*map(sum, zip(astuple(sums), astuple(found), strict=True)))
        assert await store.check() == []
    return sums


def main() -> None:
    """Run and say what was found."""
    options = asked(rounds=200, tasks=200)  # of each round
    began = time.monotonic()
    with database(None) as url:
        found = asyncio.run(_campaign(url, options.rounds, options.tasks, options.seed))
    print(f"{found}; check is clean; {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
