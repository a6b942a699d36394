"""asyncmy: MariaDB from asyncio."""

from __future__ import annotations

from typing import Any

from asyncmy.converters import conversions
from asyncmy.cursors import Cursor
from asyncmy.errors import MySQLError

from roost.databases.callers.caller import AsyncGuestExecutor, AsyncPlay, Work, aplay
from roost.databases.callers.mariadb import MariaDBGuest, plain
from roost.databases.engine import Engine


class _AsyncmyGuest(MariaDBGuest):
    failures = MySQLError

    def is_lost(self) -> bool:
        return not self.raw.connected


def asyncmy_guest(raw: Any, engine: Engine) -> AsyncPlay:
    """Return what runs calls on a connection of asyncmy, which is lost when a call is cancelled while it waits."""

    async def on(work: Work, writes: bool) -> None:
        with plain(raw, "_", conversions):
            guest = _AsyncmyGuest(raw, engine.place, writes, engine.dialect)
            await aplay(work, AsyncGuestExecutor(guest, Cursor(raw), engine.trace))

    return on
