"""One worker process: it serves the supervisor's sockets, until the supervisor sends `stop` or is gone.

It is started as `python -m roost.server.worker`. The settings come over the control connection, so that no secret is
among its arguments. It ignores SIGTERM, SIGINT and SIGHUP, since a service manager sends them to every process of the
service: the supervisor decides.
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

SPARE_FILES = 128  # files kept for the database, the listening sockets, and the connections being refused
HANDSHAKE = 15.0  # seconds within which a client must complete the TLS handshake
FAREWELL = 1.0  # seconds that a refused client has to read the reason
PUBLISHED_EVERY = 1.0  # seconds between copies of the counters into shared memory
MOST_SOCKETS = 253  # Linux's limit of descriptors in one message (SCM_MAX_FD)
TURNS = 8  # iterations of the loop in which a queued connection is accepted and its requests are read


class Served(Protocol):
    """The server in a worker; see `roost.server.server.Server`."""

    def protocol(self, name: str) -> asyncio.Protocol:
        """Make the `asyncio.Protocol` of an accepted connection, by the name of the protocol."""

    def reload(self, settings: Settings) -> None:
        """Apply new settings."""

    async def drain(self, seconds: float) -> None:
        """Answer the received requests, and close every connection."""

    async def close(self) -> None:
        """Close the database when the running turns have ended."""


Make = Callable[[Settings, Role, dict[str, Counters]], Served]
FULL = {each.name: each.full for each in (HandlerSocket, Memcached)}  # the answers to refused clients


class Worker:
    """The life of the process, from `start` to the last answer.

    files: the descriptors of its counters and of its listening sockets.
    """

    def __init__(self, make: Make, control: Channel, files: Sequence[int]) -> None:
        self._make, self._control, self._files = make, control, files
        self._servers: list[asyncio.AbstractServer] = []

    async def run(self) -> int:
        """Serve until the supervisor sends `stop` or is gone; return the exit code."""
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
        gc.freeze()  # the objects made so far live as long as the process: no collection needs to examine them
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
        # A turn publishes before its answers are sent. Counts made while they are sent (bytes_out) are published by the
        # next turn, or here.
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
        """Accept or refuse a connection; a refused one gets no session."""
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
            log.warning("the supervisor is gone; answering the received requests, then exiting")
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
    """Checks the limit in `connection_made`, since asyncio accepts many connections before it sets up the first."""

    def __init__(self, worker: Worker, protocol: str) -> None:
        self._worker = worker
        self._protocol = protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, since uvloop's transports are no subclasses of asyncio's.
        self._worker.enter(cast(asyncio.Transport, transport), self._protocol)


class _Refused(asyncio.Protocol):
    """Sends the reason and closes, after reading for a moment: closing with unread bytes would discard the answer."""

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
    """Raise the limit of open files as far as allowed, and return it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2**20 if hard == resource.RLIM_INFINITY else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def _be_called(name: str) -> None:
    try:
        with open("/proc/self/comm", "w") as file:  # the name that ps and top show; Linux only
            file.write(name)
    except OSError:
        pass


def _no_second_sqlite(event: str, arguments: tuple[Any, ...]) -> None:
    # The server opens the database with apsw. If another copy of SQLite in the same process closed the file, the first
    # copy's locks would be released (POSIX locks belong to the process), and the file could be damaged.
    if event == "sqlite3.connect":
        raise CannotOpen(f"{arguments[0]}: a worker of roost serve opens databases by apsw, never by sqlite3")


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # an optional extra; asyncio's own loop does the same, slower
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def _live(make: Make, line: socket.socket, files: Sequence[int]) -> int:
    return await Worker(make, await Channel.over(line), files).run()


def main(make: Make) -> int:
    """Run a worker, `python -m roost.server.worker FD`: wait for a slot, and serve in it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.addaudithook(_no_second_sqlite)
    _be_called("roost standby")
    line = socket.socket(fileno=int(sys.argv[1]))
    said, files, _, _ = socket.recv_fds(line, 1, MOST_SOCKETS)
    if not said:  # the supervisor is gone, or does not need this process
        return 0
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        return runner.run(_live(make, line, files))


if __name__ == "__main__":
    from roost.server.server import Server

    sys.exit(main(Server))
