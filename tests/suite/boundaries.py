"""Two stores, one key: the second one's operation comes at each statement boundary of the first one's.

Both answers, and what the key has afterwards, must be those of one order of the two, as SQLite's one writer gives them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import psycopg
import pymysql

import roost
from roost.databases.mariadb.engine import arguments
from tests.suite.shapes import Visit


@dataclass(frozen=True)
class Egg:
    basket: int
    egg: int
    points: int


Operations = Sequence[roost.Operation[Any]]
Make = Callable[[int], Operations]  # operations of a key

KEEP = 2
WAYS = ("alone", "batch", "joined", "joined at REPEATABLE READ")


class Case:
    """A structure: what is there before (at first nothing), what two stores may do, and what is read afterwards.

    adds, removes: the operations that the short form of the test tries.
    """

    def __init__(
        self,
        structure: Any,
        states: Sequence[Make],
        verbs: dict[str, Make],
        after: Sequence[Make],
        adds: str,
        *removes: str,
    ) -> None:
        self.structure = structure
        self.states = states
        self.verbs = verbs
        self.after = after
        self.adds = adds
        self.removes = removes


def _ring(name: str, **options: Any) -> Case:
    ring = roost.Ring(name, Visit, per="uid", keep=KEEP, **options)

    def push(*visitors: int) -> Make:
        return lambda key: [ring.push(Visit(key, visitor)) for visitor in visitors]

    return Case(
        ring,
        [push(), push(1), push(1, 2, 3), lambda key: [ring.push(Visit(key, 1)), ring.clear(key)]],
        {
            "push": push(7),
            "push three": lambda key: [ring.push_all([Visit(key, n) for n in (7, 8, 9)])],
            "clear": lambda key: [ring.clear(key)],
            "forget": lambda key: [ring.forget(key)],
            "forget, push": lambda key: [ring.forget(key), ring.push(Visit(key, 7))],
        },
        [lambda key: [ring.latest(key)], push(20), lambda key: [ring.latest(key)], push(21, 22, 23), push(24)],
        *("push", "clear", "forget"),
    )


def _capped(name: str, **options: Any) -> Case:
    capped = roost.Capped(name, Egg, per="basket", keep=KEEP, unique="egg", **options)

    def add(*eggs: int) -> Make:
        return lambda key: [capped.add(Egg(key, egg, egg)) for egg in eggs]

    def read(key: int) -> Operations:
        return [capped.count(key), capped.latest(key)]

    return Case(
        capped,
        [add(), add(1), add(1, 2), lambda key: [capped.add(Egg(key, 1, 1)), capped.clear(key)]],
        {
            "add": add(7),
            "add 1": add(1),
            "add two": lambda key: [capped.add_all([Egg(key, 8, 8), Egg(key, 9, 9)])],
            "remove": lambda key: [capped.remove(key, 1)],
            "remove 7": lambda key: [capped.remove(key, 7)],
            "clear": lambda key: [capped.clear(key)],
            "forget": lambda key: [capped.forget(key)],
            "remove, add": lambda key: [capped.remove(key, 1), capped.add(Egg(key, 7, 7))],
        },
        [read, add(20), read, add(21), add(22), read, lambda key: [capped.remove(key, 22)], read],
        *("add", "clear", "forget", "remove 7"),
    )


def _set(name: str, **options: Any) -> Case:
    members: Any = roost.Set(name, key=int, member=str, **options)

    def read(key: int) -> Operations:
        return [members.size(key), members.members(key)]

    return Case(
        members,
        [lambda key: [], lambda key: [members.add(key, "a")], lambda key: [members.add(key, "a"), members.clear(key)]],
        {
            "add": lambda key: [members.add(key, "a")],
            "add two": lambda key: [members.add(key, "a", "b")],
            "remove": lambda key: [members.remove(key, "a")],
            "remove two": lambda key: [members.remove(key, "a", "b")],
            "clear": lambda key: [members.clear(key)],
            "forget": lambda key: [members.forget(key)],
            "remove, add": lambda key: [members.remove(key, "a"), members.add(key, "c")],
        },
        [read, lambda key: [members.add(key, "z")], read, lambda key: [members.remove(key, "a", "b")], read],
        *("add", "clear", "forget", "remove two"),
    )


def _cache(name: str, **options: Any) -> Case:
    cache = roost.Cache(name, key=int, value=int, **options)

    def read(key: int) -> Operations:
        return [cache.get(key)]

    return Case(
        cache,
        [lambda key: [], lambda key: [cache.set(key, 1)]],
        {
            "set": lambda key: [cache.set(key, 5)],
            "add": lambda key: [cache.add(key, 5)],
            "replace": lambda key: [cache.replace(key, 6)],
            "increment": lambda key: [cache.increment(key)],
            "set, increment": lambda key: [cache.set(key, 5), cache.increment(key)],
            "increment, touch": lambda key: [cache.increment(key), cache.touch(key, 50)],
            "delete": lambda key: [cache.delete(key)],
            "delete, add": lambda key: [cache.delete(key), cache.add(key, 9)],
        },
        [read, lambda key: [cache.add(key, 30)], read],
        *("set, increment", "delete", "increment"),
    )


CASES = {
    case.structure.name: case
    for case in [
        _ring("rings"),
        _ring("fading", keep_for=3600),
        _capped("evicting"),
        _capped("rejecting", on_full="reject"),
        _capped("refreshing", on_duplicate="refresh"),
        _capped("refreshing_reject", on_duplicate="refresh", on_full="reject"),
        _capped("best", order="points", on_duplicate="best"),
        _capped("fading_capped", keep_for=3600),
        _set("sets"),
        _set("fading_sets", keep_for=3600),
        _cache("caches"),
        _cache("bounded", max_items=10_000),
    ]
}


def outcome(run: Callable[..., Any], operations: Operations) -> Any:
    """Return the answers, or the error's name."""
    try:
        return run(*operations) if operations else ()
    except roost.Error as error:
        return type(error).__name__


