"""The servers that faults are made on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import servers


@pytest.fixture(params=servers.SERVERS)
def server_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database of the test's own, on each database server in turn."""
    try:
        servers.SERVERS[request.param]()
    except servers.NotHere as error:
        servers.not_run(error)
    with servers.database(request.param) as url:
        yield url
