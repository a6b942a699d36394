"""A ring whose rows leave by themselves: of the last `keep` those that are not too old, whatever the clock does."""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import roost
from roost.structures.registry import from_definition
from tests.suite.clients import Client
from tests.suite.passing import Hand, Jumping, passes
from tests.suite.shapes import Visit
from tests.suite.ways import App

Make = Callable[..., Any]

MINUTE, DAY = 60, 86_400
EXAMPLES = int(os.environ.get("ROOST_MODEL_EXAMPLES", "60"))

recent = roost.Ring("recent", Visit, per="uid", keep=3, keep_for=dt.timedelta(minutes=5))
long = roost.Ring("recent", Visit, per="uid", keep=200, keep_for=dt.timedelta(minutes=5))
second = pytest.mark.needs("ring", "second store")
pytestmark = pytest.mark.needs("ring")
both = pytest.mark.parametrize("ring", [recent, long], ids=["few", "many"])


def size(sql: Client) -> int:
    """How many rows there are."""
    found: Any = sql.execute("SELECT count(*) FROM roost_recent_rows").fetchone()
    return int(found[0])


def numbers(store: Any, ring: Any, key: int, n: int | None = None) -> list[int]:
    """The visitors of a key, newest first: as an operation by itself, and in a batch, tells them."""
    alone = [visit.visitor for visit in store.run(ring.latest(key, n))]
    together, _ = store.run_all(ring.latest(key, n), ring.keys())
    assert [visit.visitor for visit in together] == alone
    return alone


@both
def test_it_answers_like_a_ring(make: Make, ring: Any) -> None:
    store = make(ring)
    assert [store.run(ring.push(Visit(5, n))) for n in range(2)] == [1, 2]
    assert store.run_all(ring.push(Visit(6, 9)), ring.push(Visit(5, 2)), ring.latest(5, 1)) == (1, 3, [Visit(5, 2)])
    assert store.run(ring.push_all([Visit(5, 3), Visit(6, 8)])) == [4, 2]
    assert numbers(store, ring, 5) == [3, 2, 1, 0][: ring.keep]
    assert numbers(store, ring, 5, 2) == [3, 2]
    entries = store.run(ring.entries(5, after=2, n=1))
    assert [(each.sequence, each.row) for each in entries] == [(3, Visit(5, 2))]
    assert store.run(ring.keys()) == [5, 6]
    assert store.run_all(ring.clear(5), ring.latest(5), ring.push(Visit(5, 7))) == (min(4, ring.keep), [], 5)
    assert store.run_all(ring.forget(6), ring.keys(), ring.push(Visit(6, 1))) == (2, [5], 1)


@second
@both
def test_rows_leave_by_themselves(make: Make, sql: Client, ring: Any) -> None:
    store = make(ring)
    store.run_all(*[ring.push(Visit(5, n)) for n in range(3)], ring.push(Visit(6, 0)))
    passes(sql, ring, 3 * MINUTE)
    store.run(ring.push(Visit(5, 3)))
    assert numbers(store, ring, 5) == [3, 2, 1, 0][: ring.keep]
    passes(sql, ring, 3 * MINUTE)
    assert numbers(store, ring, 5) == [3]
    assert numbers(store, ring, 5, 2) == [3]
    assert numbers(store, ring, 6) == []
    assert [each.sequence for each in store.run(ring.entries(5, n=1))] == [4]
    assert [each.sequence for each in store.run(ring.entries(5, after=1))] == [4]
    assert store.run(ring.keys()) == [5, 6]
    assert store.run(ring.push(Visit(5, 4))) == 5
    assert numbers(store, ring, 5) == [4, 3]
    assert store.run_all(ring.clear(6), ring.clear(5), ring.push(Visit(6, 1))) == (0, 2, 2)


@second
def test_pushes_remove_what_is_over(open_store: Make, sql: Client) -> None:
    store = open_store(recent)
    store.run(recent.push_all([Visit(key, n) for key in range(20) for n in range(2)]))
    passes(sql, recent, 6 * MINUTE)
    assert size(sql) == 40
    for n in range(20):
        store.run(recent.push_all([Visit(100 + n, n)]))
    assert size(sql) == 20
    passes(sql, recent, 6 * MINUTE)
    store.run_all(*[recent.push(Visit(100 + n, n)) for n in range(10)])
    assert size(sql) == 10
    passes(sql, recent, 6 * MINUTE)
    for n in range(20):  # by themselves they leave it to one in sixteen
        store.run(recent.push(Visit(100 + n % 5, n)))
    assert size(sql) == 5 * recent.keep


