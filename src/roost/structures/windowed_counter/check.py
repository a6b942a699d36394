"""The rules that `check` verifies for a windowed counter, in addition to those for a counter."""

from __future__ import annotations

from collections.abc import Iterator

from roost.structures.plan import Rule, StructurePlan
from roost.structures.rules import RuleWords


def rules(plan: StructurePlan, size: int) -> Iterator[Rule]:
    """Every window starts at a multiple of its length."""
    words = RuleWords(plan)
    yield (
        "start",
        f"SELECT {words.r_key}, {words.message('no window begins at ?', 'start')} FROM {words.rows} r\n"
        f"  WHERE {words.dialect.modulo.format('start', size)} <> 0",
    )
