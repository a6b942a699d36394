"""One INSERT on a server, through a view or into a table that `roost cap` keeps, beside the same into a plain table.

By a Python driver, one row per statement: what an application sees, the way to the server and back included.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

from tests import servers
from tests.suite import clients

import roost
from bench.report import Line, in_turn, micros, show_lines
from bench.shapes import Visit, structures
from roost.store import bursts

KEYS = 1000
ALONE, TOGETHER = 100, 1000  # inserts of a round: each a transaction, all in one
KEEP = 5
VIEW, CAPPED = 3.0, 2.0  # targets

# The same rows in tables that only grow, with the indexes that their pages need to be read; and one to be capped.
PLAIN = """
    CREATE TABLE plain_pageviews ({number}, "key" BIGINT NOT NULL, total BIGINT NOT NULL);
    CREATE INDEX plain_pageviews_key ON plain_pageviews ("key");
    CREATE TABLE plain_visits ({number}, uid BIGINT NOT NULL, visitor BIGINT NOT NULL,
        at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6));
    CREATE INDEX plain_visits_uid ON plain_visits (uid, at);
    CREATE TABLE plain_likes ("key" BIGINT NOT NULL, member BIGINT NOT NULL, PRIMARY KEY ("key", member));
    CREATE TABLE kept_visits ({number}, uid BIGINT NOT NULL, visitor BIGINT NOT NULL,
        at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6));
    CREATE INDEX kept_visits_uid ON kept_visits (uid, at);
"""
NUMBER = {
    "mariadb": "id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY",
    "postgresql": "id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
}


@dataclass(frozen=True)
class Work:
    """What is inserted where."""

    name: str
    columns: str
    plain: str
    ours: str
    target: float = VIEW


def works(inlet: str) -> list[Work]:
    """Return what is measured; inlet: what a view's name ends with."""
    return [
        Work("counter: add", '"key", total', "plain_pageviews", f"pageviews{inlet}"),
        Work("ring: push", "uid, visitor", "plain_visits", f"visits{inlet}"),
        Work("capped: add, full", "uid, visitor", "plain_visits", f"visitors{inlet}"),
        Work("set: add", '"key", member', "plain_likes", f"likes{inlet}"),
        Work(f"a table capped to {KEEP}", "uid, visitor", "plain_visits", "kept_visits", CAPPED),
    ]


def main(quick: bool) -> bool:
    rounds = 5 if quick else 25
    return all([measured(name, rounds) for name in NUMBER])


def measured(name: str, rounds: int) -> bool:
    """Measure on one server; return whether all targets were met."""
    quote = "`" if name == "mariadb" else '"'
    alone: list[Line] = []
    together: list[Line] = []
    with servers.database(name) as url:
        sql = clients.connect(url)
        for statement in PLAIN.format(number=NUMBER[name]).replace('"', quote).split(";")[:-1]:
            sql.execute(statement)
        if name == "mariadb":
            sql.execute("SET GLOBAL event_scheduler = ON")  # trims the capped table meanwhile
        with roost.Store(url) as store:
            counter, ring, capped, likes = structures()
            store.create(counter, ring, capped, likes)
            rows = [Visit(key, n) for key in range(KEYS) for n in range(12)]
            store.run_all(*map(ring.push, rows), *map(capped.add, rows))
            for _ in bursts.cap(store, bursts.inspect(store, "kept_visits", ["uid"], KEEP, "at")):
                pass
        for work in works("_in" if name == "mariadb" else ""):
            statements = [
                f"INSERT INTO {table} ({work.columns}) VALUES (?, ?)".replace('"', quote)
                for table in (work.plain, work.ours)
            ]
            for lines, n, begin in ((alone, ALONE, False), (together, TOGETHER, True)):
                plain, ours = in_turn(rounds, *[inserting(sql, statement, n, begin) for statement in statements])
                ratio = ours / plain
                lines.append(
                    Line(
                        work.name,
                        micros(plain / n),
                        micros(ours / n),
                        ratio,
                        f"<= {work.target}",
                        ratio <= work.target,
                    )
                )
        sql.close()
    met = show_lines(f"{name}: an INSERT that is a transaction, {KEYS:,} keys", "plain table", "ours", alone)
    return (
        show_lines(f"{name}: {TOGETHER:,} in one transaction, commit included", "plain table", "ours", together) and met
    )


def inserting(sql: Any, statement: str, n: int, together: bool) -> Callable[[], None]:
    """Return a call that inserts rows: a key at random, a value that is new."""
    fresh, chance = count(100 if together else 10_000_000), random.Random(7)

    def insert() -> None:
        if together:
            sql.execute("BEGIN")
        for _ in range(n):
            sql.execute(statement, (chance.randrange(KEYS), next(fresh)))
        if together:
            sql.execute("COMMIT")

    return insert
