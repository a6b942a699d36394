"""One client connection of the server: when it is read, when it is answered, and when it is closed.

The server stops reading from a client that does not read its answers. How much of a pipeline runs in one turn depends
on the bytes and the time that its last piece took, so a connection with expensive requests gets the same share as the
others. The protocol decides how bytes become requests (`Codec.framing`).
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from typing import Any, Protocol, TypeAlias, cast

from roost.protocols.codec import Piece, TooLong
from roost.protocols.handlersocket.codec import HandlerSocket
from roost.protocols.memcached.codec import Memcached
from roost.server.counters import Counters
from roost.server.settings import Role, Settings

SLOWEST, FASTEST = 1, 2**18  # characters of requests of one connection in a turn; always at least one request
PACE = 2**12  # the same limit for a new connection
SHARE = 0.01  # seconds of a turn that one connection may take before its pace is reduced
TRIES = 10  # wrong secrets in a row before a connection is closed

log = logging.getLogger("roost.server")

Codec: TypeAlias = HandlerSocket | Memcached
Pieces = list[Piece]  # of clients of one protocol


class Server(Protocol):
    """A worker's server, as its connections and its players see it; see `roost.server.server.Server`."""

    settings: Settings
    role: Role
    counters: dict[str, Counters]  # by the name of the protocol
    codecs: dict[str, Codec]
    clients: set[Any]
    waiting: Pieces
    draining: bool

    def hold(self, what: str, client: Any, bytes_: int) -> None: ...
    def wrong_secret(self, client: Any) -> None: ...
    def arrived(self, piece: Piece) -> None: ...
    def take(self) -> Pieces: ...
    def schedule(self) -> None: ...
    def played(self, pieces: Pieces, seconds: float) -> None: ...
    def failed(self, pieces: Pieces, error: BaseException) -> None: ...


def _counted(chunk: Any) -> int:
    # What a connection has received at once is bounded; more is a long line.
    return sys.getsizeof(chunk) if len(chunk) > FASTEST else 0


