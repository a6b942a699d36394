"""What `check` verifies of a cache."""

from __future__ import annotations

from collections.abc import Iterator

from roost.structures.cache.declaration import FLAGS_MAX, Cache
from roost.structures.checks import RuleWords
from roost.structures.plan import Rule, StructurePlan


def rules(plan: StructurePlan) -> Iterator[Rule]:
    """Every row has a value (none was created only to be locked); flags have 32 bits; the head's counts are right."""
    words = RuleWords(plan)
    assert isinstance(plan.structure, Cache)
    if plan.structure.bounded:
        first, nulls = words.first, ", ".join(["NULL"] * plan.key_width)
        yield (
            "count",
            f"SELECT {nulls}, "
            f"{words.message('the head says ? values of ? bytes, there are ? of ?', 'h.n', 'h.bytes', 'q.n', 'q.b')}\n"
            f"  FROM {words.head} h, (SELECT count({first}) AS n, coalesce(sum(size), 0) AS b FROM {words.rows}) q\n"
            f"  WHERE h.n <> q.n OR h.bytes <> q.b",
        )
    yield (
        "flags",
        f"SELECT {words.r_key}, {words.message('flags are ?', 'r.flags')} FROM {words.rows} r\n"
        f"  WHERE r.flags NOT BETWEEN 0 AND {4 * FLAGS_MAX + 3} OR (r.flags IS NULL AND r.value IS NOT NULL)",
    )
    yield (
        "value",
        f"SELECT {words.r_key}, {words.message('no value, with the end ?', 'r.until')} FROM {words.rows} r\n"
        f"  WHERE r.value IS NULL",
    )
