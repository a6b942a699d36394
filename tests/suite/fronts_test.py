"""Fronts: what plain SQL clients may do, cell by cell of the table in docs/fronts.md."""

from __future__ import annotations

import random
import re
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import roost
from tests.suite.shapes import Egg, Place, Seen, Visit, likes, pageviews, rows, visits

pytestmark = pytest.mark.needs("sqlite3")

Open = Callable[..., roost.Store]

baskets = roost.Capped("baskets", Egg, per="basket", keep=3, unique="egg")
refreshing = roost.Capped("refreshing", Visit, per="uid", keep=3, unique="visitor", on_duplicate="refresh")
rejecting = roost.Capped("rejecting", Visit, per="uid", keep=2, unique="visitor", on_full="reject")
both = roost.Capped("both", Visit, per="uid", keep=2, unique="visitor", on_full="reject", on_duplicate="refresh")
slotted = roost.Counter("slotted", slots=4)


class Cell(NamedTuple):
    x: int
    y: int


TABLE = Path(__file__).parents[2] / "docs/fronts.md"


# What the structures hold before each cell.
FILL = [
    pageviews.add("/home", 3),
    pageviews.add("/about", 1),
    *[visits.push(Visit(5, n)) for n in range(1, 8)],
    visits.push(Visit(6, 7)),
    *[baskets.add(Egg(42, n)) for n in range(1, 5)],
    baskets.add(Egg(43, 2)),
    likes.add(7, "ada", "bob"),
    likes.add(8, "ada"),
]
HELD: dict[str, tuple[str, list[Any]]] = {
    "pageviews": ("key, total", [("/about", 1), ("/home", 3)]),
    "visits": ("uid, sequence, visitor", [(6, 1, 7), (5, 7, 7), (5, 6, 6), (5, 5, 5), (5, 4, 4), (5, 3, 3)]),
    "baskets": (
        "basket, egg, colour, sequence",
        [(43, 2, "white", 1), (42, 4, "white", 4), (42, 3, "white", 3), (42, 2, "white", 2)],
    ),
    "likes": ("key, member", [(7, "ada"), (7, "bob"), (8, "ada")]),
}
COUNTED, PUSHED = [("/about", 1), ("/home", 5)], [(6, 1, 7), (5, 8, 9), *HELD["visits"][1][1:5]]
ADDED = [HELD["baskets"][1][0], (42, 9, "red", 5), *HELD["baskets"][1][1:3]]
LIKED = [(7, "ada"), (7, "bob"), (7, "eve"), (8, "ada")]
WRITES: dict[str, tuple[str, str, str, list[Any]]] = {
    # columns, a row, a row that is refused, what is held after the first
    "pageviews": ("key, total", "'/home', 2", "'/home', NULL", COUNTED),
    "visits": ("uid, visitor", "5, 9", "NULL, 9", PUSHED),
    "baskets": ("basket, egg, colour", "42, 9, 'red'", "42, 4, 'red'", ADDED),
    "likes": ("key, member", "7, 'eve'", "NULL, 'eve'", LIKED),
}
FORMS = [
    "INSERT",
    "INSERT OR ABORT",
    "INSERT OR FAIL",
    "INSERT OR ROLLBACK",
    "INSERT OR IGNORE",
    "INSERT OR REPLACE",
    "REPLACE",
]
NOT_CHANGED = "cannot be changed; delete"

