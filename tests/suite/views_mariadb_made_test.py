"""Views on MariaDB come and go: names, rights, what is cut off midway, what is somebody else's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pymysql
import pytest

import roost
from roost.dialects import MARIADB, MYSQL
from roost.structures.making import view_of
from roost.structures.registry import plan_for
from tests.suite import clients
from tests.suite.clients import is_mariadb
from tests.suite.shapes import Egg, Open, Visit, baskets, likes, pageviews, rows, visits

pytestmark = pytest.mark.needs("inlets")


MINE = "CREATE TRIGGER mine AFTER INSERT ON visits_in FOR EACH ROW INSERT INTO log VALUES (NEW.visitor)"
VISITS = ["roost_visits_in", "roost_visits_out", "visits", "visits_in", "visits_out"]
_numbers = count()


def test_what_is_looked_up_opens_no_tables_of_other_databases(open_store: Open, sql: Any) -> None:
    asked: list[tuple[str, Any]] = []
    store = open_store(trace=lambda text, row: asked.append((text, row)))
    store.create(visits, baskets, pageviews, likes)
    assert store.alter(visits, view=False) == ["view dropped"]
    assert store.alter(visits, view=True) == ["view added"]
    assert store.check() == []
    lookups = [(text, row) for text, row in asked if text.startswith("SELECT") and "information_schema" in text]
    assert len(lookups) > 50
    for text, row in lookups:
        explained = sql.cursor()
        explained.execute(f"EXPLAIN {text}", row or None)
        assert not [extra for *_, extra in explained.fetchall() if "Scanned all databases" in str(extra)], text


@pytest.mark.parametrize("structure", [pageviews, baskets], ids=lambda each: each.name)
def test_a_create_that_was_cut_off_is_finished_by_the_next(open_store: Open, sql: Any, structure: Any) -> None:
    store = open_store()
    steps = view_of(plan_for(structure, MARIADB if is_mariadb(sql) else MYSQL)).make
    for done in range(len(steps)):
        store.create(structure, view=False)
        for statement in steps[:done]:
            sql.execute(statement)
        store.create(structure)
        assert store.check() == []
        assert store.alter(structure, view=False) == ["view dropped"]
        assert sql.view_objects() == []


@pytest.mark.parametrize("lost", [("visits_in", "visits_out"), ("visits_out",)], ids=len)
@pytest.mark.parametrize("viewed", [True, False])
def test_inlets_that_a_dump_has_made_ordinary_tables_are_made_anew(
    open_store: Open, sql: Any, lost: tuple[str, ...], viewed: bool
) -> None:
    # mariadb-dump --skip-opt: neither comments nor engines. `check`, `create` and `drop` failed at a list of no names.
    store = open_store(visits)
    sql.execute("CREATE TABLE log (visitor BIGINT)")
    sql.execute(MINE)

    def lose() -> None:
        for inlet in lost:
            sql.execute(f"ALTER TABLE {inlet} ENGINE=InnoDB COMMENT=''")
        if not viewed:
            sql.execute("DROP VIEW visits")

    lose()
    assert "visits_out not as Roost makes it" in str(store.check()[0])
    store.create(visits)
    assert store.check() == []
    sql.execute("INSERT INTO visits_in (uid, visitor) VALUES (5, 1)")
    assert [*rows(sql, "SELECT visitor FROM visits"), *rows(sql, "SELECT * FROM visits_in")] == [(1,)]
    assert [*rows(sql, "SELECT visitor FROM log")] == [(1,)]
    lose()
    store.drop(visits)
    assert sql.view_objects() == []


# Rights


@pytest.fixture
def user(store_url: str, sql: Any) -> Iterator[Callable[..., str]]:
    """Make an account with some privileges on the test's database; the answer is its URL."""
    made: list[str] = []

    def make(*grants: str) -> str:
        name = f"roost{next(_numbers)}"
        sql.execute(f"CREATE USER {name} IDENTIFIED BY 'secret'")
        made.append(name)
        for grant in grants:
            sql.execute(f"GRANT {grant} TO {name}")
        return store_url.replace("root@", f"{name}:secret@")

    yield make
    for name in made:
        sql.execute(f"DROP USER {name}")


LOST = {
    "REVOKE SELECT ON {database}.* FROM {name}": {"view", "program"},
    "REVOKE INSERT ON {database}.* FROM {name}": {"program"},
    "REVOKE DELETE ON {database}.* FROM {name}": {"program"},
    "REVOKE TRIGGER ON {database}.* FROM {name}": {"view"},
    "RENAME USER {name} TO {name}_gone": {"view", "program"},
}


