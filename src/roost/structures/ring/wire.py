"""A ring over HandlerSocket: a find returns the newest rows first; an insert pushes and returns the sequence."""

from __future__ import annotations

from typing import Any

from roost.structures.wire import EntriesWire


class RingWire(EntriesWire):
    """Only a whole key can be removed from a ring, and no request can express that."""

    verbs = frozenset()

    def inserted(self, result: Any) -> int | None:
        """Return the row's sequence."""
        number: int = result
        return number
