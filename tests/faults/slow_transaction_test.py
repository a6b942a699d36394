"""A transaction that is left open holds up those who need its key, and nobody else."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pymysql
import pytest

import roost
from roost.databases import open_engine
from roost.databases.engine import Wait
from roost.dialects import MYSQL, Statement, render
from roost.structures.registry import plan_for
from tests import servers
from tests.campaigns.processes import Call
from tests.servers import kind_of
from tests.suite.shapes import Egg, Visit, baskets, likes, pageviews, visits

STRUCTURES = (pageviews, visits, baskets, likes)


@contextmanager
def held(url: str, *statements: str) -> Iterator[None]:
    """A transaction of somebody else's that has run these statements, and is left open."""
    raw: Any = open_engine(url, timeout=5, trace=None, random=random.Random()).connect(Wait(time.monotonic() + 60)).raw
    with raw.cursor() as cursor:
        cursor.execute("BEGIN")
        for sql in statements:
            cursor.execute(sql)
            if cursor.description:
                cursor.fetchall()
        yield
        cursor.execute("ROLLBACK")
    raw.close()


HEADS = [
    f"SELECT * FROM roost_{name} FOR UPDATE" for name in ("visits_head WHERE uid = 1", "baskets_head WHERE basket = 1")
]


@pytest.fixture
def store(server_url: str) -> Iterator[roost.Store]:
    with roost.Store(server_url, timeout=60) as store:
        store.create(*STRUCTURES, view=False)
        store.run_all(visits.push(Visit(1, 0)), baskets.add(Egg(1, 0)), likes.add(1, "a"))
        yield store
        assert store.check() == []


def others(store: roost.Store, count: int = 5) -> None:
    """Write what nobody holds, in one atom and in several."""
    for n in range(count):
        store.run_all(visits.push(Visit(2, n)), baskets.add(Egg(2, n)), likes.add(2, str(n)), pageviews.add("/"))
        store.run(visits.push(Visit(3, n)))


def test_who_needs_its_key_waits_aside_and_is_done_when_it_ends(server_url: str, store: roost.Store) -> None:
    with held(server_url, *HEADS):
        waiting = [
            Call(lambda: store.run(visits.push(Visit(1, 1)))),
            Call(lambda: store.run(baskets.add(Egg(1, 1)))),
            Call(lambda: store.run_all(pageviews.add("/"), visits.push(Visit(1, 2)))),
        ]
        others(store)
        assert [call.is_alive() for call in waiting] == [True] * 3
    assert [type(call.answer()) for call in waiting] == [int, type(None), tuple]
    assert store.run_all(pageviews.total("/"), baskets.count(1)) == (6, 2)
    assert {visit.visitor for visit in store.run(visits.latest(1))} == {0, 1, 2}


def is_busy(store: roost.Store, *atom: Any) -> bool:
    for _ in range(9):
        try:
            store.run_all(*atom)
        except roost.Busy:
            return True
        except roost.ConnectionLost:  # the server's answer came later than a call waits for it: on a slow machine
            continue
        break
    return False


def test_it_is_busy_for_who_waits_too_long_and_nothing_is_done(server_url: str, store: roost.Store) -> None:
    with held(server_url, *HEADS), roost.Store(server_url, timeout=0.3) as impatient:
        for op in (visits.push(Visit(1, 1)), baskets.add(Egg(1, 1)), visits.clear(1), baskets.remove(1, 0)):
            assert is_busy(impatient, op)
        assert is_busy(impatient, pageviews.add("/"), visits.push(Visit(1, 1)))
        others(impatient)
    assert store.run_all(visits.latest(1), baskets.count(1), pageviews.total("/")) == ([Visit(1, 0)], 1, 5)


