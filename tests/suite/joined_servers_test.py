"""Operations inside a transaction of the application on a server: its isolation, its locks, its session's settings.

Longer than 500 lines: the tests share their applications, of every driver.
"""

from __future__ import annotations

import asyncio
import importlib
import random
import threading
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg.types.numeric import FloatLoader
from psycopg.types.string import TextBinaryLoader
from pymysql.constants import FIELD_TYPE
from sqlalchemy.exc import PendingRollbackError

import roost
from tests.campaigns.processes import until
from tests.lengths import length
from tests.suite.application import Application
from tests.suite.capping.tables import VISITS, cap
from tests.suite.clients import WAITS
from tests.suite.joined_test import ROW, WHO, comes_back, everything
from tests.suite.shapes import Egg, Make, Place, Seen, Visit, baskets, in_threads, likes, pageviews, visits
from tests.suite.ways import App, Way

Connect = Callable[..., App]
ALL = (pageviews, visits, baskets, likes)
pytestmark = pytest.mark.ways("server")

PATIENCE = 60.0


@pytest.fixture
def store(open_store: Make) -> Any:
    return open_store(*ALL)


# --- isolation ---------------------------------------------------------------------------------------------------

WRITES = [
    pageviews.add("/home"),
    visits.push(Visit(1, 100)),
    baskets.add(Egg(1, 100)),
    baskets.remove(1, 20),
    likes.add(1, "a", "b", "c"),
    likes.remove(1, "b"),
    visits.clear(1),
    baskets.clear(1),
    likes.clear(1),
    pageviews.clear("/home"),
]


def others_write(store: Any) -> None:
    for n in range(20):
        store.run_all(pageviews.add("/home"), visits.push(Visit(1, n)), baskets.add(Egg(1, n + 12)))
    store.run_all(likes.remove(1, "a"), likes.add(1, "b"))


