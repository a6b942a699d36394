"""HandlerSocket: MariaDB's plugin and `roost serve` over the same rows, driven in turn by the same generator.

MariaDB has two threads that read, one that writes, `innodb_flush_log_at_trx_commit=1` and room for all rows in memory;
Roost has two workers and `synchronous=FULL`. Both are started by the run, on free ports of the loopback.
"""

from __future__ import annotations

import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests import servers

import roost
from bench.load import Load, Report, drive
from bench.load.generator import connect, opening, raise_files
from bench.load.workloads import WIDE, WIDE_KEYS, workload_of
from bench.report import Line, rate, say, show, show_lines

WORKERS = 2
IDLE = 1000  # connections, to weigh one
# Of Roost's file: COMMIT writes whole pages, so a table of small rows that are changed all over wants small ones. With
# SQLite's own 4,096, updates take half as long again, and reads are a little faster.
PAGE_SIZE = 1024
TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Side:
    """A running server."""

    name: str
    pid: int
    read: str
    write: str
    read_secret: str = ""
    write_secret: str = ""

    def plan(self, plan: Load) -> Load:
        """Return the plan with this server's address and secret."""
        reads = plan.work in ("get", "range", "wide")
        address, secret = (self.read, self.read_secret) if reads else (self.write, self.write_secret)
        return replace(plan, address=address, secret=secret)


@dataclass(frozen=True)
class Work:
    """A row of the table: what is done, and what the ratio must be and may be."""

    name: str
    plan: Load
    must: float
    aim: float
    processes: int = 1


def works(rows: int, seconds: float) -> list[Work]:
    def plan(work: str, pipeline: int, table: str = "bench") -> Load:
        return Load(work, "", table=table, rows=rows, pipeline=pipeline, seconds=seconds)

    return [
        Work("get, 100 connections", plan("get", 1), 0.8, 1.0, processes=2),
        Work("get, 32 in flight", plan("get", 32), 0.8, 1.5),
        Work("get of 5 of 12 columns, key of 2, 32 in flight", plan("wide", 32, "wide"), 0.8, 1.2),
        Work("range >=, limit 50, a filter, 16 in flight", plan("range", 16), 0.8, 1.2),
        Work("update", plan("update", 1, "changed"), 0.6, 1.0),
        Work("update, 32 in flight", plan("update", 32, "changed"), 0.6, 1.0),
        Work("insert", plan("insert", 1, "added"), 0.8, 1.0),
        Work("insert, 32 in flight", plan("insert", 32, "added"), 0.8, 1.0),
        Work("increment of 10 hot rows", plan("increment", 1, "counts"), 0.8, 1.5),
        Work("increment of 10 hot rows, 32 in flight", plan("increment", 32, "counts"), 0.8, 1.5),
    ]


# The rows as workloads.py has them; `{row}` is the number of the row, `{…}` what the two kinds of SQL call differently.
_VALUE = "{concat_open}{char}(97 + {row} % 8){then}{pad}{then}'-00-abcdefghijklmnopqrstuvwxyz'{concat_close}"
_WIDE = ", ".join(
    f"{{concat_open}}'c{place}-'{{then}}{{row}}{{concat_close}}" if place % 2 == 0 else f"{{row}} + {place}"
    for place in range(1, 11)
)
# Rows lie in the order of their primary key, as InnoDB has them always, and SQLite if it is told to.
MARIADB = {
    "number": "BIGINT",
    "rest": "",
    "row": "seq",
    "concat_open": "CONCAT(",
    "then": ", ",
    "concat_close": ")",
    "char": "CHAR",
    "pad": "LPAD(seq, 10, '0')",
    "div": "DIV",
    "source": "seq_1_to_{rows}",
}
SQLITE = {
    "number": "INTEGER",
    "rest": " WITHOUT ROWID",
    "row": "seq",
    "concat_open": "(",
    "then": " || ",
    "concat_close": ")",
    "char": "char",
    "pad": "printf('%010d', seq)",
    "div": "/",
    "source": "(WITH RECURSIVE s(seq) AS (SELECT 1 UNION ALL SELECT seq + 1 FROM s WHERE seq < {rows}) "
    "SELECT seq FROM s)",
}


