"""The processes of the workers, as the supervisor sees them: their slots, and the control connections to them.

A slot's sockets and counters stay; its process is replaced when it dies. One process is kept in advance (a standby),
which has imported everything and waits for a slot, so that a dead worker is replaced without the second that Python
takes to start and import.

A control connection carries JSON documents, one per line, over a socket pair. The supervisor sends `start`, `reload`,
`ping` and `stop`; a worker answers `ready`, `failed`, `reloaded`, `kept` and `pong`. End of file means that the other
process is dead: neither side closes the connection otherwise.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import FileIO
from mmap import mmap
from typing import Any

from roost.server.counters import Totals, make_block, totals
from roost.server.settings import PREFIX, Role, Service, Settings, protocol_of

log = logging.getLogger(__name__)

LONGEST = 2**24  # bytes of a line: settings with many patterns of tables
WORKER: tuple[str, ...] = ("-P", "-m", "roost.server.worker")  # -P: nothing is imported from the working directory
PONG = 2.0  # seconds within which a worker must answer `ping`
SETTLED = 1.0  # seconds after a start before a standby process is started: earlier, it would slow the workers down


class Channel:
    """One end of the control connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def over(cls, sock: socket.socket) -> Channel:
        return cls(*await asyncio.open_unix_connection(sock=sock, limit=LONGEST))

    def say(self, word: str, **facts: Any) -> None:
        """Send a word; do nothing if the other process is gone."""
        if not self._writer.is_closing():
            self._writer.write(json.dumps({"word": word, **facts}).encode() + b"\n")

    async def hear(self) -> dict[str, Any] | None:
        """Receive the next word with its facts; None if the other process is gone."""
        try:
            line = await self._reader.readline()
        except ConnectionError:
            return None
        found: dict[str, Any] | None = json.loads(line) if line.endswith(b"\n") else None
        return found

    async def flush(self) -> None:
        try:
            await self._writer.drain()
        except ConnectionError:
            pass

    def close(self) -> None:
        """Close the connection; the other process sees the end of file."""
        self._writer.close()


@dataclass
class Standby:
    """A process, and the supervisor's end of its control connection."""

    process: subprocess.Popen[bytes]
    line: socket.socket

    def end(self) -> None:
        self.line.close()
        self.process.kill()
        self.process.wait()


class Standbys:
    """At most one standby process."""

    def __init__(self) -> None:
        self._kept: Standby | None = None
        self._ended = False

    def take(self) -> Standby:
        """Return the standby process, or start one if there is none; OSError if that fails."""
        kept, self._kept = self._kept, None
        if kept is not None:
            if kept.process.poll() is None:
                return kept
            kept.end()
        return _start()

    def keep(self) -> None:
        """Start a standby process, unless there is one or the supervisor is stopping."""
        if self._kept is None and not self._ended:
            try:
                self._kept = _start()
            except OSError:
                pass  # `take` tries again when a process is needed, and reports the error

    def end(self) -> None:
        self._ended = True
        if self._kept is not None:
            self._kept.end()
            self._kept = None


