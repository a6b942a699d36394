"""The recordings of the original, played to Roost on MariaDB: equal, or different by a rule on the list, exactly so.

They lie beside the repository: MariaDB's SQL that comes first, and step by step what is sent or asked, and answered.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest
from pymysql.constants import CLIENT

from roost.databases.mariadb.address import arguments
from tests import servers
from tests.handlersocket.conftest import Served, served_at
from tests.handlersocket.differences import DIFFERENCES, RULES, expected
from tests.handlersocket.wire import Address, Closed, Wire

PLACE = Path(__file__).parents[3] / "shared/data/handlersocket-transcripts.json.gz"
LONG = 1000  # bytes, from which on a request is always sent at once

Recording = dict[str, Any]


def recorded() -> dict[str, Recording]:
    """Return the recordings by their names, none where the file is not there."""
    if not PLACE.exists():
        return {}
    return {each["name"]: each for each in json.loads(gzip.decompress(PLACE.read_bytes()))}


RECORDED = recorded()


class Beside:
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
def playing() -> Iterator[tuple[Served, Beside]]:
    """One server for all recordings, on a MariaDB of its own: it goes on while their tables come and go."""
    try:
        daemon = servers.mariadb_daemon(blackhole=False)
    except servers.NotHere as error:
        servers.not_run(error)
    with contextlib.closing(Beside(daemon)) as beside:
        beside.set_up("SELECT 1")
        with served_at(f"{daemon.url}/hst") as found:
            yield found, beside
    daemon.end()


def play(recording: Recording, server: Served, beside: Beside, piece: int) -> Iterator[tuple[int, bytes, bytes]]:
    """Play a recording, and yield the number of each step with the original's answer and this one.

    piece: requests that are not long are sent in packets of so many bytes; 0: at once.

    A connection that the server closes is told as `<closed>`, after what it still said.
    """
    beside.set_up(recording["setup"])
    with contextlib.ExitStack() as open_ones:
        wires: dict[str, Wire] = {}
        for number, step in enumerate(recording["steps"], 1):
            request = step["request"] if "request" in step else "".join(text * times for text, times in step["parts"])
            response = (step["response"] or "").encode("latin-1")
            port = step["port"]
            if port == "sql":
                yield number, response, beside.ask(request)
                continue
            address: Address = getattr(server, port)
            # Labels of one port are other connections than the same labels of the other.
            label = step.get("conn", port)
            key = f"{port} {label}"
            if key not in wires:
                wires[key] = open_ones.enter_context(Wire(address, authenticate=not label.startswith("raw")))
            sent = request.encode("latin-1").replace(b"{SECRET}", address.secret.encode())
            try:
                size = piece if piece and len(sent) < LONG else len(sent)
                for start in range(0, len(sent), size):
                    wires[key].send(sent[start : start + size])
                answer = b"".join(wires[key].lines(response.count(b"\n")))
                if step.get("closed") and wires[key].is_closed():
                    answer += b"<closed>"
            except (Closed, ConnectionError):
                answer = b"<closed>"
            if step.get("close") or answer.endswith(b"<closed>"):
                wires.pop(key).close()
            yield number, response, answer


@pytest.mark.parametrize("piece", [0, 1], ids=["at-once", "byte-by-byte"])
@pytest.mark.parametrize("name", [*RECORDED] or [""])
def test_recordings_are_answered_as_by_the_original(name: str, piece: int, playing: tuple[Served, Beside]) -> None:
    if not name:
        pytest.skip(f"NOT RUN: the recordings are not there: {'/'.join(PLACE.parts[-3:])} is missing")
    answers = []
    for number, original, got in play(RECORDED[name], *playing, piece):
        rule, wanted = expected(name, number, original)
        answer = got
        if rule == "13" or (rule == "seen" and name == "11_auto_increment"):  # which numbers are generated
            answer, wanted = (re.sub(rb"[0-9]+", b"1", each) for each in (answer, wanted))
        if answer != wanted:
            told = f"original {original[:300]!r}\n  wanted   {wanted[:300]!r}\n  got      {answer[:300]!r}"
            answers.append(f"step {number} {rule}\n  {told}")
    assert not answers, "\n".join([f"{len(answers)} steps:", *answers])


@pytest.mark.skipif(not RECORDED, reason="NOT RUN: the recordings are not there")
def test_the_list_names_steps_that_there_are_and_rules_that_there_are() -> None:
    for name, entries in DIFFERENCES.items():
        steps = [step for _, _, numbers in entries for step in numbers]
        assert len(steps) == len(set(steps)), name
        assert set(steps) <= {*range(1, len(RECORDED[name]["steps"]) + 1)}, name
        assert {rule for rule, _, _ in entries} <= set(RULES), name
