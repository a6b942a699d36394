"""What is sent on one connection, what the answers mean, and what becomes of a connection that breaks. No I/O.

Requests and answers have no numbers, so only its position shows to which request an answer belongs. Therefore a
connection whose state is unclear is dropped, and never used again. The state is unclear after a timeout, an I/O error,
an answer that is not valid for its request, bytes that were not requested, and a call that was interrupted.

The coroutines here wait in the methods of a `Wire` only. Those for threads block instead of suspending, so that a
thread runs the whole coroutine by one `send`.
"""

from __future__ import annotations

import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Generic, Protocol, Self, TypeAlias, TypedDict, TypeVar

from roost.client.requests import Broken, Opening, Request
from roost.databases.addresses import Address
from roost.errors import CannotOpen, ConnectionLost, Error, Invalid, Mismatch, OutcomeUnknown, Refused, TimedOut
from roost.protocols.handlersocket import SEPARATOR, escape

T = TypeVar("T")

MOST_OPEN = 1000  # indexes on one connection: they cost the server memory, and only closing the connection closes them
LONGEST = 2**30  # bytes of one answer

# After these answers the server and the client may disagree about the requests sent, or about the open indexes.
UNCLEAR = {"cmd", "syntax", "toolong", "escape", "number", "stmtnum", "unauth", "authtype"}

EXPLANATIONS = {
    "121": "the key is there already",
    "135": "the disk is full",
    "146": "a row was locked for too long",
    "151": "a foreign key has no such row",
    "152": "a foreign key refers to the row",
    "165": "the database takes no writes",
    "check": "a CHECK refuses the row",
    "denied": "the account of the server has not the right; its log names it",
    "filterfld": "the index was opened without such a filter column",
    "fld": "there is no such column",
    "fop": "there is no such filter operator",
    "full": "the collection is full",
    "generated": "the database computes a column that was given",
    "idxnum": "there is no such index",
    "invalueslen": "the list of IN is empty, or is for no value of the key",
    "kpnum": "the index has fewer columns than the key has values",
    "limit": "a limit of the server is exceeded",
    "lock_tables": "the table is locked",
    "notimpl": "the table or structure does not support the request",
    "notnull": "a column takes no NULL",
    "open_table": "there is no such database or table, or it may not be opened",
    "range": "the result is beyond what the column holds",
    "readonly": "this port only reads",
    "timeout": "the request took too long, and was undone",
    "toobig": "a value is too long",
    "trigger": "a trigger refuses the row",
    "type": "a column does not take such a value",
    "unauth": "the secret is wrong, or none was given",
    "unavailable": "the database of the server is away",
    "unknown": "the connection to the database broke during COMMIT: it may have been done",
}

Outcomes: TypeAlias = list[Any]  # results, and errors as values


