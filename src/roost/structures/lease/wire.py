"""A lease over HandlerSocket: the holder of a key and its expiry time; a delete ends the lease."""

from __future__ import annotations

from typing import Any

from roost.errors import StatementFailed, worded
from roost.structures.operation import Operation
from roost.structures.wire import Values, Wire
from roost.types.column_types import ColumnType
from roost.types.columns import Column


class LeaseWire(Wire):
    """A key that somebody holds has a row."""

    more = (Column("token", ColumnType("int")), Column("expires", ColumnType("datetime")))

    def reading(self, head: Any, id_: Values, n: int) -> Operation[Any]:
        """Ask for the grant."""
        return self.structure.peek(head)  # type: ignore[no-any-return]

    def rows(self, key: Values, found: Any) -> list[Values]:
        """Return the key with its grant."""
        return [] if found is None else [(*key, found.holder, found.token, found.expires)]

    def insert(self, head: Any, row: Values, given: dict[str, Any]) -> Operation[Any]:
        """Refuse: a client needs to know whether it has acquired the lease, and an insert cannot report that."""
        raise worded(StatementFailed(f"{self.structure.name} takes no insert"), "notimpl", 2)
