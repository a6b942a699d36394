"""One operation by itself, run without a batch where nothing is in its way: what may come between.

`model_test.py` has that its answers are those of one in a batch.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import roost

Make = Callable[..., roost.Store]


@dataclass(frozen=True)
class Visit:
    uid: int
    visitor: int
    note: str | None = None


pageviews = roost.Counter("pageviews")
visits = roost.Ring("visits", Visit, per="uid", keep=3)
last = roost.Capped("last", Visit, per="uid", keep=3, unique="visitor")
latest = roost.Capped("latest", Visit, per="uid", keep=3, unique="visitor", on_duplicate="refresh")
likes = roost.Set("likes", key=int, member=str)


ALL = (pageviews, visits, last, latest, likes)


def test_a_declaration_that_is_not_the_stored_one_is_refused_and_nothing_is_written(open_store: Make) -> None:
    store = open_store(visits, pageviews)
    store.run(visits.push(Visit(1, 1)))
    other = roost.Ring("visits", Visit, per="uid", keep=3)
    assert store.run(other.latest(1)) == [Visit(1, 1)]
    wrong = roost.Counter("visits", key=int)
    for operation in (wrong.add(1), wrong.total(1)):
        for _ in range(2):  # also when the declaration was looked at before
            with pytest.raises(roost.Mismatch):
                store.run(operation)
    assert store.run(visits.latest(1)) == [Visit(1, 1)]


def test_a_structure_that_is_not_there_is_missing(open_store: Make) -> None:
    store = open_store(pageviews)
    for operation in (visits.latest(1), visits.push(Visit(1, 1)), likes.add(1, "a"), likes.contains(1, "a")):
        with pytest.raises(roost.Missing):
            store.run(operation)


def test_many_threads_write_and_read_one_by_one(open_store: Make) -> None:
    store = open_store(*ALL)

    def work() -> None:
        for number in range(30):
            store.run(pageviews.add("/home"))
            store.run(visits.push(Visit(1, number)))
            store.run(latest.add(Visit(1, number)))
            store.run(likes.add(1, str(number)))
            assert store.run(latest.count(1)) <= 3

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.run(pageviews.total("/home")) == 240
    assert store.run(visits.push(Visit(1, 0))) == 241
    assert store.run(likes.size(1)) == 30
    assert store.run(latest.count(1)) == 3


@pytest.mark.needs("sqlite3")
def test_an_exception_in_the_middle_leaves_nothing_behind(open_store: Make) -> None:
    """What is not an error of the database's reaches the caller, and the operation is undone."""
    interrupting = ["COMMIT"]

    def trace(sql: str, _: object) -> None:
        if interrupting and sql.startswith(interrupting[0]):
            interrupting.clear()
            raise KeyboardInterrupt

    store = open_store(trace=trace)
    interrupting.clear()
    store.create(pageviews)
    store.run(pageviews.add("/home"))
    interrupting.append("COMMIT")
    with pytest.raises(KeyboardInterrupt):
        store.run(pageviews.add("/home"))
    assert store.run(pageviews.total("/home")) == 1
    store.run(pageviews.add("/home"))
    assert store.run(pageviews.total("/home")) == 2


class Stop(BaseException):
    """What a signal handler may raise."""


@pytest.mark.needs("sqlite3")
@pytest.mark.parametrize("verb", ["add", "total"])
def test_an_interrupt_at_any_call_leaves_the_store_as_it_was(open_store: Make, verb: str) -> None:
    store = open_store(pageviews, timeout=1)
    asked = pageviews.add("/home") if verb == "add" else pageviews.total("/home")
    store.run(pageviews.add("/home"))
    store.run(pageviews.total("/home"))
    for point in range(1, 1000):
        left = [point]

        def interrupt(frame: Any, event: str, _: Any, left: list[int] = left) -> Any:
            if "roost" in frame.f_globals.get("__name__", "") and event == "call":
                left[0] -= 1
                if left[0] == 0:
                    sys.settrace(None)
                    raise Stop
            return None

        before = store.run(pageviews.total("/home"))
        try:
            sys.settrace(interrupt)
            try:
                store.run(asked)
            finally:
                sys.settrace(None)
        except Stop:
            assert store.run(pageviews.total("/home")) in (before, before + (verb == "add"))
            store.run(pageviews.add("/home"))  # nobody leads who is gone
        else:
            assert left[0] > 0
            assert point > 5
            return
    pytest.fail("it has more calls than that")


@pytest.mark.needs("sqlite3")
def test_a_trace_function_that_raises_what_ends_a_generator_costs_the_operation(open_store: Make) -> None:
    store = open_store(*ALL)
    store.run(last.add(Visit(1, 1)))
    for statement in range(6):
        counted = [1000]

        def at(sql: str, _: object, counted: list[int] = counted) -> None:
            counted[0] -= 1
            if counted[0] == -1:
                raise StopIteration

        for operation in (
            last.add(Visit(2, statement)),
            visits.push(Visit(2, statement)),
            likes.add(2, str(statement)),
        ):
            counted[0] = 1000
            with roost.Store(store.url, trace=at) as other:
                other.run(pageviews.add("/"))
                counted[0] = statement
                before = store.run_all(last.count(2), visits.latest(2), likes.size(2))
                try:
                    other.run(operation)
                except (RuntimeError, StopIteration, roost.Error):
                    assert store.run_all(last.count(2), visits.latest(2), likes.size(2)) == before
        assert store.check() == []


@pytest.mark.needs("sqlite3")
def test_a_call_from_within_a_call_is_busy_and_not_for_ever(open_store: Make) -> None:
    inner: list[Any] = []
    calls: list[bool] = []

    def trace(sql: str, _: object) -> None:
        if calls and sql.startswith("SELECT 0, n"):
            calls.clear()
            try:
                inner.append(store.run(pageviews.total("/home")))
            except roost.Busy as error:
                inner.append(error)

    store = open_store(pageviews, trace=trace, timeout=1)
    store.run(pageviews.add("/home"))
    store.run(pageviews.total("/home"))
    calls.append(True)
    assert store.run(pageviews.total("/home")) == 1
    assert isinstance(inner[0], roost.Busy)
    assert store.run(pageviews.total("/home")) == 1
