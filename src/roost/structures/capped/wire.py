"""A capped collection over HandlerSocket."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roost.structures.operation import Operation
from roost.structures.plan import AT, SEQUENCE
from roost.structures.rows import Entry
from roost.structures.rows_plan import EntriesWire
from roost.structures.wire import Steps, Values
from roost.types.columns import Column


class CappedWire(EntriesWire):
    """A find returns the newest rows first, or the best, or the row of an id; an insert adds, a delete removes."""

    def ids(self) -> Sequence[Column]:
        columns: Sequence[Column] = self.structure.id.columns
        return columns

    def reading(self, head: Any, id_: Values, n: int) -> Operation[Any]:
        if SEQUENCE not in self.columns and AT not in self.columns:
            if id_:
                return self.structure.get(head, self.structure.id.value(id_))  # type: ignore[no-any-return]
            if self.structure.score is not None:
                return self.structure.top(head, n)  # type: ignore[no-any-return]
        return super().reading(head, id_, n)

    def rows(self, key: Values, found: Any) -> list[Values]:
        score = self.structure.score
        if score is not None and isinstance(found, list) and found and isinstance(found[0], Entry):
            found = sorted(found, key=lambda entry: (getattr(entry.row, score.name), -entry.sequence))
        return super().rows(key, found)

    def change(self, verb: str, head: Any, id_: Values, found: Any, to: Sequence[Any]) -> Steps:
        yield self.structure.remove(head, self.structure.id.value(id_))
        return True
