"""Counter: what goes out, on every engine, as text.

Longer than 500 lines: every statement stands here, for each engine.
"""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from typing import Any

import pytest

import roost
from roost.dialects import MARIADB, MYSQL, POSTGRESQL, SQLITE, Dialect
from roost.errors import StatementFailed, worded
from roost.structures.counter.plan import CounterPlan
from roost.structures.plan import Careful, Context
from roost.structures.registry import plan_for
from tests.plans.script import LOCKED, NOW, play
from tests.values.shapes import Colour, Place, pageviews, places

INT_MAX, INT_MIN = 2**63 - 1, -(2**63)
DIALECTS = [SQLITE, MARIADB, MYSQL, POSTGRESQL]
each_dialect = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
elsewhere = pytest.mark.parametrize("dialect", [MARIADB, MYSQL, POSTGRESQL], ids=lambda dialect: dialect.name)

ON_SQLITE = plan_for(pageviews, SQLITE)
ON_MARIADB = plan_for(pageviews, MARIADB)
ON_POSTGRESQL = plan_for(pageviews, POSTGRESQL)


def counter_plan(structure: Any, dialect: Dialect) -> CounterPlan:
    plan = plan_for(structure, dialect)
    assert isinstance(plan, CounterPlan)
    return plan


# --- tables ------------------------------------------------------------------------------------------------------


def test_the_table_on_sqlite() -> None:
    assert ON_SQLITE.tables == (
        """\
CREATE TABLE roost_pageviews_rows (
  "key" TEXT NOT NULL,
  "slot" INTEGER NOT NULL,
  "n" INTEGER NOT NULL,
  PRIMARY KEY ("key", slot)
) STRICT, WITHOUT ROWID""",
    )


def test_the_table_on_mariadb() -> None:
    assert ON_MARIADB.tables == (
        """\
CREATE TABLE roost_pageviews_rows (
  `key` VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
  `slot` BIGINT NOT NULL,
  `n` BIGINT NOT NULL,
  PRIMARY KEY (`key`, slot)
) ENGINE=InnoDB""",
    )


def test_the_table_on_postgresql() -> None:
    assert ON_POSTGRESQL.tables == (
        """\
CREATE TABLE roost_pageviews_rows (
  "key" text COLLATE "C" NOT NULL,
  "slot" bigint NOT NULL,
  "n" bigint NOT NULL,
  PRIMARY KEY ("key", slot)
) WITH (fillfactor = 50)""",
    )


def test_the_table_of_a_key_of_several_columns() -> None:
    (table,) = plan_for(places, POSTGRESQL).tables
    assert '  "site" text COLLATE "C" NOT NULL,\n  "page" bigint NOT NULL,\n  "slot"' in table
    assert 'PRIMARY KEY ("site", "page", slot)' in table


# --- add ---------------------------------------------------------------------------------------------------------

ADDS = [pageviews.add("/b", 3), pageviews.add("/a"), pageviews.add("/b", -1), pageviews.add("/ä", 0)]

SQLITE_ADD = """\
INSERT INTO roost_pageviews_rows ("key", slot, n) VALUES (?, ?, ?)
  ON CONFLICT ("key", slot) DO UPDATE SET n = n + excluded.n
  WHERE typeof(n + excluded.n) = 'integer'"""
MARIADB_ADD_3 = """\
INSERT INTO roost_pageviews_rows (`key`, slot, n) VALUES (%s, %s, %s), (%s, %s, %s), (%s, %s, %s)
  ON DUPLICATE KEY UPDATE n = n + VALUES(n)"""
MARIADB_ADD_1 = MARIADB_ADD_3.replace(", (%s, %s, %s), (%s, %s, %s)", "")
POSTGRESQL_ADD = """\
INSERT INTO roost_pageviews_rows AS r ("key", slot, n) SELECT * FROM unnest(%s::text[], %s::bigint[], %s::bigint[])
  ON CONFLICT ("key", slot) DO UPDATE SET n = r.n + excluded.n
  WHERE r.n::numeric + excluded.n BETWEEN -9223372036854775808 AND 9223372036854775807"""


