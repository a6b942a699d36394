"""Limits for one turn of a server: bytes of answers, and seconds. The remaining work is left to a later turn.

A turn always runs its first request, so every client makes progress; a single request has separate limits.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import NamedTuple


class Limits(NamedTuple):
    """What a turn, and each of its requests, may take."""

    answers: float = inf  # bytes of all answers of a turn
    seconds: float = inf  # of a turn, its BEGIN and COMMIT not counted
    request: float = inf  # seconds of one request in the database
    answer: float = inf  # bytes of one answer, and of one value


class Budget:
    """What is left of it.

    >>> budget = Budget(Limits(answers=100))
    >>> budget.take(60), budget.take(60), budget.open
    (True, False, False)
    """

    __slots__ = ("_clock", "deadline", "left", "limits", "open", "until", "used")

    def __init__(self, limits: Limits = Limits(), clock: Callable[[], float] = lambda: 0.0) -> None:  # noqa: B008
        self._clock = clock
        self.limits = limits
        self.until = inf  # by the clock: until when the database may work on the present request
        self.used = 0  # bytes of its rows
        self.begin()

    def begin(self, more: float = 0.0) -> None:
        """Begin a turn; it has so many more seconds than others."""
        self.left = self.limits.answers
        self.deadline = self._clock() + self.limits.seconds + more
        self.open = True

    def take(self, size: int) -> bool:
        """Count an answer; return whether there may be another."""
        self.left -= size
        self.open = self.left > 0 and self._clock() < self.deadline
        return self.open

    @property
    def goes_on(self) -> bool:
        """Whether the present run may ask for more, with the rows that it has."""
        return self.take(0) and self.used < self.left

    def run(self, writes: bool) -> None:
        """Begin a run: one that reads may be interrupted when the turn has no more time, and is then tried alone."""
        self.until = self._clock() + self.limits.request if writes else self.deadline
        self.used = 0

    def request(self) -> None:
        """Begin a request by itself."""
        self.until = self._clock() + self.limits.request
        self.used = 0

    def unlimited(self) -> None:
        """Begin what is no client's: BEGIN, COMMIT, looking at the schema."""
        self.until = inf
        self.used = 0
