"""The tests of requests-cache that are for every backend and storage; those of HTTP ask its own httpbin."""

import os
from importlib import import_module
from typing import Any

import roost
from roost.contrib.opened import Opened
from roost.contrib.requests_cache import RoostCache, RoostDict

URL = os.environ["ROOST_TEST_URL"]
storages: Any = import_module("tests.integration.base_storage_test")
caches: Any = import_module("tests.integration.base_cache_test")
STORE = roost.Store(URL)


class Dict(RoostDict):
    def __init__(self, name: str, table: str, **options: Any) -> None:
        for each in ("connection", "cache_name"):
            options.pop(each, None)
        cache = roost.Cache(f"{name}_{table}", value=roost.binary(8_000_000))
        super().__init__(Opened(STORE, cache), cache, None, **{"serializer": "pickle", **options})


class Backend(RoostCache):
    def __init__(self, name: str, **options: Any) -> None:
        options.pop("allowable_methods", None)
        super().__init__(URL, name, **options)


class TestStorage(storages.BaseStorageTest):  # type: ignore[misc]
    storage_class = Dict


class TestBackend(caches.BaseCacheTest):  # type: ignore[misc]
    backend_class = Backend
