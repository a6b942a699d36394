"""A thin engine for each driver: connections, control words, errors by code. The URL decides which one is imported."""

from __future__ import annotations

from random import Random

from roost.databases.engine import Engine, Trace
from roost.databases.mariadb.address import read
from roost.databases.sqlite.engine import SQLiteEngine
from roost.databases.urls import SQLITE_URLS, redacted
from roost.dialects import MARIADB, POSTGRESQL, SQLITE, Dialect
from roost.errors import Invalid


def open_engine(url: str, *, timeout: float, trace: Trace | None, random: Random) -> Engine:
    """Return the engine of a URL; connects to nothing. `Invalid` when it is none, or its driver is not installed."""
    scheme = _scheme(url)
    try:
        match scheme:
            case "postgresql" | "postgres":
                from roost.databases.postgresql.engine import PostgreSQLEngine

                return PostgreSQLEngine(url, timeout=timeout, trace=trace, random=random)
            case "mysql" | "mariadb":
                from roost.databases.mariadb.engine import MariaDBEngine

                return MariaDBEngine(url, timeout=timeout, trace=trace, random=random)
            case "sqlite":
                return SQLiteEngine(url, timeout=timeout, trace=trace, random=random)
    except ModuleNotFoundError as error:
        extra = "postgresql-binary" if scheme.startswith("postgres") else "mysql"
        raise Invalid(f"{scheme} needs the driver {error.name}: pip install 'roost[{extra}]'") from error
    except ImportError as error:
        if not scheme.startswith("postgres"):
            raise
        raise Invalid(
            f"{scheme} needs the driver psycopg, which is installed, but finds no libpq: pip install "
            "'roost[postgresql-binary]' brings one along, or install that of the system, such as Debian's libpq5"
        ) from error
    raise _no_store(url)


def dialect_of(url: str) -> Dialect:
    """Return the dialect of a URL's database, which needs no driver; `Invalid` when it is none."""
    match _scheme(url):
        case "postgresql" | "postgres":
            return POSTGRESQL
        case "mysql" | "mariadb":
            return read(url).dialect or MARIADB  # what only the server itself could tell
        case "sqlite":
            return SQLITE
    raise _no_store(url)


def _scheme(url: str) -> str:
    scheme, separator, _ = url.partition("://") if isinstance(url, str) else ("", "", "")
    return scheme.partition("+")[0] if separator else ""


def _no_store(url: str) -> Invalid:
    shown = repr(redacted(url)) if isinstance(url, str) else repr(url)
    return Invalid(
        f"{shown} is not a store; a store takes the URL of a database: {SQLITE_URLS}; "
        "mysql://user:password@host/database (or mariadb://), postgresql://user:password@host/database, "
        "memcached://host:11211; with +driver, as SQLAlchemy has it, they are the same"
    )
