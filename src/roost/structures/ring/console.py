"""A ring on the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from roost.structures.console import REQUIRED
from roost.structures.operation import Operation
from roost.structures.ring.declaration import Ring
from roost.structures.rows_console import RowsConsole


class RingConsole(RowsConsole[Ring[Any, Any]]):
    """An imported record is pushed."""

    takes: ClassVar[Mapping[str, Any]] = {"per": REQUIRED, "keep": REQUIRED, "column": ()}
    changes: ClassVar[Sequence[str]] = ("keep", "add")

    def insertion(self, values: Sequence[Any]) -> Operation[Any]:
        """Return the operation that pushes the row."""
        return self.structure.push(self.structure.rows.make(values))
