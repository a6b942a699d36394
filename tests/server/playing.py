"""A file, and turns on it, without sockets."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from roost.databases.engine import Wait
from roost.databases.sqlite.apsw import ApswConnection
from roost.databases.sqlite.engine import SQLiteEngine
from roost.server.counters import Counters
from roost.server.session import Session
from roost.server.settings import Role, Settings
from roost.server.tables import Tables
from roost.server.turn import Played, Turn


@dataclass
class Bench:
    """A file, and turns on it."""

    path: Path
    turn: Turn
    role: Role
    settings: Settings

    def session(self) -> Session:
        """Return a new connection."""
        return Session(self.role, self.settings)

    def say(self, session: Session, text: str) -> list[str]:
        """Return the answers to lines in one turn."""
        return self.play((session, text)).texts[0].split("\n")[:-1]

    def play(self, *arrived: tuple[Session, str]) -> Played:
        """Play a turn of several connections."""
        return self.turn.play(arrived)

    def sql(self, text: str) -> list[Any]:
        """Ask the file, from a process of its own: two copies of SQLite must not open it in one."""
        program = (
            "import sqlite3, sys; connection = sqlite3.connect(sys.argv[1]);"
            "print(connection.execute(sys.argv[2]).fetchall()); connection.commit()"
        )
        ran = subprocess.run(
            [sys.executable, "-c", program, str(self.path), text], capture_output=True, text=True, check=True
        )
        return eval(ran.stdout)  # type: ignore[no-any-return]


def bench(path: Path, role: Role, **more: Any) -> Bench:
    settings = Settings(url=f"sqlite:///{path}", **more)
    engine = SQLiteEngine(settings.url, timeout=1, trace=None, random=Random(1))
    connection = ApswConnection(engine, Wait(time.monotonic() + 60), writes=role == "write")
    counters = Counters()
    tables = Tables(connection, settings, ("main", "app"), counters, writes=role == "write")
    return Bench(path, Turn(connection, tables, role, counters), role, settings)
