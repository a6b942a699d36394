"""A server of Roost on a SQLite file of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests import servers
from tests.handlersocket.wire import Address
from tests.server.serving import Serving, serving

SECRETS = ("to read", "to write")


@dataclass(frozen=True)
class Served:
    """A running `roost serve`, and the file it serves; that is no file where it serves a database of a server."""

    serving: Serving
    file: Path
    read: Address
    write: Address


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
    given = [f"--{role}-secret={secret}" for role, secret in zip(("read", "write"), secrets, strict=True) if secret]
    folder, one = servers.folder_for(None), ("--workers", "1", "--auth-delay", "0")
    with serving(folder, url, *one, *given, *options, module="roost.cli") as found:
        places = [found.addresses[role][0].rpartition(":") for role in ("read", "write")]
        read, write = (
            Address(host, int(port), secret) for (host, _, port), secret in zip(places, secrets, strict=True)
        )
        yield Served(found, file, read, write)
