"""Two servers of each database: one that writes, and its replica."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests import servers
from tests.clusters.replicas import Pair, mariadb_pair, postgresql_pair

PAIRS: dict[str, Callable[[], Pair]] = {"postgresql": postgresql_pair, "mariadb": mariadb_pair}


@pytest.fixture(params=PAIRS)
def pair(request: pytest.FixtureRequest) -> Pair:
    try:
        found = PAIRS[request.param]()
    except servers.NotHere as error:
        servers.not_run(error)
    found.run(found.first, "CREATE DATABASE app")
    return found
