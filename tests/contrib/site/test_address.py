"""From settings to the URL of a store; what cannot be carried over is refused by name."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import psycopg
from django.db.utils import ConnectionHandler
from django.test import SimpleTestCase

import roost
from roost.contrib.django.address import url_of
from roost.databases.mariadb.address import arguments
from roost.databases.postgresql.engine import PostgreSQLEngine

HARD = "p@ss:/?#[] %wörd'&=+"


def url(engine: str, **settings: Any) -> str:
    handler = ConnectionHandler({"default": {"ENGINE": f"django.db.backends.{engine}", **settings}})
    return url_of(handler["default"])


class SQLiteTests(SimpleTestCase):
    def test_files(self) -> None:
        for name, wanted in (
            ("/tmp/app.db", "sqlite:////tmp/app.db"),
            (Path("/tmp/100% ours?#.db"), "sqlite:////tmp/100%25%20ours%3F%23.db"),
            ("app.db", "sqlite:///app.db"),
            ("file:/tmp/a%20b.db?mode=ro", "sqlite:////tmp/a%20b.db?mode=ro"),
            ("file:app.db", "sqlite:///app.db"),
            (":memory:", "sqlite://"),
            ("file:memorydb_default?mode=memory&cache=shared", "sqlite://"),
        ):
            with self.subTest(name):
                self.assertEqual(url("sqlite3", NAME=name), wanted)


class MySQLTests(SimpleTestCase):
    def test_everything_arrives(self) -> None:
        made = url("mysql", NAME="a/b", USER="r@o", PASSWORD=HARD, HOST="db.example", PORT="3307", OPTIONS={
            "connect_timeout": 7, "charset": "utf8mb4", "init_command": "SET x", "isolation_level": None,
        })  # fmt: skip
        found, place = arguments(made)
        self.assertLessEqual(
            {
                "host": "db.example", "port": 3307, "user": "r@o", "password": HARD.encode(), "database": "a/b",
                "connect_timeout": 7,
            }.items(),
            found.items(),
        )  # fmt: skip
        self.assertNotIn("wörd", place)

    def test_certificates(self) -> None:
        made = url("mysql", NAME="app", OPTIONS={"ssl": {"ca": "/etc/a b.pem"}, "ssl_mode": "VERIFY_IDENTITY"})
        self.assertEqual(made, "mysql://localhost/app?ssl_ca=%2Fetc%2Fa%20b.pem&ssl_mode=VERIFY_IDENTITY")

    def test_a_socket(self) -> None:
        found, _ = arguments(url("mysql", NAME="app", USER="me", HOST="/run/my sqld.sock"))
        self.assertEqual((found["unix_socket"], found["host"]), ("/run/my sqld.sock", "localhost"))

    def test_an_option_that_says_how_to_connect_is_not_left_out_silently(self) -> None:
        with self.assertRaisesMessage(roost.Invalid, "read_default_file"):
            url("mysql", OPTIONS={"read_default_file": "/etc/my.cnf"})
        with self.assertRaisesMessage(roost.Invalid, "ssl_capath"):
            url("mysql", NAME="app", OPTIONS={"ssl": {"capath": "/etc"}})


def libpq(url: str) -> dict[str, Any]:
    """What the driver connects with."""
    engine = PostgreSQLEngine(url, timeout=1, trace=None, random=Random())
    return dict(psycopg.conninfo.conninfo_to_dict(engine.url))


class PostgreSQLTests(SimpleTestCase):
    def test_everything_arrives(self) -> None:
        made = url("postgresql", NAME="a/b", USER="r@o", PASSWORD=HARD, HOST="db1,db2", PORT="5433,5434", OPTIONS={
            "sslmode": "verify-full", "options": "-c search_path=tenant,public", "isolation_level": 3,
            "prepare_threshold": 5, "server_side_binding": True,
        })  # fmt: skip
        found = libpq(made)
        self.assertEqual(
            found,
            {
                "dbname": "a/b", "user": "r@o", "password": HARD, "host": "db1,db2", "port": "5433,5434",
                "sslmode": "verify-full", "options": "-c search_path=tenant,public", "client_encoding": "UTF8",
            },
        )  # fmt: skip

    def test_a_socket_and_a_service(self) -> None:
        found = libpq(url("postgresql", NAME="app", HOST="/run/post gresql"))
        self.assertEqual((found["host"], found["dbname"]), ("/run/post gresql", "app"))
        served = libpq(url("postgresql", NAME="", OPTIONS={"service": "app"}))
        self.assertEqual(served, {"service": "app", "client_encoding": "UTF8"})

    def test_an_assumed_role_is_assumed_by_the_batches_too(self) -> None:
        made = url("postgresql", NAME="app", OPTIONS={"assume_role": 'ow"n er\\', "options": "-c search_path=a"})
        found = libpq(made)
        self.assertEqual(found["options"], '-c search_path=a -c role=ow"n\\ er\\\\')


class OtherTests(SimpleTestCase):
    def test_a_database_that_roost_does_not_speak_to(self) -> None:
        with self.assertRaisesMessage(roost.Invalid, "'default' is"):
            url("dummy")
