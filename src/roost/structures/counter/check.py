"""What `check` verifies of a counter."""

from __future__ import annotations

from collections.abc import Iterator

from roost.structures.plan import Rule, StructurePlan
from roost.structures.rules import RuleWords


def rules(plan: StructurePlan, slots: int) -> Iterator[Rule]:
    """Every slot is one of those that are declared."""
    words = RuleWords(plan)
    yield (
        "slot",
        f"SELECT {words.r_key}, {words.message(f'slot ? of {slots}', 'slot')} FROM {words.rows} r\n"
        f"  WHERE slot NOT BETWEEN 0 AND {slots - 1}",
    )
