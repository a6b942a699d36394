"""A thin engine for each driver: connections, control words, errors by code. The URL decides which one is imported."""

from __future__ import annotations

from importlib import import_module
from random import Random

from roost.databases.engine import Engine, Trace
from roost.databases.mariadb.address import read
from roost.databases.urls import SQLITE_URLS, redacted
from roost.dialects import MARIADB, POSTGRESQL, SQLITE, Dialect
from roost.errors import Invalid

# By the schemes of URLs: the folder of the engine, its class, and what installs its driver.
ENGINES = {
    "sqlite": ("sqlite", "SQLiteEngine", ""),
    **dict.fromkeys(("mysql", "mariadb"), ("mariadb", "MariaDBEngine", "mysql")),
    **dict.fromkeys(("postgresql", "postgres"), ("postgresql", "PostgreSQLEngine", "postgresql-binary")),
}


def open_engine(url: str, *, timeout: float, trace: Trace | None, random: Random) -> Engine:
    """Return the engine of a URL; connects to nothing. `Invalid` when it is none, or its driver is not installed."""
    scheme, (folder, name, extra) = _engine_of(url)
    try:
        module = import_module(f"roost.databases.{folder}.engine")
    except ModuleNotFoundError as error:
        raise Invalid(f"{scheme} needs the driver {error.name}: pip install 'roost[{extra}]'") from error
    except ImportError as error:
        if folder != "postgresql":
            raise
        raise Invalid(
            f"{scheme} needs the driver psycopg, which is installed, but finds no libpq: pip install "
            "'roost[postgresql-binary]' brings one along, or install that of the system, such as Debian's libpq5"
        ) from error
    made: Engine = getattr(module, name)(url, timeout=timeout, trace=trace, random=random)
    return made


def dialect_of(url: str) -> Dialect:
    """Return the dialect of a URL's database, which needs no driver; `Invalid` when it is none."""
    _, (folder, *_) = _engine_of(url)
    if folder == "mariadb":
        return read(url).dialect or MARIADB  # what only the server itself could tell
    return POSTGRESQL if folder == "postgresql" else SQLITE


def _engine_of(url: str) -> tuple[str, tuple[str, str, str]]:
    scheme, separator, _ = url.partition("://") if isinstance(url, str) else ("", "", "")
    scheme = scheme.partition("+")[0]
    if separator and scheme in ENGINES:
        return scheme, ENGINES[scheme]
    shown = repr(redacted(url)) if isinstance(url, str) else repr(url)
    raise Invalid(
        f"{shown} is not a store; a store takes the URL of a database: {SQLITE_URLS}; "
        "mysql://user:password@host/database (or mariadb://), postgresql://user:password@host/database, "
        "memcached://host:11211; with +driver, as SQLAlchemy has it, they are the same"
    )
