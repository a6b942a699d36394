"""Writes inside the application's own transaction leave what is over of other keys to stores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import roost
from tests.suite.clients import Client
from tests.suite.passing import passes
from tests.suite.ways import App

DAY = 86_400

pages = roost.Cache("pages")
few = roost.Cache("few", max_items=1_000)
jobs = roost.Lease("jobs")
logins = roost.RateLimit("logins", limit=5, within=DAY)

pytestmark = pytest.mark.needs("cache", "second store")
STRUCTURES = pytest.mark.parametrize("structure", [pages, few, jobs, logins], ids=lambda each: each.name)


def write(structure: Any, key: str) -> roost.Operation[Any]:
    if isinstance(structure, roost.Cache):
        return structure.set(key, b"value", ttl=DAY)
    if isinstance(structure, roost.Lease):
        return structure.acquire(key, "ada", DAY)
    return structure.take(key) if isinstance(structure, roost.RateLimit) else structure.add(key)


def rows(sql: Client, structure: Any) -> int:
    return int(sql.execute(f"SELECT count(*) FROM roost_{structure.name}_rows").fetchone()[0])  # type: ignore[index]


def end_all(sql: Client, structure: Any) -> None:
    passes(sql, structure, 3 * DAY)


def begin(one: App, store_url: str, level: str) -> None:
    if store_url.startswith("mysql"):
        one.sql(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
    elif not store_url.startswith("sqlite"):
        one.commit()
        if one.way.name == "asyncpg":
            one.sql("BEGIN")
        one.sql(f"SET TRANSACTION ISOLATION LEVEL {level}")


@pytest.mark.ways("driver")
@STRUCTURES
def test_f93_joined_writes_leave_what_is_over_to_stores(
    structure: Any, open_store: Callable[..., Any], app: Callable[..., App], sql: Client, store_url: str
) -> None:
    store = open_store(structure)
    store.run_all(*[write(structure, f"over {n}") for n in range(100)])
    end_all(sql, structure)
    one = app()
    for n in range(70):
        if n % 10 == 0:
            one.commit()
            begin(one, store_url, "READ COMMITTED")
        one.run(write(structure, f"stays {n}"))
    for n in range(4):  # on MariaDB single sets leave it to batches, most of the time
        one.run_all(write(structure, "stays 1"), write(structure, f"stays {70 + n}"))
    one.commit()
    assert rows(sql, structure) == 174
    for n in range(60):
        store.run_all(write(structure, f"more {n}"), write(structure, f"and {n}"))
    assert rows(sql, structure) == 194


@pytest.mark.ways("server", "driver")
@STRUCTURES
def test_at_repeatable_read_they_remove_nothing_and_nobody_waits_for_them(
    structure: Any, open_store: Callable[..., Any], app: Callable[..., App], sql: Client, store_url: str
) -> None:
    store = open_store(structure)
    store.run_all(*[write(structure, f"over {n}") for n in range(100)])
    end_all(sql, structure)
    one, other = app(), app()
    for each in (one, other):
        begin(each, store_url, "REPEATABLE READ")
        each.sql("SELECT count(*) FROM roost_catalog")
    name = "`key`" if store_url.startswith("mysql") else "key"
    sql.execute(f"UPDATE roost_{structure.name}_rows SET {name} = 'gone' WHERE {name} = 'over 3'")
    for n in range(3):  # where both locked a gap, both would wait
        one.run(write(structure, f"one {n}"))
        if structure is not few:  # where writers share one row
            other.run(write(structure, f"other {n}"))
    one.commit()
    other.commit()
    assert rows(sql, structure) >= 100


@pytest.mark.ways("server", "driver")
def test_where_all_is_joined_a_clock_that_jumps_back_brings_nothing_to_life(
    open_store: Callable[..., Any], app: Callable[..., App], sql: Client, store_url: str
) -> None:
    open_store(pages, jobs)
    one = app()
    begin(one, store_url, "READ COMMITTED")
    one.run(pages.set("/", b"value", ttl=DAY))
    first = one.run(jobs.acquire("daily", "ada", DAY))
    one.commit()
    for structure in (pages, jobs):
        passes(sql, structure, 3 * DAY)
    begin(one, store_url, "READ COMMITTED")
    one.run_all(pages.set("/other", b"value", ttl=DAY), pages.set("/third", b"value", ttl=DAY))
    second = one.run(jobs.acquire("daily", "bob", DAY))
    one.commit()
    for structure in (pages, jobs):
        passes(sql, structure, -3 * DAY)
    begin(one, store_url, "READ COMMITTED")
    assert one.run(pages.get("/")) is None
    assert one.run(jobs.holder("daily")) == "bob"
    assert one.run(jobs.release(second)) is True
    third = one.run(jobs.acquire("daily", "cy", DAY))
    one.commit()
    assert first.token < second.token < third.token


@pytest.mark.ways("server", "driver")
def test_a_lease_is_given_back_in_a_transaction_whose_snapshot_is_older(
    open_store: Callable[..., Any], app: Callable[..., App], store_url: str
) -> None:
    store = open_store(jobs)
    one = app()
    begin(one, store_url, "REPEATABLE READ" if store_url.startswith("mysql") else "READ COMMITTED")
    one.sql("SELECT count(*) FROM roost_jobs_rows")
    grant = store.run(jobs.acquire("daily", "ada", DAY))
    assert one.run(jobs.renew(grant, DAY)) is not None
    assert one.run(jobs.release(grant)) is True
    one.commit()
    assert store.run(jobs.holder("daily")) is None


@pytest.mark.ways("driver")
def test_values_of_a_bounded_cache_that_are_over_and_touched_stay_counted(
    open_store: Callable[..., Any], app: Callable[..., App], sql: Client
) -> None:
    store = open_store(few)
    store.run_all(*[few.set(f"{n}", b"value", ttl=DAY) for n in range(10)])
    passes(sql, few, 3 * DAY)
    one = app()
    assert store.run_all(*[few.touch(f"{n}", DAY) for n in range(4)]) == (False,) * 4
    assert one.run_all(few.touch("4", DAY), few.touch("5", DAY)) == (False, False)
    one.commit()
    assert store.check() == []
