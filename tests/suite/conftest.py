"""One store per test and engine; whatever a test did, no promise may be broken at its end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

import roost
from tests.lengths import WHOLE
from tests.suite import clients
from tests.suite.application import Application
from tests.suite.engines import ENGINES, Engine
from tests.suite.shapes import Open, baskets, likes, pageviews, visits
from tests.suite.ways import WAYS, App, Way

KINDS = ("threads", "asyncio")  # of stores


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "engine" not in metafunc.fixturenames:
        return
    needed = {need for mark in metafunc.definition.iter_markers("needs") for need in mark.args}
    # Who asks for nothing is about databases.
    engines = [engine for engine in ENGINES if (needed or {"counter"}) <= engine.capabilities]
    if "way" in metafunc.fixturenames:
        asked = {need for mark in metafunc.definition.iter_markers("ways") for need in mark.args}
        ways = [way for way in WAYS if asked <= way.capabilities]
        pairs = [(way, engine) for engine in engines for way in ways if way.engine == engine.name]
        metafunc.parametrize(
            ("way", "engine"), pairs, ids=[f"{way.engine}-{way.name}" for way, _ in pairs], indirect=["engine"]
        )
        return
    metafunc.parametrize("engine", engines, ids=[engine.name for engine in engines], indirect=True)
    if "make" in metafunc.fixturenames:
        metafunc.parametrize("make", KINDS, indirect=True)


# --- what the short form tries -----------------------------------------------------------------------------------

# Databases that are much alike: three quarters of a test's cases have the one, a quarter the other.
TURNS = tuple(
    f"tests/{folder}/" for folder in ("suite", "index", "faults", "contrib", "server")
)  # where they take turns
ALIKE = {"mysql": "mariadb", "sqlite-memory": "sqlite-file"}
NAMES = [*[each.name for each in ENGINES], "sqlite"]
SERVERS = ("mariadb", "mysql", "postgresql")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave some combinations out of `make test`; the campaign `suite` tries them all.

    A case of a test has each kind of database once: of two that are alike they take turns, as do stores of threads and
    of asyncio, and the ways of drivers, by the test's name; where it is marked `shared`, servers do, and where it is
    marked `spread`, all databases. Of what is then left, each pair of an engine, a way and a test's own parameters is
    tried, and no more.
    """
    if WHOLE or any("[" in asked for asked in config.args):  # who names a case has it
        return
    of: dict[str, list[Any]] = {}
    for item in items:
        if database(item):
            of.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left_out = {item for test, found in of.items() for item in {*found} - {*paired(in_turn(test, found))}}
    config.hook.pytest_deselected(items=[*left_out])
    items[:] = [item for item in items if item not in left_out]


def database(item: Any) -> str:
    """Return the name of the database that a test has by a fixture of these folders; "" where it has none."""
    params = getattr(getattr(item, "callspec", None), "params", {})
    if isinstance(params.get("engine"), Engine):
        return str(params["engine"].name)
    fixtures = (
        ("any_url", "server_url", "db", "database", "own_server", "place") if item.nodeid.startswith(TURNS) else ()
    )
    return next((params[each] for each in fixtures if params.get(each) in NAMES), "")


