"""Every meaningful combination of a capped collection's options, against a list in Python, on every database."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import roost
from tests.lengths import length
from tests.suite.clients import Client
from tests.suite.passing import passes

Make = Callable[..., Any]
pytestmark = pytest.mark.needs("capped", "second store")


@dataclass(frozen=True)
class Score:
    uid: int
    player: int
    points: int


MINUTES = 5
LIMITS: list[dict[str, Any]] = [{"keep": 3}, {"keep": 3, "keep_for": 60 * MINUTES}, {"keep_for": 60 * MINUTES}]
OPTIONS: list[dict[str, Any]] = [
    *[{**limit, "on_duplicate": each} for limit in LIMITS for each in ("error", "refresh")],
    *[{**limit, "on_duplicate": each, "on_full": "reject"} for limit in LIMITS[:2] for each in ("error", "refresh")],
    *[
        {**limit, "on_duplicate": each, "order": "points"}
        for limit in LIMITS[:2]
        for each in ("error", "refresh", "best")
    ],
    {"keep": 60, "on_duplicate": "best", "order": "points"},
    {"keep": 60, "on_duplicate": "refresh"},
]


def declared(options: dict[str, Any], name: str = "scores") -> Any:
    """Declare a collection of these options."""
    return roost.Capped(name, Score, per="uid", unique="player", **options)


class Model:
    """One collection: by key its rows, oldest first, each with the minute in which it expires."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.keep = options.get("keep")
        self.ordered, self.rejects = "order" in options, options.get("on_full") == "reject"
        self.on_duplicate = options["on_duplicate"]
        self.lasts = MINUTES if "keep_for" in options else 10**9
        self.now = 0
        self.rows: dict[int, list[tuple[Score, int]]] = {}

    def run_all(self, operations: list[Any]) -> Any:
        """Return the results of all operations, or the first error, after which nothing has changed."""
        before = {key: list(rows) for key, rows in self.rows.items()}
        results = []
        for op in operations:
            result = self._run(op)
            if isinstance(result, type):
                self.rows = before
                return result
            results.append(result)
        return tuple(results)

    def living(self, key: int) -> list[Score]:
        """Return the rows of a key, oldest first, without those that have expired."""
        self.rows[key] = [(row, until) for row, until in self.rows.get(key, []) if until > self.now]
        return [row for row, _ in self.rows[key]]

    def best(self, key: int) -> list[Score]:
        """Return the rows of a key, best first; of equal ones the older is better."""
        return sorted(self.living(key), key=lambda row: -row.points)

    def _run(self, op: Any) -> Any:
        if op.verb in ("add", "add_all"):
            results = [self._add(Score(*values)) for values in op.args]
            error = next((each for each in results if isinstance(each, type)), None)
            if error or not self.ordered:
                return error
            return results if op.verb == "add_all" else results[0]
        (key,) = op.args[0]
        there = self.living(key)
        if op.verb == "remove":
            (player,) = op.args[1]
            self.rows[key] = [each for each in self.rows[key] if each[0].player != player]
            return len(self.rows[key]) < len(there)
        assert op.verb == "clear"
        self.rows[key] = []
        return len(there)

    def _add(self, row: Score) -> Any:
        there = self.living(row.uid)
        same = next((each for each in there if each.player == row.player), None)
        gone = same
        if same is not None:
            if self.on_duplicate == "error":
                return roost.Duplicate
            if self.on_duplicate == "best" and row.points <= same.points:
                return False
        elif len(there) == self.keep:
            if self.rejects:
                return roost.Full
            gone = self.best(row.uid)[-1] if self.ordered else there[0]
            if self.ordered and row.points <= gone.points:
                return False
        rows = [each for each in self.rows[row.uid] if each[0] != gone]
        self.rows[row.uid] = [*rows, (row, self.now + self.lasts)]
        return True


def operations(chance: random.Random, collection: Any) -> list[Any]:
    """Draw some operations: sometimes so many rows that they are added together."""

    def row() -> Score:
        player = chance.randrange(6) if chance.random() < 0.7 else chance.randrange(10**6)
        return Score(chance.randrange(3), player, chance.randrange(9))

    drawn = chance.random()
    if drawn < 0.2:
        return [collection.add_all([row() for _ in range(chance.choice([2, 12, 30]))])]
    if drawn < 0.3:
        return [collection.remove(chance.randrange(3), chance.randrange(6)), collection.clear(chance.randrange(3))]
    if drawn < 0.4:  # none is a duplicate
        return [collection.add(Score(n % 3, chance.randrange(10**9), chance.randrange(9))) for n in range(15)]
    made = [collection.add(row()) for _ in range(chance.choice([1, 1, 1, 2, 5]))]
    return [*made, collection.remove(chance.randrange(3), chance.randrange(6))] if chance.random() < 0.2 else made


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(map(str, options.values())))
def test_it_answers_as_a_list_does(open_store: Make, sql: Client, options: dict[str, Any]) -> None:
    collection, chance = declared(options), random.Random(str(options))
    store, model = open_store(collection), Model(options)
    for _ in range(length(40, 400)):
        some = operations(chance, collection)
        if collection.keep_for is not None and chance.random() < 0.2:
            minutes = chance.randrange(MINUTES)
            passes(sql, collection, 60 * minutes)
            model.now += minutes
        answer: Any
        try:
            answer = (store.run(some[0]),) if len(some) == 1 else store.run_all(*some)
        except roost.Error as error:
            answer = type(error)
        assert answer == model.run_all(some), some
        for key in range(3):
            there = model.living(key)
            player = there[0].player if there else 7
            asked = [collection.latest(key), collection.count(key), collection.get(key, player)]
            wanted: list[Any] = [there[::-1], len(there), there[0] if there else None]
            if model.ordered:
                best = model.best(key)
                asked += [collection.top(key, 2), collection.rank(key, player)]
                wanted += [best[:2], best.index(there[0]) + 1 if there else None]
            assert list(store.run_all(*asked)) == wanted == [store.run(each) for each in asked], some
    assert store.check() == []


MEANINGLESS: list[tuple[dict[str, Any], str]] = [
    ({}, "keep says how many rows a key has, keep_for how old they get"),
    ({"order": "points", "keep_for": 60}, "keep says how many"),
    ({"keep_for": 60, "on_full": "reject"}, "without it no key is ever full"),
    ({"keep": 3, "order": "points", "on_full": "reject"}, "on_full='reject' does not go with order"),
    ({"keep": 3, "on_duplicate": "best"}, "on_duplicate='best' goes with order"),
]


@pytest.mark.parametrize(("options", "why"), MEANINGLESS, ids=[why for _, why in MEANINGLESS])
def test_options_that_mean_nothing_together_are_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(roost.Invalid, match=why):
        declared(options)


@pytest.mark.parametrize("verb", ["top", "rank"])
def test_what_needs_an_order_says_so(verb: str) -> None:
    with pytest.raises(roost.Invalid, match=f"scores: {verb} goes with order="):
        declared({"keep": 3}).top(1) if verb == "top" else declared({"keep": 3}).rank(1, 2)
