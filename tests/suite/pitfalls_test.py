"""What the source texts, and first correct attempts, get wrong, as far as no other file of the suite has it.

Elsewhere: capped_test (ids within one second, rows deleted by somebody else, one insistent visitor), views_test
(TRUNCATE), tests/faults/culprit_test (a culprit among many), ring_test (the same second, the clock going back, an empty
ring, REPLACE and LOCK TABLES, the contradicting listings, a tinyint), counter_test (collations, NULL, ids per add, 64
bits), alter_test (shrinking).
"""

from __future__ import annotations

import re
import sqlite3
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

import roost
from roost.batching.atoms import Atom
from tests.suite.shapes import Egg, Make, Visit, baskets, in_threads, inner, likes, pageviews, visits

MOST = 2**63 - 1


def together(store: Any, *operations: Any) -> list[Any]:
    """Run operations of different callers in one batch; return results, and errors by their class."""
    atoms = [Atom((operation,)) for operation in operations]
    inner(store)._core.submit(atoms)
    return [type(atom.error) if atom.error else atom.answer[0] for atom in atoms]


def test_capped_eight_writers_on_one_basket_lose_nothing(open_store: Make) -> None:
    """846-1039 of 1200 inserts failed with a deadlock."""
    store = open_store(baskets)

    def lay(hen: int) -> None:
        for n in range(50):
            store.run(baskets.add(Egg(1, hen * 1000 + n)))

    in_threads(*[partial(lay, hen) for hen in range(8)])
    assert store.run(baskets.count(1)) == 12
    assert [entry.sequence for entry in store.run(baskets.entries(1))] == list(range(389, 401))


def test_ring_five_visitors_at_once_into_an_empty_ring_are_all_there(open_store: Make) -> None:
    """A SELECT without a lock left 1.07 rows on average."""
    store = open_store(visits)
    in_threads(*[partial(store.run, visits.push(Visit(5, me))) for me in range(5)])
    assert sorted(visit.visitor for visit in store.run(visits.latest(5))) == [0, 1, 2, 3, 4]


@pytest.mark.needs("sqlite3")
def test_ring_overwriting_deletes_nothing_that_refers_to_the_slot(open_store: Make) -> None:
    """REPLACE deletes: a child table with ON DELETE CASCADE loses its rows, unlisted columns reset."""
    store = open_store(visits)
    store.run_all(*[visits.push(Visit(5, n)) for n in range(5)])
    raw = store._core._writer.connection.raw
    raw.execute("PRAGMA foreign_keys = ON")
    raw.execute("""CREATE TABLE child (uid INTEGER, slot INTEGER,
        FOREIGN KEY (uid, slot) REFERENCES roost_visits_rows (uid, slot) ON DELETE CASCADE)""")
    raw.execute("INSERT INTO child SELECT uid, slot FROM roost_visits_rows")
    store.run_all(*[visits.push(Visit(5, n)) for n in range(5, 12)])
    assert raw.execute("SELECT count(*) FROM child").fetchone() == (5,)


def test_counter_past_64_bits_is_the_error_of_that_atom_alone_also_when_merged(open_store: Make) -> None:
    """A merged upsert cannot give back one atom; SQLite slides into REAL past 2^63."""
    hits = roost.Counter("hits", slots=1)
    store = open_store(hits)
    store.run(hits.add("/home", MOST - 10))
    assert together(
        store,
        hits.add("/home", 6),
        hits.add("/other", 1),
        hits.add("/home", 5),
        hits.add("/home", 4),
    ) == [None, None, roost.Overflow, None]
    assert store.run(hits.totals(["/home", "/other"])) == {"/home": MOST, "/other": 1}


def test_a_retry_after_a_lost_answer_counts_twice_so_errors_say_whether_it_is_safe() -> None:
    safe = {
        each for each in vars(roost).values() if isinstance(each, type) and issubclass(each, roost.Error) and each.retry
    }
    connecting = {roost.CannotOpen, roost.ConnectionLost, roost.TimedOut}  # the last: a read of a client
    assert safe == {roost.Busy, roost.ReadOnly, roost.DiskFull} | connecting


def test_structures_of_a_batch_go_in_the_order_of_their_names(open_store: Make, statements: list[str]) -> None:
    """Keys in order, but structures not: 2,865 deadlocks in two seconds."""
    store = open_store(pageviews, visits, baskets, likes)
    statements.clear()
    store.run_all(visits.push(Visit(1, 1)), likes.add(1, "a"), baskets.add(Egg(1, 1)), pageviews.add("/"))
    order = ["baskets", "likes", "pageviews", "visits"]
    touched = [  # a statement names the tables of one structure, or its program, which PostgreSQL has without a prefix
        name
        for sql in statements
        if not re.search("roost_(catalog|writers|prepare)", sql)
        for name in re.findall(rf"\b(?:roost_)?({'|'.join(order)})_", sql)
    ]
    assert sorted(set(touched)) == order
    assert [touched.index(name) for name in order] == sorted(touched.index(name) for name in order)


def test_capped_one_duplicate_undoes_its_own_atom_and_aborts_no_neighbour(open_store: Make) -> None:
    store = open_store(pageviews, baskets)
    store.run(baskets.add(Egg(1, 1)))
    atoms = [
        Atom((pageviews.add("/a"),)),
        Atom((pageviews.add("/b"), baskets.add(Egg(1, 1)))),
        Atom((baskets.add(Egg(1, 2)), pageviews.add("/c"))),
        Atom((baskets.add(Egg(1, 2)),)),
    ]
    store._core.submit(atoms)
    assert [type(atom.error) for atom in atoms] == [type(None), roost.Duplicate, type(None), roost.Duplicate]
    assert store.run(pageviews.totals(["/a", "/b", "/c"])) == {"/a": 1, "/b": 0, "/c": 1}
    assert store.run(baskets.count(1)) == 2
    atoms = [
        Atom((pageviews.add("/b"), baskets.add(Egg(1, 1)))),  # refused, so it runs alone, and last
        Atom((baskets.remove(1, 1),)),
    ]
    store._core.submit(atoms)
    assert [atom.error for atom in atoms] == [None, None]
    assert store.run_all(pageviews.total("/b"), baskets.count(1)) == (1, 2)
    # Every caller gets an error of its own.
    missing = roost.Counter("missing")
    atoms = [Atom((missing.add("a"),)), Atom((missing.add("a"),))]
    store._core.submit(atoms)
    assert isinstance(atoms[0].error, roost.Missing)
    assert atoms[0].error is not atoms[1].error


@dataclass
class Row:
    key: int
    text: str


@pytest.mark.needs("sqlite3")
def test_nothing_is_interpolated_into_sql(open_store: Make) -> None:
    rows = roost.Ring("rows", Row, per="key", keep=3)
    store = open_store(rows, pageviews)
    nasty = ["'; DROP TABLE roost_rows_rows; --", '"', "?", "%s", "{rows}", "\\", ":x", "\x01"]
    for text in nasty:
        store.run_all(rows.push(Row(1, text)), pageviews.add(text))
    assert [row.text for row in store.run(rows.latest(1))] == nasty[:-4:-1]
    assert store.run(pageviews.totals(nasty)) == dict.fromkeys(nasty, 1)
    assert isinstance(store._core._writer.connection.raw, sqlite3.Connection)