# Row of the table, structure, statement, what it answers, and what is held then; a text is what it is refused with.
CELLS: list[tuple[str, str, str, list[Any], Any]] = [
    ("SELECT", "pageviews", "SELECT total FROM pageviews WHERE key = '/home'", [(3,)], None),
    ("SELECT", "visits", "SELECT visitor FROM visits WHERE uid = 5 LIMIT 3", [(7,), (6,), (5,)], None),
    ("SELECT", "baskets", "SELECT egg FROM baskets WHERE basket = 42 LIMIT 2", [(4,), (3,)], None),
    ("SELECT", "likes", "SELECT member FROM likes WHERE key = 7 ORDER BY member", [("ada",), ("bob",)], None),
]
for name, (columns, good, bad, after) in WRITES.items():
    for form in FORMS:
        CELLS.append((form, name, f"{form} INTO {name} ({columns}) VALUES ({good})", [], after))
        CELLS.append((form, name, f"{form} INTO {name} ({columns}) VALUES ({good}), ({bad})", [], name))
    given = [tuple(eval(f"[{good}]"))]
    returning = f"INSERT INTO {name} ({columns}) VALUES ({good}) RETURNING {columns}"
    upsert = f"INSERT INTO {name} ({columns}) VALUES ({good}) ON CONFLICT"
    own = f"INSERT INTO {name} ({columns}, sequence) VALUES ({good}, 1)"
    at = f"INSERT INTO {name} ({columns}, at) VALUES ({good}, '2008-01-01 22:03:23')"
    set_by_roost = "sequence and at are set by Roost" if name in ("visits", "baskets") else "no column"
    CELLS += [
        ("INSERT … RETURNING", name, returning, given, after),
        ("INSERT … ON CONFLICT", name, f"{upsert} DO NOTHING", [], "cannot UPSERT a view"),
        ("INSERT of sequence, at", name, own, [], set_by_roost),
        ("INSERT of sequence, at", name, at, [], set_by_roost),
        ("UPDATE of sequence, at", name, f"UPDATE {name} SET sequence = 99", [],
         NOT_CHANGED if name in ("visits", "baskets") else "no such column"),
        ("UPDATE of sequence, at", name, f"UPDATE {name} SET at = CURRENT_TIMESTAMP", [],
         NOT_CHANGED if name in ("visits", "baskets") else "no such column"),
    ]  # fmt: skip
