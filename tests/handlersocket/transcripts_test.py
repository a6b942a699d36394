"""The recordings of the original, played to Roost: equal, or different by a rule on the list, exactly so."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import pymysql
import pytest
from pymysql.constants import CLIENT

from roost.databases.mariadb.address import arguments
from tests import servers
from tests.handlersocket import differences, transcripts
from tests.handlersocket.conftest import Served, served, served_at
from tests.handlersocket.differences import expected
from tests.handlersocket.transcripts import PLACE, Lite, OnPostgreSQL, Step, Transcript

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


def compare(transcript: Transcript, steps: Iterator[tuple[Step, bytes]], database: str) -> None:
    """Fail where a step is neither equal nor on the list, or on the list and equal.

    On servers, what numbers are generated is not looked at.
    """
    wrong = []
    for step, answer in steps:
        rule, wanted = expected(transcript.name, step.number, step.response, database)
        is_known = not rule or wanted != step.response
        if database != "sqlite" and (rule == "13" or (rule == "seen" and transcript.name == "11_auto_increment")):
            answer, wanted = (re.sub(rb"[0-9]+", b"1", each) for each in (answer, wanted))
        if answer != wanted or not is_known:
            wrong.append(
                f"step {step.number} {step.port} {step.request[:300]!r} {rule}\n"
                f"  original {step.response[:300]!r}\n  wanted   {wanted[:300]!r}\n  got      {answer[:300]!r}"
            )
    assert not wrong, "\n".join([f"{len(wrong)} of {len(transcript.steps)} steps:", *wrong])


@pytest.mark.parametrize(("rowid", "piece"), [(False, 0), (True, 1)], ids=["as-innodb", "by-rowid-byte-by-byte"])
def test_recordings_are_answered_as_by_the_original(
    transcript: Transcript, rowid: bool, piece: int, server: Served
) -> None:
    with contextlib.closing(Lite(server.file, rowid)) as lite:
        lite.set_up(transcript)
        compare(transcript, transcripts.play(transcript, server, lite.ask, piece=piece), "sqlite")


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
    daemon = servers.mariadb_daemon(blackhole=False)
    with contextlib.closing(OnMariaDB(daemon)) as beside:
        beside.set_up("SELECT 1")
        with served_at(f"{daemon.url}/hst") as found:
            yield found, beside
    daemon.end()


@pytest.fixture(scope="module")
def on_postgresql() -> Iterator[tuple[Served, OnPostgreSQL]]:
    """The same on PostgreSQL, in a schema."""
    with (
        servers.database("postgresql") as url,
        contextlib.closing(OnPostgreSQL(url)) as beside,
        served_at(url) as found,
    ):
        yield found, beside


def test_recordings_are_answered_on_mariadb(transcript: Transcript, on_mariadb: tuple[Served, OnMariaDB]) -> None:
    server, beside = on_mariadb
    beside.set_up(transcript.setup)
    compare(transcript, transcripts.play(transcript, server, beside.ask, lambda lines: lines), "mariadb")


def test_recordings_are_answered_on_postgresql(
    transcript: Transcript, on_postgresql: tuple[Served, OnPostgreSQL]
) -> None:
    server, beside = on_postgresql
    beside.set_up(transcript)
    compare(transcript, transcripts.play(transcript, server, beside.ask), "postgresql")


@pytest.mark.skipif(not RECORDED, reason="NOT RUN: the recordings are not there")
@pytest.mark.parametrize("database", differences.LISTS)
def test_the_list_names_steps_that_there_are_and_rules_that_there_are(database: str) -> None:
    other = {"mariadb": differences.AS_THE_ORIGINAL, "postgresql": differences.AS_ON_MARIADB}.get(database, {})
    for name, entries in differences.LISTS[database].items():
        steps = [*other.get(name, ()), *[step for _, _, numbers in entries for step in numbers]]
        assert len(steps) == len(set(steps)), name
        assert set(steps) <= {step.number for step in RECORDED[name].steps}, name
        assert {rule for rule, _, _ in entries} <= set(differences.RULES), name
