"""Reads from a replica, with a bound on how old their answers are.

The bound is ensured by positions in the primary's log, not by clocks. A read requires a position that the primary had
at most `staleness` seconds ago, and after the last completed write of this store; the replica is used once it has
reached that position. A replica that has not reached it gets `LAG` seconds; then reads go to the primary for
`PRIMARY_FOR`.
"""

from __future__ import annotations

import logging
import math
import time
from typing import Any, Protocol, TypeVar

from roost.databases.engine import ServerEngine, Wait
from roost.errors import ConnectionLost, ReadOnly

log = logging.getLogger("roost")

LAG = 0.1  # seconds that a replica may take to reach a position
PRIMARY_FOR = 1.0  # seconds for which the primary is read if no replica is found, or none is up to date
SHARE = 20  # the same, in multiples of the time that finding none took, if that is longer: a twentieth of the time
FIND = 2.0  # seconds that connecting to a replica may take; libpq treats 1 as 2


class Raw(Protocol):
    """The part of a driver's connection that tells which server it leads to."""

    only_reads: Any
    home: str

    def close(self) -> None:
        """Close it."""


R = TypeVar("R", bound=Raw)


class Replicas:
    """The positions of a store's servers, as far as known.

    staleness: seconds; None: reads go to the primary.
    """

    def __init__(self, staleness: float | None) -> None:
        self.staleness = staleness
        self.wrote = 0.0  # by the monotonic clock: when a write of this store was answered last
        self.answered: dict[str, float] = {}  # by Galera's nodes: when a call was answered there last
        self._known = -math.inf, ""  # when the primary was asked for its position, and its answer
        self._late = 0.0  # the time until which the primary is read

    def __bool__(self) -> bool:
        """Whether to look for a replica."""
        return self.staleness is not None and time.monotonic() >= self._late

    def leave(self, lost: float = 0.0) -> None:
        """Send reads to the primary for a while.

        lost: seconds for which a replica was looked for.
        """
        self._late = time.monotonic() + max(PRIMARY_FOR, SHARE * lost)

    def is_up(self, connection: Any) -> bool:
        """Return whether a replica has all data that a read must see; wait briefly for it to catch up."""
        assert self.staleness is not None
        asked, position = self._known
        now = time.monotonic()
        if asked <= max(now - self.staleness, self.wrote):
            position = _ask_primary(connection)
            self._known = now, position
        if position != connection.reached:
            if not connection.reaches(position, LAG):
                self.leave()
                return False
            connection.reached = position
        return True


def at_home(engine: ServerEngine, raw: R, home: str) -> R:
    """Return a new connection if its server is the one that accepts writes; otherwise close it and raise.

    Where the URL has one host, a server that only reads will do, unless another one has accepted writes before.
    """
    if not raw.only_reads:
        if engine.home not in ("", home):
            engine.events.count("moves")
            log.warning("%s: %s is asked from now on, no longer %s", engine.place, home, engine.home)
        engine.home = home
    elif engine.several or engine.home not in ("", home):
        raw.close()
        engine.reached = True  # the URL is right: a server that accepts writes may appear soon
        raise ConnectionLost(f"{engine.place}: {home} only reads")
    raw.home = engine.home
    return raw


def _ask_primary(connection: Any) -> str:
    # Uses a connection to the primary that belongs to the reader's connection, and is closed with it.
    while True:
        try:
            if connection.primary is None:
                connection.primary = connection.engine.connect(connection.wait)
            primary = connection.primary
            primary.wait = Wait(connection.wait.deadline)
            primary.look()
            position: str = primary.position()
            return position
        except (ConnectionLost, ReadOnly):
            connection.leave_primary()
            connection.pause(connection.wait)
