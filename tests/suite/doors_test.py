"""SQL clients call programs for their outcome, with a row as the answer, inside a transaction and outside of one."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest

import roost
from tests.suite import clients
from tests.suite.passing import passes
from tests.suite.shapes import Visit

HOUR = 3600


api = roost.RateLimit("api", limit=2, within=HOUR)
jobs = roost.Lease("jobs", key=roost.text(40))
views = roost.Counter("views", key=roost.text(40))
visits = roost.Ring("visits", Visit, per="uid", keep=2)

Call = Callable[..., Any]

pytestmark = [pytest.mark.needs("counter", "programs for SQL")]


@pytest.fixture
def store(open_store: Callable[..., roost.Store]) -> roost.Store:
    return open_store(api, jobs, views, visits, timeout=2)


def calling(sql: Any) -> Call:
    """Return how this client calls: the row of the answer."""

    def call(program: str, *values: Any) -> Any:
        holes = ", ".join("?" * len(values))
        on_postgresql = isinstance(sql, clients.PostgreSQLClient)
        found = sql.execute(
            f"SELECT * FROM {program}({holes})" if on_postgresql else f"CALL {program}({holes})", values
        )
        row = found.fetchone()
        found.close()
        return row[0] if len(row) == 1 else row

    return call


@pytest.fixture
def call(store: roost.Store, sql: Any) -> Call:
    return calling(sql)


def test_a_rate_limit_is_taken_from(call: Call, store: roost.Store) -> None:
    assert call("api_peek", "ada") == (True, 2, 0.0)
    assert call("api_take", "ada", 1) == (True, 1, 0.0)
    assert call("api_take", "ada", 1) == (True, 0, 0.0)
    allowed, remaining, retry_after = call("api_take", "ada", 2)
    assert (allowed, remaining) == (False, 0)
    assert HOUR - 60 < retry_after <= HOUR
    allowed, remaining, retry_after = call("api_peek", "ada")
    assert (allowed, remaining) == (False, 0)
    assert HOUR / 2 - 60 < retry_after <= HOUR / 2
    assert not store.run(api.take("ada")).allowed
    store.run(api.clear("ada"))
    assert call("api_take", "ada", 2) == (True, 0, 0.0)


def test_a_lease_is_held(call: Call, store: roost.Store) -> None:
    before = dt.datetime.now(dt.UTC)
    assert call("jobs_peek", "daily") == (None, None, None)
    token, expires = call("jobs_acquire", "daily", "ada", 60.5)
    grant = store.run(jobs.peek("daily"))
    assert grant is not None
    assert (grant.holder, grant.token) == ("ada", token)
    assert in_utc(expires) == grant.expires
    assert dt.timedelta(seconds=60.5) <= grant.expires - before < dt.timedelta(seconds=120)
    assert call("jobs_acquire", "daily", "bob", 60) == (None, None)
    holder, same, ends = call("jobs_peek", "daily")
    assert (holder, same, in_utc(ends)) == ("ada", token, grant.expires)
    assert in_utc(call("jobs_renew", "daily", token, HOUR)) > grant.expires
    assert call("jobs_renew", "daily", token + 1, HOUR) is None
    assert [call("jobs_release", "daily", each) for each in (token + 1, token, token)] == [False, True, False]
    assert call("jobs_acquire", "daily", "bob", 60)[0] > token


def in_utc(moment: dt.datetime) -> dt.datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)


def test_what_was_counted_and_pushed_is_told(call: Call, store: roost.Store) -> None:
    assert [call("views_increment", "/", n) for n in (2, 3)] == [2, 5]
    assert [call("visits_push", 7, visitor) for visitor in (1, 2, 3)] == [1, 2, 3]
    assert store.run(views.total("/")) == 5
    assert store.run(visits.latest(7)) == [Visit(7, 3), Visit(7, 2)]


NO_VALUES: list[tuple[str, Any, str]] = [
    ("api_take", ("ada", 0), "api: n is from 1 to 2"),
    ("api_take", ("ada", 3), "api: n is from 1 to 2"),
    ("api_take", ("ada", None), r"api\.n: it takes"),
    ("api_take", (None, 1), r"api\.key: it takes"),
    ("api_take", ("a" * 256, 1), r"api\.key: it takes"),
    ("jobs_acquire", ("daily", "a" * 256, 1), r"jobs\.holder: it takes"),
    ("jobs_acquire", ("daily", "ada", 0), "jobs: ttl is a number of seconds"),
    ("jobs_acquire", ("daily", "ada", 10**10), "jobs: ttl is a number of seconds"),
    ("jobs_renew", ("daily", 1, -1), "jobs: ttl is a number of seconds"),
    ("visits_push", (1, None), r"visits\.visitor: it takes"),
]


def test_what_is_no_value_is_an_error(call: Call) -> None:
    for program, values, message in NO_VALUES:
        with pytest.raises(Exception, match=message):
            call(program, *values)
    assert call("api_take", "ada", 1) == (True, 1, 0.0)


def test_it_is_part_of_the_clients_transaction(call: Call, sql: Any, store: roost.Store) -> None:
    sql.execute("BEGIN")
    assert call("api_take", "ada", 2) == (True, 0, 0.0)
    assert call("jobs_acquire", "daily", "ada", 60)[0]
    assert call("views_increment", "/", 1) == 1
    with pytest.raises(roost.Busy):
        store.run(jobs.acquire("daily", "bob", 60))
    sql.execute("ROLLBACK")
    assert store.run(api.peek("ada")).remaining == 2
    assert store.run(jobs.holder("daily")) is None
    assert store.run(views.total("/")) == 0
    sql.execute("BEGIN")
    call("api_take", "ada", 1)
    sql.execute("COMMIT")
    assert store.run(api.peek("ada")).remaining == 1


@pytest.mark.parametrize("opens", [False, True])
def test_a_refusal_waits_for_nobody_and_locks_nothing(
    opens: bool, call: Call, sql: Any, store: roost.Store, store_url: str
) -> None:
    store.run_all(api.take("ada", 2), jobs.acquire("daily", "ada", HOUR))
    with clients.connect(store_url) as other:
        other.execute("BEGIN")
        for table in ("roost_api_rows", "roost_jobs_rows"):
            other.execute(f"SELECT * FROM {table} FOR UPDATE")
        if opens:
            sql.execute("BEGIN")
        assert not call("api_take", "ada", 1)[0]
        assert call("jobs_acquire", "daily", "bob", 60) == (None, None)
        other.execute("ROLLBACK")
        if opens:  # what was refused holds nothing until the client commits
            store.run_all(api.clear("ada"), jobs.clear("daily"))
            sql.execute("ROLLBACK")


def test_refusals_alone_mend_time(call: Call, sql: Any, store: roost.Store) -> None:
    passes(sql, api, 400 * 24 * HOUR)
    assert call("api_take", "ada", 2)[0]
    passes(sql, api, -400 * 24 * HOUR)
    assert not call("api_take", "ada", 1)[0]
    passes(sql, api, HOUR / 2)
    assert call("api_take", "ada", 1)[0]
