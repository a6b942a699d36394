"""A ranked collection on the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from roost.structures.console import REQUIRED, Table
from roost.structures.operation import Operation
from roost.structures.ranked.declaration import Ranked
from roost.structures.rows import RowStructure
from roost.structures.rows_console import RowsConsole
from roost.structures.structure import Structure


class RankedConsole(RowsConsole[Ranked[Any, Any]]):
    """Keys with the number of their rows and the best one, and all rows of one key, best first."""

    takes: ClassVar[Mapping[str, Any]] = {
        "per": REQUIRED,
        "keep": REQUIRED,
        "column": (),
        "unique": REQUIRED,
        "order": REQUIRED,
        "on_duplicate": "error",
    }
    changes = ("keep", "add", "on_duplicate")

    def summaries(self, keys: Sequence[Any]) -> Sequence[Operation[Any]]:
        """Return the operations for the number of each key's rows, and for its best one."""
        return [each for key in keys for each in (self.structure.count(key), self.structure.top(key, 1))]

    def summary(self, keys: Sequence[Any], results: Sequence[Any]) -> Table:
        """Return the number of rows of each key, and the best of them."""
        names = [each.name for each in self.structure.columns if each not in self.structure.key.columns]
        rows, documents = [], []
        for n, best in zip(results[::2], results[1::2], strict=True):
            values = [getattr(best[0], name) if best else None for name in names]
            rows.append((n, *values))
            documents.append({"rows": n, "best": dict(zip(names, values, strict=True)) if best else None})
        return Table(("rows", *names), rows, documents)

    def contents(self, key: Any, n: int | None) -> Operation[Any]:
        """Return the operation that reads the rows, best first."""
        return self.structure.top(key, n)

    def content(self, found: Any, n: int | None) -> Table:
        """Return the rows with their places."""
        names = [each.name for each in self.structure.columns if each not in self.structure.key.columns]
        rows = [(place, *[getattr(row, name) for name in names]) for place, row in enumerate(found[:n], 1)]
        headers = ("rank", *names)
        return Table(headers, rows, {"rows": [dict(zip(headers, row, strict=True)) for row in rows]})

    def insertion(self, values: Sequence[Any]) -> Operation[Any]:
        """Return the operation that adds the row."""
        return self.structure.add(self.structure.rows.make(values))

    def deletes(self, new: Structure) -> str:
        """Say that the rows beyond a smaller `keep` are deleted."""
        if not isinstance(new, RowStructure) or new.keep >= self.structure.keep:
            return ""
        return f"rows beyond the best {new.keep} of each key are deleted"
