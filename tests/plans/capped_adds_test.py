"""Capped, on servers: adds that count on what the other way looks up first."""

from __future__ import annotations

from typing import Any

import pytest

import roost
from roost.dialects import MARIADB, POSTGRESQL, Dialect
from roost.errors import StatementFailed
from roost.structures.capped.adds import CAREFUL_RUNS
from roost.structures.plan import Careful, StructurePlan
from roost.structures.registry import plan_for
from tests.plans.script import LOCKED, NOW, play, sends
from tests.values.shapes import Egg, Seen, sightings

AT = NOW.replace(tzinfo=None)
small = roost.Capped("baskets", Egg, per="basket", keep=3, unique="egg")

both = pytest.mark.parametrize("dialect", [MARIADB, POSTGRESQL], ids=lambda dialect: dialect.name)

RUN = [small.add(Egg(7, 1)), small.add(Egg(42, 4)), small.add(Egg(42, 5)), small.add(Egg(9, 1))]
HEADS = [(7, 1, 0), (9, 13, 3), (42, 7, 2)]  # after the adds have raised the sequences: empty, full, room for one

MARIADB_SENT = [
    (
        """\
INSERT INTO roost_baskets_head (`basket`, sequence, n) VALUES (%s, %s, %s), (%s, %s, %s), (%s, %s, %s)
  ON DUPLICATE KEY UPDATE sequence = sequence + VALUES(sequence)
  RETURNING `basket`, sequence, n""",
        (7, 1, 0, 9, 1, 0, 42, 2, 0),
    ),
    LOCKED,
    (
        """\
INSERT INTO roost_baskets_rows (`basket`, `egg`, `colour`, sequence, at)\
 VALUES (%s, %s, %s, %s, %s), (%s, %s, %s, %s, %s)
  ON DUPLICATE KEY UPDATE sequence = sequence""",
        (7, 1, "white", 1, AT, 42, 4, "white", 6, AT),
    ),
    (
        """\
SELECT q.`#` FROM (SELECT 0 AS `#`, `basket`, sequence FROM roost_baskets_rows WHERE 0\
 UNION ALL VALUES (0, %s, %s), (1, %s, %s)) q
  STRAIGHT_JOIN roost_baskets_rows r ON r.`basket` = q.`basket` AND r.sequence < q.sequence""",
        (9, 10, 42, 4),
    ),
    (
        """\
UPDATE (SELECT sequence AS `#`, `basket`, `egg`, `colour`, sequence, at FROM roost_baskets_rows WHERE 0\
 UNION ALL VALUES (%s, %s, %s, %s, %s, %s), (%s, %s, %s, %s, %s, %s)) q
  STRAIGHT_JOIN roost_baskets_rows r FORCE INDEX (roost_baskets_newest)\
 ON r.`basket` = q.`basket` AND r.sequence = q.`#` AND NOT (r.`egg` = q.`egg`)\
 SET r.`egg` = q.`egg`, r.`colour` = q.`colour`, r.sequence = q.sequence, r.at = q.at""",
        (10, 9, 1, "white", 13, AT, 4, 42, 5, "white", 7, AT),
    ),
    (
        """\
INSERT INTO roost_baskets_head (`basket`, sequence, n) VALUES (%s, %s, %s), (%s, %s, %s)
  ON DUPLICATE KEY UPDATE sequence = VALUES(sequence), n = VALUES(n)""",
        (7, 1, 1, 42, 7, 3),
    ),
]
POSTGRESQL_SENT = [
    (
        """\
INSERT INTO roost_baskets_head AS h ("basket", sequence, n)\
 SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[])
  ON CONFLICT ("basket") DO UPDATE SET sequence = h.sequence + excluded.sequence
  RETURNING h."basket", h.sequence, h.n""",
        ([7, 9, 42], [1, 1, 2], [0, 0, 0]),
    ),
    LOCKED,
    (
        """\
INSERT INTO roost_baskets_rows ("basket", "egg", "colour", sequence, at)\
 SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::text[], %s::bigint[], %s::timestamptz[])
  ON CONFLICT ("basket", "egg") DO NOTHING""",
        ([7, 9, 42, 42], [1, 1, 4, 5], ["white"] * 4, [1, 13, 6, 7], [NOW] * 4),
    ),
    (
        """\
DELETE FROM roost_baskets_rows AS r USING unnest(%s::bigint[], %s::bigint[], %s::bigint[]) AS q ("basket", n, last)
  CROSS JOIN LATERAL (SELECT o."egg" FROM roost_baskets_rows o WHERE o."basket" = q."basket" AND o.sequence <= q.last
    ORDER BY o.sequence LIMIT q.n) e
  WHERE r."basket" = q."basket" AND r."egg" = e."egg\"""",
        ([9, 42], [1, 1], [10, 4]),
    ),
    (
        """\
INSERT INTO roost_baskets_head ("basket", sequence, n) SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[])
  ON CONFLICT ("basket") DO UPDATE SET sequence = excluded.sequence, n = excluded.n""",
        ([7, 42], [1, 7], [1, 3]),
    ),
]


