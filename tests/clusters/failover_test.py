"""Several hosts in a URL: the store finds the one that writes, leaves it when it only reads or is gone, and finds the
next one within its timeout."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import pytest

import roost
from tests.campaigns.processes import PATIENCE
from tests.clusters import load
from tests.clusters.conftest import PAIRS
from tests.clusters.poolers import haproxy_daemon, pgbouncer_daemon
from tests.clusters.replicas import Pair, mariadb_switch, on, postgresql_switch, wait_for
from tests.proxy import Proxy
from tests.suite.shapes import pageviews

LOAD: dict[str, Any] = {"processes": 2, "threads": 2, "joined": False, "timeout": 30, "longer": False}


def is_there(pair: Pair, structures: int = len(load.STRUCTURES)) -> bool:
    """Whether the replica has the structures."""
    return on(pair.second, lambda store: len(store.structures())) == structures


def test_f73_a_switchover_under_load_is_a_longer_call_and_no_error(pair: Pair) -> None:
    urls = [pair.url("app"), pair.url("app", backwards=True)]
    with roost.Store(urls[0], timeout=30) as store:
        store.create(*load.STRUCTURES)
        wait_for(lambda: is_there(pair))

        def meanwhile() -> None:
            wait_for(lambda: store.run(load.hot.total(1)) > 10)
            pair.leave()
            pair.promote()
            before = store.run(load.hot.total(1))
            wait_for(lambda: store.run(load.hot.total(1)) > before + 10)

        answers = load.write(urls, 2 * PATIENCE, **LOAD, meanwhile=meanwhile)
        assert not answers.errors
        assert load.wrong(answers, store) == []
    with roost.Store(f"{pair.second.url}/app", timeout=30) as second:
        assert load.wrong(answers, second) == []


def test_f73_a_standby_is_waited_for_until_it_is_promoted(pair: Pair) -> None:
    with roost.Store(pair.url("app", backwards=True), timeout=60) as store:
        store.create(pageviews)
        store.run(pageviews.add("/home"))
        with roost.Store(f"{pair.second.url.replace('root@', 'app@')}/app", timeout=60) as alone:
            wait_for(lambda: on(pair.second, lambda there: there.run(pageviews.total("/home"))) == 1)
            alone.create(pageviews)  # nothing is missing
            assert alone.run(pageviews.total("/home")) == 1
            with roost.Store(alone.url, timeout=0.3) as hasty, pytest.raises(roost.ReadOnly):
                hasty.run(pageviews.add("/home"))
            pair.leave()
            pair.promote()
            alone.run(pageviews.add("/home"))
        assert store.run(pageviews.total("/home")) == 2


def test_a_store_that_is_made_while_no_server_writes_waits_for_one_that_does(pair: Pair) -> None:
    with roost.Store(pair.url("app")) as store:
        store.create(pageviews)
    wait_for(lambda: is_there(pair, 1))
    pair.leave()
    with roost.Store(pair.url("app"), timeout=0.3) as hasty, pytest.raises(roost.ConnectionLost):
        hasty.run(pageviews.add("/home"))
    with roost.Store(pair.url("app"), timeout=2 * PATIENCE) as store, ThreadPoolExecutor(1) as pool:
        added = pool.submit(store.run, pageviews.add("/home"))
        wait_for(lambda: store.stats().outages or added.done())
        pair.promote()
        added.result()
        assert store.run(pageviews.total("/home")) == 1


SWITCH = {"mysql": mariadb_switch, "postgresql": postgresql_switch}


@pytest.mark.parametrize("pair", [*PAIRS, "logging"], indirect=True)
def test_a_planned_switchover_both_ways_under_load_loses_nothing(pair: Pair) -> None:
    url = pair.url("app")
    with roost.Store(url, timeout=30) as store:
        store.create(*load.STRUCTURES)
        wait_for(lambda: is_there(pair))

        def meanwhile() -> None:
            for replica, primary in ((pair.second, pair.first), (pair.first, pair.second)):
                before = store.run(load.hot.total(1))
                wait_for(lambda: store.run(load.hot.total(1)) > before)  # noqa: B023
                SWITCH[url.partition(":")[0]](replica, primary)
            before = store.run(load.hot.total(1))
            wait_for(lambda: store.run(load.hot.total(1)) > before)

        answers = load.write([url], 2 * PATIENCE, **LOAD, meanwhile=meanwhile)
        assert not answers.errors
        assert load.wrong(answers, store) == []


def test_behind_haproxy_a_failover_is_a_longer_call_and_no_error(pair: Pair) -> None:
    proxy = haproxy_daemon(pair.first.url, pair.second.url)
    url = f"{proxy.url.replace('//', f'//{pair.account}@')}/app"
    with roost.Store(url, timeout=30) as store:
        store.create(*load.STRUCTURES)
        wait_for(lambda: is_there(pair))
        found = {each.subject: each for each in store.doctor()}
        assert "pooler" not in found
        if pair.first.url.startswith("postgresql"):
            assert found["standbys"].means.endswith("loses nothing")
        for number in range(40):
            store.run(load.hot.add(1))
            if number == 20:
                pair.leave()
                pair.promote()
                if pair.first.is_running:
                    pair.first.kill()
        assert store.run(load.hot.total(1)) == 40
        assert store.check() == []


@pytest.mark.parametrize("pair", ["mariadb"], indirect=True)
def test_f126_after_a_switchover_behind_one_host_reads_leave_the_former_primary(pair: Pair) -> None:
    with Proxy(urlsplit(pair.first.url).port or 0) as proxy:
        url = f"{proxy.url(pair.first.url.replace('root@', 'app@'))}/app"
        with roost.Store(url, timeout=60) as store, roost.Store(url, timeout=60) as reader:
            store.create(pageviews)
            for n in range(5):
                store.run(pageviews.add("/"))
                assert reader.run(pageviews.total("/")) == n + 1  # and so it has a connection
                assert store.run(pageviews.total("/")) == n + 1
            mariadb_switch(pair.second, pair.first)
            pair.run(pair.first, "STOP SLAVE")
            proxy.target = urlsplit(pair.second.url).port or 0
            for n in range(5, 10):
                store.run(pageviews.add("/"))
                assert store.run(pageviews.total("/")) == n + 1
            wait_for(lambda: reader.run(pageviews.total("/")) == 10)
            assert store.stats().moves == reader.stats().moves == 1


def test_f107_behind_one_host_a_server_that_only_reads_for_a_while_is_waited_for(pair: Pair) -> None:
    url = f"{pair.first.url.replace('root@', 'app@')}/app" if pair.account == "app" else f"{pair.first.url}/app"
    if pair.first.url.startswith("mysql"):
        on, off = [[f"SET GLOBAL read_only = {value}"] for value in (1, 0)]
    else:
        on, off = [
            [f"ALTER SYSTEM SET default_transaction_read_only = {value}", "SELECT pg_reload_conf()"]
            for value in ("on", "off")
        ]
    with roost.Store(url, timeout=60) as store, roost.Store(url, timeout=0.3) as hasty, ThreadPoolExecutor() as threads:
        store.create(pageviews)
        for each in (store, hasty):
            each.run(pageviews.add("/"))
        for sql in on:
            pair.run(pair.first, sql)
        wait_for(lambda: refuses(hasty))
        outages = store.stats().outages
        with roost.Store(url, timeout=60) as fresh:
            added = [threads.submit(each.run, pageviews.add("/")) for each in (store, fresh)]
            wait_for(lambda: store.stats().outages > outages or added[0].done())
            wait_for(lambda: fresh.stats().outages or added[1].done())
            assert store.run(pageviews.total("/")) == 2  # who reads need not wait
            for sql in off:
                pair.run(pair.first, sql)
            for call in added:
                call.result()
        assert store.run(pageviews.total("/")) == 4
        assert store.stats().moves == 0


def refuses(store: roost.Store) -> bool:
    """Whether the server only reads."""
    try:
        store.run(pageviews.add("/", 0))
    except roost.ReadOnly:
        return True
    return False


@pytest.mark.parametrize("point", ["AFTER_COMMIT", "AFTER_SYNC"])
@pytest.mark.parametrize("pair", ["mariadb"], indirect=True)
def test_f125_what_no_replica_has_is_not_answered_with_semi_synchronous_replication(pair: Pair, point: str) -> None:
    pair.run(pair.first, f"SET GLOBAL rpl_semi_sync_master_wait_point = {point}")
    pair.run(pair.first, "SET GLOBAL rpl_semi_sync_master_timeout = 600000")
    pair.run(pair.first, "SET GLOBAL rpl_semi_sync_master_enabled = 1")
    pair.run(pair.second, "STOP SLAVE")
    pair.run(pair.second, "SET GLOBAL rpl_semi_sync_slave_enabled = 1")
    pair.run(pair.second, "START SLAVE")
    clients = "SHOW STATUS LIKE 'Rpl_semi_sync_master_clients'"
    wait_for(lambda: pair.run(pair.first, clients) == [("Rpl_semi_sync_master_clients", "1")])
    with roost.Store(pair.url("app"), timeout=60) as store:
        store.create(pageviews)
        store.run(pageviews.add("/"))
    with roost.Store(pair.url("app"), timeout=2) as store:
        for _ in range(2):
            store.run(pageviews.add("/"))
        (found,) = [each for each in store.doctor() if each.subject == "replicas"]
        assert found.means.startswith("every answered write is on a replica")
        pair.run(pair.second, "STOP SLAVE")
        with pytest.raises(roost.OutcomeUnknown):
            store.run(pageviews.add("/"))  # by itself
        with pytest.raises((roost.OutcomeUnknown, roost.Busy)):
            store.run_all(pageviews.add("/"), pageviews.add("/"))
        pair.run(pair.second, "START SLAVE")
    with roost.Store(pair.url("app"), timeout=60) as store:
        assert store.run(pageviews.total("/")) in (3, 4, 5, 6)
        store.run(pageviews.add("/"))


@pytest.mark.parametrize("pair", ["asynchronous"], indirect=True)
def test_a_pgbouncer_on_each_host_hides_no_switchover(pair: Pair) -> None:
    poolers = [pgbouncer_daemon(each.url, sessions=4, wait=3) for each in (pair.first, pair.second)]
    url = f"{poolers[0].url},{poolers[1].url.partition('@')[2]}/app"
    try:
        with (
            roost.Store(url, timeout=60) as store,
            roost.Store(f"{url}?reads=replica&staleness=0", timeout=60) as reader,
        ):
            store.create(pageviews)
            for n in range(5):
                store.run(pageviews.add("/"))
                assert reader.run(pageviews.total("/")) == n + 1
            postgresql_switch(pair.second, pair.first)
            store.run(pageviews.add("/"))
            assert reader.run(pageviews.total("/")) == 6
            with roost.Store(url, timeout=60) as other:
                other.run(pageviews.add("/"))
            pair.second.kill()
            pair.run(pair.first, "SELECT pg_promote()")
            store.run(pageviews.add("/"))
            assert reader.run(pageviews.total("/")) in (7, 8)  # asynchronous: the last one may be lost
    finally:
        for each in poolers:
            each.end()


@pytest.mark.parametrize("pair", ["asynchronous"], indirect=True)
def test_what_an_asynchronous_standby_had_not_heard_of_is_lost_and_the_rest_is_whole(pair: Pair) -> None:
    with roost.Store(pair.url("app"), timeout=30) as store:
        (found,) = [each for each in store.doctor() if each.subject == "standbys"]
        assert "may be lost" in found.means
        store.create(*load.STRUCTURES)
        wait_for(lambda: is_there(pair))
        for _ in range(10):
            store.run_all(load.hot.add(1), load.ring.push(load.Event(1, 1)))
        wait_for(lambda: on(pair.second, lambda there: there.run(load.hot.total(1))) == 10)
        pair.second.pause()
        for _ in range(5):
            store.run_all(load.hot.add(1), load.ring.push(load.Event(1, 1)))
        pair.first.kill()
        pair.second.resume()
        pair.promote()
        total, newest = store.run_all(load.hot.total(1), load.ring.latest(1, 1))
        assert 10 <= total <= 15  # what was on its way had arrived, or had not
        assert store.run(load.ring.push(load.Event(1, 2))) == total + 1  # both or neither of each transaction
        assert newest
        assert store.check() == []
        (found,) = [each for each in store.doctor() if each.subject == "standbys"]
        assert found.found == "none"
