"""psycopg's connection, with a limit on how long it waits for the server, and on how much it reads of an answer."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable
from functools import cached_property
from math import inf
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.adapt import Transformer
from psycopg.generators import execute

from roost.databases.engine import GRACE, left_unread
from roost.dialects.dialect import Row

T = TypeVar("T")

TUPLES, DONE = psycopg.pq.ExecStatus.TUPLES_OK, psycopg.pq.ExecStatus.COMMAND_OK
BYTES_RECEIVED = slice(128, 136)  # in Linux's struct tcp_info


class Limited(psycopg.Connection[Row]):
    """A connection whose waits have a limit.

    libpq's `tcp_user_timeout` and keepalives are no such limit: they ask the server's kernel, not the server.

    patience: asked when nothing came until the limit, for how many more seconds to wait; 0: the connection is lost.
    """

    seconds: float = GRACE
    most: float = inf  # bytes of an answer that are read
    received = 0  # of the present answer
    _seen = 0  # bytes of the answers before it
    home = ""  # which of the URL's servers it is, if there are several
    replica = False  # whether it was chosen for reads
    pooled = False  # whether a pooler may give each transaction another session
    patience: Callable[[], float] | None = None

    def wait(self, gen: PQGen[T], *args: Any, **options: Any) -> T:
        """Run what waits for the server, and no longer than the limit."""
        return super().wait(self._limited(gen), *args, **options)

    def results(self, text: str) -> list[list[Row]]:
        """Send a text; return the rows of each of its statements that has any. (A cursor takes longer.)"""
        self.pgconn.send_query(text.encode())
        return self._answered()

    def executed(self, name: str, row: list[bytes | None]) -> list[Row]:
        """Execute what was prepared; return its rows."""
        self.pgconn.send_query_prepared(name.encode(), row)
        return self._answered()[0]

    def _answered(self) -> list[list[Row]]:
        read, found = self._read, []
        for result in self.wait(execute(self.pgconn)):
            if result.status == TUPLES:
                read.set_pgresult(result)
                found.append(read.load_rows(0, result.ntuples, tuple))
            elif result.status != DONE:
                raise psycopg.errors.error_from_result(result)
        return found

    @cached_property
    def _read(self) -> Any:
        return Transformer(self)

    def _limited(self, gen: PQGen[T]) -> PQGen[T]:
        # psycopg comes back every 0.1 s with nothing (that is how it notices Ctrl-C).
        end = 0.0
        reads = 0
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready:
                    end = 0.0
                    reads += 1
                    if reads > 1 and self._is_too_long():
                        self.pgconn.finish()
                        raise left_unread(self.most)
                elif not end:
                    end = time.monotonic() + self.seconds
                elif time.monotonic() > end:
                    more = self.patience() if self.patience is not None else 0.0
                    if not more:
                        self.pgconn.finish()
                        raise psycopg.OperationalError("the server has said nothing for too long")
                    end = time.monotonic() + more
                wanted = gen.send(ready)
        except StopIteration as stop:
            result: T = stop.value
        if self._is_too_long(result):
            raise left_unread(self.most)
        self._seen += self.received
        return result

    def _is_too_long(self, answer: object = None) -> bool:
        # answer: as soon as it is there
        if self.most == inf:
            return False
        arrived = self._arrived()
        self.received = arrived - self._seen if arrived else _size_of(answer)
        return self.received > self.most

    def _arrived(self) -> int:
        # The bytes that have arrived on this connection: libpq does not say what it has read. 0 where the system does
        # not know (it is not Linux, or the socket is a file): then an answer is measured when it is there.
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, self.pgconn.socket)  # whatever its family
        try:
            told = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, BYTES_RECEIVED.stop)
            return int.from_bytes(told[BYTES_RECEIVED], sys.byteorder)
        except (AttributeError, OSError):
            return 0
        finally:
            sock.detach()


def _size_of(results: Any) -> int:
    size = 0
    for result in results if isinstance(results, list) else ():
        for row in range(result.ntuples):
            size += sum([len(result.get_value(row, column) or b"") for column in range(result.nfields)])
    return size
