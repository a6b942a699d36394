"""The application's own connections, recognized by the names of their classes, without importing any driver."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from roost.databases.callers import sqlalchemy
from roost.databases.callers.caller import AsyncPlay, Play, Work, turn
from roost.databases.callers.sqlite import aiosqlite_caller, sqlite3_caller
from roost.databases.engine import Engine
from roost.errors import Invalid

__all__ = ["AsyncPlay", "Play", "Work", "async_caller_of", "caller_of"]


@dataclass(frozen=True, slots=True)
class _Kind:
    """One class of connections: its name in messages, its dialect's family (None: its driver's), and its caller.

    scoped: an object is a session for each thread or task, which take their turns by themselves.
    """

    words: str
    dialect: str | None = None
    waits: Callable[[Any, Engine], Play] | None = None
    awaits: Callable[[Any, Engine], AsyncPlay] | None = None
    scoped: bool = False


def caller_of(connection: Any, engine: Engine) -> Play:
    """Return the object that runs calls on a connection of the application; `Invalid` if it cannot be used."""
    kind = _kind_of(connection, engine)
    if kind is None or kind.waits is None:
        if kind is not None:
            raise Invalid(f"Store.on: {kind.words} is awaited; use AsyncStore.on")
        raise Invalid(_refused("Store.on", connection, [each.words for each in _KINDS.values() if each.waits]))
    play = kind.waits(connection, engine)

    def on(work: Work, writes: bool) -> None:
        with turn(connection, threading.RLock):
            play(work, writes)

    return play if kind.scoped else on


def async_caller_of(connection: Any, engine: Engine) -> AsyncPlay:
    """Return the object that runs calls on an asyncio connection of the application; `Invalid` if it cannot be used."""
    kind = _kind_of(connection, engine)
    if kind is None or kind.awaits is None:
        if kind is not None:
            raise Invalid(f"AsyncStore.on: {kind.words} would block the event loop; use Store.on")
        raise Invalid(_refused("AsyncStore.on", connection, [each.words for each in _KINDS.values() if each.awaits]))
    play = kind.awaits(connection, engine)

    async def on(work: Work, writes: bool) -> None:
        async with turn(connection, asyncio.Lock):
            await play(work, writes)

    return play if kind.scoped else on


def _refused(method: str, connection: Any, kinds: list[str]) -> str:
    found = type(connection)
    return f"{method} takes {', '.join(dict.fromkeys(kinds))}; not a {found.__module__}.{found.__qualname__}"


def _kind_of(connection: Any, engine: Engine) -> _Kind | None:
    for cls in type(connection).__mro__:
        kind = _KINDS.get(f"{cls.__module__}.{cls.__qualname__}")
        if kind is not None:
            if kind.dialect not in (None, engine.dialect.family):
                raise Invalid(f"store.on: {kind.words} is not one to {engine.place}, the store's database")
            return kind
    return None


def _driver(module: str, name: str) -> Callable[[Any, Engine], Any]:
    # A store of the same engine has already imported PyMySQL or psycopg; an application with a connection of asyncmy or
    # asyncpg has imported that.
    def caller(connection: Any, engine: Engine) -> Any:
        return getattr(import_module(f"roost.databases.callers.{module}"), name)(connection, engine)

    return caller


def _waits(caller: Callable[[Any, Engine, sqlalchemy.Below], Play]) -> Callable[[Any, Engine], Play]:
    return lambda connection, engine: caller(connection, engine, caller_of)


def _awaits(caller: Callable[[Any, Engine, sqlalchemy.Below], AsyncPlay]) -> Callable[[Any, Engine], AsyncPlay]:
    return lambda connection, engine: caller(connection, engine, async_caller_of)


def _awaited_sqlite3(raw: Any, engine: Engine) -> AsyncPlay:
    # sqlite3 is synchronous: the event loop is blocked while the statements run.
    play = caller_of(raw, engine)

    async def on(work: Work, writes: bool) -> None:
        play(work, writes)

    return on


_ASYNCPG = _Kind("an asyncpg connection", "postgresql", awaits=_driver("asyncpg", "asyncpg_caller"))

_KINDS = {
    "sqlite3.Connection": _Kind("a sqlite3.Connection", "sqlite", sqlite3_caller, _awaited_sqlite3),
    "aiosqlite.core.Connection": _Kind("an aiosqlite.Connection", "sqlite", awaits=aiosqlite_caller),
    "pymysql.connections.Connection": _Kind("a PyMySQL connection", "mariadb", _driver("mariadb", "pymysql_caller")),
    "asyncmy.connection.Connection": _Kind(
        "an asyncmy connection", "mariadb", awaits=_driver("mariadb", "asyncmy_caller")
    ),
    "psycopg.Connection": _Kind("a psycopg.Connection", "postgresql", _driver("postgresql", "psycopg_caller")),
    "psycopg.AsyncConnection": _Kind(
        "a psycopg.AsyncConnection", "postgresql", awaits=_driver("postgresql", "async_psycopg_caller")
    ),
    "asyncpg.connection.Connection": _ASYNCPG,
    "asyncpg.pool.PoolConnectionProxy": _ASYNCPG,
    "sqlalchemy.engine.base.Connection": _Kind("a SQLAlchemy Connection", waits=_waits(sqlalchemy.connection_caller)),
    "sqlalchemy.ext.asyncio.engine.AsyncConnection": _Kind(
        "a SQLAlchemy AsyncConnection", awaits=_awaits(sqlalchemy.async_connection_caller)
    ),
    "sqlalchemy.orm.session.Session": _Kind("a SQLAlchemy Session", waits=_waits(sqlalchemy.session_caller)),
    "sqlalchemy.orm.scoping.scoped_session": _Kind(
        "a SQLAlchemy Session", waits=_waits(sqlalchemy.session_caller), scoped=True
    ),
    "sqlalchemy.ext.asyncio.session.AsyncSession": _Kind(
        "a SQLAlchemy AsyncSession", awaits=_awaits(sqlalchemy.async_session_caller)
    ),
    "sqlalchemy.ext.asyncio.scoping.async_scoped_session": _Kind(
        "a SQLAlchemy AsyncSession", awaits=_awaits(sqlalchemy.async_session_caller), scoped=True
    ),
}
