"""A year of sessions, by a clock that is set forward: the table follows what lives, and few requests write."""

from __future__ import annotations

import datetime as dt
import os
import random
from collections.abc import Callable
from typing import Any

import pytest

import roost
from tests.suite.clients import Client

pytestmark = pytest.mark.needs("cache", "file")

DAYS = int(os.environ.get("ROOST_YEAR_DAYS", "30"))  # the long form: 365
FORTNIGHT = dt.timedelta(days=14)

sessions = roost.Cache("sessions")


def test_a_year_of_sessions(open_store: Callable[..., roost.Store], statements: list[str], sql: Client) -> None:
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    store = open_store(sessions, clock=lambda: now)
    dice = random.Random(3)
    ends: dict[str, dt.datetime] = {}
    requests = writes = made = 0
    most = 0.0
    for day in range(DAYS):
        for _ in range(20):  # new ones, most of which never come back
            made += 1
            ends[f"{made}"] = now + FORTNIGHT
            store.run(sessions.set(f"{made}", b"session", FORTNIGHT))
        for _ in range(60):
            now += dt.timedelta(days=1) / 60
            name = f"{dice.randrange(max(1, made - 10), made + 1)}" if dice.random() < 0.2 else f"{1 + day % 3}"
            requests += 1
            before = len(statements)
            there = store.run(sessions.get(name)) is not None
            assert store.run(sessions.touch(name, FORTNIGHT)) is there
            writes += any("sessions_touch" in each for each in statements[before:])
            if there:
                ends[name] = now + FORTNIGHT
            else:
                assert ends[name] - FORTNIGHT / 16 <= now
        living = sum(end > now for end in ends.values())
        statements.clear()
        rows = store.run(sessions.keys(n=10**6))
        assert all(ends[name] > now for name in rows)
        stored: Any = sql.execute("SELECT count(*) FROM roost_sessions_rows").fetchone()
        most = max(most, stored[0] / living)
    assert most <= 1.1
    assert writes <= requests / 4
