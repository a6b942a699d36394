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
from roost.databases.mariadb.address import arguments
from roost.structures.program import SOME
from tests.suite.shapes import Visit, by_hand


@dataclass(frozen=True)
class Egg:
    basket: int
    egg: int
    points: int


Operations = Sequence[roost.Operation[Any]]
Make = Callable[[int], Operations]  # operations of a key

KEEP = 2
WAYS = ("alone", "batch", "joined", "joined at REPEATABLE READ", "joined at SERIALIZABLE")
REFUSED = ("Busy", "Conflict", "ConnectionLost")  # because of the other one's locks: nothing was done


class Of:
    """Operations of a key and of the last answer that prepared it."""

    def __init__(self, make: Callable[[int, Any], Operations]) -> None:
        self._make = make
        self.last: Any = None

    def __call__(self, key: int) -> Operations:
        """Return the operations."""
        return self._make(key, self.last) if self.last is not None else []


class Aged:
    """Operations that prepare a key whose rows have expired since, and are still there."""

    def __init__(self, make: Make) -> None:
        self._make = make

    def __call__(self, key: int) -> Operations:
        """Return the operations."""
        return self._make(key)


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
        aged: list[Make] = [Aged(states[1])] if getattr(structure, "keep_for", None) else []
        self.states: list[Make] = [*states, *aged]
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
            "push many": lambda key: [ring.push_all([Visit(key, n) for n in range(7, 7 + SOME)])],
            "clear": lambda key: [ring.clear(key)],
            "forget": lambda key: [ring.forget(key)],
            "forget, push": lambda key: [ring.forget(key), ring.push(Visit(key, 7))],
        },
        [lambda key: [ring.latest(key)], push(20), lambda key: [ring.latest(key)], push(21, 22, 23), push(24)],
        *("push", "clear", "forget"),
    )


def _capped(name: str, **options: Any) -> Case:
    capped: Any = roost.Capped(name, Egg, per="basket", unique="egg", **{"keep": KEEP, **options})

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
            "add many": lambda key: [capped.add_all([Egg(key, n, n) for n in range(3, 3 + SOME)])],
            "remove": lambda key: [capped.remove(key, 1)],
            "remove 7": lambda key: [capped.remove(key, 7)],
            "clear": lambda key: [capped.clear(key)],
            "forget": lambda key: [capped.forget(key)],
            "remove, add": lambda key: [capped.remove(key, 1), capped.add(Egg(key, 7, 7))],
        },
        [read, add(20), read, add(21), add(22), read, lambda key: [capped.remove(key, 22)], read],
        *("add", "clear", "forget", "remove 7", "remove"),
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
            "add many": lambda key: [members.add_all([(key, f"{n:x}") for n in range(2, 2 + SOME)])],
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


def _texts() -> Case:
    texts = roost.Cache("texts", key=int, value=roost.text(100))

    def read(key: int) -> Operations:
        return [texts.get(key)]

    return Case(
        texts,
        [lambda key: [], lambda key: [texts.set(key, "1"), texts.lease(key, 60), texts.gets(key)]],
        {
            "append": lambda key: [texts.append(key, "a")],
            "prepend": lambda key: [texts.prepend(key, "b")],
            "increment": lambda key: [texts.increment(key)],
            "decrement": lambda key: [texts.decrement(key)],
            "set": lambda key: [texts.set(key, "5")],
            "set many": lambda key: [texts.set_many({key: "6", -key: "6"})],
            "cas": Of(lambda key, last: [texts.cas(key, "7", last.token)]),
            "lease": lambda key: [texts.lease(key, 60)],
            "touch": lambda key: [texts.touch(key, 60)],
            "delete": lambda key: [texts.delete(key)],
            "forget": lambda key: [texts.forget(key)],
        },
        [read, lambda key: [texts.append(key, "z")], read, lambda key: [texts.add(key, "30")], read],
        *("append", "increment", "cas", "delete"),
    )


def _counter(name: str, **options: Any) -> Case:
    counter = roost.Counter(name, key=int, **options)

    def read(key: int) -> Operations:
        return [counter.total(key)]

    return Case(
        counter,
        [lambda key: [], lambda key: [counter.add(key, 5)]],
        {
            "add": lambda key: [counter.add(key, 2)],
            "increment": lambda key: [counter.increment(key, 3)],
            "add two": lambda key: [counter.add_all({key: 4, -key: 1})],
            "add many": lambda key: [counter.add_all({key: 4} | {-key - n: 1 for n in range(SOME)})],
            "clear": lambda key: [counter.clear(key)],
            "forget": lambda key: [counter.forget(key)],
        },
        [read, lambda key: [counter.increment(key)], read],
        *("increment", "add", "clear"),
    )


