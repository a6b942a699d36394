"""One worker's sockets: bytes are gathered from all connections that are ready, played as a turn, and answered.

A turn is scheduled when the first bytes arrive and runs when the loop has read every socket that was ready; what comes
meanwhile is the next turn. A client that does not take its answers is not read from; one that sends an endless line is
told so and closed. Nobody waits for a slow client but itself. A turn has room for so many requests, bytes of answers
and seconds; what it has no room for is played in the next ones, those first who were answered nothing, and short pieces
before long ones. How much of a pipeline is played in one turn depends on what the last piece took, in bytes and time,
so a connection that asks for much has a share like the others.
Who plays the turns, and what is done about locks that somebody else holds, is in `players.py`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from itertools import takewhile
from math import inf
from typing import cast

from roost.protocols.handlersocket.exchange import Late
from roost.protocols.handlersocket.session import Session
from roost.server.counters import Counters
from roost.server.players import LOCK_WAIT, InLoop, InThreads, Player, Taken
from roost.server.settings import Role, Settings
from roost.server.turn import Played
from roost.store.served import Limits
from roost.store.served_file import FileDatabase
from roost.store.served_server import connect

SLOWEST, FASTEST = 1, 2**18  # characters of requests of one connection in a turn; a line at least
PACE = 2**12  # with which a connection begins
TURN = 2**20  # characters of requests in a turn
TURN_SECONDS = 0.05  # that a turn has, before what is left waits for the next
SHARE = 0.01  # seconds of a turn that one connection may take, when there is much to do
HELD = 2**28  # bytes of lines without an end, and of answers that are not taken, of all connections of a worker
LOGGED = 500  # characters of requests that are logged, if any may be
TICKS = 4  # how often in the time of `idle` it is looked who has been silent
TRIES = 10  # wrong secrets in a row, then a connection is closed

log = logging.getLogger("roost.server")


class Server:
    """What one worker process serves: one database in one role.

    Raises: CannotOpen, Missing, when made.
    """

    def __init__(self, settings: Settings, role: Role, counters: Counters) -> None:
        self.settings = settings
        self.role: Role = role
        self.counters = counters
        self.clients: set[Client] = set()
        self.draining = False
        self.waiting: Taken = []
        self.held = {"lines": 0, "answers": 0}  # bytes that connections make it hold
        self._scheduled = False
        self._crowded = False  # the last turn had no room for all
        self._loop: asyncio.AbstractEventLoop | None = None
        writes = role == "write"
        self._player: Player
        if settings.is_file:
            file = FileDatabase(settings.url, writes=writes, lock_wait=LOCK_WAIT)
            self._names, self._schemas = file.names, False
            self._player = InLoop(self, file)
        else:
            databases = connect(settings.url, settings.connections_of_one, settings.timeout, writes=writes)
            self._names, self._schemas = databases[0].names, databases[0].schemas
            self._player = InThreads(self, databases)
        self._player.limit(_limits(settings))

    def may_open(self, database: str, table: str) -> bool:
        """Whether a table may be opened, by the names of the database and the table."""
        return (database in self._names or (self._schemas and bool(database))) and self.settings.allows(table)

    def protocol(self) -> asyncio.Protocol:
        """Return what serves one more connection; for `loop.create_server`."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._look_for_silent()
        return Client(self)

    def _look_for_silent(self) -> None:
        # Connections count how often they were looked at since their last answer: no clock is read for a request.
        idle, unknown = self.settings.idle, self.settings.auth_timeout
        since = time.monotonic() - unknown
        for client in list(self.clients) if idle or unknown else ():
            client.silent += 1
            unheard = unknown and not client.session.authorized and client.since < since
            if unheard or (idle and client.silent > TICKS):
                client.expire()
        assert self._loop is not None
        self._loop.call_later(idle / TICKS if idle else min(1.0, unknown or 1.0), self._look_for_silent)

    def hold(self, what: str, client: Client, bytes_: int) -> None:
        """Count what a connection makes the worker hold; where all hold too much, the one that holds most is closed.

        Of those who have not said the secret, while there are any.
        """
        self.held[what] += bytes_
        if bytes_ > 0 and self.held[what] > HELD:
            holding = [each for each in self.clients if each.holds[what]]
            greediest = max(holding, key=lambda each: (not each.session.authorized, each.holds[what]), default=client)
            log.warning("connections make this worker hold %d bytes of %s: one is closed", self.held[what], what)
            greediest.abort()

    def arrived(self, client: Client, text: str) -> None:
        """Take complete lines for the next turn."""
        self.waiting.append((client, text))
        client.waiting = True
        self.schedule()

    def take(self) -> Taken:
        """Take who is played now: who was answered nothing last time first, and short pieces before long ones."""
        waiting = [each for each in self.waiting if not each[0].gone]
        taken = len(waiting)
        if self._crowded or sum([len(text) for _, text in waiting]) > PACE:
            waiting.sort(key=lambda each: (not each[0].passed_over, len(each[1])))
            left = 0
            for taken, (_, text) in enumerate(waiting, 1):  # noqa: B007 - how many there are
                left += len(text)
                if left > TURN:
                    break
        self.waiting = waiting[taken:]
        return waiting[:taken]

    def schedule(self) -> None:
        """Have what waits played when the loop has read every socket that is ready."""
        if not self._scheduled:
            self._scheduled = True
            if self._loop is None:
                self._loop = asyncio.get_running_loop()
            self._loop.call_soon(self._play)

    def _play(self) -> None:
        self._scheduled = False
        self._player.play()

    def failed(self, taken: Taken, error: BaseException | None = None) -> None:
        """Close the connections of a turn whose outcome is not known."""
        told = "a turn failed at its COMMIT; its connections are closed, since what was done is not known"
        log.error(told, exc_info=error or True)
        for client, _ in taken:
            client.abort()

    def played(self, taken: Taken, played: Played, seconds: float) -> None:
        """Answer the connections of a turn."""
        if self.settings.slow and seconds > self.settings.slow:
            self.counters.slow += 1
            shown = ""
            if self.settings.log_values:
                shown = ": " + " ".join([text[:LOGGED] for _, text in taken])[:LOGGED]
            log.warning("a turn of %d connections took %.3f s%s", len(taken), seconds, shown)
        self.counters.turn(seconds)
        self._crowded = bool(played.rest)
        for place, ((client, _), text) in enumerate(zip(taken, played.texts, strict=True)):
            client.answer(text, played.late.get(place), played.rest.get(place, ""), played.seconds[place])

    def reload(self, settings: Settings) -> None:
        """Go on with other settings: connections keep the secret that they have said, and of tables what is allowed."""
        self.settings = settings
        self._player.forget()  # what is not allowed any more is no longer open
        self._player.limit(_limits(settings))

    async def drain(self, seconds: float) -> None:
        """Answer what has arrived, then close every connection; who does not take his answers in time is cut off."""
        self.draining = True
        for _ in range(3):  # the loop reads what lies in the sockets, and plays it
            await asyncio.sleep(0)
        for client in list(self.clients):
            client.leave()
        deadline = time.monotonic() + seconds
        while self.clients and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        for client in list(self.clients):
            client.abort()

    def close(self) -> None:
        """Close the database."""
        self._player.close()


