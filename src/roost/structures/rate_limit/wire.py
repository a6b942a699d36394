"""A rate limit over HandlerSocket: how many requests a key has left; a delete restores the whole limit."""

from __future__ import annotations

from typing import Any

from roost.errors import StatementFailed, worded
from roost.structures.operation import Operation
from roost.structures.wire import Values, Wire
from roost.types.column_types import ColumnType
from roost.types.columns import Column


class RateLimitWire(Wire):
    """Every key has a row: how many remain, and the seconds until one more does."""

    more = (Column("remaining", ColumnType("int")), Column("retry_after", ColumnType("float")))

    def reading(self, head: Any, id_: Values, n: int) -> Operation[Any]:
        """Ask for what remains."""
        return self.structure.peek(head)  # type: ignore[no-any-return]

    def rows(self, key: Values, found: Any) -> list[Values]:
        """Return the key with what remains."""
        return [(*key, found.remaining, found.retry_after)]

    def insert(self, head: Any, row: Values, given: dict[str, Any]) -> Operation[Any]:
        """Refuse: a client needs to know whether its request was allowed, and an insert cannot report that."""
        raise worded(StatementFailed(f"{self.structure.name} takes no insert"), "notimpl", 2)
