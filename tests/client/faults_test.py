"""Persistent connections: whatever is disturbed, nobody gets another's answer, and nothing is done twice in silence."""

from __future__ import annotations

import asyncio
import gc
import linecache
import os
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from types import FrameType
from typing import TYPE_CHECKING, Any

import pytest
import trustme

import roost
from roost.client import AsyncHandlerSocket, HandlerSocket, Index, Where
from tests.client.conftest import Client, Connect, Server, Sync
from tests.client.middle import Middle

if TYPE_CHECKING:
    from _typeshed import TraceFunction

SHORT = 2.0  # a timeout that is met, and no answer of a busy machine is as late


@pytest.fixture
def middle(server: Server) -> Iterator[Middle]:
    with Middle(server.write_port) as made:
        yield made


@pytest.fixture
def fruit(server: Server) -> Index:
    return server.index("fruit", "id", "name")


@pytest.fixture
def client(server: Server, middle: Middle, connect: Connect) -> Client:
    """A client that speaks to the server through what disturbs it."""
    return connect(middle.address, secret=server.write_secret)


@pytest.fixture
def hasty(server: Server, middle: Middle, connect: Connect) -> Client:
    return connect(middle.address, secret=server.write_secret, timeout=SHORT)


def names(server: Server, row: int) -> list[tuple[object, ...]]:
    return server.sql(f"SELECT name FROM fruit WHERE id = {row}")


def test_without_an_answer_a_read_was_not_done_and_a_modification_may_have_been(
    server: Server, middle: Middle, hasty: Client, fruit: Index
) -> None:
    assert hasty.run(fruit.find("=", 1)) == [("1", "apple")]
    middle.rules = ["hold"]
    with pytest.raises(roost.TimedOut, match=rf"no answer within {SHORT:g} s") as late:
        hasty.run(fruit.find("=", 2))
    assert hasty.run(fruit.find("=", 3)) == [("3", "cherry")]
    assert middle.connections == 2
    middle.rules = ["hold"]
    with pytest.raises(roost.OutcomeUnknown, match="may have been done") as unknown:
        hasty.run(fruit.insert((9, "fig")))
    assert (late.value.retry, unknown.value.retry) == (True, False)
    assert names(server, 9) == [("fig",)]
    assert hasty.run(fruit.find("=", 9)) == [("9", "fig")]


def test_a_read_is_asked_again_once(middle: Middle, client: Client, fruit: Index) -> None:
    middle.rules = ["lose", "pass", "lose", "drop"]
    assert client.run(fruit.find("=", 1)) == [("1", "apple")]
    assert middle.connections == 2
    with pytest.raises(roost.ConnectionLost, match="was not done") as caught:
        client.run(fruit.find("=", 2))
    assert caught.value.retry
    assert middle.connections == 3
    assert client.run(fruit.find("=", 3)) == [("3", "cherry")]


@pytest.mark.parametrize(("rule", "done"), [("lose", [("fig",)]), ("drop", [])])
def test_a_modification_is_never_asked_again(
    server: Server, middle: Middle, client: Client, fruit: Index, rule: str, done: list[tuple[str]]
) -> None:
    middle.rules = ["pass", rule]
    client.run(fruit.find("=", 1))
    with pytest.raises(roost.OutcomeUnknown):
        client.run(fruit.insert((9, "fig")))
    assert names(server, 9) == done
    assert len(middle.chunks) == 2


def test_in_a_pipeline_each_has_the_fate_of_its_kind(
    server: Server, middle: Middle, client: Client, fruit: Index
) -> None:
    middle.rules = ["lose"]
    asked = [fruit.find("=", 1), fruit.update("=", 2, (2, "berry")), fruit.find("=", 2), fruit.delete("=", 99)]
    first, update, second, delete = client.pipeline(asked)
    assert (first, second) == ([("1", "apple")], [("2", "berry")])
    assert isinstance(update, roost.OutcomeUnknown)
    assert isinstance(delete, roost.OutcomeUnknown)
    assert names(server, 2) == [("berry",)]


