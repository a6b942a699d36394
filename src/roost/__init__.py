"""Roost: fast-moving data kept in the SQL database you already run, in tables that look after themselves."""

from roost import errors
from roost.batching.stats import Stats
from roost.catalog.check import Violation
from roost.errors import *  # noqa: F403
from roost.store.runner import AsyncRunner, Runner
from roost.store.store import AsyncStore, Store
from roost.structures.cache.declaration import Item
from roost.structures.index.declaration import Index, Where, While
from roost.structures.kinds import Cache, Capped, Counter, Lease, MemcachedSet, RateLimit, Ring, Set
from roost.structures.lease import Grant
from roost.structures.memcached_set.declaration import SetInfo
from roost.structures.operation import Operation
from roost.structures.rate_limit import Taken
from roost.structures.rows import Entry
from roost.structures.structure import Structure
from roost.types.column_types import binary, decimal, text

__all__ = [
    "AsyncRunner",
    "AsyncStore",
    "Cache",
    "Capped",
    "Counter",
    "Entry",
    "Grant",
    "Index",
    "Item",
    "Lease",
    "MemcachedSet",
    "Operation",
    "RateLimit",
    "Ring",
    "Runner",
    "Set",
    "SetInfo",
    "Stats",
    "Store",
    "Structure",
    "Taken",
    "Violation",
    "Where",
    "While",
    "binary",
    "decimal",
    "text",
]
__all__ += errors.__all__
