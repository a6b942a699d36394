"""PostgreSQL: connections of psycopg 3, sync and async."""

from __future__ import annotations

from typing import Any

from roost.databases.callers.caller import (
    NO_TRANSACTION,
    AsyncGuestExecutor,
    AsyncPlay,
    Guest,
    GuestExecutor,
    Play,
    Words,
    Work,
    aplay,
    play,
)
from roost.databases.engine import Engine
from roost.databases.postgresql.engine import FAILURES, AsyncPlainCursor, PlainCursor, is_idle, translate
from roost.databases.postgresql.session import refuse
from roost.errors import ConnectionLost, Error, Invalid


class PostgreSQLGuest(Guest):
    """The savepoint of one call on a connection to PostgreSQL."""

    failures = FAILURES

    def begin(self) -> Words:
        """Yield what sets the savepoint; psycopg begins a transaction before it, except under autocommit."""
        raw = self.raw
        refuse(raw.info, "store.on")
        if raw.pgconn.pipeline_status:
            raise Invalid("store.on: the connection is in pipeline mode, where no answer can be waited for; leave it")
        if raw.autocommit and is_idle(raw):
            if self.writes:
                raise Invalid(NO_TRANSACTION)
            return
        yield "SAVEPOINT roost_joined"
        self.is_set = True

    def is_lost(self) -> bool:
        """Return whether the connection is lost."""
        closed: bool = self.raw.closed
        return closed

    def failed(self, error: Any, sql: str) -> Error:
        """Return our error; until it goes back to the savepoint the transaction takes nothing more."""
        found = translate(error, self.place, sql)
        if self.is_lost() and not isinstance(found, ConnectionLost):  # psycopg's own error, which has no SQLSTATE
            return ConnectionLost(f"{self.place}: {str(error).strip()}")
        return found


def psycopg_guest(raw: Any, engine: Engine) -> Play:
    """Return what runs calls on a connection of psycopg."""

    def on(work: Work, writes: bool) -> None:
        with PlainCursor(raw) as cursor:
            play(work, GuestExecutor(PostgreSQLGuest(raw, engine.place, writes), cursor, engine.trace))

    return on


def async_psycopg_guest(raw: Any, engine: Engine) -> AsyncPlay:
    """Return what runs calls on an asynchronous connection of psycopg."""

    async def on(work: Work, writes: bool) -> None:
        async with AsyncPlainCursor(raw) as cursor:
            await aplay(work, AsyncGuestExecutor(PostgreSQLGuest(raw, engine.place, writes), cursor, engine.trace))

    return on
