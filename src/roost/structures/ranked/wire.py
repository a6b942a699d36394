"""A ranked collection over HandlerSocket: its rows best first, or by id; an insert adds, a delete removes."""

from __future__ import annotations

from typing import Any

from roost.structures.capped.wire import CappedWire
from roost.structures.operation import Operation
from roost.structures.rows import Entry
from roost.structures.wire import AT, SEQUENCE, Values


class RankedWire(CappedWire):
    """As a capped collection, in another order."""

    def reading(self, head: Any, id_: Values, n: int) -> Operation[Any]:
        """Read the best rows if no id is given; if their sequence or time is requested, read all rows and sort them."""
        if id_ or SEQUENCE in self.columns or AT in self.columns:
            return super().reading(head, id_, n)
        return self.structure.top(head, n)  # type: ignore[no-any-return]

    def rows(self, key: Values, found: Any) -> list[Values]:
        """Return the rows, best first."""
        if isinstance(found, list) and found and isinstance(found[0], Entry):
            order = self.structure.order
            found = sorted(found, key=lambda entry: (getattr(entry.row, order), -entry.sequence))
        return super().rows(key, found)
