"""PostgreSQL, by psycopg 3: connections, and errors by their SQLSTATE.

No state of a session outlives a transaction, so a pooler may give each transaction another one (`?prepared=off`, as
prepared statements are such state). A batch is known by its number in the row of its writer: when the connection is
lost during COMMIT, that row tells on another one what became of it.

Rejected: `pg_xact_status` of the transaction's id. A server that crashes gives the id of a transaction of which nothing
was on disk to a later one, whose COMMIT would be taken for that of the lost one.
"""

from __future__ import annotations

import datetime as dt
import logging
import math
import re
import uuid
from functools import lru_cache
from random import Random
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import psycopg
from psycopg import postgres
from psycopg.adapt import AdaptersMap, PyFormat, Transformer
from psycopg.types.array import register_all_arrays

from roost.dialects import POSTGRESQL, Control
from roost.dialects.dialect import Row
from roost.engines.engine import Trace, Wait
from roost.engines.server import PAUSE, ServerConnection
from roost.errors import (
    Busy,
    CannotOpen,
    Conflict,
    ConnectionLost,
    DatabaseError,
    DiskFull,
    Error,
    Invalid,
    Missing,
    ReadOnly,
    StatementFailed,
)

log = logging.getLogger("roost")

CREATE_LOCK = 0x726F6F7374  # "roost": the advisory lock of those who make or change structures

# READ COMMITTED whatever the database's default: what a write depends on is read by locking reads.
BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED;\nSET LOCAL lock_timeout = {wait};\nSET LOCAL TIME ZONE 'UTC'"
BEGIN_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;\nSET LOCAL TIME ZONE 'UTC'"  # one snapshot
NAMED = "/* roost {name} */ "  # the beginning of every text of a batch that writes, by which its session is found

# What a batch is known by; in the same exchange as BEGIN.
NOTE = """\
INSERT INTO roost_writers (writer, batch, at) VALUES (%s, %s, now())
  ON CONFLICT (writer) DO UPDATE SET batch = excluded.batch, at = excluded.at"""
# As long as somebody's snapshot is old, each batch leaves a version of the row that all later ones have to pass by
# (measured: 15 µs per 1,000), so a writer goes by another name after so many.
MOST_BATCHES = 1000
FORGET = "DELETE FROM roost_writers WHERE writer = '{writer}'"
FORGET_OLD = """\
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET LOCAL lock_timeout = {wait};
DELETE FROM roost_writers WHERE writer IN (
  SELECT writer FROM roost_writers WHERE at < now() - interval '1 day' LIMIT 100 FOR UPDATE SKIP LOCKED)"""
# Waits for a transaction that is not yet over: it has the row, which is perhaps its first and not to be seen yet.
LAST_BATCH = """\
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET LOCAL lock_timeout = {wait};
INSERT INTO roost_writers AS w (writer, batch, at) VALUES ('{writer}', 0, now())
  ON CONFLICT (writer) DO UPDATE SET at = excluded.at RETURNING w.batch"""
END = """\
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
  WHERE starts_with(query, %s) AND state <> 'idle' AND pid <> pg_backend_pid()"""

FAILURES = psycopg.Error

USES = 5  # of a statement before it is prepared, as with psycopg
MOST_PREPARED = 100  # on one connection; the oldest goes

# Values are converted as psycopg does, whatever the application has registered with it.
ADAPTERS = AdaptersMap(types=psycopg.adapters.types)
postgres.register_default_adapters(ADAPTERS)
register_all_arrays(ADAPTERS)


class PostgreSQLEngine:
    """One PostgreSQL database."""

    dialect = POSTGRESQL
    memory = False
    file: str | None = None
    durability: str | None = None
    reached = False

    def __init__(self, url: str, *, timeout: float, trace: Trace | None, random: Random) -> None:
        self.timeout = timeout
        self.trace = trace
        self.random = random
        self.url, self.place, self.prepares = _parse(url)

    def connect(self, wait: Wait, *, writes: bool = True, create: bool = False) -> PostgreSQLConnection:
        """Open a connection."""
        return PostgreSQLConnection(self, wait)

    def open(self, timeout: float) -> psycopg.Connection[Any]:
        """Return a new connection of the driver; `ConnectionLost` where another attempt may succeed."""
        options: dict[str, Any] = {"prepare_threshold": None}
        if "connect_timeout" not in self.url:
            options["connect_timeout"] = max(2, math.ceil(timeout))  # libpq takes 1 for 2
        try:
            return psycopg.connect(self.url, autocommit=True, context=ADAPTERS, **options)
        except psycopg.Error as error:
            told = f"{self.place}: {str(error).strip()}"
            refused = re.search(r"authentication|password|pg_hba|does not exist|permission|certificate", told)
            raise (CannotOpen if refused else ConnectionLost)(told) from error


