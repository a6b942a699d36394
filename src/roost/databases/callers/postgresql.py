"""PostgreSQL: connections of psycopg 3, sync and async."""

from __future__ import annotations

from typing import Any

from roost.databases.callers.caller import (
    BACK,
    NO_TRANSACTION,
    RELEASE,
    SAVEPOINT,
    UNDO,
    AsyncCallerExecutor,
    AsyncPlay,
    Caller,
    CallerExecutor,
    Play,
    Script,
    Texts,
    Work,
    aplay,
    play,
)
from roost.databases.engine import Engine
from roost.databases.postgresql.connection import FAILURES
from roost.databases.postgresql.cursors import AsyncPlainCursor, PlainCursor, is_failed, is_idle
from roost.databases.postgresql.errors import translate
from roost.databases.postgresql.session import BINARY, TEXT, local, refuse
from roost.databases.postgresql.values import literal
from roost.dialects.dialect import Control, Exchange, Row, Statement, Wanted, render
from roost.errors import Busy, Conflict, ConnectionLost, Error, Invalid

PREPARED = ("26000", "42P05")  # a prepared statement does not exist, or exists already


def at_once(exchange: Exchange, apart: bool = False) -> list[str]:
    """Return an operation as texts that include its values; a result of NULL makes it fail.

    It is one text, unless it has a character that the database's encoding may lack: the server would refuse the whole
    text, the savepoint included.

    apart: the savepoint is always a text of its own.
    """
    work, row, answer, source, _ = exchange
    query = f"WITH {work}\nSELECT {answer}, 1 / (({answer}) IS NOT NULL)::integer {source}"
    text = f"{query % tuple([literal(value) for value in row])};\n{RELEASE}"
    return [SAVEPOINT, text] if apart or not text.isascii() else [f"{SAVEPOINT};\n{text}"]


class PostgreSQLCaller(Caller):
    """The savepoint of one call on a connection to PostgreSQL."""

    failures = FAILURES
    apart = False  # the savepoint is sent by itself
    ends = False  # the text that ends the call has been sent

    def begin(self) -> Script:
        """Yield the statements that set the savepoint; psycopg first begins a transaction, except under autocommit."""
        if self.joins():
            self.depth = 1  # even if it is interrupted
            yield SAVEPOINT

    def joins(self) -> bool:
        """Return whether a savepoint can be set."""
        raw = self.raw
        refuse(raw.info, "store.on")
        if raw.pgconn.pipeline_status:
            raise Invalid("store.on: the connection is in pipeline mode, where no answer can be waited for; leave it")
        if raw.autocommit and is_idle(raw):
            if self.writes:
                raise Invalid(NO_TRANSACTION)
            return False
        return True

    def unwound(self) -> Script:
        """Yield the statements that undo an interrupted call, unless it had ended."""
        if not self.ends or is_failed(self.raw):
            yield from super().unwound()

    def close(self) -> None:
        """Close the connection at once, sync or async."""
        self.raw.pgconn.finish()

    def at_once(self, exchange: Exchange) -> Texts:
        """Yield a savepoint, the work and the release; after a failure, the rollback to the savepoint."""
        if not self.joins() or is_failed(self.raw):
            return None
        self.depth = 1
        try:
            for text in at_once(exchange, self.apart):
                self.ends = text is not SAVEPOINT
                rows = yield text
        except ConnectionLost:
            raise
        except Error as error:
            self.ends = False
            yield UNDO
            self.depth = 0
            if isinstance(error, (Busy, Conflict)):
                raise
            return None
        self.depth = 0
        return rows[0] if rows else None

    def is_lost(self) -> bool:
        """Return whether the connection is lost."""
        closed: bool = self.raw.closed
        return closed

    def failed(self, error: Any, sql: str) -> Error:
        """Return our error; the transaction accepts no statement until it is rolled back to the savepoint."""
        if sql == SAVEPOINT:
            self.depth = 0
        if error.sqlstate == "25P02":
            return Invalid(
                "store.on: an earlier statement of this transaction has failed, so PostgreSQL rejects all others; "
                "roll it back, or back to a savepoint, first"
            )
        if error.sqlstate in PREPARED:
            return Invalid(
                f"store.on: {str(error).strip()}; behind a pooler, which may give each transaction another session, a "
                "connection has to prepare nothing (psycopg: prepare_threshold=None, asyncpg: statement_cache_size=0)"
            )
        found = translate(error, self.place, sql)
        if self.is_lost() and not isinstance(found, ConnectionLost):  # psycopg's own error, which has no SQLSTATE
            return ConnectionLost(f"{self.place}: {str(error).strip()}")
        return found


