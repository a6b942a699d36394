"""What mypy and pyright infer for everything public; the lines are run as well, so the values have these types."""

from __future__ import annotations

import asyncio
import datetime as dt
import enum
import sqlite3
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple, assert_type

import roost
from roost.structures.structure import Structure

if TYPE_CHECKING:
    import aiosqlite
    import asyncmy.connection
    import asyncpg  # type: ignore[import-untyped]
    import psycopg
    import pymysql
    import sqlalchemy as sa
    import sqlalchemy.ext.asyncio as sa_async
    from sqlalchemy import orm


class Colour(enum.Enum):
    WHITE = "white"
    BROWN = "brown"


class Place(NamedTuple):
    site: str
    page: int


@dataclass(frozen=True)
class Visit:
    uid: int
    visitor: int


@dataclass(frozen=True)
class Seen:
    site: str
    page: int
    who: int
    points: int = 0


pageviews = roost.Counter("pageviews")
slotted = roost.Counter("slotted", slots=4)
by_id = roost.Counter("by_id", key=int)
by_text = roost.Counter("by_text", key=roost.text(40), slots=2)
by_bytes = roost.Counter("by_bytes", key=roost.binary(16))
by_price = roost.Counter("by_price", key=roost.decimal(12, 2))
by_place = roost.Counter("by_place", key=Place)
by_colour = roost.Counter("by_colour", key=Colour)
by_day = roost.Counter("by_day", key=dt.date)
by_uuid = roost.Counter("by_uuid", key=uuid.UUID)

hourly = roost.Counter("hourly", window="hour", keep=72)  # F121: options, whatever the class has
hourly_by_id = roost.Counter("hourly_by_id", key=int, window=dt.timedelta(minutes=5), keep=2)

visits = roost.Ring("visits", Visit, per="uid", keep=5)
pairs = roost.Ring("pairs", Seen, per=("site", "page"), keep=5)
seen = roost.Ring("seen", Seen, per=Place, keep=5)
friends = roost.Capped("friends", Visit, per="uid", keep=5, unique="visitor", on_duplicate="refresh")
callers = roost.Capped("callers", Seen, per=Place, keep=5, unique=("who",), on_full="reject")
ranked = roost.Capped("ranked", Seen, per="site", keep=5, unique="page", order="points", on_duplicate="best")
ranked_by_place = roost.Capped("ranked_by_place", Seen, per=Place, keep=5, unique="who", order="points", keep_for=60)

words = roost.Set("words")
recent = roost.Set("recent", key=int, keep=9, keep_for=60)
likes = roost.Set("likes", key=int)
tagged = roost.Set("tagged", member=Colour)
lists = roost.Set("lists", key=Place, member=roost.text(40))

STRUCTURES: list[Structure] = [
    pageviews, slotted, by_id, by_text, by_bytes, by_price, by_place, by_colour, by_day, by_uuid,
    visits, pairs, seen, friends, callers, words, likes, tagged, lists,
    hourly, hourly_by_id, ranked, ranked_by_place, recent,
]  # fmt: skip
HOME, VISIT, LOOK = Place("a", 1), Visit(1, 2), Seen("a", 1, 3)


def test_declarations() -> None:
    assert_type(pageviews, roost.Counter[str])
    assert_type(slotted, roost.Counter[str])
    assert_type(by_id, roost.Counter[int])
    assert_type(by_text, roost.Counter[str])
    assert_type(by_bytes, roost.Counter[bytes])
    assert_type(by_price, roost.Counter[Decimal])
    assert_type(by_place, roost.Counter[Place])
    assert_type(by_colour, roost.Counter[Colour])
    assert_type(by_day, roost.Counter[dt.date])
    assert_type(by_uuid, roost.Counter[uuid.UUID])
    assert_type(visits, roost.Ring[Visit, Any])
    assert_type(pairs, roost.Ring[Seen, Any])
    assert_type(seen, roost.Ring[Seen, Place])
    assert_type(friends, roost.Capped[Visit, Any])
    assert_type(callers, roost.Capped[Seen, Place])
    assert_type(hourly, roost.Counter[str])
    assert_type(hourly_by_id, roost.Counter[int])
    assert_type(ranked, roost.Capped[Seen, Any, bool])
    assert_type(ranked_by_place, roost.Capped[Seen, Place, bool])
    assert_type(recent, roost.Set[int, str])
    assert_type(words, roost.Set[str, str])
    assert_type(likes, roost.Set[int, str])
    assert_type(tagged, roost.Set[str, Colour])
    assert_type(lists, roost.Set[Place, str])
    names = [assert_type(structure.name, str) for structure in STRUCTURES]
    assert len(set(names)) == len(STRUCTURES)


