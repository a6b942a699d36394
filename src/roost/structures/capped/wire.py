"""A capped collection over HandlerSocket: its rows newest first, or by id; an insert adds, a delete removes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roost.structures.operation import Operation
from roost.structures.wire import AT, SEQUENCE, EntriesWire, Steps, Values
from roost.types.columns import Column


class CappedWire(EntriesWire):
    """The columns of the id follow those of the key."""

    def ids(self) -> Sequence[Column]:
        """Return the columns of the id."""
        columns: Sequence[Column] = self.structure.id.columns
        return columns

    def reading(self, head: Any, id_: Values, n: int) -> Operation[Any]:
        """Get the row of an id."""
        if id_ and SEQUENCE not in self.columns and AT not in self.columns:
            return self.structure.get(head, self.structure.id.value(id_))  # type: ignore[no-any-return]
        return super().reading(head, id_, n)

    def change(self, verb: str, head: Any, id_: Values, found: Any, to: Sequence[Any]) -> Steps:
        """Remove a row."""
        yield self.structure.remove(head, self.structure.id.value(id_))
        return True
