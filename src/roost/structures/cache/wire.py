"""A cache over HandlerSocket: the value of a key; an insert sets it, without expiry, and a delete removes it."""

from __future__ import annotations

from typing import Any

from roost.structures.operation import Operation
from roost.structures.wire import Values, Wire


class CacheWire(Wire):
    """The columns are those of the key, and the value."""

    def reading(self, head: Any, id_: Values, n: int) -> Operation[Any]:
        """Ask for the value."""
        return self.structure.get(head)  # type: ignore[no-any-return]

    def rows(self, key: Values, found: Any) -> list[Values]:
        """Return the row of a key that has a value."""
        return [] if found is None else [(*key, found)]

    def insert(self, head: Any, row: Values, given: dict[str, Any]) -> Operation[Any]:
        """Set the value."""
        return self.structure.set(head, row[self.key])  # type: ignore[no-any-return]
