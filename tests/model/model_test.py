"""Random atoms, by every way in, on a store and on the dumb model beside it."""

from __future__ import annotations

import asyncio
import copy
import datetime as dt
import os
import random
import sqlite3
import tempfile
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import roost
from roost.batching.atoms import Atom
from tests.model import by_sql
from tests.model.model import MOST, Model

# A campaign: ROOST_EXPLORE=1 ROOST_MODEL_EXAMPLES=20000 make test
EXAMPLES = int(os.environ.get("ROOST_MODEL_EXAMPLES", "30"))


@dataclass(frozen=True)
class Visit:
    uid: int
    visitor: int
    note: str = ""


@dataclass(frozen=True)
class Points:
    uid: int
    visitor: int
    points: int


counter = roost.Counter("counter")
windowed = roost.Counter("windowed", window=dt.timedelta(days=366), keep=3, slots=2)
spread = roost.Counter("spread", slots=5)
ring = roost.Ring("ring", Visit, per="uid", keep=3)
evicting = roost.Capped("evicting", Visit, per="uid", keep=3, unique="visitor")
refreshing = roost.Capped("refreshing", Visit, per="uid", keep=4, unique="visitor", on_duplicate="refresh")
rejecting = roost.Capped("rejecting", Visit, per="uid", keep=2, unique="visitor", on_full="reject")
best = roost.Capped("best", Points, per="uid", keep=3, unique="visitor", order="points", on_duplicate="best")
replacing = roost.Capped(
    "replacing", Points, per="uid", keep=2, unique="visitor", order="points", on_duplicate="refresh"
)
unequal = roost.Capped("unequal", Points, per="uid", keep=4, unique="visitor", order="points")
members = roost.Set("members", key=int, member=int)
ALL = (counter, spread, windowed, ring, evicting, refreshing, rejecting, best, replacing, unequal, members)

names = st.sampled_from(["a", "a", "b", "é"])
keys = st.sampled_from([0, 0, 0, 1, 2])  # one key gets full
ids = st.integers(0, 6)
pages = st.one_of(st.none(), st.integers(1, 5))
numbers = st.one_of(st.integers(-3, 3), st.sampled_from([MOST, -MOST - 1, MOST - 2]))
wide = st.integers(0, 60)
many = st.lists(
    st.builds(Visit, wide, wide), min_size=8, max_size=40, unique_by=lambda visit: (visit.uid, visit.visitor)
)
visits = st.builds(Visit, keys, ids, st.sampled_from(["", "x"]))
points = st.builds(Points, keys, ids, st.integers(0, 5))
many_points = st.lists(
    st.builds(Points, wide, wide, wide), min_size=8, max_size=40, unique_by=lambda each: (each.uid, each.visitor)
)


def operations_of(structure: Any) -> list[st.SearchStrategy[Any]]:
    """Every operation of a structure, the more likely the more often it is in the list."""
    s = structure
    match s:
        case roost.Counter():
            return [
                *[st.builds(s.add, names, numbers if s is counter else st.integers(-3, 3))] * 4,
                *[st.builds(s.increment, names, st.integers(-3, 3))] * 2,
                st.builds(s.add_all, st.dictionaries(names, st.integers(-3, 3))),
                st.builds(s.add_all, st.dictionaries(st.integers(0, 40).map(str), st.integers(-3, 3), min_size=8)),
                st.builds(s.total, names),
                st.builds(s.totals, st.lists(names, max_size=3)),
                st.builds(s.top, st.integers(1, 3)),
                st.builds(s.clear, names),
                st.builds(s.keys, st.one_of(st.none(), names), st.integers(1, 3)),
            ]
        case roost.Set():
            several = st.lists(ids, max_size=3)
            return [
                *[st.builds(lambda k, m: s.add(k, *m), keys, several)] * 5,
                *[st.builds(lambda k, m: s.remove(k, *m), keys, several)] * 2,
                st.builds(s.add_all, st.lists(st.tuples(keys, ids), max_size=5)),
                st.builds(s.add_all, st.lists(st.tuples(wide, wide), min_size=8, max_size=30)),
                st.builds(s.members, keys),
                st.builds(s.contains, keys, ids),
                st.builds(s.size, keys),
                st.builds(s.clear, keys),
                st.builds(s.forget, keys),
                st.builds(s.keys, st.one_of(st.none(), keys), st.integers(1, 3)),
            ]
    row, rows = (points, many_points) if isinstance(s, roost.Capped) and s.score else (visits, many)
    made = [
        *[st.builds(s.push if isinstance(s, roost.Ring) else s.add, row)] * 12,
        *[st.builds(s.push_all if isinstance(s, roost.Ring) else s.add_all, st.lists(row, max_size=4))] * 3,
        *[st.builds(s.push_all if isinstance(s, roost.Ring) else s.add_all, rows)] * 3,
        *[st.builds(s.latest, keys, pages)] * 2,
        st.builds(lambda k, a, n: s.entries(k, after=a, n=n), keys, st.integers(0, 9), pages),
        st.builds(s.clear, keys),
        st.builds(s.forget, keys),
        st.builds(s.keys, st.one_of(st.none(), keys), st.integers(1, 3)),
    ]
    if isinstance(s, roost.Capped):
        made += [*[st.builds(s.remove, keys, ids)] * 3, st.builds(s.get, keys, ids), st.builds(s.count, keys)]
    if isinstance(s, roost.Capped) and s.score:
        made += [*[st.builds(s.top, keys, pages)] * 2, *[st.builds(s.rank, keys, ids)] * 2]
    return made


