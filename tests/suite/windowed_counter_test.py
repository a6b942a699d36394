"""What a windowed counter promises: exact totals of the last windows, and nothing is left of those before."""

from __future__ import annotations

import datetime as dt
import random
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import roost
from tests.suite.clients import Client
from tests.suite.shapes import Place, by_hand, rows
from tests.suite.ways import App

Make = Callable[..., Any]
pytestmark = pytest.mark.needs("counter")

MOST = 2**63 - 1
LONG = dt.timedelta(days=366)  # the window that a test begins in is the one that it ends in
SIZE = 366 * 86_400_000_000
NOON = dt.datetime(2026, 5, 1, 12, 30, tzinfo=dt.UTC)

views = roost.Counter("views", window=LONG, keep=3)
single = roost.Counter("single", window=LONG, keep=3, slots=1)
spread = roost.Counter("spread", window=LONG, keep=3, slots=4)
hits = roost.Counter("hits", key=Place, window=LONG, keep=2)
ALL = (views, single, spread)
each = pytest.mark.parametrize("counter", ALL, ids=repr)


def passes(store: Any, counter: Any, windows: int = 1) -> None:
    """Let windows go by: what was counted is so much older."""
    far, table = SIZE * 1000, f"roost_{counter.name}_rows"
    by_hand(
        store,
        f"UPDATE {table} SET start = start + {far}",
        f"UPDATE {table} SET start = start - {far + windows * SIZE}",
    )


def numbers(series: list[tuple[dt.datetime, int]]) -> list[int]:
    return [n for _, n in series]


@each
def test_adds_count_in_the_current_window_and_old_windows_go(make: Make, counter: Any) -> None:
    store = make(counter)
    assert store.run(counter.add("/home", 5)) is None
    store.run(counter.add_all({"/home": 2, "/about": 1}))
    assert store.run_all(counter.total("/home"), counter.total("/home", last=1), counter.total("/none")) == (7, 7, 0)
    passes(store, counter)
    store.run(counter.add("/home", 10))
    assert store.run(counter.total("/home")) == 17
    assert store.run(counter.total("/home", last=1)) == 10
    assert store.run_all(counter.total("/home", last=2), counter.total("/home", last=99)) == (17, 17)
    assert numbers(store.run(counter.series("/home"))) == [0, 7, 10]
    assert numbers(store.run(counter.series("/home", last=1))) == [10]
    passes(store, counter, 2)
    assert store.run_all(counter.total("/home"), counter.series("/home")) == (10, store.run(counter.series("/home")))
    assert numbers(store.run(counter.series("/home"))) == [10, 0, 0]
    assert store.run(counter.total("/about")) == 0
    passes(store, counter)
    assert store.run_all(counter.total("/home"), counter.top(), counter.keys()) == (0, [], [])


@each
def test_a_series_has_every_window_with_its_begin_in_utc(make: Make, counter: Any) -> None:
    store = make(counter)
    store.run(counter.add("/home"))
    begins = [begin for begin, _ in store.run(counter.series("/home"))]
    assert [later - begin for begin, later in pairwise(begins)] == [LONG, LONG]
    assert all(begin.tzinfo is dt.UTC for begin in begins)
    assert begins[-1] <= dt.datetime.now(dt.UTC) < begins[-1] + LONG
    assert numbers(store.run(counter.series("/none"))) == [0, 0, 0]


@each
def test_totals_top_and_keys_are_those_of_the_windows_asked(make: Make, counter: Any) -> None:
    store = make(counter)
    store.run(counter.add_all({"a": 5, "b": 9}))
    passes(store, counter)
    store.run(counter.add_all({"a": 5, "c": 7}))
    assert store.run(counter.totals(["b", "none", "a"])) == {"b": 9, "none": 0, "a": 10}
    assert store.run(counter.totals(["b", "a"], last=1)) == {"b": 0, "a": 5}
    assert store.run(counter.totals([])) == {}
    assert store.run(counter.top(2)) == [("a", 10), ("b", 9)]
    assert store.run(counter.top(last=1)) == [("c", 7), ("a", 5)]
    assert store.run_all(counter.keys(n=2), counter.keys("b")) == (["a", "b"], ["c"])
    passes(store, counter, 2)
    assert store.run(counter.keys()) == ["a", "c"]


@each
def test_increment_answers_the_new_total_of_the_window(make: Make, counter: Any) -> None:
    store = make(counter)
    assert [store.run(counter.increment("/home", n)) for n in (1, 5, -2)] == [1, 6, 4]
    passes(store, counter)
    assert store.run_all(counter.increment("/home"), counter.increment("/home", 2), counter.total("/home")) == (1, 3, 7)


