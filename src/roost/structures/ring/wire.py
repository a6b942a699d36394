"""A ring over HandlerSocket: finding answers the newest rows first, inserting pushes and answers the sequence."""

from __future__ import annotations

from typing import Any

from roost.structures.wire import EntriesWire


class RingWire(EntriesWire):
    """Nothing can be removed from a ring but a whole key, which no request means."""

    verbs = frozenset()

    def inserted(self, result: Any) -> int | None:
        """Return the row's sequence."""
        number: int = result
        return number
