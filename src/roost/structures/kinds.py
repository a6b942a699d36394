"""The kinds of structure that Roost has."""

from __future__ import annotations

from roost.structures.adopted import Adopted
from roost.structures.cache.declaration import Cache, CacheConsole
from roost.structures.cache.plan import CachePlan
from roost.structures.capped.declaration import Capped, CappedConsole
from roost.structures.capped.plan import CappedPlan
from roost.structures.counter.declaration import Counter, CounterConsole
from roost.structures.counter.plan import CounterPlan
from roost.structures.lease import Lease, LeaseConsole, LeasePlan
from roost.structures.memcached_set.declaration import MemcachedSet
from roost.structures.rate_limit import RateLimit, RateLimitConsole, RateLimitPlan
from roost.structures.registry import register
from roost.structures.ring import Ring, RingConsole, RingPlan
from roost.structures.set.declaration import Set
from roost.structures.set.plan import SetConsole, SetPlan

__all__ = ["Adopted", "Cache", "Capped", "Counter", "Lease", "MemcachedSet", "RateLimit", "Ring", "Set"]

register(Cache, CachePlan, CacheConsole)
register(Counter, CounterPlan, CounterConsole)
register(Ring, RingPlan, RingConsole)
register(Capped, CappedPlan, CappedConsole)
register(Set, SetPlan, SetConsole)
register(Lease, LeasePlan, LeaseConsole)
register(RateLimit, RateLimitPlan, RateLimitConsole)
