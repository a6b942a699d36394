"""Views of MariaDB and the library at once: nobody gets an error, nothing is lost, doubled or evicted too early."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from typing import Any

import pymysql
import pytest

import roost
from tests.suite.shapes import Egg, Visit, likes, pageviews, visits
from tests.suite.views_mixed_test import TURNS, at_once

pytestmark = [pytest.mark.needs("inlets"), pytest.mark.parametrize("keys", [1, 100])]

Open = Callable[..., roost.Store]


def until_done(sql: Any, statement: str, *row: Any) -> Any:
    while True:  # what is removed, or is not there, leaves a gap, for which two who insert wait
        try:
            return sql.execute(statement, row)
        except pymysql.err.OperationalError as error:
            if error.args[0] != 1213:
                raise


def test_totals_are_exact(open_store: Open, store_url: str, keys: int) -> None:
    store = open_store(pageviews)

    def adds(each: roost.Store, number: int) -> Iterator[Any]:
        for turn in range(TURNS):
            key = f"/{(turn + number) % keys}"
            yield each.run_all(pageviews.add(key, 3), pageviews.add("/0"), pageviews.add("/99"))

    def inserts(sql: Any, number: int) -> Iterator[Any]:
        for turn in range(TURNS):
            yield sql.execute("INSERT INTO pageviews_in VALUES (?, 5)", (f"/{(turn + number) % keys}",))

    def clears(sql: Any, number: int) -> Iterator[Any]:
        for _ in range(TURNS):
            yield sql.execute("INSERT INTO pageviews_out VALUES (?)", ("/nobody",))

    added, inserted, _ = at_once(open_store, store_url, adds, inserts, clears)
    total = sum(store.run(pageviews.totals([f"/{n}" for n in range(100)])).values())
    assert total == 5 * len(added) + 5 * len(inserted) == 10 * 4 * TURNS

    def inserts_again(sql: Any, number: int) -> Iterator[Any]:
        for turn in range(TURNS):
            yield until_done(sql, "INSERT INTO pageviews_in VALUES (?, 5)", f"/{(turn + number) % keys}")

    def removes(sql: Any, number: int) -> Iterator[Any]:
        for turn in range(TURNS):
            yield until_done(sql, "INSERT INTO pageviews_out VALUES (?)", f"/{(turn + number) % keys}")

    at_once(open_store, store_url, adds, inserts_again, removes)
    assert sum(store.run(pageviews.totals([f"/{n}" for n in range(100)])).values()) <= total + 10 * 4 * TURNS


def test_sequences_have_no_hole_and_the_newest_stay(open_store: Open, store_url: str, keys: int) -> None:
    store = open_store(visits)

    def pushes(each: roost.Store, number: int) -> Iterator[Any]:
        for turn in range(TURNS):
            yield from [(turn + n) % keys for n in range(3)]
            each.run_all(*[visits.push(Visit((turn + n) % keys, number)) for n in range(3)])

    def inserts(sql: Any, number: int) -> Iterator[Any]:
        for turn in range(TURNS):
            yield (turn + number) % keys
            sql.execute("INSERT INTO visits_in VALUES (?, ?)", ((turn + number) % keys, number))

    def removes(sql: Any, _: int) -> Iterator[Any]:
        for turn in range(TURNS):
            key = turn % keys
            found = sql.execute("SELECT sequence FROM visits WHERE uid = ?", (key,)).fetchall()
            yield from [sql.execute("INSERT INTO visits_out VALUES (?, ?)", (key, each)) for (each,) in found[::3]]

    pushed, inserted, _ = at_once(open_store, store_url, pushes, inserts, removes)
    times = Counter(pushed + inserted)
    pushed, inserted = at_once(open_store, store_url, pushes, inserts)
    more = Counter(pushed + inserted)
    for key in store.run(visits.keys(n=100)):
        last = times[key] + more[key]
        newest = list(range(last - min(more[key], 5) + 1, last + 1))
        assert [each.sequence for each in store.run(visits.entries(key))][-len(newest) :] == newest


@pytest.mark.parametrize("on_full", ["evict", "reject"])
@pytest.mark.parametrize("on_duplicate", ["error", "refresh"])
def test_a_collection_holds_its_newest_and_its_count(
    open_store: Open, store_url: str, keys: int, on_full: Any, on_duplicate: Any
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

    def inserts(sql: Any, number: int) -> Iterator[Any]:
        for turn in range(TURNS):
            try:
                yield sql.execute("INSERT INTO capped_in VALUES (?, ?, 'red')", ((turn + number) % keys, some()))
            except pymysql.Error as error:
                if "is full" not in error.args[1] or on_full != "reject":
                    raise

    def removes(sql: Any, number: int) -> Iterator[Any]:
        for turn in range(TURNS):
            key = (turn + number) % keys
            found = sql.execute("SELECT egg FROM capped WHERE basket = ? ORDER BY sequence", (key,)).fetchall()
            for egg in [*[egg for (egg,) in found[turn % 3 :: 5]], -1]:
                yield sql.execute("INSERT INTO capped_out VALUES (?, ?)", (key, egg))

    at_once(open_store, store_url, adds, inserts, removes)
    assert store.check() == []
    if on_full == "evict":
        at_once(open_store, store_url, lambda each, _: iter(()), inserts, inserts)
        for key in store.run(capped.keys(n=100)):
            sequences = [each.sequence for each in store.run(capped.entries(key))]
            assert len(sequences) <= 12
            if on_duplicate == "error" and keys == 1:
                assert sequences == list(range(sequences[-1] - 11, sequences[-1] + 1))


def test_sizes_are_exact(open_store: Open, store_url: str, keys: int) -> None:
    store = open_store(likes)

    def changes(each: roost.Store, number: int) -> Iterator[Any]:
        for turn in range(TURNS):
            yield each.run_all(
                likes.add(turn % keys, f"{turn % 7}", f"{number}"),
                likes.remove((turn + 1) % keys, f"{turn % 5}", "3"),
                likes.remove((turn + number) % keys, f"{turn % 9}"),
            )

    def inserts(sql: Any, number: int) -> Iterator[Any]:
        for turn in range(TURNS):
            key = (turn + number) % keys
            yield sql.execute("INSERT INTO likes_in VALUES (?, ?), (?, ?)", (key, f"{turn % 9}", key, f"{turn % 4}"))

    def removes(sql: Any, number: int) -> Iterator[Any]:
        for turn in range(TURNS):
            yield sql.execute("INSERT INTO likes_out VALUES (?, ?)", ((turn + number) % keys, f"{turn % 9}"))

    at_once(open_store, store_url, changes, inserts, removes)
    assert store.check() == []
    held = [(key, store.run(likes.size(key)), len(store.run(likes.members(key)))) for key in range(keys)]
    assert [each for each in held if each[1] != each[2]] == []


def test_a_delete_of_the_rows_harms_nobody_s_count(open_store: Open, store_url: str, keys: int) -> None:
    """It locks the rows before the head, so it may be answered 1213, and so may an inlet; the library is not."""
    store = open_store(likes)

    def changes(each: roost.Store, number: int) -> Iterator[Any]:
        for turn in range(TURNS):
            yield each.run_all(
                likes.add((turn + number) % keys, f"{turn % 7}"), likes.remove(turn % keys, f"{turn % 5}")
            )

    def deletes(sql: Any, number: int) -> Iterator[Any]:
        for turn in range(TURNS):
            statement = "DELETE FROM roost_likes_rows WHERE `key` = ? AND member = ?"
            try:
                yield sql.execute(statement, ((turn + number) % keys, f"{turn % 7}"))
            except pymysql.Error as error:
                if error.args[0] != 1213:
                    raise

    at_once(open_store, store_url, changes, deletes)
    assert store.check() == []


@pytest.mark.parametrize("on_full", ["evict", "reject"])
@pytest.mark.parametrize("on_duplicate", ["error", "refresh"])
@pytest.mark.parametrize("keep_for", [None, 1])
def test_who_adds_to_different_keys_meets_no_deadlock(
    open_store: Open, store_url: str, sql: Any, on_full: Any, on_duplicate: Any, keep_for: int | None, keys: int
) -> None:
    options = {"on_full": on_full, "on_duplicate": on_duplicate, "keep_for": keep_for}
    open_store(roost.Capped("capped", Egg, per="basket", keep=3, unique="egg", **options))
    # Whatever is looked up is looked up long before the row is written.
    sql.execute("CREATE TRIGGER slow BEFORE INSERT ON roost_capped_rows FOR EACH ROW DO SLEEP(0.005)")

    def inserts(client: Any, number: int) -> Iterator[Any]:
        for turn in range(12):
            key = number + 4 * (turn % 3 if keys == 1 else turn)
            try:
                yield client.execute("INSERT INTO capped_in VALUES (?, ?, 'red')", (key, 99 - turn % 5))
            except pymysql.Error as error:  # a duplicate, or full
                assert error.args[0] in (1062, 1644), error

    at_once(open_store, store_url, lambda each, _: iter(()), inserts)
    sql.execute("DROP TRIGGER slow")