CELLS += [
    ("INSERT of several rows", "pageviews", "INSERT INTO pageviews VALUES ('/a', 1), ('/a', 2), ('/b', -1)", [],
     [("/a", 3), ("/about", 1), ("/b", -1), ("/home", 3)]),
    ("INSERT of several rows", "visits", "INSERT INTO visits (visitor, uid) VALUES (1, 6), (2, 6), (8, 5), (3, 6)", [],
     [(6, 4, 3), (6, 3, 2), (6, 2, 1), (6, 1, 7), (5, 8, 8), *HELD["visits"][1][1:5]]),
    ("INSERT of several rows", "baskets",
     "INSERT INTO baskets (basket, egg, colour) VALUES (42, 1, 'a'), (43, 1, 'b'), (42, 2, 'c')", [],
     [(43, 1, "b", 2), (43, 2, "white", 1), (42, 2, "c", 6), (42, 1, "a", 5), (42, 4, "white", 4)]),
    ("INSERT of several rows", "likes", "INSERT INTO likes VALUES (7, 'ada'), (9, 'x'), (9, 'x'), (9, 'y')", [],
     [(7, "ada"), (7, "bob"), (8, "ada"), (9, "x"), (9, "y")]),
    ("INSERT … SELECT", "pageviews", "INSERT INTO pageviews SELECT key, 10 * total FROM pageviews", [],
     [("/about", 11), ("/home", 33)]),
    ("INSERT … SELECT", "visits", "INSERT INTO visits (uid, visitor) SELECT 6, visitor FROM visits WHERE uid = 5", [],
     [(6, 6, 3), (6, 5, 4), (6, 4, 5), (6, 3, 6), (6, 2, 7), *HELD["visits"][1][1:]]),
    ("INSERT … SELECT", "baskets",
     "INSERT INTO baskets (basket, egg, colour) SELECT 44, egg, 'red' FROM baskets WHERE basket = 42", [],
     [(44, 2, "red", 3), (44, 3, "red", 2), (44, 4, "red", 1), *HELD["baskets"][1]]),
    ("INSERT … SELECT", "likes", "INSERT INTO likes SELECT 8, member FROM likes", [],
     [(7, "ada"), (7, "bob"), (8, "ada"), (8, "bob")]),
    ("UPDATE of a value", "pageviews", "UPDATE pageviews SET total = 0 WHERE key = '/home'", [],
     [("/about", 1), ("/home", 0)]),
    ("UPDATE of a value", "pageviews", "UPDATE pageviews SET total = 'many'", [], "pageviews.total: it takes an int"),
    ("UPDATE of a value", "visits", "UPDATE visits SET visitor = 70 WHERE visitor = 7", [],
     [(6, 1, 70), (5, 7, 70), *HELD["visits"][1][2:]]),
    ("UPDATE of a value", "visits", "UPDATE visits SET visitor = NULL", [], "visits.visitor: it takes an integer"),
    ("UPDATE of a value", "baskets", "UPDATE baskets SET colour = 'red' WHERE egg = 3", [],
     [(43, 2, "white", 1), (42, 4, "white", 4), (42, 3, "red", 3), (42, 2, "white", 2)]),
    ("UPDATE of a value", "baskets", f"UPDATE baskets SET colour = '{'x' * 21}'", [], "baskets.colour: it takes"),
    ("UPDATE of a value", "likes", "UPDATE likes SET member = 'eve' WHERE member = 'ada'", [], NOT_CHANGED),
    ("UPDATE of a key or an id", "pageviews", "UPDATE pageviews SET key = '/' WHERE key = '/home'", [], NOT_CHANGED),
    ("UPDATE of a key or an id", "visits", "UPDATE visits SET uid = uid + 1", [], NOT_CHANGED),
    ("UPDATE of a key or an id", "baskets", "UPDATE baskets SET basket = 1", [], NOT_CHANGED),
    ("UPDATE of a key or an id", "baskets", "UPDATE baskets SET egg = egg + 1", [], NOT_CHANGED),
    ("UPDATE of a key or an id", "likes", "UPDATE likes SET key = 1", [], NOT_CHANGED),
    *[("UPDATE OR …", "pageviews", f"UPDATE OR {how} pageviews SET total = total + 4 WHERE key = '/about'", [],
       [("/about", 5), ("/home", 3)]) for how in ("ABORT", "FAIL", "ROLLBACK", "IGNORE", "REPLACE")],
    *[("UPDATE OR …", "visits", f"UPDATE OR {how} visits SET visitor = 1 WHERE uid = 6", [],
       [(6, 1, 1), *HELD["visits"][1][1:]]) for how in ("ABORT", "FAIL", "ROLLBACK", "IGNORE", "REPLACE")],
    *[("UPDATE OR …", "baskets", f"UPDATE OR {how} baskets SET colour = 'red' WHERE basket = 43", [],
       [(43, 2, "red", 1), *HELD["baskets"][1][1:]]) for how in ("ABORT", "FAIL", "ROLLBACK", "IGNORE", "REPLACE")],
    *[("UPDATE OR …", "baskets", f"UPDATE OR {how} baskets SET egg = 2", [], NOT_CHANGED)
      for how in ("ABORT", "FAIL", "ROLLBACK", "IGNORE", "REPLACE")],
    *[("UPDATE OR …", "likes", f"UPDATE OR {how} likes SET member = 'ada'", [], NOT_CHANGED)
      for how in ("ABORT", "FAIL", "ROLLBACK", "IGNORE", "REPLACE")],
    ("UPDATE … RETURNING", "pageviews", "UPDATE pageviews SET total = total + 1 WHERE key = '/home' RETURNING *",
     [("/home", 4)], [("/about", 1), ("/home", 4)]),
    ("UPDATE … RETURNING", "visits", "UPDATE visits SET visitor = 1 WHERE uid = 6 RETURNING uid, sequence, visitor",
     [(6, 1, 1)], [(6, 1, 1), *HELD["visits"][1][1:]]),
    ("UPDATE … RETURNING", "baskets", "UPDATE baskets SET colour = 'red' WHERE basket = 43 RETURNING egg, colour",
     [(2, "red")], [(43, 2, "red", 1), *HELD["baskets"][1][1:]]),
    ("UPDATE … RETURNING", "likes", "UPDATE likes SET member = 'eve' RETURNING *", [], NOT_CHANGED),
    ("DELETE of a key", "pageviews", "DELETE FROM pageviews WHERE key = '/home'", [], [("/about", 1)]),
    ("DELETE of a key", "visits", "DELETE FROM visits WHERE uid = 5", [], [(6, 1, 7)]),
    ("DELETE of a key", "baskets", "DELETE FROM baskets WHERE basket = 42", [], [(43, 2, "white", 1)]),
    ("DELETE of a key", "likes", "DELETE FROM likes WHERE key = 7", [], [(8, "ada")]),
    ("DELETE of one", "pageviews", "DELETE FROM pageviews WHERE total = 1", [], [("/home", 3)]),
    ("DELETE of one", "visits", "DELETE FROM visits WHERE visitor = 7", [], HELD["visits"][1][2:]),
    ("DELETE of one", "baskets", "DELETE FROM baskets WHERE egg = 2", [], HELD["baskets"][1][1:3]),
    ("DELETE of one", "likes", "DELETE FROM likes WHERE member = 'ada'", [], [(7, "bob")]),
    ("DELETE … RETURNING", "pageviews", "DELETE FROM pageviews WHERE key = '/home' RETURNING total", [(3,)],
     [("/about", 1)]),
    ("DELETE … RETURNING", "visits", "DELETE FROM visits WHERE uid = 6 RETURNING visitor", [(7,)],
     HELD["visits"][1][1:]),
    ("DELETE … RETURNING", "baskets", "DELETE FROM baskets WHERE basket = 43 RETURNING egg", [(2,)],
     HELD["baskets"][1][1:]),
    ("DELETE … RETURNING", "likes", "DELETE FROM likes WHERE key = 8 RETURNING member", [("ada",)],
     HELD["likes"][1][:2]),
]  # fmt: skip


