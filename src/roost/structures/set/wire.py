"""A set over HandlerSocket: its members, or one of them; an insert adds, a delete removes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roost.structures.operation import Operation
from roost.structures.wire import Steps, Values, Wire
from roost.types.columns import Column


class SetWire(Wire):
    """The columns of the member follow those of the key."""

    def ids(self) -> Sequence[Column]:
        """Return the columns of the member."""
        columns: Sequence[Column] = self.structure.member.columns
        return columns

    def reading(self, head: Any, id_: Values, n: int) -> Operation[Any]:
        """Ask for the members, or whether one is there."""
        if id_:
            return self.structure.contains(head, self.structure.member.value(id_))  # type: ignore[no-any-return]
        return self.structure.members(head)  # type: ignore[no-any-return]

    def rows(self, key: Values, found: Any) -> list[Values]:
        """Return a row for each member, always in the same order."""
        if isinstance(found, bool):
            return [key] if found else []
        return sorted([(*key, *self.structure.member.check(member)) for member in found], key=repr)

    def insert(self, head: Any, row: Values, given: dict[str, Any]) -> Operation[Any]:
        """Add a member."""
        return self.structure.add(head, self.structure.member.value(row[self.key :]))  # type: ignore[no-any-return]

    def change(self, verb: str, head: Any, id_: Values, found: Any, to: Sequence[Any]) -> Steps:
        """Remove a member."""
        yield self.structure.remove(head, self.structure.member.value(id_))
        return True
