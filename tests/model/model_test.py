"""Random atoms, by every way in, on SQLite and on the dumb model beside it; `tests/suite/model_test.py` has servers."""

from __future__ import annotations

import asyncio
import copy
import functools
import os
import random
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import roost
from tests.model import by_sql, cache
from tests.model.model import Model
from tests.model.operations import ALL, MOVES, Points, alike, is_small, lasting, operation
from tests.suite.passing import Hand

# A campaign: ROOST_EXPLORE=1 ROOST_MODEL_EXAMPLES=20000 make test
EXAMPLES = int(os.environ.get("ROOST_MODEL_EXAMPLES", "40"))
WAYS = (
    *("store", "other store", "asyncio", "joined", "joined, then rolled back", "plain SQL", "plain SQL", "reopen"),
    *("time passes", "the clock jumps back"),
)
ELSEWHERE = 99  # a key that no operation is about


def runs() -> st.SearchStrategy[list[tuple[str, list[Any]]]]:
    """Steps that stay with one or two structures, so that keys get full and rows are met again."""

    def some(structures: list[Any]) -> st.SearchStrategy[Any]:
        drawn = st.builds(operation, st.randoms(use_true_random=False), st.sampled_from(structures))
        return st.lists(
            st.tuples(st.sampled_from(WAYS), st.lists(drawn, min_size=1, max_size=6)), min_size=5, max_size=25
        )

    return st.lists(st.sampled_from(ALL), min_size=1, max_size=2, unique_by=id).flatmap(some)


@functools.cache
def made() -> bytes:
    """Return a file with every structure: to make them takes longer than to play an example."""
    with tempfile.TemporaryDirectory() as folder:
        with roost.Store(f"sqlite:///{folder}/made.db?synchronous=off", clock=Hand()) as store:
            store.create(*ALL)
        return Path(folder, "made.db").read_bytes()


class Real:
    """Stores on one file, and the ways into them."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.url = f"sqlite:///{path}?synchronous=off"
        self.clock = Hand()
        Path(path).write_bytes(made())
        self.open()

    def open(self) -> None:
        self.stores = [roost.Store(self.url, random=random.Random(n), clock=self.clock) for n in range(2)]
        self.asyncio = roost.AsyncStore(self.url, clock=self.clock)
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
            for each in atom:
                answer = by_sql.run(self.connection, each)
                if answer is NotImplemented:
                    answer = self.stores[0].on(self.connection).run(each)
                results.append(answer)
        return tuple(results)

    def moves(self, seconds: float, model: Model, structures: set[Any]) -> None:
        """Set the clock, between writes that see each moment: what only readers saw could come again."""
        for moved in (0, seconds):
            self.clock.moves(moved)
            model.now += max(0, moved)
            for structure in structures:
                row = Points(ELSEWHERE, 1)
                seen = structure.push(row) if structure.kind == "ring" else structure.forget(ELSEWHERE)
                seen = structure.add(ELSEWHERE, 1) if structure.kind == "set" else seen
                assert self.stores[0].run(seen) == model.run_all([seen])[0]


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(runs())
def test_a_store_answers_as_the_model_does(steps: list[tuple[str, list[Any]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        real, model = Real(f"{folder}/model.db"), Model()
        used = {each.structure for _, atom in steps for each in atom}
        expiring = {each for each in used if not lasting(each)}
        try:
            for way, atom in steps:
                if way in ("time passes", "the clock jumps back"):
                    real.moves(MOVES[len(atom) % 3] if way == "time passes" else -len(atom) * 400, model, expiring)
                    continue
                if way == "reopen":
                    real.close()
                    real.open()
                    continue
                if way == "plain SQL" and (expiring or not all(map(is_small, atom))):
                    way = "joined"  # a store's clock is its own
                before = copy.deepcopy(model)
                wanted = model.run_all(atom)
                answer = alike(real.run_all(way, atom))
                if isinstance(wanted, type) and answer is roost.Overflow:
                    assert any(isinstance(each.structure, roost.Counter) for each in atom)
                    wanted = answer  # two errors in one atom: either is told
                assert answer == wanted, (way, atom)
                if way == "joined, then rolled back":
                    model = before
            assert real.stores[0].check(*used) == []  # to check all takes longer than to play
        finally:
            real.close()


@given(st.randoms(use_true_random=False), st.integers(20, 80))
@settings(max_examples=max(EXAMPLES, 50), deadline=None, suppress_health_check=list(HealthCheck))
def test_a_cache_answers_like_a_dictionary(chance: random.Random, rounds: int) -> None:
    clock = Hand()
    with roost.Store("sqlite://", clock=clock) as store:
        store.create(cache.cache)
        cache.play(store, cache.Model(), chance, clock.moves, rounds)
