"""How a connection finds the right one of several servers, and reconnects after it was lost."""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from roost.databases.engine import ServerEngine, Wait
from roost.databases.executor import ServerExecutor
from roost.dialects.dialect import LEAVES, Control
from roost.errors import Busy, CannotOpen, Conflict, ConnectionLost, Invalid, ReadOnly
from roost.structures.plan import Careful

T = TypeVar("T")

log = logging.getLogger("roost")

PAUSE = 0.05  # seconds between two attempts to reach a server that is away
ROLE = 1.0  # seconds after which one of several servers is asked again whether it still writes


class Reconnecting(ServerExecutor):
    """A connection that is replaced when it is lost or is connected to the wrong server.

    follows: it may lead to a replica.
    """

    def __init__(self, engine: ServerEngine, wait: Wait, follows: bool) -> None:
        self.engine = engine
        self.wait = wait
        self.broken = False
        self.raw: Any = None
        self.primary: Reconnecting | None = None  # the one that tells its position, of a connection to a replica
        self.reached: str | None = None  # the position that the replica is known to have
        self._follows = follows
        self._begin: list[str] = []  # what is to be sent with the transaction's first statement
        self._mark = ""  # what each text of the transaction begins with
        self._away = False  # no server that writes was found at once
        self._role_known = 0.0  # by the monotonic clock, until when the server is taken for the one that writes
        self.may_move = follows or engine.several  # it is asked before each use whether this is the server to ask
        super().__init__(None, engine.trace)
        self._connect(wait)

    def _anew(self, work: Callable[[], T], wait: Wait) -> T:
        # On a new connection, as often as that is lost as well.
        callers, self.wait = self.wait, wait
        try:
            while True:
                try:
                    self.reconnect(wait)
                    return work()
                except (ConnectionLost, ReadOnly):  # another server may write from now on
                    self.pause(wait)
        finally:
            self.wait = callers

    def _find_writing(self) -> None:
        if self.only_reads():
            raise ConnectionLost(f"{self.engine.place}: the server only reads")

    def stay(self) -> None:
        """Raise `Careful` if a batch has to check whether this is still the right server."""
        if self._follows and self.raw.replica:
            if not self.engine.replicas.is_up(self):
                raise Careful
        elif self.engine.several and (
            self.raw.home != self.engine.home
            or time.monotonic() > self._role_known
            or (self._follows and self.engine.replicas)
        ):
            raise Careful

    def _has_moved(self) -> bool:
        # A server that has become a replica lags behind, and a read alone does not reveal that.
        if self._follows and self.raw.replica:
            return False  # `is_current` asks it
        if self._follows and self.engine.replicas:
            return True
        if self.raw.home != self.engine.home:
            return True
        if time.monotonic() > self._role_known:
            self._role_known = time.monotonic() + ROLE
            return self.only_reads()
        return False

    def is_current(self) -> bool:
        """Return whether this server has all data that reads have returned by now, the store's own writes included."""
        if self._follows and self.raw.replica:
            return bool(self.engine.replicas.is_up(self))
        return not self.engine.several or self.raw.home == self.engine.home

    def _begin_somehow(self, word: Control) -> None:
        # The server may have closed an idle connection, or have been started anew: nothing is lost with it.
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
            except (Busy, Conflict):  # the same batch: somebody holds rows of other writers, or what is between them
                self.settle()
                if self.wait.left <= 0:
                    raise
                self.engine.waits.sleep(PAUSE * self.engine.random.random())
            except ReadOnly:  # to the first batch of a connection, whose writer is noted with BEGIN
                left += 1
                self.settle()
                if left > LEAVES:
                    raise
                self._leave()

    def look(self) -> None:
        """Connect to the right one of several servers, if this is another one."""
        while self.broken or (self.engine.several and self._has_moved()):
            self.reconnect(self.wait)

    def leave_primary(self) -> None:
        """Close the connection to the primary that tells its position."""
        primary, self.primary = self.primary, None
        if primary is not None:
            primary.hang_up()

    def _leave(self) -> None:
        # Raises the error that is handled where no server was found that writes. Where this one does, it may have been
        # made the one that writes since.
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
        if self.raw.replica:  # it may hang: its primary is asked at once
            self.engine.replicas.leave()
        self.hang_up()
        try:
            self._connect(wait)
        except Invalid as error:  # the URL is right: somebody has changed the server's settings
            raise CannotOpen(str(error)) from error.__cause__
        self.engine.events.count("reconnects")
        self.broken = False

    def _connect(self, wait: Wait) -> None:
        waits = self.engine.waits
        while True:
            try:
                self.raw = waits.call(
                    partial(self.engine.open, wait.left, self._follows and bool(self.engine.replicas))
                )
                break
            except ConnectionLost as error:
                if not self.engine.reached:  # nothing was lost: the URL may be wrong
                    raise CannotOpen(str(error)) from error.__cause__
                self.pause(wait)
        self._watch()
        self.engine.reached = True
        self._role_known = time.monotonic() + ROLE
        self.reached = None
        self._cursor = self.raw.cursor()

    def _watch(self) -> None:
        try:
            self.raw.watch = self.engine.waits.watch(self.raw.fileno())
        except (self.failures, OSError) as error:  # what is said on it first fails, and waits for nothing
            log.debug("a connection was closed when it had just been opened: %s", error)

    def hang_up(self) -> None:
        """Close the driver's connection, and wait for its socket no longer."""
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
    def settle(self) -> None:
        """Roll back what is open. Never raises."""

    @abstractmethod
    def begin(self, word: Control) -> None:
        """Begin a transaction for a batch, NOWAIT, alone or for reading, or leave in `_begin` how it is begun."""

    @abstractmethod
    def close_raw(self) -> None:
        """Close the driver's connection, in whatever state it is."""