@each
def test_clear_and_forget_remove_all_windows_and_answer_what_they_had(make: Make, counter: Any) -> None:
    store = make(counter)
    store.run(counter.add("/home", 100))
    passes(store, counter, 3)
    store.run(counter.add("/home", 7))
    passes(store, counter)
    store.run_all(counter.add("/home", 2), counter.add("/about"))
    assert store.run(counter.clear("/home")) == 9
    assert store.run_all(counter.clear("/home"), counter.total("/home"), counter.total("/about")) == (0, 0, 1)
    assert store.run_all(counter.add("/home"), counter.forget("/home"), counter.add("/home", 3)) == (None, 1, None)
    assert store.run(counter.total("/home")) == 3
    passes(store, counter, 3)
    assert store.run(counter.clear("/home")) == 0


def test_a_sum_past_64_bits_is_refused_and_changes_nothing(make: Make) -> None:
    store = make(single)
    store.run(single.add("/home", MOST))
    with pytest.raises(roost.Overflow, match=r"single.add\('/home', 1\).*64 bits"):
        store.run(single.add("/home"))
    with pytest.raises(roost.Overflow, match=r"single\.increment"):
        store.run(single.increment("/home"))
    store.run_all(single.add("/home", 5), single.add("/home", -6))
    assert store.run(single.total("/home")) == MOST - 1
    passes(store, single)
    store.run(single.add("/home", 2))
    assert store.run_all(single.total("/home"), single.top()) == (MOST + 1, [("/home", MOST + 1)])


def test_keys_of_several_columns(make: Make) -> None:
    store = make(hits)
    store.run_all(hits.add(Place("a", 2)), hits.add(Place("a", 10), 4), hits.increment(Place("a", 2)))
    assert store.run_all(hits.total(Place("a", 2)), hits.top(1)) == (2, [(Place("a", 10), 4)])
    assert store.run_all(hits.keys(), hits.keys(Place("a", 2))) == ([Place("a", 2), Place("a", 10)], [Place("a", 10)])
    assert numbers(store.run(hits.series(Place("a", 10)))) == [0, 4]


@pytest.mark.needs("second store")
@each
def test_what_is_over_goes_with_the_writes_that_come(open_store: Make, sql: Client, counter: Any) -> None:
    """Hundreds of windows go by: the table follows what lives, also where adds are alone in their transactions."""
    store = open_store(counter)
    keys = [f"/{n}" for n in range(10)]
    for _ in range(60):
        for key in keys:
            store.run(counter.add(key))
        passes(store, counter)
    ((left,),) = rows(sql, f"SELECT count(*) FROM roost_{counter.name}_rows")
    assert left <= (3 + 4) * len(keys)
    store.run(counter.add_all(dict.fromkeys(keys, 1)))
    assert store.run(counter.totals(keys)) == dict.fromkeys(keys, 3)


def test_a_simulated_year_of_hours_leaves_three_days(tmp_path: Path) -> None:
    now = [NOON]
    hourly = roost.Counter("hourly", window="hour", keep=72)
    chance = random.Random(7)
    path = tmp_path / "year.db"
    with roost.Store(f"sqlite:///{path}?synchronous=off", clock=lambda: now[0]) as store:
        store.create(hourly)
        counted: list[dict[str, int]] = []
        for hour in range(365 * 24):
            counted.append({})
            for _ in range(chance.randrange(4)):
                key = f"/{chance.randrange(5)}"
                store.run(hourly.add(key))
                counted[-1][key] = counted[-1].get(key, 0) + 1
            if hour % 500 == 499:
                wanted = {f"/{n}": sum(each.get(f"/{n}", 0) for each in counted[-72:]) for n in range(5)}
                assert store.run(hourly.totals(wanted)) == wanted
                assert numbers(store.run(hourly.series("/1"))) == [each.get("/1", 0) for each in counted[-72:]]
                with closing(sqlite3.connect(path)) as connection:
                    ((stored,),) = connection.execute("SELECT count(*) FROM roost_hourly_rows")
                assert sum(map(len, counted[-72:])) <= stored <= sum(map(len, counted[-96:]))
            now[0] += dt.timedelta(hours=1)
        assert store.check() == []


