"""Two servers of each database: one that writes, and its replica."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests import servers
from tests.clusters.replicas import Pair, mariadb_pair, postgresql_pair

PAIRS: dict[str, Callable[[], Pair]] = {"postgresql": postgresql_pair, "mariadb": mariadb_pair}
OTHERS: dict[str, Callable[[], Pair]] = {"asynchronous": lambda: postgresql_pair(synchronous=False)}


@pytest.fixture(params=PAIRS)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    try:
        found = (PAIRS | OTHERS)[request.param]()
    except servers.NotHere as error:
        servers.not_run(error)
    with found:
        found.run(found.first, "CREATE DATABASE app")
        yield found
