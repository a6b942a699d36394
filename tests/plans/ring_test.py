"""Ring: what goes out, on every engine, as text.

Longer than 500 lines: every statement stands here, for each engine.
"""

from __future__ import annotations

import datetime as dt
import uuid
from dataclasses import dataclass, make_dataclass
from decimal import Decimal
from typing import Annotated, Any

import pytest

import roost
from roost.dialects import MARIADB, MYSQL, POSTGRESQL, SQLITE, Control, Dialect
from roost.structures.registry import plan_for
from roost.structures.ring.plan import RingPlan
from tests.plans.script import LOCKED, NOW, Played, play
from tests.values.shapes import Colour, Level, Place, Seen, Visit, named, seen, visits

DIALECTS = [SQLITE, MARIADB, MYSQL, POSTGRESQL]
each_dialect = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
elsewhere = pytest.mark.parametrize("dialect", [MARIADB, MYSQL, POSTGRESQL], ids=lambda dialect: dialect.name)


def ring_plan(structure: Any, dialect: Dialect) -> RingPlan:
    plan = plan_for(structure, dialect)
    assert isinstance(plan, RingPlan)
    return plan


def heads(dialect: Dialect, *found: tuple[Any, ...], pushes: int = 1) -> list[Any]:
    """Return what an engine answers to allocating for so many pushes each, for heads with their sequences, by key."""
    if dialect is SQLITE:  # it is asked for what is there, and writes it
        return [[[(head[-1] - pushes,)] for head in found], len(found)]
    if dialect is MYSQL:
        return [len(found), [(i, head[-1]) for i, head in enumerate(found)]]
    return [list(found)]


def pushed(dialect: Dialect, *found: tuple[Any, ...], rows: int = 1, pushes: int = 1) -> list[Any]:
    """Return the same, and what it answers to writing so many rows: PostgreSQL does both in one statement."""
    return [*heads(dialect, *found, pushes=pushes), *([] if dialect is POSTGRESQL else [rows])]


ON_SQLITE = plan_for(visits, SQLITE)
ON_MARIADB = plan_for(visits, MARIADB)
ON_POSTGRESQL = plan_for(visits, POSTGRESQL)

AT = "2008-01-01 22:03:23.000500"
AT_WITHOUT_ZONE = NOW.replace(tzinfo=None)


# --- tables ------------------------------------------------------------------------------------------------------


def test_the_tables_on_sqlite() -> None:
    assert plan_for(seen, SQLITE).tables == (
        """\
CREATE TABLE roost_seen_head (
  "site" TEXT NOT NULL,
  "page" INTEGER NOT NULL,
  "sequence" INTEGER NOT NULL,
  PRIMARY KEY ("site", "page")
) STRICT, WITHOUT ROWID""",
        """\
CREATE TABLE roost_seen_rows (
  "site" TEXT NOT NULL,
  "page" INTEGER NOT NULL,
  "slot" INTEGER NOT NULL,
  "sequence" INTEGER NOT NULL,
  "at" TEXT NOT NULL,
  "who" INTEGER NOT NULL,
  PRIMARY KEY ("site", "page", slot)
) STRICT, WITHOUT ROWID""",
    )


def test_the_tables_on_mariadb() -> None:
    assert plan_for(seen, MARIADB).tables == (
        """\
CREATE TABLE roost_seen_head (
  `site` VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
  `page` BIGINT NOT NULL,
  `sequence` BIGINT NOT NULL,
  PRIMARY KEY (`site`, `page`)
) ENGINE=InnoDB""",
        """\
CREATE TABLE roost_seen_rows (
  `site` VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
  `page` BIGINT NOT NULL,
  `slot` BIGINT NOT NULL,
  `sequence` BIGINT NOT NULL,
  `at` DATETIME(6) NOT NULL,
  `who` BIGINT NOT NULL,
  PRIMARY KEY (`site`, `page`, slot)
) ENGINE=InnoDB""",
    )


def test_the_tables_on_postgresql() -> None:
    assert plan_for(seen, POSTGRESQL).tables == (
        """\
CREATE TABLE roost_seen_head (
  "site" text COLLATE "C" NOT NULL,
  "page" bigint NOT NULL,
  "sequence" bigint NOT NULL,
  PRIMARY KEY ("site", "page")
) WITH (fillfactor = 50)""",
        """\
CREATE TABLE roost_seen_rows (
  "site" text COLLATE "C" NOT NULL,
  "page" bigint NOT NULL,
  "slot" bigint NOT NULL,
  "sequence" bigint NOT NULL,
  "at" timestamptz NOT NULL,
  "who" bigint NOT NULL,
  PRIMARY KEY ("site", "page", slot)
) WITH (fillfactor = 80)""",
    )


@each_dialect
def test_a_row_that_is_all_key_has_no_columns_of_its_own(dialect: Dialect) -> None:
    ring: roost.Ring[Visit, Any] = roost.Ring("visits", Visit, per=("uid", "visitor"), keep=2)
    plan = plan_for(ring, dialect)
    assert [column.name for column in plan.layout["roost_visits_rows"]] == ["uid", "visitor", "slot", "sequence", "at"]
    _, results = play(plan, ring.push(Visit(1, 2)), *pushed(dialect, (1, 2, 4)))
    assert results == [4]


