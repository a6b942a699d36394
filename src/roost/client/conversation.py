"""What is said on a connection, without one: a generator that asks its driver to connect, to send and to drop.

Requests and answers have no numbers, so an answer belongs to a request by its place alone. The rule that follows: a
connection on which anything is unclear is dropped, never used again. It is unclear after a timeout, an I/O error, an
answer that cannot be one, bytes that nobody asked for, and whatever leaves the generator early (a cancelled task,
Ctrl-C): the driver drops what was not said to be `clean`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from roost.client.requests import Broken, Opening, Request
from roost.errors import CannotOpen, ConnectionLost, Invalid, Mismatch, OutcomeUnknown, Refused, TimedOut
from roost.protocols.handlersocket import SEPARATOR, escape


class Control(Enum):
    """What a driver does beside sending."""

    CONNECT = "connect"  # unless connected; is sent True when the connection is a new one
    DROP = "drop"  # close the connection, if there is one


@dataclass(frozen=True)
class Transfer:
    """Send some of `data`, if there is any, or wait for bytes; is sent how many went, and what came.

    Nothing came: None. The other side has closed: no bytes.
    """

    data: memoryview


Step: TypeAlias = Control | Transfer
Outcomes: TypeAlias = list[Any]  # results, and errors as values
Conversation: TypeAlias = Generator[Step, Any, Outcomes]

# A server that answers so has not understood what was sent, or does not know what was opened.
UNCLEAR = {"cmd", "syntax", "toolong", "escape", "number", "stmtnum", "unauth", "authtype"}
MOST_OPEN = 1000  # indexes on one connection: they cost the server memory, and cannot be closed otherwise
LONGEST = 2**30  # bytes of one answer

WORDS = {
    "121": "the key is there already",
    "146": "a row was locked for too long",
    "lock_tables": "the table is locked",
    "open_table": "there is no such table",
    "idxnum": "there is no such index",
    "fld": "there is no such column",
    "unauth": "the secret is wrong, or none was given",
    "readonly": "this port only reads",
    "kpnum": "the index has fewer columns than the key has values",
}


# Whom a line's answer is for. No request: it is the secret. No place: it opens the request's index.
Line: TypeAlias = tuple[Request[Any] | None, int | None]


class Unanswered(Exception):
    """The other side has closed the connection."""


class Session:
    """What holds for one connection: the ids of the indexes that are open."""

    def __init__(self) -> None:
        self.ids: dict[bytes, int] = {}
        self._next = 0

    def is_new(self) -> None:
        """Forget what another connection had open."""
        self.ids.clear()
        self._next = 0

    def new_id(self, opened: bytes) -> int:
        """Return the id for an index that is to be opened.

        An id is never given twice: when opening fails, the server keeps what was open under it before.
        """
        self.ids[opened] = self._next
        self._next += 1
        return self.ids[opened]


class _Nothing(Enum):
    YET = "yet"


def converse(session: Session, secret: bytes, requests: Sequence[Request[Any]], whom: str) -> Conversation:
    """Send requests, all at once, and return the outcome of each: its result, or its error.

    What only reads, and what certainly was not sent, is sent once more when the connection breaks.
    """
    for each in requests:
        if not isinstance(each, Request):
            raise Invalid(f"{each!r} is no request: the methods of an Index make them")
    outcomes: Outcomes = [_Nothing.YET] * len(requests)
    left = list(range(len(requests)))
    if len(session.ids) > MOST_OPEN:
        yield Control.DROP
    again = False
    while True:
        try:
            if (yield Control.CONNECT):
                session.is_new()
        except OSError as error:
            for place in left:
                outcomes[place] = CannotOpen(f"no connection to {whom}: {reason(error)}")
            return outcomes
        exchange = _Exchange(session, requests, left, secret)
        cause: Exception | None = None
        try:
            yield from exchange.run(outcomes)
        except (OSError, Unanswered, Broken) as error:
            cause = error
        if cause is not None or exchange.unclear:
            yield Control.DROP
        if cause is None:
            return outcomes
        left = [place for place in left if outcomes[place] is _Nothing.YET]
        lost = [place for place in left if requests[place].changes and exchange.was_sent(place)]
        left = [place for place in left if place not in set(lost)]
        why = f"{reason(cause)}; the connection to {whom} was dropped"
        for place in lost:
            outcomes[place] = OutcomeUnknown(f"{requests[place]!r} may have been done: {why}")
        if again or isinstance(cause, TimeoutError):
            kind = TimedOut if isinstance(cause, TimeoutError) else ConnectionLost
            for place in left:
                outcomes[place] = kind(f"{requests[place]!r} was not done: {why}")
            left = []
        if not left:
            return outcomes
        again = True


class _Exchange:
    """One chunk of lines, and the answers to them."""

    def __init__(
        self, session: Session, requests: Sequence[Request[Any]], places: Sequence[int], secret: bytes
    ) -> None:
        self.unclear = False
        self._session = session
        self._lines: list[Line] = []
        self._chunk = bytearray()
        self._ends: dict[int, int] = {}
        self._sent = 0
        self._failed: dict[bytes, Refused] = {}  # indexes that could not be opened
        self._openings = [(place, requests[place]) for place in places if isinstance(requests[place], Opening)]
        if secret and not session.ids:
            self._add(b"A\t1\t" + escape(secret) + b"\n", None, None)
        for place in places:
            request = requests[place]
            opened = request.index.opened
            if opened not in session.ids:
                self._add(b"P\t%d" % session.new_id(opened) + opened, request, None)
            if not isinstance(request, Opening):
                self._add(b"%d" % session.ids[opened] + request.tail, request, place)

    def _add(self, line: bytes, serves: Request[Any] | None, place: int | None) -> None:
        self._chunk += line
        self._lines.append((serves, place))
        if place is not None:
            self._ends[place] = len(self._chunk)

    def was_sent(self, place: int) -> bool:
        """Whether the whole line of a request may have left; what has not, nobody can have done."""
        return self._ends[place] <= self._sent

    def run(self, outcomes: Outcomes) -> Generator[Step, Any, None]:
        """Send the chunk and read the answers, both at once. Raises: OSError, Unanswered, Broken."""
        chunk, rest, answered = memoryview(self._chunk), bytearray(), 0
        while answered < len(self._lines):
            sent, came = yield Transfer(chunk[self._sent :])
            self._sent += sent
            if came is None:
                continue
            if not came:
                raise Unanswered("it was closed from the other side")
            first, *others = came.split(b"\n")
            rest += first
            if len(rest) > LONGEST or answered + len(others) > len(self._lines):
                raise Broken("more came than was asked for")
            for other in others:
                self._take(self._lines[answered], bytes(rest), outcomes)
                answered += 1
                rest = bytearray(other)
        self.unclear = self.unclear or bool(rest)
        for place, request in self._openings:
            outcomes[place] = self._failed.get(request.index.opened)

    def _take(self, line: Line, answer: bytes, outcomes: Outcomes) -> None:
        request, place = line
        code, *found = answer.split(SEPARATOR)
        if not code.isdigit() or not found:
            raise Broken(f"{answer[:40]!r} is no answer")
        refused = self._refusal(int(code), found) if code != b"0" else None
        if request is None:
            return  # where the secret is wanted, the other answers say whether it was right
        opened = request.index.opened
        if place is None:
            if refused is not None:
                self._failed[opened] = refused
                del self._session.ids[opened]
            elif found[0] != b"1":
                raise Broken(f"{answer[:40]!r} is no answer to opening an index")
            return
        failed = self._failed.get(opened)
        try:
            if failed is not None and refused is None:
                raise Broken
            outcomes[place] = failed or refused or request.read(found)
        except Mismatch as error:
            outcomes[place] = error
        except Broken:
            raise Broken(f"{answer[:40]!r} is no answer to {request!r}") from None

    def _refusal(self, code: int, found: list[bytes]) -> Refused:
        word = found[1].decode(errors="replace") if len(found) > 1 else ""
        self.unclear = self.unclear or word in UNCLEAR
        told = f" ({WORDS[word]})" if word in WORDS else ""
        return Refused(f"the server answered {code} 1 {word}{told}", code, word)


def reason(error: Exception) -> str:
    """Say what went wrong with a connection."""
    return str(error) or type(error).__name__
