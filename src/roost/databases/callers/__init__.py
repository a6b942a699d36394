"""The application's own connections: a call's savepoint in their transaction, and the cursor on which it runs.

It is written once, as coroutines: where the driver is not awaited, they wait for nothing, and `now` runs them. Nothing
is committed, no setting of the session is changed, and none of the application's cursors is used.

The connections are recognized by the names of their classes, without importing any driver.

SQLAlchemy 2 is not imported either: what runs is the driver's connection of a Connection or Session. SQLAlchemy begins
the transaction, as for one of its own statements, so it knows that there is something to commit. The savepoint is not
SQLAlchemy's: `begin_nested` would flush a session, expire its objects when a call fails, and run event handlers; a raw
savepoint changes none of its state. A session is not flushed. A lost connection is invalidated, as SQLAlchemy does: its
pool replaces it.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, TypeVar
from weakref import WeakValueDictionary, ref

from roost.databases.engine import Engine, Trace, adrive, at_fork, whole
from roost.databases.replicas import ServerEngine
from roost.databases.waits import Mutex
from roost.dialects.dialect import Control, Exchange, Row, Statement, Together, Wanted, collect, render
from roost.errors import CannotOpen, Invalid

L = TypeVar("L")

Work = Generator[Wanted, Any, None]
Play = Callable[[Work, bool], Coroutine[Any, Any, None]]  # drives a call to its end, in a savepoint; whether it writes

log = logging.getLogger("roost")

SAVEPOINT, BACK, RELEASE = (
    f"{word} roost_joined" for word in ("SAVEPOINT", "ROLLBACK TO SAVEPOINT", "RELEASE SAVEPOINT")
)

NO_TRANSACTION = (
    "store.on: the connection is in autocommit mode and no transaction is open, so the statements would not be one "
    "unit; BEGIN one first"
)


def nested(text: str, depth: int) -> str:
    """Return a statement about the savepoint at a depth; each has a name of its own, as MariaDB needs it."""
    return text if depth == 1 else f"{text}_{depth}"


class Caller(ABC):
    """One call on a connection of the application.

    failures: the class of the driver's errors, or several.
    cursor: the driver's, on which texts are sent; awaits: whether it is awaited.
    """

    failures: Any
    awaits = False
    _cancelled: asyncio.CancelledError | None = None  # a cancellation that came while something whole was sent

    def __init__(self, raw: Any, place: str, writes: bool, cursor: Any, trace: Trace | None) -> None:
        self.raw = raw
        self.place = place
        self.writes = writes
        self.cursor = cursor
        self.trace = trace
        self.depth = 0  # how many savepoints of the call are set, one inside the other

    async def play(self, work: Work) -> None:
        """Drive a call; if it is interrupted or cancelled, undo all of it, so that nothing of it may be committed."""
        try:
            await adrive(work, self)
            if self._cancelled is not None:
                raise self._cancelled
        except BaseException:
            try:
                await self.undo()
            except BaseException as error:
                self.abandon()
                if not isinstance(error, Exception):
                    raise
            if self._cancelled is not None:
                raise self._cancelled from None
            raise

    async def execute(self, wanted: Wanted) -> Any:
        if isinstance(wanted, Together):
            return [await self.execute(each) for each in wanted.statements]
        if isinstance(wanted, Exchange):
            return await self.at_once(wanted)
        return await (self.statement(wanted) if isinstance(wanted, Statement) else self.obey(wanted))

    async def statement(self, wanted: Statement) -> Any:
        returns = wanted.template.returns
        return collect(wanted, [await self.send(sql, row, returns) for sql, row in render(wanted)])

    async def obey(self, word: Control) -> None:
        match word:
            case Control.SAVEPOINT if self.depth:
                await self.say(nested(SAVEPOINT, self.depth + 1))
                self.depth += 1
            case Control.SAVEPOINT:
                await self.begin()
            case Control.BACK if self.depth and not self.is_lost():
                await self.say(nested(BACK, self.depth))
            case Control.RELEASE if self.depth and not self.is_lost():
                await self.say(nested(RELEASE, self.depth))
                self.depth -= 1

    async def undo(self) -> None:
        self.depth = min(self.depth, 1)
        for word in (Control.BACK, Control.RELEASE):
            await self.obey(word)

    def abandon(self) -> None:
        """Close the connection of an interrupted call that cannot be undone, so that nothing of it is committed."""
        if not self.is_lost():
            log.warning("%s: closed a connection, since an interrupted call could not be undone", self.place)
            self.close()

    def close(self) -> None:
        self.raw.close()

    async def at_once(self, exchange: Exchange) -> Row | None:
        """Do an operation as one text, in its own savepoint; return the row that begins with its result.

        None: nothing was done.
        """
        return None

    @abstractmethod
    async def begin(self) -> None:
        """Set the savepoint; `Invalid` if there is no transaction to set it in."""

    @abstractmethod
    def is_lost(self) -> bool:
        """Return whether the connection is lost, and the transaction with it."""

    @abstractmethod
    def failed(self, error: Any, sql: str) -> Exception:
        """Return the error to raise for an error of the driver."""

    async def say(self, sql: str) -> Any:
        """Send a text that is not cancelled.

        On PostgreSQL a statement that is cancelled aborts the transaction, and whether there is a savepoint to go back
        to would not be known.
        """
        if not self.awaits:
            return await self._send(sql)
        answer, cancelled = await whole(self._send(sql))
        self._cancelled = cancelled or self._cancelled
        return answer

    async def send(self, sql: str, row: Row = (), returns: bool | None = None, several: bool = False) -> Any:
        """Send a text; return its rows, or how many it changed.

        returns: whether rows come back; None: whatever there is.
        several: it is a text of several statements, of which one may have rows.
        """
        if self._cancelled is not None:
            raise self._cancelled
        return await self._send(sql, row, returns, several)

    async def _send(self, sql: str, row: Row = (), returns: bool | None = None, several: bool = False) -> Any:
        if self.trace is not None:
            self.trace(sql, row)
        try:
            return await self.answer(sql, row, returns, several)
        except self.failures as error:
            raise self.failed(error, sql) from error

    async def answer(self, sql: str, row: Row, returns: bool | None, several: bool) -> Any:
        """Send a text, and return its answer; raise the driver's error."""
        cursor = self.cursor
        if not several:
            sent = cursor.execute(*self.sent(sql, row))
            if self.awaits:
                await sent
            if returns or (returns is None and cursor.description):
                return await cursor.fetchall() if self.awaits else cursor.fetchall()
            return () if returns is None else cursor.rowcount
        await settled(cursor.execute(sql))
        rows: Sequence[Row] = ()
        while True:
            rows = await settled(cursor.fetchall()) if cursor.description else rows
            if not await settled(cursor.nextset()):
                return rows

    def sent(self, sql: str, row: Row) -> tuple[str, Row | None]:
        return sql, row or None


