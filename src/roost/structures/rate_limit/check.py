"""What `check` verifies of a rate limit."""

from __future__ import annotations

from collections.abc import Iterator

from roost.structures.checks import RuleWords
from roost.structures.plan import Rule, StructurePlan


def rules(plan: StructurePlan, limit: int) -> Iterator[Rule]:
    """Every row has a moment, and a part of a microsecond in units of the limit."""
    words = RuleWords(plan)
    yield (
        "tat",
        f"SELECT {words.r_key}, {words.message('tat ? and part ? are no moment', 'r.tat', 'r.part')}\n"
        f"  FROM {words.rows} r WHERE r.tat < 0 OR r.part NOT BETWEEN 0 AND {limit - 1}",
    )
