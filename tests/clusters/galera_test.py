"""Galera, all of whose nodes write: what was answered is there once, on every node."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

import roost
from tests import servers
from tests.clusters import load
from tests.clusters.galera import Galera, galera
from tests.proxy import Cut, Proxy
from tests.suite.shapes import Visit, pageviews, visits


@pytest.fixture
def cluster() -> Galera:
    try:
        return galera()
    except servers.NotHere as error:
        servers.not_run(error)


@pytest.fixture
def urls(cluster: Galera, request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """A database of the test's own, by node."""
    server = cluster.server
    name = f"galera_{abs(hash(request.node.nodeid)) % 10**9}"
    server.run(f"DROP DATABASE IF EXISTS {name}")
    server.run(f"CREATE DATABASE {name}")
    cluster.wait()
    yield cluster.urls(name)
    server.run(f"DROP DATABASE {name}")


def test_f70_what_nodes_write_at_once_is_there_once(cluster: Galera, urls: list[str]) -> None:
    with roost.Store(urls[0]) as store:
        store.create(*load.STRUCTURES)
    cluster.wait()
    answers = load.write(urls, seconds=6)
    cluster.wait()
    assert answers.operations > 100
    assert not answers.errors, answers
    for url in urls:
        with roost.Store(url) as store:
            assert load.wrong(answers, store) == []


def lose(
    urls: list[str], cut: Cut, *operations: roost.Operation[object], at: str = "COMMIT"
) -> tuple[list[str], bytes]:
    """Run these on one node, lose the connection before a statement is answered, and connect anew to another node.

    Returns what was sent, and how the first node has answered what came late.
    """
    first, second = [urlsplit(url).port or 0 for url in urls[:2]]
    said: list[str] = []

    def trace(sql: str, row: object) -> None:
        said.append(sql)
        if armed and not proxy.cuts and sql.startswith(at):
            proxy.target = second
            proxy.arm(0, cut)

    armed = False
    with Proxy(first) as proxy, roost.Store(proxy.url(urls[0]), timeout=20, trace=trace) as store:
        store.run(pageviews.total("/home"))
        armed = True
        store.run_all(*operations)
        assert proxy.cuts == 1
        late = proxy.deliver() if cut is Cut.LATE else b""
    return said, late


@pytest.mark.parametrize("cut", [Cut.AFTER, Cut.LATE, Cut.ORPHAN], ids=lambda cut: cut.name)
def test_f71_a_lost_commit_that_is_looked_up_on_another_node_counts_once(
    cluster: Galera, urls: list[str], cut: Cut
) -> None:
    with roost.Store(urls[0]) as store, roost.Store(urls[2]) as third:
        store.create(pageviews, visits)
        cluster.wait()
        for n in range(1, 6):
            _, late = lose(urls, cut, pageviews.add("/home"), visits.push(Visit(1, n)))
            assert cut is not Cut.LATE or b"Deadlock" in late
            cluster.wait()
            assert third.run_all(pageviews.total("/home"), visits.latest(1)) == (
                n,
                [Visit(1, each) for each in range(n, 0, -1)],
            )
        assert third.check() == []


@pytest.mark.parametrize("at", ["COMMIT", "INSERT INTO roost_pageviews_rows"])
def test_f71_a_session_of_another_node_is_not_killed_for_one_that_was_lost(
    cluster: Galera, urls: list[str], at: str
) -> None:
    with roost.Store(urls[0]) as store, roost.Store(urls[1]) as other:
        store.create(pageviews)
        cluster.wait()
        said, _ = lose(urls, Cut.ORPHAN, pageviews.add("/home"), pageviews.add("/away"), at=at)
        assert not [sql for sql in said if sql.startswith("KILL")]
        assert other.run(pageviews.totals(["/home", "/away"])) == {"/home": 1, "/away": 1}
