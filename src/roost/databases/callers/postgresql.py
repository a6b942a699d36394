"""PostgreSQL: connections of psycopg 3, sync and async."""

from __future__ import annotations

from typing import Any

from roost.databases.callers import BACK, NO_TRANSACTION, RELEASE, SAVEPOINT, Caller, Work, settled
from roost.databases.engine import Engine
from roost.databases.postgresql.connection import FAILURES, literal
from roost.databases.postgresql.errors import translate
from roost.databases.postgresql.session import (
    BINARY,
    TEXT,
    AsyncPlainCursor,
    PlainCursor,
    is_failed,
    is_idle,
    local,
    refuse,
)
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
    """One call on a connection to PostgreSQL."""

    failures: Any = FAILURES
    apart = False  # the savepoint is sent by itself
    _ends = False  # the text that ends the call has been sent
    _waits = False  # the savepoint is to be set, along with the next statement if that is the only one

    async def play(self, work: Work) -> None:
        """Drive a call; of a connection that is closed, some functions of the drivers would raise their own errors."""
        if self.is_lost():
            raise ConnectionLost(f"{self.place}: the connection is closed")
        await super().play(work)

    async def execute(self, wanted: Wanted) -> Any:
        """Do what a call asks for; return its answer. A single query is one text with its savepoint."""
        if wanted is Control.SAVEPOINT and not (self.writes or self.apart):
            self._waits = self.joins()
            return None
        if not self._waits:
            return await super().execute(wanted)
        self._waits = False
        if wanted in (Control.BACK, Control.RELEASE):
            return None  # nothing was done
        if isinstance(wanted, Statement) and wanted.last and not is_failed(self.raw):
            ((sql, row),) = render(wanted)
            query = sql % tuple([literal(value) for value in row])
            if query.isascii():  # else the database's encoding may lack a character: the whole text would be refused
                return [await self._query(query)]
        await super().execute(Control.SAVEPOINT)
        return await super().execute(wanted)

    async def _query(self, query: str) -> Any:
        # One text, whose results are texts: the settings that they depend on are set after the savepoint and undone
        # with it.
        self.depth, self._ends = 1, True
        try:
            rows = await self.send(";\n".join([SAVEPOINT + local(self.raw.info), query, BACK, RELEASE]), several=True)
        except Error:
            self._ends = False
            if not is_failed(self.raw):  # a result that cannot be read: the savepoint is released already
                self.depth = 0
            raise
        self.depth = 0
        return rows

    async def begin(self) -> None:
        """Set the savepoint; psycopg first begins a transaction, except under autocommit."""
        if self.joins():
            self.depth = 1  # even if it is interrupted
            await self.say(SAVEPOINT)

    def joins(self) -> bool:
        raw = self.raw
        refuse(raw.info, "store.on")
        if raw.pgconn.pipeline_status:
            raise Invalid("store.on: the connection is in pipeline mode, where no answer can be waited for; leave it")
        if raw.autocommit and is_idle(raw):
            if self.writes:
                raise Invalid(NO_TRANSACTION)
            return False
        return True

    async def undo(self) -> None:
        """Undo an interrupted call, unless it had ended."""
        if not self._ends or is_failed(self.raw):
            await super().undo()

    def close(self) -> None:
        self.raw.pgconn.finish()  # sync or async

    async def at_once(self, exchange: Exchange) -> Row | None:
        """Send a savepoint, the work and the release; after a failure, go back to the savepoint."""
        if not self.joins() or is_failed(self.raw):
            return None
        self.depth = 1
        try:
            for text in at_once(exchange, self.apart):
                self._ends = text is not SAVEPOINT
                rows = await (self.send(text, several=True) if self._ends else self.say(text))
        except ConnectionLost:
            raise
        except Error as error:
            self._ends = False
            if self.is_lost():
                raise
            await self.say(BACK)
            await self.say(RELEASE)
            self.depth = 0
            if isinstance(error, (Busy, Conflict)):
                raise
            return None
        self.depth = 0
        return rows[0] if rows else None

    def is_lost(self) -> bool:
        return bool(self.raw.closed)

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

    async def answer(self, sql: str, row: Row, returns: bool | None, several: bool) -> Any:
        self.cursor.format = TEXT if several else BINARY  # the answers to a text of several statements are texts
        return await super().answer(sql, row, returns, several)


async def psycopg_call(raw: Any, engine: Engine, awaits: bool, work: Work, writes: bool) -> None:
    cursor: Any = AsyncPlainCursor(raw) if awaits else PlainCursor(raw)
    caller = PostgreSQLCaller(raw, engine.place, writes, cursor, engine.trace)
    caller.apart = caller.awaits = awaits
    try:
        await caller.play(work)
    finally:
        await settled(cursor.close())
