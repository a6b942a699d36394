"""A call's savepoint in the application's transaction, and the executors that run statements inside it.

`Caller.words` translates the control words without I/O; the two executors send the result, one of them with `await`.
Nothing is committed, no setting of the session is changed, and none of the application's cursors is used.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from typing import Any, Protocol

from roost.databases.engine import Executor, Trace, adrive, drive
from roost.databases.executor import ServerExecutor
from roost.dialects.dialect import Control, Exchange, Row, Statement, Together, Wanted, exchange
from roost.errors import Error

Work = Generator[Wanted, Any, None]
Script = Generator[str, Sequence[Row], None]
Texts = Generator[str, Sequence[Row], Row | None]

BACK, RELEASE = "ROLLBACK TO SAVEPOINT roost_joined", "RELEASE SAVEPOINT roost_joined"

NO_TRANSACTION = (
    "store.on: the connection is in autocommit mode and no transaction is open, so the statements would not be one "
    "unit; BEGIN one first"
)


class Play(Protocol):
    """Runs one call on a connection of the application."""

    def __call__(self, work: Work, writes: bool) -> None:
        """Drive the call's generator to its end, inside a savepoint."""


class AsyncPlay(Protocol):
    """`Play` with `await`."""

    async def __call__(self, work: Work, writes: bool) -> None:
        """Drive the call's generator to its end, inside a savepoint."""


class Caller(ABC):
    """The savepoint of one call on a connection to a server."""

    failures: type[Exception]  # the base of the driver's errors

    def __init__(self, raw: Any, place: str, writes: bool) -> None:
        self.raw = raw
        self.place = place
        self.writes = writes
        self.is_set = False

    def words(self, word: Control) -> Script:
        """Yield the statements for a control word, one after the other; each yield receives the statement's rows."""
        match word:
            case Control.SAVEPOINT:
                yield from self.begin()
            case Control.BACK if self.is_set and not self.is_lost():
                yield BACK
            case Control.RELEASE if self.is_set and not self.is_lost():
                yield RELEASE
                self.is_set = False

    @abstractmethod
    def at_once(self, exchange: Exchange) -> Texts:
        """Yield the text that does an operation in its own savepoint and, after an error, the statements to recover.

        Each yield receives the rows. Returns the row that begins with the result, or None if nothing was done.
        """

    @abstractmethod
    def begin(self) -> Script:
        """Yield the statements that set the savepoint; `Invalid` if there is no transaction to set it in."""

    @abstractmethod
    def is_lost(self) -> bool:
        """Return whether the connection is lost, and the transaction with it."""

    @abstractmethod
    def failed(self, error: Any, sql: str) -> Exception:
        """Return the error to raise for an error of the driver."""

    def sent(self, sql: str, row: Row) -> tuple[str, Row | None]:
        """Return a statement as the cursor takes it."""
        return sql, row or None


class CallerExecutor(ServerExecutor):
    """Runs a call's statements on a cursor of its own."""

    def __init__(self, caller: Caller, cursor: Any, trace: Trace | None) -> None:
        super().__init__(cursor, trace)
        self.failures = caller.failures
        self._caller = caller

    def obey(self, word: Control) -> None:
        """Do what a control word means."""
        words = self._caller.words(word)
        try:
            sql = next(words)
            while True:
                self.say(sql)
                sql = words.send(self._cursor.fetchall() if self._cursor.description else ())
        except StopIteration:
            pass

    def at_once(self, exchange: Exchange) -> Row | None:
        """Do an operation in one exchange; return a row that begins with its answer, or None."""
        texts = self._caller.at_once(exchange)
        try:
            text = next(texts)
            while True:
                try:
                    rows = self._rows(text)
                except Error as error:
                    text = texts.throw(error)
                else:
                    text = texts.send(rows)
        except StopIteration as stop:
            row: Row | None = stop.value
            return row

    def _rows(self, text: str) -> Sequence[Row]:
        # Of a text of several statements, of which one may have any.
        if self._trace is not None:
            self._trace(text, ())
        rows: Sequence[Row] = ()
        try:
            self.run_text(text)
            while True:
                rows = self._cursor.fetchall() if self._cursor.description else rows
                if not self._cursor.nextset():
                    return rows
        except self.failures as error:
            raise self.failed(error, text) from error

    def run_text(self, text: str) -> None:
        """Send a text that may have several statements."""
        self._cursor.execute(text)

    def sent(self, sql: str, row: Row) -> tuple[str, Row | None]:
        """Return a statement as the cursor takes it."""
        return self._caller.sent(sql, row)

    def failed(self, error: Any, sql: str) -> Exception:
        """Return the error to raise for an error of the driver."""
        return self._caller.failed(error, sql)


