"""A thousand connections of clients, or ten thousand, over eight connections to the database."""

from __future__ import annotations

import contextlib
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.index.databases import database
from tests.lengths import length
from tests.server.servers_test import ROWS, TABLE, add, opening
from tests.server.serving import connected, serving

MANY = length(1_000, 10_000)
KEPT_FILES = 500  # for everything else of this process
SESSIONS = {
    "mariadb": "SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()",
    "postgresql": "SELECT count(*) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'",
}


@contextlib.contextmanager
def many(addresses: list[str]) -> Iterator[list[socket.socket]]:
    """Connect so many times, as far as this process may have files, to each address in turn."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    number = MANY if hard == resource.RLIM_INFINITY else min(MANY, hard - KEPT_FILES)
    made: list[socket.socket] = []
    try:
        made += [connected(addresses[n % len(addresses)]) for n in range(number)]
        yield made
    finally:
        for each in made:
            each.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def ask(clients: list[socket.socket], line: str) -> set[bytes]:
    """Send a line on all connections, and return what answers there are."""
    for each in clients:
        each.sendall(f"{line}\n".encode())
    return {each.recv(100) for each in clients}


@pytest.mark.parametrize("kind", ["mariadb", "postgresql"])
def test_many_connections_have_eight_to_the_database(kind: str, tmp_path: Path) -> None:
    with database(kind, tmp_path) as db:
        db.script(TABLE[kind], ROWS)
        with (
            serving(tmp_path, db.url, "--workers", "2", "--connections", "8", module="roost.cli") as served,
            many([served.addresses["read"][0], served.addresses["write"][0]]) as clients,
        ):
            readers, writers = clients[::2], clients[1::2]
            assert ask(clients, opening(db)) == {b"0\t1\n"}
            assert ask(clients, "0\t=\t1\t2") == {b"0\t3\t2\ttwo\t20\n"}
            for each in readers:
                each.sendall(b"0\t=\t1\t3\n")
            assert ask(writers, add(1)) == {b"0\t1\t1\n"}
            assert db.sql(SESSIONS[kind]) == [(8,)]
            assert {each.recv(100) for each in readers} == {b"0\t3\t3\tthree\t30\n"}
            # Turns had many clients, and now have one: it is answered although nobody comes with it.
            assert ask(readers[:1], "0\t=\t1\t2") == {b"0\t3\t2\ttwo\t20\n"}
            assert db.sql("SELECT n FROM t WHERE id = 1") == [(10 + len(writers),)]
        assert "Traceback" not in served.log
