"""Hostile clients of `roost serve`: each costs itself alone. What the others wait for is measured before and during.

The measuring clients are a process of their own: 10 readers and 5 writers, each with one request in flight and a pause
after each answer, which is compared with what it has to be. HandlerSocket first, then memcached's protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
import sqlite3
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import roost
from tests.campaigns.played import asked
from tests.campaigns.processes import Child, Line, until
from tests.campaigns.serve_kills import ports_of
from tests.server.serving import Client, Serving, connected, serving

PAUSE = 0.003  # seconds between an answer and the next request of a measuring client
BIG = 50_000  # bytes of the row that the deaf ask for
ROLES = ("read", "write")

OPEN = "P\t0\tmain\trows\tPRIMARY\tid,v"
PAGES = roost.Cache("pages")


@dataclass(frozen=True)
class Wire:
    """What the clients of a protocol send, and what they have to be answered.

    opens, opened: the first request of a connection, and its answer.
    big: asks for the large row.
    reads, writes: a request for row number n, and its answer.
    begins: the beginning of a request that never ends.
    too_long: the answer to a line without an end.
    """

    name: str
    opens: bytes
    opened: bytes
    big: bytes
    reads: Callable[[int], tuple[bytes, bytes]]
    writes: Callable[[int], tuple[bytes, bytes]]
    begins: bytes
    too_long: bytes

    def address(self, served: Serving, role: str) -> str:
        """Return where requests of a role are served."""
        return served.addresses["memcached" if self is MEMCACHED else role][0]


HANDLERSOCKET = Wire(
    "HandlerSocket",
    opens=f"{OPEN}\n".encode(),
    opened=b"0\t1\n",
    big=b"0\t=\t1\t1000\n",
    reads=lambda n: (b"0\t=\t1\t%d\n" % n, b"0\t2\t%d\tv%d\n" % (n, n)),
    writes=lambda n: (b"0\t=\t1\t%d\t1\t0\tU\t%d\tv%d\n" % (n, n, n), b"0\t1\t1\n"),
    begins=b"0\t=",
    too_long=b"2\t1\ttoolong\n",
)


MEMCACHED = Wire(
    "memcached's protocol",
    opens=b"mn\r\n",
    opened=b"MN\r\n",
    big=b"get 1000\r\n",
    reads=lambda n: (b"get %d\r\n" % n, b"VALUE %d 0 %d\r\nv%d\r\nEND\r\n" % (n, len(f"v{n}"), n)),
    writes=lambda n: (b"set %d 0 0 %d\r\nv%d\r\n" % (n, len(f"v{n}"), n), b"STORED\r\n"),
    begins=b"set 7 0 0 100000\r\nx",
    too_long=b"CLIENT_ERROR line too long\r\n",
)


def wire_of(served: Serving) -> Wire:
    """Return the protocol that a server speaks."""
    return MEMCACHED if served.addresses["memcached"] else HANDLERSOCKET


def make_table(path: Path) -> None:
    """Make the table that is served."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, v TEXT)")
        connection.executemany("INSERT INTO rows VALUES (?, ?)", [(n, f"v{n}") for n in range(1000)])
        connection.execute("INSERT INTO rows VALUES (1000, ?)", ("x" * BIG,))
        connection.commit()


def make_cache(url: str) -> None:
    """Make the cache that is served."""
    with roost.Store(url) as store:
        store.create(PAGES)
        store.run(PAGES.set_many({str(n): f"v{n}".encode() for n in range(1000)}))
        store.run(PAGES.set("1000", b"x" * BIG))


# --- those who are measured ----------------------------------------------------------------------------------------


def measure(served: Serving, seconds: float) -> dict[str, float]:
    """Return the p99 of reads and of writes, in milliseconds."""

    def work(line: Line) -> None:
        line.say(json.dumps(asyncio.run(_measured(served, seconds))))

    with Child(work, patience=seconds + 120) as child:
        found: dict[str, float] = json.loads(child.hear(seconds + 100))
        assert child.wait() == 0
    return found


async def _measured(served: Serving, seconds: float) -> dict[str, float]:
    taken: dict[str, list[float]] = {role: [] for role in ROLES}
    clients = [_ask(served, "read", taken["read"], seconds) for _ in range(10)]
    clients += [_ask(served, "write", taken["write"], seconds) for _ in range(5)]
    await asyncio.gather(*clients)
    return {role: statistics.quantiles(each, n=100)[98] * 1000 for role, each in taken.items()}


async def _ask(served: Serving, role: str, taken: list[float], seconds: float) -> None:
    wire = wire_of(served)
    host, _, port = wire.address(served, role).rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(wire.opens)
    assert await reader.readexactly(len(wire.opened)) == wire.opened
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        asked, expected = (wire.reads if role == "read" else wire.writes)(random.randrange(1000))
        began = time.perf_counter()
        writer.write(asked)
        answer = await reader.readexactly(len(expected))
        taken.append(time.perf_counter() - began)
        assert answer == expected, (asked, answer)
        await asyncio.sleep(PAUSE)
    writer.close()


# --- those who are hostile -----------------------------------------------------------------------------------------


@contextmanager
def _repeated(act: Callable[[], None], pause: float) -> Iterator[None]:
    """Do something again and again in a thread; at least once."""
    ended = threading.Event()
    errors: list[BaseException] = []

    def work() -> None:
        try:
            act()
            while not ended.wait(pause):
                act()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        assert errors == [], errors


