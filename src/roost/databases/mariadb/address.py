"""Parses the URL of a MariaDB or MySQL database."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, unquote_to_bytes, urlsplit

from roost.databases.urls import SHARED, Option, chosen, number, options_of, staleness_of, take_apart
from roost.dialects import MARIADB, MYSQL, Dialect
from roost.errors import Invalid

DIALECTS = {"mariadb": MARIADB, "mysql": MYSQL, "mysql8": MYSQL}
SSL_MODES = ("DISABLED", "PREFERRED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY")  # as MySQL's own clients call them
OPTIONS = (
    Option("dialect", "one of mariadb, mysql", lambda text: DIALECTS[text.lower()]),
    *SHARED,
    Option("unix_socket"),
    Option("connect_timeout", "a number of seconds", number(1, 31_536_000)),  # PyMySQL's own limit
    Option("ssl_mode", f"one of {', '.join(SSL_MODES)}", chosen(*SSL_MODES)),
    *(Option("ssl_ca"), Option("ssl_cert"), Option("ssl_key"), Option("init_command")),
    Option("wsrep_sync_wait", "a number from 0 to 15", number(0, 15), "DEFAULT"),
    Option("charset", "utf8mb4, which alone holds every text", chosen("utf8mb4")),
)


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
    options = options_of({key.replace("-", "_"): value for key, value in parse_qsl(parts.query)}, OPTIONS, place)
    found: dict[str, Any] = {
        "host": parts.hostname or "localhost",
        "port": parts.port or 3306,
        "user": unquote(parts.username or "root"),
        "password": unquote_to_bytes(parts.password or ""),  # of a text the drivers send Latin-1
        "database": name,
        "charset": "utf8mb4",
    }
    for driver in ("unix_socket", "connect_timeout", "init_command"):
        if options[driver] is not None:
            found[driver] = options[driver]
    staleness = staleness_of(options, place, len(hosts))
    tls = partial(_tls, options, place)
    sync_wait = str(options["wsrep_sync_wait"])
    return Address(found | tls(), place, options["dialect"], options["prepared"], hosts, staleness, sync_wait, tls)


def _tls(options: dict[str, Any], place: str) -> dict[str, Any]:
    mode = options["ssl_mode"] or ("VERIFY_CA" if options["ssl_ca"] else "PREFERRED")
    if mode == "DISABLED":
        return {"ssl_disabled": True}
    if mode == "PREFERRED" and not options["ssl_cert"]:
        return {}
    try:
        if mode.startswith("VERIFY"):
            context = ssl.create_default_context(cafile=options["ssl_ca"])
            context.check_hostname = mode == "VERIFY_IDENTITY"
        else:
            context = unverified()
        if options["ssl_cert"]:
            context.load_cert_chain(options["ssl_cert"], options["ssl_key"])
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
