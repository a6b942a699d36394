"""Database servers for the tests: started from the binaries of the machine, on free ports, with production's fsync.

`ROOST_TEST_MYSQL` and `ROOST_TEST_POSTGRESQL` name running servers to use instead, by the URL of an account that may
create databases. Where there is neither, tests are reported as not run; with `ROOST_TEST_ALL=1` that is a failure.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

import pytest

# Where servers keep their data; None: on the disk. Tests say in memory, where it has room: the servers call fsync as in
# production, but some thousand tests make tables.
place: str | None = None

PATIENCE = 60.0  # seconds for a server to start

MARIADB = ("mariadbd", ["/usr/sbin", "/usr/libexec"], "mariadb-server")
MEMCACHED = ("memcached", ["/usr/sbin"], "memcached")
POSTGRESQL = ("postgres", [str(path) for path in Path("/usr/lib/postgresql").glob("*/bin")], "postgresql")


class NotHere(Exception):
    """There is no such server on this machine; the text names the package to install."""


def not_run(why: NotHere) -> NoReturn:
    """Report the test as not run, or as failed where everything has to be."""
    if os.environ.get("ROOST_TEST_ALL") == "1":
        pytest.fail(str(why), pytrace=False)
    pytest.skip(str(why))


@dataclass(frozen=True)
class Server:
    """A running server: its URL without a database, and how to make and drop one."""

    url: str
    make: Callable[[str], None]
    drop: Callable[[str], None]

    def database(self, name: str) -> str:
        """Make a database of this name and return its URL."""
        self.make(name)
        return f"{self.url}/{name}"


def free_port() -> int:
    """Return a port of the loopback that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def binary(name: str, folders: list[str], package: str) -> str:
    """Return the path of a program, or raise `NotHere`."""
    found = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *folders]))
    if found is None:
        raise NotHere(f"NOT RUN: {name} is not on this machine; install the package {package}")
    return found


def folder_for(user: str | None) -> Path:
    """Return a temporary folder that a server may write, removed when the tests end."""
    folder = Path(tempfile.mkdtemp(prefix="roost-", dir=place))
    if user is not None:
        shutil.chown(folder, user)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def account(name: str) -> str | None:
    """Return the account that a server has to run as: root may not; None for the one that runs the tests."""
    if os.getuid():
        return None
    pwd.getpwnam(name)
    return name


class Daemon:
    """A server of the tests' own: it can be killed, and started again on the same port with what is on the disk."""

    def __init__(self, url: str, command: list[str], user: str | None, folder: Path, is_up: Callable[[], Any]) -> None:
        self.url = url
        self._command, self._user, self._folder, self._is_up = command, user, folder, is_up
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self._end, os.getpid())
        self.start()

    def start(self) -> None:
        """Start it, and return when it answers."""
        log = self._folder / "server.log"
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                self._command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, user=self._user, cwd=self._folder
            )
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self._is_up()
                return
            except Exception as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    told = f"{self._command[0]} does not answer: {error}\n{log.read_text()[-4000:]}"
                    raise AssertionError(told) from error
            time.sleep(0.05)

    def kill(self) -> None:
        """Kill it with -9, and return when it is gone, with the processes that it had."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def _end(self, owner: int) -> None:
        if os.getpid() == owner and self._process is not None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=20)
            self._process.kill()


def mariadb_daemon(*options: str, blackhole: bool = True) -> Daemon:
    """Start a MariaDB, with production's durability unless told otherwise."""
    program, user = binary(*MARIADB), account("mysql")
    folder, port = folder_for(user), free_port()
    # A server that starts removes what others have in a folder for temporary tables that they share.
    own = ["--no-defaults", f"--datadir={folder / 'data'}", f"--tmpdir={folder}", *([f"--user={user}"] if user else [])]
    install = binary("mariadb-install-db", [], MARIADB[2])
    subprocess.run(
        [install, *own, "--auth-root-authentication-method=normal", "--skip-test-db"], check=True, capture_output=True
    )
    url = f"mysql://root@127.0.0.1:{port}"
    command = [
        *(program, *own, f"--port={port}", f"--socket={folder}/mysqld.sock", "--bind-address=127.0.0.1"),
        *(["--plugin-load-add=ha_blackhole.so"] if blackhole else []),
        *("--max-connections=400", "--skip-name-resolve", *options),
    ]
    return Daemon(url, command, user, folder, lambda: _mariadb_connection(url).close())


def _mariadb_connection(url: str) -> Any:
    import pymysql

    from roost.engines.mariadb import arguments

    return pymysql.connect(**arguments(f"{url}/mysql")[0], autocommit=True)


