"""One operation by itself, run without a batch where nothing is in its way: it must not be told from one in a batch."""

from __future__ import annotations

import datetime as dt
import random
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import roost
from tests.lengths import length

Make = Callable[..., roost.Store]


@dataclass(frozen=True)
class Visit:
    uid: int
    visitor: int
    note: str | None = None


pageviews = roost.Counter("pageviews")
slotted = roost.Counter("slotted", key=int, slots=4)
tickets = roost.Counter("tickets", key=int, slots=1)
visits = roost.Ring("visits", Visit, per="uid", keep=3)
long = roost.Ring("long", Visit, per="uid", keep=100)
last = roost.Capped("last", Visit, per="uid", keep=3, unique="visitor")
latest = roost.Capped("latest", Visit, per="uid", keep=3, unique="visitor", on_duplicate="refresh")
few = roost.Capped("few", Visit, per="uid", keep=3, unique="visitor", on_full="reject")
likes = roost.Set("likes", key=int, member=str)


@dataclass(frozen=True)
class Points:
    uid: int
    visitor: int
    points: float


best = roost.Capped("best", Points, per="uid", keep=3, unique="visitor", order="points", on_duplicate="best")
unequal = roost.Capped("unequal", Points, per="uid", keep=3, unique="visitor", order="points")
replacing = roost.Capped(
    "replacing", Points, per="uid", keep=2, unique="visitor", order="points", on_duplicate="refresh"
)
windowed = roost.Counter("windowed", key=int, window=dt.timedelta(days=366), keep=3)
online = roost.Set("online", key=int, member=str, keep_for=dt.timedelta(days=1))

ALL = (online, pageviews, slotted, tickets, visits, long, last, latest, few, likes, best, unequal, replacing, windowed)


def chosen(chance: random.Random) -> roost.Operation[Any]:
    key, id_ = chance.randrange(3), chance.randrange(6)
    row = Visit(key, id_, chance.choice([None, "", "a'b\\", "NULL"]))
    ring, capped = chance.choice([visits, long]), chance.choice([last, latest, few])
    ranked, points = chance.choice([best, unequal, replacing]), Points(key, id_, chance.randrange(5) / 4)
    made: list[Callable[[], roost.Operation[Any]]] = [
        lambda: ranked.add(points),
        lambda: ranked.add(points),
        lambda: ranked.remove(key, id_),
        lambda: ranked.top(key, 2),
        lambda: ranked.rank(key, id_),
        lambda: ranked.count(key),
        lambda: windowed.add(key, 2),
        lambda: windowed.increment(key),
        lambda: windowed.total(key),
        lambda: pageviews.add(f"/{key}", chance.randint(-2, 2)),
        lambda: pageviews.total(f"/{key}"),
        lambda: pageviews.increment(f"/{key}", chance.randint(-2, 2)),
        lambda: slotted.add(key),
        lambda: slotted.increment(key),
        lambda: tickets.add(key, 2),
        lambda: tickets.increment(key, chance.choice([1, -1, 2**41])),
        lambda: slotted.total(key),
        lambda: ring.push(row),
        lambda: ring.latest(key),
        lambda: ring.latest(key, 2),
        lambda: ring.clear(key),
        lambda: capped.add(row),
        lambda: capped.remove(key, id_),
        lambda: capped.get(key, id_),
        lambda: capped.latest(key),
        lambda: capped.latest(key, 2),
        lambda: capped.count(key),
        lambda: capped.clear(key),
        lambda: likes.add(key, str(id_)),
        lambda: likes.add(key, "a", str(id_)),
        lambda: likes.remove(key, str(id_)),
        lambda: likes.contains(key, str(id_)),
        lambda: likes.members(key),
        lambda: likes.size(key),
        lambda: likes.forget(key),
        lambda: online.add(key, str(id_)),
        lambda: online.add(key, "a'b\\"),
        lambda: online.add(key, "a", str(id_)),
        lambda: online.remove(key, str(id_)),
        lambda: online.contains(key, str(id_)),
        lambda: online.size(key),
        lambda: online.members(key),
    ]
    return chance.choice(made)()


def answer(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except roost.Error as error:
        return type(error), str(error)


@pytest.mark.parametrize("seed", range(length(1, 4)))
def test_an_operation_by_itself_answers_as_it_does_in_a_batch(open_store: Make, seed: int) -> None:
    """The same operations on two sets of structures: one by one, and each in a batch together with another read."""
    chance = random.Random(seed)
    store = open_store(*ALL)
    if store.url == "sqlite://":
        other: roost.Store = roost.Store("sqlite://", random=random.Random(7))
        other.create(*ALL)
    else:
        others = [copied(each) for each in ALL]
        store.create(*others)
        other = store
    twins: dict[Any, Any] = dict(zip(ALL, ALL if other is not store else others, strict=True))
    for number in range(300):
        op = chosen(chance)
        twin: roost.Operation[Any] = roost.Operation(twins[op.structure], op.verb, op.args)
        batched = answer(lambda twin=twin: other.run_all(twin, twins[pageviews].keys(n=1))[0])  # type: ignore[misc]
        single = answer(lambda op=op: store.run(op))  # type: ignore[misc]
        if isinstance(single, tuple) and len(single) == 2 and isinstance(single[0], type):
            assert isinstance(batched, tuple), (number, op)
            assert single[0] is batched[0], (number, op)
        else:
            assert single == batched, (number, op)
    if other is not store:
        other.close()


def copied(structure: Any) -> Any:
    made = dict(structure._made_with)
    made["name"] = f"{made['name']}_b"
    return type(structure)(**made)


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
