"""Views: what plain SQL clients may do, beyond the tables in docs/sql-views.md, on every engine that has them."""

from __future__ import annotations

import random
from itertools import product
from typing import Any, NamedTuple

import psycopg
import pytest

import roost
from tests.suite.clients import Client, MariaDBClient, PostgreSQLClient, SQLiteClient
from tests.suite.shapes import Egg, Open, Place, Seen, Visit, likes, rows, visits
from tests.suite.views import (
    FILL,
    baskets,
    both,
    empty,
    forms,
    insert,
    into,
    newest_first,
    obeys_its_declaration,
    refreshing,
    rejecting,
    remove,
    slotted,
)

everywhere = pytest.mark.needs("readable views")
in_place = pytest.mark.needs("views")  # on SQLite and PostgreSQL
inlets = pytest.mark.needs("inlets")  # on MariaDB and MySQL


class Cell(NamedTuple):
    x: int
    y: int


@everywhere
def test_on_full_and_on_duplicate_rule_whatever_the_form(open_store: Open, sql: Any) -> None:
    store = open_store(refreshing, rejecting, both)
    for uid, form in enumerate(forms(sql)):
        obeys_its_declaration(store, sql, form, uid)
        if isinstance(sql, MariaDBClient):
            sql.execute("SET sql_mode = ''")
            obeys_its_declaration(store, sql, form, uid + 100)
            sql.execute("SET sql_mode = DEFAULT")


@everywhere
def test_the_sequence_goes_on_after_a_delete_and_the_head_is_right(open_store: Open, sql: Any) -> None:
    store = open_store(visits, baskets, likes)
    store.run_all(*FILL[2:])
    for name in ("visits", "baskets", "likes"):
        empty(sql, name)
    assert store.run_all(baskets.count(42), likes.size(7), visits.keys(), baskets.keys()) == (0, 0, [5, 6], [42, 43])
    sql.execute(f"INSERT INTO {into(sql, 'visits')} (uid, visitor) VALUES (5, 1)")
    sql.execute(f"INSERT INTO {into(sql, 'baskets')} (basket, egg, colour) VALUES (42, 1, 'red')")
    assert [each.sequence for each in store.run(visits.entries(5))] == [8]
    assert [each.sequence for each in store.run(baskets.entries(42))] == [5]
    assert store.run_all(visits.push(Visit(5, 2)), baskets.add(Egg(42, 2)), baskets.count(42)) == (9, None, 2)


@everywhere
def test_a_place_that_was_freed_is_taken_again(open_store: Open, sql: Any) -> None:
    store = open_store(rejecting)
    sql.execute(f"INSERT INTO {into(sql, 'rejecting')} (uid, visitor) VALUES (5, 1), (5, 2)")
    remove(sql, "rejecting", uid=5, visitor=1)
    sql.execute(f"INSERT INTO {into(sql, 'rejecting')} (uid, visitor) VALUES (5, 3)")
    assert store.run(rejecting.latest(5)) == [Visit(5, 3), Visit(5, 2)]


@everywhere
def test_a_wrong_count_heals_and_costs_none_of_the_newest(open_store: Open, sql: Any) -> None:
    """Somebody has deleted from the private table: the count is too high, and must evict or refuse nothing."""
    structures: list[Any] = [baskets, rejecting, both]
    store = open_store(*structures)
    for structure, left, by_library in product(structures, (0, 1), (False, True)):
        name, keep = structure.name, structure.keep
        make = (lambda n: Egg(5, n)) if structure is baskets else (lambda n: Visit(5, n))
        store.run_all(structure.forget(5), *[structure.add(make(n)) for n in range(keep)])
        if left == 0 and isinstance(sql, MariaDBClient):  # which counts what is deleted
            sql.execute(f"TRUNCATE roost_{name}_rows")
        else:
            sql.execute(f"DELETE FROM roost_{name}_rows WHERE sequence <= {keep - left}")
        if by_library:
            store.run(structure.add(make(9)))
        elif structure is baskets:
            sql.execute(f"INSERT INTO {into(sql, 'baskets')} (basket, egg, colour) VALUES (5, 9, 'white')")
        else:
            sql.execute(f"INSERT INTO {into(sql, name)} (uid, visitor) VALUES (5, 9)")
        newest = [make(9), make(keep - 1)][: left + 1]
        assert store.run_all(structure.latest(5), structure.count(5)) == (newest, left + 1), (name, left, by_library)