class _AsyncPsycopgCaller(PostgreSQLCaller):
    apart = True


class _PsycopgExecutor(CallerExecutor):
    """Runs a call's statements; if the call is a single query, it is sent with its savepoint, in one round trip."""

    _caller: PostgreSQLCaller

    _waiting: Script | None = None  # the statements that set the savepoint, not sent yet
    _sql = ""  # its text

    def execute(self, wanted: Wanted) -> Any:
        """Run a statement and return its answer, or obey a control word."""
        raw, words = self._caller.raw, self._waiting
        if wanted is Control.SAVEPOINT and not self._caller.writes:
            self._waiting = self._caller.words(wanted)
            self._sql = next(self._waiting, "")
            return None
        self._waiting = None
        if words is None or not self._sql or isinstance(wanted, Control):
            return super().execute(wanted)
        if isinstance(wanted, Statement) and wanted.last and not is_failed(raw):
            ((sql, row),) = render(wanted)
            query = sql % tuple([literal(value) for value in row])
            if query.isascii():  # else the database's encoding may lack a character: the whole text would be refused
                return self._at_once(query, sql, row)
        self.say(self._sql)
        next(words, None)
        return super().execute(wanted)

    def run_text(self, text: str) -> None:
        """Send a text that may have several statements, whose answers are texts."""
        self._cursor.format = TEXT
        try:
            self._cursor.execute(text)
        finally:
            self._cursor.format = BINARY

    def _at_once(self, query: str, sql: str, row: Row) -> Any:
        # One text, whose results are texts: the settings that they depend on are set after the savepoint and undone
        # with it.
        raw = self._caller.raw
        texts = [self._sql + local(raw.info), query, BACK, RELEASE]
        if self._trace is not None:
            for each, values in zip((self._sql, sql, BACK, RELEASE), ((), row, (), ()), strict=True):
                self._trace(each, values)
        self._caller.depth, self._caller.ends = 1, True
        rows: list[Row] = []
        try:
            with PlainCursor(raw) as cursor:
                cursor.format = TEXT
                cursor.execute(";\n".join(texts))
                self._caller.depth = 0  # an unreadable result: the savepoint is released already
                while cursor.nextset():
                    rows = cursor.fetchall() if cursor.description else rows
        except FAILURES as error:
            self._caller.ends = False
            raise self.failed(error, sql) from error
        return [rows]


class _AsyncPsycopgExecutor(AsyncCallerExecutor):
    async def run_text(self, text: str) -> None:
        """Send a text that may have several statements, whose answers are texts."""
        self._cursor.format = TEXT
        try:
            await self._cursor.execute(text)
        finally:
            self._cursor.format = BINARY


def psycopg_caller(raw: Any, engine: Engine) -> Play:
    """Return the caller for a psycopg connection."""

    def on(work: Work, writes: bool) -> None:
        with PlainCursor(raw) as cursor:
            play(work, _PsycopgExecutor(PostgreSQLCaller(raw, engine.place, writes), cursor, engine.trace))

    return on


def async_psycopg_caller(raw: Any, engine: Engine) -> AsyncPlay:
    """Return the caller for an asynchronous psycopg connection."""

    async def on(work: Work, writes: bool) -> None:
        async with AsyncPlainCursor(raw) as cursor:
            caller = _AsyncPsycopgCaller(raw, engine.place, writes)
            await aplay(work, _AsyncPsycopgExecutor(caller, cursor, engine.trace))

    return on
