"""The recipes of docs/recipes.md, on the tables that the libraries themselves make."""

from __future__ import annotations

import contextlib
import datetime as dt
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import roost
from roost.cli import main
from tests import servers
from tests.lengths import length
from tests.recipes import schemas
from tests.suite.application import Application

ROOT = Path(__file__).parents[2]
SECTIONS = dict(re.findall(r"^## ([^\n]*)\n(.*?)(?=^## |\Z)", (ROOT / "docs/recipes.md").read_text(), re.M | re.S))
NOW = dt.datetime.now(dt.UTC)


def days(n: float) -> str:
    """A time so many days ago, as all of these libraries write it on SQLite."""
    return f"{NOW - dt.timedelta(days=n):%Y-%m-%d %H:%M:%S.%f}"


class Database:
    """A database with everybody's tables, and plain SQL in it."""

    def __init__(self, url: str) -> None:
        self.url, self.name = url, url.partition(":")[0]
        self.application = Application(url)

    def run(self, text: str) -> list[Any]:
        return self.application(text)

    def script(self, text: str) -> None:
        """Run several statements."""
        connection = self.application._raw
        if self.name == "postgresql":
            connection.execute(text)
        elif self.name == "sqlite":
            connection.executescript(text)
        else:
            for each in filter(str.strip, text.split(";")):
                self.run(each)


