"""psycopg's connection with limits, and the session settings of PostgreSQL that Roost depends on, in one place.

Settings of the server, the database, the role, the environment (`PGOPTIONS`) or the application decide how SQL is
parsed and how values are returned. On Roost's own connections they are set, at connect or in each BEGIN, since behind a
pooler each transaction may run in another session. On a connection of the application nothing is set: either the
statements and results there do not depend on the setting, or the connection is refused.
"""

from __future__ import annotations

import datetime as dt
import socket
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import cached_property
from math import inf
from typing import Any, ClassVar, NamedTuple, TypeVar

import psycopg
from psycopg import postgres
from psycopg.abc import PQGen
from psycopg.adapt import AdaptersMap, Loader, PyFormat, Transformer
from psycopg.generators import execute
from psycopg.pq.abc import PGresult
from psycopg.types import datetime as moments
from psycopg.types.array import BaseListDumper, ListBinaryDumper, register_all_arrays
from psycopg.waiting import Ready

from roost.databases.engine import GRACE, left_unread
from roost.databases.waits import Watched, bytes_received
from roost.dialects.dialect import Row
from roost.errors import Invalid

BINARY, TEXT = psycopg.pq.Format.BINARY, psycopg.pq.Format.TEXT
TEXT_ARRAY = 1009  # the number of the type text[]


class Setting(NamedTuple):
    """One setting."""

    name: str
    connect: str = ""  # what Roost's own connections are opened with
    begin: str = ""  # what each of their transactions sets
    met: Callable[[str], bool] | None = None  # whether the value that the server reports does as well: nothing is set
    at_length: bool = False  # only in what takes long: create, alter, check
    arrays: bool = False  # only where arrays go out
    fits: Callable[[str], bool] | None = None  # whether a session whose server reports this value can be used
    why: str = ""  # it cannot


def is_utf8(value: str) -> bool:
    """Return whether an encoding that was reported is UTF8. PgBouncer repeats what its client has asked for.

    >>> [is_utf8(value) for value in ("UTF8", "'utf-8'", "UNICODE", "LATIN1")]
    [True, True, True, False]
    """
    return value.strip("'").replace("-", "").upper() in ("UTF8", "UNICODE")


SETTINGS = (
    Setting("server_encoding", fits=lambda value: value != "SQL_ASCII", why="under which texts are bytes of any kind"),
    Setting("client_encoding", "UTF8", fits=is_utf8, why="which cannot carry every text; set UTF8"),
    # How moments, dates and intervals are answered. A caller's connection answers in binary, always in UTC.
    Setting("TimeZone", begin="UTC", met=lambda value: value in ("UTC", "Etc/UTC")),
    Setting("DateStyle", begin="ISO", met=lambda value: value.startswith("ISO")),
    Setting("IntervalStyle", begin="postgres", met=lambda value: value == "postgres"),
    # How floats are: 1 and more are exact. In binary they always are.
    Setting("extra_float_digits", begin="1"),
    # Whether NULL in '{…}' is a text. On a caller's connection arrays go out in binary, on Django's as ARRAY[…].
    Setting("array_nulls", begin="on", arrays=True),
    # What the server's functions write: views that are compared, and search paths. On Django's own connection, which
    # `check` and migrations use, a view then looks changed.
    Setting("quote_all_identifiers", begin="off", at_length=True),
    # Whether a backslash in '…' is one. A text is read as a whole before its first statement runs, so that to set it
    # would come too late: what has a backslash is written as E'…' (`Dialect.literal`, `literal`).
    Setting("standard_conforming_strings"),
    # Both of its forms are read.
    Setting("bytea_output"),
    # BEGIN names the level. A default of read only stands: whoever set it wants no writes (`ReadOnly`).
    Setting("default_transaction_isolation"),
    Setting("default_transaction_read_only"),
)

CONNECT: dict[str, Any] = {each.name: each.connect for each in SETTINGS if each.connect}
_SET = [(each, f";\nSET LOCAL {each.name} = '{each.begin}'") for each in SETTINGS if each.begin]


def local(info: psycopg.ConnectionInfo, pooled: bool = False, *, arrays: bool = False, at_length: bool = False) -> str:
    """Return what follows BEGIN: each SET costs the server as much as a small statement, so those that say nothing new
    are left out, by what the server reports (GUC_REPORT).

    pooled: what was reported may be another session's. (PgBouncer carries over TimeZone and DateStyle, others nothing.)
    """
    made = ""
    for setting, text in _SET:
        if setting.met is not None:
            if not pooled and (value := _reported(info, setting.name)) is not None and setting.met(value):
                continue
        elif (setting.at_length and not at_length) or (setting.arrays and not arrays):
            continue
        made += text
    return made


