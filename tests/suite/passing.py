"""Time passes for a structure, on every database: how far it is ahead of the clock is a column of its row."""

from __future__ import annotations

from typing import Any

from roost.structures.clock import SECOND
from tests.suite.clients import Client


def passes(sql: Client, structure: Any, seconds: float) -> None:
    """Let the time of a structure be so much later; with a negative number, let the clock jump back."""
    table = f"roost_{structure.name}_clock"
    if not sql.execute(f"SELECT 1 FROM {table}").fetchone():
        sql.execute(f"INSERT INTO {table} (id, latest, ahead) VALUES (0, 0, 0)")
    sql.execute(f"UPDATE {table} SET ahead = ahead + {round(seconds * SECOND)}")
