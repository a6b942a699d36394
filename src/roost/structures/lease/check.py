"""What `check` verifies of a lease."""

from __future__ import annotations

from collections.abc import Iterator

from roost.structures.checks import RuleWords
from roost.structures.plan import Rule, StructurePlan


def rules(plan: StructurePlan) -> Iterator[Rule]:
    """Who holds a key has a token, which is a moment from before its end; and a time to hold it."""
    words = RuleWords(plan)
    yield (
        "token",
        f"SELECT {words.r_key}, {words.message('token ? of a lease that ends at ?', 'r.token', 'r.expires')}\n"
        f"  FROM {words.rows} r WHERE r.token < 0 OR r.ttl < 0 OR r.expires < 0 OR (r.token = 0) <> (r.ttl = 0)",
    )