def test_in_asyncio_too(server_url: str, store: roost.Store) -> None:
    async def main() -> None:
        async with roost.AsyncStore(server_url, timeout=60) as there:
            with held(server_url, *HEADS):
                waiting = [asyncio.create_task(there.run(visits.push(Visit(1, n)))) for n in range(20)]
                await asyncio.gather(*[there.run(visits.push(Visit(2, n))) for n in range(20)])
                assert not any(task.done() for task in waiting)
            assert await asyncio.gather(*waiting) == list(range(2, 22))

    asyncio.run(main())
    assert store.run(visits.latest(1)) == [Visit(1, n) for n in (19, 18, 17, 16, 15)]


def test_many_keys_that_are_held_and_a_hundred_that_are_not(server_url: str, store: roost.Store) -> None:
    store.run_all(*[visits.push(Visit(uid, 0)) for uid in range(100)])

    async def main() -> None:
        async with roost.AsyncStore(server_url, timeout=60) as there:
            with held(server_url, "SELECT * FROM roost_visits_head WHERE uid IN (0, 1, 2, 3, 4) FOR UPDATE"):
                tasks = [asyncio.create_task(there.run(visits.push(Visit(uid, 1)))) for uid in range(100)]
                await asyncio.gather(*tasks[5:])
                assert not any(task.done() for task in tasks[:5])
            await asyncio.gather(*tasks)

    asyncio.run(main())
    assert all(len(store.run(visits.latest(uid))) == 2 + (uid == 1) for uid in range(100))


def test_a_new_key_that_is_not_committed_holds_up_its_own_alone(server_url: str, store: roost.Store) -> None:
    made = "INSERT INTO roost_visits_head VALUES (7, 1, 5)"
    with held(server_url, made if kind_of(server_url) == "mysql" else f"{made} RETURNING uid"):
        call = Call(lambda: store.run(visits.push(Visit(7, 1))))
        others(store)
        assert call.is_alive()
    assert call.answer() == 1


@pytest.mark.parametrize("held_by", ["SELECT * FROM roost_{} FOR UPDATE", "INSERT INTO roost_{} RETURNING *"])
def test_what_mysql_is_asked_with_tells_at_once_on_mariadb_that_somebody_holds_a_head(held_by: str) -> None:
    """By MariaDB, which knows the same words: of a head that is not committed, too."""
    held_rows = {
        pageviews: "pageviews_rows WHERE `key` = 'a'",
        visits: "visits_head WHERE uid = 1",
        baskets: "baskets_head WHERE basket = 1",
        likes: "likes_head WHERE `key` = 1",
    }
    new_rows = {
        pageviews: "pageviews_rows VALUES ('b', 3, 0)",
        visits: "visits_head VALUES (2, 0, 5)",
        baskets: "baskets_head VALUES (2, 0, 0, 0)",
        likes: "likes_head VALUES (2, 0)",
    }
    rows = held_rows if "SELECT" in held_by else new_rows
    with servers.database("mariadb") as url, roost.Store(url) as store:
        store.create(*STRUCTURES, view=False)
        store.run_all(visits.push(Visit(1, 0)), baskets.add(Egg(1, 0)), likes.add(1, "a"))
        store.run(pageviews.add("a"))
        connection: Any = open_engine(url, timeout=5, trace=None, random=random.Random()).connect(
            Wait(time.monotonic() + 60), writes=False
        )
        with connection.raw.cursor() as cursor:
            for structure, row in rows.items():
                plan: Any = plan_for(structure, MYSQL)
                keys = [("a",), ("b",)] if structure is pageviews else [(1,), (2,)]
                assert plan.seize is not None
                ((sql, params),) = render(Statement(plan.seize, keys))
                limited = f"SET STATEMENT max_statement_time = 10 FOR {sql}"  # or it would be 1969
                cursor.execute("BEGIN")
                assert cursor.execute(limited, params) == 1
                cursor.execute("ROLLBACK")
                with held(url, held_by.format(row)), pytest.raises(pymysql.OperationalError) as caught:
                    cursor.execute(limited, params)
                assert caught.value.args[0] == 1205
        connection.close()
