"""The tests of aiocache that are for every cache, with the fixture of Redis'."""

import os
from collections.abc import AsyncIterator
from importlib import import_module
from typing import Any

import pytest

from roost.contrib.aiocache import RoostCache

KINDS = {
    "test_base": ["TestCache", "TestRedisCache"],
    "test_lock": ["TestRedLock", "TestRedisRedLock", "TestOptimisticLock"],
}
KINDS |= {"test_decorators": ["TestCached", "TestCachedStampede", "TestMultiCached"]}

for module, names in KINDS.items():
    found: Any = vars(import_module(f"tests.acceptance.{module}"))
    globals().update({each: found[each] for each in found if each in {*names, "lock", "custom_redis_cache"}})
reset_caches: Any = vars(import_module("tests.acceptance.conftest"))["reset_caches"]


@pytest.fixture
async def cache() -> AsyncIterator[Any]:
    async with RoostCache(os.environ["ROOST_TEST_URL"], namespace="test") as cache:
        await cache.clear()
        yield cache


@pytest.fixture
def redis_cache(cache: Any) -> Any:
    return cache
