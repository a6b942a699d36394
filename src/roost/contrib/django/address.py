"""From an alias of settings.DATABASES to the URL of a store."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import parse_qs, quote, unquote, urlencode

from django.db.backends.base.base import BaseDatabaseWrapper

from roost.dialects import MARIADB, MYSQL, POSTGRESQL, SQLITE, Dialect
from roost.errors import Invalid

DIALECTS = {"sqlite": SQLITE, "mysql": MARIADB, "postgresql": POSTGRESQL}

# OPTIONS of MySQL that affect only Django's own sessions or values; all others determine where and how to connect.
_OF_THE_SESSION = {
    *("autocommit", "charset", "client_flag", "collation", "conv", "cursorclass", "init_command", "local_infile"),
    *("read_timeout", "sql_mode", "use_unicode", "write_timeout"),
}
_MYSQL = frozenset(["connect_timeout", "ssl_ca", "ssl_cert", "ssl_key", "ssl_mode", "unix_socket"])


def dialect_of(connection: BaseDatabaseWrapper) -> Dialect:
    """Return the dialect of one of Django's connections; `Invalid` for a database that Roost does not support.

    Django has one backend for MariaDB and MySQL: the server tells which it is, and Django caches that.
    """
    dialect, server = _dialect_of_vendor(connection), cast(Any, connection)
    return MYSQL if dialect is MARIADB and not server.mysql_is_mariadb else dialect


def _dialect_of_vendor(connection: BaseDatabaseWrapper) -> Dialect:
    try:
        return DIALECTS[connection.vendor]
    except KeyError:
        raise Invalid(
            f"the database {connection.alias!r} is {connection.display_name}; Roost knows SQLite, MariaDB, MySQL 8 and "
            "PostgreSQL"
        ) from None


def in_memory(connection: BaseDatabaseWrapper) -> bool:
    """Return whether this is an in-memory database, which only Django's own connections can see."""
    found: Any = connection
    return connection.vendor == "sqlite" and bool(found.is_in_memory_db())


def url_of(connection: BaseDatabaseWrapper, dialect: Dialect | None = None) -> str:
    """Return the URL of the store for the database that Django connects to now: in tests, the test database.

    `Invalid` for a connection option that Roost does not support.

    dialect: the server's, if known; with None no server is asked.
    """
    dialect = dialect or _dialect_of_vendor(connection)
    if in_memory(connection):
        return "sqlite://"
    params: dict[str, Any] = connection.get_connection_params()
    match connection.vendor:
        case "sqlite":
            return _sqlite(os.fspath(params["database"]))
        case "mysql":
            return _mysql(connection.alias, params, dialect)
    return _postgresql(connection, params)


def _sqlite(name: str) -> str:
    query = ""
    if name.startswith("file:"):  # a SQLite URI
        path, _, options = name.removeprefix("file:").partition("?")
        mode = parse_qs(options).get("mode", ["rwc"])[0]
        name, query = unquote(path), "?mode=ro" if mode == "ro" else ""
    return f"sqlite:///{quote(name)}{query}"


def _mysql(alias: str, params: dict[str, Any], dialect: Dialect) -> str:
    given = {name: value for name, value in params.items() if name not in _OF_THE_SESSION}
    ssl = given.pop("ssl", None) or {}
    options = {f"ssl_{part}": value for part, value in ssl.items()} if isinstance(ssl, Mapping) else {"ssl": ssl}
    user, password = given.pop("user", ""), given.pop("password", given.pop("passwd", ""))
    host, port = given.pop("host", "localhost"), given.pop("port", "")
    name = given.pop("database", given.pop("db", ""))
    options |= given
    if unknown := options.keys() - _MYSQL:
        raise Invalid(
            f"settings.DATABASES[{alias!r}]: Roost connects without {', '.join(sorted(unknown))}; there are ssl (ca, "
            "cert, key), ssl_mode, unix_socket and connect_timeout"
        )
    if dialect is MYSQL:
        options["dialect"] = "mysql"
    return f"mysql://{_authority(user, password, host, port)}/{quote(name, safe='')}{_query(options)}"


def _postgresql(connection: BaseDatabaseWrapper, params: dict[str, Any]) -> str:
    try:
        from psycopg import pq
    except ImportError as error:
        raise Invalid(
            f"settings.DATABASES[{connection.alias!r}]: Roost needs psycopg 3 with libpq, not psycopg2: "
            "pip install 'roost[postgresql-binary]'"
        ) from error
    # Options that libpq does not know are arguments for the driver, which concern Django's own connections only.
    known = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
    options = {name: value for name, value in params.items() if name in known and value is not None}
    if role := connection.settings_dict["OPTIONS"].get("assume_role"):
        escaped = re.sub(r"([\\\s])", r"\\\1", role)  # libpq splits `options` at blanks
        options["options"] = f"{options.get('options', '')} -c role={escaped}".strip()
    user, password, name = (options.pop(each, "") for each in ("user", "password", "dbname"))
    return f"postgresql://{_authority(user, password, '', '')}/{quote(name, safe='')}{_query(options)}"


def _authority(user: str, password: str, host: str, port: object) -> str:
    place = f"[{host}]" if ":" in host else host
    account = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "")
    return f"{f'{account}@' if account else ''}{place}{f':{port}' if port else ''}"


def _query(options: Mapping[str, Any]) -> str:
    return f"?{urlencode(options, quote_via=quote)}" if options else ""
