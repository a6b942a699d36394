"""A dumb model beside sets in memcached: random operations by several stores, on items so small that sets grow."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

import roost
from tests import servers

KEYS = 3
# Every encoding, in one item and over many, with an expiry or without; for every type of member there is.
DECLARED: list[roost.MemcachedSet[int, Any]] = [
    roost.MemcachedSet("texts", int, str, shards=256),
    roost.MemcachedSet("words", int, str, encoding="readable", shards=256, ttl=1000),
    roost.MemcachedSet("blobs", int, bytes, shards=256, ttl=40 * 86_400),
    roost.MemcachedSet("alone", int, str, shards=0),
]


class Dice(random.Random):
    """Whatever is left to chance happens more often than not."""

    def random(self) -> float:
        return super().random() / 1000 if super().random() < 0.5 else super().random()


@pytest.fixture
def url() -> str:
    return servers.emptied(servers.memcached(*servers.items_of()))


def member_of(structure: Any, chance: random.Random) -> Any:
    text = f"{chance.randrange(400)}" + "x" * chance.choice((0, 3, 130))
    if structure.name == "alone":
        return text[:30]
    return text.encode() + bytes([chance.randrange(3)]) if structure.name == "blobs" else text


def step(structure: Any, models: list[set[Any]], chance: random.Random) -> tuple[roost.Operation[Any], Any]:
    """One operation, and what it must answer."""
    key = chance.randrange(KEYS)
    model = models[key]
    some = [member_of(structure, chance) for _ in range(chance.choice((1, 1, 1, 2, 9, 60)))]
    match chance.randrange(20):
        case 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7:
            model.update(some)
            return structure.add(key, *some), None
        case 8 | 9 | 10 | 11 | 12:
            model.difference_update(some)
            return structure.remove(key, *some), None
        case 13 | 14 | 15:
            return structure.members(key), set(model)
        case 16:
            return structure.size(key), len(model)
        case 17 | 18:
            return structure.contains(key, some[0]), some[0] in model
    if chance.random() < 0.5:
        model.clear()
        return structure.clear(key), None
    model.clear()
    model.update(some)
    return structure.replace(key, some), None


@pytest.mark.parametrize("structure", DECLARED, ids=lambda each: each.name)
@pytest.mark.parametrize("seed", range(3))
def test_stores_that_take_turns_answer_as_one_set_does(url: str, structure: Any, seed: int) -> None:
    chance = random.Random(f"{structure.name}/{seed}")
    models: list[set[Any]] = [set() for _ in range(KEYS)]
    complete = [False] * KEYS
    stores = [roost.Store(url, random=Dice(seed + n)) for n in range(3)]
    most = 0
    for _ in range(500):
        operation, answer = step(structure, models, chance)
        key = operation.args[0][0]
        assert chance.choice(stores).run(operation) == answer, operation
        complete[key] = operation.verb == "replace" or (complete[key] and operation.verb != "clear")
        info = chance.choice(stores).run(structure.info(key))
        assert (info.size, info.complete) == (len(models[key]), complete[key]), operation
        most = max(most, info.shards)
    assert (most > 0) is (structure.shards > 0)
    assert stores[0].check(structure) == []
    for store in stores:
        store.close()


@pytest.mark.parametrize("structure", DECLARED, ids=lambda each: each.name)
def test_what_waits_together_in_asyncio_answers_as_if_one_after_the_other(url: str, structure: Any) -> None:
    chance = random.Random(structure.name)
    models: list[set[Any]] = [set() for _ in range(KEYS)]

    async def main() -> None:
        async with roost.AsyncStore(url, random=Dice(1)) as store:
            for _ in range(60):
                steps = [step(structure, models, chance) for _ in range(chance.randrange(12))]
                writes = [operation for operation, _ in steps if operation.writes]
                assert await asyncio.gather(*map(store.run, writes)) == [None] * len(writes)
                reads = [
                    operation for key in range(KEYS) for operation in (structure.members(key), structure.size(key))
                ]
                wanted = [each for model in models for each in (model, len(model))]
                assert await asyncio.gather(*map(store.run, reads)) == wanted
            assert await store.check(structure) == []

    asyncio.run(main())
