"""One file per structure: lists of like operations become statements. No I/O, and no engine is imported."""

from __future__ import annotations

from typing import Any

from roost.dialects.dialect import Dialect
from roost.plans.adopted import AdoptedPlan
from roost.plans.capped import CappedPlan
from roost.plans.counter import CounterPlan
from roost.plans.index.plan import IndexPlan
from roost.plans.plan import Careful, Context, Plan, StructurePlan, TargetPlan
from roost.plans.ring import RingPlan
from roost.plans.sets import SetPlan
from roost.structures.operation import Target

__all__ = ["Careful", "Context", "Plan", "StructurePlan", "TargetPlan", "plan_for"]

_PLANS: dict[str, Any] = {
    "counter": CounterPlan,
    "ring": RingPlan,
    "capped": CappedPlan,
    "set": SetPlan,
    "adopted": AdoptedPlan,
    "index": IndexPlan,
}


def plan_for(target: Target, dialect: Dialect) -> TargetPlan:
    """Return a structure or index in a dialect's words; `Invalid` when the engine does not have it yet."""
    plan: TargetPlan = _PLANS[target.kind](target, dialect)
    return plan
