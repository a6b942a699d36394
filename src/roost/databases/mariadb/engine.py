"""MariaDB and MySQL, by PyMySQL: one server, or several, one of which accepts writes.

The server tells which of the two it is, on the first connection, unless the URL does. Until then it counts as MariaDB.
"""

from __future__ import annotations

import logging
import math
import time
from random import Random
from typing import Any

import pymysql
from pymysql.constants import CLIENT

from roost.databases.engine import MOMENT, Trace, Wait
from roost.databases.mariadb import statements as texts
from roost.databases.mariadb.address import judged, read, told
from roost.databases.mariadb.connection import MariaDBConnection
from roost.databases.mariadb.errors import translate
from roost.databases.mariadb.rows import Reading
from roost.databases.mariadb.statements import own, too_small
from roost.databases.replicas import ServerEngine
from roost.dialects import MARIADB, Dialect
from roost.errors import Busy, CannotOpen, ConnectionLost, Error, Invalid, StatementFailed

log = logging.getLogger("roost")


CROWDED = (1203, 1226)  # errors at connect: the account has reached its maximum number of connections


class MariaDBEngine(ServerEngine):
    """One database of MariaDB, or of MySQL."""

    def __init__(self, url: str, *, timeout: float, trace: Trace | None, random: Random) -> None:
        address = read(url)
        super().__init__(address.place, address.prepares, address.staleness, timeout, trace, random)
        self._arguments, self._named = address.arguments, address.dialect
        self._hosts = {f"{host}:{port}": {"host": host, "port": port} for host, port in address.hosts}
        self._sync_wait, self._tls = address.sync_wait, address.tls
        self._asked = False  # whether a server has told what it is
        self.dialect = MARIADB
        if self._named is not None:
            self._speak(self._named)
        self.several = len(address.hosts) > 1
        self._node = ""  # the Galera node connected to last

    def connect(self, wait: Wait, *, writes: bool = True, create: bool = False) -> MariaDBConnection:
        return MariaDBConnection(self, wait, follows=not writes and not wait.lasts)

    def open(self, timeout: float, replica: bool = False) -> Reading:
        """Return a new connection of the driver; `Invalid` if the server is not the kind that the URL names."""
        if not self.several:
            raw = self._open({}, timeout)
            # Each node of Galera writes; and a pooler may have had another server answer than it sends writes to.
            return raw if raw.galera or raw.pooled else self.at_home(raw, raw.server)
        deadline = time.monotonic() + timeout
        if replica and (found := self.open_replica(self._hosts, timeout / 2, self._open)) is not None:
            return found
        return self.open_writing(self._hosts, deadline - time.monotonic(), self._open)

    def _open(self, host: dict[str, Any], timeout: float) -> Reading:
        limit = max(MOMENT, timeout)
        limit = min(limit, self._arguments.get("connect_timeout", limit))
        try:
            options = {**self._arguments, **host, **self._tls()}
        except Invalid as error:  # the URL is right: the files are being renewed
            raise ConnectionLost(str(error)) from error.__cause__
        limits = dict.fromkeys(("connect_timeout", "read_timeout", "write_timeout"), limit)
        try:
            raw = Reading(**{**options, **limits}, autocommit=True, client_flag=CLIENT.MULTI_STATEMENTS)
        except pymysql.MySQLError as error:
            found = self._translated(error)
            if isinstance(found, StatementFailed):  # no other statement has been sent
                if "init_command" not in self._arguments:
                    raise CannotOpen(str(found)) from error
                raise Invalid(f"{self.place}: init_command: {error.args[-1]} ({error.args[0]})") from error
            raise found from error
        except RuntimeError as error:  # the driver's, where a package is missing
            raise Invalid(f"{self.place}: {error}; or connect with TLS (ssl_mode=REQUIRED)") from error
        try:
            self._prepare(raw)
        except BaseException:
            raw.close()
            raise
        return raw

    def met(self, version: str) -> None:
        """Take a server's kind from the version that a driver was told, unless more is known: it may be a proxy's."""
        if self._named is None:
            self._speak(told(version))

    def _speak(self, dialect: Dialect) -> None:
        if dialect is not MARIADB and self.replicas.staleness is not None:
            raise Invalid(f"{self.place}: reads=replica is for MariaDB and PostgreSQL")
        if dialect is not self.dialect:
            self.dialect = dialect
            if self.heard is not None:
                self.heard(dialect)

    def answers(self, timeout: float) -> bool:
        try:
            self.open(timeout).close()
        except Error as error:
            return _is_servers(error.__cause__)
        return True

    def _prepare(self, raw: Reading) -> None:
        # The kind of server, and the session settings for queries outside of transactions: in one round trip, or in two
        # the first time.
        version: str = raw.get_server_info()  # type: ignore[no-untyped-call]
        waits = texts.WAITS.format(seconds=min(texts.MOST_SECONDS, max(1, math.ceil(self.timeout))))
        text = texts.WHICH
        try:
            if not self._asked:  # what follows depends on it
                self._named = self._judged(raw.results(text)[0][0][0], version)
                self._speak(self._named)
                self._asked = True
            sets = f"SET SESSION {own(self.dialect.name)}, {waits};\n{texts.SNAPSHOT}"
            text = f"{texts.WHICH};\n{sets};\n{texts.GALERA}"  # SHOW is refused where max_join_size is small
            ((which, packet, raw.server, raw.only_reads, number),), galera = raw.results(text)
            raw.pooled = number != raw.thread_id()  # type: ignore[no-untyped-call]
            self._judged(which, version)
            if wrong := too_small(packet):
                raise Invalid(f"{self.place}: {wrong}")
            raw.packet, raw.galera = packet, galera == [("wsrep_on", "ON")]
            if "init_command" in self._arguments:
                (((*charsets, database),),) = raw.results(texts.OF_SESSION)
                wanted = self._arguments["charset"], self._arguments["database"]
                if {*charsets} != {wanted[0]} or str(database).lower() != wanted[1].lower():
                    raise Invalid(f"{self.place}: init_command must not change the character set or the database")
            if raw.galera:
                self._join(raw)
        except pymysql.MySQLError as error:
            raise self._translated(error, text) from error

    def _judged(self, which: int, version: str) -> Dialect:
        try:
            return judged(self._named, which, version)
        except Invalid as error:
            raise Invalid(f"{self.place}: {error}") from None

    def _join(self, raw: Reading) -> None:
        # A Galera node. `ConnectionLost` if it accepts no queries, or is behind the node used before.
        raw.server += str(raw.results(texts.NODE))
        raw.sync_wait = self._sync_wait
        self.stale = True  # reads may miss other nodes' latest writes
        is_another = self._node not in ("", raw.server)
        try:
            raw.results(texts.GALERA_READY.format(texts.CATCHING_UP if is_another else 0))
        except pymysql.MySQLError as error:
            found = self._translated(error)
            if isinstance(found, Busy):  # repl.causal_read_timeout is over
                raise ConnectionLost(f"{self.place}: the node has not come up to the others") from error
            raise found from error
        raw.results(texts.GALERA_WAITS.format(raw.sync_wait))
        self._node = raw.server

    def _translated(self, error: pymysql.MySQLError, text: str = "") -> Error:
        found = translate(error, self.place, text)
        if error.args[0] in CROWDED:
            found = ConnectionLost(str(found))
        if isinstance(found, ConnectionLost) and _is_servers(error):
            self.reached = True  # the node is up, but refuses at the moment
        return found


def _is_servers(error: BaseException | None) -> bool:
    # Whether the error has a number of the server's own.
    return isinstance(error, pymysql.MySQLError) and error.args[0] in range(1000, 2000)
