"""Django: the tests of a small project, by Django's own runner, on each engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pymysql
import pytest

from roost.engines.mariadb import arguments
from tests import servers

ROOT = Path(__file__).parents[2]
PASSWORD = "p@ss:/?#[] %word'"
Settings = dict[str, Any]


def in_memory(_: Path) -> Settings:
    return {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}


def in_a_file(folder: Path) -> Settings:
    name = str(folder / "100% ours?.db")
    return {"ENGINE": "django.db.backends.sqlite3", "NAME": name, "TEST": {"NAME": name}}


def on_mariadb(_: Path) -> Settings:
    server = servers.mariadb()
    name = f"django{os.getpid()}"
    with pymysql.connect(**arguments(f"{server.url}/mysql")[0]) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE OR REPLACE USER {name} IDENTIFIED BY %s", (PASSWORD,))
        cursor.execute(f"GRANT ALL ON *.* TO {name}")
    return {"ENGINE": "django.db.backends.mysql", **account(server, name)}


def on_postgresql(_: Path) -> Settings:
    server = servers.postgresql()
    name = f"django{os.getpid()}"
    with psycopg.connect(f"{server.url}/postgres", cursor_factory=psycopg.ClientCursor) as connection:
        # Only the role that Django assumes may do anything: who does not assume it is refused.
        connection.execute(f'CREATE ROLE "{name} owner" CREATEDB')
        connection.cursor().execute(
            f'CREATE ROLE {name} LOGIN NOINHERIT PASSWORD %s IN ROLE "{name} owner"', (PASSWORD,)
        )
    options = {"assume_role": f"{name} owner"}
    return {"ENGINE": "django.db.backends.postgresql", "OPTIONS": options, **account(server, name)}


def account(server: servers.Server, name: str) -> Settings:
    parts = urlsplit(server.url)
    return {"NAME": name, "USER": name, "PASSWORD": PASSWORD, "HOST": parts.hostname, "PORT": str(parts.port or "")}


@pytest.mark.parametrize("database", [in_memory, in_a_file, on_mariadb, on_postgresql])
def test_the_project_passes_its_tests(database: Callable[[Path], Settings], tmp_path: Path) -> None:
    try:
        settings = database(tmp_path)
    except servers.NotHere as error:
        servers.not_run(error)
    environment = {**os.environ, "ROOST_TEST_DJANGO": json.dumps(settings), "PYTHONPATH": f"{ROOT / 'src'}"}
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.contrib.site"],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    if ran.returncode:
        pytest.fail(ran.stdout + ran.stderr, pytrace=False)
    assert "\nOK" in ran.stderr
