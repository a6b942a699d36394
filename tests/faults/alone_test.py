"""One operation by itself on a server, and one query on a connection of the application's: what is in their way."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest

import roost
from tests.campaigns.processes import Call
from tests.faults.messages import expected
from tests.faults.slow_transaction_test import held
from tests.proxy import Proxy
from tests.servers import kind_of
from tests.suite import clients
from tests.suite.shapes import Egg, Visit, baskets, likes, pageviews, visits


@dataclass(frozen=True)
class Measure:
    place: int
    taken: dt.datetime
    value: float


XMAX = "SELECT name, xmax::text FROM roost_catalog ORDER BY name"  # who has locked the rows

measures = roost.Ring("measures", Measure, per="place", keep=5)


@pytest.fixture
def store(server_url: str) -> Iterator[roost.Store]:
    """One that has found its declarations in the catalog."""
    with roost.Store(server_url, timeout=60) as store:
        store.create(pageviews, visits, baskets, likes, measures, view=False)
        for n in range(6):
            store.run(pageviews.add("/home"))
            store.run(visits.push(Visit(1, n)))
            store.run(likes.add(1, str(n)))
            store.run(likes.contains(1, "0"))
            store.run(visits.latest(1))
        yield store


def test_what_is_altered_in_between_is_written_as_it_is_stored(server_url: str, store: roost.Store) -> None:
    with roost.Store(server_url) as other:
        other.alter(roost.Ring("visits", Visit, per="uid", keep=2))
    assert store.run(visits.push(Visit(1, 6))) == 7
    assert store.run(visits.latest(1)) == [Visit(1, 6), Visit(1, 5)]
    assert store.check() == []


@pytest.mark.parametrize("server_url", ["postgresql"], indirect=True)
def test_an_alter_that_is_not_over_is_waited_for(server_url: str, store: roost.Store) -> None:
    tables = "roost_visits_head, roost_visits_rows, roost_pageviews_rows, roost_likes_head, roost_likes_rows"
    with held(server_url, f"LOCK TABLE {tables} IN SHARE ROW EXCLUSIVE MODE"):
        waiting = [
            Call(lambda: store.run(visits.push(Visit(1, 6)))),
            Call(lambda: store.run(pageviews.add("/home"))),
            Call(lambda: store.run(likes.add(1, "6"))),
        ]
        store.run(baskets.add(Egg(1, 1)))
        assert [call.is_alive() for call in waiting] == [True] * 3
    assert [call.answer() for call in waiting] == [7, None, 1]
    assert store.run(pageviews.total("/home")) == 7


def test_an_alter_waits_for_who_writes(server_url: str, store: roost.Store) -> None:
    """A batch is not over, and has compared the definition already."""
    with contextlib.closing(clients.connect(server_url)) as sql:
        sql.execute("BEGIN")
        store.on(sql).run(visits.push(Visit(1, 6)))
        with roost.Store(server_url, timeout=0.2, lock_wait=0.1) as other, pytest.raises(roost.Busy):
            other.alter(roost.Ring("visits", Visit, per="uid", keep=2))
        sql.execute("COMMIT")
    assert store.run(visits.latest(1)) == [Visit(1, n) for n in range(6, 1, -1)]


@pytest.mark.parametrize("server_url", ["postgresql"], indirect=True)
def test_the_row_of_the_definition_is_not_shared(server_url: str, store: roost.Store) -> None:
    """PostgreSQL writes a multixact for each transaction that shares a row with another."""
    with (
        held(server_url, "SELECT * FROM roost_catalog FOR SHARE"),
        contextlib.closing(clients.connect(server_url)) as sql,
    ):
        lockers = sql.execute(XMAX).fetchall()
        store.run(visits.push(Visit(1, 6)))
        store.run_all(visits.push(Visit(1, 7)), visits.push(Visit(1, 8)), pageviews.add("/home"), likes.add(1, "7"))
        sql.execute("BEGIN")
        store.on(sql).run(pageviews.add("/home"))
        store.on(sql).run(likes.add(1, "8"))
        sql.execute("COMMIT")
        assert sql.execute(XMAX).fetchall() == lockers


@pytest.mark.parametrize("verb", ["push", "add", "like"])
def test_who_meets_somebody_elses_lock_waits_and_is_done_once(server_url: str, store: roost.Store, verb: str) -> None:
    table, operation, found = {
        "push": ("roost_visits_head", visits.push(Visit(1, 6)), 7),
        "add": ("roost_pageviews_rows", pageviews.add("/home"), None),
        "like": ("roost_likes_head", likes.add(1, "6"), 1),
    }[verb]
    with held(server_url, f"SELECT * FROM {table} FOR UPDATE"):
        call = Call(lambda: store.run(operation))
        store.run(baskets.add(Egg(1, 1)))
        assert call.is_alive()
    assert call.answer() == found
    assert store.run_all(pageviews.total("/home"), visits.push(Visit(1, 7)), likes.size(1)) == (
        6 + (verb == "add"),
        7 + (verb == "push"),
        6 + (verb == "like"),
    )
    assert store.check() == []


def test_a_table_that_is_gone_is_missing_and_costs_nobody_else_anything(server_url: str, store: roost.Store) -> None:
    with contextlib.closing(clients.connect(server_url)) as sql:
        sql.execute("DROP TABLE roost_likes_rows CASCADE")
    for operation in (likes.add(1, "new"), likes.contains(1, "0"), likes.members(1)):
        with pytest.raises(roost.Missing):
            store.run(operation)
    assert store.run(likes.size(1)) == 6
    assert store.run(visits.push(Visit(1, 6))) == 7


def test_a_sum_that_leaves_64_bits_is_refused(server_url: str) -> None:
    counter = roost.Counter("counter", key=int, slots=1)
    with roost.Store(server_url) as store:
        store.create(counter, view=False)
        store.run(counter.add(1))
        store.run(counter.add(1, 2**63 - 2))
        with pytest.raises(roost.Overflow):
            store.run(counter.add(1))
        store.run(counter.add(1, -1))
        assert store.run(counter.total(1)) == 2**63 - 2


def test_a_sequence_that_is_no_part_of_a_number_is_answered_by_a_batch(server_url: str, store: roost.Store) -> None:
    with contextlib.closing(clients.connect(server_url)) as sql:
        sql.execute(f"UPDATE roost_visits_head SET sequence = {2**40 - 4}")
        sql.execute("DELETE FROM roost_visits_rows")
    assert [store.run(visits.push(Visit(1, n))) for n in range(5)] == [2**40 + n for n in range(-3, 2)]
    assert store.stats().retries == (0 if kind_of(server_url) == "mysql" else 3)  # from 2**40 - 1 on
    with contextlib.closing(clients.connect(server_url)) as sql:
        sql.execute("BEGIN")
        assert store.on(sql).run(visits.push(Visit(1, 5))) == 2**40 + 2
        sql.execute("COMMIT")
    assert store.check() == []


def _answered(answers: list[Any], runner: Any, operation: roost.Operation[Any]) -> None:
    answers.append(runner.run(operation))


def test_a_query_in_the_applications_transaction_is_one_message(server_url: str, store: roost.Store) -> None:
    store.run(baskets.add(Egg(1, 1)))
    asked: list[tuple[roost.Operation[Any], Any]] = [
        (pageviews.total("/home"), 6),
        (visits.latest(1, 1), [Visit(1, 5)]),
        (likes.contains(1, "0"), True),
        (likes.size(1), 6),
        (baskets.count(1), 1),
        (baskets.get(1, 1), Egg(1, 1)),
        (baskets.latest(1), [Egg(1, 1)]),
    ]
    with (
        Proxy(urlsplit(server_url).port or 0) as proxy,
        contextlib.closing(clients.connect(proxy.url(server_url))) as sql,
    ):
        sql.execute("BEGIN")
        joined = store.on(sql)
        for operation, message in asked:
            joined.run(operation)
            answers: list[Any] = []
            assert proxy.counted(partial(_answered, answers, joined, operation)) in expected(server_url, 1)
            assert answers == [message]
        sql.execute("ROLLBACK")


@pytest.mark.parametrize("name", ["add", "push", "capped", "like"])
def test_a_write_in_the_applications_transaction_is_one_message(server_url: str, store: roost.Store, name: str) -> None:
    baskets.plans.clear()  # one that has met a duplicate looks first for a while
    store.run_all(*[baskets.add(Egg(1, -n)) for n in range(12)])
    asked: dict[str, list[tuple[roost.Operation[Any], Any]]] = {
        "add": [(pageviews.add("/home"), None)],
        "push": [(visits.push(Visit(1, 9)), 7), (visits.push(Visit(2, 9)), 1)],
        "capped": [(baskets.add(Egg(1, 1)), None), (baskets.add(Egg(1, 2)), None)],
        "like": [(likes.add(1, "new"), 1), (likes.add(1, "new"), 0)],
    }
    with (
        Proxy(urlsplit(server_url).port or 0) as proxy,
        contextlib.closing(clients.connect(proxy.url(server_url))) as sql,
    ):
        sql.execute("BEGIN")
        joined = store.on(sql)
        joined.run(visits.latest(1))
        for operation, message in asked[name]:
            answers: list[Any] = []
            assert proxy.counted(partial(_answered, answers, joined, operation)) in expected(server_url, 1)
            assert answers == [message]
        sql.execute("COMMIT")
    assert store.check() == []
    assert store.run_all(pageviews.total("/home"), baskets.count(1), likes.size(1)) == (
        6 + (name == "add"),
        12,
        6 + (name == "like"),
    )


def test_a_write_that_fails_leaves_the_applications_transaction_as_it_was(server_url: str, store: roost.Store) -> None:
    store.run_all(*[baskets.add(Egg(1, -n)) for n in range(12)])
    with contextlib.closing(clients.connect(server_url)) as sql:
        joined = store.on(sql)
        sql.execute("BEGIN")
        assert joined.run(visits.push(Visit(1, 9))) == 7
        for id_ in (0, -3, -11):
            with pytest.raises(roost.Duplicate):
                joined.run(baskets.add(Egg(1, id_)))
        joined.run(baskets.add(Egg(3, 1)))  # a key that has no head yet
        joined.run(baskets.add(Egg(1, 1)))
        assert joined.run(visits.push(Visit(1, 10))) == 8
        sql.execute("COMMIT")
    assert store.run_all(baskets.count(1), baskets.count(3), visits.push(Visit(1, 0))) == (12, 1, 9)
    assert store.check() == []


def test_a_query_that_fails_leaves_the_applications_transaction_as_it_was(server_url: str, store: roost.Store) -> None:
    with contextlib.closing(clients.connect(server_url)) as sql:
        joined = store.on(sql)
        sql.execute("DROP TABLE roost_likes_rows CASCADE")
        sql.execute("BEGIN")
        joined.run(pageviews.add("/home"))
        for _ in range(3):
            with pytest.raises(roost.Missing):
                joined.run(likes.contains(1, "0"))
        assert joined.run(pageviews.total("/home")) == 7
        sql.execute("COMMIT")
    assert store.run(pageviews.total("/home")) == 7


def test_the_settings_of_the_applications_session_decide_about_nothing_and_stay(
    server_url: str, store: roost.Store
) -> None:
    row = Measure(1, dt.datetime(2026, 1, 2, 3, 4, 5, 678901, dt.UTC), 0.1 + 0.2)
    store.run(measures.push(row))
    is_mariadb = server_url.startswith("mysql")
    settings = (
        # MySQL refuses what MariaDB's statements say for themselves.
        {"sql_mode": "''"}
        if kind_of(server_url) == "mysql"
        else {"sql_select_limit": "0"}
        if is_mariadb
        else {"DateStyle": "German, DMY", "TimeZone": "Asia/Kathmandu", "extra_float_digits": "-15"}
    )
    with contextlib.closing(clients.connect(server_url)) as sql:
        for name, value in settings.items():
            sql.execute(f"SET SESSION {name} = {value}" if is_mariadb else f"SET {name} = '{value}'")
        sql.execute("BEGIN")
        for _ in range(3):
            assert store.on(sql).run(measures.latest(1)) == [row]
        if not is_mariadb:
            assert [sql.execute(f"SHOW {name}").fetchone() for name in settings] == [
                (value,) for value in settings.values()
            ]
        sql.execute("ROLLBACK")
