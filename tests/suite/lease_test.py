"""Lease: one holder at most, tokens that only grow, whatever the clock does and however many want it."""

from __future__ import annotations

import datetime as dt
import random
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import roost
from roost.structures.clock import microseconds
from tests.lengths import length
from tests.suite.clients import Client, MariaDBClient
from tests.suite.passing import Hand, Jumping, Time, passes
from tests.suite.shapes import Make, in_threads, pageviews, rows
from tests.suite.views import insert, remove

DAY = 86_400

jobs = roost.Lease("jobs")
second = pytest.mark.needs("counter", "second store")


def size(sql: Client) -> int:
    """How many rows there are."""
    found: Any = sql.execute("SELECT count(*) FROM roost_jobs_rows").fetchone()
    return int(found[0])


def test_a_key_has_one_holder(make: Make) -> None:
    store = make(jobs)
    before = dt.datetime.now(dt.UTC)
    grant = store.run(jobs.acquire("daily", "ada", DAY))
    assert (grant.key, grant.holder) == ("daily", "ada")
    assert dt.timedelta(days=1) <= grant.expires - before < dt.timedelta(days=1, minutes=5)
    assert store.run(jobs.acquire("daily", "bob", DAY)) is None
    assert store.run(jobs.holder("daily")) == "ada"
    assert store.run(jobs.peek("daily")) == grant
    assert (store.run(jobs.holder("weekly")), store.run(jobs.peek("weekly"))) == (None, None)
    assert store.run(jobs.release(grant)) is True
    assert store.run(jobs.release(grant)) is False
    assert store.run(jobs.renew(grant, DAY)) is None
    assert store.run(jobs.holder("daily")) is None
    later = store.run(jobs.acquire("daily", "bob", DAY))
    assert later.token > grant.token
    assert store.run(jobs.release(grant)) is False
    assert store.run(jobs.renew(grant, DAY)) is None
    assert store.run(jobs.peek("daily")) == later


def test_a_holder_renews(make: Make) -> None:
    store = make(jobs)
    grant = store.run(jobs.acquire("daily", "ada", 3600))
    renewed = store.run(jobs.renew(grant, dt.timedelta(days=2)))
    assert (renewed.token, renewed.holder) == (grant.token, "ada")
    assert renewed.expires - grant.expires > dt.timedelta(days=1)
    again = store.run(jobs.acquire("daily", "ada", 3600))
    assert again.token == grant.token
    assert again.expires < renewed.expires
    assert store.run(jobs.release(grant)) is True


def test_in_a_batch_each_has_its_turn(make: Make) -> None:
    store = make(jobs, pageviews)
    first, none, name, _, other, ended, held = store.run_all(
        jobs.acquire("daily", "ada", DAY),
        jobs.acquire("daily", "bob", DAY),
        jobs.holder("daily"),
        pageviews.add("/"),
        jobs.acquire("weekly", "bob", DAY),
        jobs.clear("daily"),
        jobs.acquire("daily", "bob", DAY),
    )
    assert (none, name, ended) == (None, "ada", 1)
    assert held.token > first.token
    found = store.run_all(jobs.release(first), jobs.release(held), jobs.acquire("daily", "cy", DAY), jobs.peek("daily"))
    assert found[:2] == (False, True)
    assert found[2] == found[3]
    assert found[2].token > held.token
    assert store.run(jobs.peek("weekly")) == other


@second
def test_it_ends_by_itself(make: Make, sql: Client) -> None:
    store = make(jobs)
    grant = store.run(jobs.acquire("daily", "ada", DAY))
    passes(sql, jobs, DAY)
    assert store.run(jobs.peek("daily")) is None
    assert store.run(jobs.keys()) == []
    assert store.run_all(jobs.renew(grant, DAY), jobs.release(grant), jobs.clear("daily")) == (None, False, 0)
    later = store.run(jobs.acquire("daily", "ada", DAY))
    assert later.token > grant.token  # for ada could not know whether somebody else had it meanwhile


@second
def test_tokens_grow_when_the_row_has_gone_and_when_the_clock_jumps_back(
    open_store: Make, sql: Client, store_url: str
) -> None:
    clock = Jumping(sql, store_url)
    store = open_store(jobs, **clock.options)
    tokens = []
    for n in range(12):
        grant = store.run(jobs.acquire("daily", f"worker {n}", 10))
        tokens.append(grant.token)
        if n % 4 == 1:
            store.run(jobs.release(grant))
        else:
            clock.jumps(jobs, 10)
        if n % 3 == 2:
            clock.jumps(jobs, 5)
            store.run_all(jobs.acquire(f"other {n}", "x", 1), jobs.holder("daily"))  # a batch sweeps
            assert size(sql) <= 2
            clock.jumps(jobs, -DAY)
    assert tokens == sorted(set(tokens))


@second
def test_a_clock_that_jumps_back_ends_a_lease_no_later(make: Make, sql: Client, store_url: str) -> None:
    clock = Jumping(sql, store_url)
    store = make(jobs, **clock.options)
    clock.jumps(jobs, 400 * DAY)
    grant = store.run(jobs.acquire("daily", "ada", DAY))
    gone = store.run(jobs.acquire("hourly", "ada", 1))
    clock.jumps(jobs, 60)
    assert store.run(jobs.acquire("weekly", "bob", DAY)) is not None
    clock.jumps(jobs, -400 * DAY)
    assert store.run(jobs.acquire("daily", "bob", DAY)) is None
    assert store.run(jobs.peek("hourly")) is None
    assert store.run(jobs.renew(gone, 10)) is None
    clock.jumps(jobs, DAY)
    later = store.run(jobs.acquire("daily", "bob", DAY))
    assert later.token > grant.token


