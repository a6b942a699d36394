"""What a turn has room for: bytes of answers, and seconds. What it has no room for is played in a later turn.

A turn always has room for its first request, so everybody gets on; and one request has limits of its own.
"""

from __future__ import annotations

from math import inf
from time import monotonic
from typing import NamedTuple


class Limits(NamedTuple):
    """What a turn, and each of its requests, may take."""

    answers: float = inf  # bytes of all answers of a turn
    seconds: float = inf  # of a turn, its BEGIN and COMMIT not counted
    request: float = inf  # seconds of one request in the database
    answer: float = inf  # bytes of one answer


ANY = Limits()


class Room:
    """What is left of it.

    >>> room = Room(Limits(answers=100))
    >>> room.take(60), room.take(60), room.open
    (True, False, False)
    """

    __slots__ = ("deadline", "left", "open")

    def __init__(self, limits: Limits) -> None:
        self.left = limits.answers
        self.deadline = monotonic() + limits.seconds
        self.open = True

    def take(self, size: int) -> bool:
        """Count an answer; return whether there may be another."""
        self.left -= size
        self.open = self.left > 0 and monotonic() < self.deadline
        return self.open
