"""One store per test and engine; whatever a test did, no promise may be broken at its end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

import roost
from tests import servers
from tests.lengths import WHOLE
from tests.suite import clients
from tests.suite.application import Application
from tests.suite.engines import ENGINES, Engine
from tests.suite.shapes import Open, baskets, likes, pageviews, visits
from tests.suite.ways import WAYS, App, Way


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "engine" not in metafunc.fixturenames:
        return
    name = metafunc.function.__name__
    needed = {need for mark in metafunc.definition.iter_markers("needs") for need in mark.args}
    # Who asks for nothing is about databases.
    engines = [engine for engine in ENGINES if (needed or {"counter"}) <= engine.capabilities]
    if not WHOLE:
        # MySQL, which is much like MariaDB, has half of the tests, by their names, and SQLite in memory the other half;
        # the campaign `suite` runs all.
        left_out = ("sqlite-memory", "mysql")[crc32(name.encode()) % 2]
        engines = [engine for engine in engines if engine.name != left_out] or engines
    if "way" in metafunc.fixturenames:
        asked = {need for mark in metafunc.definition.iter_markers("ways") for need in mark.args}
        ways = some([way for way in WAYS if asked <= way.capabilities], name)
        pairs = [(way, engine) for engine in engines for way in ways if way.engine == engine.name]
        metafunc.parametrize(
            ("way", "engine"), pairs, ids=[f"{way.engine}-{way.name}" for way, _ in pairs], indirect=["engine"]
        )
    elif "make" in metafunc.fixturenames:
        both = [(engine, kind) for engine in engines for kind in ("threads", "asyncio")]
        turn = crc32(name.encode()) // 2  # the kinds take turns, from one engine to the next
        chosen = both if WHOLE else [both[2 * place + (place + turn) % 2] for place in range(len(engines))]
        ids = [f"{engine.name}-{kind}" for engine, kind in chosen]
        metafunc.parametrize(("engine", "make"), chosen, ids=ids, indirect=True)
    else:
        metafunc.parametrize("engine", engines, ids=[engine.name for engine in engines], indirect=True)


def some(ways: list[Way], test: str) -> list[Way]:
    """Leave two ways of each engine to a test, by its name, so that every way has its share of the tests.

    What the drivers differ in is the same few calls for every test; the campaign `suite` runs each with all of them.
    """
    if WHOLE:
        return ways
    by_name = sorted(ways, key=lambda way: crc32(f"{test} {way.name}".encode()))
    left = [[way for way in by_name if way.engine == engine][:2] for engine in {way.engine for way in ways}]
    chosen = [way for each in left for way in each]
    return [way for way in ways if way in chosen]


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Engine:
    found: Engine = request.param
    return found


@pytest.fixture
def store_url(engine: Engine, tmp_path: Path) -> str:
    try:
        return engine.url(tmp_path)
    except servers.NotHere as error:
        servers.not_run(error)


@pytest.fixture
def statements() -> list[str]:
    """The statements that stores of the test have sent; the plans know nothing of what earlier tests met."""
    for structure in (baskets, likes, pageviews, visits):
        structure.plans.clear()
    return []


@pytest.fixture
def open_store(store_url: str, statements: list[str]) -> Iterator[Open]:
    stores: list[roost.Store] = []
    named: list[Any] = []  # what a store without a catalog has to be told

    def open_(*structures: Any, **options: Any) -> roost.Store:
        options.setdefault("random", random.Random(7))
        options.setdefault("trace", lambda sql, _: statements.append(sql))
        store = roost.Store(store_url, **options)
        stores.append(store)
        if structures:
            store.create(*structures)
        if store_url.startswith("memcached"):
            named.extend(structures)
        return store

    yield open_
    try:
        for store in stores[:1]:  # whatever the others have done, it is all in one database
            assert store.check(*named) == []
    finally:
        for store in stores:
            store.close()


@pytest.fixture
def sql(store_url: str) -> Iterator[clients.Client]:
    """What a SQL client has: the database, and nothing of Roost."""
    connection = clients.connect(store_url)
    yield connection
    connection.close()


@pytest.fixture
def app(way: Way, store_url: str) -> Iterator[Callable[..., App]]:
    """Make applications with a connection of their own, to the database of the test's stores."""
    apps: list[App] = []

    def made(**options: Any) -> App:
        apps.append(App(way, store_url, **options))
        return apps[-1]

    yield made
    for each in apps:
        each.close()


@pytest.fixture
def application(store_url: str) -> Iterator[Application]:
    """The application that a store shares its database with."""
    found = Application(store_url)
    yield found
    found.close()


@pytest.fixture
def role(sql: clients.PostgreSQLClient) -> Iterator[str]:
    """A role that may use the schema, and nothing else."""
    name = f"stranger_of_{sql.info.dbname}"
    sql.execute(f"CREATE ROLE {name}")
    yield name
    sql.execute("RESET ROLE")
    sql.execute(f"DROP OWNED BY {name}")
    sql.execute(f"DROP ROLE {name}")


@pytest.fixture
def sets(engine: Engine) -> Callable[..., Any]:
    """Declare a set as the engine has it: `roost.Set`, or `roost.MemcachedSet`."""
    return engine.sets


class InAsyncio:
    """An `AsyncStore` used like a `Store`, so that every test of behaviour can run on both."""

    def __init__(self, url: str, structures: tuple[Any, ...], options: dict[str, Any]) -> None:
        self._loop = asyncio.new_event_loop()
        self._store = roost.AsyncStore(url, **options)
        self._named = structures if url.startswith("memcached") else ()
        self.create(*structures)

    def create(self, *structures: Any, view: bool = True) -> None:
        self._loop.run_until_complete(self._store.create(*structures, view=view))

    def run(self, operation: roost.Operation[Any]) -> Any:
        return self._loop.run_until_complete(self._store.run(operation))

    def run_all(self, *operations: roost.Operation[Any]) -> Any:
        return self._loop.run_until_complete(self._store.run_all(*operations))

    def check(self) -> list[roost.Violation]:
        return self._loop.run_until_complete(self._store.check(*self._named))

    def close(self) -> None:
        self._loop.run_until_complete(self._store.close())
        self._loop.close()


@pytest.fixture
def make(request: pytest.FixtureRequest, open_store: Open, store_url: str) -> Iterator[Callable[..., Any]]:
    """Make a store of either kind, with structures in it."""
    stores: list[InAsyncio] = []

    def made(*structures: Any, **options: Any) -> Any:
        if request.param == "threads":
            return open_store(*structures, **options)
        stores.append(InAsyncio(store_url, structures, {"random": random.Random(7), **options}))
        return stores[-1]

    yield made
    try:
        for store in stores[:1]:
            assert store.check() == []
    finally:
        for store in stores:
            store.close()
