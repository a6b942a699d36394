"""Lease: a lock that ends by itself. What users call; it checks values and makes operations."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar, overload

from roost.errors import Invalid
from roost.structures.clock import duration
from roost.structures.operation import Operation
from roost.structures.structure import Group, Structure, column_facts, key_from
from roost.types.column_types import ColumnType, shown
from roost.types.columns import Column

K = TypeVar("K")

MOST = 10**15  # microseconds: about 31 years
HOLDER = Column("holder", ColumnType("text", 255))
RESERVED = frozenset(["expires", "holder", "token", "ttl"])  # columns beside the key's


@dataclass(frozen=True, slots=True)
class Grant(Generic[K]):
    """A granted lease.

    token: the fencing number. Of all grants of one key the later one has the larger; renewing keeps it. What is guarded
        by the lease refuses whoever comes with a smaller one than it has seen.
    expires: when it ends unless it is renewed, by the database's clock.
    """

    key: K
    holder: str
    token: int
    expires: dt.datetime


class Lease(Structure, Generic[K]):
    """Locks that end by themselves: each key has one holder at most, for a time that the holder can renew.

    name: lower-case identifier, at most 40 characters.
    key: the type of a key, as for `roost.Counter`.

    A holder that dies, or cannot reach the database, loses its lease when the time is over. It may not know at once: a
    process that was stopped for a while goes on as if it held it. So each grant has a `token`, which grows with every
    new holder; give it along with what you write elsewhere, and refuse there what comes with a smaller one. No token of
    a key is ever given twice, also not after its row has gone. `store.holding(...)` renews in the background.

    A row goes some time after its lease has ended: a bounded number with each write.

    >>> import roost
    >>> reports = roost.Lease("reports")
    >>> with roost.Store("sqlite://") as store:
    ...     store.create(reports)
    ...     grant = store.run(reports.acquire("daily", "worker 1", ttl=30))
    ...     store.run(reports.acquire("daily", "worker 2", ttl=30))
    ...     store.run(reports.holder("daily"))
    ...     store.run(reports.release(grant))
    'worker 1'
    True
    """

    kind = "lease"
    reads: ClassVar[tuple[str, ...]] = ("holder", "peek")

    @overload
    def __init__(self: Lease[str], name: str) -> None: ...
    @overload
    def __init__(self, name: str, *, key: type[K] | ColumnType[K]) -> None: ...

    def __init__(self, name: str, *, key: Any = str) -> None:
        super().__init__(name, Group.declared(name, "key", key))
        for column in self.key.columns:
            if column.name.lower() in RESERVED:
                raise Invalid(f"{name}: a column cannot be called {column.name!r}, which is a column of Roost's own")
        self._check_holder = HOLDER.checker(self.name)
        self._define({"name": name, "key": key}, key=column_facts(self.key.columns))

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the key, and the holder."""
        return (*self.key.columns, HOLDER)

    def acquire(self, key: K, holder: str, ttl: dt.timedelta | float) -> Operation[Grant[K] | None]:
        """Hold the key for `ttl` (a timedelta, or seconds); None where somebody else holds it.

        Where the same holder has it already, this renews it: it ends `ttl` from now, and keeps its token. So a holder
        is one worker, not a host: two that use the same name do not keep each other out.
        """
        return Operation(self, "acquire", (self.key.check(key), self._check_holder(holder), self._ttl(ttl)))

    def renew(self, grant: Grant[K], ttl: dt.timedelta | float) -> Operation[Grant[K] | None]:
        """Let a lease end `ttl` from now; None where it has ended before, even if nobody else has taken it."""
        return Operation(self, "renew", (*self._of(grant), self._ttl(ttl)))

    def release(self, grant: Grant[K]) -> Operation[bool]:
        """End a lease; False where it has ended before."""
        return Operation(self, "release", self._of(grant))

    def holder(self, key: K) -> Operation[str | None]:
        """Ask who holds the key; None where nobody does."""
        return Operation(self, "holder", (self.key.check(key),))

    def peek(self, key: K) -> Operation[Grant[K] | None]:
        """Ask for the grant of who holds the key; None where nobody does."""
        return Operation(self, "peek", (self.key.check(key),))

    def clear(self, key: K) -> Operation[int]:
        """End the lease of whoever holds the key; the answer is 1, or 0 where nobody did. Its tokens go on."""
        return super().clear(key)

    def forget(self, key: K) -> Operation[int]:
        """End the lease, as `clear` does: the row stays until its token may be forgotten."""
        return super().forget(key)

    def keys(self, after: K | None = None, n: int = 100) -> Operation[list[K]]:
        """Ask for the first `n` keys behind `after`, in key order, of those that somebody holds."""
        return super().keys(after, n)

    def _ttl(self, ttl: Any) -> int:
        return duration(f"{self.name}: ttl", ttl, MOST)

    def _of(self, grant: Any) -> tuple[Any, ...]:
        if not isinstance(grant, Grant):
            raise Invalid(f"{self.name}: {shown(grant)} is not a Grant")
        return self.key.check(grant.key), grant.token

    def column_at(self, operation: Operation[Any], path: Sequence[int]) -> str:
        """Return the name of the column whose value stands at a place in an operation's arguments."""
        return HOLDER.name if path[0] else self.key.names[path[-1]]

    @classmethod
    def from_facts(cls, name: str, facts: dict[str, Any]) -> Lease[Any]:
        """Make the declaration from the facts of a definition."""
        return cls(name, key=key_from(name, "key", facts["key"]))
