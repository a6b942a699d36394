"""One operation by itself, run without a batch where nothing is in its way: what may come between.

`model_test.py` has that its answers are those of one in a batch.
"""

from __future__ import annotations

import sys
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
likes = roost.Set("likes", key=int, member=str)


ALL = (pageviews, visits, last, likes)


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
