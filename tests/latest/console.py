"""Latest on the command line: what `show` reads, and what `import` makes of a record. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roost.structures.console import Console
from roost.structures.operation import Operation
from tests.latest.declaration import Latest


class LatestConsole(Console[Latest[Any, Any]]):
    """A key has one row; an imported record sets its value."""

    def contents(self, key: Any, n: int | None) -> Operation[Any]:
        """Return the operation that reads what a key holds."""
        return self.structure.get(key)

    def insertion(self, values: Sequence[Any]) -> Operation[Any]:
        """Return the operation that stores a record, whose values are in the order of `fields`."""
        *key, value = values
        return self.structure.set(self.structure.key.value(key), value)
