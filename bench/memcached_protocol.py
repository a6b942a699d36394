"""memcached's protocol: Debian's memcached, which keeps nothing, and `roost serve` over a cache in a file, by turns.

Both are started by the run, on free ports of the loopback, memcached with two threads. Roost's writer process serves
all clients, with `synchronous=FULL`. The generator sends prepared bytes and counts the bytes of the answers.
"""

from __future__ import annotations

import multiprocessing
import random
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests import servers

import roost
from bench.report import Line, rate, say, show, show_lines

CONNECTIONS = 100
KEYS = 100_000
VALUE = b"v" * 100
CHUNKS = 256  # of prepared requests, for each connection to take one of them at random
MUST, AIM = 0.4, 0.7  # of memcached's gets

STORED = len(b"STORED\r\n")
FOUND = len(b"VALUE key:%06d 0 %d\r\n%b\r\nEND\r\n" % (0, len(VALUE), VALUE))


def get(key: int) -> bytes:
    return b"get key:%06d\r\n" % key


def set_(key: int) -> bytes:
    return b"set key:%06d 0 0 %d\r\n%b\r\n" % (key, len(VALUE), VALUE)


WORKS = {
    "get": (get, FOUND),
    "set": (set_, STORED),
}


def fill(address: tuple[str, int]) -> None:
    """Store all keys."""
    with socket.create_connection(address, timeout=60) as connection:
        for begin in range(0, KEYS, 500):
            connection.sendall(b"".join([set_(key) for key in range(begin, begin + 500)]))
            _read(connection, 500 * STORED)


def _read(connection: socket.socket, size: int) -> None:
    while size > 0:
        size -= len(connection.recv(1 << 20)) or size + 1
    if size:
        raise AssertionError("an answer has another length than it should")


def drive(address: tuple[str, int], work: str, pipeline: int, connections: int, seconds: float, seed: int) -> float:
    """Keep requests in flight on many connections; return how many are answered in a second."""
    make, size = WORKS[work]
    chooser = random.Random(seed)
    chunks = [b"".join([make(chooser.randrange(KEYS)) for _ in range(pipeline)]) for _ in range(CHUNKS)]
    expected = size * pipeline
    selector = selectors.EpollSelector()
    owed: dict[socket.socket, int] = {}
    for _ in range(connections):
        made = socket.create_connection(address)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setblocking(False)
        selector.register(made, selectors.EVENT_READ)
        owed[made] = expected
        made.send(chooser.choice(chunks))
    answered = 0
    begun = time.monotonic()
    warm, end = begun + seconds / 4, begun + seconds * 5 / 4
    counting = False
    while (now := time.monotonic()) < end:
        if not counting and now > warm:
            counting, answered, begun = True, 0, now
        for key, _ in selector.select(1):
            connection: Any = key.fileobj
            left = owed[connection] - len(connection.recv(1 << 17))
            if left:
                owed[connection] = left
                if left < 0:
                    raise AssertionError("an answer is longer than it should be")
                continue
            answered += pipeline
            owed[connection] = expected
            connection.send(chunks[int(chooser.random() * CHUNKS)])
    found = answered / (time.monotonic() - begun)
    for connection in owed:
        connection.close()
    return found


def measured(address: tuple[str, int], work: str, pipeline: int, seconds: float) -> float:
    """Drive a server from two processes; return the requests of a second."""
    halves = [(address, work, pipeline, CONNECTIONS // 2, seconds, seed) for seed in range(2)]
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return sum(pool.starmap(drive, halves))


@contextmanager
def served(folder: str) -> Iterator[tuple[str, int]]:
    """Run `roost serve` over a cache in a new file."""
    url = f"sqlite:///{Path(folder, 'bench.db')}"
    with roost.Store(url) as store:
        store.create(roost.Cache("pages"))
    port = servers.free_port()
    command = [sys.executable, "-m", "roost.cli", "serve", url, "--read", "none", "--write", "none"]
    command += ["--memcached", f"127.0.0.1:{port}", "--cache", "pages"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert process.stdout is not None
        if not process.stdout.readline().startswith(b"memcached"):
            raise servers.NotHere("NOT RUN: roost serve does not start")
        yield "127.0.0.1", port
    finally:
        process.terminate()
        process.wait()


def main(quick: bool) -> bool:
    rounds, seconds = (1, 1.0) if quick else (5, 3.0)
    daemon = servers.memcached_daemon("-t", "2", "-m", "512")
    host, _, port = daemon.url.partition("://")[2].partition(":")
    rates: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder, served(folder) as ours:
        sides = {"memcached": (host, int(port)), "Roost": ours}
        for address in sides.values():
            fill(address)
        for number in range(rounds):
            for work in WORKS:
                for pipeline in (1, 32):
                    say(f"round {number + 1} of {rounds}: {work}, {pipeline} in flight")
                    for name, address in sides.items():
                        rates[name, work, pipeline].append(measured(address, work, pipeline, seconds))
    lines = []
    rows = []
    for work in WORKS:
        for pipeline in (1, 32):
            theirs, own = (statistics.median(rates[name, work, pipeline]) for name in sides)
            what = f"{work}, {CONNECTIONS} connections, {pipeline} in flight"
            if work == "get":
                message = f">= {MUST:g} (aim {AIM:g})"
                lines.append(Line(what, rate(theirs), rate(own), own / theirs, message, own >= MUST * theirs))
            else:
                rows.append([what, rate(theirs), rate(own), f"{own / theirs:.2f}"])
    show("set: memcached keeps it in memory, Roost has it on disk", ["work", "memcached", "Roost", "ratio"], rows)
    return show_lines("memcached's protocol: requests per second", "memcached", "Roost", lines)
