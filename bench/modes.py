"""What each optimization gains: the same work with it and without it, by turns.

An optimization that gains little is not worth its code.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

from pymysql.connections import MySQLResult
from tests import servers

import roost
from bench.report import Line, in_turn, micros, show_lines
from bench.shapes import Visit
from roost.databases.mariadb.rows import Result
from roost.store.core import UNANSWERED

ROUNDS = 31
KEYS = 64
WORTH = 1.1  # the least gain for which an optimization stays

likes = roost.Set("likes", key=int, member=int)
pageviews = roost.Counter("pageviews", key=int)
visits = roost.Ring("visits", Visit, per="uid", keep=5)
visitors = roost.Capped("visitors", Visit, per="uid", keep=12, unique="visitor")

Switch = Callable[[], None]


@dataclass
class Way:
    """One optimization: how it is switched off and on, and work that it should make faster."""

    name: str
    off: Switch
    on: Switch
    work: Callable[[], object]


@contextmanager
def opened(name: str) -> Iterator[str]:
    """Make a database for the measurement."""
    if name == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield f"sqlite:///{folder}/modes.db?synchronous=normal"
    else:
        server = servers.mariadb() if name == "mariadb" else servers.postgresql()
        yield server.database(f"modes_{os.getpid()}")


def main(quick: bool) -> bool:
    """Measure every optimization on every database that has it."""
    met = []
    for name in ("sqlite", "mariadb", "postgresql"):
        with opened(name) as url, roost.Store(url) as store:
            store.create(likes, pageviews, visits, visitors)
            met.append(measured(name, ways(name, store), 5 if quick else ROUNDS))
    return all(met)


def measured(name: str, found: list[Way], rounds: int) -> bool:
    """Measure the optimizations of one database."""
    lines = []
    for way in found:

        def without(way: Way = way) -> None:
            way.off()
            try:
                way.work()
            finally:
                way.on()

        way.work()
        without()
        plain, ours = in_turn(rounds, without, way.work)
        gained = plain / ours
        lines.append(Line(way.name, micros(plain), micros(ours), gained, f">= {WORTH}", gained >= WORTH))
    return show_lines(f"{name}: what a way gains", "without", "with", lines)


def ways(name: str, store: roost.Store) -> list[Way]:
    """Return the optimizations that a database has."""
    numbers = count(1)
    core: Any = store._core
    for key in range(KEYS):
        store.run_all(*[visits.push(Visit(key, n)) for n in range(5)], *[pageviews.add(key)] * 2)
        store.run_all(*[visitors.add(Visit(key, -n)) for n in range(1, 13)])

    def alone(op: Callable[[], roost.Operation[Any]]) -> Callable[[], object]:
        return lambda: [store.run(op()) for _ in range(20)]

    run_single = core.run_single
    found = [
        Way(
            f"one operation without a batch: {what}",
            lambda: setattr(core, "run_single", lambda *_: UNANSWERED),
            lambda: setattr(core, "run_single", run_single),
            alone(op),
        )
        for what, op in (
            ("a total", lambda: pageviews.total(7)),
            ("a push", lambda: visits.push(Visit(7, next(numbers)))),
        )
    ]
    if name == "mariadb":
        result: Any = Result
        ours = {name: getattr(result, name) for name in ("read",)}
        plain = {name: getattr(MySQLResult, name) for name in ours}

        def read_by(methods: dict[str, Any]) -> Switch:
            def switch() -> None:
                for name, method in methods.items():
                    setattr(result, name, method)

            return switch

        for what, work in (
            (f"{KEYS} rings", lambda: store.run_all(*[visits.latest(key) for key in range(KEYS)])),
            ("one ring", lambda: store.run(visits.latest(7))),
        ):
            found.append(
                Way(
                    f"results read out of what has arrived: {what}",
                    read_by(plain),
                    read_by(ours),
                    work,
                )
            )
    return found
