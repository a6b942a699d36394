"""A capped collection on the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from roost.structures.capped.declaration import Capped
from roost.structures.console import REQUIRED
from roost.structures.operation import Operation
from roost.structures.rows_console import RowsConsole


class CappedConsole(RowsConsole[Capped[Any, Any]]):
    """An imported record is added."""

    takes: ClassVar[Mapping[str, Any]] = {
        "per": REQUIRED,
        "keep": REQUIRED,
        "column": (),
        "unique": REQUIRED,
        "on_full": "evict",
        "on_duplicate": "error",
    }
    changes: ClassVar[Sequence[str]] = ("keep", "add", "on_full", "on_duplicate")

    def insertion(self, values: Sequence[Any]) -> Operation[Any]:
        """Return the operation that adds the row."""
        return self.structure.add(self.structure.rows.make(values))
