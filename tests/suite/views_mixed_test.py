"""Views and the library at once: nobody gets an error, nothing is lost, counted twice or evicted too early."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from threading import Barrier
from typing import Any

import psycopg
import pymysql
import pytest

import roost
from tests.lengths import length
from tests.suite import clients
from tests.suite.clients import PostgreSQLClient
from tests.suite.shapes import Egg, Open, Visit, likes, pageviews, visits
from tests.suite.views import into, remove

pytestmark = pytest.mark.needs("programs for SQL")
by_keys = pytest.mark.parametrize("keys", [1, 100])
by_options = pytest.mark.parametrize(
    ("on_full", "on_duplicate"), [(full, same) for full in ("evict", "reject") for same in ("error", "refresh")]
)

Work = Callable[[Any, int], Iterator[Any]]  # a store or a client, and the worker's number; yields what it was told
TURNS = length(12, 300)

DEADLOCK = 1213


def at_once(open_store: Open, url: str, library: Work, *foreign: Work) -> list[list[Any]]:
    """Let four stores do one thing and four SQL clients each of the others; return what they were told, by thing."""
    stores = [open_store() for _ in range(4)]
    connections = [clients.connect(url) for _ in range(4 * len(foreign))]
    work: list[tuple[Work, Any]] = [(library, store) for store in stores]
    work += [(each, connections[4 * i + j]) for i, each in enumerate(foreign) for j in range(4)]
    start = Barrier(len(work))

    def run(number: int) -> list[Any]:
        do, with_ = work[number]
        start.wait()
        return list(do(with_, number))

    with ThreadPoolExecutor(len(work)) as pool:
        found = list(pool.map(run, range(len(work))))
    for connection in connections:
        connection.close()
    return [[each for part in found[i : i + 4] for each in part] for i in range(0, len(found), 4)]


def until_it_holds(sql: Any, statement: str, *values: Any) -> Any:
    """Run a statement at REPEATABLE READ, where it is exact or refused with 40001, and its answer."""
    while True:
        with suppress(psycopg.errors.SerializationFailure), sql.transaction():
            sql.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            return sql.execute(statement, values).fetchall()


def until_done(work: Callable[..., Any], *values: Any, **row: Any) -> Any:
    """Repeat what may meet a deadlock."""
    while True:  # what is removed, or is not there, leaves a gap, for which two who insert wait
        try:
            return work(*values, **row)
        except pymysql.err.OperationalError as error:
            if error.args[0] != DEADLOCK:
                raise


@by_keys
def test_totals_are_exact(open_store: Open, store_url: str, sql: Any, keys: int) -> None:
    store, postgresql = open_store(pageviews), isinstance(sql, PostgreSQLClient)

    def key_of(turn: int, number: int) -> str:
        return f"/{(turn + number) % keys}"

    def total() -> int:
        return sum(store.run(pageviews.totals([f"/{n}" for n in range(100)])).values())

    def adds(each: roost.Store, number: int) -> Iterator[Any]:
        for turn in range(TURNS):
            yield each.run_all(pageviews.add(key_of(turn, number), 3), pageviews.add("/0"), pageviews.add("/99"))

    def insert(client: Any, key: str) -> Any:
        return client.execute(f"INSERT INTO {into(sql, 'pageviews')} VALUES (?, 5)", (key,))

    def inserts(client: Any, number: int) -> Iterator[Any]:
        for turn in range(TURNS):
            yield insert(client, key_of(turn, number))

    def clears(client: Any, _: int) -> Iterator[Any]:
        for _ in range(TURNS):
            yield until_done(remove, client, "pageviews", key="/nobody")

    def updates(client: Any, number: int) -> Iterator[Any]:
        for turn in range(TURNS):
            add = "UPDATE pageviews SET total = total + 7 WHERE key = ?"
            yield client.execute(add, (key_of(turn, number),)).rowcount

    def deletes(client: Any, number: int) -> Iterator[Any]:
        delete = "DELETE FROM pageviews WHERE key = ? RETURNING total"
        for turn in range(TURNS):
            yield from until_it_holds(client, delete, key_of(turn, number))

    def inserts_again(client: Any, number: int) -> Iterator[Any]:
        for turn in range(TURNS):
            yield until_done(insert, client, key_of(turn, number))

    def removes(client: Any, number: int) -> Iterator[Any]:
        for turn in range(TURNS):
            yield until_done(remove, client, "pageviews", key=key_of(turn, number))

    added, inserted, _ = at_once(open_store, store_url, adds, inserts, clears)
    assert total() == 5 * len(added) + 5 * len(inserted) == 10 * 4 * TURNS
    if postgresql:
        *_, updated, deleted = at_once(open_store, store_url, adds, inserts, updates, deletes)
        assert 2 * 10 * 4 * TURNS + 7 * sum(updated) == total() + sum(gone for (gone,) in deleted)
    else:
        at_once(open_store, store_url, adds, inserts_again, removes)
        assert total() <= 2 * 10 * 4 * TURNS


@by_keys
def test_sequences_have_no_hole_and_the_newest_stay(open_store: Open, store_url: str, sql: Any, keys: int) -> None:
    store, postgresql = open_store(visits), isinstance(sql, PostgreSQLClient)

    def pushes(each: roost.Store, number: int) -> Iterator[Any]:
        for turn in range(TURNS):
            mine = [(turn + n) % keys for n in range(3)]
            yield from zip(mine, each.run_all(*[visits.push(Visit(key, number)) for key in mine]), strict=True)

    def inserts(client: Any, number: int) -> Iterator[Any]:
        insert = f"INSERT INTO {into(sql, 'visits')} (uid, visitor) VALUES (?, ?)"
        for turn in range(TURNS):
            key = (turn + number) % keys
            told = client.execute(insert + (" RETURNING sequence" if postgresql else ""), (key, number))
            yield key, told.fetchone()[0] if postgresql else None

    def removes(client: Any, _: int) -> Iterator[Any]:
        for turn in range(TURNS):
            found = client.execute("SELECT sequence FROM visits WHERE uid = ?", (turn % keys,)).fetchall()
            yield from [remove(client, "visits", uid=turn % keys, sequence=each) for (each,) in found[::3]]

    def updates(client: Any, number: int) -> Iterator[Any]:
        update = "UPDATE visits SET visitor = visitor WHERE uid = ? AND visitor = ?"
        for turn in range(TURNS if postgresql else 0):
            yield client.execute(update, (turn % keys, number - 4))

    pushed, inserted, *_ = at_once(open_store, store_url, pushes, inserts, removes, updates)
    given = pushed + inserted
    sequences = [each for each in given if each[1] is not None]
    assert len(sequences) == len({*sequences})
    times = Counter(key for key, _ in given)
    assert [all(each[1] <= times[each[0]] for each in sequences)] == [True]
    pushed, inserted = at_once(open_store, store_url, pushes, inserts)
    more = Counter(key for key, _ in pushed + inserted)
    for key in store.run(visits.keys(n=100)):
        last = times[key] + more[key]
        newest = list(range(last - min(more[key], 5) + 1, last + 1))
        assert [each.sequence for each in store.run(visits.entries(key))][-len(newest) :] == newest


@by_keys
@by_options
def test_a_collection_holds_its_newest_and_its_count(
    open_store: Open, store_url: str, sql: Any, keys: int, on_full: Any, on_duplicate: Any
) -> None:
    capped = roost.Capped(
        "capped", Egg, per="basket", keep=12, unique="egg", on_full=on_full, on_duplicate=on_duplicate
    )
    store, ids = open_store(capped), count()

    def some() -> int:
        return next(ids) if on_duplicate == "error" else next(ids) % 20

    def adds(each: roost.Store, number: int) -> Iterator[Any]:
        for turn in range(TURNS):
            with suppress(*[roost.Full] * (on_full == "reject")):
                yield each.run(capped.add(Egg((turn + number) % keys, some())))
            yield each.run_all(*[capped.remove((turn * n) % keys, next(ids) % 20) for n in range(5)])

    def inserts(client: Any, number: int) -> Iterator[Any]:
        insert = f"INSERT INTO {into(sql, 'capped')} (basket, egg, colour) VALUES (?, ?, 'red')"
        for turn in range(TURNS):
            try:
                yield client.execute(insert, ((turn + number) % keys, some()))
            except (pymysql.Error, psycopg.errors.CheckViolation) as error:
                if on_full != "reject" or "is full" not in str(error):
                    raise

    def removes(client: Any, number: int) -> Iterator[Any]:
        for turn in range(TURNS):
            key = (turn + number) % keys
            found = client.execute("SELECT egg FROM capped WHERE basket = ? ORDER BY sequence", (key,)).fetchall()
            for egg in [*[egg for (egg,) in found[turn % 3 :: 5]], -1]:
                yield remove(client, "capped", basket=key, egg=egg)

    at_once(open_store, store_url, adds, inserts, removes)
    assert store.check() == []
    if on_full == "evict":
        at_once(open_store, store_url, lambda each, _: iter(()), inserts, inserts)
        for key in store.run(capped.keys(n=100)):
            sequences = [each.sequence for each in store.run(capped.entries(key))]
            assert len(sequences) <= 12
            if on_duplicate == "error" and keys == 1:
                assert sequences == list(range(sequences[-1] - 11, sequences[-1] + 1))


@by_keys
def test_sizes_are_exact(open_store: Open, store_url: str, sql: Any, keys: int) -> None:
    store = open_store(likes)

    def changes(each: roost.Store, number: int) -> Iterator[Any]:
        for turn in range(TURNS):
            yield each.run_all(
                likes.add(turn % keys, f"{turn % 7}", f"{number}"),
                likes.remove((turn + 1) % keys, f"{turn % 5}", "3"),
                likes.remove((turn + number) % keys, f"{turn % 9}"),
            )

    def inserts(client: Any, number: int) -> Iterator[Any]:
        insert = f"INSERT INTO {into(sql, 'likes')} VALUES (?, ?), (?, ?)"
        for turn in range(TURNS):
            key = (turn + number) % keys
            yield client.execute(insert, (key, f"{turn % 9}", key, f"{turn % 4}"))

    def removes(client: Any, number: int) -> Iterator[Any]:
        for turn in range(TURNS):
            yield remove(client, "likes", key=(turn + number) % keys, member=f"{turn % 9}")

    at_once(open_store, store_url, changes, inserts, removes)
    assert store.check() == []
    held = [(key, store.run(likes.size(key)), len(store.run(likes.members(key)))) for key in range(keys)]
    assert [each for each in held if each[1] != each[2]] == []


@pytest.mark.needs("inlets")
@by_keys
def test_a_delete_of_the_rows_harms_nobody_s_count(open_store: Open, store_url: str, keys: int) -> None:
    """It locks the rows before the head, so it may be answered 1213, and so may an inlet; the library is not."""
    open_store(likes)

    def changes(each: roost.Store, number: int) -> Iterator[Any]:
        for turn in range(TURNS):
            yield each.run_all(
                likes.add((turn + number) % keys, f"{turn % 7}"), likes.remove(turn % keys, f"{turn % 5}")
            )

    def deletes(sql: Any, number: int) -> Iterator[Any]:
        delete = "DELETE FROM roost_likes_rows WHERE `key` = ? AND member = ?"
        for turn in range(TURNS):
            yield until_done(sql.execute, delete, ((turn + number) % keys, f"{turn % 7}"))

    at_once(open_store, store_url, changes, deletes)


@pytest.mark.needs("inlets")
@by_options
@pytest.mark.parametrize("keep_for", [None, 1])
@pytest.mark.parametrize("keys", [12, 48])
def test_who_adds_to_different_keys_meets_no_deadlock(
    open_store: Open, store_url: str, sql: Any, on_full: Any, on_duplicate: Any, keep_for: int | None, keys: int
) -> None:
    options = {"on_full": on_full, "on_duplicate": on_duplicate, "keep_for": keep_for}
    open_store(roost.Capped("capped", Egg, per="basket", keep=3, unique="egg", **options))
    # Whatever is looked up is looked up long before the row is written.
    sql.execute("CREATE TRIGGER slow BEFORE INSERT ON roost_capped_rows FOR EACH ROW DO SLEEP(0.005)")

    def inserts(client: Any, number: int) -> Iterator[Any]:
        for turn in range(12):
            values = ((number + 4 * turn) % keys, 99 - turn % 5)
            try:
                yield client.execute("INSERT INTO capped_in VALUES (?, ?, 'red')", values)
            except pymysql.Error as error:
                if error.args[0] == DEADLOCK:
                    raise

    at_once(open_store, store_url, lambda each, _: iter(()), inserts)
    sql.execute("DROP TRIGGER slow")
