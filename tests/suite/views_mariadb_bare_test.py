"""Views on a MariaDB as it comes: no BLACKHOLE, so there are procedures; a binary log, so a trigger needs SUPER."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import count
from typing import Any

import pymysql
import pytest

import roost
from tests import servers
from tests.suite import clients
from tests.suite.shapes import Visit, likes, pageviews, visits
from tests.suite.views import ADDED, FILL, HELD, baskets, both, refreshing, rejecting

_numbers = count()
BLACKHOLE = "INSTALL SONAME 'ha_blackhole'"


@pytest.fixture
def server() -> servers.Server:
    return servers.bare_mariadb()


@pytest.fixture
def url(server: servers.Server) -> str:
    return server.database(f"b{next(_numbers)}")


@pytest.fixture
def sql(url: str) -> Iterator[Any]:
    """What a SQL client has."""
    connection = clients.connect(url)
    yield connection
    connection.close()


@pytest.fixture
def open_store(url: str) -> Iterator[Callable[..., roost.Store]]:
    stores: list[roost.Store] = []

    def open_(*structures: Any) -> roost.Store:
        stores.append(roost.Store(url, random=random.Random(7)))
        stores[-1].create(*structures)
        return stores[-1]

    yield open_
    for store in stores:
        assert store.check() == []
        store.close()


def test_procedures_do_what_the_inlets_do(open_store: Callable[..., roost.Store], sql: Any) -> None:
    store = open_store(pageviews, visits, baskets, likes)
    store.run_all(*FILL)
    assert sql.view_objects()[:3] == ["baskets", "baskets_add", "baskets_remove"]
    for call in ("pageviews_add('/home', 2)", "visits_add(5, 9)", "baskets_add(42, 9, 'red')", "likes_add(7, 'eve')",
                 "likes_add(7, 'eve')"):  # fmt: skip
        sql.execute(f"CALL {call}")
    assert sorted(sql.execute(f"SELECT {HELD['baskets'][0]} FROM baskets").fetchall(), reverse=True) == ADDED
    assert store.run_all(pageviews.total("/home"), visits.latest(5, 1), likes.members(7)) == (
        5, [Visit(5, 9)], {"ada", "bob", "eve"}
    )  # fmt: skip
    for call in ("pageviews_remove('/home')", "visits_remove(5, 8)", "baskets_remove(42, 9)", "likes_remove(7, 'eve')"):
        sql.execute(f"CALL {call}")
    assert store.run_all(pageviews.total("/home"), visits.latest(5, 1), likes.size(7), baskets.count(42)) == (
        0, [Visit(5, 7)], 2, 2
    )  # fmt: skip
    sql.execute("DELETE FROM roost_baskets_rows WHERE egg < 4")
    assert store.run_all(baskets.count(42), baskets.count(43)) == (1, 0)


@pytest.mark.parametrize("autocommit", [0, 1])
def test_a_call_is_all_or_nothing_and_leaves_the_client_s_transaction_open(
    open_store: Callable[..., roost.Store], sql: Any, autocommit: int
) -> None:
    store = open_store(rejecting, refreshing, both)
    sql.execute(f"SET autocommit = {autocommit}")
    if autocommit:
        sql.execute("BEGIN")
    for visitor in (1, 2):
        sql.execute("CALL rejecting_add(5, ?)", (visitor,))
    for refused, message in (
        ("5, 3", "is full"),
        ("5, 1", "is there already"),
        ("NULL, 1", "uid: it takes an integer"),
    ):
        with pytest.raises(sql.Error, match=message):
            sql.execute(f"CALL rejecting_add({refused})")
    assert sql.execute("SELECT @@in_transaction").fetchall() == ((1,),)
    assert store.run(rejecting.count(5)) == 0
    sql.execute("COMMIT")
    assert store.run_all(rejecting.latest(5), rejecting.count(5)) == ([Visit(5, 2), Visit(5, 1)], 2)
    sql.execute("CALL rejecting_remove(5, 1)")
    sql.execute("ROLLBACK")
    assert store.run(rejecting.count(5)) == 2 - autocommit


def test_a_call_that_is_refused_keeps_nothing_of_its_own(open_store: Callable[..., roost.Store], sql: Any) -> None:
    store = open_store(rejecting)
    for visitor in (1, 2, 3):
        with pytest.raises(sql.Error) if visitor == 3 else nullcontext():
            sql.execute("CALL rejecting_add(5, ?)", (visitor,))
    assert sql.execute("SELECT @@in_transaction").fetchall() == ((0,),)
    assert sql.execute("SELECT sequence, n FROM roost_rejecting_head").fetchall() == ((2, 2),)
    assert store.run(rejecting.add(Visit(6, 1))) is None


def test_a_deadlock_ends_the_client_s_transaction_and_is_told(open_store: Callable[..., roost.Store], url: str) -> None:
    open_store(likes)
    one, other = clients.connect(url), clients.connect(url)
    for client, key in ((one, 1), (other, 2)):
        client.execute("BEGIN")
        client.execute("CALL likes_add(?, 'x')", (key,))
    one._execute_command(3, b"CALL likes_add(2, 'y')")  # sent; the answer comes later
    errors = []
    try:
        other.execute("CALL likes_add(1, 'y')")
    except pymysql.Error as error:
        errors.append(error.args[0])
    try:
        one._read_query_result()
    except pymysql.Error as error:
        errors.append(error.args[0])
    assert errors == [1213]
    one.close()
    other.close()


def test_a_view_of_procedures_stays_until_it_is_made_anew(open_store: Callable[..., roost.Store], sql: Any) -> None:
    store = open_store(likes)
    sql.execute(BLACKHOLE)
    try:
        store.create(likes)
        assert "likes_add" in sql.view_objects()
        assert store.check() == []
        assert store.alter(likes, view=True) == []
        assert store.alter(likes, view=False) == ["view dropped"]
        store.create(likes)
        assert sql.view_objects() == [
            "likes",
            "likes_in",
            "likes_out",
            *[f"roost_likes_{each}" for each in ("deleted", "in", "out")],
        ]
        sql.execute("INSERT INTO likes_in VALUES (7, 'ada')")
        assert store.run(likes.size(7)) == 1
    finally:
        sql.execute("DROP TABLE IF EXISTS likes_in, likes_out")
        sql.execute("UNINSTALL SONAME 'ha_blackhole'")
    assert [each.rule for each in store.check()] == ["view"]
    store.create(likes)
    assert "likes_add" in sql.view_objects()


@pytest.mark.parametrize("of", [servers.bare_mariadb, servers.mysql], ids=["mariadb", "mysql"])
def test_a_binary_log_without_trust_is_explained(of: Callable[[], servers.Server]) -> None:
    server, user = of(), f"logged{next(_numbers)}"
    url = server.database(user)
    server.run(f"CREATE USER {user} IDENTIFIED BY 'secret'")
    server.run(f"GRANT ALL ON {user}.* TO {user}")
    server.run("SET GLOBAL log_bin_trust_function_creators = 0")
    with roost.Store(url.replace("root@", f"{user}:secret@")) as store, clients.connect(url) as sql:
        with pytest.raises(roost.StatementFailed, match=r"1419.*SET GLOBAL log_bin_trust_function_creators = 1"):
            store.create(likes)
        assert sql.view_objects() == []
        server.run("SET GLOBAL log_bin_trust_function_creators = 1")
        try:
            store.create(likes)
            store.run(likes.add(7, "ada"))
        finally:
            server.run(f"SET GLOBAL log_bin_trust_function_creators = {int(of is servers.mysql)}")
        assert store.check() == []
    server.run(f"DROP USER {user}")


def test_where_mysql_makes_no_inlet_there_are_procedures() -> None:
    server = servers.mysql()
    url = server.database(f"keys{next(_numbers)}")
    server.run("SET GLOBAL sql_require_primary_key = ON")
    try:
        with roost.Store(url) as store, clients.connect(url) as sql:
            store.create(likes, rejecting)
            assert sql.view_objects()[:3] == ["likes", "likes_add", "likes_remove"]
            sql.execute("CALL likes_add(7, 'ada')")
            sql.execute("CALL rejecting_add(5, 1)")
            sql.execute("BEGIN")
            sql.execute("CALL likes_add(7, 'bob')")
            with pytest.raises(sql.Error, match="is there already"):
                sql.execute("CALL rejecting_add(5, 1)")
            sql.execute("COMMIT")
            sql.execute("CALL likes_remove(7, 'ada')")
            assert store.run_all(likes.members(7), rejecting.count(5)) == ({"bob"}, 1)
            assert store.check() == []
    finally:
        server.run("SET GLOBAL sql_require_primary_key = OFF")


def test_procedures_whose_account_is_gone_are_told_and_made_anew(sql: Any, url: str) -> None:
    user = f"gone{next(_numbers)}"
    sql.execute(f"CREATE USER {user} IDENTIFIED BY 'secret'")
    sql.execute(f"GRANT ALL ON *.* TO {user}")
    with roost.Store(url.replace("root@", f"{user}:secret@")) as theirs:
        theirs.create(likes)
    sql.execute(f"DROP USER {user}")
    with roost.Store(url) as store:
        found = {each.rule: each.detail for each in store.check()}
        assert "likes, likes_add, likes_remove, roost_likes_deleted not as" in found["view"]
        assert "is not as Roost makes it" in found["program"]
        store.alter(likes, view=True)
        assert store.check() == []
        sql.execute("CALL likes_add(7, 'ada')")
        assert store.run(likes.members(7)) == {"ada"}


def test_a_format_that_cannot_hold_it_is_explained(sql: Any, url: str) -> None:
    sql.execute("SET GLOBAL binlog_format = 'STATEMENT'")
    try:
        with roost.Store(url) as store:
            store.create(likes)
            with pytest.raises(roost.StatementFailed, match=r"1665.*set binlog_format=MIXED, the default, or ROW"):
                store.run(likes.add(7, "ada"))
    finally:
        sql.execute("SET GLOBAL binlog_format = 'MIXED'")
