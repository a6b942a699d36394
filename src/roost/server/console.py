"""The console of `roost serve`: a process of its own, since the supervisor never opens the database."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import sys

from roost.errors import CannotOpen
from roost.server.settings import Settings

log = logging.getLogger(__name__)

PAUSE = 1.0  # seconds before a console that has ended is started again


class Console:
    """Starts the console's process, and starts it again when it ends; the link stays the same."""

    def __init__(self, settings: Settings) -> None:
        self._address = str(settings.console)
        token = settings.console_secret or secrets.token_urlsafe(32)
        self._environ = {**os.environ, "ROOST_STORE": settings.url, "ROOST_CONSOLE_TOKEN": token}
        self._process: asyncio.subprocess.Process | None = None
        self.link = ""

    async def start(self) -> None:
        """Start the process, and wait until it serves; `CannotOpen` if it ends before."""
        # Its standard input ends with this process, however that ends. A session of its own: Ctrl-C is not for it.
        command = ["-m", "roost.cli", "console", "--address", self._address, "--no-browser", "--attended", "--json"]
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
        self._address = self.link.partition("//")[2].partition("/")[0]

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

    async def close(self) -> None:
        """End the process."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            await self._process.wait()
