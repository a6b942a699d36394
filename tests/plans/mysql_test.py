"""MySQL 8, as text: what it has otherwise than MariaDB. There was no such server to try it on."""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random
from typing import Annotated, Any

import pymysql
import pytest

import roost
from roost.batching.atoms import Atom
from roost.batching.batch import Batch
from roost.batching.known import Known, perform
from roost.batching.parts import Atoms
from roost.batching.slow_path import Retries
from roost.batching.stats import Stats
from roost.capping.plan import adoption_for
from roost.catalog.alter import alter
from roost.catalog.catalog import ddl
from roost.databases import open_engine
from roost.databases.mariadb.address import judged
from roost.databases.mariadb.engine import translate
from roost.dialects import MARIADB, MYSQL, Answer, Control, Gather, Statement, Template, Wanted, render
from roost.structures.plan import Context
from roost.structures.registry import plan_for
from roost.structures.structure import Structure
from roost.structures.views.making import view_of
from tests.plans.script import LOCKED, NOW, play
from tests.values.shapes import (
    Egg,
    Seen,
    Visit,
    baskets,
    likes,
    pageviews,
    seen,
    sightings,
    tags,
    things,
    visits,
)

STRUCTURES: list[Structure] = [visits, seen, things, baskets, sightings, likes, tags]
AT = NOW.replace(tzinfo=None)


def templates(structure: Structure) -> dict[str, Template]:
    """Return every template of a structure's plan, by its name."""
    plan = plan_for(structure, MYSQL)
    found = {name: value for name, value in vars(plan).items() if isinstance(value, Template)}
    return found | {"held": plan.held.template, "stored": plan.stored.template}


# What MySQL does not have, or is about to lose.
FOREIGN = re.compile(r"RETURNING|SET STATEMENT|IF NOT EXISTS|nopad|\bVALUES\(\w|ALL VALUES \(|INTO .* SELECT")


