"""Operations inside the application's own transaction: what is the same for every driver."""

from __future__ import annotations

import asyncio
import datetime as dt
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

import roost
from tests.latest import Latest
from tests.lengths import length
from tests.suite.boundaries import outcome, plain
from tests.suite.shapes import Egg, Make, Visit, baskets, in_threads, likes, pageviews, visits
from tests.suite.types_test import HIGH, Everything
from tests.suite.ways import App, Way

Connect = Callable[..., App]
ALL = (pageviews, visits, baskets, likes)


@pytest.fixture
def store(open_store: Make) -> Any:
    return open_store(*ALL)


def test_it_commits_and_rolls_back_with_the_application(store: Any, app: Connect) -> None:
    one = app()
    joined = one.joined  # serves one transaction after the other
    one.sql("CREATE TABLE orders (id INTEGER)")
    one.commit()
    one.sql("INSERT INTO orders VALUES (1)")
    assert one.run_all(pageviews.add("/home"), visits.push(Visit(5, 7)))[1] == 1
    assert one.run(pageviews.total("/home")) == 1
    assert store.run(pageviews.total("/home")) == 0
    one.rollback()
    assert store.run_all(pageviews.total("/home"), visits.latest(5)) == (0, [])
    assert one.sql("SELECT * FROM orders") == []
    for n in (1, 2):
        one.wait(joined.run(pageviews.add("/home")))
        one.sql(f"INSERT INTO orders VALUES ({n})")
        one.commit()
    assert store.run(pageviews.total("/home")) == 2
    assert one.sql("SELECT * FROM orders") == [(1,), (2,)]


def test_a_failed_operation_leaves_the_transaction_usable(store: Any, app: Connect) -> None:
    one = app()
    one.run(baskets.add(Egg(1, 1)))
    with pytest.raises(roost.Duplicate):
        one.run_all(pageviews.add("/home"), baskets.add(Egg(1, 1)))
    with pytest.raises(roost.Missing):
        one.run(roost.Counter("nowhere").add("a"))
    with pytest.raises(roost.Overflow):
        one.run_all(pageviews.add("/x", 2**63 - 1), pageviews.add("/x", 1))
    one.run(likes.add(1, "a"))
    one.commit()
    assert store.run_all(pageviews.totals(["/home", "/x"]), baskets.count(1), likes.size(1)) == (
        {"/home": 0, "/x": 0}, 1, 1,
    )  # fmt: skip


def test_a_key_that_is_only_looked_for_in_a_transaction_leaves_nothing_that_check_reports(
    open_store: Make, app: Connect
) -> None:
    pages = roost.Cache("pages", value=str)
    store = open_store(pages)
    one = app()
    one.run_all(pages.touch("/none"), pages.append("/none", "b"))
    one.commit()
    assert store.run_all(pages.get("/none"), pages.keys()) == (None, [])


def test_under_autocommit_only_reading_goes_without_a_transaction(store: Any, app: Connect) -> None:
    store.run(pageviews.add("/home"))
    one = app(autocommit=True)
    assert one.run(pageviews.total("/home")) == 1
    with pytest.raises(roost.Invalid, match="autocommit"):
        one.run(pageviews.add("/home"))
    assert one.run(pageviews.total("/home")) == 1
    one.sql("BEGIN")
    one.run(pageviews.add("/home"))
    assert store.run(pageviews.total("/home")) == 1
    one.sql("COMMIT")
    assert store.run(pageviews.total("/home")) == 2
    with pytest.raises(roost.Invalid, match="autocommit"):
        one.run(pageviews.add("/home"))


def test_joined_adds_take_other_slots_than_batches(open_store: Make, app: Connect) -> None:
    spread = roost.Counter("spread", slots=8)
    store = open_store(spread)
    one = app()
    one.run(spread.add("/home"))
    one.commit()
    store.run_all(spread.add("/home"), spread.add("/about"))
    slots = {slot >> 40 or slot for (slot,) in one.sql("SELECT slot FROM roost_spread_rows")}  # numbers on PostgreSQL
    assert len(slots) == 2 or slots == {0}  # a file of SQLite has one writer, and uses one
    assert len([slot for slot in slots if slot >= 4]) == len(slots) - 1


windowed = roost.Counter("windowed", window="day", keep=2)
words = roost.Cache("words", key=int, value=roost.text(30))
few = roost.Cache("few", key=int, value=int, max_items=4)
logins = roost.RateLimit("logins", limit=3, within=86_400)
jobs = roost.Lease("jobs")
moods = Latest("moods", key=int, value=roost.text(20))
# What is there before, what is written, how it is read, and what is read before and after.
WRITTEN: list[tuple[list[Any], list[Any], Any, Any, Any]] = [
    ([windowed.add("/")], [windowed.add("/", 2), windowed.increment("/")], windowed.total("/"), 1, 4),
    ([words.set(1, "one", ttl=60)], [words.set(1, "two"), words.append(1, "!")], words.get(1), "one", "two!"),
    ([few.set_many(dict.fromkeys(range(4), 5))], [few.set(9, 5)], few.keys(), [0, 1, 2, 3], [1, 2, 3, 9]),
    ([], [logins.take("ada", 2), logins.take("ada", 2)], logins.peek("ada"), (True, 3), (True, 1)),
    ([], [jobs.acquire("daily", "ada", 60), jobs.acquire("daily", "bob", 60)], jobs.holder("daily"), None, "ada"),
    ([moods.set(1, "calm")], [moods.set(1, "glad")], moods.get(1), "calm", "glad"),
]


