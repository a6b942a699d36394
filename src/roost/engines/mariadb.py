"""MariaDB, by PyMySQL: connections, and errors by their numbers."""

from __future__ import annotations

import re
import time
from random import Random
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pymysql
import pymysql.converters
import pymysql.cursors

from roost.dialects import MARIADB, Control
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
from roost.plans.plan import Careful

DEADLOCK, LOCK_WAIT, NO_TABLE, NO_SAVEPOINT, OUT_OF_RANGE = 1213, 1205, 1146, 1305, 1690

FAILURES, CONVERSIONS, PlainCursor = pymysql.MySQLError, pymysql.converters.conversions, pymysql.cursors.Cursor


SQL_MODE = "STRICT_ALL_TABLES,PIPES_AS_CONCAT"  # a value that does not fit is an error


def arguments(url: str) -> tuple[dict[str, Any], str]:
    """Return what PyMySQL connects with, and the place in words without a password."""
    parts = urlsplit(re.sub(r"\A(mysql|mariadb)(\+\w+)?://", "mysql://", url))
    options = dict(parse_qsl(parts.query))
    name = unquote(parts.path[1:])
    place = f"mysql://{parts.hostname or 'localhost'}{f':{parts.port}' if parts.port else ''}/{name}"
    if not name:
        raise Invalid(f"{place}: a URL names a database, mysql://user:password@host/database")
    found: dict[str, Any] = {
        "host": parts.hostname or "localhost",
        "port": parts.port or 3306,
        "user": unquote(parts.username or "root"),
        "password": unquote(parts.password or ""),
        "database": name,
        "charset": "utf8mb4",
    }
    for option in ("ssl_ca", "ssl_cert", "ssl_key", "unix_socket"):
        if option in options:
            found[option] = options.pop(option)
    if options:
        raise Invalid(f"{place}: {', '.join(options)} is no option; there are ssl_ca, ssl_cert, ssl_key, unix_socket")
    return found, place


class MariaDBEngine:
    """One MariaDB database."""

    dialect = MARIADB
    memory = False
    file: str | None = None

    def __init__(self, url: str, *, timeout: float, trace: Trace | None, random: Random) -> None:
        self._arguments, self.place = arguments(url)
        self.timeout = timeout
        self.trace = trace
        self.random = random

    def connect(self, wait: Wait, *, writes: bool = True, create: bool = False) -> MariaDBConnection:
        """Open a connection."""
        try:
            raw = pymysql.connect(**self._arguments, autocommit=True, sql_mode=SQL_MODE)
        except pymysql.MySQLError as error:
            raise CannotOpen(f"{self.place}: {error}") from error
        return MariaDBConnection(self, raw, wait)


class MariaDBConnection(ServerExecutor):
    """One connection."""

    failures = pymysql.MySQLError

    def __init__(self, engine: MariaDBEngine, raw: pymysql.Connection[Any], wait: Wait) -> None:
        super().__init__(raw.cursor(), engine.trace)
        self.raw = raw
        self.wait = wait
        self.broken = False
        self.in_transaction = False
        self._engine = engine

    def obey(self, word: Control) -> None:
        """Do what a control word means."""
        match word:
            case Control.BEGIN:
                # READ COMMITTED whatever the session's default.
                left = max(1, round(self.wait.deadline - time.monotonic()))
                self.say(f"SET innodb_lock_wait_timeout = {left}")
                self.say("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
                self.say("BEGIN")
                self.in_transaction = True
            case Control.BEGIN_READ:
                self.say("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                self.say("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
                self.in_transaction = True
            case Control.COMMIT:
                self.wait.pause()
                self.say("COMMIT")
                self.in_transaction = False
                self._unlock()
            case Control.ROLLBACK:
                self.settle()
            case Control.JITTER:
                time.sleep(self._engine.random.random() * 0.02)
            case Control.LOCK_CATALOG:  # tables are made outside of transactions: the lock is the session's
                left = max(0, round(self.wait.deadline - time.monotonic()))
                self.say(f"SELECT GET_LOCK('roost_catalog', {left})")
                if self._cursor.fetchall() != ((1,),):
                    raise Busy(f"{self._engine.place}: another process is making or changing structures")
                self._locked = True
            case _:
                pass  # LOCKED: for the batch alone; savepoints: for transactions of the application

    _locked = False

    def _unlock(self) -> None:
        if self._locked:
            self._locked = False
            self.say("SELECT RELEASE_LOCK('roost_catalog')")

    def failed(self, error: pymysql.MySQLError, sql: str) -> Exception:
        """Return our error; note when the connection is lost."""
        self.broken = not self.raw.open
        return failure(error, self._engine.place, sql)

    def settle(self) -> None:
        """Roll back what is open. Never raises."""
        try:
            if self.in_transaction:
                self.in_transaction = False
                self.raw.rollback()
            self._unlock()
        except (pymysql.MySQLError, Error):
            self.broken = True

    def close(self) -> None:
        """Close the connection; the server rolls back whatever is open."""
        if self.raw.open:
            self.raw.close()


def failure(error: Exception, place: str, sql: str) -> Exception:
    """Return what a statement's error is to a plan."""
    return Careful() if error.args[:1] == (OUT_OF_RANGE,) else translate(error, place, sql)


def translate(error: Exception, place: str, sql: str = "") -> Error:
    """Return our error for one of MariaDB's, by its number. The classes of PyMySQL and asyncmy have the same names."""
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    told = f"{place}: {error.args[1] if len(error.args) > 1 else error} ({code})"
    match code:
        case 1213 | 1020:
            return Conflict(told)
        case 1205:
            return Busy(f"{place}: another transaction holds a lock that is needed ({code})")
        case 1146 if "roost_" in told:
            return Missing(f"{told}; store.create(...) makes the tables, store.check() tells what is there")
        case 1021 | 1114 | 3:
            return DiskFull(told)
        case 1290 | 1792 | 1036:
            return ReadOnly(told)
        case 1044 | 1045 | 1049 | 2002 | 2003 | 2006 | 2013 | 1927 | 1053:
            return CannotOpen(told)
        case 0 if type(error).__name__ == "InterfaceError":  # the driver itself: the connection was closed
            return CannotOpen(told)
    if type(error).__name__ in ("DataError", "IntegrityError", "ProgrammingError") or code in (
        *(1054, 1064, 1118, 1146, 1264, 1364, 1406, 1644, 1071, 1103, 1059),
    ):
        return StatementFailed(f"{told}{f' in {sql}' if sql else ''}")
    return DatabaseError(f"{told}{f' in {sql}' if sql else ''}")
