"""A set over HandlerSocket and on the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from roost.structures.console import Console, Table
from roost.structures.operation import Operation
from roost.structures.rules import leaves_earlier
from roost.structures.set.declaration import Set
from roost.structures.structure import Structure
from roost.structures.wire import Values, Wire


class SetWire(Wire):
    """A set over HandlerSocket: its members, or one of them; an insert adds, a delete removes.

    The columns of the member follow those of the key.
    """

    of_key, of_id = "members", "contains"

    def rows(self, key: Values, found: Any) -> list[Values]:
        if isinstance(found, bool):
            return [key] if found else []
        return sorted([(*key, *self.structure.member.check(member)) for member in found], key=repr)

    def insert(self, head: Any, row: Values, given: dict[str, Any]) -> Operation[Any]:
        return self.structure.add(head, self.structure.member.value(row[self.key :]))  # type: ignore[no-any-return]


class SetConsole(Console[Set[Any, Any]]):
    """Keys with their sizes, and the members of one; an imported record is a member that is added now."""

    takes: ClassVar[Mapping[str, Any]] = {"key": (), "member": (), "keep": None, "keep_for": None}
    changes: ClassVar[Sequence[str]] = ("keep", "keep_for")
    reads = "size"
    headers = ("size",)

    def contents(self, key: Any, n: int | None) -> Operation[Any]:
        return self.structure.members(key)

    def content(self, found: Any, n: int | None) -> Table:
        group = self.structure.member
        members = sorted(found, key=_ordered)[:n]
        return Table(group.names, [group.check(member) for member in members], {"members": members})

    def insertion(self, values: Sequence[Any]) -> Operation[Any]:
        key, member = self.structure.key, self.structure.member
        width = len(key.columns)
        return self.structure.add(key.value(values[:width]), member.value(values[width:]))

    def deletes(self, new: Structure) -> str:
        old, said = self.structure, []
        if isinstance(new, Set) and old.keep and new.keep and new.keep < old.keep:
            said.append(f"members beyond the newest {new.keep} of each key are deleted")
        return " and ".join(filter(None, [*said, leaves_earlier("members", old, new)]))


def _ordered(member: Any) -> Any:
    # Members of one set are of one type; of the types, only an Enum's values have no order of their own.
    return [getattr(part, "value", part) for part in (member if isinstance(member, tuple) else (member,))]
