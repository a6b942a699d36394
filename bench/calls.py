"""One operation at a time, from the call to the answer, beside the fewest statements by hand with the same driver.

Every write is a transaction on disk, as it is by hand. What a web worker does all day.

Everything runs on one processor. Where client and server are on two, each message wakes the other one, which takes 20
to 60 µs in a virtual machine; and which of the two sides meets that is the scheduler's choice, for a whole run.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

import psycopg
import pymysql
from tests import servers

import roost
from bench.report import Line, in_turn, micros, show_lines
from bench.shapes import ByHand, Visit, structures
from roost.databases.mariadb.address import arguments

ROUNDS = 15


class Hand(Protocol):
    """The six works by hand."""

    def add(self, key: int, n: int) -> None: ...
    def total(self, key: int) -> int: ...
    def push(self, uid: int, visitor: int) -> int: ...
    def latest(self, uid: int) -> list[Visit]: ...
    def add_visitor(self, uid: int, visitor: int) -> None: ...
    def like(self, key: int, member: int) -> int: ...
    def close(self) -> None: ...


# As multiples of by hand: what must be reached.
MUST = {
    "sqlite, FULL": {"counter: add": 1.3, "ring: push": 1.4, "capped: add, full": 1.4, "set: add": 1.4},
    "sqlite, NORMAL": {
        "counter: add": 2.0,
        "ring: push": 2.0,
        "capped: add, full": 2.0,
        "set: add": 2.0,
        "counter: total": 5.0,
        "ring: latest 5": 2.5,
    },
    "mariadb": {
        "counter: add": 1.6,
        "ring: push": 1.6,
        "capped: add, full": 1.6,
        "set: add": 1.6,
        "counter: total": 1.4,
        "ring: latest 5": 1.3,
    },
    "postgresql": {
        "counter: add": 1.7,
        "ring: push": 1.6,
        "capped: add, full": 1.6,
        "set: add": 1.6,
        "counter: total": 2.0,
        "ring: latest 5": 1.8,
    },
}

TABLES = """
    CREATE TABLE hand_pageviews (k BIGINT NOT NULL, slot BIGINT NOT NULL, n BIGINT NOT NULL, PRIMARY KEY (k, slot));
    CREATE TABLE hand_visits_head (uid BIGINT PRIMARY KEY, sequence BIGINT NOT NULL);
    CREATE TABLE hand_visits (uid BIGINT NOT NULL, slot BIGINT NOT NULL, sequence BIGINT NOT NULL,
        visitor BIGINT NOT NULL, PRIMARY KEY (uid, slot));
    CREATE TABLE hand_visitors_head (uid BIGINT PRIMARY KEY, sequence BIGINT NOT NULL, n BIGINT NOT NULL);
    CREATE TABLE hand_visitors (uid BIGINT NOT NULL, visitor BIGINT NOT NULL, sequence BIGINT NOT NULL,
        PRIMARY KEY (uid, visitor));
    CREATE INDEX hand_visitors_newest ON hand_visitors (uid, sequence);
    CREATE TABLE hand_likes_head (k BIGINT PRIMARY KEY, n BIGINT NOT NULL);
    CREATE TABLE hand_likes (k BIGINT NOT NULL, member BIGINT NOT NULL, PRIMARY KEY (k, member));
