"""PgBouncer, which gives each transaction one of two sessions: exact, nothing is prepared, and sessions stay as they
are."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import asyncpg  # type: ignore[import-untyped]
import psycopg
import pytest

import roost
from roost.databases.server import USES
from tests import servers
from tests.campaigns.processes import PATIENCE, until
from tests.clusters import load
from tests.clusters.poolers import SESSIONS, pgbouncer, pgbouncer_daemon
from tests.faults.lost_connection_test import at_every_point
from tests.lengths import length
from tests.proxy import Cut, Proxy
from tests.strange.postgresql import play_everything
from tests.suite.shapes import Visit, pageviews, visits

# What a neighbour has set in a session, and nobody has reset.
SPOILED = (
    "SET array_nulls = off; SET extra_float_digits = 0; SET IntervalStyle = 'sql_standard';"
    "SET default_transaction_isolation = 'serializable'; SET bytea_output = 'escape'"
)
PREPARES_NOTHING: dict[str, Any] = {"prepare_threshold": None}  # as psycopg's manual says about PgBouncer
CHANGED = "SELECT name, setting FROM pg_settings WHERE source = 'session' AND name !~ '^transaction_' ORDER BY 1"
KEPT = """\
SELECT (SELECT count(*) FROM pg_prepared_statements), (SELECT count(*) FROM pg_cursors),
  (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'), (SELECT count(*) FROM pg_listening_channels())"""


@pytest.fixture
def direct() -> Iterator[str]:
    """The URL of a database of the test's own, without PgBouncer."""
    pgbouncer()
    with servers.database("postgresql") as url:
        yield url


@pytest.fixture
def pooled(direct: str) -> str:
    """The same through PgBouncer."""
    return through(pgbouncer().url, direct)


def through(pooler: str, url: str) -> str:
    return f"{pooler}/{url.rpartition('/')[2]}"


def in_all_sessions(url: str, sql: str) -> list[list[Any]]:
    """Run a query in every session that PgBouncer has of a database."""
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(psycopg.connect(url, **PREPARES_NOTHING)) for _ in range(SESSIONS)]
        for client in clients:  # a transaction that is open keeps its session
            client.execute("SELECT 1")
        cursors = [client.execute(sql) for client in clients]
        return [cursor.fetchall() if cursor.description else [] for cursor in cursors]


def test_everything_works_in_sessions_that_neighbours_have_spoiled(pooled: str) -> None:
    in_all_sessions(pooled, SPOILED)
    before = in_all_sessions(pooled, CHANGED)
    play_everything(pooled, "utf8", False, False, PREPARES_NOTHING)
    assert in_all_sessions(pooled, CHANGED) == before
    assert in_all_sessions(pooled, KEPT) == [[(0, 0, 0, 0)]] * SESSIONS


def test_many_clients_of_two_sessions_are_exact_and_prepare_nothing(pooled: str) -> None:
    with roost.Store(pooled) as store:
        store.create(*load.STRUCTURES)
        answers = load.write([pooled], seconds=length(1, 3), processes=3, threads=3, joined=False)
        assert answers.operations > 100
        assert not answers.errors
        assert load.wrong(answers, store) == []
        for _ in range(2 * USES):
            store.run(load.ring.latest(1))
    assert in_all_sessions(pooled, KEPT) == [[(0, 0, 0, 0)]] * SESSIONS


def test_awaited_at_once_and_joined_by_asyncpg(pooled: str) -> None:
    async def work() -> None:
        async with roost.AsyncStore(pooled) as store, roost.AsyncStore(pooled) as other:
            await store.create(pageviews, visits)

            async def join(number: int) -> None:
                raw = await asyncpg.connect(pooled, statement_cache_size=0)
                try:
                    for _ in range(5):
                        async with raw.transaction():
                            await store.on(raw).run_all(pageviews.add("/"), visits.push(Visit(1, number)))
                finally:
                    await raw.close()

            adds = [each.run(pageviews.add("/")) for each in (store, other) for _ in range(50)]
            await asyncio.gather(*adds, *[join(number) for number in range(4)])
            total, newest = await other.run_all(pageviews.total("/"), visits.entries(1))
            assert total == 100 + 20
            assert newest[-1].sequence == 20
            assert await store.check() == []

    asyncio.run(work())