def _parse(url: str) -> tuple[str, str, bool]:
    # As libpq takes it, the place without a password, and whether statements are prepared.
    url = re.sub(r"\A(postgres|postgresql)(\+\w+)?://", "postgresql://", url)
    try:
        parts = urlsplit(url)
        place = f"postgresql://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"
    except ValueError as error:
        raise Invalid(f"this is no URL of a database: {error}") from error
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    prepared = options.pop("prepared", "on")
    if prepared not in ("on", "off"):
        raise Invalid(f"{place}: prepared is on or off, not {prepared!r}")
    if "ssl" in options:  # asyncpg's name for it
        options["sslmode"] = {"true": "require", "false": "disable"}.get(options["ssl"], options["ssl"])
        del options["ssl"]
    # Not urlunsplit, which leaves out an empty host with its slashes; libpq takes a + as it is.
    made = f"{url.partition('?')[0]}?{urlencode(options, quote_via=quote)}".rstrip("?")
    try:
        psycopg.conninfo.conninfo_to_dict(made)
    except psycopg.ProgrammingError as error:
        raise Invalid(f"{place}: {error}") from error
    return made, place, prepared == "on"


class PostgreSQLConnection(ServerConnection):
    """One connection."""

    failures = FAILURES
    raw: psycopg.Connection[Any]
    engine: PostgreSQLEngine

    def __init__(self, engine: PostgreSQLEngine, wait: Wait) -> None:
        self._uses: dict[str, int] = {}  # how often a statement was asked for that is not prepared
        self._names: dict[str, str] = {}  # of those that are
        self._prepared = 0  # numbers them
        self._id = uuid.uuid4().hex  # a pooler's session may have others' statements, which must not be taken for ours
        super().__init__(engine, wait)
        self._name = NAMED.format(name=self._id)

    def _connect(self, wait: Wait) -> None:
        super()._connect(wait)
        self._names.clear()
        self._transformer = Transformer(self.raw)

    @property
    def session(self) -> int | None:
        """The number by which the server knows it."""
        return self.raw.info.backend_pid

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, one that has failed included."""
        return self.raw.info.transaction_status in (
            psycopg.pq.TransactionStatus.INTRANS,
            psycopg.pq.TransactionStatus.INERROR,
        )

    def obey(self, word: Control) -> Any:
        """Do what a control word means."""
        if word is Control.LOCK_CATALOG:
            return self.say(f"SELECT pg_advisory_xact_lock({CREATE_LOCK})")
        return super().obey(word)

    def sent(self, sql: str, row: Row) -> tuple[str, Row | None]:
        """Return a statement as the cursor takes it."""
        return self._mark + sql, row or None

    def written(self, sql: str, row: Row) -> str:
        """Return a statement with its parameters written into it.

        So all of an exchange is one text. One that comes again and again is prepared by a statement of its own: to plan
        it takes as long as to run it for a hundred rows.
        """
        if not row:
            return sql
        name = self._names.get(sql) or self._prepare(sql, len(row))
        values = tuple([self._written(value) for value in row])
        return f"EXECUTE {name}({', '.join(values)})" if name else sql % values

    def _prepare(self, sql: str, parameters: int) -> str | None:
        if not self.engine.prepares:
            return None
        uses = self._uses[sql] = self._uses.get(sql, 0) + 1
        if uses < USES:
            if len(self._uses) > MOST_PREPARED:
                self._uses.clear()
            return None
        if len(self._names) >= MOST_PREPARED:
            oldest = next(iter(self._names))
            self.say(f"DEALLOCATE {self._names.pop(oldest)}")
        self._prepared += 1
        name = f"roost_{self._id}_{self._prepared}"
        self.say(f"PREPARE {name} AS {sql % tuple([f'${n}' for n in range(1, parameters + 1)])}")
        del self._uses[sql]
        self._names[sql] = name
        return name

    def _written(self, value: Any) -> str:
        # Without a cast: it becomes what the parameter is, whatever psycopg would take it for.
        if value is None:
            return "NULL"
        if type(value) is int:
            return str(value)
        if type(value) is list and (array := _array(value)) is not None:
            return array
        return bytes(self._transformer.get_dumper(value, PyFormat.TEXT).quote(value)).decode()

    def begin(self, word: Control) -> None:
        """Begin, all in one exchange."""
        if word is Control.BEGIN_READ:
            self._begin = [BEGIN_READ]
            return None
        wait = max(1, round(1000 * self.lock_wait(word)))  # milliseconds; 0 is without end
        begin = BEGIN.format(wait=wait)
        if word is Control.BEGIN_ALONE:
            return self.say_all(begin)
        if not self._noted:
            self._enrol()
        self._batch += 1
        self._mark = self._name
        self._begin = [begin, *self._note()] if self._noted else [begin]
        return None

    def _enrol(self) -> None:
        # With the first batch; who comes anew removes those of processes that were killed.
        try:
            self.say_all(FORGET_OLD.format(wait=max(1, round(1000 * self.wait.left))))
            self._noted = True
        except Missing:
            pass  # nothing was created yet: the plans tell better what is missing

    def _note(self) -> list[str]:
        old, renewed = self._writer, self._batch % MOST_BATCHES == 0
        if renewed:
            self._writer = uuid.uuid4().hex
        note = self.written(NOTE, (self._writer, self._batch))
        return [FORGET.format(writer=old), note] if renewed else [note]

    def commit(self) -> None:
        """Commit; a transaction that has failed cannot be."""
        self.say("COMMIT")
        if self._cursor.statusmessage != "COMMIT":
            raise StatementFailed(f"{self.engine.place}: the transaction had failed, and was rolled back at its end")

    def roll_back(self) -> None:
        """Roll back what is open."""
        if not self.raw.closed and self.in_transaction:
            self.say("ROLLBACK")

    def end_lost(self) -> None:
        """End the transaction of the connection before this one, where the server has not noticed that it was lost."""
        try:
            self.say(END, (self._name,))
        except ConnectionLost:
            raise
        except Error as error:
            log.debug("a session that was lost could not be ended: %s", error)

    def look_up(self, wait: Wait) -> bool | None:
        """Read the writer's row, under its lock: a transaction that is not yet over still has it."""
        if not self._noted:
            return None
        while True:
            try:
                self.say_all(LAST_BATCH.format(writer=self._writer, wait=round(1000 * PAUSE)))
                return bool(self._cursor.fetchall() == [(self._batch,)])
            except Busy:
                if wait.left <= 0:
                    return None
            log.info("ending the transaction of a connection that was lost")  # the server has not noticed that it is
            self.end_lost()

    def failed(self, error: psycopg.Error, sql: str) -> Error:
        """Return our error; note when the connection is lost."""
        if error.sqlstate == "26000":  # somebody has dropped what was prepared, a pooler for example
            self._names.clear()
            return Conflict(f"{self.engine.place}: {str(error).strip()}")
        found = translate(error, self.engine.place, sql)
        if self.raw.closed or self.raw.broken:
            self.broken = True
            return ConnectionLost(str(found))
        return found

    def close_raw(self) -> None:
        """Close the driver's connection."""
        self.raw.close()

    def forget(self) -> None:
        """Remove the writer's row."""
        self.say_all(f"SET LOCAL lock_timeout = {round(1000 * PAUSE)};\n{FORGET.format(writer=self._writer)}")


