"""A table of banned mail addresses, looked up by name and domain: by HandlerSocket, and for comparison by SQL.

In the talk that inspired Roost, there were 52 million of them. HandlerSocket replaced `SELECT ... WHERE name = ... AND
domain = ...`, while inserts and updates still used SQL. Here it is the same: this program starts `roost serve` on the
database, and the table is an ordinary one that SQL writes. Half of the addresses asked for are banned, and every answer
is checked.

    python examples/banned_addresses.py postgresql:///app 1000000 10
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

from roost.client import HandlerSocket, Index

THREADS = 8
AT_ONCE = 32  # requests of a pipeline
TABLE = """\
CREATE TABLE banned (id INTEGER PRIMARY KEY, name VARCHAR(64) NOT NULL, domain VARCHAR(64) NOT NULL,
  mail_code INTEGER NOT NULL, created TIMESTAMP NOT NULL, partner_id INTEGER NOT NULL, UNIQUE (name, domain))"""
DOMAINS = 1000
LOOKUP = "SELECT id, mail_code FROM banned WHERE name = {0} AND domain = {0}"


def connect(url: str) -> Any:
    """Return a connection of the driver."""
    if url.startswith("sqlite"):
        import sqlite3

        return sqlite3.connect(url.removeprefix("sqlite:///"))
    if url.startswith("postgresql"):
        import psycopg

        return psycopg.connect(url)
    import pymysql

    at = urlsplit(url)
    named: dict[str, Any] = {
        "host": at.hostname,
        "port": at.port or 3306,
        "user": unquote(at.username or ""),
        "password": unquote(at.password or ""),
    }
    return pymysql.connect(**named, database=at.path[1:], autocommit=True)


def fill(url: str, rows: int) -> None:
    """Make the table, by SQL: twice as many rows with each statement."""
    with contextlib.closing(connect(url)) as connection:
        cursor = connection.cursor()
        cursor.execute(TABLE)
        name = "CONCAT('user', {0})" if url.startswith("mysql") else "'user' || ({0})"
        domain = (
            "CONCAT('host', ({0}) % {1}, '.org')" if url.startswith("mysql") else "'host' || (({0}) % {1}) || '.org'"
        )
        values = f"{name}, {domain}, 5, CURRENT_TIMESTAMP, 1"
        cursor.execute(f"INSERT INTO banned SELECT 1, {values.format('1', DOMAINS)}")
        there = 1
        while there < rows:
            more = min(there, rows - there)
            row = values.format(f"id + {there}", DOMAINS)
            cursor.execute(f"INSERT INTO banned SELECT id + {there}, {row} FROM banned WHERE id <= {more}")
            connection.commit()
            there += more
        if url.startswith("postgresql"):
            connection.autocommit = True
            cursor.execute("VACUUM ANALYZE banned")


def address(number: int) -> tuple[str, str]:
    """Return an address: it is banned if it has the number of a row."""
    return f"user{number}", f"host{number % DOMAINS}.org"


@contextlib.contextmanager
def serving(url: str) -> Iterator[tuple[str, int]]:
    """Run `roost serve`; yield its address for reads, and its process id."""
    command = [sys.executable, "-m", "roost.cli", "serve", url, "--read", "127.0.0.1:0", "--write", "none"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            told = process.stdout.readline().split()
            if not told:
                sys.exit("roost serve has not started")
            yield told[1], process.pid
        finally:
            process.terminate()


def by_sql(url: str) -> Callable[[list[int]], list[bool]]:
    """Return a function that looks addresses up by SQL."""
    connection = connect(url)
    cursor = connection.cursor()
    lookup = LOOKUP.format("?" if url.startswith("sqlite") else "%s")

    def ask(numbers: list[int]) -> list[bool]:
        found = []
        for number in numbers:
            cursor.execute(lookup, address(number))
            found.append(cursor.fetchone() is not None)
        return found

    return ask


def by_key(url: str, where: str) -> Callable[[list[int]], list[bool]]:
    """Return a function that looks addresses up by HandlerSocket."""
    database = "main" if url.startswith("sqlite") else urlsplit(url).path[1:]
    key = "banned_name_domain_key" if url.startswith("postgresql") else "name"
    banned = Index(database, "banned", key, ["id", "mail_code"])
    server = HandlerSocket(where)

    def ask(numbers: list[int]) -> list[bool]:
        if len(numbers) == 1:
            return [bool(server.run(banned.find("=", address(numbers[0]))))]
        return [bool(rows) for rows in server.pipeline([banned.find("=", address(number)) for number in numbers])]

    return ask


def processor_seconds(pid: int) -> float:
    """Return the processor seconds of a process and its children, ended ones (PostgreSQL's connections) included."""
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(") ")[2].split()
    used = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    with open(f"/proc/{pid}/task/{pid}/children") as children:
        return used + sum([processor_seconds(int(child)) for child in children.read().split()])


def measure(make: Callable[[], Callable[[list[int]], list[bool]]], at_once: int, rows: int, seconds: float) -> int:
    """Ask in several threads; return how many addresses were looked up. A wrong answer is an error."""
    counts: list[int] = []

    def work() -> None:
        ask, number = make(), 0
        end = time.monotonic() + seconds
        while not number or time.monotonic() < end:
            numbers = [random.randrange(1, 2 * rows + 1) for _ in range(at_once)]
            assert ask(numbers) == [each <= rows for each in numbers]
            number += at_once
        counts.append(number)

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(counts) == THREADS, "a thread has failed"
    return sum(counts)


def main() -> None:
    """Fill the table, and look addresses up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?", default="sqlite:///app.db")
    parser.add_argument("rows", nargs="?", type=int, default=1_000_000)
    parser.add_argument("seconds", nargs="?", type=float, default=5.0)
    parser.add_argument("--server-pid", type=int, help="the database's process; its processor time is printed, too")
    options = parser.parse_args()
    url, rows, seconds = options.url, options.rows, options.seconds
    fill(url, rows)
    with serving(url) as (where, pid):
        for name, make, at_once in (
            ("SQL", lambda: by_sql(url), 1),
            ("HandlerSocket", lambda: by_key(url, where), 1),
            (f"HandlerSocket, {AT_ONCE} at once", lambda: by_key(url, where), AT_ONCE),
        ):
            watched = {"client": os.getpid(), "roost serve": pid, "database": options.server_pid}
            pids = {who: each for who, each in watched.items() if each is not None}
            before = {who: processor_seconds(each) for who, each in pids.items()}
            begun = time.monotonic()
            asked = measure(make, at_once, rows, seconds)
            rate = asked / (time.monotonic() - begun)
            used = {who: (processor_seconds(each) - before[who]) / asked * 1e6 for who, each in pids.items()}
            used["client"] -= used["roost serve"]  # its child
            if name == "SQL":
                del used["roost serve"]
            told = ", ".join([f"{who} {micro:.0f} µs" for who, micro in used.items()])
            wait = THREADS * at_once / rate * 1000
            print(f"{name}: {rate:,.0f} requests per second, an answer after {wait:.1f} ms; {told}")


if __name__ == "__main__":
    main()