@pytest.mark.needs("cache", "second store")
def test_every_structure_is_part_of_the_applications_transaction(open_store: Make, app: Connect) -> None:
    store, one = open_store(windowed, words, few, logins, jobs, moods), app()
    for before, writes, read, unchanged, changed in WRITTEN:
        store.run_all(*before)
        for end in (one.rollback, one.commit):
            one.run_all(*writes)
            assert plain((one.run(read), store.run(read)), (read, read)) == (changed, unchanged)
            end()
            assert plain((store.run(read),), (read,)) == (changed if end == one.commit else unchanged,)
    assert one.run(words.cas(1, "three", one.run(words.gets(1)).token)) is True
    one.commit()
    assert store.run(words.get(1)) == "three"


everything = roost.Capped("everything", Everything, per="ident", keep=3, unique=("s", "b"))
WHO = uuid.UUID(int=2**128 - 0x27_5C_00)  # an apostrophe, a backslash and a NUL among its bytes
ROW = replace(HIGH, ident=WHO, s="it's a \\ 'hömé' \N{EGG} %s :x", b=bytes(range(64, 128)), f=0.1 + 0.2)


def comes_back(store: Any, one: App) -> None:
    """Every type goes through the application's connection and comes back as through the store's."""
    one.run(everything.add(ROW))
    assert one.run_all(everything.latest(WHO), everything.get(WHO, (ROW.s, ROW.b))) == ([ROW], ROW)
    assert one.run(everything.entries(WHO))[0].at.tzinfo is dt.UTC
    one.commit()
    assert store.run(everything.latest(WHO)) == [ROW]
    assert one.run(everything.remove(WHO, (ROW.s, ROW.b))) is True
    one.commit()


def test_every_type_goes_through_the_applications_connection(open_store: Make, app: Connect) -> None:
    comes_back(open_store(everything), app())


def test_a_lock_that_is_not_had_in_time_is_busy_and_the_transaction_goes_on(store: Any, app: Connect, way: Way) -> None:
    store.run(visits.push(Visit(1, 1)))
    holder, one = app(), app(**({"timeout": 0} if way.engine == "sqlite-file" else {}))
    if way.engine in ("mariadb", "mysql"):  # MySQL takes a second for it
        one.sql("SET innodb_lock_wait_timeout = 0")
        one.takes_what_is_committed()
    if way.engine == "postgresql":
        one.sql("SET LOCAL lock_timeout = 1")
    if way.engine != "sqlite-file":
        one.run(pageviews.add("/kept"))
    holder.run(visits.push(Visit(1, 2)))
    with pytest.raises(roost.Busy):
        one.run_all(baskets.add(Egg(1, 1)), visits.push(Visit(1, 3)))
    holder.commit()
    assert one.run(visits.push(Visit(1, 4))) == 3
    one.commit()
    assert store.run_all(visits.latest(1), baskets.count(1)) == ([Visit(1, 4), Visit(1, 2), Visit(1, 1)], 0)
    assert store.run(pageviews.total("/kept")) == (way.engine != "sqlite-file")


@pytest.mark.ways("driver")
def test_mixed_with_batches_from_threads_nothing_is_lost(store: Any, app: Connect, way: Way) -> None:
    done = threading.Event()

    def batches() -> None:
        while not done.is_set():
            store.run_all(pageviews.add("/batch"), visits.push(Visit(5, 1)))

    one = app(**({"timeout": 60, "check_same_thread": False} if way.engine == "sqlite-file" else {}))
    one.takes_what_is_committed()

    def joins() -> None:
        try:
            for n in range(60):
                one.run_all(pageviews.add("/joined"), visits.push(Visit(5, 2)))
                one.commit() if n % 2 else one.rollback()
        finally:
            done.set()

    in_threads(batches, batches, batches, joins)
    totals = store.run(pageviews.totals(["/batch", "/joined"]))
    assert totals["/joined"] == 30
    assert store.run(visits.entries(5))[-1].sequence == sum(totals.values())


def test_what_is_no_connection_is_refused(store: Any) -> None:
    with pytest.raises(roost.Invalid, match=r"Store\.on takes a sqlite3\.Connection, .*not a builtins\.str"):
        store.on("connection")
    with roost.Store("sqlite://") as other, pytest.raises(roost.Invalid, match=r"not a builtins\.object"):
        other.on(object())  # type: ignore[arg-type]


def test_a_connection_of_the_other_kind_is_refused_with_the_store_to_use(app: Connect, store_url: str) -> None:
    one = app()
    if one.way.awaited:
        with roost.Store(store_url) as other, pytest.raises(roost.Invalid, match=r"use AsyncStore\.on"):
            other.on(one.connection)
    elif one.way.name != "sqlite3":
        with pytest.raises(roost.Invalid, match=r"use Store\.on"):
            roost.AsyncStore(store_url).on(one.connection)