class Deadline:
    """The time at which a call must have ended; without seconds, there is none."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._end = None if seconds is None else time.monotonic() + seconds

    def left(self) -> float | None:
        """Return the seconds that are left. Raises: TimeoutError if there are none."""
        if self._end is None:
            return None
        left = self._end - time.monotonic()
        if left <= 0:
            raise self.exceeded()
        return left

    def exceeded(self) -> TimeoutError:
        """Make the error of a call that has exceeded its timeout."""
        return TimeoutError(f"no answer within {self._seconds:g} s")


class Wire(Protocol):
    """A connected socket. Only `transfer` waits.

    transfer: sends some of `data`; if it is empty, or sending would block, waits to receive or send. Returns the number
        of bytes that count as sent, and the bytes received: None if it did not receive, b"" if the server has closed
        the connection. Raises: OSError, including the deadline's TimeoutError.
    is_stale: whether the other side has closed it, or it has bytes that were not requested.
    """

    def is_stale(self) -> bool: ...  # noqa: D102
    async def transfer(self, data: memoryview, deadline: Deadline) -> tuple[int, bytes | None]: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102


class _Exchange:
    """The lines of some requests, which are sent at once with the lines that open their indexes; and the answers.

    ids: of the indexes that are open on the connection, by the lines that open them.
    places: of the requests to send.
    """

    def __init__(
        self, ids: dict[bytes, int], secret: bytes, requests: Sequence[Request[Any]], places: Sequence[int]
    ) -> None:
        self.unclear = False
        self._ids = ids
        # The request of each line, and its place. A line without a request sends the secret; one without a place opens
        # the request's index.
        self._lines: list[tuple[Request[Any] | None, int | None]] = []
        self._chunk = bytearray()
        self._ends: dict[int, int] = {}
        self._sent = 0
        self._failed: dict[bytes, Refused] = {}  # indexes that could not be opened
        self._openings = [(place, requests[place]) for place in places if isinstance(requests[place], Opening)]
        if secret and not ids:
            self._add(b"A\t1\t" + escape(secret) + b"\n", None, None)
        for place in places:
            request = requests[place]
            opened = request.index.opened
            if opened not in ids:
                # No id of an open index: if opening an index fails, the server keeps the one that was open under it.
                ids[opened] = max(ids.values(), default=-1) + 1
                self._add(b"P\t%d" % ids[opened] + opened, request, None)
            if not isinstance(request, Opening):
                self._add(b"%d" % ids[opened] + request.tail, request, place)

    def _add(self, line: bytes, request: Request[Any] | None, place: int | None) -> None:
        self._chunk += line
        self._lines.append((request, place))
        if place is not None:
            self._ends[place] = len(self._chunk)

    def was_sent(self, place: int) -> bool:
        """Whether a request's line may have been sent completely; if not, the server cannot have executed it."""
        return self._ends[place] <= self._sent

    async def run(self, wire: Wire, deadline: Deadline, outcomes: Outcomes) -> None:
        """Send the chunk while reading the answers. Raises: OSError, Broken."""
        chunk, rest, answered = memoryview(self._chunk), bytearray(), 0
        while answered < len(self._lines):
            sent, received = await wire.transfer(chunk[self._sent :], deadline)
            self._sent += sent
            if received is None:
                continue
            if not received:
                raise ConnectionResetError("the other side closed it")
            first, *others = received.split(b"\n")
            rest += first
            if len(rest) > LONGEST or answered + len(others) > len(self._lines):
                raise Broken("more was received than requested")
            for other in others:
                self._take(*self._lines[answered], bytes(rest), outcomes)
                answered += 1
                rest = bytearray(other)
        self.unclear = self.unclear or bool(rest)
        for place, request in self._openings:
            outcomes[place] = self._failed.get(request.index.opened)

    def _take(self, request: Request[Any] | None, place: int | None, answer: bytes, outcomes: Outcomes) -> None:
        code, *tokens = answer.split(SEPARATOR)
        if not code.isdigit() or len(code) > 10 or not tokens:
            raise Broken(f"{answer[:40]!r} is not an answer")
        refused = self._refusal(int(code), tokens) if code != b"0" else None
        if request is None:
            return  # not checked: if the secret was wrong, the other answers report it
        opened = request.index.opened
        if place is None:
            if refused is not None:
                self._failed[opened] = refused
                del self._ids[opened]
            elif tokens[0] != b"1":
                raise Broken(f"{answer[:40]!r} is not an answer to opening an index")
            return
        failed = self._failed.get(opened)
        try:
            if failed is not None and refused is None:
                raise Broken
            if refused is not None and refused.word == OutcomeUnknown.word and request.changes:
                outcomes[place] = OutcomeUnknown(f"{request!r} may have been done: {refused}")
            else:
                outcomes[place] = failed or refused or request.read(tokens)
        except Mismatch as error:
            outcomes[place] = error
        except Broken:
            raise Broken(f"{answer[:40]!r} is not an answer to {request!r}") from None

    def _refusal(self, code: int, tokens: list[bytes]) -> Refused:
        word = tokens[1].decode(errors="replace") if len(tokens) > 1 else ""
        self.unclear = self.unclear or word in UNCLEAR
        explained = f" ({EXPLANATIONS[word]})" if word in EXPLANATIONS else ""
        return Refused(f"the server answered {code} 1 {word}{explained}", code, word)


class Options(TypedDict, total=False):
    """The keyword arguments of `HandlerSocket` and `AsyncHandlerSocket`, which pools pass on."""

    secret: str | bytes | None
    timeout: float | None
    connect_timeout: float | None
    tls: ssl.SSLContext | None


PENDING: Any = object()  # the outcome of a request that has none yet
W = TypeVar("W", bound=Wire)


