"""A statement that is refused, for whatever reason: its neighbours are committed, its caller alone is told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

import roost
from roost.batching.atoms import Atom
from tests import servers
from tests.campaigns.processes import run_threads
from tests.suite import clients
from tests.suite.shapes import Egg, Visit, baskets, likes, pageviews, visits

STRUCTURES = (pageviews, visits, baskets, likes)
ROW = "AFTER INSERT ON roost_likes_rows"
MARIADB = {
    "a check": ["ALTER TABLE roost_likes_rows ADD CONSTRAINT CHECK (member <> 'no')"],
    **{
        f"a trigger's {number}": [
            f"CREATE TRIGGER refuses {ROW} FOR EACH ROW IF NEW.member = 'no' THEN"
            f" SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = {number}, MESSAGE_TEXT = 'not on my watch'; END IF"
        ]
        for number in (
            *(30001, 1030, 500, 1114, 1021, 1290, 1044),
        )  # the last ones as a full disk and a missing right have
    },
    "a missing table of a trigger's": [
        f"CREATE TRIGGER refuses {ROW} FOR EACH ROW IF NEW.member = 'no' THEN INSERT INTO gone VALUES (1); END IF"
    ],
}
POSTGRESQL = {
    "a check": ["ALTER TABLE roost_likes_rows ADD CHECK (member <> 'no')"],
    **{
        f"a trigger's {state}{' at COMMIT' if constraint else ''}": [
            "CREATE FUNCTION refuses() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.member = 'no' THEN"
            f" RAISE SQLSTATE '{state}' USING MESSAGE = 'not on my watch'; END IF; RETURN NULL; END $$",
            f"CREATE {constraint} TRIGGER refuses {ROW} {deferred} FOR EACH ROW EXECUTE FUNCTION refuses()",
        ]
        for state, constraint, deferred in (
            *[(state, "", "") for state in ("RO001", "58030", "08001", "53200", "53100", "25006", "57000")],
            ("53100", "CONSTRAINT", "DEFERRABLE INITIALLY DEFERRED"),
            ("45000", "CONSTRAINT", "DEFERRABLE INITIALLY DEFERRED"),
        )
    },
}


@pytest.fixture(
    params=[("mariadb", each) for each in MARIADB] + [("postgresql", each) for each in POSTGRESQL], ids=" ".join
)
def refusing_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server's database that refuses the member "no"."""
    name, reason = request.param
    with servers.own_database(name) as url:
        with roost.Store(url) as store:
            store.create(*STRUCTURES, view=False)
        sql = clients.connect(url)
        for statement in (MARIADB if name == "mariadb" else POSTGRESQL)[reason]:
            sql.execute(statement)
        sql.close()
        yield url


def atoms(culprits: set[int]) -> list[list[roost.Operation[Any]]]:
    """Return twelve callers' operations, of which some are refused."""
    made: list[list[roost.Operation[Any]]] = []
    for n in range(12):
        own = [pageviews.add("/home"), visits.push(Visit(n, n)), baskets.add(Egg(n, n)), likes.add(n, "yes")]
        wrong = likes.add(n, "no")
        made.append(([*own, wrong] if n % 2 else [wrong]) if n in culprits else own if n % 3 else own[n % 4 :][:1])
    return made


def judge(url: str, asked: list[list[roost.Operation[Any]]], outcomes: list[Any], culprits: set[int]) -> None:
    """Compare what callers were told, and what is there, with what must be."""
    for n, outcome in enumerate(outcomes):
        if n in culprits:
            assert isinstance(outcome, roost.Error), outcome
        else:
            assert len(outcome) == len(asked[n])
    kept = [op for n, ops in enumerate(asked) if n not in culprits for op in ops]
    with roost.Store(url) as store:
        assert store.run(pageviews.total("/home")) == sum(op.structure is pageviews for op in kept)
        for structure in (visits, baskets, likes):
            assert len(store.run(structure.keys())) == sum(op.structure is structure for op in kept)
        assert store.check() == []


def test_f8_what_is_refused_to_one_is_refused_to_nobody_else(refusing_url: str) -> None:
    culprits = {3, 4, 11}
    asked = atoms(culprits)
    batch = [Atom(ops) for ops in asked]
    with roost.Store(refusing_url) as store:
        store._run_each(batch)
        outcomes: list[Any] = [each.error or each.answer for each in batch]
        judge(refusing_url, asked, outcomes, culprits)
        store.run(pageviews.forget("/home"))
        for n in range(12):
            store.run_all(visits.forget(n), baskets.forget(n), likes.forget(n))

    # Nor in asyncio.
    culprits = {0, 7}
    asked = atoms(culprits)

    async def main() -> list[Any]:
        async with roost.AsyncStore(refusing_url) as store:
            answers: list[Any] = await asyncio.gather(*[store.run_all(*ops) for ops in asked], return_exceptions=True)
            return answers

    judge(refusing_url, asked, asyncio.run(main()), culprits)


def programs(sql: Any) -> list[str]:
    """Return the structures' programs on a server, as GRANT names them."""
    if isinstance(sql, clients.PostgreSQLClient):
        found = sql.execute(
            "SELECT 'FUNCTION ' || oid::regprocedure FROM pg_proc\n"
            "  WHERE obj_description(oid, 'pg_proc') = 'a program, made by Roost'"
        )
    else:
        found = sql.execute(
            "SELECT CONCAT('PROCEDURE ', routine_name) FROM information_schema.routines\n"
            "  WHERE routine_schema = DATABASE() AND routine_comment LIKE '%made by Roost%'"
        )
    return [name for (name,) in found.fetchall()]


