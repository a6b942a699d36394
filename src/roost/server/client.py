"""One client connection of the server: what is read of it, when it is answered, and when it is closed.

A client that does not take its answers is not read from. How much of a pipeline is played in one turn depends on what
the last piece took, in bytes and time, so a connection that asks for much has a share like the others. How bytes
become requests is its protocol's own (`Codec.framing`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, Protocol, cast

from roost.protocols.codec import Codec, Late, TooLong
from roost.server.counters import Counters
from roost.server.settings import Role, Settings

SLOWEST, FASTEST = 1, 2**18  # characters of requests of one connection in a turn; a request at least
PACE = 2**12  # with which a connection begins
SHARE = 0.01  # seconds of a turn that one connection may take, when there is much to do
TRIES = 10  # wrong secrets in a row, then a connection is closed

log = logging.getLogger("roost.server")


class Server(Protocol):
    """A worker, as its connections know it."""

    settings: Settings
    role: Role
    counters: dict[str, Counters]
    clients: set[Any]
    draining: bool

    def hold(self, what: str, client: Any, bytes_: int) -> None:
        """Count what a connection makes the worker hold."""

    def arrived(self, client: Any, text: Any) -> None:
        """Take whole requests for the next turn."""


class Client(asyncio.Protocol):
    """One connection, of whatever protocol."""

    __slots__ = (
        "_ending",
        "_farewell",
        "_framing",
        "_held",
        "_measured",
        "_pace",
        "_paused",
        "_rest",
        "_stopped",
        "blocked",
        "codec",
        "counters",
        "gone",
        "holds",
        "locked",
        "passed_over",
        "server",
        "session",
        "silent",
        "since",
        "transport",
        "waiting",
    )

    transport: asyncio.Transport

    def __init__(self, server: Server, codec: Codec, session: Any) -> None:
        self.server = server
        self.codec = codec
        self.session = session  # of the protocol
        settings = server.settings
        self._framing = codec.framing(session, settings.max_line, settings.max_answer)
        self.counters = server.counters[codec.name]
        self.gone = False
        self.waiting = False  # for a turn
        self.silent = 0  # how often it was looked at since its last answer
        self.since = time.monotonic()
        self.locked = 0.0  # since when its lines wait for somebody else's lock
        self.blocked = False  # the first of them goes on waiting for it
        self.passed_over = False  # the last turn had no room for it
        self.holds = {"lines": 0, "answers": 0}
        self._measured = False  # a turn has shown what its requests take
        self._ending = False  # the client has sent all it will
        self._farewell = b""  # the last answer, where it is the server that ends
        self._held = False  # until a late answer is given
        self._stopped = False  # it does not take its answers
        self._paused = False  # nothing is read
        self._rest: list[Any] = []  # requests for turns to come
        self._pace = PACE

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a connection, unless the server is leaving."""
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
        """Keep what is no whole request yet, and hand on the rest."""
        if self.gone or self._farewell:
            return
        self.counters.bytes_in += len(data)
        framing = self._framing
        before = framing.held
        too_long = False
        try:
            chunk = framing.feed(data)
        except TooLong as error:
            chunk, too_long = error.whole, True
        if framing.held != before:
            self._hold("lines", framing.held)
        if chunk is not None:
            self._hand_on(chunk)
        if too_long:
            self._too_long()

    def limit(self) -> None:
        """Go on with the limits that the settings have now."""
        self._framing.limit(self.server.settings.max_line, self.server.settings.max_answer)

    def _hand_on(self, chunk: Any) -> None:
        # For the next turn, or for those to come.
        if len(chunk) <= self._pace and not (self._rest or self.waiting or self._stopped or self._held):
            self.server.arrived(self, chunk)
        else:
            self._rest.append(chunk)
            self._go_on()

    def _go_on(self) -> None:
        # Hands on the next piece of what is there, and reads on when that was the last.
        rest = self._rest
        if rest and not (self.waiting or self._held or self._stopped):
            text = rest.pop(0)
            if len(text) > self._pace:
                text, left = self.codec.cut(text, self._pace)
                if left is not None:  # it may be one empty line
                    rest.insert(0, left)
            self.server.arrived(self, text)
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

    def _too_long(self) -> None:
        # The rest of the stream cannot be trusted; what came before the line is answered first.
        self.counters.errors += 1
        self._framing.drop()
        self._hold("lines", 0)
        self._farewell = self.codec.too_long
        self._pause()
        if not self._owes:
            self._leave()

    def _leave(self) -> None:
        self.transport.write(self._farewell)
        self.gone = True
        self.transport.close()

    def block(self, rest: Any) -> None:
        """Note that its next line waits for a lock that somebody else holds, and the others for that one."""
        self.locked = self.locked or time.monotonic()
        if rest is not None:
            self._rest.insert(0, rest)
            self._pause()

    def answer(self, text: Any, late: Late | None, rest: Any, seconds: float, alone: bool) -> None:
        """Send what was answered; what comes late is sent after a delay, and then the other lines go on.

        rest: the lines that there was no room for; None: there are none.
        seconds: that the others took.
        alone: nobody else was in the turn, or waits for the next one.
        """
        self.waiting = self.blocked
        self.locked = self.locked if self.blocked else 0.0
        self.blocked = False
        self.silent = 0
        played = bool(text) or seconds > 0  # some requests want no answer
        self.passed_over = rest is not None and not played
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
            if rest is not None or size > most or seconds > SHARE:
                taken = max(size / most, seconds / SHARE)  # of what one may take
                # By itself it need not leave time to others: on a busy machine a turn takes long whatever is in it, and
                # turns of one request each would take for ever.
                self._pace = max(PACE if alone else SLOWEST, int(self._pace / max(taken, 2)))
            elif self._pace < FASTEST:
                self._pace *= 2
        elif rest is not None and not self._measured:
            self._pace = SLOWEST
        if rest is not None:
            self._rest.insert(0, rest)
            self._pause()
        if self.session.foreign:
            self.gone = True
            self.transport.close()
            return
        if late is not None:
            self._held = True
            self._pause()
            asyncio.get_running_loop().call_later(self.server.settings.auth_delay, self._late, late)
            return
        if self._paused:
            self._go_on()
        if (self._farewell or self._ending) and not self._owes:
            self._leave()

    def _late(self, late: Late) -> None:
        if self.gone:
            return
        self._held = False
        self.transport.write(self.codec.encode(late.text))
        if self.session.wrong >= TRIES:
            log.warning("a connection said %d wrong secrets and is closed", self.session.wrong)
            self.transport.close()
            return
        if late.rest:
            self._rest.insert(0, late.rest)
        self._go_on()
        if (self._farewell or self._ending) and not self._owes:
            self._leave()

    def pause_writing(self) -> None:
        """Stop reading from a client that does not take its answers."""
        self._stopped = True
        self._pause()
        self._hold("answers", self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """Read on."""
        self._stopped = False
        self._hold("answers", 0)
        if not self.gone:
            self._go_on()

    def eof_received(self) -> bool:
        """Answer what was sent before the end, then close."""
        self._ending = True
        return self._owes

    def leave(self) -> None:
        """Read no more, and close when all that has arrived is answered."""
        self._ending = True
        self._pause()
        if not self.gone and not self._owes:
            self._leave()

    def expire(self) -> None:
        """Close, since no whole request has come for too long, or its answers are not taken."""
        if not (self.waiting or self._held):
            self.abort()

    def abort(self) -> None:
        """Close at once."""
        self.gone = True
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self.gone = True
        self._framing.drop()
        self._rest = []
        self._hold("lines", 0)
        self._hold("answers", 0)
        if self in self.server.clients:
            self.server.clients.discard(self)
            self.counters.disconnected()