# --- push --------------------------------------------------------------------------------------------------------

PUSHES = [visits.push(Visit(6, 1)), visits.push(Visit(5, 7)), visits.push(Visit(6, 2))]

SQLITE_HEAD = 'SELECT sequence FROM roost_visits_head WHERE "uid" = ?'
SQLITE_PUT_HEAD = """\
INSERT INTO roost_visits_head ("uid", sequence) VALUES (?, ?)
  ON CONFLICT ("uid") DO UPDATE SET sequence = excluded.sequence"""
SQLITE_WRITE = """\
INSERT INTO roost_visits_rows ("uid", slot, sequence, at, "visitor") VALUES (?, ?, ?, ?, ?)
  ON CONFLICT ("uid", slot) DO UPDATE SET sequence = excluded.sequence, at = excluded.at,\
 "visitor" = excluded."visitor\""""


def test_push_on_sqlite_allocates_for_all_pushes_of_a_key_then_writes() -> None:
    assert play(ON_SQLITE, PUSHES, [[], [(10,)]], 2, 3) == (
        [
            (SQLITE_HEAD, (5,)),
            (SQLITE_HEAD, (6,)),
            (SQLITE_PUT_HEAD, (5, 1)),
            (SQLITE_PUT_HEAD, (6, 12)),
            LOCKED,
            (SQLITE_WRITE, (5, 1, 1, AT, 7)),
            (SQLITE_WRITE, (6, 1, 11, AT, 1)),
            (SQLITE_WRITE, (6, 2, 12, AT, 2)),
        ],
        [11, 1, 12],
    )


def test_push_on_mariadb() -> None:
    assert play(ON_MARIADB, PUSHES, [(6, 12), (5, 1)], 5) == (
        [
            (
                """\
INSERT INTO roost_visits_head (`uid`, sequence) VALUES (%s, %s), (%s, %s)
  ON DUPLICATE KEY UPDATE sequence = sequence + VALUES(sequence)
  RETURNING `uid`, sequence""",
                (5, 1, 6, 2),
            ),
            LOCKED,
            (
                """\
INSERT INTO roost_visits_rows (`uid`, slot, sequence, at, `visitor`)\
 VALUES (%s, %s, %s, %s, %s), (%s, %s, %s, %s, %s), (%s, %s, %s, %s, %s)
  ON DUPLICATE KEY UPDATE sequence = VALUES(sequence), at = VALUES(at), `visitor` = VALUES(`visitor`)""",
                (5, 1, 1, AT_WITHOUT_ZONE, 7, 6, 1, 11, AT_WITHOUT_ZONE, 1, 6, 2, 12, AT_WITHOUT_ZONE, 2),
            ),
        ],
        [11, 1, 12],
    )


def test_push_on_postgresql() -> None:
    assert play(ON_POSTGRESQL, PUSHES, [(6, 12), (5, 1)]) == (
        [
            (
                """\
WITH q AS (SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::timestamptz[], %s::bigint[]) WITH ORDINALITY
    AS q ("uid", "#back", "at", "visitor", "#")),
  h AS (INSERT INTO roost_visits_head AS h ("uid", sequence) SELECT "uid", count(*) FROM q\
 GROUP BY "uid" ORDER BY min("#")
    ON CONFLICT ("uid") DO UPDATE SET sequence = h.sequence + excluded.sequence
    RETURNING h."uid", h.sequence),
  r AS (INSERT INTO roost_visits_rows ("uid", slot, sequence, at, "visitor")
    SELECT q."uid", MOD(h.sequence - q."#back", 5), h.sequence - q."#back", q."at", q."visitor"\
 FROM q JOIN h ON h."uid" = q."uid"
    ON CONFLICT ("uid", slot) DO UPDATE SET sequence = excluded.sequence, at = excluded.at,\
 "visitor" = excluded."visitor")
SELECT h."uid", h.sequence FROM h""",
                ([5, 6, 6], [0, 1, 0], [NOW] * 3, [7, 1, 2]),
            ),
            LOCKED,
        ],
        [11, 1, 12],
    )


def test_more_pushes_than_are_kept_on_postgresql_are_allocated_first() -> None:
    run = [visits.push(Visit(5, visitor)) for visitor in range(6)]
    sent, _ = play(ON_POSTGRESQL, run, [(5, 6)], 5)
    assert sent == [
        (
            """\
INSERT INTO roost_visits_head AS h ("uid", sequence) SELECT * FROM unnest(%s::bigint[], %s::bigint[])
  ON CONFLICT ("uid") DO UPDATE SET sequence = h.sequence + excluded.sequence
  RETURNING h."uid", h.sequence""",
            ([5], [6]),
        ),
        LOCKED,
        (
            """\
INSERT INTO roost_visits_rows ("uid", slot, sequence, at, "visitor")\
 SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::timestamptz[], %s::bigint[])
  ON CONFLICT ("uid", slot) DO UPDATE SET sequence = excluded.sequence, at = excluded.at,\
 "visitor" = excluded."visitor\"""",
            ([5] * 5, [2, 3, 4, 0, 1], [2, 3, 4, 5, 6], [NOW] * 5, [1, 2, 3, 4, 5]),
        ),
    ]


