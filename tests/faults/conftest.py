"""The servers that faults are made on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import pytest

from tests import servers
from tests.servers import Server

SERVERS: dict[str, Callable[[], Server]] = {"mariadb": servers.mariadb, "postgresql": servers.postgresql}

_numbers = count()


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> Server:
    """Each database server in turn."""
    try:
        return SERVERS[request.param]()
    except servers.NotHere as error:
        servers.not_run(error)


@pytest.fixture
def server_url(server: Server) -> Iterator[str]:
    """A database of the test's own, on each server in turn."""
    name = f"f{next(_numbers)}"
    yield server.database(name)
    server.drop(name)