@pytest.mark.ways("MySQL's protocol")
@pytest.mark.parametrize("level", ["REPEATABLE READ", "READ COMMITTED", "SERIALIZABLE"])
def test_what_others_committed_behind_the_snapshot_is_written_to_all_the_same(
    store: Any, app: Connect, level: str
) -> None:
    store.run_all(*[baskets.add(Egg(1, n)) for n in range(12)], likes.add(1, "a"))
    one = app()
    one.sql(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
    if level != "SERIALIZABLE":  # where reading locks what is read
        assert one.run_all(baskets.count(1), likes.members(1), visits.latest(1)) == (12, {"a"}, [])
    others_write(store)
    assert (one.run_behind if level == "REPEATABLE READ" else one.run_all)(likes.add(1, "a", "b", "c")) == (2,)
    assert one.run(baskets.add(Egg(1, 100))) is None
    assert one.run(baskets.remove(1, 31)) is True
    assert one.run(baskets.remove(1, 5)) is False
    assert one.run(visits.push(Visit(1, 100))) == 21
    one.run(pageviews.add("/home"))
    one.commit()
    assert store.run_all(pageviews.total("/home"), likes.members(1), baskets.count(1)) == (21, {"a", "b", "c"}, 11)
    assert [egg.egg for egg in store.run(baskets.latest(1))] == [100, *range(30, 20, -1)]
    assert store.run(visits.latest(1, 2)) == [Visit(1, 100), Visit(1, 19)]


@pytest.mark.ways("postgresql", "driver")
@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_what_others_committed_behind_the_snapshot_is_a_conflict(open_store: Make, app: Connect, level: str) -> None:
    single = roost.Counter("single", slots=1)  # joined adds and batches meet in one slot
    store, one = open_store(*ALL, single), app()
    for operation in [*WRITES, single.add("/home"), single.clear("/home")]:
        if operation.structure is pageviews:
            continue
        store.run_all(*[each.forget(1) for each in (baskets, likes, visits)])
        store.run_all(*[baskets.add(Egg(1, n)) for n in range(12)], likes.add(1, "a"), visits.push(Visit(1, 0)))
        store.run(single.add("/home"))
        one.rollback()
        one.sql(f"SET TRANSACTION ISOLATION LEVEL {level}")
        one.sql("SELECT 1 FROM roost_catalog")
        others_write(store)
        store.run(single.add("/home"))
        with pytest.raises(roost.Conflict):
            raise AssertionError(f"{operation} answered {one.run(operation)}")
        one.rollback()
        one.run(operation)
        one.commit()


def test_the_declaration_is_the_one_in_force_whatever_the_snapshot_shows(
    open_store: Make, app: Connect, way: Way
) -> None:
    store = open_store(visits)
    one = app()
    level = "SESSION TRANSACTION" if way.engine != "postgresql" else "TRANSACTION"
    one.sql(f"SET {level} ISOLATION LEVEL REPEATABLE READ")
    assert one.run(visits.latest(1)) == []
    store.alter(roost.Ring("visits", Visit, per="uid", keep=3))
    one.run_behind(*[visits.push(Visit(1, n)) for n in range(9)])
    one.commit()
    assert store.run(visits.latest(1)) == [Visit(1, n) for n in (8, 7, 6)]


# --- deadlocks ---------------------------------------------------------------------------------------------------


@pytest.fixture
def locking_app(app: Connect, way: Way) -> Connect:
    """Make applications that do not wait for PostgreSQL's second before it looks for a deadlock."""
    options = {"options": "-c deadlock_timeout=20ms"} if way.engine == "postgresql" else {}
    return lambda: app(**options)


@pytest.mark.ways("pymysql")
def test_a_transaction_that_the_server_rolled_back_by_itself_is_a_conflict(store: Any, app: Connect) -> None:
    one = app()
    one.run(pageviews.add("/home"))

    def look(sql: str) -> None:
        if "visits_push" in sql:  # what innodb_rollback_on_timeout does, and then an error
            one.connection.rollback()
            raise RuntimeError

    one.on_statement = look
    with pytest.raises(roost.Conflict, match="rolled back the whole transaction"):
        one.run(visits.push(Visit(1, 1)))
    one.rollback()
    assert store.run_all(pageviews.total("/home"), visits.latest(1)) == (0, [])


def crosswise(one: App, two: App) -> list[roost.Conflict]:
    """Let each ask for what the other holds, and end its transaction as an application does."""

    def ask(app: App, key: int) -> list[roost.Conflict]:
        try:
            app.run(visits.push(Visit(key, 3)))
        except roost.Conflict as error:
            app.rollback()
            return [error]
        app.commit()
        return []

    return [error for found in in_threads(partial(ask, one, 2), partial(ask, two, 1)) for error in found]


def test_a_conflict_loses_the_transaction_and_nothing_of_it_stays(store: Any, locking_app: Connect) -> None:
    one, two = locking_app(), locking_app()
    one.run_all(pageviews.add("/one"), visits.push(Visit(1, 1)))
    two.run_all(pageviews.add("/two"), visits.push(Visit(2, 2)))
    sent: list[str] = []
    one.on_statement = two.on_statement = sent.append
    assert len(crosswise(one, two)) == 1
    # After MariaDB's 1213 there is none to go back to. Only the way back tells, since a trigger may raise that number.
    assert any("ROLLBACK TO SAVEPOINT roost_joined" in text for text in sent)
    totals = store.run(pageviews.totals(["/one", "/two"]))
    assert sorted(totals.values()) == [0, 1]
    winner = 1 if totals["/one"] else 2
    assert store.run_all(visits.latest(winner), visits.latest(3 - winner)) == (
        [Visit(winner, winner)],
        [Visit(3 - winner, 3)],
    )
    for each in (one, two):  # both connections go on
        each.run(pageviews.add("/after"))
        each.commit()
    assert store.run(pageviews.total("/after")) == 2


@pytest.mark.ways("driver")
def test_joined_transactions_in_any_order_and_batches_only_the_joined_see_a_conflict(
    open_store: Make, locking_app: Connect
) -> None:
    store = open_store(*ALL, timeout=PATIENCE)  # the others may be slow
    apps = [locking_app() for _ in range(3)]
    done = threading.Event()
    counts = {"joined": 0, "conflicts": 0, "batches": 0}
    lock = threading.Lock()
    numbers = count()  # which is atomic

    def counted(what: str) -> None:
        with lock:
            counts[what] += 1

    def operations(keys: list[int], who: int) -> list[roost.Operation[Any]]:
        return [
            op
            for key in keys
            for op in (visits.push(Visit(key, who)), baskets.add(Egg(key, next(numbers))), likes.add(key, str(who)))
        ]

    def joins(one: App, seed: int) -> None:
        chosen = random.Random(seed)
        try:
            for _ in range(20):
                keys = chosen.sample(range(4), 3)
                try:
                    for key in keys:
                        one.run_all(*operations([key], seed))
                    one.run(pageviews.add("/joined"))
                    one.commit()
                    counted("joined")
                except roost.Conflict:
                    one.rollback()
                    counted("conflicts")
        finally:
            done.set()

    def batches(seed: int) -> None:
        chosen = random.Random(seed)
        while not done.is_set():
            store.run_all(*operations(chosen.sample(range(4), 3), seed), pageviews.add("/batches"))
            counted("batches")

    in_threads(
        *[partial(joins, one, seed) for seed, one in enumerate(apps)],
        *[partial(batches, seed) for seed in range(10, 13)],
    )
    assert counts["joined"] + counts["conflicts"] == 60
    assert counts["conflicts"] > 0
    assert store.run(pageviews.totals(["/joined", "/batches"])) == {
        "/joined": counts["joined"],
        "/batches": counts["batches"],
    }
    pushed = sum(store.run(visits.entries(key))[-1].sequence for key in range(4))
    assert pushed == 3 * (counts["joined"] + counts["batches"])


# --- interrupted -------------------------------------------------------------------------------------------------


WAITING = f"SELECT 1 FROM {WAITS['postgresql']}"


@pytest.mark.ways("awaited")
def test_a_call_that_is_cancelled_while_it_waits_leaves_nothing_of_itself(store: Any, app: Connect, way: Way) -> None:
    holder, one, watcher = app(), app(), app()
    one.run(pageviews.add("/before"))
    holder.run(visits.push(Visit(1, 1)))

    async def cancelled() -> None:
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()

        def waits() -> bool:
            found = watcher.sql(WAITING)
            watcher.rollback()  # since a transaction sees the same activity again and again
            return bool(found)

        def cancel() -> None:
            until(waits, "a statement that waits")  # PostgreSQL ignores a cancel request that overtakes its statement
            loop.call_soon_threadsafe(task.cancel)

        def look(sql: str) -> None:
            if "visits_push" in sql:
                if way.engine == "postgresql":
                    loop.run_in_executor(None, cancel)
                else:  # the driver closes the connection
                    loop.call_soon(task.cancel)

        one.on_statement = look
        await one.joined.run_all(likes.add(1, "a"), visits.push(Visit(1, 2)))

    with pytest.raises(asyncio.CancelledError):
        one.wait(cancelled())
    holder.commit()
    if way.engine != "postgresql":  # what the server would answer is lost, and the connection with it
        with pytest.raises(PendingRollbackError if way.sqlalchemy else roost.CannotOpen):
            one.run(pageviews.add("/after"))
        assert store.run_all(pageviews.total("/before"), likes.size(1), visits.latest(1)) == (0, 0, [Visit(1, 1)])
        return
    one.run(pageviews.add("/after"))
    one.commit()
    assert store.run(pageviews.totals(["/before", "/after"])) == {"/before": 1, "/after": 1}
    assert store.run_all(likes.size(1), visits.latest(1)) == (0, [Visit(1, 1)])


@pytest.mark.ways("awaited", "postgresql")
@pytest.mark.parametrize("several", [False, True])
def test_f90_a_call_that_is_cancelled_at_its_beginning_or_end_aborts_no_transaction(
    store: Any, app: Connect, several: bool
) -> None:
    one, rounds = app(), length(60, 300)
    one.run(pageviews.total("/"))
    calls = [pageviews.add("/cancelled"), *([likes.add(2, "a"), likes.remove(2, "a")] if several else [])]

    async def cancelled(delay: float, word: str) -> None:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None

        def look(sql: str) -> None:
            if word in sql:
                loop.call_later(delay, task.cancel)
                one.on_statement = lambda sql: None  # psycopg closes a connection when it is cancelled twice

        one.on_statement = look
        await one.joined.run_all(*calls)

    done = 0
    for n in range(rounds):
        assert one.run(likes.add(1, f"{n}")) == 1
        try:
            one.wait(cancelled(n % 20 * 2e-5, ("SAVEPOINT", "RELEASE")[n % 2]))
            done += 1
        except asyncio.CancelledError:
            pass
        one.on_statement = lambda sql: None
        one.run(pageviews.add("/after"))
        one.commit()
    assert store.run_all(likes.size(1), likes.size(2), pageviews.total("/after")) == (rounds, 0, rounds)
    assert done <= store.run(pageviews.total("/cancelled")) < rounds


@pytest.mark.ways("asyncmy")
def test_f90_a_call_that_is_cancelled_anywhere_leaves_the_transaction_or_loses_the_connection(
    store: Any, app: Connect
) -> None:
    async def cancelled(one: App, n: int) -> None:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_later(n * 5e-6, task.cancel)
        await one.joined.run_all(pageviews.add("/cancelled"), likes.add(2, f"{n}"))

    kept = 0
    for n in range(length(40, 200)):
        one = app()
        assert one.run(likes.add(1, f"{n}")) == 1
        try:
            one.wait(cancelled(one, n))
        except asyncio.CancelledError:
            pass
        try:
            one.run(pageviews.add("/after"))
        except roost.CannotOpen:
            continue
        one.commit()
        kept += 1
    size, after, total, others = store.run_all(
        likes.size(1), pageviews.total("/after"), pageviews.total("/cancelled"), likes.size(2)
    )
    assert (size, after, total) == (kept, kept, others)


def test_a_connection_that_is_lost_is_an_error_that_says_so(store: Any, app: Connect, way: Way) -> None:
    one, other = app(), app()
    one.run(pageviews.add("/home"))
    if way.engine != "postgresql":
        ((number,),) = one.sql("SELECT CONNECTION_ID()")
        other.sql(f"KILL {number}")
    else:
        ((number,),) = one.sql("SELECT pg_backend_pid()")
        other.sql(f"SELECT pg_terminate_backend({number})")
    with pytest.raises(roost.CannotOpen):
        one.run(pageviews.add("/home"))
    assert store.run(pageviews.total("/home")) == 0
    if way.sqlalchemy:  # which has been told, and connects anew
        one.rollback()
        one.run(pageviews.add("/home"))
        one.commit()
        assert store.run(pageviews.total("/home")) == 1


@pytest.mark.ways("driver")
def test_a_connection_that_is_closed_is_lost(store: Any, app: Connect) -> None:
    one = app()
    one.run(pageviews.add("/home"))
    one.wait(one.connection.close())
    for again in (pageviews.add("/home"), pageviews.total("/home")):
        with pytest.raises(roost.ConnectionLost):
            one.run(again)
    assert store.run(pageviews.total("/home")) == 0


# --- the session's settings --------------------------------------------------------------------------------------

MODES = [
    "",
    "ANSI_QUOTES",
    "NO_BACKSLASH_ESCAPES",
    "ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,IGNORE_SPACE,ONLY_FULL_GROUP_BY",
    "TRADITIONAL,HIGH_NOT_PRECEDENCE,PAD_CHAR_TO_FULL_LENGTH",
]


@pytest.mark.ways("MySQL's protocol")
def test_the_sql_mode_does_not_matter(open_store: Make, app: Connect) -> None:
    tickets = roost.Counter("tickets", slots=1)
    store, one = open_store(*ALL, everything, tickets), app()
    for mode in MODES:
        one.sql(f"SET sql_mode = '{mode}', sql_quote_show_create = {len(mode) % 2}")
        comes_back(store, one)
        one.run_all(tickets.clear("/x"), tickets.add("/x", 2**63 - 1))
        with pytest.raises(roost.Overflow):
            one.run(tickets.add("/x", 1))
        assert one.run(tickets.top(1)) == [("/x", 2**63 - 1)], mode
        one.run_all(baskets.clear(1), baskets.add(Egg(1, 1, "")))
        assert one.run(baskets.latest(1)) == [Egg(1, 1, "")], mode
        one.commit()


@pytest.mark.ways("MySQL's protocol", "driver")
@pytest.mark.parametrize("charset", ["latin1", "utf8"])
def test_a_character_set_that_cannot_carry_every_text_is_refused(store: Any, app: Connect, charset: str) -> None:
    one = app(charset=charset)
    with pytest.raises(roost.Invalid, match=f"character set is {charset}"):
        one.run(pageviews.add("/home"))


@pytest.mark.ways("MySQL's protocol", "driver")
def test_a_character_set_that_is_changed_later_makes_no_other_text(store: Any, app: Connect) -> None:
    one = app()
    one.run(pageviews.add("/home"))
    one.sql("SET NAMES latin1")
    done = True
    for call in (one.run, one.run_all):
        try:
            call(pageviews.add("/é€"))
        except roost.Invalid:  # MySQL is asked for it at each call
            done = False
    one.commit()
    assert store.run(pageviews.keys()) == ["/home", *["/é€"] * done]


@pytest.mark.ways("MySQL's protocol", "driver")
def test_the_cursors_and_converters_of_the_connection_do_not_matter(open_store: Make, app: Connect, way: Way) -> None:
    store = open_store(everything)
    package, cursor = ("pymysql", "cursorclass") if way.name == "pymysql" else ("asyncmy", "cursor_cls")
    cursors, converters = (importlib.import_module(f"{package}.{name}") for name in ("cursors", "converters"))
    conv = {**converters.conversions, FIELD_TYPE.NEWDECIMAL: float, FIELD_TYPE.DATETIME: str, FIELD_TYPE.LONGLONG: str}
    one = app(use_unicode=False, conv=conv, **{cursor: cursors.DictCursor})
    comes_back(store, one)
    name = "use_unicode" if way.name == "pymysql" else "_use_unicode"
    assert getattr(one.connection, name) is False


@pytest.mark.ways("postgresql")
def test_the_settings_of_the_session_do_not_matter(open_store: Make, app: Connect) -> None:
    store = open_store(everything)
    one = app()
    one.sql("SET LOCAL TIME ZONE 'Asia/Kathmandu'")
    one.sql("SET LOCAL DateStyle = 'German'")
    one.sql("SET LOCAL extra_float_digits = -15")
    one.sql("SET LOCAL bytea_output = 'escape'")
    comes_back(store, one)


@pytest.mark.ways("driver", "over psycopg")
def test_row_factories_loaders_and_kinds_of_cursors_do_not_matter(open_store: Make, app: Connect, way: Way) -> None:
    store = open_store(everything)
    kind = psycopg.AsyncClientCursor if way.awaited else psycopg.ClientCursor
    one = app(row_factory=dict_row, cursor_factory=kind, prepare_threshold=0)

    class Upper(TextBinaryLoader):
        def load(self, data: Any) -> Any:
            return bytes(data).upper()

    for type_ in ("numeric", "text", "int8", "uuid"):
        one.connection.adapters.register_loader(type_, Upper)
    one.connection.adapters.register_loader("numeric", FloatLoader)
    comes_back(store, one)
    assert one.connection.row_factory is dict_row


@pytest.mark.ways("postgresql", "driver")
def test_an_encoding_that_cannot_carry_every_text_is_refused(store: Any, app: Connect) -> None:
    one = app()
    one.sql("SET client_encoding = 'LATIN1'")
    with pytest.raises(roost.Invalid, match="client_encoding is LATIN1"):
        one.run(pageviews.add("/home"))


@pytest.mark.ways("over asyncpg", "driver")
def test_f62_type_codecs_of_the_connection_are_refused_and_others_do_not_matter(open_store: Make, app: Connect) -> None:
    store = open_store(everything)
    one = app()

    def set_codec(name: str) -> None:
        convert = {"encoder": str, "decoder": str, "schema": "pg_catalog"}
        one.wait(one.connection.set_type_codec(name, **convert))

    set_codec("json")
    comes_back(store, one)
    set_codec("numeric")
    with pytest.raises(roost.Invalid, match="type codec of its own for numeric"):
        one.run(everything.add(ROW))
    one.wait(one.connection.reset_type_codec("numeric", schema="pg_catalog"))
    comes_back(store, one)


@pytest.mark.ways("postgresql", "driver")
def test_f62_every_operation_is_answered_as_by_the_store(
    open_store: Make, app: Connect, application: Application
) -> None:
    seen = roost.Ring("seen", Seen, per=("site", "page"), keep=3)
    carts = roost.Capped("carts", Egg, per="basket", keep=2, unique="egg", on_full="reject", on_duplicate="refresh")
    store = open_store(*ALL[:1], seen, carts, likes, everything)
    application(VISITS)
    cap(store, keep=2)
    own = roost.Capped.of("visits")
    place = Place("it's \\ %s $1 %", 7)
    asked: list[roost.Operation[Any]] = [
        *(pageviews.add("/a", 2), pageviews.add("/b"), pageviews.total("/a"), pageviews.totals(["/a", "/c"])),
        *(pageviews.top(3), pageviews.keys(), pageviews.keys(after="/a"), pageviews.clear("/b")),
        *[seen.push(Seen(*place, n)) for n in range(5)],
        *(seen.latest(place), seen.latest(place, 1), seen.keys(), seen.keys(after=Place("", 0)), seen.forget(place)),
        *[carts.add(Egg(1, n)) for n in (1, 2, 1)],
        *(carts.get(1, 2), carts.get(1, 3), carts.count(1), carts.keys(), carts.remove(1, 1), carts.clear(1)),
        *(likes.add(1, "a", "b"), likes.size(1), likes.contains(1, "a"), likes.remove(1, "b", "c"), likes.members(1)),
        *(everything.add(ROW), everything.keys(), everything.keys(after=WHO), everything.latest(WHO)),
    ]
    one = app()
    by_driver = [one.run(each) for each in asked]
    one.run_all(*[own.add(uid=1, visitor=n, at=f"2008-{n}") for n in range(4)])
    assert one.run_all(own.count(1), own.keys(), own.keys(after=0)) == (4, [1], [1])  # trimmed at COMMIT
    assert [each.visitor for each in one.run(own.latest(1))] == [3, 2]
    one.rollback()
    assert by_driver == [store.run(each) for each in asked]


@pytest.mark.ways("postgresql", "driver")
def test_f62_a_value_that_is_refused_leaves_the_transaction_as_it_was(
    open_store: Make, app: Connect, application: Application
) -> None:
    application(VISITS)
    store = open_store(pageviews)
    cap(store, keep=2)
    own = roost.Capped.of("visits")
    one = app()
    one.run(pageviews.add("/before"))
    with pytest.raises(roost.StatementFailed):
        one.run_all(pageviews.add("/"), own.add(uid=1, visitor="nobody", at="2008"))
    one.run(pageviews.add("/after"))
    one.commit()
    assert store.run(pageviews.totals(["/before", "/", "/after"])) == {"/before": 1, "/": 0, "/after": 1}


@pytest.mark.ways("over asyncpg", "driver")
def test_f62_connections_of_a_pool_join_in_its_transactions(store: Any, app: Connect, store_url: str) -> None:
    one = app()

    async def main() -> None:
        async with (
            asyncpg.create_pool(store_url, min_size=1, max_size=1, statement_cache_size=0) as pool,
            pool.acquire() as connection,
        ):
            joined = one.store.on(connection)
            async with connection.transaction():
                await joined.run_all(visits.push(Visit(1, 1)), pageviews.add("/home"))
                with pytest.raises(roost.Duplicate):
                    await joined.run_all(likes.add(1, "a"), baskets.add(Egg(1, 1)), baskets.add(Egg(1, 1)))
            undone = connection.transaction()
            await undone.start()
            await joined.run(pageviews.add("/home"))
            await undone.rollback()
            async with connection.transaction(), connection.transaction():
                await joined.run(likes.add(1, "b"))

    one.wait(main())
    assert store.run_all(visits.latest(1), pageviews.total("/home")) == ([Visit(1, 1)], 1)
    assert store.run_all(likes.members(1), baskets.count(1)) == ({"b"}, 0)


@pytest.mark.ways("over asyncpg", "driver")
def test_f62_a_command_that_takes_too_long_is_busy_and_the_transaction_goes_on(store: Any, app: Connect) -> None:
    store.run(visits.push(Visit(1, 1)))
    holder, one = app(), app(command_timeout=2.0)
    one.run(pageviews.add("/kept"))
    holder.run(visits.push(Visit(1, 2)))
    with pytest.raises(roost.Busy):
        one.run_all(likes.add(1, "a"), visits.push(Visit(1, 3)))
    holder.commit()
    assert one.run(visits.push(Visit(1, 4))) == 3
    one.commit()
    assert store.run_all(pageviews.total("/kept"), likes.size(1)) == (1, 0)


@pytest.mark.ways("postgresql", "psycopg")
def test_in_pipeline_mode_it_is_refused(store: Any, app: Connect) -> None:
    one = app()
    with one.connection.pipeline(), pytest.raises(roost.Invalid, match="pipeline"):
        one.run(pageviews.add("/home"))


@pytest.mark.ways("postgresql")
def test_a_transaction_that_has_failed_already_says_so(store: Any, app: Connect) -> None:
    one = app()
    with pytest.raises(Exception, match="division"):
        one.sql("SELECT 1 / 0")
    for operation in (pageviews.add("/home"), pageviews.total("/home")):
        with pytest.raises(roost.Invalid, match=r"has failed, .* roll it back"):
            one.run(operation)
    one.rollback()
    one.run(pageviews.add("/home"))
    one.commit()
    assert store.run(pageviews.total("/home")) == 1


@pytest.mark.ways("MySQL's protocol")
def test_what_is_left_of_a_call_whose_trigger_fails_is_nothing(open_store: Make, app: Connect, sql: Any) -> None:
    """1305 is a missing savepoint's number and a missing function's; any number may be a trigger's own."""
    likes = roost.Set("zlikes", key=int, member=str)
    store = open_store(pageviews, likes)
    for body in (
        "SET @a = gone(NEW.member)",
        *[
            f"SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = {number}, MESSAGE_TEXT = 'not on my watch'"
            for number in (1213, 1020, 1412, 1305, 1205)
        ],
    ):
        sql.execute("DROP TRIGGER IF EXISTS refuses")
        sql.execute(f"CREATE TRIGGER refuses AFTER INSERT ON roost_zlikes_rows FOR EACH ROW {body}")
        one = app()
        one.sql("SELECT 1")
        for _ in range(2):
            with pytest.raises(roost.Error):
                one.run_all(pageviews.add("/home"), likes.add(1, "a"))
        one.run(pageviews.add("/other"))
        one.commit()
    assert store.run(pageviews.total("/home")) == 0
    assert store.run(pageviews.total("/other")) == 6
    assert store.run(likes.members(1)) == set()
    sql.execute("DROP TRIGGER refuses")
