"""Which of several servers is asked, and reads from a replica, with a bound on how old their answers are.

The bound is ensured by positions in the primary's log, not by clocks. A read requires a position that the primary had
at most `staleness` seconds ago, and after the last completed write of this store; the replica is used once it has
reached that position. A replica that has not reached it gets `LAG` seconds; then reads go to the primary for
`PRIMARY_FOR`.
"""

from __future__ import annotations

import logging
import math
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, TypeVar

from roost.databases.engine import Engine, Trace, Wait
from roost.databases.waits import THREAD, Waits
from roost.errors import CannotOpen, ConnectionLost, ReadOnly

log = logging.getLogger("roost")

LAG = 0.1  # seconds that a replica may take to reach a position
PRIMARY_FOR = 1.0  # seconds for which the primary is read if no replica is found, or none is up to date
SHARE = 20  # the same, in multiples of the time that finding none took, if that is longer: a twentieth of the time
FIND = 2.0  # seconds that connecting to a replica may take; libpq treats 1 as 2


H = TypeVar("H")
R = TypeVar("R", bound=Any)  # a driver's connection, `Watched`


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


class ServerEngine(Engine):
    """One database of a server, or of several servers, one of which accepts writes."""

    reached = False  # the server was reached before: if it is away now, it may come back

    def __init__(
        self, place: str, prepares: bool, staleness: float | None, timeout: float, trace: Trace | None, random: Random
    ) -> None:
        super().__init__(place, timeout, trace, random)
        self.prepares = prepares
        self.replicas = Replicas(staleness)  # their state, for reads
        self.stale = staleness is not None
        self.waits: Waits = THREAD  # how its connections wait for the server
        self.several = False  # the URL names several servers, one of which is chosen
        self.moves = True  # another server may take the place of the one that accepts writes
        self.home = ""  # the server found last that accepts writes; connections to another one are abandoned

    @abstractmethod
    def open(self, timeout: float, replica: bool = False) -> Any:
        """Return a new driver connection within `timeout`, its limit for later waits too; to a replica if one is found.

        `ConnectionLost` if another attempt may succeed, `CannotOpen` if the server's refusal is final.
        """

    @abstractmethod
    def answers(self, timeout: float) -> bool:
        """Return whether the server responds to a connection attempt, even with a refusal."""

    def at_home(self, raw: R, home: str) -> R:
        """Return a new connection if its server is the one that accepts writes; otherwise close it and raise.

        Where the URL has one host, a server that only reads will do, unless another one has accepted writes before.
        """
        if not raw.only_reads:
            if self.home not in ("", home):
                self.events.count("moves")
                log.warning("%s: %s is asked from now on, no longer %s", self.place, home, self.home)
            self.home = home
        elif self.several or self.home not in ("", home):
            raw.close()
            self.reached = True  # the URL is right: a server that accepts writes may appear soon
            raise ConnectionLost(f"{self.place}: {home} only reads")
        raw.home = self.home
        return raw

    def open_writing(self, hosts: Mapping[str, H], timeout: float, open_: Callable[[H, float], R]) -> R:
        """Return a connection to the one of several servers, by their names, that accepts writes."""
        deadline = time.monotonic() + timeout
        failed: dict[str, CannotOpen] = {}
        # The server chosen last comes first. Sorting is stable: the others stay in the order of the URL.
        for home in sorted(hosts, key=lambda each: each != self.home):
            share = (deadline - time.monotonic()) / (len(hosts) - len(failed))
            try:
                return self.at_home(open_(hosts[home], share), home)
            except CannotOpen as error:
                failed[home] = error
        # One that may pass, if there is any.
        chosen = min(failed.values(), key=lambda each: not isinstance(each, ConnectionLost))
        said = [
            f"{home}: {str(each).removeprefix(f'{self.place}: ').removeprefix(f'{home} ')}"
            for home, each in failed.items()
        ]
        raise type(chosen)(f"{self.place}: {'; '.join(said)}") from chosen.__cause__

    def open_replica(self, hosts: Mapping[str, H], timeout: float, open_: Callable[[H, float], R]) -> R | None:
        """Return a connection to a server that only reads; None where none is found, and for a while none is sought."""
        begun = time.monotonic()
        for home in self.random.sample([*hosts], len(hosts)):
            if home == self.home:
                continue
            try:
                raw = open_(hosts[home], min(FIND, timeout / len(hosts)))
            except CannotOpen as error:
                log.debug("%s cannot be read: %s", home, error)
                continue
            if raw.only_reads:
                raw.replica = True
                return raw
            raw.close()
        self.replicas.leave(time.monotonic() - begun)
        return None


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
