"""The common part of both kinds of client: a connection's policy, without I/O, and the interface for sending requests.

`Connection.conversation` is a generator. It yields the two steps that may block, `Connect` and `Transfer`; the driver,
for threads or for asyncio, performs them and sends the answer back. If the generator is left early (by a cancelled
task, or by Ctrl-C), the state of the connection is unclear, so the driver drops it.
"""

from __future__ import annotations

import ssl
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeAlias, TypeVar

from roost.client.endpoint import ClientOptions, Endpoint
from roost.client.exchange import Deadline, OpenIndexes, Outcomes, Pipeline, Transfer, Unanswered
from roost.client.requests import Broken, Request
from roost.errors import CannotOpen, ConnectionLost, Error, Invalid, OutcomeUnknown, TimedOut

T = TypeVar("T")

MOST_OPEN = 1000  # indexes on one connection: they cost the server memory, and only closing the connection closes them


class Wire(Protocol):
    """A driver's connected socket. Neither method blocks."""

    def is_stale(self) -> bool:
        """Whether the other side has closed it, or it has bytes that were not requested."""
        ...

    def close(self) -> None:
        """Close it at once."""
        ...


W = TypeVar("W", bound=Wire)


@dataclass(frozen=True)
class Connect:
    """A step for the driver: connect within `seconds`, and answer with the wire. Raises: OSError."""

    seconds: float | None


Step: TypeAlias = Connect | Transfer
Conversation: TypeAlias = Generator[Step, Any, Outcomes]


class _Pending(Enum):
    PENDING = "pending"


class Connection(Generic[W]):
    """The state and the policy of one connection."""

    def __init__(
        self,
        address: str,
        *,
        secret: str | bytes | None = None,
        timeout: float | None = 10.0,
        connect_timeout: float | None = 5.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        key = secret.encode() if isinstance(secret, str) else secret or b""
        self._options = ClientOptions(Endpoint.parse(address), key, timeout, connect_timeout, tls)
        self._indexes = OpenIndexes()
        self._wire: W | None = None
        self._renew()

    def _renew(self) -> None:
        """Make the state that belongs to one process or event loop: the lock."""
        raise NotImplementedError

    def __repr__(self) -> str:
        state = "not connected" if self._wire is None else f"connected, {len(self._indexes.ids)} indexes open"
        return f"<{type(self).__name__} {self._options.endpoint}: {state}>"

    def drop(self) -> None:
        """Close the wire, if there is one. The next request connects again."""
        wire, self._wire = self._wire, None
        self._indexes.clear()
        if wire is not None:
            wire.close()

    def in_use(self, requests: list[Request[Any]]) -> Outcomes:
        """Return the outcomes of requests for which the connection did not become free in time."""
        why = f"others used the connection to {self._options.endpoint} for {self._options.timeout:g} s"
        return [TimedOut(f"{each!r} was not done: {why}") for each in requests]

    def conversation(self, requests: list[Request[Any]], deadline: Deadline) -> Conversation:
        """Send requests, all at once, and return the outcome of each: its result, or its error.

        deadline: began before the caller waited for the connection.

        If the connection breaks, reads are sent once more, and so are modifications that were not sent completely.
        """
        server = self._options.endpoint
        outcomes: Outcomes = [_Pending.PENDING] * len(requests)
        left = list(range(len(requests)))
        if len(self._indexes.ids) > MOST_OPEN:
            self.drop()
        again = False
        while True:
            try:
                yield from self._connected(deadline)
            except OSError as error:
                for place in left:
                    outcomes[place] = CannotOpen(f"no connection to {server}: {_reason(error)}")
                return outcomes
            pipeline = Pipeline(self._indexes, self._options.secret, requests, left, deadline)
            cause: Exception | None = None
            try:
                yield from pipeline.run(outcomes)
            except (OSError, Unanswered, Broken) as error:
                cause = error
            if cause is not None or pipeline.unclear:
                self.drop()
            if cause is None:
                return outcomes
            why = f"{_reason(cause)}; the connection to {server} was dropped"
            pending = [place for place in left if outcomes[place] is _Pending.PENDING]
            left = []
            for place in pending:
                if requests[place].changes and pipeline.was_sent(place):
                    outcomes[place] = OutcomeUnknown(f"{requests[place]!r} may have been done: {why}")
                elif again or isinstance(cause, TimeoutError):
                    kind = TimedOut if isinstance(cause, TimeoutError) else ConnectionLost
                    outcomes[place] = kind(f"{requests[place]!r} was not done: {why}")
                else:
                    left.append(place)
            if not left:
                return outcomes
            again = True

    def _connected(self, deadline: Deadline) -> Generator[Connect, W, None]:
        if self._wire is not None and not self._wire.is_stale():
            return
        self.drop()
        bounds = [each for each in (self._options.connect_timeout, deadline.left()) if each is not None]
        self._wire = yield Connect(min(bounds, default=None))


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


def checked(requests: Iterable[Request[T]]) -> list[Request[T]]:
    """Return requests as a list. Raises: Invalid."""
    found = list(requests)
    for each in found:
        if not isinstance(each, Request):
            raise Invalid(f"{each!r} is no request: the methods of an Index make them")
    return found


def _result(outcome: T | Error) -> T:
    if isinstance(outcome, Error):
        raise outcome
    return outcome


class Client(ABC):
    """Sends requests and waits for the answers: a `HandlerSocket`, or a `Pool` of them."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def pipeline(self, requests: Iterable[Request[T]]) -> list[T | Error]:
        """Send many requests at once, and return their outcomes in the same order: each a result, or an error.

        The failure of one request does not affect the others. The server runs them in their order.
        """

    def run(self, request: Request[T]) -> T:
        """Send a request and return its result.

        Raises: Refused, the server's error; TimedOut, ConnectionLost and CannotOpen, which are safe to try again;
            OutcomeUnknown for a modification that may have happened; Mismatch if an answer is not UTF-8; from a pool
            also Busy.
        """
        return _result(self.pipeline([request])[0])

    @abstractmethod
    def close(self) -> None:
        """Close every connection, after its current call. The next request connects again."""


class AsyncClient(ABC):
    """`Client` with `await`: an `AsyncHandlerSocket`, or an `AsyncPool` of them."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @abstractmethod
    async def pipeline(self, requests: Iterable[Request[T]]) -> list[T | Error]:
        """Send many requests at once and return the outcome of each; see `Client.pipeline`."""

    async def run(self, request: Request[T]) -> T:
        """Send a request and return its result. Raises what `Client.run` raises."""
        return _result((await self.pipeline([request]))[0])

    @abstractmethod
    async def close(self) -> None:
        """Close every connection, after its current call. The next request connects again."""
