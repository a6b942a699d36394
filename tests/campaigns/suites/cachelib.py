"""The tests of cachelib that are for every cache."""

import os
from importlib import import_module
from typing import Any

import pytest

import roost
from roost.contrib.cachelib import RoostCache
from roost.contrib.serializers import Signed

KINDS = {"common": "CommonTests", "clear": "ClearTests", "has": "HasTests", "serializer": "SerializerTests"}
classes: Any = tuple(vars(import_module(module))[name] for module, name in KINDS.items())
STORE, PAGES = roost.Store(os.environ["ROOST_TEST_URL"]), roost.Cache("pages")


@pytest.fixture(autouse=True)
def cache_factory(request: pytest.FixtureRequest) -> None:
    def made(_: Any, **options: Any) -> RoostCache:
        options.pop("ignore_delete_many_errors", None)
        STORE.create(PAGES)
        STORE.run(PAGES.clear())
        return RoostCache(STORE, PAGES, serializer=Signed("secret"), **options)  # one value is no JSON

    request.cls.cache_factory = made


TestRoostCache = type("TestRoostCache", classes, {})
