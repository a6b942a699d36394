"""Simulates one key's ranked collection in Python: the effect of a run of adds and removes, before it is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from typing import Any

from roost.dialects.dialect import Row
from roost.errors import Duplicate
from roost.structures.capped.adds import Request
from roost.structures.capped.simulation import Game, Miscounted
from roost.structures.ranked.declaration import Ranked


class RankedGame(Game):
    """One key's collection; the worst rows are in a heap, in which replaced and removed rows are skipped.

    score_of: makes the score of what is stored in its column.
    """

    structure: Ranked[Any, Any]

    def __init__(self, structure: Ranked[Any, Any], score_of: Callable[[Row], Row]) -> None:
        super().__init__(structure)
        self._score_of = score_of
        self._place = structure.columns.index(structure.score)
        self._scores: dict[Row, Any] = {}  # of the ids that the run names
        self._worst: list[tuple[Any, int, Row]] = []  # score, the sequence's negative, id

    def find(self, id_: Row, place: Row) -> None:
        """Take the score and the sequence of an id that is stored."""
        super().find(id_, place[1:])
        (self._scores[id_],) = self._score_of(place[:1])

    def line_up(self, oldest: Sequence[Row]) -> None:
        """Take the worst stored rows, together with those that the run has added."""
        self._worst = [(*self._score_of(row[-2:-1]), -row[-1], row[:-2]) for row in oldest if row[:-2] not in self.dead]
        self._worst += [(self._scores[id_], -sequence, id_) for id_, (_, sequence) in self.put.items()]
        heapify(self._worst)

    def play(self, request: Request) -> Any:
        """Return the result of one operation; raise `Miscounted` before anything is changed by it."""
        structure, id_, keep = self.structure, request.id, self.structure.keep
        if request.others is None:
            return super().play(request)
        score = request.op.args[0][self._place]
        if self.ids[id_]:
            if structure.on_duplicate == "error":
                return Duplicate(f"{request.op!r}: {structure.id.value(id_)!r} is there already")
            if structure.on_duplicate == "best" and score <= self._scores[id_]:
                return False
        else:
            if self.n >= keep:
                if score <= self._find_worst()[0]:
                    return False
                # Unlike the newest rows of a capped collection, no row is protected by its sequence. Counting reveals
                # a head's count that is too high; the cost is spread over `keep` adds.
                if (self.sequence + 1) % keep == 0 and not self.recounted:
                    raise Miscounted
                while self.n >= keep:
                    self._lose(self._find_worst()[2])
            self.n += 1
            self.change += 1
        self.sequence += 1
        self.ids[id_] = self.sequence
        self._scores[id_] = score
        self.put[id_] = (request.others, self.sequence)
        heappush(self._worst, (score, -self.sequence, id_))
        self.changed = True
        return True

    def _find_worst(self) -> tuple[Any, int, Row]:
        worst = self._worst
        while worst and (self.ids.get(worst[0][2], -worst[0][1]) != -worst[0][1] or self._is_gone(worst[0])):
            heappop(worst)
        if not worst and not self.recounted:
            raise Miscounted
        return worst[0]

    def _is_gone(self, row: tuple[Any, int, Row]) -> bool:
        # Evicted, and not named by the run.
        return row[2] in self.dead and row[2] not in self.ids
