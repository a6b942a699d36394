"""What `check` verifies of a capped collection."""

from __future__ import annotations

from collections.abc import Iterator

from roost.structures.checks import RuleWords, counted, has_head, sequences
from roost.structures.plan import Rule, StructurePlan


def rules(plan: StructurePlan, keep: int) -> Iterator[Rule]:
    """No key has more than `keep` rows, no two rows of a key have the same sequence, and the count is right."""
    yield has_head(plan)
    yield from sequences(plan)
    words = RuleWords(plan)
    yield (
        "keep",
        f"SELECT {words.r_key}, {words.message(f'? rows, keep is {keep}', 'count(*)')} FROM {words.rows} r\n"
        f"  GROUP BY {words.r_key} HAVING count(*) > {keep}",
    )
    yield (
        "order",
        f"SELECT {words.r_key}, {words.message('? rows have sequence ?', 'count(*)', 'sequence')} FROM {words.rows} r\n"
        f"  GROUP BY {words.r_key}, sequence HAVING count(*) > 1",
    )
    yield counted(plan)