@pytest.mark.parametrize(("row", "name", "statement", "answer", "then"), CELLS, ids=[each[2][:80] for each in CELLS])
def test_a_cell_of_the_table(
    open_store: Open, sql: sqlite3.Connection, row: str, name: str, statement: str, answer: list[Any], then: Any
) -> None:
    store = open_store(pageviews, visits, baskets, likes)
    store.run_all(*FILL)
    columns, held = HELD[name]
    sql.execute("BEGIN")
    if isinstance(then, str):
        with pytest.raises(sqlite3.Error, match=re.escape(then)):
            sql.execute(statement).fetchall()
        assert sql.in_transaction
    else:
        assert rows(sql, statement) == answer
    sql.execute("COMMIT")
    wanted = then if isinstance(then, list) else held
    found = rows(sql, f"SELECT {columns} FROM {name}")
    if name in ("visits", "baskets"):
        assert sorted(found, key=lambda row: -row[0]) == wanted  # per key newest first
    else:
        assert sorted(found) == wanted


def test_every_cell_of_the_table_is_tested_and_says_refused_where_it_is() -> None:
    table = TABLE.read_text().partition("| statement |")[2].partition("\n\n")[0].splitlines()[2:]
    columns = ("pageviews", "visits", "baskets", "likes")
    verdicts: dict[tuple[str, str], bool] = {}
    for line in table:
        label, *cells = [each.strip().replace("`", "") for each in line.strip("|").split("|")]
        verdicts |= {(label, name): cell.startswith("refused") for name, cell in zip(columns, cells, strict=True)}
    tested = {(row, name) for row, name, *_ in CELLS if row in FORMS} | {(row, name) for row, name, *_ in CELLS}
    assert tested == set(verdicts)
    works = {(row, name) for row, name, _, _, then in CELLS if not isinstance(then, str)}
    assert works == {cell for cell, refused in verdicts.items() if not refused}


# What the table cannot say


def test_the_sequence_goes_on_after_a_delete_and_the_head_is_right(open_store: Open, sql: sqlite3.Connection) -> None:
    store = open_store(visits, baskets, likes)
    store.run_all(*FILL[2:])
    for name in ("visits", "baskets", "likes"):
        sql.execute(f"DELETE FROM {name}")
    assert store.run_all(baskets.count(42), likes.size(7), visits.keys(), baskets.keys()) == (0, 0, [5, 6], [42, 43])
    sql.execute("INSERT INTO visits (uid, visitor) VALUES (5, 1)")
    sql.execute("INSERT INTO baskets (basket, egg, colour) VALUES (42, 1, 'red')")
    assert [each.sequence for each in store.run(visits.entries(5))] == [8]
    assert [each.sequence for each in store.run(baskets.entries(42))] == [5]
    assert store.run_all(visits.push(Visit(5, 2)), baskets.add(Egg(42, 2)), baskets.count(42)) == (9, None, 2)


@pytest.mark.parametrize("form", FORMS)
def test_on_full_and_on_duplicate_rule_whatever_the_form(open_store: Open, sql: sqlite3.Connection, form: str) -> None:
    store = open_store(refreshing, rejecting, both)
    insert = f"{form} INTO {{}} (uid, visitor) VALUES (5, ?)"
    for visitor in (1, 2, 3, 1, 4, 1):
        sql.execute(insert.format("refreshing"), (visitor,))
    assert store.run_all(refreshing.latest(5), refreshing.count(5)) == ([Visit(5, 1), Visit(5, 4), Visit(5, 3)], 3)
    for name in ("rejecting", "both"):
        for visitor in (1, 2):
            sql.execute(insert.format(name), (visitor,))
        with pytest.raises(sqlite3.IntegrityError, match=f"{name}: the collection is full; keep is 2"):
            sql.execute(insert.format(name), (3,))
    with pytest.raises(sqlite3.IntegrityError, match="rejecting: visitor is there already"):
        sql.execute(insert.format("rejecting"), (1,))
    sql.execute(insert.format("both"), (1,))
    assert store.run_all(rejecting.latest(5), both.latest(5), both.count(5)) == (
        [Visit(5, 2), Visit(5, 1)], [Visit(5, 1), Visit(5, 2)], 2
    )  # fmt: skip


