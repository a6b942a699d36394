"""A set on the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from roost.structures.console import Console, Table
from roost.structures.operation import Operation
from roost.structures.set.declaration import Set


class SetConsole(Console[Set[Any, Any]]):
    """Keys with their sizes, and the members of one; an imported record is a member."""

    takes: ClassVar[Mapping[str, Any]] = {"key": (), "member": ()}

    def summaries(self, keys: Sequence[Any]) -> Sequence[Operation[Any]]:
        """Return an operation for each key's size."""
        return [self.structure.size(key) for key in keys]

    def summary(self, keys: Sequence[Any], results: Sequence[Any]) -> Table:
        """Return the size of each key."""
        return Table(("size",), [(size,) for size in results], [{"size": size} for size in results])

    def contents(self, key: Any, n: int | None) -> Operation[Any]:
        """Return the operation that reads the members."""
        return self.structure.members(key)

    def content(self, found: Any, n: int | None) -> Table:
        """Return the members in their order."""
        group = self.structure.member
        members = sorted(found, key=_ordered)[:n]
        return Table(group.names, [group.check(member) for member in members], {"members": members})

    def insertion(self, values: Sequence[Any]) -> Operation[Any]:
        """Return the operation that adds the member."""
        key, member = self.structure.key, self.structure.member
        width = len(key.columns)
        return self.structure.add(key.value(values[:width]), member.value(values[width:]))


def _ordered(member: Any) -> Any:
    # Members of one set are of one type; of the types, only an Enum's values have no order of their own.
    return [getattr(part, "value", part) for part in (member if isinstance(member, tuple) else (member,))]
