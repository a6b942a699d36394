"""memcached is killed and comes back; a short form of the campaign `caches`. And what pymemcache would hide."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pymemcache.client.base import Client  # type: ignore[import-untyped]

import roost
from tests import servers
from tests.campaigns.caches import caches
from tests.campaigns.processes import Child, Line
from tests.lengths import length

likes = roost.MemcachedSet("likes", int, str)


@pytest.fixture
def daemon() -> Iterator[servers.Daemon]:
    made = servers.memcached_daemon()
    yield made
    made.end()


@pytest.fixture
def plain() -> Iterator[Any]:
    """A client as pymemcache makes it."""
    url = servers.emptied(servers.memcached(number=1))
    host, _, port = url.partition("://")[2].partition(":")
    client = Client((host, int(port)))
    yield client
    client.close()


def test_clients_on_one_set_lose_nothing_but_what_a_killed_server_had() -> None:
    found = caches(seconds=length(1.5, 3.0), restarts=1, seed=1, processes=2, threads=4)
    assert found.done["added"] > 100
    assert found.done["fetched"] > 10
    assert found.done["members lost with a server"] > 0
    assert found.info is not None
    assert not found.info.complete


def test_after_a_restart_a_set_is_empty_and_not_complete(daemon: servers.Daemon) -> None:
    with roost.Store(daemon.url) as store:
        store.run(likes.replace(7, ["ada", "bob"]))
        assert store.run(likes.info(7)).complete
        daemon.kill()
        for operation in (likes.add(7, "cyd"), likes.remove(7, "ada"), likes.members(7), likes.info(7)):
            with pytest.raises((roost.CannotOpen, roost.OutcomeUnknown), match="memcached at"):
                store.run(operation)
        with pytest.raises(roost.CannotOpen, match="cannot be reached"):
            store.create(likes)
        daemon.start()
        assert store.run(likes.members(7)) == set()
        store.run(likes.add(7, "cyd"))
        assert store.run(likes.members(7)) == {"cyd"}
        assert not store.run(likes.info(7)).complete


def test_a_server_that_is_away_is_no_reason_to_take_another() -> None:
    first, second = servers.memcached_daemon(), servers.memcached_daemon()
    url = ",".join([first.url, second.url.partition("://")[2]])
    with roost.Store(url) as store:
        for key in range(50):
            store.run(likes.add(key, "ada"))
        second.kill()
        found = away = 0
        for key in range(50):
            try:
                assert store.run(likes.members(key)) == {"ada"}
                found += 1
            except roost.CannotOpen:
                away += 1
        assert found > 5
        assert away > 5
        second.start()
        assert sum(len(store.run(likes.members(key))) for key in range(50)) == found
    first.kill()
    second.kill()


def test_a_server_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.listen()
        url = f"memcached://127.0.0.1:{silent.getsockname()[1]}"
        with roost.Store(url, timeout=0.05) as store, pytest.raises(roost.CannotOpen, match="cannot be reached"):
            store.run(likes.add(7, "ada"))


def test_a_server_that_stands_still_is_waited_for_until_timeout(daemon: servers.Daemon) -> None:
    with roost.Store(daemon.url, timeout=1.5) as store:  # in which a busy machine answers, too
        store.run(likes.add(7, "ada"))
        daemon.pause()
        answers: list[BaseException] = []

        def call() -> None:
            for operation in (likes.members(7), likes.add(7, "bob"), likes.size(7)):
                try:
                    store.run(operation)
                except roost.Error as error:
                    answers.append(error)

        caller = threading.Thread(target=call, daemon=True)
        caller.start()
        caller.join(30)
        daemon.resume()
        assert not caller.is_alive()
        assert len(answers) == 3
        assert all(isinstance(error, (roost.CannotOpen, roost.OutcomeUnknown)) for error in answers)
        assert ["the time is over" in str(error) for error in answers] == [True] * 3
        assert store.run(likes.members(7)) in ({"ada"}, {"ada", "bob"})


def noted(listener: socket.socket) -> bytes:
    """What a server answers that is asked over which ones the set is spread."""
    name = f"127.0.0.1:{listener.getsockname()[1]}"
    return f"VALUE roost:servers:likes 0 {len(name)} 1\r\n{name}\r\nEND\r\n".encode()


@pytest.mark.parametrize("answer", [b"SERVER_ERROR busy\r\n", b"ERROR\r\n", b"WHAT\r\n", b"STOR"])
def test_a_server_that_answers_what_it_should_not(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            for each in (b"VERSION 1\r\n", noted(listener), answer):
                connection.recv(1000)
                connection.sendall(each)
            connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        url = f"memcached://127.0.0.1:{listener.getsockname()[1]}"
        with roost.Store(url) as store, pytest.raises(roost.Error, match=r"memcached (at|answered)") as caught:
            store.run(likes.add(7, "ada"))
        thread.join()
        assert isinstance(caught.value, roost.OutcomeUnknown if answer == b"STOR" else roost.DatabaseError)


def test_answers_that_come_in_pieces() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for answer in (b"VERSION 1\r\n", noted(listener), b"NOT_STORED\r\n", b"STORED\r\n", VALUE):
                connection.recv(1000)
                for place in range(len(answer)):
                    connection.sendall(answer[place : place + 1])
            connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        with roost.Store(f"memcached://127.0.0.1:{listener.getsockname()[1]}") as store:
            store.run(likes.add(7, "ada"))  # NOT_STORED, so it was made
            assert store.run(likes.members(7)) == {"END\r\n"}
        thread.join()


VALUE = b"VALUE likes:7 0 13 5\r\n\0\1\0\0\0\0+\5END\r\n\r\nEND\r\n"


def test_a_child_process_has_connections_of_its_own(daemon: servers.Daemon) -> None:
    with roost.Store(daemon.url) as store:
        store.run(likes.add(7, "parent"))

        def child(line: Line) -> None:
            for n in range(50):
                store.run(likes.add(7, f"child {n}"))
            line.say(store.stats().operations)

        with Child(child) as forked:
            for n in range(50):
                store.run(likes.add(7, f"parent {n}"))
                assert "parent" in store.run(likes.members(7))
            assert forked.hear() == "50"
        assert store.run(likes.size(7)) == 101
        assert os.getpid() != forked.pid


def test_a_store_that_was_closed() -> None:
    store = roost.Store("memcached://127.0.0.1:1")
    store.close()
    for call in (lambda: store.run(likes.members(7)), lambda: store.create(likes), lambda: store.check(likes)):
        with pytest.raises(roost.Closed):
            call()


# --- pymemcache --------------------------------------------------------------------------------------------------


def test_trap_noreply_is_its_default_and_true_its_answer(plain: Any) -> None:
    assert plain.append("likes:7", b"x") is True  # there is no such item
    assert plain.add("likes:7", b"y" * 2**21) is True  # which no item can hold
    assert plain.get("likes:7") is None
    store = roost.Store(f"memcached://{plain.server[0]}:{plain.server[1]}")
    store.run(likes.add(7, "ada"))
    assert store.run(likes.members(7)) == {"ada"}
    store.close()


def test_trap_an_exception_may_be_taken_for_a_miss(plain: Any) -> None:
    careless = Client(("127.0.0.1", 1), ignore_exc=True)
    assert careless.get("k") is None
    with roost.Store("memcached://127.0.0.1:1") as store, pytest.raises(roost.CannotOpen):
        store.run(likes.members(7))