def test_what_was_answered_before_the_connection_broke_counts(middle: Middle, client: Client, fruit: Index) -> None:
    client.run(fruit.find("=", 1))
    middle.rules = [b"0\t1\n0\t1\t1\nnonsense\n"]
    asked = [fruit.update("=", 1, (1, "x")), fruit.update("=", 2, (2, "y")), fruit.update("=", 3, (3, "z"))]
    first, second, third = client.pipeline(asked)
    assert isinstance(first, roost.OutcomeUnknown)  # `0 1` is no number of rows
    assert isinstance(second, roost.OutcomeUnknown)
    assert isinstance(third, roost.OutcomeUnknown)
    middle.rules = ["pass", b"0\t1\t1\nnonsense\n"]
    client.run(fruit.find("=", 1))
    first, second, third = client.pipeline(asked)
    assert first == 1
    assert isinstance(second, roost.OutcomeUnknown)
    assert isinstance(third, roost.OutcomeUnknown)


def test_f135_what_tls_may_have_sent_is_not_done_twice(server: Server, connect: Connect) -> None:
    authority = trustme.CA()
    ours, theirs = ssl.create_default_context(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(theirs)
    authority.configure_trust(ours)
    counts = server.index("fruit", "count", filters=("name",))
    with Middle(server.write_port, tls=theirs) as middle:
        client = connect(middle.address, secret=server.write_secret, tls=ours)
        assert client.run(counts.update("=", 1, (0,))) == 1
        middle.rules = [*["pass"] * 20, "drop"]  # each chunk is a record of TLS
        asked = [counts.increment("=", 1, (1,), filters=[Where("name", "!=", "x" * 8000)])] * 2000
        outcomes = client.pipeline(asked)
        ((count,),) = server.sql("SELECT count FROM fruit WHERE id = 1")
        done, unknown = outcomes.count(1), [each for each in outcomes if isinstance(each, roost.OutcomeUnknown)]
        assert done + len(unknown) == len(asked)
        assert done <= count <= len(asked)
        assert unknown


def test_f136_an_unknown_outcome_at_the_server_is_one_for_the_client(
    middle: Middle, client: Client, fruit: Index
) -> None:
    client.run(fruit.find("=", 1))
    middle.rules = [b"1\t1\tunknown\n" * 2]
    change, read = client.pipeline([fruit.update("=", 2, (2, "berry")), fruit.find("=", 2)])
    assert isinstance(change, roost.OutcomeUnknown)
    assert "may have been done" in str(change)
    assert isinstance(read, roost.Refused)


def test_f134_the_timeout_begins_before_the_connection_is_free(middle: Middle, hasty: Client, fruit: Index) -> None:
    hasty.run(fruit.find("=", 1))
    callers = 8
    middle.rules = ["hold"] * callers
    if isinstance(hasty, Sync):
        with ThreadPoolExecutor(callers) as threads:
            outcomes: list[Any] = list(threads.map(hasty.pipeline, [[fruit.find("=", 1)]] * callers))
    else:
        tasks = hasty.client

        async def main() -> list[Any]:
            return list(await asyncio.gather(*[tasks.pipeline([fruit.find("=", 1)]) for _ in range(callers)]))

        outcomes = hasty.runner.run(main())
    # Some that waited may get the connection with a moment left; without a deadline for all, each of them would ask.
    assert {type(each) for (each,) in outcomes} <= {roost.TimedOut, roost.CannotOpen}
    assert middle.rules


BROKEN = [
    b"nonsense\n",
    b"\n",
    b"0\n",
    b"\t1\n",
    b"1" * 5000 + b"\t1\tx\n",  # more digits than Python reads
    b"0\t3\t1\tapple\t5\n",  # more columns than were opened
    b"0\t2\t1\n",  # half a row
    b"0\t2\t1\ta\x01\n",  # a broken escape
    b"0\t2\t1\tapple\n0\t2\t2\tbanana\n",  # more than was asked for
    b"0\t2\t1\tapple\n0\t",
    b"2\t1\tcmd\n",
    b"0\t2\t1\tap",
]


@pytest.mark.parametrize("answer", BROKEN)
def test_an_answer_that_cannot_be_one_costs_the_connection(
    server: Server, middle: Middle, connect: Connect, fruit: Index, answer: bytes
) -> None:
    half = answer == b"0\t2\t1\tap"  # of which the rest never comes
    client = connect(middle.address, secret=server.write_secret, timeout=SHORT if half else 60.0)
    client.run(fruit.find("=", 1))
    middle.rules = [answer]
    (outcome,) = client.pipeline([fruit.find("=", 1)])
    if answer == b"2\t1\tcmd\n":
        assert isinstance(outcome, roost.Refused)
    elif half:
        assert isinstance(outcome, roost.TimedOut)
    else:
        assert outcome == [("1", "apple")]  # asked again
    assert client.run(fruit.find("=", 2)) == [("2", "banana")]
    assert middle.connections == 2


def test_what_a_server_closed_meanwhile_is_noticed_before_anything_is_sent(
    server: Server, middle: Middle, client: Client, fruit: Index
) -> None:
    client.run(fruit.find("=", 1))
    middle.close_all()
    assert client.run(fruit.insert((9, "fig"))) == 0
    assert names(server, 9) == [("fig",)]
    assert middle.connections == 2


def test_what_nobody_asked_for_is_no_answer(middle: Middle, client: Client, fruit: Index) -> None:
    client.run(fruit.find("=", 1))
    middle.say(b"0\t2\t7\twrong\n")
    assert client.run(fruit.find("=", 2)) == [("2", "banana")]
    assert client.run(fruit.insert((9, "fig"))) == 0
    assert middle.connections == 2


def test_ids_are_opened_again(server: Server, middle: Middle, client: Client, fruit: Index) -> None:
    other = server.index("fruit", "name")
    client.run(fruit.find("=", 1))
    client.run(other.find("=", 1))
    middle.close_all()
    assert client.run(other.find("=", 2)) == [("banana",)]
    assert client.run(fruit.find("=", 2)) == [("2", "banana")]
    opened = [chunk.count(b"\nP\t") + chunk.startswith(b"P\t") for chunk in middle.chunks]
    assert opened == [1, 1, 1, 1]


def test_nobody_listens(connect: Connect, fruit: Index) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        client = connect(f"127.0.0.1:{free.getsockname()[1]}")
        for request in (fruit.find("=", 1), fruit.insert((9, "fig"))):
            with pytest.raises(roost.CannotOpen, match="no connection to 127") as caught:
                client.run(request)
            assert caught.value.retry


def test_a_cancelled_task_costs_the_connection(server: Server, middle: Middle, fruit: Index) -> None:
    async def main() -> None:
        sent = asyncio.Event()
        loop = asyncio.get_running_loop()
        middle.on_chunk = lambda: loop.call_soon_threadsafe(sent.set)
        async with AsyncHandlerSocket(middle.address, secret=server.write_secret) as client:
            assert await client.run(fruit.find("=", 1)) == [("1", "apple")]
            sent.clear()
            middle.rules = ["hold"]
            first = asyncio.create_task(client.run(fruit.find("=", 2)))
            behind = asyncio.create_task(client.run(fruit.find("=", 3)))
            await sent.wait()
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            assert await behind == [("3", "cherry")]
            assert await client.run(fruit.find("=", 4)) == [("4", "damson")]
            waiting = asyncio.create_task(client.run(fruit.find("=", 5)))
            waiting.cancel()  # before it has begun
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert middle.connections == 2

    asyncio.run(main())


def test_an_interrupt_costs_the_connection(
    server: Server, middle: Middle, fruit: Index, request: pytest.FixtureRequest
) -> None:
    interrupted = Event()

    def interrupt() -> None:
        # Python loses a signal that comes right before a system call until that returns, so it is sent again.
        while not interrupted.wait(0.05):
            os.kill(os.getpid(), signal.SIGINT)

    def handle(*_: object) -> None:
        if not interrupted.is_set():
            interrupted.set()
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, handle)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    with HandlerSocket(middle.address, secret=server.write_secret) as client:
        client.run(fruit.find("=", 1))
        middle.rules, middle.on_chunk = ["hold"], interrupt
        with pytest.raises(KeyboardInterrupt):
            client.run(fruit.find("=", 2))
        middle.on_chunk = lambda: None
        assert client.run(fruit.find("=", 3)) == [("3", "cherry")]
        assert middle.connections == 2


