"""A session table over several databases, read and written by key through HandlerSocket, cleaned up by SQL.

The talk that inspired Roost spread its sessions over 10,000 tables in 100 databases, by a hash that is part of the key.
Here a shard is a database of any kind, with its own `roost serve`. HandlerSocket inserts, reads and updates sessions by
their keys; SQL deletes old ones, as in the talk.

    python examples/sharded_sessions.py sqlite:///one.db sqlite:///two.db --seconds 5
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import secrets
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit
from zlib import crc32

from roost.client import Index, Pool

BUCKETS = 100  # the sessions of a bucket are in one shard: to add a shard, move buckets
TABLE = """\
CREATE TABLE sessions (bucket INTEGER NOT NULL, hash VARCHAR(43) NOT NULL, ts BIGINT NOT NULL, data TEXT NOT NULL,
  PRIMARY KEY (bucket, hash))"""
OLD = "DELETE FROM sessions WHERE ts < {}"
MIX = {"get": 1200, "update": 150, "create": 10}  # the talk's requests per second
THREADS = 8


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
    return pymysql.connect(**named, database=at.path[1:])


def run(url: str, sql: str) -> int:
    """Run a statement; return the number of rows that it has changed."""
    with contextlib.closing(connect(url)) as connection:
        cursor = connection.cursor()
        cursor.execute(sql)
        connection.commit()
        changed: int = cursor.rowcount
        return max(0, changed)


class Shard:
    """One database: its index, opened for two purposes, and the connections to its server."""

    def __init__(self, url: str, where: str) -> None:
        database = "main" if url.startswith("sqlite") else urlsplit(url).path[1:]
        self.rows = Index(database, "sessions", "PRIMARY", ["bucket", "hash", "ts", "data"])
        self.data = Index(database, "sessions", "PRIMARY", ["ts", "data"])
        self.server: Pool = Pool(where, size=THREADS)


class Sessions:
    """The sessions of all shards."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self._shards = shards

    def _of(self, cookie: str) -> tuple[Shard, tuple[int, str]]:
        bucket = crc32(cookie.encode()) % BUCKETS
        return self._shards[bucket % len(self._shards)], (bucket, cookie)

    def create(self, session: dict[str, Any]) -> str:
        """Begin a session; return its cookie."""
        cookie = secrets.token_urlsafe(32)
        shard, key = self._of(cookie)
        shard.server.run(shard.rows.insert((*key, int(time.time()), json.dumps(session))))
        return cookie

    def get(self, cookie: str) -> dict[str, Any] | None:
        """Return a session; None if there is none."""
        shard, key = self._of(cookie)
        rows = shard.server.run(shard.data.find("=", key))
        found: dict[str, Any] | None = json.loads(rows[0][1] or "") if rows else None
        return found

    def update(self, cookie: str, session: dict[str, Any]) -> bool:
        """Replace a session; return whether it exists."""
        shard, key = self._of(cookie)
        return shard.server.run(shard.data.update("=", key, (int(time.time()), json.dumps(session)))) == 1

    def close(self) -> None:
        """Close the connections."""
        for shard in self._shards:
            shard.server.close()


@contextlib.contextmanager
def serving(url: str) -> Iterator[str]:
    """Run `roost serve`; yield its address for writes."""
    command = [sys.executable, "-m", "roost.cli", "serve", url, "--read", "none", "--write", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            told = process.stdout.readline().split()
            if not told:
                sys.exit("roost serve has not started")
            yield told[1]
        finally:
            process.terminate()


def browse(sessions: Sessions, seconds: float) -> dict[str, tuple[int, float]]:
    """Send the talk's mix of requests, in several threads; return the number and the mean milliseconds of each kind."""
    taken: dict[str, list[float]] = defaultdict(list)
    end = time.monotonic() + seconds

    def work() -> None:
        mine = {sessions.create({"user_id": number}): number for number in range(20)}
        while time.monotonic() < end:
            what = random.choices(list(MIX), list(MIX.values()))[0]
            cookie, number = random.choice(list(mine.items()))
            begun = time.perf_counter()
            if what == "get":
                assert sessions.get(cookie) == {"user_id": number}
            elif what == "update":
                mine[cookie] = number + 1
                assert sessions.update(cookie, {"user_id": number + 1})
            else:
                mine[sessions.create({"user_id": number})] = number
            taken[what].append(time.perf_counter() - begun)

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {what: (len(taken[what]), 1000 * sum(taken[what]) / max(1, len(taken[what]))) for what in MIX}


def main() -> None:
    """Make the tables, use them, and delete old sessions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("urls", nargs="*", default=["sqlite:///one.db", "sqlite:///two.db"])
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        for url in options.urls:
            run(url, TABLE)
        sessions = Sessions([Shard(url, stack.enter_context(serving(url))) for url in options.urls])
        stack.callback(sessions.close)
        cookie = sessions.create({"user_id": 7})
        sessions.update(cookie, {"user_id": 7, "basket": ["bicycle"]})
        print(sessions.get(cookie), sessions.get("nobody"))
        for what, (number, milliseconds) in browse(sessions, options.seconds).items():
            print(f"{what}: {number / options.seconds:,.0f} requests per second, {milliseconds:.1f} ms each")
        kept = [run(url, OLD.format(0)) for url in options.urls]
        old = [run(url, OLD.format(int(time.time()) + 1)) for url in options.urls]
        print(f"removed by SQL: {sum(kept)} of before 1970, then all: {min(old) > 0 and sum(old)}")


if __name__ == "__main__":
    main()