@second
def test_what_others_hold_is_skipped(open_store: Make, app: Callable[..., App], sql: Client, store_url: str) -> None:
    store, one = open_store(recent, timeout=2.0), app()
    if store_url.startswith("sqlite"):
        return  # there is one writer
    store.run_all(*[recent.push(Visit(5, n)) for n in range(3)])
    one.run(recent.push(Visit(5, 3)))  # over the first
    passes(sql, recent, 6 * MINUTE)
    store.run(recent.push_all([Visit(6, 1)]))
    store.run(recent.push_all([Visit(6, 2)]))
    assert size(sql) == 3
    one.commit()
    store.run(recent.push_all([Visit(6, 3)]))
    assert size(sql) == 3


@second
def test_in_the_applications_transaction(open_store: Make, app: Callable[..., App], sql: Client) -> None:
    store, one = open_store(recent), app()
    assert one.run_all(recent.push(Visit(5, 1)), recent.latest(5)) == (1, [Visit(5, 1)])
    one.rollback()
    assert one.run(recent.push(Visit(5, 2))) == 1
    one.commit()
    assert numbers(store, recent, 5) == [2]
    passes(sql, recent, 6 * MINUTE)
    assert one.run_all(recent.latest(5), recent.clear(5)) == ([], 0)
    one.commit()


@second
def test_a_clock_that_jumps_back_brings_nothing_back(open_store: Make, sql: Client, store_url: str) -> None:
    clock = Jumping(sql, store_url)
    store = open_store(recent, **clock.options)
    clock.jumps(recent, 400 * DAY)
    store.run(
        recent.push_all([Visit(5, 1)])
    )  # in a batch, which writes the time down; a push by itself does each second
    clock.jumps(recent, 6 * MINUTE)
    store.run(recent.push_all([Visit(5, 2)]))
    clock.jumps(recent, -400 * DAY)
    assert numbers(store, recent, 5) == [2]
    store.run(recent.push_all([Visit(5, 3)]))
    assert numbers(store, recent, 5) == [3, 2]
    clock.jumps(recent, 6 * MINUTE)
    assert numbers(store, recent, 5) == []


@second
def test_its_limits_are_altered_and_columns_added(open_store: Make, sql: Client, store_url: str) -> None:
    clock = Jumping(sql, store_url)
    store = open_store(recent, **clock.options)
    store.run(recent.push(Visit(5, 1)))
    clock.jumps(recent, 4 * MINUTE)
    store.run_all(*[recent.push(Visit(5, n)) for n in range(2, 4)])
    shorter = roost.Ring("recent", Visit, per="uid", keep=5, keep_for=2 * MINUTE)
    assert store.alter(shorter) == ["keep: 3 -> 5", "keep_for: 5m -> 2m"]
    assert numbers(store, shorter, 5) == [3, 2]
    longer = roost.Ring("recent", Visit, per="uid", keep=4, keep_for=DAY)
    store.alter(longer)
    store.run(longer.push(Visit(5, 4)))
    assert numbers(store, longer, 5) == [4, 3, 2]
    clock.jumps(recent, 3 * MINUTE)
    assert numbers(store, longer, 5) == [4]

    noted = dataclasses.make_dataclass(
        "Noted", [("note", int, dataclasses.field(default=7))], bases=(Visit,), frozen=True
    )
    wider: Any = roost.Ring("recent", noted, per="uid", keep=4, keep_for=DAY)
    assert store.alter(wider) == ["column note (int) added"]
    store.run_all(wider.push(noted(5, 5, 8)), longer.push(Visit(5, 6)))
    assert [(row.visitor, row.note) for row in store.run(wider.latest(5))] == [(6, 7), (5, 8), (4, 7)]
    with pytest.raises(roost.Invalid, match="keep_for cannot change from 86400 to None"):
        store.alter(roost.Ring("recent", Visit, per="uid", keep=3))


