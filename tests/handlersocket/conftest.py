"""A server of Roost on a SQLite file of the test's own."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import servers
from tests.handlersocket.wire import Address

SECRETS = ("to read", "to write")


@dataclass(frozen=True)
class Served:
    """A running `roost serve`, and the file it serves; that is no file where it serves a database of a server."""

    daemon: servers.Daemon
    file: Path
    read: Address
    write: Address


def command(url: str, read: Address, write: Address) -> list[str]:
    """Return the command that serves a database."""
    return [
        *(sys.executable, "-m", "roost.cli", "serve", url, "--workers", "1", "--auth-delay", "0"),
        *("--read", f"{read.host}:{read.port}", "--write", f"{write.host}:{write.port}"),
        *(["--read-secret", read.secret] if read.secret else []),
        *(["--write-secret", write.secret] if write.secret else []),
    ]


@contextmanager
def served(file: Path, *options: str, secrets: tuple[str, str] = SECRETS) -> Iterator[Served]:
    """Serve a file, which is made where it is not there, and stop at the end."""
    file.touch()
    with served_at(f"sqlite:///{file}", *options, secrets=secrets, file=file) as server:
        yield server


@contextmanager
def served_at(
    url: str, *options: str, secrets: tuple[str, str] = SECRETS, file: Path = Path("none")
) -> Iterator[Served]:
    """Serve a database, and stop at the end."""
    read, write = (Address("127.0.0.1", servers.free_port(), secret) for secret in secrets)

    def is_up() -> None:
        for address in (read, write):
            socket.create_connection((address.host, address.port)).close()

    daemon = servers.Daemon(url, [*command(url, read, write), *options], None, servers.folder_for(None), is_up)
    try:
        yield Served(daemon, file, read, write)
    finally:
        daemon.end()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file that the recordings' name of the database fits."""
    return tmp_path / "hst.db"


@pytest.fixture
def served_file(file: Path) -> Iterator[Served]:
    """A running server on an empty file."""
    with served(file) as server:
        yield server
