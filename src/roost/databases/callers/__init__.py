"""The application's own connections, recognized by the names of their classes, without importing any driver.

SQLAlchemy 2 is not imported either: what runs is the driver's connection of a Connection or Session. SQLAlchemy begins
the transaction, as for one of its own statements, so it knows that there is something to commit. The savepoint is not
SQLAlchemy's: `begin_nested` would flush a session, expire its objects when a call fails, and run event handlers; a raw
savepoint changes none of its state. A session is not flushed. A lost connection is invalidated, as SQLAlchemy does: its
pool replaces it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from roost.databases.callers.caller import Play, Work, now, settled, turn
from roost.databases.engine import Engine
from roost.errors import CannotOpen, Invalid

__all__ = ["Play", "Work", "async_caller_of", "caller_of"]

SQLALCHEMY = "sqlalchemy"


@dataclass(frozen=True, slots=True)
class _Kind:
    """One class of connections.

    words: its name in messages.
    function: what runs a call on it, in which module: one of a driver's, or this one.
    dialect: its dialect's family; None: its driver's.
    waits, awaits: whether it is for `Store.on`, and for `AsyncStore.on`.
    scoped: an object is a session for each thread or task, which take their turns by themselves.
    """

    words: str
    function: str
    dialect: str | None = None
    waits: bool = False
    awaits: bool = False
    scoped: bool = False


def caller_of(connection: Any, engine: Engine) -> Callable[[Work, bool], None]:
    """Return the object that runs calls on a connection of the application; `Invalid` if it cannot be used."""
    play = _caller_of(connection, engine, awaits=False)
    return lambda work, writes: now(play(work, writes))


def async_caller_of(connection: Any, engine: Engine) -> Play:
    """Return the object that runs calls on an asyncio connection of the application; `Invalid` if it cannot be used."""
    return _caller_of(connection, engine, awaits=True)


def _caller_of(connection: Any, engine: Engine, awaits: bool) -> Play:
    kind = _kind_of(connection, engine)
    method, suits = ("AsyncStore.on", "awaits") if awaits else ("Store.on", "waits")
    if kind is None:
        names = dict.fromkeys([each.words for each in _KINDS.values() if getattr(each, suits)])
        found = type(connection)
        raise Invalid(f"{method} takes {', '.join(names)}; not a {found.__module__}.{found.__qualname__}")
    if not getattr(kind, suits):
        why = "would block the event loop; use Store.on" if awaits else "is awaited; use AsyncStore.on"
        raise Invalid(f"{method}: {kind.words} {why}")
    call = _function_of(kind)

    async def on(work: Work, writes: bool) -> None:
        if kind.scoped:
            await call(connection, engine, awaits, work, writes)
        elif kind.waits:
            with turn(connection, threading.RLock):
                await call(connection, engine, awaits, work, writes)
        else:
            async with turn(connection, asyncio.Lock):
                await call(connection, engine, awaits, work, writes)

    return on


def _function_of(kind: _Kind) -> Callable[[Any, Engine, bool, Work, bool], Coroutine[Any, Any, None]]:
    module, name = kind.function.split(".")
    # A store of the same engine has already imported PyMySQL or psycopg; an application with a connection of asyncmy or
    # asyncpg has imported that.
    found = globals() if module == SQLALCHEMY else vars(import_module(f"roost.databases.callers.{module}"))
    call: Callable[[Any, Engine, bool, Work, bool], Coroutine[Any, Any, None]] = found[name]
    return call


def _kind_of(connection: Any, engine: Engine) -> _Kind | None:
    for cls in type(connection).__mro__:
        kind = _KINDS.get(f"{cls.__module__}.{cls.__qualname__}")
        if kind is not None:
            if kind.dialect not in (None, engine.dialect.family):
                raise Invalid(f"store.on: {kind.words} is not one to {engine.place}, the store's database")
            return kind
    return None


async def _connection(connection: Any, engine: Engine, awaits: bool, work: Work, writes: bool) -> None:
    # On a Connection or AsyncConnection of SQLAlchemy.
    if not connection.in_transaction():
        begun = connection.begin()
        if awaits:
            await begun
    below = await connection.get_raw_connection() if awaits else connection.connection
    raw = below.driver_connection
    if hasattr(raw, "is_in_transaction") and not raw.is_in_transaction():
        # asyncpg begins nothing by itself: SQLAlchemy does, before its first statement, unless it is to autocommit.
        await connection.run_sync(lambda sync: sync.connection.cursor().execute("SELECT 1"))
    failed: BaseException | None = None
    try:
        await _caller_of(raw, engine, awaits)(work, writes)
    except BaseException as error:
        failed = error
        raise
    finally:  # the call may have kept the error as its answer
        if _is_lost(raw, failed):
            await settled(connection.invalidate())


async def _session(session: Any, engine: Engine, awaits: bool, work: Work, writes: bool) -> None:
    # On the connection of a Session's transaction; or on this thread's, or task's, of a scoped one.
    below = session() if callable(session) else await settled(session.connection())
    await _caller_of(below, engine, awaits)(work, writes)


def _is_lost(raw: Any, error: BaseException | None) -> bool:
    # The attributes of psycopg, PyMySQL, asyncmy and asyncpg; some notice a lost connection only at the next statement.
    signs = (getattr(raw, "closed", False), not getattr(raw, "open", True), not getattr(raw, "connected", True))
    return any(signs) or getattr(raw, "is_closed", bool)() or isinstance(error, CannotOpen)


_ASYNCPG = _Kind("an asyncpg connection", "asyncpg.asyncpg_call", "postgresql", awaits=True)

_KINDS = {
    "sqlite3.Connection": _Kind("a sqlite3.Connection", "sqlite.sqlite3_call", "sqlite", waits=True, awaits=True),
    "aiosqlite.core.Connection": _Kind("an aiosqlite.Connection", "sqlite.aiosqlite_call", "sqlite", awaits=True),
    "pymysql.connections.Connection": _Kind("a PyMySQL connection", "mariadb.pymysql_call", "mariadb", waits=True),
    "asyncmy.connection.Connection": _Kind("an asyncmy connection", "mariadb.asyncmy_call", "mariadb", awaits=True),
    "psycopg.Connection": _Kind("a psycopg.Connection", "postgresql.psycopg_call", "postgresql", waits=True),
    "psycopg.AsyncConnection": _Kind("a psycopg.AsyncConnection", "postgresql.psycopg_call", "postgresql", awaits=True),
    "asyncpg.connection.Connection": _ASYNCPG,
    "asyncpg.pool.PoolConnectionProxy": _ASYNCPG,
    "sqlalchemy.engine.base.Connection": _Kind("a SQLAlchemy Connection", "sqlalchemy._connection", waits=True),
    "sqlalchemy.ext.asyncio.engine.AsyncConnection": _Kind(
        "a SQLAlchemy AsyncConnection", "sqlalchemy._connection", awaits=True
    ),
    "sqlalchemy.orm.session.Session": _Kind("a SQLAlchemy Session", "sqlalchemy._session", waits=True),
    "sqlalchemy.orm.scoping.scoped_session": _Kind(
        "a SQLAlchemy Session", "sqlalchemy._session", waits=True, scoped=True
    ),
    "sqlalchemy.ext.asyncio.session.AsyncSession": _Kind(
        "a SQLAlchemy AsyncSession", "sqlalchemy._session", awaits=True
    ),
    "sqlalchemy.ext.asyncio.scoping.async_scoped_session": _Kind(
        "a SQLAlchemy AsyncSession", "sqlalchemy._session", awaits=True, scoped=True
    ),
}
