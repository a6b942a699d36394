"""A changed declaration is deployed while everything runs: nobody gets an error, and the new caps hold at the end."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest

import roost
from roost.databases.mariadb.address import arguments
from tests.campaigns.processes import until
from tests.lengths import length
from tests.suite.boundaries import Case
from tests.suite.clients import ISOLATES, WAITS
from tests.suite.gates import Gates, gated
from tests.suite.shapes import Egg, Visit

pytestmark = pytest.mark.needs("second store", "application")

Make = Callable[..., Any]
PATIENCE = 60.0
MEANWHILE = length(2, 60)  # rounds of every worker between two changes


@dataclass(frozen=True)
class LongVisit:
    uid: int
    visitor: int
    seconds: int = 3


def release(keep: int, slots: int, row: type[Any] = Visit, **options: Any) -> tuple[Any, Any, Any]:
    return (
        roost.Ring("visits", row, per="uid", keep=keep),
        roost.Counter("pageviews", slots=slots),
        roost.Capped("baskets", Egg, per="basket", keep=keep, unique="egg", **options),
    )


OLD = release(12, 4)
RELEASES = [release(20, 8), release(5, 2, on_duplicate="refresh"), release(7, 3, LongVisit)]


@contextmanager
def application(url: str) -> Iterator[Any]:
    """A connection of the application's own, at the level at which every statement sees what is committed."""
    connection: Any
    if url.startswith("sqlite"):
        connection = sqlite3.connect(Path(url.removeprefix("sqlite:///").partition("?")[0]), timeout=PATIENCE)
    elif url.startswith("postgresql"):
        connection = psycopg.connect(url)
    else:
        connection = pymysql.connect(**arguments(url)[0])
        connection.cursor().execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    with closing(connection):
        yield connection


class Worker:
    """A process of one release: it writes and reads until it is told to end."""

    def __init__(self, url: str, number: int, declared: tuple[Any, Any, Any], joins: bool) -> None:
        self.rounds = 0
        self.errors: list[Exception] = []
        self._url, self._number, self._declared, self._joins = url, number, declared, joins
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def leave(self) -> None:
        self._end.set()

    def join(self) -> None:
        self._end.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        with roost.Store(self._url, timeout=PATIENCE) as store, application(self._url) as connection:
            while not self._end.is_set():
                try:
                    self._once(store)
                    if self._joins:
                        self._joined(store, connection)
                except Exception as error:
                    self.errors.append(error)
                    connection.rollback()
                self.rounds += 1

    def _joined(self, store: roost.Store, connection: Any) -> None:
        if self._url.startswith("sqlite"):
            connection.execute("BEGIN IMMEDIATE")
        self._once(store.on(connection))
        connection.commit()

    def _once(self, runner: Any) -> None:
        visits, pageviews, baskets = self._declared
        n = self.rounds
        runner.run_all(pageviews.add("/"), visits.push(visits.rows.type(n % 3, n)))
        egg = Egg(n % 3, self._number)
        runner.run_all(baskets.remove(egg.basket, egg.egg), baskets.add(egg))
        runner.run_all(visits.latest(1), baskets.latest(1), pageviews.total("/"))
        runner.run_all(baskets.count(1), visits.entries(2, after=n), pageviews.total("/"))


def wait(workers: list[Worker]) -> None:
    wanted = [worker.rounds + MEANWHILE for worker in workers]
    end = time.monotonic() + PATIENCE
    while any(worker.rounds < rounds for worker, rounds in zip(workers, wanted, strict=True)):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_f42_a_change_is_deployed_without_an_error(open_store: Make, store_url: str) -> None:
    store = open_store(*OLD, timeout=PATIENCE)
    workers = [Worker(store_url, number, OLD, joins=number == 0) for number in range(2)]
    left: list[Worker] = []
    try:
        wait(workers)
        for step, declared in enumerate(RELEASES, 1):
            for structure in declared:  # the migration, then the processes of the new release, beside the old ones
                store.alter(structure)
            wait(workers)
            workers += [Worker(store_url, 2 * step + number, declared, joins=number == 0) for number in range(2)]
            wait(workers)
            for worker in workers[:2]:
                worker.leave()
            left, workers = left + workers[:2], workers[2:]
    finally:
        for worker in left + workers:
            worker.join()
    assert [error for worker in left + workers for error in worker.errors] == []
    assert store.check() == []
    visits, pageviews, baskets = RELEASES[-1]
    for key in range(3):
        assert len(store.run(visits.latest(key))) == visits.keep
        assert store.run(baskets.count(key)) == len(store.run(baskets.latest(key))) <= baskets.keep
    done = sum(worker.rounds * (2 if worker._joins else 1) for worker in left + workers)
    assert store.run(pageviews.total("/")) == done