def test_windows_begin_with_the_hour_the_minute_and_the_day_of_utc() -> None:
    begins: dict[Any, dt.datetime] = {
        "minute": NOON,
        "hour": NOON.replace(minute=0),
        "day": NOON.replace(hour=0, minute=0),
        dt.timedelta(minutes=15): NOON,
        dt.timedelta(hours=8): NOON.replace(hour=8, minute=0),
    }
    here = dt.timezone(dt.timedelta(hours=-5))
    with roost.Store("sqlite://", clock=lambda: (NOON + dt.timedelta(seconds=59)).astimezone(here)) as store:
        for n, (window, begin) in enumerate(begins.items()):
            counter = roost.Counter(f"c{n}", window=window, keep=2)
            store.create(counter)
            store.run(counter.add("a"))
            assert store.run(counter.series("a", last=1)) == [(begin, 1)]


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "in a batch"])
def test_a_clock_that_jumps_back_counts_in_the_newest_window(alone: bool) -> None:
    now, hour = [NOON], dt.timedelta(hours=1)
    hourly = roost.Counter("hourly", window="hour", keep=2)
    with roost.Store("sqlite://", clock=lambda: now[0]) as store:
        store.create(hourly)

        def add(n: int) -> None:
            store.run(hourly.add("a", n)) if alone else store.run_all(hourly.add("a", n), hourly.total("b"))

        add(100)
        now[0] += 2 * hour
        add(1)
        now[0] -= hour
        assert store.run(hourly.total("a")) == 1  # the first window does not come back
        add(10)
        begin = NOON.replace(minute=0) + 2 * hour
        assert store.run_all(hourly.series("a", last=1), hourly.total("a")) == ([(begin, 11)], 11)
        assert (store.run(hourly.total("a", last=1)), store.run(hourly.series("a"))[1:]) == (11, [(begin, 11)])
        assert (store.run(hourly.top()), store.run(hourly.keys()), store.run(hourly.keys("_"))) == (
            *([("a", 11)], ["a"]),
            ["a"],
        )
        assert store.run(hourly.increment("a")) == 12
        now[0] += 2 * hour
        add(5)
        assert (store.run(hourly.total("a", last=1)), store.run(hourly.total("a"))) == (5, 17)
        now[0] += hour
        assert store.run(hourly.total("a")) == 5


@each
def test_a_server_whose_clock_jumps_back_counts_in_the_newest_window(make: Make, counter: Any) -> None:
    store = make(counter)
    for n in (1, 2, 4):  # two windows ahead of the clock: where the newest was counted before the jump
        store.run(counter.add("a", n))
        passes(store, counter, 1 if n < 4 else -2)
    assert store.run(counter.total("a")) == 7
    passes(store, counter, -1)
    store.run_all(counter.add("a", 8), counter.add("b"))
    store.run(counter.add("a", 16))
    assert store.run(counter.increment("a", 32)) == 4 + 8 + 16 + 32
    assert store.run_all(counter.total("a"), counter.total("a", last=1)) == (63, 60)
    assert (store.run(counter.total("a", last=1)), store.run(counter.totals(["a"], last=1))) == (60, {"a": 60})
    assert numbers(store.run(counter.series("a"))) == [1, 2, 60]
    assert store.run(counter.top(last=1)) == [("a", 60), ("b", 1)]
    assert store.run(counter.keys()) == ["a", "b"]
    assert store.run(counter.clear("a")) == 63


