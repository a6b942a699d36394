"""The session settings of PostgreSQL that Roost depends on, and how they are ensured, in one place.

Settings of the server, the database, the role, the environment (`PGOPTIONS`) or the application decide how SQL is
parsed and how values are returned. On Roost's own connections they are set, at connect or in each BEGIN, since behind a
pooler each transaction may run in another session. On a connection of the application nothing is set: either the
statements and results there do not depend on the setting, or the connection is refused.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import psycopg
from psycopg import postgres
from psycopg.adapt import AdaptersMap, Loader, PyFormat
from psycopg.types import datetime as moments
from psycopg.types.array import BaseListDumper, ListBinaryDumper, register_all_arrays

from roost.dialects.dialect import Row
from roost.errors import Invalid

BINARY, TEXT = psycopg.pq.Format.BINARY, psycopg.pq.Format.TEXT
TEXT_ARRAY = 1009  # the number of the type text[]


class Setting(NamedTuple):
    """One setting."""

    name: str
    connect: str = ""  # what Roost's own connections are opened with
    begin: str = ""  # what each of their transactions sets
    met: Callable[[str], bool] | None = None  # whether the value that the server reports does as well: nothing is set
    at_length: bool = False  # only in what takes long: create, alter, check
    arrays: bool = False  # only where arrays go out
    fits: Callable[[str], bool] | None = None  # whether a session whose server reports this value can be used
    why: str = ""  # it cannot


def is_utf8(value: str) -> bool:
    """Return whether an encoding that was reported is UTF8. PgBouncer repeats what its client has asked for.

    >>> [is_utf8(value) for value in ("UTF8", "'utf-8'", "UNICODE", "LATIN1")]
    [True, True, True, False]
    """
    return value.strip("'").replace("-", "").upper() in ("UTF8", "UNICODE")


SETTINGS = (
    Setting("server_encoding", fits=lambda value: value != "SQL_ASCII", why="under which texts are bytes of any kind"),
    Setting("client_encoding", "UTF8", fits=is_utf8, why="which cannot carry every text; set UTF8"),
    # How moments, dates and intervals are answered. A caller's connection answers in binary, always in UTC.
    Setting("TimeZone", begin="UTC", met=lambda value: value in ("UTC", "Etc/UTC")),
    Setting("DateStyle", begin="ISO", met=lambda value: value.startswith("ISO")),
    Setting("IntervalStyle", begin="postgres", met=lambda value: value == "postgres"),
    # How floats are: 1 and more are exact. In binary they always are.
    Setting("extra_float_digits", begin="1"),
    # Whether NULL in '{…}' is a text. On a caller's connection arrays go out in binary, on Django's as ARRAY[…].
    Setting("array_nulls", begin="on", arrays=True),
    # What the server's functions write: views that are compared, and search paths. On Django's own connection, which
    # `check` and migrations use, a view then looks changed.
    Setting("quote_all_identifiers", begin="off", at_length=True),
    # Whether a backslash in '…' is one. A text is read as a whole before its first statement runs, so that to set it
    # would come too late: what has a backslash is written as E'…' (`Dialect.literal`, `values.py`).
    Setting("standard_conforming_strings"),
    # Both of its forms are read.
    Setting("bytea_output"),
    # BEGIN names the level. A default of read only stands: whoever set it wants no writes (`ReadOnly`).
    Setting("default_transaction_isolation"),
    Setting("default_transaction_read_only"),
)

CONNECT: dict[str, Any] = {each.name: each.connect for each in SETTINGS if each.connect}
_SET = [(each, f";\nSET LOCAL {each.name} = '{each.begin}'") for each in SETTINGS if each.begin]


def local(info: psycopg.ConnectionInfo, pooled: bool = False, *, arrays: bool = False, at_length: bool = False) -> str:
    """Return what follows BEGIN: each SET costs the server as much as a small statement, so those that say nothing new
    are left out, by what the server reports (GUC_REPORT).

    pooled: what was reported may be another session's. (PgBouncer carries over TimeZone and DateStyle, others nothing.)
    """
    made = ""
    for setting, text in _SET:
        if setting.met is not None:
            if not pooled and (value := _reported(info, setting.name)) is not None and setting.met(value):
                continue
        elif (setting.at_length and not at_length) or (setting.arrays and not arrays):
            continue
        made += text
    return made


def _reported(info: psycopg.ConnectionInfo, name: str) -> str | None:
    try:
        return info.parameter_status(name)
    except psycopg.OperationalError:  # the connection was closed: its next exchange says so
        return None


def refuse(info: psycopg.ConnectionInfo, where: str) -> None:
    """Raise `Invalid` for a session that cannot be used; it names the setting."""
    for setting in SETTINGS:
        if setting.fits is None:
            continue
        value = info.parameter_status(setting.name)
        if value is not None and not setting.fits(value):
            raise Invalid(f"{where}: {setting.name} is {value}, {setting.why}")


class MomentLoader(Loader):
    """A timestamptz as text, in UTC: whatever the session's zone and style are by the time that it is read."""

    def load(self, data: Any) -> dt.datetime:
        """Return the moment."""
        text = bytes(data).decode()
        try:
            return dt.datetime.fromisoformat(text).astimezone(dt.UTC)
        except (ValueError, OverflowError):
            raise psycopg.DataError(f"Python has no moment {text}: the years are 1 to 9999") from None


