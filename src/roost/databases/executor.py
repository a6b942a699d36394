"""Runs statements of plans on a cursor, and remembers those that are prepared: the common part of connections."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from typing import Any

from roost.databases.engine import Trace
from roost.dialects.dialect import Control, Exchange, Row, Statement, Together, Wanted, exchange

USES, MOST_PREPARED = 5, 100  # of a statement before it is prepared, as with psycopg; on one connection


class Prepared:
    """What a session has prepared: the names of statements, by their texts, the least recently used first.

    A statement is prepared when it was asked for `USES` times. No more than `MOST_PREPARED` stay, which is seen to
    before a transaction: texts that are being built may have any of the names.
    """

    def __init__(self) -> None:
        self.session = uuid.uuid4().hex  # a pooler's session may have others' prepared statements
        self.names: dict[str, str] = {}
        self._uses: dict[str, int] = {}
        self._made = 0

    def name(self, sql: str) -> str | None:
        """Return the name of a statement that is prepared."""
        name = self.names.pop(sql, None)
        if name is not None:
            self.names[sql] = name
        return name

    def counted(self, sql: str) -> bool:
        """Count a use of a statement; return whether it is to be prepared."""
        uses = self._uses[sql] = self._uses.get(sql, 0) + 1
        if uses >= USES:
            del self._uses[sql]  # where it fails, the next attempt is after as many uses
            return True
        if len(self._uses) > MOST_PREPARED:
            self._uses.clear()
        return False

    def new_name(self) -> str:
        """Return the name for another statement."""
        self._made += 1
        return f"roost_{self.session}_{self._made}"

    def surplus(self) -> list[str]:
        """Take out the names of those that are too many, a quarter at a time."""
        if len(self.names) <= MOST_PREPARED:
            return []
        return [self.names.pop(sql) for sql in list(self.names)[: MOST_PREPARED // 4]]


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
