"""psycopg's connection, with a limit on how long it waits for the server, and on how much it reads of an answer."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextvars import ContextVar
from functools import cached_property
from math import inf
from typing import Any, ClassVar, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.adapt import Transformer
from psycopg.generators import execute
from psycopg.pq.abc import PGresult
from psycopg.waiting import Ready

from roost.databases.engine import GRACE, left_unread
from roost.databases.waits import Watched, bytes_received
from roost.dialects.dialect import Row

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
        """Execute what was prepared; return its rows."""
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