def statements(words: dict[str, str], rows: int) -> list[str]:
    """Return the SQL that makes and fills the tables."""
    source = words["source"].format(rows=rows)
    value, wide = _VALUE.format(**words), _WIDE.format(**words)
    columns = ", ".join(f"{name} {'VARCHAR(40)' if int(name[1:]) % 2 == 0 else 'BIGINT'}" for name in WIDE[2:])
    number, rest = words["number"], words["rest"]
    return [
        *[f"CREATE TABLE {name} (id {number} PRIMARY KEY, v VARCHAR(64))" for name in ("bench", "changed", "added")],
        f"CREATE TABLE counts (id {number} PRIMARY KEY, n BIGINT)",
        f"CREATE TABLE wide (a BIGINT, b BIGINT, {columns}, PRIMARY KEY (a, b)){rest}",
        f"INSERT INTO bench SELECT seq, {value} FROM {source}",
        "INSERT INTO changed SELECT id, v FROM bench",
        f"INSERT INTO wide SELECT seq {words['div']} {WIDE_KEYS}, seq % {WIDE_KEYS}, {wide} FROM {source}",
    ]


@contextmanager
def plugin(rows: int) -> Iterator[Side]:
    """Start MariaDB with the plugin, and fill it."""
    made = servers.plugin_daemon("--innodb-flush-log-at-trx-commit=1", "--innodb-buffer-pool-size=1G")
    made.sql("CREATE DATABASE bench")
    connection = made.connection(database="bench", read_timeout=600)
    with connection, connection.cursor() as cursor:
        for statement in statements(MARIADB, rows):
            cursor.execute(statement)
    where = [f"{made.host}:{port}" for port in (made.read_port, made.write_port)]
    try:
        yield Side("plugin", made.daemon.pid, where[0], where[1], made.read_secret, made.write_secret)
    finally:
        made.daemon.kill()


