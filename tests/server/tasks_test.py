"""Tasks of the event loop: what blocks in one of them lets the others go on."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from roost.databases.waits import READ, WRITE
from roost.server.tasks import Tasks, Watch

PATIENCE = 30.0


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a connection."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        yield ours, theirs


def ran(work: Callable[[Tasks], list[Callable[[], Any]]], meanwhile: Callable[[], None] = lambda: None) -> list[Any]:
    """Run functions as tasks of one loop; return what each has returned or raised, in the order of their ends."""

    async def run() -> list[Any]:
        tasks = Tasks()
        results: list[Any] = []
        todo = work(tasks)
        for each in todo:
            tasks.start(each, results.append)
        meanwhile()
        async with asyncio.timeout(PATIENCE):
            while len(results) < len(todo):
                await asyncio.sleep(0)
        return results

    return asyncio.run(run())


def test_a_task_that_waits_lets_the_next_one_run(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair

    def work(tasks: Tasks) -> list[Callable[[], Any]]:
        watch = tasks.watch(ours.fileno())

        def first() -> bytes:
            assert watch.until(READ, PATIENCE) == READ
            said = ours.recv(100)
            watch.close()
            return said

        return [first, lambda: theirs.send(b"from the second")]

    assert ran(work) == [15, b"from the second"]


def test_a_wait_ends_with_nothing_when_its_time_is_over(pair: tuple[socket.socket, socket.socket]) -> None:
    def work(tasks: Tasks) -> list[Callable[[], Any]]:
        watches: list[Watch] = [tasks.watch(pair[0].fileno()) for _ in range(2)]
        return [lambda watch=each: watch.until(READ, 0.0) for each in watches]  # type: ignore[misc]

    assert ran(work) == [0, 0]


def test_a_socket_is_waited_for_until_it_takes_something(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    while True:
        try:
            ours.send(bytes(2**16))
        except BlockingIOError:
            break

    def work(tasks: Tasks) -> list[Callable[[], Any]]:
        watch = tasks.watch(ours.fileno())
        return [lambda: watch.until(WRITE, PATIENCE), lambda: len(theirs.recv(2**24, socket.MSG_WAITALL)) > 0]

    theirs.settimeout(0.2)
    assert sorted(ran(work)) == [True, WRITE]


def test_what_arrives_while_nobody_waits_is_there_for_the_next_wait(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair

    async def run() -> list[Any]:
        tasks = Tasks()
        watch = tasks.watch(ours.fileno())
        results: list[Any] = []
        theirs.send(b"1")
        tasks.start(lambda: (watch.until(READ, PATIENCE), ours.recv(100)), results.append)
        while not results:
            await asyncio.sleep(0)
        theirs.close()  # as a server does with a connection that is idle
        selector: Any = asyncio.get_running_loop()
        for _ in range(3):
            await asyncio.sleep(0)
        assert not selector._selector.get_map().get(watch._socket.fileno()), "the loop would be called for ever"
        tasks.start(lambda: (watch.until(READ, PATIENCE), ours.recv(100)), results.append)
        while len(results) < 2:
            await asyncio.sleep(0)
        watch.close()
        return results

    assert asyncio.run(run()) == [(READ, b"1"), (READ, b"")]


def test_what_blocks_is_done_in_another_thread_and_its_error_is_raised() -> None:
    here = threading.get_ident()

    def fails() -> None:
        raise LookupError("of the thread")

    def work(tasks: Tasks) -> list[Callable[[], Any]]:
        return [
            lambda: tasks.call(threading.get_ident) != here,
            lambda: tasks.call(fails),
            lambda: tasks.sleep(0.001),
        ]

    results = ran(work)
    assert True in results
    assert None in results
    assert [str(each) for each in results if isinstance(each, LookupError)] == ["of the thread"]


def test_outside_of_tasks_the_thread_waits() -> None:
    async def run() -> tuple[bool, int]:
        tasks = Tasks()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            watch = tasks.watch(ours.fileno())
            waits = watch.waits()
            watch.close()
        tasks.sleep(0)
        return waits, tasks.call(os.getpid)

    assert asyncio.run(run()) == (False, os.getpid())