def test_adds_to_one_key_are_merged_and_keys_are_sorted() -> None:
    assert play(ON_SQLITE, ADDS, 3) == (
        [(SQLITE_ADD, ("/a", 0, 1)), (SQLITE_ADD, ("/b", 0, 2)), (SQLITE_ADD, ("/ä", 0, 0))],
        [None] * 4,
    )
    assert play(ON_MARIADB, ADDS, 5, spot=7) == (
        [(MARIADB_ADD_3, ("/a", 7, 1, "/b", 7, 2, "/ä", 7, 0))],
        [None] * 4,
    )
    assert play(ON_POSTGRESQL, ADDS, 3, spot=7) == (
        [(POSTGRESQL_ADD, (["/a", "/b", "/ä"], [7, 7, 7], [1, 2, 0]))],
        [None] * 4,
    )


def test_keys_are_sorted_byte_by_byte() -> None:
    keys = ["/home", "/Home", "/home ", "/hömé", "", "😀", "\uffff", "/home\0"]
    (sent,) = play(ON_POSTGRESQL, [pageviews.add(key) for key in keys], len(keys)).sent
    assert isinstance(sent, tuple)
    assert sent[1][0] == sorted(keys, key=str.encode)


def test_the_columns_of_a_key_stand_side_by_side() -> None:
    adds = [
        places.add(Place("b", 1)),
        places.add(Place("a", 2), 5),
        places.add(Place("a", 1)),
        places.add(Place("b", 1)),
    ]
    assert play(plan_for(places, POSTGRESQL), adds, 3).sent == [
        (
            """\
INSERT INTO roost_places_rows AS r ("site", "page", slot, n)\
 SELECT * FROM unnest(%s::text[], %s::bigint[], %s::bigint[], %s::bigint[])
  ON CONFLICT ("site", "page", slot) DO UPDATE SET n = r.n + excluded.n
  WHERE r.n::numeric + excluded.n BETWEEN -9223372036854775808 AND 9223372036854775807""",
            (["a", "a", "b"], [1, 2, 1], [0, 0, 0], [1, 5, 2]),
        )
    ]
    assert play(plan_for(places, MARIADB), adds[:2], 2).sent == [
        (
            """\
INSERT INTO roost_places_rows (`site`, `page`, slot, n) VALUES (%s, %s, %s, %s), (%s, %s, %s, %s)
  ON DUPLICATE KEY UPDATE n = n + VALUES(n)""",
            ("a", 2, 0, 5, "b", 1, 0, 1),
        )
    ]


# key, as it is stored on SQLite, MariaDB and PostgreSQL, and the type of its array
KEYS: list[tuple[Any, Any, Any, Any, Any, str]] = [
    (bytes, b"\0", b"\0", b"\0", b"\0", "bytea"),
    (bool, True, 1, 1, True, "boolean"),
    (dt.date, dt.date(2008, 1, 1), "2008-01-01", dt.date(2008, 1, 1), dt.date(2008, 1, 1), "date"),
    (dt.datetime, NOW, "2008-01-01 22:03:23.000500", NOW.replace(tzinfo=None), NOW, "timestamptz"),
    (uuid.UUID, uuid.UUID(int=1), str(uuid.UUID(int=1)), bytes(15) + b"\1", uuid.UUID(int=1), "uuid"),
    (Colour, Colour.BROWN, "brown", "brown", "brown", "text"),
    (roost.decimal(6, 2), Decimal("1.5"), "1.50", Decimal("1.50"), Decimal("1.50"), "numeric"),
]


@pytest.mark.parametrize(("key", "value", "on_sqlite", "on_mariadb", "on_postgresql", "array"), KEYS, ids=repr)
def test_every_type_of_key(
    key: Any, value: Any, on_sqlite: Any, on_mariadb: Any, on_postgresql: Any, array: str
) -> None:
    counter: roost.Counter[Any] = roost.Counter("c", key=key)
    for dialect, stored in [(SQLITE, on_sqlite), (MARIADB, on_mariadb), (POSTGRESQL, on_postgresql)]:
        plan = plan_for(counter, dialect)
        ((sql, params),) = play(plan, counter.add(value), 1).sent  # type: ignore[misc]
        found = params[0][0] if dialect is POSTGRESQL else params[0]
        assert (found, type(found)) == (stored, type(stored))
        if dialect is POSTGRESQL:
            assert f"unnest(%s::{array}[], %s::bigint[], %s::bigint[])" in sql
        ((listed,),) = play(plan, counter.keys(), [[(stored,)]]).results
        assert (listed, type(listed)) == (value, type(value))


