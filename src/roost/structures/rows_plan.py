"""What rings and capped collections have in common besides their declarations, for each kind of client."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from roost.dialects.dialect import Dialect, Row
from roost.structures.console import Console, Table
from roost.structures.operation import Operation
from roost.structures.plan import AT, SEQUENCE, same
from roost.structures.program import ProgramPlan
from roost.structures.rows import Entry, RowStructure
from roost.structures.structure import Structure
from roost.structures.wire import Values, Wire

R = TypeVar("R", bound=RowStructure[Any, Any])


class RowsPlan(ProgramPlan):
    """A structure of rows in one dialect's words: their conversion, and a head for each key."""

    structure: Any
    heads = True

    def __init__(self, structure: Any, dialect: Dialect) -> None:
        self.others = structure.rows.others
        self.given = [*structure.key.columns, *self.others]
        self.expires = structure.keep_for is not None
        self._row_out = dialect.encoder(self.given) or same
        self._take = structure.rows.taking([each.name for each in self.given])
        self._rows_of = structure.rows.maker(dialect.decoder(structure.columns))
        self._at_in = dialect.decoder([AT]) or same
        super().__init__(structure, dialect)

    def rows_of(self, op: Operation[Any]) -> Sequence[Row]:
        """Return the rows that an operation adds, as its program is given them."""
        out, take = self._row_out, self._take
        return [out(take(row)) for row in op.args]

    def _entry(self, stored: Row) -> Entry[Any]:
        return Entry(stored[0], self._at_in(stored[1:2])[0], self._rows_of([stored[2:]])[0])


class EntriesWire(Wire):
    """A structure whose rows have a sequence number and a moment; newest first."""

    more = (SEQUENCE, AT)
    of_key = "latest"

    def reading(self, head: Any, id_: Values, n: int) -> Operation[Any]:
        if SEQUENCE in self.columns or AT in self.columns:
            return self.structure.entries(head)  # type: ignore[no-any-return]
        return super().reading(head, id_, n)

    def rows(self, key: Values, found: Any) -> list[Values]:
        check = self.structure.rows.check
        if isinstance(found, list) and found and hasattr(found[0], "sequence") and hasattr(found[0], "row"):
            return [(*check(each.row), each.sequence, each.at) for each in reversed(found)]
        return [(*row, None, None) for row in super().rows(key, found)]


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
