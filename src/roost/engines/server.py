"""What connections to database servers have in common: statements through a cursor of Python's DB-API (PEP 249)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from roost.dialects.dialect import Control, Row, Statement, exchange
from roost.engines.engine import Trace


class ServerExecutor(ABC):
    """Runs statements on a cursor; what control words mean is its subclass's."""

    failures: type[Exception]  # the base of the driver's errors

    def __init__(self, cursor: Any, trace: Trace | None) -> None:
        self._cursor = cursor
        self._trace = trace

    def execute(self, wanted: Statement | Control) -> Any:
        """Run a statement and return its answer, or obey a control word."""
        if not isinstance(wanted, Statement):
            return self.obey(wanted)
        returns = wanted.template.returns
        work = exchange(wanted)
        try:
            sql, row = next(work)
            while True:
                self.say(sql, row)
                sql, row = work.send(self._cursor.fetchall() if returns else self._cursor.rowcount)
        except StopIteration as stop:
            return stop.value

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

    @abstractmethod
    def obey(self, word: Control) -> None:
        """Do what a control word means."""

    @abstractmethod
    def failed(self, error: Any, sql: str) -> Exception:
        """Return what is to be raised for an error of the driver."""
