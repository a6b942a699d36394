"""PostgreSQL: chooses one of the URL's servers and connects to it."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from random import Random
from typing import Any

import psycopg

from roost.databases.engine import MOMENT, Events, Trace, Wait
from roost.databases.postgresql.address import each_host, read
from roost.databases.postgresql.connection import PostgreSQLConnection
from roost.databases.postgresql.limited import Limited
from roost.databases.postgresql.session import ADAPTERS, CONNECT, refuse
from roost.databases.replicas import FIND, Replicas, at_home
from roost.databases.waits import THREAD, Waits
from roost.dialects import POSTGRESQL
from roost.dialects.dialect import Dialect
from roost.errors import ConnectionLost, Invalid

log = logging.getLogger("roost")

WRITING = ("read-write", "primary")  # what libpq calls the one server that writes
# Whether a server is another one than that.
ONLY_READS = {
    "read-write": "SELECT pg_is_in_recovery() OR current_setting('default_transaction_read_only')::boolean",
    "primary": "SELECT pg_is_in_recovery()",
}

# The number of the session, and which server it is.
WHICH = "SELECT pg_backend_pid(), concat(inet_server_addr(), ':', inet_server_port())"
STATEMENT_POOLING = "statement pooling mode"


class PostgreSQLEngine:
    """One PostgreSQL database."""

    dialect = POSTGRESQL
    heard: Callable[[Dialect], None] | None = None
    memory = False
    file: str | None = None
    durability: str | None = None
    reached = False

    def __init__(self, url: str, *, timeout: float, trace: Trace | None, random: Random) -> None:
        self.events = Events()
        self.timeout = timeout
        self.trace = trace
        self.waits: Waits = THREAD
        self.random = random
        self.url, self.place, self.prepares, staleness = read(url)
        self.replicas = Replicas(staleness)
        self.stale = staleness is not None
        known = psycopg.conninfo.conninfo_to_dict(self.url)
        self._connect_timeout = int(known.get("connect_timeout") or 0)
        self._hosts = str(known.get("host") or "").count(",") + 1
        # Of several, the one that writes, unless the URL says otherwise.
        self._role: dict[str, Any] = {}
        if self._hosts > 1:
            self._role["target_session_attrs"] = known.get("target_session_attrs", WRITING[0])
        self.several = self._role.get("target_session_attrs") in WRITING
        # Of several that it may be connected to at the same time, none takes the place of another.
        self.moves = self.several or self._hosts == 1
        self.only_reads = ONLY_READS[self._role["target_session_attrs"] if self.several else WRITING[0]]
        self._each = each_host(known)
        self.home = ""

    def connect(self, wait: Wait, *, writes: bool = True, create: bool = False) -> PostgreSQLConnection:
        """Open a connection."""
        return PostgreSQLConnection(self, wait, follows=not writes and not wait.lasts)

    def open(self, timeout: float, replica: bool = False) -> Limited:
        """Return a new connection of the driver, with `timeout` as its limit too; to a replica where one is found.

        Always raises `ConnectionLost` if it fails: libpq does not report the SQLSTATE, and the message is in the
        server's language. So a store that was connected before retries even after a refusal.
        """
        begun = time.monotonic()
        deadline = begun + timeout
        if replica:
            try:
                within = min(timeout / 2, FIND * self._hosts)
                raw = self._let_in(within, {"target_session_attrs": "prefer-standby"}, ONLY_READS[WRITING[1]])
            except ConnectionLost as error:  # it looked like a standby
                log.debug("no replica can be read: %s", error)
            else:
                if raw.only_reads:
                    raw.replica = True
                    return raw
                raw.close()
            self.replicas.leave(time.monotonic() - begun)  # for a while, none is looked for
        left = max(0.0, deadline - time.monotonic())
        if self.several:
            return self._open_writing(left)
        raw = self._let_in(left, self._role, self.only_reads)
        return at_home(self, raw, raw.server) if self.moves else raw

    def _open_writing(self, timeout: float) -> Limited:
        # libpq relies on the parameters reported at connect, and a PgBouncer repeats its server's role from before a
        # failover. So this queries the server itself.
        deadline = time.monotonic() + timeout
        failed: list[str] = []
        # The server chosen last comes first. Sorting is stable: the others stay in the order of the URL.
        for host in sorted(self._each, key=lambda each: _home(each) != self.home):
            share = (deadline - time.monotonic()) / (self._hosts - len(failed))
            try:
                raw = self._let_in(share, {**host, "target_session_attrs": "any"}, self.only_reads)
                return at_home(self, raw, f"{raw.info.host}:{raw.info.port}")
            except ConnectionLost as error:
                failed.append(str(error).removeprefix(f"{self.place}: "))
        raise ConnectionLost(f"{self.place}: {'; '.join(failed)}")

    def _let_in(self, timeout: float, role: dict[str, Any], only_reads: str) -> Limited:
        # A connection that is ready; only_reads: the query that tells whether its server is another one than is wanted.
        deadline = time.monotonic() + timeout
        raw = self._open(timeout, role)
        try:
            refuse(raw.info, self.place)
            raw.seconds = max(MOMENT, deadline - time.monotonic())
            raw.pooled = self._is_pooled(raw)
            ((raw.only_reads,),) = raw.results(only_reads)[0]
            return raw
        except BaseException as error:
            raw.close()
            if isinstance(error, psycopg.Error):
                self.reached = True  # whoever has let it in, such as a pooler without a free session, is there
                raise ConnectionLost(f"{self.place}: {str(error).strip()}") from error
            raise

    def _open(self, timeout: float, role: dict[str, Any]) -> Limited:
        each = timeout if "host" in role else timeout / self._hosts
        limit = max(2, math.ceil(each))  # libpq takes 1 for 2
        limit = min(limit, self._connect_timeout or limit)
        Limited.connects_within.set(max(MOMENT, each))
        try:
            return Limited.connect(
                self.url,
                autocommit=True,
                context=ADAPTERS,
                prepare_threshold=None,
                connect_timeout=limit,
                **role,
                **CONNECT,
            )
        except psycopg.Error as error:
            raise ConnectionLost(f"{self.place}: {str(error).strip()}") from error

    def _is_pooled(self, raw: Limited) -> bool:
        # A pooler gives its clients numbers of its own, by which it knows whose query is to be cancelled.
        ((number, raw.server),) = raw.results(WHICH)[0]
        if number == raw.info.backend_pid:
            return False
        try:
            raw.results("BEGIN")
        except psycopg.Error as error:
            if STATEMENT_POOLING in str(error):  # PgBouncer's words have no translations; its SQLSTATE is all errors'
                raise Invalid(
                    f"{self.place}: the pooler gives each statement a session of its own (pool_mode = statement), so "
                    "nothing can be a transaction; set pool_mode = transaction"
                ) from error
            raise
        raw.results("ROLLBACK")
        return True

    def answers(self, timeout: float) -> bool:
        """Return whether the server responds to a connection attempt, even with a refusal."""
        try:
            self._open(timeout, self._role).close()
        except ConnectionLost as error:  # where nobody listens any more, the connection that asks is lost soon as well
            return not isinstance(error.__cause__, psycopg.errors.ConnectionTimeout)
        return True


def _home(host: dict[str, str]) -> str:
    return f"{host['host']}:{host.get('port') or 5432}"