# MySQL, which is much like MariaDB, is left to the campaign: to make the libraries' tables takes longest.
@pytest.fixture(scope="module", params=["sqlite", "mariadb", "postgresql", *length([], ["mysql"])])
def db(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with servers.own_database(request.param, f"{tmp_path_factory.mktemp('recipes')}/app.db") as url:
        subprocess.run([sys.executable, "-m", "tests.recipes.schemas", url], check=True, cwd=ROOT, timeout=300)
        db = Database(url)
        with contextlib.closing(db.application):
            db.script(schemas.written_out(db.name))
            if db.name == "postgresql":
                db.script(f"SET timezone = 'UTC'; {schemas.procrastinate()}")
            yield db


def blocks(section: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", SECTIONS[section], re.S)


def prepare(db: Database, section: str) -> None:
    """Run the section's SQL for this database."""
    for block in blocks(section, "sql"):
        names = ("sqlite",) if "-- SQLite" in block else ("postgresql", *(["mysql"] if "MySQL" in block else []))
        if db.name in names:
            db.script(block)


def cap(db: Database, command: str) -> str:
    ran = CliRunner().invoke(main, [*command.split()[1:], "--yes", "--store", db.url])
    assert ran.exit_code == 0, ran.output
    return ran.output


def passed(db: Database, command: str) -> None:
    """Trim as the event of MariaDB and MySQL does, which is off here."""
    if db.name == "mysql":
        cap(db, " ".join(command.split()[:3]))


def commands(section: str) -> dict[str, str]:
    """The commands of a section by their tables."""
    lines = "".join(blocks(section, "sh")).splitlines()
    return {line.split()[2]: line for line in lines}


@pytest.fixture
def clean(db: Database) -> Iterator[None]:
    yield
    ran = CliRunner().invoke(main, ["check", "--store", db.url])
    assert ran.output == "every promise is kept\n"


GRANT = (
    "INSERT INTO oauth2_provider_grant (code, expires, redirect_uri, scope, application_id, user_id, created, updated, "
    "code_challenge, code_challenge_method, nonce, claims, resource) "
    "VALUES ('{}', '{}', '', '', 1, 1, '{}', '{}', '', '', '', '', '[]')"
)


def application(db: Database) -> None:
    """An account and an application, which tokens need."""
    if not db.run("SELECT 1 FROM auth_user"):
        db.run(
            "INSERT INTO auth_user (id, password, is_superuser, username, first_name, last_name, email, is_staff, "
            f"is_active, date_joined) VALUES (1, '', false, 'ada', '', '', '', false, true, '{days(0)}')"
        )
        db.run(
            "INSERT INTO oauth2_provider_application (id, redirect_uris, client_type, authorization_grant_type, "
            "client_secret, name, skip_authorization, created, updated, algorithm, post_logout_redirect_uris, "
            "hash_client_secret, allowed_origins, registration_source, client_id) VALUES (1, '', '', '', '', '', "
            f"false, '{days(0)}', '{days(0)}', '', '', false, '', '', 'app')"
        )


@pytest.mark.usefixtures("clean")
def test_expired_grants_go(db: Database) -> None:
    application(db)
    for n in range(20):
        db.run(GRANT.format(f"old {n}", days(1), days(2), days(2)))
    for n in range(3):
        db.run(GRANT.format(f"new {n}", days(-1), days(0), days(0)))
    cap(db, commands("django-oauth-toolkit: expired tokens")["oauth2_provider_grant"])
    assert db.run("SELECT code FROM oauth2_provider_grant ORDER BY code") == [("new 0",), ("new 1",), ("new 2",)]


@pytest.mark.usefixtures("clean")
def test_expired_access_tokens_take_their_refresh_tokens_along(db: Database) -> None:
    section = "django-oauth-toolkit: expired tokens"
    application(db)
    made = commands(section)
    if db.name != "postgresql":  # as the page says: there the foreign keys stay as Django makes them
        refused = CliRunner().invoke(main, [*made["oauth2_provider_accesstoken"].split()[1:], "--store", db.url])
        assert "must say ON DELETE CASCADE or SET NULL" in refused.output
        return
    prepare(db, section)
    for n, age in enumerate((60, 30, 1, -1), 1):
        db.run(
            "INSERT INTO oauth2_provider_accesstoken (id, token, expires, scope, application_id, user_id, created, "
            f"updated, token_checksum, resource) VALUES ({n}, '', '{days(age)}', '', 1, 1, now(), now(), '{n}', '[]')"
        )
        db.run(
            "INSERT INTO oauth2_provider_refreshtoken (id, token, access_token_id, application_id, user_id, created, "
            f"updated, token_checksum, resource) VALUES ({n}, '', {n}, 1, 1, now(), now(), '{n}', '[]')"
        )
    for n, age in ((8, 30), (9, 1)):
        db.run(
            "INSERT INTO oauth2_provider_refreshtoken (id, token, application_id, user_id, created, updated, revoked, "
            f"token_checksum, resource) VALUES ({n}, '', 1, 1, now(), now(), '{days(age)}', '{n}', '[]')"
        )
    db.run("UPDATE oauth2_provider_accesstoken SET source_refresh_token_id = 8 WHERE id = 4")
    cap(db, made["oauth2_provider_accesstoken"])
    assert db.run("SELECT id FROM oauth2_provider_refreshtoken ORDER BY id") == [(3,), (4,), (8,), (9,)]
    cap(db, made["oauth2_provider_refreshtoken"])
    assert db.run("SELECT id FROM oauth2_provider_refreshtoken ORDER BY id") == [(3,), (4,), (9,)]
    assert db.run("SELECT id, source_refresh_token_id FROM oauth2_provider_accesstoken ORDER BY id") == [
        (3, None),
        (4, None),
    ]


@pytest.mark.usefixtures("clean")
def test_expired_tokens_take_along_that_they_were_blacklisted(db: Database) -> None:
    section = "djangorestframework-simplejwt: expired tokens"
    (command,) = commands(section).values()
    if db.name == "sqlite":  # as the page says
        refused = CliRunner().invoke(main, [*command.split()[1:], "--store", db.url])
        assert "must say ON DELETE CASCADE or SET NULL" in refused.output
        return
    prepare(db, section)
    for n, age in enumerate((60, 30, 1, -1), 1):
        db.run(
            "INSERT INTO token_blacklist_outstandingtoken (id, token, created_at, expires_at, jti) "
            f"VALUES ({n}, '', '{days(age + 2)}', '{days(age)}', '{n}')"
        )
    for n in (2, 4):
        db.run(f"INSERT INTO token_blacklist_blacklistedtoken (token_id, blacklisted_at) VALUES ({n}, '{days(-1)}')")
    cap(db, command)
    assert db.run("SELECT id FROM token_blacklist_outstandingtoken") == [(4,)]
    assert db.run("SELECT token_id FROM token_blacklist_blacklistedtoken") == [(4,)]


@pytest.mark.usefixtures("clean")
def test_the_last_versions_stay(db: Database) -> None:
    made = commands("django-simple-history, django-reversion: the last N versions")
    poll = "INSERT INTO polls_historicalpoll (id, question, history_date, history_type) VALUES ({}, '{}', '{}', '~')"
    revision = "INSERT INTO reversion_revision (id, date_created, comment) VALUES ({}, '{}', '')"
    version = (
        "INSERT INTO reversion_version (object_id, format, serialized_data, object_repr, content_type_id, revision_id, "
        "db) VALUES ('{}', 'json', '', '', (SELECT min(id) FROM django_content_type), {}, 'default')"
    )
    for n in range(25):
        db.run(revision.format(n + 1, days(25 - n)))
        for key in (1, 2):
            db.run(poll.format(key, f"v{n}", days(25 - n)))
            db.run(version.format(key, n + 1))
    cap(db, made["polls_historicalpoll"])
    said = cap(db, made["reversion_version"])
    assert "keeps its newest 10 by revision_id" in said
    db.run(poll.format(1, "v25", days(0)))
    passed(db, made["polls_historicalpoll"])
    assert db.run("SELECT id, min(question), count(*) FROM polls_historicalpoll GROUP BY id ORDER BY id") == [
        (1, "v16", 10),
        (2, "v15", 10),
    ]
    assert db.run("SELECT object_id, min(revision_id), count(*) FROM reversion_version GROUP BY 1 ORDER BY 1") == [
        ("1", 16, 10),
        ("2", 16, 10),
    ]


@pytest.mark.usefixtures("clean")
def test_finished_jobs_go_and_waiting_ones_stay(db: Database) -> None:
    made = commands("django-tasks, django-celery-results: finished jobs")
    for n in range(20):
        done = f"'{days(30)}'" if n % 2 else "NULL"
        db.run(
            "INSERT INTO django_tasks_database_dbtaskresult (id, args_kwargs, priority, task_path, queue_name, "
            "backend_name, run_after, enqueued_at, finished_at, exception_class_path, traceback, worker_ids, status) "
            f"VALUES ('{n:032x}', '{{}}', 0, '', '', '', '{days(40)}', '{days(40)}', {done}, '', '', '[]', 'READY')"
        )
        db.run(
            "INSERT INTO django_celery_results_taskresult (task_id, status, content_type, content_encoding, "
            "date_created, date_done) "
            f"VALUES ('{n}', 'SUCCESS', '', '', '{days(40)}', '{days(30 if n % 2 else 1)}')"
        )
    for command in made.values():
        cap(db, command)
    found = "SELECT count(*), count(finished_at) FROM django_tasks_database_dbtaskresult"
    assert db.run(found) == [(10, 0)]
    assert db.run("SELECT count(*) FROM django_celery_results_taskresult") == [(10,)]


@pytest.mark.usefixtures("clean")
def test_finished_jobs_of_procrastinate_go(db: Database) -> None:
    section = "Procrastinate: finished jobs"
    if db.name != "postgresql":
        return  # which alone Procrastinate is for
    prepare(db, section)
    for n in range(6):
        db.run("INSERT INTO procrastinate_jobs (queue_name, task_name, status) VALUES ('q', 't', 'doing')")
        if n % 2:
            db.run(f"SELECT procrastinate_finish_job_v1({n + 1}, 'succeeded', false)")
    db.run("INSERT INTO procrastinate_periodic_defers (task_name, defer_timestamp, job_id) VALUES ('t', 1, 2)")
    assert db.run("SELECT array_agg(id ORDER BY id) FROM procrastinate_jobs WHERE finished_at IS NOT NULL") == [
        ([2, 4, 6],)
    ]
    cap(db, commands(section)["procrastinate_jobs"])
    assert db.run("SELECT count(*) FROM procrastinate_jobs") == [(6,)]
    db.run("UPDATE procrastinate_jobs SET finished_at = now() - interval '8 days' WHERE finished_at IS NOT NULL")
    db.run("INSERT INTO procrastinate_jobs (queue_name, task_name) VALUES ('q', 't')")
    assert db.run("SELECT array_agg(id ORDER BY id) FROM procrastinate_jobs") == [([1, 3, 5, 7],)]
    assert db.run("SELECT count(*) FROM procrastinate_events WHERE job_id IN (2, 4, 6)") == [(0,)]
    assert db.run("SELECT job_id FROM procrastinate_periodic_defers") == [(None,)]


@pytest.mark.usefixtures("clean")
def test_the_newest_checkpoints_of_a_thread_stay_with_their_writes(db: Database) -> None:
    section = "LangGraph: the newest N checkpoints of a thread"
    if db.name == "mysql":
        return  # LangGraph has no checkpoints there
    prepare(db, section)
    writes, value = ("writes", "value") if db.name == "sqlite" else ("checkpoint_writes", "blob")

    def put(thread: str, n: int) -> None:
        db.run(
            "INSERT INTO checkpoints (thread_id, checkpoint_id, checkpoint, metadata) "
            f"VALUES ('{thread}', '1f0{n:06x}', '{{}}', '{{}}')"
        )
        db.run(
            f"INSERT INTO {writes} (thread_id, checkpoint_id, task_id, idx, channel, {value}) "
            f"VALUES ('{thread}', '1f0{n:06x}', 'task', 0, 'messages', '')"
        )

    for n in range(30):
        put("one", n)
        put("two", n)
    cap(db, commands(section)["checkpoints"])
    put("one", 30)
    for table in ("checkpoints", writes):
        assert db.run(f"SELECT thread_id, min(checkpoint_id), count(*) FROM {table} GROUP BY 1 ORDER BY 1") == [
            ("one", "1f000000b", 20),
            ("two", "1f000000a", 20),
        ]


def test_the_example_says_what_it_returns(db: Database) -> None:
    (example,) = blocks("View counts without a hot row", "python")
    with roost.Store(db.url) as store:
        names = {"roost": roost, "store": store}
        lines = example.splitlines()
        last = next(place for place in reversed(range(len(lines))) if lines[place].startswith("store.run"))
        exec(compile("\n".join(lines[:last]), "recipes.md", "exec", dont_inherit=True), names)
        call, _, said = lines[last].partition("  # ")
        assert repr(eval(call, names)).startswith(said.partition("]: ")[0].partition("}: ")[0])
        assert store.check() == []
