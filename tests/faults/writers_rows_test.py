"""The rows of writers: one each, none when it has closed, and never another's while that one may still need it."""

from __future__ import annotations

import contextlib
import threading

import pytest

import roost
from roost.databases import server
from tests.campaigns.processes import until
from tests.suite import clients
from tests.suite.shapes import pageviews


def rows(url: str) -> int:
    with contextlib.closing(clients.connect(url)) as sql:
        found: int = sql.execute("SELECT count(*) FROM roost_writers").fetchone()[0]
        return found


def test_a_writer_has_one_row_and_leaves_none(server_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MOST_BATCHES", 3)
    with roost.Store(server_url) as store:
        store.create(pageviews)
        assert rows(server_url) == 0
        for _ in range(10):
            store.run(pageviews.add("/home"))
            assert rows(server_url) == 1
    assert rows(server_url) == 0


def make_old(url: str) -> None:
    day = "INTERVAL 2 DAY" if url.startswith("mysql") else "interval '2 days'"
    with contextlib.closing(clients.connect(url)) as sql:
        sql.execute(f"UPDATE roost_writers SET at = at - {day}")


def test_those_of_who_was_killed_go_after_a_day(server_url: str) -> None:
    with roost.Store(server_url) as store, roost.Store(server_url) as killed:
        store.create(pageviews)
        killed.run(pageviews.add("/home"))
        make_old(server_url)
        store.run(pageviews.add("/home"))
        assert rows(server_url) == 1


def test_one_that_was_idle_for_a_day_keeps_the_row_that_it_writes(server_url: str) -> None:
    """Not: it is seen to be old, is written, and is removed."""
    entered, leave = threading.Event(), threading.Event()

    def trace(sql: str, row: object) -> None:
        if not entered.is_set() and "DELETE FROM roost_writers" in sql:
            entered.set()
            assert leave.wait(60)

    with roost.Store(server_url) as idle, roost.Store(server_url, trace=trace) as other:
        idle.create(pageviews)
        idle.run(pageviews.add("/home"))
        make_old(server_url)
        threads = [threading.Thread(target=store.run, args=(pageviews.add("/home"),)) for store in (other, idle)]
        threads[0].start()
        assert entered.wait(60)
        threads[1].start()
        until(lambda: not threads[1].is_alive() or idle.stats().waits, "the idle one has written, or waits")
        leave.set()
        for thread in threads:
            thread.join(60)
        assert idle.run(pageviews.total("/home")) == 3
        assert rows(server_url) == 2
