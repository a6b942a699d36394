"""The interface of an engine, and the loop that drives a generator on a connection."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Generator, Sequence
from random import Random
from typing import Any, NamedTuple, Protocol, TypeVar

from roost.databases.waits import Mutex
from roost.dialects.dialect import Control, Dialect, Wanted
from roost.errors import ConnectionLost, DatabaseError, Error, OutcomeUnknown, StatementFailed, worded

T = TypeVar("T")
W = TypeVar("W", contravariant=True)

# Seconds after a caller's deadline in which a server may still answer. After that the connection counts as lost, and
# until LAST another one is made, on which what was lost is ended or looked up. No caller waits longer.
GRACE, LAST = 0.2, 0.4  # half a second at most, as psycopg looks at the time every 0.1 s
MOMENT = 0.05  # seconds that the server has for anything asked of it even later, such as a ROLLBACK
PATIENCE = 3.0  # the same as GRACE, where the server has a limit of its own for the statement, or may work for long
HASTE = 0.01  # seconds to wait for a lock in work that should not wait: about as long as another batch holds it

Trace = Callable[[str, Sequence[Any]], None]


class Undone(Exception):
    """A statement failed and rolled back the whole transaction, other requests included; `__cause__` has the reason."""


def too_long(most: float) -> StatementFailed:
    return worded(StatementFailed(f"the rows have more than {most:,.0f} bytes"), "limit", 2)


def left_unread(most: float) -> Undone:
    """Return the same error for an answer whose connection was closed before its end."""
    undone = Undone()
    undone.__cause__ = too_long(most)
    return undone


class Wait:
    """How a thread waits for the disk or for a lock that another session holds; stores subclass this.

    deadline: the time, by the monotonic clock, until which to wait for a lock.
    most: the maximum number of seconds to wait for a single row's lock, on engines with row locks; None: the deadline.
    lasts: the work may take long (an index, a check): the deadline applies to locks only, and the store waits for a
        silent server as long as that answers on another connection.
    work: the maximum number of seconds for a statement; None: no limit.
    """

    __slots__ = ("deadline", "lasts", "most", "work")

    def __init__(
        self, deadline: float, most: float | None = None, lasts: bool = False, work: float | None = None
    ) -> None:
        self.deadline = deadline
        self.most = most
        self.lasts = lasts
        self.work = work

    @property
    def left(self) -> float:
        """Seconds until the deadline; 0 when it has passed."""
        return max(0.0, self.deadline - time.monotonic())

    @property
    def answer(self) -> float:
        """Seconds that the server has for its answer, or for accepting a connection."""
        if self.lasts or self.work is not None:
            return self.left + PATIENCE
        return max(MOMENT, self.deadline + GRACE - time.monotonic())

    def pause(self) -> None:
        """Called before a wait."""

    def blocked(self) -> None:
        """Called at once, and repeatedly while another session holds the lock; it may end the wait by its deadline."""


class Events:
    """Counts events of an engine's connections, by the names of `Stats`; used by all threads, rarely."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Reset the counts, as in a process that was forked."""
        self._mutex = Mutex()
        self.counts: dict[str, Any] = {"reconnects": 0, "outages": 0, "moves": 0, "lookups": 0}

    def count(self, name: str) -> None:
        with self._mutex:
            self.counts[name] += 1


class Connection(Protocol):
    """One connection, used by one thread at a time."""

    raw: Any  # the driver's

    wait: Wait  # how BEGIN and COMMIT wait
    broken: bool  # something other than a statement failed: a new connection is needed

    def execute(self, wanted: Wanted, /) -> Any:
        """Run a statement and return its answer, or obey a control word."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""

    @property
    def session(self) -> int | None:
        """The server's number of this session, as reported to the driver; None if there is none."""

    def outcome(self) -> bool | None:
        """Return whether an interrupted COMMIT succeeded; None if that cannot be determined. Never raises."""

    def settle(self) -> None:
        """Roll back any open transaction, and let other writers proceed. Never raises."""

    def close(self) -> None:
        """Close the connection; an open transaction is rolled back."""


