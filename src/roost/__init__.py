"""Roost: fast-moving data kept in the SQL database you already run, in tables that look after themselves."""

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
    Mismatch,
    Missing,
    OutcomeUnknown,
    Overflow,
    ReadOnly,
    Refused,
    StatementFailed,
    TimedOut,
)
from roost.known import Stats
from roost.plans.checks import Violation
from roost.runner import AsyncRunner, Runner
from roost.store import AsyncStore, Store
from roost.structures import Capped, Counter, MemcachedSet, Ring, Set, Structure
from roost.structures.index import Index, Where, While
from roost.structures.memcached import SetInfo
from roost.structures.operation import Operation
from roost.structures.rows import Entry
from roost.structures.types import binary, decimal, text

__all__ = [
    "AsyncRunner",
    "AsyncStore",
    "Busy",
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
    "Index",
    "Invalid",
    "MemcachedSet",
    "Mismatch",
    "Missing",
    "Operation",
    "OutcomeUnknown",
    "Overflow",
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
    "TimedOut",
    "Violation",
    "Where",
    "While",
    "binary",
    "decimal",
    "text",
]
