"""What was written, as seen while somebody looks: rates, and the keys that grew most within a minute."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

MINUTE, LATELY = 60.0, 10.0  # seconds


class Sample(NamedTuple):
    """What was read at a moment: a structure's total, and that of each key where there are few."""

    at: float
    total: int
    keys: Mapping[Any, int]


class Samples:
    """The samples of the last minute, by structure; used by several threads.

    >>> samples = Samples()
    >>> samples.add("visits", Sample(0.0, 100, {5: 90, 7: 10}))
    >>> samples.add("visits", Sample(2.0, 120, {5: 95, 7: 25}))
    >>> samples.rate("visits"), samples.hot("visits")
    (10.0, [(7, 15), (5, 5)])
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, deque[Sample]] = {}

    def add(self, name: str, sample: Sample) -> None:
        """Add a sample; older ones than a minute go, and one that is less than half a second old stays alone."""
        with self._lock:
            kept = self._kept.setdefault(name, deque())
            if not kept or sample.at - kept[-1].at >= 0.5:
                kept.append(sample)
            while sample.at - kept[0].at > MINUTE:
                kept.popleft()

    def rate(self, name: str) -> float | None:
        """Return what was written per second lately; None before there are two samples."""
        with self._lock:
            kept: list[Sample] = [*self._kept.get(name, ())]
        if len(kept) < 2:
            return None
        last = kept[-1]
        first = next((each for each in kept[:-1] if last.at - each.at <= LATELY), kept[-2])
        return max(last.total - first.total, 0) / (last.at - first.at)

    def hot(self, name: str, n: int = 5) -> list[tuple[Any, int]]:
        """Return the keys to which most was written within the minute, each with how much."""
        with self._lock:
            kept = self._kept.get(name)
            if not kept:
                return []
            first, last = kept[0].keys, kept[-1].keys
        grown = [(key, total - first.get(key, 0)) for key, total in last.items() if first]
        return sorted([each for each in grown if each[1] > 0], key=lambda each: -each[1])[:n]