@each_dialect
@pytest.mark.parametrize("pushes", [1, 4, 5, 6, 13])
def test_only_the_last_keep_of_many_pushes_are_written_and_no_slot_twice(dialect: Dialect, pushes: int) -> None:
    run = [visits.push(Visit(5, visitor)) for visitor in range(pushes)]
    head = 100 + pushes
    at_once = dialect is POSTGRESQL and pushes <= 5
    answers = heads(dialect, (5, head), pushes=pushes) + ([] if at_once else [pushes])
    sent, results = play(plan_for(visits, dialect), run, *answers)
    assert results == list(range(101, head + 1))
    if at_once:
        ((_, back, _, visitors),) = [each[1] for each in sent if isinstance(each, tuple)]
        assert (back, visitors) == (list(range(pushes))[::-1], list(range(pushes)))
        return
    rows = written(dialect, sent)
    assert [(row[2], row[4]) for row in rows] == list(zip(results, range(pushes), strict=True))[-5:]
    assert all(slot == sequence % 5 for _, slot, sequence, _, _ in rows)
    assert len({slot for _, slot, _, _, _ in rows}) == len(rows)


def written(dialect: Dialect, sent: Any) -> list[Any]:
    """Return the rows that the last statement writes."""
    if dialect is SQLITE:
        return [params for sql, params in sent[sent.index(LOCKED) + 1 :]]
    params = sent[-1][1]
    if dialect is POSTGRESQL:
        return list(zip(*params, strict=True))
    return [params[i : i + 5] for i in range(0, len(params), 5)]


def test_a_key_of_several_columns_in_the_order_of_per() -> None:
    sent, results = play(plan_for(seen, POSTGRESQL), seen.push(Seen(1, 9, "a")), [("a", 1, 3)])
    assert sent == [
        (
            """\
WITH q AS (SELECT * FROM unnest(%s::text[], %s::bigint[], %s::bigint[], %s::timestamptz[], %s::bigint[])\
 WITH ORDINALITY
    AS q ("site", "page", "#back", "at", "who", "#")),
  h AS (INSERT INTO roost_seen_head AS h ("site", "page", sequence) SELECT "site", "page", count(*) FROM q\
 GROUP BY "site", "page" ORDER BY min("#")
    ON CONFLICT ("site", "page") DO UPDATE SET sequence = h.sequence + excluded.sequence
    RETURNING h."site", h."page", h.sequence),
  r AS (INSERT INTO roost_seen_rows ("site", "page", slot, sequence, at, "who")
    SELECT q."site", q."page", MOD(h.sequence - q."#back", 5), h.sequence - q."#back", q."at", q."who"\
 FROM q JOIN h ON h."site" = q."site" AND h."page" = q."page"
    ON CONFLICT ("site", "page", slot) DO UPDATE SET sequence = excluded.sequence, at = excluded.at,\
 "who" = excluded."who")
SELECT h."site", h."page", h.sequence FROM h""",
            (["a"], [1], [0], [NOW], [9]),
        ),
        LOCKED,
    ]
    assert results == [3]


# --- latest ------------------------------------------------------------------------------------------------------

LATEST = [visits.latest(5), visits.latest(6, 2), visits.latest(7, 99)]

SQLITE_LATEST = """\
SELECT * FROM (SELECT r.sequence, r."visitor" FROM roost_visits_head h CROSS JOIN roost_visits_rows r\
 ON r."uid" = h."uid" AND r.slot <= h.sequence % 5
  WHERE h."uid" = ? ORDER BY r.slot DESC LIMIT ?)
UNION ALL
SELECT * FROM (SELECT r.sequence, r."visitor" FROM roost_visits_head h CROSS JOIN roost_visits_rows r\
 ON r."uid" = h."uid" AND r.slot > h.sequence % 5
  WHERE h."uid" = ? ORDER BY r.slot DESC LIMIT ?)"""
MARIADB_LATEST = """\
(SELECT {i}, r.sequence, r.`visitor` FROM roost_visits_head h STRAIGHT_JOIN roost_visits_rows r\
 ON r.`uid` = h.`uid` AND r.slot <= MOD(h.sequence, 5)
  WHERE h.`uid` = %s ORDER BY r.slot DESC LIMIT %s)
UNION ALL
(SELECT {i}, r.sequence, r.`visitor` FROM roost_visits_head h STRAIGHT_JOIN roost_visits_rows r\
 ON r.`uid` = h.`uid` AND r.slot > MOD(h.sequence, 5)
  WHERE h.`uid` = %s ORDER BY r.slot DESC LIMIT %s)"""
