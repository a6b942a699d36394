"""Recordings of the original, step by step, as they lie beside the repository; played to a server.

Their tables are made by SQL of each database, in the folder `recordings`.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from psycopg.types.string import TextLoader

from tests.handlersocket.wire import Address, Closed, Ports, Wire

PLACE = Path(__file__).parents[3] / "shared/data/handlersocket-transcripts.json.gz"

LONG = 1000  # bytes, from which on a request is always sent at once

Sql = Callable[[str], bytes]


@dataclass(frozen=True)
class Step:
    """One step: what is sent or asked, and what the original answered."""

    number: int
    port: str
    request: bytes
    response: bytes
    label: str
    closes: bool
    closed: bool
    silent: bool


@dataclass(frozen=True)
class Transcript:
    """One recording: MariaDB's SQL that comes before it, and its steps."""

    name: str
    setup: str
    steps: tuple[Step, ...]


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")


def _step(number: int, raw: dict[str, Any]) -> Step:
    request = raw["request"] if "request" in raw else "".join(text * times for text, times in raw["parts"])
    port = raw["port"]
    return Step(
        number,
        port,
        # Statements are text; requests are bytes, of which the file has the image.
        request.encode() if port == "sql" else _bytes(request),
        _bytes(raw["response"] or ""),
        raw.get("conn", port),
        bool(raw.get("close")),
        bool(raw.get("closed")),
        bool(raw.get("timed_out")),
    )


def recorded() -> list[Transcript]:
    """Return the recordings, none where the file is not there."""
    if not PLACE.exists():
        return []
    found = json.loads(gzip.decompress(PLACE.read_bytes()))
    return [
        Transcript(each["name"], each["setup"], tuple(_step(at, raw) for at, raw in enumerate(each["steps"], 1)))
        for each in found
    ]


FOLDER = Path(__file__).parent / "recordings"
# What the recordings' queries have in other words than MariaDB.
SQLITE = {"hst.": "", " DIV ": " / ", "IF(": "iif(", "LAST_INSERT_ID()": "last_insert_rowid()"}
POSTGRESQL = {
    " DIV ": " / ",
    "IF(": "iif(",
    "LAST_INSERT_ID()": "lastval()",
    "CHAR(": "chr(",
    "'0000-00-00'": "'-infinity'",
}
FUNCTIONS = """
CREATE FUNCTION iif(boolean, text, text) RETURNS text LANGUAGE sql AS 'SELECT CASE WHEN $1 THEN $2 ELSE $3 END';
CREATE FUNCTION hex(bytea) RETURNS text LANGUAGE sql AS 'SELECT upper(encode($1, ''hex''))';
CREATE FUNCTION hex(text) RETURNS text LANGUAGE sql AS 'SELECT hst.hex(convert_to($1, ''UTF8''))';
"""


def tables(database: str, name: str) -> str:
    """Return the statements that make the tables of a recording: the sections that name it."""
    sections = re.split(r"^-- (?=\d)", (FOLDER / f"{database}.sql").read_text(), flags=re.MULTILINE)[1:]
    return "".join(
        [body for heading, _, body in (each.partition("\n") for each in sections) if name in heading.split()]
    )


def request(lines: bytes) -> bytes:
    """Return lines with the name that an index has where no two tables may have one of the same name."""
    return re.sub(rb"^(P\t[^\t\n]*\t[^\t\n]*\tar\t)v\t", rb"\1ar_v\t", lines, flags=re.MULTILINE)


