"""One INSERT through the view beside the same INSERT into a plain table, by sqlite3, in one transaction."""

from __future__ import annotations

import random
import sqlite3
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

import roost
from bench.report import Line, in_turn, micros, show_lines
from bench.shapes import Visit, connect, structures

INSERTS = 5000  # in a transaction
KEYS = 1000
TARGET = 3.0

# The same row in a table that only grows, with the index that its page needs to be read.
PLAIN = """
    CREATE TABLE plain_pageviews (id INTEGER PRIMARY KEY, key INTEGER NOT NULL, total INTEGER NOT NULL);
    CREATE INDEX plain_pageviews_key ON plain_pageviews (key);
    CREATE TABLE plain_visits (id INTEGER PRIMARY KEY, uid INTEGER NOT NULL, visitor INTEGER NOT NULL,
        at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP);
    CREATE INDEX plain_visits_uid ON plain_visits (uid, at);
    CREATE TABLE plain_likes (key INTEGER NOT NULL, member INTEGER NOT NULL, PRIMARY KEY (key, member)) WITHOUT ROWID;
"""


@dataclass(frozen=True)
class Work:
    name: str
    columns: str
    plain: str
    view: str


WORKS = [
    Work("counter: add", "key, total", "plain_pageviews", "pageviews"),
    Work("ring: push", "uid, visitor", "plain_visits", "visits"),
    Work("capped: add, full", "uid, visitor", "plain_visits", "visitors"),
    Work("set: add", "key, member", "plain_likes", "likes"),
]


def main(quick: bool) -> bool:
    rounds = 8 if quick else 40
    lines: list[Line] = []
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/roost.db"
        with roost.Store(f"sqlite:///{path}") as store:
            counter, ring, capped, likes = structures()
            store.create(counter, ring, capped, likes)
            rows = [Visit(key, n) for key in range(KEYS) for n in range(12)]
            store.run_all(*map(ring.push, rows), *map(capped.add, rows))
        connection = connect(path, "FULL")
        connection.executescript(PLAIN)
        for work in WORKS:
            statements = [f"INSERT INTO {name} ({work.columns}) VALUES (?, ?)" for name in (work.plain, work.view)]
            plain, view = in_turn(rounds, *[inserting(connection, statement) for statement in statements])
            ratio = view / plain
            lines.append(
                Line(
                    work.name,
                    micros(plain / INSERTS),
                    micros(view / INSERTS),
                    ratio,
                    f"<= {TARGET}",
                    ratio <= TARGET,
                )
            )
        connection.close()
    title = f"an INSERT through the view, {INSERTS:,} in one transaction, {KEYS:,} keys, commit included"
    return show_lines(title, "plain table", "view", lines)


def inserting(connection: sqlite3.Connection, statement: str) -> Callable[[], None]:
    """Return a call that does one transaction of inserts: a key at random, a value that is new."""
    fresh, chance = count(100), random.Random(7)

    def insert() -> None:
        connection.execute("BEGIN IMMEDIATE")
        for _ in range(INSERTS):
            connection.execute(statement, (chance.randrange(KEYS), next(fresh)))
        connection.execute("COMMIT")

    return insert
