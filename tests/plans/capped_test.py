"""Capped, on SQLite: what is looked up, how a run is played, and what of it is written, as text."""

from __future__ import annotations

from typing import Any

import roost
from roost.dialects import SQLITE, Control
from roost.structures.registry import plan_for
from tests.plans.script import LOCKED, NOW, play, sends
from tests.values.shapes import Egg, Place, Seen, baskets, sightings

PLAN = plan_for(baskets, SQLITE)
AT = "2008-01-01 22:03:23.000500"

REJECTING = roost.Capped("baskets", Egg, per="basket", keep=3, unique="egg", on_full="reject")
EVICTING = roost.Capped("baskets", Egg, per="basket", keep=3, unique="egg")
REFRESHING = roost.Capped("baskets", Egg, per="basket", keep=3, unique="egg", on_duplicate="refresh")

HEAD = 'SELECT sequence, n FROM roost_baskets_head WHERE "basket" = ?'
FIND = 'SELECT sequence FROM roost_baskets_rows WHERE "basket" = ? AND "egg" = ?'
OLDEST = 'SELECT "egg", sequence FROM roost_baskets_rows WHERE "basket" = ? ORDER BY sequence LIMIT ?'
RECOUNT = 'SELECT count(*) FROM roost_baskets_rows WHERE "basket" = ?'
DELETE_ROW = 'DELETE FROM roost_baskets_rows WHERE "basket" = ? AND "egg" = ?'
PUT_ROW = """\
INSERT INTO roost_baskets_rows ("basket", "egg", "colour", sequence, at) VALUES (?, ?, ?, ?, ?)
  ON CONFLICT ("basket", "egg") DO UPDATE SET "colour" = excluded."colour", sequence = excluded.sequence,\
 at = excluded.at"""
PUT_HEAD = """\
INSERT INTO roost_baskets_head ("basket", sequence, n) VALUES (?, ?, ?)
  ON CONFLICT ("basket") DO UPDATE SET sequence = excluded.sequence, n = excluded.n"""


def test_the_tables_and_the_index() -> None:
    assert PLAN.tables == (
        """\
CREATE TABLE roost_baskets_head (
  "basket" INTEGER NOT NULL,
  "sequence" INTEGER NOT NULL,
  "n" INTEGER NOT NULL,
  PRIMARY KEY ("basket")
) STRICT, WITHOUT ROWID""",
        """\
CREATE TABLE roost_baskets_rows (
  "basket" INTEGER NOT NULL,
  "egg" INTEGER NOT NULL,
  "colour" TEXT NOT NULL,
  "sequence" INTEGER NOT NULL,
  "at" TEXT NOT NULL,
  PRIMARY KEY ("basket", "egg")
) STRICT, WITHOUT ROWID""",
        'CREATE INDEX roost_baskets_newest ON roost_baskets_rows ("basket", sequence)',
    )


def test_an_id_of_several_columns_stands_behind_the_key() -> None:
    _, rows, newest = plan_for(sightings, SQLITE).tables
    assert [line.split()[0] for line in rows.splitlines()[1:-2]] == ['"site"', '"page"', '"who"', '"sequence"', '"at"']
    assert 'PRIMARY KEY ("site", "page", "who")' in rows
    assert newest == 'CREATE INDEX roost_sightings_newest ON roost_sightings_rows ("site", sequence)'


def test_an_add_with_room_looks_up_its_id_and_writes() -> None:
    assert play(PLAN, baskets.add(Egg(42, 1)), [[(12, 11)]], [[]], 1, 1) == (
        [
            (HEAD, (42,)),
            LOCKED,
            (FIND, (42, 1)),
            (PUT_ROW, (42, 1, "white", 13, AT)),
            (PUT_HEAD, (42, 13, 12)),
        ],
        [None],
    )


def test_the_first_add_of_a_key_makes_its_head() -> None:
    sent, results = play(PLAN, baskets.add(Egg(42, 1)), [[]], [[]], 1, 1)
    assert sent[3:] == [(PUT_ROW, (42, 1, "white", 1, AT)), (PUT_HEAD, (42, 1, 1))]
    assert results == [None]