class Lite:
    """The file that a recording's tables are made in, and SQL on it beside the server.

    rowid: tables keep their rows by their rowid, and not in the order of their primary key as InnoDB does.
    """

    def __init__(self, file: Path, rowid: bool = False) -> None:
        self.connection = sqlite3.connect(file)
        self.connection.text_factory = bytes
        self._layout = "" if rowid else " WITHOUT ROWID"
        for name, convert in (
            ("hex", lambda octets: octets.hex().upper()),
            ("length", len),
            ("md5", lambda octets: hashlib.md5(octets).hexdigest()),
        ):
            self.connection.create_function(name, 1, partial(_of_octets, convert), deterministic=True)

    def set_up(self, transcript: Transcript) -> None:
        """Make the tables and their rows, in place of those that are there."""
        there = self.connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND sql IS NOT NULL")
        for (name,) in there.fetchall():
            if not name.startswith(b"sqlite_"):
                self.connection.execute(f'DROP TABLE "{name.decode()}"')
        self.connection.executescript(tables("sqlite", transcript.name).replace(" WITHOUT ROWID", self._layout))

    def ask(self, sql: str) -> bytes:
        """Run statements, and return their rows as MariaDB's command line prints them."""
        rows = [row for each in _worded(sql, SQLITE).split(";") for row in self.connection.execute(each)]
        self.connection.commit()
        return _printed(rows)

    def close(self) -> None:
        """Close the file."""
        self.connection.close()


class OnPostgreSQL:
    """The same in a schema of PostgreSQL, which clients name like a database."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        for kind in ("json", "float4", "float8"):
            self._connection.adapters.register_loader(kind, TextLoader)

    def set_up(self, transcript: Transcript) -> None:
        """Make the tables and their rows, in place of those that are there."""
        begin = f"DROP SCHEMA IF EXISTS hst CASCADE; CREATE SCHEMA hst; SET search_path TO hst; {FUNCTIONS}"
        self._connection.execute(f"{begin}{tables('postgresql', transcript.name)}".encode())

    def ask(self, sql: str) -> bytes:
        """Run statements, and return their rows as MariaDB's command line prints them."""
        rows: list[Any] = []
        for each in _worded(sql, POSTGRESQL).split(";"):
            cursor = self._connection.execute(each.encode())
            rows += cursor.fetchall() if cursor.description else ()
        return _printed(rows)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _of_octets(convert: Callable[[bytes], Any], value: object) -> Any:
    # MariaDB's functions of bytes: of NULL they are NULL.
    return None if value is None else convert(value if isinstance(value, bytes) else str(value).encode())


def _worded(sql: str, words: Mapping[str, str]) -> str:
    for word, other in words.items():
        sql = sql.replace(word, other)
    return sql


def _printed(rows: Iterable[Sequence[object]]) -> bytes:
    return b"".join([b"\t".join(map(printed, row)) + b"\n" for row in rows])


def printed(value: object) -> bytes:
    """Return a value as MariaDB's command line prints it."""
    if value is None:
        return b"NULL"
    return value if isinstance(value, bytes) else str(int(value) if isinstance(value, bool) else value).encode()


def play(
    transcript: Transcript,
    ports: Ports,
    sql: Sql,
    translated: Callable[[bytes], bytes] = request,
    piece: int = 0,
) -> Iterator[tuple[Step, bytes]]:
    """Play a recording to a server, and yield each step with the answer.

    piece: requests that are not long are sent in packets of so many bytes; 0: at once.

    A connection that the server closes is told as `<closed>`, after what it still said.
    """
    with contextlib.ExitStack() as open_ones:
        wires: dict[str, Wire] = {}
        for step in transcript.steps:
            if step.port == "sql":
                yield step, sql(step.request.decode())
                continue
            address: Address = getattr(ports, step.port)
            # Labels of one port are other connections than the same labels of the other.
            key = f"{step.port} {step.label}"
            if key not in wires:
                wires[key] = open_ones.enter_context(Wire(address, authenticate=not step.label.startswith("raw")))
            request = translated(step.request).replace(b"{SECRET}", address.secret.encode())
            lines = step.response.count(b"\n")
            try:
                size = piece if piece and len(request) < LONG else len(request)
                for start in range(0, len(request), size):
                    wires[key].send(request[start : start + size])
                answer = b"".join(wires[key].lines(lines))
                if step.closed and wires[key].is_closed():
                    answer += b"<closed>"
            except (Closed, ConnectionError):
                answer = b"<closed>"
            if step.closes or answer.endswith(b"<closed>"):
                wires.pop(key).close()
            yield step, answer
