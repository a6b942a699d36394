"""A counter over HandlerSocket: the total of a key, changed by `+` and `-`; an insert adds, a delete sets it to 0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roost.errors import StatementFailed, worded
from roost.structures.index.values import number
from roost.structures.operation import Operation
from roost.structures.wire import Steps, Values, Wire
from roost.types.column_types import ColumnType
from roost.types.columns import Column

TOTAL = Column("total", ColumnType("int"))


class CounterWire(Wire):
    """Every key has a row; its total is 0 where it was never counted."""

    more = (TOTAL,)
    written = frozenset(["total"])
    verbs = frozenset(["increment", "decrement", "delete"])

    def reading(self, head: Any, id_: Values, n: int) -> Operation[Any]:
        return self.structure.total(head)  # type: ignore[no-any-return]

    def rows(self, key: Values, found: Any) -> list[Values]:
        return [(*key, found)]

    def insert(self, head: Any, row: Values, given: dict[str, Any]) -> Operation[Any]:
        n = given.get("total")
        return self.structure.add(head, 1 if n is None else n)  # type: ignore[no-any-return]

    def change(self, verb: str, head: Any, id_: Values, found: Any, to: Sequence[Any]) -> Steps:
        if verb == "delete":
            yield self.structure.clear(head)
            return True
        addend = self._addend(to)
        new = found + addend if verb == "increment" else found - addend
        # A total that `-` would take across 0 is not changed.
        if verb == "decrement" and ((found > 0 and new < 0) or (found < 0 and new > 0)):
            return False
        yield self.structure.add(head, addend if verb == "increment" else -addend)
        return True

    def _addend(self, to: Sequence[str | None]) -> int:
        total = 0
        for column, token in zip(self.columns, to, strict=False):
            if token is None:
                continue
            addend = number(token)
            if column is not TOTAL or type(addend) is not int:
                raise worded(StatementFailed(f"{self.structure.name}: {token!r} cannot be added"), "type")
            total += addend
        return total
