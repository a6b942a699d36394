"""Views on MariaDB: NAME to read, NAME_in and NAME_out to write, cell by cell of the table in docs/sql-views.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import roost
from tests.suite.clients import is_mariadb
from tests.suite.shapes import Egg, Visit, likes, pageviews, visits
from tests.suite.views import (
    ADDED,
    COUNTED,
    FILL,
    HELD,
    LIKED,
    PUSHED,
    baskets,
    both,
    filled,
    refreshing,
    rejecting,
    slotted,
)
from tests.suite.views_table_test import PAGE, Cell, says_what_is_tested

pytestmark = pytest.mark.needs("inlets")

Open = Callable[..., roost.Store]
USED = "already used by statement"
THREE = "(SELECT 1 AS seq UNION SELECT 2 UNION SELECT 3) q"


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
    assert store.check() == []


# structure: what is inserted, a row that is refused, what is held after the first; what is removed, what is held then.
IN: dict[str, tuple[str, str, str, list[Any]]] = {
    "pageviews": ("`key`, total", "'/home', 2", "'/home', NULL", COUNTED),
    "visits": ("uid, visitor", "5, 9", "NULL, 9", PUSHED),
    "baskets": ("basket, egg, colour", "42, 9, 'red'", "42, 4, 'red'", ADDED),
    "likes": ("`key`, member", "7, 'eve'", "NULL, 'eve'", LIKED),
}
OUT: dict[str, tuple[str, str, str, list[Any]]] = {
    "pageviews": ("`key`", "'/home'", "NULL", [("/about", 1)]),
    "visits": ("uid, sequence", "5, 6", "5, NULL", [each for each in HELD["visits"][1] if each != (5, 6, 6)]),
    "baskets": ("basket, egg", "42, 3", "42, NULL", [each for each in HELD["baskets"][1] if each[:2] != (42, 3)]),
    "likes": ("`key`, member", "7, 'ada'", "7, NULL", HELD["likes"][1][1:]),
}
CELLS: list[Cell] = [
    ("SELECT", "pageviews", "SELECT total FROM pageviews WHERE `key` = '/home'", [(3,)], None),
    ("SELECT", "visits", "SELECT visitor FROM visits WHERE uid = 5 ORDER BY sequence DESC LIMIT 3", [(7,), (6,), (5,)],
     None),
    ("SELECT", "baskets", "SELECT egg FROM baskets WHERE basket = 42 ORDER BY sequence DESC LIMIT 2", [(4,), (3,)],
     None),
    ("SELECT", "likes", "SELECT member FROM likes WHERE `key` = 7 ORDER BY member", [("ada",), ("bob",)], None),
    ("INSERT INTO NAME_in … SELECT", "pageviews",
     f"INSERT INTO pageviews_in SELECT ELT(seq, '/a', '/b', '/a'), seq - 2 FROM {THREE}", [],
     [("/a", 0), ("/about", 1), ("/b", 0), ("/home", 3)]),
    ("INSERT INTO NAME_in … SELECT", "visits", f"INSERT INTO visits_in (visitor, uid) SELECT seq, 6 FROM {THREE}", [],
     [(6, 4, 3), (6, 3, 2), (6, 2, 1), *HELD["visits"][1]]),
    ("INSERT INTO NAME_in … SELECT", "baskets",
     f"INSERT INTO baskets_in SELECT 42, seq + 6, 'red' FROM {THREE} WHERE seq > 1", [],
     [HELD["baskets"][1][0], (42, 9, "red", 6), (42, 8, "red", 5), HELD["baskets"][1][1]]),
    ("INSERT INTO NAME_in … SELECT", "likes", f"INSERT INTO likes_in SELECT 7, 'eve' FROM {THREE}", [], LIKED),
    ("DELETE of the rows", "pageviews", "DELETE FROM roost_pageviews_rows WHERE `key` = '/home'", [], [("/about", 1)]),
    ("DELETE of the rows", "visits", "DELETE FROM roost_visits_rows WHERE uid = 5", [], [(6, 1, 7)]),
    ("DELETE of the rows", "baskets", "DELETE FROM roost_baskets_rows WHERE egg > 2", [],
     [HELD["baskets"][1][0], HELD["baskets"][1][3]]),
    ("DELETE of the rows", "likes", "DELETE FROM roost_likes_rows WHERE member = 'ada'", [], [(7, "bob")]),
]  # fmt: skip
for name, (columns, good, bad, after) in IN.items():
    insert, given = f"INTO {name}_in ({columns}) VALUES ({good})", [tuple(map(str, eval(f"[{good}]")))]
    for label, form in (
        ("INSERT INTO NAME_in", "INSERT"),
        ("INSERT IGNORE INTO NAME_in", "INSERT IGNORE"),
        ("REPLACE INTO NAME_in", "REPLACE"),
    ):
        CELLS.append((label, name, f"{form} {insert}", [], after))
        CELLS.append((label, name, f"{form} {insert}, ({bad})", [], f"{name}[.:]"))
    keys, removed, refused, left = OUT[name]
    first = columns.partition(",")[0]
    CELLS += [
        ("INSERT INTO NAME_in … ON DUPLICATE KEY UPDATE", name, f"INSERT {insert} ON DUPLICATE KEY UPDATE {first} = 1",
         [], after),
        ("INSERT INTO NAME_in … RETURNING", name, f"INSERT {insert} RETURNING {columns}", given, after),
        ("INSERT INTO NAME_in of sequence, at", name,
         f"INSERT INTO {name}_in ({columns}, sequence) VALUES ({good}, 1)", [], "Unknown column"),
        ("INSERT INTO NAME_in of sequence, at", name,
         f"INSERT INTO {name}_in ({columns}, at) VALUES ({good}, UTC_TIMESTAMP())", [], "Unknown column"),
        ("INSERT INTO NAME_in … SELECT from NAME", name,
         f"INSERT INTO {name}_in ({columns}) SELECT {columns} FROM {name}", [], USED),
        ("INSERT INTO NAME_out", name, f"INSERT INTO {name}_out VALUES ({removed})", [], left),
        ("INSERT INTO NAME_out", name, f"INSERT INTO {name}_out VALUES ({removed}), ({removed})", [], left),
        ("INSERT INTO NAME_out", name, f"INSERT INTO {name}_out VALUES ({removed}), ({refused})", [],
         rf"{name}\.\w+: it takes"),
        ("INSERT INTO NAME_out … SELECT from NAME", name,
         f"INSERT INTO {name}_out SELECT {keys} FROM {name}", [], USED),
        ("INSERT, UPDATE, DELETE, TRUNCATE of NAME", name, f"INSERT INTO {name} ({columns}) VALUES ({good})", [],
         "not insertable-into"),
        ("INSERT, UPDATE, DELETE, TRUNCATE of NAME", name, f"UPDATE {name} SET {first} = {first}", [],
         "not updatable"),
        ("INSERT, UPDATE, DELETE, TRUNCATE of NAME", name, f"DELETE FROM {name}", [], "not updatable"),
        ("INSERT, UPDATE, DELETE, TRUNCATE of NAME", name,
         f"UPDATE {name} s JOIN {THREE} ON s.{first} = q.seq SET s.{first} = 1", [], "not updatable"),
        ("INSERT, UPDATE, DELETE, TRUNCATE of NAME", name, f"TRUNCATE {name}", [], "doesn't exist"),
        ("UPDATE, DELETE, TRUNCATE of NAME_in, NAME_out", name, f"UPDATE {name}_in SET {first} = 1", [], None),
        ("UPDATE, DELETE, TRUNCATE of NAME_in, NAME_out", name, f"DELETE FROM {name}_out", [], None),
        ("UPDATE, DELETE, TRUNCATE of NAME_in, NAME_out", name, f"TRUNCATE {name}_in", [], None),
        ("TRUNCATE of the rows", name, f"TRUNCATE roost_{name}_rows", [], []),
    ]  # fmt: skip


@pytest.mark.parametrize("cell", CELLS, ids=lambda each: each[2][:80])
def test_a_cell_of_mariadb_s_table(open_store: Open, sql: Any, cell: Cell) -> None:
    label, name, statement, answer, then = cell
    if "RETURNING" in label and not is_mariadb(sql):
        answer, then = [], "syntax"
    store = filled(open_store, name)
    columns, held = HELD[name]
    sql.execute("BEGIN")
    if isinstance(then, str):
        with pytest.raises(sql.Error, match=then):
            sql.execute(statement)
    else:
        assert list(sql.execute(statement).fetchall()) == answer
    sql.execute("COMMIT")
    order = "uid DESC, sequence DESC" if name == "visits" else "basket DESC, sequence DESC" if name == "baskets" else 1
    found = sql.execute(f"SELECT {columns.replace('key', '`key`')} FROM {name} ORDER BY {order}").fetchall()
    assert sorted(found, reverse=order != 1) == (then if isinstance(then, list) else held)
    if label == "TRUNCATE of the rows":  # counts are as they were until a collection is full, or the keys are forgotten
        found = [(each.rule, each.detail[:13]) for each in store.check()]
        heads = {"baskets": (baskets.forget(42), baskets.forget(43)), "likes": (likes.forget(7), likes.forget(8))}
        assert found == [("count", "the head says")] * len(heads.get(name, ()))
        store.run_all(*heads.get(name, ()))


def test_every_cell_of_mariadb_s_table_is_tested() -> None:
    says_what_is_tested("## On MariaDB and MySQL", CELLS)


def test_the_sql_of_the_page_runs(open_store: Open, sql: Any) -> None:
    store = open_store(pageviews, visits, baskets, likes)
    example = PAGE.read_text().partition("## On MariaDB and MySQL")[2].partition("```sql\n")[2].partition("```")[0]
    for line in example.splitlines():
        if statement := line.partition("--")[0].strip():
            sql.execute(statement)
    assert store.run_all(visits.latest(5), pageviews.total("/home"), baskets.count(42), likes.size(7)) == ([], 0, 0, 0)


# What the table cannot say


def told(error: pytest.ExceptionInfo[Any]) -> tuple[int, str]:
    """Return number and text of an error of MariaDB's."""
    number, text = error.value.args
    return number, text


