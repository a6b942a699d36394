"""`roost serve` on MariaDB and PostgreSQL beside SQL: 64 connections of HandlerSocket, and 64 of mysqlslap or pgbench.

The baselines are those of `databases.py`: the source texts' own statements, one per call, on the same server in the
same run, by turns. On MariaDB its plugin is measured, too, on the same rows; there is no target for that. Everything
is started by the run, with production's durability: every answered write is on disk.
"""

from __future__ import annotations

import itertools
import random
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests import servers

import roost
from bench import databases
from bench.databases import CONNECTIONS, key
from bench.handlersocket import MARIADB as MARIADB_WORDS
from bench.handlersocket import Side, statements
from bench.handlersocket import Work as LoadWork
from bench.handlersocket import measure as measure_load
from bench.load import Load
from bench.load.generator import connect, raise_files
from bench.report import Line, rate, say, show, show_lines

IN_FLIGHT = (1, 32)
CHUNKS = 2048  # of what reads, made beforehand
PATIENCE = 60.0

POSTGRESQL_WORDS = {
    **MARIADB_WORDS,
    "concat_open": "(",
    "then": " || ",
    "concat_close": ")",
    "char": "chr",
    "pad": "lpad(seq::text, 10, '0')",
    "div": "/",
    "source": "generate_series(1, {rows}) AS s (seq)",
}


@dataclass(frozen=True)
class Work:
    """What is measured: SQL's statements, a line of HandlerSocket, and what their ratio has to be, and may be.

    opened: the structure or table, its columns, and the port. plugin: whether the original can do the same.
    """

    name: str
    sql: databases.Work
    opened: tuple[str, str, str]
    line: Callable[[], str]
    must: tuple[float, float]  # with one request in flight on each connection, with 32
    aim: tuple[float, float]
    plugin: bool = False


def works(rows: int) -> list[Work]:
    """Return what is measured."""

    def any_row() -> int:
        return random.randrange(1, rows + 1)

    lookup = databases.Work(
        "lookup",
        {
            "mariadb": lambda: f"SELECT id, v FROM bench WHERE id = {any_row()}",
            "postgresql": lambda: rf"\set id random(1, {rows})" + "\nSELECT id, v FROM bench WHERE id = :id;",
        },
        lambda: databases.counter.total(1),
        (1, 1),
        (1, 1),
    )
    counter, ring, capped = databases.WORKS[:3]
    fresh = itertools.count(10**6)
    return [
        Work("lookup by primary key", lookup, ("bench", "id,v", "read"), lambda: f"0\t=\t1\t{any_row()}",
             (1.2, 3), (2, 6), plugin=True),
        Work("add to one hot counter", counter, ("pageviews", "key,total", "write"), lambda: "0\t+\t2\t7\t1",
             (3, 8), (6, 15)),
        Work("push to 10,000 rings", ring, ("visits", "uid,visitor", "write"),
             lambda: f"0\t+\t2\t{key()}\t{next(fresh)}", (2, 4), (4, 8)),
        Work("add to 10,000 capped collections", capped, ("visitors", "uid,visitor", "write"),
             lambda: f"0\t+\t2\t{key()}\t{next(fresh)}", (1.5, 3), (3, 6)),
    ]  # fmt: skip


def chunks_of(work: Work, in_flight: int) -> Callable[[], bytes]:
    """Return what makes the next requests of a connection: what reads may be asked again."""
    line = work.line

    def chunk() -> bytes:
        return "".join([f"{line()}\n" for _ in range(in_flight)]).encode()

    return itertools.cycle([chunk() for _ in range(CHUNKS)]).__next__ if work.opened[2] == "read" else chunk


def drive(address: str, opening: list[bytes], chunks: Callable[[], bytes], in_flight: int, seconds: float) -> float:
    """Return the answers per second of 64 connections; an answer that is an error ends the measurement."""
    open_ = {each.fileno(): each for each in [connect(address, *opening) for _ in range(CONNECTIONS)]}
    missing = dict.fromkeys(open_, in_flight)
    poll = select.epoll()
    answered, begun, end = 0, 0.0, 0.0
    for number, each in open_.items():
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        poll.register(number, select.EPOLLIN)
        each.sendall(chunks())
    now = begin = time.perf_counter()
    while not end or now < end:
        for number, _ in poll.poll(PATIENCE):
            got = open_[number].recv(2**18)
            if not got or b"\n1\t" in got or b"\n2\t" in got or (got[:2] in (b"1\t", b"2\t")):
                raise AssertionError(f"{address}: {got[:300]!r}")
            lines = got.count(b"\n")
            answered += lines
            missing[number] -= lines
            if not missing[number]:
                missing[number] = in_flight
                open_[number].sendall(chunks())
        now = time.perf_counter()
        if not end and now > begin + 0.3:  # what is prepared is prepared
            answered, begun, end = 0, now, now + seconds
    for each in open_.values():
        each.close()
    return answered / (now - begun)


@contextmanager
def serving(url: str, folder: Path) -> Iterator[Side]:
    """Run `roost serve`, with two workers of each kind."""
    read, write = (f"127.0.0.1:{servers.free_port()}" for _ in range(2))
    command = [
        sys.executable,
        "-m",
        "roost.cli",
        "serve",
        url,
        "--read",
        read,
        "--write",
        write,
        "--workers",
        "2",
    ]
    log = folder / "serve.log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + PATIENCE
        for each in (read, write):
            while True:
                try:
                    connect(each).close()
                    break
                except roost.CannotOpen:
                    assert process.poll() is None, log.read_text()
                    assert time.monotonic() < deadline, log.read_text()
                    time.sleep(0.05)
        yield Side("Roost", process.pid, read, write)
    finally:
        process.terminate()
        process.wait()


