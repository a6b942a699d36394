"""Reads from a replica: never older than the URL allows, and never without what the store itself was answered."""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import roost
from roost.databases.mariadb.connection import MariaDBConnection
from roost.databases.postgresql.connection import PostgreSQLConnection
from roost.databases.replicas import Replicas
from roost.dialects import Control
from tests import servers
from tests.clusters.conftest import PAIRS
from tests.clusters.replicas import Pair, mariadb_follow, mariadb_replicating, on, run_as_standby, wait_for
from tests.lengths import WHOLE
from tests.suite import clients
from tests.suite.shapes import Egg, baskets, likes, pageviews, visits

pages = roost.Cache("pages", value=str)


def stand(pair: Pair) -> None:
    """Let the replica apply nothing."""
    on_postgresql = pair.first.url.startswith("postgresql")
    pair.run(pair.second, "SELECT pg_wal_replay_pause()" if on_postgresql else "STOP SLAVE SQL_THREAD")
    if on_postgresql:
        wait_for(lambda: pair.run(pair.second, "SELECT pg_get_wal_replay_pause_state()") == [("paused",)])


def go(pair: Pair) -> None:
    """Let it go on."""
    on_postgresql = pair.first.url.startswith("postgresql")
    pair.run(pair.second, "SELECT pg_wal_replay_resume()" if on_postgresql else "START SLAVE SQL_THREAD")


def is_read(store: roost.Store) -> bool:
    """Whether the last read was answered by the replica."""
    connection: Any = store._core._readers[0].connection
    return bool(connection.raw.replica)


def test_a_replica_is_read_and_never_too_old(pair: Pair) -> None:
    url = pair.url("app")
    with (
        roost.Store(url, timeout=30) as other,
        roost.Store(f"{url}?reads=replica", timeout=30) as store,
        roost.Store(f"{url}?reads=replica&staleness=0", timeout=30) as strict,
        roost.Store(f"{url}?reads=replica&staleness=0.3", timeout=30) as bounded,
        roost.Store(f"{url}?reads=replica&staleness=1000", timeout=30) as lax,
    ):
        store.create(pageviews, visits, likes, pages)
        for n in range(20):
            store.run(pageviews.add("/"))
            assert store.run(pageviews.total("/")) == n + 1
            other.run(pageviews.add("/other"))
            assert strict.run(pageviews.total("/other")) == n + 1
            assert strict.run_all(pageviews.total("/other"), pageviews.total("/"))[0] == n + 1
        wait_for(lambda: store.run(pageviews.total("/")) == 20 and is_read(store))
        wait_for(lambda: strict.run(pageviews.total("/")) == 20 and is_read(strict))
        lax.run_all(likes.add(1, "x"), likes.add(1, "y"), pages.set("/", "x", 60))
        wait_for(lambda: lax.run(likes.members(1)) == {"x", "y"} and is_read(lax))

        stand(pair)
        assert bounded.run(pageviews.total("/other")) == 20
        other.run(likes.remove(1, "x"))
        assert lax.run(likes.contains(1, "x"))  # the replica's answer, which the URL allows
        other.run(pages.delete("/"))
        assert lax.run(pages.get("/")) == "x"
        assert not lax.run(pages.touch("/", 60))  # but no write goes by it
        assert lax.run(likes.add(1, "x")) == 1
        assert lax.run(likes.contains(1, "x"))
        store.run(pageviews.add("/"))
        assert store.run(pageviews.total("/")) == 21
        assert not is_read(store)
        other.run(pageviews.add("/other"))
        assert strict.run(pageviews.total("/other")) == 21
        answered = time.monotonic()
        while True:
            late = time.monotonic() - answered > 0.3
            found = bounded.run(pageviews.total("/other"))
            assert found == 21 or not late
            if late:
                break

        go(pair)
        wait_for(lambda: store.run(pageviews.total("/")) == 21 and is_read(store))
        pair.second.kill()
        assert store.run(pageviews.total("/")) == 21
        assert store.run_all(pageviews.total("/"), pageviews.total("/other")) == (21, 21)
        assert store.check() == []


