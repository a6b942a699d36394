"""Servers that a client speaks to, and both kinds of client behind one face."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from zlib import crc32

import pytest

from roost import Error
from roost.client import AsyncHandlerSocket, HandlerSocket, Index, Request
from tests import servers
from tests.lengths import WHOLE
from tests.server.serving import serving

T = TypeVar("T")

_numbers = itertools.count()


@dataclass
class Server:
    """A server with a database of the test's own."""

    name: str
    read_port: int
    write_port: int
    read_secret: str
    write_secret: str
    database: str
    sql: Callable[[str], list[tuple[Any, ...]]]
    auto: str  # the type of a key that numbers itself

    def index(self, table: str, *columns: str, index: str = "PRIMARY", filters: tuple[str, ...] = ()) -> Index:
        return Index(self.database, table, index, columns, filters)


class Sync:
    """`HandlerSocket`."""

    def __init__(self, address: str, **options: Any) -> None:
        self.client = HandlerSocket(address, **options)

    def run(self, request: Request[T]) -> T:
        return self.client.run(request)

    def pipeline(self, requests: Sequence[Request[T]]) -> list[T | Error]:
        return self.client.pipeline(requests)

    def open_index(self, *names: Any) -> Index:
        return self.client.open_index(*names)

    def close(self) -> None:
        self.client.close()


class Async:
    """`AsyncHandlerSocket`, in a loop of its own."""

    def __init__(self, address: str, **options: Any) -> None:
        self.client = AsyncHandlerSocket(address, **options)
        self.runner = asyncio.Runner()
        self.closed = False

    def run(self, request: Request[T]) -> T:
        return self.runner.run(self.client.run(request))

    def pipeline(self, requests: Sequence[Request[T]]) -> list[T | Error]:
        return self.runner.run(self.client.pipeline(requests))

    def open_index(self, *names: Any) -> Index:
        return self.runner.run(self.client.open_index(*names))

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.runner.run(self.client.close())
            self.runner.close()


Client = Sync | Async
Connect = Callable[..., Client]


@pytest.fixture
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Make clients of each kind in turn; they are closed at the end."""
    made: list[Client] = []

    def make(address: str, **options: Any) -> Client:
        made.append(request.param(address, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def _plugin(_: pytest.FixtureRequest) -> Iterator[Server]:
    plugin = servers.plugin()
    database = f"client_{next(_numbers)}"
    plugin.sql(f"CREATE DATABASE {database}")

    def sql(text: str) -> list[tuple[Any, ...]]:
        with plugin.connection(database=database) as connection, connection.cursor() as cursor:
            cursor.execute(text)
            return list(cursor.fetchall())

    auto = "INT AUTO_INCREMENT PRIMARY KEY"
    where = (plugin.read_port, plugin.write_port, plugin.read_secret, plugin.write_secret)
    yield Server("plugin", *where, database, sql, auto)
    plugin.sql(f"DROP DATABASE {database}")


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int, int]]:
    """One `roost serve` for all tests of a process: its file and ports."""
    folder = tmp_path_factory.mktemp("served")
    path = folder / "served.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    given = ("--workers", "1", "--read-secret", "to read", "--write-secret", "to write")
    with serving(folder, f"sqlite:///{path}", *given, module="roost.cli") as found:
        read, write = (int(found.addresses[role][0].rpartition(":")[2]) for role in ("read", "write"))
        yield path, read, write


def served(request: pytest.FixtureRequest) -> Iterator[Server]:
    path, read_port, write_port = request.getfixturevalue("running")

    def sql(text: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(path, isolation_level=None, timeout=servers.PATIENCE)) as connection:
            return connection.execute(text).fetchall()

    yield Server("roost", read_port, write_port, "to read", "to write", "main", sql, "INTEGER PRIMARY KEY")
    for kind, name in sql("SELECT type, name FROM sqlite_master WHERE type IN ('table', 'view')"):
        sql(f'DROP {kind} "{name}"')


SERVERS = {"mariadb-plugin": _plugin, "roost": served}
KINDS = {"sync": Sync, "async": Async}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each server has each kind of client in turn; in the short form one of them, the other server the other."""
    named = {name for mark in metafunc.definition.iter_markers("parametrize") for name in mark.args[:1]}
    names = [name for name in ("server", "connect") if name in metafunc.fixturenames and name not in named]
    chosen = [[*(SERVERS if name == "server" else KINDS)] for name in names]
    cases = [*itertools.product(*chosen)]
    if len(names) == 2 and not WHOLE:
        turn = crc32(metafunc.function.__name__.encode()) % 2
        cases = [cases[turn], cases[3 - turn]]
    values = [tuple([(SERVERS | KINDS)[each] for each in case]) for case in cases]
    if names:
        metafunc.parametrize(names, values, indirect=True, ids=["-".join(case) for case in cases])


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A database of the test's own on each kind of server, with a table of fruit."""
    for made in request.param(request):
        made.sql(f"CREATE TABLE fruit (id {made.auto}, name VARCHAR(64), count BIGINT)")
        made.sql("CREATE INDEX by_name ON fruit (name)")
        rows = "('apple', 5), ('banana', 4), ('cherry', 1), ('damson', NULL), ('elder', 9)"
        made.sql(f"INSERT INTO fruit (name, count) VALUES {rows}")
        yield made


@pytest.fixture
def reader(server: Server, connect: Connect) -> Client:
    return connect(f"127.0.0.1:{server.read_port}", secret=server.read_secret)


@pytest.fixture
def writer(server: Server, connect: Connect) -> Client:
    return connect(f"127.0.0.1:{server.write_port}", secret=server.write_secret)