def _start() -> Standby:
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            process = subprocess.Popen(
                [sys.executable, *WORKER, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr,  # the supervisor's stdout is for its announcements only
                env={name: value for name, value in os.environ.items() if not name.startswith(PREFIX)},
                process_group=0,  # so that Ctrl-C in a terminal reaches the supervisor only
            )
        except BaseException:
            ours.close()
            raise
    return Standby(process, ours)


class Slot:
    """One worker's slot.

    settings: returns the current settings.
    standbys: the source of its processes.
    """

    def __init__(
        self,
        role: Role,
        number: int,
        name: str,
        sockets: Sequence[tuple[Service, socket.socket]],
        settings: Callable[[], Settings],
        standbys: Standbys,
    ) -> None:
        self.role, self.number = role, number
        self.name = name
        self.ready = asyncio.Event()
        self.starts = 0
        self.ended = ""  # how the last process ended, in words
        self._services, self._sockets = [service for service, _ in sockets], [each for _, each in sockets]
        self._settings, self._standbys = settings, standbys
        self._memories: dict[str, mmap] = {}  # the counters, by the names of the protocols
        # FileIO objects, since closing one twice is harmless; closing a descriptor twice may close another file.
        self._counters: list[FileIO] = []
        for protocol in dict.fromkeys(["handlersocket", *map(protocol_of, self._services)]):
            fd, self._memories[protocol] = make_block()
            self._counters.append(FileIO(fd))
        self._process: subprocess.Popen[bytes] | None = None
        self._control: Channel | None = None
        self._stopped = False
        self._pings: dict[int, asyncio.Future[None]] = {}
        self._pinged = 0

    @property
    def protocols(self) -> list[str]:
        """The protocols that have counters; always `handlersocket`, as the first."""
        return list(self._memories)

    def totals(self, protocol: str = "handlersocket") -> Totals:
        """Return a protocol's counts, summed over all its processes; `open` is 0 while there is no process."""
        found = totals(self._memories[protocol])
        return found if self._process else Totals(found.numbers | {"open": 0}, found.durations)

    async def live(self) -> bool:
        """Start a process and wait until it has ended; return whether it had become ready."""
        try:
            standby = self._standbys.take()
        except OSError as error:
            self.ended = f"could not be started: {error.strerror}"
            return False
        self._process = standby.process
        self.starts += 1
        try:
            files = [*[each.fileno() for each in self._counters], *[each.fileno() for each in self._sockets]]
            socket.send_fds(standby.line, [b"."], files)
            self._control = await Channel.over(standby.line)
        except OSError:  # the standby process has died
            standby.line.close()
            self.ended = _ending(await self._bury())
            return False
        self._control.say(
            "start",
            settings=self._settings().to_json(),
            role=self.role,
            number=self.number,
            protocols=self.protocols,
            services=self._services,
        )
        if self._stopped:
            self._control.say("stop")
        reason = ""
        try:
            while (message := await self._control.hear()) is not None:
                reason = self._heed(message) or reason
        finally:
            was_ready = self.ready.is_set()
            self.ready.clear()
            self._control.close()
            self._control = None
            code = await self._bury()
        self.ended = reason or _ending(code)
        return was_ready

    def _heed(self, message: dict[str, Any]) -> str:
        """Handle a word of the worker; return the reason if the worker cannot start, else an empty text."""
        assert self._process is not None
        match message["word"]:
            case "ready":
                self.ready.set()
                asyncio.get_running_loop().call_later(SETTLED, self._standbys.keep)
                log.info("%s is process %d", self.name, self._process.pid)
                if message["connections"] < self._settings().max_connections:
                    log.warning(
                        "%s takes %d connections, not %d: the limit of open files (RLIMIT_NOFILE) has no room for more",
                        *(self.name, message["connections"], self._settings().max_connections),
                    )
            case "failed":
                return str(message["reason"])
            case "kept":
                log.error("%s keeps its certificate: %s", self.name, message["reason"])
            case "pong":
                answered = self._pings.pop(message["number"], None)
                if answered is not None and not answered.done():
                    answered.set_result(None)
        return ""

    async def _bury(self) -> int:
        # The control connection has ended: the process is dead, or too broken to keep.
        process, self._process = self._process, None
        assert process is not None
        process.kill()
        return await asyncio.to_thread(process.wait)

    def reload(self) -> None:
        """Send the current settings to the process; a later process starts with them."""
        if self._control is not None:
            self._control.say("reload", settings=self._settings().to_json())

    def stop(self) -> None:
        """Tell the process to answer the received requests and exit."""
        self._stopped = True
        if self._control is not None:
            self._control.say("stop")

    def kill(self) -> bool:
        if self._process is None:
            return False
        self._process.kill()
        return True

    async def answers(self) -> bool:
        """Whether the process is ready and its event loop responds."""
        if self._control is None or not self.ready.is_set():
            return False
        self._pinged += 1
        number = self._pinged
        self._pings[number] = asyncio.get_running_loop().create_future()
        self._control.say("ping", number=number)
        try:
            await asyncio.wait_for(self._pings[number], PONG)
        except TimeoutError:
            return False
        finally:
            self._pings.pop(number, None)
        return True

    def forget(self) -> None:
        for each in self._counters:
            each.close()


def _ending(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class _OneLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record).replace("\n", " | ")
        return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def log_to_stderr(who: str) -> None:
    """Log to stderr from now on, with the name of this process in each line.

    A traceback becomes one line too. Control characters are escaped, so text from a client can neither break a line nor
    control a terminal.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine(f"%(asctime)s %(levelname)s {who}[%(process)d] %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
