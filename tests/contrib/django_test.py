"""Django: the tests of a small project, by Django's own runner, on each engine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pymysql
import pytest

from roost.databases.mariadb.address import arguments
from tests import servers
from tests.lengths import length

ROOT = Path(__file__).parents[2]
PASSWORD = "p@ss:/?#[] %word'"
Settings = dict[str, Any]


# What the page leaves to its reader.
SHOP = {
    "shop/models.py": """\
from django.db import models


class Product(models.Model):
    name = models.CharField(max_length=40)
""",
    "shop/migrations/0001_initial.py": """\
from django.db import migrations, models


class Migration(migrations.Migration):
    operations = [
        migrations.CreateModel(
            name="Product",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=40)),
            ],
        )
    ]
""",
    "urls.py": """\
from django.urls import path
from shop import views

urlpatterns = [path("products/<int:pk>", views.product), path("products/<int:pk>/buy", views.buy)]
""",
    "settings.py": """\
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.db", "ATOMIC_REQUESTS": True}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["shop"]
ROOT_URLCONF = "urls"
SECRET_KEY = "of the tests"
""",
}


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
    return {
        "ENGINE": "django.db.backends.mysql", "OPTIONS": {"charset": "utf8mb4"}, **account(server, name)
    }  # fmt: skip


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


# What one connection, and what a server, does otherwise than a file; the rest is left to the campaign `suite`.
ON_A_SERVER = ["--exclude-tag", "anywhere", "tests.contrib.site"]
DIFFERS: dict[Any, list[str]] = length(
    {
        in_memory: [f"tests.contrib.site.test_{each}" for each in ("batches", "joined")],
        on_mariadb: ON_A_SERVER,
        on_postgresql: ON_A_SERVER,
    },
    {},
)


@pytest.mark.parametrize("database", [in_memory, in_a_file, on_mariadb, on_postgresql])
def test_the_project_passes_its_tests(database: Callable[[Path], Settings], tmp_path: Path) -> None:
    passes(database(tmp_path), DIFFERS.get(database, []))


def test_the_option_file_of_the_page_keeps_parallel_tests_on_mariadb_from_hanging(tmp_path: Path) -> None:
    # Without it Django's mysqldump locks mysql.proc until all procedures are read, by whom waits for that lock.
    (tmp_path / ".my.cnf").write_text("[mysqldump]\nsingle-transaction\n")
    modules = ["tests.contrib.site.test_address", "tests.contrib.site.test_joined"]
    passes(on_mariadb(tmp_path), ["--parallel", "2", *modules], tmp_path)


def passes(settings: Settings, arguments: list[str], home: Path | None = None) -> None:
    environment = {**os.environ, "ROOST_TEST_DJANGO": json.dumps(settings), "PYTHONPATH": f"{ROOT / 'src'}"}
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.contrib.site", *arguments],
        cwd=ROOT, env=environment | ({"HOME": str(home)} if home else {}), capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    if ran.returncode:
        pytest.fail(ran.stdout + ran.stderr, pytrace=False)
    assert "\nOK" in ran.stderr


def test_the_page_is_a_project_that_works(tmp_path: Path) -> None:
    page = (ROOT / "docs/django.md").read_text()
    named = re.findall(r"```python\n# (\S+\.py)\n(.*?)```", page, re.DOTALL)
    files = {**SHOP, **dict(named), "shop/__init__.py": "", "shop/migrations/__init__.py": ""}
    assert len(named) == 4
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "settings", "PYTHONPATH": f"{ROOT / 'src'}:{tmp_path}"}
    for command in (["migrate"], ["test"], ["makemigrations", "--check"], ["migrate", "shop", "zero"]):
        ran = subprocess.run(
            [sys.executable, "-W", "error", "-m", "django", *command, "--verbosity=2"],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600,
        )  # fmt: skip
        if ran.returncode:
            pytest.fail(ran.stdout + ran.stderr, pytrace=False)
