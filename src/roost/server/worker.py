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
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

from roost.errors import CannotOpen, Error
from roost.protocols.handlersocket.codec import HandlerSocket
from roost.protocols.memcached.codec import Memcached
from roost.server.counters import Counters, map_block
from roost.server.listeners import BACKLOG, tls_context
from roost.server.processes import Channel, log_to_stderr
from roost.server.settings import Role, Settings, protocol_of

log = logging.getLogger(__name__)

SPARE_FILES = 128  # files kept for the database, the listening sockets, and the connections being refused
HANDSHAKE = 15.0  # seconds within which a client must complete the TLS handshake
FAREWELL = 1.0  # seconds that a refused client has to read the reason
REPEATED = 60.0  # seconds after which it is logged again that connections are refused
PUBLISHED_EVERY = 1.0  # seconds between copies of the counters into shared memory
MOST_SOCKETS = 253  # Linux's limit of descriptors in one message (SCM_MAX_FD)
TURNS = 8  # iterations of the loop in which a queued connection is accepted and its requests are read


Make = Callable[[Settings, Role, dict[str, Counters]], Any]  # makes a `roost.server.server.Server`
FULL = {each.name: each.full for each in (HandlerSocket, Memcached)}  # the answers to refused clients


class Worker:
    """The life of the process, from `start` to the last answer.

    files: the descriptors of its counters and of its listening sockets.
    """

    def __init__(self, make: Make, control: Channel, files: Sequence[int]) -> None:
        self._make, self._control, self._files = make, control, files
        self._acceptors: list[_Acceptor] = []
        self.entering: set[_Door] = set()  # connections whose TLS handshake is not complete
        self._refusal_logged = -REPEATED  # by the monotonic clock

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
        self.context = tls_context(settings)
        for service, fd in zip(message["services"], sockets, strict=True):
            self._acceptors.append(_Acceptor(self, socket.socket(fileno=fd), protocol_of(service)))

    def _publish(self) -> None:
        # A turn publishes before its answers are sent. Counts made while they are sent (bytes_out) are published by the
        # next turn, or here.
        for each in self._counters.values():
            each.publish()
        asyncio.get_running_loop().call_later(PUBLISHED_EVERY, self._publish)

    @property
    def _most(self) -> int:
        return max(1, min(self._settings.max_connections, self._room))

    @property
    def room(self) -> int:
        """How many more connections may be accepted; not positive: further ones are refused."""
        return self._most - len(self.entering) - sum([each.open for each in self._counters.values()])

    def protocol(self, name: str, admitted: bool) -> asyncio.Protocol:
        if admitted:
            protocol: asyncio.Protocol = self._served.protocol(name)
            return protocol
        self.refuse(name)
        return _Refused(FULL[name], self._refused)

    def refuse(self, name: str) -> None:
        """Count a refused connection, and log that there are such."""
        self._counters[name].refused += 1
        self._counters[name].publish()
        now = time.monotonic()
        if now >= self._refusal_logged + REPEATED:
            self._refusal_logged = now
            shown = self.entering and self._settings.tls_cert is not None
            waiting = f" ({len(self.entering)} have not completed the TLS handshake)" if shown else ""
            log.warning("connections beyond %d are refused%s", self._most, waiting)

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
        for acceptor in self._acceptors:
            acceptor.close()
        await self._served.drain(self._settings.drain)

    def _reload(self, settings: Settings) -> None:
        try:
            # Another context: one that had a certificate with a key of another type would go on sending that one, too.
            self.context = tls_context(settings)
        except Error as error:
            self._control.say("kept", reason=str(error))
            return
        self._settings = settings
        self._served.reload(settings)
        self._control.say("reloaded")


class _Door(asyncio.Protocol):
    """An accepted connection, until the TLS handshake is complete. admitted: it was within the limit when accepted."""

    def __init__(self, worker: Worker, name: str, admitted: bool) -> None:
        self._worker, self._name, self._admitted = worker, name, admitted

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._worker.entering.discard(self)
        protocol = self._worker.protocol(self._name, self._admitted)
        # A cast, since uvloop's transports are no subclasses of asyncio's.
        cast(asyncio.Transport, transport).set_protocol(protocol)
        protocol.connection_made(transport)


class _Acceptor:
    """Accepts connections at one socket; they count from then on, not only after the TLS handshake."""

    def __init__(self, worker: Worker, sock: socket.socket, protocol: str) -> None:
        self._worker, self._socket, self._protocol = worker, sock, protocol
        self._tasks: set[asyncio.Task[None]] = set()  # references, so that they are not garbage collected
        sock.setblocking(False)
        sock.listen(BACKLOG)
        self._go_on()

    def _go_on(self) -> None:
        if self._socket.fileno() >= 0:
            asyncio.get_running_loop().add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        loop, worker = asyncio.get_running_loop(), self._worker
        for _ in range(BACKLOG):
            try:
                accepted, _address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.error("no connection can be accepted for a second: %s", error)
                loop.remove_reader(self._socket)
                loop.call_later(1.0, self._go_on)
                return
            room = worker.room
            if room <= -SPARE_FILES // 2:  # too many to tell each of them why
                accepted.close()
                worker.refuse(self._protocol)
                continue
            accepted.setblocking(False)
            if accepted.family != socket.AF_UNIX:
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            door = _Door(worker, self._protocol, room > 0)
            worker.entering.add(door)
            task = loop.create_task(self._enter(accepted, door))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _enter(self, accepted: socket.socket, door: _Door) -> None:
        context = self._worker.context if accepted.family != socket.AF_UNIX else None
        how: dict[str, Any] = {} if context is None else {"ssl": context, "ssl_handshake_timeout": HANDSHAKE}
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: door, accepted, **how)
        except OSError as error:  # the client speaks no TLS, or has left
            log.debug("a connection could not be set up: %s", error)
        finally:
            self._worker.entering.discard(door)

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()


class _Refused(asyncio.Protocol):
    """Sends the reason and closes, after reading for a moment: closing with unread bytes would discard the answer."""

    def __init__(self, answer: bytes, others: set[_Refused]) -> None:
        self._answer, self._others = answer, others

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's transports are no subclasses of asyncio's
        others = self._others
        transport.write(self._answer)
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
