"""Cursors on connections of the application's."""

from __future__ import annotations

from typing import Any

import psycopg

from roost.databases.postgresql.session import ADAPTERS, BINARY
from roost.dialects.dialect import Row


class PlainCursor(psycopg.Cursor[Row]):
    """A cursor on a connection of the application's, which has none of its settings."""

    adapters = property(lambda self: ADAPTERS)

    def __init__(self, raw: psycopg.Connection[Any]) -> None:
        super().__init__(raw, row_factory=psycopg.rows.tuple_row)
        self.format = BINARY  # texts depend on DateStyle and extra_float_digits


class AsyncPlainCursor(psycopg.AsyncCursor[Row]):
    """`PlainCursor` for asyncio."""

    adapters = property(lambda self: ADAPTERS)

    def __init__(self, raw: psycopg.AsyncConnection[Any]) -> None:
        super().__init__(raw, row_factory=psycopg.rows.tuple_row)
        self.format = BINARY


def is_failed(raw: Any) -> bool:
    """Return whether the transaction of a connection has failed."""
    return bool(raw.info.transaction_status == psycopg.pq.TransactionStatus.INERROR)


def is_idle(raw: Any) -> bool:
    """Return whether a connection has no transaction open."""
    return bool(raw.info.transaction_status == psycopg.pq.TransactionStatus.IDLE)
