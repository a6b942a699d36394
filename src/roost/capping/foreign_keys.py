"""Foreign keys to a table: whether its rows can be deleted, and which rows of other tables are deleted with them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from typing import Any, ClassVar

from roost.dialects.dialect import Dialect, Row, Statement
from roost.errors import Invalid

Asking = Generator[Statement, Any, Any]

SAFE = ("CASCADE", "SET NULL")  # the allowed actions of a foreign key when the row to which it refers is deleted


class ForeignKeys(ABC):
    """The foreign keys of a database."""

    dialect: ClassVar[Dialect]

    def folded(self, name: str) -> str:
        """Return a name as the database compares it, if it is not found as it is."""
        return name.lower()

    def may_lose_rows(self, table: str) -> Asking:
        """Return the tables whose rows are deleted with a table's; `Invalid` if a deletion could fail or be slow."""
        gone, waiting = [table], [table]
        while waiting:
            parent = waiting.pop()
            for other, action, columns in _grouped((yield from self.foreign_keys(parent))):
                where = f"{other}.{columns[0]} refers to rows of {parent} with ON DELETE {action}"
                if action not in SAFE:
                    raise Invalid(
                        f"{where}, so excess rows cannot be deleted; the foreign key must say ON DELETE "
                        f"{' or '.join(SAFE)}"
                    )
                if action == "SET NULL":
                    yield from self._may_be_null(other, columns, where)
                elif self.folded(other) == self.folded(table):
                    raise Invalid(f"{where}: deleting an excess row would delete newer rows of the table too")
                elif self.folded(other) not in map(self.folded, gone):
                    gone.append(other)
                    waiting.append(other)
                if not (yield from self.is_indexed(other, columns)):
                    raise Invalid(
                        f"{where} without an index: each deletion would scan all of {other}. CREATE INDEX … "
                        f"({', '.join(map(self.dialect.quoted, columns))})"
                    )
        return gone[1:]

    def _may_be_null(self, other: str, columns: Sequence[str], where: str) -> Asking:
        fixed = {self.folded(name) for name in (yield from self.fixed_columns(other))}
        if any(self.folded(column) in fixed for column in columns):
            raise Invalid(f"{where}, but may not be NULL, so a row could not be deleted")
        for child, column in (yield from self.referring(other, columns)):
            raise Invalid(f"{where}, and {child}.{column} refers to that and would forbid a deletion")

    @abstractmethod
    def foreign_keys(self, parent: str) -> Asking:
        """Return the foreign keys to a table: rows of table, name, column and the ON DELETE action."""

    @abstractmethod
    def fixed_columns(self, table: str) -> Asking:
        """Return the names of the columns that may not be NULL."""

    @abstractmethod
    def referring(self, table: str, columns: Sequence[str]) -> Asking:
        """Return table and column of the foreign keys that forbid changing some columns."""

    @abstractmethod
    def is_indexed(self, table: str, columns: Sequence[str]) -> Asking:
        """Return whether rows are found by these columns without reading all of them."""


def _grouped(rows: Sequence[Row]) -> list[tuple[str, str, list[str]]]:
    # Each foreign key: its table, its action, its columns.
    found: dict[tuple[str, Any, str], list[str]] = {}
    for other, name, column, action in rows:
        found.setdefault((other, name, action), []).append(column)
    return [(other, action, columns) for (other, _, action), columns in found.items()]
