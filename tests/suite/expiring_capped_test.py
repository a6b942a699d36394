"""A capped collection whose rows leave by themselves: counts are exact, over is absent, whatever the clock does."""

from __future__ import annotations

import datetime as dt
import os
import pickle
import threading
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


def declared(keep: int = 3, keep_for: Any = 5 * MINUTE, **options: Any) -> Any:
    """Declare the collection of these tests."""
    return roost.Capped("recent", Visit, per="uid", keep=keep, unique="visitor", keep_for=keep_for, **options)


recent = declared()
refreshing = declared(on_duplicate="refresh")
rejecting = declared(on_full="reject")
second = pytest.mark.needs("capped", "second store")
pytestmark = pytest.mark.needs("capped")


def size(sql: Client) -> int:
    """How many rows there are."""
    found: Any = sql.execute("SELECT count(*) FROM roost_recent_rows").fetchone()
    return int(found[0])


def numbers(store: Any, key: int, n: int | None = None) -> list[int]:
    """The visitors of a key, newest first: as operations by themselves, and in a batch, tell them."""
    alone = [visit.visitor for visit in store.run(recent.latest(key, n))]
    together, count, entries = store.run_all(recent.latest(key, n), recent.count(key), recent.entries(key))
    assert [visit.visitor for visit in together] == alone
    assert store.run(recent.count(key)) == count == len(entries) == len(store.run(recent.entries(key)))
    assert n is not None or count == len(alone)
    return alone


def test_it_answers_like_a_capped_collection(make: Make) -> None:
    store = make(recent)
    for n in range(4):
        store.run(recent.add(Visit(5, n)))
    assert numbers(store, 5) == [3, 2, 1]
    assert numbers(store, 5, 2) == [3, 2]
    with pytest.raises(roost.Duplicate):
        store.run(recent.add(Visit(5, 3)))
    assert store.run_all(recent.remove(5, 2), recent.remove(5, 2), recent.get(5, 3), recent.get(5, 2)) == (
        *(True, False),
        *(Visit(5, 3), None),
    )
    assert (store.run(recent.get(5, 3)), store.run(recent.get(5, 2))) == (Visit(5, 3), None)
    store.run(recent.add_all([Visit(5, 7), Visit(6, 7), Visit(5, 8)]))
    assert (numbers(store, 5), numbers(store, 6)) == ([8, 7, 3], [7])
    assert [each.sequence for each in store.run(recent.entries(5, after=4, n=1))] == [5]
    assert store.run_all(recent.clear(5), recent.keys(), recent.forget(6), recent.keys()) == (3, [5, 6], 1, [5])


@second
def test_rows_leave_by_themselves(make: Make, sql: Client) -> None:
    store = make(recent)
    store.run_all(*[recent.add(Visit(5, n)) for n in range(2)], recent.add(Visit(6, 0)))
    passes(sql, recent, 3 * MINUTE)
    store.run(recent.add(Visit(5, 2)))
    assert numbers(store, 5) == [2, 1, 0]
    passes(sql, recent, 3 * MINUTE)
    assert (numbers(store, 5), numbers(store, 5, 1), numbers(store, 6)) == ([2], [2], [])
    assert (store.run(recent.get(5, 1)), store.run(recent.get(5, 2))) == (None, Visit(5, 2))
    assert store.run_all(recent.get(5, 1), recent.get(5, 2)) == (None, Visit(5, 2))
    assert store.run(recent.keys()) == [5, 6]
    assert store.run(recent.remove(5, 1)) is False
    store.run(recent.add(Visit(5, 0)))  # it is not there, so it is no duplicate
    assert numbers(store, 5) == [0, 2]
    assert store.run_all(recent.clear(6), recent.clear(5), recent.add(Visit(6, 1))) == (0, 2, None)
    assert numbers(store, 6) == [1]


