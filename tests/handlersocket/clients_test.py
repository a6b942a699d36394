"""Client libraries of other people: their usual calls give the same from Roost as from the original.

node-handlersocket's own tests, as they are in its package, pass with both.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sqlite3
import subprocess
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pymysql.constants import CLIENT

from tests import npm, servers
from tests.handlersocket.conftest import served, served_at
from tests.handlersocket.wire import Address

# vows is what node-handlersocket's own tests are written for.
PACKAGES = ["node-handlersocket@0.1.0", "node-mariadb@0.1.1", "vows@0.8.3"]
SCRIPTS = Path(__file__).parent / "usual"
PATIENCE = 60

# What each call gives, in the words of the client.
NODE_MARIADB: list[tuple[str, Any]] = [
    ("nothing is there", []),
    ("insert", True),
    ("insert the same", "Error: Insert failed. code: 1,1,121"),
    ("insert more", True),
    ("insert an empty string", True),
    ("find", [{"id": "10", "number": "7", "name": "Edgar", "version": "35"}]),
    ("find nothing", []),
    (
        "find more",
        [
            {"id": "11", "number": "8", "name": "Chloé", "version": "3"},
            {"id": "12", "number": "8", "name": "", "version": "4"},
        ],
    ),
    ("find with offset", [{"id": "12", "number": "8", "name": "", "version": "4"}]),
    (
        "find with IN",
        [
            {"id": "12", "number": "8", "name": "", "version": "4"},
            {"id": "10", "number": "7", "name": "Edgar", "version": "35"},
        ],
    ),
    ("find with a filter", [{"id": "10", "number": "7", "name": "Edgar", "version": "35"}]),
    ("find while", [{"id": "10", "number": "7", "name": "Edgar", "version": "35"}]),
    ("find by another key", [{"id": "11", "name": "Chloé"}, {"id": "12", "name": ""}]),
    ("update", 1),
    ("update and get", [{"id": "10", "number": "9", "name": "Bill", "version": "50"}]),
    ("increment", 1),
    ("increment and get", [{"version": "56"}]),
    ("decrement", 1),
    ("decrement and get", [{"version": "60"}]),
    (
        "what is there",
        [
            {"id": "10", "number": "9", "name": "Bob", "version": "59"},
            {"id": "11", "number": "8", "name": "Chloé", "version": "3"},
            {"id": "12", "number": "8", "name": "", "version": "4"},
        ],
    ),
    ("delete", 1),
    ("delete again", 0),
    (
        "delete and get",
        [
            {"id": "11", "number": "8", "name": "Chloé", "version": "3"},
            {"id": "12", "number": "8", "name": "", "version": "4"},
        ],
    ),
    ("modify on the port for reading", "Error: find failed. code: 2,1,readonly"),
    ("open", "Error: Could not open index. code: 2,1,idxnum"),
]

COLUMNS = "id INT NOT NULL PRIMARY KEY, number INT NOT NULL, name VARCHAR(40), version INT NOT NULL"


@pytest.fixture(scope="session")
def modules(request: pytest.FixtureRequest) -> Path:
    """Install the packages from npm's registry, once; return where they are."""
    return npm.modules(request.config, PACKAGES)