def fresh(dialect: Dialect, structure: Any = small) -> StructurePlan:
    """A plan that owes no careful runs to another test."""
    structure.plans.pop(dialect.name, None)
    return plan_for(structure, dialect)


def test_on_mariadb_the_oldest_row_becomes_the_new_one() -> None:
    assert play(fresh(MARIADB), RUN, HEADS, 2, [], 2, 4) == (MARIADB_SENT, [None] * 4)


def test_on_postgresql_the_oldest_row_is_deleted() -> None:
    assert play(fresh(POSTGRESQL), RUN, HEADS, 4, 2, 2) == (POSTGRESQL_SENT, [None] * 4)


ANSWERS = {
    "mariadb": {
        "an id is there already": [HEADS, 1],
        "a row is not where it is expected": [HEADS, 2, [], 1, 4],
        "another row is older": [HEADS, 2, [(1,)], 2, 4],
        "a swap's id is there already": [HEADS, 2, [], StatementFailed("1062")],
    },
    "postgresql": {
        "an id is there already": [HEADS, 3, 2, 2],
        "a row that goes is protected": [HEADS, 4, 1, 2],
    },
}
ANSWERS["mariadb"]["an id is there already"] += [[], 2, 4]
for dialect_ in ANSWERS.values():
    dialect_["there are more than keep"] = [[(7, 1, 0), (9, 13, 4), (42, 7, 2)]]


@pytest.mark.parametrize(
    ("dialect", "why"),
    [(dialect, why) for dialect in (MARIADB, POSTGRESQL) for why in ANSWERS[dialect.name]],
    ids=lambda each: each if isinstance(each, str) else each.name,
)
def test_what_is_not_as_hoped_is_done_again(dialect: Dialect, why: str) -> None:
    with pytest.raises(Careful):
        play(fresh(dialect), RUN, *ANSWERS[dialect.name][why])


@both
def test_after_a_hope_in_vain_the_next_runs_look_first(dialect: Dialect) -> None:
    plan = fresh(dialect)
    add = small.add(Egg(7, 1))
    careful: list[Any] = [[(7, 0, 0)], [], 1, 1] if dialect is MARIADB else [1, [(0, 0, 0)], [], 1, 1]
    optimistic: list[Any] = [[(7, 1, 0)], 1, 1]
    assert play(plan, add, *optimistic).results == [None]
    assert play(plan, add, *careful, careful=True).results == [None]
    for _ in range(CAREFUL_RUNS):
        assert play(plan, add, *careful).results == [None]
    assert play(plan, add, *optimistic).results == [None]


@both
@pytest.mark.parametrize(
    ("run", "answers"),
    [
        ([small.add(Egg(7, 1)), small.remove(7, 1)], [[], 0, 1]),
        ([small.add(Egg(7, 1)), small.add(Egg(7, 1))], [[], 1, 1]),
        ([small.add(Egg(7, n)) for n in range(4)], [[], [], 0, 3, 1]),
    ],
    ids=["a remove", "an id twice", "more than keep"],
)
def test_a_run_whose_rows_may_be_gone_again_looks_first(dialect: Dialect, run: Any, answers: Any) -> None:
    made: list[Any] = [[(7, 0, 0)]] if dialect is MARIADB else [1, [(0, 0, 0)]]
    sent = sends(small, dialect, run, [*made, *answers])
    assert any("r.sequence" in text for text in sent)


@both
@pytest.mark.parametrize("option", [{"on_full": "reject"}, {"on_duplicate": "refresh"}], ids=str)
def test_who_rejects_or_refreshes_looks_first(dialect: Dialect, option: Any) -> None:
    other = roost.Capped("baskets", Egg, per="basket", keep=3, unique="egg", **option)
    made: list[Any] = [[(7, 0, 0)]] if dialect is MARIADB else [1, [(0, 0, 0)]]
    assert play(plan_for(other, dialect), other.add(Egg(7, 1)), *made, [], 1, 1).results == [None]


@both
def test_in_the_applications_transaction_it_looks_first(dialect: Dialect) -> None:
    made: list[Any] = [[("a", 0, 0)]] if dialect is MARIADB else [[[]], 1, [(0, 0, 0)]]
    plan = fresh(dialect, sightings)
    assert play(plan, sightings.add(Seen(1, 2, "a")), *made, [], 1, 1, joined=True).results == [None]