POSTGRESQL_LATEST = """\
SELECT (q."#" - 1)::integer, e.*
  FROM unnest(%s::bigint[], %s::bigint[]) WITH ORDINALITY AS q ("uid", n, "#") JOIN roost_visits_head h USING ("uid")
  CROSS JOIN LATERAL (
    (SELECT r.sequence, r."visitor" FROM roost_visits_rows r\
 WHERE r."uid" = h."uid" AND r.slot <= MOD(h.sequence, 5) ORDER BY r.slot DESC LIMIT q.n)
    UNION ALL
    (SELECT r.sequence, r."visitor" FROM roost_visits_rows r\
 WHERE r."uid" = h."uid" AND r.slot > MOD(h.sequence, 5) ORDER BY r.slot DESC LIMIT q.n)
  ) e"""
# Two runs of slots, each downwards, as they are found; what the second one has too much falls away.
FOUND_5 = [(7, 70), (6, 60), (5, 50), (4, 40), (3, 30)]
FOUND_6 = [(6, 60), (5, 50), (4, 40), (3, 30)]
LATEST_ROWS = [
    [Visit(5, 70), Visit(5, 60), Visit(5, 50), Visit(5, 40), Visit(5, 30)],
    [Visit(6, 60), Visit(6, 50)],
    [],
]


def test_latest_on_sqlite_reads_two_runs_of_slots() -> None:
    assert play(ON_SQLITE, LATEST, [FOUND_5, FOUND_6, []]) == (
        [
            (SQLITE_LATEST, (5, 5, 5, 5)),
            (SQLITE_LATEST, (6, 2, 6, 2)),
            (SQLITE_LATEST, (7, 5, 7, 5)),
        ],
        LATEST_ROWS,
    )


MARIADB_NEWEST = """\
SELECT q.`#`, r.sequence, r.`visitor`\
 FROM (SELECT 0 AS `#`, `uid`, 0 AS n FROM roost_visits_head WHERE 0 UNION ALL VALUES {rows}) q
  STRAIGHT_JOIN roost_visits_head h ON h.`uid` = q.`uid`\
 STRAIGHT_JOIN (SELECT 0 AS d UNION ALL VALUES (1), (2), (3), (4)) d ON d.d < q.n
  STRAIGHT_JOIN roost_visits_rows r ON r.`uid` = h.`uid`\
 AND r.slot = MOD(h.sequence - d.d, 5) AND r.sequence = h.sequence - d.d"""


def test_latest_on_mariadb_is_one_text_with_ordinals_and_another_for_keys_with_holes() -> None:
    fetched = [(0, *row) for row in reversed(FOUND_5)] + [(1, *row) for row in FOUND_6[:2]]
    asked = MARIADB_NEWEST.replace("{rows}", "(0, %s, %s), (1, %s, %s), (2, %s, %s)")
    assert play(ON_MARIADB, LATEST, fetched, []) == (
        [(asked, (5, 5, 6, 2, 7, 5)), (MARIADB_LATEST.replace("{i}", "0"), (7, 5, 7, 5))],
        LATEST_ROWS,
    )


def test_latest_on_mariadb_puts_what_the_two_runs_find_into_order() -> None:
    played = play(ON_MARIADB, visits.latest(5, 3), [(0, 9, 90)], [(0, 6, 60), (0, 9, 90), (0, 8, 80)])
    assert played.results == [[Visit(5, 90), Visit(5, 80), Visit(5, 60)]]


MARIADB_WHOLE = """\
SELECT q.`#`, r.sequence, r.`visitor` FROM (SELECT 0 AS `#`, `uid` FROM roost_visits_rows WHERE 0\
 UNION ALL VALUES (0, %s), (1, %s)) q
  STRAIGHT_JOIN roost_visits_rows r ON r.`uid` = q.`uid`"""
POSTGRESQL_WHOLE = """\
SELECT (q."#" - 1)::integer, e.* FROM unnest(%s::bigint[]) WITH ORDINALITY AS q ("uid", "#")
  CROSS JOIN LATERAL (SELECT r.sequence, r."visitor" FROM roost_visits_rows r WHERE r."uid" = q."uid" OFFSET 0) e"""


@pytest.mark.parametrize(
    ("dialect", "sent"),
    [(MARIADB, (MARIADB_WHOLE, (5, 6))), (POSTGRESQL, (POSTGRESQL_WHOLE, ([5, 6],)))],
    ids=["mariadb", "postgresql"],
)
def test_all_rows_are_read_without_a_head(dialect: Dialect, sent: Any) -> None:
    played = play(plan_for(visits, dialect), [visits.latest(5), visits.latest(6, 7)], [(0, 8, 10), (0, 9, 20)])
    assert played == ([sent], [[Visit(5, 20), Visit(5, 10)], []])


def test_latest_on_mariadb_asks_once_for_a_key_that_has_few_rows_so_far() -> None:
    sent, results = play(ON_MARIADB, visits.latest(5, 3), [(0, 1, 10), (0, 2, 20)])
    assert len(sent) == 1
    assert results == [[Visit(5, 20), Visit(5, 10)]]


