"""Random operations on a cache while time passes, and a dictionary beside it; the suite has the same on servers."""

from __future__ import annotations

import os
import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import roost
from tests.model.cache import Model, cache, play
from tests.suite.passing import Hand

EXAMPLES = int(os.environ.get("ROOST_MODEL_EXAMPLES", "50"))


@given(st.randoms(use_true_random=False), st.integers(20, 80))
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_cache_answers_like_a_dictionary(chance: random.Random, rounds: int) -> None:
    clock = Hand()
    with roost.Store("sqlite://", clock=clock) as store:
        store.create(cache)
        play(store, Model(), chance, clock.moves, rounds)
