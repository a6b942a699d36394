"""What the pages read, each within a second: the catalog, what is measured, and what `reading` has of a structure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, NamedTuple, TypeVar

import roost
from roost.catalog.catalog import listed
from roost.catalog.measure import Measure, measure
from roost.console.reading import WATCHED, Reading, watched
from roost.console.samples import Sample, Samples
from roost.errors import Error, Invalid, Missing
from roost.structures.plan import Context
from roost.structures.registry import from_definition
from roost.structures.structure import Structure

T = TypeVar("T")

SECONDS = 1.0  # for all that a page reads


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
        """Return a structure in the database's words."""
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

    def overview(self) -> list[Listed]:
        """Return the structures with what was measured, as far as the time goes."""
        return [self.measured(entry) for entry in self.catalog()]

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
    keys = (yield from watched(plan, context)) if found.keys and found.keys.n <= WATCHED else {}
    return found, keys
