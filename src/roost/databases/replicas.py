"""Which of several servers a connection is made to, and again after it was lost; reads from replicas, bounded in age.

The bound is ensured by positions in the primary's log, not by clocks. A read requires a position that the primary had
at most `staleness` seconds ago, and after the last completed write of this store; the replica is used once it has
reached that position. A replica that has not reached it gets `LAG` seconds; then reads go to the primary for
`PRIMARY_FOR`.
"""

from __future__ import annotations

import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any, TypeVar

from roost.databases.engine import Connection, Engine, Trace, Wait
from roost.databases.waits import THREAD, Waits
from roost.dialects.dialect import LEAVES, Control
from roost.errors import Busy, CannotOpen, Conflict, ConnectionLost, Invalid, ReadOnly

log = logging.getLogger("roost")

LAG = 0.1  # seconds that a replica may take to reach a position
PRIMARY_FOR = 1.0  # seconds for which the primary is read if no replica is found, or none is up to date
SHARE = 20  # the same, in multiples of the time that finding none took, if that is longer: a twentieth of the time
FIND = 2.0  # seconds that connecting to a replica may take; libpq treats 1 as 2

T = TypeVar("T")
H = TypeVar("H")
R = TypeVar("R", bound=Any)  # a driver's connection, `Watched`


class Replicas:
    """The positions of a store's servers, as far as known.

    staleness: seconds; None: reads go to the primary.
    """

    def __init__(self, staleness: float | None) -> None:
        self.staleness = staleness
        self.wrote = 0.0  # by the monotonic clock: when this store was last answered by a server that writes
        self.joined: dict[int, Callable[[], bool]] = {}  # see `joins`
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
        self._end_joined()
        asked, position = self._known
        now = time.monotonic()
        if self.joined or asked <= max(now - self.staleness, self.wrote):
            position = _ask_primary(connection)
            self._known = now, position
        if position != connection.reached:
            if not connection.reaches(position, LAG):
                self.leave()
                return False
            connection.reached = position
        return True

    def joins(self, number: int, is_open: Callable[[], bool]) -> None:
        """Note that a call has written on a connection of the application's, which may yet commit it.

        number: the connection's. is_open: whether its transaction may not have ended.
        """
        self._end_joined()
        self.joined[number] = is_open

    def _end_joined(self) -> None:
        for number, is_open in [*self.joined.items()]:
            if not is_open():
                if self.joined.get(number) is is_open:
                    self.joined.pop(number, None)
                self.wrote = time.monotonic()


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
            return str(primary.position())
        except (ConnectionLost, ReadOnly):
            connection.leave_primary()
            connection.pause(connection.wait)


PAUSE = 0.05  # seconds between two attempts to reach a server that is down
ROLE = 1.0  # seconds after which a server is asked again whether it still accepts writes
STANDBY = 10.0  # the same, if no server that accepts writes was found behind the URL's one host