@second
def test_an_add_renews_what_is_refreshed(make: Make, sql: Client) -> None:
    store = make(refreshing)
    store.run_all(*[refreshing.add(Visit(5, n)) for n in range(2)])
    passes(sql, refreshing, 3 * MINUTE)
    store.run(refreshing.add(Visit(5, 0)))
    passes(sql, refreshing, 3 * MINUTE)
    assert [visit.visitor for visit in store.run(refreshing.latest(5))] == [0]
    store.run_all(refreshing.add(Visit(5, 1)), refreshing.add(Visit(5, 0)))
    assert [visit.visitor for visit in store.run(refreshing.latest(5))] == [0, 1]


@second
def test_what_is_over_takes_no_place(make: Make, sql: Client) -> None:
    store = make(rejecting)
    store.run_all(*[rejecting.add(Visit(5, n)) for n in range(2)])
    passes(sql, rejecting, 3 * MINUTE)
    store.run(rejecting.add(Visit(5, 2)))
    with pytest.raises(roost.Full):
        store.run(rejecting.add(Visit(5, 3)))
    passes(sql, rejecting, 3 * MINUTE)
    store.run_all(rejecting.add(Visit(5, 3)), rejecting.add(Visit(5, 4)))
    with pytest.raises(roost.Full):
        store.run(rejecting.add(Visit(5, 5)))
    assert store.run(rejecting.count(5)) == 3


@second
def test_writes_remove_what_is_over(open_store: Make, sql: Client) -> None:
    store = open_store(recent)
    store.run(recent.add_all([Visit(key, n) for key in range(20) for n in range(2)]))
    passes(sql, recent, 6 * MINUTE)
    assert size(sql) == 40
    for n in range(20):
        store.run(recent.add(Visit(100, n)))
    assert size(sql) == 3
    passes(sql, recent, 6 * MINUTE)
    store.run_all(recent.remove(100, 3), recent.remove(101, 3))
    assert size(sql) == 0


@second
def test_what_others_hold_is_skipped(open_store: Make, app: Callable[..., App], sql: Client, store_url: str) -> None:
    store, one = open_store(recent, timeout=2.0), app()
    if store_url.startswith("sqlite"):
        return  # there is one writer
    store.run_all(*[recent.add(Visit(5, n)) for n in range(3)])
    store.run(recent.add_all([Visit(key, 0) for key in range(100, 140)]))  # of few keys MariaDB locks all
    one.run(recent.remove(5, 1))
    passes(sql, recent, 6 * MINUTE)
    for n in range(25):
        store.run(recent.add(Visit(120, n)))
    assert size(sql) == 3 + 3
    one.commit()
    store.run_all(recent.add(Visit(120, 30)), recent.count(120))
    assert size(sql) == 3


@second
def test_in_the_applications_transaction(open_store: Make, app: Callable[..., App], sql: Client) -> None:
    store, one = open_store(recent), app()
    assert one.run_all(recent.add(Visit(5, 1)), recent.latest(5)) == (None, [Visit(5, 1)])
    one.rollback()
    one.run(recent.add(Visit(5, 2)))
    one.commit()
    assert numbers(store, 5) == [2]
    passes(sql, recent, 6 * MINUTE)
    assert one.run_all(recent.count(5), recent.add(Visit(5, 2)), recent.count(5), recent.clear(5)) == (0, None, 1, 1)
    one.commit()
    assert size(sql) == 0


@second
def test_a_clock_that_jumps_back_brings_nothing_back(open_store: Make, sql: Client, store_url: str) -> None:
    clock = Jumping(sql, store_url)
    store = open_store(recent, **clock.options)
    clock.jumps(recent, 400 * DAY)
    store.run(recent.add(Visit(5, 1)))
    clock.jumps(recent, 6 * MINUTE)
    store.run(recent.add(Visit(6, 2)))
    clock.jumps(recent, -400 * DAY)
    assert (numbers(store, 5), numbers(store, 6)) == ([], [2])
    store.run(recent.add(Visit(6, 3)))
    assert numbers(store, 6) == [3, 2]
    clock.jumps(recent, 6 * MINUTE)
    assert numbers(store, 6) == []


