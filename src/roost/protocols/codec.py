"""What the server has to know of a protocol: how requests are told apart, and what answers them.

A chunk is what one connection has sent, whole requests: a text of lines in HandlerSocket, bytes in memcached.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

from roost.errors import Error
from roost.structures.index.budget import Budget


class Late(NamedTuple):
    """What a connection is answered after a delay, since the secret was wrong, and its requests that go on then."""

    text: Any
    rest: Any


class TooLong(Exception):
    """A request without an end: nothing behind it can be understood.

    whole: the chunk of the requests before it; None where there are none.
    """

    def __init__(self, whole: Any) -> None:
        super().__init__()
        self.whole = whole


class Framing(Protocol):
    """One connection's bytes, which become chunks.

    held: how many bytes are kept of a request that has no end yet.
    """

    held: int

    def feed(self, data: bytes) -> Any:
        """Take what has arrived, and return the whole requests; None where there are none.

        Raises: TooLong.
        """

    def limit(self, most_line: int, most_block: int) -> None:
        """Go on with other limits: bytes of a line, and of a block of data behind one."""

    def drop(self) -> None:
        """Forget what is kept."""


class Session(Protocol):
    """What is known of one connection."""

    authorized: bool
    wrong: int  # secrets, one after the other
    foreign: bool  # nothing more of it is looked at: it is over, or speaks another protocol


class Request(Protocol):
    """What a responder asks of the database."""

    def run(self, database: Any, context: Any) -> Generator[Any, Any, Any]:
        """Ask it; the answer is what the responder is sent. database: see `roost.store.served.Database`."""


class Responder(Protocol):
    """The requests of several connections, and their answers."""

    texts: list[Any]  # the answers, in the order of the connections; empty where there are none yet
    late: dict[int, Late]  # by their places, after their texts
    rest: dict[int, Any]  # by their places: the requests that are left for later turns
    seconds: list[float]  # that each took
    requests: int
    errors: int
    rows: int
    elapsed: float  # seconds that the last answer of the database took; whoever sends it says so

    def play(self) -> Generator[Request, Any, None]:
        """Answer the requests, as far as the budget allows: yields what is asked of the database."""

    def undo(self) -> None:
        """Take back what the sessions have become: the answers are not sent."""


Arrived = Sequence[tuple[Any, Any]]  # sessions, and their chunks


class Codec(Protocol):
    """A protocol over one database.

    opens: whether clients open indexes, which may have changed since.
    empty: a chunk of nothing.
    gap: how long what separates two chunks is, that are parts of one.
    full: what is said to who comes beyond the limit of connections.
    too_long: what is said to who sends a request that is too long, before the connection is closed.
    """

    name: ClassVar[str]
    opens: ClassVar[bool]
    empty: ClassVar[Any]
    gap: ClassVar[int]
    full: ClassVar[bytes]
    too_long: ClassVar[bytes]

    def framing(self, session: Any, most_line: int, most_block: int) -> Framing:
        """Return what makes chunks of one connection's bytes; for the limits see `Framing.limit`."""

    def writes(self, arrived: Arrived) -> bool:
        """Whether the requests may modify something."""

    def count(self, chunk: Any) -> int:
        """Return the number of requests."""

    def halves(self, chunk: Any) -> tuple[Any, Any] | None:
        """Return the first half and the second; None for one request."""

    def cut(self, chunk: Any, size: int) -> tuple[Any, Any]:
        """Return a first part of about so many bytes, at least one request, and the rest; None where there is none."""

    def modifies(self, chunk: Any) -> bool:
        """Whether the first request of a chunk may be a modification."""

    def key_of(self, session: Any, request: Any) -> Hashable:
        """Return what a request asks for: requests that modify by the same key have the same."""

    def encode(self, answer: Any) -> bytes:
        """Return an answer as it is sent."""

    def responder(self, arrived: Arrived, version: int, budget: Budget, failed: Error | None) -> Responder:
        """Return what answers requests. version: of what was opened; failed: why there is no transaction."""
