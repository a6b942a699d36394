"""PostgreSQL plans a statement once that comes again and again; a session that has forgotten it costs a retry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import roost
from roost.databases.server import MOST_PREPARED, USES
from tests.suite.shapes import Visit, visits

pytestmark = pytest.mark.needs("psycopg")

Open = Callable[..., roost.Store]


def prepared(store: roost.Store) -> list[str]:
    """What the readers' session has prepared."""
    connection: Any = store._core._readers[0].connection
    return [sql for (sql,) in connection.raw.execute("SELECT statement FROM pg_prepared_statements").fetchall()]


def test_what_comes_again_is_prepared(open_store: Open) -> None:
    store = open_store(visits)
    store.run(visits.push(Visit(1, 7)))
    for _ in range(USES + 1):
        store.run(visits.latest(1))
    found = prepared(store)
    assert len(found) == 1  # the rows, with the definition
    for _ in range(3):
        assert store.run(visits.latest(1)) == [Visit(1, 7)]
    assert prepared(store) == found


def test_nothing_is_prepared_where_the_url_says_so(open_store: Open, store_url: str) -> None:
    open_store(visits)
    with roost.Store(f"{store_url}?prepared=off") as store:
        for _ in range(USES + 1):
            assert store.run(visits.latest(1)) == []
        assert prepared(store) == []


def test_a_session_that_has_forgotten_what_was_prepared_costs_a_retry(open_store: Open) -> None:
    store = open_store(visits)
    for _ in range(USES + 1):
        store.run(visits.latest(1))
        store.run(visits.push(Visit(1, 7)))
    for link in (store._core._writer, store._core._readers[0]):
        connection: Any = link.connection
        connection.raw.execute("DEALLOCATE ALL")
    before = store.stats().retries
    assert store.run(visits.push(Visit(1, 8))) == USES + 2
    assert store.run(visits.latest(1, 1)) == [Visit(1, 8)]
    assert store.stats().retries == before + 2


def test_the_oldest_goes_when_there_are_too_many(open_store: Open) -> None:
    rings = [roost.Ring(f"ring{n}", Visit, per="uid", keep=2) for n in range(3)]
    store = open_store(*rings)
    for ring in rings:
        for _ in range(USES + 1):
            assert store.run(ring.latest(1)) == []
    connection: Any = store._core._readers[0].connection
    for n in range(MOST_PREPARED):
        sql = f"SELECT {n} WHERE 1 = %s"
        for _ in range(USES):
            connection.say(connection.written(sql, (1,)))
    assert len(connection._names) == MOST_PREPARED
    assert len(prepared(store)) <= MOST_PREPARED + 4  # what went last is deallocated with the next that comes
    for ring in rings:
        assert store.run(ring.latest(1)) == []