@second
def test_its_limits_are_altered(open_store: Make, sql: Client, store_url: str) -> None:
    clock = Jumping(sql, store_url)
    store = open_store(recent, **clock.options)
    store.run(recent.add(Visit(5, 1)))
    clock.jumps(recent, 4 * MINUTE)
    store.run_all(*[recent.add(Visit(5, n)) for n in range(2, 4)])
    assert store.alter(declared(5, 2 * MINUTE, on_full="reject")) == [
        "keep: 3 -> 5", "on_full: evict -> reject", "keep_for: 5m -> 2m"
    ]  # fmt: skip
    assert numbers(store, 5) == [3, 2]
    longer = declared(4, DAY)
    store.alter(longer)
    store.run(longer.add(Visit(5, 4)))
    clock.jumps(recent, 3 * MINUTE)
    assert numbers(store, 5) == [4]
    with pytest.raises(roost.Invalid, match="keep_for cannot change from 86400 to None"):
        store.alter(declared(keep_for=None))


@pytest.mark.needs("capped", "second store", "views")
@pytest.mark.parametrize("declaration", [recent, refreshing, rejecting], ids=["evicts", "refreshes", "rejects"])
def test_sql_sees_and_adds(open_store: Make, sql: Client, declaration: Any) -> None:
    store = open_store(declaration)
    store.run_all(*[declaration.add(Visit(5, n)) for n in range(3)])
    assert sql.execute("SELECT count(*) FROM recent WHERE uid = 5").fetchone() == (3,)
    passes(sql, recent, 6 * MINUTE)
    assert sql.execute("SELECT count(*) FROM recent").fetchone() == (0,)
    for n in (0, 3, 4):
        sql.execute(f"INSERT INTO recent (uid, visitor) VALUES (5, {n})")
    assert sql.execute("SELECT visitor, sequence FROM recent ORDER BY sequence").fetchall() == [(0, 4), (3, 5), (4, 6)]
    assert size(sql) == 3
    if declaration is rejecting:
        with pytest.raises(sql.IntegrityError, match="is full"):
            sql.execute("INSERT INTO recent (uid, visitor) VALUES (5, 5)")
    elif declaration is refreshing:
        passes(sql, recent, 3 * MINUTE)
        sql.execute("INSERT INTO recent (uid, visitor) VALUES (5, 3)")
        passes(sql, recent, 3 * MINUTE)
        assert numbers(store, 5) == [3]
    else:
        with pytest.raises(sql.IntegrityError, match="is there already"):
            sql.execute("INSERT INTO recent (uid, visitor) VALUES (5, 3)")
        sql.execute("INSERT INTO recent (uid, visitor) VALUES (5, 5)")
        sql.execute("DELETE FROM recent WHERE visitor = 4")
        assert numbers(store, 5) == [5, 3]


@pytest.mark.needs("capped", "second store", "pymysql")
@pytest.mark.parametrize("declaration", [recent, refreshing, rejecting], ids=["evicts", "refreshes", "rejects"])
def test_sql_adds_through_the_inlet(open_store: Make, sql: Client, declaration: Any) -> None:
    store = open_store(declaration)
    store.run_all(*[declaration.add(Visit(5, n)) for n in range(3)])
    passes(sql, recent, 6 * MINUTE)
    assert sql.execute("SELECT count(*) FROM recent").fetchone() == (0,)
    sql.execute("INSERT INTO recent_in (uid, visitor) VALUES (5, 0), (5, 3)")
    assert numbers(store, 5) == [3, 0]
    assert size(sql) == 2
    passes(sql, recent, 3 * MINUTE)
    if declaration is refreshing:
        sql.execute("INSERT INTO recent_in (uid, visitor) VALUES (5, 0)")
        passes(sql, recent, 3 * MINUTE)
        assert numbers(store, 5) == [0]
    passes(sql, recent, 9 * MINUTE)
    store.run_all(declaration.add(Visit(5, 7)), declaration.add(Visit(6, 7)))
    sql.execute("INSERT INTO recent_out (uid, visitor) VALUES (5, 7)")
    assert (numbers(store, 5), numbers(store, 6)) == ([], [7])


