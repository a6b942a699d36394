"""A call's savepoint in the application's transaction, and the executors that run statements inside it.

`Caller.words` translates the control words without I/O; the two executors send the result, one of them with `await`.
Nothing is committed, no setting of the session is changed, and none of the application's cursors is used.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from typing import Any, Protocol

from roost.databases.engine import Executor, Trace, adrive, drive
from roost.databases.executor import ServerExecutor
from roost.databases.shield import whole
from roost.dialects.dialect import Control, Exchange, Row, Statement, Together, Wanted, exchange
from roost.errors import Error

Work = Generator[Wanted, Any, None]
Script = Generator[str, Sequence[Row], None]
Texts = Generator[str, Sequence[Row], Row | None]

log = logging.getLogger("roost")

SAVEPOINT, BACK, RELEASE = (
    f"{word} roost_joined" for word in ("SAVEPOINT", "ROLLBACK TO SAVEPOINT", "RELEASE SAVEPOINT")
)
UNDO = f"{BACK};\n{RELEASE}"
SHIELDED = (SAVEPOINT, BACK, RELEASE, UNDO)

NO_TRANSACTION = (
    "store.on: the connection is in autocommit mode and no transaction is open, so the statements would not be one "
    "unit; BEGIN one first"
)


def nested(text: str, depth: int) -> str:
    """Return a statement about the savepoint at a depth; each has a name of its own, as MariaDB needs it."""
    return text if depth == 1 else f"{text}_{depth}"


class Undoable(Executor[Wanted], Protocol):
    """An executor of one call, which can undo it."""

    def undo(self) -> None:
        """Undo an interrupted call; if that fails, close the connection: nothing of the call may be committed."""


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
        self.depth = 0  # how many savepoints of the call are set, one inside the other

    def words(self, word: Control) -> Script:
        """Yield the statements for a control word, one after the other; each yield receives the statement's rows."""
        match word:
            case Control.SAVEPOINT if self.depth:
                yield nested(SAVEPOINT, self.depth + 1)
                self.depth += 1
            case Control.SAVEPOINT:
                yield from self.begin()
            case Control.BACK if self.depth and not self.is_lost():
                yield nested(BACK, self.depth)
            case Control.RELEASE if self.depth and not self.is_lost():
                yield nested(RELEASE, self.depth)
                self.depth -= 1

    def unwound(self) -> Script:
        """Yield the statements that undo an interrupted call."""
        self.depth = min(self.depth, 1)
        yield from self.words(Control.BACK)
        yield from self.words(Control.RELEASE)

    def abandon(self) -> None:
        """Close the connection of an interrupted call that cannot be undone, so that nothing of it is committed."""
        if not self.is_lost():
            log.warning("%s: closed a connection, since an interrupted call could not be undone", self.place)
            self.close()

    @abstractmethod
    def close(self) -> None:
        """Close the connection at once."""

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
        self._send(self._caller.words(word))

    def _send(self, words: Script) -> None:
        try:
            sql = next(words)
            while True:
                self.say(sql)
                sql = words.send(self._cursor.fetchall() if self._cursor.description else ())
        except StopIteration:
            pass

    def undo(self) -> None:
        """Undo an interrupted call; if that fails, close the connection: nothing of the call may be committed."""
        try:
            self._send(self._caller.unwound())
        except BaseException as error:
            self._caller.abandon()
            if not isinstance(error, Exception):
                raise

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
    """`CallerExecutor` for a cursor that is awaited.

    What sets a savepoint, goes back to it or releases it is not cancelled: on PostgreSQL a statement that is cancelled
    aborts the transaction, and whether there is a savepoint to go back to would not be known.
    """

    _cancelled: asyncio.CancelledError | None = None  # a cancellation that came meanwhile

    def __init__(self, caller: Caller, cursor: Any, trace: Trace | None) -> None:
        self._caller = caller
        self._cursor = cursor
        self._trace = trace

    async def execute(self, wanted: Wanted) -> Any:
        """Run a statement and return its answer, or obey a control word."""
        if isinstance(wanted, Together):
            return [await self.execute(each) for each in wanted.statements]
        if isinstance(wanted, Exchange):
            try:
                return await self._at_once(wanted)
            finally:
                if self._cancelled is not None:
                    raise self._cancelled
        if not isinstance(wanted, Statement):
            return await self._send(self._caller.words(wanted))
        returns = wanted.template.returns
        work = exchange(wanted)
        try:
            sql, row = next(work)
            while True:
                sql, row = work.send(await self._say(sql, row, returns))
        except StopIteration as stop:
            return stop.value

    async def _send(self, words: Script) -> None:
        first = next(words, None)
        if first is None:
            return

        async def send() -> None:
            sql = first
            try:
                while True:
                    sql = words.send(await self._word(sql))
            except StopIteration:
                pass

        _, cancelled = await whole(send())
        if cancelled is not None:
            raise cancelled

    async def undo(self) -> None:
        """Undo an interrupted or cancelled call; if that fails, close the connection."""
        try:
            await self._send(self._caller.unwound())
        except Exception:
            self._caller.abandon()

    async def _at_once(self, exchange: Exchange) -> Row | None:
        texts = self._caller.at_once(exchange)
        try:
            text = next(texts)
            while True:
                try:
                    if text in SHIELDED:
                        rows, cancelled = await whole(self._rows(text))
                        self._cancelled = cancelled or self._cancelled
                        if text == SAVEPOINT and cancelled is not None:
                            raise cancelled
                    else:
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


def play(work: Work, executor: Undoable) -> None:
    """Drive a call; if it is interrupted, roll all of it back."""
    try:
        drive(work, executor)
    except BaseException:
        executor.undo()
        raise


async def aplay(work: Work, executor: AsyncCallerExecutor) -> None:
    """Drive a call; if it is interrupted or cancelled, roll all of it back."""
    try:
        await adrive(work, executor)
    except BaseException:
        await executor.undo()
        raise
