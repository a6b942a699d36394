"""Three memcached servers: what was lost, or is old, is told, and never shown as complete."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest

import roost
from tests import servers

likes = roost.MemcachedSet("likes", key=int, member=str)
KEYS = range(60)


@pytest.fixture
def fleet() -> Iterator[list[servers.Daemon]]:
    found = [servers.memcached_daemon() for _ in range(4)]
    yield found
    for each in found:
        each.kill()


def url_of(*daemons: servers.Daemon) -> str:
    return "memcached://" + ",".join(each.url.partition("://")[2] for each in daemons)


def test_a_server_that_dies_and_comes_back_empty_has_no_complete_set(fleet: list[servers.Daemon]) -> None:
    first, second, third, _ = fleet
    with roost.Store(url_of(first, second, third)) as store:
        for key in KEYS:
            store.run(likes.replace(key, ["ada"]))
        second.kill()
        lost = set()
        for key in KEYS:
            try:
                assert store.run(likes.members(key)) == {"ada"}
                assert store.run(likes.info(key)).complete
            except roost.CannotOpen:
                lost.add(key)
        assert 5 < len(lost) < 40
        second.start()
        for key in KEYS:
            store.run(likes.add(key, "bob"))
            info = store.run(likes.info(key))
            assert info.complete == (key not in lost)
            assert store.run(likes.members(key)) == ({"bob"} if key in lost else {"ada", "bob"})
        for key in lost:
            store.run(likes.replace(key, ["ada", "bob"]))
        assert all(store.run(likes.info(key)).complete for key in KEYS)
        assert store.check(likes) == []


def test_doctor_reports_a_server_that_does_not_answer_beside_the_others(fleet: list[servers.Daemon]) -> None:
    first, second, third, _ = fleet
    with roost.Store(url_of(first, second, third)) as store:
        second.kill()
        found = store.doctor()
        (away,) = [each for each in found if each.subject == "server"]
        assert second.url.partition("://")[2] in away.found
        assert away.advice
        assert len([each for each in found if each.subject == "version"]) == 2
        for each in (first, third):
            each.kill()
        with pytest.raises(roost.CannotOpen):
            store.doctor()


def test_f76_a_server_that_is_added_or_taken_out_brings_no_old_set_back(fleet: list[servers.Daemon]) -> None:
    three, four = url_of(*fleet[:3]), url_of(*fleet)
    with roost.Store(three) as store:
        for key in KEYS:
            store.run(likes.replace(key, ["old"]))
    for each in (likes.members(1), likes.add(1, "x"), likes.replace(1, ["x"])):
        with roost.Store(four) as store:
            with pytest.raises(roost.Mismatch, match="was spread over"):
                store.run(each)
            with pytest.raises(roost.Mismatch, match="flush_all"):
                store.run_all(each)
    with roost.Store(url_of(fleet[0])) as store, pytest.raises(roost.Mismatch):
        store.create(likes)
    servers.emptied(four)
    with roost.Store(four) as store:
        store.run(likes.replace(1, ["new"]))
        assert [key for key in KEYS if store.run(likes.info(key)).complete] == [1]
        assert store.run(likes.members(1)) == {"new"}
        with roost.Store(three) as old, pytest.raises(roost.Mismatch):
            old.run(likes.members(1))
        with roost.Store(url_of(*reversed(fleet))) as same:
            assert same.run(likes.members(1)) == {"new"}


def test_what_the_servers_have_noted_is_noted_again_where_it_was_lost(fleet: list[servers.Daemon]) -> None:
    three, four = url_of(*fleet[:3]), url_of(*fleet)
    with roost.Store(three) as store:
        store.run(likes.add(1, "x"))
        servers.emptied(three)
        for key in KEYS:
            store.run(likes.replace(key, ["old"]))
        with roost.Store(four) as other, pytest.raises(roost.Mismatch):
            other.run(likes.members(1))


def _connections(silent: socket.socket) -> int:
    # That were made to a server which answers nobody, since this was asked last.
    found = 0
    while True:
        try:
            silent.accept()[0].close()
        except BlockingIOError:
            return found
        found += 1


def test_a_server_that_hangs_is_waited_for_once_in_a_turn_and_not_for_each_key(fleet: list[servers.Daemon]) -> None:
    async def ask(store: roost.AsyncStore, operations: list[roost.Operation[Any]]) -> list[Any]:
        return await asyncio.gather(*map(store.run, operations), return_exceptions=True)

    async def main(url: str, silent: socket.socket) -> None:
        async with roost.AsyncStore(url, timeout=0.3) as store:
            await ask(store, [likes.members(KEYS[0])])  # which asks for the note on each server
            for make, fine in ((likes.members, set()), (lambda key: likes.add(key, "ada"), None)):
                _connections(silent)
                found = await ask(store, [make(key) for key in KEYS])
                # Operations that come while a turn runs are the next one's.
                assert 1 <= _connections(silent) <= 3
                failed = [each for each in found if isinstance(each, roost.CannotOpen)]
                assert len(failed) > 5
                assert found.count(fine) == len(KEYS) - len(failed)
            _connections(silent)
            with pytest.raises(roost.CannotOpen):
                await store.run_all(*map(likes.members, KEYS))
            assert _connections(silent) == 1

    with socket.create_server(("127.0.0.1", 0), backlog=200) as silent:
        silent.setblocking(False)
        asyncio.run(main(f"{url_of(*fleet[:2])},127.0.0.1:{silent.getsockname()[1]}", silent))


def test_sets_on_the_other_servers_are_replaced_while_one_is_away(fleet: list[servers.Daemon]) -> None:
    url = url_of(*fleet[:3])
    fleet[2].kill()
    away = set()
    for key in KEYS:
        with roost.Store(url) as store:  # which asks first how much an item may have
            try:
                store.run(likes.replace(key, ["ada"]))
                assert store.run(likes.info(key)).complete
            except roost.CannotOpen:
                away.add(key)
    assert 5 < len(away) < 40
