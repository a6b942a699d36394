"""A dumb model of an index: a list of rows in its order, walked from one end. NULL is less than everything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cmp_to_key
from typing import Any

from roost.structures.index.declaration import Where, While

Row = tuple[Any, ...]


def compare(one: Any, other: Any) -> int:
    """Return -1, 0 or 1, as an index orders two values of one column."""
    if one is None or other is None:
        return (other is None) - (one is None)
    return int(one > other) - int(one < other)


def holds(op: str, one: Any, other: Any) -> bool:
    """Whether a filter is fulfilled."""
    sign = compare(one, other)
    return {"=": sign == 0, "!=": sign != 0, "<": sign < 0, "<=": sign <= 0, ">": sign > 0, ">=": sign >= 0}[op]


@dataclass
class Model:
    """A table: its columns' names, its rows in the order of their rowids, and a key with its directions."""

    names: tuple[str, ...]
    rows: list[Row]
    key: tuple[str, ...]
    descending: tuple[bool, ...]

    def place(self, row: Row, values: Sequence[Any]) -> int:
        """Return whether a row lies before these values of the key's first columns (-1), at them, or behind (1)."""
        for name, descending, value in zip(self.key, self.descending, values, strict=False):
            sign = compare(row[self.names.index(name)], value)
            if sign:
                return -sign if descending else sign
        return 0

    def ordered(self) -> list[Row]:
        """Return the rows in the order of the index; equals in the order of their rowids."""

        def order(one: Row, other: Row) -> int:
            return self.place(one, [other[self.names.index(name)] for name in self.key])

        return sorted(self.rows, key=cmp_to_key(order))

    def find(
        self,
        op: str,
        values: Sequence[Any],
        limit: int,
        offset: int,
        in_: tuple[int, Sequence[Any]] | None,
        filters: Sequence[Where | While],
    ) -> list[Row]:
        """Return the rows that a find finds."""
        lists = [list(values)]
        if in_ is not None:
            place, among = in_
            lists = [[*values[:place], value, *values[place + 1 :]] for value in among]
        wanted = {"=": (0,), "<": (-1,), "<=": (-1, 0), ">": (1,), ">=": (0, 1)}[op]
        found: list[Row] = []
        for each in lists:
            rows = [row for row in self.ordered() if self.place(row, each) in wanted]
            for row in reversed(rows) if op[0] == "<" else rows:
                failed = next((f for f in filters if not holds(f.op, row[self.names.index(f.column)], f.value)), None)
                if isinstance(failed, While):
                    return found[offset : offset + limit]
                if failed is None:
                    found.append(row)
        return found[offset : offset + limit]