def test_sets_in_memcached() -> None:
    assert_type(roost.MemcachedSet("words"), roost.MemcachedSet[str, str])
    assert_type(roost.MemcachedSet("likes", int), roost.MemcachedSet[int, str])
    assert_type(roost.MemcachedSet("tagged", member=Colour, ttl=60), roost.MemcachedSet[str, Colour])
    assert_type(roost.MemcachedSet("blobs", roost.text(40), bytes, shards=0), roost.MemcachedSet[str, bytes])
    lists = roost.MemcachedSet("lists", Place, roost.text(40), encoding="readable")
    assert_type(lists, roost.MemcachedSet[Place, str])
    assert_type(lists.add(HOME, "a", "b"), roost.Operation[None])
    assert_type(lists.remove(HOME, "a"), roost.Operation[None])
    assert_type(lists.replace(HOME, {"a"}), roost.Operation[None])
    assert_type(lists.clear(HOME), roost.Operation[None])
    assert_type(lists.forget(HOME), roost.Operation[None])
    assert_type(lists.members(HOME), roost.Operation[set[str]])
    assert_type(lists.contains(HOME, "a"), roost.Operation[bool])
    assert_type(lists.size(HOME), roost.Operation[int])
    info = assert_type(lists.info(HOME), roost.Operation[roost.SetInfo])
    if TYPE_CHECKING:
        found = roost.Store("memcached://host").run(info)
        assert_type(found.complete, bool)
        assert_type(found.expires, dt.datetime | None)
    assert repr(info) == "lists.info(Place(site='a', page=1))"


def test_operations_of_counters() -> None:
    assert_type(pageviews.add("/home"), roost.Operation[None])
    assert_type(pageviews.add("/home", 3), roost.Operation[None])
    assert_type(by_id.add(5, -1), roost.Operation[None])
    assert_type(by_id.add_all({5: -1}), roost.Operation[None])
    assert_type(by_place.add(HOME), roost.Operation[None])
    assert_type(pageviews.total("/home"), roost.Operation[int])
    assert_type(by_colour.total(Colour.WHITE), roost.Operation[int])
    assert_type(pageviews.totals(["/home"]), roost.Operation[dict[str, int]])
    assert_type(by_id.totals(range(3)), roost.Operation[dict[int, int]])
    assert_type(by_place.totals({HOME}), roost.Operation[dict[Place, int]])
    assert_type(by_price.totals((Decimal(1),)), roost.Operation[dict[Decimal, int]])
    assert_type(pageviews.top(), roost.Operation[list[tuple[str, int]]])
    assert_type(by_place.top(3), roost.Operation[list[tuple[Place, int]]])
    assert_type(by_bytes.keys(), roost.Operation[list[bytes]])
    assert_type(by_uuid.keys(uuid.UUID(int=1), 5), roost.Operation[list[uuid.UUID]])
    assert_type(by_day.clear(dt.date(2008, 1, 1)), roost.Operation[int])
    assert_type(by_text.forget("a"), roost.Operation[int])
    assert_type(hourly.total("/home", last=24), roost.Operation[int])
    assert_type(hourly_by_id.series(5, last=2), roost.Operation[list[tuple[dt.datetime, int]]])
    assert assert_type(pageviews.add("/home").verb, str) == "add"


def test_operations_of_rings() -> None:
    assert_type(visits.push(VISIT), roost.Operation[int])
    assert_type(seen.push(LOOK), roost.Operation[int])
    assert_type(seen.push_all([LOOK, LOOK]), roost.Operation[list[int]])
    assert_type(visits.latest(1), roost.Operation[list[Visit]])
    assert_type(pairs.latest(("a", 1), 3), roost.Operation[list[Seen]])
    assert_type(seen.latest(HOME), roost.Operation[list[Seen]])
    assert_type(visits.entries(1), roost.Operation[list[roost.Entry[Visit]]])
    assert_type(seen.entries(HOME, after=3, n=2), roost.Operation[list[roost.Entry[Seen]]])
    assert_type(visits.keys(), roost.Operation[list[Any]])
    assert_type(seen.keys(HOME, 5), roost.Operation[list[Place]])
    assert_type(visits.clear(1), roost.Operation[int])
    assert_type(seen.forget(HOME), roost.Operation[int])
    assert assert_type(visits.keep, int) == 5