class Engine(ABC):
    """One database, not yet connected to.

    place: the location for messages, without a password.
    """

    dialect: Dialect
    heard: Callable[[Dialect], None] | None = None  # called when a server turns out to have another dialect
    memory = False  # an in-memory database, visible to one connection only
    file: str | None = None  # the path of its file
    durability: str | None = None  # SQLite's `synchronous`; None for servers, which have their own setting
    stale = False  # reads may miss the latest writes

    def __init__(self, place: str, timeout: float, trace: Trace | None, random: Random) -> None:
        self.place, self.timeout, self.trace, self.random = place, timeout, trace, random
        self.events = Events()

    @abstractmethod
    def connect(self, wait: Wait, *, writes: bool = True, create: bool = False) -> Connection:
        """Return a new connection."""


def drive(work: Generator[W, Any, T], connection: Any, thrown: type[BaseException] = Exception) -> T:
    """Run a generator to its end: execute what it yields, and send the result or the error back into it.

    connection: what executes it. thrown: the errors that are sent back.
    """
    execute = connection.execute
    try:
        wanted = next(work)
        while True:
            try:
                answer = execute(wanted)
            except thrown as error:
                wanted = work.throw(error)
            else:
                wanted = work.send(answer)
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        work.close()


def commit(connection: Connection) -> None:
    """Commit a transaction that is not a batch; `OutcomeUnknown` if the connection is lost: no look-up is possible."""
    try:
        connection.execute(Control.COMMIT)
    except ConnectionLost as error:
        raise OutcomeUnknown(f"{error}, during COMMIT") from error


async def adrive(work: Generator[W, Any, T], connection: Any, thrown: type[BaseException] = Exception) -> T:
    """`drive` with `await`."""
    execute = connection.execute
    try:
        wanted = next(work)
        while True:
            try:
                answer = await execute(wanted)
            except thrown as error:
                wanted = work.throw(error)
            else:
                wanted = work.send(answer)
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        work.close()


async def whole(work: Coroutine[Any, Any, T]) -> tuple[T, asyncio.CancelledError | None]:
    """Await work to its end; return its result, and the cancellation that came meanwhile, for the caller to raise.

    If the work fails after a cancellation, the cancellation is raised.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None and not task.cancelled() and (failed := task.exception()) is not None:
        raise cancelled from failed
    return task.result(), cancelled


# It loads the application (worker 0) and then forks its workers without Python, which is told in the child alone.
uwsgi: Any = sys.modules.get("uwsgi")


def at_fork(**calls: Callable[[], object]) -> None:
    """Call `os.register_at_fork` with these arguments; Windows has neither forks nor that function."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**calls)
    if uwsgi is not None:
        process, former = os.getpid(), getattr(uwsgi, "post_fork_hook", None)

        def forked() -> None:
            if former is not None:
                former()
            if os.getpid() != process:  # without a master, the first worker is the process that has loaded it
                for each in ("before", "after_in_child"):
                    calls.get(each, bool)()

        uwsgi.post_fork_hook = forked


class Failure(NamedTuple):
    """What an error with one code means.

    error: the class of Roost's error.
    word: why a statement was refused, as HandlerSocket has it; "": the word of the class.
    says: what is said in place of the database's message.
    more: what to do, behind the message.
    code: the error's code in HandlerSocket; None: that of the class.
    """

    error: type[Error]
    word: str = ""
    says: str = ""
    more: str = ""
    code: int | None = None

    def made(self, place: str, message: str, mark: object, sql: str) -> Error:
        """Return the error. mark: the database's code, or its words, where the message is another."""
        text = f"{place}: {self.says} ({mark})" if self.says else f"{place}: {message}"
        with_sql = sql and self.error in (StatementFailed, DatabaseError)
        error = self.error(f"{text}{self.more}{f' in {sql}' if with_sql else ''}")
        return worded(error, self.word, self.code) if self.word else error


def table(*lines: tuple[str, Failure]) -> dict[str, Failure]:
    """Return a table of lines, each of which names the codes with one meaning.

    >>> table(("1213 1020", Failure(Error)))["1020"].error.__name__
    'Error'
    """
    return {code: failure for codes, failure in lines for code in codes.split()}


MAKES = "; store.create(...) makes the tables, store.check() tells what is there"
RIGHTS = "; an account that uses structures needs SELECT, INSERT, UPDATE and DELETE on it"
REFUSED = Failure(StatementFailed, "error")
FAILED = Failure(DatabaseError)
