"""A table of visits that is capped by number, and what the tests do with it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import roost
from roost.store import bursts
from tests.suite.application import Application

Open = Callable[..., roost.Store]
Connect = Callable[[], Application]
Role = Callable[[str], str]
Capper = tuple[str, Callable[[], roost.Store]]

VISITS = "CREATE TABLE visits (id {id}, uid BIGINT, visitor BIGINT NOT NULL, at VARCHAR(20) NOT NULL)"
INDEX = "CREATE INDEX visits_uid ON visits (uid, at)"
INSERT = "INSERT INTO visits (uid, visitor, at) VALUES (?, ?, ?)"


def fill(application: Application, n: int = 300, people: int = 9, seed: int = 1) -> None:
    """Insert rows of random people and days."""
    chance = random.Random(seed)
    rows = [f"({chance.randrange(people)}, {k}, '2008-01-{chance.randrange(1, 29):02d}')" for k in range(n)]
    application(f"INSERT INTO visits (uid, visitor, at) VALUES {', '.join(rows)}")


def several(application: Application, n: int, uid: int = 1, first: int = 0, into: str = "visits") -> None:
    """Insert rows of one person by one statement."""
    rows = ", ".join(f"({uid}, {first + k}, '2008')" for k in range(n))
    application(f"INSERT INTO {into} (uid, visitor, at) VALUES {rows}")


def visitors(application: Application) -> list[int]:
    """The visitors, in the order of their visits."""
    return [visitor for (visitor,) in application("SELECT visitor FROM visits ORDER BY id")]


def count(application: Application) -> int:
    """How many rows there are."""
    return len(visitors(application))


def cap(
    store: roost.Store, per: str = "uid", keep: int | None = 5, newest_by: str | None = "at", table: str = "visits"
) -> int:
    """Cap a table by number; return how many rows were deleted."""
    found = bursts.inspect(store, table, per.split(",") if per else [], keep, newest_by)
    return sum(bursts.cap(store, found))


def settle(store: roost.Store, table: str = "visits") -> int:
    """Make a pass, where there are any."""
    return sum(bursts.work_off(store, bursts.inspect(store, table).cap))


def newest(found: list[Any], keep: int, order: Callable[[Any], Any], key: Callable[[Any], Any]) -> list[Any]:
    """The dumb model: what is left of rows."""
    kept = []
    for each in {key(row) for row in found}:
        mine = [row for row in found if key(row) == each]
        kept += mine if each is None else sorted(mine, key=order)[-keep:]
    return sorted(kept)