def test_an_interrupt_at_any_line_costs_the_connection(server: Server, fruit: Index) -> None:
    # Wherever in the client Ctrl-C arrives: what is asked next has its own answer.
    with HandlerSocket(f"127.0.0.1:{server.write_port}", secret=server.write_secret) as client:
        lines = 0
        while True:
            lines += 1
            if not _interrupted(lambda: client.run(fruit.find("=", 2)), lines):
                break
            assert client.run(fruit.find("=", 3)) == [("3", "cherry")]
        assert lines > 50


def _interrupted(call: Callable[[], object], lines: int) -> bool:
    left = lines

    def trace(frame: FrameType, event: str, _: object) -> TraceFunction | None:
        nonlocal left
        if "roost/client" not in frame.f_code.co_filename:
            return None
        # Signals are looked for at calls and jumps: not at a bare `try`, nor before a lock is given back.
        text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        if event == "line" and text not in ("try:", "with self._lock:", "self._lock.release()"):
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_after_a_fork_each_process_has_its_own_connection(server: Server, fruit: Index) -> None:
    with HandlerSocket(f"127.0.0.1:{server.read_port}", secret=server.read_secret) as client:
        client.run(fruit.find("=", 1))
        child = os.fork()
        if not child:
            found = [client.run(fruit.find("=", 2)) for _ in range(100)]
            os._exit(0 if found == [[("2", "banana")]] * 100 else 1)
        assert [client.run(fruit.find("=", 3)) for _ in range(100)] == [[("3", "cherry")]] * 100
        assert os.waitpid(child, 0)[1] == 0
        assert client.run(fruit.find("=", 4)) == [("4", "damson")]