class Boundaries:
    """Tries pairs of operations on a server; every pair on a key of its own."""

    def __init__(self, url: str, cases: Sequence[Case]) -> None:
        self._keys = count(1)
        self._at = self._left = -1
        self._second: Callable[[], Any] = lambda: None
        self._is_postgresql = url.startswith("postgresql")
        structures = [case.structure for case in cases]
        self.one = roost.Store(url, trace=self._trace)
        self.other = roost.Store(url, timeout=0.3, lock_wait=0.05)
        self.models = [roost.Store("sqlite://") for _ in range(2)]
        self.one.create(*structures)
        for model in self.models:
            model.create(*structures)
        if self._is_postgresql:
            self._connection: Any = psycopg.connect(url)
        else:
            self._connection = pymysql.connect(**arguments(url)[0])
        for case in cases:
            for make in [*case.states, *case.verbs.values()]:  # what is compared and prepared only at first
                for store in (self.one, self.other):
                    outcome(store.run_all, make(0))
        self.tried = 0

    def close(self) -> None:
        self._connection.close()
        for store in (self.one, self.other, *self.models):
            store.close()

    def _trace(self, sql: str, _: Any) -> None:
        self._at -= 1
        if self._at == 0:
            self._second()

    def wrong(self, case: Case, way: str, state: Make, first: Make, second: Make) -> Iterator[str]:
        """Return what no order of two operations explains, for each boundary of the first one."""
        for boundary in count(1):
            key = next(self._keys)
            outcome(self.other.run_all, state(key))
            answers: list[Any] = []
            self._second = lambda key=key, answers=answers: answers.append(  # type: ignore[misc]
                outcome(self.other.run_all, second(key))
            )
            self._at = boundary
            mine = self._first(way, first(key))
            reached, self._at = self._at <= 0, -1
            self.tried += 1
            if not reached:
                return
            found = [mine, *answers, *[outcome(self.other.run_all, make(key)) for make in case.after]]
            possible = list(self._orders(case, key, state, first, second, mine, answers[0]))
            if found not in possible:
                yield f"boundary {boundary}: {found}, not one of {possible}"

    def _first(self, way: str, operations: Operations) -> Any:
        if way == "alone":
            if len(operations) == 1:
                return outcome(lambda op: (self.one.run(op),), operations)
            return outcome(self.one.run_all, operations)
        if way == "batch":  # of several kinds, so that all heads are locked first
            structure: Any = operations[0].structure
            answers = outcome(self.one.run_all, [*operations, structure.keys(n=1)])
            return answers[:-1] if isinstance(answers, tuple) else answers
        level = "REPEATABLE READ" if "REPEATABLE" in way else "READ COMMITTED"
        cursor = self._connection.cursor()
        if self._is_postgresql:
            cursor.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
        else:
            cursor.execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
        cursor.execute("SELECT count(*) FROM roost_catalog")
        cursor.fetchall()
        answers = outcome(self.one.on(self._connection).run_all, operations)
        if answers == "Conflict":
            self._connection.rollback()
        else:
            self._connection.commit()
        return answers

    def _orders(
        self, case: Case, key: int, state: Make, first: Make, second: Make, mine: Any, other: Any
    ) -> Iterator[Sequence[Any]]:
        # Who was refused because of the other one's locks has done nothing.
        for model, mine_first in zip(self.models, (True, False), strict=True):

            def played(make: Make, answer: Any, model: roost.Store = model) -> Any:
                return answer if answer in ("Busy", "Conflict", "ConnectionLost") else outcome(model.run_all, make(key))

            outcome(model.run_all, state(key))
            if mine_first:
                answers = [played(first, mine), played(second, other)]
            else:
                answers = [played(second, other), played(first, mine)][::-1]
            yield [*answers, *[outcome(model.run_all, make(key)) for make in case.after]]


def pairs(case: Case) -> Iterator[tuple[Make, str, str]]:
    """Return every state with every two operations."""
    for state in case.states:
        for first in case.verbs:
            for second in case.verbs:
                yield state, first, second