@pytest.mark.parametrize("cut", [Cut.BEFORE, Cut.AFTER, Cut.ORPHAN], ids=lambda cut: cut.name)
def test_a_batch_whose_connection_is_cut_is_done_once(pooled: str, direct: str, cut: Cut) -> None:
    with Proxy(urlsplit(pooled).port or 0) as proxy, roost.Store(proxy.url(pooled), timeout=20) as store:
        store.create(pageviews, visits)
        calls = at_every_point(proxy, cut, lambda n: store.run_all(pageviews.add("/"), visits.push(Visit(1, n))))
        assert proxy.cuts == calls - 1 >= 3  # before the batch, after it, at COMMIT
        calls += (singles := at_every_point(proxy, cut, lambda n: store.run(visits.push(Visit(1, n)))))
        total, newest = store.run_all(pageviews.total("/"), visits.entries(1))
        assert (total, newest[-1].sequence) == (calls - singles, calls)
    with roost.Store(direct) as store:
        assert store.check() == []


def test_a_token_is_done_once_whoever_asks_and_however_often(pooled: str) -> None:
    with Proxy(urlsplit(pooled).port or 0) as proxy, roost.Store(proxy.url(pooled), timeout=20) as store:
        store.create(visits)
        for number in range(3):
            proxy.arm(number, Cut.AFTER)
            with roost.Store(pooled) as other:
                answers = [store.run(visits.push(Visit(1, number)), once=str(number))]
                answers += [each.run(visits.push(Visit(1, number)), once=str(number)) for each in (other, store)]
            assert answers == [number + 1] * 3


def test_a_pooler_that_is_killed_and_started_again_under_load_costs_nobody_an_error(direct: str) -> None:
    pooler = pgbouncer_daemon(servers.postgresql().url)
    pooled = through(pooler.url, direct)
    with roost.Store(direct) as store:
        store.create(*load.STRUCTURES)

        def meanwhile() -> None:
            until(lambda: store.run(load.hot.total(1)) > 5, "some operations")
            pooler.kill()
            pooler.start()
            before = store.run(load.hot.total(1))
            until(lambda: store.run(load.hot.total(1)) > before, "some more")

        answers = load.write([pooled], 2 * PATIENCE, processes=2, joined=False, meanwhile=meanwhile, longer=False)
        assert not answers.errors
        assert load.wrong(answers, store) == []


def test_sessions_for_whole_connections_do_as_well_and_doctor_sees_a_pooler(direct: str) -> None:
    pooler = pgbouncer_daemon(servers.postgresql().url, "session", sessions=10)
    with roost.Store(through(pooler.url, direct)) as store:
        store.create(visits)
        for number in range(2 * USES):
            assert store.run(visits.push(Visit(1, number))) == number + 1
        (found,) = [each for each in store.doctor() if each.subject == "pooler"]
        assert "PgBouncer" in found.found
        assert not found.advice


def test_a_session_for_each_statement_is_refused(direct: str) -> None:
    with roost.Store(through(pgbouncer("statement").url, direct)) as store:
        for _ in range(2):
            with pytest.raises(roost.Invalid, match="pool_mode = transaction"):
                store.create(visits)
            with pytest.raises(roost.Invalid, match="pool_mode = transaction"):
                store.run(visits.latest(1))


def test_a_connection_of_the_application_that_prepares_is_told_what_to_do(pooled: str) -> None:
    with roost.Store(pooled) as store:
        store.create(visits)
        in_all_sessions(pooled, 'PREPARE "_pg3_0" AS SELECT 1')
        prepares = True  # for each client by itself, as PgBouncer from 1.24 on does unless told otherwise
        with psycopg.connect(pooled, prepare_threshold=0, autocommit=True) as raw:
            try:
                raw.execute("SELECT 1")
            except psycopg.errors.DuplicatePreparedStatement:
                prepares = False
        with psycopg.connect(pooled, prepare_threshold=0) as raw:
            raw.execute("SET LOCAL lock_timeout = 0", prepare=False)
            if prepares:
                assert store.on(raw).run_all(visits.push(Visit(1, 1)), visits.latest(1)) == (1, [Visit(1, 1)])
            else:
                with pytest.raises(roost.Invalid, match="prepare_threshold=None"):
                    store.on(raw).run_all(visits.push(Visit(1, 1)), visits.latest(1))