@pytest.mark.parametrize("form", ["INSERT", "INSERT IGNORE", "REPLACE"])
@pytest.mark.parametrize("mode", ["STRICT_ALL_TABLES", ""])
def test_on_full_and_on_duplicate_rule(open_store: Open, sql: Any, form: str, mode: str) -> None:
    store = open_store(refreshing, rejecting, both)
    sql.execute("SET sql_mode = ?", (mode,))
    insert = f"{form} INTO {{}}_in (uid, visitor) VALUES (5, ?)"
    for visitor in (1, 2, 3, 1, 4, 1):
        sql.execute(insert.format("refreshing"), (visitor,))
    assert store.run_all(refreshing.latest(5), refreshing.count(5)) == ([Visit(5, 1), Visit(5, 4), Visit(5, 3)], 3)
    for name in ("rejecting", "both_ways"):
        for visitor in (1, 2):
            sql.execute(insert.format(name), (visitor,))
        with pytest.raises(sql.Error) as error:
            sql.execute(insert.format(name), (3,))
        assert told(error) == (1644, f"{name}: the collection is full; keep is 2")
    with pytest.raises(sql.IntegrityError) as error:
        sql.execute(insert.format("rejecting"), (1,))
    assert told(error) == (1062, "rejecting: visitor is there already")
    sql.execute(insert.format("both_ways"), (1,))
    assert store.run_all(rejecting.latest(5), both.latest(5), both.count(5)) == (
        [Visit(5, 2), Visit(5, 1)], [Visit(5, 1), Visit(5, 2)], 2
    )  # fmt: skip


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