def test_latest_on_mariadb_reads_many_rows_as_two_runs() -> None:
    wide = roost.Ring("visits", Visit, per="uid", keep=1000)
    sent, results = play(plan_for(wide, MARIADB), wide.latest(5, 51), [(0, 9, 90)])
    assert sent == [(MARIADB_LATEST.replace("{i}", "0").replace(", 5)", ", 1000)"), (5, 51, 5, 51))]
    assert results == [[Visit(5, 90)]]


def test_latest_on_postgresql_is_one_text_with_arrays() -> None:
    fetched = [(1, *row) for row in FOUND_6] + [(0, *row) for row in FOUND_5]
    assert play(ON_POSTGRESQL, LATEST, fetched) == ([(POSTGRESQL_LATEST, ([5, 6, 7], [5, 2, 5]))], LATEST_ROWS)


@each_dialect
def test_rows_come_in_the_order_of_their_sequence_however_they_are_found(dialect: Dialect) -> None:
    found = [(9, 90), (8, 80), (12, 20), (11, 10), (10, 0)]
    answer: Any = [found] if dialect is SQLITE else [(0, *row) for row in found]
    ((rows),) = play(plan_for(visits, dialect), visits.latest(5), answer).results
    assert [row.visitor for row in rows] == [20, 10, 0, 90, 80]


# --- entries -----------------------------------------------------------------------------------------------------

ENTRIES = [visits.entries(5), visits.entries(6, after=4, n=2), visits.entries(7, after=2**63 - 1, n=99)]

SQLITE_ENTRIES = """\
SELECT * FROM (SELECT r.sequence, r.at, r."uid", r."visitor" FROM roost_visits_head h CROSS JOIN roost_visits_rows r\
 ON h."uid" = ? AND r."uid" = h."uid"
    AND r.slot > max(min(?, h.sequence), h.sequence - 5) - h.sequence + h.sequence % 5 + 5
  ORDER BY r.slot LIMIT ?)
UNION ALL
SELECT * FROM (SELECT r.sequence, r.at, r."uid", r."visitor" FROM roost_visits_head h CROSS JOIN roost_visits_rows r\
 ON h."uid" = ? AND r."uid" = h."uid"
    AND r.slot > max(min(?, h.sequence), h.sequence - 5) - h.sequence + h.sequence % 5
    AND r.slot <= h.sequence % 5
  ORDER BY r.slot LIMIT ?)"""
MARIADB_ENTRIES = """\
(SELECT {i}, r.sequence, r.at, r.`uid`, r.`visitor` FROM roost_visits_head h STRAIGHT_JOIN roost_visits_rows r\
 ON r.`uid` = h.`uid` WHERE h.`uid` = %s
    AND r.slot > GREATEST(LEAST(%s, h.sequence), h.sequence - 5) - h.sequence + MOD(h.sequence, 5) + 5
  ORDER BY r.slot LIMIT %s)
UNION ALL
(SELECT {i}, r.sequence, r.at, r.`uid`, r.`visitor` FROM roost_visits_head h STRAIGHT_JOIN roost_visits_rows r\
 ON r.`uid` = h.`uid` WHERE h.`uid` = %s
    AND r.slot > GREATEST(LEAST(%s, h.sequence), h.sequence - 5) - h.sequence + MOD(h.sequence, 5)
    AND r.slot <= MOD(h.sequence, 5)
  ORDER BY r.slot LIMIT %s)"""
POSTGRESQL_ENTRIES = """\
SELECT (q."#" - 1)::integer, e.*
  FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[]) WITH ORDINALITY AS q ("uid", sequence, n, "#")
  JOIN roost_visits_head h USING ("uid")
  CROSS JOIN LATERAL (
    (SELECT r.sequence, r.at, r."uid", r."visitor" FROM roost_visits_rows r WHERE r."uid" = h."uid"
        AND r.slot > GREATEST(LEAST(q.sequence, h.sequence), h.sequence - 5) - h.sequence
          + MOD(h.sequence, 5) + 5
      ORDER BY r.slot LIMIT q.n)
    UNION ALL
    (SELECT r.sequence, r.at, r."uid", r."visitor" FROM roost_visits_rows r WHERE r."uid" = h."uid"
        AND r.slot > GREATEST(LEAST(q.sequence, h.sequence), h.sequence - 5) - h.sequence + MOD(h.sequence, 5)
        AND r.slot <= MOD(h.sequence, 5)
      ORDER BY r.slot LIMIT q.n)
  ) e"""


def entries(at: Any) -> list[list[Any]]:
    """Return what the engines find, with their own form of `at`."""
    return [[(3, at, 5, 30), (4, at, 5, 40), (5, at, 5, 50)], [(7, at, 6, 70), (5, at, 6, 50), (6, at, 6, 60)], []]


ENTRY_ROWS = [
    [roost.Entry(3, NOW, Visit(5, 30)), roost.Entry(4, NOW, Visit(5, 40)), roost.Entry(5, NOW, Visit(5, 50))],
    [roost.Entry(5, NOW, Visit(6, 50)), roost.Entry(6, NOW, Visit(6, 60))],
    [],
]