@pytest.mark.parametrize("structure", STRUCTURES, ids=lambda structure: structure.name)
def test_no_text_has_words_that_only_mariadb_knows(structure: Structure) -> None:
    found = templates(structure)
    assert len(found) > 8
    for name, template in found.items():
        rows = [tuple(range(template.sql.count("%s") // template.copies or 3))] * 2
        for sql, _ in render(Statement(template, rows)):
            assert not FOREIGN.search(sql), (name, sql)
            if "ALL VALUES" in sql:
                assert template.gather is Gather.ROWS, name
            if " AS new" in sql:
                assert not re.search(r"= \w+ \+", sql), (name, sql)  # a bare name could be either's: 1052
    for sql in plan_for(structure, MYSQL).tables:
        assert not FOREIGN.search(sql)


def test_the_same_is_found_in_texts_of_mariadb() -> None:
    plan = plan_for(visits, MARIADB)
    assert {each for sql in (plan.allocate.sql, plan.write.sql) for each in FOREIGN.findall(sql)} == {  # type: ignore[attr-defined]
        "RETURNING",
        "VALUES(s",
        "VALUES(a",
    }


# --- ring --------------------------------------------------------------------------------------------------------


def test_a_push_reads_what_it_has_allocated_under_its_lock() -> None:
    run = [visits.push(Visit(6, 1)), visits.push(Visit(5, 7)), visits.push(Visit(6, 2))]
    sent, results = play(plan_for(visits, MYSQL), run, 3, [(1, 12), (0, 1)], 5)
    assert sent == [
        (
            """\
INSERT INTO roost_visits_head (`uid`, sequence) VALUES (%s, %s), (%s, %s) AS new
  ON DUPLICATE KEY UPDATE sequence = roost_visits_head.sequence + new.sequence""",
            (5, 1, 6, 2),
        ),
        (
            """\
(SELECT 0, sequence FROM roost_visits_head WHERE `uid` = %s FOR UPDATE)
UNION ALL
(SELECT 1, sequence FROM roost_visits_head WHERE `uid` = %s FOR UPDATE)""",
            (5, 6),
        ),
        LOCKED,
        (
            """\
INSERT INTO roost_visits_rows (`uid`, slot, sequence, at, `visitor`)\
 VALUES (%s, %s, %s, %s, %s), (%s, %s, %s, %s, %s), (%s, %s, %s, %s, %s) AS new
  ON DUPLICATE KEY UPDATE sequence = new.sequence, at = new.at, `visitor` = new.`visitor`""",
            (5, 1, 1, AT, 7, 6, 1, 11, AT, 1, 6, 2, 12, AT, 2),
        ),
    ]
    assert results == [11, 1, 12]


def test_the_newest_rows_are_two_runs_of_slots() -> None:
    ((sql, params),) = play(plan_for(visits, MYSQL), visits.latest(5), [(0, 2, 20), (0, 1, 10)]).sent  # type: ignore[misc]
    assert sql.startswith("(SELECT 0, r.sequence, r.`visitor` FROM roost_visits_head h STRAIGHT_JOIN")
    assert params == (5, 5, 5, 5)


# --- capped ------------------------------------------------------------------------------------------------------


def test_a_capped_collection_evicts() -> None:
    sent, results = play(plan_for(baskets, MYSQL), baskets.add(Egg(42, 13)), 0, [(0, 12, 12)], [], [(0, 7, 1)], 1, 1, 2)
    assert sent == [
        (
            "INSERT INTO roost_baskets_head (`basket`, sequence, n) VALUES (%s, %s, %s) ON DUPLICATE KEY UPDATE n = n",
            (42, 0, 0),
        ),
        LOCKED,
        ("SELECT 0, sequence, n FROM roost_baskets_head WHERE `basket` = %s", (42,)),
        ("SELECT 0, sequence FROM roost_baskets_rows WHERE `basket` = %s AND `egg` = %s", (42, 13)),
        ("(SELECT 0, `egg`, sequence FROM roost_baskets_rows WHERE `basket` = %s ORDER BY sequence LIMIT %s)", (42, 1)),
        (
            """\
DELETE r FROM (SELECT `basket`, `egg` FROM roost_baskets_rows WHERE 0 UNION ALL VALUES ROW(%s, %s)) q
  STRAIGHT_JOIN roost_baskets_rows r FORCE INDEX (PRIMARY) ON q.`basket` = r.`basket` AND q.`egg` = r.`egg`""",
            (42, 7),
        ),
        (
            """\
INSERT INTO roost_baskets_rows (`basket`, `egg`, `colour`, sequence, at) VALUES (%s, %s, %s, %s, %s) AS new
  ON DUPLICATE KEY UPDATE `colour` = new.`colour`, sequence = new.sequence, at = new.at""",
            (42, 13, "white", 13, AT),
        ),
        (
            """\
INSERT INTO roost_baskets_head (`basket`, sequence, n) VALUES (%s, %s, %s) AS new
  ON DUPLICATE KEY UPDATE sequence = new.sequence, n = new.n""",
            (42, 13, 12),
        ),
    ]
    assert results == [None]


def test_in_the_applications_transaction_it_reads_what_is_committed_now() -> None:
    add = sightings.add(Seen(1, 2, "a"))
    sent, _ = play(plan_for(sightings, MYSQL), add, 0, [(0, 1, 1)], [], 1, 1, joined=True)
    reads = [each[0] for each in sent if isinstance(each, tuple) and "SELECT" in each[0]]
    assert len(reads) == 2
    assert all(read.startswith("(SELECT") and read.endswith(" FOR UPDATE)") for read in reads)


# --- set ---------------------------------------------------------------------------------------------------------


def test_a_set_writes_its_net_effect_and_the_change_of_its_size() -> None:
    run = [likes.add(7, "ada", "bob"), likes.remove(7, "cyd", "dan")]
    sent, results = play(plan_for(likes, MYSQL), run, 0, [(2, 1), (3, 1)], 2, 2, 2)
    assert sent[-3:] == [
        ("INSERT INTO roost_likes_rows (`key`, `member`) VALUES (%s, %s), (%s, %s)", (7, "ada", 7, "bob")),
        (
            """\
DELETE r FROM (SELECT `key`, `member` FROM roost_likes_rows WHERE 0 UNION ALL VALUES ROW(%s, %s), ROW(%s, %s)) q
  STRAIGHT_JOIN roost_likes_rows r FORCE INDEX (PRIMARY) ON q.`key` = r.`key` AND q.`member` = r.`member`""",
            (7, "cyd", 7, "dan"),
        ),
        (
            """\
INSERT INTO roost_likes_head (`key`, n) VALUES (%s, %s) AS new
  ON DUPLICATE KEY UPDATE n = roost_likes_head.n + new.n""",
            (7, 0),
        ),
    ]
    assert results == [2, 2]


# --- alter -------------------------------------------------------------------------------------------------------


@dataclass
class Wider:
    uid: int
    visitor: int
    note: Annotated[str, roost.text(5000)] = "it's"
    colour: Annotated[str, roost.text(20)] = "white"


def altered(old: Structure, new: Structure, *answers: Any) -> list[str]:
    """Return the texts by which one declaration becomes another."""
    known = Known(MYSQL)
    stored = [[(old.definition,)]]
    work, given, sent = alter(known.catalog, known.plan(new)), iter(answers), []
    wanted = next(work)
    try:
        while True:
            answer: Any = None
            if isinstance(wanted, Statement):
                sql = wanted.template.sql
                if sql.startswith("SELECT definition"):
                    answer = stored
                elif sql.startswith("SELECT TABLE_NAME"):  # whether the private tables are what they should be
                    answer = [[]]
                elif "roost_former" not in sql:  # which remembers the declaration that it was
                    sent.append(sql)
                    answer = next(given) if wanted.template.answer is Answer.ORDINAL else 1
            wanted = work.send(answer)
    except StopIteration:
        return sent


COLUMNS = [[(name, "bigint", 1) for name in ("uid", "slot", "sequence", "at", "visitor")]]


def test_a_column_is_added_where_it_is_not_there_yet() -> None:
    wider: roost.Ring[Wider, Any] = roost.Ring("visits", Wider, per="uid", keep=5)
    asked, *added, _ = altered(visits, wider, COLUMNS)
    assert asked.startswith("SELECT column_name, column_type")
    utf8 = "CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin"
    assert added == [
        f"ALTER TABLE roost_visits_rows ADD COLUMN `note` MEDIUMTEXT {utf8} NOT NULL DEFAULT ('it''s')",
        f"ALTER TABLE roost_visits_rows ADD COLUMN `colour` VARCHAR(20) {utf8} NOT NULL DEFAULT 'white'",
    ]
    cut_short = [[*COLUMNS[0], ("note", "mediumtext", 1)]]
    assert altered(visits, wider, cut_short)[1:-1] == added[1:]


# --- a lock that somebody else has ---------------------------------------------------------------------------------


def at_once(operations: Any, *answers: Any) -> list[Any]:
    """Return what is sent first by a batch that waits for nobody, with its parameters."""
    structure = (operations if isinstance(operations, list) else [operations])[0].structure
    return play(plan_for(structure, MYSQL), operations, *answers, nowait=True).sent[:1]


def test_who_cannot_wait_a_second_takes_the_heads_with_nowait_first() -> None:
    assert at_once(
        [visits.push(Visit(6, 1)), visits.push(Visit(5, 7)), visits.push(Visit(6, 2))], [], 2, [(0, 1), (1, 12)], 3
    ) == [
        (
            """\
(SELECT 0 FROM roost_visits_head WHERE `uid` = %s FOR UPDATE NOWAIT)
UNION ALL
(SELECT 1 FROM roost_visits_head WHERE `uid` = %s FOR UPDATE NOWAIT)""",
            (5, 6),
        )
    ]
    taken = "(SELECT 0 FROM roost_baskets_head WHERE `basket` = %s FOR UPDATE NOWAIT)"
    assert at_once(baskets.remove(42, 13), [], [[(1,)]], [(0, 0, 0)], []) == [(taken, (42,))]
    assert at_once(baskets.clear(42), [], [[(1,)]], 0, 0) == [(taken, (42,))]
    taken = "(SELECT 0 FROM roost_likes_head WHERE `key` = %s FOR UPDATE NOWAIT)"
    assert at_once(likes.add(7, "ada"), [], 1, [], 1, 1) == [(taken, (7,))]


def test_the_definition_is_not_waited_for_either() -> None:
    context = Context(lambda: NOW, 0)
    for how, end in ((context, "FOR SHARE"), (context.without_waiting(), "FOR SHARE NOWAIT")):
        assert definition(next(perform([likes.add(7, "ada")], Known(MYSQL), how))).endswith(end)


def test_a_batch_that_could_not_have_a_lock_asks_at_once_when_it_is_run_again() -> None:
    known = Known(MYSQL)
    batch = Batch(MYSQL, Context(lambda: NOW, 0), Stats(), Retries())
    work = batch.run(Control.BEGIN, lambda: Atoms([Atom([likes.add(7, "ada")]), Atom([likes.add(8, "ada")])], known))
    assert next(work) is Control.BEGIN
    assert definition(work.send(None)).endswith("FOR SHARE")
    assert work.throw(roost.Busy("somebody holds it")) is Control.ROLLBACK
    assert work.send(None) is Control.BEGIN_NOWAIT
    assert definition(work.send(None)).endswith("FOR SHARE NOWAIT")
    heads = work.send([[(likes.definition,)]])
    assert isinstance(heads, Statement)
    assert heads.template.sql.endswith("FOR UPDATE NOWAIT)")
    assert heads.rows == [(7,)]


def definition(wanted: Wanted) -> str:
    """Return the text that asks for a definition."""
    assert isinstance(wanted, Statement)
    return wanted.template.sql


# --- what is not there, and what a URL says ----------------------------------------------------------------------


def test_neither_views_nor_capped_tables_are_there() -> None:
    known = Known(MYSQL)
    assert not any("TRIGGER" in sql or "VIEW" in sql for sql in ddl(known.catalog, [known.plan(visits)]))
    for refused in (lambda: view_of(known.plan(visits)), lambda: adoption_for(MYSQL)):
        with pytest.raises(roost.Invalid, match="on mysql"):
            refused()
    # Who asks for one all the same is told by the catalog that there is none.
    assert plan_for(roost.Capped.of("orders"), MYSQL).stored.template.sql.startswith("SELECT definition")


def opened(url: str) -> Any:
    return open_engine(url, timeout=1, trace=None, random=Random(1))


@pytest.mark.parametrize("scheme", ["mysql", "mariadb", "mysql+pymysql"])
def test_a_url_may_say_which_of_the_two_it_is(scheme: str) -> None:
    assert opened(f"{scheme}://host/app").dialect is MARIADB  # until the server has told
    assert opened(f"{scheme}://host/app?dialect=mariadb").dialect is MARIADB
    for name in ("mysql", "MySQL8"):
        assert opened(f"{scheme}://host/app?dialect={name}&ssl_mode=disabled").dialect is MYSQL
    with pytest.raises(roost.Invalid, match="dialect is one of mariadb, mysql; not 'mysql5'"):
        opened(f"{scheme}://host/app?dialect=mysql5")


def test_what_would_be_created_is_told_without_a_server() -> None:
    with roost.Store("mysql://nobody.invalid/app?dialect=mysql8") as store:
        made = store.ddl(pageviews)
    assert "utf8mb4_0900_bin" in made[0]
    assert "roost_writers" in made[1]


# A lock that NOWAIT did not get, a SELECT that took too long, an idle connection that was closed, conflicts (between
# nodes of a group, and TiDB's), a server that only reads.
@pytest.mark.parametrize(
    ("code", "error"),
    [
        (3572, roost.Busy),
        (3024, roost.Busy),
        (4031, roost.ConnectionLost),
        *[(code, roost.Conflict) for code in (1213, 1020, 1412, 3101, 9007, 8022, 8028)],
        (1836, roost.ReadOnly),
    ],
)
def test_its_own_errors_are_known_by_their_numbers(code: int, error: type[roost.Error]) -> None:
    assert type(translate(pymysql.OperationalError(code, "said so"), "mysql://host/app")) is error


def test_a_trigger_that_could_not_be_read_is_a_conflict_and_one_that_is_wrong_is_not() -> None:
    for message, error in (
        ("Unknown trigger has an error in its body: 'Query was empty'", roost.Conflict),
        ("Trigger 'x' has an error in its body: 'You have an error in your SQL syntax'", roost.StatementFailed),
    ):
        assert type(translate(pymysql.ProgrammingError(1064, message), "mysql://host/app")) is error


# The answer to a text whose comments only one of them executes: 2 by MariaDB, 1 by MySQL from 8.0.20 on, 0 before.
@pytest.mark.parametrize(
    ("dialect", "which", "wrong"),
    [
        (MARIADB, 1, "is a MySQL .*, not a MariaDB"),
        (MARIADB, 0, "is a MySQL .*, not a MariaDB"),
        (MYSQL, 2, "is a MariaDB .*, not a MySQL"),
        (MYSQL, 0, "Roost needs MySQL 8.0.20"),
        (None, 0, "Roost needs MySQL 8.0.20"),
    ],
)
def test_a_server_that_is_another_one_is_refused(dialect: Any, which: int, wrong: str) -> None:
    with pytest.raises(roost.Invalid, match=wrong):
        judged(dialect, which, "8.0.19")


@pytest.mark.parametrize(("which", "dialect"), [(2, MARIADB), (1, MYSQL)])
def test_a_server_tells_what_it_is(which: int, dialect: Any) -> None:
    assert judged(None, which, "8.0.20") is judged(dialect, which, "8.0.20") is dialect
