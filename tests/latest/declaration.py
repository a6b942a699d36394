"""Latest: what users call. It checks values and makes operations; no SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from roost.errors import Invalid
from roost.structures.operation import Operation
from roost.structures.structure import Group, Structure, column_facts, key_from
from roost.types.column_types import ColumnType
from roost.types.columns import Column

K = TypeVar("K")
V = TypeVar("V")


class Latest(Structure, Generic[K, V]):
    """The latest value of each key; a key that was never set has none."""

    kind = "latest"

    def __init__(self, name: str, *, key: type[K] | ColumnType[K], value: type[V] | ColumnType[V]) -> None:
        super().__init__(name, Group.declared(name, "key", key))
        self.value: Group[V] = Group.declared(name, "value", value)
        if len(self.value.columns) != 1 or self.value.names[0] in self.key.names:
            raise Invalid(f"{name}: a value is one column, and not one of the key's")
        self._define(
            {"name": name, "key": key, "value": value},
            key=column_facts(self.key.columns),
            value=column_facts(self.value.columns),
        )

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the key and of the value."""
        return self.key.columns + self.value.columns

    def set(self, key: K, value: V) -> Operation[None]:
        """Set the value, whatever it was."""
        return Operation(self, "set", (self.key.check(key), self.value.check(value)))

    def get(self, key: K) -> Operation[V | None]:
        """Ask for the value; None where there is none."""
        return Operation(self, "get", (self.key.check(key),))

    def column_at(self, operation: Operation[Any], path: Sequence[int]) -> str:
        """Return the name of the column whose value stands at a place in an operation's arguments."""
        return (self.value if path[0] else self.key).names[path[-1]]

    def _arguments(self, verb: str, args: tuple[Any, ...]) -> list[str]:
        if verb == "set":
            return [repr(self.key.value(args[0])), repr(self.value.value(args[1]))]
        return super()._arguments(verb, args)

    @classmethod
    def from_facts(cls, name: str, facts: dict[str, Any]) -> Latest[Any, Any]:
        """Make the declaration from the facts of a definition."""
        return cls(name, key=key_from(name, "key", facts["key"]), value=key_from(name, "value", facts["value"]))
