"""What a counter promises, with windows of time and without; `model_test.py` has what every operation answers."""

from __future__ import annotations

import contextlib
import datetime as dt
import random
import re
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import psycopg
import pymysql
import pytest

import roost
from tests import servers
from tests.suite.application import Application
from tests.suite.clients import ISOLATES, Client, MariaDBClient
from tests.suite.passing import windows_pass
from tests.suite.shapes import Make, by_hand, in_threads, pageviews, rows
from tests.suite.views import insert, remove

pytestmark = pytest.mark.needs("counter")

MOST = 2**63 - 1
LONG = dt.timedelta(days=366)  # the window that a test begins in is the one that it ends in
NOON = dt.datetime(2026, 5, 1, 12, 30, tzinfo=dt.UTC)

tickets = roost.Counter("tickets", slots=1)
spread = roost.Counter("spread", slots=4)
views = roost.Counter("views", window=LONG, keep=3)
single = roost.Counter("single", window=LONG, keep=3, slots=1)
slotted = roost.Counter("slotted", window=LONG, keep=3, slots=4)
WINDOWED = (views, single, slotted)
ALL = (pageviews, tickets, spread, *WINDOWED)


def numbers(series: list[tuple[dt.datetime, int]]) -> list[int]:
    return [n for _, n in series]


def test_totals_has_every_key_asked_in_the_order_asked(make: Make) -> None:
    store = make(*ALL)
    for counter in ALL:
        assert store.run(counter.add("a", 3)) is None
        store.run_all(counter.add("b", 2), counter.add("a", -5), counter.add("c", 0))
        assert [*store.run(counter.totals(["b", "nowhere", "a", "b"])).items()] == [("b", 2), ("nowhere", 0), ("a", -2)]
        assert store.run(counter.totals([])) == {}
        assert type(store.run(counter.total("nowhere"))) is int  # SUM over nothing is NULL, and a Decimal in Python


def test_pitfall_keys_are_compared_byte_for_byte(make: Make) -> None:
    store = make(pageviews)
    keys = ["/Home", "/home", "/home ", "/hömé", "/ho\u0308me\u0301", "", " ", "0", "00", "😀"]
    store.run_all(*[pageviews.add(key, place + 1) for place, key in enumerate(keys)])
    assert store.run(pageviews.totals(keys)) == {key: place + 1 for place, key in enumerate(keys)}
    assert store.run(pageviews.keys()) == sorted(keys, key=str.encode)


# --- 64 bits, and slots ------------------------------------------------------------------------------------------


def test_a_slot_holds_64_bits_and_not_one_more(make: Make) -> None:
    store = make(tickets, single)
    for counter in (tickets, single):
        store.run_all(counter.add("/home", MOST), counter.add("/low", -MOST - 1))
        with pytest.raises(roost.Overflow, match=rf"{counter.name}.add\('/home', 1\).*64 bits"):
            store.run(counter.add("/home"))
        with pytest.raises(roost.Overflow, match=rf"{counter.name}\.increment\('/home', 1\).*64 bits"):
            store.run(counter.increment("/home"))
        with pytest.raises(roost.Overflow):
            store.run(counter.add("/low", -1))
        with pytest.raises(roost.Overflow):
            store.run_all(counter.increment("/other"), counter.increment("/home", 2), counter.increment("/home", -2))
        with pytest.raises(roost.Overflow):
            store.run_all(counter.add("/other"), counter.add("/home"))
        assert store.run(counter.totals(["/home", "/low", "/other"])) == {"/home": MOST, "/low": -MOST - 1, "/other": 0}
        store.run_all(
            counter.add("/home", 10), counter.add("/home", -11)
        )  # the sum of a batch is judged, not its steps
        assert store.run(counter.total("/home")) == MOST - 1


def test_a_key_holds_as_many_times_64_bits_as_it_has_slots(open_store: Make, store_url: str) -> None:
    store = open_store(pageviews, tickets, spread, single)
    for counter in (pageviews, tickets, spread, single):
        slots = 1 if store_url.startswith("sqlite") else counter.slots or 16
        taken = 0
        for n in range(6):  # by single calls and by batches, which may have slots of their own
            operations = [counter.add("/home", MOST), *[counter.add("/other")] * (n % 2)]
            with contextlib.suppress(roost.Overflow):
                store.run_all(*operations)
                taken += 1
            assert store.run(counter.total("/home")) == taken * MOST
        assert 1 <= taken <= min(slots, 2)


