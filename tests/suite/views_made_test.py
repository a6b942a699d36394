"""Views come and go: what is altered, what the application has added, what somebody has changed, what is his."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import roost
from tests.suite.clients import MariaDBClient, PostgreSQLClient
from tests.suite.engines import Engine
from tests.suite.shapes import Open, Visit, likes, pageviews, rows, visits
from tests.suite.views import baskets, both, into, refreshing, remove, slotted

pytestmark = pytest.mark.needs("readable views")

ALL = (visits, baskets, pageviews, likes)
nine = roost.Ring("visits", Visit, per="uid", keep=9)


@dataclass(frozen=True)
class Longer:
    uid: int
    visitor: int
    note: str | None = None


def names(sql: Any) -> list[str]:
    """What the view of the visits consists of."""
    if isinstance(sql, MariaDBClient):
        return ["roost_visits_in", "roost_visits_out", "visits", "visits_in", "visits_out"]
    return [*[f"roost_visits_{event}" for event in ("delete", "insert", "update")], "visits"]


def test_a_view_is_optional_and_can_be_added_and_dropped_later(open_store: Open, sql: Any) -> None:
    store = open_store()
    store.create(visits, view=False)
    store.run(visits.push(Visit(5, 1)))
    assert sql.view_objects() == []
    assert store.check() == []
    assert store.alter(visits, view=True) == ["view added"]
    assert sql.view_objects() == names(sql)
    sql.execute(f"INSERT INTO {into(sql, 'visits')} (uid, visitor) VALUES (5, 2)")
    assert store.run_all(visits.push(Visit(5, 3)), visits.latest(5)) == (3, [Visit(5, 3), Visit(5, 2), Visit(5, 1)])
    assert store.alter(visits, view=True) == []
    assert store.alter(visits) == []
    assert store.alter(visits, view=False) == ["view dropped"]
    assert store.alter(visits, view=False) == []
    assert sql.view_objects() == []
    assert store.check() == []
    assert store.run(visits.push(Visit(5, 4))) == 4
    store.create(visits)
    assert sql.view_objects() == names(sql)


def test_a_view_that_somebody_has_dropped_is_missed_until_it_is_made_or_given_up(open_store: Open, sql: Any) -> None:
    store = open_store(visits, likes)
    store.create(pageviews, view=False)
    for view in (True, False):
        sql.execute("DROP VIEW visits" + (" CASCADE" if store.url.startswith("postgresql") else ""))
        assert [(each.structure, each.rule, each.key) for each in store.check()] == [("visits", "view", None)]
        store.alter(visits, view=view)
        assert store.check() == []
        assert ("visits" in sql.view_objects()) is view
        if view:
            sql.execute("DROP VIEW likes")
            store.create(visits, likes)
            assert store.check() == []
    store.create(visits, view=False)


def test_what_create_runs_is_what_ddl_tells(open_store: Open, sql: Any) -> None:
    store = open_store()
    store.create()  # so that it knows whether it is MariaDB or MySQL
    for statement in store.ddl(*ALL):
        sql.execute(statement)
    before = sql.view_objects()
    made = rows(sql, "SELECT max(oid) FROM pg_proc") if isinstance(sql, PostgreSQLClient) else None
    store.create(*ALL)
    assert sql.view_objects() == before
    assert made is None or rows(sql, "SELECT max(oid) FROM pg_proc") == made


def test_a_view_follows_what_is_altered(open_store: Open, sql: Any) -> None:
    store = open_store(visits, slotted, refreshing)
    store.run_all(*[visits.push(Visit(5, n)) for n in range(8)], slotted.add("a", 3))
    longer = roost.Ring("visits", Longer, per="uid", keep=3)
    assert store.alter(longer) == ["column note (text(1000000)?) added", "keep: 5 -> 3"]
    for visitor in (8, 9):
        sql.execute(f"INSERT INTO {into(sql, 'visits')} (uid, visitor, note) VALUES (5, ?, 'x')", (visitor,))
    found = rows(sql, "SELECT visitor, note FROM visits ORDER BY sequence DESC")
    assert [*found] == [(9, "x"), (8, "x"), (7, None)]
    assert store.run(longer.latest(5, 1)) == [Longer(5, 9, "x")]
    store.alter(roost.Counter("slotted", slots=1))
    store.alter(
        roost.Capped("refreshing", Visit, per="uid", keep=2, unique="visitor", on_full="reject", on_duplicate="refresh")
    )
    sql.execute(f"INSERT INTO {into(sql, 'slotted')} VALUES ('a', 4)")
    assert [*rows(sql, "SELECT * FROM slotted")] == [("a", 7)]
    with pytest.raises(sql.Error, match="keep is 2"):
        sql.execute(f"INSERT INTO {into(sql, 'refreshing')} (uid, visitor) VALUES (1, 1), (1, 2), (1, 1), (1, 3)")


OWN = {
    "sqlite-file": ["CREATE TRIGGER mine INSTEAD OF INSERT ON visits BEGIN INSERT INTO log VALUES (NEW.visitor); END"],
    "postgresql": [
        "CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS\n"
        "$$ BEGIN INSERT INTO log VALUES (NEW.visitor); RETURN NEW; END $$",
        "CREATE TRIGGER mine INSTEAD OF INSERT ON visits FOR EACH ROW EXECUTE FUNCTION noted()",
    ],
    "mariadb": ["CREATE TRIGGER mine AFTER INSERT ON visits_in FOR EACH ROW INSERT INTO log VALUES (NEW.visitor)"],
}
OWN["mysql"] = OWN["mariadb"]


def test_the_application_s_own_triggers_stay(open_store: Open, sql: Any, engine: Engine) -> None:
    store = open_store(visits)
    sql.execute("CREATE TABLE log (visitor bigint)")
    for statement in OWN[engine.name]:
        sql.execute(statement)
    assert store.check() == []
    assert store.alter(nine) == ["keep: 5 -> 9"]
    store.alter(nine, view=True)
    assert "mine" in sql.view_objects()
    sql.execute(f"INSERT INTO {into(sql, 'visits')} (uid, visitor) VALUES (5, 7)")
    assert [*rows(sql, "SELECT visitor FROM log")] == [*rows(sql, "SELECT visitor FROM visits")] == [(7,)]
    with pytest.raises(roost.Invalid, match="has triggers of your own"):
        store.alter(nine, view=False)
    sql.execute(f"DROP TRIGGER mine{' ON visits' if engine.name == 'postgresql' else ''}")
    assert store.alter(nine, view=False) == ["view dropped"]


def test_an_alter_that_is_refused_leaves_the_view(open_store: Open, sql: Any) -> None:
    @dataclass(frozen=True)
    class Other:
        uid: int

    store = open_store(visits, both)
    store.run_all(both.add(Visit(5, 1)), both.add(Visit(5, 2)))
    view = sql.view_objects()
    fewer = roost.Capped(
        "both_ways", Visit, per="uid", keep=1, unique="visitor", on_full="reject", on_duplicate="refresh"
    )
    with pytest.raises(roost.Invalid, match="cannot be dropped"):
        store.alter(roost.Ring("visits", Other, per="uid", keep=5))
    with pytest.raises(roost.Invalid, match="cannot go down to 1"):
        store.alter(fewer)
    assert sql.view_objects() == view
    sql.execute(f"INSERT INTO {into(sql, 'visits')} (uid, visitor) VALUES (5, 7)")


# What has a name of the view's: its kind, its name, and the rest of the statement that makes it.
TABLE, VIEW = "(a int)", "AS SELECT 1"
TAKEN: dict[str, list[tuple[str, str, str]]] = {
    "sqlite-file": [
        ("table", "visits", TABLE), ("view", "Visits", VIEW), ("index", "visits", "ON t (a)"),
        ("trigger", "roost_visits_insert", "AFTER INSERT ON t BEGIN SELECT 1; END"),
    ],
    "postgresql": [
        ("table", "visits", TABLE), ("view", "visits", VIEW), ("index", "visits", "ON t (a)"),
        ("function", "roost_visits_insert", "() RETURNS int LANGUAGE sql AS 'SELECT 1'"),
        ("type", "visits", "AS ENUM ('a')"), ("sequence", "visits", ""), ("materialized view", "visits", VIEW),
    ],
    "mariadb": [
        ("table", "visits", TABLE), ("view", "visits", VIEW), ("table", "visits_in", TABLE),
        ("view", "visits_out", VIEW),
        ("trigger", "roost_visits_in", "AFTER INSERT ON t FOR EACH ROW SET @a = 1"),
    ],
}  # fmt: skip
TAKEN["mysql"] = TAKEN["mariadb"]


def test_a_name_that_is_taken_is_refused_unless_without_a_view(open_store: Open, sql: Any, engine: Engine) -> None:
    sql.execute("CREATE TABLE t (a int)")
    store = open_store()
    for kind, name, how in TAKEN[engine.name]:
        sql.execute(f"CREATE {kind} {name} {how}")
        with pytest.raises(roost.Invalid, match=rf"(?i)of that name already \({kind} {name}\); .*view=False"):
            store.create(visits)
        with pytest.raises(roost.Missing):  # nothing was made
            store.run(visits.latest(5))
        before = sql.view_objects()
        store.create(visits, view=False)
        with pytest.raises(roost.Invalid, match="of that name already"):
            store.alter(visits, view=True)
        assert store.alter(visits, view=False) == []
        assert store.alter(nine) == ["keep: 5 -> 9"]
        assert store.check() == []
        store.drop(visits)
        assert sql.view_objects() == before
        sql.execute(f"DROP {kind} {name}")


CHANGED = {
    "sqlite-file": ["DROP TRIGGER roost_visits_insert", "DROP TRIGGER roost_visits_delete"],
    "postgresql": [
        "DROP TRIGGER roost_visits_insert ON visits",
        "DROP TRIGGER roost_visits_delete ON visits",
        "CREATE OR REPLACE VIEW visits AS SELECT uid, sequence, at, visitor FROM roost_visits_rows WHERE slot > 0",
        "CREATE OR REPLACE FUNCTION roost_visits_delete() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END'",
        "ALTER FUNCTION roost_visits_insert() SECURITY INVOKER",
        "ALTER FUNCTION roost_visits_insert() RESET search_path",
        "GRANT EXECUTE ON FUNCTION roost_visits_insert() TO PUBLIC",
        "COMMENT ON TRIGGER roost_visits_insert ON visits IS 'mine'",
    ],
    "mariadb": [
        "DROP TRIGGER roost_baskets_in",
        "DROP TRIGGER roost_baskets_deleted",
        "DROP TABLE baskets_out",
        "DROP VIEW baskets",
        "ALTER TABLE baskets_in ENGINE=InnoDB",
    ],
}
CHANGED["mysql"] = CHANGED["mariadb"]


def test_a_view_that_somebody_has_changed_is_told_and_made_anew(open_store: Open, sql: Any, engine: Engine) -> None:
    store = open_store(visits, baskets)
    whole = sql.view_objects()
    for change in CHANGED[engine.name]:
        sql.execute(change)
        assert (change, [each.rule for each in store.check()]) == (change, ["view"])
        for structure in (visits, baskets):
            assert store.alter(structure, view=True) == []
        assert (sql.view_objects(), store.check()) == (whole, [])
        sql.execute(f"INSERT INTO {into(sql, 'visits')} (uid, visitor) VALUES (5, 7)")
        sql.execute(f"INSERT INTO {into(sql, 'baskets')} (basket, egg, colour) VALUES (5, 2, 'red')")
        (entry, *_) = store.run(visits.entries(5))
        remove(sql, "visits", uid=5, sequence=entry.sequence)
        remove(sql, "baskets", basket=5, egg=2)


def test_a_view_of_somebody_else_is_never_touched(open_store: Open, sql: Any) -> None:
    store = open_store()
    store.create(visits, view=False)
    sql.execute("CREATE VIEW visits AS SELECT uid, count(*) AS hits FROM roost_visits_rows GROUP BY uid")
    assert store.check() == []
    for change in (lambda: store.create(visits), lambda: store.alter(visits, view=True)):
        with pytest.raises(roost.Invalid, match=r"of that name already \(view visits\)"):
            change()
    assert store.alter(visits, view=False) == []
    assert store.alter(nine) == ["keep: 5 -> 9"]
    assert sql.execute("SELECT * FROM visits").description[1][0] == "hits"
