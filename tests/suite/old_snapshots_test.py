"""A transaction of the application whose snapshot is older than what others have added to a key, on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import product
from typing import Any

import psycopg
import pytest

import roost
from tests import servers
from tests.suite.shapes import Egg

LEVELS = (psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE)
kept: Any = roost.Capped("kept", Egg, per="basket", keep=3, unique="egg", on_duplicate="refresh")
lasting: Any = roost.Capped("lasting", Egg, per="basket", unique="egg", keep_for=3600)


@pytest.fixture
def store() -> Iterator[roost.Store]:
    with servers.own_database("postgresql") as url, roost.Store(url) as store:
        store.create(kept, lasting)
        yield store
        assert store.check() == []


def snapshot(store: roost.Store, level: psycopg.IsolationLevel) -> Any:
    connection = psycopg.connect(store.url)
    connection.isolation_level = level
    connection.execute("SELECT 1 FROM roost_catalog")
    return closing(connection)


def by_call(joined: Any, _: Any) -> None:
    joined.run(kept.add(Egg(1, 3)))


def by_program(_: Any, sql: Any) -> None:
    sql.execute("SELECT kept_add(1, 3, 'white')")


def test_an_add_to_a_full_key_is_a_conflict(store: roost.Store) -> None:
    for level, others, add in product(LEVELS, ([4], [2], [*range(10, 22)]), (by_call, by_program)):
        store.run_all(kept.forget(1), kept.add_all([Egg(1, n) for n in (1, 2, 3)]))
        with snapshot(store, level) as connection:
            store.run(kept.add_all([Egg(1, n) for n in others]))
            with pytest.raises((roost.Conflict, psycopg.errors.SerializationFailure)):
                add(store.on(connection), connection)
        assert store.run(kept.latest(1))[0] == Egg(1, others[-1])
        assert store.run(kept.count(1)) == 3


def test_forget_leaves_no_row_without_a_head(store: roost.Store) -> None:
    for key, level in enumerate(LEVELS):
        store.run(lasting.add(Egg(key, 1)))
        with snapshot(store, level) as connection:
            store.run(lasting.add(Egg(key, 2)))
            assert store.on(connection).run(lasting.forget(key)) == 1
            connection.commit()
        assert store.run_all(lasting.latest(key), lasting.keys()) == ([Egg(key, 2)], [*range(key + 1)])
