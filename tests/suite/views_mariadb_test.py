"""Views on MariaDB and MySQL: NAME to read, NAME_in and NAME_out to write."""

from __future__ import annotations

from typing import Any

import pytest

import roost
from tests.suite.shapes import Egg, Open, Visit, likes
from tests.suite.views import (
    FILL,
    baskets,
    refreshing,
)

pytestmark = pytest.mark.needs("inlets")


def test_what_a_client_says_the_time_is_removes_nothing(open_store: Open, sql: Any) -> None:
    store = open_store()
    views = roost.Counter("views", window="hour", keep=3)
    online = roost.Set("online", key=str, member=int, keep_for=3600)
    store.create(views, online)
    store.run_all(views.add("/", 5), online.add("room", 1))
    for years in (-5, 5):
        sql.execute(f"SET timestamp = UNIX_TIMESTAMP(SYSDATE()) + {years} * 365 * 86400")
        sql.execute("INSERT INTO views_in (`key`, total) VALUES ('/', 1)")
        for n in range(5):
            sql.execute(f"INSERT INTO online_in (`key`, member) VALUES ('other', {n})")
        sql.execute("BEGIN")
        store.on(sql).run(online.add("joined", years))
        sql.execute("COMMIT")
    assert store.run_all(views.total("/"), online.size("room"), online.size("other")) == (7, 1, 5)
    assert store.run(online.size("joined")) == 2
    sql.execute("SET timestamp = DEFAULT")
    assert sql.execute("SELECT count(*) FROM online").fetchone() == (8,)


def test_duplicates_inside_one_statement(open_store: Open, sql: Any) -> None:
    store = open_store(refreshing, baskets, likes)
    sql.execute("INSERT INTO refreshing_in (uid, visitor) VALUES (5, 1), (5, 2), (5, 1), (5, 1), (6, 1)")
    sql.execute("INSERT INTO likes_in VALUES (7, 'ada'), (7, 'ada'), (7, 'bob')")
    with pytest.raises(sql.IntegrityError, match="baskets: egg is there already"):
        sql.execute("INSERT INTO baskets_in VALUES (1, 1, 'a'), (1, 2, 'b'), (1, 1, 'c')")
    assert store.run_all(refreshing.latest(5), refreshing.count(5), likes.size(7)) == ([Visit(5, 1), Visit(5, 2)], 2, 2)
    assert store.run(baskets.keys()) == []


def test_affected_rows_are_those_given_and_the_last_id_is_the_client_s_own(open_store: Open, sql: Any) -> None:
    open_store(likes)
    sql.execute("CREATE TABLE own (id INT AUTO_INCREMENT PRIMARY KEY)")
    sql.execute("INSERT INTO own VALUES (NULL), (NULL)")
    sql.execute("INSERT INTO own VALUES (NULL)")
    assert sql.execute("INSERT INTO likes_in VALUES (7, 'ada'), (7, 'ada')").rowcount == 2
    assert sql.execute("INSERT INTO likes_out VALUES (7, 'nobody')").rowcount == 1
    assert sql.execute("SELECT LAST_INSERT_ID()").fetchall() == ((3,),)


def test_a_delete_by_anybody_keeps_the_count(open_store: Open, sql: Any) -> None:
    store = open_store(baskets, likes)
    store.run_all(*FILL[10:])
    sql.execute("DELETE FROM roost_baskets_rows WHERE egg = 3")
    sql.execute("DELETE FROM roost_likes_rows WHERE member = 'ada'")
    assert store.run_all(baskets.count(42), likes.size(7), likes.size(8)) == (2, 1, 0)
    store.run_all(likes.add(7, "x", "y"), likes.remove(7, "bob", "x"), likes.remove(8, "ada"))
    store.run_all(baskets.remove(42, 2), *[baskets.add(Egg(42, n)) for n in range(10, 15)])
    assert store.run_all(baskets.count(42), likes.size(7)) == (3, 1)
    store.run_all(baskets.clear(42), likes.clear(7), likes.add(7, "z"), baskets.forget(43))
    assert store.run_all(baskets.count(42), likes.size(7)) == (0, 1)
