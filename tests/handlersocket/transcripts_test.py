"""The recordings of the original, played to Roost: equal, or different by a rule on the list, exactly so."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator

import pymysql
import pytest
from pymysql.constants import CLIENT

from roost.databases.mariadb.address import arguments
from tests import servers
from tests.handlersocket import differences_postgresql, transcripts
from tests.handlersocket.conftest import Served, served, served_at
from tests.handlersocket.differences import DIFFERENCES, RULES, expected
from tests.handlersocket.differences_mariadb import AS_ON_SQLITE, MARIADB_RULES, ON_MARIADB, expected_on_mariadb
from tests.handlersocket.differences_postgresql import POSTGRESQL_RULES, expected_on_postgresql
from tests.handlersocket.transcripts import PLACE, Lite, Step, Transcript
from tests.handlersocket.translator_postgresql import OnPostgreSQL

RECORDED = {each.name: each for each in transcripts.recorded()}
HERE: dict[str, Transcript | None] = {**RECORDED} or {"": None}


@pytest.fixture(params=HERE)
def transcript(request: pytest.FixtureRequest) -> Transcript:
    found = HERE[request.param]
    if found is None:
        pytest.skip(f"NOT RUN: the recordings are not there: {'/'.join(PLACE.parts[-3:])} is missing")
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for all recordings: it goes on while their tables come and go."""
    with served(tmp_path_factory.mktemp("recordings") / "hst.db") as found:
        yield found


def compared(transcript: Transcript, server: Served, rowid: bool, piece: int) -> list[str]:
    """Play a recording, and return what is neither equal nor on the list, or on the list and equal."""
    answers = []
    with contextlib.closing(Lite(server.file, rowid)) as lite:
        lite.set_up(transcript.setup)
        for step, answer in transcripts.play(transcript, server, lite.ask, lite.request, piece):
            rule, wanted = expected(transcript.name, step.number, step.response)
            if answer != wanted or (rule and wanted == step.response):
                answers.append(
                    f"step {step.number} {step.port} {step.request[:300]!r} {rule}\n"
                    f"  original {step.response[:300]!r}\n  wanted   {wanted[:300]!r}\n  got      {answer[:300]!r}"
                )
    return answers


@pytest.mark.parametrize(("rowid", "piece"), [(False, 0), (True, 1)], ids=["as-innodb", "by-rowid-byte-by-byte"])
def test_recordings_are_answered_as_by_the_original(
    transcript: Transcript, rowid: bool, piece: int, server: Served
) -> None:
    found = compared(transcript, server, rowid, piece)
    assert not found, "\n".join([f"{len(found)} of {len(transcript.steps)} steps:", *found])


class OnMariaDB:
    """A database of the tests' own MariaDB with the tables of a recording, and SQL on it beside the server."""

    def __init__(self, daemon: servers.Daemon) -> None:
        self._connection = pymysql.connect(
            **{**arguments(f"{daemon.url}/mysql")[0], "conv": {}, "use_unicode": False},
            autocommit=True,
            client_flag=CLIENT.MULTI_STATEMENTS,
        )

    def set_up(self, sql: str) -> None:
        """Make the tables and their rows, in place of those that are there."""
        begin = "" if "CREATE DATABASE" in sql.upper() else "CREATE DATABASE hst; USE hst;"
        self.ask(f"DROP DATABASE IF EXISTS hst; {begin}{sql}")
        self.ask("USE hst")

    def ask(self, sql: str) -> bytes:
        """Run statements, and return their rows as MariaDB's command line prints them."""
        cursor = self._connection.cursor()
        cursor.execute(sql)
        rows: list[tuple[bytes | None, ...]] = []
        while True:
            rows += cursor.fetchall() if cursor.description else ()
            if not cursor.nextset():
                break
        return b"".join([b"\t".join([b"NULL" if cell is None else cell for cell in row]) + b"\n" for row in rows])

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