def test_operations_of_capped_collections() -> None:
    assert_type(friends.add(VISIT), roost.Operation[None])
    assert_type(friends.add_all(iter([VISIT])), roost.Operation[None])
    assert_type(friends.remove(1, 2), roost.Operation[bool])
    assert_type(friends.get(1, 2), roost.Operation[Visit | None])
    assert_type(callers.get(HOME, 3), roost.Operation[Seen | None])
    assert_type(callers.remove(HOME, 3), roost.Operation[bool])
    assert_type(friends.count(1), roost.Operation[int])
    assert_type(callers.count(HOME), roost.Operation[int])
    assert_type(friends.latest(1, 2), roost.Operation[list[Visit]])
    assert_type(callers.latest(HOME), roost.Operation[list[Seen]])
    assert_type(friends.entries(1, after=1), roost.Operation[list[roost.Entry[Visit]]])
    assert_type(callers.entries(HOME), roost.Operation[list[roost.Entry[Seen]]])
    assert_type(callers.keys(), roost.Operation[list[Place]])
    assert_type(friends.clear(1), roost.Operation[int])
    assert_type(callers.forget(HOME), roost.Operation[int])
    assert_type(ranked.top("a"), roost.Operation[list[Seen]])
    assert_type(ranked_by_place.rank(HOME, 3), roost.Operation[int | None])
    assert_type(ranked.add(LOOK), roost.Operation[bool])
    assert assert_type(callers.on_full, str) == "reject"


def test_operations_of_sets() -> None:
    assert_type(words.add("a", "b", "c"), roost.Operation[int])
    assert_type(likes.add(7, "ada"), roost.Operation[int])
    assert_type(likes.add_all([(7, "ada")]), roost.Operation[list[bool]])
    assert_type(likes.remove(7), roost.Operation[int])
    assert_type(words.members("a"), roost.Operation[set[str]])
    assert_type(tagged.members("a"), roost.Operation[set[Colour]])
    assert_type(lists.members(HOME), roost.Operation[set[str]])
    assert_type(tagged.contains("a", Colour.WHITE), roost.Operation[bool])
    assert_type(lists.size(HOME), roost.Operation[int])
    assert_type(likes.keys(7), roost.Operation[list[int]])
    assert_type(lists.keys(), roost.Operation[list[Place]])
    assert_type(lists.clear(HOME), roost.Operation[int])
    assert_type(likes.forget(7), roost.Operation[int])
    assert repr(likes.add(7, "ada")) == "likes.add(7, 'ada')"


def use(runner: roost.Runner) -> None:
    """Run every operation on anything that runs them: a store, or the application's transaction."""
    run, run_all = runner.run, runner.run_all
    assert_type(run(pageviews.add("/home", 3)), None)
    assert assert_type(run(pageviews.total("/home")), int) == 3
    assert assert_type(run(pageviews.totals(["/home"])), dict[str, int]) == {"/home": 3}
    assert assert_type(run(pageviews.top()), list[tuple[str, int]]) == [("/home", 3)]
    assert assert_type(run(by_place.totals([HOME])), dict[Place, int]) == {HOME: 0}
    assert assert_type(run(by_place.keys()), list[Place]) == []
    assert assert_type(run(seen.push(LOOK)), int) == 1
    assert assert_type(run(seen.latest(HOME)), list[Seen]) == [LOOK]
    (entry,) = assert_type(run(seen.entries(HOME)), list[roost.Entry[Seen]])
    assert assert_type(entry.row, Seen) == LOOK
    assert assert_type(entry.sequence, int) == 1
    assert assert_type(entry.at, dt.datetime).tzinfo is dt.UTC
    assert assert_type(run(friends.get(1, 2)), Visit | None) is None
    assert assert_type(run(callers.remove(HOME, 3)), bool) is False
    assert assert_type(run(tagged.members("a")), set[Colour]) == set()
    assert assert_type(run(likes.contains(7, "ada")), bool) is False
    assert assert_type(run(visits.keys()), list[Any]) == []

    one, two, three, four = by_id.add(5), by_id.total(5), visits.push(VISIT), visits.latest(1)
    five, six, seven, eight = friends.add(VISIT), friends.get(1, 2), likes.add(7, "ada"), likes.members(7)
    assert assert_type(run_all(one), tuple[None]) == (None,)
    assert assert_type(run_all(one, two), tuple[None, int]) == (None, 2)
    assert assert_type(run_all(one, two, three), tuple[None, int, int]) == (None, 3, 1)
    assert assert_type(run_all(one, two, three, four), tuple[None, int, int, list[Visit]]) == (
        None,
        4,
        2,
        [VISIT, VISIT],
    )
    assert assert_type(run_all(one, two, three, four, five), tuple[None, int, int, list[Visit], None]) == (
        None,
        5,
        3,
        [VISIT] * 3,
        None,
    )
    assert assert_type(
        run_all(one, two, three, four, five, six), tuple[None, int, int, list[Visit], None, Visit | None]
    ) == (None, 6, 4, [VISIT] * 4, None, VISIT)
    assert assert_type(
        run_all(one, two, three, four, five, six, seven), tuple[None, int, int, list[Visit], None, Visit | None, int]
    ) == (None, 7, 5, [VISIT] * 5, None, VISIT, 1)
    assert assert_type(
        run_all(one, two, three, four, five, six, seven, eight),
        tuple[None, int, int, list[Visit], None, Visit | None, int, set[str]],
    ) == (None, 8, 6, [VISIT] * 5, None, VISIT, 0, {"ada"})
    assert assert_type(run_all(*[by_id.total(5) for _ in range(3)]), tuple[int, ...]) == (8, 8, 8)
    assert assert_type(run_all(two, two, two, two, two, two, two, two, two), tuple[int, ...]) == (8,) * 9


