"""The tests that dogpile.cache has for backends: values, threads, serializers, mutexes."""

import os
from typing import Any

from dogpile.testing import fixtures

import roost.contrib.dogpile  # noqa: F401 (registers the backend)

suites: Any = fixtures
ARGUMENTS = {"url": os.environ["ROOST_TEST_URL"], "lock_timeout": 10}


class TestBackend(suites._GenericBackendTestSuite):  # type: ignore[misc]
    backend = "roost"
    config_args = {"arguments": {**ARGUMENTS, "distributed_lock": False}}  # noqa: RUF012


class TestMutex(suites._GenericMutexTestSuite):  # type: ignore[misc]
    backend = "roost"
    config_args = {"arguments": ARGUMENTS}  # noqa: RUF012


class TestBackendWithItsMutex(TestBackend):
    config_args = {"arguments": ARGUMENTS}  # noqa: RUF012


class TestSerializers(suites._GenericSerializerTestSuite, TestBackend):  # type: ignore[misc]
    pass
