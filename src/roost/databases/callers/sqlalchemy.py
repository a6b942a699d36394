"""SQLAlchemy 2: uses the driver's connection of a Connection or Session. SQLAlchemy itself is not imported.

SQLAlchemy begins the transaction, as for one of its own statements, so it knows that there is something to commit.
The savepoint is not SQLAlchemy's: `begin_nested` would flush a session, expire its objects when a call fails, and run
event handlers; a raw savepoint changes none of its state. A session is not flushed. A lost connection is invalidated,
as SQLAlchemy does: its pool replaces it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from roost.databases.callers.caller import AsyncPlay, Play, Work
from roost.databases.engine import Engine
from roost.errors import CannotOpen

# The function that finds the caller for the driver's connection.
Below = Callable[[Any, Engine], Any]


def connection_caller(connection: Any, engine: Engine, below: Below) -> Play:
    """Return the caller for a Connection."""

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


def async_connection_caller(connection: Any, engine: Engine, below: Below) -> AsyncPlay:
    """Return the caller for an AsyncConnection."""

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


def session_caller(session: Any, engine: Engine, below: Below) -> Play:
    """Return the caller for a Session, on the connection of its transaction; or a scoped_session, of this thread."""

    def on(work: Work, writes: bool) -> None:
        below(session() if callable(session) else session.connection(), engine)(work, writes)

    return on


def async_session_caller(session: Any, engine: Engine, below: Below) -> AsyncPlay:
    """Return the caller for an AsyncSession or an async_scoped_session."""

    async def on(work: Work, writes: bool) -> None:
        await below(session() if callable(session) else await session.connection(), engine)(work, writes)

    return on


def _begin_below(connection: Any) -> None:
    # asyncpg begins nothing by itself: SQLAlchemy does, before its first statement, unless it is told to autocommit.
    connection.connection.cursor().execute("SELECT 1")


def _is_lost(raw: Any, error: BaseException | None) -> bool:
    # The attributes of psycopg, PyMySQL, asyncmy and asyncpg; some notice a lost connection only at the next statement.
    signs = (getattr(raw, "closed", False), not getattr(raw, "open", True), not getattr(raw, "connected", True))
    return any(signs) or getattr(raw, "is_closed", bool)() or isinstance(error, CannotOpen)
