"""A stand-in for what a worker serves: answers every line `0 1`, without a database; and `roost serve` with it.

`slow` is answered after 0.2 s, other words with what they name. Files beside the database make it fail to start.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import cast

from roost.errors import CannotOpen
from roost.server import processes, supervisor, worker
from roost.server.counters import Counters
from roost.server.settings import Role, Settings


class StandIn:
    def __init__(self, settings: Settings, role: Role, counters: dict[str, Counters]) -> None:
        path = settings.url.removeprefix("sqlite:///")
        with open(f"{path}.started", "a") as file:
            file.write("x")
        if os.path.exists(f"{path}.broken"):
            raise CannotOpen(f"{path}: broken")
        if os.path.exists(f"{path}.mistake"):
            raise ZeroDivisionError("division by zero")
        while os.path.exists(f"{path}.hang"):
            time.sleep(0.01)
        self.role = role
        self.settings, self.counters = settings, counters["handlersocket"]
        self.transports: set[asyncio.Transport] = set()
        self.owed = 0

    def protocol(self, name: str) -> asyncio.Protocol:
        return Lines(self)

    def reload(self, settings: Settings) -> None:
        self.settings = settings

    async def drain(self, seconds: float) -> None:
        while self.owed:
            await asyncio.sleep(0.01)
        for transport in self.transports:
            transport.close()
        deadline = time.monotonic() + seconds
        while self.transports and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        for transport in self.transports:
            transport.abort()  # by TLS a client has to agree to the end

    async def close(self) -> None:
        pass

    def answer(self, line: bytes) -> bytes:
        match line:
            case b"pid":
                return b"%d" % os.getpid()
            case b"slowly":
                return line
            case b"secret":
                return self.settings.secret(self.role) or b""
            case b"setting":
                return b"%g" % self.settings.slow
            case b"sqlite":
                return second_sqlite().encode()
        return b"0\t1"


class Lines(asyncio.Protocol):
    def __init__(self, served: StandIn) -> None:
        self.served = served
        self.rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are no subclasses
        self.served.transports.add(self.transport)
        self.served.counters.connected()

    def connection_lost(self, error: Exception | None) -> None:
        self.served.transports.discard(self.transport)
        self.served.counters.disconnected()

    def data_received(self, data: bytes) -> None:
        *lines, self.rest = (self.rest + data).split(b"\n")
        self.served.counters.requests += len(lines)
        self.served.counters.turn(0.0002)
        for line in lines:
            if line == b"slow":
                self.served.owed += 1
                asyncio.get_running_loop().call_later(0.2, self.answer)
            else:
                self.transport.write(self.served.answer(line) + b"\n")

    def answer(self) -> None:
        self.served.owed -= 1
        self.transport.write(b"0\t1\n")


def second_sqlite() -> str:
    import sqlite3

    try:
        sqlite3.connect("any.db")
    except CannotOpen as error:
        return str(error)
    return "opened"


if __name__ == "__main__":
    if sys.argv[1].isdigit():
        sys.exit(worker.main(StandIn))
    from roost.cli import main

    processes.WORKER = ("-m", "tests.server.standin")
    processes.PONG = float(os.environ.get("ROOST_TEST_PONG", processes.PONG))
    supervisor.GRACE = float(os.environ.get("ROOST_TEST_GRACE", supervisor.GRACE))
    main(prog_name="roost")
