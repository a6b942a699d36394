"""A capped collection over HandlerSocket and on the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from roost.structures.capped.declaration import Capped
from roost.structures.console import REQUIRED, Table
from roost.structures.operation import Operation
from roost.structures.rows import EntriesWire, Entry, RowsConsole
from roost.structures.rules import leaves_earlier
from roost.structures.structure import Structure
from roost.structures.wire import Values
from roost.types.column_types import INT_MAX


class CappedWire(EntriesWire):
    """A find returns the newest rows first, or the best, or the row of an id; an insert adds, a delete removes."""

    of_id = "get"

    def __init__(self, structure: Any, *asked: Any) -> None:
        super().__init__(structure, *asked)
        if structure.score is not None:
            self.of_key = "top"

    def rows(self, key: Values, found: Any) -> list[Values]:
        score = self.structure.score
        if score is not None and isinstance(found, list) and found and isinstance(found[0], Entry):
            found = sorted(found, key=lambda entry: (getattr(entry.row, score.name), -entry.sequence))
        return super().rows(key, found)


class CappedConsole(RowsConsole[Capped[Any, Any, Any]]):
    """An imported record is added. With an order, keys are shown with their best row, and rows best first."""

    takes: ClassVar[Mapping[str, Any]] = {
        **dict.fromkeys(("per", "unique"), REQUIRED),
        "keep": None,
        "keep_for": None,
        "column": (),
        "order": None,
        "on_full": "evict",
        "on_duplicate": "error",
    }
    changes: ClassVar[Sequence[str]] = ("keep", "keep_for", "add", "on_full", "on_duplicate")

    def insertion(self, values: Sequence[Any]) -> Operation[Any]:
        return self.structure.add(self.structure.rows.make(values))

    @property
    def _names(self) -> list[str]:
        return [each.name for each in self.structure.columns if each not in self.structure.key.columns]

    def summaries(self, keys: Sequence[Any]) -> Sequence[Operation[Any]]:
        if self.structure.score is None:
            return super().summaries(keys)
        return [each for key in keys for each in (self.structure.count(key), self.structure.top(key, 1))]

    def summary(self, keys: Sequence[Any], results: Sequence[Any]) -> Table:
        if self.structure.score is None:
            return super().summary(keys, results)
        names, rows, documents = self._names, [], []
        for n, best in zip(results[::2], results[1::2], strict=True):
            values = [getattr(best[0], name) if best else None for name in names]
            rows.append((n, *values))
            documents.append({"rows": n, "best": dict(zip(names, values, strict=True)) if best else None})
        return Table(("rows", *names), rows, documents)

    def contents(self, key: Any, n: int | None) -> Operation[Any]:
        return super().contents(key, n) if self.structure.score is None else self.structure.top(key, n)

    def content(self, found: Any, n: int | None) -> Table:
        if self.structure.score is None:
            return super().content(found, n)
        headers = ("rank", *self._names)
        rows = [(place, *[getattr(row, name) for name in self._names]) for place, row in enumerate(found[:n], 1)]
        return Table(headers, rows, {"rows": [dict(zip(headers, row, strict=True)) for row in rows]})

    def deletes(self, new: Structure) -> str:
        said = leaves_earlier("rows", self.structure, new)
        if isinstance(new, Capped) and new.keep is not None and (self.structure.keep or INT_MAX) > new.keep:
            which = "newest" if self.structure.score is None else "best"
            said = " and ".join(filter(None, [f"rows beyond the {which} {new.keep} of each key are deleted", said]))
        return said