def test_no_two_of_many_callers_get_the_same_total(open_store: Make, store_url: str) -> None:
    """Threads of two stores where there can be two, beside others that only add, and inside a longer transaction."""
    counters: list[Any] = [pageviews, tickets, views, single]
    stores = [open_store(*counters)]
    if store_url != "sqlite://":
        stores.append(open_store(random=random.Random(8)))
    crowd(stores, counters)


def test_nor_while_the_rows_of_slots_move_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roost.structures.counter.plan.MOVES", 0.5)
    counters = [roost.Counter(f"of_{slots}", slots=slots) for slots in (1, 4)]
    with servers.own_database("postgresql") as url, roost.Store(url) as one, roost.Store(url) as other:
        one.create(*counters)
        crowd([one, other], counters)
        assert one.check() == []


@pytest.mark.parametrize("slots", [1, 4])
def test_an_increment_waits_for_rows_that_have_moved_on(monkeypatch: pytest.MonkeyPatch, slots: int) -> None:
    """And for one that is inserted at a slot's first number, by somebody who has not seen the row."""
    monkeypatch.setattr("roost.structures.counter.plan.MOVES", 1.1)
    moving = roost.Counter("moving", slots=slots)
    with servers.own_database("postgresql") as url, roost.Store(url, timeout=0.2) as store:
        store.create(moving)
        with psycopg.connect(url) as app:
            for _ in range(2):
                store.on(app).run(moving.add("/home"))
                app.commit()
            for held in ("SELECT moving_add('/home', 1)", "INSERT INTO roost_moving_rows VALUES ('/home', 0, 1)"):
                app.execute(held)
                with pytest.raises(roost.Busy):
                    store.run(moving.increment("/home"))
                app.rollback()
        assert store.run(moving.increment("/home")) == 3
        assert store.check() == []


def crowd(stores: Sequence[roost.Store], counters: Sequence[Any]) -> None:
    def increment(counter: Any, me: int) -> list[int]:
        return [stores[me % len(stores)].run(counter.increment("/home")) for _ in range(25)]

    def in_atoms(counter: Any) -> list[int]:
        return [n for _ in range(10) for n in stores[0].run_all(*[counter.increment("/home")] * 2)]

    def add(counter: Any, me: int) -> list[int]:
        for _ in range(25):
            stores[me % len(stores)].run(counter.add("/home", 3))
        return []

    for counter in counters:
        many = [partial(increment, counter, me) for me in range(5)], [partial(add, counter, me) for me in range(3)]
        answers = in_threads(*many[0], partial(in_atoms, counter), *many[1])
        found = [total for mine in answers for total in mine]
        assert len(set(found)) == len(found) == 5 * 25 + 2 * 10
        assert all(mine == sorted(mine) for mine in answers)
        assert max(found) <= stores[0].run(counter.total("/home")) == len(found) + 3 * 3 * 25


def test_pitfall_a_null_count_a_default_or_an_id_per_add_do_not_exist(open_store: Make) -> None:
    (table,) = (sql for sql in open_store(pageviews).ddl(pageviews) if "CREATE TABLE roost_pageviews_rows" in sql)
    assert "NULL," not in table.replace("NOT NULL,", "")
    assert "AUTO" not in table
    assert "DEFAULT" not in table
    assert re.search(r"PRIMARY KEY \(.key., slot\)", table)