def operations(*structures: Any) -> st.SearchStrategy[Any]:
    # Not one_of, which drops what it has twice.
    made = [each for structure in structures for each in operations_of(structure)]
    return st.sampled_from(made).flatmap(lambda each: each)


def is_small(operation: Any) -> bool:
    """Leave out adds near 64 bits: an atom and a batch judge their sum, one by one one of them may be refused."""
    return operation.verb != "add" or operation.structure is not counter or abs(operation.args[1]) < 10


WAYS = ("store", "other store", "asyncio", "joined", "joined, then rolled back", "plain SQL", "plain SQL", "reopen")


def runs() -> st.SearchStrategy[list[tuple[str, list[Any]]]]:
    """Steps that stay with one or two structures, so that keys get full and rows are met again."""
    focus = st.lists(st.sampled_from(ALL), min_size=1, max_size=2, unique_by=id)
    return focus.flatmap(
        lambda structures: st.lists(
            st.tuples(st.sampled_from(WAYS), st.lists(operations(*structures), min_size=1, max_size=6)),
            min_size=5,
            max_size=25,
        )
    )


def comparable(results: Any) -> Any:
    """Entries as the model has them: without the clock."""
    if isinstance(results, tuple):
        return tuple(
            [(each.sequence, each.row) for each in result]
            if isinstance(result, list) and result and isinstance(result[0], roost.Entry)
            else result
            for result in results
        )
    return results


class Real:
    """Stores on one file, and the ways into them."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.url = f"sqlite:///{path}?synchronous=off"
        self.open()
        self.stores[0].create(*ALL)

    def open(self) -> None:
        self.stores = [roost.Store(self.url, random=random.Random(n)) for n in range(2)]
        self.asyncio = roost.AsyncStore(self.url)
        self.loop = asyncio.new_event_loop()
        self.connection = sqlite3.connect(self.path)

    def close(self) -> None:
        for store in self.stores:
            store.close()
        self.loop.run_until_complete(self.asyncio.close())
        self.loop.close()
        self.connection.close()

    def run_all(self, way: str, atom: list[Any]) -> Any:
        try:
            match way:
                case "store":
                    return self.stores[0].run_all(*atom)
                case "other store":
                    return self.stores[1].run_all(*atom)
                case "asyncio":
                    return self.loop.run_until_complete(self.asyncio.run_all(*atom))
            if way == "plain SQL":
                return self.by_sql(atom)
            try:
                return self.stores[0].on(self.connection).run_all(*atom)
            finally:
                self.connection.rollback() if way == "joined, then rolled back" else self.connection.commit()
        except roost.Error as error:
            return type(error)

    def by_sql(self, atom: list[Any]) -> Any:
        # What no SQL can do is done by the library, in the same transaction.
        results = []
        with self.connection:
            for operation in atom:
                answer = by_sql.run(self.connection, operation)
                if answer is NotImplemented:
                    answer = self.stores[0].on(self.connection).run(operation)
                results.append(answer)
        return tuple(results)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(runs())
def test_a_store_answers_as_the_model_does(steps: list[tuple[str, list[Any]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        real, model = Real(f"{folder}/model.db"), Model()
        try:
            for way, atom in steps:
                if way == "reopen":
                    real.close()
                    real.open()
                    continue
                if way == "plain SQL" and not all(map(is_small, atom)):
                    way = "joined"
                before = copy.deepcopy(model)
                wanted = model.run_all(atom)
                answer = comparable(real.run_all(way, atom))
                if isinstance(wanted, type) and answer is roost.Overflow:
                    assert any(each.structure is counter for each in atom)
                    wanted = answer  # two errors in one atom: either is told
                assert answer == wanted, (way, atom)
                if way == "joined, then rolled back":
                    model = before
            assert real.stores[0].check() == []
        finally:
            real.close()


class Ordered(Atom):
    """An atom that notes when it is done: one that is refused in company is run again behind the others."""

    __slots__ = ("_done", "_order")

    def __init__(self, operations: tuple[Any, ...], order: list[Atom]) -> None:
        self._order = order
        super().__init__(operations)

    @property
    def done(self) -> bool:
        return self._done

    @done.setter
    def done(self, done: bool) -> None:
        self._done = done
        if done and self not in self._order:
            self._order.append(self)


@settings(max_examples=max(20, EXAMPLES // 3), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(operations(*ALL).filter(is_small), min_size=1, max_size=40), min_size=2, max_size=8))
def test_operations_that_share_a_batch_answer_as_if_one_by_one(batches: list[list[Any]]) -> None:
    """Merged into few statements, with a culprit among them now and then; each answer is its own."""
    with roost.Store("sqlite://") as store:
        store.create(*ALL)
        model = Model()
        for batch in batches:
            order: list[Atom] = []
            waiting = [Ordered((operation,), order) for operation in batch]
            store._core.writers.submit([*waiting], 0)
            assert set(map(id, order)) == set(map(id, waiting))
            for atom in order:
                answer = tuple(atom.results) if atom.error is None else type(atom.error)
                assert comparable(answer) == model.run_all(atom.operations), (atom.operations, batch)
        assert store.check() == []
