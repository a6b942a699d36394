"""SQLite: connections of sqlite3, and of aiosqlite, whose thread owns a connection of sqlite3."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from roost.databases.callers import NO_TRANSACTION, SAVEPOINT, Caller, Work, log, nested, now
from roost.databases.engine import Engine
from roost.databases.sqlite.engine import TAKE_WRITE_LOCK, file_of, run, translate
from roost.dialects import Control, Statement
from roost.dialects.dialect import Row, Wanted
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


class SQLiteCaller(Caller):
    """One call on a connection of sqlite3."""

    failures = sqlite3.Error

    async def execute(self, wanted: Wanted) -> Any:
        """Do what a call asks for, unless the call has been cancelled: `play` undoes it then."""
        if self._cancelled is not None:
            raise self._cancelled
        return await super().execute(wanted)

    async def statement(self, wanted: Statement) -> Any:
        try:
            return run(self.cursor, wanted, self.trace)
        except sqlite3.Error as error:
            raise self.failed(error, wanted.template.sql) from error

    async def obey(self, word: Control) -> None:
        """Obey a control word; a savepoint counts even if it is interrupted."""
        if word is not Control.SAVEPOINT:
            await super().obey(word)
            return
        self.depth += 1
        try:
            await self.say(nested(SAVEPOINT, self.depth))
        except Error:
            self.depth -= 1
            raise
        if self.depth == 1:
            await self.begin()

    async def begin(self) -> None:
        try:
            if self.writes:
                await self.say(TAKE_WRITE_LOCK)
        except Missing:
            pass  # no catalog: an `Index` needs none, and a structure raises its own error
        except Busy as error:
            if has_read(self.raw):
                raise Conflict(SINCE_IT_READ) from error
            raise

    async def answer(self, sql: str, row: Row, returns: bool | None, several: bool) -> Any:
        return self.cursor.execute(sql).fetchall()

    def is_lost(self) -> bool:
        """Return whether SQLite has rolled back the whole transaction itself, as after some errors."""
        return not self.raw.in_transaction

    def abandon(self) -> None:
        """Close the connection of an interrupted call that cannot be undone, so that nothing of it is committed."""
        log.warning("%s: closed a connection, since an interrupted call could not be undone", self.place)
        self.close()

    def failed(self, error: Any, sql: str) -> Exception:
        return translate(error, self.place, sql)


async def sqlite3_call(raw: sqlite3.Connection, engine: Engine, _: bool, work: Work, writes: bool) -> None:
    """Run a call on a sqlite3 connection, which blocks an event loop while its statements run."""
    await _run(SQLiteCaller(raw, engine.place, writes, None, engine.trace), work)


async def _run(caller: SQLiteCaller, work: Work) -> None:
    raw = caller.raw
    try:
        caller.place = file_of(raw) or ":memory:"
        if caller.writes:
            _begin_as_the_driver_does(raw)
        with _plain_text(raw):
            caller.cursor = cursor = raw.cursor(sqlite3.Cursor)
            cursor.row_factory = None
            try:
                await caller.play(work)
            finally:
                with suppress(sqlite3.ProgrammingError):  # the connection was closed
                    cursor.close()
    except sqlite3.Error as error:  # of BEGIN, or of a connection that is closed
        raise translate(error, caller.place) from error


async def aiosqlite_call(raw: Any, engine: Engine, awaits: bool, work: Work, writes: bool) -> None:
    """Run a whole call in one task of an aiosqlite connection's thread.

    The public API would need one task per statement, and would use the application's row factory. The thread, which
    goes on when a call is cancelled, undoes it before it does anything else.
    """
    caller = SQLiteCaller(raw._conn, engine.place, writes, None, engine.trace)
    try:
        await raw._execute(lambda: now(_run(caller, work)))
    except asyncio.CancelledError as error:
        caller._cancelled = error
        raise


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
