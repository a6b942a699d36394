"""`roost cap` on a visit log of 6 million rows over 200,000 people, cut to 5, while a writer inserts 500 rows/s."""

from __future__ import annotations

import multiprocessing
import os
import random
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import roost
from bench.report import Line, in_turn, micros, say, show, show_lines
from roost.store import bursts

KEEP = 5
PERIOD = 1 / 500  # seconds between two rows of the writer
MOST = 0.1  # seconds for which it may wait
ALONE = 20.0  # seconds for which it writes before
TIMES = 2000  # inserts and page queries that are timed before and after
AT_ONCE = 2.0  # an insert afterwards, beside before

TABLE = """
    CREATE TABLE visits (id INTEGER PRIMARY KEY, uid INTEGER NOT NULL, visitor INTEGER NOT NULL, at TEXT NOT NULL);
    CREATE INDEX visits_uid ON visits (uid, at);
"""
INSERT = "INSERT INTO visits (uid, visitor, at) VALUES (?, ?, ?)"
PAGE = f"SELECT visitor, at FROM visits WHERE uid = ? ORDER BY at DESC LIMIT {KEEP}"

Each = tuple[float, float, float]  # when a row was due, how long the writer waited for the lock, and for all of it


@dataclass(frozen=True)
class Waits:
    """What the writer measured in some time, in seconds."""

    lock: list[float]
    whole: list[float]

    @classmethod
    def of(cls, every: list[Each], begin: float, end: float) -> Waits:
        """Take what was measured between two moments."""
        found = [each for each in every if begin <= each[0] <= end]
        return cls([lock for _, lock, _ in found], [whole for _, _, whole in found])


def main(quick: bool) -> bool:
    n, people = (600_000, 20_000) if quick else (6_000_000, 200_000)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/app.db"
        say(f"adoption: {n:,} rows are made")
        connection = made(path, n, people)
        fresh = made(f"{folder}/fresh.db", people * KEEP, people)
        before = (one_by_one(connection, people), together(connection, people))
        deleted, seconds, waits, alone = trimmed(path, people)
        after = (one_by_one(connection, people), together(connection, people))
        page, page_of_fresh = in_turn(9, pages(connection, people), pages(fresh, people))
        rows: int = connection.execute("SELECT max(n) FROM (SELECT count(*) AS n FROM visits GROUP BY uid)").fetchone()[
            0
        ]
        connection.close()
        fresh.close()
    show(
        f"{n:,} rows, {people:,} people: {deleted:,} deleted, at most {rows} left each",
        ["the writer, 500 rows/s", "median", "99 %", "99.9 %", "longest", "target", ""],
        [
            _waited(f"while {seconds:,.0f} s of trimming, {deleted / seconds:,.0f} rows/s: waits", waits.lock, MOST),
            _waited("and with its own INSERT and COMMIT", waits.whole, None),
            _waited("alone, before the trimming", alone.whole, None),
        ],
    )
    lines = [
        _line(work, one, other, AT_ONCE)
        for work, one, other in zip(
            ("INSERT, one per transaction (FULL)", f"INSERT, {TIMES:,} in one transaction"), before, after, strict=True
        )
    ]
    lines.append(_line("the profile page's query", page_of_fresh / TIMES, page / TIMES, 1.25))
    met = show_lines(
        "afterwards (the page's query: beside a table that was filled with these rows alone)", "before", "after", lines
    )
    return met and max(waits.lock) <= MOST and rows <= KEEP


def _waited(work: str, waits: list[float], most: float | None) -> list[str]:
    ordered = sorted(waits)
    shown = [f"{1000 * ordered[int(len(ordered) * part)]:.1f} ms" for part in (0.5, 0.99, 0.999)]
    longest = ordered[-1]
    if most is None:
        return [work, *shown, f"{1000 * longest:.1f} ms", "", ""]
    return [work, *shown, f"{1000 * longest:.1f} ms", f"<= {1000 * most:.0f} ms", "ok" if longest <= most else "MISSED"]