@pytest.fixture(scope="module")
def on_mariadb() -> Iterator[tuple[Served, OnMariaDB]]:
    """One server for all recordings, on a MariaDB of its own."""
    try:
        daemon = servers.mariadb_daemon(blackhole=False)
    except servers.NotHere as error:
        servers.not_run(error)
    with contextlib.closing(OnMariaDB(daemon)) as beside:
        beside.set_up("SELECT 1")
        with served_at(f"{daemon.url}/hst") as found:
            yield found, beside
    daemon.end()


@pytest.fixture(scope="module")
def on_postgresql() -> Iterator[tuple[Served, OnPostgreSQL]]:
    """The same on PostgreSQL, in a schema."""
    try:
        servers.postgresql()
    except servers.NotHere as error:
        servers.not_run(error)
    with (
        servers.database("postgresql") as url,
        contextlib.closing(OnPostgreSQL(url)) as beside,
        served_at(url) as found,
    ):
        yield found, beside


Expected = Callable[[str, int, bytes], tuple[str, bytes]]


def differing(transcript: Transcript, steps: Iterator[tuple[Step, bytes]], expected_here: Expected) -> list[str]:
    """Return the steps that are not answered as expected. What numbers are generated is not looked at."""
    answers = []
    for step, answer in steps:
        rule, wanted = expected_here(transcript.name, step.number, step.response)
        if rule == "13" or (rule == "seen" and transcript.name == "11_auto_increment"):
            answer, wanted = (re.sub(rb"[0-9]+", b"1", each) for each in (answer, wanted))
        if answer != wanted:
            answers.append(
                f"step {step.number} {step.port} {step.request[:300]!r} {rule}\n"
                f"  original {step.response[:300]!r}\n  wanted   {wanted[:300]!r}\n  got      {answer[:300]!r}"
            )
    return answers


def test_recordings_are_answered_on_mariadb(transcript: Transcript, on_mariadb: tuple[Served, OnMariaDB]) -> None:
    server, beside = on_mariadb
    beside.set_up(transcript.setup)
    answers = differing(transcript, transcripts.play(transcript, server, beside.ask), expected_on_mariadb)
    assert not answers, "\n".join([f"{len(answers)} of {len(transcript.steps)} steps:", *answers])


def test_recordings_are_answered_on_postgresql(
    transcript: Transcript, on_postgresql: tuple[Served, OnPostgreSQL]
) -> None:
    server, beside = on_postgresql
    beside.set_up(transcript.setup)
    played = transcripts.play(transcript, server, beside.ask, beside.requests)
    found = differing(transcript, played, expected_on_postgresql)
    assert not found, "\n".join([f"{len(found)} of {len(transcript.steps)} steps:", *found])


@pytest.mark.skipif(not RECORDED, reason="NOT RUN: the recordings are not there")
def test_the_list_names_steps_that_there_are_and_rules_that_there_are() -> None:
    for name, entries in DIFFERENCES.items():
        steps = [step for _, _, numbers in entries for step in numbers]
        assert len(steps) == len(set(steps)), name
        assert set(steps) <= {step.number for step in RECORDED[name].steps}, name
        assert {rule for rule, _, _ in entries} <= set(RULES), name
    on_postgresql = differences_postgresql.ON_POSTGRESQL
    for rules, lists, own in (
        (MARIADB_RULES, [AS_ON_SQLITE], ON_MARIADB),
        (POSTGRESQL_RULES, [differences_postgresql.AS_ON_SQLITE, differences_postgresql.AS_ON_MARIADB], on_postgresql),
    ):
        for name, entries in own.items():
            steps = [step for _, _, numbers in entries for step in numbers]
            steps += [step for each in lists for step in each.get(name, ())]
            assert len(steps) == len(set(steps)), name
            assert set(steps) <= {step.number for step in RECORDED[name].steps}, name
            assert {rule for rule, _, _ in entries} <= set(rules), name
