"""RateLimit: how often a key may do something. This is the public API; it checks values and makes operations."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar, overload

from roost.dialects.dialect import MOST_ANSWER
from roost.errors import Invalid
from roost.structures.clock import duration
from roost.structures.operation import Operation
from roost.structures.structure import Group, Structure, column_facts, key_from
from roost.types.column_types import ColumnType, whole
from roost.types.columns import Column

K = TypeVar("K")

MOST = 2**62  # of limit times window: the computation adds two such products in 64 bits
RESERVED = frozenset(["part", "remaining", "restored", "retry_after", "tat"])  # columns beside the key's

_MICROSECOND = dt.timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Taken:
    """The result of `take`.

    allowed: whether the request is allowed; only then was it counted.
    remaining: how many more requests are allowed at once, now.
    retry_after: seconds after which the same `take` will be allowed, if nobody else takes any in the meantime; 0.0 if
        it was allowed.
    """

    allowed: bool
    remaining: int
    retry_after: float


class RateLimit(Structure, Generic[K]):
    """Limits how often each key may do something: at most `limit` times at once, and then once every `per / limit`.

    name: lower-case identifier, at most 40 characters.
    key: the type of a key, as for `roost.Counter`.
    limit: how many requests a key that made none for `per` may make at once.
    per: the window, a timedelta or seconds: the time in which the whole limit is restored.

    In any time t a key is allowed at most `limit + t * limit / per` requests, however many processes take at once. The
    algorithm is the generic cell rate algorithm (ITU-T I.371, annex A; for requests, see
    https://brandur.org/rate-limiting). Requests are restored evenly, one every `per / limit`, not all at the end of a
    window; so there is no edge of a window at which twice as many could pass. It is computed in whole numbers, without
    rounding, by the database's clock.

    A key has one row, which is deleted some time after the limit is fully restored: a bounded number of rows with each
    write. A read decides whether a request is refused; a refused request writes and locks nothing.

    >>> import roost
    >>> logins = roost.RateLimit("logins", limit=2, per=60)
    >>> with roost.Store("sqlite://") as store:
    ...     store.create(logins)
    ...     [store.run(logins.take("ada")).allowed for _ in range(3)]
    [True, True, False]
    """

    kind = "rate_limit"
    options = ("limit", "window")
    reads: ClassVar[tuple[str, ...]] = ("peek",)

    @overload
    def __init__(self: RateLimit[str], name: str, *, limit: int, per: dt.timedelta | float) -> None: ...
    @overload
    def __init__(self, name: str, *, key: type[K] | ColumnType[K], limit: int, per: dt.timedelta | float) -> None: ...

    def __init__(self, name: str, *, key: Any = str, limit: int, per: dt.timedelta | float) -> None:
        super().__init__(name, Group.declared(name, "key", key))
        for column in self.key.columns:
            if column.name.lower() in RESERVED:
                raise Invalid(f"{name}: a column cannot be called {column.name!r}, which is a column of Roost's own")
        found = whole(limit, 1, MOST_ANSWER - 1)
        if found is None:
            raise Invalid(f"{name}: limit is a whole number from 1 on, not {limit!r}")
        self.limit = found
        self.window = duration(f"{name}: per", per, MOST // found)
        self._define(
            {"name": name, "key": key, "limit": limit, "per": per},
            key=column_facts(self.key.columns),
            limit=self.limit,
            window=self.window,  # in microseconds
        )

    @property
    def per(self) -> dt.timedelta:
        """The window."""
        return self.window * _MICROSECOND

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the key."""
        return self.key.columns

    def take(self, key: K, n: int = 1) -> Operation[Taken]:
        """Take `n` at once, 1 to `limit`; if fewer remain, take none."""
        found = whole(n, 1, self.limit)
        if found is None:
            raise Invalid(f"{self.name}: {n!r} cannot be taken at once; it is a whole number from 1 to {self.limit:,}")
        return Operation(self, "take", (self.key.check(key), found))

    def peek(self, key: K) -> Operation[Taken]:
        """Return what `take` of one would return, without taking it; `remaining` is how many there are now."""
        return Operation(self, "peek", (self.key.check(key),))

    def clear(self, key: K) -> Operation[int]:
        """Restore the key's whole limit; return 1 if some of it was still taken, else 0."""
        return super().clear(key)

    def keys(self, after: K | None = None, n: int = 100) -> Operation[list[K]]:
        """Read the first `n` keys after `after` that have taken some within `per`, in key order."""
        return super().keys(after, n)

    @classmethod
    def from_facts(cls, name: str, facts: dict[str, Any]) -> RateLimit[Any]:
        """Make the declaration from the facts of a definition."""
        return cls(
            name,
            key=key_from(name, "key", facts["key"]),
            limit=facts["limit"],
            per=facts["window"] * _MICROSECOND,
        )