def test_a_place_that_was_freed_is_taken_again(open_store: Open, sql: sqlite3.Connection) -> None:
    store = open_store(rejecting)
    sql.executescript("""
        INSERT INTO rejecting (uid, visitor) VALUES (5, 1), (5, 2);
        DELETE FROM rejecting WHERE visitor = 1;
        INSERT INTO rejecting (uid, visitor) VALUES (5, 3);
    """)
    assert store.run(rejecting.latest(5)) == [Visit(5, 3), Visit(5, 2)]


@pytest.mark.parametrize("structure", [baskets, rejecting, both], ids=lambda each: each.name)
def test_a_wrong_count_heals_and_costs_none_of_the_newest(
    open_store: Open, sql: sqlite3.Connection, structure: Any
) -> None:
    """Somebody has deleted from the private table: the count is too high, and must evict or refuse nothing."""
    store = open_store(structure)
    name = structure.name
    make = (lambda n: Egg(5, n)) if structure is baskets else (lambda n: Visit(5, n))
    store.run_all(*[structure.add(make(n)) for n in range(structure.keep)])
    sql.execute(f"DELETE FROM roost_{name}_rows")
    if structure is baskets:
        sql.execute("INSERT INTO baskets (basket, egg, colour) VALUES (5, 9, 'white')")
    else:
        sql.execute(f"INSERT INTO {name} (uid, visitor) VALUES (5, 9)")
    assert store.run_all(structure.latest(5), structure.count(5)) == ([make(9)], 1)


def test_the_slots_of_a_counter_are_one_total(open_store: Open, sql: sqlite3.Connection) -> None:
    with_slots = [open_store(slotted, random=random.Random(n)) for n in range(6)]
    for store in with_slots:
        store.run_all(slotted.add("a", 10), slotted.add("b", 1))
    assert len(rows(sql, "SELECT * FROM roost_slotted_rows WHERE key = 'a'")) > 1
    sql.execute("INSERT INTO slotted VALUES ('a', 5)")
    assert rows(sql, "SELECT * FROM slotted ORDER BY key") == [("a", 65), ("b", 6)]
    sql.execute("UPDATE slotted SET total = total / 2 WHERE key = 'a'")
    assert store.run_all(slotted.total("a"), slotted.total("b")) == (32, 6)
    sql.execute("DELETE FROM slotted WHERE key = 'a'")
    assert store.run(slotted.totals(["a", "b"])) == {"a": 0, "b": 6}


def test_a_sum_beyond_64_bits_is_refused(open_store: Open, sql: sqlite3.Connection) -> None:
    store = open_store(pageviews)
    sql.execute("INSERT INTO pageviews VALUES ('a', ?)", (2**63 - 2,))
    for form in FORMS:
        with pytest.raises(sqlite3.IntegrityError, match="64 bits"):
            sql.execute(f"{form} INTO pageviews VALUES ('a', 2)")
    sql.execute("INSERT INTO pageviews VALUES ('a', 1)")
    assert store.run(pageviews.total("a")) == 2**63 - 1