class BinaryMomentLoader(moments.TimestamptzBinaryLoader):
    """The same in binary: psycopg's own would be in the session's zone, where the first year may have no beginning."""

    def __init__(self, oid: int, context: Any = None) -> None:
        super().__init__(oid)


# psycopg's loaders look at DateStyle and IntervalStyle when a result is read: after the COMMIT at the end of the same
# text they are the session's again.


class DateLoader(moments.DateLoader):
    """A date as ISO has it."""

    def __init__(self, oid: int, context: Any = None) -> None:
        super().__init__(oid)


class TimestampLoader(moments.TimestampLoader):
    """A timestamp without a zone as ISO has it."""

    def __init__(self, oid: int, context: Any = None) -> None:
        super().__init__(oid)


class IntervalLoader(moments.IntervalLoader):
    """An interval as `postgres` has it."""

    def load(self, data: Any) -> dt.timedelta:
        """Return the interval."""
        return self._load_postgres(self, data)


class ArrayDumper(ListBinaryDumper):
    """An array in binary: as text it has backslashes for bytes, and a NULL that array_nulls makes a text of."""

    def upgrade(self, obj: list[Any], format: PyFormat) -> BaseListDumper:
        """Return the dumper for the values of a list; psycopg would take one of None alone for a text."""
        found = super().upgrade(obj, format)
        if obj and not isinstance(found, ListBinaryDumper):
            found = type(self)(self.cls, self._tx)
            found.oid = TEXT_ARRAY
        return found


LOADERS: dict[str, tuple[type[Loader], ...]] = {
    "timestamptz": (MomentLoader, BinaryMomentLoader),
    "date": (DateLoader,),
    "timestamp": (TimestampLoader,),
    "interval": (IntervalLoader,),
}


# Values are converted as psycopg does, whatever the application has registered with it.
ADAPTERS = AdaptersMap(types=psycopg.adapters.types)
postgres.register_default_adapters(ADAPTERS)
register_all_arrays(ADAPTERS)
for _name, _loaders in LOADERS.items():
    for _loader in _loaders:
        ADAPTERS.register_loader(_name, _loader)
ADAPTERS.register_dumper(list, ArrayDumper)


# --- cursors on connections of the application's ------------------------------------------------------------------


class PlainCursor(psycopg.Cursor[Row]):
    """A cursor on a connection of the application's, which has none of its settings."""

    adapters = property(lambda self: ADAPTERS)

    def __init__(self, raw: psycopg.Connection[Any]) -> None:
        super().__init__(raw, row_factory=psycopg.rows.tuple_row)
        self.format = BINARY  # texts depend on DateStyle and extra_float_digits

    def execute(self, query: Any, params: Any = None, **options: Any) -> Self:
        """Send a statement, or as texts several, which cannot be prepared."""
        if self.format is TEXT:
            options["prepare"] = False
        return super().execute(query, params, **options)


class AsyncPlainCursor(psycopg.AsyncCursor[Row]):
    """`PlainCursor` for asyncio."""

    adapters = property(lambda self: ADAPTERS)

    def __init__(self, raw: psycopg.AsyncConnection[Any]) -> None:
        super().__init__(raw, row_factory=psycopg.rows.tuple_row)
        self.format = BINARY

    async def execute(self, query: Any, params: Any = None, **options: Any) -> Self:
        """Send a statement, or as texts several, which cannot be prepared."""
        if self.format is TEXT:
            options["prepare"] = False
        return await super().execute(query, params, **options)


def is_failed(raw: Any) -> bool:
    """Return whether the transaction of a connection has failed."""
    return bool(raw.info.transaction_status == psycopg.pq.TransactionStatus.INERROR)


def is_idle(raw: Any) -> bool:
    """Return whether a connection has no transaction open."""
    return bool(raw.info.transaction_status == psycopg.pq.TransactionStatus.IDLE)