def same_moments(played: Played) -> None:
    for entry in played.results[0]:
        assert entry.at.tzinfo is dt.UTC


def test_entries_on_sqlite_go_on_from_a_sequence() -> None:
    played = play(ON_SQLITE, ENTRIES, entries(AT))
    assert played.sent == [
        (SQLITE_ENTRIES, (5, 0, 5, 5, 0, 5)),
        (SQLITE_ENTRIES, (6, 4, 2, 6, 4, 2)),
        (SQLITE_ENTRIES, (7, 2**63 - 1, 5, 7, 2**63 - 1, 5)),
    ]
    assert played.results == ENTRY_ROWS
    same_moments(played)


def test_entries_on_mariadb() -> None:
    fetched = [(i, *row) for i, rows in enumerate(entries(AT_WITHOUT_ZONE)) for row in rows]
    played = play(ON_MARIADB, ENTRIES, fetched)
    assert played.sent == [
        (
            "\nUNION ALL\n".join(MARIADB_ENTRIES.replace("{i}", i) for i in "012"),
            (5, 0, 5, 5, 0, 5, 6, 4, 2, 6, 4, 2, 7, 2**63 - 1, 5, 7, 2**63 - 1, 5),
        )
    ]
    assert played.results == ENTRY_ROWS
    same_moments(played)


def test_entries_on_postgresql() -> None:
    east = dt.timezone(dt.timedelta(hours=5, minutes=30))  # a driver answers in the session's zone
    fetched = [(i, *row) for i, rows in enumerate(entries(NOW.astimezone(east))) for row in rows]
    played = play(ON_POSTGRESQL, ENTRIES, fetched)
    assert played.sent == [(POSTGRESQL_ENTRIES, ([5, 6, 7], [0, 4, 2**63 - 1], [5, 2, 5]))]
    assert played.results == ENTRY_ROWS
    same_moments(played)


# --- names and types ---------------------------------------------------------------------------------------------


def test_no_name_of_a_column_can_be_taken_for_one_of_roosts_own() -> None:
    # What the texts call their own is either reserved ("n", "sequence") or no name that a column can have ("#").
    for name in ("i", "q", "h", "r", "e", "after", "excluded", "head", "rows"):
        row = make_dataclass("Row", [(name, int), ("other", str), ("v", int)])
        ring: roost.Ring[Any, Any] = roost.Ring("ring", row, per=named("Key", **{name: int, "other": str}), keep=3)
        sql = ring_plan(ring, POSTGRESQL).entries.sql
        assert f'AS q ("{name}", "other", sequence, n, "#")' in sql
        assert f'JOIN roost_ring_head h USING ("{name}", "other")' in sql
    for name in ("n", "sequence", "slot", "at"):
        row = make_dataclass("Row", [(name, int), ("v", int)])
        with pytest.raises(roost.Invalid, match="a column of Roost's own"):
            roost.Ring("ring", row, per=name, keep=3)


@dataclass
class Everything:
    k: int
    f: float
    s: str
    t: Annotated[str, roost.text(768)]
    l: Annotated[str, roost.text(769)]  # noqa: E741
    b: bytes
    c: Annotated[bytes, roost.binary(3072)]
    d: Annotated[bytes, roost.binary(3073)]
    o: bool
    m: dt.datetime
    y: dt.date
    p: Annotated[Decimal, roost.decimal(12, 2)]
    u: uuid.UUID
    w: Colour
    g: Level
    q: int | None
    z: dt.datetime | None


EVERYTHING: roost.Ring[Everything, Any] = roost.Ring("everything", Everything, per="k", keep=1)
UTF8 = "CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"
C = 'text COLLATE "C"'
# column, its type on SQLite, MariaDB and PostgreSQL, and in an array
TYPES = [
    ("f", "REAL", "DOUBLE", "double precision", "double precision"),
    ("s", "TEXT", f"MEDIUMTEXT {UTF8}", C, "text"),
    ("t", "TEXT", f"VARCHAR(768) {UTF8}", C, "text"),
    ("l", "TEXT", f"MEDIUMTEXT {UTF8}", C, "text"),
    ("b", "BLOB", "MEDIUMBLOB", "bytea", "bytea"),
    ("c", "BLOB", "VARBINARY(3072)", "bytea", "bytea"),
    ("d", "BLOB", "MEDIUMBLOB", "bytea", "bytea"),
    ("o", "INTEGER", "TINYINT", "boolean", "boolean"),
    ("m", "TEXT", "DATETIME(6)", "timestamptz", "timestamptz"),
    ("y", "TEXT", "DATE", "date", "date"),
    ("p", "TEXT", "DECIMAL(12, 2)", "numeric(12, 2)", "numeric"),
    ("u", "TEXT", "BINARY(16)", "uuid", "uuid"),
    ("w", "TEXT", f"VARCHAR(5) {UTF8}", C, "text"),
    ("g", "INTEGER", "BIGINT", "bigint", "bigint"),
    ("q", "INTEGER", "BIGINT", "bigint", "bigint"),
    ("z", "TEXT", "DATETIME(6)", "timestamptz", "timestamptz"),
]


