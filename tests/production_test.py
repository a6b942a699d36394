"""The page on production is under test: its GRANTs suffice and `check` accepts them; its metrics exist; copies work."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import roost
from roost.contrib.prometheus import COUNTERS
from roost.server.http import METRICS
from tests import servers
from tests.docs_test import ROOT, blocks
from tests.suite import clients
from tests.suite.deployment_test import LongVisit
from tests.suite.shapes import Egg, Visit, baskets, likes, pageviews, visits

PAGE = ROOT / "docs/production.md"
logins = roost.RateLimit("logins", limit=5, within=60)
jobs = roost.Lease("jobs")
pages = roost.Cache("pages", value=str)
STRUCTURES = (pageviews, visits, baskets, likes, logins, jobs, pages)
CALLS = {"postgresql": "SELECT {}(5, 8)", "mariadb": "CALL {}(5, 8)", "mysql": "CALL {}(5, 8)"}


@contextlib.contextmanager
def accounts(kind: str) -> Iterator[tuple[str, str, str]]:
    """Make a database whose accounts have the rights of the page once `deploy` has made structures; yield the URLs."""
    with servers.own_database(kind) as url, contextlib.closing(clients.connect(url)) as sql:
        parts = urlsplit(url)
        database = parts.path[1:]
        deploy, app = (f"{each}_{database}" for each in ("deploy", "app"))
        (granted,) = [each for each in blocks(PAGE, "sql") if each.startswith(f"-- {names(kind)}: ")]
        granted = re.sub(r"\bdeploy\b", deploy, re.sub(r"\bapp\b", app, granted.partition("\n")[2]))
        granted = granted.replace("10.0.0.%", "%").replace("shop.", f"{database}.").replace("…", "Secret.1")
        theirs = [
            parts._replace(netloc=f"{each}:Secret.1@{parts.hostname}:{parts.port}").geturl() for each in (deploy, app)
        ]
        try:
            if kind == "postgresql":
                for each in (deploy, app):
                    sql.execute(f"CREATE ROLE {each} LOGIN PASSWORD 'Secret.1'")
                sql.execute(f"GRANT USAGE, CREATE ON SCHEMA public TO {deploy}")
            else:
                for statement in granted.strip().split(";\n"):
                    sql.execute(statement.rstrip(";"))
            with roost.Store(theirs[0]) as store:
                store.create(*STRUCTURES)
            if kind == "postgresql":
                sql.execute(f"SET ROLE {deploy}")
                sql.execute(granted)
                sql.execute("RESET ROLE")
            yield url, theirs[0], theirs[1]
        finally:
            for each in (app, deploy):
                if kind == "postgresql":
                    sql.execute(f"DROP OWNED BY {each}")
                    sql.execute(f"DROP ROLE {each}")
                else:
                    sql.execute(f"DROP USER {each}@'%'")


def names(kind: str) -> str:
    return {"postgresql": "PostgreSQL", "mariadb": "MariaDB and MySQL", "mysql": "MariaDB and MySQL"}[kind]


@pytest.mark.parametrize("kind", ["postgresql", "mariadb", "mysql"])
def test_a_process_starts_whose_account_may_not_replace_the_programs_of_another_version(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    with accounts(kind) as (url, deploy, app), contextlib.closing(clients.connect(url)) as sql:
        program = "pageviews_increment"
        if kind == "postgresql":
            sql.execute(f"ALTER FUNCTION {program}(text, bigint) SECURITY INVOKER")
        else:
            sql.execute(f"ALTER PROCEDURE {program} COMMENT 'a program, made by Roost: 0 of pageviews'")
        with roost.Store(app) as store:
            store.create(*STRUCTURES)
            store.run(pageviews.add("/home"))
            assert "pageviews is of another version" in caplog.text
            with roost.Store(deploy) as other:
                assert {each.rule for each in other.check()} == {"program"}
                other.create(*STRUCTURES)
                assert other.check() == []
            sql.execute(f"DROP {'FUNCTION' if kind == 'postgresql' else 'PROCEDURE'} {program}")
            with pytest.raises(roost.Error, match="denied"):
                store.create(*STRUCTURES)


@pytest.mark.parametrize("kind", CALLS)
def test_the_rights_on_the_page_suffice(kind: str) -> None:
    with accounts(kind) as (_, deploy, app):
        with roost.Store(app) as store:
            store.run_all(pageviews.increment("/"), visits.push(Visit(5, 7)), baskets.add(Egg(1, 2)), likes.add(1, "a"))
            store.run_all(logins.take("a"), jobs.acquire("a", "me", 30), pages.set("a", "b", ttl=5))
            store.run(visits.push_all([Visit(each, 1) for each in range(100)]))
            with pytest.raises((roost.Missing, roost.StatementFailed), match="denied"):
                store.create(roost.Counter("others"))
        with contextlib.closing(clients.connect(app)) as sql:
            sql.execute(CALLS[kind].format("visits_push"))
        with roost.Store(deploy) as store:
            assert store.run(visits.latest(5)) == [Visit(5, 8), Visit(5, 1), Visit(5, 7)]
            store.alter(roost.Ring("visits", Visit, per="uid", keep=2))
            store.create(pageviews, likes)
            assert store.check() == []
        with roost.Store(app) as store:
            store.create(*STRUCTURES)  # as they were before `alter`


def test_whoever_may_execute_functions_may_execute_those_that_alter_makes() -> None:
    with accounts("postgresql") as (_, deploy, app), roost.Store(deploy) as altering, roost.Store(app) as store:
        store.run(visits.push(Visit(5, 7)))
        longer: Any = roost.Ring("visits", LongVisit, per="uid", keep=5)
        altering.alter(longer)
        assert store.run_all(visits.push(Visit(5, 8)), longer.push(LongVisit(5, 9))) == (2, 3)
        assert store.run(visits.push_all([Visit(6, n) for n in range(20)])) == [*range(1, 21)]
        with contextlib.closing(clients.connect(app)) as sql:
            sql.execute("SELECT visits_push(5, 8, 4)")


@pytest.mark.parametrize("kind", ["mariadb", "mysql"])
def test_whoever_may_execute_a_procedure_may_do_so_after_alter(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    with accounts(kind) as (url, deploy, app), contextlib.closing(clients.connect(url)) as sql:
        database, account = urlsplit(url).path[1:], f"{urlsplit(app).username}@'%'"
        sql.execute(f"REVOKE EXECUTE ON {database}.* FROM {account}")
        sql.execute(f"GRANT EXECUTE ON PROCEDURE {database}.visits_push TO {account}")
        for each, keep, told in ((deploy, 4, kind == "mysql"), (url, 3, False)):  # who may see what is granted, or not
            with roost.Store(each) as store:
                store.alter(roost.Ring("visits", Visit, per="uid", keep=keep))
            assert ("visits_push is made anew" in caplog.text) is told
            caplog.clear()
            if told:
                sql.execute(f"GRANT EXECUTE ON PROCEDURE {database}.visits_push TO {account}")
            with contextlib.closing(clients.connect(app)) as client:
                client.execute(CALLS[kind].format("visits_push"))


def test_the_metrics_to_alert_on_exist() -> None:
    text = PAGE.read_text()
    known = {f"{name}_total" for name, _ in [*COUNTERS.values(), *METRICS.values()]}
    known |= {
        "roost_store_waits_total",
        "roost_store_call_seconds",
        "roost_worker_ready",
        "roost_worker_restarts_total",
    }
    assert set(re.findall(r"`(roost_(?:store|worker|unavailable|slow)\w+)", text)) <= known


def test_a_copy_of_a_file_in_use_is_whole(tmp_path: Path) -> None:
    with roost.Store(f"sqlite:///{tmp_path}/app.db") as store:
        store.create(*STRUCTURES)
        store.run(visits.push(Visit(5, 7)))
        with contextlib.closing(sqlite3.connect(tmp_path / "app.db", isolation_level=None)) as connection:
            connection.execute("VACUUM INTO ?", (f"{tmp_path}/copy.db",))
    with roost.Store(f"sqlite:///{tmp_path}/copy.db") as copy:
        copy.create(*STRUCTURES)
        assert copy.run_all(visits.push(Visit(5, 8)), visits.latest(5)) == (2, [Visit(5, 8), Visit(5, 7)])
        assert copy.check() == []
