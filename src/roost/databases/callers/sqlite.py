"""SQLite: connections of sqlite3, and of aiosqlite, whose thread owns a connection of sqlite3."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from roost.databases.callers.caller import (
    BACK,
    NO_TRANSACTION,
    RELEASE,
    SAVEPOINT,
    AsyncPlay,
    Play,
    Work,
    log,
    nested,
    play,
)
from roost.databases.engine import Engine, Trace
from roost.databases.sqlite.engine import TAKE_WRITE_LOCK, file_of, translate
from roost.databases.sqlite.statements import run
from roost.dialects import Control, Statement, Together, Wanted
from roost.errors import Busy, Conflict, Error, Invalid, Missing

SINCE_IT_READ = (
    "another connection is writing, and this transaction has begun to read, so it cannot wait: roll it back and begin "
    "it with BEGIN IMMEDIATE"
)


def has_read(raw: sqlite3.Connection) -> bool:
    """Return whether the open transaction has a snapshot of a file with a write-ahead log.

    Then SQLite does not wait for the write lock, and after another writer has committed it can never get it.
    """
    # SQLite has no function for this; but a connection that has a snapshot cannot checkpoint the log.
    cursor = raw.cursor(sqlite3.Cursor)
    try:
        cursor.execute("PRAGMA main.wal_checkpoint(PASSIVE)")
    except sqlite3.Error as error:
        return getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_LOCKED
    finally:
        cursor.close()
    return False


class SQLiteCaller:
    """Runs plans on the application's connection: no commit, no rollback, none of its factories."""

    def __init__(self, raw: sqlite3.Connection, writes: bool, trace: Trace | None) -> None:
        self._raw = raw
        self._cursor = raw.cursor(sqlite3.Cursor)
        self._cursor.row_factory = None
        self._path = file_of(raw) or ":memory:"
        self._writes = writes
        self._trace = trace
        self._depth = 0  # how many savepoints are set, one inside the other

    def execute(self, wanted: Wanted) -> Any:
        """Run a statement and return its answer, or obey a control word."""
        if isinstance(wanted, Together):
            return [self.execute(each) for each in wanted.statements]
        if isinstance(wanted, Statement):
            try:
                return run(self._cursor, wanted, self._trace)
            except sqlite3.Error as error:
                raise translate(error, self._path, wanted.template.sql) from error
        match wanted:
            case Control.SAVEPOINT:
                self._savepoint()
            case Control.RELEASE if self._is_open:
                self._say(nested(RELEASE, self._depth))
                self._depth -= 1
            case Control.BACK if self._is_open:
                self._say(nested(BACK, self._depth))
        return None

    @property
    def _is_open(self) -> bool:
        # After some errors SQLite has rolled back the whole transaction itself.
        return self._depth > 0 and self._raw.in_transaction

    def _savepoint(self) -> None:
        self._depth += 1  # even if it is interrupted
        try:
            self._say(nested(SAVEPOINT, self._depth))
        except Error:
            self._depth -= 1
            raise
        if self._writes and self._depth == 1:
            try:
                self._say(TAKE_WRITE_LOCK)
            except Missing:
                pass  # no catalog: an `Index` needs none, and a structure raises its own error
            except Busy as error:
                if has_read(self._raw):
                    raise Conflict(SINCE_IT_READ) from error
                raise

    def undo(self) -> None:
        """Undo an interrupted call; if that fails, close the connection: nothing of the call may be committed."""
        self._depth = min(self._depth, 1)
        try:
            self.execute(Control.BACK)
            self.execute(Control.RELEASE)
        except BaseException as error:
            log.warning("%s: closed a connection, since an interrupted call could not be undone", self._path)
            self._raw.close()
            if not isinstance(error, Exception):
                raise

    def _say(self, sql: str) -> None:
        if self._trace is not None:
            self._trace(sql, ())
        try:
            self._cursor.execute(sql)
        except sqlite3.Error as error:
            raise translate(error, self._path, sql) from error

    def close(self) -> None:
        """Leave the application's connection as it is."""
        with suppress(sqlite3.ProgrammingError):  # `undo` has closed it
            self._cursor.close()


def sqlite3_caller(raw: sqlite3.Connection, engine: Engine) -> Play:
    """Return the caller for a sqlite3 connection."""

    def on(work: Work, writes: bool) -> None:
        if writes:
            _begin_as_the_driver_does(raw)
        with _plain_text(raw):
            caller = SQLiteCaller(raw, writes, engine.trace)
            try:
                play(work, caller)
            finally:
                caller.close()

    return on


def aiosqlite_caller(raw: Any, engine: Engine) -> AsyncPlay:
    """Return the caller for an aiosqlite connection: it runs a whole call in one task of the connection's thread.

    The public API would need one task per statement, and would use the application's row factory. A call that is
    cancelled still runs to its end in that thread.
    """

    async def on(work: Work, writes: bool) -> None:
        await raw._execute(sqlite3_caller(raw._conn, engine), work, writes)

    return on


def _begin_as_the_driver_does(raw: sqlite3.Connection) -> None:
    if raw.in_transaction:
        return
    # Python 3.12 has `autocommit`: True, False (a transaction is always open), or -1 for the older isolation_level.
    if raw.isolation_level is None or getattr(raw, "autocommit", -1) is True:
        raise Invalid(NO_TRANSACTION)
    raw.execute(f"BEGIN {raw.isolation_level}")


@contextmanager
def _plain_text(raw: sqlite3.Connection) -> Iterator[None]:
    factory = raw.text_factory
    raw.text_factory = str
    try:
        yield
    finally:
        raw.text_factory = factory