def _reported(info: psycopg.ConnectionInfo, name: str) -> str | None:
    try:
        return info.parameter_status(name)
    except psycopg.OperationalError:  # the connection was closed: its next exchange says so
        return None


def refuse(info: psycopg.ConnectionInfo, where: str) -> None:
    """Raise `Invalid` for a session that cannot be used; it names the setting."""
    for setting in SETTINGS:
        if setting.fits is None:
            continue
        value = info.parameter_status(setting.name)
        if value is not None and not setting.fits(value):
            raise Invalid(f"{where}: {setting.name} is {value}, {setting.why}")


class MomentLoader(Loader):
    """A timestamptz as text, in UTC: whatever the session's zone and style are by the time that it is read."""

    def load(self, data: Any) -> dt.datetime:
        text = bytes(data).decode()
        try:
            return dt.datetime.fromisoformat(text).astimezone(dt.UTC)
        except (ValueError, OverflowError):
            raise psycopg.DataError(f"Python has no moment {text}: the years are 1 to 9999") from None


def _in_utc_and_iso(loader: type[Loader]) -> type[Loader]:
    # psycopg's loaders look at the session's zone, DateStyle and IntervalStyle when a result is read: after the COMMIT
    # at the end of the same text they are the session's again, and in its zone the first year may have no beginning.
    class Plain(loader):  # type: ignore[misc,valid-type]
        def __init__(self, oid: int, context: Any = None) -> None:
            super().__init__(oid)

    return Plain


class IntervalLoader(moments.IntervalLoader):
    """An interval as `postgres` has it."""

    def load(self, data: Any) -> dt.timedelta:
        return self._load_postgres(self, data)


class ArrayDumper(ListBinaryDumper):
    """An array in binary: as text it has backslashes for bytes, and a NULL that array_nulls makes a text of."""

    def upgrade(self, obj: list[Any], format: PyFormat) -> BaseListDumper:
        """Return the dumper for the values of a list; psycopg would take one of None alone for a text."""
        found = super().upgrade(obj, format)
        if obj and not isinstance(found, ListBinaryDumper):
            found = type(self)(self.cls, self._tx)
            found.oid = TEXT_ARRAY
        return found


LOADERS: dict[str, tuple[type[Loader], ...]] = {
    "timestamptz": (MomentLoader, _in_utc_and_iso(moments.TimestamptzBinaryLoader)),
    "date": (_in_utc_and_iso(moments.DateLoader),),
    "timestamp": (_in_utc_and_iso(moments.TimestampLoader),),
    "interval": (IntervalLoader,),
}


# Values are converted as psycopg does, whatever the application has registered with it.
ADAPTERS = AdaptersMap(types=psycopg.adapters.types)
postgres.register_default_adapters(ADAPTERS)
register_all_arrays(ADAPTERS)
for _name, _loaders in LOADERS.items():
    for _loader in _loaders:
        ADAPTERS.register_loader(_name, _loader)
ADAPTERS.register_dumper(list, ArrayDumper)


# --- cursors on connections of the application's ------------------------------------------------------------------


class _Plain:
    # A cursor on a connection of the application's, which has none of its settings.
    adapters = property(lambda self: ADAPTERS)

    def __init__(self, raw: Any) -> None:
        super().__init__(raw, row_factory=psycopg.rows.tuple_row)  # type: ignore[call-arg]
        self.format = BINARY  # texts depend on DateStyle and extra_float_digits

    def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
        """Send a statement, or as texts several, which cannot be prepared."""
        if self.format is TEXT:
            options["prepare"] = False
        return super().execute(query, params, **options)  # type: ignore[misc]


class PlainCursor(_Plain, psycopg.Cursor[Row]):
    """A cursor that waits."""


class AsyncPlainCursor(_Plain, psycopg.AsyncCursor[Row]):
    """A cursor that is awaited."""


def is_failed(raw: Any) -> bool:
    return bool(raw.info.transaction_status == psycopg.pq.TransactionStatus.INERROR)


def is_idle(raw: Any) -> bool:
    return bool(raw.info.transaction_status == psycopg.pq.TransactionStatus.IDLE)


T = TypeVar("T")

TUPLES, DONE = psycopg.pq.ExecStatus.TUPLES_OK, psycopg.pq.ExecStatus.COMMAND_OK