@each
def test_many_callers_at_once_are_all_counted(open_store: Make, store_url: str, counter: Any) -> None:
    stores = [open_store(counter)]
    if store_url != "sqlite://":
        stores.append(open_store(random=random.Random(8)))
    start = threading.Barrier(8)
    answers: list[int] = []

    def work(me: int) -> None:
        start.wait()
        for n in range(25):
            if me % 2:
                stores[me % len(stores)].run(counter.add("/home"))
            else:
                answers.append(stores[n % len(stores)].run(counter.increment("/home")))

    threads = [threading.Thread(target=work, args=(me,)) for me in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stores[0].run(counter.total("/home")) == 200
    assert len(set(answers)) == len(answers) == 100


def test_inside_the_applications_transaction(open_store: Make, app: Callable[..., App]) -> None:
    store = open_store(views)
    one = app()
    store.run(views.add("/home"))
    passes(store, views, 5)
    assert one.run_all(views.add("/home", 2), views.increment("/home"), views.total("/home"))[2] == 3
    one.run(views.add("/home"))
    one.rollback()
    assert store.run(views.total("/home")) == 0
    one.run(views.add("/home", 4))
    one.commit()
    assert store.run_all(views.total("/home"), views.series("/home", last=1))[0] == 4


def test_altering_keep_and_slots(open_store: Make) -> None:
    store = open_store(spread)
    store.run(spread.add("/home", 5))
    passes(store, spread)
    store.run(spread.add("/home", 2))
    wider = roost.Counter("spread", window=LONG, keep=5, slots=1)
    store.alter(wider)
    assert numbers(store.run(wider.series("/home"))) == [0, 0, 0, 5, 2]
    narrow = roost.Counter("spread", window=LONG, keep=1, slots=1)
    store.alter(narrow)
    assert store.run(narrow.total("/home")) == 2
    with pytest.raises(roost.Invalid, match="window cannot change"):
        store.alter(roost.Counter("spread", window="day", keep=1, slots=1))
    with pytest.raises(roost.Invalid, match="window cannot change"):
        store.alter(roost.Counter("spread", slots=1))


def test_windows_that_were_over_stay_so_when_more_are_kept(open_store: Make) -> None:
    few = roost.Counter("few", window=LONG, keep=2, slots=1)
    store = open_store(few)
    for n in range(5):
        store.run(few.add("/home", 10**n))
        passes(store, few)
    store.run(few.add("/home", 10**5))
    more = roost.Counter("few", window=LONG, keep=50, slots=1)
    store.alter(more)
    assert store.run(more.total("/home")) == 110_000


def test_check_tells_of_a_window_that_begins_nowhere(open_store: Make, sql: Client) -> None:
    store = open_store(views)
    store.run(views.add("/home"))
    by_hand(store, "UPDATE roost_views_rows SET start = start + 1")
    assert [found.rule for found in store.check()] == ["start"]
    by_hand(store, "UPDATE roost_views_rows SET start = start - 1")


@pytest.mark.needs("application", "readable views")
@each
def test_sql_clients_count_read_and_delete(open_store: Make, sql: Client, store_url: str, counter: Any) -> None:
    store = open_store(counter)
    mariadb = store_url.startswith("mysql")
    name, into = counter.name, f"{counter.name}_in" if mariadb else counter.name
    store.run(counter.add("/home", 3))
    passes(store, counter)
    key = "`key`" if mariadb else "key"
    for n in (4, 5):
        sql.execute(f"INSERT INTO {into} ({key}, total) VALUES ('/home', {n})")
    found = rows(sql, f"SELECT start, total FROM {name} WHERE {key} = '/home' ORDER BY start")
    assert [int(total) for _, total in found] == [3, 9]
    begins = [dt.datetime.fromisoformat(str(start)).replace(tzinfo=dt.UTC) for start, _ in found]
    assert begins == [begin for begin, n in store.run(counter.series("/home")) if n]
    assert store.run_all(counter.total("/home"), counter.total("/home", last=1)) == (12, 9)
    with pytest.raises(Exception, match=r"start|column"):
        sql.execute(f"INSERT INTO {into} ({key}, start, total) VALUES ('/home', '2026-01-01 00:00:00', 1)")
    if not mariadb:
        with pytest.raises(Exception, match="cannot be changed"):
            sql.execute(f"UPDATE {name} SET total = 5")
        sql.execute(f"DELETE FROM {name} WHERE total = 9")
        assert store.run(counter.total("/home")) == 3
    sql.execute(f"INSERT INTO {name}_out ({key}) VALUES ('/home')" if mariadb else f"DELETE FROM {name}")
    assert store.run(counter.total("/home")) == 0
    passes(store, counter, 9)
    assert list(rows(sql, f"SELECT * FROM {name}")) == []


@pytest.mark.needs("application", "readable views")
@each
def test_what_is_over_goes_where_only_sql_writes(open_store: Make, sql: Client, store_url: str, counter: Any) -> None:
    store = open_store(counter)
    mariadb = store_url.startswith("mysql")
    into, key = (f"{counter.name}_in", "`key`") if mariadb else (counter.name, "key")
    for _ in range(20):
        for page in ("/home", "/about"):
            sql.execute(f"INSERT INTO {into} ({key}, total) VALUES ('{page}', 1)")
            sql.execute(f"INSERT INTO {into} ({key}, total) VALUES ('{page}', 1)")
        passes(store, counter)
    ((left,),) = rows(sql, f"SELECT count(*) FROM roost_{counter.name}_rows")
    assert left <= 2 * 4
    assert store.run(counter.total("/home")) == 2 * 2  # of the last two windows, as the current one has nothing


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"window": "week", "keep": 1}, "window is 'minute', 'hour', 'day', or a timedelta"),
        ({"window": dt.timedelta(milliseconds=1500), "keep": 1}, "whole seconds"),
        ({"window": dt.timedelta(days=367), "keep": 1}, "366 days"),
        ({"window": 60, "keep": 1}, "window is"),
        ({"window": "hour"}, "keep is a number of windows"),
        ({"window": "hour", "keep": 0}, "keep is a number of windows"),
        ({"keep": 5}, "goes with window"),
    ],
)
def test_windows_that_are_none(options: Any, why: str) -> None:
    with pytest.raises((roost.Invalid, TypeError), match=why if "keep" in options else "keep"):
        roost.Counter("views", **options)
    for last in (0, -1, "1", 1.5):
        with pytest.raises(roost.Invalid, match="last is a number of windows"):
            views.total("/home", last=last)  # type: ignore[arg-type]
