"""Tasks of the event loop: what blocks in one of them lets the others go on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any

import pytest
import uvloop

from roost.databases.waits import READ, WRITE
from roost.server.tasks import Tasks, Watch

PATIENCE = 30.0
Run = Callable[[Coroutine[Any, Any, Any]], Any]
Ran = Callable[..., list[Any]]
Pair = tuple[socket.socket, socket.socket]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Run a coroutine in one of the loops that a worker may have."""
    with asyncio.Runner(loop_factory=request.param) as runner:
        yield runner.run


@pytest.fixture
def ran(run: Run) -> Callable[..., list[Any]]:
    return partial(ends, run)


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two ends of a connection."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        yield ours, theirs


def ends(
    run: Run, work: Callable[[Tasks], list[Callable[[], Any]]], meanwhile: Callable[[], None] = lambda: None
) -> list[Any]:
    """Run functions as tasks of one loop; return what each has returned or raised, in the order of their ends."""

    async def whole() -> list[Any]:
        tasks = Tasks()
        results: list[Any] = []
        todo = work(tasks)
        for each in todo:
            tasks.start(each, results.append)
        meanwhile()
        async with asyncio.timeout(PATIENCE):
            while len(results) < len(todo):
                await asyncio.sleep(0)
        tasks.close()
        return results

    found: list[Any] = run(whole())
    return found


def test_a_task_that_waits_lets_the_next_one_run(pair: Pair, ran: Ran) -> None:
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


def test_a_wait_ends_with_nothing_when_its_time_is_over(pair: Pair, ran: Ran) -> None:
    def work(tasks: Tasks) -> list[Callable[[], Any]]:
        watches: list[Watch] = [tasks.watch(pair[0].fileno()) for _ in range(2)]
        return [lambda watch=each: watch.until(READ, 0.0) for each in watches]  # type: ignore[misc]

    assert ran(work) == [0, 0]


def test_a_socket_is_waited_for_until_it_takes_something(pair: Pair, ran: Ran) -> None:
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


def test_what_arrives_while_nobody_waits_is_there_for_the_next_wait(pair: Pair, run: Run) -> None:
    ours, theirs = pair

    async def whole() -> list[Any]:
        tasks = Tasks()
        watch = tasks.watch(ours.fileno())
        results: list[Any] = []
        theirs.send(b"1")
        tasks.start(lambda: (watch.until(READ, PATIENCE), ours.recv(100)), results.append)
        while not results:
            await asyncio.sleep(0)
        theirs.close()  # as a server does with a connection that is idle
        for _ in range(3):
            await asyncio.sleep(0)
        assert not tasks.selector.get_map(), "the loop would be called for ever"
        tasks.start(lambda: (watch.until(READ, PATIENCE), ours.recv(100)), results.append)
        while len(results) < 2:
            await asyncio.sleep(0)
        watch.close()
        tasks.close()
        return results

    assert run(whole()) == [(READ, b"1"), (READ, b"")]


def test_a_connection_that_the_server_has_reset_is_ready_again_and_again(run: Run) -> None:
    async def whole() -> list[Any]:
        tasks = Tasks()
        results: list[Any] = []
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as ours:
            theirs, _ = server.accept()
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close resets
            ours.setblocking(False)
            watch = tasks.watch(ours.fileno())

            def read() -> bytes:
                assert watch.until(READ, 10 * PATIENCE) == READ
                return ours.recv(100)

            def read_thrice() -> bytes:
                for _ in range(2):
                    with contextlib.suppress(ConnectionResetError):
                        read()
                return read()

            tasks.start(read_thrice, results.append)
            theirs.close()
            async with asyncio.timeout(PATIENCE):
                while not results:
                    await asyncio.sleep(0)
            watch.close()
        tasks.close()
        return results

    assert run(whole()) == [b""]


def test_what_blocks_is_done_in_another_thread_and_its_error_is_raised(ran: Ran) -> None:
    here = threading.get_ident()

    def fails() -> None:
        raise LookupError("of the thread")

    def work(tasks: Tasks) -> list[Callable[[], Any]]:
        return [lambda: tasks.call(threading.get_ident) != here, lambda: tasks.call(fails), lambda: tasks.sleep(0.001)]

    results = ran(work)
    assert True in results
    assert None in results
    assert [str(each) for each in results if isinstance(each, LookupError)] == ["of the thread"]


def test_outside_of_tasks_the_thread_waits(run: Run) -> None:
    async def whole() -> tuple[bool, int]:
        tasks = Tasks()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            watch = tasks.watch(ours.fileno())
            waits = watch.waits()
            watch.close()
        tasks.sleep(0)
        tasks.close()
        return waits, tasks.call(os.getpid)

    assert run(whole()) == (False, os.getpid())
