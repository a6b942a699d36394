"""What `alter` does to the rows of a cache."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from roost.dialects.dialect import Statement
from roost.errors import Invalid
from roost.structures.plan import Facts, StructurePlan

BOUNDS = ("max_items", "max_bytes")


def change_bounds(plan: StructurePlan, old: Facts, new: Facts) -> Generator[Statement, Any, None]:
    """Remove the values that exceed the new bounds; `Invalid` if bounds are added to or removed from a cache."""
    bounds: Any = getattr(plan, "bounds", None)
    if bounds is None or all(old.get(fact) is None for fact in BOUNDS):
        raise Invalid(
            f"{plan.structure.name}: the rows of a cache without bounds have no order of use; create another cache, "
            "and let it fill"
        )
    yield from bounds.lock()
    tally = yield from bounds.tally()
    yield from bounds.evict(tally)
    yield Statement(bounds.write, [(tally.n, tally.bytes, tally.sequence)])


ALTERATIONS = dict.fromkeys(BOUNDS, change_bounds)
