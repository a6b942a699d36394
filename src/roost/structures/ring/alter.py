"""What `alter` does to the rows of a ring."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from roost.dialects.dialect import Statement, Template
from roost.structures.plan import Facts, StructurePlan


def change_keep(plan: StructurePlan, old: Facts, new: Facts) -> Generator[Statement, Any, None]:
    """Delete the rows that are too old, and move the others into the slots that their sequences have now."""
    keep, rows, head = new["keep"], plan.rows_table, plan.head_table
    key = plan.structure.key.columns
    yield Statement(
        Template(
            f"DELETE FROM {rows} WHERE sequence <= (SELECT h.sequence FROM {head} h\n"
            f"  WHERE {plan.dialect.same(key, 'h.', f'{rows}.')}) - {keep}"
        ),
        [()],
    )
    # Rows move through negative slots, so that none overwrites a row that has not moved yet.
    slot = plan.dialect.modulo.format("sequence", keep)
    yield Statement(Template(f"UPDATE {rows} SET slot = -1 - {slot}"), [()])
    yield Statement(Template(f"UPDATE {rows} SET slot = -1 - slot"), [()])


ALTERATIONS = {"keep": change_keep}