def _limit() -> Case:
    limit = roost.RateLimit("limits", key=int, limit=3, within=36_000)
    return Case(
        limit,
        [lambda key: [], lambda key: [limit.take(key, 2)], lambda key: [limit.take(key, 3)]],
        {
            "take": lambda key: [limit.take(key)],
            "take two": lambda key: [limit.take(key, 2)],
            "take many": lambda key: [limit.take(key), *(limit.take(-key * SOME - n) for n in range(SOME))],
            "clear": lambda key: [limit.clear(key)],
            "forget": lambda key: [limit.forget(key)],
        },
        [lambda key: [limit.peek(key)], lambda key: [limit.take(key)] * 3],
        *("take", "take two", "clear"),
    )


def _lease() -> Case:
    lease = roost.Lease("leases", key=int)
    return Case(
        lease,
        [lambda key: [], lambda key: [lease.acquire(key, "ada", 3600)]],
        {
            "acquire": lambda key: [lease.acquire(key, "bob", 3600)],
            "acquire again": lambda key: [lease.acquire(key, "ada", 3600)],
            "renew": Of(lambda key, last: [lease.renew(last, 3600)]),
            "release": Of(lambda key, last: [lease.release(last)]),
            "release, acquire": Of(lambda key, last: [lease.release(last), lease.acquire(key, "eve", 3600)]),
            "clear": lambda key: [lease.clear(key)],
            "forget": lambda key: [lease.forget(key)],
        },
        [lambda key: [lease.holder(key)], lambda key: [lease.acquire(key, "zoe", 3600)]],
        *("acquire", "clear", "acquire again", "renew"),
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
        _capped("best_of_many", order="points", on_duplicate="refresh", keep=60),
        _capped("fading_capped", keep_for=3600),
        _capped("unbounded", keep=None, on_duplicate="refresh", keep_for=3600),
        _set("sets"),
        _set("fading_sets", keep_for=3600),
        _set("short_sets", keep=KEEP),
        _set("short_fading_sets", keep=KEEP, keep_for=3600),
        _cache("caches"),
        _cache("bounded", max_items=10_000),
        _texts(),
        _counter("counters", slots=1),
        _counter("slotted"),
        _counter("windows", window="hour", keep=2),
        _limit(),
        _lease(),
    ]
}


def outcome(run: Callable[..., Any], operations: Operations) -> Any:
    """Return the answers, or the error's name."""
    try:
        return run(*operations) if operations else ()
    except roost.Error as error:
        return type(error).__name__


def plain(answers: Any, operations: Operations) -> Any:
    """Return answers without what differs from database to database: tokens and moments."""

    def one(answer: Any, operation: roost.Operation[Any]) -> Any:
        match answer:
            case roost.Grant():
                return answer.holder
            case roost.Taken():
                return answer.allowed, answer.remaining
            case roost.Item():
                return answer.value
        return answer is not None if operation.verb == "lease" else answer

    return tuple(map(one, answers, operations)) if isinstance(answers, tuple) else answers