def test_source_text_the_slots_of_home_sum_up(make: Make) -> None:
    """The slotted counter's own table: slots 0, 36, 7, 81 and 23 of /home; sums beyond 64 bits; slots not declared."""
    text, few = roost.Counter("pageviews_counts", slots=100), roost.Counter("few", slots=4)
    store = make(text, few)
    rows = [("/home", slot, n) for slot, n in ((0, 2), (36, 1), (7, 1), (81, 2), (23, 3))]
    by_hand(store, *[f"INSERT INTO roost_pageviews_counts_rows VALUES {row}" for row in rows])
    store.run(text.add("/home"))
    assert store.run(text.total("/home")) == 10
    rows = [(key, slot, n) for key, n in (("/high", MOST // 2), ("/low", -MOST - 1)) for slot in (0, 1, 2, 20)]
    by_hand(store, *[f"INSERT INTO roost_few_rows VALUES {row}" for row in rows])
    assert store.run(few.total("/low")) == -4 * (MOST + 1)
    assert store.run(few.top()) == [("/high", 4 * (MOST // 2)), ("/low", -4 * (MOST + 1))]
    assert store.run(few.increment("/high", 3)) == 4 * (MOST // 2) + 3
    assert [store.run(few.clear("/low")) for _ in range(2)] == [-4 * (MOST + 1), 0]


def test_f66_keys_of_a_counter_are_removed_by_its_rows_too(open_store: Make) -> None:
    """A trigger on a view works off one row after the other: for many keys the page on views names this way."""
    store = open_store(pageviews)
    store.run_all(*[pageviews.add(f"/{n}", n) for n in range(100)])
    by_hand(store, "DELETE FROM roost_pageviews_rows")
    assert store.check() == []
    assert store.run(pageviews.top()) == []
    assert store.run_all(pageviews.add("/1"), pageviews.total("/1")) == (None, 1)


@pytest.mark.needs("pymysql")  # PostgreSQL: `test_f87_...`; on MySQL the programs' names are others
@pytest.mark.parametrize("slots", [1, 4])
def test_an_increment_returns_no_old_snapshots_total(open_store: Make, application: Application, slots: int) -> None:
    """The isolation level may be that of the next transaction only, which no variable of MariaDB's shows."""
    tickets = roost.Counter("tickets", slots=slots)
    store = open_store(tickets)
    store.run(tickets.add("oslo", 2))
    application("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    application("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    application("START TRANSACTION")
    application("SELECT * FROM roost_tickets_rows")
    store.run(tickets.add("oslo", 30))
    if application(ISOLATES):
        with pytest.raises(pymysql.OperationalError, match="1020"):
            application("CALL roost_tickets_increment('oslo', 1, @total)")
        application("ROLLBACK")
    application("CALL roost_tickets_increment('oslo', 1, @total)")
    assert application("SELECT @total") == [(33,)]
    application("ROLLBACK")


@pytest.mark.needs("psycopg")
def test_a_function_that_somebody_else_has_made_is_not_taken_for_a_program(
    open_store: Make, application: Application
) -> None:
    store = open_store()
    for parameters in ("key text, n bigint", "k text, n bigint", "cmd text"):
        application(f"CREATE FUNCTION pageviews_add({parameters}) RETURNS text LANGUAGE sql AS 'SELECT NULL::text'")
        application("COMMENT ON FUNCTION pageviews_add IS 'of somebody'")
        with pytest.raises(roost.Invalid, match="pageviews_add that Roost has not made"):
            store.create(pageviews)
        found = application("SELECT prosecdef, prosrc FROM pg_proc WHERE proname = 'pageviews_add'")
        assert found == [(False, "SELECT NULL::text")]
        application("DROP FUNCTION pageviews_add")


@pytest.mark.needs("psycopg")
def test_rights_that_a_former_owner_gave_are_not_kept(open_store: Make, application: Application, role: str) -> None:
    store = open_store(pageviews)
    application("DROP FUNCTION pageviews_add(text, bigint)")
    application(f"GRANT USAGE, CREATE ON SCHEMA public TO {role}")
    application(f"SET ROLE {role}")
    text = "/* made by Roost */ SELECT"
    application(f"CREATE FUNCTION pageviews_add(key text, n bigint) RETURNS void LANGUAGE sql AS '{text}'")
    application("COMMENT ON FUNCTION pageviews_add IS 'a program, made by Roost'")
    application("RESET ROLE")
    store.create(pageviews)
    assert application(f"SELECT has_function_privilege('{role}', 'pageviews_add(text, bigint)', 'EXECUTE')") == [
        (False,)
    ]


# --- windows -----------------------------------------------------------------------------------------------------


def test_a_series_has_every_window_with_its_begin_in_utc(make: Make) -> None:
    store = make(*WINDOWED)
    for counter in WINDOWED:
        store.run(counter.add("/home"))
        begins = [begin for begin, _ in store.run(counter.series("/home"))]
        assert [later - begin for begin, later in pairwise(begins)] == [LONG, LONG]
        assert all(begin.tzinfo is dt.UTC for begin in begins)
        assert begins[-1] <= dt.datetime.now(dt.UTC) < begins[-1] + LONG
        assert numbers(store.run(counter.series("/none"))) == [0, 0, 0]


@pytest.mark.needs("second store")
def test_what_is_over_goes_with_the_writes_that_come(open_store: Make, sql: Client) -> None:
    """Many windows go by: the table follows what lives, also where adds are alone in their transactions."""
    store = open_store(*WINDOWED)
    for counter in WINDOWED:
        keys = [f"/{n}" for n in range(5)]
        for _ in range(40):
            for key in keys:
                store.run(counter.add(key))
            windows_pass(store, counter)
        ((left,),) = rows(sql, f"SELECT count(*) FROM roost_{counter.name}_rows")
        assert left <= (3 + 4) * len(keys)
        store.run(counter.add_all(dict.fromkeys(keys, 1)))
        assert store.run(counter.totals(keys)) == dict.fromkeys(keys, 3)


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


def test_a_server_whose_clock_jumps_back_counts_in_the_newest_window(make: Make) -> None:
    store = make(*WINDOWED)
    for counter in WINDOWED:
        for n in (1, 2, 4):  # two windows ahead of the clock: where the newest was counted before the jump
            store.run(counter.add("a", n))
            windows_pass(store, counter, 1 if n < 4 else -2)
        assert store.run(counter.total("a")) == 7
        windows_pass(store, counter, -1)
        store.run_all(counter.add("a", 8), counter.add("b"))
        store.run(counter.add("a", 16))
        assert store.run(counter.increment("a", 32)) == 4 + 8 + 16 + 32
        assert store.run_all(counter.total("a"), counter.total("a", last=1)) == (63, 60)
        assert (store.run(counter.total("a", last=1)), store.run(counter.totals(["a"], last=1))) == (60, {"a": 60})
        assert numbers(store.run(counter.series("a"))) == [1, 2, 60]
        assert store.run(counter.top(last=1)) == [("a", 60), ("b", 1)]
        assert store.run(counter.keys()) == ["a", "b"]
        assert store.run(counter.clear("a")) == 63


def test_altering_keep_and_slots(open_store: Make) -> None:
    store = open_store(slotted)
    store.run(slotted.add("/home", 5))
    windows_pass(store, slotted)
    store.run(slotted.add("/home", 2))
    wider = roost.Counter("slotted", window=LONG, keep=5, slots=1)
    store.alter(wider)
    assert numbers(store.run(wider.series("/home"))) == [0, 0, 0, 5, 2]
    narrow = roost.Counter("slotted", window=LONG, keep=1, slots=1)
    store.alter(narrow)
    assert store.run(narrow.total("/home")) == 2
    with pytest.raises(roost.Invalid, match="window cannot change"):
        store.alter(roost.Counter("slotted", window="day", keep=1, slots=1))
    with pytest.raises(roost.Invalid, match="window cannot change"):
        store.alter(roost.Counter("slotted", slots=1))


def test_windows_that_were_over_stay_so_when_more_are_kept(open_store: Make) -> None:
    few = roost.Counter("few", window=LONG, keep=2, slots=1)
    store = open_store(few)
    for n in range(5):
        store.run(few.add("/home", 10**n))
        windows_pass(store, few)
    store.run(few.add("/home", 10**5))
    more = roost.Counter("few", window=LONG, keep=50, slots=1)
    store.alter(more)
    assert store.run(more.total("/home")) == 110_000


@pytest.mark.needs("application", "readable views")
def test_sql_clients_count_read_and_delete(open_store: Make, sql: Any) -> None:
    store = open_store(*WINDOWED)
    for counter in WINDOWED:
        name = counter.name
        store.run(counter.add("/home", 3))
        windows_pass(store, counter)
        for n in (4, 5):
            insert(sql, name, key="/home", total=n)
        found = rows(sql, f"SELECT start, total FROM {name} ORDER BY start")
        assert [int(total) for _, total in found] == [3, 9]
        begins = [dt.datetime.fromisoformat(str(start)).replace(tzinfo=dt.UTC) for start, _ in found]
        assert begins == [begin for begin, n in store.run(counter.series("/home")) if n]
        assert store.run_all(counter.total("/home"), counter.total("/home", last=1)) == (12, 9)
        with pytest.raises(sql.Error, match=r"start|column"):
            insert(sql, name, key="/home", start="2026-01-01 00:00:00", total=1)
        if not isinstance(sql, MariaDBClient):
            with pytest.raises(sql.Error, match="cannot be changed"):
                sql.execute(f"UPDATE {name} SET total = 5")
            sql.execute(f"DELETE FROM {name} WHERE total = 9")
            assert store.run(counter.total("/home")) == 3
        remove(sql, name, key="/home")
        assert store.run(counter.total("/home")) == 0
        windows_pass(store, counter, 9)
        assert list(rows(sql, f"SELECT * FROM {name}")) == []


@pytest.mark.needs("application", "readable views")
def test_what_is_over_goes_where_only_sql_writes(open_store: Make, sql: Any) -> None:
    store = open_store(*WINDOWED)
    for counter in WINDOWED:
        for _ in range(20):
            for page in ("/home", "/home", "/about", "/about"):
                insert(sql, counter.name, key=page, total=1)
            windows_pass(store, counter)
        ((left,),) = rows(sql, f"SELECT count(*) FROM roost_{counter.name}_rows")
        assert left <= 2 * 4
        assert store.run(counter.total("/home")) == 2 * 2  # of the last two windows, as the current one has nothing
