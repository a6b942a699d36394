"""The examples run, and do what they say."""

from __future__ import annotations

import contextlib
import datetime as dt
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from examples import sessions, warm_cache

import roost
from tests.index.databases import database
from tests.lengths import length

ROOT = Path(__file__).parents[1]
ALL = ["sqlite", "mariadb", "postgresql"]


def ran(name: str, *arguments: str) -> str:
    command = [sys.executable, str(ROOT / "examples" / name), *arguments]
    environment = {**os.environ, "ROOST_SERVE_WORKERS": "1"}  # not one for each processor
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, env=environment)
    return done.stdout


@pytest.mark.parametrize("kind", length(["sqlite", "postgresql"], ALL))
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


@pytest.mark.parametrize("kind", length(["sqlite", "mariadb"], ALL))
def test_a_cache_that_is_warm_after_a_restart(kind: str, tmp_path: Path) -> None:
    with database(kind, tmp_path) as db:
        assert ran("warm_cache.py", db.url).startswith("100 requests, 20 pages rendered, ")
        assert ran("warm_cache.py", db.url).startswith("100 requests, 0 pages rendered, ")
        with roost.Store(db.url) as store:
            assert warm_cache.page(store, "page 7") == b"<h1>page 7</h1>"
        assert warm_cache.rendered == []


@pytest.mark.parametrize("kind", length(["mariadb", "postgresql"], ALL))
def test_banned_addresses_are_found_by_key_as_by_sql(kind: str, tmp_path: Path) -> None:
    with database(kind, tmp_path) as db:
        lines = ran("banned_addresses.py", db.url, "500", "0.3").splitlines()  # it compares every answer
        names = [line.partition(": ")[0] for line in lines]
        assert names == ["SQL", "HandlerSocket", "HandlerSocket, 32 at once"]
        assert all([re.search(r": [1-9][\d,]* requests per second, .* ms; client \d+ µs", line) for line in lines])
        assert db.sql("SELECT count(*), max(id), count(DISTINCT name) FROM banned") == [(500, 500, 500)]


@pytest.mark.parametrize("name", ["banned_addresses.py", "sharded_sessions.py"])
def test_an_account_is_taken_from_the_url_without_its_escapes(name: str) -> None:
    connect = importlib.import_module(f"examples.{name.removesuffix('.py')}").connect
    with database("mariadb", ROOT) as db, contextlib.closing(connect(db.url)) as connection:
        connection.cursor().execute("CREATE OR REPLACE USER 'a d'@'%' IDENTIFIED BY 'p@ss/w'")
        connection.cursor().execute("GRANT ALL ON *.* TO 'a d'@'%'")
        url = re.sub("//[^/]*@", "//a%20d:p%40ss%2Fw@", db.url)
        with contextlib.closing(connect(url)) as other:
            cursor = other.cursor()
            cursor.execute("SELECT USER()")
            assert cursor.fetchone()[0].startswith("a d@")
        connection.cursor().execute("DROP USER 'a d'@'%'")


@pytest.mark.parametrize("kind", length(["sqlite", "postgresql"], ALL))
def test_sessions_of_several_databases(kind: str, tmp_path: Path) -> None:
    (tmp_path / "two").mkdir()
    with database(kind, tmp_path) as one, database(kind, tmp_path / "two") as two:
        lines = ran("sharded_sessions.py", one.url, two.url, "--seconds", "0.3").splitlines()
        assert lines[0] == "{'user_id': 7, 'basket': ['bicycle']} None"
        assert [line.partition(": ")[0] for line in lines[1:4]] == ["get", "update", "create"]
        assert re.fullmatch(r"removed by SQL: 0 of before 1970, then all: \d{3,}", lines[4])
        assert one.sql("SELECT count(*) FROM sessions") == two.sql("SELECT count(*) FROM sessions") == [(0,)]
