"""PostgreSQL, by psycopg 3: connections, and errors by their SQLSTATE."""

from __future__ import annotations

import re
import time
from random import Random
from typing import Any
from urllib.parse import urlsplit

import psycopg
from psycopg import postgres
from psycopg.adapt import AdaptersMap

from roost.dialects import POSTGRESQL, Control
from roost.dialects.dialect import Row
from roost.engines.engine import Trace, Wait
from roost.engines.server import ServerExecutor
from roost.errors import (
    Busy,
    CannotOpen,
    Conflict,
    DatabaseError,
    DiskFull,
    Error,
    Invalid,
    Missing,
    ReadOnly,
    StatementFailed,
)

# READ COMMITTED whatever the database's default: what a write depends on is read by locking reads.
BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
BEGIN_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"  # one snapshot
CREATE_LOCK = 0x726F6F7374  # "roost": the advisory lock of those who make or change structures


FAILURES = psycopg.Error

# Values are converted as psycopg does, whatever the application has registered with it.
ADAPTERS = AdaptersMap(types=psycopg.adapters.types)
postgres.register_default_adapters(ADAPTERS)


class PostgreSQLEngine:
    """One PostgreSQL database."""

    dialect = POSTGRESQL
    memory = False
    file: str | None = None

    def __init__(self, url: str, *, timeout: float, trace: Trace | None, random: Random) -> None:
        self.url = re.sub(r"\A(postgres|postgresql)(\+\w+)?://", "postgresql://", url)
        self.timeout = timeout
        self.trace = trace
        self.random = random
        try:
            parts = urlsplit(self.url)
            self.place = f"postgresql://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"
        except ValueError as error:
            raise Invalid(f"{url!r} is no URL of a database: {error}") from error
        try:
            psycopg.conninfo.conninfo_to_dict(self.url)
        except psycopg.ProgrammingError as error:
            raise Invalid(f"{self.place}: {error}") from error

    def connect(self, wait: Wait, *, writes: bool = True, create: bool = False) -> PostgreSQLConnection:
        """Open a connection."""
        try:
            raw = psycopg.connect(self.url, autocommit=True, context=ADAPTERS)
            raw.execute("SET TIME ZONE 'UTC'")
        except psycopg.Error as error:
            raise CannotOpen(f"{self.place}: {str(error).strip()}") from error
        return PostgreSQLConnection(self, raw, wait)


class PostgreSQLConnection(ServerExecutor):
    """One connection."""

    failures = psycopg.Error

    def __init__(self, engine: PostgreSQLEngine, raw: psycopg.Connection[Any], wait: Wait) -> None:
        super().__init__(raw.cursor(), engine.trace)
        self.raw = raw
        self.wait = wait
        self.broken = False
        self._engine = engine

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, one that has failed included."""
        return self.raw.info.transaction_status in (
            psycopg.pq.TransactionStatus.INTRANS,
            psycopg.pq.TransactionStatus.INERROR,
        )

    def obey(self, word: Control) -> None:
        """Do what a control word means."""
        match word:
            case Control.BEGIN:
                self.say(BEGIN)
                left = max(1, round(1000 * (self.wait.deadline - time.monotonic())))
                self.say(f"SET LOCAL lock_timeout = {left}")
            case Control.BEGIN_READ:
                self.say(BEGIN_READ)
            case Control.COMMIT:
                self.wait.pause()
                self.say("COMMIT")
            case Control.ROLLBACK:
                self.settle()
            case Control.JITTER:
                time.sleep(self._engine.random.random() * 0.02)
            case Control.LOCK_CATALOG:
                self.say(f"SELECT pg_advisory_xact_lock({CREATE_LOCK})")
            case _:
                pass  # LOCKED: for the batch alone; savepoints: for transactions of the application

    def failed(self, error: psycopg.Error, sql: str) -> Error:
        """Return our error; note when the connection is lost."""
        found = translate(error, self._engine.place, sql)
        self.broken = self.raw.closed or self.raw.broken
        return found

    def settle(self) -> None:
        """Roll back what is open. Never raises."""
        try:
            if self.in_transaction:
                self.raw.execute("ROLLBACK")
        except psycopg.Error:
            self.broken = True

    def close(self) -> None:
        """Close the connection; the server rolls back whatever is open."""
        self.raw.close()


def translate(error: psycopg.Error, place: str, sql: str = "") -> Error:
    """Return our error for one of PostgreSQL's, by its SQLSTATE."""
    state = error.sqlstate or ""
    told = f"{place}: {str(error).strip()}"
    match state[:2], state:
        case _, "40001" | "40P01":
            return Conflict(told)
        case _, "55P03":
            return Busy(f"{place}: another transaction holds a lock that is needed ({error.diag.message_primary})")
        case _, "42P01" if "roost_" in str(error):
            return Missing(f"{told}; store.create(...) makes the tables, store.check() tells what is there")
        case "53", "53100":
            return DiskFull(told)
        case _, "57014":  # cancelled, or longer than statement_timeout allows; the connection is as it was
            return DatabaseError(told)
        case _, "25006":
            return ReadOnly(told)
        case _, "" if "NUL" in told:
            return StatementFailed(f"{told}{f' in {sql}' if sql else ''}")
        case (("22" | "23" | "42" | "P0" | "44" | "0A" | "54"), _):
            return StatementFailed(f"{told}{f' in {sql}' if sql else ''}")
        case (("08" | "57" | "28" | "3D" | "53"), _):
            return CannotOpen(told)
    return DatabaseError(f"{told}{f' in {sql}' if sql else ''}")


class PlainCursor(psycopg.Cursor[Row]):
    """A cursor on a connection of the application's, which has none of its settings."""

    adapters = property(lambda self: ADAPTERS)

    def __init__(self, raw: psycopg.Connection[Any]) -> None:
        super().__init__(raw, row_factory=psycopg.rows.tuple_row)
        self.format = psycopg.pq.Format.BINARY  # texts depend on DateStyle and extra_float_digits


class AsyncPlainCursor(psycopg.AsyncCursor[Row]):
    """`PlainCursor` for asyncio."""

    adapters = property(lambda self: ADAPTERS)

    def __init__(self, raw: psycopg.AsyncConnection[Any]) -> None:
        super().__init__(raw, row_factory=psycopg.rows.tuple_row)
        self.format = psycopg.pq.Format.BINARY


def is_idle(raw: Any) -> bool:
    """Return whether a connection has no transaction open."""
    return bool(raw.info.transaction_status == psycopg.pq.TransactionStatus.IDLE)