def _line(work: str, before: float, after: float, target: float) -> Line:
    return Line(work, micros(before), micros(after), after / before, f"<= {target}", after / before <= target)


def made(path: str, n: int, people: int) -> sqlite3.Connection:
    """Make a log in the order of time, as an application would have written it."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=60)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = OFF")
    chance = random.Random(7)
    connection.executescript(TABLE.split(";")[0])
    connection.execute("BEGIN")
    connection.executemany(INSERT, ((chance.randrange(people), k % people, moment(k)) for k in range(n)))
    connection.execute("COMMIT")
    connection.execute(TABLE.split(";")[1])
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    os.sync()  # or the disk is still busy with it while the writer is measured
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def moment(k: int) -> str:
    """Return a time that grows with its number."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(1_199_224_203 + k))


def one_by_one(connection: sqlite3.Connection, people: int) -> float:
    """Return the median seconds of an INSERT that is a transaction."""
    chance, times = random.Random(3), []
    for k in range(TIMES):
        row = (chance.randrange(people), k, moment(10_000_000 + k))
        began = time.perf_counter()
        connection.execute(INSERT, row)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def together(connection: sqlite3.Connection, people: int) -> float:
    """Return the median seconds of an INSERT of many in a transaction, the commit included."""
    chance, times = random.Random(4), []
    for _ in range(9):
        began = time.perf_counter()
        connection.execute("BEGIN IMMEDIATE")
        for k in range(TIMES):
            connection.execute(INSERT, (chance.randrange(people), k, moment(10_000_000 + k)))
        connection.execute("COMMIT")
        times.append((time.perf_counter() - began) / TIMES)
    return statistics.median(times)


def pages(connection: sqlite3.Connection, people: int) -> Callable[[], None]:
    """Return a call that asks for pages at random."""
    chance = random.Random(5)

    def ask() -> None:
        for _ in range(TIMES):
            connection.execute(PAGE, (chance.randrange(people),)).fetchall()

    return ask


def trimmed(path: str, people: int) -> tuple[int, float, Waits, Waits]:
    """Cap the table while a process writes; return the rows deleted, the seconds, its waits meanwhile and before."""
    stop, ready = multiprocessing.Event(), multiprocessing.Event()
    queue: Any = multiprocessing.Queue()
    writer = multiprocessing.Process(target=write, args=(path, people, ready, stop, queue))
    writer.start()
    ready.wait()
    time.sleep(ALONE)
    with roost.Store(f"sqlite:///{Path(path)}") as store:
        deleted, at = 0, time.perf_counter()
        found = bursts.inspect(store, "visits", ["uid"], KEEP, "at")
        said = at
        for step in bursts.cap(store, found):
            deleted += step
            if time.perf_counter() > said + 10:
                said = time.perf_counter()
                say(f"adoption: {deleted:,} of {found.excess:,} rows deleted, {deleted / (said - at):,.0f}/s")
        seconds = time.perf_counter() - at
    stop.set()
    every: list[Each] = queue.get()
    writer.join()
    return deleted, seconds, Waits.of(every, at, at + seconds), Waits.of(every, 0.0, at)


def write(path: str, people: int, ready: Event, stop: Event, queue: Any) -> None:
    """Insert a row every 2 ms, each a transaction on disk."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=10)
    chance, found, due = random.Random(9), [], time.perf_counter()
    ready.set()
    while not stop.is_set():
        due += PERIOD
        time.sleep(max(0.0, due - time.perf_counter()))
        at = time.perf_counter()
        connection.execute("BEGIN IMMEDIATE")
        locked = time.perf_counter()
        connection.execute(INSERT, (chance.randrange(people), 1, moment(20_000_000)))
        connection.execute("COMMIT")
        found.append((at, locked - at, time.perf_counter() - at))
    queue.put(found)