def test_keys_of_several_columns(open_store: Open, sql: sqlite3.Connection) -> None:
    places = roost.Counter("places", key=Place)
    ring = roost.Ring("ring", Seen, per=("site", "page"), keep=2)
    capped = roost.Capped("capped", Seen, per=Place, keep=2, unique="who", on_duplicate="refresh")
    pairs = roost.Set("pairs", key=Place, member=Cell)
    store = open_store(places, ring, capped, pairs)
    sql.execute("INSERT INTO places (site, page, total) VALUES ('a', 1, 2), ('a', 2, 3), ('b', 1, 4), ('a', 1, 5)")
    for name in ("ring", "capped"):
        cells = [("a", 1, 1), ("a", 1, 2), ("a", 2, 1), ("a", 1, 1), ("a", 1, 3)]
        sql.executemany(f"INSERT INTO {name} (site, page, who) VALUES (?, ?, ?)", cells)
        assert rows(sql, f"SELECT site, page, who FROM {name}") == [("a", 2, 1), ("a", 1, 3), ("a", 1, 1)]
        assert rows(sql, f"SELECT who FROM {name} WHERE site = 'a' AND page = 1") == [(3,), (1,)]
    sql.execute("INSERT INTO pairs (site, page, x, y) VALUES ('a', 1, 2, 3), ('a', 1, 2, 3), ('a', 1, 3, 2)")
    assert store.run(pairs.members(Place("a", 1))) == {Cell(2, 3), Cell(3, 2)}
    sql.execute("DELETE FROM pairs WHERE x = 3")
    assert store.run(pairs.size(Place("a", 1))) == 1
    assert store.run(places.totals([Place("a", 1), Place("b", 1)])) == {Place("a", 1): 7, Place("b", 1): 4}
    sql.execute("DELETE FROM ring WHERE who = 3")
    sql.execute("UPDATE capped SET who = who WHERE page = 2")
    assert store.run(ring.latest(("a", 1))) == [Seen("a", 1, 1)]


def test_every_row_of_a_ring_is_shown_once_whatever_its_place(open_store: Open, sql: sqlite3.Connection) -> None:
    store = open_store(visits)
    for pushed in range(1, 14):
        store.run(visits.push(Visit(5, pushed)))
        newest = list(range(pushed, max(0, pushed - 5), -1))
        assert rows(sql, "SELECT visitor FROM visits WHERE uid = 5") == [(n,) for n in newest]
        assert rows(sql, "SELECT visitor FROM visits WHERE uid = 5 LIMIT 2 OFFSET 1") == [(n,) for n in newest[1:3]]


# A front comes and goes


def made(sql: sqlite3.Connection) -> list[str]:
    found = rows(sql, "SELECT name FROM sqlite_master WHERE type IN ('view', 'trigger') ORDER BY name")
    return [name for (name,) in found]


def test_a_front_is_optional_and_can_be_added_and_dropped_later(open_store: Open, sql: sqlite3.Connection) -> None:
    store = open_store()
    store.create(visits, front=False)
    store.run(visits.push(Visit(5, 1)))
    assert made(sql) == []
    assert store.alter(visits, front=True) == ["front added"]
    assert made(sql) == ["roost_visits_delete", "roost_visits_insert", "roost_visits_update", "visits"]
    sql.execute("INSERT INTO visits (uid, visitor) VALUES (5, 2)")
    assert store.run_all(visits.push(Visit(5, 3)), visits.latest(5)) == (3, [Visit(5, 3), Visit(5, 2), Visit(5, 1)])
    assert store.alter(visits, front=True) == []
    assert store.alter(visits) == []
    assert store.alter(visits, front=False) == ["front dropped"]
    assert store.alter(visits, front=False) == []
    assert made(sql) == []
    assert store.run(visits.push(Visit(5, 4))) == 4
    store.create(visits)
    assert len(made(sql)) == 4


def test_a_front_follows_what_is_altered(open_store: Open, sql: sqlite3.Connection) -> None:
    @dataclass(frozen=True)
    class Longer:
        uid: int
        visitor: int
        note: str | None = None

    store = open_store(visits, slotted, refreshing)
    store.run_all(*[visits.push(Visit(5, n)) for n in range(8)], slotted.add("a", 3))
    longer = roost.Ring("visits", Longer, per="uid", keep=3)
    assert store.alter(longer) == ["column note (text(1000000)?) added", "keep: 5 -> 3"]
    for visitor in (8, 9):
        sql.execute("INSERT INTO visits (uid, visitor, note) VALUES (5, ?, 'x')", (visitor,))
    assert rows(sql, "SELECT visitor, note FROM visits") == [(9, "x"), (8, "x"), (7, None)]
    assert store.run(longer.latest(5, 1)) == [Longer(5, 9, "x")]
    fewer, full = (
        roost.Counter("slotted", slots=1),
        roost.Capped(
            "refreshing", Visit, per="uid", keep=2, unique="visitor", on_full="reject", on_duplicate="refresh"
        ),
    )
    store.alter(fewer)
    store.alter(full)
    sql.execute("INSERT INTO slotted VALUES ('a', 4)")
    assert rows(sql, "SELECT * FROM slotted") == [("a", 7)]
    with pytest.raises(sqlite3.IntegrityError, match="keep is 2"):
        sql.execute("INSERT INTO refreshing (uid, visitor) VALUES (1, 1), (1, 2), (1, 1), (1, 3)")


