"""A thin driver each: connections, control words, errors by their codes. A driver is imported by its URL."""

from __future__ import annotations

from random import Random

from roost.engines.engine import Engine, Trace
from roost.errors import Invalid


def open_engine(url: str, *, timeout: float, trace: Trace | None, random: Random) -> Engine:
    """Return the engine of a URL; connects to nothing. `Invalid` when it is none, or its driver is not installed."""
    scheme = url.partition("://")[0].partition("+")[0] if isinstance(url, str) else ""
    try:
        match scheme:
            case "postgresql" | "postgres":
                from roost.engines.postgresql import PostgreSQLEngine

                return PostgreSQLEngine(url, timeout=timeout, trace=trace, random=random)
            case "mysql" | "mariadb":
                from roost.engines.mariadb import MariaDBEngine

                return MariaDBEngine(url, timeout=timeout, trace=trace, random=random)
    except ModuleNotFoundError as error:
        extra = "postgresql" if scheme.startswith("postgres") else "mysql"
        raise Invalid(f"{scheme} needs the driver {error.name}: pip install 'roost[{extra}]'") from error
    from roost.engines.sqlite import SQLiteEngine

    return SQLiteEngine(url, timeout=timeout, trace=trace, random=random)