@pytest.mark.needs("ring", "second store", "views")
def test_sql_sees_and_pushes(open_store: Make, sql: Client, store_url: str) -> None:
    store = open_store(recent)
    store.run_all(*[recent.push(Visit(5, n)) for n in range(5)])
    assert sql.execute("SELECT count(*) FROM recent WHERE uid = 5").fetchone() == (3,)
    passes(sql, recent, 6 * MINUTE)
    assert sql.execute("SELECT count(*) FROM recent").fetchone() == (0,)
    sql.execute("INSERT INTO recent (uid, visitor) VALUES (6, 1), (6, 2)")
    assert sql.execute("SELECT uid, sequence, visitor FROM recent ORDER BY sequence").fetchall() == [
        (6, 1, 1),
        (6, 2, 2),
    ]
    assert size(sql) == (2 if store_url.startswith("sqlite") else 5)  # on servers what is over is left to stores
    sql.execute("UPDATE recent SET visitor = 9 WHERE sequence = 2")
    sql.execute("DELETE FROM recent WHERE sequence = 1")
    assert numbers(store, recent, 6) == [9]


@pytest.mark.needs("ring", "second store", "pymysql")
def test_sql_pushes_through_the_inlet(open_store: Make, sql: Client) -> None:
    store = open_store(recent)
    store.run_all(*[recent.push(Visit(5, n)) for n in range(2)])
    passes(sql, recent, 6 * MINUTE)
    assert sql.execute("SELECT count(*) FROM recent").fetchone() == (0,)
    sql.execute("INSERT INTO recent_in (uid, visitor) VALUES (6, 1), (6, 2), (5, 2)")
    assert numbers(store, recent, 6) == [2, 1]
    assert numbers(store, recent, 5) == [2]
    assert size(sql) <= 5  # what is over is left to stores, or overwritten
    sql.execute("INSERT INTO recent_out (uid, sequence) VALUES (6, 1)")
    assert numbers(store, recent, 6) == [2]


keys = st.integers(0, 1)
visits = st.builds(Visit, keys, st.integers(0, 9))
operations = st.one_of(
    st.builds(recent.push, visits),
    st.builds(recent.push_all, st.lists(visits, max_size=5)),
    st.builds(recent.latest, keys, st.none() | st.integers(1, 4)),
    st.builds(recent.entries, keys, after=st.integers(0, 6), n=st.none() | st.integers(1, 3)),
    st.builds(recent.clear, keys),
)
steps = st.lists(st.tuples(st.sampled_from([0, 0, 1, 100, 200, -50, -1000]), st.lists(operations, max_size=5)))


class Model:
    """Sequences, and rows with the moments at which they leave."""

    def __init__(self) -> None:
        self.now = 0
        self.sequences = {0: 0, 1: 0}
        self.rows: dict[int, list[tuple[int, Visit, int]]] = {0: [], 1: []}

    def run(self, op: Any) -> Any:
        """Return what a store must answer."""
        match op.verb, op.args:
            case "push", (row,):
                return self._push(*row)
            case "push_all", rows:
                return [self._push(*row) for row in rows]
        (key,), *rest = op.args
        living = [(sequence, row) for sequence, row, until in self.rows[key] if until > self.now]
        match op.verb, rest:
            case "latest", [n]:
                return [row for _, row in living[::-1][:n]]
            case "entries", [after, n]:
                return [each for each in living if each[0] > after][:n]
        self.rows[key] = []
        return len(living)

    def _push(self, key: int, visitor: int) -> int:
        self.sequences[key] += 1
        self.rows[key] = [*self.rows[key], (self.sequences[key], Visit(key, visitor), self.now + 300)][-recent.keep :]
        return self.sequences[key]


@given(steps)
@settings(max_examples=EXAMPLES, deadline=None)
def test_random_operations_answer_what_a_model_answers(played: list[Any]) -> None:
    clock, model = Hand(), Model()
    with roost.Store("sqlite://", clock=clock) as store:
        store.create(recent)
        for moved, some in played:
            store.run(recent.push(Visit(7, 0)))  # a write sees each moment: what only readers saw could come again
            clock.moves(moved)
            model.now += max(0, moved)
            store.run(recent.push(Visit(7, 0)))
            found = (store.run(some[0]),) if len(some) == 1 else store.run_all(*some)
            outcome = [
                [(each.sequence, each.row) for each in answer] if op.verb == "entries" else answer
                for op, answer in zip(some, found, strict=True)
            ]
            assert outcome == [model.run(op) for op in some]
        assert store.check() == []


def test_a_declaration_is_a_value() -> None:
    made = from_definition(recent.definition)
    assert made == recent == pickle.loads(pickle.dumps(recent))
    assert isinstance(made, roost.Ring)
    assert made != roost.Ring("recent", Visit, per="uid", keep=3)
    with pytest.raises(roost.Invalid, match="recent: keep_for"):
        roost.Ring("recent", Visit, per="uid", keep=3, keep_for=0)
