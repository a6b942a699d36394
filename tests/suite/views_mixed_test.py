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
import pytest

import roost
from tests.lengths import length
from tests.suite import clients
from tests.suite.shapes import Egg, Visit, likes, pageviews, rows, visits

pytestmark = pytest.mark.needs("psycopg")

Open = Callable[..., roost.Store]
Work = Callable[[Any, int], Iterator[Any]]  # a store or a client, and the worker's number; yields what it was told
TURNS = length(40, 300)


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


def until_it_holds(sql: clients.Client, statement: str, *values: Any) -> list[Any]:
    """Run a statement at REPEATABLE READ, where it is exact or refused with 40001, and its answer."""
    while True:
        sql.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        try:
            found = sql.execute(statement, values).fetchall()
            sql.execute("COMMIT")
            return found
        except psycopg.errors.SerializationFailure:
            sql.execute("ROLLBACK")


@pytest.mark.parametrize("keys", [1, 100])
def test_totals_are_exact(open_store: Open, store_url: str, keys: int) -> None:
    store = open_store(pageviews)

    def adds(each: roost.Store, _: int) -> Iterator[Any]:
        for turn in range(TURNS):
            yield each.run(pageviews.add(f"/{turn % keys}", 3))

    def inserts(sql: clients.Client, _: int) -> Iterator[Any]:
        for turn in range(TURNS):
            yield sql.execute("INSERT INTO pageviews VALUES (?, 5)", (f"/{turn % keys}",))

    def updates(sql: clients.Client, _: int) -> Iterator[Any]:
        for turn in range(TURNS):
            yield sql.execute("UPDATE pageviews SET total = total + 7 WHERE key = ?", (f"/{turn % keys}",)).rowcount

    def deletes(sql: clients.Client, _: int) -> Iterator[Any]:
        for turn in range(TURNS):
            statement = "DELETE FROM pageviews WHERE key = ? RETURNING total"
            yield from [total for (total,) in until_it_holds(sql, statement, f"/{turn % keys}")]

    added, inserted, updated, deleted = at_once(open_store, store_url, adds, inserts, updates, deletes)
    left = sum(store.run(pageviews.totals([f"/{n}" for n in range(keys)])).values())
    assert 3 * len(added) + 5 * len(inserted) + 7 * sum(updated) == left + sum(deleted)


@pytest.mark.parametrize("keys", [1, 100])
def test_sequences_have_no_hole_and_the_newest_stay(open_store: Open, store_url: str, keys: int) -> None:
    store = open_store(visits)

    def pushes(each: roost.Store, number: int) -> Iterator[Any]:
        for turn in range(TURNS):
            yield turn % keys, each.run(visits.push(Visit(turn % keys, number)))

    def inserts(sql: clients.Client, number: int) -> Iterator[Any]:
        for turn in range(TURNS):
            statement = "INSERT INTO visits (uid, visitor) VALUES (?, ?) RETURNING uid, sequence"
            yield from sql.execute(statement, (turn % keys, number)).fetchall()

    def updates(sql: clients.Client, number: int) -> Iterator[Any]:
        for turn in range(TURNS):
            statement = "UPDATE visits SET visitor = visitor WHERE uid = ? AND visitor = ?"
            yield sql.execute(statement, (turn % keys, number - 4))

    def deletes(sql: clients.Client, number: int) -> Iterator[Any]:
        for turn in range(TURNS):
            yield sql.execute("DELETE FROM visits WHERE uid = ? AND visitor = ?", (turn % keys, number % 8))

    pushed, inserted, *_ = at_once(open_store, store_url, pushes, inserts, updates, deletes)
    found: dict[int, list[int]] = {}
    for key, sequence in pushed + inserted:
        found.setdefault(key, []).append(sequence)
    assert all(sorted(each) == list(range(1, len(each) + 1)) for each in found.values())
    pushed, inserted = at_once(open_store, store_url, pushes, inserts)
    for key, times in Counter(key for key, _ in pushed + inserted).items():
        last = len(found[key]) + times
        newest = list(range(last - min(times, 5) + 1, last + 1))
        assert [each.sequence for each in store.run(visits.entries(key))][-len(newest) :] == newest


