"""MariaDB reads the text of a single operation once that comes again; a session that has forgotten it costs a retry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import roost
from roost.databases.server import MOST_PREPARED, USES
from tests.suite.shapes import Visit, visits

pytestmark = pytest.mark.needs("pymysql")

Open = Callable[..., roost.Store]


def connections(store: roost.Store) -> list[Any]:
    """The writer's and the reader's."""
    return [link.connection for link in (store._core._writer, store._core._readers[0])]


def test_what_comes_again_is_prepared(open_store: Open) -> None:
    store = open_store(visits)
    for n in range(USES + 3):
        store.run(visits.push(Visit(1, n)))
        assert store.run(visits.latest(1, 1)) == [Visit(1, n)]
    assert [len(each._names) for each in connections(store)] == [1, 1]


def test_nothing_is_prepared_where_the_url_says_so(open_store: Open, store_url: str) -> None:
    open_store(visits)
    with roost.Store(f"{store_url}?prepared=off") as store:
        for n in range(USES + 3):
            assert store.run(visits.push(Visit(1, n))) == n + 1
            store.run(visits.latest(1))
        assert [each._names for each in connections(store)] == [{}, {}]
    with pytest.raises(roost.Invalid, match="prepared is on or off"):
        roost.Store(f"{store_url}?prepared=maybe")


def test_a_session_that_has_forgotten_what_was_prepared_costs_a_retry(open_store: Open) -> None:
    store = open_store(visits)
    for _ in range(USES + 3):
        store.run(visits.push(Visit(1, 7)))
        store.run(visits.latest(1))
    for connection in connections(store):
        for name in connection._names.values():
            connection.raw.results(f"DEALLOCATE PREPARE {name}")
    before = store.stats().retries
    assert store.run(visits.push(Visit(1, 8))) == USES + 4
    assert store.run(visits.latest(1, 1)) == [Visit(1, 8)]
    assert store.stats().retries == before + 2
    assert [each._names for each in connections(store)] == [{}, {}]


def test_the_oldest_goes_when_there_are_too_many(open_store: Open) -> None:
    store = open_store(visits)
    store.run(visits.push(Visit(1, 7)))
    store.run(visits.latest(1))
    _, reader = connections(store)
    for n in range(MOST_PREPARED + 2):
        for _ in range(USES):
            assert reader.ask(f"SELECT {n} FROM DUAL WHERE 1 = %s", (1,), False) == [(n,)]
    assert len(reader._names) == MOST_PREPARED
    assert reader.ask("SELECT 0 FROM DUAL WHERE 1 = %s", (2,), False) == []
