"""The ways in which an application holds a transaction: a driver's connection, or SQLAlchemy over it, sync and async.

A test names none of them: it gets an `App`, which does what such an application would, and waits where that is awaited.
"""

from __future__ import annotations

import asyncio
import inspect
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiosqlite
import asyncmy
import asyncpg  # type: ignore[import-untyped]
import psycopg
import pymysql
import pytest
import sqlalchemy as sa
import sqlalchemy.ext.asyncio as sa_async
from sqlalchemy.orm import Session

import roost
from roost.databases.mariadb.address import arguments
from tests.suite.clients import ISOLATES


class App:
    """An application with one connection, joined by a store of its own kind."""

    def __init__(self, way: Way, url: str, **options: Any) -> None:
        self.way = way
        self._loop = asyncio.new_event_loop()
        self.on_statement: Callable[[str], None] = lambda sql: None
        kind = roost.AsyncStore if way.awaited else roost.Store
        self.store: Any = kind(url, trace=lambda sql, _: self.on_statement(sql))
        self._closers: list[Callable[[], Any]] = [self.store.close]
        self.connection: Any = way.connect(self, url, **options)

    def wait(self, result: Any) -> Any:
        if not inspect.isawaitable(result):
            return result

        async def whole() -> Any:
            return await result

        return self._loop.run_until_complete(whole())

    @property
    def joined(self) -> Any:
        return self.store.on(self.connection)

    def run(self, operation: roost.Operation[Any]) -> Any:
        return self.wait(self.joined.run(operation))

    def run_all(self, *operations: roost.Operation[Any]) -> Any:
        return self.wait(self.joined.run_all(*operations))

    @property
    def _isolates(self) -> bool:
        return self.way.engine == "mariadb" and bool(self.sql(ISOLATES))

    def takes_what_is_committed(self) -> None:
        """Let what others commit meanwhile be no conflict, where the server isolates snapshots."""
        if self._isolates:
            self.sql("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")

    def run_behind(self, *operations: roost.Operation[Any]) -> Any:
        """Run operations on what others changed behind the snapshot: once a conflict, where the server isolates so."""
        if self._isolates:
            with pytest.raises(roost.Conflict):
                self.run_all(*operations)
            self.rollback()
        return self.run_all(*operations)

    def sql(self, text: str) -> list[Any]:
        return self.wait(self._sql(text)) or []

    async def _sql(self, text: str) -> list[Any]:
        async def had(result: Any) -> Any:
            return await result if inspect.isawaitable(result) else result

        connection = self.connection
        if self.way.name == "asyncpg":
            return [tuple(row) for row in await connection.fetch(text)]
        if hasattr(connection, "flush"):
            cursor = await had(connection.execute(sa.text(text)))
        elif self.way.sqlalchemy:
            cursor = await had(connection.exec_driver_sql(text))
        else:
            cursor = await had(connection.cursor())
            await had(cursor.execute(text))
        if not (cursor.returns_rows if self.way.sqlalchemy else cursor.description):
            return []
        return [tuple(row) for row in await had(cursor.fetchall())]

    def commit(self) -> None:
        self._end("COMMIT")

    def rollback(self) -> None:
        self._end("ROLLBACK")

    def _end(self, word: str) -> None:
        if self.way.name == "asyncpg":  # which has no methods for it, and begins nothing by itself
            self.wait(self.connection.execute(f"{word}; BEGIN"))
        else:
            self.wait(getattr(self.connection, word.lower())())

    def closes(self, closer: Callable[[], Any]) -> None:
        self._closers.append(closer)

    def closed(self, connection: Any) -> Any:
        """Return a connection that is closed with the application."""
        self.closes(connection.close)
        return connection

    def close(self) -> None:
        for closer in reversed(self._closers):
            self.wait(closer())
        self._loop.close()


@dataclass(frozen=True)
class Way:
    name: str
    engine: str
    connect: Callable[..., Any]
    awaited: bool = False
    sqlalchemy: bool = False

    @property
    def capabilities(self) -> frozenset[str]:
        """What a test may ask for with `@pytest.mark.ways(…)`."""
        return frozenset(
            [
                *(self.name, self.engine),
                *(["MySQL's protocol"] if self.engine in ("mariadb", "mysql") else []),
                "server" if self.engine != "sqlite-file" else "file",
                "awaited" if self.awaited else "blocking",
                "sqlalchemy" if self.sqlalchemy else "driver",
                f"over {self.name.removesuffix('-async').rpartition('-')[2]}",
            ]
        )


