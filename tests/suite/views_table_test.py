"""Views: what plain SQL clients may do, cell by cell of the tables in docs/sql-views.md."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import roost
from tests.suite.clients import Client
from tests.suite.shapes import rows
from tests.suite.views import FORMS, HELD, WRITES, filled

Open = Callable[..., roost.Store]
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
    ON_POSTGRESQL += [
        ("COPY … FROM", name, f"COPY {name} ({columns}) FROM STDIN", [], after),
        ("INSERT … ON CONFLICT DO NOTHING", name, f"INSERT {insert} ON CONFLICT DO NOTHING", [], after),
        ("INSERT … ON CONFLICT DO NOTHING", name, f"INSERT {insert}, ({bad}) ON CONFLICT DO NOTHING", [], name),
        ("INSERT … ON CONFLICT (…)", name, f"INSERT {insert} ON CONFLICT ({key}) DO NOTHING", [], "no unique"),
        ("MERGE", name, f"MERGE INTO {name} USING (SELECT 1) AS s ON false WHEN MATCHED THEN DELETE", [], "MERGE"),
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

SHARED, SQLITE, POSTGRESQL = "## Structure × statement", "### On SQLite alone", "### On PostgreSQL alone"


@pytest.mark.needs("views")
@pytest.mark.parametrize("cell", CELLS, ids=lambda each: each[2][:80])
def test_a_cell_of_the_table(open_store: Open, sql: Client, cell: Cell) -> None:
    holds(open_store, sql, cell)


@pytest.mark.needs("sqlite3")
@pytest.mark.parametrize("cell", ON_SQLITE, ids=lambda each: each[2][:80])
def test_a_cell_of_sqlite_s_table(open_store: Open, sql: Client, cell: Cell) -> None:
    holds(open_store, sql, cell)


@pytest.mark.needs("psycopg")
@pytest.mark.parametrize("cell", ON_POSTGRESQL, ids=lambda each: each[2][:80])
def test_a_cell_of_postgresql_s_table(open_store: Open, sql: Client, cell: Cell) -> None:
    holds(open_store, sql, cell)


def holds(open_store: Open, sql: Any, cell: Cell) -> None:
    """Run the statement of a cell in a transaction, and see what it answers and what is held."""
    _, name, statement, answer, then = cell
    filled(open_store, name)
    columns, held = HELD[name]
    sql.execute("BEGIN")
    if isinstance(then, str):
        with pytest.raises(sql.Error, match=then):
            rows(sql, statement)
        assert sql.in_transaction
    elif statement.startswith("COPY"):
        sql.copy(statement, eval(f"({WRITES[name][1]},)"))
    else:
        assert rows(sql, statement) == answer
    sql.execute("COMMIT")
    order = (
        f" ORDER BY {columns.split(',')[0]} DESC, sequence DESC" if name in ("visits", "baskets") else " ORDER BY 1, 2"
    )
    assert rows(sql, f"SELECT {columns} FROM {name}{order}") == (then if isinstance(then, list) else held)


@pytest.mark.parametrize(
    ("heading", "cells"),
    [(SHARED, CELLS), (SQLITE, ON_SQLITE), (POSTGRESQL, ON_POSTGRESQL)],
    ids=["both", "sqlite", "postgresql"],
)
def test_every_cell_of_a_table_is_tested_and_says_refused_where_it_is(heading: str, cells: list[Cell]) -> None:
    says_what_is_tested(heading, cells)


def says_what_is_tested(heading: str, cells: list[Cell]) -> None:
    """Compare the table below a heading of the page with the cells that are tested."""
    page = PAGE.read_text()
    table = page.partition(heading)[2].partition("| statement |")[2].partition("\n\n")[0].splitlines()[2:]
    columns = ("pageviews", "visits", "baskets", "likes")
    verdicts: dict[tuple[str, str], bool] = {}
    for line in table:
        label, *found = [each.strip().replace("`", "") for each in line.strip("|").split("|")]
        found = found[:1] * len(columns) if not any(found[1:]) else found  # one cell for all structures
        verdicts |= {(label, name): each.startswith("refused") for name, each in zip(columns, found, strict=True)}
    assert {(row, name) for row, name, *_ in cells} == set(verdicts)
    works = {(row, name) for row, name, _, _, then in cells if not isinstance(then, str)}
    assert works == {cell for cell, refused in verdicts.items() if not refused}
