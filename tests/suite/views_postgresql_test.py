"""Views on PostgreSQL: isolation levels, objects of one's own, errors, query plans."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from threading import Thread
from typing import Any

import psycopg
import pytest

import roost
from tests.suite import clients
from tests.suite.clients import PostgreSQLClient
from tests.suite.shapes import Egg, Open, Visit, likes, pageviews, rows, visits
from tests.suite.views import WRITES, Everything, baskets, refreshing, rejecting, ring

pytestmark = pytest.mark.needs("psycopg")


ALL = (pageviews, visits, baskets, likes)
LEVELS = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]
nine = roost.Ring("visits", Visit, per="uid", keep=9)
pages = roost.Cache("pages", value=str)
jobs = roost.Lease("jobs")


@dataclass
class Weighed:
    basket: int
    egg: int
    weight: int


@pytest.fixture
def other(store_url: str) -> Iterator[clients.Client]:
    """Another SQL client."""
    connection = clients.connect(store_url)
    yield connection
    connection.close()


# Other transactions meanwhile


@pytest.mark.parametrize("level", LEVELS[1:])
def test_what_changed_since_the_snapshot_is_never_overwritten(
    open_store: Open, sql: PostgreSQLClient, other: PostgreSQLClient, level: str
) -> None:
    """A client's transaction that has looked before another one wrote the same key."""
    open_store(*ALL)
    for name, (columns, good, _, _) in WRITES.items():
        key = columns.split(",")[0]
        insert = f"INSERT INTO {name} ({columns}) VALUES ({good})"
        sql.execute(insert)
        held = rows(sql, f"SELECT * FROM {name}")
        lates = [insert, f"DELETE FROM {name} WHERE {key} IS NOT NULL"]
        for late in lates[name == "pageviews" :]:  # adds to a counter disturb nobody
            sql.execute(f"BEGIN ISOLATION LEVEL {level}")
            assert rows(sql, f"SELECT * FROM {name}") == held
            other.execute(f"DELETE FROM {name}")
            other.execute(insert)
            held = rows(other, f"SELECT * FROM {name}")
            with pytest.raises(psycopg.errors.SerializationFailure):
                sql.execute(late)
            sql.execute("ROLLBACK")
        assert rows(other, f"SELECT * FROM {name}") == held


def test_every_isolation_level_writes(open_store: Open, sql: PostgreSQLClient) -> None:
    store = open_store(*ALL)
    for turn, level in enumerate(LEVELS, 1):
        for name, (columns, good, _, _) in WRITES.items():
            sql.execute(f"DELETE FROM {name}")
            sql.execute(f"BEGIN ISOLATION LEVEL {level}")
            sql.execute(f"INSERT INTO {name} ({columns}) VALUES ({good})")
            sql.execute(f"DELETE FROM {name}")
            sql.execute(f"INSERT INTO {name} ({columns}) VALUES ({good})")
            sql.execute("COMMIT")
        assert store.run_all(pageviews.total("/home"), baskets.count(42), likes.size(7), visits.push(Visit(5, 1))) == (
            2, 1, 1, 3 * turn
        )  # fmt: skip


