"""Latest: how it shows over HandlerSocket. A key has one row; inserting sets it, deleting clears it."""

from __future__ import annotations

from typing import Any

from roost.structures.operation import Operation
from roost.structures.wire import Values, Wire


class LatestWire(Wire):
    """The columns are those of the key, and the value."""

    def rows(self, key: Values, found: Any) -> list[Values]:
        """Return the row of a key that has a value."""
        return [] if found is None else [(*key, *self.structure.value.check(found))]

    def insert(self, head: Any, row: Values, given: dict[str, Any]) -> Operation[Any]:
        """Set the value."""
        return self.structure.set(head, self.structure.value.value(row[self.key :]))  # type: ignore[no-any-return]