@everywhere
def test_the_slots_of_a_counter_are_one_total(open_store: Open, sql: Any) -> None:
    with_slots = [open_store(slotted, random=random.Random(n)) for n in range(6)]
    for store in with_slots:
        store.run_all(slotted.add("a", 10), slotted.add("b", 1))
    insert(sql, "slotted", key="a", total=5)
    used = rows(sql, "SELECT slot FROM roost_slotted_rows WHERE n > 6")
    assert len(used) > 1 or isinstance(sql, SQLiteClient)  # a file has one writer
    assert [*rows(sql, "SELECT * FROM slotted ORDER BY 1")] == [("a", 65), ("b", 6)]
    if not isinstance(sql, MariaDBClient):
        sql.execute("UPDATE slotted SET total = total - 33 WHERE key = 'a'")
        assert store.run_all(slotted.total("a"), slotted.total("b")) == (32, 6)
    remove(sql, "slotted", key="a")
    assert store.run(slotted.totals(["a", "b"])) == {"a": 0, "b": 6}


@everywhere
def test_a_sum_beyond_64_bits_is_refused(open_store: Open, sql: Any) -> None:
    single = roost.Counter("single", slots=1)
    store = open_store(slotted, single)
    for name in ("slotted", "single"):
        insert(sql, name, key="b", total=2**62)
        for form in forms(sql):
            with pytest.raises(sql.Error, match=r"64 bits|bigint out of range"):
                sql.execute(f"{form} INTO {into(sql, name)} VALUES ('a', 1), ('b', ?)", (2**62,))
        insert(sql, name, key="b", total=2**62 - 1)
    assert store.run_all(*[each.totals(["a", "b"]) for each in (slotted, single)]) == ({"a": 0, "b": 2**63 - 1},) * 2


@in_place
def test_a_total_beyond_64_bits_is_shown_and_can_be_repaired(open_store: Open, sql: Client) -> None:
    store = open_store(slotted)
    held = [("a", slot, 2**62) for slot in range(4)] + [("b", slot, -5) for slot in range(4)]
    sql.executemany("INSERT INTO roost_slotted_rows VALUES (?, ?, ?)", held)
    assert store.run(slotted.total("a")) == 2**64
    assert rows(sql, "SELECT * FROM slotted ORDER BY key") == [("a", 2**64), ("b", -20)]
    for form in forms(sql) if isinstance(sql, SQLiteClient) else []:  # elsewhere its slot has room
        with pytest.raises(sql.Error, match="64 bits"):
            sql.execute(f"{form} INTO slotted VALUES ('a', 1)")
    for total, more in ((2**63 - 1, 1), (-(2**63), -1)):
        sql.execute("UPDATE slotted SET total = ? WHERE key = 'a'", (total,))
        assert rows(sql, "SELECT total FROM slotted WHERE key = 'a'") == [(total,)]
        with pytest.raises(sql.Error, match=r"64 bits|out of range"):
            sql.execute("INSERT INTO slotted VALUES ('a', ?)", (more,))
    for beyond in (2**63, 1.5, "NaN") if isinstance(sql, PostgreSQLClient) else ():
        with pytest.raises(psycopg.errors.CheckViolation, match=r"slotted\.total: it takes an integer"):
            sql.execute("INSERT INTO slotted VALUES ('a', ?)", (beyond,))
    sql.execute("DELETE FROM slotted")
    assert store.run(slotted.totals(["a", "b"])) == {"a": 0, "b": 0}