@contextmanager
def served(rows: int, folder: str) -> Iterator[Side]:
    """Fill a file and start `roost serve` over it."""
    path = Path(folder, "bench.db")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA page_size={PAGE_SIZE}")
        connection.execute("PRAGMA journal_mode=WAL")
        for statement in statements(SQLITE, rows):
            connection.execute(statement)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    read, write = (f"127.0.0.1:{servers.free_port()}" for _ in range(2))
    command = [sys.executable, "-m", "roost.cli", "serve", f"sqlite:///{path}", "--read", read, "--write", write]
    log = Path(folder, "serve.log")
    with log.open("wb") as out:
        process = subprocess.Popen([*command, "--workers", str(WORKERS)], stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + 30
        for each in (read, write):
            while True:
                try:
                    connect(each).close()
                    break
                except roost.CannotOpen as error:
                    if process.poll() is not None or time.monotonic() > deadline:
                        raise servers.NotHere(f"NOT RUN: roost serve does not answer: {log.read_text()}") from error
                    time.sleep(0.05)
        yield Side("Roost", process.pid, read, write)
    finally:
        process.terminate()
        process.wait()


def tree(pid: int) -> list[int]:
    """Return a process and those that it started, and theirs."""
    children = defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        children[int(fields[1])].append(int(stat.parent.name))
    found = [pid]
    for each in found:
        found += children[each]
    return found


def cpu(pid: int) -> float:
    """Return the seconds of CPU that a server has used, in all its processes."""
    fields = [Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split() for each in tree(pid)]
    return sum([int(each[11]) + int(each[12]) for each in fields]) / TICK


def memory(pid: int) -> int:
    """Return the bytes of memory that a server has for itself, in all its processes."""
    found = 0
    for each in tree(pid):
        lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
        found += sum([int(line.split()[1]) for line in lines if line.startswith(("Private_", "Pss_Shmem"))]) * 1024
    return found


def measure(side: Side, work: Work) -> Report:
    """Run a work once; what is wrong ends the load, since it would measure something else."""
    report = drive(side.plan(work.plan), work.processes)
    if report.errors:
        raise AssertionError(f"{side.name}, {work.name}: {dict(report.errors)} {report.example}")
    if report.counted is not None and report.counted != report.answered:
        raise AssertionError(f"{side.name}, {work.name}: {report.answered} answered, {report.counted} counted")
    return report


def main(quick: bool) -> bool:
    rows, rounds, seconds = (100_000, 1, 1.0) if quick else (1_000_000, 5, 3.0)
    raise_files(12_000)
    with tempfile.TemporaryDirectory() as folder:
        say(f"filling {rows:,} rows")
        with plugin(rows) as theirs:
            try:
                with served(rows, folder) as ours:
                    return _compared([theirs, ours], works(rows, seconds), rounds)
            except servers.NotHere as error:
                say(str(error))
                _compared([theirs], works(rows, seconds), rounds)
                return False


def _compared(sides: list[Side], todo: list[Work], rounds: int) -> bool:
    weights = {side.name: _weight(side, todo[0].plan) for side in sides}
    found: dict[tuple[str, str], list[Report]] = defaultdict(list)
    for number in range(rounds):
        for work in todo:
            say(f"round {number + 1} of {rounds}: {work.name}")
            for side in sides:
                found[side.name, work.name].append(measure(side, work))
    rates = {key: statistics.median([each.rate for each in reports]) for key, reports in found.items()}
    heads = ["work", "", "requests", "p50 of a chunk", "p99", "generator: µs per request", "of a core"]
    show(
        "Each by itself, medians",
        heads,
        [_row(side, work, found[side.name, work.name]) for work in todo for side in sides],
    )
    show(
        f"A connection that is open, of {IDLE:,}; a request at half load (get, {todo[0].plan.connections} connections)",
        ["", "memory", "CPU of the server"],
        [[side.name, weights[side.name], _half(side, todo[0], rates[side.name, todo[0].name])] for side in sides],
    )
    if len(sides) == 1:
        return False
    theirs, ours = sides
    lines = [
        _line(work.name, rates[theirs.name, work.name], rates[ours.name, work.name], work.must, work.aim)
        for work in todo
    ]
    few, many = [], []
    for _ in range(rounds):
        few.append(measure(ours, todo[0]).rate)
        many.append(measure(ours, replace(todo[0], plan=replace(todo[0].plan, idle=9_900))).rate)
    name = "get, 10,000 connections open beside 100, Roost alone"
    lines.append(_line(name, statistics.median(few), statistics.median(many), 0.9, 1.0))
    return show_lines("HandlerSocket: requests per second", "plugin", "Roost", lines)


def _line(name: str, base: float, ours: float, must: float, aim: float) -> Line:
    return Line(name, rate(base), rate(ours), ours / base, f">= {must:g} (aim {aim:g})", ours >= must * base)


def _row(side: Side, work: Work, reports: list[Report]) -> list[str]:
    def median(values: Iterator[float]) -> float:
        return statistics.median(list(values))

    return [
        work.name,
        side.name,
        rate(median(each.rate for each in reports)),
        f"{median(each.percentile(0.5) for each in reports) / 1000:,.1f} ms",
        f"{median(each.percentile(0.99) for each in reports) / 1000:,.1f} ms",
        f"{median(sum(each.cost) for each in reports):.2f} µs",
        f"{median(each.busiest for each in reports):.0%} × {work.processes}",
    ]


def _weight(side: Side, plan: Load) -> str:
    # What an open connection takes of a server's memory: the second thousand, since the first also load code.
    plan = side.plan(plan)
    lines = opening(plan, workload_of(plan, 0, 1))
    open_ = []
    weights: list[int] = []
    for _ in range(2):
        open_ += [connect(plan.address, *lines) for _ in range(IDLE)]
        weights.append(memory(side.pid))
    for connection in open_:
        connection.close()
    return f"{(weights[-1] - weights[-2]) / IDLE / 1024:,.1f} KiB"


def _half(side: Side, work: Work, full: float) -> str:
    used = cpu(side.pid)
    report = drive(replace(side.plan(work.plan), pace=full / 2, warmup=0.0), work.processes)
    return f"{(cpu(side.pid) - used) / max(report.answered, 1) * 1e6:.1f} µs"
