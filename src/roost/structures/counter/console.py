"""A counter on the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from roost.structures.console import Console, Table
from roost.structures.counter.declaration import Counter
from roost.structures.operation import Operation
from roost.types.column_types import ColumnType
from roost.types.columns import Column


class CounterConsole(Console[Counter[Any]]):
    """Keys with their totals; an imported record adds n, or 1 where it has none.

    With windows also those of one key in which something was counted, newest first.
    """

    takes: ClassVar[Mapping[str, Any]] = {"key": (), "slots": None, "window": None, "keep": None}
    changes: ClassVar[Sequence[str]] = ("keep", "slots")

    def summaries(self, keys: Sequence[Any]) -> Sequence[Operation[Any]]:
        return [self.structure.totals(keys)]

    def summary(self, keys: Sequence[Any], results: Sequence[Any]) -> Table:
        totals = [results[0][key] for key in keys]
        return Table(("total",), [(total,) for total in totals], [{"total": total} for total in totals])

    def contents(self, key: Any, n: int | None) -> Operation[Any]:
        return self.structure.series(key) if self.structure.window else self.structure.total(key)

    def content(self, found: Any, n: int | None) -> Table:
        if not self.structure.window:
            return Table(("total",), [(found,)], {"total": found})
        rows = [(start, total) for start, total in reversed(found) if total][:n]
        windows = [{"start": start, "total": total} for start, total in rows]
        return Table(("start", "total"), rows, {"total": sum(total for _, total in found), "windows": windows})

    @property
    def fields(self) -> Sequence[Column]:
        return (*self.structure.key.columns, Column("n", ColumnType("int"), nullable=True))

    def insertion(self, values: Sequence[Any]) -> Operation[Any]:
        *key, n = values
        return self.structure.add(self.structure.key.value(key), 1 if n is None else n)

    def removed(self, number: int) -> str:
        return f"a total of {number:,}"
