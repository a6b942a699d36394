"""What the pages read, each within a second: the catalog, what is measured, and what `reading` has of a structure."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any, NamedTuple, TypeVar

import roost
from roost.catalog.catalog import listed
from roost.catalog.measure import Measure, measure
from roost.console.reading import WATCHED, Reading, rows_of, watched
from roost.errors import Error, Invalid, Missing
from roost.structures.plan import Context
from roost.structures.registry import from_definition
from roost.structures.structure import Structure

T = TypeVar("T")

SECONDS = 1.0  # for all that a page reads
MINUTE, LATELY = 60.0, 10.0  # seconds, of what was written


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


class Listed(NamedTuple):
    """A line of the catalog: a structure, or what is wrong with its definition; and what was measured."""

    name: str
    structure: Structure | None
    problem: str = ""
    measure: Measure | None = None
    rate: float | None = None
    hot: Sequence[tuple[Any, int]] = ()


class Looker:
    """Reads for one page, from one store.

    samples: what was written, as it was seen by the pages before.
    seconds: for all that the page reads.
    """

    def __init__(self, store: roost.Store, samples: Samples, seconds: float = SECONDS) -> None:
        self.store = store
        self._samples = samples
        self._end = monotonic() + seconds

    def glance(self, reading: Callable[[Context], Reading[T]]) -> T:
        """Run a generator on the connection of reads, in what is left of the time."""
        return self.store._core.glance(reading, max(self._end - monotonic(), 0.001))

    def plan(self, structure: Structure) -> Any:
        return self.store._core.known.plan(structure)

    def catalog(self) -> list[Listed]:
        """Return the structures, with those whose definition cannot be read."""
        try:
            entries = self.glance(lambda _: listed(self.store._core.known.catalog))
        except Missing:
            return []
        found = []
        for name, _, definition in entries:
            try:
                found.append(Listed(name, from_definition(definition)))
            except Invalid as error:
                found.append(Listed(name, None, str(error)))
        return found

    def measured(self, entry: Listed) -> Listed:
        """Return a structure with what was measured, or why it was not."""
        if entry.structure is None:
            return entry
        if monotonic() >= self._end:
            return entry._replace(problem="not read: the page has had its time")
        try:
            found, keys = self.ask(_measuring, entry.structure)
        except Error as error:
            return entry._replace(problem=str(error))
        if found.written is not None:
            self._samples.add(entry.name, Sample(monotonic(), found.written, keys))
        rate, hot = self._samples.rate(entry.name), self._samples.hot(entry.name)
        return entry._replace(measure=found, rate=rate, hot=hot)

    def entry(self, name: str) -> Listed:
        """Return the structure of this name; `Missing` if there is none, `Invalid` if it cannot be read."""
        for entry in self.catalog():
            if entry.name == name:
                if entry.structure is None:
                    raise Invalid(entry.problem)
                return entry
        raise Missing(f"there is no structure {name!r}")

    def ask(self, reading: Callable[..., Reading[T]], structure: Structure, *args: Any) -> T:
        """Run one of the generators of `reading`, for a structure."""
        return self.glance(lambda context: reading(self.plan(structure), context, *args))


def _measuring(plan: Any, context: Context) -> Reading[tuple[Measure, dict[Any, int]]]:
    found = yield from measure(plan, context)
    if plan.structure.kind == "adopted":
        found = replace(found, rows=(yield from rows_of(plan, found.rows)))
    keys = (yield from watched(plan, context)) if found.keys and found.keys.n <= WATCHED else {}
    return found, keys