"""


class ServerByHand:
    """What reading is by hand on both servers, where the drivers are alike."""

    cursor: Any

    def total(self, key: int) -> int:
        self.cursor.execute("SELECT n FROM hand_pageviews WHERE k = %s", (key,))
        return sum([n for (n,) in self.cursor.fetchall()])

    def latest(self, uid: int) -> list[Visit]:
        self.cursor.execute("SELECT uid, visitor FROM hand_visits WHERE uid = %s ORDER BY sequence DESC", (uid,))
        return [Visit(*row) for row in self.cursor.fetchall()]


class MariaDBByHand(ServerByHand):
    """With PyMySQL: a transaction begins with its first statement."""

    def __init__(self, url: str) -> None:
        self.connection = pymysql.connect(**arguments(url)[0])
        self.cursor = self.connection.cursor()
        for statement in TABLES.split(";")[:-1]:
            self.cursor.execute(statement)
        self.reader = pymysql.connect(**arguments(url)[0], autocommit=True)
        self.writes, self.cursor = self.cursor, self.reader.cursor()

    def close(self) -> None:
        self.connection.close()
        self.reader.close()

    def add(self, key: int, n: int) -> None:
        self.cursor.execute(
            "INSERT INTO hand_pageviews VALUES (%s, 3, %s) ON DUPLICATE KEY UPDATE n = n + VALUES(n)", (key, n)
        )

    def push(self, uid: int, visitor: int) -> int:
        execute = self.writes.execute
        execute(
            "INSERT INTO hand_visits_head VALUES (%s, 1) ON DUPLICATE KEY UPDATE sequence = sequence + 1"
            " RETURNING sequence",
            (uid,),
        )
        ((sequence,),) = self.writes.fetchall()
        execute(
            "INSERT INTO hand_visits VALUES (%s, %s, %s, %s)"
            " ON DUPLICATE KEY UPDATE sequence = VALUES(sequence), visitor = VALUES(visitor)",
            (uid, sequence % 5, sequence, visitor),
        )
        self.connection.commit()
        return int(sequence)

    def add_visitor(self, uid: int, visitor: int, keep: int = 12) -> None:
        execute = self.writes.execute
        execute(
            "INSERT INTO hand_visitors_head VALUES (%s, 1, 1) ON DUPLICATE KEY UPDATE sequence = sequence + 1,"
            " n = n + 1 RETURNING sequence, n",
            (uid,),
        )
        ((sequence, n),) = self.writes.fetchall()
        execute("INSERT INTO hand_visitors VALUES (%s, %s, %s)", (uid, visitor, sequence))
        if n > keep:
            execute("DELETE FROM hand_visitors WHERE uid = %s ORDER BY sequence LIMIT %s", (uid, n - keep))
            execute("UPDATE hand_visitors_head SET n = %s WHERE uid = %s", (keep, uid))
        self.connection.commit()

    def like(self, key: int, member: int) -> int:
        execute = self.writes.execute
        new: int = execute("INSERT IGNORE INTO hand_likes VALUES (%s, %s)", (key, member))
        if new:
            execute("INSERT INTO hand_likes_head VALUES (%s, 1) ON DUPLICATE KEY UPDATE n = n + 1", (key,))
        self.connection.commit()
        return new


class PostgreSQLByHand(ServerByHand):
    """With psycopg, which prepares what comes again: one statement where one can do it, else a transaction."""

    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(url, autocommit=True)
        self.cursor = self.connection.cursor()
        for statement in TABLES.split(";")[:-1]:
            self.connection.execute(statement)

    def close(self) -> None:
        self.connection.close()

    def add(self, key: int, n: int) -> None:
        self.cursor.execute(
            "INSERT INTO hand_pageviews AS h VALUES (%s, 3, %s)"
            " ON CONFLICT (k, slot) DO UPDATE SET n = h.n + excluded.n",
            (key, n),
        )

    def push(self, uid: int, visitor: int) -> int:
        self.cursor.execute(
            "WITH head AS (INSERT INTO hand_visits_head AS h VALUES (%s, 1)"
            " ON CONFLICT (uid) DO UPDATE SET sequence = h.sequence + 1 RETURNING uid, sequence)"
            " INSERT INTO hand_visits SELECT uid, sequence %% 5, sequence, %s FROM head"
            " ON CONFLICT (uid, slot) DO UPDATE SET sequence = excluded.sequence, visitor = excluded.visitor"
            " RETURNING sequence",
            (uid, visitor),
        )
        ((sequence,),) = self.cursor.fetchall()
        return int(sequence)

    def add_visitor(self, uid: int, visitor: int, keep: int = 12) -> None:
        with self.connection.transaction():
            execute = self.cursor.execute
            execute(
                "INSERT INTO hand_visitors_head AS h VALUES (%s, 1, 1)"
                " ON CONFLICT (uid) DO UPDATE SET sequence = h.sequence + 1, n = h.n + 1 RETURNING sequence, n",
                (uid,),
            )
            ((sequence, n),) = self.cursor.fetchall()
            execute("INSERT INTO hand_visitors VALUES (%s, %s, %s)", (uid, visitor, sequence))
            if n > keep:
                execute(
                    "DELETE FROM hand_visitors WHERE uid = %s AND visitor IN"
                    " (SELECT visitor FROM hand_visitors WHERE uid = %s ORDER BY sequence LIMIT %s)",
                    (uid, uid, n - keep),
                )
                execute("UPDATE hand_visitors_head SET n = %s WHERE uid = %s", (keep, uid))

    def like(self, key: int, member: int) -> int:
        self.cursor.execute(
            "WITH new AS (INSERT INTO hand_likes VALUES (%s, %s) ON CONFLICT DO NOTHING RETURNING k)"
            " INSERT INTO hand_likes_head AS h SELECT k, 1 FROM new ON CONFLICT (k) DO UPDATE SET n = h.n + 1",
            (key, member),
        )
        new: int = self.cursor.rowcount
        return new


@dataclass(frozen=True)
class Place:
    """A database to measure on: how to come by the two sides, and how many calls make a round."""

    name: str
    number: int


PLACES = [
    Place("sqlite, FULL", 100),
    Place("sqlite, NORMAL", 1000),
    Place("mariadb", 100),
    Place("postgresql", 100),
]


@contextmanager
def opened(name: str) -> Iterator[tuple[str, Callable[[], Hand]]]:
    """Give the URL of a store, and what makes the other side."""
    if name.startswith("sqlite"):
        synchronous = name.split()[1]
        with tempfile.TemporaryDirectory() as folder:
            url = f"sqlite:///{folder}/roost.db?synchronous={synchronous.lower()}"
            yield url, lambda: ByHand(f"{folder}/hand.db", synchronous)
        return
    with servers.database(name) as url:
        yield url, lambda: MariaDBByHand(url) if name == "mariadb" else PostgreSQLByHand(url)


def main(quick: bool) -> bool:
    processors = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(processors)})  # the servers inherit it
    try:
        return all([measured(place, 5 if quick else ROUNDS) for place in PLACES])
    finally:
        os.sched_setaffinity(0, processors)


def measured(place: Place, rounds: int) -> bool:
    """Measure on one database; return whether all targets were met."""
    with opened(place.name) as (url, make), roost.Store(url) as store:
        hand = make()
        counter, ring, capped, likes = structures()
        store.create(counter, ring, capped, likes)
        run = store.run
        hand_ids, our_ids = count(), count()
        works: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "counter: add": (lambda: hand.add(7, 1), lambda: run(counter.add(7))),
            "ring: push": (lambda: hand.push(7, 8), lambda: run(ring.push(Visit(7, 8)))),
            "capped: add, full": (
                lambda: hand.add_visitor(7, next(hand_ids)),
                lambda: run(capped.add(Visit(7, next(our_ids)))),
            ),
            "set: add": (lambda: hand.like(7, next(hand_ids)), lambda: run(likes.add(7, next(our_ids)))),
            "counter: total": (lambda: hand.total(7), lambda: run(counter.total(7))),
            "ring: latest 5": (lambda: hand.latest(7), lambda: run(ring.latest(7))),
        }
        lines = []
        for work, sides in works.items():
            for side in sides:  # the collection is full, the statements are known
                repeated(side, 20)()
            base, ours = in_turn(rounds, *[repeated(side, place.number) for side in sides])
            must = MUST[place.name].get(work)
            ratio = ours / base
            lines.append(
                Line(
                    work,
                    micros(base / place.number),
                    micros(ours / place.number),
                    ratio,
                    f"<= {must}" if must else "",
                    must is None or ratio <= must,
                )
            )
        hand.close()
    return show_lines(f"One at a time, {place.name}", "by hand", "Roost", lines)


def repeated(call: Callable[[], object], number: int) -> Callable[[], None]:
    """Return a call that makes many."""

    def repeat() -> None:
        for _ in range(number):
            call()

    return repeat
