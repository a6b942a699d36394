"""Finds the ends of requests in received bytes: each request is a line, which a block of data may follow.

The start of the next request is found whatever arrives, in whatever pieces: by the length that the line names, or, if
that cannot be parsed, by the end of the line, as memcached does. A block that is too long is not buffered.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from functools import cache

from roost.protocols.codec import Session, TooLong

MOST_KEY = 250  # bytes, in memcached and here
MOST_LENGTH = 2**31 - 3  # of a block: memcached parses the number as a 32-bit integer, and adds 2
PASSED = b"%d" % MOST_LENGTH  # the length written into the line of a block that was skipped
TEXT = b"text protocol"
BINARY = b"\x80"  # with which every request of memcached's binary protocol begins
MOST_UNKNOWN = 2048  # bytes of a line, and of a block, from a client that has not sent the secret

log = logging.getLogger("roost.server")

# Commands that a block follows: the place of its length among the words, and the least and the largest number of words.
_BLOCKS = dict.fromkeys((b"set", b"add", b"replace", b"append", b"prepend"), (4, 5, 6))
_BLOCKS |= {b"cas": (4, 6, 7), b"ms": (2, 3, 2**31)}
_BLOCK = re.compile(rb" *(?:%b) " % b"|".join(_BLOCKS))  # the beginning of a line that a block may follow
# All lines before the next such line: for `feed`, which goes on behind them.
_LINES = re.compile(rb"(?:(?!%b)[^\n]*\n)+" % _BLOCK.pattern)
# As memcached's functions read it: whatever is behind a space ends the number.
_NUMBER = re.compile(rb"[\t\v\f\r]*([-+]?)([0-9]{1,100})(?:[\t\v\f\r].*)?", re.DOTALL)


def number_of(token: bytes) -> int | None:
    r"""Parse a number as memcached does; None if it is not one.

    >>> number_of(b"12"), number_of(b"+012"), number_of(b"-1"), number_of(b"7\t"), number_of(b"1x"), number_of(b"-")
    (12, 12, -1, 7, None, None)
    """
    found = _NUMBER.fullmatch(token)
    return None if found is None else -int(found[2]) if found[1] == b"-" else int(found[2])


def words_of(data: bytes, start: int, end: int) -> list[bytes]:
    """Split a line into its words. end: the end of the line, LF included."""
    words = data[start : end - 2 if data[end - 2 : end] == b"\r\n" and end - 2 >= start else end - 1].split(b" ")
    return [word for word in words if word] if b"" in words else words


def length_of(words: Sequence[bytes]) -> int | None:
    """Return the length of the block that follows a line; None if none does, `MOST_LENGTH` if it was skipped."""
    place, least, most = _BLOCKS.get(words[0], (0, 1, 0)) if words else (0, 1, 0)
    if not least <= len(words) <= most:
        return None
    length = number_of(words[place])
    return length if length is not None and 0 <= length <= MOST_LENGTH else None


def _without_block(words: list[bytes]) -> bytes:
    # The line of a skipped block, with the length replaced by `PASSED`.
    place, *_ = _BLOCKS[words[0]]
    return b" ".join([*words[:place], PASSED, *words[place + 1 :]]) + b"\r\n"


def end_of(data: bytes, start: int) -> int:
    """Return the end of the request at `start`, in data of complete requests."""
    line = data.find(b"\n", start) + 1
    if _BLOCK.match(data, start):
        length = length_of(words_of(data, start, line))
        if length is not None and length < MOST_LENGTH:
            return line + length + 2
    return line


@cache  # one line in the log
def _report_binary() -> None:
    log.warning("a client was disconnected: it speaks memcached's binary protocol; here is only the %s", TEXT.decode())


def _binary_refusal(data: bytes) -> bytes:
    # The answer "unknown command" of the binary protocol: many of its clients wait on if they are just disconnected.
    return b"\x81%b\0\0\0\0\0\x81%b%b%b%b" % (data[1:2], len(TEXT).to_bytes(4), data[12:16], bytes(8), TEXT)


class Framing:
    """Splits one connection's bytes into chunks.

    most_line: the limit of a line's bytes; a longer one raises `TooLong`.
    most_block: the limit of a block's bytes; a longer block is skipped, and `feed` returns its line without it.
    most: the upper bound of most_block, whatever limits are set later.
    session: until it has sent the secret, the limits are `MOST_UNKNOWN`, so that it can make the server buffer little.
    """

    __slots__ = (
        *("_first", "_known", "_limits", "_most", "_pieces", "_session", "_skip", "_wanted", "held", "most_block"),
        "most_line",
    )

    def __init__(
        self, most_line: int, most_block: int, most: int = MOST_LENGTH - 1, session: Session | None = None
    ) -> None:
        self._first = True  # nothing was received yet
        self._most = most
        self._session = session
        self.limit(most_line, most_block)
        self._pieces: list[bytes] = []  # the pieces of an incomplete request
        self.held = 0  # their bytes
        self._wanted = 0  # the bytes of the incomplete request with its block; 0 if its line is incomplete
        self._skip = 0  # bytes of a block still to be skipped

    def limit(self, most_line: int, most_block: int) -> None:
        self._limits = most_line, most_block
        self._known = self._session is None or self._session.authorized
        if not self._known:
            most_line = most_block = MOST_UNKNOWN
        self.most_line, self.most_block = most_line, min(most_block, self._most)

    def drop(self) -> None:
        self._pieces, self.held, self._wanted = [], 0, 0

    def feed(self, data: bytes) -> bytes | None:
        """Take received bytes, and return the complete requests; None if there are none.

        Raises: TooLong.
        """
        if self._session is not None and self._session.authorized is not self._known:
            self.limit(*self._limits)
        if self._first and data.startswith(BINARY):
            _report_binary()
            raise TooLong(None, _binary_refusal(data))
        self._first = False
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
            words = words_of(data, place, line)
            length = length_of(words)
            if length is None:
                place = line
            elif length > self.most_block:
                whole += [data[begin:place], _without_block(words)]
                skipped = min(length + 2, total - line)
                self._skip = length + 2 - skipped
                begin = place = line + skipped
            elif line + length + 2 > total:
                self._wanted = line + length + 2 - place
                break
            else:
                place = line + length + 2
        if place == total and not begin:
            return data or None
        whole.append(data[begin:place])
        if place < total:
            self._pieces, self.held = [data[place:]], total - place
        return b"".join(whole) or None
