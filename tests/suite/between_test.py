"""Small things that larger tests pass by: orders that few rows do not show, and what comes between two statements."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

import roost
from tests.suite.clients import MariaDBClient, connect
from tests.suite.shapes import Egg, Visit, likes

Open = Callable[..., Any]
KEEP, IDS = 20, [7 * n % 61 for n in range(60)]
CAPPED = {
    "evicting": ({}, IDS[-KEEP:]),
    "refreshing": ({"on_duplicate": "refresh"}, [*IDS[-KEEP + 1 :], IDS[-KEEP]]),
    "best": ({"order": "egg"}, sorted(IDS)[-KEEP:]),
    "of_an_hour": ({"keep_for": 3600}, IDS[-KEEP:]),
}


@pytest.mark.parametrize("name", CAPPED)
@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.needs("capped", "application", "readable views")
def test_the_oldest_or_the_worst_is_evicted_by_sql_whatever_the_ids(
    open_store: Open, sql: Any, name: str, at_once: bool
) -> None:
    options, left = CAPPED[name]
    capped: Any = roost.Capped(name, Egg, per="basket", keep=KEEP, unique="egg", **options)
    store = open_store(capped)
    into = f"INSERT INTO {name}{'_in' if isinstance(sql, MariaDBClient) else ''} (basket, egg, colour) VALUES "
    rows = [f"(5, {egg}, 'red')" for egg in IDS]
    for text in [", ".join(rows)] if at_once else rows:
        sql.execute(into + text)
    if name == "refreshing":  # which makes the oldest one the newest
        sql.execute(f"{into} (5, {left[-1]}, 'blue')")
    assert [each.row.egg for each in store.run(capped.entries(5))] == left
    assert store.run(capped.count(5)) == KEEP


ALTERED: dict[str, tuple[Callable[[int], Any], str, str]] = {
    "ring": (lambda keep: roost.Ring("altered", Visit, per="uid", keep=keep), "(uid, visitor)", "(5, {})"),
    "capped": (
        lambda keep: roost.Capped("altered", Visit, per="uid", keep=keep, unique="visitor"),
        *("(uid, visitor)", "(5, {})"),
    ),
}


@pytest.mark.parametrize("name", ALTERED)
@pytest.mark.needs("programs for SQL", "readable views")
def test_an_insert_at_any_statement_of_alter_is_kept_by_the_one_or_the_other_declaration(
    name: str, open_store: Open, sql: Any, store_url: str
) -> None:
    declare, columns, row = ALTERED[name]
    left, found = [0], list[threading.Thread]()
    numbers, errors = count(1), list[BaseException]()
    into = f"INSERT INTO altered{'_in' if isinstance(sql, MariaDBClient) else ''} {columns} VALUES "

    def insert() -> None:
        client = connect(store_url)
        try:
            client.execute(into + row.format(next(numbers)))
        except BaseException as error:
            errors.append(error)
        finally:
            client.close()

    def trace(text: str, _: Any) -> None:
        left[0] -= 1
        if left[0] == 0:
            found.append(threading.Thread(target=insert))
            found[-1].start()
            found[-1].join(0.03)  # it is over, or waits for what alter has

    for boundary in count(1):
        keep = 3 + 4 * (boundary % 2)
        store = open_store(declare(10 - keep), trace=trace)
        for _ in range(10):
            sql.execute(into + row.format(next(numbers)))
        left[0] = boundary
        assert store.alter(declare(keep))
        reached, left[0] = left[0] <= 0, 0
        for thread in found:
            thread.join(60)
            assert not thread.is_alive()
        assert store.check() == [], boundary
        assert errors == [], boundary
        newest = next(numbers) - 1
        stored = [each.visitor for each in store.run(declare(keep).latest(5, 1))]
        assert stored == [newest], boundary
        store.close()
        if not reached:
            break


@pytest.mark.needs("second store", "cache")
def test_a_lease_whose_answer_comes_late_counts_from_its_request(open_store: Open) -> None:
    jobs, ttl = roost.Lease("jobs"), 0.2
    late = False

    def trace(text: str, _: Any) -> None:
        if late:
            end = time.monotonic() + 2 * ttl
            while time.monotonic() < end:
                pass

    store = open_store(jobs, likes, trace=trace)
    store.run(jobs.acquire("other", "ada", 1))
    late = True
    with pytest.raises(roost.LeaseLost), store.holding(jobs, "daily", ttl=ttl) as held:  # noqa: PT012
        late = False
        assert held.lost