def test_pushes_of_a_former_declaration_keep_the_new_promise(open_store: Make) -> None:
    other, store = open_store(), open_store()
    for number, (keep, keep_for, row) in enumerate(
        [(3, 1000, Visit), (8, 1000, Visit), (5, 10, Visit), (5, 1000, LongVisit)]
    ):
        old = roost.Ring(f"visits_{number}", Visit, per="uid", keep=5, keep_for=1000)
        new: Any = roost.Ring(f"visits_{number}", row, per="uid", keep=keep, keep_for=keep_for)
        other.create(old, view=False)
        other.run(old.push(Visit(1, 1)))
        store.alter(new)
        if row is LongVisit:
            store.run(new.push_all([LongVisit(1, n, 77) for n in range(9)]))
        other.run(old.push_all([Visit(key, n) for n in range(20) for key in (1, 2)]))
        other.run_all(old.clear(4), *[old.push(Visit(3, n)) for n in range(12)])
        other.run_all(*[old.push(Visit(4, n)) for n in range(3)])
        for key, pushed in ((1, 20), (2, 20), (3, 12), (4, 3)):
            assert store.run(new.latest(key)) == [row(key, n) for n in reversed(range(pushed))][:keep], number


def found(sql: Any, query: str) -> bool:
    cursor = sql.cursor()
    cursor.execute(query)
    rows = cursor.fetchall()
    sql.rollback()  # a transaction sees the same activity again and again
    return bool(rows)