def node(modules: Path, *command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run node with the packages."""
    env = {**os.environ, "NODE_PATH": str(modules), **environment}
    return subprocess.run(["node", *command], capture_output=True, text=True, timeout=PATIENCE, env=env)


@pytest.fixture(params=["original", "roost"], ids=["mariadb-original", "roost"])
def listeners(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """A server with an empty table `employee`: where its listeners are."""
    if request.param == "roost":
        file = tmp_path / "clients.db"
        with sqlite3.connect(file) as connection:
            connection.execute(f"CREATE TABLE employee ({COLUMNS})")
            connection.execute("CREATE INDEX number ON employee (number)")
        connection.close()
        with served(file) as server:
            yield {"read": asdict(server.read), "write": asdict(server.write), "db": "clients"}
        return
    plugin = request.getfixturevalue("handlersocket_plugin")
    name = f"clients_{os.getpid()}"
    plugin.sql(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
    plugin.sql(f"CREATE TABLE {name}.employee ({COLUMNS}, KEY number (number))")
    yield {
        "read": asdict(Address(plugin.host, plugin.read_port, plugin.read_secret)),
        "write": asdict(Address(plugin.host, plugin.write_port, plugin.write_secret)),
        "db": name,
    }
    plugin.sql(f"DROP DATABASE {name}")


def test_node_mariadb(modules: Path, listeners: dict[str, Any]) -> None:
    done = node(modules, SCRIPTS / "node_mariadb.js", json.dumps(listeners))
    assert done.returncode == 0, done.stderr
    assert [tuple(each) for each in json.loads(done.stdout)] == NODE_MARIADB


OWN_TESTS = 76
OWN_SECRETS = ("", "node")  # that they expect, for reading and for writing
OWN_PORTS = (9998, 9999, 10000)  # that they name: for reading, for writing, and where nobody listens


def employees(script: str) -> str:
    """Return the one table that the tests use, for PostgreSQL: its names quoted, as clients spell them in capitals."""
    made = re.search(r"CREATE TABLE EMPLOYEE.*?^\);$", script, re.DOTALL | re.MULTILINE)
    assert made is not None
    statements = [made[0], *re.findall("^INSERT INTO EMPLOYEE .*$", script, re.MULTILINE)]
    return re.sub("(^[ ,] |TABLE |INTO )([A-Z_]+)", r'\1"\2"', "\n".join(statements), flags=re.MULTILINE)


@contextlib.contextmanager
def on_mariadb(script: str, roost: bool) -> Iterator[tuple[Address, Address]]:
    """Serve the tests' tables in MariaDB by its plugin, or by Roost; yield where to read and to write."""
    read_secret, write_secret = OWN_SECRETS
    plugin = servers.plugin_daemon(read_secret=read_secret, write_secret=write_secret)
    plugin.sql("CREATE DATABASE test")
    with plugin.connection(database="test", client_flag=CLIENT.MULTI_STATEMENTS) as connection:
        cursor = connection.cursor()
        cursor.execute(script)
        while cursor.nextset():
            pass
    if roost:
        with served_at(f"{plugin.daemon.url}/test", secrets=OWN_SECRETS) as server:
            yield server.read, server.write
    else:
        yield Address(plugin.host, plugin.read_port, ""), Address(plugin.host, plugin.write_port, "")
    plugin.daemon.end()


@contextlib.contextmanager
def on_postgresql(script: str) -> Iterator[tuple[Address, Address]]:
    """Serve them in PostgreSQL, where the database that clients name is a schema."""
    with servers.database("postgresql") as url:
        with psycopg.connect(url) as connection:
            connection.execute("CREATE SCHEMA test; SET search_path TO test;" + employees(script))
        with served_at(url, secrets=OWN_SECRETS) as server:
            yield server.read, server.write


@contextlib.contextmanager
def on_sqlite(script: str, folder: Path) -> Iterator[tuple[Address, Address]]:
    """Serve them in a file."""
    file = folder / "test.db"
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.executescript(script)
    with served(file, secrets=OWN_SECRETS) as server:
        yield server.read, server.write


@pytest.mark.parametrize("place", ["mariadb-original", "mariadb", "postgresql", "sqlite"])
def test_node_handlersocket_s_own_tests(place: str, modules: Path, tmp_path: Path) -> None:
    package = modules / "node-handlersocket"
    script = (package / "sql" / "create.sql").read_text()
    serving = {
        "mariadb-original": on_mariadb(script, roost=False),
        "mariadb": on_mariadb(script, roost=True),
        "postgresql": on_postgresql(script),
        "sqlite": on_sqlite(script, tmp_path),
    }[place]
    with contextlib.ExitStack() as stack:
        read, write = stack.enter_context(serving)
        ports = dict(zip(OWN_PORTS, (read.port, write.port, servers.free_port()), strict=True))
        vows = ("--require", SCRIPTS / "ports.js", modules / "vows" / "bin" / "vows")
        done = node(modules, *vows, *sorted((package / "test").glob("*.js")), PORTS=json.dumps(ports))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{OWN_TESTS} honored" in done.stdout