def test_a_store() -> None:
    with roost.Store("sqlite://") as store:
        assert_type(store, roost.Store)
        store.create(*STRUCTURES)
        use(store)
        assert assert_type(store.alter(pageviews), list[str]) == []
        assert assert_type(store.check(), list[roost.Violation]) == []
        assert assert_type(store.check(pageviews, visits), list[roost.Violation]) == []
        assert all("CREATE TABLE" in sql for sql in assert_type(store.ddl(visits), list[str])[:3])
        assert len(store.structures()) == len(STRUCTURES)
        stats = assert_type(store.stats(), roost.Stats)
        assert assert_type(stats.batches, int) > 0
        assert assert_type(stats.retries, int) == 0


def test_an_application_s_transaction() -> None:
    connection = sqlite3.connect(":memory:")
    with roost.Store("sqlite://") as store:
        for sql in store.ddl(*STRUCTURES):
            connection.execute(sql)
        runner = assert_type(store.on(connection), roost.Runner)
        use(runner)
        connection.rollback()
        connection.close()


async def use_async(runner: roost.AsyncRunner) -> None:
    """Do a good part of the same with `await`."""
    run, run_all = runner.run, runner.run_all
    assert_type(await run(pageviews.add("/home", 3)), None)
    assert assert_type(await run(pageviews.totals(["/home"])), dict[str, int]) == {"/home": 3}
    assert assert_type(await run(pageviews.top()), list[tuple[str, int]]) == [("/home", 3)]
    assert assert_type(await run(seen.push(LOOK)), int) == 1
    assert assert_type(await run(seen.latest(HOME)), list[Seen]) == [LOOK]
    (entry,) = assert_type(await run(seen.entries(HOME)), list[roost.Entry[Seen]])
    assert assert_type(entry.row, Seen) == LOOK
    assert assert_type(await run(friends.get(1, 2)), Visit | None) is None
    assert assert_type(await run(lists.members(HOME)), set[str]) == set()

    one, two, three, four = by_id.add(5), by_id.total(5), visits.push(VISIT), visits.latest(1)
    five, six, seven, eight = friends.add(VISIT), friends.get(1, 2), likes.add(7, "ada"), likes.members(7)
    assert assert_type(await run_all(one), tuple[None]) == (None,)
    assert assert_type(await run_all(one, two), tuple[None, int]) == (None, 2)
    assert assert_type(await run_all(one, two, three), tuple[None, int, int]) == (None, 3, 1)
    assert_type(await run_all(one, two, three, four), tuple[None, int, int, list[Visit]])
    assert_type(await run_all(one, two, three, four, five), tuple[None, int, int, list[Visit], None])
    assert_type(await run_all(one, two, three, four, five, six), tuple[None, int, int, list[Visit], None, Visit | None])
    assert_type(
        await run_all(one, two, three, four, five, six, seven),
        tuple[None, int, int, list[Visit], None, Visit | None, int],
    )
    assert assert_type(
        await run_all(one, two, three, four, five, six, seven, eight),
        tuple[None, int, int, list[Visit], None, Visit | None, int, set[str]],
    ) == (None, 8, 6, [VISIT] * 5, None, VISIT, 0, {"ada"})
    assert assert_type(await run_all(*[by_id.total(5) for _ in range(3)]), tuple[int, ...]) == (8, 8, 8)
    assert assert_type(await run_all(two, two, two, two, two, two, two, two, two), tuple[int, ...]) == (8,) * 9


