"""Limits for one turn of a server: bytes of answers, and seconds. The remaining work is left to a later turn.

A turn always runs its first request, so every client makes progress; a single request has separate limits.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import NamedTuple


class Limits(NamedTuple):
    """The limits of a turn, and of each of its requests."""

    answers: float = inf  # bytes of all answers of a turn
    seconds: float = inf  # of a turn, without its BEGIN and COMMIT
    request: float = inf  # seconds of one request in the database
    answer: float = inf  # bytes of one answer, and of one value


class Budget:
    """The part of the limits that is left.

    >>> budget = Budget(Limits(answers=100))
    >>> budget.take(60), budget.take(60), budget.open
    (True, False, False)
    """

    __slots__ = ("_clock", "deadline", "left", "limits", "open", "until", "used")

    def __init__(self, limits: Limits = Limits(), clock: Callable[[], float] = lambda: 0.0) -> None:  # noqa: B008
        self._clock = clock
        self.limits = limits
        self.until = inf  # by the clock: the time until which the database may work on the present request
        self.used = 0  # bytes of the present request's rows
        self.begin()

    def begin(self, more: float = 0.0) -> None:
        """Begin a turn. more: seconds that it has in addition to the limit."""
        self.left = self.limits.answers
        self.deadline = self._clock() + self.limits.seconds + more
        self.open = True

    def take(self, size: int) -> bool:
        """Count the bytes of an answer; return whether another one is allowed."""
        self.left -= size
        self.open = self.left > 0 and self._clock() < self.deadline
        return self.open

    @property
    def late(self) -> bool:
        return self._clock() >= self.deadline

    @property
    def goes_on(self) -> bool:
        """Whether the present run may fetch more rows."""
        return self.take(0) and self.used < self.left

    def run(self, writes: bool) -> None:
        """Begin a run. A run that reads may be interrupted at the end of the turn's time, and is then tried alone."""
        self.until = self._clock() + self.limits.request if writes else self.deadline
        self.used = 0

    def request(self) -> None:
        """Begin a single request."""
        self.until = self._clock() + self.limits.request
        self.used = 0

    def unlimited(self) -> None:
        """Begin work that belongs to no client: BEGIN, COMMIT, reading the schema."""
        self.until = inf
        self.used = 0
