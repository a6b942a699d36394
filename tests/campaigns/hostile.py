"""Hostile clients of `roost serve`: each costs itself alone. What the others wait for is measured before and during.

The measuring clients are a process of their own: 10 readers and 5 writers, each with one request in flight and a pause
after each answer, which is compared with what it has to be.
"""

from __future__ import annotations

import argparse
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
from pathlib import Path

from tests.campaigns.processes import Child, Line, until
from tests.campaigns.serve_kills import ports_of
from tests.server.serving import Client, Serving, connected, serving

PAUSE = 0.003  # seconds between an answer and the next request of a measuring client
BIG = 50_000  # bytes of the row that the deaf ask for
ROLES = ("read", "write")

OPEN = "P\t0\tmain\trows\tPRIMARY\tid,v"


def make_table(path: Path) -> None:
    """Make the table that is served."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, v TEXT)")
        connection.executemany("INSERT INTO rows VALUES (?, ?)", [(n, f"v{n}") for n in range(1000)])
        connection.execute("INSERT INTO rows VALUES (1000, ?)", ("x" * BIG,))
        connection.commit()


# --- those who are measured ----------------------------------------------------------------------------------------


def measure(served: Serving, seconds: float) -> dict[str, float]:
    """Return the p99 of reads and of writes, in milliseconds."""

    def work(line: Line) -> None:
        line.say(json.dumps(asyncio.run(_measured(served.addresses, seconds))))

    with Child(work, patience=seconds + 120) as child:
        found: dict[str, float] = json.loads(child.hear(seconds + 100))
        assert child.wait() == 0
    return found


async def _measured(addresses: dict[str, list[str]], seconds: float) -> dict[str, float]:
    taken: dict[str, list[float]] = {role: [] for role in ROLES}
    clients = [_ask("read", addresses["read"][0], taken["read"], seconds) for _ in range(10)]
    clients += [_ask("write", addresses["write"][0], taken["write"], seconds) for _ in range(5)]
    await asyncio.gather(*clients)
    return {role: statistics.quantiles(each, n=100)[98] * 1000 for role, each in taken.items()}


async def _ask(role: str, address: str, taken: list[float], seconds: float) -> None:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"{OPEN}\n".encode())
    assert await reader.readline() == b"0\t1\n"
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        n = random.randrange(1000)
        tail = f"\t1\t0\tU\t{n}\tv{n}" if role == "write" else ""
        began = time.perf_counter()
        writer.write(f"0\t=\t1\t{n}{tail}\n".encode())
        answer = await reader.readline()
        taken.append(time.perf_counter() - began)
        assert answer.decode() == ("0\t1\t1\n" if role == "write" else f"0\t2\t{n}\tv{n}\n"), answer
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
    try:
        for _ in range(number // 2):
            made += [connected(served.addresses[role][0]) for role in ROLES]
        yield made
    finally:
        for each in made:
            each.close()


@contextmanager
def drip(served: Serving, number: int = 100) -> Iterator[None]:
    """Send one byte a second."""
    text = f"{OPEN}\n".encode()
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
    with _connections(served, number) as made:
        for each in made:
            each.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                each.send(f"{OPEN}\n".encode())
        asked = b"0\t=\t1\t1000\n" * 1000

        def act() -> None:
            for each in made:
                with contextlib.suppress(BlockingIOError):
                    each.send(asked)

        with _repeated(act, 0.01):
            yield


@contextmanager
def half(served: Serving, number: int = 20) -> Iterator[None]:
    """Close the sending half after some requests, which are answered all the same, and so on."""

    def act() -> None:
        for role in ROLES:
            clients = [served.connect(role) for _ in range(number // 2)]
            for client in clients:
                client.send(OPEN, *["0\t=\t1\t7"] * 9)
                client.socket.sendall(b"0\t=")  # a line without an end is nothing
                client.socket.shutdown(socket.SHUT_WR)
            for client in clients:
                answers = [client.answer() for _ in range(11)]
                assert answers == ["0\t1", *["0\t2\t7\tv7"] * 9, ""], answers
                client.close()

    with _repeated(act, 0.5):
        yield


@contextmanager
def endless(served: Serving, number: int = 2, size: int = 100 * 10**6) -> Iterator[None]:
    """Send a line of 100 MB; it is answered `2 1 toolong`, and the connection closed."""
    piece = b"x" * 2**16

    def act() -> None:
        for role in ROLES[:number]:
            with served.connect(role) as client:
                client.send(OPEN)
                assert client.answer() == "0\t1"
                try:
                    for _ in range(size // len(piece)):
                        client.socket.sendall(piece)
                    client.send("")
                except OSError:  # closed by the server, before the end
                    pass
                assert _last_word(client) in ("2\t1\ttoolong", "reset")

    with _repeated(act, 1.0):
        yield


def _last_word(client: Client) -> str:
    try:
        answer = client.answer()
        assert client.answer() == ""
    except OSError:
        return "reset"
    return answer


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
def a_server(folder: Path, *arguments: str) -> Iterator[Serving]:
    """Serve the table; at the end it leaves politely, and has logged no mistake."""
    make_table(folder / "app.db")
    with serving(folder, "sqlite:///app.db", "--workers", "2", *arguments, module="roost.cli") as served:
        yield served
        assert served.stop() == 0
        assert "Traceback" not in served.log, served.log


def main() -> None:
    """Measure before and during each, in turns, and say the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    print(f"hostile --rounds {options.rounds} --seconds {options.seconds:g}")
    with tempfile.TemporaryDirectory() as folder, a_server(Path(folder)) as served:
        for name, act in HOSTILE.items():
            before: list[dict[str, float]] = []
            during: list[dict[str, float]] = []
            most = 0
            for _ in range(options.rounds):
                before.append(measure(served, options.seconds))
                with act(served):
                    during.append(measure(served, options.seconds))
                    most = max(most, memory(served))
                until(lambda: not any([ports_of(pid) - {0} for pid in served.all()]), "the end of all connections")
            told = []
            for role in ROLES:
                one, other = (statistics.median([each[role] for each in all_]) for all_ in (before, during))
                told.append(f"{role} p99 {one:.1f} -> {other:.1f} ms ({other / one:.2f})")
            print(f"{name}: {', '.join(told)}; memory of a worker at most {most} MiB", flush=True)


if __name__ == "__main__":
    main()
