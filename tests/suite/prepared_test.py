"""A server parses and plans a statement once that comes again; a session that has forgotten it costs a retry."""

from __future__ import annotations

from typing import Any

import pytest

import roost
from roost.databases.server import MOST_PREPARED, USES
from tests.suite.shapes import Visit, visits

# MySQL has no operations by themselves.
pytestmark = pytest.mark.parametrize("server_url", ["mariadb", "postgresql"], indirect=True)


@pytest.fixture
def is_postgresql(server_url: str) -> bool:
    return server_url.startswith("postgresql")


@pytest.fixture
def store(server_url: str) -> Any:
    with roost.Store(server_url) as store:
        store.create(visits)
        yield store


def connections(store: roost.Store) -> list[Any]:
    """The writer's and the reader's."""
    return [link.connection for link in (store._core._writer, store._core._readers[0])]


def names(connection: Any, is_postgresql: bool) -> list[str]:
    """What a session has prepared, by its own word where it has one."""
    if is_postgresql:
        return [name for (name,) in connection.raw.execute("SELECT name FROM pg_prepared_statements").fetchall()]
    return [*connection.prepared.names.values()]


def use(store: roost.Store, times: int) -> None:
    for n in range(times):
        store.run(visits.push(Visit(1, n)))
        assert store.run(visits.latest(1, 1)) == [Visit(1, n)]


def test_what_comes_again_is_prepared(store: roost.Store, is_postgresql: bool) -> None:
    use(store, USES + 3)
    found = [names(each, is_postgresql) for each in connections(store)]
    assert all(found)
    assert len(found[1]) == 1
    use(store, 3)
    assert [names(each, is_postgresql) for each in connections(store)] == found


def test_nothing_is_prepared_where_the_url_says_so(store: roost.Store, server_url: str, is_postgresql: bool) -> None:
    with roost.Store(f"{server_url}?prepared=off") as other:
        use(other, USES + 3)
        assert [names(each, is_postgresql) for each in connections(other)] == [[], []]
    with pytest.raises(roost.Invalid, match="prepared is on or off"):
        roost.Store(f"{server_url}?prepared=maybe")


def test_a_session_that_has_forgotten_what_was_prepared_costs_a_retry(store: roost.Store, is_postgresql: bool) -> None:
    use(store, USES + 3)
    for connection in connections(store):
        for name in connection.prepared.names.values():
            connection.raw.results(f"DEALLOCATE {'' if is_postgresql else 'PREPARE '}{name}")
    before = store.stats().retries
    assert store.run(visits.push(Visit(1, 8))) == USES + 4
    assert store.run(visits.latest(1, 1)) == [Visit(1, 8)]
    assert store.stats().retries == before + 2


def test_what_was_made_anew_with_other_types_is_prepared_anew(store: roost.Store, server_url: str) -> None:
    """PostgreSQL refused every later read of this session: "cached plan must not change result type"."""
    former, now = roost.Cache("pages"), roost.Cache("pages", value=str)
    store.create(former)
    for _ in range(USES + 1):
        assert store.run_all(former.get("/"), former.gets("/")) == (None, None)
    with roost.Store(server_url) as other:
        other.drop(former)
        other.create(now)
        other.run(now.set("/", "words"))
    assert store.run_all(now.get("/"), now.get_many(["/"])) == ("words", {"/": "words"})


def test_the_oldest_go_when_there_are_too_many(store: roost.Store, is_postgresql: bool) -> None:
    use(store, 1)
    _, reader = connections(store)
    reader.engine.moves = False  # no question in between, to which server it is connected
    for n in range(MOST_PREPARED + 2):
        for _ in range(USES):
            assert reader.ask(f"SELECT {n} FROM (SELECT 1) AS one WHERE 1 = %s", (1,), False) == [(n,)]
    found = names(reader, is_postgresql)
    assert MOST_PREPARED // 2 < len(found) <= MOST_PREPARED + 1
    assert {*found} == {*reader.prepared.names.values()}
    assert reader.ask("SELECT 0 FROM (SELECT 1) AS one WHERE 1 = %s", (2,), False) == []