def test_an_add_without_room_evicts_the_oldest() -> None:
    assert play(PLAN, baskets.add(Egg(42, 13)), [[(12, 12)]], [[]], [[(7, 1), (9, 2)]], 1, 1, 1) == (
        [
            (HEAD, (42,)),
            LOCKED,
            (FIND, (42, 13)),
            (OLDEST, (42, 1)),
            (DELETE_ROW, (42, 7)),
            (PUT_ROW, (42, 13, "white", 13, AT)),
            (PUT_HEAD, (42, 13, 12)),
        ],
        [None],
    )


def test_a_run_on_several_keys_looks_them_up_in_key_order_before_it_writes() -> None:
    run = [baskets.add(Egg(42, 1)), baskets.add(Egg(7, 1)), baskets.add(Egg(7, 2)), baskets.remove(42, 5)]
    sent, results = play(PLAN, run, [[], [(3, 3)]], [[], [], [], [(2,)]], 1, 3, 2)
    assert sent == [
        (HEAD, (7,)),
        (HEAD, (42,)),
        LOCKED,
        (FIND, (7, 1)),
        (FIND, (7, 2)),
        (FIND, (42, 1)),
        (FIND, (42, 5)),
        (DELETE_ROW, (42, 5)),
        (PUT_ROW, (42, 1, "white", 4, AT)),
        (PUT_ROW, (7, 1, "white", 1, AT)),
        (PUT_ROW, (7, 2, "white", 2, AT)),
        (PUT_HEAD, (42, 4, 3)),
        (PUT_HEAD, (7, 2, 2)),
    ]
    assert results == [None, None, None, True]


def test_more_adds_than_keep_write_only_what_remains() -> None:
    run = [EVICTING.add(Egg(42, egg)) for egg in range(1, 6)]
    sent, results = play(plan_for(EVICTING, SQLITE), run, [[(10, 1)]], [[]] * 5, [[(99, 10)]], 1, 3, 1)
    assert sent[7:] == [
        (OLDEST, (42, 3)),  # 1 row and 5 adds, keep is 3
        (DELETE_ROW, (42, 99)),
        (DELETE_ROW, (42, 1)),
        (DELETE_ROW, (42, 2)),
        (PUT_ROW, (42, 3, "white", 13, AT)),
        (PUT_ROW, (42, 4, "white", 14, AT)),
        (PUT_ROW, (42, 5, "white", 15, AT)),
        (PUT_HEAD, (42, 15, 3)),
    ]
    assert results == [None] * 5


def test_what_is_added_and_removed_again_is_not_written() -> None:
    run = [baskets.add(Egg(42, 1)), baskets.remove(42, 1), baskets.remove(42, 1)]
    sent, results = play(PLAN, run, [[(5, 2)]], [[]], 1, 1)
    assert sent == [
        (HEAD, (42,)),
        LOCKED,
        (FIND, (42, 1)),
        (DELETE_ROW, (42, 1)),
        (PUT_HEAD, (42, 6, 2)),  # its sequence was used
    ]
    assert results == [None, True, False]


def test_what_is_removed_and_added_again_is_written_as_the_newest() -> None:
    run = [baskets.remove(42, 1), baskets.add(Egg(42, 1, "brown"))]
    sent, results = play(PLAN, run, [[(5, 2)]], [[(3,)]], 1, 1)
    assert sent[3:] == [(PUT_ROW, (42, 1, "brown", 6, AT)), (PUT_HEAD, (42, 6, 2))]
    assert results == [True, None]


def test_a_duplicate_is_refused_and_the_others_are_not() -> None:
    run = [baskets.add(Egg(42, 1)), baskets.add(Egg(42, 2)), baskets.add(Egg(42, 2))]
    sent, results = play(PLAN, run, [[(5, 2)]], [[(4,)], []], 1, 1)
    assert sent[4:] == [(PUT_ROW, (42, 2, "white", 6, AT)), (PUT_HEAD, (42, 6, 3))]
    assert [type(result) for result in results] == [roost.Duplicate, type(None), roost.Duplicate]
    assert str(results[0]) == "baskets.add(Egg(basket=42, egg=1, colour='white')): 1 is there already"


def test_a_run_that_changes_nothing_writes_nothing() -> None:
    run = [baskets.add(Egg(42, 1)), baskets.remove(42, 9)]
    sent, results = play(PLAN, run, [[(5, 2)]], [[(4,)], []])
    assert sent == [(HEAD, (42,)), LOCKED, (FIND, (42, 1)), (FIND, (42, 9))]
    assert isinstance(results[0], roost.Duplicate)
    assert results[1] is False


