"""The rows of writers: one each, none when it has closed, and never another's while that one may still need it."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import roost
from roost.databases import open_engine, server
from roost.databases.engine import Wait
from tests import servers
from tests.campaigns.processes import PATIENCE, Halt, until
from tests.faults.slow_transaction_test import held
from tests.suite import clients
from tests.suite.shapes import Egg, baskets, pageviews


def rows(url: str) -> int:
    with contextlib.closing(clients.connect(url)) as sql:
        found: int = sql.execute("SELECT count(*) FROM roost_writers").fetchone()[0]
        return found


def test_a_writer_has_one_row_and_leaves_none(server_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MOST_BATCHES", 3)
    with roost.Store(server_url) as store:
        store.create(pageviews, view=False)
        assert rows(server_url) == 0
        for _ in range(10):
            store.run(pageviews.add("/home"))
            assert rows(server_url) == 1
    assert rows(server_url) == 0


def test_its_row_by_a_former_name_goes_though_a_batch_was_refused(
    server_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text that removes it was rolled back with the first batch by the new name, and not said again."""
    monkeypatch.setattr(server, "MOST_BATCHES", 3)
    with roost.Store(server_url) as store:
        store.create(pageviews, baskets, view=False)
        store.run(baskets.add(Egg(5, 7)))
        for refused in (3, 4, 5):
            for _ in range(refused):
                with pytest.raises(roost.Duplicate):
                    store.run_all(pageviews.add("/home"), baskets.add(Egg(5, 7)))
            store.run(pageviews.add("/home"))
            assert rows(server_url) == 1
    assert rows(server_url) == 0


def make_old(url: str) -> None:
    day = "INTERVAL 2 DAY" if url.startswith("mysql") else "interval '2 days'"
    with contextlib.closing(clients.connect(url)) as sql:
        sql.execute(f"UPDATE roost_writers SET at = at - {day}")


def test_those_of_who_was_killed_go_after_a_day(server_url: str) -> None:
    with roost.Store(server_url) as store, roost.Store(server_url) as killed:
        store.create(pageviews, view=False)
        killed.run(pageviews.add("/home"))
        make_old(server_url)
        store.run(pageviews.add("/home"))
        assert rows(server_url) == 1


def test_one_that_was_idle_for_a_day_keeps_the_row_that_it_writes(server_url: str) -> None:
    """Not: it is seen to be old, is written, and is removed."""
    halt = Halt("DELETE FROM roost_writers")
    with roost.Store(server_url) as idle, roost.Store(server_url, trace=halt.trace) as other:
        idle.create(pageviews, view=False)
        idle.run(pageviews.add("/home"))
        make_old(server_url)
        add = (pageviews.add("/home"),)
        threads = [threading.Thread(target=each.run, args=add, name="other") for each in (other, idle)]
        threads[0].start()
        halt.reached()
        threads[1].start()
        until(lambda: not threads[1].is_alive() or idle.stats().waits, "the idle one has written, or waits")
        halt.release()
        for thread in threads:
            thread.join(60)
        assert idle.run(pageviews.total("/home")) == 3
        assert rows(server_url) == 2


def test_the_first_batch_waits_until_its_row_can_be_written() -> None:
    """Somebody holds what is between the rows, for longer than a batch waits for a row."""
    texts = 0

    def trace(sql: str, row: object) -> None:
        nonlocal texts
        texts += sql.startswith("INSERT INTO roost_writers")

    with (
        servers.database("mariadb") as url,
        roost.Store(url) as store,
        contextlib.closing(clients.connect(url)) as sql,
        ThreadPoolExecutor() as threads,
        roost.Store(url, timeout=PATIENCE, trace=trace) as first,
    ):
        store.create(pageviews, view=False)
        sql.execute("BEGIN")
        sql.execute("SELECT * FROM roost_writers FOR UPDATE")
        answer = threads.submit(first.run_all, pageviews.add("/home"), pageviews.add("/away"))
        until(lambda: answer.done() or texts > 2, "it tries again")
        sql.execute("ROLLBACK")
        answer.result()
        assert store.run(pageviews.totals(["/home", "/away"])) == {"/home": 1, "/away": 1}


def test_what_is_said_outside_of_transactions_waits_for_locks_no_longer_than_the_timeout() -> None:
    with servers.database("mariadb") as url, roost.Store(url) as store:
        store.create(pageviews, view=False)
        store.run(pageviews.add("/home"))
        engine = open_engine(url, timeout=1, trace=None, random=random.Random())
        connection: Any = engine.connect(Wait(time.monotonic() + 1))
        with held(url, "SELECT * FROM roost_writers FOR UPDATE"), pytest.raises(roost.Busy):
            connection.say("UPDATE roost_writers SET at = at")
        assert not connection.broken
        connection.close()
