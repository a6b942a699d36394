"""SQLAlchemy 2: the driver's connection below a connection or a session. Nothing of SQLAlchemy is imported.

The transaction is begun by SQLAlchemy, as it would be for a statement of its own, so it knows what there is to commit.
The savepoint is not SQLAlchemy's: `begin_nested` would flush a session, expire its objects when a call fails, and tell
its event handlers; a raw one leaves all of its state as it is. A session is not flushed. A connection that turns out to
be lost is invalidated, as by SQLAlchemy: its pool replaces it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from roost.databases.callers.caller import AsyncPlay, Play, Work
from roost.databases.engine import Engine
from roost.errors import CannotOpen

# What finds the caller for the driver's connection.
Below = Callable[[Any, Engine], Any]


def connection_caller(connection: Any, engine: Engine, below: Below) -> Play:
    """Return what runs calls on a Connection."""

    def on(work: Work, writes: bool) -> None:
        if not connection.in_transaction():
            connection.begin()
        raw = connection.connection.driver_connection
        failed: BaseException | None = None
        try:
            below(raw, engine)(work, writes)
        except BaseException as error:
            failed = error
            raise
        finally:  # the call may have kept the error as its answer
            if _is_lost(raw, failed):
                connection.invalidate()

    return on


def session_caller(session: Any, engine: Engine, below: Below) -> Play:
    """Return what runs calls on a Session, or a scoped_session: on the connection that its transaction has."""

    def on(work: Work, writes: bool) -> None:
        connection_caller(session.connection(), engine, below)(work, writes)

    return on


def async_connection_caller(connection: Any, engine: Engine, below: Below) -> AsyncPlay:
    """Return what runs calls on an AsyncConnection."""

    async def on(work: Work, writes: bool) -> None:
        if not connection.in_transaction():
            await connection.begin()
        raw = (await connection.get_raw_connection()).driver_connection
        if hasattr(raw, "is_in_transaction") and not raw.is_in_transaction():
            await connection.run_sync(_begin_below)
        failed: BaseException | None = None
        try:
            await below(raw, engine)(work, writes)
        except BaseException as error:
            failed = error
            raise
        finally:  # the call may have kept the error as its answer
            if _is_lost(raw, failed):
                await connection.invalidate()

    return on


def async_session_caller(session: Any, engine: Engine, below: Below) -> AsyncPlay:
    """Return what runs calls on an AsyncSession, or an async_scoped_session."""

    async def on(work: Work, writes: bool) -> None:
        await async_connection_caller(await session.connection(), engine, below)(work, writes)

    return on


def _begin_below(connection: Any) -> None:
    # asyncpg begins nothing by itself: SQLAlchemy does, before its first statement, unless it is told to autocommit.
    connection.connection.cursor().execute("SELECT 1")


def _is_lost(raw: Any, error: BaseException | None) -> bool:
    # As psycopg, PyMySQL and asyncmy say it; not all of them notice before the next statement.
    signs = (getattr(raw, "closed", False), not getattr(raw, "open", True), not getattr(raw, "connected", True))
    return any(signs) or isinstance(error, CannotOpen)
