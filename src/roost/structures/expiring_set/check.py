"""What `check` verifies of an expiring set."""

from __future__ import annotations

from collections.abc import Iterator

from roost.structures.plan import Rule, StructurePlan
from roost.structures.rules import Words


def rules(plan: StructurePlan) -> Iterator[Rule]:
    """Every member has an end: none is left of the rows that are made for their locks."""
    words = Words(plan)
    yield (
        "until",
        f"SELECT {words.r_key}, {words.message('a member with the end ?', 'r.until')} FROM {words.rows} r\n"
        f"  WHERE r.until <= 0",
    )