@pytest.mark.table
def test_a_view_whose_account_has_lost_its_rights_is_told_and_made_anew(
    open_store: Open, store_url: str, sql: Any, user: Callable[..., str]
) -> None:
    database = store_url.rpartition("/")[2].partition("?")[0]
    store = open_store()
    for lost, rules in LOST.items():
        url = user(f"ALL ON {database}.*")
        name = url.partition("//")[2].partition(":")[0]
        with roost.Store(url) as theirs:
            theirs.create(baskets)
            assert theirs.check() == []
        assert store.check() == []
        sql.execute(lost.format(database=database, name=name))
        try:
            found = [each for each in store.check() if each.rule in rules]
            assert {each.rule for each in found} == rules, lost
            assert all("not as" in each.detail for each in found)
            store.alter(baskets, view=True)
            assert store.check() == []
            sql.execute("INSERT INTO baskets_in VALUES (5, 1, 'red'), (5, 2, 'red')")
            sql.execute("INSERT INTO baskets_out VALUES (5, 1)")
            assert [*rows(sql, "SELECT egg FROM baskets")] == [(2,)]
        finally:
            store.drop(baskets)  # what the account has made and may still do goes on being its own
            if lost.startswith("RENAME"):
                sql.execute(f"RENAME USER {name}_gone TO {name}")


def test_who_may_use_the_view_alone_needs_no_right_on_the_tables(
    open_store: Open, sql: Any, user: Callable[..., str]
) -> None:
    store = open_store(baskets)
    other = clients.connect(user("SELECT ON baskets", "INSERT ON baskets_in", "INSERT ON baskets_out"))
    other.execute("INSERT INTO baskets_in VALUES (5, 1, 'red'), (5, 2, 'red')")
    other.execute("INSERT INTO baskets_out VALUES (5, 1)")
    assert other.execute("SELECT egg FROM baskets").fetchall() == ((2,),)
    with pytest.raises(pymysql.Error, match="denied"):
        other.execute("DELETE FROM roost_baskets_rows")
    other.close()
    assert store.run(baskets.count(5)) == 1


def test_who_may_not_see_a_view_does_not_take_it_for_broken(
    open_store: Open, sql: Any, user: Callable[..., str]
) -> None:
    open_store(visits, likes, baskets, pageviews)
    view = sql.view_objects()
    for basket, more in enumerate(["", ", CREATE", ", CREATE, SHOW VIEW", ", CREATE, TRIGGER"]):
        with roost.Store(user(f"SELECT, INSERT, UPDATE, DELETE, EXECUTE{more} ON *")) as other:
            assert other.check() == [], more
            if more:
                other.create(visits, likes, baskets, pageviews)
            other.run(baskets.add(Egg(basket, 1)))
        assert sql.view_objects() == view, more


@pytest.mark.parametrize("structure", [visits, likes], ids=lambda each: each.name)
@pytest.mark.parametrize(
    ("rights", "lacks"),
    [
        ("CREATE", "CREATE VIEW"),
        ("CREATE, CREATE VIEW, SHOW VIEW, DROP", "TRIGGER"),
    ],
)
def test_a_right_that_is_missing_is_named_and_nothing_of_the_view_stays(
    open_store: Open, sql: Any, user: Callable[..., str], structure: Any, rights: str, lacks: str
) -> None:
    url = user(f"SELECT, INSERT, UPDATE, DELETE, INDEX, {rights} ON *")
    with roost.Store(url) as store:
        with pytest.raises(roost.StatementFailed, match=rf"{lacks} command denied .*; a view needs .*view=False"):
            store.create(structure)
        assert sql.view_objects() == []
        store.create(structure, view=False)
    for missing in ("CREATE VIEW", "SHOW VIEW", "TRIGGER", "DROP", "ALTER"):
        sql.execute(f"GRANT {missing} ON * TO {url.split('//')[1].split(':')[0]}")
    with roost.Store(url) as store:
        store.create(structure)
        assert store.check() == []


def test_tables_that_a_create_has_left_are_made_anew_unless_somebody_has_written_them(
    open_store: Open, sql: Any
) -> None:
    store = open_store(pageviews)
    for made in store.ddl(visits, view=False):
        if "roost_visits" in made:
            sql.execute(made)
            break
    store.create(visits)
    assert store.run(visits.push(Visit(5, 1))) == 1
    sql.execute("CREATE TABLE roost_likes_head (k INT)")
    sql.execute("INSERT INTO roost_likes_head VALUES (1)")
    with pytest.raises(roost.Invalid, match="a table roost_likes_head with rows"):
        store.create(likes)
    sql.execute("DROP TABLE roost_likes_head")
    store.create(likes)