def test_a_front_that_somebody_has_changed_is_made_anew(open_store: Open, sql: sqlite3.Connection) -> None:
    store = open_store(visits)
    sql.execute("DROP TRIGGER roost_visits_insert")
    assert [each.rule for each in store.check()] == ["front"]
    assert store.alter(visits, front=True) == []
    assert rows(sql, "SELECT * FROM visits") == []
    sql.execute("INSERT INTO visits (uid, visitor) VALUES (5, 2)")


@pytest.mark.parametrize(
    "taken", ["CREATE TABLE visits (a)", "CREATE VIEW Visits AS SELECT 1", "CREATE INDEX visits ON t (a)"]
)
def test_a_name_that_is_taken_is_refused_unless_without_a_front(
    open_store: Open, sql: sqlite3.Connection, taken: str
) -> None:
    sql.execute("CREATE TABLE t (a)")
    sql.execute(taken)
    store = open_store()
    with pytest.raises(roost.Invalid, match=r"of that name already \((table|view|index) [vV]isits\); .*front=False"):
        store.create(pageviews, visits)
    assert rows(sql, "SELECT name FROM sqlite_master WHERE name LIKE 'roost%'") == []
    store.create(visits, front=False)
    with pytest.raises(roost.Invalid, match="of that name already"):
        store.alter(visits, front=True)
    assert store.alter(visits, front=False) == []
    assert store.alter(visits) == []
    assert store.alter(roost.Ring("visits", Visit, per="uid", keep=9)) == ["keep: 5 -> 9"]
    assert store.check() == []
    store.alter(visits)


def test_a_view_of_somebody_else_is_never_touched(open_store: Open, sql: sqlite3.Connection) -> None:
    store = open_store()
    store.create(visits, front=False)
    sql.execute("CREATE VIEW visits AS SELECT uid, count(*) AS hits FROM roost_visits_rows GROUP BY uid")
    before = rows(sql, "SELECT * FROM sqlite_master WHERE type = 'view'")
    assert store.check() == []
    for change in (lambda: store.create(visits), lambda: store.alter(visits, front=True)):
        with pytest.raises(roost.Invalid, match="of that name already"):
            change()
    assert store.alter(visits, front=False) == []
    assert store.alter(roost.Ring("visits", Visit, per="uid", keep=9)) == ["keep: 5 -> 9"]
    assert rows(sql, "SELECT * FROM sqlite_master WHERE type = 'view'") == before


def test_the_application_s_own_triggers_on_a_front_stay(open_store: Open, sql: sqlite3.Connection) -> None:
    store = open_store(visits)
    sql.execute("CREATE TABLE log (visitor)")
    sql.execute("CREATE TRIGGER mine INSTEAD OF INSERT ON visits BEGIN INSERT INTO log VALUES (NEW.visitor); END")
    assert store.alter(roost.Ring("visits", Visit, per="uid", keep=9)) == ["keep: 5 -> 9"]
    sql.execute("DROP TRIGGER roost_visits_delete")
    store.alter(roost.Ring("visits", Visit, per="uid", keep=9), front=True)
    sql.execute("INSERT INTO visits (uid, visitor) VALUES (5, 7)")
    assert rows(sql, "SELECT visitor FROM log") == rows(sql, "SELECT visitor FROM visits") == [(7,)]
    assert store.check() == []
    with pytest.raises(roost.Invalid, match="has triggers of your own"):
        store.alter(roost.Ring("visits", Visit, per="uid", keep=9), front=False)
    sql.execute("DROP TRIGGER mine")
    assert store.alter(roost.Ring("visits", Visit, per="uid", keep=9), front=False) == ["front dropped"]


def test_a_trigger_of_a_front_s_name_is_told(open_store: Open, sql: sqlite3.Connection) -> None:
    sql.executescript("CREATE TABLE t (a); CREATE TRIGGER roost_visits_insert AFTER INSERT ON t BEGIN SELECT 1; END")
    with pytest.raises(roost.Invalid, match=r"already \(trigger roost_visits_insert\)"):
        open_store().create(visits)


