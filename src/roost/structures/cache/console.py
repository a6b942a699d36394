"""A cache on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roost.structures.cache.declaration import Cache
from roost.structures.console import Console
from roost.structures.operation import Operation


class CacheConsole(Console[Cache[Any, Any]]):
    """Keys, and the value of one; an imported record is a value without an end."""

    changes = ("max_items", "max_bytes")

    def contents(self, key: Any, n: int | None) -> Operation[Any]:
        """Return the operation that reads the value."""
        return self.structure.get(key)

    def insertion(self, values: Sequence[Any]) -> Operation[Any]:
        """Return the operation that stores a value."""
        *key, value = values
        return self.structure.set(self.structure.key.value(key), value)

    def removed(self, number: int) -> str:
        """Say whether there was a value."""
        return f"{number:,} value{'' if number == 1 else 's'}"
