"""The statistics of a store."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields

BUCKETS = 64


class Histogram:
    """Counts numbers by powers of two: bucket n counts those from 2 ** (n - 1) to 2 ** n - 1.

    The numbers are from 0 to 2 ** 63 - 1. Only one thread may add.

    >>> sizes = Histogram()
    >>> for size in (1, 1, 1, 6, 40):
    ...     sizes.add(size)
    >>> len(sizes), sizes.total, sizes.at_most(0.5), sizes.at_most(0.99)
    (5, 49, 1, 63)
    """

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * BUCKETS
        self.total = 0

    def add(self, number: int, times: int = 1) -> None:
        self.counts[number.bit_length()] += times
        self.total += times * number

    def __len__(self) -> int:
        return sum(self.counts)

    def __add__(self, other: Histogram) -> Histogram:
        found = Histogram()
        found.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        found.total = self.total + other.total
        return found

    def at_most(self, share: float) -> int:
        """Return a bound that this share of the numbers does not exceed: the upper end of a bucket; 0 if empty."""
        left = share * len(self)
        for bucket, count in enumerate(self.counts):
            left -= count
            if count and left <= 0:
                return int(2**bucket) - 1
        return 0


@dataclass(slots=True)
class Stats:
    """The statistics of a store since it was made, in this process."""

    batches: int = 0  # transactions committed, including those that only read
    operations: int = 0  # operations in these transactions
    waits: int = 0  # batches that waited for a lock of another session
    retries: int = 0  # transactions that were undone and run again
    overlaps: int = 0  # operations of a declaration that is not the stored one, while a change is deployed
    slow: int = 0  # calls that left their batch to wait for a row or a table that another transaction had locked
    reconnects: int = 0  # connections that were lost, or left, and replaced
    outages: int = 0  # waits for a server that was down, or did not accept writes
    moves: int = 0  # changes to another server of those that the URL names
    lookups: int = 0  # COMMITs whose answer was lost and whose outcome was looked up
    unknown: int = 0  # calls whose outcome could not be looked up: `OutcomeUnknown`
    # Operations of each transaction.
    sizes: Histogram = field(default_factory=Histogram, repr=False, compare=False)
    # Microseconds from each call to its COMMIT. Calls that share a COMMIT count with the time of the first one.
    micros: Histogram = field(default_factory=Histogram, repr=False, compare=False)


def summed(counted: Iterable[Stats]) -> Stats:
    """Return the sums. Single operations add nothing to `sizes` when they are counted; here they are added as 1."""
    found = Stats()
    for each in counted:
        for one in fields(Stats):
            setattr(found, one.name, getattr(found, one.name) + getattr(each, one.name))
    found.sizes.add(1, found.batches - len(found.sizes))
    return found
