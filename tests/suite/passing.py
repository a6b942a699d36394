"""Time passes for a structure, on every database: how far it is ahead of the clock is a column of its row."""

from __future__ import annotations

import datetime as dt
from typing import Any

from roost.structures.clock import SECOND
from tests.suite.clients import Client
from tests.suite.shapes import by_hand


def passes(sql: Client, structure: Any, seconds: float) -> None:
    """Let the time of a structure be so much later; with a negative number, let a server's clock jump back."""
    table = f"roost_{structure.name}_clock"
    if not sql.execute(f"SELECT 1 FROM {table}").fetchone():
        sql.execute(f"INSERT INTO {table} (id, latest, ahead) VALUES (0, 0, 0)")
    sql.execute(f"UPDATE {table} SET ahead = ahead + {round(seconds * SECOND)}")


def windows_pass(store: Any, counter: Any, windows: int = 1) -> None:
    """Let windows of a counter go by, each of 366 days: what was counted is so much older."""
    size, table = 366 * 86_400 * SECOND, f"roost_{counter.name}_rows"
    far = size * 1000  # so that no row gets the start of another one
    by_hand(
        store,
        f"UPDATE {table} SET start = start + {far}",
        f"UPDATE {table} SET start = start - {far + windows * size}",
    )


class Time:
    """A structure's time, as it is described: it never goes back, and is stored where it differs by a second."""

    def __init__(self) -> None:
        self._latest = self._ahead = 0

    def at(self, clock: int) -> int:
        """Return the time of a write at a moment by the clock."""
        late = self._latest - (clock + self._ahead)
        if abs(late) >= SECOND:
            self._ahead += max(late, 0)
            self._latest = clock + self._ahead
        return max(clock + self._ahead, self._latest)


class Hand:
    """A store's clock that is set by hand."""

    def __init__(self) -> None:
        self.time = dt.datetime(2026, 5, 1, 12, tzinfo=dt.UTC)

    def __call__(self) -> dt.datetime:
        return self.time

    def moves(self, seconds: float) -> None:
        """Set it forward, or back."""
        self.time += dt.timedelta(seconds=seconds)


class Jumping:
    """The clock of a database, which goes where a test wants: on SQLite it is the store's, made with `options`."""

    def __init__(self, sql: Client, url: str) -> None:
        self._sql = sql
        self._hand = Hand() if url.startswith("sqlite") else None
        self.options: dict[str, Any] = {} if self._hand is None else {"clock": self._hand}

    def jumps(self, structure: Any, seconds: float) -> None:
        """Set the clock forward, or back."""
        if self._hand is None:
            passes(self._sql, structure, seconds)
        else:
            self._hand.moves(seconds)
