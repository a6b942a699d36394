"""The tests of diskcache's `Cache` that are about what both have."""

import shutil
import tempfile
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import diskcache  # type: ignore[import-untyped]
import pytest

from roost.contrib.diskcache import Cache

original: Any = import_module("tests.test_core")
TAKEN = (
    "test_init_path test_get_keyerror1 test_get test_get_expired_fast_path test_get_expired_slow_path test_pop"
    " test_delete test_del test_del_expired test_evict test_clear test_tag test_with test_contains test_touch test_add"
    " test_incr test_incr_insert_keyerror test_incr_update_keyerror test_decr test_iter test_key_roundtrip"
    " test_memoize test_memoize_kwargs test_memoize_ignore"
)
globals().update({name: vars(original)[name] for name in TAKEN.split()})


class Local(Cache):
    def __init__(self, directory: Any = None, **options: Any) -> None:
        super().__init__(directory or tempfile.mkdtemp(), **options)

    def check(self) -> list[Any]:
        return list(self.store.check())

    def reset(self, *_: Any) -> None:
        pass


def without_retry(method: Any) -> Any:  # a store always tries again
    return lambda self, *args, retry=False, **options: method(self, *args, **options)


for name in ("set", "get", "add", "pop", "delete", "touch", "incr", "decr", "evict", "expire", "clear"):
    setattr(Local, name, without_retry(getattr(Cache, name)))


diskcache.Cache = Local


@pytest.fixture
def cache() -> Iterator[Cache]:
    with Local() as cache:
        yield cache
    shutil.rmtree(cache.directory, ignore_errors=True)