def test_an_async_store() -> None:
    async def main() -> None:
        async with roost.AsyncStore("sqlite://") as store:
            assert_type(store, roost.AsyncStore)
            await store.create(*STRUCTURES)
            await use_async(store)
            assert assert_type(await store.alter(pageviews), list[str]) == []
            assert assert_type(await store.check(), list[roost.Violation]) == []
            assert len(await store.structures()) == len(STRUCTURES)
            assert assert_type(store.stats(), roost.Stats).operations > 0
            catalog, *_ = assert_type(store.ddl(pageviews, view=False), list[str])
            assert assert_type(catalog, str).startswith("CREATE TABLE")
            first, second = await asyncio.gather(store.run(by_id.total(5)), store.run(words.members("a")))
            assert assert_type(first, int) == 8
            assert assert_type(second, set[str]) == set()

    asyncio.run(main())


def test_an_application_s_transaction_in_asyncio() -> None:
    async def main() -> None:
        connection = sqlite3.connect(":memory:")
        async with roost.AsyncStore("sqlite://") as store:
            for sql in store.ddl(*STRUCTURES):
                connection.execute(sql)
            await use_async(assert_type(store.on(connection), roost.AsyncRunner))
            connection.rollback()
            connection.close()

    asyncio.run(main())


def test_an_operation_is_covariant_and_a_function_can_be_generic_in_it() -> None:
    def twice(store: roost.Runner, operation: roost.Operation[int]) -> int:
        return 2 * store.run(operation)

    def wider(store: roost.Runner, operation: roost.Operation[int | str]) -> int | str:
        return assert_type(store.run(operation), int | str)

    with roost.Store("sqlite://") as store:
        store.create(pageviews)
        assert assert_type(twice(store, pageviews.total("/home")), int) == 0
        assert wider(store, pageviews.total("/home")) == 0


def test_errors_are_classes_with_a_word_on_retries() -> None:
    assert assert_type(roost.Error.retry, bool) is False
    assert roost.Busy("").retry is True
    kinds: list[type[roost.Error]] = [roost.Invalid, roost.Missing, roost.Duplicate, roost.Full, roost.StatementFailed]
    assert all(issubclass(kind, roost.Error) for kind in kinds)


def test_what_the_types_forbid_is_refused() -> None:
    # Each line is a mistake that both checkers find; without their finding the comment would be one too.
    mistakes: list[Callable[[], object]] = [
        lambda: pageviews.add(5),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        lambda: pageviews.add("/home", "3"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        lambda: by_id.total("5"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        lambda: by_place.add(5),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        lambda: visits.push(LOOK),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        lambda: visits.push_all([LOOK]),  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
        lambda: likes.add_all([("7", "ada")]),  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
        lambda: pageviews.add_all({5: 1}),  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]
        lambda: seen.latest("a"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        lambda: likes.add("7", "ada"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        lambda: tagged.add("a", "white"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        lambda: roost.Ring("r", Visit, per=5, keep=1),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        lambda: roost.Capped("c", Visit, per="uid", keep=1, unique="visitor", on_full="drop"),  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    ]  # fmt: skip
    for mistake in mistakes:
        try:
            mistake()
        except roost.Invalid:
            continue
        raise AssertionError("a mistake was not refused")


def every_connection_is_taken(
    store: roost.Store,
    one: pymysql.Connection[Any],
    two: psycopg.Connection[tuple[Any, ...]],
    three: sa.Connection,
    four: orm.Session,
    five: orm.scoped_session[orm.Session],
) -> None:
    """Only for type checkers: no driver is needed to run this file."""
    for runner in (store.on(one), store.on(two), store.on(three), store.on(four), store.on(five)):
        assert_type(runner, roost.Runner)
    store.on("connection")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def every_awaited_connection_is_taken(
    store: roost.AsyncStore,
    one: asyncmy.connection.Connection,
    two: psycopg.AsyncConnection[tuple[Any, ...]],
    three: sa_async.AsyncConnection,
    four: sa_async.AsyncSession,
    five: sa_async.async_scoped_session[sa_async.AsyncSession],
    six: aiosqlite.Connection,
    seven: sqlite3.Connection,
    eight: asyncpg.Connection,
) -> None:
    """Only for type checkers, as above."""
    for runner in (store.on(one), store.on(two), store.on(three), store.on(four), store.on(five), store.on(six)):
        assert_type(runner, roost.AsyncRunner)
    assert_type(store.on(seven), roost.AsyncRunner)
    assert_type(store.on(eight), roost.AsyncRunner)


def the_other_kind_is_not(
    store: roost.Store, two: psycopg.AsyncConnection[Any], other: roost.AsyncStore, one: pymysql.Connection[Any]
) -> None:
    """Only for type checkers, as above."""
    store.on(two)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    other.on(one)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
