"""Rings and capped collections on the command line."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from roost.structures.console import Console, Table
from roost.structures.operation import Operation
from roost.structures.rows import Entry, RowStructure
from roost.structures.structure import Structure

R = TypeVar("R", bound=RowStructure[Any, Any])


class RowsConsole(Console[R]):
    """Keys with the number of their rows and the newest one, and all rows of one key, newest first."""

    def summaries(self, keys: Sequence[Any]) -> Sequence[Operation[Any]]:
        return [self.structure.entries(key) for key in keys]

    def summary(self, keys: Sequence[Any], results: Sequence[Any]) -> Table:
        names = [each.name for each in self.structure.columns if each not in self.structure.key.columns]
        rows, documents = [], []
        for entries in results:
            newest = entries[-1] if entries else None
            values = [getattr(newest.row, name) for name in names] if newest else [None] * len(names)
            rows.append((len(entries), newest and newest.sequence, newest and newest.at, *values))
            documents.append({"rows": len(entries), "newest": newest and self._document(newest)})
        return Table(("rows", "sequence", "at", *names), rows, documents)

    def contents(self, key: Any, n: int | None) -> Operation[Any]:
        return self.structure.entries(key)

    def content(self, found: Any, n: int | None) -> Table:
        entries = found[::-1][:n]
        names = [each.name for each in self.structure.columns]
        rows = [(each.sequence, each.at, *self.structure.rows.check(each.row)) for each in entries]
        return Table(("sequence", "at", *names), rows, {"entries": [self._document(each) for each in entries]})

    def _document(self, entry: Entry[Any]) -> dict[str, Any]:
        row = {each.name: getattr(entry.row, each.name) for each in self.structure.columns}
        return {"sequence": entry.sequence, "at": entry.at, "row": row}

    def altered(self, options: Mapping[str, Any], added: Sequence[tuple[str, Any, Any]]) -> Structure:
        row = self.structure.rows.type
        if added:
            row = dataclasses.make_dataclass(row.__name__, added, bases=(row,), frozen=True)
        return self.structure.replaced(Row=row, **options)

    def deletes(self, new: Structure) -> str:
        if not isinstance(new, RowStructure) or new.keep >= self.structure.keep:
            return ""
        return f"rows beyond the newest {new.keep} of each key are deleted"
