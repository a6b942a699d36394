"""What a store counts. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields

BUCKETS = 64


class Histogram:
    """How often numbers came, by powers of two: bucket n has those from 2 ** (n - 1) to 2 ** n - 1.

    Numbers from 0 to 2 ** 63 - 1; one thread adds.

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
        """Count a number, as often as it came."""
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
        """Return what this share of the numbers did not exceed: the upper end of a bucket; 0 where none came."""
        left = share * len(self)
        for bucket, count in enumerate(self.counts):
            left -= count
            if count and left <= 0:
                return int(2**bucket) - 1
        return 0


@dataclass(slots=True)
class Stats:
    """What a store has done since it was made, in this process."""

    batches: int = 0  # transactions committed, those that only read included
    operations: int = 0  # in them
    waits: int = 0  # times that a batch waited for a lock that somebody else held
    retries: int = 0  # transactions that were undone and run again
    overlaps: int = 0  # operations of a declaration that is not the stored one: a change is being deployed
    slow: int = 0  # calls that left their batch, to wait for a row or a table that another transaction had locked
    reconnects: int = 0  # connections that were lost, or left, and replaced
    outages: int = 0  # times that a server was waited for which was away, or did not write
    moves: int = 0  # changes of the server, of several that the URL names
    lookups: int = 0  # COMMITs whose answer was lost and whose outcome was looked up
    unknown: int = 0  # calls whose outcome could not be looked up: `OutcomeUnknown`
    # Operations of each transaction.
    sizes: Histogram = field(default_factory=Histogram, repr=False, compare=False)
    # Microseconds of each call, until its COMMIT. Those that share one are counted with the time of the first.
    micros: Histogram = field(default_factory=Histogram, repr=False, compare=False)


def summed(counted: Iterable[Stats]) -> Stats:
    """Return the sums. A call that was a transaction by itself has no size where it was counted: it is 1."""
    found = Stats()
    for each in counted:
        for one in fields(Stats):
            setattr(found, one.name, getattr(found, one.name) + getattr(each, one.name))
    found.sizes.add(1, found.batches - len(found.sizes))
    return found
