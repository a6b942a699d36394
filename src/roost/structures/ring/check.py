"""What `check` verifies of a ring."""

from __future__ import annotations

from collections.abc import Iterator

from roost.structures.plan import Rule, StructurePlan
from roost.structures.rules import RuleWords, has_head, sequences


def rules(plan: StructurePlan, keep: int) -> Iterator[Rule]:
    """Each row is in the slot of its sequence, and none is older than the newest `keep`."""
    yield has_head(plan)
    yield from sequences(plan)
    words = RuleWords(plan)
    yield (
        "slot",
        f"SELECT {words.r_key}, {words.message(f'slot ? holds sequence ?, keep is {keep}', 'slot', 'sequence')}\n"
        f"  FROM {words.rows} r WHERE slot <> {words.dialect.modulo.format('sequence', keep)}",
    )
    too_old = words.message("sequence ? should be gone, the head says ?", "r.sequence", "h.sequence")
    yield (
        "keep",
        f"SELECT {words.r_key}, {too_old}\n"
        f"  FROM {words.rows} r JOIN {words.head} h ON {words.join} WHERE r.sequence <= h.sequence - {keep}",
    )