def test_the_type_of_every_column() -> None:
    for place, dialect in enumerate([SQLITE, MARIADB, POSTGRESQL], start=1):
        q = dialect.quote
        _, table = plan_for(EVERYTHING, dialect).tables
        columns = [f"  {q}{row[0]}{q} {row[place]}{'' if row[0] in 'qz' else ' NOT NULL'}," for row in TYPES]
        assert table.splitlines()[5:-2] == columns
    on_mysql = [table.replace("0900_bin", "nopad_bin") for table in plan_for(EVERYTHING, MYSQL).tables]
    assert on_mysql == list(plan_for(EVERYTHING, MARIADB).tables)
    arrays = ", ".join(f"%s::{row[4]}[]" for row in TYPES)
    assert (
        f"unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::timestamptz[], {arrays})"
        in ring_plan(EVERYTHING, POSTGRESQL).write.sql
    )


ROW = Everything(
    1, 0.5, "s", "t", "l", b"b", b"c", b"d", True, NOW, NOW.date(), Decimal("1.50"), uuid.UUID(int=1), Colour.BROWN,
    Level.HIGH, None, None,
)  # fmt: skip
TEXTS = [0.5, "s", "t", "l", b"b", b"c", b"d"]
DAY, PRICE, UID = NOW.date(), ROW.p, ROW.u
STORED: list[tuple[Dialect, list[Any]]] = [
    (SQLITE, [*TEXTS, 1, AT, "2008-01-01", "1.50", str(UID), "brown", 7, None, None]),
    (MARIADB, [*TEXTS, 1, AT_WITHOUT_ZONE, DAY, PRICE, UID.bytes, "brown", 7, None, None]),
    (POSTGRESQL, [*TEXTS, True, NOW, DAY, PRICE, UID, "brown", 7, None, None]),
]


@pytest.mark.parametrize(("dialect", "stored"), STORED, ids=[dialect.name for dialect, _ in STORED])
def test_every_type_is_stored_and_read_back(dialect: Dialect, stored: list[Any]) -> None:
    plan = plan_for(EVERYTHING, dialect)
    sent, _ = play(plan, EVERYTHING.push(ROW), *pushed(dialect, (1, 1)))
    (*_, last) = [each[1] for each in sent if isinstance(each, tuple)]
    values = [column[0] for column in last][3:] if dialect is POSTGRESQL else list(last)[4:]
    assert values == stored
    assert [type(value) for value in values] == [type(value) for value in stored]
    found = (1, *stored)
    ((back,),) = play(plan, EVERYTHING.latest(1, 1), [[found]] if dialect is SQLITE else [(0, *found)]).results
    assert back == ROW
    assert [type(getattr(back, name)) for name, *_ in TYPES] == [type(getattr(ROW, name)) for name, *_ in TYPES]
    assert back.m.tzinfo is dt.UTC
    assert back.w is Colour.BROWN


# --- clear, forget, keys -----------------------------------------------------------------------------------------


def test_clear_and_forget_on_sqlite() -> None:
    rows = 'DELETE FROM roost_visits_rows WHERE "uid" = ?'
    head = 'DELETE FROM roost_visits_head WHERE "uid" = ?'
    assert play(ON_SQLITE, [visits.clear(6), visits.clear(5)], 2, 0) == ([LOCKED, (rows, (6,)), (rows, (5,))], [2, 0])
    assert play(ON_SQLITE, [visits.forget(6), visits.forget(5)], 2, 1, 0, 0) == (
        [LOCKED, (rows, (6,)), (head, (6,)), (rows, (5,)), (head, (5,))],
        [2, 0],
    )


@elsewhere
def test_clear_and_forget_elsewhere_take_the_heads_in_key_order_first(dialect: Dialect) -> None:
    plan = plan_for(visits, dialect)
    uid = f"{dialect.quote}uid{dialect.quote} = %s"
    take = f"SELECT 1 FROM roost_visits_head WHERE {uid} FOR UPDATE"
    which = "FROM roost_visits_rows"
    if dialect is not POSTGRESQL:
        which = "roost_visits_rows FROM roost_visits_rows FORCE INDEX (PRIMARY)"
    rows, head = f"DELETE {which} WHERE {uid}", f"DELETE FROM roost_visits_head WHERE {uid}"
    # A head that is not found is looked for twice: it may have been deleted and made again meanwhile.
    assert play(plan, [visits.clear(6), visits.clear(5), visits.clear(6)], [[], [(1,)]], [[]], 2, 0) == (
        [(take, (5,)), (take, (6,)), (take, (5,)), LOCKED, (rows, (6,)), (rows, (6,))],
        [2, 0, 0],
    )
    assert play(plan, visits.forget(6), [[(1,)]], 2, 1) == (
        [(take, (6,)), LOCKED, (rows, (6,)), (head, (6,))],
        [2],
    )


