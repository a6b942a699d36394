"""Parses the URL of a MariaDB or MySQL database."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from roost.databases.replicas import staleness_of
from roost.databases.urls import take_apart
from roost.dialects import MARIADB, MYSQL, Dialect
from roost.errors import Invalid

OPTIONS = (
    *("dialect", "prepared", "unix_socket", "connect_timeout", "ssl_mode", "ssl_ca", "ssl_cert", "ssl_key"),
    *("init_command", "reads", "staleness", "wsrep_sync_wait"),
)
DIALECTS = {"mariadb": MARIADB, "mysql": MYSQL, "mysql8": MYSQL}
SSL_MODES = ("DISABLED", "PREFERRED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY")  # as MySQL's own clients call them


class Address(NamedTuple):
    """The contents of a URL.

    place: the location for messages, without a password.
    dialect: the one that the URL names; None: the server tells.
    hosts: all hosts, with their ports.
    staleness: the staleness of reads from replicas, in seconds; None: reads do not go to replicas.
    sync_wait: the value of wsrep_sync_wait for nodes of Galera, as SQL.
    tls: makes the arguments for TLS anew, from the files as they are now: certificates are renewed.
    """

    arguments: dict[str, Any]
    place: str
    dialect: Dialect | None
    prepares: bool
    hosts: list[tuple[str, int]]
    staleness: float | None
    sync_wait: str
    tls: Callable[[], dict[str, Any]]


def arguments(url: str) -> tuple[dict[str, Any], str]:
    """Return PyMySQL's arguments for connecting, and the location without a password."""
    return read(url)[:2]


def read(url: str) -> Address:
    """Read a URL; `Invalid` if it is malformed."""
    # Otherwise part of a password could be taken for a port or a name, and appear in a message.
    *_, servers, rest = take_apart(url)
    first, *others = servers.split(",")
    try:
        account = url.partition("://")[2].removesuffix(f"{servers}{rest}")
        parts = urlsplit(f"mysql://{account}{first}{rest}")
        place = f"mysql://{parts.hostname or 'localhost'}{f':{parts.port}' if parts.port else ''}{parts.path}"
        if others:
            place = f"mysql://{servers}{parts.path}"
        each = [urlsplit(f"//{server}") for server in servers.split(",")]
        hosts = [(one.hostname or "localhost", one.port or 3306) for one in each]
    except ValueError as error:
        raise Invalid(f"this is not a database URL: {error}") from error
    name = unquote(parts.path[1:])
    if not name:
        raise Invalid(f"{place}: a URL names a database, mysql://user:password@host/database")
    options = {key.replace("-", "_"): value for key, value in parse_qsl(parts.query)}
    if options.pop("charset", "utf8mb4").lower() != "utf8mb4":
        raise Invalid(f"{place}: the charset is utf8mb4, which alone holds every text")
    if unknown := sorted(options.keys() - set(OPTIONS)):
        raise Invalid(f"{place}: {', '.join(unknown)} is not an option; the options are {', '.join(OPTIONS)}")
    dialect = DIALECTS.get(options["dialect"].lower()) if "dialect" in options else None
    if dialect is None and "dialect" in options:
        raise Invalid(f"{place}: dialect is one of mariadb, mysql; not {options['dialect']!r}")
    prepared = options.get("prepared", "on")
    if prepared not in ("on", "off"):
        raise Invalid(f"{place}: prepared is on or off, not {prepared!r}")
    found: dict[str, Any] = {
        "host": parts.hostname or "localhost",
        "port": parts.port or 3306,
        "user": unquote(parts.username or "root"),
        "password": unquote(parts.password or ""),
        "database": name,
        "charset": "utf8mb4",
    }
    if "unix_socket" in options:
        found["unix_socket"] = options["unix_socket"]
    if "connect_timeout" in options:
        found["connect_timeout"] = _seconds(options["connect_timeout"], place)
    if "init_command" in options:
        found["init_command"] = options["init_command"]
    staleness = staleness_of(options, place, len(hosts))
    sync_wait = options.get("wsrep_sync_wait", "DEFAULT")
    if sync_wait != "DEFAULT" and not (sync_wait.isdecimal() and int(sync_wait) <= 15):
        raise Invalid(f"{place}: wsrep_sync_wait is a number from 0 to 15, not {sync_wait!r}")
    tls = partial(_tls, options, place)
    return Address(found | tls(), place, dialect, prepared == "on", hosts, staleness, sync_wait, tls)


def _seconds(given: str, place: str) -> int:
    if not given.isdecimal() or not 1 <= int(given) <= 31_536_000:  # PyMySQL's own limit
        raise Invalid(f"{place}: connect_timeout is a number of seconds, not {given!r}")
    return int(given)


def _tls(options: dict[str, str], place: str) -> dict[str, Any]:
    mode = options.get("ssl_mode", "VERIFY_CA" if "ssl_ca" in options else "PREFERRED").upper()
    if mode not in SSL_MODES:
        raise Invalid(f"{place}: ssl_mode is one of {', '.join(SSL_MODES)}, not {mode!r}")
    if mode == "DISABLED":
        return {"ssl_disabled": True}
    if mode == "PREFERRED" and "ssl_cert" not in options:
        return {}
    try:
        if mode.startswith("VERIFY"):
            context = ssl.create_default_context(cafile=options.get("ssl_ca"))
            context.check_hostname = mode == "VERIFY_IDENTITY"
        else:
            context = unverified()
        if "ssl_cert" in options:
            context.load_cert_chain(options["ssl_cert"], options.get("ssl_key"))
    except OSError as error:
        raise Invalid(f"{place}: {error.filename or 'a certificate'} cannot be read: {error}") from error
    return {"ssl": context}


def told(version: str) -> Dialect:
    """Return the dialect of a server by the version that it, or a proxy, has told a driver."""
    return MARIADB if "mariadb" in version.lower() else MYSQL


def unverified() -> ssl.SSLContext:
    """Return an SSL context for connections that do not verify the server: it reads none of the system's files."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def judged(named: Dialect | None, which: int, version: str) -> Dialect:
    """Return the dialect of a server that answers `WHICH` like this; `Invalid` if it is too old, or not what is named.

    >>> judged(None, 1, "8.0.36").name, judged(None, 2, "11.4.2-MariaDB").name
    ('mysql', 'mariadb')
    >>> judged(MARIADB, 1, "8.0.36")
    Traceback (most recent call last):
    roost.errors.Invalid: the server is a MySQL (8.0.36), not a MariaDB
    """
    found, other, name = (MARIADB, MYSQL, "MariaDB") if which & 2 else (MYSQL, MARIADB, "MySQL")
    if named is other:
        raise Invalid(f"the server is a {name} ({version}), not a {'MySQL' if found is MARIADB else 'MariaDB'}")
    if not which:
        raise Invalid(f"the server is too old ({version}); Roost needs MySQL 8.0.20")
    return found