class Reconnecting(Connection, ABC):
    """A connection that is replaced when it is lost or is connected to the wrong server.

    follows: it may lead to a replica.
    """

    failures: type[Exception]  # the base of the driver's errors

    def __init__(self, engine: ServerEngine, wait: Wait, follows: bool) -> None:
        self.engine = engine
        self.wait = wait
        self.broken = False
        self.raw: Any = None
        self.primary: Reconnecting | None = None  # of a replica's connection: the one that reads the primary's position
        self.reached: str | None = None  # the position that the replica is known to have
        self._follows = follows
        self._begin: list[str] = []  # the statements to be sent with the transaction's first statement
        self._mark = ""  # the beginning of each text of the transaction
        self._away = False  # no server that accepts writes was found at once
        self._since = 0.0  # by the monotonic clock: when it was connected
        self._role_known = 0.0  # until then the server is assumed to accept writes
        self._trace = engine.trace
        self._connect(wait)

    def _anew(self, work: Callable[[], T], wait: Wait) -> T:
        # Runs on a new connection, and repeats if that is lost as well.
        callers, self.wait = self.wait, wait
        try:
            while True:
                try:
                    self.reconnect(wait)
                    return work()
                except (ConnectionLost, ReadOnly):  # another server may accept writes from now on
                    self.pause(wait)
        finally:
            self.wait = callers

    def _find_writing(self) -> None:
        if self.only_reads():
            raise ConnectionLost(f"{self.engine.place}: the server only reads")

    def _has_moved(self) -> bool:
        # A server that has become a replica lags behind, and a read alone does not reveal that.
        if self._follows and self.raw.replica:
            return False  # `is_current` checks it
        if (self._follows and self.engine.replicas) or self._is_elsewhere():
            return True
        if time.monotonic() > self._role_known:
            self._trust()
            return self.only_reads()
        return False

    def _trust(self) -> None:
        self._role_known = time.monotonic() + (ROLE if self.engine.home else STANDBY)

    def _is_elsewhere(self) -> bool:
        # Where several servers behind one host accept writes, connections would replace each other all the time; so a
        # new one is kept if its server still does.
        return bool(self.raw.home != self.engine.home) and (
            self.engine.several or self.raw.only_reads or time.monotonic() > self._since + ROLE or self.only_reads()
        )

    def is_current(self) -> bool:
        """Return whether this server has all data that reads have returned by now, the store's own writes included."""
        if self._follows and self.raw.replica:
            return bool(self.engine.replicas.is_up(self))
        return not self._is_elsewhere()

    def _begin_somehow(self, word: Control) -> None:
        # The server may have closed an idle connection, or may have been restarted: nothing is lost with it.
        left = 0
        while True:
            try:
                self.look()
                self.begin(word)
                self._away = False
                return
            except ConnectionLost:
                self.pause(self.wait)
                self.reconnect(self.wait)
            except (Busy, Conflict):  # the same batch: another session holds writers' rows, or the gaps between them
                self.settle()
                if self.wait.left <= 0:
                    raise
                self.engine.waits.sleep(PAUSE * self.engine.random.random())
            except ReadOnly:  # raised for the first batch of a connection, whose writer is stored with BEGIN
                left += 1
                self.settle()
                if left > LEAVES:
                    raise
                self._leave()

    def look(self) -> None:
        """Connect to the right server, if this is another one."""
        while self.broken or (self.engine.moves and self._has_moved()):
            self.reconnect(self.wait)

    def leave_primary(self) -> None:
        primary, self.primary = self.primary, None
        if primary is not None:
            primary.hang_up()

    def _leave(self) -> None:
        # Re-raises the error being handled if no server was found that accepts writes. If this one does, it may have
        # become the primary since.
        if self.only_reads():
            try:
                self._anew(self._find_writing, self.wait)
            except ConnectionLost:
                pass
            else:
                return
            raise

    def reconnect(self, wait: Wait) -> None:
        """Reconnect, with as many attempts as there is time for; raise the error of the last attempt."""
        self._begin, self._mark = [], ""
        if self.raw.replica:  # it may hang: the primary is used at once
            self.engine.replicas.leave()
        self.hang_up()
        try:
            self._connect(wait)
        except Invalid as error:  # the URL is right: the server's settings have changed
            raise CannotOpen(str(error)) from error.__cause__
        self.engine.events.count("reconnects")
        self.broken = False

    def _connect(self, wait: Wait) -> None:
        waits = self.engine.waits
        while True:
            try:
                self.raw = waits.call(
                    partial(self.engine.open, wait.answer, self._follows and bool(self.engine.replicas))
                )
                break
            except ConnectionLost as error:
                if not self.engine.reached:  # nothing was lost: the URL may be wrong
                    raise CannotOpen(str(error)) from error.__cause__
                self.pause(wait)
        self._watch()
        self.engine.reached = True
        self._since = time.monotonic()
        self._trust()
        self.reached = None

    def _watch(self) -> None:
        try:
            self.raw.watch = self.engine.waits.watch(self.raw.fileno())
        except (self.failures, OSError) as error:  # the first text that is sent on it fails without waiting
            log.debug("a connection was closed when it had just been opened: %s", error)

    def hang_up(self) -> None:
        self.raw.unwatch()
        self.close_raw()

    def pause(self, wait: Wait) -> None:
        """Wait before another attempt; if there is no time for one, re-raise the error being handled."""
        if not self._away:
            self._away = True
            self.engine.events.count("outages")
        if wait.left <= PAUSE:
            raise
        self.engine.waits.sleep(PAUSE * (0.5 + self.engine.random.random() / 2))

    @abstractmethod
    def only_reads(self) -> bool:
        """Return whether the server is a replica, or a standby."""

    @abstractmethod
    def begin(self, word: Control) -> None:
        """Begin a transaction for a batch, NOWAIT, alone or for reading, or store in `_begin` how to begin it."""

    @abstractmethod
    def failed(self, error: Any, sql: str) -> Exception:
        """Return the error to raise for an error of the driver."""

    @abstractmethod
    def close_raw(self) -> None:
        """Close the driver's connection, in whatever state it is."""
