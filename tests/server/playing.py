"""A file, and turns on it, without sockets."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roost.protocols.handlersocket.session import Session
from roost.server.counters import Counters
from roost.server.settings import Role, Settings
from roost.server.turn import Played, Turn
from roost.store.served_file import FileDatabase


@dataclass
class Bench:
    """A file, and turns on it."""

    path: Path
    turn: Turn
    database: FileDatabase
    role: Role
    settings: Settings

    def session(self) -> Session:
        """Return a new connection."""
        return Session(self.settings.secret(self.role), self.settings.max_indexes)

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
    database = FileDatabase(settings.url, writes=role == "write", lock_wait=60)

    def may_open(database: str, table: str) -> bool:
        return database in ("main", "app") and settings.allows(table)

    return Bench(path, Turn(database, may_open, role, Counters()), database, role, settings)
