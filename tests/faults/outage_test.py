"""The database server is killed while processes write; short forms of the campaigns `outage` and `writers`."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import roost
from tests import servers
from tests.campaigns.outage import outage
from tests.campaigns.processes import PATIENCE
from tests.campaigns.writers import Event, Plan, capped, counter, crowd, members, ring, verify
from tests.clusters.replicas import wait_for
from tests.lengths import length
from tests.proxy import Cut, Proxy
from tests.suite import clients
from tests.suite.shapes import pageviews


def test_what_was_answered_before_the_server_was_killed_is_there_once(own_server: str) -> None:
    try:
        found = outage(own_server, rounds=2, seed=1)
    except servers.Died:  # a MariaDB whose files did not survive the kill (about one in 600) tells nothing of Roost
        found = outage(own_server, rounds=2, seed=2)
    assert found.kills == 2
    assert found.answers > 0


@pytest.mark.parametrize("cut", [Cut.BEFORE, Cut.AFTER], ids=["lost", "committed"])
def test_a_commit_is_not_taken_for_that_of_another_which_came_after_the_crash(own_server: str, cut: Cut) -> None:
    """PostgreSQL gives the number of a transaction that died with it, and had nothing on disk, to another one."""
    with servers.killable(own_server) as (daemon, server, url):
        if own_server == "postgresql":
            server.run("ALTER SYSTEM SET wal_writer_delay = '10s'")
            server.run("SELECT pg_reload_conf()")

        def crash() -> None:
            daemon.kill()
            daemon.start()
            with roost.Store(url) as other:
                for _ in range(20):
                    other.run(pageviews.add("/other"))

        with Proxy(urlsplit(url).port or 0) as proxy, roost.Store(proxy.url(url), timeout=60) as store:
            store.create(pageviews)
            for _ in range(3):
                store.run(pageviews.add("/home"))
            proxy.arm(0, cut, crash)
            store.run(pageviews.add("/home"))
            assert not proxy.disarm()
            assert store.run_all(pageviews.total("/home"), pageviews.total("/other")) == (4, 20)
        if own_server == "postgresql":
            server.run("ALTER SYSTEM RESET wal_writer_delay")
            server.run("SELECT pg_reload_conf()")


@pytest.mark.parametrize("keys", [1, 10])
def test_many_writers_on_one_key_and_on_many(server_url: str, keys: int) -> None:
    foreign = 0 if servers.kind_of(server_url) == "mysql" else 2  # where there are no views
    plan = Plan(processes=3, threads=6, foreign=foreign, operations=length(40, 80), keys=keys)
    assert crowd(server_url, plan).operations == 18 * plan.operations


def test_they_do_so_in_a_file_too_and_what_is_lost_or_doubled_is_seen(tmp_path: Path) -> None:
    plan = Plan(processes=2, threads=4, foreign=2, operations=80, keys=2)
    crowd(f"sqlite:///{tmp_path}/all.db", plan)
    with roost.Store(f"sqlite:///{tmp_path}/all.db") as store:
        newest = store.run(capped.latest(1, n=1))[0].number
        member = min(store.run(members.members(1)))
    changes: list[roost.Operation[Any]] = [
        *(counter.add(1), ring.push(Event(1, 1)), capped.remove(1, newest), capped.add(Event(1, -1))),
        members.remove(1, member),
    ]
    for number, change in enumerate(changes):
        shutil.copy(tmp_path / "all.db", tmp_path / f"{number}.db")
        with roost.Store(f"sqlite:///{tmp_path}/{number}.db") as store:
            verify(store, plan)
            store.run(change)
            with pytest.raises(AssertionError):
                verify(store, plan)


def test_a_store_that_is_made_while_an_account_has_all_its_connections_waits_for_one() -> None:
    with servers.database("mariadb") as url:
        with roost.Store(url) as store:
            store.create(pageviews)
        name = f"clerk_{urlsplit(url).path[1:]}"
        sql = clients.connect(url)
        sql.execute(f"CREATE USER {name} WITH MAX_USER_CONNECTIONS 1")
        try:
            sql.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {urlsplit(url).path[1:]}.* TO {name}")
            parts = urlsplit(url)
            theirs = parts._replace(netloc=f"{name}@{parts.hostname}:{parts.port}").geturl()
            other = clients.connect(theirs)
            with roost.Store(theirs, timeout=0.3) as hasty, pytest.raises(roost.ConnectionLost):
                hasty.run(pageviews.total("/home"))
            with roost.Store(theirs, timeout=PATIENCE) as store, ThreadPoolExecutor(1) as pool:
                found = pool.submit(store.run, pageviews.total("/home"))
                wait_for(lambda: store.stats().outages or found.done())
                other.close()
                assert found.result() == 0
        finally:
            sql.execute(f"DROP USER {name}")
            sql.close()