def translate(error: psycopg.Error, place: str, sql: str = "") -> Error:
    """Return our error for one of PostgreSQL's, by its SQLSTATE."""
    state = error.sqlstate or ""
    told = f"{place}: {str(error).strip()}"
    where = f"{told}{f' in {sql}' if sql else ''}"
    match state[:2], state:
        case _, "40001" | "40P01":
            return Conflict(told)
        case _, "55P03" | "57014":
            return Busy(f"{place}: another transaction holds a lock that is needed ({error.diag.message_primary})")
        case _, "42P01" if "roost_" in str(error):
            return Missing(f"{told}; store.create(...) makes the tables, store.check() tells what is there")
        case "53", "53100":
            return DiskFull(told)
        case _, "25006":
            return ReadOnly(told)
        case _, "" if isinstance(error, psycopg.DataError):  # psycopg itself refused: NUL in text
            return StatementFailed(where)
        case _, "57P01" | "57P02" | "57P03" | "25P03" | "57P05":
            return ConnectionLost(told)
        case "57", _:
            return CannotOpen(told)
        case (("" | "08" | "25" | "28" | "3D" | "53" | "58" | "F0" | "XX"), _):
            return DatabaseError(where)
    return StatementFailed(where)  # a trigger's author may choose any other


def _array(values: list[Any]) -> str | None:
    # Of numbers or moments: psycopg looks at each of them, which takes ten times as long.
    match {*map(type, values)}:
        case kinds if kinds == {int}:
            return f"'{{{','.join(map(str, values))}}}'"
        case kinds if kinds == {dt.datetime}:
            return f"'{{{','.join(map(_moment, values))}}}'"
    return None


@lru_cache(256)
def _moment(value: dt.datetime) -> str:
    return f'"{value.isoformat(" ")}"'  # a batch has one for all its rows


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
