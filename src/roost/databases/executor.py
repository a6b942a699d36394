"""Runs statements of plans on a cursor: what a store's own connections and the application's have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from roost.databases.engine import Trace
from roost.dialects.dialect import Control, Exchange, Row, Statement, Together, Wanted, exchange


class ServerExecutor(ABC):
    """Runs statements on a cursor of Python's DB-API (PEP 249); what control words mean is its subclass's."""

    failures: type[Exception]  # the base of the driver's errors

    def __init__(self, cursor: Any, trace: Trace | None) -> None:
        self._cursor = cursor
        self._trace = trace

    def execute(self, wanted: Wanted) -> Any:
        """Run a statement and return its answer, or obey a control word."""
        if isinstance(wanted, Together):
            return [self.execute(each) for each in wanted.statements]
        if isinstance(wanted, Exchange):
            return self.at_once(wanted)
        if not isinstance(wanted, Statement):
            return self.obey(wanted)
        returns = wanted.template.returns
        work = exchange(wanted)
        try:
            sql, row = next(work)
            while True:
                self.say(sql, row)
                sql, row = work.send(self.fetched(sql) if returns else self._cursor.rowcount)
        except StopIteration as stop:
            return stop.value

    def fetched(self, sql: str) -> Any:
        """Return the rows of the last answer; what the driver cannot read is an error like those of the server."""
        try:
            return self._cursor.fetchall()
        except self.failures as error:
            raise self.failed(error, sql) from error

    def say(self, sql: str, row: Row = ()) -> None:
        """Send one text with its parameters."""
        if self._trace is not None:
            self._trace(sql, row)
        try:
            self._cursor.execute(*self.sent(sql, row))
        except self.failures as error:
            raise self.failed(error, sql) from error

    def sent(self, sql: str, row: Row) -> tuple[str, Row | None]:
        """Return a statement as the cursor takes it."""
        return sql, row or None

    def at_once(self, exchange: Exchange) -> Row | None:
        """Do an operation in one exchange, in a savepoint; return a row that begins with its answer.

        None: nothing was done, as there is no such way, or as something is out of the ordinary.
        """
        return None

    @abstractmethod
    def obey(self, word: Control) -> Any:
        """Do what a control word means."""

    @abstractmethod
    def failed(self, error: Any, sql: str) -> Exception:
        """Return what is to be raised for an error of the driver."""
