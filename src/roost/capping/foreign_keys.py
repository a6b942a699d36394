"""Foreign keys to a table: whether its rows can be deleted, and which rows of other tables are deleted with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from roost.capping.cap import Asking, read
from roost.dialects.dialect import Dialect
from roost.errors import Invalid

SAFE = ("CASCADE", "SET NULL")  # the allowed actions of a foreign key when the row to which it refers is deleted


class ForeignKeys:
    """What one database's catalog tells about tables; each query asks about the table that is its parameter."""

    dialect: ClassVar[Dialect]
    foreign_keys_sql: ClassVar[str]  # to it: their table, name, column, and the ON DELETE action
    fixed_sql: ClassVar[str] = ""  # the columns that may not be NULL; "": there is no SET NULL where NULL may not be
    referring_sql: ClassVar[str]  # table, column and column here of the foreign keys that forbid changes
    indexes_sql: ClassVar[str]  # name, column, and whether it is in order, in the order of the columns
    sorts_ties: ClassVar[bool] = False  # whether rows that are equal in an index are sorted without reading the others

    def folded(self, name: str) -> str:
        """Return a name as the database compares it, if it is not found as it is."""
        return name.lower()

    def ask(self, sql: str, table: str) -> Asking:
        """Return the rows of a query about a table."""
        found = yield read(sql, *[table] * sql.count(self.dialect.placeholder))
        return found[0]

    def may_lose_rows(self, table: str) -> Asking:
        """Return the tables whose rows are deleted with a table's; `Invalid` if a deletion could fail or be slow."""
        gone, waiting = [table], [table]
        while waiting:
            parent = waiting.pop()
            grouped: dict[tuple[str, Any, str], list[str]] = {}
            for other, name, column, action in (yield from self.ask(self.foreign_keys_sql, parent)):
                grouped.setdefault((other, name, action), []).append(column)
            for (other, _, action), columns in grouped.items():
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
                if not (yield from self._is_indexed(other, columns)):
                    raise Invalid(
                        f"{where} without an index: each deletion would scan all of {other}. CREATE INDEX … "
                        f"({', '.join(map(self.dialect.quoted, columns))})"
                    )
        return gone[1:]

    def _may_be_null(self, other: str, columns: Sequence[str], where: str) -> Asking:
        changed = [self.folded(column) for column in columns]
        fixed = (yield from self.ask(self.fixed_sql, other)) if self.fixed_sql else []
        if any(self.folded(column) in changed for (column,) in fixed):
            raise Invalid(f"{where}, but may not be NULL, so a row could not be deleted")
        for child, column, referred in (yield from self.ask(self.referring_sql, other)):
            if referred is None or self.folded(referred) in changed:  # None: SQLite's primary key
                raise Invalid(f"{where}, and {child}.{column} refers to that and would forbid a deletion")

    def _indexes(self, table: str) -> Asking:
        indexes: dict[str, list[tuple[str, bool]]] = {}
        for name, column, in_order in (yield from self.ask(self.indexes_sql, table)):
            indexes.setdefault(name, []).append((column, bool(in_order)))
        return indexes

    def _is_indexed(self, table: str, columns: Sequence[str]) -> Asking:
        # Whether rows are found by these columns without reading all of them.
        found = (yield from self._indexes(table)).values()
        return any({column for column, _ in each[: len(columns)]} == set(columns) for each in found)
