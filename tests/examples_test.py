"""The examples run, and do what they say."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from pathlib import Path

import pytest
from examples import sessions, warm_cache

import roost
from tests.index.databases import database

ROOT = Path(__file__).parents[1]


def ran(name: str, url: str) -> str:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name), url], capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout


@pytest.mark.parametrize("kind", ["sqlite", "mariadb", "postgresql"])
def test_sessions(kind: str, tmp_path: Path) -> None:
    with database(kind, tmp_path) as db:
        assert ran("sessions.py", db.url) == "{'user': 'ada', 'basket': ['bicycle', 'bell']}\nNone 1\n"


def test_a_session_that_is_used_lives_on_and_another_ends() -> None:
    now = dt.datetime(2026, 5, 1, tzinfo=dt.UTC)
    with roost.Store("sqlite://", clock=lambda: now) as store:
        store.create(sessions.sessions, sessions.visits)
        used, forgotten = (sessions.log_in(store, "ada") for _ in range(2))
        for _ in range(30):
            now += dt.timedelta(days=1)
            assert sessions.request(store, used) == {"user": "ada"}
        assert sessions.request(store, forgotten) is None
        assert not sessions.put_into_basket(store, forgotten, "bell")
        sessions.log_in(store, "bob")
        assert len(store.run(sessions.sessions.keys())) == 2


@pytest.mark.parametrize("kind", ["sqlite", "mariadb", "postgresql"])
def test_a_cache_that_is_warm_after_a_restart(kind: str, tmp_path: Path) -> None:
    with database(kind, tmp_path) as db:
        assert ran("warm_cache.py", db.url).startswith("100 requests, 20 pages rendered, ")
        assert ran("warm_cache.py", db.url).startswith("100 requests, 0 pages rendered, ")
        with roost.Store(db.url) as store:
            assert warm_cache.page(store, "page 7") == b"<h1>page 7</h1>"
        assert warm_cache.rendered == []
