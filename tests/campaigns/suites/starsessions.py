"""The tests of starsessions, with sessions in Roost's store."""

import os
from collections.abc import AsyncIterator
from importlib import import_module
from typing import Any

import pytest
from starsessions import JsonSerializer

import roost
from roost.contrib.starsessions import RoostStore

backends = vars(import_module("tests.backends.test_memory"))
for module in ("test_rolling_session", "test_expiring_session", "test_session", "test_middleware", "test_autoloading"):
    found = vars(import_module(f"tests.{module}"))
    globals().update({each: found[each] for each in found if each.startswith("test_")})
globals().update({each: backends[each] for each in backends if each.startswith("test_")})


@pytest.fixture
async def store() -> AsyncIterator[Any]:
    async with roost.AsyncStore(os.environ["ROOST_TEST_URL"]) as store:
        sessions = RoostStore(store)
        await sessions._opened.run(sessions.cache.clear())
        yield sessions


@pytest.fixture
def in_memory_store(store: Any) -> Any:
    return store


@pytest.fixture
def serializer() -> JsonSerializer:
    return JsonSerializer()
