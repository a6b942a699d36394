"""What `check` verifies of a cache."""

from __future__ import annotations

from collections.abc import Iterator

from roost.structures.plan import Rule, StructurePlan
from roost.structures.rules import Words


def rules(plan: StructurePlan) -> Iterator[Rule]:
    """Every row has a value: none is left of those that are made for their locks."""
    words = Words(plan)
    yield (
        "value",
        f"SELECT {words.r_key}, {words.message('no value, with the end ?', 'r.until')} FROM {words.rows} r\n"
        f"  WHERE r.value IS NULL",
    )
