"""The cluster-wide lock on creating and altering structures on Galera: GET_LOCK covers one node only.

The lock is a committed row with its owner's number. The owner renews it on a separate connection, since a statement
that alters a large table may take any time. An owner that was killed leaves the row behind; after ten seconds another
process takes the lock over.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from typing import Any

import pymysql

from roost.databases.replicas import PAUSE, ServerEngine
from roost.errors import Busy, Conflict, Error

log = logging.getLogger("roost")

RENEWED = 1.0  # seconds from one renewal to the next
EXPIRES = 10  # seconds since the last renewal, by the node's clock, after which another process may take it over
# Seconds for which the row must also be unchanged, by the clock of the process that takes it over. While a node alters
# a table, no node applies renewals: they all arrive when it ends, and then one per second.
WATCHED = 3.0
LONGEST = 3600.0  # seconds that a node may spend altering a table before it answers
GIVEN = 10  # attempts to release the lock while others try to take it

OWNER = f"writer = X'{'0' * 32}'"
LOOK = f"SELECT batch, at FROM roost_writers WHERE {OWNER}"
TAKE = f"INSERT IGNORE INTO roost_writers (writer, batch, at) VALUES (X'{'0' * 32}', %s, UTC_TIMESTAMP())"
SEIZE = f"""\
UPDATE roost_writers SET batch = %s, at = UTC_TIMESTAMP()
  WHERE {OWNER} AND batch = %s AND at = %s AND at < UTC_TIMESTAMP() - INTERVAL {EXPIRES} SECOND"""
RENEW = f"UPDATE roost_writers SET at = UTC_TIMESTAMP() WHERE {OWNER} AND batch = {{number}}"
GIVE = f"DELETE FROM roost_writers WHERE {OWNER} AND batch = %s"


class ClusterLock:
    """The lock from the point of view of one connection, whose `answer` runs its statements outside of transactions."""

    def __init__(self) -> None:
        self._number = 0  # the owner's number while this connection holds the lock
        self._left = threading.Event()  # set when it is not to be renewed any more

    def take(self, connection: Any) -> None:
        """Wait for the lock and start renewing it; `Busy` if another process keeps it."""
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
                pass  # another node is taking it at this moment
            if wait.left <= PAUSE:
                raise Busy(f"{engine.place}: another node is making or changing structures")
            time.sleep(PAUSE * (0.5 + engine.random.random()))
        self._number = number
        self._left = threading.Event()
        name, arguments = "roost-cluster-lock", (engine, number, self._left)
        threading.Thread(target=_renew, args=arguments, name=name, daemon=True).start()

    def give(self, connection: Any) -> None:
        number = self._number
        self.leave()
        for _ in range(GIVEN if number else 0):
            try:
                connection.answer(GIVE, (number,))
                break
            except (Busy, Conflict):  # another node is trying to take it at this moment
                pass

    def leave(self) -> None:
        """Stop renewing: the connection is lost, and its work has ended."""
        self._number = 0
        self._left.set()


def _renew(engine: ServerEngine, number: int, left: threading.Event) -> None:
    # Until the lock is left. It connects only at the first renewal: usually there is none.
    raw: Any = None
    while not left.wait(RENEWED):
        try:
            if raw is None:
                raw = engine.open(EXPIRES)
                raw.limit(LONGEST)
            raw.results(RENEW.format(number=number))
        except (Error, pymysql.MySQLError) as error:
            log.debug("the lock of those who make structures was not renewed: %s", error)
            if raw is not None:
                raw.close()
                raw = None
    if raw is not None:
        raw.close()