# --- slots -------------------------------------------------------------------------------------------------------


@each_dialect
@pytest.mark.parametrize("slots", [1, 2, 3, 4, 7, 16, 1024])
def test_joined_adds_take_the_last_quarter_of_the_slots(dialect: Dialect, slots: int) -> None:
    plan = counter_plan(roost.Counter("c", slots=slots), dialect)
    spots = range(3 * slots)
    alone = {plan.slot(Context(lambda: NOW, spot)) for spot in spots}
    joined = {plan.slot(Context(lambda: NOW, spot, joined=True)) for spot in spots}
    assert alone | joined == set(range(slots))
    assert len(joined) == max(1, slots // 4)
    assert max(joined) == slots - 1
    if slots > 1:
        assert not alone & joined


def test_the_engines_own_choice_of_slots() -> None:
    assert counter_plan(pageviews, SQLITE).slots == 1
    assert counter_plan(pageviews, MARIADB).slots == 16
    assert counter_plan(pageviews, POSTGRESQL).slots == 16
    assert counter_plan(roost.Counter("c", slots=4), SQLITE).slots == 4


# --- sums that would leave 64 bits -------------------------------------------------------------------------------


@each_dialect
def test_a_merged_sum_past_64_bits_is_tried_in_order_before_anything_is_sent(dialect: Dialect) -> None:
    for n in (INT_MAX, INT_MIN):
        with pytest.raises(Careful):
            play(plan_for(pageviews, dialect), [pageviews.add("/a", n), pageviews.add("/a", 1 if n > 0 else -1)])


def test_fewer_rows_changed_than_were_sent_means_that_a_sum_did_not_fit() -> None:
    for plan in (ON_SQLITE, ON_POSTGRESQL):
        play(plan, ADDS, 3)
        with pytest.raises(Careful):
            play(plan, ADDS, 2)
    play(ON_MARIADB, ADDS, 5)  # there a changed row counts as two; it has error 1690
    with pytest.raises(Careful):
        play(ON_MARIADB, ADDS, worded(StatementFailed(), "range"))
    with pytest.raises(StatementFailed):
        play(ON_MARIADB, ADDS, StatementFailed("another reason"))


SQLITE_ONE_SLOT = 'SELECT n FROM roost_pageviews_rows WHERE "key" = ? AND slot = ?'
SQLITE_PUT = """\
INSERT INTO roost_pageviews_rows ("key", slot, n) VALUES (?, ?, ?)
  ON CONFLICT ("key", slot) DO UPDATE SET n = excluded.n"""

CAREFUL = [
    pageviews.add("/a", 10),  # leaves 64 bits by itself
    pageviews.add("/b", 5),
    pageviews.add("/a", -3),
    pageviews.add("/a", 7),  # does too, but 2 more than there was fits
    pageviews.add("/b", INT_MAX),  # fits in the end, since -6 comes behind it
    pageviews.add("/b", -6),
]


def test_careful_adds_are_tried_in_their_order() -> None:
    sent, results = play(ON_SQLITE, CAREFUL, 2, [[(INT_MAX - 5,)], [(1,)]], 2, careful=True)
    assert sent == [
        (SQLITE_ADD, ("/a", 0, 0)),
        (SQLITE_ADD, ("/b", 0, 0)),
        (SQLITE_ONE_SLOT, ("/a", 0)),
        (SQLITE_ONE_SLOT, ("/b", 0)),
        (SQLITE_PUT, ("/a", 0, INT_MAX - 1)),
        (SQLITE_PUT, ("/b", 0, INT_MAX)),
    ]
    assert [type(result) for result in results] == [roost.Overflow] + [type(None)] * 5
    assert str(results[0]) == (
        f"pageviews.add('/a', 10): the slot holds {INT_MAX - 5}, and the sum {INT_MAX + 5} would leave 64 bits"
    )


def test_careful_adds_that_fit_in_all_are_not_refused_for_their_order() -> None:
    adds = [pageviews.add("/a", INT_MAX), pageviews.add("/a", 1), pageviews.add("/a", -1)]
    sent, results = play(ON_SQLITE, adds, 1, [[(0,)]], 1, careful=True)
    assert sent[-1] == (SQLITE_PUT, ("/a", 0, INT_MAX))
    assert results == [None] * 3
    sent, results = play(ON_SQLITE, adds, 1, [[(-5,)]], 1, careful=True)
    assert sent[-1] == (SQLITE_PUT, ("/a", 0, INT_MAX - 5))
    assert results == [None] * 3


def test_a_careful_slot_goes_down_to_its_least_and_no_further() -> None:
    adds = [pageviews.add("/a", -1), pageviews.add("/a", -1)]
    sent, results = play(ON_SQLITE, adds, 1, [[(INT_MIN + 1,)]], 1, careful=True)
    assert sent[-1] == (SQLITE_PUT, ("/a", 0, INT_MIN))
    assert results[0] is None
    assert isinstance(results[1], roost.Overflow)


def test_careful_adds_elsewhere_read_under_the_lock_of_the_slot() -> None:
    one_slot = "SELECT n FROM roost_pageviews_rows WHERE {} = %s AND slot = %s FOR UPDATE"
    adds = [pageviews.add("/b", 5), pageviews.add("/a", 10)]
    sent, results = play(ON_MARIADB, adds, 2, [[(1,)], [(2,)]], 4, careful=True, spot=3)
    assert sent == [
        (MARIADB_ADD_3.replace(", (%s, %s, %s)", "", 1), ("/a", 3, 0, "/b", 3, 0)),
        (one_slot.format("`key`"), ("/a", 3)),
        (one_slot.format("`key`"), ("/b", 3)),
        (
            """\
INSERT INTO roost_pageviews_rows (`key`, slot, n) VALUES (%s, %s, %s), (%s, %s, %s)
  ON DUPLICATE KEY UPDATE n = VALUES(n)""",
            ("/a", 3, 11, "/b", 3, 7),
        ),
    ]
    assert results == [None, None]
    sent, results = play(ON_POSTGRESQL, adds, 2, [[(1,)], [(2,)]], 2, careful=True, joined=True, spot=3)
    assert sent == [
        (POSTGRESQL_ADD, (["/a", "/b"], [15, 15], [0, 0])),
        (one_slot.format('"key"'), ("/a", 15)),
        (one_slot.format('"key"'), ("/b", 15)),
        (
            """\
INSERT INTO roost_pageviews_rows AS r ("key", slot, n) SELECT * FROM unnest(%s::text[], %s::bigint[], %s::bigint[])
  ON CONFLICT ("key", slot) DO UPDATE SET n = excluded.n""",
            (["/a", "/b"], [15, 15], [11, 7]),
        ),
    ]
    assert results == [None, None]


# --- reading -----------------------------------------------------------------------------------------------------


def test_total_sums_the_slots_as_ints_of_any_size() -> None:
    ask = [pageviews.total("/b"), pageviews.total("/a"), pageviews.total("/b")]
    select = 'SELECT n FROM roost_pageviews_rows WHERE "key" = ?'
    assert play(ON_SQLITE, ask, [[(INT_MAX,), (INT_MAX,)], [], [(1,)]]) == (
        [(select, ("/b",)), (select, ("/a",)), (select, ("/b",))],
        [2 * INT_MAX, 0, 1],
    )
    assert play(ON_MARIADB, ask, [(2, 1), (0, INT_MAX), (0, INT_MAX)]) == (
        [
            (
                """\
SELECT 0, n FROM roost_pageviews_rows WHERE `key` = %s
UNION ALL
SELECT 1, n FROM roost_pageviews_rows WHERE `key` = %s
UNION ALL
SELECT 2, n FROM roost_pageviews_rows WHERE `key` = %s""",
                ("/b", "/a", "/b"),
            )
        ],
        [2 * INT_MAX, 0, 1],
    )
    assert play(ON_POSTGRESQL, ask, [(0, INT_MAX), (2, 1), (0, INT_MAX)]) == (
        [
            (
                """\
SELECT (q."#" - 1)::integer, e.n FROM unnest(%s::text[]) WITH ORDINALITY AS q ("key", "#")
  CROSS JOIN LATERAL (SELECT r.n FROM roost_pageviews_rows r WHERE r."key" = q."key" OFFSET 0) e""",
                (["/b", "/a", "/b"],),
            )
        ],
        [2 * INT_MAX, 0, 1],
    )


@each_dialect
def test_totals_has_every_key_that_was_asked_in_their_order(dialect: Dialect) -> None:
    plan = plan_for(pageviews, dialect)
    ask = [pageviews.totals(["/b", "/a", "/b"]), pageviews.totals([]), pageviews.totals(["/c"])]
    rows: list[Any] = [[(5,)], [], [(5,)], [(7,), (-1,)]]
    fetched = [(i, *row) for i, found in enumerate(rows) for row in found]
    sent, results = play(plan, ask, rows if dialect is SQLITE else fetched)
    assert results == [{"/b": 5, "/a": 0}, {}, {"/c": 6}]
    assert list(results[0]) == ["/b", "/a"]
    assert len(sent) == (4 if dialect is SQLITE else 1)
    assert play(plan, pageviews.totals([])) == ([], [{}])  # asks nothing


@each_dialect
def test_totals_of_a_key_of_several_columns_are_those_of_the_callers_class(dialect: Dialect) -> None:
    answer: Any = [[(5,)]] if dialect is SQLITE else [(0, 5)]
    _, ((total),) = play(plan_for(places, dialect), places.totals([Place("a", 1)]), answer)
    assert total == {Place("a", 1): 5}
    assert type(next(iter(total))) is Place


def test_top_on_sqlite_sums_halves_of_32_bits() -> None:
    halves = [("/a", INT_MAX >> 32, INT_MAX & 0xFFFFFFFF), ("/b", -1, 0xFFFFFFFF), ("/c", (INT_MIN >> 32) * 3, 0)]
    sent, results = play(ON_SQLITE, pageviews.top(3), [halves])
    assert sent == [
        (
            """\
SELECT "key", SUM(n >> 32), SUM(n & 4294967295) FROM roost_pageviews_rows GROUP BY "key"
  ORDER BY SUM(n >> 32) + (SUM(n & 4294967295) >> 32) DESC, SUM(n & 4294967295) & 4294967295 DESC, "key" LIMIT ?""",
            (3,),
        )
    ]
    assert results == [[("/a", INT_MAX), ("/b", -1), ("/c", 3 * INT_MIN)]]


@elsewhere
def test_top_elsewhere_sums_as_decimals(dialect: Dialect) -> None:
    q = dialect.quote
    sent, results = play(
        plan_for(places, dialect), places.top(), [[("a", 1, 0, Decimal(3 * INT_MAX)), ("b", 2, 0, Decimal(-1))]]
    )
    assert sent == [
        (
            f"SELECT {q}site{q}, {q}page{q}, 0, SUM(n) AS total FROM roost_places_rows GROUP BY {q}site{q}, {q}page{q}"
            f" ORDER BY total DESC, {dialect.in_order(places.key.columns)} LIMIT %s",
            (10,),
        )
    ]
    assert results == [[(Place("a", 1), 3 * INT_MAX), (Place("b", 2), -1)]]
    assert [type(total) for _, total in results[0]] == [int, int]


@each_dialect
def test_keys_are_listed_in_key_order_on_from_a_key(dialect: Dialect) -> None:
    q, hole = dialect.quote, dialect.placeholder
    page = f"ORDER BY {q}site{q}, {q}page{q} LIMIT {hole}"
    table = f"SELECT DISTINCT {q}site{q}, {q}page{q} FROM roost_places_rows"
    sent, results = play(
        plan_for(places, dialect), [places.keys(n=2), places.keys(Place("b", 2))], [[("a", 1), ("b", 2)]], [[]]
    )
    assert sent == [
        (f"{table} {page}", (2,)),
        (f"{table} WHERE ({q}site{q}, {q}page{q}) > ({hole}, {hole}) {page}", ("b", 2, 100)),
    ]
    assert results == [[Place("a", 1), Place("b", 2)], []]
    assert type(results[0][0]) is Place


# --- clear, forget -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["clear", "forget"])
def test_clear_on_sqlite_reads_and_deletes(verb: str) -> None:
    run = [getattr(pageviews, verb)("/b"), getattr(pageviews, verb)("/a")]
    select = 'SELECT n FROM roost_pageviews_rows WHERE "key" = ?'
    delete = 'DELETE FROM roost_pageviews_rows WHERE "key" = ?'
    assert play(ON_SQLITE, run, [[(5,), (7,)]], 2, [[]], 0) == (
        [(select, ("/b",)), (delete, ("/b",)), (select, ("/a",)), (delete, ("/a",))],
        [12, 0],
    )


@elsewhere
@pytest.mark.parametrize("verb", ["clear", "forget"])
def test_clear_elsewhere_takes_every_slot_of_its_keys_in_order_and_tells_what_it_deleted(
    dialect: Dialect, verb: str
) -> None:
    counter = roost.Counter("pageviews", slots=2)
    plan = counter_plan(counter, dialect)
    run = [getattr(counter, verb)(key) for key in ("/b", "/a", "/b")]
    found = [[(INT_MAX,), (1,)], [(7,)]]
    sent, results = play(plan, run, 4, found, *([3] if dialect is MYSQL else []), spot=1)
    lock, *rest = sent
    rows = f"FROM roost_pageviews_rows WHERE {dialect.quote}key{dialect.quote} = %s"
    texts = [f"SELECT n {rows} FOR UPDATE", f"DELETE {rows}"] if dialect is MYSQL else [f"DELETE {rows} RETURNING n"]
    assert rest == [LOCKED, *[(text, (key,)) for text in texts for key in ("/a", "/b")]]
    assert results == [7, INT_MAX + 1, 0]
    slots = [("/a", 0, 0), ("/a", 1, 0), ("/b", 0, 0), ("/b", 1, 0)]
    if dialect.family == "mariadb":
        assert lock == (plan.add.sql.replace("{rows}", ", ".join(["(%s, %s, %s)"] * 4)), sum(slots, ()))
    else:
        assert lock == (POSTGRESQL_ADD, tuple(map(list, zip(*slots, strict=True))))


# --- runs of several verbs ---------------------------------------------------------------------------------------

MIXED = [
    pageviews.add("/b"),
    pageviews.total("/b"),
    pageviews.add("/a", 2),
    pageviews.add("/b", 3),
    pageviews.clear("/c"),
]


def test_a_mixed_run_on_sqlite_goes_verb_by_verb() -> None:
    sent, results = play(ON_SQLITE, MIXED, 1, [[(1,)]], 2, [[(9,)]], 1)
    assert [each[1] for each in sent if isinstance(each, tuple)] == [
        ("/b", 0, 1),
        ("/b",),
        ("/a", 0, 2),
        ("/b", 0, 3),
        ("/c",),
        ("/c",),
    ]
    assert LOCKED not in sent  # its adds lock and write at once, and there is one writer
    assert results == [None, 1, None, None, 9]


def test_a_mixed_run_elsewhere_first_locks_all_that_it_will_write() -> None:
    counter = roost.Counter("pageviews", slots=4)  # three for batches
    plan = plan_for(counter, POSTGRESQL)
    mixed = [op for op in MIXED if op.verb != "clear"] + [counter.clear("/b"), counter.add("/c")]
    sent, results = play(plan, mixed, 6, 1, [(0, 1)], 2, [[(4,)]], 1, spot=1)
    assert sent[:2] == [
        (
            POSTGRESQL_ADD,
            (["/a", "/b", "/b", "/b", "/b", "/c"], [1, 0, 1, 2, 3, 1], [0, 0, 0, 0, 0, 0]),
        ),
        LOCKED,
    ]
    assert sent.count(LOCKED) == 1
    texts = [each[0].split("(")[0].strip() for each in sent if isinstance(each, tuple)]
    assert texts == [
        "INSERT INTO roost_pageviews_rows AS r",
        "INSERT INTO roost_pageviews_rows AS r",
        "SELECT",
        "INSERT INTO roost_pageviews_rows AS r",
        'DELETE FROM roost_pageviews_rows WHERE "key" = %s RETURNING n',
        "INSERT INTO roost_pageviews_rows AS r",
    ]
    assert results == [None, 1, None, None, 4, None]


def test_a_mixed_run_that_is_careful_locks_the_same() -> None:
    adds = [pageviews.add("/a", INT_MAX), pageviews.total("/a")]
    sent, results = play(ON_MARIADB, adds, 1, 1, [[(1,)]], 1, [(0, 1)], careful=True, spot=2)
    assert sent[:3] == [(MARIADB_ADD_1, ("/a", 2, 0)), LOCKED, (MARIADB_ADD_1, ("/a", 2, 0))]
    assert isinstance(results[0], roost.Overflow)
    assert results[1] == 1


@elsewhere
def test_adds_alone_need_no_lock_before(dialect: Dialect) -> None:
    assert LOCKED not in play(plan_for(pageviews, dialect), ADDS, 3).sent


@elsewhere
def test_a_mixed_run_that_only_reads_locks_nothing(dialect: Dialect) -> None:
    sent, results = play(plan_for(pageviews, dialect), [pageviews.total("/a"), pageviews.keys()], [(0, 5)], [[("/a",)]])
    assert len(sent) == 2
    assert results == [5, ["/a"]]


@each_dialect
def test_a_plan_tells_its_tables_layout_and_where_its_definition_is(dialect: Dialect) -> None:
    plan = counter_plan(places, dialect)
    assert plan.layout == {"roost_places_rows": plan.layout["roost_places_rows"]}
    assert [column.name for column in plan.layout["roost_places_rows"]] == ["site", "page", "slot", "n"]
    assert plan.stored.rows == [("places",)]


# --- increment ---------------------------------------------------------------------------------------------------


def test_increments_on_sqlite_read_their_slots_and_write_the_sums() -> None:
    run = [pageviews.increment("/b", 3), pageviews.increment("/a"), pageviews.increment("/b", -1)]
    each_slot = 'SELECT slot, n FROM roost_pageviews_rows WHERE "key" = ?'
    assert play(ON_SQLITE, run, [[], [(0, 5)]], 2) == (
        [
            LOCKED,
            (each_slot, ("/a",)),
            (each_slot, ("/b",)),
            (SQLITE_PUT, ("/a", 0, 1)),
            (SQLITE_PUT, ("/b", 0, 7)),
        ],
        [8, 1, 7],
    )


@elsewhere
def test_increments_elsewhere_lock_every_slot_of_their_keys_and_write_one(dialect: Dialect) -> None:
    counter = roost.Counter("pageviews", slots=3)
    plan = counter_plan(counter, dialect)
    found = [(0, 0, 10), (0, 1, INT_MAX), (0, 2, -4)]
    sent, results = play(plan, [counter.increment("/a"), counter.increment("/a", 5)], 3, found, 1, spot=0)
    lock, locked, _, put = sent
    assert locked is LOCKED
    assert isinstance(lock, tuple)
    assert isinstance(put, tuple)
    slots = [("/a", 0, 0), ("/a", 1, 0), ("/a", 2, 0)]
    if dialect is POSTGRESQL:
        assert lock == (POSTGRESQL_ADD, (["/a"] * 3, [0, 1, 2], [0, 0, 0]))
        assert put[1] == (["/a"], [0], [16])
    else:
        assert lock[1] == sum(slots, ())
        assert put[1] == ("/a", 0, 16)
    assert results == [INT_MAX + 7, INT_MAX + 12]