def now(work: Coroutine[Any, Any, L]) -> L:
    """Run a coroutine that blocks where it waits, and never suspends."""
    try:
        work.send(None)
    except StopIteration as stop:
        result: L = stop.value
        return result
    finally:
        work.close()
    raise AssertionError("it has suspended")


async def settled(value: L | Awaitable[L]) -> L:
    """Return a value, awaited where it is to be."""
    return await value if inspect.isawaitable(value) else value


# Calls on one connection take turns: the savepoints of two calls at once would undo each other's work.
_guard = Mutex()  # a signal handler may join, too
_locks: WeakValueDictionary[tuple[Any, int], Any] = WeakValueDictionary()


def turn(connection: object, kind: Callable[[], L]) -> L:
    """Return the lock of a connection, or of a session, which exists while calls use it.

    kind: RLock, so that a trace function or a signal handler may call too; or asyncio's Lock.
    """
    with _guard:
        made = kind()
        found: L = _locks.setdefault((kind, id(connection)), made)
        return found


def _forget() -> None:
    # In a child process, where the threads that held them do not exist.
    global _guard
    _guard = Mutex()
    _locks.clear()


at_fork(after_in_child=_forget)


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

    if not isinstance(engine, ServerEngine) or not engine.stale:
        return on
    replicas = engine.replicas

    async def noted(work: Work, writes: bool) -> None:
        try:
            await on(work, writes)
        finally:
            if writes:
                replicas.joins(id(connection), partial(_is_open, _weakly(connection)))

    return noted


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


def _weakly(raw: Any) -> Callable[[], Any]:
    try:
        return ref(raw)
    except TypeError:  # what asyncpg's pool lends
        return lambda: raw


def _is_open(found: Callable[[], Any]) -> bool:
    # Whether the transaction on a driver's connection may not have ended yet.
    raw = found()
    try:
        if hasattr(raw, "is_in_transaction"):  # asyncpg
            return bool(raw.is_in_transaction())
        if hasattr(raw, "info"):  # psycopg
            return raw.info.transaction_status in (1, 2, 3)
        return bool(raw.get_transaction_status() if hasattr(raw, "get_transaction_status") else raw.server_status & 1)
    except Exception:  # it was closed, or is gone
        return False


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
