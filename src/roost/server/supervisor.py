"""The supervisor of `roost serve`: owns the sockets, the counters and the processes, and never opens the database.

Read workers and write workers (one, on a SQLite file) are processes of their own. A worker that dies is replaced at
once; the new process continues with the listening sockets and counters of the old one. If the supervisor itself is
killed, the workers notice the end of their control connections, answer the received requests and exit.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from roost.databases.addresses import Address
from roost.errors import CannotOpen, Error
from roost.server.listeners import Listener, listen, tls_context
from roost.server.processes import Slot, Standbys
from roost.server.settings import ROLES, Settings, reloaded

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds between attempts to start a worker that dies before it is ready
GRACE = 5.0  # seconds beyond `drain` and `timeout` after which a worker that has not exited is killed
PAUSE = 1.0  # seconds before a console that has ended is started again


def notify(state: str) -> None:
    """Send a state to the service manager (systemd, `Type=notify`), if there is one: `READY=1`, `STOPPING=1`."""
    where = os.environ.get("NOTIFY_SOCKET", "")
    if where.startswith(("/", "@")):
        place = "\0" + where[1:] if where.startswith("@") else where
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as teller:  # it may be gone
            teller.connect(place)
            teller.send(state.encode())


class Supervisor:
    """Runs until SIGTERM or SIGINT.

    load: reads the settings again, on SIGHUP.
    announce: called once, when all workers are ready, with pairs of a service and its address.
    """

    def __init__(
        self, settings: Settings, load: Callable[[], Settings], announce: Callable[[list[tuple[str, str]]], None]
    ) -> None:
        self.settings = settings
        self.slots: list[Slot] = []
        self._load, self._announce = load, announce
        self._listeners: list[Listener] = []
        self._standbys = Standbys()
        self._console: Console | None = None
        self._leaving = asyncio.Event()
        self._begun = False
        self._killed = False
        self._telling: asyncio.Task[None] | None = None  # a reference, so that the task is not garbage collected

    async def run(self) -> int:
        """Serve until a signal; return the exit code. `CannotOpen` or `Invalid` if it cannot start."""
        tls_context(self.settings)  # so that a wrong certificate is reported once, not by every worker
        try:
            self._listen()
            loop = asyncio.get_running_loop()
            for number, heed in (
                (signal.SIGTERM, self._stop),
                (signal.SIGINT, self._stop),
                (signal.SIGHUP, self._reload),
            ):
                loop.add_signal_handler(number, heed)
            await self._serve()
        finally:
            for listener in self._listeners:
                listener.close()
            self._standbys.end()
            for slot in self.slots:
                slot.kill()
                slot.forget()
        return 1 if self._killed else 0

    async def silent(self) -> list[str]:
        """Return the names of the workers that are missing or do not answer."""
        answered = await asyncio.gather(*[slot.answers() for slot in self.slots])
        return [slot.name for slot, did in zip(self.slots, answered, strict=True) if not did]

    def _listen(self) -> None:
        for role in ROLES:
            workers = self.settings.workers_of(role)
            mine: list[Listener] = []
            for service in self.settings.services(role):
                for address in self.settings.listeners(service):
                    made = listen(service, address, workers)
                    self._listeners += made
                    mine += made
            for number in range(workers if mine else 0):
                sockets = [(listener.service, listener.of(number)) for listener in mine]
                name = f"{role} worker {number + 1}"
                if role == "write" and self.settings.is_file:
                    name = "the writer"
                self.slots.append(Slot(role, number + 1, name, sockets, lambda: self.settings, self._standbys))

    async def _serve(self) -> None:
        http = console = None
        if self.settings.http is not None:
            from roost.server.http import Http  # its imports are an optional extra

            if not self.settings.http.loopback:
                log.warning("http %s can be reached from other machines, and asks for no secret", self.settings.http)
            http = Http(self.slots, self.silent)
            await http.listen(self.settings.http)
        try:
            if self.settings.console is not None:
                console = self._console = Console(self.settings)
                await console.start()
            more = [("http", http.address)] if http is not None else []
            more += [("console", console.link)] if console is not None else []
            async with asyncio.TaskGroup() as group:
                for slot in self.slots:
                    group.create_task(self._keep(slot))
                if console is not None:
                    group.create_task(console.keep(self._leaving))
                group.create_task(self._begin(more))
        except* Error as errors:
            raise errors.exceptions[0] from None
        finally:
            if http is not None:
                await http.close()
            if console is not None:
                await console.close()

    async def _begin(self, more: list[tuple[str, str]]) -> None:
        for slot in self.slots:
            await slot.ready.wait()
        if self._leaving.is_set():
            return
        self._begun = True
        listeners = [(listener.service, str(listener.address)) for listener in self._listeners]
        self._announce([*listeners, *more])
        notify("READY=1")

    async def _keep(self, slot: Slot) -> None:
        failures, last = 0, ""
        while True:
            was_ready = await slot.live()
            if self._leaving.is_set():
                return
            if not self._begun:
                raise CannotOpen(f"{slot.name} cannot start: {slot.ended}")
            failures = 0 if was_ready else failures + 1
            if was_ready:
                log.error("%s %s; another takes its place", slot.name, slot.ended)
            elif slot.ended != last:
                log.error("%s cannot start: %s; it is tried again and again", slot.name, slot.ended)
            last = "" if was_ready else slot.ended
            if failures > 1:
                pause = min(FIRST_PAUSE * 2.0 ** min(failures, 10), LONGEST_PAUSE)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._leaving.wait(), pause)
                    return

    def _stop(self) -> None:
        if self._leaving.is_set():
            self._kill("told twice to leave")
            return
        log.info("stopping: no more connections are accepted; received requests are answered")
        self._leaving.set()
        notify("STOPPING=1")
        self._standbys.end()
        for listener in self._listeners:
            listener.close()
        for slot in self.slots:
            slot.stop()
            slot.ready.set()  # releases `_begin`, if it still waits for this slot
        patience = self.settings.drain + self.settings.timeout + GRACE  # a running request may take the whole timeout
        asyncio.get_running_loop().call_later(patience, self._kill, f"not gone after {patience:g} seconds")

    def _kill(self, why: str) -> None:
        every: list[Slot | Console] = [*self.slots, *([self._console] if self._console else [])]
        for each in every:
            if each.kill():
                log.error("%s: %s, killed", each.name, why)
                self._killed = True

    def _reload(self) -> None:
        try:
            wanted = self._load()
            tls_context(wanted)
        except Error as error:
            log.error("the settings stay as they were: %s", error)
            return
        self.settings, fixed = reloaded(self.settings, wanted)
        for slot in self.slots:
            slot.reload()
        self._telling = asyncio.get_running_loop().create_task(self._tell(fixed))

    async def _tell(self, fixed: list[str]) -> None:
        await self.silent()  # a worker that answers a ping has handled the reload, which was sent before it
        log.info("settings and certificates were read again")
        if fixed:
            log.warning("a restart is needed to change %s", ", ".join(fixed))


class Console:
    """The process of the console, started again when it ends; the link stays the same."""

    name = "the console"

    def __init__(self, settings: Settings) -> None:
        assert settings.console is not None
        self._address = settings.console
        token = settings.console_secret or secrets.token_urlsafe(32)
        self._environ = {**os.environ, "ROOST_STORE": settings.url, "ROOST_CONSOLE_TOKEN": token}
        self._process: asyncio.subprocess.Process | None = None
        self.link = ""

    async def start(self) -> None:
        """Start the process, and wait until it serves; `CannotOpen` if it ends before."""
        # Its standard input ends with this process, however that ends. A session of its own: Ctrl-C is not for it.
        place = ["--address", str(self._address)]
        command = ["-m", "roost.cli", "console", *place, "--no-browser", "--attended", "--json"]
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, *command),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=self._environ,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        told = await self._process.stdout.readline()
        if not told:
            raise CannotOpen(f"the console cannot start at {self._address}")
        self.link = json.loads(told)["console"]
        port = Address.parse(self.link.partition("//")[2].partition("/")[0]).port
        self._address = replace(self._address, port=port)  # the next process listens where this one does

    async def keep(self, leaving: asyncio.Event) -> None:
        """Start another process when one has ended, until the server stops."""
        left = asyncio.create_task(leaving.wait())
        while True:
            assert self._process is not None
            ended = asyncio.create_task(self._process.wait())
            await asyncio.wait({ended, left}, return_when=asyncio.FIRST_COMPLETED)
            if left.done():
                ended.cancel()
                return
            log.error("the console ended with %s; another takes its place", ended.result())
            await asyncio.wait({left}, timeout=PAUSE)
            try:
                await self.start()
            except CannotOpen as error:
                log.error("%s; it is tried again and again", error)

    def kill(self) -> bool:
        if self._process is None or self._process.returncode is not None:
            return False
        self._process.kill()
        return True

    async def close(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            await self._process.wait()