def test_a_connection_to_another_engine_is_refused(app: Connect, way: Way) -> None:
    one = app()
    other: Any = "postgresql://nowhere/x" if way.engine in ("mariadb", "mysql") else "mysql://nowhere/x"
    store = (roost.AsyncStore if way.awaited else roost.Store)(other)
    with pytest.raises(roost.Invalid, match=r"is not one to .*nowhere"):
        one.wait(store.on(one.connection).run(pageviews.add("/home")))
    one.rollback()


@pytest.mark.ways("blocking")
def test_a_call_that_is_interrupted_leaves_nothing_of_itself(store: Any, app: Connect) -> None:
    one = app()
    one.run(pageviews.add("/before"))

    def look(sql: str) -> None:
        if "visits_push" in sql:
            raise KeyboardInterrupt

    one.on_statement = look
    with pytest.raises(KeyboardInterrupt):
        one.run_all(likes.add(1, "a"), baskets.add(Egg(1, 1)), visits.push(Visit(1, 1)))
    one.on_statement = lambda sql: None
    one.run(pageviews.add("/after"))
    one.commit()
    assert store.run(pageviews.totals(["/before", "/after"])) == {"/before": 1, "/after": 1}
    assert store.run_all(likes.size(1), baskets.keys(), visits.keys()) == (0, [], [])


@pytest.mark.ways("blocking", "driver")
@pytest.mark.parametrize("word", ["SAVEPOINT", "RELEASE"])
def test_f90_a_call_that_is_interrupted_at_its_savepoint_commits_nothing_in_part(
    store: Any, app: Connect, word: str
) -> None:
    one = app()
    one.run(pageviews.add("/before"))

    def look(sql: str) -> None:
        if word in sql:
            one.on_statement = lambda sql: None
            raise KeyboardInterrupt

    one.on_statement = look
    with pytest.raises(KeyboardInterrupt):
        one.run_all(likes.add(1, "a"), baskets.add(Egg(1, 1)))
    try:
        one.commit()
        before = 1
    except Exception:  # the connection was closed
        before = 0
    assert store.run_all(pageviews.total("/before"), likes.size(1), baskets.count(1)) == (before, 0, 0)


# --- two calls at once on one connection -------------------------------------------------------------------------


@pytest.fixture
def often() -> Iterator[None]:
    """Let threads take turns as often as they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("often")
def test_f88_the_failure_of_a_call_does_not_undo_another_one_on_the_same_connection(
    store: Any, app: Connect, way: Way
) -> None:
    store.run(baskets.add(Egg(1, 1)))
    one = app(**({"check_same_thread": False} if way.engine == "sqlite-file" else {}))
    one.run(pageviews.total("/"))  # SQLAlchemy's sessions refuse two calls that both begin the transaction
    joined = one.joined
    rounds = range(length(20, 100))
    succeeds = [(pageviews.add("/"), likes.add(1, f"{n}"), visits.push(Visit(1, n))) for n in rounds]
    fails = [(likes.add(2, f"{n}"), visits.push(Visit(2, n)), baskets.add(Egg(1, 1))) for n in rounds]

    async def at_once() -> list[Any]:
        found: list[Any] = []
        for good, bad in zip(succeeds, fails, strict=True):
            found += await asyncio.gather(joined.run_all(*good), joined.run_all(*bad), return_exceptions=True)
        return found

    def one_after_the_other(calls: list[Any]) -> list[Any]:
        return [outcome(joined.run_all, each) for each in calls]

    if way.awaited:
        answers = one.wait(at_once())
        good, bad = answers[::2], [type(each).__name__ for each in answers[1::2]]
    else:
        good, bad = in_threads(partial(one_after_the_other, succeeds), partial(one_after_the_other, fails))
    one.commit()
    assert good == [(None, 1, n + 1) for n in rounds]
    assert set(bad) == {"Duplicate"}
    assert store.run_all(pageviews.total("/"), likes.size(1), likes.size(2), visits.latest(2)) == (
        *(len(rounds), len(rounds), 0),
        [],
    )


@pytest.mark.ways("server")
@pytest.mark.parametrize("slots", [1, 16])
def test_f87_an_increment_counts_nothing_that_was_cleared_since_the_snapshot(
    open_store: Make, app: Connect, store_url: str, slots: int
) -> None:
    tickets = roost.Counter("tickets", slots=slots)
    store = open_store(tickets)
    store.run(tickets.add("oslo", 5))
    one = app()
    if store_url.startswith("postgresql"):
        one.commit()
        if one.way.name == "asyncpg":
            one.sql("BEGIN")
        one.sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    one.sql("SELECT sum(n) FROM roost_tickets_rows")
    assert store.run(tickets.clear("oslo")) == 5
    try:
        answered = one.run(tickets.increment("oslo", 2))
    except roost.Conflict:
        return
    one.commit()
    assert answered == store.run(tickets.total("oslo")) == 2
