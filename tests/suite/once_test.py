"""Operations with a token are done once, whoever asks for them again, and answered as they were."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import threading
from typing import Any
from urllib.parse import urlsplit

import pytest

import roost
from tests import servers
from tests.campaigns.processes import Line, Start, children
from tests.proxy import Cut, Proxy
from tests.suite import clients
from tests.suite.shapes import Egg, Visit, baskets, likes, pageviews, visits

STRUCTURES = (pageviews, visits, baskets, likes)


@pytest.fixture(params=["sqlite", *servers.SERVERS])
def database(request: pytest.FixtureRequest) -> Any:
    return request.param


def tokens(url: str) -> list[str]:
    with contextlib.closing(clients.connect(url)) as sql:
        return sorted(token for (token,) in sql.execute("SELECT token FROM roost_once").fetchall())


def test_the_same_token_does_nothing_and_answers_what_was_answered(any_url: str) -> None:
    with roost.Store(any_url) as store, roost.Store(any_url) as other:
        store.create(*STRUCTURES, view=False)
        for runner in (store, store, other):
            assert runner.run(visits.push(Visit(1, 2)), once="a") == 1
            several = pageviews.add("/"), likes.add(1, "x", "y"), visits.push(Visit(1, 3))
            assert runner.run_all(*several, once="b") == (None, 2, 2)
            assert runner.run(visits.push_all([Visit(2, 1), Visit(2, 2)]), once="c") == [1, 2]
        assert store.run_all(pageviews.total("/"), likes.size(1)) == (1, 2)
        assert store.run(visits.latest(1)) == [Visit(1, 3), Visit(1, 2)]
        assert store.check() == []
    assert tokens(any_url) == ["a", "b", "c"]


def test_a_token_is_of_the_operations_that_it_was_first_used_for(any_url: str) -> None:
    with roost.Store(any_url) as store:
        store.create(*STRUCTURES, view=False)
        store.run_all(pageviews.add("/"), visits.push(Visit(1, 1)), once="a")
        for others in ((pageviews.add("/"),), (visits.push(Visit(1, 1)), pageviews.add("/")), (likes.add(1, "x"),)):
            with pytest.raises(roost.Invalid, match=r"'a' was used for pageviews\.add, visits\.push before, not for"):
                store.run_all(*others, once="a")
        assert store.run_all(pageviews.add("/other"), visits.push(Visit(2, 2)), once="a") == (None, 1)
        assert store.run_all(pageviews.total("/"), pageviews.total("/other"), likes.size(1)) == (1, 0, 0)


@pytest.mark.parametrize("kind", servers.SERVERS)
def test_an_account_without_rights_on_the_table_of_tokens_is_told_so(kind: str) -> None:
    with servers.own_database(kind) as url, contextlib.closing(clients.connect(url)) as sql:
        parts = urlsplit(url)
        name = f"teller_{parts.path[1:]}"
        user = f"{name}@'%'" if kind == "mariadb" else name
        sql.execute(f"CREATE USER {user}")
        try:
            with roost.Store(url) as store:
                store.create(*STRUCTURES, view=False)
            for table in {*sql.private_tables()} - {"roost_once"}:
                sql.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {user}")
            everything = "ALL FUNCTIONS IN SCHEMA public" if kind == "postgresql" else "*"
            sql.execute(f"GRANT EXECUTE ON {everything} TO {user}")
            with roost.Store(parts._replace(netloc=f"{name}@{parts.hostname}:{parts.port}").geturl()) as teller:
                with pytest.raises(roost.Missing, match="needs SELECT, INSERT, UPDATE and DELETE on it"):
                    teller.run(pageviews.increment("/"), once="a")
                sql.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON roost_once TO {user}")
                assert teller.run(pageviews.increment("/"), once="a") == 1
        finally:
            if kind == "postgresql":
                sql.execute(f"DROP OWNED BY {name}")
            sql.execute(f"DROP USER {user}")


def test_a_failed_operation_leaves_its_token_free(any_url: str) -> None:
    with roost.Store(any_url) as store:
        store.create(*STRUCTURES, view=False)
        store.run(baskets.add(Egg(1, 1)))
        for _ in range(2):
            with pytest.raises(roost.Duplicate):
                store.run_all(pageviews.add("/"), baskets.add(Egg(1, 1)), once="a")
        store.run(baskets.remove(1, 1))
        for _ in range(2):
            store.run_all(pageviews.add("/"), baskets.add(Egg(1, 1)), once="a")
        assert store.run(pageviews.total("/")) == 1


def test_processes_and_threads_with_one_token_at_once(any_url: str) -> None:
    with roost.Store(any_url) as store:
        store.create(*STRUCTURES, view=False)
    start = Start()

    def work(line: Line, number: int) -> None:
        answers: list[int] = []
        with roost.Store(any_url, timeout=30) as own:

            def run() -> None:
                for n in range(10):
                    answers.append(own.run(visits.push(Visit(n, number)), once=f"push {n}"))
                    own.run(pageviews.add("/plain"))

            threads = [threading.Thread(target=run) for _ in range(3)]
            start.wait()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        line.say(answers == [1] * 30)

    with children(3, work) as made:
        start.go()
        assert [child.hear() for child in made] == ["True"] * 3
    with roost.Store(any_url) as store:
        assert [len(store.run(visits.latest(n))) for n in range(10)] == [1] * 10
        assert store.run(pageviews.total("/plain")) == 90


def test_tasks_with_one_token_at_once(any_url: str) -> None:
    async def main() -> None:
        async with roost.AsyncStore(any_url, timeout=60, lock_wait=60) as store:
            await store.create(*STRUCTURES, view=False)
            calls = [store.run(pageviews.add("/"), once=f"{n % 5}") for n in range(50)]
            assert await asyncio.gather(*calls) == [None] * 50
            assert store.stats().retries == 0  # each has a transaction of its own, and no other is undone for it
            several = [store.run_all(pageviews.add("/"), visits.push(Visit(1, 1)), once="several") for _ in range(5)]
            assert await asyncio.gather(*several) == [(None, 1)] * 5
            assert await store.run(pageviews.total("/")) == 6

    asyncio.run(main())


@pytest.mark.parametrize("cut", [Cut.BEFORE, Cut.AFTER, Cut.LATE], ids=lambda cut: cut.name)
def test_unknown_outcomes_that_are_retried_count_once(
    server_url: str, cut: Cut, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roost.databases.server.ServerConnection._anew", _unreachable)
    unknown = 0
    with Proxy(urlsplit(server_url).port or 0) as proxy, roost.Store(server_url) as direct:
        direct.create(*STRUCTURES, view=False)
        armed = False

        def trace(sql: str, row: object) -> None:
            if armed and sql == "COMMIT":
                proxy.arm(0, cut)

        for n in range(5):
            with roost.Store(proxy.url(server_url), trace=trace) as store:
                store.run(pageviews.add("/first"), once=f"first {n}")
                armed = True
                with pytest.raises(roost.OutcomeUnknown):
                    store.run_all(pageviews.add("/"), visits.push(Visit(1, n)), once=f"{n}")
                unknown += 1
                armed = False
            if cut is Cut.LATE:
                proxy.deliver()
            assert direct.run_all(pageviews.add("/"), visits.push(Visit(1, n)), once=f"{n}") == (None, n + 1)
        assert unknown == 5
        assert direct.run(pageviews.total("/")) == 5
        assert direct.check() == []


def _unreachable(*_: Any) -> None:
    raise roost.ConnectionLost("nobody is there to be asked")


def test_a_token_is_kept_for_its_time_and_then_goes(url: str) -> None:
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    with roost.Store(url, clock=lambda: now, once_for=dt.timedelta(hours=1)) as store:
        store.create(pageviews)
        for n in range(20):
            store.run(pageviews.add("/"), once=f"{n}")
        now += dt.timedelta(minutes=59)
        store.run(pageviews.add("/"), once="0")
        assert store.run(pageviews.total("/")) == 20
        now += dt.timedelta(minutes=2)
        store.run(pageviews.add("/"), once="0")
        assert store.run(pageviews.total("/")) == 21
        for n in range(20, 40):
            store.run(pageviews.add("/"), once=f"{n}")
        assert len(tokens(url)) == 21


def test_a_token_that_is_over_and_removed_while_it_is_read_is_taken_anew() -> None:
    # On PostgreSQL alone: elsewhere it is locked by then.
    with servers.own_database("postgresql") as url, contextlib.closing(clients.connect(url)) as sql:

        def trace(text: str, row: object) -> None:
            if armed and "FOR SHARE" in text and "roost_once" in text:
                sql.execute(armed.pop())

        armed: list[str] = []
        with roost.Store(url, trace=trace) as store:
            store.create(*STRUCTURES, view=False)
            assert store.run(pageviews.increment("/"), once="a") == 1
            armed.append("DELETE FROM roost_once")
            assert store.run(pageviews.increment("/"), once="a") == 2
            assert store.run(pageviews.increment("/"), once="a") == 2


def test_a_token_of_the_applications_own_transaction_goes_with_it(any_url: str) -> None:
    with roost.Store(any_url) as store, contextlib.closing(clients.connect(any_url)) as sql:
        store.create(*STRUCTURES, view=False)
        store.run(pageviews.add("/"), once="before")
        for end in ("ROLLBACK", "COMMIT", "COMMIT"):
            sql.execute("BEGIN")
            assert store.on(sql).run(visits.push(Visit(1, 1)), once="a") == 1
            store.on(sql).run(pageviews.add("/"), once="before")
            sql.execute(end)
        assert store.run_all(pageviews.total("/"), visits.latest(1)) == (1, [Visit(1, 1)])


@pytest.mark.parametrize("kind", servers.SERVERS)
def test_f92_transactions_of_the_application_with_other_tokens_leave_those_that_are_over_alone(kind: str) -> None:
    with (
        servers.own_database(kind) as url,
        roost.Store(url) as store,
        contextlib.closing(clients.connect(url)) as one,
        contextlib.closing(clients.connect(url)) as two,
    ):
        store.create(*STRUCTURES, view=False)
        for n in range(2):
            store.run(pageviews.add("/"), once=f"over {n}")
        one.execute("UPDATE roost_once SET until = 0")
        for each in (one, two):
            each.execute(
                "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ"
                if kind == "postgresql"
                else "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"
            )
            each.execute("BEGIN")
            each.execute("SELECT 1 FROM roost_once")
        store.on(one).run(visits.push(Visit(1, 1)), once="one")
        one.execute("COMMIT")
        store.on(two).run(visits.push(Visit(2, 2)), once="two")
        assert tokens(url) == ["one", "over 0", "over 1"]
        two.execute("COMMIT")
        store.run(pageviews.add("/"), once="batch")  # a store's own batches remove them
        assert tokens(url) == ["batch", "one", "two"]


@pytest.mark.parametrize("once", ["", "x" * 256, "a\0b", "a\ud800", 7])
def test_what_is_no_token_is_refused(url: str, once: Any) -> None:
    with roost.Store(url) as store:
        store.create(pageviews)
        with pytest.raises(roost.Invalid, match="once is a text"):
            store.run(pageviews.add("/"), once=once)


def test_what_reads_takes_no_token_and_neither_does_what_cannot_be_kept(url: str) -> None:
    locks = roost.Lease("locks")
    with roost.Store(url) as store:
        store.create(pageviews, locks)
        with pytest.raises(roost.Invalid, match="only reads"):
            store.run_all(pageviews.add("/"), pageviews.total("/"), once="a")
        with pytest.raises(roost.Invalid, match="cannot be stored with a token"):
            store.run(locks.acquire("x", "me", 10), once="a")
        assert store.run(locks.holder("x")) is None
    for seconds in (0, True, "1", dt.timedelta(0)):
        with pytest.raises(roost.Invalid, match="once_for"):
            roost.Store(url, once_for=seconds)  # type: ignore[arg-type]