def test_a_total_beyond_64_bits_is_shown_and_can_be_repaired(open_store: Open, sql: sqlite3.Connection) -> None:
    store = open_store(slotted)
    held = [("a", slot, 2**62) for slot in range(4)] + [("b", slot, -5) for slot in range(4)]
    sql.executemany("INSERT INTO roost_slotted_rows VALUES (?, ?, ?)", held)
    assert store.run(slotted.total("a")) == 2**64
    assert rows(sql, "SELECT * FROM slotted ORDER BY key") == [("a", 2.0**64), ("b", -20)]
    for form in FORMS:
        with pytest.raises(sqlite3.IntegrityError, match="64 bits"):
            sql.execute(f"{form} INTO slotted VALUES ('a', 1)")
    sql.execute("UPDATE slotted SET total = ? WHERE key = 'a'", (2**63 - 1,))
    with pytest.raises(sqlite3.IntegrityError, match="64 bits"):
        sql.execute("INSERT INTO slotted VALUES ('a', 1)")
    assert rows(sql, "SELECT * FROM slotted WHERE key = 'a'") == [("a", 2**63 - 1)]
    sql.execute("UPDATE slotted SET total = ? WHERE key = 'a'", (-(2**63),))
    assert rows(sql, "SELECT * FROM slotted WHERE key = 'a'") == [("a", -(2**63))]
    sql.execute("DELETE FROM slotted")
    assert store.run(slotted.totals(["a", "b"])) == {"a": 0, "b": 0}


def test_a_client_s_own_settings_change_nothing(open_store: Open, sql: sqlite3.Connection) -> None:
    store = open_store(pageviews, visits, baskets, likes)
    for pragma in ("recursive_triggers = ON", "foreign_keys = ON", "trusted_schema = OFF", "case_sensitive_like = ON",
                   "reverse_unordered_selects = ON", "count_changes = ON", "defer_foreign_keys = ON"):  # fmt: skip
        sql.execute(f"PRAGMA {pragma}")
    for name, (columns, good, _, _) in WRITES.items():
        sql.execute(f"INSERT INTO {name} ({columns}) VALUES ({good})")
    for visitor in range(7):
        sql.execute("INSERT INTO visits (uid, visitor) VALUES (6, ?)", (visitor,))
    assert rows(sql, "SELECT visitor FROM visits WHERE uid = 6 LIMIT 3") == [(6,), (5,), (4,)]
    assert store.run_all(baskets.count(42), likes.size(7), pageviews.total("/home")) == (1, 1, 2)


def test_an_attached_database_has_its_own(open_store: Open, sql: sqlite3.Connection, tmp_path: Path) -> None:
    store = open_store(visits)
    other = sqlite3.connect(":memory:", isolation_level=None)
    other.execute("CREATE TABLE roost_visits_rows (x)")
    other.execute("ATTACH ? AS r", (str(tmp_path / "suite.db"),))
    other.execute("INSERT INTO r.visits (uid, visitor) VALUES (5, 7)")
    other.close()
    assert store.run(visits.latest(5)) == [Visit(5, 7)]


@pytest.mark.parametrize("name", [each.name for each in (pageviews, slotted, visits, baskets, likes)])
@pytest.mark.parametrize("analyzed", [False, True], ids=["", "analyzed"])
def test_a_key_is_looked_up_and_its_order_comes_from_an_index(
    open_store: Open, sql: sqlite3.Connection, name: str, analyzed: bool
) -> None:
    store = open_store(pageviews, slotted, visits, baskets, likes)
    if analyzed:
        store.run_all(*[visits.push(Visit(k, n)) for k in range(50) for n in range(6)])
        store.run_all(*[baskets.add(Egg(k, n)) for k in range(50) for n in range(3)])
        store.run_all(*[likes.add(k, "a", "b") for k in range(50)], *[pageviews.add(str(k)) for k in range(50)])
        sql.execute("ANALYZE")
    key = WRITES.get(name, ("key",))[0].split(",")[0]
    queries = [f"SELECT * FROM {name} WHERE {key} = 5", f"SELECT * FROM {name} WHERE {key} = 5 LIMIT 3"]
    if name in ("visits", "baskets"):
        queries.append(f"SELECT * FROM {name}")
    if name == "baskets":
        queries.append(f"SELECT * FROM {name} WHERE {key} = 5 ORDER BY sequence DESC LIMIT 3")
    for query in queries:
        steps = " / ".join(step for *_, step in rows(sql, f"EXPLAIN QUERY PLAN {query}"))
        assert "B-TREE" not in steps, (query, steps)
        assert "WHERE" not in query or "SCAN r" not in steps, (query, steps)
        assert "WHERE" not in query or "SEARCH" in steps, (query, steps)
