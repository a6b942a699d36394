"""What `alter` does to the rows of a rate limit."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from roost.dialects.dialect import Statement, Template
from roost.structures.plan import Facts, StructurePlan


def change_limit(plan: StructurePlan, _: Facts, __: Facts) -> Generator[Statement, Any, None]:
    """Round the moments up to whole microseconds: their parts were counted by the old limit."""
    yield Statement(Template(f"UPDATE {plan.rows_table} SET tat = tat + 1, part = 0 WHERE part > 0"), [()])


ALTERATIONS = {"limit": change_limit}