def test_the_sequence_goes_on_and_a_freed_place_is_taken_again(open_store: Open, sql: Any) -> None:
    store = open_store(visits, rejecting)
    store.run_all(*FILL[2:10])
    sql.execute("DELETE FROM roost_visits_rows")
    sql.execute("INSERT INTO visits_in (uid, visitor) VALUES (5, 1)")
    assert [each.sequence for each in store.run(visits.entries(5))] == [8]
    assert store.run(visits.push(Visit(5, 2))) == 9
    sql.execute("INSERT INTO rejecting_in (uid, visitor) VALUES (5, 1), (5, 2)")
    sql.execute("INSERT INTO rejecting_out (uid, visitor) VALUES (5, 1)")
    sql.execute("INSERT INTO rejecting_in (uid, visitor) VALUES (5, 3)")
    assert store.run(rejecting.latest(5)) == [Visit(5, 3), Visit(5, 2)]


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


@pytest.mark.parametrize("structure", [baskets, rejecting, both], ids=lambda each: each.name)
@pytest.mark.parametrize("by_library", [False, True], ids=["inlet", "library"])
def test_a_truncate_heals_and_costs_none_of_the_newest(
    open_store: Open, sql: Any, structure: Any, by_library: bool
) -> None:
    store, name = open_store(structure), structure.name
    make = (lambda n: Egg(5, n)) if structure is baskets else (lambda n: Visit(5, n))
    store.run_all(*[structure.add(make(n)) for n in range(structure.keep)])
    sql.execute(f"TRUNCATE roost_{name}_rows")
    if by_library:
        store.run(structure.add(make(9)))
    elif structure is baskets:
        sql.execute("INSERT INTO baskets_in VALUES (5, 9, 'white')")
    else:
        sql.execute(f"INSERT INTO {name}_in VALUES (5, 9)")
    assert store.run_all(structure.latest(5), structure.count(5)) == ([make(9)], 1)


def test_slots_are_one_total_and_a_sum_beyond_64_bits_is_refused(open_store: Open, sql: Any) -> None:
    store = open_store(slotted, roost.Counter("single", slots=1))
    store.run(slotted.add("a", 10))
    for name in ("slotted", "single"):
        for form in ("INSERT", "INSERT IGNORE", "REPLACE"):
            sql.execute(f"{form} INTO {name}_in VALUES ('a', 5), ('a', -1)")
        sql.execute(f"INSERT INTO {name}_in VALUES ('b', ?)", (2**62,))
        with pytest.raises(sql.Error) as error:
            sql.execute(f"INSERT IGNORE INTO {name}_in VALUES ('a', 1), ('b', ?)", (2**62,))
        assert told(error) == (1644, f"{name}: the sum would leave 64 bits")
    assert store.run(slotted.totals(["a", "b"])) == {"a": 22, "b": 2**62}
    assert sql.execute("SELECT * FROM slotted ORDER BY `key`").fetchall() == (("a", 22), ("b", 2**62))
    for name in ("slotted", "single"):
        sql.execute(f"INSERT INTO {name}_out VALUES ('b')")
    assert store.run(slotted.total("b")) == 0