@each_dialect
def test_keys_are_those_of_the_heads(dialect: Dialect) -> None:
    q, hole = dialect.quote, dialect.placeholder
    ask = [visits.keys(), visits.keys(5, 2)]
    assert play(plan_for(visits, dialect), ask, [[(5,), (6,)]], [[(6,)]]) == (
        [
            (f"SELECT DISTINCT {q}uid{q} FROM roost_visits_head ORDER BY {q}uid{q} LIMIT {hole}", (100,)),
            (
                f"SELECT DISTINCT {q}uid{q} FROM roost_visits_head WHERE ({q}uid{q}) > ({hole})"
                f" ORDER BY {q}uid{q} LIMIT {hole}",
                (5, 2),
            ),
        ],
        [[5, 6], [6]],
    )
    ((listed,),) = play(plan_for(seen, dialect), seen.keys(), [[("a", 1)]]).results
    assert listed == Place("a", 1)
    assert type(listed) is Place


# --- runs of several verbs ---------------------------------------------------------------------------------------

MIXED = [visits.push(Visit(6, 1)), visits.latest(6), visits.push(Visit(5, 2)), visits.clear(7), visits.forget(8)]


def test_a_mixed_run_on_sqlite_is_locked_where_its_first_push_is() -> None:
    sent, results = play(ON_SQLITE, MIXED, [[(2,)]], 1, 1, [[(3, 1)]], [[]], 1, 1, 4, 0, 0)
    assert [each if isinstance(each, Control) else each[1] for each in sent] == [
        (6,),
        (6, 3),
        LOCKED,
        (6, 3, 3, AT, 1),
        (6, 5, 6, 5),
        (5,),
        (5, 1),
        (5, 1, 1, AT, 2),
        (7,),
        (8,),
        (8,),
    ]
    assert results == [3, [Visit(6, 1)], 1, 4, 0]


def test_a_mixed_run_elsewhere_first_locks_all_heads_in_key_order() -> None:
    sent, results = play(ON_MARIADB, MIXED, 4, [(6, 3)], 1, [(0, 3, 1)], [(5, 1)], 1, 4, 0, 0, 1)
    assert sent[:2] == [
        (
            "INSERT INTO roost_visits_head (`uid`, sequence) VALUES (%s, %s), (%s, %s), (%s, %s), (%s, %s)"
            " ON DUPLICATE KEY UPDATE sequence = sequence",
            (5, 0, 6, 0, 7, 0, 8, 0),
        ),
        LOCKED,
    ]
    assert sent.count(LOCKED) == 1
    assert sent[-4:] == [
        ("DELETE roost_visits_rows FROM roost_visits_rows FORCE INDEX (PRIMARY) WHERE `uid` = %s", (7,)),
        # The lock has made a head for a key that was not there; a clear must not leave it behind.
        ("DELETE FROM roost_visits_head WHERE `uid` = %s AND sequence = 0", (7,)),
        ("DELETE roost_visits_rows FROM roost_visits_rows FORCE INDEX (PRIMARY) WHERE `uid` = %s", (8,)),
        ("DELETE FROM roost_visits_head WHERE `uid` = %s", (8,)),
    ]
    assert results == [3, [Visit(6, 1)], 1, 4, 0]
    sent, results = play(ON_POSTGRESQL, MIXED, 4, [(6, 3)], [(0, 3, 1)], [(5, 1)], 4, 0, 0, 1)
    assert sent[:2] == [
        (
            """\
INSERT INTO roost_visits_head ("uid", sequence) SELECT * FROM unnest(%s::bigint[], %s::bigint[])
  ON CONFLICT ("uid") DO UPDATE SET sequence = 0 WHERE false""",
            ([5, 6, 7, 8], [0, 0, 0, 0]),
        ),
        LOCKED,
    ]
    assert sent.count(LOCKED) == 1
    assert results == [3, [Visit(6, 1)], 1, 4, 0]


@elsewhere
def test_a_mixed_run_locks_the_key_of_several_columns_once(dialect: Dialect) -> None:
    run = [
        seen.push(Seen(2, 1, "a")),
        seen.clear(Place("b", 1)),
        seen.push(Seen(1, 1, "a")),
        seen.push(Seen(2, 2, "a")),
    ]
    first, others = pushed(dialect, ("a", 2, 1)), pushed(dialect, ("a", 1, 1), ("a", 2, 2), rows=2)
    sent, _ = play(plan_for(seen, dialect), run, 3, *first, 0, 1, *others)
    lock = sent[0]
    assert isinstance(lock, tuple)
    rows = [("a", 1, 0), ("a", 2, 0), ("b", 1, 0)]
    assert lock[1] == (tuple(map(list, zip(*rows, strict=True))) if dialect is POSTGRESQL else sum(rows, ()))


@elsewhere
def test_a_mixed_run_that_only_reads_locks_nothing(dialect: Dialect) -> None:
    sent, results = play(plan_for(visits, dialect), [visits.latest(5), visits.entries(5)], [], [])
    assert LOCKED not in sent
    assert results == [[], []]
