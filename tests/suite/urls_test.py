"""A store takes the URLs that people have already, such as SQLAlchemy's, and says of others what it takes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
import sqlalchemy as sa

import roost
from roost.databases import open_engine
from tests import servers
from tests.suite.shapes import pageviews

hits = roost.Counter("hits")

SQLITE = ("sqlite", "sqlite+pysqlite", "sqlite+aiosqlite")
MARIADB = ("mysql", "mariadb", "mysql+pymysql", "mysql+asyncmy", "mariadb+pymysql", "mariadb+mariadbconnector")
POSTGRESQL = ("postgresql", "postgres", "postgresql+psycopg", "postgresql+asyncpg", "postgresql+psycopg2")


def counts(url: str) -> None:
    with roost.Store(url) as store:
        store.create(hits)
        store.run(hits.add("/"))
        assert store.run(hits.total("/")) == 1
        store.run(hits.forget("/"))


@pytest.mark.parametrize("scheme", SQLITE)
def test_f62_a_file_by_every_driver_that_sqlalchemy_has(tmp_path: Path, scheme: str) -> None:
    counts(f"{scheme}:///{tmp_path}/app.db?synchronous=off")
    assert (tmp_path / "app.db").exists()
    counts(f"{scheme}://")
    counts(f"{scheme}:///:memory:")


def test_a_relative_file_stays_the_same_where_the_process_changes_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with roost.Store("sqlite:///app.db?synchronous=off") as store:
        store.create(hits)
        store.run(hits.add("/"))
        monkeypatch.chdir("/")
        assert store.run(hits.total("/")) == 1  # on another connection than the write


def test_f62_a_server_by_every_driver_that_sqlalchemy_has(server_url: str) -> None:
    scheme, _, rest = server_url.partition("://")
    for each in POSTGRESQL if scheme == "postgresql" else MARIADB:
        counts(f"{each}://{rest}")


@pytest.mark.parametrize("name", ["mariadb", "mysql"])
def test_a_password_is_sent_in_utf_8(name: str) -> None:
    with servers.own_database(name) as url:
        parts, password = urlsplit(url), "żółw é"
        with servers.mariadb_connection(url.rpartition("/")[0]) as connection:
            connection.cursor().execute("CREATE USER ada@'127.0.0.1' IDENTIFIED BY %s", (password,))
            connection.cursor().execute(f"GRANT ALL ON {parts.path[1:]}.* TO ada@'127.0.0.1'")
        try:
            theirs = f"mysql://ada:{quote(password)}@{parts.hostname}:{parts.port}{parts.path}"
            counts(theirs)

            async def asked() -> object:
                async with roost.AsyncStore(theirs) as store:
                    return await store.run(hits.total("/"))

            assert asyncio.run(asked()) == 0
        finally:
            with servers.mariadb_connection(url.rpartition("/")[0]) as connection:
                connection.cursor().execute("DROP USER ada@'127.0.0.1'")


def test_f62_a_url_as_sqlalchemy_writes_it(server_url: str) -> None:
    driver, option = (
        ("postgresql+asyncpg", {"ssl": "disable"})
        if server_url.startswith("post")
        else ("mysql+asyncmy", {"charset": "utf8mb4"})
    )
    url = sa.make_url(server_url).set(drivername=driver).update_query_dict(option)
    counts(url.render_as_string(hide_password=False))


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("mysql://ada:p@ss@h1:3307,h2/app", "mysql://h1:3307,h2/app"),
        ("mariadb+pymysql://h1,h2:3307/app", "mysql://h1,h2:3307/app"),
        ("postgresql://ada:p@ss@h1:5433,h2/app", "postgresql://h1:5433,h2/app"),
        ("postgresql:///app?host=h1,h2", "postgresql://h1,h2/app"),
    ],
)
def test_f74_several_hosts_are_taken_and_told(url: str, place: str) -> None:
    assert open_engine(url, timeout=1, trace=None, random=random.Random(1)).place == place
    with roost.Store(url) as store:
        assert "p@ss" not in repr(store)


@pytest.mark.parametrize("kind", [roost.Store, roost.AsyncStore])
@pytest.mark.parametrize("url", ["mssql+pyodbc://sa:secret@host/db", "redis://:secret@host", "oracle://sa:secret@host"])
def test_f62_of_an_unknown_scheme_every_known_one_is_told_and_no_password(kind: Callable[..., Any], url: str) -> None:
    with pytest.raises(roost.Invalid) as caught:
        kind(url)
    found = str(caught.value)
    assert found.startswith(f"'{url.partition(':')[0]}://")
    assert "is not a store; a store takes the URL of a database: " in found
    assert [
        each for each in ("sqlite://", "mysql://", "mariadb://", "postgresql://", "memcached://") if each not in found
    ] == []
    assert "secret" not in found


@pytest.mark.parametrize("url", ["app.db", "", None, 7, Path("app.db")], ids=repr)
def test_f62_what_is_no_url_is_told_so(url: Any) -> None:
    with pytest.raises(roost.Invalid, match=r"takes the URL of a database: sqlite:///relative\.db.*postgresql://"):
        roost.Store(url)


WRONG = {
    "memcached://": "|host:x|host:0|a,,b|a,a:11211|user:password@host|host/database|host?x=1",
    "sqlite:": "|//app.db|///app.db?sync=full|///app.db?synchronous=maybe|///app.db?x",
    "mysql://": "root@localhost",
    "postgresql://": "localhost:port/db",
}


@pytest.mark.parametrize("url", [scheme + rest for scheme in WRONG for rest in WRONG[scheme].split("|")])
def test_a_url_that_means_nothing_is_refused_when_the_store_is_made(url: str) -> None:
    with pytest.raises(roost.Invalid):
        roost.Store(url)


@pytest.mark.parametrize("scheme", ["mysql", "postgresql"])
@pytest.mark.parametrize("password", ["p@s/w0rd", "p@s#w0rd", "p@3306/w0rd"])
def test_f20_a_password_that_ends_too_early_is_refused_and_not_shown(scheme: str, password: str) -> None:
    with pytest.raises(roost.Invalid, match=r"an @ follows the host. In a password, write %2F for /") as caught:
        roost.Store(f"{scheme}://ada:{password}@127.0.0.1:1/app").structures()
    assert "w0rd" not in str(caught.value)
    assert f"'{scheme}://ada:***@127.0.0.1:1/app'" in str(caught.value)


def test_f62_an_unknown_driver_of_sqlite_is_refused() -> None:
    with pytest.raises(roost.Invalid, match=r"is not the URL of a SQLite file: sqlite:///relative\.db"):
        roost.Store("sqlite+pysqlcipher:///app.db")


@pytest.mark.parametrize("kind", [roost.Store, roost.AsyncStore])
def test_f65_each_kind_of_connection_is_told_once(kind: Callable[..., Any]) -> None:
    with pytest.raises(roost.Invalid) as caught:
        kind("sqlite://").on(object())
    kinds = str(caught.value).partition(" takes ")[2].partition("; not a")[0].split(", ")
    assert len(kinds) == len(set(kinds)) > 3
    assert ("an asyncpg connection" in kinds) == (kind is roost.AsyncStore)


@pytest.mark.parametrize("option", ["ssl_ca", "ssl_cert"])
def test_a_certificate_that_cannot_be_read_is_refused(tmp_path: Path, option: str) -> None:
    with pytest.raises(roost.Invalid, match=r"mysql://h/app: .* cannot be read: .*No such file"):
        roost.Store(f"mysql://h/app?{option}={tmp_path}/nowhere.pem").structures()


@pytest.mark.needs("pymysql")
def test_a_url_of_mariadb_says_what_each_session_begins_with(
    open_store: Callable[..., roost.Store], store_url: str
) -> None:
    open_store(pageviews)
    with roost.Store(f"{store_url}?init_command=SET+@tenant%3D7") as store:
        store.run(pageviews.add("/"))
        store.run(pageviews.total("/"))
        for link in (store._core._writer, store._core._readers[0]):
            connection: Any = link.connection
            assert connection.raw.results("SELECT @tenant") == [[(7,)]]


@pytest.mark.needs("pymysql")
@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("SET NAMES latin1", "must not change the character set or the database"),
        ("USE mysql", "must not change the character set or the database"),
        ("SET @@nothing = 1", "init_command: Unknown system variable"),
    ],
)
def test_a_command_that_changes_what_is_stored_or_where_is_refused(store_url: str, command: str, why: str) -> None:
    with (
        roost.Store(f"{store_url}?init_command={quote(command)}") as store,
        pytest.raises(roost.Invalid, match=why),
    ):
        store.create(pageviews)


@pytest.mark.needs("pymysql")
@pytest.mark.parametrize(
    "how", ["IDENTIFIED BY 'x' ACCOUNT LOCK", "IDENTIFIED VIA unix_socket", "IDENTIFIED BY 'x' PASSWORD EXPIRE"]
)
def test_an_account_that_the_server_does_not_let_in_is_told_what_the_server_says(store_url: str, how: str) -> None:
    parts = urlsplit(store_url)
    connection = servers.mariadb_connection(f"mysql://root@{parts.hostname}:{parts.port}")
    with connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE OR REPLACE USER kept_out@'%' {how}")
        cursor.execute("GRANT ALL ON *.* TO kept_out@'%'")
    url = parts._replace(netloc=f"kept_out:x@{parts.hostname}:{parts.port}").geturl()
    with roost.Store(url) as store, pytest.raises(roost.CannotOpen) as caught:
        store.create(pageviews)
    assert "init_command" not in str(caught.value)
    dead = servers.free_port()
    both = parts._replace(netloc=f"kept_out:x@127.0.0.1:{dead},{parts.hostname}:{parts.port}").geturl()
    each = rf"127\.0\.0\.1:{dead}: .*\(2003\); {parts.hostname}:{parts.port}: .*\((4151|1698|1820)\)"
    with roost.Store(both) as store, pytest.raises(roost.CannotOpen, match=each):
        store.create(pageviews)
