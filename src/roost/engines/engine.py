"""What an engine is to a store, and the loop that drives a generator on a connection."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Protocol, TypeVar

from roost.dialects.dialect import Control, Dialect, Statement

T = TypeVar("T")


class Wait:
    """What a thread does while it waits for the disk or for somebody else's lock; a store has its own.

    deadline: by the monotonic clock, until when it waits for a lock.
    """

    __slots__ = ("deadline",)

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline

    def pause(self) -> None:
        """Called when it is about to wait."""

    def blocked(self) -> None:
        """Called at once and then now and then while somebody else holds the lock; what it raises ends the waiting."""


class Connection(Protocol):
    """One connection, used by one thread at a time."""

    def execute(self, wanted: Statement | Control) -> Any:
        """Run a statement and return its answer, or obey a control word."""
        ...

    def close(self) -> None:
        """Close the connection; whatever is open is rolled back."""
        ...


class Engine(Protocol):
    """One database, not yet connected to."""

    dialect: Dialect

    def connect(self) -> Connection:
        """Return a new connection for batches."""
        ...


def drive(work: Generator[Statement | Control, Any, T], connection: Connection) -> T:
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
