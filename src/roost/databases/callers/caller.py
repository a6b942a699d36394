"""A call's savepoint in the application's transaction, and the cursor on which its statements run.

`Caller.run` makes texts of what a call yields, without I/O, and a `Cursor` sends them. It is written once, as
coroutines: where the driver is not awaited, they wait for nothing, and `now` runs them. Nothing is committed, no
setting of the session is changed, and none of the application's cursors is used.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from typing import Any, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from roost.databases.engine import Trace, adrive, at_fork, whole
from roost.dialects.dialect import Control, Exchange, Row, Statement, Together, Wanted, exchange
from roost.errors import Error


class Send(NamedTuple):
    """What a cursor is to send.

    returns: whether rows come back; None: whatever there is.
    several: it is a text of several statements, of which one may have rows.
    whole: it is not cancelled. On PostgreSQL a statement that is cancelled aborts the transaction, and whether there is
        a savepoint to go back to would not be known.
    statement: on SQLite, the statement with its rows, in place of a text.
    """

    sql: str
    row: Row = ()
    returns: bool | None = None
    several: bool = False
    whole: bool = False
    statement: Statement | None = None


L = TypeVar("L")

Work = Generator[Wanted, Any, None]
Play = Callable[[Work, bool], Coroutine[Any, Any, None]]  # drives a call to its end, in a savepoint; whether it writes
Texts = Generator[str, Any, Any]
Sends = Generator[Send, Any, Any]

log = logging.getLogger("roost")

SAVEPOINT, BACK, RELEASE = (
    f"{word} roost_joined" for word in ("SAVEPOINT", "ROLLBACK TO SAVEPOINT", "RELEASE SAVEPOINT")
)
UNDO = f"{BACK};\n{RELEASE}"

NO_TRANSACTION = (
    "store.on: the connection is in autocommit mode and no transaction is open, so the statements would not be one "
    "unit; BEGIN one first"
)


def nested(text: str, depth: int) -> str:
    """Return a statement about the savepoint at a depth; each has a name of its own, as MariaDB needs it."""
    return text if depth == 1 else f"{text}_{depth}"


class Caller(ABC):
    """One call on a connection of the application."""

    failures: Any  # the class of the driver's errors, or several

    def __init__(self, raw: Any, place: str, writes: bool) -> None:
        self.raw = raw
        self.place = place
        self.writes = writes
        self.depth = 0  # how many savepoints of the call are set, one inside the other

    def run(self, work: Work) -> Sends:
        """Yield what is to be sent for a call."""
        try:
            wanted = next(work)
            while True:
                try:
                    answer = yield from self.perform(wanted)
                except Exception as error:
                    wanted = work.throw(error)
                else:
                    wanted = work.send(answer)
        except StopIteration:
            pass
        finally:
            work.close()

    def perform(self, wanted: Wanted) -> Sends:
        """Yield what is to be sent for one wish of a call; return its answer."""
        if isinstance(wanted, Together):
            answers = []
            for each in wanted.statements:
                answers.append((yield from self.perform(each)))
            return answers
        if isinstance(wanted, Exchange):
            return (yield from _sent(self.at_once(wanted), several=True))
        if isinstance(wanted, Statement):
            return (yield from self.statement(wanted))
        return (yield from _sent(self.words(wanted)))

    def statement(self, wanted: Statement) -> Sends:
        """Yield the texts of a statement; return its answer."""
        work = exchange(wanted)
        try:
            sql, row = next(work)
            while True:
                sql, row = work.send((yield Send(sql, row, wanted.template.returns)))
        except StopIteration as stop:
            return stop.value

    def words(self, word: Control) -> Texts:
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

    def undone(self) -> Sends:
        """Yield what undoes an interrupted call."""
        self.depth = min(self.depth, 1)
        for word in (Control.BACK, Control.RELEASE):
            yield from _sent(self.words(word))

    def abandon(self) -> None:
        """Close the connection of an interrupted call that cannot be undone, so that nothing of it is committed."""
        if not self.is_lost():
            log.warning("%s: closed a connection, since an interrupted call could not be undone", self.place)
            self.close()

    def close(self) -> None:
        self.raw.close()

    def at_once(self, exchange: Exchange) -> Texts:
        """Yield the text that does an operation in its own savepoint and, after an error, the statements to recover.

        Each yield receives the rows. Returns the row that begins with the result, or None if nothing was done.
        """
        yield from ()
        return None

    @abstractmethod
    def begin(self) -> Texts:
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

    def answered_as(self, several: bool, cursor: Any) -> None:  # noqa: B027
        """Tell the cursor, before it sends a text, whether that has several statements."""


def _sent(texts: Texts, several: bool = False) -> Sends:
    try:
        text = next(texts)
        while True:
            word = text in (SAVEPOINT, BACK, RELEASE, UNDO)
            try:
                rows = yield Send(text, several=several, whole=word or not several)
            except Error as error:
                text = texts.throw(error)
            else:
                text = texts.send(rows)
    except StopIteration as stop:
        return stop.value


def now(work: Coroutine[Any, Any, L]) -> L:
    """Run a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as stop:
        result: L = stop.value
        return result
    raise AssertionError("a driver that is not awaited waits for nothing")


