"""What the protocols have in common: pieces of requests, and how they are answered.

A protocol has a codec (`HandlerSocket`, `Memcached`). It makes a framing for each connection, which splits its bytes
into complete requests, and a responder for each turn.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Generator, Sequence
from typing import Any

from roost.errors import Error
from roost.structures.index.budget import Budget


class TooLong(Exception):
    """A request exceeds the limit before its end: the bytes behind it cannot be parsed.

    whole: the complete requests before it; None if there are none.
    answer: the last answer, if it is not the protocol's usual one.
    """

    def __init__(self, whole: Any, answer: bytes = b"") -> None:
        super().__init__()
        self.whole = whole
        self.answer = answer


class Session:
    """The protocol's state of one connection. secret: what it has to send first; None: nothing."""

    __slots__ = ("authorized", "foreign", "secret", "wrong")

    def __init__(self, secret: bytes | None) -> None:
        self.secret = secret
        self.authorized = secret is None
        self.wrong = 0  # the number of consecutive wrong secrets
        # It has ended, speaks another protocol, or cannot be answered: its further bytes are ignored.
        self.foreign = False

    def state(self) -> tuple[Any, ...]:
        return self.authorized, self.wrong, self.foreign

    def restore(self, state: tuple[Any, ...]) -> None:
        self.authorized, self.wrong, self.foreign = state

    def says(self, secret: bytes) -> bool:
        """Compare a secret; a wrong one revokes the authorization that a right one gave."""
        if hmac.compare_digest(secret, self.secret or b""):
            self.authorized, self.wrong = True, 0
            return True
        if self.secret is not None:
            self.authorized = False
            self.wrong += 1
        return False


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
        return self.halves[1].ended if self.halves else self.done and self.rest is None and not self.late

    def halve(self, first: Any, second: Any) -> tuple[Piece, Piece]:
        one = Piece(self.session, first, before=self.before)
        self.halves = one, Piece(self.session, second, before=one)
        return self.halves

    def gather(self, join: Callable[[Any, Any], Any]) -> None:
        """Take over what became of the halves. join: puts together what was halved."""
        if self.halves is None:
            return
        first, second = self.halves
        first.gather(join)
        second.gather(join)
        self.answer = first.answer + second.answer
        self.late = first.late or second.late
        self.rest = second.rest if first.rest is None else join(first.rest, second.requests)
        self.seconds = first.seconds + second.seconds
        self.blocked = first.blocked or second.blocked


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

    def play(self) -> Generator[Any, Any, None]:
        """Answer the requests, as far as the budget allows; yield requests to the database, and be sent their results.

        A request is the name of a method of `roost.store.served.Database`, a generator, and what it is given.
        """
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
