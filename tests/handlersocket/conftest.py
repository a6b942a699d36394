"""A server of Roost on a database of the test's own."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests import servers
from tests.handlersocket.wire import Address

SECRETS = ("to read", "to write")


@dataclass(frozen=True)
class Served:
    """A running `roost serve`."""

    daemon: servers.Daemon
    read: Address
    write: Address


def served(file: Path, secrets: tuple[str, str] = SECRETS) -> AbstractContextManager[Served]:
    """Serve a file, which is made where it is not there, and stop at the end."""
    file.touch()
    return served_at(f"sqlite:///{file}", secrets)


@contextmanager
def served_at(url: str, secrets: tuple[str, str] = SECRETS) -> Iterator[Served]:
    """Serve a database, and stop at the end."""
    read, write = (Address("127.0.0.1", servers.free_port(), secret) for secret in secrets)
    command = [sys.executable, "-m", "roost.cli", "serve", url, "--workers", "1", "--auth-delay", "0"]
    for name, address in (("read", read), ("write", write)):
        command += [f"--{name}", f"{address.host}:{address.port}"]
        command += [f"--{name}-secret", address.secret] if address.secret else []

    def is_up() -> None:
        for address in (read, write):
            socket.create_connection((address.host, address.port)).close()

    daemon = servers.Daemon(url, command, None, servers.folder_for(None), is_up)
    try:
        yield Served(daemon, read, write)
    finally:
        daemon.end()