def test_who_joins_a_batch_of_reads_that_has_begun_reads_what_was_answered(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    with roost.Store(f"{pair.url('app')}?reads=replica", timeout=30) as store, ThreadPoolExecutor() as threads:
        store.create(pageviews, visits)
        store.run(pageviews.add("/"))
        wait_for(lambda: store.run(pageviews.total("/")) == 1 and is_read(store))
        stand(pair)
        kind: Any = PostgreSQLConnection if pair.first.url.startswith("postgresql") else MariaDBConnection
        begun = kind.begin
        joined: list[Any] = []

        def begin(connection: Any, word: Control) -> None:
            begun(connection, word)
            if word is Control.BEGIN_READ and not joined:  # a batch of reads begins, and takes what waits
                joined.append(None)
                store.run(pageviews.add("/"))
                joined[0] = threads.submit(store.run_all, pageviews.total("/"), pageviews.total("/x"))
                wait_for(lambda: store._core.readers[0]._waiting)

        monkeypatch.setattr(kind, "begin", begin)
        store.run_all(pageviews.total("/x"), pageviews.total("/y"))
        assert joined[0].result() == (2, 0)


def test_what_was_answered_inside_of_a_transaction_is_read_once_that_commits(pair: Pair) -> None:
    with roost.Store(f"{pair.url('app')}?reads=replica&staleness=1000", timeout=30) as store:
        store.create(pageviews)
        store.run(pageviews.add("/"))
        wait_for(lambda: store.run(pageviews.total("/")) == 1 and is_read(store))
        with contextlib.closing(clients.connect(f"{pair.first.url}/app")) as connection:
            for n in range(3):
                wait_for(lambda: store.run(pageviews.total("/")) == n + 1 and is_read(store))  # noqa: B023
                stand(pair)
                assert store.run(pageviews.total("/")) == n + 1
                connection.execute("BEGIN")
                assert store.on(connection).run(pageviews.increment("/")) == n + 2
                assert store.run(pageviews.total("/")) == n + 1
                connection.commit()
                assert store.run(pageviews.total("/")) == n + 2
                go(pair)


def test_a_refusal_and_what_the_primary_answered_are_answers_too(pair: Pair) -> None:
    with (
        roost.Store(pair.url("app"), timeout=30) as other,
        roost.Store(f"{pair.url('app')}?reads=replica&staleness=1000", timeout=30) as store,
    ):
        other.create(baskets, pageviews)
        wait_for(lambda: store.run_all(baskets.get(1, 2), pageviews.total("/")) and is_read(store))
        stand(pair)
        other.run(baskets.add(Egg(1, 2)))
        assert store.run(baskets.get(1, 2)) is None  # as old as the URL allows
        with pytest.raises(roost.Duplicate):
            store.run(baskets.add(Egg(1, 2)))
        assert store.run(baskets.get(1, 2)) == Egg(1, 2)

        go(pair)
        wait_for(lambda: store.run(baskets.get(1, 2)) and is_read(store))
        stand(pair)
        other.run(pageviews.add("/"))
        assert store.run(pageviews.total("/")) == 0
        core: Any = store._core
        for n in (1, 2):  # by an operation by itself, and by a batch
            core._readers[0].connection.broken = True  # it was lost, and the primary is read for a while
            core.engine.replicas.leave()
            asked = [pageviews.total("/"), baskets.count(1)]
            assert (store.run(asked[0]) if n == 1 else store.run_all(*asked)[0]) == n
            assert not is_read(store)
            core.engine.replicas._late = 0.0
            assert store.run(pageviews.total("/")) == n
            other.run(pageviews.add("/"))


def test_a_replica_that_hangs_is_left_for_the_primary(pair: Pair) -> None:
    timeout = 6.0
    with (
        roost.Store(f"{pair.url('app')}?reads=replica", timeout=timeout) as store,
        roost.Store(f"{pair.url('app')}?reads=replica&staleness=1000", timeout=timeout) as lax,
    ):
        store.create(pageviews)
        store.run(pageviews.add("/"))
        for each in (store, lax):
            wait_for(lambda: each.run(pageviews.total("/")) == 1 and is_read(each))  # noqa: B023
        pair.second.pause()
        try:
            for each in (store, lax):  # one asks it for its position, the other for the total
                begun = time.monotonic()
                assert each.run(pageviews.total("/")) == 1
                assert time.monotonic() - begun < timeout  # not even half of what an answer may take
                assert not is_read(each)
        finally:
            pair.second.resume()
        if WHOLE:  # it is left alone for ten times as long as was lost
            wait_for(lambda: store.run(pageviews.total("/")) == 1 and is_read(store))


def test_who_looks_for_a_replica_in_vain_spends_a_small_part_of_the_time_on_it() -> None:
    replicas = Replicas(1.0)
    assert replicas
    replicas.leave(lost=3.0)
    assert replicas._late - time.monotonic() > 30


@pytest.mark.parametrize("pair", ["asynchronous"], indirect=True)
def test_f102_what_was_answered_before_it_was_flushed_is_read(pair: Pair) -> None:
    with roost.Store(f"{pair.url('app')}?reads=replica&staleness=0", timeout=30) as store:
        store.create(pageviews)
        wait_for(lambda: store.run(pageviews.total("/")) == 0 and is_read(store))
        for setting in ("synchronous_commit = off", "wal_writer_delay = '10s'"):
            pair.run(pair.first, f"ALTER SYSTEM SET {setting}")
        pair.run(pair.first, "SELECT pg_reload_conf()")
        for n in range(100):
            store.run(pageviews.add("/"))
            assert store.run(pageviews.total("/")) == n + 1


@pytest.mark.parametrize("pair", [*PAIRS, "logging"], indirect=True)
def test_after_a_switchover_the_new_primary_is_asked_for_positions(pair: Pair) -> None:
    with roost.Store(f"{pair.url('app')}?reads=replica", timeout=60) as store:
        store.create(pageviews)
        store.run(pageviews.add("/"))
        wait_for(lambda: store.run(pageviews.total("/")) == 1 and is_read(store))
        pair.leave()
        pair.promote()
        for n in range(5):
            store.run(pageviews.add("/"))
            assert store.run(pageviews.total("/")) == n + 2


@pytest.mark.parametrize("pair", ["mariadb", "logging"], indirect=True)
def test_f103_a_replica_that_lags_behind_a_promoted_server_is_not_read(pair: Pair) -> None:
    with mariadb_replicating(3) as third, roost.Store(pair.url("app"), timeout=60) as store:
        mariadb_follow(third, pair.first)
        store.create(pageviews)
        store.run(pageviews.add("/"))
        wait_for(lambda: total_on(third) == 1)
        pair.run(third, "STOP SLAVE")
        store.run(pageviews.add("/", 50))
        pair.run(pair.first, "SET GLOBAL read_only = 1")
        pair.promote()
        url = f"{pair.second.url.replace('root@', 'app@')},{third.url.partition('@')[2]}/app?reads=replica&staleness=0"
        with roost.Store(url, timeout=60) as reader:
            for _ in range(5):
                assert reader.run(pageviews.total("/")) == 51


def total_on(daemon: servers.Daemon) -> int | None:
    """Return what a server itself has of the counter."""
    return on(daemon, lambda store: store.run(pageviews.total("/")))


@pytest.mark.parametrize("pair", ["asynchronous"], indirect=True)
def test_a_standby_of_postgresql_that_was_not_rewound_is_not_read(pair: Pair) -> None:
    with roost.Store(pair.url("app"), timeout=60) as store:
        store.create(pageviews)
        wait_for(lambda: total_on(pair.second) == 0)
        pair.run(pair.second, "ALTER SYSTEM SET primary_conninfo = ''")
        pair.run(pair.second, "SELECT pg_reload_conf()")
        wait_for(lambda: pair.run(pair.second, "SELECT FROM pg_stat_wal_receiver") == [])
        for _ in range(200):
            store.run(pageviews.add("/lost"))
        pair.first.kill()
        pair.promote()
        assert store.run(pageviews.total("/lost")) == 0
        run_as_standby(pair.first, pair.second)
        ((written,),) = pair.run(pair.second, "SELECT pg_current_wal_lsn()")
        ahead = f"SELECT pg_last_wal_replay_lsn() > '{written}'"
        assert pair.run(pair.first, ahead) == [(True,)]  # it has more than the one that writes
        with roost.Store(f"{pair.url('app')}?reads=replica&staleness=0", timeout=60) as reader:
            for n in range(5):
                reader.run(pageviews.add("/"))
                assert reader.run(pageviews.total("/")) == n + 1
                assert reader.run(pageviews.total("/lost")) == store.run(pageviews.total("/lost"))


@pytest.mark.parametrize("pair", ["mariadb"], indirect=True)
def test_a_replica_of_mariadb_that_has_what_was_lost_is_not_read(pair: Pair) -> None:
    """It is ahead of the one that writes, by GTIDs of a former server."""
    with roost.Store(pair.url("app"), timeout=60) as store:
        store.create(pageviews)
        wait_for(lambda: total_on(pair.second) == 0)
        # As a replica that had more of a former server than the one that was promoted: number 7 wrote what was lost.
        pair.run(pair.second, "STOP SLAVE")
        (position,) = pair.run(pair.second, "SELECT @@gtid_slave_pos")[0]
        ahead = f"0-7-{int(position.rpartition('-')[2]) + 1000}"
        pair.run(pair.second, f"SET GLOBAL gtid_slave_pos = '{ahead}'")
        store.run(pageviews.add("/"))
        with roost.Store(f"{pair.url('app')}?reads=replica&staleness=0", timeout=60) as reader:
            for n in range(5):
                reader.run(pageviews.add("/"))
                assert reader.run(pageviews.total("/")) == n + 2


@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        ("mysql://h/app?reads=replica", "several hosts"),
        ("postgresql://h/app?reads=replica", "several hosts"),
        ("mysql://h,i/app?reads=any", "primary or replica"),
        ("postgresql://h,i/app?reads=replica&staleness=soon", "number of seconds"),
        ("postgresql://h,i/app?staleness=1", "reads=replica"),
        ("mysql://h,i/app?reads=replica&dialect=mysql8", "for MariaDB and PostgreSQL"),
        ("mysql://h/app?wsrep_sync_wait=all", "from 0 to 15"),
    ],
)
def test_a_url_that_asks_for_something_else_is_refused(url: str, wrong: str) -> None:
    with pytest.raises(roost.Invalid, match=wrong):
        roost.Store(url)