def _limits(settings: Settings) -> Limits:
    return Limits(settings.max_unanswered, TURN_SECONDS, settings.timeout or inf, settings.max_answer)


class Client(asyncio.Protocol):
    """One connection."""

    __slots__ = (
        "_buffer",
        "_ending",
        "_farewell",
        "_held",
        "_measured",
        "_pace",
        "_paused",
        "_rest",
        "_size",
        "_stopped",
        "blocked",
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

    def __init__(self, server: Server) -> None:
        self.server = server
        self.session = Session(server.settings.secret(server.role), server.settings.max_indexes)
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
        self._buffer: list[bytes] = []  # of a line that has no end yet
        self._size = 0
        self._held = False  # until a late answer is given
        self._stopped = False  # it does not take its answers
        self._paused = False  # nothing is read
        self._rest: list[str] = []  # lines for turns to come
        self._pace = PACE

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a connection, unless the server is leaving."""
        server = self.server
        self.transport = cast(asyncio.Transport, transport)
        if server.draining:
            server.counters.refused += 1
            self.gone = True
            self.transport.write(b"2\t1\tlimit\n")
            self.transport.close()
            return
        self.transport.set_write_buffer_limits(high=server.settings.max_unanswered)
        server.clients.add(self)
        server.counters.connected()

    def data_received(self, data: bytes) -> None:
        """Keep what is no whole line yet, and hand on the rest."""
        if self.gone or self._farewell:
            return
        server = self.server
        server.counters.bytes_in += len(data)
        end = data.rfind(b"\n")
        if end < 0 or end != len(data) - 1 or self._buffer or self._held:
            data, enough = self._gather(data, end)
            if not enough:
                return
        else:
            data = data[:end]
        too_long = False
        if len(data) > server.settings.max_line:
            lines = data.split(b"\n")
            fit = list(takewhile(lambda line: len(line) <= server.settings.max_line, lines))
            too_long = len(fit) < len(lines)
            data = b"\n".join(fit)
            if not fit:
                self._too_long()
                return
        if b"\r" in data:
            data = (data + b"\n").replace(b"\r\n", b"\n")[:-1]
        text = data.decode("utf-8", "surrogateescape")
        if len(text) <= self._pace and not self._rest and not self.waiting and not self._stopped:
            server.arrived(self, text)
        else:
            self._rest.append(text)
            self._go_on()
        if too_long:
            self._too_long()

    def _go_on(self) -> None:
        # Hands on the next piece of what is there, and reads on when that was the last.
        rest = self._rest
        if rest and not (self.waiting or self._held or self._stopped):
            text = rest.pop(0)
            if len(text) > self._pace:
                cut = text.rfind("\n", 0, self._pace)
                cut = text.find("\n", self._pace) if cut < 0 else cut
                if cut >= 0:
                    rest.insert(0, text[cut + 1 :])
                    text = text[:cut]
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

    def _gather(self, data: bytes, end: int) -> tuple[bytes, bool]:
        # Returns all complete lines, and whether there are any to be played now.
        if self._held or end < 0:
            self._buffer.append(data)
            self._size += len(data)
            self._hold("lines", self._size)
            if self._size > self.server.settings.max_line and not self._held:
                self._too_long()
            return b"", False
        whole = b"".join([*self._buffer, data[:end]])
        rest = data[end + 1 :]
        self._buffer = [rest] if rest else []
        self._size = len(rest)
        self._hold("lines", self._size)
        return whole, True

    def _too_long(self) -> None:
        # The rest of the stream cannot be trusted; what came before the line is answered first.
        self.server.counters.errors += 1
        self._buffer = []
        self._size = 0
        self._hold("lines", 0)
        self._farewell = b"2\t1\ttoolong\n"
        self._pause()
        if not self._owes:
            self._leave()

    def _leave(self) -> None:
        self.transport.write(self._farewell)
        self.gone = True
        self.transport.close()

    def block(self, rest: str) -> None:
        """Note that its next line waits for a lock that somebody else holds, and the others for that one."""
        self.locked = self.locked or time.monotonic()
        if rest:
            self._rest.insert(0, rest)
            self._pause()

    def answer(self, text: str, late: Late | None, rest: str, seconds: float) -> None:
        """Send what was answered; what comes late is sent after a delay, and then the other lines go on.

        rest: the lines that there was no room for.
        seconds: that the others took.
        """
        self.waiting = self.blocked
        self.locked = self.locked if self.blocked else 0.0
        self.blocked = False
        self.silent = 0
        self.passed_over = not text and bool(rest)
        if self.gone:
            return
        if text:
            data = text.encode("utf-8", "surrogateescape")
            size = len(data)
            self.server.counters.bytes_out += size
            self.transport.write(data)
            self._measured = True
            most = self.server.settings.max_unanswered
            if rest or size > most or seconds > SHARE:
                taken = max(size / most, seconds / SHARE)  # of what one may take
                self._pace = max(SLOWEST, int(self._pace / max(taken, 2)))
            elif self._pace < FASTEST:
                self._pace *= 2
        elif rest and not self._measured:
            self._pace = SLOWEST
        if rest:
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
        self.transport.write(late.text.encode())
        if self.session.wrong >= TRIES:
            log.warning("a connection said %d wrong secrets and is closed", self.session.wrong)
            self.transport.close()
            return
        if late.rest:
            self._rest.insert(0, late.rest)
        if self._buffer:
            data, self._buffer, self._size = b"".join(self._buffer), [], 0
            self._hold("lines", 0)
            self.data_received(data)
        self._go_on()
        if self._ending and not self._owes:
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
        self._buffer, self._rest = [], []
        self._hold("lines", 0)
        self._hold("answers", 0)
        if self in self.server.clients:
            self.server.clients.discard(self)
            self.server.counters.disconnected()
