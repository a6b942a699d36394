"""One worker process: it serves connections to the supervisor's sockets, until the supervisor says so or is gone.

Started as `python -m roost.server.worker`; the settings come over the control line, so that no secret is in its
arguments. It ignores the signals that end a process politely, since a service manager sends them to everybody: the
supervisor decides.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

from roost.errors import CannotOpen, Error
from roost.protocols.handlersocket.codec import HandlerSocket
from roost.protocols.memcached.codec import Memcached
from roost.server import tls
from roost.server.control import Channel
from roost.server.counters import Counters, map_block
from roost.server.listeners import BACKLOG
from roost.server.logs import log_to_stderr
from roost.server.settings import Role, Settings, protocol_of

log = logging.getLogger(__name__)

SPARE_FILES = 128  # of a process: its database, its listeners, and those whom it refuses
HANDSHAKE = 15.0  # seconds that a client has for TLS
FAREWELL = 1.0  # seconds that a client who is refused has to read why
PUBLISHED_EVERY = 1.0  # seconds
MOST_SOCKETS = 253  # that can be sent at once, says Linux
TURNS = 8  # of the loop, until a connection that was waiting in a queue has handed over what it has sent


class Served(Protocol):
    """What a worker serves; see `roost.server.server.Server`."""

    def protocol(self, name: str) -> asyncio.Protocol:
        """Return what a connection that was accepted talks to, by the name of the protocol."""

    def reload(self, settings: Settings) -> None:
        """Go on with other settings."""

    async def drain(self, seconds: float) -> None:
        """Answer what has arrived, and close every connection."""

    async def close(self) -> None:
        """Close the database, when what is under way is over."""


Make = Callable[[Settings, Role, dict[str, Counters]], Served]
FULL = {each.name: each.full for each in (HandlerSocket, Memcached)}  # what is said to who is refused


class Worker:
    """The life of the process, from `start` to the last answer.

    files: the descriptors of its counters and of its listening sockets.
    """

    def __init__(self, make: Make, control: Channel, files: Sequence[int]) -> None:
        self._make, self._control, self._files = make, control, files
        self._servers: list[asyncio.AbstractServer] = []

    async def run(self) -> int:
        """Serve until the supervisor says `stop` or is gone; return the exit code."""
        message = await self._control.hear()
        if message is None:
            return 0
        try:
            await self._start(Settings.from_json(message["settings"]), message)
        except Exception as error:
            reason = str(error) if isinstance(error, (Error, OSError)) else f"{type(error).__name__}: {error}"
            if not isinstance(error, (Error, OSError)):
                log.exception("it cannot start")
            self._control.say("failed", reason=reason)
            await self._control.flush()
            return 1
        self._publish()
        self._control.say("ready", connections=self._most)
        gc.collect()
        gc.freeze()  # what is there now stays: no collection needs to look at it
        try:
            await self._serve()
        finally:
            await self._served.close()
        return 0

    async def _start(self, settings: Settings, message: dict[str, Any]) -> None:
        self._settings, self._role = settings, message["role"]
        log_to_stderr(f"roost {self._role} {message['number']}")
        _be_called(f"roost {self._role} {message['number']}")
        protocols: list[str] = message["protocols"]
        blocks, sockets = self._files[: len(protocols)], self._files[len(protocols) :]
        self._counters = {name: Counters(map_block(fd)) for name, fd in zip(protocols, blocks, strict=True)}
        self._room = _allowed_files() - SPARE_FILES
        self._refused: set[_Refused] = set()
        self._served = self._make(settings, self._role, self._counters)
        self._context = tls.context(settings)
        for service, fd in zip(message["services"], sockets, strict=True):
            await self._listen(socket.socket(fileno=fd), protocol_of(service), self._context)

    def _publish(self) -> None:
        # A turn publishes before its answers are sent, so what is counted as they leave is told by the next, or here.
        for each in self._counters.values():
            each.publish()
        asyncio.get_running_loop().call_later(PUBLISHED_EVERY, self._publish)

    @property
    def _most(self) -> int:
        return max(1, min(self._settings.max_connections, self._room))

    async def _listen(self, sock: socket.socket, protocol: str, context: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()

        def door() -> asyncio.Protocol:
            return _Door(self, protocol)

        sock.setblocking(False)
        if sock.family == socket.AF_UNIX:
            server = await loop.create_unix_server(door, sock=sock, backlog=BACKLOG)
        else:
            patience = None if context is None else HANDSHAKE
            server = await loop.create_server(
                door, sock=sock, backlog=BACKLOG, ssl=context, ssl_handshake_timeout=patience
            )
        self._servers.append(server)

    def enter(self, transport: asyncio.Transport, name: str) -> None:
        """Let a connection in, or refuse it: only one that was let in has a session."""
        if sum([each.open for each in self._counters.values()]) < self._most:
            protocol = self._served.protocol(name)
            transport.set_protocol(protocol)
            protocol.connection_made(transport)
            return
        self._counters[name].refused += 1
        self._counters[name].publish()
        transport.set_protocol(_Refused(transport, FULL[name], self._refused))

    async def _serve(self) -> None:
        while (message := await self._control.hear()) is not None and message["word"] != "stop":
            if message["word"] == "ping":
                self._control.say("pong", number=message["number"])
            elif message["word"] == "reload":
                self._reload(Settings.from_json(message["settings"]))
        if message is None:
            log.warning("the supervisor is gone; answering what has arrived, and leaving")
        for _ in range(TURNS):
            await asyncio.sleep(0)
        for server in self._servers:
            server.close()
        await self._served.drain(self._settings.drain)

    def _reload(self, settings: Settings) -> None:
        try:
            tls.replace(self._context, settings)
        except Error as error:
            self._control.say("kept", reason=str(error))
            return
        self._settings = settings
        self._served.reload(settings)
        self._control.say("reloaded")


class _Door(asyncio.Protocol):
    """Counts connections one by one: many are accepted before the first of them is made."""

    def __init__(self, worker: Worker, protocol: str) -> None:
        self._worker = worker
        self._protocol = protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._worker.enter(
            cast(asyncio.Transport, transport), self._protocol
        )  # uvloop's are no subclasses of asyncio's


class _Refused(asyncio.Protocol):
    """Says why and closes. It reads on for a moment: a close over unread bytes would take the answer along."""

    def __init__(self, transport: asyncio.Transport, answer: bytes, others: set[_Refused]) -> None:
        self._others = others
        transport.write(answer)
        if len(others) >= SPARE_FILES // 2 or not transport.can_write_eof():
            transport.close()
            return
        others.add(self)
        transport.write_eof()
        asyncio.get_running_loop().call_later(FAREWELL, transport.abort)

    def connection_lost(self, error: Exception | None) -> None:
        self._others.discard(self)


def _allowed_files() -> int:
    """Allow as many open files as may be allowed, and return their number."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2**20 if hard == resource.RLIM_INFINITY else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def _be_called(name: str) -> None:
    try:
        with open("/proc/self/comm", "w") as file:  # what ps and top show; not everywhere
            file.write(name)
    except OSError:
        pass


def _no_second_sqlite(event: str, arguments: tuple[Any, ...]) -> None:
    # The server has the database open by apsw. Another copy of SQLite in the same process would, by closing the file,
    # give up the locks of the first (POSIX locks belong to the process), and the file could be damaged.
    if event == "sqlite3.connect":
        raise CannotOpen(f"{arguments[0]}: a worker of roost serve opens databases by apsw, never by sqlite3")


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # an extra; asyncio's own loop does the same, slower
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def _live(make: Make, line: socket.socket, files: Sequence[int]) -> int:
    return await Worker(make, await Channel.over(line), files).run()


def main(make: Make) -> int:
    """Be a worker: `python -m roost.server.worker FD`; wait for a place, and serve there."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.addaudithook(_no_second_sqlite)
    _be_called("roost standby")
    line = socket.socket(fileno=int(sys.argv[1]))
    said, files, _, _ = socket.recv_fds(line, 1, MOST_SOCKETS)
    if not said:  # the supervisor is gone, or has no place for it
        return 0
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        return runner.run(_live(make, line, files))


if __name__ == "__main__":
    from roost.server.server import Server

    sys.exit(main(Server))
