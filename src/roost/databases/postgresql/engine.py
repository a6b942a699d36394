"""PostgreSQL: chooses one of the URL's servers and connects to it."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from functools import partial
from random import Random
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import psycopg

from roost.databases.engine import MOMENT, Trace, Wait
from roost.databases.postgresql.connection import PostgreSQLConnection
from roost.databases.postgresql.session import ADAPTERS, CONNECT, Limited, refuse
from roost.databases.replicas import ServerEngine
from roost.databases.urls import SHARED, options_of, staleness_of, take_apart
from roost.dialects import POSTGRESQL
from roost.errors import ConnectionLost, Invalid

WRITING = ("read-write", "primary")  # what libpq calls the one server that writes
# Whether a server is another one than that.
ONLY_READS = {
    "read-write": "SELECT pg_is_in_recovery() OR current_setting('default_transaction_read_only')::boolean",
    "primary": "SELECT pg_is_in_recovery()",
}

# The number of the session, and which server it is.
WHICH = "SELECT pg_backend_pid(), concat(inet_server_addr(), ':', inet_server_port())"
STATEMENT_POOLING = "statement pooling mode"


class PostgreSQLEngine(ServerEngine):
    """One PostgreSQL database."""

    dialect = POSTGRESQL

    def __init__(self, url: str, *, timeout: float, trace: Trace | None, random: Random) -> None:
        self.url, place, prepares, staleness = read(url)
        super().__init__(place, prepares, staleness, timeout, trace, random)
        known = psycopg.conninfo.conninfo_to_dict(self.url)
        self._connect_timeout = int(known.get("connect_timeout") or 0)
        hosts = str(known.get("host") or "").count(",") + 1
        # Of several, the one that writes, unless the URL says otherwise.
        role = str(known.get("target_session_attrs", WRITING[0])) if hosts > 1 else ""
        self._any: dict[str, Any] = {"target_session_attrs": role} if role else {}
        self._hosts = {_home(host): {**host, "target_session_attrs": "any"} for host in each_host(known)}
        self._number = hosts
        self.several = role in WRITING
        # Of several that it may be connected to at the same time, none takes the place of another.
        self.moves = self.several or hosts == 1
        self.only_reads = ONLY_READS[role if self.several else WRITING[0]]  # the query that tells it

    def connect(self, wait: Wait, *, writes: bool = True, create: bool = False) -> PostgreSQLConnection:
        return PostgreSQLConnection(self, wait, follows=not writes and not wait.lasts)

    def open(self, timeout: float, replica: bool = False) -> Limited:
        """Return a new connection of the driver.

        Always raises `ConnectionLost` if it fails: libpq does not report the SQLSTATE, and the message is in the
        server's language. So a store that was connected before retries even after a refusal.
        """
        deadline = time.monotonic() + timeout
        standby = partial(self._let_in, only_reads=ONLY_READS[WRITING[1]])
        if replica and (found := self.open_replica(self._hosts, timeout / 2, standby)) is not None:
            return found
        left = max(0.0, deadline - time.monotonic())
        if self.several:
            # libpq relies on the parameters reported at connect, and a PgBouncer repeats its server's role from before
            # a failover. So this queries the server itself.
            return self.open_writing(self._hosts, left, self._let_in)
        raw = self._let_in(self._any, left)
        return self.at_home(raw, raw.server) if self.moves else raw

    def _let_in(self, host: dict[str, Any], timeout: float, only_reads: str = "") -> Limited:
        # A connection that is ready; only_reads: the query that tells whether its server is another one than is wanted.
        deadline = time.monotonic() + timeout
        raw = self._open(host, timeout)
        try:
            refuse(raw.info, self.place)
            raw.seconds = max(MOMENT, deadline - time.monotonic())
            raw.pooled = self._is_pooled(raw)
            ((raw.only_reads,),) = raw.results(only_reads or self.only_reads)[0]
            return raw
        except BaseException as error:
            raw.close()
            if isinstance(error, psycopg.Error):
                self.reached = True  # whoever has let it in, such as a pooler without a free session, is there
                raise ConnectionLost(f"{self.place}: {str(error).strip()}") from error
            raise

    def _open(self, host: dict[str, Any], timeout: float) -> Limited:
        each = timeout if "host" in host else timeout / self._number
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
                **host,
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
        try:
            self._open(self._any, timeout).close()
        except ConnectionLost as error:  # where nobody listens any more, the connection that asks is lost soon as well
            return not isinstance(error.__cause__, psycopg.errors.ConnectionTimeout)
        return True


def _home(host: dict[str, str]) -> str:
    return f"{host['host']}:{host.get('port') or 5432}"


def read(url: str) -> tuple[str, str, bool, float | None]:
    """Return a URL as libpq takes it, the place without a password, whether statements are prepared, and the staleness
    of reads (None: none)."""
    user, password, servers, rest = take_apart(url)
    path, _, query = rest.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    place = f"postgresql://{servers or options.get('host', '')}{path}"
    ours = options_of({each.name: options.pop(each.name) for each in SHARED if each.name in options}, SHARED, place)
    staleness = staleness_of(ours, place, (servers or options.get("host", "")).count(",") + 1)
    if "ssl" in options:  # asyncpg's name for it
        options["sslmode"] = {"true": "require", "false": "disable"}.get(options["ssl"], options["ssl"])
        del options["ssl"]
    # libpq ends a password at the first @, and takes a + as it is; it knows several servers.
    account = ":".join([_quoted(each) for each in (user, password) if each is not None])
    made = f"postgresql://{account}{'@' if account else ''}{servers}{path}?{urlencode(options, quote_via=quote)}"
    made = made.rstrip("?")
    try:
        psycopg.conninfo.conninfo_to_dict(made)
    except psycopg.ProgrammingError as error:
        told = str(error).replace(made, place).replace(_quoted(password or made), "***")  # libpq shows what it read
        raise Invalid(f"{place}: {told}") from None
    return made, place, ours["prepared"], staleness


def each_host(known: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return what libpq is to be told to connect to each of a URL's hosts alone.

    >>> each_host({"host": "a,b", "port": "5432,5433"})
    [{'host': 'a', 'port': '5432'}, {'host': 'b', 'port': '5433'}]
    """
    named = {name: str(known[name]).split(",") for name in ("host", "hostaddr", "port") if known.get(name)}
    hosts = len(named.get("host", ""))
    return [{name: texts[place if len(texts) > 1 else 0] for name, texts in named.items()} for place in range(hosts)]


def _quoted(part: str) -> str:
    # What is quoted already stays as it is.
    return re.sub("%(?![0-9A-Fa-f]{2})", "%25", quote(part, safe="%"))
