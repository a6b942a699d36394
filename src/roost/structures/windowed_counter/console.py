"""A windowed counter on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from roost.structures.console import REQUIRED, Table
from roost.structures.counter.console import CounterConsole
from roost.structures.operation import Operation


class WindowedCounterConsole(CounterConsole):
    """Keys with the totals of what is kept, and the windows of one key in which something was counted, newest first."""

    takes: ClassVar[Mapping[str, Any]] = {"key": (), "window": REQUIRED, "keep": REQUIRED, "slots": None}
    changes = ("keep", "slots")

    def contents(self, key: Any, n: int | None) -> Operation[Any]:
        """Return the operation that reads the windows."""
        structure: Any = self.structure
        operation: Operation[Any] = structure.series(key)
        return operation

    def content(self, found: Any, n: int | None) -> Table:
        """Return the windows in which something was counted."""
        rows = [(start, total) for start, total in reversed(found) if total][:n]
        document = {"total": sum(total for _, total in found)}
        windows = [{"start": start, "total": total} for start, total in rows]
        return Table(("start", "total"), rows, {**document, "windows": windows})