@contextmanager
def _connections(served: Serving, number: int) -> Iterator[list[socket.socket]]:
    made: list[socket.socket] = []
    wire = wire_of(served)
    try:
        for _ in range(number // 2):
            made += [connected(wire.address(served, role)) for role in ROLES]
        yield made
    finally:
        for each in made:
            each.close()


@contextmanager
def drip(served: Serving, number: int = 100) -> Iterator[None]:
    """Send one byte a second."""
    text = wire_of(served).opens
    sent = 0

    def act() -> None:
        nonlocal sent
        for each in made:
            each.send(text[sent % len(text) :][:1])
        sent += 1

    with _connections(served, number) as made, _repeated(act, 1.0):
        yield


@contextmanager
def deaf(served: Serving, number: int = 10) -> Iterator[None]:
    """Ask for big rows, and never read an answer."""
    wire = wire_of(served)
    with _connections(served, number) as made:
        for each in made:
            each.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                each.send(wire.opens)
        asked = wire.big * 1000

        def act() -> None:
            for each in made:
                with contextlib.suppress(BlockingIOError):
                    each.send(asked)

        with _repeated(act, 0.01):
            yield


@contextmanager
def half(served: Serving, number: int = 20) -> Iterator[None]:
    """Close the sending half after some requests, which are answered all the same, and so on."""
    wire = wire_of(served)
    asked, answered = wire.reads(7)

    def act() -> None:
        for role in ROLES:
            clients = [Client(wire.address(served, role)) for _ in range(number // 2)]
            for client in clients:
                client.socket.sendall(wire.opens + 9 * asked + wire.begins)  # what has no end is nothing
                client.socket.shutdown(socket.SHUT_WR)
            for client in clients:
                answers = client.rest()
                assert answers == wire.opened + 9 * answered, answers
                client.close()

    with _repeated(act, 0.5):
        yield


@contextmanager
def endless(served: Serving, number: int = 2, size: int = 100 * 10**6) -> Iterator[None]:
    """Send a line of 100 MB; it is told to be too long, and the connection closed."""
    wire = wire_of(served)
    piece = b"x" * 2**16

    def act() -> None:
        for role in ROLES[:number]:
            with Client(wire.address(served, role)) as client:
                client.socket.sendall(wire.opens)
                try:
                    for _ in range(size // len(piece)):
                        client.socket.sendall(piece)
                    client.socket.sendall(b"\n")
                except OSError:  # closed by the server, before the end
                    pass
                try:
                    answers = client.rest()
                except OSError:  # it was told, but what it sent on has made the kernel forget that
                    continue
                assert answers == wire.opened + wire.too_long, answers[:100]

    with _repeated(act, 1.0):
        yield


@contextmanager
def silent(served: Serving, number: int = 10_000) -> Iterator[None]:
    """Connect, and say nothing."""
    with _connections(served, number) as made:
        yield
        for each in made:
            each.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                raise AssertionError(f"a silent connection was told {each.recv(100)!r}")


HOSTILE: dict[str, Callable[[Serving], AbstractContextManager[None]]] = {
    "100 send one byte a second": drip,
    "10 ask for big rows and never read": deaf,
    "20 half-close, twice a second": half,
    "a line of 100 MB, every second on each port": endless,
    "10,000 connect and say nothing": silent,
}


def memory(served: Serving) -> int:
    """Return the memory of the largest worker, in MiB."""
    found = [Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0] for pid in served.all()]
    return max(map(int, found)) // 1024


@contextmanager
def a_server(folder: Path, *arguments: str, wire: Wire = HANDLERSOCKET) -> Iterator[Serving]:
    """Serve the table, or a cache; at the end it leaves politely, and has logged no mistake."""
    if wire is HANDLERSOCKET:
        make_table(folder / "app.db")
    else:
        make_cache(f"sqlite:///{folder}/app.db")
        arguments = (*arguments, "--read", "none", "--write", "none", "--memcached", "127.0.0.1:0", "--cache", "pages")
    listeners = None if wire is HANDLERSOCKET else 1
    command = ("sqlite:///app.db", "--workers", "1", *arguments)
    with serving(folder, *command, module="roost.cli", listeners=listeners) as served:
        yield served
        assert served.stop() == 0
        assert "Traceback" not in served.log, served.log


def main() -> None:
    """Measure before and during each, in turns, and say the medians."""
    options = asked(seeded=False, rounds=3, seconds=5.0)
    for wire in (HANDLERSOCKET, MEMCACHED):
        print(f"{wire.name}:")
        with tempfile.TemporaryDirectory() as folder, a_server(Path(folder), "--workers", "2", wire=wire) as served:
            for name, act in HOSTILE.items():
                compare(served, name, act, options.rounds, options.seconds)


def compare(
    served: Serving, name: str, act: Callable[[Serving], AbstractContextManager[None]], rounds: int, seconds: float
) -> None:
    """Measure without and with them, by turns, and say the medians."""
    before: list[dict[str, float]] = []
    during: list[dict[str, float]] = []
    most = 0
    for _ in range(rounds):
        before.append(measure(served, seconds))
        with act(served):
            during.append(measure(served, seconds))
            most = max(most, memory(served))
        until(lambda: not any([ports_of(pid) - {0} for pid in served.all()]), "the end of all connections")
    found = []
    for role in ROLES:
        one, other = (statistics.median([each[role] for each in all_]) for all_ in (before, during))
        found.append(f"{role} p99 {one:.1f} -> {other:.1f} ms ({other / one:.2f})")
    print(f"{name}: {', '.join(found)}; memory of a worker at most {most} MiB", flush=True)


if __name__ == "__main__":
    main()
