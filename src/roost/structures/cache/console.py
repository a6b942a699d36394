"""A cache on the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from roost.structures.cache.declaration import Cache
from roost.structures.console import Console
from roost.structures.operation import Operation
from roost.structures.structure import Structure


class CacheConsole(Console[Cache[Any, Any]]):
    """Keys, and the value of one; an imported record is a value without an end."""

    takes: ClassVar[Mapping[str, Any]] = {
        "key": (),
        "value": [("value", "binary")],
        "max_items": None,
        "max_bytes": None,
    }
    changes = ("max_items", "max_bytes")

    def contents(self, key: Any, n: int | None) -> Operation[Any]:
        """Return the operation that reads the value."""
        return self.structure.get(key)

    def insertion(self, values: Sequence[Any]) -> Operation[Any]:
        """Return the operation that stores a value."""
        *key, value = values
        return self.structure.set(self.structure.key.value(key), value)

    def deletes(self, new: Structure) -> str:
        """Say that a smaller bound lets values go."""
        for bound in self.changes:
            before, after = getattr(self.structure, bound), getattr(new, bound)
            if after is not None and (before is None or after < before):
                return f"{bound} becomes {after:,}: what was used longest ago is deleted"
        return ""

    def removed(self, number: int) -> str:
        """Say whether there was a value."""
        return f"{number:,} value{'' if number == 1 else 's'}"
