"""Recordings of the original, step by step, as they lie beside the repository; played to a server."""

from __future__ import annotations

import contextlib
import gzip
import json
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.handlersocket.translator import Translator
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


class Lite:
    """The file that a recording's tables are made in, and SQL on it beside the server."""

    def __init__(self, file: Path, rowid: bool = False) -> None:
        self.connection = sqlite3.connect(file)
        self.connection.text_factory = bytes
        self.translator = Translator(self.connection, rowid)

    def set_up(self, sql: str) -> None:
        """Make the tables and their rows, in place of those that are there."""
        tables = self.connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND sql IS NOT NULL")
        for (name,) in tables.fetchall():
            if not name.startswith(b"sqlite_"):
                self.connection.execute(f'DROP TABLE "{name.decode()}"')
        self.connection.commit()
        self.translator.run(sql)

    def request(self, lines: bytes) -> bytes:
        """Return lines with the names that their indexes have in the file."""
        return b"\n".join(map(self.translator.request, lines.split(b"\n")))

    def ask(self, sql: str) -> bytes:
        """Run statements, and return their rows as MariaDB's command line prints them."""
        rows = self.translator.run(sql)
        return b"".join(b"\t".join(map(printed, row)) + b"\n" for row in rows)

    def close(self) -> None:
        """Close the file."""
        self.connection.close()


def printed(value: object) -> bytes:
    """Return a value as MariaDB's command line prints it."""
    if value is None:
        return b"NULL"
    return value if isinstance(value, bytes) else str(int(value) if isinstance(value, bool) else value).encode()


def play(
    transcript: Transcript,
    ports: Ports,
    sql: Sql,
    translated: Callable[[bytes], bytes] = lambda lines: lines,
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
