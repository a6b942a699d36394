"""The kinds of structure that Roost has."""

from __future__ import annotations

from roost.structures.adopted.declaration import Adopted
from roost.structures.capped.declaration import Capped
from roost.structures.capped.plan import CappedPlan
from roost.structures.counter.declaration import Counter
from roost.structures.counter.plan import CounterPlan
from roost.structures.memcached_set.declaration import MemcachedSet
from roost.structures.registry import register
from roost.structures.ring.declaration import Ring
from roost.structures.ring.plan import RingPlan
from roost.structures.set.declaration import Set
from roost.structures.set.plan import SetPlan
from roost.structures.structure import Structure

__all__ = ["KINDS", "Adopted", "Capped", "Counter", "MemcachedSet", "Ring", "Set"]

register(Counter, CounterPlan)
register(Ring, RingPlan)
register(Capped, CappedPlan)
register(Set, SetPlan)

KINDS: dict[str, type[Structure]] = {kind.kind: kind for kind in (Counter, Ring, Capped, Set)}  # which `create` makes