class Cursor:
    """Sends a call's texts on a cursor of the driver's.

    awaits: whether that is awaited.
    """

    _cancelled: asyncio.CancelledError | None = None  # a cancellation that came while something whole was sent

    def __init__(self, caller: Caller, cursor: Any, trace: Trace | None, awaits: bool = False) -> None:
        self.caller = caller
        self.cursor = cursor
        self.trace = trace
        self.awaits = awaits

    async def execute(self, send: Send) -> Any:
        if not self.awaits:
            return await self._execute(send)
        if not send.whole:
            if self._cancelled is not None:
                raise self._cancelled
            return await self._execute(send)
        answer, cancelled = await whole(self._execute(send))
        self._cancelled = cancelled or self._cancelled
        return answer

    async def _execute(self, send: Send) -> Any:
        if self.trace is not None and send.statement is None:
            self.trace(send.sql, send.row)
        try:
            return await self.answer(send)
        except self.caller.failures as error:
            raise self.caller.failed(error, send.sql) from error

    async def answer(self, send: Send) -> Any:
        """Send a text, and return its answer; raise the driver's error."""
        cursor = self.cursor
        self.caller.answered_as(send.several, cursor)
        if not send.several:
            sent = cursor.execute(*self.caller.sent(send.sql, send.row))
            if self.awaits:
                await sent
            if send.returns or (send.returns is None and cursor.description):
                return await cursor.fetchall() if self.awaits else cursor.fetchall()
            return () if send.returns is None else cursor.rowcount
        await settled(cursor.execute(send.sql))
        rows: Sequence[Row] = ()
        while True:
            rows = await settled(cursor.fetchall()) if cursor.description else rows
            if not await settled(cursor.nextset()):
                return rows

    async def play(self, work: Work) -> None:
        """Drive a call; if it is interrupted or cancelled, undo all of it, so that nothing of it may be committed."""
        try:
            await adrive(self.caller.run(work), self)
            if self._cancelled is not None:
                raise self._cancelled
        except BaseException:
            try:
                await adrive(self.caller.undone(), self)
            except BaseException as error:
                self.caller.abandon()
                if not isinstance(error, Exception):
                    raise
            if self._cancelled is not None:
                raise self._cancelled from None
            raise


async def settled(value: L | Awaitable[L]) -> L:
    """Return a value, awaited where it is to be."""
    return await value if inspect.isawaitable(value) else value


# Calls on one connection take turns: the savepoints of two calls at once would undo each other's work.
_guard = threading.RLock()  # a signal handler may join, too
_locks: WeakValueDictionary[tuple[Any, int], Any] = WeakValueDictionary()


def turn(connection: object, kind: Callable[[], L]) -> L:
    """Return the lock of a connection, or of a session, which exists while calls use it.

    kind: RLock, so that a trace function or a signal handler may call too; or asyncio's Lock.
    """
    with _guard:
        made = kind()
        found: L = _locks.setdefault((kind, id(connection)), made)
        return found


def _forget() -> None:
    # In a child process, where the threads that held them do not exist.
    global _guard
    _guard = threading.RLock()
    _locks.clear()


at_fork(after_in_child=_forget)