def waiting(sql: PostgreSQLClient, other: PostgreSQLClient, first: str | Callable[[], object], late: str) -> list[Any]:
    """Run a statement that has to wait for another client's open transaction; return its answer, or its error."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(rows(sql, late))
        except psycopg.Error as error:
            found.append(error)

    with other.transaction():
        other.execute(first) if isinstance(first, str) else first()
        thread = Thread(target=run)
        thread.start()
        blocked = "SELECT 1 FROM pg_stat_activity WHERE pid = ? AND wait_event_type = 'Lock'"
        while not rows(other, blocked, sql.info.backend_pid):
            other.execute("SELECT pg_stat_clear_snapshot()")
    thread.join()
    return found


GONE: list[tuple[Any, str, str]] = [
    (visits, "DELETE FROM visits", "DELETE FROM visits RETURNING visitor"),
    (visits, "DELETE FROM visits", "UPDATE visits SET visitor = 8 RETURNING visitor"),
    (refreshing, "DELETE FROM refreshing", "DELETE FROM refreshing RETURNING visitor"),
    (
        refreshing,
        "INSERT INTO refreshing (uid, visitor) VALUES (5, 7)",
        "DELETE FROM refreshing WHERE visitor = 7 RETURNING visitor",
    ),
    (likes, "DELETE FROM likes", "DELETE FROM likes RETURNING member"),
    (pageviews, "DELETE FROM pageviews", "DELETE FROM pageviews RETURNING total"),
]


def test_a_row_that_has_gone_meanwhile_is_skipped(
    open_store: Open, sql: PostgreSQLClient, other: PostgreSQLClient
) -> None:
    open_store(visits, refreshing, likes, pageviews)
    for structure, first, late in GONE:
        columns = {"pageviews": "('/home', 3)", "likes": "(7, 'ada')"}.get(structure.name, "(5, 7)")
        names = "(uid, visitor) " if columns == "(5, 7)" else ""
        sql.execute(f"INSERT INTO {structure.name} {names}VALUES {columns}")
        assert waiting(sql, other, first, late) == [[]], late
        left = rows(sql, f"SELECT * FROM {structure.name}")
        assert len(left) == (1 if first.startswith("INSERT") else 0), late


def test_an_update_of_what_another_has_changed_is_told_to_try_again(
    open_store: Open, sql: PostgreSQLClient, other: PostgreSQLClient
) -> None:
    store = open_store(visits)
    sql.execute("INSERT INTO visits (uid, visitor) VALUES (5, 7)")
    add = "UPDATE visits SET visitor = visitor + 1 RETURNING visitor"
    (error,) = waiting(sql, other, add, add)
    assert isinstance(error, psycopg.errors.SerializationFailure)
    assert "try again" in str(error)
    sql.execute(add)
    assert store.run(visits.latest(5)) == [Visit(5, 9)]


WEIGHED: list[Any] = [
    roost.Ring("ring", Weighed, per="basket", keep=5),
    roost.Capped("capped", Weighed, per="basket", keep=5, unique="egg"),
    roost.Capped("ordered", Weighed, per="basket", keep=5, unique="egg", order="weight"),
]


def test_a_delete_of_what_another_has_changed_is_told_to_try_again(
    open_store: Open, sql: PostgreSQLClient, other: PostgreSQLClient
) -> None:
    store = open_store(*WEIGHED)
    for structure in WEIGHED:
        name = structure.name
        sql.execute(f"INSERT INTO {name} (basket, egg, weight) VALUES (42, 7, 50)")
        late = f"DELETE FROM {name} WHERE weight = 50 RETURNING weight"
        (error,) = waiting(sql, other, f"UPDATE {name} SET weight = 60", late)
        assert isinstance(error, psycopg.errors.SerializationFailure), name
        assert rows(sql, late) == []
        assert store.run(structure.latest(42)) == [Weighed(42, 7, 60)]
        assert rows(sql, late.replace("50", "60")) == [(60,)]


def test_an_update_of_a_cache_overwrites_no_value_that_came_meanwhile(
    open_store: Open, sql: PostgreSQLClient, other: PostgreSQLClient
) -> None:
    store = open_store(pages)
    firsts = "UPDATE pages SET value = 'new'", "INSERT INTO pages (key, value) VALUES ('/home', 'new')"
    for first, late in product(firsts, ("value = value || '!'", "expires = now() + interval '1 hour'", "flags = 7")):
        sql.execute(
            "INSERT INTO pages (key, value, expires, flags) VALUES ('/home', 'old', '9999-12-31 23:59:59.999999+00', 1)"
        )
        (error,) = waiting(sql, other, first, f"UPDATE pages SET {late}")
        assert isinstance(error, psycopg.errors.SerializationFailure), (first, late)
        assert store.run(pages.get("/home")) == "new"
        sql.execute(f"UPDATE pages SET {late}")
        assert store.run(pages.get("/home")) == ("new!" if "!" in late else "new")


def test_a_delete_ends_the_lease_that_it_has_found_and_no_later_one(
    open_store: Open, sql: PostgreSQLClient, other: PostgreSQLClient
) -> None:
    store = open_store(jobs)
    grant = store.run(jobs.acquire("nightly", "worker 1", 60))
    assert grant is not None
    late = "DELETE FROM jobs WHERE holder = 'worker 1' RETURNING holder"

    def changes_hands() -> None:
        store.on(other).run(jobs.release(grant))
        assert store.on(other).run(jobs.acquire("nightly", "worker 2", 60)) is not None

    assert waiting(sql, other, changes_hands, late) == [[]]
    assert store.run(jobs.holder("nightly")) == "worker 2"
    assert rows(sql, late.replace("1", "2")) == [("worker 2",)]
    assert store.run(jobs.holder("nightly")) is None


def test_an_update_of_a_total_loses_no_add(open_store: Open, sql: PostgreSQLClient, other: PostgreSQLClient) -> None:
    store = open_store(pageviews)
    sql.execute("INSERT INTO pageviews VALUES ('/home', 3)")
    add = "UPDATE pageviews SET total = total + {} RETURNING total"
    with other.transaction():
        other.execute(add.format(10))
        assert rows(sql, add.format(100)) == [(103,)]  # it does not wait, and does not see what is not committed
    assert store.run(pageviews.total("/home")) == 113


# Objects of the application's own


def test_what_the_application_added_to_a_view_stays(open_store: Open, sql: PostgreSQLClient, role: str) -> None:
    store = open_store(visits)
    sql.execute("COMMENT ON VIEW visits IS 'who''s been here'")
    sql.execute("COMMENT ON COLUMN visits.visitor IS '100 %'")
    sql.execute("CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
    sql.execute("CREATE TRIGGER mine AFTER INSERT ON visits FOR EACH STATEMENT EXECUTE FUNCTION noted()")
    sql.execute("COMMENT ON TRIGGER mine ON visits IS 'notes'")
    sql.execute("ALTER VIEW visits ALTER COLUMN visitor SET DEFAULT 7")
    sql.execute("ALTER VIEW visits SET (security_barrier)")
    sql.execute(f"GRANT SELECT ON visits TO {role} WITH GRANT OPTION")
    sql.execute(f"GRANT UPDATE (visitor) ON visits TO {role}")
    assert store.alter(nine) == ["keep: 5 -> 9"]
    sql.execute("INSERT INTO visits (uid) VALUES (5)")
    assert rows(sql, "SELECT visitor FROM visits") == [(7,)]
    assert rows(sql, "SELECT obj_description('visits'::regclass)") == [("who's been here",)]
    assert rows(sql, "SELECT obj_description(oid, 'pg_trigger') FROM pg_trigger WHERE tgname = 'mine'") == [("notes",)]
    assert rows(
        sql,
        "SELECT col_description(attrelid, attnum), reloptions FROM pg_attribute JOIN pg_class c ON c.oid = attrelid\n"
        "  WHERE attrelid = 'visits'::regclass AND attname = 'visitor'",
    ) == [("100 %", ["security_barrier=true"])]
    assert rows(
        sql,
        "SELECT has_table_privilege(?, 'visits', 'SELECT WITH GRANT OPTION'), has_table_privilege(?, 'visits',"
        " 'UPDATE'), has_column_privilege(?, 'visits', 'visitor', 'UPDATE')",
        *(role, role, role),
    ) == [(True, False, True)]


def test_a_view_that_others_are_made_of_is_replaced_and_never_dropped(open_store: Open, sql: PostgreSQLClient) -> None:
    store = open_store(visits)
    sql.execute("CREATE VIEW report AS SELECT uid, count(*) FROM visits GROUP BY uid")
    assert store.alter(nine) == ["keep: 5 -> 9"]
    with pytest.raises(roost.Invalid, match=r"report depends on view visits[^;]*; drop that first"):
        store.alter(nine, view=False)
    sql.execute("INSERT INTO visits (uid, visitor) VALUES (5, 7)")
    assert rows(sql, "SELECT * FROM report") == [(5, 1)]
    assert store.check() == []


@dataclass
class Sooner:
    uid: int
    note: str | None
    visitor: int


@pytest.mark.parametrize("kind", ["ring", "capped"])
def test_a_view_s_columns_stay_in_their_order(open_store: Open, sql: PostgreSQLClient, kind: str) -> None:
    def declare(row: Any) -> Any:
        if kind == "ring":
            return roost.Ring("seen", row, per="uid", keep=5)
        return roost.Capped("seen", row, per="uid", keep=5, unique="visitor")

    first, then = declare(Visit), declare(Sooner)
    store = open_store(first)
    sql.execute("CREATE VIEW report AS SELECT * FROM seen; GRANT SELECT ON seen TO PUBLIC")
    sql.execute("INSERT INTO seen (uid, visitor) VALUES (5, 7)")
    before = rows(sql, "SELECT * FROM seen")
    for changed, changes in ((then, ["column note (text(1000000)?) added"]), (then, [])):
        assert store.alter(changed) == changes
        assert rows(sql, "SELECT * FROM seen") == [(*row, None) for row in before]
    sql.execute("INSERT INTO seen (uid, visitor, note) VALUES (6, 8, 'x')")
    assert store.run(then.latest(6)) == [Sooner(6, "x", 8)]
    assert [*map(len, rows(sql, "SELECT * FROM report"))] == [4, 4]
    assert rows(sql, "SELECT has_table_privilege('public', 'seen', 'SELECT')") == [(True,)]
    assert store.check() == []
    store.create(then)


def test_a_comment_of_one_s_own_hides_no_view(open_store: Open, sql: PostgreSQLClient) -> None:
    store = open_store(visits)
    sql.execute("COMMENT ON VIEW visits IS 'mine'")
    store.create(visits)


def test_a_value_that_python_has_not_is_found(open_store: Open, sql: PostgreSQLClient) -> None:
    store = open_store(ring)
    for change in (
        "f = 'NaN'",
        "f = '-Infinity'",
        "price = 'NaN'",
        "day = 'infinity'",
        "moment = '0044-03-15 00:00:00+00 BC'",
        "s = 'long'",
        "b = '\\x00112233'",
        "colour = 'blue'",
    ):
        store.run(ring.push(Everything(1)))
        sql.execute(f"UPDATE roost_ring_rows SET {change}")
        assert [(each.rule, each.key) for each in store.check()] == [("value", 1)], change
        sql.execute("DELETE FROM ring")


# What it tells


def test_what_was_set_comes_back(open_store: Open, sql: PostgreSQLClient) -> None:
    store = open_store(visits, refreshing, likes)
    insert = "INSERT INTO {} (uid, visitor) VALUES (5, 7), (5, 8), (5, 7) RETURNING sequence, at"
    for structure in (visits, refreshing):
        found = rows(sql, insert.format(structure.name))
        assert [sequence for sequence, _ in found] == [1, 2, 3]
        assert [(each.sequence, each.at) for each in store.run(structure.entries(5))] == found[
            -len(store.run(structure.latest(5))) :
        ]
    assert rows(sql, "INSERT INTO likes VALUES (7, 'ada'), (7, 'ada'), (7, 'bob') RETURNING member") == [
        ("ada",),
        ("bob",),
    ]


tickets = roost.Counter("tickets", slots=1)


ERRORS: list[tuple[str, type[Exception]]] = [
    ("INSERT INTO rejecting (uid, visitor) VALUES (5, 1), (5, 1)", psycopg.errors.UniqueViolation),
    ("INSERT INTO rejecting (uid, visitor) VALUES (5, 1), (5, 2), (5, 3)", psycopg.errors.CheckViolation),
    ("INSERT INTO rejecting (uid) VALUES (5)", psycopg.errors.CheckViolation),
    ("INSERT INTO rejecting (uid, visitor, sequence) VALUES (5, 1, 1)", psycopg.errors.FeatureNotSupported),
    ("UPDATE rejecting SET uid = 6", psycopg.errors.FeatureNotSupported),
    ("INSERT INTO tickets VALUES ('a', 9223372036854775807), ('a', 1)", psycopg.errors.NumericValueOutOfRange),
]


def test_an_error_has_the_code_that_a_table_s_would_have(open_store: Open, sql: PostgreSQLClient) -> None:
    store = open_store(rejecting, tickets)
    store.run(rejecting.add(Visit(7, 7)))
    for statement, error in ERRORS:
        with pytest.raises(error, match=r"^(rejecting(\.visitor)?: |bigint out of range)"):
            sql.execute(statement)


def test_a_key_is_looked_up(open_store: Open, sql: PostgreSQLClient) -> None:
    store = open_store(*ALL)
    store.run_all(*[visits.push(Visit(k, n)) for k in range(300) for n in range(5)])
    store.run_all(*[baskets.add(Egg(k, n)) for k in range(300) for n in range(3)])
    store.run_all(*[likes.add(k, "a", "b") for k in range(900)], *[pageviews.add(str(k)) for k in range(900)])
    sql.execute("ANALYZE")
    sql.execute("CREATE TABLE own (k bigint)")
    sql.execute("INSERT INTO own VALUES (5), (6)")
    sql.execute("ANALYZE own")
    for name in WRITES:
        key = WRITES[name][0].split(",")[0]
        queries = [f"SELECT * FROM {name} WHERE {key} = '5'", f"DELETE FROM {name} WHERE {key} = '5'"]
        if name != "pageviews":
            queries.append(f"SELECT * FROM own LEFT JOIN {name} ON {key} = k")
        for query in queries:
            plan = "\n".join(line for (line,) in rows(sql, f"EXPLAIN {query}"))
            assert f"Seq Scan on roost_{name}" not in plan, plan
            assert f"roost_{name}_" in plan.partition("Index")[2], plan
        if name == "baskets":
            sql.execute("SET enable_bitmapscan = off")
            newest = "EXPLAIN SELECT * FROM baskets WHERE basket = 5 ORDER BY sequence DESC LIMIT 3"
            plan = "\n".join(line for (line,) in rows(sql, newest))
            assert "Index Scan Backward using roost_baskets_newest" in plan, plan
