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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest

PATIENCE = 60.0  # seconds for a server to start

MARIADB = ("mariadbd", ["/usr/sbin", "/usr/libexec"], "mariadb-server")
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
    folder = Path(tempfile.mkdtemp(prefix="roost-"))
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


def started(command: list[str], user: str | None, folder: Path, is_up: Callable[[], Any]) -> None:
    """Start a server that ends with the tests, and return when it answers."""
    log = folder / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, user=user, cwd=folder)
    atexit.register(_stop, process, os.getpid())
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            is_up()
            return
        except Exception as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"{command[0]} does not answer: {error}\n{log.read_text()[-4000:]}") from error
        time.sleep(0.05)


def _stop(process: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() == owner:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=20)
        process.kill()


@functools.cache
def mariadb() -> Server:
    """Start MariaDB, once."""
    import pymysql

    def connect(url: str) -> pymysql.Connection[Any]:
        from roost.engines.mariadb import arguments

        return pymysql.connect(**arguments(url)[0], autocommit=True)

    if url := os.environ.get("ROOST_TEST_MYSQL"):
        url = url.rstrip("/")
    else:
        program, user = binary(*MARIADB), account("mysql")
        folder, port = folder_for(user), free_port()
        data = folder / "data"
        own = ["--no-defaults", f"--datadir={data}", *([f"--user={user}"] if user else [])]
        subprocess.run(
            [
                binary("mariadb-install-db", [], MARIADB[2]),
                *(*own, "--auth-root-authentication-method=normal", "--skip-test-db"),
            ],
            check=True,
            capture_output=True,
        )
        url = f"mysql://root@127.0.0.1:{port}"
        command = [
            *(program, *own, f"--port={port}", f"--socket={folder}/mysqld.sock", "--bind-address=127.0.0.1"),
            *(
                f"--tmpdir={folder}",
                "--plugin-load-add=ha_blackhole.so",
                "--max-connections=400",
                "--skip-name-resolve",
            ),
        ]
        started(command, user, folder, lambda: connect(f"{url}/mysql").close())

    def run(sql: str) -> None:
        connection = connect(f"{url}/mysql")
        with connection, connection.cursor() as cursor:
            cursor.execute(sql)

    return Server(url, lambda name: run(f"CREATE DATABASE {name}"), lambda name: run(f"DROP DATABASE {name}"))


@functools.cache
def postgresql() -> Server:
    """Start PostgreSQL, once."""
    import psycopg

    if url := os.environ.get("ROOST_TEST_POSTGRESQL"):
        url = url.rstrip("/")
    else:
        program, user = binary(*POSTGRESQL), account("postgres")
        folder, port = folder_for(user), free_port()
        data = folder / "data"
        subprocess.run(
            [
                *(binary("initdb", POSTGRESQL[1], POSTGRESQL[2]), "-D", str(data), "-U", "roost", "-A", "trust"),
                "-E",
                "UTF8",
            ],
            check=True,
            capture_output=True,
            user=user,
            cwd=folder,
        )
        url = f"postgresql://roost@127.0.0.1:{port}"
        command = [
            *(program, "-D", str(data), "-p", str(port), "-k", str(folder), "-c", "listen_addresses=127.0.0.1"),
            *("-c", "max_connections=400"),
        ]
        started(command, user, folder, lambda: psycopg.connect(f"{url}/postgres").close())

    def run(sql: str) -> None:
        with psycopg.connect(f"{url}/postgres", autocommit=True) as connection:
            connection.execute(sql)

    return Server(
        url, lambda name: run(f"CREATE DATABASE {name}"), lambda name: run(f"DROP DATABASE {name} WITH (FORCE)")
    )
