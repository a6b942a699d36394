"""The effect of `alter` on the rows of a windowed counter."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from roost.dialects.dialect import Statement
from roost.structures.counter.alter import change_slots
from roost.structures.plan import Facts, StructurePlan, write
from roost.structures.windowed_counter.start import START_COLUMN


def change_slots_of_windows(plan: StructurePlan, old: Facts, new: Facts) -> Generator[Statement, Any, None]:
    """Add the contents of removed slots to the first slot of their window."""
    yield from change_slots(plan, old, new, [START_COLUMN])


def change_keep(plan: Any, old: Facts, new: Facts) -> Generator[Statement, Any, None]:
    """Delete the windows that had expired: with a larger `keep`, those that no write has deleted yet would reappear.

    On SQLite the newest stored window also decides, since a store's clock may be any.
    """
    size: int = plan.structure.size
    found = yield Statement(plan.look, [()])
    clock, _, newest = found[0][0]
    if newest is not None:
        first = max(clock - clock % size, newest) - (old["keep"] - 1) * size
        yield Statement(write(f"DELETE FROM {plan.rows_table} WHERE start < {plan.dialect.placeholder}"), [(first,)])


ALTERATIONS = {"slots": change_slots_of_windows, "keep": change_keep}
