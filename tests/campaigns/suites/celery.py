"""The tests of Celery for results under keys, with Roost as what holds them."""

import os
from importlib import import_module
from typing import Any

import pytest

from roost.contrib.celery import RoostBackend

base: Any = import_module("t.unit.backends.test_base")


class Backend(RoostBackend):
    def __init__(self, app: Any, *args: Any, **options: Any) -> None:
        super().__init__(app, os.environ["ROOST_TEST_URL"], **options)
        self._opened.run(self.cache.clear())


class test_Roost(base.test_KeyValueStoreBackend):  # type: ignore[misc]
    def setup_method(self) -> None:
        base.KVBackend = Backend
        self.b = Backend(self.app)

    @pytest.fixture(autouse=True)
    def closed(self) -> Any:
        yield
        self.b._opened.store.close()
