"""memcached's `Codec`, of which a chunk is the bytes of complete requests, and its answers. No sockets, no SQL.

`Responder.play` is a generator: it yields operations of the cache, is sent their results, and makes answers of them.
The requests of a connection run in their order: each round takes from every connection its next reads, or its next
writes. All reads of a round are one operation, and all writes run together, except writes with a token: those run one
after the other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from itertools import islice
from math import inf
from typing import Any, ClassVar

from roost.errors import Error, Mismatch, Missing, StatementFailed, worded
from roost.protocols import codec
from roost.protocols.codec import Piece, Session
from roost.protocols.memcached import asked as say
from roost.protocols.memcached.asked import Kept, Read, Refused, Special, Values, Write, refusal
from roost.protocols.memcached.framing import MOST_LENGTH, Framing, end_of, length_of, words_of
from roost.protocols.memcached.requests import Requests
from roost.structures.index.budget import Budget

LOT = 1024  # keys of a round or of one request, and requests of a connection in a round; then the budget is checked
UNAUTHENTICATED = b"CLIENT_ERROR unauthenticated\r\n"
NOT_AUTHENTICATED = b"CLIENT_ERROR authentication failure\r\n"

Asked = tuple[Any, ...]
Playing = Generator[Asked, Any, None]
Stats = Callable[[Sequence[bytes]], Mapping[str, object] | None]

# A chunk that consists of `get`s with one key each.
GETS = re.compile(rb"(?:get [^ \r\n]{1,250}\r\n)+")


class _Chunk:
    """The requests of one connection, and the position of the next one."""

    __slots__ = ("answers", "data", "next", "piece", "session")

    def __init__(self, piece: Piece) -> None:
        self.piece = piece
        self.session: Session = piece.session
        self.data: bytes = piece.requests
        self.next = 0
        self.answers: list[bytes] = []


class Responder(codec.Responder):
    """The requests of several connections, and their answers.

    stats: returns the statistics for the words behind `stats`; None for unknown words.
    """

    def __init__(
        self, pieces: Sequence[Piece], requests: Requests, stats: Stats, budget: Budget, failed: Error | None = None
    ) -> None:
        super().__init__(pieces, budget, failed)
        self._requests = requests
        self._stats = stats
        self._keys = 0  # those of the present round

    def play(self) -> Playing:
        if self._failed is None and self._requests.doubts():
            self._requests.redeclare((yield "declared", self._requests.values.cache.name))
        others = list(self.pieces) if self._failed is not None else (yield from self._gets())
        going = every = [_Chunk(piece) for piece in others]
        while going and self._budget.open:
            going = yield from self._round(going)
        for chunk in every:
            chunk.piece.answer = b"".join(chunk.answers)
            chunk.piece.rest = chunk.data[chunk.next :] or None

    # --- gets of one key --------------------------------------------------------------------------------------------

    def _gets(self) -> Generator[Asked, Any, list[Piece]]:
        # Answer the connections that have sent only such requests, together; return the others.
        others: list[Piece] = []
        pieces: list[Piece] = []
        names: list[bytes] = []
        ends: list[int] = []
        whole = GETS.fullmatch
        for piece in self.pieces:
            if piece.session.authorized and whole(piece.requests):
                pieces.append(piece)
                names += piece.requests[4:-2].split(b"\r\nget ")
                ends.append(len(names))
            else:
                others.append(piece)
        if not names:
            return others
        requests = self._requests
        try:
            keys = requests.values.keys(names)
        except Refused:
            return list(self.pieces)
        answers: list[bytes] = []
        seconds = 0.0
        while len(answers) < len(names) and self._budget.open:
            begin = len(answers)
            lot = requests.lot(LOT)
            (rows,) = yield "operate", [requests.values.operation("fetch", tuple(keys[begin : begin + lot]))]
            seconds += self.elapsed
            if isinstance(rows, Error):
                self.errors += len(rows_ := names[begin : begin + lot])
                some = [self._refusal(rows)] * len(rows_)
            else:
                some = requests.shown_alone(names[begin : begin + lot], rows)
                self.rows += len(rows) - rows.count(None)
            answers += some
            size = sum(map(len, some))
            requests.learn(size, len(some))
            self._budget.take(size)
        self.requests += len(answers)
        each = seconds / max(1, len(answers))
        begin = 0
        for piece, end in zip(pieces, ends, strict=True):
            some = answers[begin:end]
            piece.answer = b"".join(some)
            piece.seconds = each * len(some)
            left = names[begin + len(some) : end]
            piece.rest = b"get " + b"\r\nget ".join(left) + b"\r\n" if left else None
            begin = end
        return others

    # --- all others -------------------------------------------------------------------------------------------------

    def _round(self, going: list[_Chunk]) -> Generator[Asked, Any, list[_Chunk]]:
        # Take the next requests of each connection and run them together; return the connections that have more.
        reads: list[tuple[_Chunk, Read]] = []
        writes: list[tuple[_Chunk, Write]] = []
        once: list[tuple[_Chunk, Kept]] = []
        most = self._requests.lot(LOT)
        self._keys = 0
        for chunk in going:
            self._take(chunk, reads, writes, once, most)
        if reads:
            before = self._budget.left
            keys = [key for _, read in reads for key in read.keys]
            rows, seconds = yield from self._fetched(keys)
            begin = 0
            each = seconds / len(reads)
            for chunk, read in reads:
                end = begin + len(read.keys)
                answer = self._refusal(rows) if isinstance(rows, Error) else read.answer(rows[begin:end])
                begin = end
                chunk.piece.seconds += each
                if isinstance(answer, bytes):
                    self._reply(chunk, answer)
                else:
                    # It runs by itself, at once: later requests of its connection were read in the same lookup.
                    (result,) = yield "operate", answer.operations
                    self._reply(chunk, self._refusal(result) if isinstance(result, Error) else answer.answer([result]))
            if not isinstance(rows, Error):
                self.rows += len(rows) - rows.count(None)
            self._requests.learn(int(min(before - self._budget.left, 2**60)) if before < inf else 0, len(keys))
        if writes:
            operations = [op for _, write in writes for op in write.operations]
            results = yield "operate", operations
            found = iter(results)
            parts = [list(islice(found, len(write.operations))) for _, write in writes]
            shown = [row for (_, write), part in zip(writes, parts, strict=True) if write.shows for row in part]
            if shown:
                self._requests.learn(self._weigh(shown), len(shown))
            each = self.elapsed / len(writes)
            for (chunk, write), part in zip(writes, parts, strict=True):
                chunk.piece.seconds += each
                self._reply(chunk, self._written(write, part))
        for chunk, kept in once:
            answered = yield "once", kept.token, kept.seconds, kept.write.operations, kept.write.answer
            chunk.piece.seconds += self.elapsed
            if isinstance(answered, Error):
                self._reply(chunk, self._written(kept.write, [answered]))
            else:
                self.rows += 1
                self._reply(chunk, answered)
        return [
            chunk for chunk in going if chunk.next < len(chunk.data) and not (chunk.piece.late or chunk.session.foreign)
        ]

    def _fetched(self, keys: Sequence[tuple[Any, ...]]) -> Generator[Asked, Any, tuple[Any, float]]:
        # Return the rows of the keys, or the error, and the seconds that they took.
        rows: list[Any] = []
        seconds, size = 0.0, 0
        limits = self._budget.limits
        for begin in range(0, len(keys), LOT):
            (some,) = yield "operate", [self._requests.values.operation("fetch", tuple(keys[begin : begin + LOT]))]
            seconds += self.elapsed
            if isinstance(some, Error):
                return some, seconds
            rows += some
            if len(keys) > LOT:
                size = self._weigh(some, size)
                if seconds > limits.request:
                    raise worded(StatementFailed(f"the keys took longer than {limits.request:g} s"), "timeout")
        return rows, seconds

    def _weigh(self, rows: Sequence[Any], size: int = 0) -> int:
        # Add the bytes of the values: those of a repeated key are one object until they are written into answers. If
        # they are too many, the transaction is undone, and the requests run in smaller parts.
        size += sum([len(row[0]) for row in rows if row is not None and not isinstance(row, Error)])
        most = self._budget.limits.answer
        if size > most:
            self._requests.learn(size, len(rows))
            raise worded(StatementFailed(f"the values have more than {most:,.0f} bytes"), "limit", 2)
        return size

    def _refusal(self, error: Error, number: bool = False) -> bytes:
        self._requests.stale |= isinstance(error, (Mismatch, Missing))
        return refusal(error, number)

    def _written(self, write: Write, results: Sequence[Any]) -> bytes:
        for result in results:
            if isinstance(result, Error):
                self.errors += 1
                answer = self._refusal(result, write.number)
                return b"" if write.silent else answer
        self.rows += len(results)
        return write.answer(results)

    def _take(
        self,
        chunk: _Chunk,
        reads: list[tuple[_Chunk, Read]],
        writes: list[tuple[_Chunk, Write]],
        once: list[tuple[_Chunk, Kept]],
        most: int,
    ) -> None:
        # Collect the next reads, or the next writes, and answer requests before them that need no database.
        kind: type | None = None
        total = len(chunk.data)
        session = chunk.session
        taken = 0
        while chunk.next < total:
            if self._keys >= most or taken == LOT:
                return
            taken += 1
            if not session.authorized:
                if kind is not None:
                    return
                self._authorize(chunk)
                if chunk.piece.late:
                    return
                continue
            asked, end = self._requests.parse(chunk.data, chunk.next)
            found = type(asked)
            if kind is not None and found is not kind:
                return
            chunk.next = end
            if found is Read or found is Write or found is Kept:
                if self._failed is not None:
                    write = isinstance(asked, Write)
                    self.errors += 1
                    silent = isinstance(asked, Write) and asked.silent
                    self._reply(chunk, b"" if write and silent else self._refusal(self._failed))
                    continue
                kind = found
                if isinstance(asked, Read):
                    reads.append((chunk, asked))
                    self._keys += len(asked.keys)
                elif isinstance(asked, Write):
                    writes.append((chunk, asked))
                    self._keys += len(asked.operations)
                elif isinstance(asked, Kept):
                    once.append((chunk, asked))
                    self._keys += 1
            elif isinstance(asked, bytes):
                self.errors += asked not in (b"", say.END, b"OK\r\n", b"MN\r\n")
                self._reply(chunk, asked)
            else:
                assert isinstance(asked, Special)
                self._special(chunk, asked)
                if session.foreign:
                    return

    def _special(self, chunk: _Chunk, asked: Special) -> None:
        if asked.what == "stats":
            found = self._stats(asked.words)
            if found is None:
                self.errors += 1
                self._reply(chunk, say.ERROR)
                return
            lines = [b"STAT %b %b\r\n" % (name.encode(), str(value).encode()) for name, value in found.items()]
            self._reply(chunk, b"".join(lines) + say.END)
        elif asked.what == "reset":
            self._reply(chunk, b"RESET\r\n")
        elif asked.what == "version":
            version = (self._stats([]) or {}).get("version", "")
            self._reply(chunk, b"VERSION %b\r\n" % str(version).encode())
        else:
            self._remember(chunk.session)
            chunk.session.foreign = True

    def _authorize(self, chunk: _Chunk) -> None:
        # The first request is a `set` with the user and the password as its value.
        data, start = chunk.data, chunk.next
        begin = data.index(b"\n", start) + 1
        length = length_of(words_of(data, start, begin))
        known = length is not None and length < MOST_LENGTH
        chunk.next = begin + length + 2 if length is not None and known else begin
        if length is None or not known or not data.startswith(b"set ", start):
            self.errors += 1
            self._reply(chunk, UNAUTHENTICATED)
            return
        if data[begin + length : chunk.next] != b"\r\n":
            self._reply(chunk, say.BAD_CHUNK)
            return
        self._remember(chunk.session)
        if chunk.session.says(data[begin : begin + length]):
            self._reply(chunk, b"STORED\r\n")
        else:
            self.errors += 1
            chunk.piece.late = NOT_AUTHENTICATED

    def _reply(self, chunk: _Chunk, answer: bytes) -> None:
        chunk.answers.append(answer)
        self.requests += 1
        self._budget.take(len(answer))


# Requests that never modify anything. Each line can match in only one way. With `[^\n]*\r?\n` it could match in two,
# and the regular expression would try all combinations when another kind of request follows.
_READS = re.compile(rb"(?:(?:gets? [^\n]*|mn\r?|version\r?|verbosity[^\n]*|stats[^\n]*)\n)+")
_WORDS = re.compile(rb" *([^ \r\n]+) *([^ \r\n]*) *([^ \r\n]*)")


class Memcached:
    """memcached's protocol over one cache."""

    name: ClassVar[str] = "memcached"
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
        found = _WORDS.match(request)
        if found is None:
            return b""
        return found[3] if found[1] in (b"gat", b"gats") else found[2]

    def encode(self, answer: bytes) -> bytes:
        return answer

    def responder(self, pieces: Sequence[Piece], version: int, budget: Budget, failed: Error | None) -> Responder:
        return Responder(pieces, self._requests, self._stats, budget, failed)
