"""What `alter` does to the rows of a counter."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from roost.dialects.dialect import Statement, Template
from roost.errors import Overflow, StatementFailed
from roost.structures.plan import Facts, StructurePlan
from roost.types.columns import Column


def change_slots(
    plan: StructurePlan, old: Facts, new: Facts, more: Sequence[Column] = ()
) -> Generator[Statement, Any, None]:
    """Add the slots that go to the first one; `Overflow` when that would leave 64 bits.

    more: columns of what is counted, beside those of the key.
    """
    before, after = old["slots"] or plan.dialect.slots, new["slots"] or plan.dialect.slots
    key = plan.dialect.names([*plan.structure.key.columns, *more])
    table = plan.rows_table
    try:
        for slot in range(after, before):
            moved = f"SELECT {key}, 0, n FROM {table} WHERE slot = {slot}"
            if plan.dialect.family == "mariadb":
                moved = f"SELECT * FROM (SELECT {key}, 0 AS slot, n AS total FROM {table} WHERE slot = {slot}) moved"
                put = (
                    f"INSERT INTO {table} ({key}, slot, n) {moved}\n"
                    f"  ON DUPLICATE KEY UPDATE n = {table}.n + moved.total"
                )
            else:
                put = (
                    f"INSERT INTO {table} AS r ({key}, slot, n) {moved}\n"
                    f"  ON CONFLICT ({key}, slot) DO UPDATE SET n = r.n + excluded.n"
                )
            yield Statement(Template(put), [()])
    except StatementFailed as error:
        raise Overflow(f"{plan.structure.name}: a total would not fit into {after} slots: {error}") from error
    yield Statement(Template(f"DELETE FROM {table} WHERE slot >= {after}"), [()])


ALTERATIONS = {"slots": change_slots}
