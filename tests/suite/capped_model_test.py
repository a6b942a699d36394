"""Batches of adds and removes, answered as if one by one: with a full key, ids that come again, and removed rows."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import roost
from roost.batching.atoms import Atom
from tests.lengths import length
from tests.model.model import Model
from tests.suite.shapes import Visit

Make = Callable[..., Any]
pytestmark = pytest.mark.needs("capped")

small = roost.Capped("small", Visit, per="uid", keep=3, unique="visitor")


@pytest.mark.parametrize("seed", range(4))
def test_a_batch_answers_as_if_one_by_one(open_store: Make, seed: int) -> None:
    store, model, chance = open_store(small), Model(), random.Random(seed)
    fresh = iter(range(100, 10**6))
    for _ in range(length(25, 300)):
        ids = [chance.randrange(6) if chance.random() < 0.3 else next(fresh) for _ in range(chance.randrange(1, 7))]
        batch: list[roost.Operation[Any]] = [small.add(Visit(chance.randrange(3), id_)) for id_ in ids]
        if chance.random() < 0.2:
            batch.append(small.remove(chance.randrange(3), chance.choice([*range(6), *ids])))
        waiting = [Atom((operation,)) for operation in batch]
        store._core.submit(waiting)
        for atom in waiting:
            answer = tuple(atom.results) if atom.error is None else type(atom.error)
            assert answer == model.run_all(atom.operations), (atom.operations, batch)
        for uid in range(3):
            assert store.run_all(small.latest(uid), small.count(uid)) == model.run_all(
                (small.latest(uid), small.count(uid))
            )
    assert store.check() == []
