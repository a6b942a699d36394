"""MariaDB, by PyMySQL: connections, and errors by their numbers."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from random import Random
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pymysql
import pymysql.err

from roost.dialects import MARIADB, Control, Statement
from roost.dialects.dialect import Answer, Gather, render, scatter
from roost.engines.engine import Trace, Wait
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

DEADLOCK, LOCK_WAIT, NO_TABLE, OUT_OF_RANGE = 1213, 1205, 1146, 1690


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


class MariaDBConnection:
    """One connection."""

    def __init__(self, engine: MariaDBEngine, raw: pymysql.Connection[Any], wait: Wait) -> None:
        self.raw = raw
        self.wait = wait
        self.broken = False
        self.in_transaction = False
        self._engine = engine
        self._trace = engine.trace
        self._cursor = raw.cursor()

    def execute(self, wanted: Statement | Control) -> Any:
        """Run a statement and return its answer, or obey a control word."""
        if isinstance(wanted, Statement):
            return self._run(wanted)
        match wanted:
            case Control.BEGIN:
                # READ COMMITTED whatever the session's default.
                left = max(1, round(self.wait.deadline - time.monotonic()))
                self._say(f"SET innodb_lock_wait_timeout = {left}")
                self._say("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
                self._say("BEGIN")
                self.in_transaction = True
            case Control.BEGIN_READ:
                self._say("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                self._say("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
                self.in_transaction = True
            case Control.COMMIT:
                self.wait.pause()
                self._say("COMMIT")
                self.in_transaction = False
                self._unlock()
            case Control.ROLLBACK:
                self.settle()
            case Control.JITTER:
                time.sleep(self._engine.random.random() * 0.02)
            case Control.LOCK_CATALOG:  # tables are made outside of transactions: the lock is the session's
                left = max(0, round(self.wait.deadline - time.monotonic()))
                self._say(f"SELECT GET_LOCK('roost_catalog', {left})")
                if self._cursor.fetchall() != ((1,),):
                    raise Busy(f"{self._engine.place}: another process is making or changing structures")
                self._locked = True
            case _:
                pass
        return None

    _locked = False

    def _unlock(self) -> None:
        if self._locked:
            self._locked = False
            self._say("SELECT RELEASE_LOCK('roost_catalog')")

    def _run(self, statement: Statement) -> Any:
        template = statement.template
        if not statement.rows:
            return [] if template.returns else 0
        if template.gather is Gather.EACH:
            if template.returns:
                return [self._fetched(sql, row) for sql, row in render(statement)]
            return sum([self._changed(sql, row) for sql, row in render(statement)])
        ((sql, row),) = render(statement)
        if template.answer is Answer.NONE:
            return self._changed(sql, row)
        return scatter(statement, self._fetched(sql, row))

    def _fetched(self, sql: str, row: Sequence[Any]) -> list[Any]:
        self._say(sql, row)
        return list(self._cursor.fetchall())

    def _changed(self, sql: str, row: Sequence[Any]) -> int:
        self._say(sql, row)
        return int(self._cursor.rowcount)

    def _say(self, sql: str, row: Sequence[Any] = ()) -> None:
        if self._trace is not None:
            self._trace(sql, row)
        try:
            self._cursor.execute(sql, row or None)
        except pymysql.MySQLError as error:
            raise self._failed(error, sql) from error

    def _failed(self, error: pymysql.MySQLError, sql: str) -> Exception:
        if error.args and error.args[0] == OUT_OF_RANGE:
            return Careful()
        self.broken = not self.raw.open
        return translate(error, self._engine.place, sql)

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


def translate(error: pymysql.MySQLError, place: str, sql: str = "") -> Error:
    """Return our error for one of MariaDB's, by its number."""
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
    if isinstance(error, (pymysql.err.DataError, pymysql.err.IntegrityError, pymysql.err.ProgrammingError)) or code in (
        *(1054, 1064, 1118, 1146, 1264, 1364, 1406, 1644, 1071, 1103, 1059),
    ):
        return StatementFailed(f"{told}{f' in {sql}' if sql else ''}")
    return DatabaseError(f"{told}{f' in {sql}' if sql else ''}")
