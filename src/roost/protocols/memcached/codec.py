"""memcached's `Codec`: a chunk is the bytes of complete requests."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from typing import ClassVar

from roost.errors import Error
from roost.protocols.codec import Piece, Session
from roost.protocols.memcached.framing import Framing, end_of
from roost.protocols.memcached.requests import Requests
from roost.protocols.memcached.responder import Responder, Stats
from roost.protocols.memcached.values import Values
from roost.structures.index.budget import Budget

# Requests that never modify anything. Each line can match in only one way. With `[^\n]*\r?\n` it could match in two,
# and the regular expression would try all combinations when another kind of request follows.
_READS = re.compile(rb"(?:(?:gets? [^\n]*|mn\r?|version\r?|verbosity[^\n]*|stats[^\n]*)\n)+")
_WORDS = re.compile(rb" *([^ \r\n]+) *([^ \r\n]*) *([^ \r\n]*)")


class Memcached:
    """memcached's protocol over one cache."""

    name: ClassVar[str] = "memcached"
    opens: ClassVar[bool] = False
    full: ClassVar[bytes] = b"ERROR Too many open connections\r\n"
    too_long: ClassVar[bytes] = b"CLIENT_ERROR line too long\r\n"

    def __init__(self, values: Values, stats: Stats, once_for: float = 0.0) -> None:
        self.most_value = values.most_value
        self._requests = Requests(values, once_for)
        self._stats = stats

    def framing(self, session: Session, most_line: int, most_block: int) -> Framing:
        return Framing(most_line, most_block, self.most_value, session)

    def writes(self, pieces: Sequence[Piece]) -> bool:
        return not all([_READS.fullmatch(piece.requests) for piece in pieces])

    def count(self, chunk: bytes) -> int:
        return len(self._ends(chunk))

    def _ends(self, chunk: bytes) -> list[int]:
        ends = []
        place = 0
        while place < len(chunk):
            place = end_of(chunk, place)
            ends.append(place)
        return ends

    def halves(self, chunk: bytes) -> tuple[bytes, bytes] | None:
        """Split a chunk into two halves; None if it is a single request."""
        ends = self._ends(chunk)
        if len(ends) < 2:
            return None
        middle = ends[len(ends) // 2 - 1]
        return chunk[:middle], chunk[middle:]

    def cut(self, chunk: bytes, size: int) -> tuple[bytes, bytes | None]:
        """Split off a first part of about `size` bytes, at least one request; return it and the rest, if any."""
        place = end_of(chunk, 0)
        while place < len(chunk):
            end = end_of(chunk, place)
            if end > size:
                break
            place = end
        return chunk[:place], chunk[place:] or None

    def join(self, first: bytes, second: bytes) -> bytes:
        return first + second

    def modifies(self, chunk: bytes) -> bool:
        """Whether the first request of a chunk may be a modification."""
        return _READS.match(chunk) is None

    def key_of(self, session: Session, request: bytes) -> Hashable:
        """Return the first key of a request."""
        found = _WORDS.match(request)
        if found is None:
            return b""
        return found[3] if found[1] in (b"gat", b"gats") else found[2]

    def encode(self, answer: bytes) -> bytes:
        return answer

    def responder(self, pieces: Sequence[Piece], version: int, budget: Budget, failed: Error | None) -> Responder:
        return Responder(pieces, self._requests, self._stats, budget, failed)
