"""Operations inside the application's own transaction, on its own connection.

Nothing is committed, rolled back or retried; every call is wrapped in a savepoint, so an operation that fails leaves
the transaction as it was.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from roost.batches import Atom, Known, joined
from roost.dialects import Control, Statement
from roost.engines.engine import Trace, drive
from roost.engines.sqlite import TAKE_WRITE_LOCK, run, translate
from roost.errors import Invalid
from roost.own import file_of
from roost.plans import Context
from roost.runner import AsyncRunner, Runner


class _JoinedConnection:
    """The application's connection, as the plans see it: no commit, no rollback, none of its factories."""

    def __init__(self, raw: sqlite3.Connection, path: str, writes: bool, trace: Trace | None) -> None:
        self._raw = raw
        self._cursor = raw.cursor(sqlite3.Cursor)
        self._cursor.row_factory = None
        self._path = path
        self._writes = writes
        self._trace = trace

    def execute(self, wanted: Statement | Control) -> Any:
        """Run a statement and return its answer, or obey a control word."""
        if isinstance(wanted, Statement):
            try:
                return run(self._cursor, wanted, self._trace)
            except sqlite3.Error as error:
                raise translate(error, self._path, wanted.template.sql) from error
        match wanted:
            case Control.SAVEPOINT:
                self._say("SAVEPOINT roost_joined")
                if self._writes:
                    try:
                        self._say(TAKE_WRITE_LOCK)
                    except Exception:
                        self._undo()
                        raise
            case Control.RELEASE if self._raw.in_transaction:
                self._say("RELEASE roost_joined")
            case Control.BACK if self._raw.in_transaction:  # after some errors SQLite has rolled back everything itself
                self._say("ROLLBACK TO roost_joined")
        return None

    def _undo(self) -> None:
        if self._raw.in_transaction:
            self._say("ROLLBACK TO roost_joined")
            self._say("RELEASE roost_joined")

    def _say(self, sql: str) -> None:
        if self._trace is not None:
            self._trace(sql, ())
        try:
            self._cursor.execute(sql)
        except sqlite3.Error as error:
            raise translate(error, self._path, sql) from error

    def close(self) -> None:
        """Leave the application's connection as it is."""
        self._cursor.close()


class Joined(Runner):
    """Runs operations inside the transaction that is open on a sqlite3 connection of the application."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        known: Known,
        context: Context,
        trace: Trace | None,
    ) -> None:
        if not isinstance(connection, sqlite3.Connection):
            raise Invalid(f"store.on takes a sqlite3.Connection; a {type(connection).__name__} is not there yet")
        self._connection = connection
        self._known = known
        self._context = context
        self._trace = trace

    def _answer(self, atom: Atom) -> tuple[Any, ...]:
        raw = self._connection
        if atom.writes:
            self._begin_as_the_driver_does()
        with _plain_text(raw):
            connection = _JoinedConnection(raw, file_of(raw) or ":memory:", atom.writes, self._trace)
            try:
                drive(joined(atom, self._known, self._context), connection)
            finally:
                connection.close()
        return atom.answer

    def _begin_as_the_driver_does(self) -> None:
        raw = self._connection
        if raw.in_transaction:
            return
        # Python 3.12 has `autocommit`: True, False (a transaction is always open), or -1 for the older isolation_level.
        if raw.isolation_level is None or getattr(raw, "autocommit", -1) is True:
            raise Invalid(
                "store.on: the connection is in autocommit mode and no transaction is open, so the statements would "
                "not be one unit; BEGIN one first"
            )
        raw.execute(f"BEGIN {raw.isolation_level}")


class AsyncJoined(AsyncRunner):
    """`Joined` with `await`. sqlite3 knows no waiting: the loop stands still while the statements run."""

    def __init__(self, joined: Joined) -> None:
        self._joined = joined

    async def _answer(self, atom: Atom) -> tuple[Any, ...]:
        return self._joined._answer(atom)


@contextmanager
def _plain_text(raw: sqlite3.Connection) -> Iterator[None]:
    factory = raw.text_factory
    raw.text_factory = str
    try:
        yield
    finally:
        raw.text_factory = factory
