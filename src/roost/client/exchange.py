"""One exchange on a connection: the lines that are sent at once, and the answers to them.

Requests and answers have no numbers, so only its position shows to which request an answer belongs. Therefore a
connection whose state is unclear is dropped, and never used again. The state is unclear after a timeout, an I/O error,
an answer that is not valid for its request, and bytes that were not requested.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from roost.client.requests import Broken, Opening, Request
from roost.errors import Mismatch, OutcomeUnknown, Refused
from roost.protocols.handlersocket import SEPARATOR, escape

# After these answers the server and the client may disagree about the requests sent, or about the open indexes.
UNCLEAR = {"cmd", "syntax", "toolong", "escape", "number", "stmtnum", "unauth", "authtype"}
LONGEST = 2**30  # bytes of one answer

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
# The request of a line, and its position. A line without a request sends the secret; one without a position opens the
# request's index.
Line: TypeAlias = tuple[Request[Any] | None, int | None]


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


@dataclass(frozen=True)
class Transfer:
    """A step for the driver: send some of `data`; if it is empty, or sending would block, wait to receive or send.

    The driver answers with the number of bytes sent and the bytes received: None if it did not receive, b"" if the
    server has closed the connection. Raises: OSError, including the deadline's TimeoutError.
    """

    data: memoryview
    deadline: Deadline


class Unanswered(Exception):
    """The server has closed the connection."""


class OpenIndexes:
    """The ids of the indexes that are open on one connection."""

    def __init__(self) -> None:
        self.ids: dict[bytes, int] = {}
        self._next = 0

    def clear(self) -> None:
        """Forget all ids: a new connection has no open indexes."""
        self.ids.clear()
        self._next = 0

    def new_id(self, opened: bytes) -> int:
        """Return the id with which to open an index.

        No id is used twice: if opening an index fails, the server keeps the one that was open under the same id.
        """
        self.ids[opened] = self._next
        self._next += 1
        return self.ids[opened]


class Pipeline:
    """One chunk with the lines of some requests and the lines that open their indexes; reads the answers to it."""

    def __init__(
        self,
        indexes: OpenIndexes,
        secret: bytes,
        requests: Sequence[Request[Any]],
        places: Sequence[int],
        deadline: Deadline,
    ) -> None:
        self.unclear = False
        self._deadline = deadline
        self._indexes = indexes
        self._lines: list[Line] = []
        self._chunk = bytearray()
        self._ends: dict[int, int] = {}
        self._sent = 0
        self._failed: dict[bytes, Refused] = {}  # indexes that could not be opened
        self._openings = [(place, requests[place]) for place in places if isinstance(requests[place], Opening)]
        if secret and not indexes.ids:
            self._add(b"A\t1\t" + escape(secret) + b"\n", None, None)
        for place in places:
            request = requests[place]
            opened = request.index.opened
            if opened not in indexes.ids:
                self._add(b"P\t%d" % indexes.new_id(opened) + opened, request, None)
            if not isinstance(request, Opening):
                self._add(b"%d" % indexes.ids[opened] + request.tail, request, place)

    def _add(self, line: bytes, request: Request[Any] | None, place: int | None) -> None:
        self._chunk += line
        self._lines.append((request, place))
        if place is not None:
            self._ends[place] = len(self._chunk)

    def was_sent(self, place: int) -> bool:
        """Whether a request's line may have been sent completely; if not, the server cannot have executed it."""
        return self._ends[place] <= self._sent

    def run(self, outcomes: Outcomes) -> Generator[Transfer, tuple[int, bytes | None], None]:
        """Send the chunk while reading the answers. Raises: OSError, Unanswered, Broken."""
        chunk, rest, answered = memoryview(self._chunk), bytearray(), 0
        while answered < len(self._lines):
            sent, received = yield Transfer(chunk[self._sent :], self._deadline)
            self._sent += sent
            if received is None:
                continue
            if not received:
                raise Unanswered("the other side closed it")
            first, *others = received.split(b"\n")
            rest += first
            if len(rest) > LONGEST or answered + len(others) > len(self._lines):
                raise Broken("more was received than requested")
            for other in others:
                self._take(self._lines[answered], bytes(rest), outcomes)
                answered += 1
                rest = bytearray(other)
        self.unclear = self.unclear or bool(rest)
        for place, request in self._openings:
            outcomes[place] = self._failed.get(request.index.opened)

    def _take(self, line: Line, answer: bytes, outcomes: Outcomes) -> None:
        request, place = line
        code, *tokens = answer.split(SEPARATOR)
        if not code.isdigit() or not tokens:
            raise Broken(f"{answer[:40]!r} is not an answer")
        refused = self._refusal(int(code), tokens) if code != b"0" else None
        if request is None:
            return  # not checked: if the secret was wrong, the other answers report it
        opened = request.index.opened
        if place is None:
            if refused is not None:
                self._failed[opened] = refused
                del self._indexes.ids[opened]
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
