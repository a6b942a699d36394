"""HandlerSocket's `Codec`: a chunk is lines of text without the last LF."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import takewhile
from typing import ClassVar

from roost.errors import Error
from roost.protocols.codec import Piece, TooLong
from roost.protocols.handlersocket.opened import Openings, Session
from roost.protocols.handlersocket.responder import Responder
from roost.structures.index.budget import Budget

MOST_UNKNOWN = 2**12  # bytes of a line from a client that has not sent the secret, beyond those of the secret


class Framing:
    """Splits one connection's bytes into lines of text. Bytes that are not UTF-8 become lone surrogates.

    session: until it has sent the secret, only what was received together with a short line may be long.
    """

    __slots__ = ("_most_line", "_most_unknown", "_pieces", "_session", "held")

    def __init__(self, most_line: int, session: Session) -> None:
        self._most_line = most_line
        self._most_unknown = MOST_UNKNOWN + len(session.secret or b"")
        self._session = session
        self._pieces: list[bytes] = []  # the pieces of an incomplete line
        self.held = 0  # their bytes

    def limit(self, most_line: int, _: int) -> None:
        self._most_line = most_line

    def drop(self) -> None:
        self._pieces, self.held = [], 0

    def feed(self, data: bytes) -> str | None:
        """Take received bytes, and return the complete lines, without the last LF; None if there are none.

        Raises: TooLong.
        """
        end = data.rfind(b"\n")
        known = self._session.authorized
        if not known and self.held + (data.find(b"\n") if end >= 0 else len(data)) > self._most_unknown:
            raise TooLong(None)
        if end < 0:
            self._pieces.append(data)
            self.held += len(data)
            if self.held > self._most_line:
                raise TooLong(None)
            return None
        lines, rest = data[:end], data[end + 1 :]
        if rest or self._pieces:
            lines = b"".join([*self._pieces, lines])
            self._pieces, self.held = [rest] if rest else [], len(rest)
        if len(lines) > self._most_line:
            each = lines.split(b"\n")
            fit = list(takewhile(lambda line: len(line) <= self._most_line, each))
            if len(fit) < len(each):
                raise TooLong(_text(b"\n".join(fit)) if fit else None)
        return _text(lines)


def _text(lines: bytes) -> str:
    if b"\r" in lines:
        lines = (lines + b"\n").replace(b"\r\n", b"\n")[:-1]
    return lines.decode("utf-8", "surrogateescape")


class HandlerSocket:
    """HandlerSocket over the indexes opened in one database.

    openings: shared by the turns on all connections.
    """

    name: ClassVar[str] = "handlersocket"
    opens: ClassVar[bool] = True
    full: ClassVar[bytes] = b"2\t1\tlimit\n"
    too_long: ClassVar[bytes] = b"2\t1\ttoolong\n"

    def __init__(self, openings: Openings) -> None:
        self._openings = openings

    def framing(self, session: Session, most_line: int, most_block: int) -> Framing:
        return Framing(most_line, session)

    def writes(self, pieces: Sequence[Piece]) -> bool:
        """Whether the requests may modify something, which depends on the server's address alone."""
        return self._openings.writes

    def count(self, chunk: str) -> int:
        return chunk.count("\n") + 1

    def halves(self, chunk: str) -> tuple[str, str] | None:
        """Split a chunk into two halves; None if it is a single line."""
        lines = chunk.split("\n")
        middle = len(lines) // 2
        return ("\n".join(lines[:middle]), "\n".join(lines[middle:])) if middle else None

    def cut(self, chunk: str, size: int) -> tuple[str, str | None]:
        """Split off a first part of about `size` characters, at least one line; return it and the rest, if any."""
        cut = chunk.rfind("\n", 0, size)
        cut = chunk.find("\n", size) if cut < 0 else cut
        return (chunk[:cut], chunk[cut + 1 :]) if cut >= 0 else (chunk, None)

    def join(self, first: str, second: str) -> str:
        return f"{first}\n{second}"

    def modifies(self, chunk: str) -> bool:
        """Whether the first line may be a modification: it is an insert, or has more than five tokens."""
        line = chunk.partition("\n")[0]
        return line.count("\t") > 4 or line.partition("\t")[2].startswith("+")

    def key_of(self, session: Session, request: str) -> Hashable:
        """Return the index and the key of a line: equal for lines that modify by the same key of the same index."""
        tokens = request.split("\t")
        opened = session.opened.get(tokens[0])
        if len(tokens) < 3 or tokens[1] == "+" or not tokens[2].isdecimal() or len(tokens[2]) > 3:
            return opened and opened.asked, *tokens[1:]
        return opened and opened.asked, *tokens[1 : 3 + int(tokens[2])]

    def encode(self, answer: str) -> bytes:
        return answer.encode("utf-8", "surrogateescape")

    def responder(self, pieces: Sequence[Piece], version: int, budget: Budget, failed: Error | None) -> Responder:
        return Responder(pieces, self._openings, version, budget, failed)