def in_turn(test: str, items: list[Any]) -> Iterator[Any]:
    """Yield the items of a test whose turn it is."""
    there = {database(item) for item in items}
    for item in items:
        engine, way = database(item), item.callspec.params.get("way")
        case = case_of(item)
        number = sum(case.values())
        turn, place = crc32(test.encode()) + number, NAMES.index(engine)
        spread = item.get_closest_marker("spread")
        if spread and not any(
            value in spread.args for value in item.callspec.params.values() if isinstance(value, str)
        ):
            if engine == sorted(there)[turn % len(there)]:
                yield item
            continue
        if item.get_closest_marker("shared") and engine in SERVERS and (engine == "postgresql") is (turn % 2 == 0):
            continue
        if engine in ALIKE and turn % 4 and not item.get_closest_marker("table"):
            continue
        if case and turn % 4 == 0 and engine in {like for other, like in ALIKE.items() if other in there}:
            continue
        if item.callspec.params.get("make") == KINDS[(place + turn // 4) % 2]:
            continue
        if way is None or way.name == chosen(f"{test} {number}", engine, place + turn, items):
            yield item


def case_of(item: Any) -> dict[Any, int]:
    """Return what a test's own parameters are, as places in their lists."""
    found = {}
    for mark in item.iter_markers("parametrize"):
        names = [each.strip() for each in mark.args[0].split(",")] if isinstance(mark.args[0], str) else mark.args[0]
        own = [item.callspec.params[name] for name in names]
        for place, value in enumerate(mark.args[1]):
            values = getattr(value, "values", None) if isinstance(value, tuple) else None
            values = values if isinstance(values, tuple) else value if len(names) > 1 else [value]
            if all(one is other or one == other for one, other in zip(values, own, strict=True)):
                found[" ".join(names)] = place
                break
    return found


def chosen(case: str, engine: str, turn: int, items: list[Any]) -> str:
    """Return the name of the way that a case has on an engine: blocking on one, awaited on the next."""
    ways = {item.callspec.params["way"] for item in items if database(item) == engine}
    name: str = min(ways, key=lambda way: (way.awaited is (turn % 2 == 0), crc32(f"{case} {way.name}".encode()))).name
    return name


def paired(items: Iterator[Any]) -> list[Any]:
    """Return items with every pair of values that these have: again and again the one with most of what is missing."""
    pairs: dict[Any, set[Any]] = {}
    for item in items:
        params = item.callspec.params
        values: list[Any] = [*case_of(item).items(), ("engine", database(item))]
        values += [("way", params["way"].name)] if "way" in params else []
        pairs[item] = {*combinations(values, 2)} or {*values}
    missing = {pair for found in pairs.values() for pair in found}
    tried = []
    while missing:
        tried.append(max(pairs, key=lambda item: (len(pairs[item] & missing), crc32(item.nodeid.encode()))))
        missing -= pairs[tried[-1]]
    return tried


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Engine:
    found: Engine = request.param
    return found


@pytest.fixture
def store_url(engine: Engine, tmp_path: Path) -> str:
    return engine.url(tmp_path)


@pytest.fixture
def statements() -> list[str]:
    """The statements that stores of the test have sent; the plans know nothing of what earlier tests met."""
    for structure in (baskets, likes, pageviews, visits):
        structure.plans.clear()
    return []


@pytest.fixture
def view(request: pytest.FixtureRequest) -> bool:
    """Whether a test's stores make views, which takes as long as all else: where SQL clients may come."""
    needed = {need for mark in request.node.iter_markers("needs") for need in mark.args}
    joins = "way" in request.fixturenames
    return (
        WHOLE
        or bool({"readable views", "views", "inlets", "programs for SQL"} & needed)
        or ("sql" in request.fixturenames and not joins)
        or request.path.name.startswith("views_")
    )


@pytest.fixture
def open_store(store_url: str, statements: list[str], view: bool) -> Iterator[Open]:
    stores: list[roost.Store] = []
    named: list[Any] = []  # what a store without a catalog has to be told

    def open_(*structures: Any, **options: Any) -> roost.Store:
        options.setdefault("random", random.Random(7))
        options.setdefault("trace", lambda sql, _: statements.append(sql))
        store = roost.Store(store_url, **options)
        stores.append(store)
        if structures:
            store.create(*structures, view=view)
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

    def __init__(self, url: str, structures: tuple[Any, ...], options: dict[str, Any], view: bool = False) -> None:
        self._loop = asyncio.new_event_loop()
        self._store = roost.AsyncStore(url, **options)
        self._named = structures if url.startswith("memcached") else ()
        self.create(*structures, view=view)

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
def make(request: pytest.FixtureRequest, open_store: Open, store_url: str, view: bool) -> Iterator[Callable[..., Any]]:
    """Make a store of either kind, with structures in it."""
    stores: list[InAsyncio] = []

    def made(*structures: Any, **options: Any) -> Any:
        if request.param == "threads":
            return open_store(*structures, **options)
        stores.append(InAsyncio(store_url, structures, {"random": random.Random(7), **options}, view))
        return stores[-1]

    yield made
    try:
        for store in stores[:1]:
            assert store.check() == []
    finally:
        for store in stores:
            store.close()