class Client(asyncio.Protocol):
    """One connection, in any protocol."""

    __slots__ = (
        *("_asked", "_ending", "_farewell", "_framing", "_held", "_measured", "_pace", "_paused", "_rest", "_stopped"),
        *("blocked", "codec", "counters", "gone", "holds", "locked", "passed_over", "server", "session", "silent"),
        *("since", "transport", "waiting"),
    )

    transport: asyncio.Transport

    def __init__(self, server: Server, codec: Codec, session: Any) -> None:
        self.server = server
        self.codec = codec
        self.session = session  # the protocol's state of this connection
        settings = server.settings
        self._framing = codec.framing(session, settings.max_line, settings.max_answer)
        self.counters = server.counters[codec.name]
        self.gone = False
        self.waiting = False  # for a turn
        self.silent = 0  # how many idle checks have passed since its last answer
        self.since = time.monotonic()
        self.locked = 0.0  # the time since which its lines wait for another session's lock; 0.0: they do not
        self.blocked = False  # its first line still waits for that lock
        self.passed_over = False  # the last turn had no room for its requests
        self.holds = {"lines": 0, "answers": 0}
        self._measured = False  # the cost of its requests is known from a turn
        self._ending = False  # the client will send nothing more
        self._farewell = b""  # the last answer, if the server closes the connection
        self._held = False  # a delayed answer has not been sent yet
        self._stopped = False  # the client does not read its answers
        self._paused = False  # the transport does not read
        self._rest: list[Any] = []  # requests for later turns
        self._asked = 0  # bytes of the requests that are in a turn or wait for one, if they are many
        self._pace = PACE

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        server = self.server
        self.transport = cast(asyncio.Transport, transport)
        if server.draining:
            self.counters.refused += 1
            self.gone = True
            self.transport.write(self.codec.full)
            self.transport.close()
            return
        self.transport.set_write_buffer_limits(high=server.settings.max_unanswered)
        server.clients.add(self)
        self.counters.connected()

    def data_received(self, data: bytes) -> None:
        """Pass complete requests on, and buffer an incomplete one."""
        if self.gone or self._farewell:
            return
        self.counters.bytes_in += len(data)
        framing = self._framing
        before = framing.held
        farewell = b""
        try:
            chunk = framing.feed(data)
        except TooLong as error:
            chunk, farewell = error.whole, error.answer or self.codec.too_long
        if chunk is not None:
            self._hand_on(chunk)
        if framing.held != before or self._asked or self._rest:
            self._hold_lines()
        if farewell:
            self._too_long(farewell)

    def limit(self) -> None:
        self._framing.limit(self.server.settings.max_line, self.server.settings.max_answer)

    def _hand_on(self, chunk: Any) -> None:
        # Queue a chunk for the next turn, or for later ones.
        if len(chunk) <= self._pace and not (self._rest or self.waiting or self._stopped or self._held):
            self._arrived(chunk)
        else:
            self._rest.append(chunk)
            self._go_on()
        if not self.session.authorized:
            self._pause()  # until it is answered: before the secret, a client can make the server buffer little

    def _arrived(self, requests: Any) -> None:
        self.waiting = True
        self.server.arrived(Piece(self.session, requests, self))

    def _go_on(self) -> None:
        # Pass on the next piece, and resume reading after the last one.
        rest = self._rest
        if rest and not (self.waiting or self._held or self._stopped):
            text = rest.pop(0)
            if len(text) > self._pace:
                text, left = self.codec.cut(text, self._pace)
                if left is not None:  # not `if left`: the rest may be one empty line
                    rest.insert(0, left)
            self._asked = _counted(text)
            self._arrived(text)
        if rest:
            self._pause()
        elif self._paused and not (self._held or self._stopped or self._ending or self._farewell or self.gone):
            self._paused = False
            self.transport.resume_reading()

    def _pause(self) -> None:
        if not self._paused and not self.gone:
            self._paused = True
            self.transport.pause_reading()

    @property
    def _owes(self) -> bool:
        return bool(self.waiting or self._held or self._rest)

    def _hold(self, what: str, size: int) -> None:
        more, self.holds[what] = size - self.holds[what], size
        if more:
            self.server.hold(what, self, more)

    def _hold_lines(self) -> None:
        self._hold("lines", self._framing.held + self._asked + sum(map(_counted, self._rest)))

    def _too_long(self, farewell: bytes) -> None:
        # The rest of the stream cannot be parsed. The requests before the long line are answered first.
        self.counters.errors += 1
        self._framing.drop()
        self._hold_lines()
        self._farewell = farewell
        self._pause()
        if not self._owes:
            self._leave()

    def _leave(self) -> None:
        self.transport.write(self._farewell)
        self.gone = True
        self.transport.close()

    def block(self, rest: Any) -> None:
        """Note that its next line waits for another session's lock, and that its later lines wait for that line."""
        self.locked = self.locked or time.monotonic()
        if rest is not None:
            self._rest.insert(0, rest)
            self._pause()

    def answer(self, piece: Piece, alone: bool) -> None:
        """Send a turn's answers; a late answer is sent after a delay, and the connection's other lines wait for it.

        alone: no other connection was in the turn or waits for the next one.
        """
        text, rest, seconds = piece.answer, piece.rest, piece.seconds
        self.waiting = self.blocked
        self.locked = self.locked if self.blocked else 0.0
        self.blocked = False
        self.silent = 0
        played = bool(text) or seconds > 0  # some requests have no answer
        left = rest is not None and not piece.late
        self.passed_over = left and not played
        if self.gone:
            return
        if played:
            data = self.codec.encode(text)
            size = len(data)
            if data:
                self.counters.bytes_out += size
                self.transport.write(data)
            self._measured = True
            most = self.server.settings.max_unanswered
            if left or size > most or seconds > SHARE:
                taken = max(size / most, seconds / SHARE)  # as a fraction of its share
                # A connection that is alone keeps a pace of PACE at least: on a busy machine every turn takes long,
                # and a pipeline in turns of one request each would hardly advance.
                self._pace = max(PACE if alone else SLOWEST, int(self._pace / max(taken, 2)))
            elif self._pace < FASTEST:
                self._pace *= 2
        elif left and not self._measured:
            self._pace = SLOWEST
        if rest is not None:
            self._rest.insert(0, rest)
            self._pause()
        if self._asked and not self.waiting:
            self._asked = 0
            self._hold_lines()
        if self.session.foreign:
            self.gone = True
            self.transport.close()
            return
        if piece.late:
            self._held = True
            self._pause()
            asyncio.get_running_loop().call_later(self.server.settings.auth_delay, self._late, piece.late)
            return
        if self._paused:
            self._go_on()
        if (self._farewell or self._ending) and not self._owes:
            self._leave()

    def _late(self, answer: Any) -> None:
        self.server.wrong_secret(self)
        if self.gone:
            return
        self._held = False
        data = self.codec.encode(answer)
        self.counters.bytes_out += len(data)
        self.transport.write(data)
        if self.session.wrong >= TRIES:
            log.warning("a connection sent %d wrong secrets and is closed", self.session.wrong)
            self.transport.close()
            return
        self._go_on()
        if (self._farewell or self._ending) and not self._owes:
            self._leave()

    def pause_writing(self) -> None:
        """Stop reading from a client that does not read its answers."""
        self._stopped = True
        self._pause()
        self._hold("answers", self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._stopped = False
        self._hold("answers", 0)
        if not self.gone:
            self._go_on()

    def eof_received(self) -> bool:
        """Answer the requests sent before the end of the stream, then close."""
        self._ending = True
        return self._owes

    def leave(self) -> None:
        """Stop reading, and close once all received requests are answered."""
        self._ending = True
        self._pause()
        if not self.gone and not self._owes:
            self._leave()

    def expire(self) -> None:
        """Close a connection that has sent no complete request, or read no answer, for too long."""
        if not (self.waiting or self._held):
            self.abort()

    def abort(self) -> None:
        self.gone = True
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone = True
        self._framing.drop()
        self._rest = []
        self._hold("lines", 0)
        self._hold("answers", 0)
        if self in self.server.clients:
            self.server.clients.discard(self)
            self.counters.disconnected()
