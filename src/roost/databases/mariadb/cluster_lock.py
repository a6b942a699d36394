"""The lock of those who make or change structures on Galera, for all nodes: GET_LOCK is one node's.

It is a committed row with a number of its owner. The owner renews it, on a connection of its own, as a statement that
changes a large table takes any time. Who was killed leaves it behind, and after ten seconds somebody else takes it.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from typing import Any, Protocol

import pymysql

from roost.databases.engine import ServerEngine, Wait
from roost.databases.reconnecting import PAUSE
from roost.errors import Busy, Conflict, Error

log = logging.getLogger("roost")

RENEWED = 1.0  # seconds from one renewal to the next
EXPIRES = 10  # seconds since the last renewal, by the node's clock, after which somebody else may take it
# Seconds for which it must not have changed either, by the clock of who takes it. While a node changes a table, all
# nodes wait with what was renewed meanwhile: it arrives at once with the end of that, and then once a second.
WATCHED = 3.0
LONGEST = 3600.0  # seconds that a node may change a table before it answers
GIVEN = 10  # attempts to give it back, where others try to take it

OWNER = f"writer = X'{'0' * 32}'"
LOOK = f"SELECT batch, at FROM roost_writers WHERE {OWNER}"
TAKE = f"INSERT IGNORE INTO roost_writers (writer, batch, at) VALUES (X'{'0' * 32}', %s, UTC_TIMESTAMP())"
SEIZE = f"""\
UPDATE roost_writers SET batch = %s, at = UTC_TIMESTAMP()
  WHERE {OWNER} AND batch = %s AND at = %s AND at < UTC_TIMESTAMP() - INTERVAL {EXPIRES} SECOND"""
RENEW = f"UPDATE roost_writers SET at = UTC_TIMESTAMP() WHERE {OWNER} AND batch = {{number}}"
GIVE = f"DELETE FROM roost_writers WHERE {OWNER} AND batch = %s"


class Asking(Protocol):
    """The connection on which the lock is taken and given back."""

    wait: Wait

    @property
    def engine(self) -> ServerEngine:
        """What opens another one."""
        ...

    def answer(self, sql: str, row: tuple[Any, ...] = ()) -> Any:
        """Run a statement outside of a transaction; return its rows, or how many it has changed."""
        ...


class ClusterLock:
    """The lock, as one connection has it or not. What is said for it is outside of transactions."""

    def __init__(self) -> None:
        self._number = 0  # by which it is had
        self._renewal: _Renewal | None = None

    def take(self, connection: Asking) -> None:
        """Wait for the lock, and have it renewed from then on; `Busy` where somebody else keeps it."""
        wait, engine = connection.wait, connection.engine
        number = uuid.uuid4().int >> 66
        seen: Any = None
        since = 0.0
        while True:
            try:
                found = connection.answer(LOOK)
                if found != seen:
                    seen, since = found, time.monotonic()
                if not found:
                    taken = connection.answer(TAKE, (number,))
                else:
                    taken = time.monotonic() - since > WATCHED and connection.answer(SEIZE, (number, *found[0]))
                if taken:
                    break
            except (Busy, Conflict):
                pass  # another node takes it in this moment
            if wait.left <= PAUSE:
                raise Busy(f"{engine.place}: another node is making or changing structures")
            time.sleep(PAUSE * (0.5 + engine.random.random()))
        self._number = number
        self._renewal = _Renewal(engine, number)
        self._renewal.start()

    def give(self, connection: Asking) -> None:
        """Give it back, where it is had."""
        number = self._number
        self.leave()
        for _ in range(GIVEN if number else 0):
            try:
                connection.answer(GIVE, (number,))
                break
            except (Busy, Conflict):  # another node tries to take it in this moment
                pass

    def leave(self) -> None:
        """Renew it no longer: the connection is lost, and what it did is over."""
        self._number = 0
        if self._renewal is not None:
            self._renewal.stopped.set()
            self._renewal = None


class _Renewal(threading.Thread):
    """Renews a lock until it is stopped."""

    def __init__(self, engine: ServerEngine, number: int) -> None:
        super().__init__(name="roost-cluster-lock", daemon=True)
        self.stopped = threading.Event()
        self._engine = engine
        self._text = RENEW.format(number=number)

    def run(self) -> None:
        """Connect with the first renewal: mostly there is none."""
        raw: Any = None
        while not self.stopped.wait(RENEWED):
            try:
                if raw is None:
                    raw = self._engine.open(EXPIRES)
                    raw.limit(LONGEST)
                raw.results(self._text)
            except (Error, pymysql.MySQLError) as error:
                log.debug("the lock of those who make structures was not renewed: %s", error)
                if raw is not None:
                    raw.close()
                    raw = None
        if raw is not None:
            raw.close()
