"""RateLimit: what is allowed, exactly, on every database, whatever the clock does and however many take at once."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from fractions import Fraction
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
from tests.suite.shapes import Make, in_threads, rows
from tests.suite.views import insert, remove
from tests.suite.ways import App

DAY = 86_400

logins = roost.RateLimit("logins", limit=3, within=DAY)  # real time does not bring one back while a test runs
second = pytest.mark.needs("counter", "second store")


def allowed(taken: roost.Taken) -> bool:
    return taken.allowed


def test_so_many_at_once_and_no_more(make: Make) -> None:
    store = make(logins)
    assert store.run(logins.peek("ada")) == roost.Taken(True, 3, 0.0)
    assert [store.run(logins.take("ada")) for _ in range(3)] == [roost.Taken(True, n, 0.0) for n in (2, 1, 0)]
    for _ in range(3):
        refused = store.run(logins.take("ada"))
        assert (refused.allowed, refused.remaining) == (False, 0)
        assert DAY / 3 - 60 < refused.retry_after <= DAY / 3
    peeked = store.run(logins.peek("ada"))
    assert (peeked.allowed, peeked.remaining) == (False, 0)
    assert store.run(logins.take("bob", 2)) == roost.Taken(True, 1, 0.0)
    refused = store.run(logins.take("bob", 3))
    assert (refused.allowed, refused.remaining) == (False, 1)
    assert 2 * DAY / 3 - 60 < refused.retry_after <= 2 * DAY / 3
    assert store.run(logins.take("bob")) == roost.Taken(True, 0, 0.0)


def test_a_key_takes_in_its_turn_where_a_server_takes_for_so_many_in_several_calls(make: Make) -> None:
    many = roost.RateLimit("many", key=int, limit=3, within=DAY)
    store = make(many)
    answers = store.run_all(*[many.take(key) for key in [*range(4_996), *[4_996] * 5]])
    assert [answer.allowed for answer in answers] == [True] * 4_999 + [False] * 2


@second
def test_what_was_taken_comes_back_evenly(make: Make, sql: Client) -> None:
    store = make(logins)
    assert store.run(logins.take("ada", 3)).allowed
    passes(sql, logins, DAY / 3 - 100)
    assert not store.run(logins.take("ada")).allowed
    passes(sql, logins, 100)
    assert store.run(logins.take("ada")) == roost.Taken(True, 0, 0.0)
    assert not store.run(logins.take("ada")).allowed
    passes(sql, logins, DAY)
    assert store.run(logins.peek("ada")).remaining == 3
    assert store.run(logins.keys()) == []
    assert store.run(logins.clear("ada")) == 0


@second
def test_a_clock_that_jumps_back_lets_nobody_wait_longer_than_a_window(make: Make, sql: Client, store_url: str) -> None:
    clock = Jumping(sql, store_url)
    store = make(logins, **clock.options)
    store.run(logins.take("ada", 3))
    clock.jumps(logins, 400 * DAY)
    assert all(map(allowed, store.run_all(logins.take("ada", 2), logins.take("ada"))))
    clock.jumps(logins, -400 * DAY)
    refused = store.run(logins.take("ada"))
    assert not refused.allowed
    assert refused.retry_after <= DAY / 3
    clock.jumps(logins, refused.retry_after)
    assert store.run(logins.take("ada")).allowed
    assert not store.run(logins.take("ada")).allowed


class Model:
    """The generic cell rate algorithm, as it is described, in fractions."""

    def __init__(self, limit: int, window: int) -> None:
        self.limit, self.window = limit, window
        self.interval = Fraction(window, limit)
        self.tat: dict[str, Fraction] = {}

    def take(self, key: str, n: int, now: int, counts: bool = True) -> tuple[bool, int, int]:
        tat = min(max(self.tat.get(key, Fraction(0)), Fraction(now)), Fraction(now + self.window))
        new = tat + n * self.interval
        wait = new - self.window - now
        if wait <= 0 and counts:
            self.tat[key] = tat = new
        remaining = (now + self.window - tat) / self.interval
        return wait <= 0, int(remaining), max(0, -int(-wait // 1))


@settings(max_examples=length(30, 60), deadline=None)
@given(st.data())
def test_it_is_the_generic_cell_rate_algorithm_without_rounding(data: st.DataObject) -> None:
    limit = data.draw(st.integers(1, 13), "limit")
    window = data.draw(st.integers(1, 40), "window")
    clock, model = Hand(), Model(limit, window)
    rates = roost.RateLimit("rates", limit=limit, within=dt.timedelta(microseconds=window))
    time = Time()
    with roost.Store("sqlite://", clock=clock) as store:
        store.create(rates)
        assert store.run(rates.take("c")).allowed
        assert model.take("c", 1, time.at(microseconds(clock())))
        for _ in range(data.draw(st.integers(1, 25))):
            moved = data.draw(
                st.one_of(st.integers(0, 2 * window), st.integers(0, 3_000_000), st.integers(-(10**9), -2_000_000))
            )
            clock.time += dt.timedelta(microseconds=moved)
            wanted = [("c", 1, True)] + [  # a read alone does not mend time
                (data.draw(st.sampled_from("ab")), data.draw(st.integers(1, limit)), data.draw(st.booleans()))
                for _ in range(data.draw(st.integers(1, 4)))
            ]
            ops = [rates.take(key, n) if takes else rates.peek(key) for key, n, takes in wanted]
            found = store.run_all(*ops)
            moment = time.at(microseconds(clock()))
            expected = [model.take(key, n if takes else 1, moment, takes) for key, n, takes in wanted]
            assert [(each.allowed, each.remaining, round(each.retry_after * 10**6)) for each in found] == expected


@second
def test_what_random_takes_answer_is_what_the_model_answers(make: Make, sql: Client) -> None:
    five = roost.RateLimit("five", limit=5, within=5 * DAY)
    store, dice, model, now = make(five), random.Random(5), Model(5, 5 * DAY), 10 * DAY
    for _ in range(25):
        if dice.random() < 0.5:  # by half days and a bit more than the test may take
            days = dice.randrange(1, 8) * DAY // 2
            passes(sql, five, days)
            now += days
        wanted = [(dice.choice("abcdef"), dice.randrange(1, 6)) for _ in range(dice.choice([1, 3, 5, 12, 30]))]
        found = store.run_all(*[five.take(*each) for each in wanted])
        assert [each.allowed for each in found] == [model.take(*each, now)[0] for each in wanted]
        if dice.random() < 0.2:
            store.run_all(five.take(f"before {now}"), five.take(f"before {now}"))
            passes(sql, five, -3 * DAY)  # time goes on all the same
            store.run_all(five.take(f"behind {now}"), five.take(f"behind {now}"))
            passes(sql, five, 2)  # of the last second before, which can recur


def test_many_at_once_get_no_more_than_the_limit(open_store: Make, store_url: str) -> None:
    limit = roost.RateLimit("limit", limit=40, within=30 * DAY)
    stores = [open_store(limit)]
    if store_url != "sqlite://":
        stores += [open_store() for _ in range(3)]

    def work(number: int) -> list[bool]:
        store, found = stores[number % len(stores)], list[bool]()
        for n in range(15):
            if n % 3:
                found.append(store.run(limit.take("one")).allowed)
            else:
                found += map(allowed, store.run_all(limit.take("one"), limit.take("two"), limit.take("one")))
        return found

    found = [each for mine in in_threads(*[partial(work, number) for number in range(8)]) for each in mine]
    assert len(found) == 8 * (10 + 15)
    assert sum(found) == 80
    assert [stores[0].run(limit.peek(key)).remaining for key in ("one", "two")] == [0, 0]


@pytest.mark.needs("counter", "second store")
def test_a_refused_take_in_a_transaction_leaves_no_lock(
    open_store: Make, app: Callable[..., App], store_url: str
) -> None:
    store, one = open_store(logins, timeout=1.0), app()
    store.run(logins.take("ada", 3))
    assert not one.run(logins.take("ada")).allowed
    if not store_url.startswith("sqlite"):  # there some drivers begin as the one writer
        assert store.run(logins.clear("ada")) == 1
    one.rollback()


@pytest.mark.needs("readable views")
def test_plain_sql_reads_it_and_gives_back(open_store: Make, sql: Any) -> None:
    store = open_store(logins)
    store.run_all(logins.take("ada", 2), logins.take("bob"))
    first, second = rows(sql, "SELECT * FROM logins ORDER BY remaining")
    assert (first[:2], second[:2]) == (("ada", 1), ("bob", 2))
    restored = dt.datetime.fromisoformat(str(first[2]))
    wait = (restored if restored.tzinfo else restored.replace(tzinfo=dt.UTC)) - dt.datetime.now(dt.UTC)
    assert dt.timedelta(hours=15) < wait <= dt.timedelta(hours=16)
    with pytest.raises(sql.Error, match="taken from by take"):
        insert(sql, "logins", key="cy")
    if not isinstance(sql, MariaDBClient):
        with pytest.raises(sql.Error, match="taken from by take"):
            sql.execute("UPDATE logins SET remaining = 3")
    remove(sql, "logins", key="ada")
    assert store.run(logins.peek("ada")).remaining == 3


@pytest.mark.needs("second store", "readable views")
def test_what_is_over_is_not_in_the_view(open_store: Make, sql: Client) -> None:
    store = open_store(logins)
    store.run_all(logins.take("ada"), logins.take("bob", 3))
    passes(sql, logins, DAY / 3 + 100)
    assert [row[:2] for row in sql.execute("SELECT * FROM logins")] == [("bob", 1)]


def test_limit_and_window_can_be_altered(open_store: Make) -> None:
    store = open_store(logins)
    store.run(logins.take("ada", 2))
    more = roost.RateLimit("logins", limit=7, within=7 * DAY)
    assert store.alter(more) == ["limit: 3 -> 7", "within: 1d -> 7d"]
    assert store.run(more.peek("ada")).remaining == 6  # two thirds of a day are left of seven days
    assert store.run(more.take("ada", 6)).allowed
    assert store.run(logins.take("ada")).allowed is False  # what is stored decides, while both are used
    shorter = roost.RateLimit("logins", limit=2, within=60)
    store.alter(shorter)
    refused = store.run(shorter.take("ada"))
    assert not refused.allowed
    assert refused.retry_after <= 30.0


@second
def test_a_row_from_a_clock_that_was_years_ahead_lets_nobody_wait_longer(make: Make, sql: Client) -> None:
    store = make(logins)
    store.run_all(logins.take("ada", 3), logins.take("bob", 3))
    sql.execute(f"UPDATE roost_logins_rows SET tat = tat + {400 * DAY}000000")  # by who wrote nothing else down
    refused = [store.run(logins.take("ada")), *store.run_all(logins.take("bob"), logins.take("bob", 2))]
    assert not any(map(allowed, refused))
    assert [round(each.retry_after / DAY, 2) for each in refused] == [0.33, 0.33, 0.67]
    passes(sql, logins, DAY / 3)
    assert [store.run(logins.take(key)).allowed for key in ("ada", "bob")] == [True, True]