def test_f8_a_right_that_is_missing_is_missed_by_those_alone_who_need_it(server_url: str) -> None:
    name = f"clerk_{urlsplit(server_url).path[1:]}"
    sql = clients.connect(server_url)
    with roost.Store(server_url) as store:
        store.create(*STRUCTURES)
    sql.execute(f"CREATE USER {name}")
    try:
        for table in sql.private_tables():
            sql.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {name}")
        for program in programs(sql):
            if "likes_" not in program:  # programs run with their owner's rights; who calls them needs EXECUTE
                sql.execute(f"GRANT EXECUTE ON {program} TO {name}")
        parts = urlsplit(server_url)
        url = parts._replace(netloc=f"{name}@{parts.hostname}:{parts.port}").geturl()
        culprits = {0, 7}
        asked = [[likes.add(n, "x")] if n in culprits else [visits.push(Visit(n, n))] for n in range(12)]
        batch = [Atom(ops) for ops in asked]
        with roost.Store(url) as store:
            store._run_each(batch)
        judge(server_url, asked, [each.error or each.answer for each in batch], culprits)
        assert {getattr(batch[n].error, "word", None) for n in culprits} == {"denied"}
    finally:
        for table in sql.private_tables():
            sql.execute(f"REVOKE ALL ON {table} FROM {name}")
        if server_url.startswith("postgresql"):  # elsewhere these rights go with the user
            sql.execute(f"REVOKE ALL ON ALL FUNCTIONS IN SCHEMA public FROM {name}")
        sql.execute(f"DROP USER {name}")
        sql.close()


def test_f17_a_sum_that_another_column_cannot_hold_is_its_callers_error() -> None:
    """Error 1690 of MariaDB's, which no other way to add avoids."""
    hits = roost.Counter("hits", slots=1)
    with servers.database("mariadb") as url, roost.Store(url) as store:
        store.create(hits, visits)
        sql = clients.connect(url)
        sql.execute(f"ALTER TABLE roost_hits_rows ADD `double` BIGINT AS (n * {2**62}) STORED")
        batch = [Atom([hits.add("/a", 2)]), Atom([hits.add("/b", 1)]), Atom([visits.push(Visit(1, 1))])]
        store._run_each(batch)
        assert isinstance(batch[0].error, roost.StatementFailed)
        assert batch[0].error.word == "range"
        assert (batch[1].answer, batch[2].answer) == ((None,), (1,))
        with pytest.raises(roost.StatementFailed, match="1690"):
            store.run(hits.add("/b", 1))
        sql.execute("BEGIN")
        with pytest.raises(roost.StatementFailed, match="1690"):
            store.on(sql).run(hits.add("/b", 2))
        assert store.on(sql).run(hits.add("/c", 1)) is None
        sql.execute("COMMIT")
        sql.close()
        assert store.run(hits.totals(["/a", "/b", "/c"])) == {"/a": 0, "/b": 1, "/c": 1}


def test_f16_a_mismatch_in_an_atom_over_two_structures_is_told_as_such(server_url: str) -> None:
    """One statement goes along with the comparison, where the declaration was right before, and is refused."""
    with roost.Store(server_url) as store, roost.Store(server_url) as other:
        old = roost.Ring("notes", Visit, per="uid", keep=3)
        store.create(old, visits, baskets, view=False)
        operations = (visits.push(Visit(1, 1)), old.push(Visit(1, 1)), baskets.add(Egg(1, 1)))
        assert store.run_all(*operations) == (1, 1, None)
        sql = clients.connect(server_url)
        sql.execute("DROP TABLE roost_notes_rows, roost_notes_head")
        sql.execute("DELETE FROM roost_catalog WHERE name = 'notes'")
        sql.close()
        other.create(roost.Counter("notes"))
        for _ in range(2):
            with pytest.raises(roost.Mismatch, match="kind is"):
                store.run_all(*operations[:2], baskets.add(Egg(1, 2)))
        assert store.run_all(visits.latest(1), baskets.count(1)) == ([Visit(1, 1)], 1)


BUSY = {
    "mysql": "SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 1205, MESSAGE_TEXT = 'not on my watch'",
    "mariadb": "SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 1205, MESSAGE_TEXT = 'not on my watch'",
    "postgresql": "RAISE SQLSTATE '57014' USING MESSAGE = 'not on my watch'",
}


@pytest.mark.parametrize("name", servers.SERVERS)
def test_f8_who_shares_the_key_of_one_that_is_told_busy_is_not(name: str) -> None:
    """A trigger's own number for a lock sends its caller aside, where the others of its key wait too."""
    with servers.own_database(name) as url, roost.Store(url, timeout=3) as store:
        store.create(likes, view=False)
        sql = clients.connect(url)
        refuse = f"IF NEW.member = 'no' THEN {BUSY[name]}; END IF"
        if name != "postgresql":
            sql.execute(f"CREATE TRIGGER refuses {ROW} FOR EACH ROW {refuse}")
        else:
            sql.execute(
                f"CREATE FUNCTION refuses() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {refuse}; RETURN NULL; END $$"
            )
            sql.execute(f"CREATE TRIGGER refuses {ROW} FOR EACH ROW EXECUTE FUNCTION refuses()")
        sql.close()
        found: dict[str, Any] = {}

        def ask(member: str) -> None:
            try:
                found[member] = store.run(likes.add(1, member))
            except roost.Error as error:
                found[member] = error

        for _ in range(3):
            run_threads(*[threading.Thread(target=ask, args=(each,)) for each in ("no", *map(str, range(9)))])
            assert isinstance(found.pop("no"), roost.Busy)
            assert [each for each in found.values() if isinstance(each, Exception)] == []
        assert store.run(likes.members(1)) == {*map(str, range(9))}