def test_a_refreshed_row_is_the_newest_and_evicts_nobody() -> None:
    plan = plan_for(REFRESHING, SQLITE)
    sent, results = play(plan, REFRESHING.add(Egg(42, 1, "brown")), [[(5, 3)]], [[(3,)]], [[(1, 3), (2, 4)]], 1, 1)
    assert sent[4:] == [(PUT_ROW, (42, 1, "brown", 6, AT)), (PUT_HEAD, (42, 6, 3))]
    assert results == [None]


def test_a_row_refreshed_in_the_run_is_no_longer_the_oldest() -> None:
    plan = plan_for(REFRESHING, SQLITE)
    run = [REFRESHING.add(Egg(42, 1)), REFRESHING.add(Egg(42, 9))]
    oldest = [(1, 3), (2, 4), (3, 5)]
    sent, results = play(plan, run, [[(5, 3)]], [[(3,)], []], [oldest], 1, 2, 1)
    assert sent[5:] == [
        (DELETE_ROW, (42, 2)),
        (PUT_ROW, (42, 1, "white", 6, AT)),
        (PUT_ROW, (42, 9, "white", 7, AT)),
        (PUT_HEAD, (42, 7, 3)),
    ]
    assert results == [None, None]


def test_a_full_collection_that_rejects_is_counted_before_it_says_so() -> None:
    plan = plan_for(REJECTING, SQLITE)
    sent, results = play(plan, REJECTING.add(Egg(42, 9)), [[(5, 3)]], [[]], [[(3,)]], [[(1, 3)]], 1)
    assert sent == [
        (HEAD, (42,)),
        LOCKED,
        (FIND, (42, 9)),
        (RECOUNT, (42,)),
        (OLDEST, (42, 1)),
        (PUT_HEAD, (42, 5, 3)),
    ]
    assert isinstance(results[0], roost.Full)
    assert str(results[0]) == (
        "baskets.add(Egg(basket=42, egg=9, colour='white')): the collection holds 3 rows; keep is 3"
    )


def test_a_count_that_is_too_high_is_mended_under_the_lock() -> None:
    # Somebody emptied the table: the head says 3, there is 1.
    sent, results = play(plan_for(REJECTING, SQLITE), REJECTING.add(Egg(42, 9)), [[(5, 3)]], [[]], [[(1,)]], [[]], 1, 1)
    assert sent[3:] == [
        (RECOUNT, (42,)),
        (OLDEST, (42, 0)),
        (PUT_ROW, (42, 9, "white", 6, AT)),
        (PUT_HEAD, (42, 6, 2)),
    ]
    assert results == [None]


def test_after_counting_anew_the_rows_of_the_run_stand_in_line_by_their_sequence() -> None:
    # The head says 1, there is none: found out when 3 is added, and then 2 goes, for 1 was refreshed after it.
    run = [REFRESHING.add(Egg(42, egg)) for egg in (1, 2, 1, 3, 4)]
    plan = plan_for(REFRESHING, SQLITE)
    sent, results = play(plan, run, [[(9, 1)]], [[]] * 4, [[]], [[(0,)]], [[]], 1, 3, 1)
    assert sent[6:] == [
        (OLDEST, (42, 3)),
        (RECOUNT, (42,)),
        (OLDEST, (42, 4)),
        (DELETE_ROW, (42, 2)),
        (PUT_ROW, (42, 1, "white", 12, AT)),
        (PUT_ROW, (42, 3, "white", 13, AT)),
        (PUT_ROW, (42, 4, "white", 14, AT)),
        (PUT_HEAD, (42, 14, 3)),
    ]
    assert results == [None] * 5


def test_no_row_is_evicted_that_the_newest_keep_sequences_protect() -> None:
    # The head says 3 rows and sequence 9; the oldest row has sequence 8, so there cannot be three.
    plan = plan_for(EVICTING, SQLITE)
    sent, results = play(plan, EVICTING.add(Egg(42, 9)), [[(9, 3)]], [[]], [[(1, 8)]], [[(2,)]], [[]], 1, 1)
    assert sent[3:] == [
        (OLDEST, (42, 1)),
        (RECOUNT, (42,)),
        (OLDEST, (42, 0)),
        (PUT_ROW, (42, 9, "white", 10, AT)),
        (PUT_HEAD, (42, 10, 3)),
    ]
    assert results == [None]
    # One less and it may go.
    sent, _ = play(plan, EVICTING.add(Egg(42, 9)), [[(9, 3)]], [[]], [[(1, 7)]], 1, 1, 1)
    assert (DELETE_ROW, (42, 1)) in sent


