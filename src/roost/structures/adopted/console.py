"""A capped table of the application's own on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roost.structures.adopted.declaration import Adopted
from roost.structures.console import Console, Table
from roost.structures.operation import Operation


class AdoptedConsole(Console[Adopted]):
    """Lists keys with their numbers of rows, and the rows of one key, newest first, with the table's own columns."""

    read_only = "{name} is a table of your own: write it with SQL; `roost cap {name}` changes what it keeps"

    def listed(self) -> tuple[str, str, str]:
        """Return the names of the key's columns; the others may change at any time."""
        facts = self.structure.facts or {}
        rules = [f"{fact} {facts[fact]}" for fact in ("keep", "newest_by") if facts.get(fact) is not None]
        return ", ".join(self.structure.key.names), "rows of its own", ", ".join(rules)

    def summaries(self, keys: Sequence[Any]) -> Sequence[Operation[Any]]:
        """Return an operation for each key's number of rows."""
        return [self.structure.count(key) for key in keys]

    def summary(self, keys: Sequence[Any], results: Sequence[Any]) -> Table:
        """Return the number of rows of each key."""
        return Table(("rows",), [(count,) for count in results], [{"rows": count} for count in results])

    def contents(self, key: Any, n: int | None) -> Operation[Any]:
        """Return the operation that reads the rows."""
        return self.structure.latest(key, n)

    def content(self, found: Any, n: int | None) -> Table:
        """Return the rows, which are named tuples."""
        names = found[0]._fields if found else self.structure.key.names
        return Table(names, found[:n], {"rows": [row._asdict() for row in found[:n]]})
