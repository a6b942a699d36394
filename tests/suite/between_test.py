"""Small things that larger tests pass by: orders that few rows do not show, and what comes between two statements."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

import roost
from roost.structures.program import SOME
from tests.campaigns.processes import until
from tests.lengths import length
from tests.suite.application import Application
from tests.suite.boundaries import plain
from tests.suite.clients import WAITS, MariaDBClient, connect
from tests.suite.shapes import Egg, Visit, baskets, by_hand, likes, visits
from tests.suite.views_mixed_test import until_done

Open = Callable[..., Any]
KEEP, IDS = 20, [7 * n % 61 for n in range(60)]  # in an order that is not theirs
numbers = roost.Counter("numbers", key=int, slots=1)
evicting: Any = roost.Capped("evicting", Egg, per="basket", keep=2, unique="egg", on_duplicate="refresh")
members: Any = roost.Set("members", key=int, member=int)
fading: Any = roost.Set("fading", key=int, member=int, keep_for=3600)
kept: Any = roost.Capped("kept", Egg, per="basket", keep=KEEP, unique="egg")
pages = roost.Cache("pages", key=int, value=int)
CAPPED: dict[str, Any] = {
    "evicting": {},
    "refreshing": {"on_duplicate": "refresh"},
    "of_an_hour": {"keep_for": 3600},
}


@pytest.mark.parametrize("name", CAPPED)
@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.needs("capped", "application", "readable views")
def test_the_oldest_is_evicted_by_sql_whatever_the_ids_and_the_holes(
    open_store: Open, sql: Any, name: str, at_once: bool
) -> None:
    capped: Any = roost.Capped(name, Egg, per="basket", keep=KEEP, unique="egg", **CAPPED[name])
    store = open_store(capped)
    into = f"INSERT INTO {name}{'_in' if isinstance(sql, MariaDBClient) else ''} (basket, egg, colour) VALUES "
    left: list[int] = []

    def insert(eggs: list[int]) -> None:
        rows = [f"(5, {egg}, 'red')" for egg in eggs]
        for text in [", ".join(rows)] if at_once else rows:
            sql.execute(into + text)
        for egg in eggs:
            left[:] = [*(each for each in left if each != egg), egg][-KEEP:]

    insert(IDS)
    for hole in (left[4], left[9], left[14]):
        assert store.run(capped.remove(5, hole))
        left.remove(hole)
    insert([100, 101, *([left[5], 102, left[7]] if name == "refreshing" else [102]), 103, 104, 105])
    assert [each.row.egg for each in store.run(capped.entries(5))] == left
    assert store.run(capped.count(5)) == KEEP


@pytest.mark.parametrize("name", CAPPED)
@pytest.mark.needs("capped", "second store")
def test_a_count_that_is_too_high_is_mended_by_the_next_add(open_store: Open, name: str) -> None:
    capped: Any = roost.Capped(name, Egg, per="basket", keep=KEEP, unique="egg", **CAPPED[name])
    store = open_store(capped)
    for basket, (wrong, many) in enumerate([(KEEP + 1, 1), (KEEP + 9, 1), (KEEP + 99, 12)]):
        store.run(capped.add_all([Egg(basket, egg) for egg in range(KEEP + 5)]))
        by_hand(store, f"UPDATE roost_{name}_head SET n = {wrong} WHERE basket = {basket}")
        store.run(capped.add_all([Egg(basket, 100 + n) for n in range(many)]))
        assert store.check() == []
        left = [*range(5, KEEP + 5), *range(100, 100 + many)][-KEEP:]
        assert [each.row.egg for each in store.run(capped.entries(basket))] == left


# What is declared with a `keep`, the columns of a row and those that identify it, and how the last rows are read.
ALTERED: dict[str, tuple[Callable[[int], Any], str, str, Callable[[Any], Any]]] = {
    "ring": (
        lambda keep: roost.Ring("altered", Visit, per="uid", keep=keep),
        *("uid, visitor", "uid, sequence"),
        lambda ring: ring.latest(5, 1),
    ),
    "capped": (
        lambda keep: roost.Capped("altered", Visit, per="uid", keep=keep, unique="visitor"),
        *("uid, visitor", "uid, visitor"),
        lambda capped: capped.latest(5, 1),
    ),
    "set": (
        lambda keep: roost.Set("altered", key=int, member=int, keep=keep),
        *("`key`, member", "`key`, member"),
        lambda members: members.members(5),
    ),
}


@pytest.mark.parametrize("removed", [False, True])
@pytest.mark.parametrize("name", ALTERED)
@pytest.mark.needs("programs for SQL", "readable views")
@pytest.mark.spread
def test_a_row_at_any_statement_of_alter_comes_and_goes_by_the_one_or_the_other_declaration(
    name: str, removed: bool, open_store: Open, sql: Any, store_url: str
) -> None:
    declare, row, identity, read = ALTERED[name]
    left, last = [0], 0
    found, errors = list[threading.Thread](), list[BaseException]()
    inlets = isinstance(sql, MariaDBClient)
    row, identity = (each if inlets else each.replace("`", "") for each in (row, identity))

    def insert(n: int) -> str:
        return f"INSERT INTO altered{'_in' if inlets else ''} ({row}) VALUES (5, {n})"

    def remove(n: int) -> str:
        if inlets:
            return f"INSERT INTO altered_out ({identity}) VALUES (5, {n})"
        return f"DELETE FROM altered WHERE ({identity}) = (5, {n})"

    def write() -> None:
        client = connect(store_url)
        try:
            until_done(client.execute, remove(last) if removed else insert(last + 1))
        except BaseException as error:
            errors.append(error)
        finally:
            client.close()

    def trace(text: str, _: Any) -> None:
        left[0] -= 1
        if left[0] == 0:
            found.append(threading.Thread(target=write))
            found[-1].start()
            found[-1].join(0.03)  # it is over, or waits for what alter has

    store = open_store(declare(7), trace=trace)
    for number, boundary in enumerate(count(1, length(6, 1))):
        for keep in length([(3, 7)[number % 2]], [3, 7]):
            for _ in range(7):
                last += 1
                until_done(sql.execute, insert(last))
            left[0] = boundary
            store.alter(declare(keep))
            reached, left[0] = left[0] <= 0, 0
            for thread in found:
                thread.join(60)
                assert not thread.is_alive()
            assert (store.check(), errors) == ([], []), boundary
            last += reached and not removed
            newest = store.run(read(declare(keep)))
            is_there = last in newest or newest == [Visit(5, last)]
            assert is_there is not (reached and removed), boundary
        if not reached:
            break


limits: Any = roost.RateLimit("limits", key=int, limit=3, within=36_000)
KEYS = range(1, SOME + 3)
# What a transaction does to the key 1, what many rows at once do to all keys, and what the key 1 then has.
WAITED: dict[str, tuple[Any, list[Any], Any, Any]] = {
    "ring": (
        visits.push(Visit(1, 1)),
        [visits.push(Visit(key, 2)) for key in KEYS],
        *(visits.latest(1), [Visit(1, 2), Visit(1, 1)]),
    ),
    "capped": (baskets.add(Egg(1, 1)), [baskets.add(Egg(key, 2)) for key in KEYS], baskets.count(1), 2),
    "set": (likes.add(1, "a"), [likes.add(key, "b") for key in KEYS], likes.size(1), 2),
    "rate limit": (limits.take(1), [limits.take(key) for key in KEYS], limits.peek(1), (False, 0)),
}


@pytest.mark.parametrize("name", WAITED)
@pytest.mark.needs("programs for SQL")
def test_many_rows_that_have_waited_for_a_transaction_go_by_what_it_has_left(
    name: str, open_store: Open, store_url: str, application: Application
) -> None:
    one, many, read, wanted = WAITED[name]
    store = open_store(one.structure, lock_wait=60, timeout=60)
    store.run(limits.take(1) if name == "rate limit" else read)  # whose row is there
    client = connect(store_url)
    client.execute("BEGIN")
    store.on(client).run(one)
    waiting = threading.Thread(target=store.run_all, args=many)
    waiting.start()
    until(
        lambda: application(f"SELECT count(*) FROM {WAITS[application.kind]}") == [(1,)], "the wait for the transaction"
    )
    client.execute("COMMIT")
    client.close()
    waiting.join(60)
    assert not waiting.is_alive()
    assert plain((store.run(read),), (read,)) == (wanted,)


@pytest.mark.needs("programs for SQL")
def test_what_many_keys_find_free_only_after_a_wait_is_locked_before_it_is_counted(
    open_store: Open, store_url: str, application: Application
) -> None:
    def waits() -> None:
        sql = f"SELECT count(*) FROM {WAITS[application.kind]}"
        until(lambda: application(sql) == [(1,)], "the wait for a transaction")

    store, other = open_store(limits, lock_wait=60, timeout=60), open_store()
    store.run_all(limits.take(1), limits.take(2, 3))
    first, second = connect(store_url), connect(store_url)
    first.execute("BEGIN")
    store.on(first).run(limits.take(1))
    waiting = threading.Thread(target=store.run_all, args=[limits.take(key) for key in KEYS])
    waiting.start()
    waits()  # having seen that nothing is left to the key 2
    other.run_all(limits.clear(2), limits.take(2))
    second.execute("BEGIN")
    store.on(second).run(limits.take(2))
    first.execute("COMMIT")
    waits()
    second.execute("COMMIT")
    waiting.join(60)
    assert not waiting.is_alive()
    assert plain((store.run(limits.peek(2)),), (limits.peek(2),)) == ((False, 0),)
    first.close()
    second.close()


@pytest.mark.needs("programs for SQL")
def test_rows_that_others_change_while_a_batch_waits_are_evicted(
    open_store: Open, store_url: str, application: Application
) -> None:
    store = open_store(kept, lock_wait=60, timeout=60)
    store.run(kept.add_all([Egg(1, number) for number in range(20)]))
    client = connect(store_url)
    client.execute("BEGIN")
    client.execute("UPDATE roost_kept_rows SET colour = 'red' WHERE egg < 3")
    waiting = threading.Thread(target=store.run, args=[kept.add_all([Egg(1, number) for number in range(100, 112)])])
    waiting.start()
    sql = f"SELECT count(*) FROM {WAITS[application.kind]}"
    until(lambda: application(sql) == [(1,)], "the wait for the rows")
    client.execute("COMMIT")
    client.close()
    waiting.join(60)
    assert store.run(kept.count(1)) == 20
    assert [egg.egg for egg in store.run(kept.latest(1))] == [*range(111, 99, -1), *range(19, 11, -1)]


@pytest.mark.needs("second store", "cache")
def test_a_token_grows_where_the_last_one_is_ahead_of_the_clock(open_store: Open) -> None:
    jobs: Any = roost.Lease("jobs", key=int)
    store = open_store(jobs)
    first = store.run(jobs.acquire(1, "ada", 3600))
    by_hand(store, "UPDATE roost_jobs_rows SET token = token + 1000000000000")
    store.run(jobs.clear(1))
    assert store.run(jobs.acquire(1, "bob", 3600)).token == first.token + 10**12 + 1


@pytest.mark.needs("second store", "cache")
def test_a_lease_whose_answer_comes_late_counts_from_its_request(open_store: Open) -> None:
    jobs, ttl = roost.Lease("jobs"), 0.2
    late, never = False, threading.Event()

    def trace(text: str, _: Any) -> None:
        if late:
            never.wait(2 * ttl)

    store = open_store(jobs, likes, trace=trace)
    store.run(jobs.acquire("other", "ada", 1))
    late = True

    def hold() -> None:
        nonlocal late
        with store.holding(jobs, "daily", ttl=ttl) as held:
            late = False
            assert held.lost

    with pytest.raises(roost.LeaseLost):
        hold()


OPPOSITE: list[Callable[[int], roost.Operation[Any]]] = [
    lambda key: numbers.add(key),
    lambda key: visits.push(Visit(key, 1)),
    lambda key: evicting.add(Egg(key, 1)),
    lambda key: members.add(key, 1),
    lambda key: fading.add(key, 1),
    lambda key: pages.set(key, 1),
    lambda key: limits.take(key),
]


def test_opposite_calls_with_a_reader_of_all_keys_in_the_middle_wait_for_each_other(server_url: str) -> None:
    others: list[threading.Thread] = []

    def trace(text: str, _: Any) -> None:
        if others and "LIMIT" in text and threading.current_thread() is threading.main_thread():
            opposite = others.pop()
            opposite.start()
            until(lambda: application(f"SELECT count(*) FROM {waits}") == [(1,)], "the opposite call waits")

    application = Application(server_url)
    waits = WAITS[application.kind]
    with (
        roost.Store(server_url, lock_wait=60, timeout=60, trace=trace) as store,
        roost.Store(server_url, lock_wait=60, timeout=60) as other,
    ):
        for make in OPPOSITE:
            structure: Any = make(1).structure
            store.create(structure, view=False)
            for each in (store, other):
                each.run_all(make(1), structure.keys(), make(2))
            before = store.stats().retries, other.stats().retries
            opposite = threading.Thread(target=other.run_all, args=[make(2), structure.keys(), make(1)])
            others.append(opposite)
            assert store.run_all(make(1), structure.keys(), make(2))[1] == [1, 2]
            opposite.join(60)
            assert not opposite.is_alive()
            assert (store.stats().retries, other.stats().retries) == before, structure
            assert store.run_all(make(3), structure.keys(), make(4), structure.keys())[1::2] == (
                *([1, 2, 3], [1, 2, 3, 4]),
            )
        assert store.check() == []
    application.close()