@second
def test_a_row_from_a_clock_that_was_years_ahead_ends_after_its_time(open_store: Make, sql: Client) -> None:
    store = open_store(jobs)
    grant = store.run(jobs.acquire("daily", "ada", DAY))
    sql.execute(f"UPDATE roost_jobs_rows SET expires = expires + {400 * DAY}000000")
    assert store.run(jobs.peek("daily")).expires - grant.expires < dt.timedelta(minutes=5)
    assert store.run(jobs.acquire("daily", "bob", DAY)) is None
    passes(sql, jobs, DAY + 1)
    assert store.run(jobs.acquire("daily", "bob", DAY)).holder == "bob"


@settings(max_examples=length(20, 40), deadline=None)
@given(st.data())
def test_what_random_calls_answer_is_what_a_model_answers(data: st.DataObject) -> None:
    clock, lease = Hand(), roost.Lease("lease")
    held: dict[str, tuple[str, int, int]] = {}
    last: dict[str, int] = {}
    grants: list[Any] = []
    time = Time()
    with roost.Store("sqlite://", clock=clock) as store:
        store.create(lease)
        for number in range(data.draw(st.integers(1, 30))):
            moved = data.draw(
                st.one_of(st.just(0), st.integers(0, 9_000_000), st.integers(-(10**9), -2_000_000)), "moved"
            )
            clock.time += dt.timedelta(microseconds=moved)
            store.run(lease.acquire(f"tick {number}", "x", 10**-6))  # a read alone does not mend time
            now = time.at(microseconds(clock()))
            key, holder = data.draw(st.sampled_from("ab")), data.draw(st.sampled_from("xyz"))
            ttl = data.draw(st.integers(1, 12))
            name, token, expires = held.get(key, ("", 0, 0))
            alive = expires > now
            verb = data.draw(st.sampled_from(["acquire", "acquire", "renew", "release", "peek", "clear"]))
            grant: Any = data.draw(st.sampled_from(grants)) if grants else None
            if verb in ("renew", "release"):
                if grant is None:
                    continue
                key = grant.key
                name, token, expires = held[key]
                mine = expires > now and token == grant.token
                found: Any = store.run(lease.renew(grant, ttl) if verb == "renew" else lease.release(grant))
                assert bool(found) == mine
                if mine:
                    held[key] = (name, token, now + ttl * 10**6 if verb == "renew" else now)
            elif verb == "acquire":
                found = store.run(lease.acquire(key, holder, ttl))
                assert (found is not None) == (not alive or name == holder)
                if found is not None:
                    assert microseconds(found.expires) == now + ttl * 10**6
                    if alive:
                        assert found.token == token
                    else:
                        assert found.token > last.get(key, 0)
                    last[key] = found.token
                    held[key] = (holder, found.token, now + ttl * 10**6)
                    grants.append(found)
            elif verb == "peek":
                found = store.run(lease.peek(key))
                assert (found and (found.holder, found.token)) == ((name, token) if alive else None)
            else:
                assert store.run(lease.clear(key)) == alive
                if alive:
                    held[key] = (name, token, now)


def test_many_at_once_hold_it_one_by_one(open_store: Make, store_url: str) -> None:
    stores = [open_store(jobs)]
    if store_url != "sqlite://":
        stores += [open_store() for _ in range(3)]
    held, inside = list[int](), list[int]()

    def work(number: int) -> None:
        store, dice = stores[number % len(stores)], random.Random(number)
        for _ in range(12):
            grant = store.run(jobs.acquire("one", f"thread {number}", DAY))
            if grant is None:
                continue
            inside.append(number)
            held.append(grant.token)
            if dice.random() < 0.5:
                assert store.run(jobs.renew(grant, DAY)) == grant or store.run(jobs.peek("one"))
            assert inside == [number]
            inside.remove(number)
            assert store.run(jobs.release(grant))

    in_threads(*[partial(work, number) for number in range(8)])
    assert held == sorted(set(held))
    assert held


@pytest.mark.needs("readable views")
def test_plain_sql_reads_it_and_ends_it(open_store: Make, sql: Any) -> None:
    store = open_store(jobs)
    grant = store.run(jobs.acquire("daily", "ada", DAY))
    store.run(jobs.acquire("weekly", "bob", DAY))
    first, second = rows(sql, "SELECT * FROM jobs ORDER BY token")
    assert (first[:2], second[:2]) == (("daily", "ada"), ("weekly", "bob"))
    expires = dt.datetime.fromisoformat(str(first[3]))
    assert (expires if expires.tzinfo else expires.replace(tzinfo=dt.UTC)) == grant.expires
    with pytest.raises(sql.Error, match="held by acquire"):
        insert(sql, "jobs", key="cy")
    if not isinstance(sql, MariaDBClient):
        with pytest.raises(sql.Error, match="held by acquire"):
            sql.execute("UPDATE jobs SET holder = 'cy'")
    remove(sql, "jobs", key="daily")
    assert [row[0] for row in rows(sql, "SELECT * FROM jobs")] == ["weekly"]
    assert store.run(jobs.holder("daily")) is None
    assert store.run(jobs.acquire("daily", "cy", DAY)).token > grant.token