@pytest.mark.filterwarnings("ignore:unclosed")
def test_in_another_event_loop_it_connects_anew(server: Server, fruit: Index) -> None:
    client = AsyncHandlerSocket(f"127.0.0.1:{server.read_port}", secret=server.read_secret)

    async def ask() -> None:
        found = await asyncio.gather(*[client.run(fruit.find("=", row)) for row in (1, 2, 3)])
        assert found == [[("1", "apple")], [("2", "banana")], [("3", "cherry")]]

    for _ in range(2):
        with asyncio.Runner() as runner:
            runner.run(ask())
            runner.run(client.close())
    asyncio.run(ask())
    asyncio.run(client.close())  # what another loop has opened
    gc.collect()  # warns of it here


def test_threads_take_turns(server: Server, fruit: Index) -> None:
    with (
        HandlerSocket(f"127.0.0.1:{server.read_port}", secret=server.read_secret) as shared,
        ThreadPoolExecutor(3) as threads,
    ):
        found = threads.map(lambda row: [shared.run(fruit.find("=", row)) for _ in range(100)], (1, 2, 3))
        assert [*found] == [[[row]] * 100 for row in (("1", "apple"), ("2", "banana"), ("3", "cherry"))]


def test_tls_and_unix_sockets(server: Server, connect: Connect, fruit: Index, tmp_path: Path) -> None:
    authority = trustme.CA()
    ours, theirs = ssl.create_default_context(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(theirs)
    authority.configure_trust(ours)
    with Middle(server.write_port, tls=theirs) as middle:
        client = connect(middle.address, secret=server.write_secret, tls=ours)
        assert [client.run(fruit.find("=", row)) for row in (1, 2)] == [[("1", "apple")], [("2", "banana")]]
        assert middle.connections == 1
        found = client.pipeline([fruit.find("=", 3)] * 3000)
        assert found == [[("3", "cherry")]] * 3000
        middle.rules = ["lose"]
        assert client.run(fruit.find("=", 3)) == [("3", "cherry")]
        client.close()
        stranger = connect(middle.address, secret=server.write_secret, tls=ssl.create_default_context())
        with pytest.raises(roost.CannotOpen, match="certificate verify failed"):
            stranger.run(fruit.find("=", 1))
    with Middle(server.write_port, path=f"{tmp_path}/middle.sock") as middle:
        client = connect(middle.address, secret=server.write_secret)
        assert client.run(fruit.find("=", 1)) == [("1", "apple")]
        client.close()
