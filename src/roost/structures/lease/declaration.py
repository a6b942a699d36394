"""Lease: a lock that expires. This is the public API; it checks values and makes operations."""

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

    token: the fencing number. A later grant of the same key has a larger token; renewing keeps it. The resource that
        the lease guards should reject a request whose token is smaller than one it has already seen.
    expires: the time at which the lease expires unless it is renewed, by the database's clock.
    """

    key: K
    holder: str
    token: int
    expires: dt.datetime


class Lease(Structure, Generic[K]):
    """Locks that expire: each key has at most one holder, for a time that the holder can renew.

    name: lower-case identifier, at most 40 characters.
    key: the type of a key, as for `roost.Counter`.

    A holder that dies, or cannot reach the database, loses its lease when the time is over. It may not notice at once:
    a process that was suspended for a while continues as if it still held the lease. Therefore each grant has a
    `token`, which grows with every new holder: send it with everything you write elsewhere, and reject writes there
    that come with a smaller token. No token of a key is ever issued twice, not even after its row was deleted.
    `store.holding(...)` renews in the background.

    Rows are deleted some time after their lease has ended: a bounded number with each write.

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
        """Acquire the key for `ttl` (a timedelta, or seconds); None if another holder has it.

        If the same holder has the key already, this renews the lease: it expires `ttl` from now and keeps its token. So
        a holder's name must belong to one worker, not to a host: two workers with one name do not exclude each other.
        """
        return Operation(self, "acquire", (self.key.check(key), self._check_holder(holder), self._ttl(ttl)))

    def renew(self, grant: Grant[K], ttl: dt.timedelta | float) -> Operation[Grant[K] | None]:
        """Renew a lease to end `ttl` from now; None if it has ended already, even if nobody else has acquired it."""
        return Operation(self, "renew", (*self._of(grant), self._ttl(ttl)))

    def release(self, grant: Grant[K]) -> Operation[bool]:
        """End a lease; False if it has ended already."""
        return Operation(self, "release", self._of(grant))

    def holder(self, key: K) -> Operation[str | None]:
        """Read the name of the key's holder; None if there is none."""
        return Operation(self, "holder", (self.key.check(key),))

    def peek(self, key: K) -> Operation[Grant[K] | None]:
        """Read the grant of the key's holder; None if there is none."""
        return Operation(self, "peek", (self.key.check(key),))

    def clear(self, key: K) -> Operation[int]:
        """End the key's lease, whoever holds it; return 1, or 0 if nobody did. Later tokens continue to grow."""
        return super().clear(key)

    def forget(self, key: K) -> Operation[int]:
        """End the lease, as `clear` does; the row stays until its token may be forgotten."""
        return super().forget(key)

    def keys(self, after: K | None = None, n: int = 100) -> Operation[list[K]]:
        """Read the first `n` keys after `after` that have a holder, in key order."""
        return super().keys(after, n)

    def _ttl(self, ttl: Any) -> int:
        return duration(f"{self.name}: ttl", ttl, MOST)

    def _of(self, grant: Any) -> tuple[Any, ...]:
        if not isinstance(grant, Grant):
            raise Invalid(f"{self.name}: {shown(grant)} is not a Grant")
        return self.key.check(grant.key), grant.token

    def column_at(self, operation: Operation[Any], path: Sequence[int]) -> str:
        """Return the name of the column whose value is at this path in an operation's arguments."""
        return HOLDER.name if path[0] else self.key.names[path[-1]]

    @classmethod
    def from_facts(cls, name: str, facts: dict[str, Any]) -> Lease[Any]:
        """Make the declaration from the facts of a definition."""
        return cls(name, key=key_from(name, "key", facts["key"]))