def mariadb_server(url: str) -> Server:
    """Return what makes and drops databases on a running MariaDB."""

    def run(sql: str) -> None:
        connection = _mariadb_connection(url)
        with connection, connection.cursor() as cursor:
            cursor.execute(sql)

    return Server(url, lambda name: run(f"CREATE DATABASE {name}"), lambda name: run(f"DROP DATABASE {name}"))


@functools.cache
def mariadb() -> Server:
    """Start MariaDB, once."""
    return mariadb_server(os.environ.get("ROOST_TEST_MYSQL", "").rstrip("/") or mariadb_daemon().url)


@functools.cache
def bare_mariadb() -> Server:
    """Start a MariaDB as it comes, without BLACKHOLE, but with a binary log; once."""
    return mariadb_server(mariadb_daemon("--log-bin", "--server-id=1", blackhole=False).url)


def postgresql_daemon(*options: str) -> Daemon:
    """Start a PostgreSQL, with production's durability unless told otherwise."""
    import psycopg

    program, user = binary(*POSTGRESQL), account("postgres")
    folder, port = folder_for(user), free_port()
    data = str(folder / "data")
    install = binary("initdb", POSTGRESQL[1], POSTGRESQL[2])
    subprocess.run(
        [install, "-D", data, "-U", "roost", "-A", "trust", "-E", "UTF8"],
        check=True,
        capture_output=True,
        user=user,
        cwd=folder,
    )
    url = f"postgresql://roost@127.0.0.1:{port}"
    command = [
        *(program, "-D", data, "-p", str(port), "-k", str(folder), "-c", "listen_addresses=127.0.0.1"),
        *("-c", "max_connections=400", *options),
    ]
    return Daemon(url, command, user, folder, lambda: psycopg.connect(f"{url}/postgres").close())


def postgresql_server(url: str) -> Server:
    """Return what makes and drops databases on a running PostgreSQL."""
    import psycopg

    def run(sql: str) -> None:
        with psycopg.connect(f"{url}/postgres", autocommit=True) as connection:
            connection.execute(sql)

    return Server(
        url, lambda name: run(f"CREATE DATABASE {name}"), lambda name: run(f"DROP DATABASE {name} WITH (FORCE)")
    )


@functools.cache
def postgresql() -> Server:
    """Start PostgreSQL, once."""
    return postgresql_server(os.environ.get("ROOST_TEST_POSTGRESQL", "").rstrip("/") or postgresql_daemon().url)


def memcached_daemon(*options: str) -> Daemon:
    """Start a memcached."""
    from pymemcache.client.base import Client  # type: ignore[import-untyped]

    program, user = binary(*MEMCACHED), account("memcache")
    folder, port = folder_for(user), free_port()
    command = [program, "-l", "127.0.0.1", "-p", str(port), "-U", "0", "-c", "1024", *options]

    def is_up() -> None:
        client = Client(("127.0.0.1", port))
        client.version()
        client.close()

    return Daemon(f"memcached://127.0.0.1:{port}", command, user, folder, is_up)


@functools.cache
def memcached(*options: str, number: int = 2) -> str:
    """Start memcached servers, once; return the URL of all of them together."""
    made = [memcached_daemon(*options) for _ in range(number)]
    return "memcached://" + ",".join(each.url.partition("://")[2] for each in made)


# Growing sets need not be large: an item has at most 32 KB.
SMALL_ITEMS = ("-I", "32k", "-o", "slab_chunk_max=16384")


def emptied(url: str) -> str:
    """Remove every item of these servers, and return their URL."""
    for client in memcached_clients(url):
        client.flush_all(noreply=False)
        client.close()
    return url


def memcached_clients(url: str) -> list[Any]:
    """Return a plain client of each server."""
    from pymemcache.client.base import Client

    return [Client(each, default_noreply=False) for each in url.partition("://")[2].split(",")]


SERVERS: dict[str, Callable[[], Server]] = {"mariadb": mariadb, "postgresql": postgresql}

_numbers = count()


@contextlib.contextmanager
def database(name: str) -> Iterator[str]:
    """Make a database of its own on a server, started when it is the first; dropped at the end."""
    server, made = SERVERS[name](), f"own_{next(_numbers)}"
    yield server.database(made)
    server.drop(made)


def wait_for_silence(url: str) -> None:
    """Return when no client is connected to a database any more: what was killed is over."""
    import psycopg

    if url.startswith("postgresql"):
        asked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        connection: Any = psycopg.connect(url, autocommit=True)
    else:
        import pymysql

        from roost.engines.mariadb import arguments

        asked = "SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
        connection = pymysql.connect(**arguments(url)[0])
    deadline = time.monotonic() + PATIENCE
    with connection, connection.cursor() as cursor:
        while True:
            cursor.execute(asked)
            if cursor.fetchone() == (0,):
                return
            assert time.monotonic() < deadline, "clients that are gone are still there"
            time.sleep(0.005)
