"""Roost: fast-moving data kept in the SQL database you already run, in tables that look after themselves."""

from roost.batching.stats import Stats
from roost.catalog.check import Violation
from roost.errors import (
    Busy,
    CannotOpen,
    Closed,
    Conflict,
    ConnectionLost,
    DatabaseError,
    DiskFull,
    Duplicate,
    Error,
    Full,
    Invalid,
    LeaseLost,
    Mismatch,
    Missing,
    OutcomeUnknown,
    Overflow,
    ReadOnly,
    Refused,
    StatementFailed,
    TimedOut,
)
from roost.store.runner import AsyncRunner, Runner
from roost.store.store import AsyncStore, Store
from roost.structures.cache.declaration import Item
from roost.structures.index.declaration import Index, Where, While
from roost.structures.kinds import (
    Cache,
    Capped,
    Counter,
    Lease,
    MemcachedSet,
    RateLimit,
    Ring,
    Set,
)
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
    "Busy",
    "Cache",
    "CannotOpen",
    "Capped",
    "Closed",
    "Conflict",
    "ConnectionLost",
    "Counter",
    "DatabaseError",
    "DiskFull",
    "Duplicate",
    "Entry",
    "Error",
    "Full",
    "Grant",
    "Index",
    "Invalid",
    "Item",
    "Lease",
    "LeaseLost",
    "MemcachedSet",
    "Mismatch",
    "Missing",
    "Operation",
    "OutcomeUnknown",
    "Overflow",
    "RateLimit",
    "ReadOnly",
    "Refused",
    "Ring",
    "Runner",
    "Set",
    "SetInfo",
    "StatementFailed",
    "Stats",
    "Store",
    "Structure",
    "Taken",
    "TimedOut",
    "Violation",
    "Where",
    "While",
    "binary",
    "decimal",
    "text",
]
