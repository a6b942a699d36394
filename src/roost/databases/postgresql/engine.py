"""PostgreSQL: chooses one of the URL's servers and connects to it."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from random import Random
from typing import Any

import psycopg

from roost.databases.engine import GRACE, Events, Trace, Wait
from roost.databases.postgresql.address import each_host, read
from roost.databases.postgresql.connection import PostgreSQLConnection
from roost.databases.postgresql.limited import Limited
from roost.databases.postgresql.session import ADAPTERS, CONNECT, refuse
from roost.databases.replicas import FIND, Replicas
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
                within = min(timeout, FIND * self._hosts)
                raw, is_standby = self._let_in(within, {"target_session_attrs": "prefer-standby"}, WRITING[1])
            except ConnectionLost as error:  # it looked like a standby
                log.debug("no replica can be read: %s", error)
            else:
                if is_standby:
                    raw.replica = True
                    return raw
                raw.close()
            self.replicas.leave(time.monotonic() - begun)  # for a while, none is looked for
        left = max(0.0, deadline - time.monotonic())
        return self._open_writing(left) if self.several else self._let_in(left, self._role, None)[0]

    def _open_writing(self, timeout: float) -> Limited:
        # libpq relies on the parameters reported at connect, and a PgBouncer repeats its server's role from before a
        # failover. So this queries the server itself.
        failed: list[str] = []
        # The server chosen last comes first. Sorting is stable: the others stay in the order of the URL.
        for host in sorted(self._each, key=lambda each: _home(each) != self.home):
            try:
                role = {**host, "target_session_attrs": "any"}
                raw, only_reads = self._let_in(timeout / self._hosts, role, self._role["target_session_attrs"])
            except ConnectionLost as error:
                failed.append(str(error).removeprefix(f"{self.place}: "))
                continue
            if not only_reads:
                return self._at_home(raw)
            raw.close()
            self.reached = True  # the URL is right: one that writes may be there soon
            failed.append(f"{_home(host)} only reads")
        raise ConnectionLost(f"{self.place}: {'; '.join(failed)}")

    def _at_home(self, raw: Limited) -> Limited:
        raw.home = f"{raw.info.host}:{raw.info.port}"
        if self.home not in ("", raw.home):
            self.events.count("moves")
            log.warning("%s: %s is asked from now on, no longer %s", self.place, raw.home, self.home)
        self.home = raw.home
        return raw

    def _let_in(self, timeout: float, role: dict[str, Any], wanted: str | None) -> tuple[Limited, bool]:
        # A connection that is ready, and whether its server is another one than is wanted.
        deadline = time.monotonic() + timeout
        raw = self._open(timeout, role)
        try:
            refuse(raw.info, self.place)
            raw.seconds = max(0.0, deadline - time.monotonic()) + GRACE
            raw.pooled = self._is_pooled(raw)
            return raw, wanted is not None and raw.results(ONLY_READS[wanted]) == [[(True,)]]
        except BaseException as error:
            raw.close()
            if isinstance(error, psycopg.Error):
                self.reached = True  # whoever has let it in, such as a pooler without a free session, is there
                raise ConnectionLost(f"{self.place}: {str(error).strip()}") from error
            raise

    def _open(self, timeout: float, role: dict[str, Any]) -> Limited:
        limit = max(2, math.ceil(timeout / self._hosts))  # for each of them; libpq takes 1 for 2
        limit = min(limit, self._connect_timeout or limit)
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
        if raw.results("SELECT pg_backend_pid()") == [[(raw.info.backend_pid,)]]:
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
