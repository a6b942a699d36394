"""Random atoms, by every way in, on a store and on the dumb model beside it."""

from __future__ import annotations

import asyncio
import copy
import os
import random
import sqlite3
import tempfile
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import roost
from roost.batches import Atom
from tests.model.model import MOST, Model

# A campaign: ROOST_MODEL_EXAMPLES=20000 make test
EXAMPLES = int(os.environ.get("ROOST_MODEL_EXAMPLES", "150"))


@dataclass(frozen=True)
class Visit:
    uid: int
    visitor: int
    note: str = ""


counter = roost.Counter("counter")
spread = roost.Counter("spread", slots=5)
ring = roost.Ring("ring", Visit, per="uid", keep=3)
evicting = roost.Capped("evicting", Visit, per="uid", keep=3, unique="visitor")
refreshing = roost.Capped("refreshing", Visit, per="uid", keep=4, unique="visitor", on_duplicate="refresh")
rejecting = roost.Capped("rejecting", Visit, per="uid", keep=2, unique="visitor", on_full="reject")
members = roost.Set("members", key=int, member=int)
ALL = (counter, spread, ring, evicting, refreshing, rejecting, members)

names = st.sampled_from(["a", "b", "é"])
keys = st.integers(0, 2)
ids = st.integers(0, 6)
pages = st.one_of(st.none(), st.integers(1, 5))
numbers = st.one_of(st.integers(-3, 3), st.sampled_from([MOST, -MOST - 1, MOST - 2]))
visits = st.builds(Visit, keys, ids, st.sampled_from(["", "x"]))


def operations() -> st.SearchStrategy[Any]:
    made: list[st.SearchStrategy[Any]] = []
    for each in (counter, spread):
        made += [
            st.builds(each.add, names, numbers if each is counter else st.integers(-3, 3)),
            st.builds(each.total, names),
            st.builds(each.totals, st.lists(names, max_size=3)),
            st.builds(each.top, st.integers(1, 3)),
            st.builds(each.clear, names),
            st.builds(each.keys, st.one_of(st.none(), names), st.integers(1, 3)),
        ]
    made += [st.builds(ring.push, visits)] * 4
    for collection in (evicting, refreshing, rejecting):
        made += [st.builds(collection.add, visits)] * 5
        made += [
            st.builds(collection.remove, keys, ids),
            st.builds(collection.get, keys, ids),
            st.builds(collection.count, keys),
        ]
    for rows in (ring, evicting, refreshing, rejecting):
        made += [
            st.builds(rows.latest, keys, pages),
            st.builds(lambda r, k, a, n: r.entries(k, after=a, n=n), st.just(rows), keys, st.integers(0, 9), pages),
            st.builds(rows.clear, keys),
            st.builds(rows.forget, keys),
            st.builds(rows.keys, st.one_of(st.none(), keys), st.integers(1, 3)),
        ]
    several = st.lists(ids, max_size=3)
    made += [
        st.builds(lambda k, m: members.add(k, *m), keys, several),
        st.builds(lambda k, m: members.remove(k, *m), keys, several),
        st.builds(members.members, keys),
        st.builds(members.contains, keys, ids),
        st.builds(members.size, keys),
        st.builds(members.clear, keys),
        st.builds(members.forget, keys),
        st.builds(members.keys, st.one_of(st.none(), keys), st.integers(1, 3)),
    ]
    return st.one_of(made)


def is_small(operation: Any) -> bool:
    """Leave out adds near 64 bits: a batch judges their sum, one by one they would be refused on the way to it."""
    return operation.verb != "add" or operation.structure is not counter or abs(operation.args[1]) < 10


atoms = st.lists(operations(), min_size=1, max_size=6)
WAYS = ("store", "other store", "asyncio", "joined", "joined, then rolled back", "reopen")


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
            try:
                return self.stores[0].on(self.connection).run_all(*atom)
            finally:
                self.connection.rollback() if way == "joined, then rolled back" else self.connection.commit()
        except roost.Error as error:
            return type(error)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(WAYS), atoms), max_size=25))
def test_a_store_answers_as_the_model_does(steps: list[tuple[str, list[Any]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        real, model = Real(f"{folder}/model.db"), Model()
        try:
            for way, atom in steps:
                if way == "reopen":
                    real.close()
                    real.open()
                    continue
                before = copy.deepcopy(model)
                wanted = model.run_all(atom)
                assert comparable(real.run_all(way, atom)) == wanted, (way, atom)
                if way == "joined, then rolled back":
                    model = before
            assert real.stores[0].check() == []
        finally:
            real.close()


@settings(max_examples=max(20, EXAMPLES // 3), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(operations().filter(is_small), min_size=1, max_size=20), max_size=8))
def test_operations_that_share_a_batch_answer_as_if_one_by_one(batches: list[list[Any]]) -> None:
    """Merged into few statements, with a culprit among them now and then; each answer is its own."""
    with roost.Store("sqlite://") as store:
        store.create(*ALL)
        model = Model()
        for batch in batches:
            waiting = [Atom((operation,)) for operation in batch]
            store._core.writers.submit(waiting, 0)
            for atom in waiting:
                answer = tuple(atom.results) if atom.error is None else type(atom.error)
                assert comparable(answer) == model.run_all(atom.operations), (atom.operations, batch)
        assert store.check() == []