def opening(database: str, opened: tuple[str, str, str], secret: str = "") -> list[bytes]:
    """Return the lines with which a connection begins."""
    name, columns, _ = opened
    index = "PRIMARY"
    said = [f"A\t1\t{secret}\n".encode()] if secret else []
    return [*said, f"P\t0\t{database}\t{name}\t{index}\t{columns}\n".encode()]


@contextmanager
def running(name: str) -> Iterator[tuple[str, servers.Plugin | None]]:
    """Start a server; yield the URL of an empty database, and the plugin where it has one."""
    if name == "postgresql":
        daemon = servers.postgresql_daemon("-c", "shared_buffers=512MB")
        yield servers.postgresql_server(daemon.url).database("bench"), None
        daemon.kill()
        return
    plugin = servers.plugin_daemon("--plugin-load-add=ha_blackhole.so", "--innodb-buffer-pool-size=1G")
    yield servers.mariadb_server(plugin.daemon.url).database("bench"), plugin
    plugin.daemon.kill()


def measured(name: str, rows: int, rounds: int, seconds: float) -> tuple[list[Line], list[list[str]]]:
    """Measure one server; return the lines, and what the plugin did."""
    with tempfile.TemporaryDirectory() as made, running(name) as (url, plugin):
        folder = Path(made)
        say(f"{name}: filling {rows:,} rows")
        words = MARIADB_WORDS if name == "mariadb" else POSTGRESQL_WORDS
        ours = [each for each in statements(words, rows) if " bench " in each]
        databases.execute(url, [*ours[:2], *databases.TABLES[name]])
        with roost.Store(url, timeout=60) as store:
            store.create(databases.counter, databases.ring, databases.capped)
            databases.fill(store)
        if name == "postgresql":
            databases.execute(url, ["VACUUM ANALYZE"])
        database = url.rpartition("/")[2]
        found: dict[tuple[str, str], list[float]] = defaultdict(list)
        todo = works(rows)
        guess = dict.fromkeys([work.name for work in todo], 10_000.0)
        with serving(url, folder) as side:

            def baseline(work: Work) -> float:
                if name == "postgresql":
                    return databases.pgbench(url, work.sql, seconds, folder)
                guess[work.name] = databases.mysqlslap(url, work.sql, seconds, folder, guess[work.name])
                return guess[work.name]

            for number in range(rounds):
                for work in todo:
                    say(f"{name}: round {number + 1} of {rounds}: {work.name}")
                    found[work.name, "sql"].append(baseline(work))
                    for in_flight in IN_FLIGHT:
                        address = side.read if work.opened[2] == "read" else side.write
                        begin = opening(database, work.opened)
                        chunks = chunks_of(work, in_flight)
                        found[work.name, f"{in_flight}"].append(drive(address, begin, chunks, in_flight, seconds))
                        if plugin is not None and work.plugin:
                            begin = opening(database, work.opened, plugin.read_secret)
                            address = f"{plugin.host}:{plugin.read_port}"
                            made_ = drive(address, begin, chunks, in_flight, seconds)
                            found[work.name, f"plugin {in_flight}"].append(made_)
                for idle in (0, 9_900):
                    plan = Load("get", side.read, rows=rows, database=database, seconds=seconds, idle=idle)
                    load = LoadWork("open connections", plan, 0, 0)
                    found["open", str(idle)].append(measure_load(side, load).rate)
        with roost.Store(url, timeout=60) as store:
            assert store.check() == []
    rates = {each: statistics.median(several) for each, several in found.items()}
    lines = []
    beside = []
    for work in todo:
        for in_flight, must, aim in zip(IN_FLIGHT, work.must, work.aim, strict=True):
            base, mine = rates[work.name, "sql"], rates[work.name, f"{in_flight}"]
            lines.append(_line(f"{work.name}, {in_flight} in flight", base, mine, must, aim))
            theirs = rates.get((work.name, f"plugin {in_flight}"))
            if theirs is not None:
                beside.append([lines[-1].work, rate(theirs), rate(mine), f"{mine / theirs:.2f}"])
    lines.append(
        _line("lookup, 10,000 connections of which 100 are active", rates["open", "0"], rates["open", "9900"], 0.8, 1)
    )
    return lines, beside


def _line(name: str, base: float, mine: float, must: float, aim: float) -> Line:
    return Line(name, rate(base), rate(mine), mine / base, f">= {must:g} (aim {aim:g})", mine >= must * base)


def main(quick: bool) -> bool:
    rows, rounds, seconds = (100_000, 1, 2.0) if quick else (1_000_000, 5, 3.0)
    raise_files(12_000)
    met = True
    for name, client in (("mariadb", "mysqlslap"), ("postgresql", "pgbench")):
        lines, beside = measured(name, rows, rounds, seconds)
        met &= show_lines(f"{name}: {CONNECTIONS} connections, requests per second", client, "roost serve", lines)
        if beside:
            show("Beside the plugin, on the same rows", ["work", "plugin", "roost serve", "ratio"], beside)
    return met
