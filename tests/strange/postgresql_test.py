"""PostgreSQL whose settings are not the defaults: everything works just the same, or an `Invalid` names the setting.

`make test` plays most of them together, a share of them on each version; with `ROOST_TEST_STRANGE=all` each is played
alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any, NamedTuple

import psycopg
import pytest

import roost
from tests import npm, servers
from tests.strange.postgresql import play_everything
from tests.suite.clients import WAITS
from tests.suite.shapes import Seen

WHOLE = os.environ.get("ROOST_TEST_STRANGE") == "all"
SERVERS: dict[str, Callable[[pytest.Config], servers.Server]] = {
    "13": npm.postgresql13_server,
    "15": lambda _: servers.postgresql(),
    "18": lambda _: servers.postgresql18(),
}
_numbers = count()

DATABASE, ROLE, OPTIONS, ENVIRONMENT, ENCODING = "database", "role", "PGOPTIONS", "environment", "encoding"


class Strange(NamedTuple):
    """A setting, where it is made, and what the refusal names, where it is one."""

    where: str
    name: str
    value: str
    refused: str = ""
    on: str = ""  # the version that has it in the short form, together with others

    def __str__(self) -> str:
        return f"{self.where}-{self.name}={self.value}"


NORMAL = Strange(DATABASE, "application_name", "normal")
ALL = [
    Strange(DATABASE, "array_nulls", "off", on="18"),
    Strange(DATABASE, "standard_conforming_strings", "off", on="18"),
    Strange(ROLE, "extra_float_digits", "0", on="18"),
    Strange(DATABASE, "extra_float_digits", "-15", on="13"),
    Strange(OPTIONS, "datestyle", "German", on="18"),
    Strange(DATABASE, "datestyle", "SQL, DMY", on="15"),
    Strange(ROLE, "datestyle", "Postgres, MDY", on="13"),
    Strange(ENVIRONMENT, "PGCLIENTENCODING", "LATIN1", on="15"),
    Strange(DATABASE, "client_encoding", "LATIN1"),
    Strange(ROLE, "client_encoding", "SQL_ASCII"),
    Strange(ENCODING, "server_encoding", "LATIN1", on="13"),
    Strange(ENCODING, "server_encoding", "SQL_ASCII", refused="server_encoding is SQL_ASCII"),
    Strange(DATABASE, "intervalstyle", "iso_8601", on="18"),
    Strange(ROLE, "bytea_output", "escape", on="18"),
    Strange(DATABASE, "timezone", "America/New_York", on="13"),
    Strange(OPTIONS, "timezone", "Asia/Kathmandu", on="15"),
    Strange(DATABASE, "default_transaction_isolation", "serializable", on="13"),
    Strange(ROLE, "default_transaction_isolation", "repeatable read", on="15"),
    Strange(DATABASE, "default_transaction_deferrable", "on", on="13"),
    Strange(DATABASE, "statement_timeout", "30s"),
    Strange(DATABASE, "idle_in_transaction_session_timeout", "30s"),
    Strange(DATABASE, "search_path", "tenant", on="13"),
    Strange(DATABASE, "search_path", "nowhere", refused="no schema in search_path exists"),
    Strange(DATABASE, "row_security", "off", on="18"),
    Strange(DATABASE, "backslash_quote", "off", on="18"),
    Strange(DATABASE, "transform_null_equals", "on", on="13"),
    Strange(DATABASE, "plan_cache_mode", "force_generic_plan", on="13"),
    Strange(ROLE, "plan_cache_mode", "force_custom_plan", on="15"),
    Strange(DATABASE, "quote_all_identifiers", "on", on="13"),
    Strange(DATABASE, "lc_messages", "C", on="15"),
]
REFUSED = [each for each in ALL if each.refused]
ALONE = [pytest.param(on, [each], id=f"{on}-{each}") for on in SERVERS for each in [NORMAL, *ALL] if not each.refused]
TOGETHER = [pytest.param(on, [each for each in ALL if each.on == on and not each.refused], id=on) for on in SERVERS]


def made(server: str, settings: list[Strange], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """Make a database with settings, and return its URL."""
    found = SERVERS[server](request.config)
    how = ""
    for strange in settings:
        if strange.where == ENCODING:
            # For the application's sessions, which would have the database's.
            monkeypatch.setenv("PGCLIENTENCODING", "UTF8")
            how = f"TEMPLATE template0 ENCODING '{strange.value}' LC_COLLATE 'C' LC_CTYPE 'C'"
    url = found.database(f"strange{next(_numbers)}", how)
    name = url.rpartition("/")[2]
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA tenant")
    for strange in settings:
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


Made = Callable[..., str]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Made:
    """Make databases, by default on the version that the other tests have."""
    return lambda *settings, server="15": made(server, [*settings], monkeypatch, request)


@pytest.mark.parametrize(("server", "settings"), ALONE if WHOLE else TOGETHER)
def test_f2_everything_works_whatever_is_set(server: str, settings: list[Strange], make: Made) -> None:
    url = make(*settings, server=server)
    latin1 = any("LATIN1" in each.value and not each.name.startswith("PG") for each in settings)
    names = {each.name for each in settings}
    joined = not names & {"client_encoding", "PGCLIENTENCODING"}  # such sessions are refused
    # Django works on no older version, and its check would compare what the server writes of the views.
    django = server != "13" and joined and "quote_all_identifiers" not in names
    play_everything(url, "latin1" if latin1 else "utf8", WHOLE, django, joined=joined)


@pytest.mark.parametrize("strange", REFUSED, ids=str)
def test_f2_what_cannot_be_served_is_refused_and_named(strange: Strange, make: Made) -> None:
    with roost.Store(make(strange)) as store, pytest.raises(roost.Invalid, match=strange.refused):
        store.create(roost.Counter("pageviews"))


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_f2_a_session_of_the_applications_that_cannot_carry_every_text_is_refused(encoding: str, make: Made) -> None:
    url = make()
    pageviews = roost.Counter("pageviews")
    with roost.Store(url) as store, psycopg.connect(url, client_encoding=encoding) as connection:
        store.create(pageviews)
        with pytest.raises(roost.Invalid, match=f"client_encoding is {encoding}"):
            store.on(connection).run(pageviews.add("é"))
        assert store.run(pageviews.keys()) == []


def test_f2_a_sql_ascii_database_is_refused_on_a_session_of_the_applications(make: Made) -> None:
    url = make(Strange(ENCODING, "server_encoding", "SQL_ASCII"))
    with (
        roost.Store(url) as store,
        psycopg.connect(url, client_encoding="UTF8") as connection,
        pytest.raises(roost.Invalid, match="server_encoding is SQL_ASCII"),
    ):
        store.on(connection).run(roost.Counter("pageviews").add("é"))


def test_f2_what_a_latin1_database_has_no_character_for_is_refused_to_its_caller_alone(make: Made) -> None:
    url = make(Strange(ENCODING, "server_encoding", "LATIN1"))
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


def test_f2_where_transactions_only_read_by_default_writers_are_told_so(
    make: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = make()
    pageviews = roost.Counter("pageviews")
    with roost.Store(url) as store:
        store.create(pageviews)
        store.run(pageviews.add("/"))
    monkeypatch.setenv("PGOPTIONS", "-c default_transaction_read_only=on")
    with roost.Store(url) as store:
        assert store.run(pageviews.total("/")) == 1
        with pytest.raises(roost.ReadOnly, match="default_transaction_read_only"):
            store.run(pageviews.add("/"))


def test_many_rows_are_locked_in_the_order_of_single_calls_whatever_the_collation(make: Made) -> None:
    # In the database's order, batches of many rows and of few waited for each other: a third of the speed was left.
    url = make(Strange(ENCODING, "locale", "UTF8' LOCALE_PROVIDER icu ICU_LOCALE 'en-US"))
    keys = [f"{letter}{n}" for letter in "aB" for n in range(5)]
    capped = roost.Capped("c", Seen, per="site", keep=5, unique="who", on_duplicate="refresh")
    ring = roost.Ring("r", Seen, per="site", keep=5)
    plain, expiring = roost.Set("s", key=str, member=int), roost.Set("m", key=str, member=int, keep_for=60)
    hits, cache, limit = roost.Counter("n"), roost.Cache("h", value=int), roost.RateLimit("l", limit=9, within=60)
    written: dict[str, list[roost.Operation[Any]]] = {
        "roost_c_head": [capped.add(Seen(key, 1, 1)) for key in keys],
        "roost_r_head": [ring.push(Seen(key, 1, 1)) for key in keys],
        "roost_s_head": [plain.add(key, 1) for key in keys],
        "roost_m_rows": [expiring.add(key, 1) for key in keys],
        "roost_n_rows": [hits.add(key) for key in keys],
        "roost_h_rows": [cache.set(key, 1) for key in keys],
        "roost_l_rows": [limit.take(key) for key in keys],
    }
    blocked = f"SELECT count(*) FROM {WAITS['postgresql']}"
    with (
        roost.Store(url, timeout=60, lock_wait=60) as store,
        psycopg.connect(url, autocommit=True) as looking,
        psycopg.connect(url) as holding,
        ThreadPoolExecutor() as pool,
    ):
        store.create(capped, ring, plain, expiring, hits, cache, limit)
        for table, operations in written.items():
            store.run_all(*operations)
            key = f"FROM {table} WHERE {'site' if table[6] in 'cr' else 'key'} = %s FOR UPDATE"
            assert holding.execute(f"SELECT 1 {key}", ("B0",)).fetchall(), table
            running = pool.submit(store.run_all, *operations)
            while looking.execute(blocked).fetchone() == (0,):
                pass
            assert looking.execute(f"SELECT 1 {key} SKIP LOCKED", ("a0",)).fetchall(), (
                f"{table}: a0 was locked before B0"
            )
            holding.rollback()
            running.result()
