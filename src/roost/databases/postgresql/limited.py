"""A connection of psycopg whose waits have a limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.adapt import Transformer
from psycopg.generators import execute

from roost.databases.engine import GRACE
from roost.dialects.dialect import Row

T = TypeVar("T")

TUPLES, DONE = psycopg.pq.ExecStatus.TUPLES_OK, psycopg.pq.ExecStatus.COMMAND_OK


class Limited(psycopg.Connection[Row]):
    """A connection whose waits have a limit.

    libpq's `tcp_user_timeout` and keepalives are no such limit: they ask the server's kernel, not the server.

    patience: asked when nothing came until the limit, for how many more seconds to wait; 0: the connection is lost.
    """

    seconds: float = GRACE
    home = ""  # which of the URL's servers it is, if there are several
    pooled = False  # whether a pooler may give each transaction another session
    patience: Callable[[], float] | None = None

    def wait(self, gen: PQGen[T], *args: Any, **options: Any) -> T:
        """Run what waits for the server, and no longer than the limit."""
        return super().wait(self._limited(gen), *args, **options)

    def results(self, text: str) -> list[list[Row]]:
        """Send a text; return the rows of each of its statements that has any. (A cursor takes longer.)"""
        self.pgconn.send_query(text.encode())
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
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready:
                    end = 0.0
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
            return result
