"""Finds the ends of requests in received bytes: each request is a line, which a block of data may follow.

The start of the next request is found whatever arrives, in whatever pieces: by the length that the line names, or, if
that cannot be parsed, by the end of the line, as memcached does. A block that is too long is not buffered.
"""

from __future__ import annotations

import re

from roost.protocols.codec import TooLong
from roost.protocols.memcached.session import Session

MOST_KEY = 250  # bytes, in memcached and here
MOST_LENGTH = 2**31 - 3  # of a block: memcached parses the number as a 32-bit integer, and adds 2
PASSED = b"%d" % MOST_LENGTH  # the length written into the line of a block that was skipped
MOST_UNKNOWN = 2048  # bytes of a line, and of a block, from a client that has not sent the secret

_STORAGE = rb"(?:set|add|replace|append|prepend|cas|ms) "
# One or more lines without a block.
_LINES = re.compile(rb"(?:(?! *" + _STORAGE + rb")[^\n]*\n)+")
# A line with a block, and the block's length. memcached accepts a plus sign and leading zeros.
_BLOCK = re.compile(
    rb" *(?:(?:set|add|replace|append|prepend) +[^ \n]+ +[^ \n]+ +[^ \n]+ +(\+?[0-9]+)(?: +[^ \n]+)?"
    rb"|cas +[^ \n]+ +[^ \n]+ +[^ \n]+ +(\+?[0-9]+) +[^ \n]+(?: +[^ \n]+)?"
    rb"|ms +[^ \n]+ +(\+?[0-9]+)(?: +[^ \n]+)*) *\r?\n"
)


def block_of(data: bytes, start: int) -> tuple[int, int] | None:
    """Return the start and the length of the block that belongs to the line at `start`; None if it has none.

    The length is `MOST_LENGTH` if the block was skipped.
    """
    found = _BLOCK.match(data, start)
    if found is None:
        return None
    digits = found[1] or found[2] or found[3]
    length = int(digits) if len(digits) < 12 else MOST_LENGTH + 1
    return None if length > MOST_LENGTH else (found.end(), length)


def _without_block(data: bytes, start: int) -> bytes:
    # The line of a skipped block, with the length replaced by `PASSED`.
    found = _BLOCK.match(data, start)
    assert found is not None
    begin, end = found.span(found.lastindex or 0)
    return data[start:begin] + PASSED + data[end : found.end()]


def end_of(data: bytes, start: int) -> int:
    """Return the end of the request at `start`, in data of complete requests."""
    if _LINES.match(data, start) is None:
        block = block_of(data, start)
        if block is not None and block[1] < MOST_LENGTH:
            return block[0] + block[1] + 2
    return data.find(b"\n", start) + 1


class Framing:
    """Splits one connection's bytes into chunks.

    most_line: the limit of a line's bytes; a longer one raises `TooLong`.
    most_block: the limit of a block's bytes; a longer block is skipped, and `feed` returns its line without it.
    most: the upper bound of most_block, whatever limits are set later.
    session: until it has sent the secret, the limits are `MOST_UNKNOWN`, so that it can make the server buffer little.
    """

    __slots__ = (
        "_known",
        "_limits",
        "_most",
        "_pieces",
        "_session",
        "_skip",
        "_wanted",
        "held",
        "most_block",
        "most_line",
    )

    def __init__(
        self, most_line: int, most_block: int, most: int = MOST_LENGTH - 1, session: Session | None = None
    ) -> None:
        self._most = most
        self._session = session
        self.limit(most_line, most_block)
        self._pieces: list[bytes] = []  # the pieces of an incomplete request
        self.held = 0  # their bytes
        self._wanted = 0  # the bytes of the incomplete request with its block; 0 if its line is incomplete
        self._skip = 0  # bytes of a block still to be skipped

    def limit(self, most_line: int, most_block: int) -> None:
        """Set other limits."""
        self._limits = most_line, most_block
        self._known = self._session is None or self._session.authorized
        if not self._known:
            most_line = most_block = MOST_UNKNOWN
        self.most_line, self.most_block = most_line, min(most_block, self._most)

    def drop(self) -> None:
        """Discard the buffered bytes."""
        self._pieces, self.held, self._wanted = [], 0, 0

    def feed(self, data: bytes) -> bytes | None:
        """Take received bytes, and return the complete requests; None if there are none.

        Raises: TooLong.
        """
        if self._session is not None and self._session.authorized is not self._known:
            self.limit(*self._limits)
        if self._skip:
            skipped = min(self._skip, len(data))
            self._skip -= skipped
            data = data[skipped:]
        if self._pieces:
            self._pieces.append(data)
            self.held += len(data)
            if self.held < self._wanted or (not self._wanted and b"\n" not in data and self.held <= self.most_line):
                return None
            data = b"".join(self._pieces)
            self._pieces, self.held, self._wanted = [], 0, 0
        whole: list[bytes] = []
        begin = place = 0
        total = len(data)
        while place < total:
            lines = _LINES.match(data, place)
            if lines is not None:
                place = lines.end()
                continue
            line = data.find(b"\n", place) + 1
            if not line:
                if total - place > self.most_line:
                    raise TooLong(b"".join([*whole, data[begin:place]]) or None)
                break
            block = block_of(data, place)
            if block is None:
                place = line
            elif block[1] > self.most_block:
                whole += [data[begin:place], _without_block(data, place)]
                skipped = min(block[1] + 2, total - line)
                self._skip = block[1] + 2 - skipped
                begin = place = line + skipped
            elif block[0] + block[1] + 2 > total:
                self._wanted = block[0] + block[1] + 2 - place
                break
            else:
                place = block[0] + block[1] + 2
        if place == total and not begin:
            return data or None
        whole.append(data[begin:place])
        if place < total:
            self._pieces, self.held = [data[place:]], total - place
        return b"".join(whole) or None
