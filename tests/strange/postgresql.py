"""Everything on PostgreSQL, in every way, against a model: for databases whose settings are not the defaults."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Mapping
from decimal import Decimal
from enum import Enum
from typing import Any
from urllib.parse import urlsplit

import psycopg

import roost
from roost.store import bursts
from tests.model.model import Model
from tests.strange import behaviour
from tests.suite.conftest import InAsyncio
from tests.suite.ways import WAYS, App

VALUES = behaviour.VALUES
PRICES = [Decimal("0E-10"), Decimal("-1234567890123456789012345678.0123456789"), Decimal("0.0000000001")]
BY_TYPE = {"moment": "moment", "day": "day", "blob": "b", "ratio": "f"}
NO_OPTIONS: Mapping[str, Any] = {}
BRIEF = ("psycopg", "psycopg-async", "sqlalchemy-session-psycopg")


class Client:
    """A client that knows nothing of Roost, and has the session as it comes."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def read(self, sql: str, *values: Any) -> list[Any]:
        """Run a statement, and return its rows."""
        cursor = self._connection.execute(sql, [each.value if isinstance(each, Enum) else each for each in values])
        return cursor.fetchall() if cursor.description else []

    def insert(self, name: str, row: dict[str, Any]) -> None:
        """Insert a row through the view of a structure."""
        self.read(f"INSERT INTO {name} ({', '.join(row)}) VALUES ({', '.join(['%s'] * len(row))})", *row.values())

    def remove(self, name: str, row: dict[str, Any]) -> None:
        """Remove one through the view."""
        self.read(f"DELETE FROM {name} WHERE {' AND '.join([f'{each} = %s' for each in row])}", *row.values())

    def count(self, name: str) -> int:
        """Return how many rows the view shows."""
        found: int = self.read(f"SELECT count(*) FROM {name}")[0][0]
        return found


def play_everything(
    url: str, encoding: str, whole: bool, django: bool, options: Mapping[str, Any] = NO_OPTIONS, joined: bool = True
) -> None:
    """Create, and play in every way on the same tables; then cap a table of the application's, alter, and check.

    options: of the application's own connections; joined: whether they can carry every text.
    """
    model, chance = Model(), random.Random(behaviour.SEED)
    chooser = behaviour.Chooser(chance, nul=False, encoding=encoding)
    with roost.Store(url) as store:
        store.create(*behaviour.ALL)
        if django:
            play_by_django(url)
            behaviour.emptied(store)
        behaviour.play(store.run_all, model, chooser, chance, "Store")
        awaited = InAsyncio(url, (), {})
        behaviour.play(awaited.run_all, model, chooser, chance, "AsyncStore")
        awaited.close()
        for way in WAYS:
            if joined and way.engine == "postgresql" and (whole or way.name in BRIEF):
                app = App(way, url, **options)
                behaviour.play(app.run_all, model, chooser, chance, way.name)
                app.commit()
                app.close()
        with psycopg.connect(url, client_encoding="UTF8", autocommit=True, **options) as connection:
            client = Client(connection)
            behaviour.play_by_sql(client, psycopg.Error, model, chooser, "views")
            behaviour.capped_table(url, client.read, "posts", "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY")
        behaviour.compare(store.run_all, model, "after the views")
        behaviour.altered(store, chooser)
        play_cap(store, url, chooser.texts, options)
        assert store.check() == []


def play_by_django(url: str) -> None:
    """Play on Django's connection, which writes values into the text, and on one that binds them."""
    parts = urlsplit(url)
    database = {
        "ENGINE": "django.db.backends.postgresql", "NAME": parts.path[1:], "HOST": parts.hostname, "PORT": parts.port,
        "USER": parts.username, "PASSWORD": parts.password or "",
    }  # fmt: skip
    behaviour.play_by_django({"default": database, "bound": {**database, "OPTIONS": {"server_side_binding": True}}})


def play_cap(store: roost.Store, url: str, texts: list[str], options: Mapping[str, Any]) -> None:
    """Cap a table of the application's, and write it by Roost and by SQL."""
    made = (
        "CREATE TABLE pages (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, uid text, moment timestamptz,"
        " local timestamp, day date, took interval, blob bytea, price numeric, ratio float8, note text)"
    )
    with psycopg.connect(url, autocommit=True, client_encoding="UTF8", **options) as connection:
        connection.execute(made)
        connection.execute("CREATE INDEX ON pages (uid, id)")
        list(bursts.cap(store, bursts.inspect(store, "pages", ["uid"], 2, None)))
        pages = roost.Capped.of("pages")
        facts: dict[str, Any] = {}
        for number, text in enumerate(texts * 2):
            facts = {
                **{name: VALUES[value][number % 3] for name, value in BY_TYPE.items()},
                "local": dt.datetime(2026, 2, 1, 3, 4, 5, 6),
                "price": PRICES[number % 3],
                "note": text,
            }
            store.run(pages.add(uid=texts[0], **facts))
            connection.execute("INSERT INTO pages (uid, took) VALUES (%s, '1 day 02:03:04.5')", (text,))
        assert connection.execute("SELECT max(n) FROM (SELECT count(*) n FROM pages GROUP BY uid) c").fetchone() == (2,)
        with psycopg.connect(url, client_encoding="UTF8", **options) as other:
            for run in (store.run, store.on(other).run):
                (row,) = run(pages.latest(texts[0], 1))
                assert {name: getattr(row, name) for name in facts} == facts
                (row,) = run(pages.latest(texts[-1], 1))
                assert row.took == dt.timedelta(days=1, hours=2, minutes=3, seconds=4.5)
                assert run(pages.keys()) == sorted(texts)