@second
def test_many_threads_write_while_rows_leave(open_store: Make, sql: Client) -> None:
    stores = [open_store(recent) for _ in range(3)]
    stores[0].run(recent.add_all([Visit(key, n) for key in range(30) for n in range(3)]))
    passes(sql, recent, 6 * MINUTE)
    start = threading.Barrier(3)
    errors: list[Exception] = []

    def work(place: int) -> None:
        start.wait()
        try:
            for n in range(20):
                stores[place].run(recent.add(Visit((n * (place + 1)) % 7, place * 100 + n)))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert size(sql) == sum([stores[0].run(recent.count(key)) for key in range(7)]) == 21


keys, ids = st.integers(0, 1), st.integers(0, 4)
visits = st.builds(Visit, keys, ids)


def operations(collection: Any) -> st.SearchStrategy[Any]:
    """Draw operations of a collection."""
    return st.one_of(
        st.builds(collection.add, visits),
        st.builds(collection.remove, keys, ids),
        st.builds(collection.get, keys, ids),
        st.builds(collection.count, keys),
        st.builds(collection.latest, keys, st.none() | st.integers(1, 4)),
        st.builds(collection.clear, keys),
    )


class Model:
    """Rows with the moments at which they leave, oldest added first."""

    def __init__(self, collection: Any) -> None:
        self.collection = collection
        self.now = 0
        self.rows: dict[int, list[tuple[int, int]]] = {0: [], 1: []}

    def run_all(self, some: list[Any]) -> Any:
        """Return what a store must answer: all, or nothing and the class of the first error."""
        before = {key: list(rows) for key, rows in self.rows.items()}
        results = []
        for op in some:
            result = self._run(op)
            if isinstance(result, type):
                self.rows = before
                return result
            results.append(result)
        return tuple(results)

    def _run(self, op: Any) -> Any:
        key = op.args[0][0]
        rows = self.rows[key] = [(id_, until) for id_, until in self.rows[key] if until > self.now]
        there = [id_ for id_, _ in rows]
        match op.verb, op.args[1:]:
            case "add", ():
                return self._add(rows, *op.args[0])
            case "remove", ((id_,),):
                self.rows[key] = [row for row in rows if row[0] != id_]
                return id_ in there
            case "get", ((id_,),):
                return Visit(key, id_) if id_ in there else None
            case "latest", (n,):
                return [Visit(key, id_) for id_ in there[::-1][:n]]
            case "clear", ():
                self.rows[key] = []
        return len(there)

    def _add(self, rows: list[tuple[int, int]], key: int, id_: int) -> Any:
        if id_ in [each for each, _ in rows]:
            if self.collection.on_duplicate == "error":
                return roost.Duplicate
            rows = [row for row in rows if row[0] != id_]
        elif len(rows) == self.collection.keep and self.collection.on_full == "reject":
            return roost.Full
        self.rows[key] = [*rows, (id_, self.now + 300)][-self.collection.keep :]
        return None


@given(st.data())
@settings(max_examples=EXAMPLES, deadline=None)
def test_random_operations_answer_what_a_model_answers(data: st.DataObject) -> None:
    collection = data.draw(st.sampled_from([recent, refreshing, rejecting]))
    clock, model = Hand(), Model(collection)
    moves = st.sampled_from([0, 0, 1, 100, 200, -50, -1000])
    with roost.Store("sqlite://", clock=clock) as store:
        store.create(collection)
        for moved, some in data.draw(st.lists(st.tuples(moves, st.lists(operations(collection), max_size=5)))):
            store.run(collection.remove(7, 0))  # a write sees each moment: what only readers saw could come again
            clock.moves(moved)
            model.now += max(0, moved)
            store.run(collection.remove(7, 0))
            answer: Any
            try:
                answer = (store.run(some[0]),) if len(some) == 1 else store.run_all(*some)
            except roost.Error as error:
                answer = type(error)
            assert answer == model.run_all(some)
        assert store.check() == []


def test_a_declaration_is_a_value() -> None:
    made: Any = from_definition(rejecting.definition)
    assert made == rejecting == pickle.loads(pickle.dumps(rejecting))
    assert made != declared(keep_for=None, on_full="reject")
    assert made.keep_for == dt.timedelta(minutes=5).total_seconds()
    with pytest.raises(roost.Invalid, match="recent: keep_for"):
        declared(keep_for=0)
    with pytest.raises(roost.Invalid, match="order names a field"):
        declared(order="points")