@in_place
def test_keys_of_several_columns(open_store: Open, sql: Client) -> None:
    places = roost.Counter("places", key=Place)
    ring = roost.Ring("ring", Seen, per=("site", "page"), keep=2)
    capped = roost.Capped("capped", Seen, per=Place, keep=2, unique="who", on_duplicate="refresh")
    pairs = roost.Set("pairs", key=Place, member=Cell)
    store = open_store(places, ring, capped, pairs)
    sql.execute("INSERT INTO places (site, page, total) VALUES ('a', 1, 2), ('a', 2, 3), ('b', 1, 4), ('a', 1, 5)")
    for name in ("ring", "capped"):
        cells = [("a", 1, 1), ("a", 1, 2), ("a", 2, 1), ("a", 1, 1), ("a", 1, 3)]
        sql.executemany(f"INSERT INTO {name} (site, page, who) VALUES (?, ?, ?)", cells)
        assert rows(sql, f"SELECT site, page, who FROM {name} {newest_first(sql, 'site, page DESC, ')}") == [
            ("a", 2, 1),
            ("a", 1, 3),
            ("a", 1, 1),
        ]
        assert rows(sql, f"SELECT who FROM {name} WHERE site = 'a' AND page = 1 {newest_first(sql)}") == [(3,), (1,)]
    sql.execute("INSERT INTO pairs (site, page, x, y) VALUES ('a', 1, 2, 3), ('a', 1, 2, 3), ('a', 1, 3, 2)")
    assert store.run(pairs.members(Place("a", 1))) == {Cell(2, 3), Cell(3, 2)}
    sql.execute("DELETE FROM pairs WHERE x = 3")
    assert store.run(pairs.size(Place("a", 1))) == 1
    assert store.run(places.totals([Place("a", 1), Place("b", 1)])) == {Place("a", 1): 7, Place("b", 1): 4}
    sql.execute("DELETE FROM ring WHERE who = 3")
    sql.execute("UPDATE capped SET who = who WHERE page = 2")
    assert store.run(ring.latest(("a", 1))) == [Seen("a", 1, 1)]


@inlets
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


@inlets
def test_a_statement_that_began_before_others_have_written_does_not_put_time_forward(
    open_store: Open, sql: Any
) -> None:
    store = open_store()
    online = roost.Set("online", key=str, member=int, keep_for=3600)
    locks = roost.Lease("locks")
    store.create(online, locks)
    store.run_all(online.add("room", 1), locks.acquire("door", "ada", 600))
    sql.execute("SET timestamp = UNIX_TIMESTAMP(SYSDATE()) - 3500")  # as where it has waited for a lock, or as one says
    for n in range(3):
        sql.execute(f"INSERT INTO online_in (`key`, member) VALUES ('other', {n})")
    sql.execute("CALL locks_acquire('window', 'eve', 1)")
    assert store.run_all(online.size("room"), locks.holder("door")) == (1, "ada")


@inlets
def test_duplicates_inside_one_statement(open_store: Open, sql: Any) -> None:
    store = open_store(refreshing, baskets, likes)
    sql.execute("INSERT INTO refreshing_in (uid, visitor) VALUES (5, 1), (5, 2), (5, 1), (5, 1), (6, 1)")
    sql.execute("INSERT INTO likes_in VALUES (7, 'ada'), (7, 'ada'), (7, 'bob')")
    with pytest.raises(sql.IntegrityError, match="baskets: egg is there already"):
        sql.execute("INSERT INTO baskets_in VALUES (1, 1, 'a'), (1, 2, 'b'), (1, 1, 'c')")
    assert store.run_all(refreshing.latest(5), refreshing.count(5), likes.size(7)) == ([Visit(5, 1), Visit(5, 2)], 2, 2)
    assert store.run(baskets.keys()) == []


@inlets
def test_affected_rows_are_those_given_and_the_last_id_is_the_client_s_own(open_store: Open, sql: Any) -> None:
    open_store(likes)
    sql.execute("CREATE TABLE own (id INT AUTO_INCREMENT PRIMARY KEY)")
    sql.execute("INSERT INTO own VALUES (NULL), (NULL)")
    sql.execute("INSERT INTO own VALUES (NULL)")
    assert sql.execute("INSERT INTO likes_in VALUES (7, 'ada'), (7, 'ada')").rowcount == 2
    assert sql.execute("INSERT INTO likes_out VALUES (7, 'nobody')").rowcount == 1
    assert sql.execute("SELECT LAST_INSERT_ID()").fetchall() == ((3,),)


@inlets
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