class AsyncCallerExecutor:
    """`CallerExecutor` for a cursor that is awaited."""

    def __init__(self, caller: Caller, cursor: Any, trace: Trace | None) -> None:
        self._caller = caller
        self._cursor = cursor
        self._trace = trace

    async def execute(self, wanted: Wanted) -> Any:
        """Run a statement and return its answer, or obey a control word."""
        if isinstance(wanted, Together):
            return [await self.execute(each) for each in wanted.statements]
        if isinstance(wanted, Exchange):
            return await self._at_once(wanted)
        if not isinstance(wanted, Statement):
            words = self._caller.words(wanted)
            try:
                sql = next(words)
                while True:
                    sql = words.send(await self._word(sql))
            except StopIteration:
                return None
        returns = wanted.template.returns
        work = exchange(wanted)
        try:
            sql, row = next(work)
            while True:
                sql, row = work.send(await self._say(sql, row, returns))
        except StopIteration as stop:
            return stop.value

    async def _at_once(self, exchange: Exchange) -> Row | None:
        texts = self._caller.at_once(exchange)
        try:
            text = next(texts)
            while True:
                try:
                    rows = await self._rows(text)
                except Error as error:
                    text = texts.throw(error)
                else:
                    text = texts.send(rows)
        except StopIteration as stop:
            row: Row | None = stop.value
            return row

    async def _rows(self, text: str) -> Sequence[Row]:
        # Of a text of several statements, of which one may have any.
        if self._trace is not None:
            self._trace(text, ())
        rows: Sequence[Row] = ()
        try:
            await self.run_text(text)
            while True:
                rows = await self._cursor.fetchall() if self._cursor.description else rows
                more = self._cursor.nextset()
                if not (await more if inspect.isawaitable(more) else more):
                    return rows
        except self._caller.failures as error:
            raise self._caller.failed(error, text) from error

    async def run_text(self, text: str) -> None:
        """Send a text that may have several statements."""
        await self._cursor.execute(text)

    async def _say(self, sql: str, row: Row = (), returns: bool = False) -> Any:
        if self._trace is not None:
            self._trace(sql, row)
        try:
            return await self._answer(*self._caller.sent(sql, row), returns)
        except self._caller.failures as error:
            raise self._caller.failed(error, sql) from error

    async def _word(self, sql: str) -> Sequence[Row]:
        await self._say(sql)
        rows: Sequence[Row] = await self._cursor.fetchall() if self._cursor.description else ()
        return rows

    async def _answer(self, sql: str, row: Row | None, returns: bool) -> Any:
        await self._cursor.execute(sql, row)
        return await self._cursor.fetchall() if returns else self._cursor.rowcount


def play(work: Work, executor: Executor[Wanted]) -> None:
    """Drive a call; if it is interrupted, roll all of it back."""
    try:
        drive(work, executor)
    except BaseException:
        for word in UNDONE:
            try:
                executor.execute(word)
            except Exception:
                break  # the original error is raised; if the connection fails here too, the server keeps nothing
        raise


async def aplay(work: Work, executor: AsyncCallerExecutor) -> None:
    """Drive a call; if it is interrupted or cancelled, roll all of it back."""
    try:
        await adrive(work, executor)
    except BaseException:
        for word in UNDONE:
            try:
                await executor.execute(word)
            except Exception:
                break  # as in `play`
        raise


UNDONE: Sequence[Control] = (Control.BACK, Control.RELEASE)