class Boundaries:
    """Tries pairs of operations on a server; every pair on a key of its own.

    first: the URL of the first store, where that is another account; second: the options of the other store, then of
        both.
    """

    step = 1
    _turn = 0

    def __init__(self, url: str, cases: Sequence[Case], first: str = "", **second: Any) -> None:
        self._keys = count(1)
        self._at = self._left = -1
        self._second: Callable[[], Any] = lambda: None
        self._is_postgresql = url.startswith("postgresql")
        structures = [case.structure for case in cases]
        self.other = roost.Store(url, **{"timeout": 0.3, "lock_wait": 0.05, **second})
        self._calm = roost.Store(url, timeout=60)  # prepares keys and reads them, however busy the machine is
        self.models = [roost.Store("sqlite://") for _ in range(2)]
        for each in (self.other, *self.models):
            each.create(*structures, view=False)
        self.one = roost.Store(first or url, trace=self._trace, **({**second} if first else {}))
        if self._is_postgresql:
            self._connection: Any = psycopg.connect(first or url)
        else:
            self._connection = pymysql.connect(**arguments(first or url)[0])
        for case in cases:
            for make in [*case.states, *case.verbs.values()]:  # what is compared and prepared only at first
                for store in (self.one, self.other):
                    outcome(store.run_all, make(0))
        self.tried = 0

    def close(self) -> None:
        self._connection.close()
        for store in (self.one, self.other, self._calm, *self.models):
            store.close()

    def _trace(self, sql: str, _: Any) -> None:
        self._at -= 1
        if self._at == 0:
            self._second()

    def wrong(self, case: Case, way: str, state: Make, first: Make, second: Make) -> Iterator[str]:
        """Return what no order of two operations explains, for each boundary of the first one."""
        for boundary in self.boundaries():
            key = next(self._keys)
            ours, theirs = self._prepared(self._calm, key, state, first, second)
            found = self.play(boundary, way, ours, theirs)
            self.tried += 1
            if found is None:
                if self.ends:
                    return
                continue
            mine, other = plain(found[0], ours), plain(found[1], theirs)
            whole = [mine, other, *self._after(self._calm, case, key)]
            possible = [self._in_order(n, case, key, (state, first, second), (mine, other)) for n in range(2)]
            if whole not in possible:
                yield f"boundary {boundary}: {whole}, not one of {possible}"

    ends = True  # whether a boundary that is not reached is the last one

    def boundaries(self) -> Iterator[int]:
        """Return the numbers of the boundaries to try: with a step of 2 a pair has those that the last one left out."""
        self._turn += 1
        return count(1 + self._turn % self.step, self.step)

    def play(self, boundary: int, way: str, ours: Operations, theirs: Operations) -> tuple[Any, Any] | None:
        """Run the first operations with the second ones at a boundary; None if it was not reached."""
        answers: list[Any] = []
        self._second = lambda: answers.append(outcome(self.other.run_all, theirs))
        self._at = boundary
        mine = self.first(way, ours)
        reached, self._at = self._at <= 0, -1
        return (mine, *answers) if reached else None

    def first(self, way: str, operations: Operations) -> Any:
        """Run the first operations in a way."""
        if way == "alone":
            if len(operations) == 1:
                return outcome(lambda op: (self.one.run(op),), operations)
            return outcome(self.one.run_all, operations)
        if way == "batch":  # of several kinds, so that all heads are locked first
            structure: Any = operations[0].structure
            answers = outcome(self.one.run_all, [*operations, structure.keys(n=1)])
            return answers[:-1] if isinstance(answers, tuple) else answers
        level = way.partition(" at ")[2] or "READ COMMITTED"
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
            return answers
        try:
            self._connection.commit()
        except psycopg.errors.SerializationFailure:
            return "Conflict"
        return answers

    def _prepared(self, store: roost.Store, key: int, state: Make, *makes: Make) -> list[Operations]:
        # Returns the operations of makers, after those of the state.
        answers = outcome(store.run_all, state(key))
        if isinstance(state, Aged):
            structure: Any = state(key)[0].structure
            column = structure.key.columns[0].name
            quoted = f"`{column}`" if store.url.startswith("mysql") else f'"{column}"'
            by_hand(store, f"UPDATE roost_{structure.name}_rows SET until = 1 WHERE {quoted} = {key}")
        for make in makes:
            if isinstance(make, Of):
                make.last = answers[-1] if answers else None
        return [make(key) for make in makes]

    def _after(self, store: roost.Store, case: Case, key: int) -> list[Any]:
        return [plain(outcome(store.run_all, make(key)), make(key)) for make in case.after]

    def _in_order(
        self, number: int, case: Case, key: int, makes: tuple[Make, Make, Make], answered: tuple[Any, Any]
    ) -> list[Any]:
        # What a model says where the first operations (number 0) or the second ones were first.
        model = self.models[number]
        both = self._prepared(model, key, *makes)
        answers: list[Any] = list(answered)
        for place in (number, 1 - number):
            if answers[place] not in REFUSED:
                answers[place] = plain(outcome(model.run_all, both[place]), both[place])
        return [*answers, *self._after(model, case, key)]


def pairs(case: Case) -> Iterator[tuple[Make, str, str]]:
    """Return every state with every two operations."""
    for state in case.states:
        for first in case.verbs:
            for second in case.verbs:
                if state(0) or not any(isinstance(case.verbs[each], Of) for each in (first, second)):
                    yield state, first, second
