"""Two servers of each database, one that writes and its replica; three of MariaDB with Galera, all of which write."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.clusters.galera import Galera, galera
from tests.clusters.replicas import Pair, mariadb_pair, postgresql_pair

PAIRS: dict[str, Callable[[], Pair]] = {"postgresql": postgresql_pair, "mariadb": mariadb_pair}
OTHERS: dict[str, Callable[[], Pair]] = {
    "asynchronous": lambda: postgresql_pair(synchronous=False),
    "logging": lambda: mariadb_pair(logs=True),  # a replica that logs what it gets
}


@pytest.fixture(params=PAIRS)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    found = (PAIRS | OTHERS)[request.param]()
    with found:
        found.run(found.first, "CREATE DATABASE app")
        yield found


@pytest.fixture
def cluster() -> Galera:
    return galera()


@pytest.fixture
def urls(cluster: Galera, request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """A database of the test's own, by node."""
    name = f"galera_{abs(hash(request.node.nodeid)) % 10**9}"
    yield cluster.make(name)
    cluster.server.run(f"DROP DATABASE {name}")
