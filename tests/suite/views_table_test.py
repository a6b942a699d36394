"""Views: what plain SQL clients may do, cell by cell of the tables in docs/sql-views.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.suite.clients import MariaDBClient, PostgreSQLClient, SQLiteClient, is_mariadb
from tests.suite.engines import Engine
from tests.suite.shapes import Open, likes, pageviews, rows, visits
from tests.suite.views import FORMS, HELD, LIKED, WRITES, baskets, filled

Cell = tuple[str, str, str, list[Any], Any]

PAGE = Path(__file__).parents[2] / "docs/sql-views.md"
NO_COLUMN = "no such column|no column|does not exist"
NOT_CHANGED = "cannot be changed; delete"

# Row of the table, structure, statement, what it answers, and what is held then; a text is what it is refused with.
CELLS: list[Cell] = [
    ("SELECT", "pageviews", "SELECT total FROM pageviews WHERE key = '/home'", [(3,)], None),
    ("SELECT", "visits", "SELECT visitor FROM visits WHERE uid = 5 ORDER BY sequence DESC LIMIT 3", [(7,), (6,), (5,)],
     None),
    ("SELECT", "baskets", "SELECT egg FROM baskets WHERE basket = 42 ORDER BY sequence DESC LIMIT 2", [(4,), (3,)],
     None),
    ("SELECT", "likes", "SELECT member FROM likes WHERE key = 7 ORDER BY member", [("ada",), ("bob",)], None),
]  # fmt: skip
ON_SQLITE: list[Cell] = [
    ("SELECT without ORDER BY", "visits", "SELECT visitor FROM visits WHERE uid = 5 LIMIT 3", [(7,), (6,), (5,)], None),
    ("SELECT without ORDER BY", "baskets", "SELECT egg FROM baskets WHERE basket = 42 LIMIT 2", [(4,), (3,)], None),
    ("SELECT without ORDER BY", "pageviews", "SELECT sum(total) FROM pageviews", [(4,)], None),
    ("SELECT without ORDER BY", "likes", "SELECT count(*) FROM likes", [(3,)], None),
]
ON_POSTGRESQL: list[Cell] = []
for name, (columns, good, bad, after) in WRITES.items():
    insert, given = f"INTO {name} ({columns}) VALUES ({good})", [tuple(eval(f"[{good}]"))]
    CELLS += [
        ("INSERT", name, f"INSERT {insert}", [], after),
        ("INSERT", name, f"INSERT {insert}, ({bad})", [], name),
        ("INSERT … RETURNING", name, f"INSERT {insert} RETURNING {columns}", given, after),
    ]
    for form in FORMS[1:]:
        ON_SQLITE.append((form, name, f"{form} {insert}", [], after))
        ON_SQLITE.append((form, name, f"{form} {insert}, ({bad})", [], name))
    ON_SQLITE.append(
        ("INSERT … ON CONFLICT", name, f"INSERT {insert} ON CONFLICT DO NOTHING", [], "cannot UPSERT a view")
    )
    key, by_roost = columns.split(",")[0], name in ("visits", "baskets")
    for column, value in (("sequence", "1"), ("at", "'2008-01-01 22:03:23'")):
        own = f"INSERT INTO {name} ({columns}, {column}) VALUES ({good}, {value})"
        set_ = f"UPDATE {name} SET {column} = {'99' if column == 'sequence' else 'CURRENT_TIMESTAMP'}"
        CELLS.append(("INSERT of sequence, at", name, own, [], "are set by Roost" if by_roost else NO_COLUMN))
        CELLS.append(("UPDATE of sequence, at", name, set_, [], NOT_CHANGED if by_roost else NO_COLUMN))
    merged = f"(SELECT 1) AS s ON false WHEN NOT MATCHED THEN INSERT ({columns}) VALUES ({good})"
    ON_POSTGRESQL += [
        ("COPY … FROM", name, f"COPY {name} ({columns}) FROM STDIN", [], after),
        ("INSERT … ON CONFLICT DO NOTHING", name, f"INSERT {insert} ON CONFLICT DO NOTHING", [], after),
        ("INSERT … ON CONFLICT DO NOTHING", name, f"INSERT {insert}, ({bad}) ON CONFLICT DO NOTHING", [], name),
        ("INSERT … ON CONFLICT (…)", name, f"INSERT {insert} ON CONFLICT ({key}) DO NOTHING", [], "no unique"),
        ("MERGE", name, f"MERGE INTO {name} USING {merged}", [], "MERGE"),
        ("TRUNCATE", name, f"TRUNCATE {name}", [], "is not a table"),
    ]
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
    ("INSERT … SELECT", "visits",
     "INSERT INTO visits (uid, visitor) SELECT 6, visitor FROM visits WHERE uid = 5 ORDER BY sequence DESC", [],
     [(6, 6, 3), (6, 5, 4), (6, 4, 5), (6, 3, 6), (6, 2, 7), *HELD["visits"][1][1:]]),
    ("INSERT … SELECT", "baskets",
     "INSERT INTO baskets (basket, egg, colour) SELECT 44, egg, 'red' FROM baskets WHERE basket = 42 ORDER BY egg DESC",
     [],
     [(44, 2, "red", 3), (44, 3, "red", 2), (44, 4, "red", 1), *HELD["baskets"][1]]),
    ("INSERT … SELECT", "likes", "INSERT INTO likes SELECT 8, member FROM likes", [],
     [(7, "ada"), (7, "bob"), (8, "ada"), (8, "bob")]),
    ("UPDATE of a value", "pageviews", "UPDATE pageviews SET total = 0 WHERE key = '/home'", [],
     [("/about", 1), ("/home", 0)]),
    ("UPDATE of a value", "pageviews", "UPDATE pageviews SET total = 'many'", [],
     "pageviews.total: it takes an int|invalid input syntax"),
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
HOW = ("ABORT", "FAIL", "ROLLBACK", "IGNORE", "REPLACE")
ON_SQLITE += [
    *[("UPDATE OR …", "pageviews", f"UPDATE OR {how} pageviews SET total = total + 4 WHERE key = '/about'", [],
       [("/about", 5), ("/home", 3)]) for how in HOW],
    *[("UPDATE OR …", "visits", f"UPDATE OR {how} visits SET visitor = 1 WHERE uid = 6", [],
       [(6, 1, 1), *HELD["visits"][1][1:]]) for how in HOW],
    *[("UPDATE OR …", "baskets", f"UPDATE OR {how} baskets SET colour = 'red' WHERE basket = 43", [],
       [(43, 2, "red", 1), *HELD["baskets"][1][1:]]) for how in HOW],
    *[("UPDATE OR …", "baskets", f"UPDATE OR {how} baskets SET egg = 2", [], NOT_CHANGED)
      for how in HOW],
    *[("UPDATE OR …", "likes", f"UPDATE OR {how} likes SET member = 'ada'", [], NOT_CHANGED)
      for how in HOW],
]  # fmt: skip

USED = "already used by statement"
THREE = "(SELECT 1 AS seq UNION SELECT 2 UNION SELECT 3) q"
# What is removed, what is refused, what is held then.
OUT: dict[str, tuple[str, str, str, list[Any]]] = {
    "pageviews": ("`key`", "'/home'", "NULL", [("/about", 1)]),
    "visits": ("uid, sequence", "5, 6", "5, NULL", [each for each in HELD["visits"][1] if each != (5, 6, 6)]),
    "baskets": ("basket, egg", "42, 3", "42, NULL", [each for each in HELD["baskets"][1] if each[:2] != (42, 3)]),
    "likes": ("`key`, member", "7, 'ada'", "7, NULL", HELD["likes"][1][1:]),
}
ON_MYSQL: list[Cell] = [
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
for name, (columns, good, bad, after) in WRITES.items():
    columns = columns.replace("key", "`key`")
    insert, given = f"INTO {name}_in ({columns}) VALUES ({good})", [tuple(map(str, eval(f"[{good}]")))]
    for label, form in (
        ("INSERT INTO NAME_in", "INSERT"),
        ("INSERT IGNORE INTO NAME_in", "INSERT IGNORE"),
        ("REPLACE INTO NAME_in", "REPLACE"),
    ):
        ON_MYSQL.append((label, name, f"{form} {insert}", [], after))
        ON_MYSQL.append((label, name, f"{form} {insert}, ({bad})", [], f"{name}[.:]"))
    keys, removed, refused, left = OUT[name]
    first = columns.partition(",")[0]
    ON_MYSQL += [
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

ON = {
    "sqlite-file": CELLS + ON_SQLITE,
    "postgresql": CELLS + ON_POSTGRESQL,
    "mariadb": ON_MYSQL,
    "mysql": [cell for cell in ON_MYSQL if "RETURNING" not in cell[0]],
}


@pytest.mark.needs("readable views")
@pytest.mark.parametrize("name", WRITES)
def test_each_cell_of_the_table(open_store: Open, sql: Any, engine: Engine, name: str) -> None:
    store = filled(open_store, name)
    for cell in ON[engine.name]:
        if cell[1] == name:
            holds(sql, cell)
    if isinstance(sql, MariaDBClient):
        # The last has truncated the rows: counts stay until a collection is full, or the keys are forgotten.
        found = [(each.rule, each.detail[:13]) for each in store.check()]
        heads = {"baskets": (baskets.forget(42), baskets.forget(43)), "likes": (likes.forget(7), likes.forget(8))}
        assert found == [("count", "the head says")] * len(heads.get(name, ()))
        store.run_all(*heads.get(name, ()))


def holds(sql: Any, cell: Cell) -> None:
    """Run the statement of a cell in a transaction, and see what it answers and what is held."""
    _, name, statement, answer, then = cell
    columns, held = HELD[name]
    if then == "MERGE" and sql.info.server_version >= 17_00_00:
        then = WRITES[name][3]
    elif f" {name} s JOIN " in statement and name != "pageviews" and is_mariadb(sql, 11):
        then = None  # no row is concerned: where there are some, MariaDB 11.8.9 dies
    sql.execute("BEGIN")
    if isinstance(then, str):
        with pytest.raises(sql.Error, match=then):
            rows(sql, statement)
        if isinstance(sql, PostgreSQLClient):
            sql.execute("ROLLBACK")
        elif isinstance(sql, SQLiteClient):
            assert sql.in_transaction, statement
    elif statement.startswith("COPY"):
        sql.copy(statement, eval(f"({WRITES[name][1]},)"))
    else:
        assert (statement, [*rows(sql, statement)]) == (statement, answer)
    order = f"{columns.split(',')[0]} DESC, sequence DESC" if name in ("visits", "baskets") else "1, 2"
    if isinstance(sql, MariaDBClient):
        columns = columns.replace("key", "`key`")
    found = [*rows(sql, f"SELECT {columns} FROM {name} ORDER BY {order}")]
    assert (statement, found) == (statement, then if isinstance(then, list) else held)
    sql.execute("ROLLBACK")


@pytest.mark.parametrize(
    ("heading", "cells"),
    [
        ("## Structure × statement", CELLS),
        ("### On SQLite alone", ON_SQLITE),
        ("### On PostgreSQL alone", ON_POSTGRESQL),
        ("## On MariaDB and MySQL", ON_MYSQL),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_every_cell_of_a_table_is_tested_and_says_refused_where_it_is(heading: str, cells: list[Cell]) -> None:
    page = PAGE.read_text()
    table = page.partition(heading)[2].partition("| statement |")[2].partition("\n\n")[0].splitlines()[2:]
    columns = ("pageviews", "visits", "baskets", "likes")
    verdicts: dict[tuple[str, str], bool] = {}
    for line in table:
        label, *found = [each.strip().replace("`", "") for each in line.strip("|").split("|")]
        found = found[:1] * len(columns) if not any(found[1:]) else found  # one cell for all structures
        for statement in label.split("; "):
            verdicts |= {
                (statement, name): each.startswith("refused") for name, each in zip(columns, found, strict=True)
            }
    assert {(row, name) for row, name, *_ in cells} == set(verdicts)
    works = {(row, name) for row, name, _, _, then in cells if not isinstance(then, str)}
    assert works == {cell for cell, refused in verdicts.items() if not refused}


@pytest.mark.needs("inlets")
def test_the_sql_of_the_page_runs(open_store: Open, sql: Any) -> None:
    store = open_store(pageviews, visits, baskets, likes)
    example = PAGE.read_text().partition("## On MariaDB and MySQL")[2].partition("```sql\n")[2].partition("```")[0]
    for line in example.splitlines():
        if statement := line.partition("--")[0].strip():
            sql.execute(statement)
    assert store.run_all(visits.latest(5), pageviews.total("/home"), baskets.count(42), likes.size(7)) == ([], 0, 0, 0)
