"""The interface of an engine, and the loop that drives a generator on a connection."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Sequence
from random import Random
from typing import Any, Protocol, TypeVar

from roost.databases.waits import Waits
from roost.dialects.dialect import Control, Dialect, Wanted
from roost.errors import ConnectionLost, OutcomeUnknown, StatementFailed, worded

T = TypeVar("T")
W = TypeVar("W", contravariant=True)

# Seconds beyond a caller's deadline in which a server may still answer: for running the statement on a busy machine,
# and for the network. After that its connection counts as lost.
GRACE = 3.0
HASTE = 0.01  # seconds that work without waiting still waits for a lock: as long as another batch holds it

Trace = Callable[[str, Sequence[Any]], None]


class Undone(Exception):
    """A statement failed and rolled back the whole transaction, other requests included. Its cause says why."""


def too_long(most: float) -> StatementFailed:
    """Return the error for an answer of more bytes than that."""
    return worded(StatementFailed(f"the rows have more than {most:,.0f} bytes"), "limit", 2)


def left_unread(most: float) -> Undone:
    """Return the same for an answer in the middle of which its connection was closed."""
    undone = Undone()
    undone.__cause__ = too_long(most)
    return undone


class Wait:
    """What a thread does while it waits for the disk or for somebody else's lock; a store has its own.

    deadline: by the monotonic clock, until when it waits for a lock.
    most: seconds that it waits for a single row's lock, where rows have locks; None: until the deadline.
    lasts: it is for work that may take long (an index, a check): the deadline is for locks, and a server that says
        nothing is waited for as long as it answers others.
    work: seconds that a statement may take; None: any time.
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

    def pause(self) -> None:
        """Called when it is about to wait."""

    def blocked(self) -> None:
        """Called at once, and then repeatedly while somebody else holds the lock; an error that it raises ends the
        wait."""


class Events:
    """What befell the connections of an engine, by the names of `Stats`; counted by all threads, and seldom."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Begin anew, as a process does that was forked."""
        self._mutex = threading.Lock()
        self.counts = {"reconnects": 0, "outages": 0, "moves": 0, "lookups": 0}

    def count(self, name: str) -> None:
        """Count one more."""
        with self._mutex:
            self.counts[name] += 1


class Executor(Protocol[W]):
    """What runs statements, or what else a generator asks for."""

    def execute(self, wanted: W, /) -> Any:
        """Run a statement and return its answer, or obey a control word."""
        ...


class AsyncExecutor(Protocol):
    """What runs statements and is awaited."""

    async def execute(self, wanted: Wanted) -> Any:
        """Run a statement and return its answer, or obey a control word."""
        ...


class Connection(Executor[Wanted], Protocol):
    """One connection, used by one thread at a time."""

    raw: Any  # the driver's

    wait: Wait  # for what BEGIN and COMMIT wait for
    broken: bool  # something other than a statement failed: connect anew

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        ...

    @property
    def session(self) -> int | None:
        """The number by which the server knows it, as the driver was told; None where there is none."""
        ...

    def outcome(self) -> bool | None:
        """Return whether a COMMIT that was interrupted went through; None where that cannot be known. Never raises."""
        ...

    def settle(self) -> None:
        """Roll back what is open, and let other writers in. Never raises."""
        ...

    def close(self) -> None:
        """Close the connection; whatever is open is rolled back."""
        ...


class Engine(Protocol):
    """One database, not yet connected to."""

    dialect: Dialect
    memory: bool  # it exists in one connection alone
    file: str | None  # the path of the file that it is
    place: str  # where it is, in words without a password
    durability: str | None  # SQLite's `synchronous`; what a server has is its own
    trace: Trace | None
    events: Events
    stale: bool  # reads may lack what was written just now

    def connect(self, wait: Wait, *, writes: bool = True, create: bool = False) -> Connection:
        """Return a new connection."""
        ...


class ServerEngine(Protocol):
    """What a connection needs to know of its engine."""

    trace: Trace | None
    random: Random
    place: str
    dialect: Dialect
    prepares: bool
    timeout: float
    reached: bool  # the server has been there: when it is away it may come back
    several: bool  # the URL names several servers, of which one is chosen
    home: str  # the one of these that was chosen last; connections to another one are left
    events: Events
    replicas: Any  # what is known of them, for reads
    waits: Waits  # how its connections wait for the server

    def open(self, timeout: float, replica: bool = False) -> Any:
        """Return a new connection of the driver, with `timeout` as its limit too; to a replica where one is found.

        `ConnectionLost` where another attempt may succeed, `CannotOpen` where the server has refused for good.
        """
        ...

    def answers(self, timeout: float) -> bool:
        """Return whether the server answers somebody who connects, be it with a refusal."""
        ...


def drive(work: Generator[W, Any, T], connection: Executor[W]) -> T:
    """Run a generator to its end: what it yields is executed, what that answers or raises is sent back."""
    execute = connection.execute
    try:
        wanted = next(work)
        while True:
            try:
                answer = execute(wanted)
            except Exception as error:
                wanted = work.throw(error)
            else:
                wanted = work.send(answer)
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        work.close()


def commit(connection: Connection) -> None:
    """Commit a non-batch transaction, whose outcome is not recoverable: `OutcomeUnknown` if the connection is lost."""
    try:
        connection.execute(Control.COMMIT)
    except ConnectionLost as error:
        raise OutcomeUnknown(f"{error}, during COMMIT") from error


async def adrive(work: Generator[Wanted, Any, T], connection: AsyncExecutor) -> T:
    """`drive` with `await`."""
    execute = connection.execute
    try:
        wanted = next(work)
        while True:
            try:
                answer = await execute(wanted)
            except Exception as error:
                wanted = work.throw(error)
            else:
                wanted = work.send(answer)
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        work.close()