class Limited(Watched, psycopg.Connection[Row]):
    """A connection whose waits have a limit.

    libpq's `tcp_user_timeout` and keepalives are no such limit: they ask the server's kernel, not the server.
    """

    seconds: float = GRACE
    _seen = 0  # bytes of the answers before the present one

    connects_within: ClassVar = ContextVar("connects_within", default=inf)  # seconds, for each of several hosts

    @classmethod
    def _connect_gen(cls, *args: Any, **options: Any) -> Any:
        # psycopg's own limit has whole seconds, and two at least. It comes back every 0.1 s with nothing.
        end = time.monotonic() + cls.connects_within.get()
        gen = super()._connect_gen(*args, **options)
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if time.monotonic() > end:
                    raise psycopg.errors.ConnectionTimeout("the server has not let it in for too long")
                wanted = gen.send(ready)
        except StopIteration as stop:
            return stop.value

    def wait(self, gen: PQGen[T], *args: Any, **options: Any) -> T:
        """Run a libpq generator that waits for the server, within the limit."""
        watch = self.watch
        if watch is None or not watch.waits():
            return super().wait(self._limited(gen), *args, **options)
        work = self._limited(gen)
        try:
            wanted = next(work)
            while True:
                wanted = work.send(Ready(watch.until(wanted, 0.0)))
        except StopIteration as stop:
            result: T = stop.value
            return result

    def results(self, text: str) -> list[list[Row]]:
        """Send a text; return the rows of each of its statements that has any. (A cursor takes longer.)"""
        return [rows for rows, _ in self.answers(text) if rows is not None]

    def answers(self, text: str) -> Iterator[tuple[list[Row] | None, int]]:
        """Send a text; yield the rows of each statement, None where it has none, and how many it has changed."""
        self.pgconn.send_query(text.encode())
        for result in self.wait(execute(self.pgconn)):
            yield self._rows_of(result), result.command_tuples or 0

    def committed(self, text: str) -> bool:
        """Send COMMIT; return whether the transaction was committed: one that has failed is rolled back."""
        self.pgconn.send_query(text.encode())
        results = self.wait(execute(self.pgconn))
        for result in results:
            self._rows_of(result)
        status: bytes | None = results[-1].command_status
        return status == b"COMMIT"

    def executed(self, name: str, row: list[bytes | None]) -> list[Row]:
        self.pgconn.send_query_prepared(name.encode(), row)
        results = self.wait(execute(self.pgconn))
        return next(rows for result in results if (rows := self._rows_of(result)) is not None)

    def _rows_of(self, result: PGresult) -> list[Row] | None:
        # None where it has none.
        if result.status == TUPLES:
            self._read.set_pgresult(result)
            rows: list[Row] = self._read.load_rows(0, result.ntuples, tuple)
            return rows
        if result.status != DONE:
            raise psycopg.errors.error_from_result(result)
        return None

    @cached_property
    def _read(self) -> Any:
        return Transformer(self)

    def _limited(self, gen: PQGen[T]) -> PQGen[T]:
        # psycopg comes back every 0.1 s with nothing (that is how it notices Ctrl-C).
        end = time.monotonic() + self.seconds
        reads = 0
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready:
                    end = time.monotonic() + self.seconds
                    reads += 1
                    if reads > 1 and self._is_too_long():
                        self._finish()
                        raise left_unread(self.most)
                elif time.monotonic() > end:
                    more = self.patience() if self.patience is not None else 0.0
                    if not more:
                        self._finish()
                        raise psycopg.OperationalError("the server has said nothing for too long")
                    end = time.monotonic() + more
                wanted = gen.send(ready)
        except StopIteration as stop:
            result: T = stop.value
        if self._is_too_long(result):
            raise left_unread(self.most)
        self._seen += self.received
        return result

    def _finish(self) -> None:
        self.unwatch()
        self.pgconn.finish()

    def _is_too_long(self, answer: object = None) -> bool:
        # answer: as soon as it is there
        if self.most == inf:
            return False
        arrived = self._arrived()
        self.received = arrived - self._seen if arrived else _size_of(answer)
        return self.received > self.most

    def _arrived(self) -> int:
        # The bytes that have arrived on this connection, since libpq does not report what it has read. 0 if the system
        # cannot tell: then an answer is measured after it was read.
        if self.watch is not None:
            return self.watch.received()
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, self.pgconn.socket)  # whatever its family
        try:
            return bytes_received(sock)
        finally:
            sock.detach()


def _size_of(results: Any) -> int:
    size = 0
    for result in results if isinstance(results, list) else ():
        for row in range(result.ntuples):
            size += sum([len(result.get_value(row, column) or b"") for column in range(result.nfields)])
    return size