def path_of(url: str) -> str:
    return url.removeprefix("sqlite:///").partition("?")[0]


def _sqlite(connect: Callable[..., Any]) -> Callable[..., Any]:
    def made(app: App, url: str, *, autocommit: bool = False, **options: Any) -> Any:
        level = None if autocommit else "DEFERRED"
        return app.closed(app.wait(connect(path_of(url), isolation_level=level, **options)))

    return made


def _psycopg(connect: Callable[..., Any]) -> Callable[..., Any]:
    return lambda app, url, **options: app.closed(app.wait(connect(url, **{"autocommit": False, **options})))


def _pymysql(app: App, url: str, *, autocommit: bool = False, **options: Any) -> Any:
    connection = pymysql.connect(**{**arguments(url)[0], "autocommit": autocommit, **options})
    app.closes(lambda: connection.close() if connection.open else None)
    return connection


def _asyncmy(app: App, url: str, *, autocommit: bool = False, **options: Any) -> Any:
    connection: Any = app.wait(asyncmy.connect(**{**arguments(url)[0], "autocommit": autocommit, **options}))
    app.closes(lambda: connection.ensure_closed() if connection.connected else None)
    return connection


def _asyncpg(app: App, url: str, *, autocommit: bool = False, **options: Any) -> Any:
    connection = app.closed(app.wait(asyncpg.connect(url, **_for_asyncpg(options))))
    if not autocommit:
        app.wait(connection.execute("BEGIN"))
    return connection


def _for_asyncpg(options: dict[str, Any]) -> dict[str, Any]:
    # libpq's `options` by asyncpg's name for them.
    words = options.pop("options", "").replace("-c ", "").split()
    return {**options, "server_settings": dict(word.split("=") for word in words)}


DRIVERS = {"sqlite": "pysqlite", "mysql": "pymysql", "postgresql": "psycopg"}


def alchemy_url(url: str, driver: str | None = None) -> str:
    """Return a store's URL as SQLAlchemy takes it."""
    scheme, _, rest = url.partition("?")[0].partition("://")
    return f"{scheme}+{driver or DRIVERS[scheme]}://{rest}"


def _alchemy(driver: str, session: Any, create: Callable[..., Any]) -> Callable[..., Any]:
    def connect(app: App, url: str, *, autocommit: bool = False, **options: Any) -> Any:
        level = {"isolation_level": "AUTOCOMMIT"} if autocommit else {}
        options = _for_asyncpg(options) if driver == "asyncpg" else options
        engine = create(alchemy_url(url, driver), poolclass=sa.NullPool, connect_args=options, **level)
        app.closes(engine.dispose)
        return app.closed(session(engine) if session else app.wait(engine.connect()))

    return connect


WAYS = [
    Way("sqlite3", "sqlite-file", _sqlite(sqlite3.connect)),
    Way("aiosqlite", "sqlite-file", _sqlite(aiosqlite.connect), awaited=True),
    Way("pymysql", "mariadb", _pymysql),
    Way("asyncmy", "mariadb", _asyncmy, awaited=True),
    Way("pymysql", "mysql", _pymysql),
    Way("asyncmy", "mysql", _asyncmy, awaited=True),
    Way("psycopg", "postgresql", _psycopg(psycopg.connect)),
    Way("psycopg-async", "postgresql", _psycopg(psycopg.AsyncConnection.connect), awaited=True),
    Way("asyncpg", "postgresql", _asyncpg, awaited=True),
]
_BLOCKING = {"sqlite-file": ["pysqlite"], "mariadb": ["pymysql"], "mysql": ["pymysql"], "postgresql": ["psycopg"]}
_AWAITED = {"sqlite-file": ["aiosqlite"], "mariadb": ["asyncmy"], "mysql": ["asyncmy"]}
_AWAITED["postgresql"] = ["psycopg", "asyncpg"]
for _name in ("connection", "session"):
    for _kind, _drivers, _session, _create in (
        ("sqlalchemy", _BLOCKING, Session, sa.create_engine),
        ("sqlalchemy-async", _AWAITED, sa_async.AsyncSession, sa_async.create_async_engine),
    ):
        for _engine, _driver in [(engine, driver) for engine in _drivers for driver in _drivers[engine]]:
            _connect = _alchemy(_driver, _session if _name == "session" else None, _create)
            WAYS.append(Way(f"{_kind}-{_name}-{_driver}", _engine, _connect, _drivers is _AWAITED, sqlalchemy=True))
