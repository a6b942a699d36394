"""Every structure with every combination of its options answers as the dumb model does, whoever asks and how.

What is drawn is the same each time; the campaign `suite` draws more. Time passes for what expires.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import roost
from roost.batching.atoms import Atom
from tests.lengths import length
from tests.model.model import Model
from tests.model.operations import ALL, MOVES, alike, is_small, lasting, operation
from tests.suite.clients import Client
from tests.suite.conftest import InAsyncio
from tests.suite.passing import passes, windows_pass

pytestmark = pytest.mark.needs("counter", "second store")


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


def in_a_batch(store: Any, model: Model, batch: list[Any]) -> None:
    """Run operations that share a batch: each answer is its own, as if one went after the other."""
    order: list[Atom] = []
    waiting = [Ordered((each,), order) for each in batch]
    store._core.submit([*waiting])
    assert set(map(id, order)) == set(map(id, waiting))
    for atom in order:
        answer = alike(atom.answer) if atom.error is None else type(atom.error)
        assert answer == model.run_all(atom.operations), (atom.operations, batch)


def joined(store: Any, sql: Any, atom: list[Any], end: str) -> Any:
    """Run an atom in a transaction of the application's."""
    sql.execute("BEGIN")
    try:
        return store.on(sql).run_all(*atom)
    finally:
        sql.execute(end)


WAYS: dict[str, Callable[..., Any]] = {
    "alone": lambda atom, store, **_: [store.run(atom[0])],
    "atom": lambda atom, store, **_: store.run_all(*atom),
    "another store": lambda atom, other, **_: other.run_all(*atom),
    "asyncio": lambda atom, in_asyncio, **_: in_asyncio.run_all(*atom),
    "asyncio, alone": lambda atom, in_asyncio, **_: [in_asyncio.run(atom[0])],
    "joined": lambda atom, store, sql, **_: joined(store, sql, atom, "COMMIT"),
    "joined, then rolled back": lambda atom, store, sql, **_: joined(store, sql, atom, "ROLLBACK"),
}


def answered(way: Callable[..., Any], atom: list[Any], **doors: Any) -> Any:
    """Return the results, or the class of the error."""
    try:
        return alike(tuple(way(atom, **doors)))
    except roost.Error as error:
        return type(error)


@pytest.fixture
def in_asyncio(store_url: str) -> Iterator[InAsyncio]:
    store = InAsyncio(store_url, (), {})
    yield store
    store.close()


PARTS = 4  # each has structures of all kinds


@pytest.mark.parametrize("part", range(PARTS))
def test_it_answers_as_the_model_does(
    open_store: Callable[..., Any], in_asyncio: InAsyncio, sql: Client, part: int
) -> None:
    structures = ALL[part::PARTS]
    doors = {"store": open_store(*structures), "other": open_store(), "in_asyncio": in_asyncio, "sql": sql}
    for structure in structures:
        play(structure, doors)


def play(structure: Any, doors: dict[str, Any]) -> None:
    """Draw operations of a structure, and compare what is answered."""
    chance, model = random.Random(structure.name), Model()
    store, sql = doors["store"], doors["sql"]
    for _ in range(length(14, 400)):
        if not lasting(structure) and chance.random() < 0.2:
            seconds = chance.choice(MOVES)
            passes(sql, structure, seconds)
            model.now += seconds
        if getattr(structure, "window", None) and chance.random() < 0.2:
            windows_pass(store, structure)
            model.next_window(structure)
        way = chance.choice([*WAYS, "batch"])
        if way == "batch":
            drawn = [operation(chance, structure) for _ in range(12)]
            in_a_batch(store, model, [each for each in drawn if is_small(each) and each.writes])
            continue
        atom = [operation(chance, structure) for _ in range(chance.choice([1, 1, 2, 6]))]
        # What lists keys stands alone: it sees those that others of its atom are about to add, locked before it reads.
        atom = [each for each in atom if each.verb in ("top", "keys")][:1] or atom
        atom = atom[:1] if way.endswith("alone") else atom
        before = copy.deepcopy(model)
        wanted = model.run_all(atom)
        assert answered(WAYS[way], atom, **doors) == wanted, (way, atom)
        if way == "joined, then rolled back":
            model = before
    for key in range(3) if structure.kind != "counter" else ():
        reads = [structure.members(key)] if structure.kind == "set" else [structure.latest(key), structure.entries(key)]
        assert answered(WAYS["atom"], reads, store=store) == model.run_all(reads)