@pytest.mark.parametrize("keys", [1, 100])
@pytest.mark.parametrize("on_full", ["evict", "reject"])
@pytest.mark.parametrize("on_duplicate", ["error", "refresh"])
def test_a_collection_holds_its_newest_and_its_count(
    open_store: Open, store_url: str, keys: int, on_full: Any, on_duplicate: Any
) -> None:
    capped = roost.Capped(
        "capped", Egg, per="basket", keep=12, unique="egg", on_full=on_full, on_duplicate=on_duplicate
    )
    store, ids = open_store(capped), count()
    full = (roost.Full, psycopg.errors.CheckViolation) if on_full == "reject" else ()

    def some() -> int:
        return next(ids) if on_duplicate == "error" else next(ids) % 20

    def adds(each: roost.Store, _: int) -> Iterator[Any]:
        for turn in range(TURNS):
            with suppress(*full[:1]):
                yield each.run(capped.add(Egg(turn % keys, some())))

    def inserts(sql: clients.Client, _: int) -> Iterator[Any]:
        for turn in range(TURNS):
            statement = "INSERT INTO capped (basket, egg, colour) VALUES (?, ?, 'red')"
            with suppress(*full[1:]):
                yield sql.execute(statement, (turn % keys, some()))

    def deletes(sql: clients.Client, _: int) -> Iterator[Any]:
        for turn in range(TURNS):
            found = sql.execute("SELECT egg FROM capped WHERE basket = ? ORDER BY sequence", (turn % keys,)).fetchall()
            for (egg,) in found[turn % 3 :: 5]:
                yield sql.execute("DELETE FROM capped WHERE basket = ? AND egg = ?", (turn % keys, egg))

    def clears(sql: clients.Client, number: int) -> Iterator[Any]:
        for turn in range(TURNS // 10):
            yield sql.execute("DELETE FROM capped WHERE basket = ?", ((turn * number) % keys,))

    at_once(open_store, store_url, adds, inserts, deletes, clears)
    assert store.check() == []
    if on_full == "evict":
        at_once(open_store, store_url, adds, inserts)
        for key in store.run(capped.keys(n=100)):
            sequences = [each.sequence for each in store.run(capped.entries(key))]
            assert len(sequences) <= 12
            if on_duplicate == "error" and len(sequences) == 12 and keys == 1:
                assert sequences == list(range(sequences[-1] - 11, sequences[-1] + 1))


@pytest.mark.parametrize("keys", [1, 100])
def test_sizes_are_exact(open_store: Open, store_url: str, keys: int) -> None:
    store = open_store(likes)

    def adds(each: roost.Store, number: int) -> Iterator[Any]:
        for turn in range(TURNS):
            yield each.run(likes.add(turn % keys, f"{turn % 7}", f"{number}"))
            yield -each.run(likes.remove(turn % keys, f"{turn % 5}"))

    def inserts(sql: clients.Client, number: int) -> Iterator[Any]:
        for turn in range(TURNS):
            statement = "INSERT INTO likes (key, member) VALUES (?, ?), (?, ?)"
            yield sql.execute(statement, (turn % keys, f"{turn % 7}", turn % keys, f"{number}")).rowcount

    def deletes(sql: clients.Client, number: int) -> Iterator[Any]:
        for turn in range(TURNS):
            statement = "DELETE FROM likes WHERE key = ? AND member = ?"
            yield -sql.execute(statement, (turn % keys, f"{(turn + number) % 9}")).rowcount

    found = at_once(open_store, store_url, adds, inserts, deletes)
    assert sum(store.run(likes.size(key)) for key in range(keys)) == sum(sum(each) for each in found)


def test_an_alter_disturbs_no_client(open_store: Open, store_url: str) -> None:
    open_store(visits)

    def alters(each: roost.Store, _: int) -> Iterator[Any]:
        for keep in (9, 3, 4):
            yield each.alter(roost.Ring("visits", Visit, per="uid", keep=keep))

    def inserts(sql: clients.Client, number: int) -> Iterator[Any]:
        for turn in range(TURNS):
            yield sql.execute("INSERT INTO visits (uid, visitor) VALUES (?, ?)", (turn % 10, number))

    def deletes(sql: clients.Client, number: int) -> Iterator[Any]:
        for turn in range(TURNS // 4):
            yield sql.execute("DELETE FROM visits WHERE uid = ? AND visitor = ?", (turn % 10, number - 4))

    at_once(open_store, store_url, alters, inserts, deletes)
    with clients.connect(store_url) as sql:
        assert rows(sql, "SELECT sum(sequence) FROM roost_visits_head") == [(4 * TURNS,)]
