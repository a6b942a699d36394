"""asyncpg: PostgreSQL from asyncio. It has no cursors, is always in autocommit, and its only placeholders are $1, …"""

from __future__ import annotations

import datetime as dt
from typing import Any
from uuid import UUID

import asyncpg  # type: ignore[import-untyped]

from roost.databases.callers import NO_TRANSACTION, Caller, Work
from roost.databases.callers.postgresql import PostgreSQLCaller
from roost.databases.engine import Engine
from roost.databases.postgresql.connection import spelt_out
from roost.databases.postgresql.errors import as_psycopg
from roost.databases.postgresql.session import is_utf8
from roost.dialects.dialect import Row
from roost.errors import Conflict, ConnectionLost, Error, Invalid

# The types of the parameters and results of Roost's statements, by OID.
_TYPES = {
    16: "bool", 17: "bytea", 19: "name", 20: "bigint", 21: "smallint", 23: "integer", 25: "text", 701: "float8",
    1043: "varchar", 1082: "date", 1184: "timestamptz", 1700: "numeric", 2950: "uuid",
}  # fmt: skip


# Besides asyncpg's own errors: those raised by `command_timeout` and by sockets. InternalClientError is its protocol's,
# for one after the server has said that it ends the session.
_FAILURES = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, TimeoutError, OSError)


class _AsyncpgCaller(PostgreSQLCaller):
    """One call; asyncpg returns no rows for a text of several statements, so nothing is one text."""

    apart = awaits = True
    at_once = Caller.at_once

    def joins(self) -> bool:
        """Return whether a savepoint can be set; asyncpg begins no transaction by itself."""
        settings = self.raw.get_settings()
        if not is_utf8(settings.client_encoding):
            raise Invalid(
                f"store.on: the connection's client_encoding is {settings.client_encoding}, which cannot carry every "
                "text; it has to be UTF8"
            )
        for number, name in _TYPES.items():
            if settings.get_data_codec(number) is not settings.get_data_codec(number, ignore_custom_codec=True):
                raise Invalid(
                    f"store.on: the connection has a type codec of its own for {name} (set_type_codec), by which "
                    "values would come back as something else; reset_type_codec, or use another connection"
                )
        if not self.raw.is_in_transaction():
            if self.writes:
                raise Invalid(NO_TRANSACTION)
            return False
        return True

    def close(self) -> None:
        self.raw.terminate()

    def is_lost(self) -> bool:
        return bool(self.raw.is_closed())

    def failed(self, error: Any, sql: str) -> Error:
        """Return our error; the transaction accepts no statement until it is rolled back to the savepoint."""
        if isinstance(error.__cause__, asyncpg.InvalidCachedStatementError):  # asyncpg has dropped the statement by now
            return Conflict(f"{self.place}: {error}")
        if self.is_lost():
            return ConnectionLost(f"{self.place}: {error}")
        return super().failed(error, sql)

    def sent(self, sql: str, row: Row) -> tuple[str, Row | None]:
        """Return a statement with asyncpg's placeholders.

        asyncpg takes the first and the last moment and day of Python for infinity, so these stand in the text.
        """
        if not row:
            return sql, None
        holes: list[str] = []
        sent: list[Any] = []
        for value in row:
            if _is_infinite(value):
                holes.append(spelt_out(value))
            else:
                sent.append(value)
                holes.append(f"${len(sent)}")
        return sql % tuple(holes), tuple(sent) or None

    async def answer(self, sql: str, row: Row, returns: bool | None, several: bool) -> Any:
        """Send a text directly on the connection; raise the driver's error as psycopg's."""
        sql, values = self.sent(sql, row)
        try:
            if returns:
                found = await self.raw.fetch(sql, *(values or ()), record_class=asyncpg.Record)
                return [tuple([_read(each) for each in row]) for row in found]
            status = await self.raw.execute(sql, *(values or ()))
        except _FAILURES as error:
            raise as_psycopg(error) from error
        count = status.rpartition(" ")[2]  # of "UPDATE 3"
        return int(count) if count.isdecimal() else -1


def _is_infinite(value: Any) -> bool:
    if isinstance(value, list):
        return any([_is_infinite(each) for each in value])
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None) in (dt.datetime.min, dt.datetime.max)
    return isinstance(value, dt.date) and value in (dt.date.min, dt.date.max)


def _read(value: Any) -> Any:
    if isinstance(value, UUID):
        return UUID(int=value.int)  # asyncpg's is a class of its own
    if isinstance(value, dt.datetime) and value.tzinfo is None and _is_infinite(value):
        raise as_psycopg(asyncpg.DataError("Python has no moment infinity: the years are 1 to 9999"))
    return value


async def asyncpg_call(raw: Any, engine: Engine, _: bool, work: Work, writes: bool) -> None:
    await _AsyncpgCaller(raw, engine.place, writes, None, engine.trace).play(work)
