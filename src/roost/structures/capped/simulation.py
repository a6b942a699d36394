"""Simulates one key's capped collection in Python: the effect of a run of adds and removes, before it is written."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from roost.dialects.dialect import Row
from roost.errors import Duplicate, Full
from roost.structures.capped.adds import Request
from roost.structures.capped.declaration import Capped


class Miscounted(Exception):
    """The head's count requires evicting a row that is among the newest `keep` sequences, or that does not exist."""


class Game:
    """One key's collection as a run of operations changes it, before anything is written."""

    def __init__(self, structure: Capped[Any, Any]) -> None:
        self.structure = structure
        self.sequence = 0
        self.n = 0
        self.adds = 0
        self.ids: dict[Row, int] = {}  # the ids that the run names, with their sequence; 0: does not exist
        self.stored: set[Row] = set()  # those of them that existed before
        self.line: deque[tuple[Row, int]] = deque()  # the oldest rows, oldest first, then the run's own
        self.put: dict[Row, tuple[Row, int]] = {}  # rows to write
        self.dead: dict[Row, None] = {}  # rows to delete
        self.change = 0  # the change of the count so far
        self.changed = False
        self.recounted = False

    def may_evict(self) -> bool:
        """Whether an add of the run may have to evict a row."""
        return self.structure.on_full == "evict" and self.n + self.adds > self.structure.keep

    def victims(self) -> int:
        """The number of oldest rows that the run may need: those that it evicts, and those that it names."""
        return max(0, self.n + self.adds - self.structure.keep) + len(self.stored) + len(self.dead)

    def find(self, id_: Row, place: Row) -> None:
        """Store the sequence of an id that exists."""
        self.ids[id_] = place[0]
        self.stored.add(id_)

    def line_up(self, oldest: Sequence[Row]) -> None:
        """Put the oldest stored rows, which end in their sequences, before those that the run has added."""
        self.line = deque([(row[:-1], row[-1]) for row in oldest if row[:-1] not in self.dead])
        self.line.extend((id_, sequence) for id_, (_, sequence) in self.put.items())

    def mend(self, counted: int) -> None:
        """Correct the count to the number of rows that are stored."""
        self.n = counted + self.change
        self.recounted = self.changed = True

    def play(self, request: Request) -> Any:
        """Return the result of one operation; raise `Miscounted` before anything is changed by it."""
        structure, id_ = self.structure, request.id
        there = self.ids[id_]
        if request.others is None:
            if there:
                self._lose(id_)
            return bool(there)
        if there:
            if structure.on_duplicate == "error":
                return Duplicate(f"{request.op!r}: {structure.id.value(id_)!r} is there already")
            self.put.pop(id_, None)  # rows that are written last are evicted last
        else:
            if self.n >= structure.keep and structure.on_full == "reject":
                if not self.recounted:
                    raise Miscounted
                return Full(f"{request.op!r}: the collection holds {self.n} rows; keep is {structure.keep}")
            while self.n >= structure.keep:
                self._evict()
            self.n += 1
            self.change += 1
        self.sequence += 1
        self.ids[id_] = self.sequence
        self.put[id_] = (request.others, self.sequence)
        self.line.append((id_, self.sequence))
        self.changed = True
        return None

    def _evict(self) -> None:
        line = self.line
        while line and self.ids.get(line[0][0], line[0][1]) != line[0][1]:
            line.popleft()  # the run has removed or refreshed it
        protected = not line or line[0][1] > self.sequence + 1 - self.structure.keep
        if protected and not self.recounted:
            raise Miscounted
        id_, _ = line.popleft()
        self._lose(id_)

    def _lose(self, id_: Row) -> None:
        if id_ in self.ids:
            self.ids[id_] = 0
        self.put.pop(id_, None)
        self.dead[id_] = None
        self.n -= 1
        self.change -= 1
        self.changed = True
