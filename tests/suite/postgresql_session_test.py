"""PostgreSQL: URLs without their passwords, several hosts, and a bounded number of prepared statements."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

import roost
from roost.databases import server
from roost.databases.postgresql.engine import PostgreSQLEngine
from roost.databases.server import USES
from roost.databases.urls import redacted
from tests import servers
from tests.suite.application import Application
from tests.suite.shapes import Open
from tests.suite.ways import App


@dataclass(frozen=True)
class Moment:
    k: int
    at_: dt.datetime


moments = roost.Ring("moments", Moment, per="k", keep=3)
FIRST = dt.datetime(1, 1, 1, tzinfo=dt.UTC)
INSTANT = dt.timedelta(microseconds=1)
LAST = dt.datetime(9999, 12, 31, 23, 59, 59, 999999, dt.UTC)


def named(store: roost.Store) -> tuple[int, int]:
    """How many statements the sessions of a store have prepared, and how many its connections know."""
    there = known = 0
    for link in (store._core._writer, *store._core._readers):
        connection: Any = link.connection
        if connection is not None:
            there += connection.raw.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()[0]
            known += len(connection.prepared.names)
    return there, known


# --- F10 ---------------------------------------------------------------------------------------------------------


@pytest.mark.needs("psycopg")
def test_f10_many_structures_used_in_turn_leave_a_bounded_number_of_prepared_statements(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 20
    monkeypatch.setattr(server, "MOST_PREPARED", most)
    counters = [roost.Counter(f"counter{n}") for n in range(most + 10)]
    store = open_store()
    store.create(*counters, view=False)
    for _ in range(2):
        for counter in counters:
            for _ in range(USES + 3):
                store.run(counter.add("a"))
    there, known = named(store)
    assert most // 2 < known <= most + 1
    assert there == known
    assert store.stats().retries == 0  # none was dropped that the exchange being built had
    assert store.run_all(*[counter.total("a") for counter in counters]) == (2 * (USES + 3),) * len(counters)


@pytest.mark.needs("psycopg")
def test_f10_a_statement_that_is_gone_costs_a_retry_and_the_others_are_neither_forgotten_nor_left(
    open_store: Open,
) -> None:
    store = open_store(moments)
    batch = [moments.push(Moment(1, FIRST))] * 2
    for _ in range(2 * USES):
        store.run_all(*batch)
    connection: Any = store._core._writer.connection
    names = dict(connection.prepared.names)
    assert len(names) >= 2
    gone = list(names.values())[-1]
    connection.raw.execute(f"DEALLOCATE {gone}")
    before = store.stats().retries
    for _ in range(2 * USES):
        store.run_all(*batch)
    assert store.stats().retries == before + 1
    assert {name for name in names.values() if name != gone} <= {*connection.prepared.names.values()}
    there, known = named(store)
    assert there == known


# --- F19 ---------------------------------------------------------------------------------------------------------


@pytest.mark.needs("psycopg")
@pytest.mark.ways("postgresql")
@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo"])
def test_f19_the_first_and_the_last_year_are_read_in_a_session_of_another_zone(
    open_store: Open, app: Callable[..., App], application: Application, zone: str
) -> None:
    open_store(moments)
    one = app()
    one.sql(f"SET TIME ZONE '{zone}'")
    one.run_all(moments.push(Moment(1, FIRST)), moments.push(Moment(1, LAST)))  # asyncpg takes them for infinity
    assert one.run(moments.push(Moment(1, LAST))) == 3
    assert one.run(moments.latest(1)) == [Moment(1, LAST), Moment(1, LAST), Moment(1, FIRST)]
    one.commit()
    assert application("SELECT 1 FROM roost_moments_rows WHERE NOT isfinite(at_)") == []


@pytest.mark.needs("psycopg")
@pytest.mark.ways("postgresql")
def test_f19_the_first_and_the_last_day_are_stored_as_such(
    open_store: Open, app: Callable[..., App], application: Application
) -> None:
    days = roost.Set("days", key=int, member=dt.date)
    open_store(days)
    one = app()
    for day in (dt.date.min, dt.date.max):
        one.run(days.add(1, day))
        assert one.run(days.contains(1, day))
    assert one.run_all(days.add(2, dt.date.min, dt.date(2026, 1, 1), dt.date.max), days.members(2)) == (
        3,
        {dt.date.min, dt.date(2026, 1, 1), dt.date.max},
    )
    one.commit()
    assert application("SELECT 1 FROM roost_days_rows WHERE NOT isfinite(member)") == []


@pytest.mark.needs("psycopg")
@pytest.mark.ways("postgresql")
def test_f19_what_the_driver_cannot_read_is_an_error_of_roosts_and_the_transaction_goes_on(
    open_store: Open, app: Callable[..., App], application: Application
) -> None:
    store = open_store(moments)
    store.run(moments.push(Moment(1, FIRST)))
    application("UPDATE roost_moments_rows SET at_ = 'infinity'")
    one = app()
    for run in (one.run, store.run):
        with pytest.raises(roost.StatementFailed, match=r"timestamp too large|the years are 1 to 9999"):
            run(moments.latest(1))
    assert one.run(moments.push(Moment(1, LAST - INSTANT))) == 2
    one.commit()
    application("DELETE FROM roost_moments_rows WHERE at_ = 'infinity'")
    assert store.run(moments.latest(1)) == [Moment(1, LAST - INSTANT)]


# --- F20, F21 ----------------------------------------------------------------------------------------------------

PASSWORDS = ["qk@w0rd", "qk@x@w0rd", "qk/w0rd", "qk?w0rd", "qk#w0rd", "1/w0rd@", "qk:w0rd", "w0rd%zz", ":w0rd"]


@pytest.mark.parametrize("scheme", ["postgresql", "postgres+psycopg", "mysql", "oracle", "memcached", "sqlite"])
@pytest.mark.parametrize("password", PASSWORDS)
def test_f20_no_part_of_a_password_is_shown(scheme: str, password: str) -> None:
    url = f"{scheme}://ada:{password}@127.0.0.1:1/app"
    assert redacted(url) == f"{scheme}://ada:***@127.0.0.1:1/app"
    found = []
    try:
        store = roost.Store(url, timeout=0.1)
    except roost.Invalid as error:
        found.append(str(error))
    else:
        found += [repr(store), store.url]
        with store, pytest.raises(roost.Error) as failed:
            store.run(roost.Counter("pageviews").total("/"))
        found.append(str(failed.value))
    for part in (password, *password.replace("/", "@").replace("?", "@").replace("#", "@").split("@")):
        assert all(part not in each for each in found if len(part) > 1), found


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://h1:1,h2:2/db", "postgresql://h1:1,h2:2/db"),
        ("postgresql:///db?host=/run&password=w0rd&sslmode=require", "postgresql:///db?host=/run&password=***&sslmode=require"),
        ("postgresql://h/db?user=a@b&sslpassword=w0rd", "postgresql://h/db?user=a@b&sslpassword=***"),
        ("mysql://u:p@ss/w0rd@h:3306/db?user=ab", "mysql://u:***@h:3306/db?user=ab"),
        ("postgresql://u:w0rd@[::1]:5432/db", "postgresql://u:***@[::1]:5432/db"),
        ("sqlite:////home/ada@work/x.db", "sqlite:////home/ada@work/x.db"),
        ("no url", "no url"),
    ],
)  # fmt: skip
def test_f20_the_rest_of_a_url_is_shown_as_it_is(url: str, shown: str) -> None:
    assert redacted(url) == shown


@pytest.mark.parametrize("rest", ["w0rd@[::1/db", "w0rd%00@h/db"])
def test_f20_what_libpq_says_of_a_url_shows_no_password(rest: str) -> None:
    with pytest.raises(roost.Invalid, match=r"IPv6|%00") as caught:
        roost.Store(f"postgresql://ada:{rest}")
    assert "w0rd" not in str(caught.value)


def test_f20_a_password_with_an_at_sign_reaches_libpq_whole() -> None:
    engine: Any = PostgreSQLEngine("postgresql://a%20da:p@ss%2Fw@rd%@h/db", timeout=1, trace=None, random=None)  # type: ignore[arg-type]
    found = psycopg.conninfo.conninfo_to_dict(engine.url)
    assert (found["user"], found["password"], found["host"]) == ("a da", "p@ss/w@rd%", "h")


@pytest.mark.needs("psycopg")
def test_f21_several_hosts_are_libpqs(open_store: Open, store_url: str) -> None:
    open_store()
    parts = urlsplit(store_url)
    unused = servers.free_port()
    hosts = f"127.0.0.1:{unused},{parts.hostname}:{parts.port}"
    pageviews = roost.Counter("pageviews")
    with roost.Store(f"postgresql://{parts.username}@{hosts}{parts.path}") as store:
        assert store._core.engine.place == f"postgresql://{hosts}{parts.path}"
        store.create(pageviews)
        store.run(pageviews.add("/"))
        assert store.run(pageviews.total("/")) == 1
