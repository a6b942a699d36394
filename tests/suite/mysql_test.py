"""MySQL (F101), on which the whole suite runs as well: how it is told from MariaDB, accounts, its limit for queries."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import make_dataclass
from decimal import Decimal
from typing import Annotated, Any
from urllib.parse import urlsplit

import asyncmy
import pymysql
import pytest

import roost
from roost.databases.mariadb.address import arguments
from roost.databases.mariadb.statements import own
from roost.dialects import MYSQL
from tests import servers
from tests.campaigns.processes import PATIENCE, until
from tests.suite import clients
from tests.suite.shapes import Visit, pageviews, visits


@pytest.fixture
def url() -> Iterator[str]:
    with servers.own_database("mysql") as made:
        yield made


@pytest.fixture
def of_mariadb() -> Iterator[str]:
    with servers.own_database("mariadb") as made:
        yield made


def used(store: roost.Store) -> None:
    store.create(pageviews, visits)
    store.run_all(pageviews.add("/"), visits.push(Visit(1, 1)))
    assert store.run(pageviews.total("/")) == 1


@pytest.mark.parametrize("option", ["", "?dialect=mysql", "?dialect=mysql8"])
def test_a_url_need_not_say_that_the_server_is_mysql(url: str, option: str) -> None:
    with roost.Store(url + option) as store:
        used(store)
        assert "utf8mb4_0900_bin" in "".join(store.ddl(pageviews))
        assert store.alter(roost.Ring("visits", Visit, per="uid", keep=3))
        assert next(each.found for each in store.doctor() if each.subject == "version").startswith("MySQL ")
        assert store.check() == []


def test_a_type_that_it_does_not_have_leaves_nothing_behind(url: str) -> None:
    row = make_dataclass("Row", [("uid", int), ("part", Annotated[Decimal, roost.decimal(38, 38)])])
    exact: Any = roost.Ring("exact", row, per="uid", keep=2)
    with roost.Store(url) as store:
        with pytest.raises(roost.StatementFailed, match="Maximum is 30"):  # digits behind the point
            store.create(exact)
        assert store.check() == []


def test_a_server_that_is_not_what_the_url_says_is_refused(url: str, of_mariadb: str) -> None:
    for asked, wrong in ((f"{url}?dialect=mariadb", "is a MySQL"), (f"{of_mariadb}?dialect=mysql", "is a MariaDB")):
        with roost.Store(asked) as store, pytest.raises(roost.Invalid, match=wrong):
            store.create(pageviews)
    host = urlsplit(url).netloc.rpartition("@")[2]
    both = url.replace(host, f"{host},{host}")
    with roost.Store(f"{both}?reads=replica") as store, pytest.raises(roost.Invalid, match="MariaDB and PostgreSQL"):
        store.create(pageviews)


def test_what_was_not_connected_yet_hears_it_from_the_applications_connection(url: str, of_mariadb: str) -> None:
    for each in (url, of_mariadb):
        with roost.Store(each) as store:
            used(store)
        with roost.Store(each) as store, contextlib.closing(pymysql.connect(**arguments(each)[0])) as connection:
            store.on(connection).run(pageviews.add("/"))
            connection.commit()
            assert store.run(pageviews.total("/")) == 2

        async def awaited(each: str = each) -> None:
            async with roost.AsyncStore(each) as store:
                connection: Any = await asyncmy.connect(**arguments(each)[0])
                await store.on(connection).run(pageviews.add("/"))
                await connection.commit()
                await connection.ensure_closed()
                assert await store.run(pageviews.total("/")) == 3

        asyncio.run(awaited())


def test_a_token_may_be_the_first_thing_that_a_store_does(url: str) -> None:
    with roost.Store(url) as store:
        used(store)
    with roost.Store(url) as store:
        assert store.run(pageviews.increment("/"), once="a") == store.run(pageviews.increment("/"), once="a") == 2


def test_a_query_has_a_limit(url: str) -> None:
    sql = clients.connect(url)
    sql.execute(f"SET SESSION {own(MYSQL.name, 0.05)}")
    many = ", ".join([f"information_schema.collations c{n}" for n in range(5)])
    with contextlib.closing(sql), pytest.raises(pymysql.err.OperationalError, match="3024"):
        sql.execute(f"SELECT count(*) FROM {many} WHERE c0.id + c4.id > 3")


def test_accounts_with_passwords_log_in_by_tls_by_a_socket_and_by_rsa() -> None:
    """caching_sha2_password sends the password the first time; RSA takes the package cryptography."""
    daemon = servers.mysql_daemon(tls=True)
    with daemon:
        server = servers.mariadb_server(daemon.url)
        made = server.database("secret")
        for way in ("ssl_mode=REQUIRED", f"unix_socket={daemon.folder}/mysqld.sock", "ssl_mode=DISABLED"):
            server.run("DROP USER IF EXISTS ada")
            server.run("CREATE USER ada IDENTIFIED BY 'pass'")  # the server forgets that it has seen the password
            server.run("GRANT ALL ON secret.* TO ada")
            asked = made.replace("root@", "ada:pass@")
            with roost.Store(f"{asked}?{way}") as store:
                store.create(pageviews)
                store.run(pageviews.add("/"))
        with roost.Store(made) as store:
            assert store.run(pageviews.total("/")) == 3


def test_a_server_in_offline_mode_is_waited_for() -> None:
    with servers.killable("mysql") as (_, server, url):
        name = urlsplit(url).path[1:]
        server.run(f"CREATE USER {name}@'127.0.0.1'")
        server.run(f"GRANT ALL ON {name}.* TO {name}@'127.0.0.1'")
        with roost.Store(url.replace("root@", f"{name}@"), timeout=PATIENCE) as store, ThreadPoolExecutor(1) as pool:
            store.create(pageviews)
            store.run(pageviews.add("/"))
            server.run("SET GLOBAL offline_mode = ON")  # and every session of who may not stay is ended
            try:
                added = pool.submit(store.run, pageviews.add("/"))
                until(lambda: store.stats().outages or added.done(), "the outage")
            finally:
                server.run("SET GLOBAL offline_mode = OFF")
            added.result()
            assert store.run(pageviews.total("/")) == 2
        server.run(f"DROP USER {name}@'127.0.0.1'")
