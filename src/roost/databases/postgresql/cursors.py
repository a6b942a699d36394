"""Cursors on connections of the application's."""

from __future__ import annotations

from typing import Any, Self

import psycopg

from roost.databases.postgresql.session import ADAPTERS, BINARY, TEXT
from roost.dialects.dialect import Row


class PlainCursor(psycopg.Cursor[Row]):
    """A cursor on a connection of the application's, which has none of its settings."""

    adapters = property(lambda self: ADAPTERS)

    def __init__(self, raw: psycopg.Connection[Any]) -> None:
        super().__init__(raw, row_factory=psycopg.rows.tuple_row)
        self.format = BINARY  # texts depend on DateStyle and extra_float_digits

    def execute(self, query: Any, params: Any = None, **options: Any) -> Self:
        """Send a statement, or as texts several, which cannot be prepared."""
        if self.format is TEXT:
            options["prepare"] = False
        return super().execute(query, params, **options)


class AsyncPlainCursor(psycopg.AsyncCursor[Row]):
    """`PlainCursor` for asyncio."""

    adapters = property(lambda self: ADAPTERS)

    def __init__(self, raw: psycopg.AsyncConnection[Any]) -> None:
        super().__init__(raw, row_factory=psycopg.rows.tuple_row)
        self.format = BINARY

    async def execute(self, query: Any, params: Any = None, **options: Any) -> Self:
        """Send a statement, or as texts several, which cannot be prepared."""
        if self.format is TEXT:
            options["prepare"] = False
        return await super().execute(query, params, **options)


def is_failed(raw: Any) -> bool:
    """Return whether the transaction of a connection has failed."""
    return bool(raw.info.transaction_status == psycopg.pq.TransactionStatus.INERROR)


def is_idle(raw: Any) -> bool:
    """Return whether a connection has no transaction open."""
    return bool(raw.info.transaction_status == psycopg.pq.TransactionStatus.IDLE)
