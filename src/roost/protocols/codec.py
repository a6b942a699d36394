"""The interface between the server and a protocol: how bytes are split into requests, and how requests are answered.

A chunk is a sequence of complete requests from one connection: a text of lines in HandlerSocket, bytes in memcached.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

from roost.errors import Error
from roost.structures.index.budget import Budget


class Late(NamedTuple):
    """An answer that is delayed since the secret was wrong, and the requests that run after it, or None."""

    text: Any
    rest: Any


class TooLong(Exception):
    """A request exceeds the limit before its end: the bytes behind it cannot be parsed.

    whole: the chunk of the requests before it; None if there are none.
    """

    def __init__(self, whole: Any) -> None:
        super().__init__()
        self.whole = whole


class Framing(Protocol):
    """Splits one connection's bytes into chunks.

    held: the number of buffered bytes of an incomplete request.
    """

    held: int

    def feed(self, data: bytes) -> Any:
        """Take received bytes, and return the complete requests; None if there are none.

        Raises: TooLong.
        """

    def limit(self, most_line: int, most_block: int) -> None:
        """Set other limits, in bytes: of a line, and of the data block that follows one."""

    def drop(self) -> None:
        """Discard the buffered bytes."""


class Session(Protocol):
    """The protocol's state of one connection."""

    authorized: bool
    wrong: int  # the number of consecutive wrong secrets
    foreign: bool  # its further bytes are ignored: it has ended, speaks another protocol, or cannot be answered


class Request(Protocol):
    """A responder's request to the database."""

    def run(self, database: Any, context: Any) -> Generator[Any, Any, Any]:
        """Run it; its result is sent to the responder. database: see `roost.store.served.Database`."""


class Responder(Protocol):
    """The requests of several connections, and their answers."""

    texts: list[Any]  # the answers, in the order of the connections; empty if there are none yet
    late: dict[int, Late]  # delayed answers, by the connection's place; they follow the texts
    rest: dict[int, Any]  # the requests left for later turns, by the connection's place
    seconds: list[float]  # the time that each connection took
    requests: int
    errors: int
    rows: int
    elapsed: float  # seconds that the database's last answer took; set by the caller that sends the answer in

    def play(self) -> Generator[Request, Any, None]:
        """Answer the requests, as far as the budget allows; yield requests to the database."""

    def undo(self) -> None:
        """Restore the sessions to their state before `play`: the answers will not be sent."""


Arrived = Sequence[tuple[Any, Any]]  # sessions, and their chunks


class Codec(Protocol):
    """A protocol over one database.

    opens: whether clients open indexes, which may change while they are open.
    empty: an empty chunk.
    gap: the length of the separator between two parts of a chunk.
    full: the answer to a connection beyond the limit.
    too_long: the answer to a request that is too long, after which the connection is closed.
    """

    name: ClassVar[str]
    opens: ClassVar[bool]
    empty: ClassVar[Any]
    gap: ClassVar[int]
    full: ClassVar[bytes]
    too_long: ClassVar[bytes]

    def framing(self, session: Any, most_line: int, most_block: int) -> Framing:
        """Make the framing of one connection; for the limits see `Framing.limit`."""

    def writes(self, arrived: Arrived) -> bool:
        """Whether the requests may modify something."""

    def count(self, chunk: Any) -> int:
        """Return the number of requests."""

    def halves(self, chunk: Any) -> tuple[Any, Any] | None:
        """Split a chunk into two halves; None if it is a single request."""

    def cut(self, chunk: Any, size: int) -> tuple[Any, Any]:
        """Split off a first part of about `size`, at least one request; return it and the rest (None: no rest)."""

    def modifies(self, chunk: Any) -> bool:
        """Whether the first request of a chunk may be a modification."""

    def key_of(self, session: Any, request: Any) -> Hashable:
        """Return the key that a request modifies by, which is equal for requests that may need the same lock."""

    def encode(self, answer: Any) -> bytes:
        """Encode an answer for the connection."""

    def responder(self, arrived: Arrived, version: int, budget: Budget, failed: Error | None) -> Responder:
        """Make a responder. version: of the opened indexes; failed: the error because of which nothing can run."""
