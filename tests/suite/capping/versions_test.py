"""Tables of the application's own, capped on the oldest and the newest PostgreSQL that is promised."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import psycopg
import pytest

import roost
from roost.store import bursts
from tests import npm, servers
from tests.suite.application import Application

_numbers = count()
KEYS = {
    "uid bigint": "5",
    "a text, b varchar(9), n numeric, d date, m mood, s short": "'ä', 'b', 1.50, '2008-01-01', 'glad', 's'",
    "u uuid, f bool, t timestamptz, b bytea": f"'{'0' * 32}', true, '2008-01-01 00:00:00+00', 'x'",
}


@pytest.fixture(params=["13", "18"])
def application(request: pytest.FixtureRequest) -> Iterator[Application]:
    """An application with a database of its own."""
    server = npm.postgresql13_server(request.config).url if request.param == "13" else servers.postgresql18().url
    name = f"versions_{next(_numbers)}"
    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        assert str(connection.info.server_version // 10000) == request.param
        made = Application(f"{server}/{name}")
        yield made
        made.close()
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_f111_a_capped_table_takes_rows(application: Application) -> None:
    keys = {**KEYS}
    application("CREATE TYPE mood AS ENUM ('sad', 'glad')")
    application("CREATE DOMAIN short AS varchar(9)")
    if application("SELECT 1 FROM pg_available_extensions WHERE name = 'citext'"):  # not every PostgreSQL has it
        application("CREATE EXTENSION citext")
        keys["c citext"] = "'C'"
    with roost.Store(application.url) as store:
        for key, values in keys.items():
            application(f"CREATE TABLE visits (id {{id}}, {key})")
            names = ", ".join(each.split()[0] for each in key.split(", "))
            found = bursts.inspect(store, "visits", names.split(", "), 2, None)
            assert list(bursts.cap(store, found)) == []
            for _ in range(3):
                application(f"INSERT INTO visits ({names}) VALUES ({values}), ({values})")
            assert application("SELECT id FROM visits ORDER BY 1") == [(5,), (6,)], key
            application(f"INSERT INTO visits ({names}) SELECT {', '.join(['NULL'] * len(names.split(', ')))}")
            application(f"UPDATE visits SET ({names}) = ROW({values})")
            assert application("SELECT id FROM visits ORDER BY 1") == [(6,), (7,)], key
            visits = roost.Capped.of("visits")
            (row,) = store.run(visits.keys())
            assert [each.id for each in store.run(visits.latest(row))] == [7, 6], key
            assert store.check() == []
            bursts.uncap(store, "visits")
            application("DROP TABLE visits")


def test_f111_old_rows_go(application: Application) -> None:
    application("CREATE TABLE events (id {id}, at timestamptz, ms bigint)")
    with roost.Store(application.url) as store:
        assert list(bursts.cap(store, bursts.inspect(store, "events", by="at", older_than=3600))) == []
        for _ in range(3):
            application("INSERT INTO events (at) VALUES (now() - interval '1 day'), (now())")
        assert application("SELECT id FROM events ORDER BY 1") == [(2,), (4,), (6,)]
        assert store.check() == []


def test_a_key_s_enum_that_was_renamed_is_capped_again(application: Application) -> None:
    application("CREATE TYPE mood AS ENUM ('sad', 'glad')")
    application("CREATE TABLE visits (id {id}, m mood)")
    with roost.Store(application.url) as store:
        list(bursts.cap(store, bursts.inspect(store, "visits", ["m"], 2, None)))
        application("ALTER TYPE mood RENAME TO humour")
        with pytest.raises(psycopg.errors.UndefinedObject):
            application("INSERT INTO visits (m) VALUES ('sad')")
        assert {each.rule for each in store.check()} == {"triggers"}
        list(bursts.cap(store, bursts.inspect(store, "visits", [], None, None)))
        application("INSERT INTO visits (m) VALUES ('sad'), ('sad'), ('sad')")
        assert application("SELECT count(*) FROM visits") == [(2,)]
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            application("ALTER TABLE visits ALTER m TYPE text")
        bursts.uncap(store, "visits")
        application("ALTER TABLE visits ALTER m TYPE text")
