"""Runs statements of plans on a cursor: the common part of a store's own connections and the application's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from roost.databases.engine import Trace
from roost.dialects.dialect import Control, Exchange, Row, Statement, Together, Wanted, exchange


class ServerExecutor(ABC):
    """Runs statements on a DB-API cursor (PEP 249); subclasses implement the control words."""

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
        """Return the rows of the last result; a value that the driver cannot read raises an error like a server's."""
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
        """Return a statement in the form for the cursor."""
        return sql, row or None

    def at_once(self, exchange: Exchange) -> Row | None:
        """Do an operation in one round trip, in a savepoint; return a row that begins with its result.

        None: nothing was done, because this way is not available or because of an unusual condition.
        """
        return None

    @abstractmethod
    def obey(self, word: Control) -> Any:
        """Obey a control word."""

    @abstractmethod
    def failed(self, error: Any, sql: str) -> Exception:
        """Return the error to raise for an error of the driver."""