class Connection(ABC, Generic[W]):
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
        self._address = Address.parse(address)
        self._secret = secret.encode() if isinstance(secret, str) else secret or b""
        self._timeout, self._connect_timeout, self._tls = timeout, connect_timeout, tls
        if not (self._address.port or self._address.path):
            raise Invalid(f"{address!r} is not an address of a server: it has no port")
        for name, seconds in (("timeout", timeout), ("connect_timeout", connect_timeout)):
            if seconds is not None and not 0 < seconds < 10**6:
                raise Invalid(f"{name} is a number of seconds or None, not {seconds!r}")
        if tls is not None and self._address.path:
            raise Invalid("a Unix socket has no name for TLS to verify")
        self._ids: dict[bytes, int] = {}  # of the open indexes
        self._wire: W | None = None
        self._renew()

    @abstractmethod
    def _renew(self) -> None:
        """Make the state that belongs to one process or event loop: the lock."""

    @abstractmethod
    async def _connect(self, seconds: float | None) -> W:
        """Connect within `seconds`. Raises: OSError."""

    def __repr__(self) -> str:
        state = "not connected" if self._wire is None else f"connected, {len(self._ids)} indexes open"
        return f"<{type(self).__name__} {self._address}: {state}>"

    def _drop(self) -> None:
        """Close the wire, if there is one. The next request connects again."""
        wire, self._wire = self._wire, None
        self._ids.clear()
        if wire is not None:
            wire.close()

    def _in_use(self, requests: list[Request[Any]]) -> Outcomes:
        """Return the outcomes of requests for which the connection did not become free in time."""
        why = f"others used the connection to {self._address} for {self._timeout:g} s"
        return [TimedOut(f"{each!r} was not done: {why}") for each in requests]

    async def _converse(self, requests: list[Request[Any]], deadline: Deadline) -> Outcomes:
        """Send requests, all at once, and return the outcome of each: its result, or its error.

        deadline: began before the caller waited for the connection.

        If the connection breaks, reads are sent once more, and so are modifications that were not sent completely.
        """
        outcomes: Outcomes = [PENDING] * len(requests)
        left = list(range(len(requests)))
        if len(self._ids) > MOST_OPEN:
            self._drop()
        again = False
        while True:
            try:
                wire = await self._connected(deadline)
            except OSError as error:
                for place in left:
                    outcomes[place] = CannotOpen(f"no connection to {self._address}: {_reason(error)}")
                return outcomes
            exchange = _Exchange(self._ids, self._secret, requests, left)
            cause: Exception | None = None
            try:
                await exchange.run(wire, deadline, outcomes)
            except (OSError, Broken) as error:
                cause = error
            if cause is not None or exchange.unclear:
                self._drop()
            if cause is None:
                return outcomes
            why = f"{_reason(cause)}; the connection to {self._address} was dropped"
            pending = [place for place in left if outcomes[place] is PENDING]
            left = []
            for place in pending:
                if requests[place].changes and exchange.was_sent(place):
                    outcomes[place] = OutcomeUnknown(f"{requests[place]!r} may have been done: {why}")
                elif again or isinstance(cause, TimeoutError):
                    kind = TimedOut if isinstance(cause, TimeoutError) else ConnectionLost
                    outcomes[place] = kind(f"{requests[place]!r} was not done: {why}")
                else:
                    left.append(place)
            if not left:
                return outcomes
            again = True

    async def _connected(self, deadline: Deadline) -> W:
        if self._wire is None or self._wire.is_stale():
            self._drop()
            bounds = [each for each in (self._connect_timeout, deadline.left()) if each is not None]
            self._wire = await self._connect(min(bounds, default=None))
        return self._wire


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

    def __exit__(self, *_: object) -> None:
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

    async def __aexit__(self, *_: object) -> None:
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


C = TypeVar("C", bound=Connection[Any])


def connections(kind: type[C], address: str, size: int, wait: float | None, options: Options) -> list[C]:
    """Make the connections of a pool. Raises: Invalid."""
    if size < 1:
        raise Invalid(f"a pool has at least one connection, not {size}")
    if wait is not None and not 0 <= wait < 10**6:
        raise Invalid(f"wait is a number of seconds or None, not {wait!r}")
    return [kind(address, **options) for _ in range(size)]
