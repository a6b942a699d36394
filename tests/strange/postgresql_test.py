"""PostgreSQL whose settings are not the defaults: everything works just the same, or an `Invalid` names the setting.

`make test` has those that once changed data, and one of each kind; with `ROOST_TEST_STRANGE=all` there are all, on
every server.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count
from typing import NamedTuple

import psycopg
import pytest

import roost
from tests import npm, servers
from tests.strange.postgresql import play_everything

WHOLE = os.environ.get("ROOST_TEST_STRANGE") == "all"
SERVERS: dict[str, Callable[[], servers.Server]] = {"15": servers.postgresql, "18": servers.postgresql18}
_numbers = count()

DATABASE, ROLE, OPTIONS, ENVIRONMENT, ENCODING = "database", "role", "PGOPTIONS", "environment", "encoding"


class Strange(NamedTuple):
    """A setting, where it is made, and what the refusal names, where it is one."""

    where: str
    name: str
    value: str
    refused: str = ""
    brief: bool = False  # whether it is in the short form

    def __str__(self) -> str:
        return f"{self.where}-{self.name}={self.value}"


NORMAL = Strange(DATABASE, "application_name", "normal")
ALL = [
    Strange(DATABASE, "array_nulls", "off", brief=True),
    Strange(DATABASE, "standard_conforming_strings", "off", brief=True),
    Strange(ROLE, "extra_float_digits", "0", brief=True),
    Strange(DATABASE, "extra_float_digits", "-15"),
    Strange(OPTIONS, "datestyle", "German", brief=True),
    Strange(DATABASE, "datestyle", "SQL, DMY"),
    Strange(ROLE, "datestyle", "Postgres, MDY"),
    Strange(ENVIRONMENT, "PGCLIENTENCODING", "LATIN1", brief=True),
    Strange(DATABASE, "client_encoding", "LATIN1"),
    Strange(ROLE, "client_encoding", "SQL_ASCII"),
    Strange(ENCODING, "server_encoding", "LATIN1", brief=True),
    Strange(ENCODING, "server_encoding", "SQL_ASCII", refused="server_encoding is SQL_ASCII", brief=True),
    Strange(DATABASE, "intervalstyle", "iso_8601"),
    Strange(ROLE, "bytea_output", "escape"),
    Strange(DATABASE, "timezone", "America/New_York"),
    Strange(OPTIONS, "timezone", "Asia/Kathmandu"),
    Strange(DATABASE, "default_transaction_isolation", "serializable"),
    Strange(ROLE, "default_transaction_isolation", "repeatable read"),
    Strange(DATABASE, "default_transaction_deferrable", "on"),
    Strange(DATABASE, "statement_timeout", "30s"),
    Strange(DATABASE, "idle_in_transaction_session_timeout", "30s"),
    Strange(DATABASE, "search_path", "tenant"),
    Strange(DATABASE, "search_path", "nowhere", refused="no schema in search_path exists"),
    Strange(DATABASE, "row_security", "off"),
    Strange(DATABASE, "backslash_quote", "off"),
    Strange(DATABASE, "transform_null_equals", "on"),
    Strange(DATABASE, "plan_cache_mode", "force_generic_plan"),
    Strange(ROLE, "plan_cache_mode", "force_custom_plan"),
    Strange(DATABASE, "quote_all_identifiers", "on"),
    Strange(DATABASE, "lc_messages", "C"),
]
CASES = [
    pytest.param(server, strange, id=f"{server}-{strange}")
    for server in SERVERS
    for strange in [NORMAL, *ALL]
    if WHOLE or (strange.brief and server == "15") or (server == "18" and strange is ALL[0])
]


def made(server: str, strange: Strange, monkeypatch: pytest.MonkeyPatch) -> str:
    """Make a database with a setting, and return its URL."""
    try:
        found = SERVERS[server]()
    except servers.NotHere as error:
        servers.not_run(error)
    name = f"strange{next(_numbers)}"
    if strange.where == ENCODING:
        monkeypatch.setenv(
            "PGCLIENTENCODING", "UTF8"
        )  # for the application's sessions, which would have the database's
        url = found.database(name, f"TEMPLATE template0 ENCODING '{strange.value}' LC_COLLATE 'C' LC_CTYPE 'C'")
    else:
        url = found.database(name)
    name = url.rpartition("/")[2]
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA tenant")
    value = strange.value if "," in strange.value else f"'{strange.value}'"
    match strange.where:
        case "database":
            found.run(f"ALTER DATABASE {name} SET {strange.name} = {value}")
        case "role":
            found.run(f"ALTER ROLE CURRENT_USER IN DATABASE {name} SET {strange.name} = {value}")
        case "PGOPTIONS":
            monkeypatch.setenv("PGOPTIONS", f"-c {strange.name}={strange.value}")
        case "environment":
            monkeypatch.setenv(strange.name, strange.value)
    return url


def test_everything_works_on_the_oldest_version_that_is_promised(request: pytest.FixtureRequest) -> None:
    try:
        daemon = servers.postgresql_daemon(programs=npm.postgresql13(request.config))
    except servers.NotHere as error:
        servers.not_run(error)
    with daemon:
        with psycopg.connect(f"{daemon.url}/postgres", autocommit=True) as connection:
            assert connection.info.server_version // 10000 == 13
            connection.execute("CREATE DATABASE oldest")
        url = f"{daemon.url}/oldest"
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE SCHEMA tenant")
        play_everything(url, "utf8", WHOLE, False)


@pytest.mark.parametrize(("server", "strange"), CASES)
def test_f2_everything_works_whatever_is_set(server: str, strange: Strange, monkeypatch: pytest.MonkeyPatch) -> None:
    url = made(server, strange, monkeypatch)
    if strange.refused:
        with roost.Store(url) as store, pytest.raises(roost.Invalid, match=strange.refused):
            store.create(roost.Counter("pageviews"))
        return
    encoding = "latin1" if "LATIN1" in strange.value and not strange.name.startswith("PG") else "utf8"
    joined = strange.name not in ("client_encoding", "PGCLIENTENCODING")  # such sessions are refused
    django = WHOLE or strange in ALL[:2] or strange.name == "datestyle"
    if strange.name == "quote_all_identifiers":  # Django's check would compare what the server writes of the views
        django = False
    play_everything(url, encoding, WHOLE, django, joined=joined)


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_f2_a_session_of_the_applications_that_cannot_carry_every_text_is_refused(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = made("15", NORMAL, monkeypatch)
    pageviews = roost.Counter("pageviews")
    with roost.Store(url) as store, psycopg.connect(url, client_encoding=encoding) as connection:
        store.create(pageviews)
        with pytest.raises(roost.Invalid, match=f"client_encoding is {encoding}"):
            store.on(connection).run(pageviews.add("é"))
        assert store.run(pageviews.keys()) == []


def test_f2_a_sql_ascii_database_is_refused_on_a_session_of_the_applications(monkeypatch: pytest.MonkeyPatch) -> None:
    url = made("15", Strange(ENCODING, "server_encoding", "SQL_ASCII"), monkeypatch)
    with (
        roost.Store(url) as store,
        psycopg.connect(url, client_encoding="UTF8") as connection,
        pytest.raises(roost.Invalid, match="server_encoding is SQL_ASCII"),
    ):
        store.on(connection).run(roost.Counter("pageviews").add("é"))


def test_f2_what_a_latin1_database_has_no_character_for_is_refused_to_its_caller_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = made("15", Strange(ENCODING, "server_encoding", "LATIN1"), monkeypatch)
    pageviews = roost.Counter("pageviews")
    with roost.Store(url) as store, psycopg.connect(url, client_encoding="UTF8") as connection:
        store.create(pageviews)
        for run in (store.run, store.on(connection).run):
            run(pageviews.add("é"))
            with pytest.raises(roost.Invalid, match="LATIN1") as refused:
                run(pageviews.add("😀"))
            assert "INSERT" not in str(refused.value)
            with pytest.raises(roost.Invalid, match="LATIN1"):
                run(pageviews.total("😀"))
            assert run(pageviews.total("é")) >= 1
        connection.commit()
        assert store.run_all(pageviews.keys(), pageviews.total("é")) == (["é"], 2)


def test_f2_where_transactions_only_read_by_default_writers_are_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    url = made("15", NORMAL, monkeypatch)
    pageviews = roost.Counter("pageviews")
    with roost.Store(url) as store:
        store.create(pageviews)
        store.run(pageviews.add("/"))
    monkeypatch.setenv("PGOPTIONS", "-c default_transaction_read_only=on")
    with roost.Store(url) as store:
        assert store.run(pageviews.total("/")) == 1
        with pytest.raises(roost.ReadOnly, match="default_transaction_read_only"):
            store.run(pageviews.add("/"))