def take_snapshot(own: Any, url: str) -> None:
    scope = "" if url.startswith("postgresql") else "SESSION "
    own.cursor().execute(f"SET {scope}TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    own.cursor().execute("SELECT 1 FROM roost_catalog")


@pytest.mark.parametrize("first", [True, False])
def test_a_transaction_that_is_older_than_an_alter_calls_the_programs_that_are_there(
    first: bool, server_url: str
) -> None:
    old, new = (roost.Capped("baskets", Egg, per="basket", keep=keep, unique="egg") for keep in (3, 5))
    with roost.Store(server_url) as store, roost.Store(server_url) as other, application(server_url) as own:
        other.create(old)
        if not first:
            store.run(old.add(Egg(1, 1)))
        take_snapshot(own, server_url)
        other.alter(new)
        store.on(own).run_all(*[old.add(Egg(2, n)) for n in range(6)])
        own.commit()
        assert other.run(new.count(2)) == 5


@pytest.mark.parametrize(("many", "level"), [(1, ""), (20, ""), (1, "REPEATABLE READ")])
def test_the_first_push_of_a_key_waits_for_alter_and_keeps_the_new_cap(many: int, level: str, server_url: str) -> None:
    old, new = (roost.Ring("visits", Visit, per="uid", keep=keep) for keep in (3, 5))
    pushes = old.push_all([Visit(2, n) for n in range(many)])

    def push() -> None:
        if level:
            if isolates:
                with pytest.raises(roost.Conflict):
                    store.on(own).run(pushes)
                own.rollback()
            store.on(own).run(pushes)
            own.commit()
        else:
            store.run(pushes)

    def beside(text: str, row: object) -> None:
        if text.startswith("UPDATE roost_catalog") and not pushing.ident:
            pushing.start()
            until(lambda: found(sql, f"SELECT 1 FROM {WAITS[server_url.partition(':')[0]]}"), "a push that waits")

    with (
        roost.Store(server_url) as store,
        roost.Store(server_url, trace=beside) as altering,
        application(server_url) as sql,
        application(server_url) as own,
    ):
        store.create(old)
        store.run(old.push(Visit(1, 1)))
        isolates = server_url.startswith("mysql") and found(sql, ISOLATES)
        if level:
            take_snapshot(own, server_url)
        pushing = threading.Thread(target=push)
        altering.alter(new)
        pushing.join(PATIENCE)
        if level:  # on PostgreSQL by the former declaration, which its snapshot shows
            assert altering.alter(new) in ([], ["keep: of a late call -> 5"])
        store.run(old.push_all([Visit(2, n) for n in range(many, many + 4)]))
        assert store.run(new.latest(2)) == [Visit(2, n) for n in range(many + 3, many + 3 - min(many + 4, 5), -1)]
        assert store.check() == []


@dataclass(frozen=True)
class Score:
    board: int
    player: int
    points: int


def scores(keep: int | None, **options: Any) -> Any:
    return roost.Capped("scores", Score, per="board", unique="player", keep=keep, **options)


BEST = {"order": "points", "on_duplicate": "best"}
# What `alter` changes, and what a process of the former declaration adds before it and while it runs.
BESIDE: dict[str, Any] = {
    "best": (scores(7, **BEST), scores(1, **BEST), lambda made, n: made.add(Score(1, n, n))),
    "bound": (scores(None, keep_for=1000), scores(2, keep_for=1000), lambda made, n: made.add(Score(1, n, n))),
    "rows": (scores(9, keep_for=5000), scores(9, keep_for=10), lambda made, n: made.add(Score(1, n, n))),
    "set": (*[roost.Set("scores", key=int, member=int, keep=n) for n in (5, 2)], lambda made, n: made.add(1, n)),
    "members": (*[roost.Set("scores", key=int, keep_for=n) for n in (5000, 10)], lambda made, n: made.add(n, "a")),
    "ring": (
        *[roost.Ring("scores", Visit, per="uid", keep=9, keep_for=n) for n in (5000, 10)],
        lambda made, n: made.push_all([Visit(key, n) for key in range(20)]),
    ),
    "column": (
        *[roost.Ring("scores", row, per="uid", keep=3) for row in (Visit, LongVisit)],
        lambda made, n: made.push_all([Visit(key, n) for key in range(2)]),
    ),
}


@pytest.mark.parametrize("name", BESIDE)
def test_a_call_beside_alter_leaves_nothing_that_the_new_declaration_forbids(name: str, server_url: str) -> None:
    old, new, add = BESIDE[name]
    errors: list[Exception] = []

    def write() -> None:
        try:
            store.run(add(old, 9))
        except Exception as error:
            errors.append(error)

    def beside(text: str, row: object) -> None:
        if text.startswith("UPDATE roost_catalog") and not writing.ident:
            writing.start()
            waits = f"SELECT 1 FROM {WAITS[server_url.partition(':')[0]]}"
            until(lambda: not writing.is_alive() or found(sql, waits), "a call that waits, or is over")

    with (
        roost.Store(server_url) as store,
        roost.Store(server_url, trace=beside) as altering,
        application(server_url) as sql,
    ):
        store.create(old)
        store.run_all(*[add(old, n) for n in range(4)])
        writing = threading.Thread(target=write)
        altering.alter(new)
        writing.join(PATIENCE)
        assert (errors, store.check()) == ([], [])
        store.run(add(old, 10))
        assert store.check() == []
        if "keep_for" in new.definition and name != "bound":
            assert not found(sql, f"SELECT 1 FROM roost_scores_rows WHERE until > {int((time.time() + 60) * 1e6)}")


@pytest.mark.parametrize("name", ["rows", "members"])
def test_alter_passes_no_call_that_has_begun(name: str, server_url: str) -> None:
    old, new, add = BESIDE[name]
    case = Case(old, [lambda key: [add(old, key)]] * 2, {}, [], "")
    passed = []
    with gated([old, new]), application(server_url) as sql:
        gates = Gates(server_url, [case])
        gates.step = 2  # so without the first one, where a call has locked nothing
        for n, gate in enumerate(gates.boundaries(), 100):
            if gates.meet(gate, partial(gates.one.run, add(old, n)), partial(gates.other.alter, new)):
                if found(sql, f"SELECT 1 FROM roost_scores_rows WHERE until > {int((time.time() + 60) * 1e6)}"):
                    passed.append(gate)
                gates.other.alter(old)
        gates.close()
    assert (passed, n > 100) == ([], True)
