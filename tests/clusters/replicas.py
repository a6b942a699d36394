"""A server that writes and one that follows it, for the tests: it can be promoted."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import roost
from tests.servers import (
    POSTGRESQL,
    Daemon,
    account,
    binary,
    folder_for,
    free_port,
    mariadb_connection,
    mariadb_daemon,
    postgresql_daemon,
)

T = TypeVar("T")

PATIENCE = 180.0  # seconds for a replica to have what was committed


@dataclass
class Pair:
    """Two servers: what writes, what follows, and how the second is made the first."""

    first: Daemon
    second: Daemon
    promote: Callable[[], None]
    run: Callable[[Daemon, str], list[tuple[Any, ...]]]
    account: str

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.first.end()
        self.second.end()

    def leave(self) -> None:
        """Let the first write no more: a PostgreSQL is killed, a MariaDB, whose replica may lag behind, only reads."""
        if self.first.url.startswith("mysql"):
            self.run(self.first, "SET GLOBAL read_only = 1")  # its sessions stay
        else:
            self.first.kill()

    def url(self, database: str, *, backwards: bool = False) -> str:
        """Return the URL of a database that names both servers."""
        scheme = urlsplit(self.first.url).scheme
        ports = [urlsplit(each.url).port for each in (self.first, self.second)]
        servers = ",".join(f"127.0.0.1:{port}" for port in (reversed(ports) if backwards else ports))
        return f"{scheme}://{self.account}@{servers}/{database}"


def wait_for(condition: Callable[[], object]) -> None:
    """Return when it holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def on(daemon: Daemon, ask: Callable[[roost.Store], T]) -> T | None:
    """Return what a server itself says of the database `app`; None while it is not there, or not all of it."""
    try:
        with roost.Store(f"{daemon.url}/app", timeout=1) as store:
            return ask(store)
    except roost.Error:
        return None


def _on_postgresql(daemon: Daemon, sql: str) -> list[tuple[Any, ...]]:
    import psycopg

    with psycopg.connect(f"{daemon.url}/postgres", autocommit=True) as connection:
        cursor = connection.execute(sql)
        return cursor.fetchall() if cursor.description else []


def postgresql_pair(*, synchronous: bool = True) -> Pair:
    """Start a PostgreSQL, and a standby, which every COMMIT waits for unless told otherwise."""
    import psycopg

    first = postgresql_daemon("-c", "wal_level=replica", "-c", "hot_standby=on")
    user = account("postgres")
    folder, port = folder_for(user), free_port()
    data = folder / "data"
    copy = [binary("pg_basebackup", POSTGRESQL[1], POSTGRESQL[2]), "-d", f"{first.url}/postgres", "-D", str(data)]
    copy += ["-R", "-c", "fast", "-X", "stream"]
    subprocess.run(copy, check=True, capture_output=True, user=user, cwd=folder)
    program = binary(*POSTGRESQL)
    command = [program, "-D", str(data), "-p", str(port), "-k", str(folder), "-c", "listen_addresses=127.0.0.1"]
    command += ["-c", "max_connections=400", "-c", "dynamic_shared_memory_type=mmap"]
    url = f"postgresql://roost@127.0.0.1:{port}"
    second = Daemon(url, command, user, folder, lambda: psycopg.connect(f"{url}/postgres").close())
    if synchronous:
        _on_postgresql(first, "ALTER SYSTEM SET synchronous_standby_names = '*'")
        _on_postgresql(first, "SELECT pg_reload_conf()")
    state = "sync" if synchronous else "async"
    wait_for(lambda: _on_postgresql(first, f"SELECT 1 FROM pg_stat_replication WHERE sync_state = '{state}'"))
    return Pair(first, second, lambda: _promote_postgresql(second), _on_postgresql, "roost")


def _promote_postgresql(second: Daemon) -> None:
    _on_postgresql(second, "ALTER SYSTEM SET synchronous_standby_names = ''")
    _on_postgresql(second, "SELECT pg_reload_conf()")
    _on_postgresql(second, "SELECT pg_promote()")


def postgresql_switch(replica: Daemon, primary: Daemon) -> None:
    """Have two PostgreSQLs change places, as planned: who writes is shut down, and comes back as the standby."""
    primary.stop(signal.SIGINT)  # which has sent all it has written
    _promote_postgresql(replica)
    run_as_standby(primary, replica)
    wait_for(lambda: _on_postgresql(replica, "SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'"))


def run_as_standby(former: Daemon, primary: Daemon) -> None:
    """Start a PostgreSQL that has ended as the standby of another one."""
    data, port = former.folder / "data", urlsplit(primary.url).port
    with (data / "postgresql.auto.conf").open("a") as settings:
        settings.write(f"primary_conninfo = 'host=127.0.0.1 port={port} user=roost'\n")
    (data / "standby.signal").touch()
    former.start()


def _on_mariadb(daemon: Daemon, sql: str) -> list[tuple[Any, ...]]:
    connection = mariadb_connection(daemon.url)
    with connection, connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def mariadb_replicating(number: int, *, logs: bool = False) -> Daemon:
    """Start a MariaDB with a binary log; logs: also of what it gets as a replica, which is not the default."""
    options = ("--log-bin", "--binlog-format=ROW", f"--log-slave-updates={logs:d}", "--gtid-strict-mode=1")
    return mariadb_daemon(*options, f"--server-id={number}")


def mariadb_pair(*, logs: bool = False) -> Pair:
    """Start a MariaDB, and a replica; `app` is an account that read_only holds for."""
    first, second = [mariadb_replicating(number, logs=logs) for number in (1, 2)]
    mariadb_follow(second, first)
    rights = "SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX, CREATE VIEW, SHOW VIEW, TRIGGER"
    rights += ", EXECUTE, CREATE ROUTINE, ALTER ROUTINE"
    _on_mariadb(first, "CREATE USER app@'127.0.0.1'")
    _on_mariadb(first, f"GRANT {rights} ON *.* TO app@'127.0.0.1'")
    _on_mariadb(first, "SET GLOBAL log_bin_trust_function_creators = 1")
    _on_mariadb(second, "SET GLOBAL log_bin_trust_function_creators = 1")

    return Pair(first, second, lambda: _lead(second, first), _on_mariadb, "app")


def mariadb_follow(replica: Daemon, primary: Daemon, position: str = "slave_pos") -> None:
    """Have a MariaDB replicate another one."""
    _on_mariadb(replica, "SET GLOBAL read_only = 1")
    _on_mariadb(
        replica,
        f"CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {urlsplit(primary.url).port}, "
        f"MASTER_USER = 'root', MASTER_CONNECT_RETRY = 1, MASTER_USE_GTID = {position}",
    )
    _on_mariadb(replica, "START SLAVE")


def _lead(replica: Daemon, primary: Daemon) -> None:
    if primary.is_running:
        (position,) = _on_mariadb(primary, "SELECT @@gtid_current_pos")[0]
        _on_mariadb(replica, f"SELECT MASTER_GTID_WAIT('{position}', 60)")
    _on_mariadb(replica, "STOP SLAVE")
    _on_mariadb(replica, "RESET SLAVE ALL")
    _on_mariadb(replica, "SET GLOBAL read_only = 0")


def mariadb_switch(replica: Daemon, primary: Daemon) -> None:
    """Have two MariaDBs change places, as planned: nothing is lost."""
    _on_mariadb(primary, "SET GLOBAL read_only = 1")
    _lead(replica, primary)
    mariadb_follow(primary, replica, "current_pos")
