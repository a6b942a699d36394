"""A database, and turns on it, without sockets."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roost.protocols.codec import Piece
from roost.protocols.handlersocket.codec import HandlerSocket
from roost.protocols.handlersocket.opened import Openings, Session
from roost.server.counters import Counters
from roost.server.settings import Role, Settings
from roost.server.turn import Turn
from roost.store.served import Database as Served
from roost.store.served_databases import FileDatabase, connect
from tests.index.databases import Database


class Played:
    """What became of the pieces of a turn, by their places."""

    def __init__(self, pieces: list[Piece]) -> None:
        self.texts: list[str] = [piece.answer for piece in pieces]
        self.late: dict[int, str] = {place: piece.late for place, piece in enumerate(pieces) if piece.late}
        self.blocked = {place for place, piece in enumerate(pieces) if piece.blocked}
        self.rest: dict[int, str] = {
            place: piece.rest
            for place, piece in enumerate(pieces)
            if piece.rest is not None and not piece.session.foreign
        }


@dataclass
class Bench:
    """A database, and turns on it. Lines call it `main` or `app`."""

    path: Path
    turn: Turn
    database: Served
    role: Role
    settings: Settings
    where: Database

    @property
    def file(self) -> FileDatabase:
        """Its connection to a file."""
        assert isinstance(self.database, FileDatabase)
        return self.database

    def session(self) -> Session:
        """Return a new connection."""
        return Session(self.settings.secret(self.role), self.settings.max_indexes)

    def say(self, session: Session, text: str) -> list[str]:
        """Return the answers to lines in one turn."""
        answers: str = self.play((session, text)).texts[0]
        return answers.split("\n")[:-1]

    def play(self, *arrived: tuple[Session, str], **how: Any) -> Played:
        """Play a turn of several connections."""
        if not self.settings.is_file:
            named = f"\t{self.database.names[0]}\t"
            arrived = tuple(
                [(each, text.replace("\tmain\t", named).replace("\tapp\t", named)) for each, text in arrived]
            )
        pieces = [Piece(session, text) for session, text in arrived]
        failed = self.turn.play(pieces, **how)
        if failed is not None:
            self.turn.refuse(pieces, failed)
        return Played(pieces)

    def sql(self, text: str) -> list[Any]:
        """Ask the database; a file from a process of its own: two copies of SQLite must not open it in one."""
        if not self.settings.is_file:
            return self.where.sql(text)
        program = (
            "import sqlite3, sys; connection = sqlite3.connect(sys.argv[1]);"
            "print(connection.execute(sys.argv[2]).fetchall()); connection.commit()"
        )
        ran = subprocess.run(
            [sys.executable, "-c", program, str(self.path), text], capture_output=True, text=True, check=True
        )
        return eval(ran.stdout)  # type: ignore[no-any-return]

    def close(self) -> None:
        """Close the database."""
        self.database.close()


def bench(where: Path | Database, role: Role, **more: Any) -> Bench:
    """Return turns on a file, or on another database."""
    if isinstance(where, Path):
        where = Database("sqlite", f"sqlite:///{where}")
    settings = Settings(url=where.url, **more)
    writes = role == "write"
    database: Served
    if settings.is_file:
        database = FileDatabase(settings.url, writes=writes, lock_wait=60)
    else:
        (database,) = connect(settings.url, 1, settings.timeout, writes=writes)

    def may_open(name: str, table: str) -> bool:
        return name in ("main", "app", *database.names) and settings.allows(table)

    codec = HandlerSocket(Openings(may_open, writes=writes, looks=database.looks))
    path = Path(settings.url.removeprefix("sqlite:///")) if settings.is_file else Path()
    return Bench(path, Turn(database, codec, Counters()), database, role, settings, where)


@contextmanager
def played(folder: Path, script: str, role: Role = "write") -> Iterator[Bench]:
    """Turns on a file that a script has made."""
    with closing(sqlite3.connect(folder / "app.db")) as connection:
        connection.executescript(f"PRAGMA journal_mode = WAL;{script}")
        connection.commit()
    with closing(bench(folder / "app.db", role)) as made:
        yield made
