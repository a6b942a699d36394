"""A lease on the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from roost.structures.console import Console, Table
from roost.structures.lease.declaration import Grant, Lease
from roost.structures.operation import Operation

HEADERS = ("holder", "token", "expires")


class LeaseConsole(Console[Lease[Any]]):
    """Keys with their holders; nothing can be imported."""

    takes: ClassVar[Mapping[str, Any]] = {"key": ()}

    def summaries(self, keys: Sequence[Any]) -> Sequence[Operation[Any]]:
        """Return an operation for each key."""
        return [self.structure.peek(key) for key in keys]

    def summary(self, keys: Sequence[Any], results: Sequence[Any]) -> Table:
        """Return who holds each key."""
        rows = [_row(found) for found in results]
        return Table(HEADERS, rows, [dict(zip(HEADERS, row, strict=True)) for row in rows])

    def contents(self, key: Any, n: int | None) -> Operation[Any]:
        """Return the operation that reads who holds a key."""
        return self.structure.peek(key)

    def content(self, found: Any, n: int | None) -> Table:
        """Return who holds it."""
        row = _row(found)
        return Table(HEADERS, [] if found is None else [row], dict(zip(HEADERS, row, strict=True)))

    def removed(self, number: int) -> str:
        """Say what `clear` and `forget` do."""
        return f"{number:,} lease{'' if number == 1 else 's'}"


def _row(grant: Grant[Any] | None) -> tuple[Any, ...]:
    return (None, None, None) if grant is None else (grant.holder, grant.token, grant.expires)
