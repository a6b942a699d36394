"""One file per structure: lists of like operations become statements. No I/O, and no engine is imported."""

from __future__ import annotations

from typing import Any

from roost.dialects.dialect import Dialect
from roost.errors import Invalid
from roost.plans.adopted import AdoptedPlan
from roost.plans.capped import CappedPlan
from roost.plans.counter import CounterPlan
from roost.plans.index.plan import IndexPlan
from roost.plans.plan import Careful, Context, Plan, StructurePlan, TargetPlan, in_utc
from roost.plans.ring import RingPlan
from roost.plans.sets import SetPlan
from roost.structures.index import Index
from roost.structures.operation import Target
from roost.structures.structure import Structure

__all__ = ["Careful", "Context", "Plan", "StructurePlan", "TargetPlan", "in_utc", "index_plan_for", "plan_for"]

_PLANS: dict[str, Any] = {
    "counter": CounterPlan,
    "ring": RingPlan,
    "capped": CappedPlan,
    "set": SetPlan,
    "adopted": AdoptedPlan,
}


def plan_for(structure: Structure, dialect: Dialect) -> StructurePlan:
    """Return a structure in a dialect's words; `Invalid` when no SQL database holds it."""
    if structure.kind not in _PLANS:
        raise Invalid(
            f"{structure.name} is a {type(structure).__name__}, which lives in memcached alone: "
            'Store("memcached://host:11211"); on a SQL database take roost.Set'
        )
    plan: StructurePlan = _PLANS[structure.kind](structure, dialect)
    return plan


def index_plan_for(index: Target, dialect: Dialect) -> TargetPlan:
    """Return an index of a table in a dialect's words; `Invalid` when the engine does not have it yet."""
    assert isinstance(index, Index)
    return IndexPlan(index, dialect)
