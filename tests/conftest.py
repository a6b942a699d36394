"""Fixtures of all tests. A store made here is checked at its end: whatever a test did, no promise may be broken."""

from __future__ import annotations

import gc
import os
import random
import shutil
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import roost
from tests import servers
from tests.ids import used

MakeStore = Callable[..., roost.Store]

MEMORY, ROOM = "/dev/shm", 2 * 2**30

# Hundreds of processes import Roost and the tests: compiled once, whatever the environment says.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# PyMySQL and asyncpg read the system's certificates for each connection, though nothing is verified: 40 ms of CPU. The
# tests' authorities are named where they are needed.
os.environ["SSL_CERT_FILE"] = os.environ["SSL_CERT_DIR"] = os.devnull


# What lets a change in does not depend on luck: `make test` tries the same examples each time, campaigns others.
settings.register_profile("same", derandomize=True, phases=[Phase.explicit, Phase.generate])
settings.register_profile("others")


class Told:
    """Says at once which test has failed, in a line: a long run may be cut short, and its end with all tracebacks."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            why = str(report.longrepr).strip().splitlines() or [""]
            errors = [line for line in why if line.startswith(("E  ", "ERROR: ", "FAIL: "))] or why[-1:]
            terminal.write_line(f"\nFAILED {report.nodeid} ({report.when}): {errors[0].lstrip('E ')[:300]}")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Told(config))
    settings.load_profile("others" if os.environ.get("ROOST_EXPLORE") else "same")
    large = "ROOST_CONSOLE_ROWS" in os.environ  # tables of many gigabytes
    if not large and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM:
        servers.place = os.environ["PYTEST_DEBUG_TEMPROOT"] = MEMORY


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    # A million objects that stay: garbage collections during the tests, and in the processes that they fork, pass by.
    gc.disable()
    found = yield
    given(st.none())(
        lambda _: None
    )()  # registers its random numbers: from 3.14 on nobody is seen to hold what is frozen
    gc.enable()
    gc.collect()
    gc.freeze()
    return found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, None, None]:
    """Report a test as not run whose server is not on this machine; so does the next one."""
    try:
        return (yield)
    except servers.NotHere as error:
        why = error
    servers.not_run(why)


pytest_runtest_call = pytest_runtest_setup


def pytest_itemcollected(item: pytest.Item) -> None:
    item.extra_keyword_matches.update(used(item))


def pytest_sessionfinish() -> None:
    servers.leave()


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A database file that is not there yet."""
    return f"sqlite:///{tmp_path}/test.db"


@pytest.fixture
def make_store(url: str) -> Iterator[MakeStore]:
    """Make stores on one file; at the end they are closed and the file is checked."""
    stores: list[roost.Store] = []

    def make(*structures: Any, url: str = url, **options: Any) -> roost.Store:
        options.setdefault("random", random.Random(1))
        store = roost.Store(url, **options)
        stores.append(store)
        if structures:
            store.create(*structures)
        return store

    yield make
    for store in stores:
        store.close()
    if stores:
        with roost.Store(url) as last:
            try:
                violations = last.check()
            except roost.Missing:
                violations = []  # the test made no file
        assert violations == []


@pytest.fixture(params=servers.SERVERS)
def server_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database of the test's own, on each database server in turn."""
    with servers.own_database(request.param) as url:
        yield url


@pytest.fixture(params=servers.SERVERS)
def own_server(request: pytest.FixtureRequest) -> str:
    """The name of each database server in turn, for tests that start, pause or kill one."""
    return str(request.param)


@pytest.fixture
def any_url(database: str, tmp_path: Path) -> Iterator[str]:
    """A database of the test's own, on the one that the parameter `database` names."""
    with servers.own_database(database, f"{tmp_path}/own.db") as url:
        yield url


@pytest.fixture
def handlersocket_plugin() -> servers.Plugin:
    """The original: a MariaDB with HandlerSocket, the same for all tests of a process."""
    return servers.plugin()
