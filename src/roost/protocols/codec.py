"""The interface between the server and a protocol: how bytes are split into requests, and how requests are answered."""

from __future__ import annotations

from collections.abc import Generator, Hashable, Sequence
from typing import Any, ClassVar, Protocol

from roost.errors import Error
from roost.structures.index.budget import Budget


class TooLong(Exception):
    """A request exceeds the limit before its end: the bytes behind it cannot be parsed.

    whole: the complete requests before it; None if there are none.
    """

    def __init__(self, whole: Any) -> None:
        super().__init__()
        self.whole = whole


class Session(Protocol):
    """The protocol's state of one connection."""

    authorized: bool
    wrong: int  # the number of consecutive wrong secrets
    foreign: bool  # its further bytes are ignored: it has ended, speaks another protocol, or cannot be answered


class Piece:
    """Complete requests that one connection has sent, and what became of them in a turn.

    requests: lines of text without the last LF in HandlerSocket, bytes in memcached.
    client: the connection that is answered.
    before: the requests that must be answered first, if a larger piece was halved.
    """

    __slots__ = (
        *("answer", "before", "blocked", "client", "done", "halves", "late", "requests", "rest", "seconds"),
        "session",
    )

    def __init__(self, session: Any, requests: Any, client: Any = None, before: Piece | None = None) -> None:
        self.session = session
        self.requests = requests
        self.client = client
        self.before = before
        self.done = False  # the answers are committed
        self.blocked = False  # its first request needs a lock of another session
        self.halves: tuple[Piece, Piece] | None = None
        self.answer = self.late = requests[:0]  # late: an answer that is delayed, since the secret was wrong
        self.rest = requests  # what is not answered; None: everything is
        self.seconds = 0.0  # the time that it took of the turn

    def undo(self) -> None:
        """Forget the answers, whose transaction was not committed."""
        self.answer = self.late = self.requests[:0]
        self.rest = self.requests
        self.seconds = 0.0

    @property
    def ready(self) -> bool:
        """Whether it can run: it is not answered, everything before it is, and its connection goes on."""
        if self.done or self.blocked or self.session.foreign:
            return False
        return self.before is None or self.before.ended

    @property
    def ended(self) -> bool:
        """Whether all of it is answered."""
        return self.halves[1].ended if self.halves else self.done and self.rest is None and not self.late

    def halve(self, first: Any, second: Any) -> tuple[Piece, Piece]:
        """Go on as two pieces with these requests."""
        one = Piece(self.session, first, before=self.before)
        self.halves = one, Piece(self.session, second, before=one)
        return self.halves

    def gather(self, codec: Codec) -> None:
        """Take over what became of the halves."""
        if self.halves is None:
            return
        first, second = self.halves
        first.gather(codec)
        second.gather(codec)
        self.answer = first.answer + second.answer
        self.late = first.late or second.late
        self.rest = second.rest if first.rest is None else codec.join(first.rest, second.requests)
        self.seconds = first.seconds + second.seconds
        self.blocked = first.blocked or second.blocked


class Framing(Protocol):
    """Splits one connection's bytes into complete requests.

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


class Request(Protocol):
    """A responder's request to the database."""

    def run(self, database: Any, context: Any) -> Generator[Any, Any, Any]:
        """Run it; its result is sent to the responder. database: see `roost.store.served.Database`."""


class Responder:
    """Answers pieces of several connections. A request without a transaction is answered with `failed`.

    elapsed: seconds that the database's last answer took; set by the caller that sends the answer in.
    """

    def __init__(self, pieces: Sequence[Piece], budget: Budget, failed: Error | None) -> None:
        self.pieces = pieces
        self.requests = self.errors = self.rows = 0
        self.elapsed = 0.0
        self._budget = budget
        self._failed = failed
        self._before: dict[Any, tuple[Any, ...]] = {}  # the former states of sessions that have changed

    def play(self) -> Generator[Request, Any, None]:
        """Answer the requests, as far as the budget allows; yield requests to the database."""
        raise NotImplementedError

    def _remember(self, session: Any) -> None:
        # Call it before a session changes.
        if session not in self._before:
            self._before[session] = session.state()

    def undo(self) -> None:
        """Restore the sessions and pieces to their state before `play`: the answers will not be sent."""
        for session, state in self._before.items():
            session.restore(state)
        for piece in self.pieces:
            piece.undo()


class Codec(Protocol):
    """A protocol over one database.

    opens: whether clients open indexes, which may change while they are open.
    full: the answer to a connection beyond the limit.
    too_long: the answer to a request that is too long, after which the connection is closed.
    """

    name: ClassVar[str]
    opens: ClassVar[bool]
    full: ClassVar[bytes]
    too_long: ClassVar[bytes]

    def framing(self, session: Any, most_line: int, most_block: int) -> Framing:
        """Make the framing of one connection; for the limits see `Framing.limit`."""

    def writes(self, pieces: Sequence[Piece]) -> bool:
        """Whether the requests may modify something."""

    def count(self, requests: Any) -> int:
        """Return the number of requests."""

    def halves(self, requests: Any) -> tuple[Any, Any] | None:
        """Split requests into two halves; None if it is a single request."""

    def cut(self, requests: Any, size: int) -> tuple[Any, Any]:
        """Split off a first part of about `size`, at least one request; return it and the rest (None: no rest)."""

    def join(self, first: Any, second: Any) -> Any:
        """Put together what was split."""

    def modifies(self, requests: Any) -> bool:
        """Whether the first request may be a modification."""

    def key_of(self, session: Any, request: Any) -> Hashable:
        """Return the key that a request modifies by, which is equal for requests that may need the same lock."""

    def encode(self, answer: Any) -> bytes:
        """Encode an answer for the connection."""

    def responder(self, pieces: Sequence[Piece], version: int, budget: Budget, failed: Error | None) -> Responder:
        """Make a responder. version: of the opened indexes; failed: the error because of which nothing can run."""
