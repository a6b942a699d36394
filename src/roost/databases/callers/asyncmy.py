"""asyncmy: MariaDB from asyncio."""

from __future__ import annotations

from typing import Any, cast

from asyncmy.converters import conversions
from asyncmy.cursors import Cursor
from asyncmy.errors import MySQLError

from roost.databases.callers.caller import AsyncCallerExecutor, AsyncPlay, Work, aplay
from roost.databases.callers.mariadb import MariaDBCaller, plain
from roost.databases.engine import Engine
from roost.databases.mariadb.engine import MariaDBEngine


class _AsyncmyCaller(MariaDBCaller):
    failures = MySQLError

    def is_lost(self) -> bool:
        return not self.raw.connected


def asyncmy_caller(raw: Any, engine: Engine) -> AsyncPlay:
    """Return the caller for an asyncmy connection, which is lost if a call is cancelled while it waits."""
    cast(MariaDBEngine, engine).met(raw.get_server_info())

    async def on(work: Work, writes: bool) -> None:
        with plain(raw, "_", conversions):
            caller = _AsyncmyCaller(raw, engine.place, writes, engine.dialect)
            await aplay(work, AsyncCallerExecutor(caller, Cursor(raw), engine.trace))

    return on