def test_reading() -> None:
    run: list[roost.Operation[Any]] = [baskets.get(42, 1), baskets.get(42, 2)]
    get = 'SELECT "basket", "egg", "colour" FROM roost_baskets_rows WHERE "basket" = ? AND "egg" = ?'
    assert play(PLAN, run, [[(42, 1, "white")], []]) == ([(get, (42, 1)), (get, (42, 2))], [Egg(42, 1), None])
    assert play(PLAN, [baskets.count(42), baskets.count(7)], [[(9, 5)], []]) == (
        [(HEAD, (42,)), (HEAD, (7,))],
        [5, 0],
    )
    latest = (
        'SELECT "basket", "egg", "colour" FROM roost_baskets_rows WHERE "basket" = ? ORDER BY sequence DESC LIMIT ?'
    )
    assert play(PLAN, [baskets.latest(42), baskets.latest(42, 2)], [[(42, 1, "white")], []]) == (
        [(latest, (42, 12)), (latest, (42, 2))],
        [[Egg(42, 1)], []],
    )
    entries = (
        'SELECT sequence, at, "basket", "egg", "colour" FROM roost_baskets_rows'
        ' WHERE "basket" = ? AND sequence > ? ORDER BY sequence LIMIT ?'
    )
    assert play(PLAN, [baskets.entries(42, after=3), baskets.entries(7, n=2)], [[(4, AT, 42, 1, "white")], []]) == (
        [(entries, (42, 3, 12)), (entries, (7, 0, 2))],
        [[roost.Entry(4, NOW, Egg(42, 1))], []],
    )
    assert play(plan_for(sightings, SQLITE), sightings.get("a", (1, 2)), [[(1, 2, "a")]]).results == [Seen(1, 2, "a")]


def test_keys() -> None:
    assert sends(baskets, SQLITE, [baskets.keys(), baskets.keys(42)], [[[]], [[]]]) == [
        'SELECT DISTINCT "basket" FROM roost_baskets_head ORDER BY "basket" LIMIT ?',
        'SELECT DISTINCT "basket" FROM roost_baskets_head WHERE ("basket") > (?) ORDER BY "basket" LIMIT ?',
    ]


def test_clear_and_forget() -> None:
    rows = 'DELETE FROM roost_baskets_rows WHERE "basket" = ?'
    assert play(PLAN, baskets.clear(42), 5, 1) == (
        [LOCKED, (rows, (42,)), ('UPDATE roost_baskets_head SET n = 0 WHERE "basket" = ?', (42,))],
        [5],
    )
    assert play(PLAN, baskets.forget(42), 5, 1) == (
        [LOCKED, (rows, (42,)), ('DELETE FROM roost_baskets_head WHERE "basket" = ?', (42,))],
        [5],
    )


def test_adds_and_removes_are_one_run_and_reads_part_them() -> None:
    run = [baskets.add(Egg(42, 1)), baskets.remove(42, 1), baskets.count(42), baskets.add(Egg(42, 2))]
    sent, results = play(PLAN, run, [[]], [[]], 1, 1, [[(1, 0)]], [[(1, 0)]], [[]], 1, 1)
    assert [each if isinstance(each, Control) else each[0] for each in sent] == [
        HEAD, LOCKED, FIND, DELETE_ROW, PUT_HEAD, HEAD, HEAD, FIND, PUT_ROW, PUT_HEAD,
    ]  # fmt: skip
    assert results == [None, True, 0, None]


def test_the_key_and_the_id_are_taken_from_a_row_wherever_they_stand() -> None:
    sent, _ = play(plan_for(sightings, SQLITE), sightings.add(Seen(1, 2, "a")), [[]], [[]], 1, 1)
    assert [each[1] for each in sent if isinstance(each, tuple)] == [
        ("a",),
        ("a", 1, 2),
        ("a", 1, 2, 1, AT),
        ("a", 1, 1),
    ]
    by_place = roost.Capped("seen", Seen, per=Place, keep=3, unique="who")
    sent, _ = play(plan_for(by_place, SQLITE), by_place.remove(Place("a", 1), 2), [[]], [[]])
    assert [each[1] for each in sent if isinstance(each, tuple)] == [("a", 1), ("a", 1, 2)]
