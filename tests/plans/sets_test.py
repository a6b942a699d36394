"""Set, on SQLite: what is looked up, how a run is played, and what of it is written, as text."""

from __future__ import annotations

from typing import Any

import roost
from roost.dialects import SQLITE, Control
from roost.structures.registry import plan_for
from tests.plans.script import LOCKED, play, sends
from tests.values.shapes import Colour, Place, likes, tags

PLAN = plan_for(likes, SQLITE)

FIND = 'SELECT 1 FROM roost_likes_rows WHERE "key" = ? AND "member" = ?'
PUT = 'INSERT INTO roost_likes_rows ("key", "member") VALUES (?, ?)'
CUT = 'DELETE FROM roost_likes_rows WHERE "key" = ? AND "member" = ?'
RESIZE = """\
INSERT INTO roost_likes_head ("key", n) VALUES (?, ?)
  ON CONFLICT ("key") DO UPDATE SET n = n + excluded.n"""
HEAD = 'SELECT n FROM roost_likes_head WHERE "key" = ?'
THERE: list[Any] = [(1,)]


def test_the_tables() -> None:
    assert plan_for(tags, SQLITE).tables == (
        """\
CREATE TABLE roost_tags_head (
  "site" TEXT NOT NULL,
  "page" INTEGER NOT NULL,
  "n" INTEGER NOT NULL,
  PRIMARY KEY ("site", "page")
) STRICT, WITHOUT ROWID""",
        """\
CREATE TABLE roost_tags_rows (
  "site" TEXT NOT NULL,
  "page" INTEGER NOT NULL,
  "member" TEXT NOT NULL,
  PRIMARY KEY ("site", "page", "member")
) STRICT, WITHOUT ROWID""",
    )


def test_only_new_members_are_written() -> None:
    assert play(PLAN, likes.add(7, "bob", "ada", "cyd"), [THERE, [], []], 2, 1) == (
        [
            (FIND, (7, "ada")),
            (FIND, (7, "bob")),
            (FIND, (7, "cyd")),
            LOCKED,
            (PUT, (7, "bob")),
            (PUT, (7, "cyd")),
            (RESIZE, (7, 2)),
        ],
        [2],
    )


def test_a_run_is_played_in_its_order_and_its_net_effect_is_written() -> None:
    run = [
        likes.add(7, "ada"),  # new
        likes.add(7, "ada", "bob"),  # bob is there
        likes.remove(7, "ada"),  # gone again: nothing to write
        likes.remove(7, "bob", "cyd"),  # bob was there
        likes.add(8, "ada"),  # new
        likes.add(7, "bob"),  # there again: nothing to write
        likes.remove(7, "dan"),  # was there
    ]
    pairs = [(7, "ada"), (7, "bob"), (7, "cyd"), (7, "dan"), (8, "ada")]
    sent, results = play(PLAN, run, [[], THERE, [], THERE, []], 1, 1, 2)
    assert sent == [
        *[(FIND, pair) for pair in pairs],
        LOCKED,
        (PUT, (8, "ada")),
        (CUT, (7, "dan")),
        (RESIZE, (7, -1)),
        (RESIZE, (8, 1)),
    ]
    assert results == [1, 0, 1, 1, 1, 1, 1]


def test_a_run_that_changes_nothing_writes_nothing() -> None:
    sent, results = play(PLAN, [likes.add(7, "ada"), likes.remove(7, "bob")], [THERE, []])
    assert sent == [(FIND, (7, "ada")), (FIND, (7, "bob")), LOCKED]
    assert results == [0, 0]


def test_no_members_are_no_work() -> None:
    assert play(PLAN, [likes.add(7), likes.remove(7)], []) == ([LOCKED], [0, 0])


def test_members_are_compared_byte_by_byte() -> None:
    members = ["/home", "/Home", "/home ", "/hömé"]
    sent, results = play(PLAN, likes.add(7, *members), [[]] * 4, 4, 1)
    assert sent[-1] == (RESIZE, (7, 4))
    assert results == [4]


def test_reading() -> None:
    run: list[roost.Operation[Any]] = [likes.members(7), likes.members(8)]
    members = 'SELECT "member" FROM roost_likes_rows WHERE "key" = ?'
    assert play(PLAN, run, [[("ada",), ("bob",)], []]) == (
        [(members, (7,)), (members, (8,))],
        [{"ada", "bob"}, set()],
    )
    assert play(PLAN, [likes.contains(7, "ada"), likes.contains(8, "ada")], [THERE, []]) == (
        [(FIND, (7, "ada")), (FIND, (8, "ada"))],
        [True, False],
    )
    assert play(PLAN, [likes.size(7), likes.size(8)], [[(2,)], []]) == ([(HEAD, (7,)), (HEAD, (8,))], [2, 0])


def test_keys_and_members_are_those_of_the_caller() -> None:
    plan = plan_for(tags, SQLITE)
    sent, _ = play(plan, tags.add(Place("a", 1), Colour.BROWN), [[]], 1, 1)
    assert [each[1] for each in sent if isinstance(each, tuple)] == [
        ("a", 1, "brown"),
        ("a", 1, "brown"),
        ("a", 1, 1),
    ]
    assert play(plan, tags.members(Place("a", 1)), [[("brown",)]]).results == [{Colour.BROWN}]
    ((listed,),) = play(plan, tags.keys(), [[("a", 1)]]).results
    assert listed == Place("a", 1)
    assert type(listed) is Place
    assert sends(likes, SQLITE, likes.keys(7), [[[]]]) == [
        'SELECT DISTINCT "key" FROM roost_likes_head WHERE ("key") > (?) ORDER BY "key" LIMIT ?'
    ]


def test_clear_and_forget() -> None:
    rows = 'DELETE FROM roost_likes_rows WHERE "key" = ?'
    assert play(PLAN, likes.clear(7), 5, 1) == (
        [LOCKED, (rows, (7,)), ('UPDATE roost_likes_head SET n = 0 WHERE "key" = ?', (7,))],
        [5],
    )
    assert play(PLAN, likes.forget(7), 5, 1) == (
        [LOCKED, (rows, (7,)), ('DELETE FROM roost_likes_head WHERE "key" = ?', (7,))],
        [5],
    )


def test_reads_part_a_run() -> None:
    run = [likes.add(7, "ada"), likes.size(7), likes.remove(7, "ada"), likes.add(7, "bob"), likes.clear(7)]
    sent, results = play(PLAN, run, [[]], 1, 1, [[(1,)]], [THERE, []], 1, 1, 1, 1, 1)
    assert [each if isinstance(each, Control) else each[0] for each in sent] == [
        FIND, LOCKED, PUT, RESIZE, HEAD, FIND, FIND, PUT, CUT, RESIZE,
        'DELETE FROM roost_likes_rows WHERE "key" = ?',
        'UPDATE roost_likes_head SET n = 0 WHERE "key" = ?',
    ]  # fmt: skip
    assert results == [1, 1, 1, 1, 1]
