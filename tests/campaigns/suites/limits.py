"""The tests of limits that are for every storage, in threads and in asyncio."""

import os
import sys
import types
from importlib import import_module
from typing import Any

import pytest

import limits
from roost.contrib.limits import AsyncRoostStorage, RoostStorage

URL = os.environ["ROOST_TEST_URL"]

lazy: Any = types.ModuleType("pytest_lazy_fixtures")  # of servers that are not there
lazy.lf = lambda name: None
sys.modules["pytest_lazy_fixtures"] = lazy

utils: Any = import_module("tests.utils")
ways = {"": (f"roost+{URL}", RoostStorage), "async_": (f"async+roost+{URL}", AsyncRoostStorage)}
for way, (uri, _) in ways.items():
    for kind in ("all_storage", "moving_window_storage", "sliding_window_counter_storage"):
        setattr(utils, way + kind, pytest.mark.parametrize(("uri", "args", "fixture"), [(uri, {}, None)]))
names = ("tests.test_strategy", "tests.aio.test_strategy", "tests.integration.test_concurrency")
for name in names:
    found = vars(import_module(name))
    globals().update({each: found[each] for each in found if each.startswith("Test")})
for way, (uri, class_) in ways.items():
    storages: Any = import_module("tests.aio.test_storage" if way else "tests.test_storage")
    mark = pytest.mark.parametrize(("uri", "args", "expected_instance", "fixture"), [(uri, {}, class_, None)])
    storages.TestConcreteStorages.pytestmark = [mark, *([pytest.mark.asyncio] if way else [])]
    globals()[f"Test{way}Storages"] = storages.TestConcreteStorages


@pytest.fixture(autouse=True)
def emptied() -> None:
    storage: Any = limits.storage.storage_from_string(f"roost+{URL}")
    storage.reset()
    storage.store.close()
