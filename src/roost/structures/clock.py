"""The clock of a structure whose contents expire: times are whole microseconds since 1970-01-01 UTC (*moments*).

The clock is the database server's, read by a statement, never a client's; on SQLite it is the store's. Moments are
stored as BIGINT, so they are compared exactly and do not depend on any time zone.

A clock may jump back: somebody sets it, a machine starts with the wrong time, another server becomes the primary.
Expired contents would then reappear, and a client that has to wait for a minute would wait for the length of the jump.
So a structure has one row, in `roost_NAME_clock`: the latest moment that a writer has seen, and how far the structure's
time is `ahead` of the clock. Its time is

    max(clock + ahead, latest)

which never goes back. A writer that finds the clock more than a second behind `latest` increases `ahead` by the
difference: time continues from where it was, at the clock's pace. (If time merely stood still until the clock had
caught up, no wait would end.) A jump forward cannot be distinguished from a time in which nobody used the database:
contents then expire early, and when the clock jumps back, time continues.

`latest` is written at most once per second, by a writer that finds the row unlocked, so it is not a hot spot. Hence the
limits of the promise: after a jump back of less than a second, time stands still for that long; a moment that only
readers have seen, or that is less than a second old, can recur. In a transaction of the application at REPEATABLE READ
on PostgreSQL it is never written.

Moments serve durations. A structure that counts by the calendar uses `clock`, which is never ahead; the newest stored
window takes the place of `latest`.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from roost.dialects.dialect import Dialect
from roost.errors import Invalid
from roost.types.column_types import ColumnType, shown
from roost.types.columns import Column

if TYPE_CHECKING:
    from roost.structures.plan import StructurePlan

SECOND = 1_000_000  # microseconds; after so long a structure's time is stored

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)

_COLUMNS = tuple(Column(name, ColumnType("int")) for name in ("id", "latest", "ahead"))

# The clock. MariaDB's UTC_TIMESTAMP is the moment at which the statement began, whatever the session's time zone (that
# of SYSDATE or UNIX_TIMESTAMP is ambiguous in the hour that occurs twice); PostgreSQL's now() would be the
# transaction's begin, before it has waited for locks.
CLOCK = {
    "sqlite": "?",
    "mariadb": "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
    "postgresql": "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
}

# In a routine on MariaDB, which runs with others' rights: any client may `SET timestamp`, on which UTC_TIMESTAMP
# depends, and in a trigger that is when the statement began, before it waited for locks. SYSDATE is neither, but
# ambiguous in the hour that occurs twice; so what it is later by is added to UTC_TIMESTAMP, unless that is an hour.
TRIGGER_CLOCK = """\
TIMESTAMPDIFF(MICROSECOND, '1970-01-01', IF(TIMESTAMPDIFF(SECOND, NOW(6), SYSDATE(6)) BETWEEN 0 AND 3599,
    UTC_TIMESTAMP(6) + INTERVAL TIMESTAMPDIFF(MICROSECOND, NOW(6), SYSDATE(6)) MICROSECOND,
    CONVERT_TZ(SYSDATE(6), @@time_zone, '+00:00')))"""

# For a view, which has no parameters: on SQLite the system's clock, whatever the store's is.
SQLITE_CLOCK = "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000"

# A moment as a view shows it.
SHOWN = {
    "sqlite": "strftime('%Y-%m-%d %H:%M:%S.', {0} / 1000000, 'unixepoch') || substr({0} + 10000000, -6)",
    "mariadb": "TIMESTAMP'1970-01-01 00:00:00' + INTERVAL {0} MICROSECOND",
    "postgresql": "to_timestamp(0) + {0} / 1000000 * '1 second'::interval + {0} % 1000000 * '1 microsecond'::interval",
}


def microseconds(moment: dt.datetime) -> int:
    """Return a moment as it is stored.

    >>> microseconds(dt.datetime(1970, 1, 2, tzinfo=dt.UTC))
    86400000000
    """
    return (moment - _EPOCH) // _MICROSECOND


def datetime_of(moment: int) -> dt.datetime:
    """Return a moment as a datetime, in UTC.

    >>> datetime_of(86_400_000_000)
    datetime.datetime(1970, 1, 2, 0, 0, tzinfo=datetime.timezone.utc)
    """
    return _EPOCH + moment * _MICROSECOND


def duration(where: str, value: Any, most: int) -> int:
    """Return a timedelta, or a number of seconds, in microseconds; `Invalid` if it is not from 1 to `most`."""
    found: int | None = None
    if isinstance(value, dt.timedelta):
        found = value // _MICROSECOND
    elif isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 10**12:  # NaN is not
        found = round(value * SECOND)
    if found is None or not 1 <= found <= most:
        raise Invalid(
            f"{where} is a timedelta or a number of seconds, more than 0 and at most {most / SECOND:,.0f}, not "
            f"{shown(value)}"
        )
    return found


def at_moment(dialect: Dialect, moment: str) -> str:
    """Return the expression of a moment as a view shows it."""
    return dialect.choose(SHOWN).format(moment)


def time_table(plan: StructurePlan, more: Mapping[Column, str]) -> tuple[str, ...]:
    """Return the statements that make the table of a structure's time, and its row.

    The row is made at once: if an application's transaction created it, others would wait for that to end.

    more: what reads need of the declaration.
    """
    name = f"roost_{plan.structure.name}_clock"
    columns, values = [*_COLUMNS, *more], ", ".join(["0"] * len(_COLUMNS) + [*more.values()])
    insert = f"INSERT INTO {name} ({plan.dialect.names(columns)}) VALUES ({values})"
    return plan.create(name, columns, "id"), insert


UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
WANTED = "a whole number with s, m, h or d behind it, such as 90s or 30d"

_WRITTEN = re.compile(r"(\d{1,12})([smhd])", re.ASCII)
_FACTS = {"keep_for": 1, "older_than": 1, "window": 1, "within": SECOND}  # of definitions: the units of a second


def seconds_of(text: str) -> int | None:
    """Return a duration in seconds; None if the text is not one, such as a number without a unit.

    >>> seconds_of("30d"), seconds_of("90s"), seconds_of("90")
    (2592000, 90, None)
    """
    found = _WRITTEN.fullmatch(text)
    return (int(found[1]) * UNITS[found[2]] or None) if found else None


def in_words(seconds: float) -> str:
    """Return a duration as text.

    >>> in_words(30 * 86_400), in_words(90), in_words(0.25)
    ('30d', '90s', '0.25s')
    """
    for unit in ("d", "h", "m"):
        if seconds % UNITS[unit] == 0:
            return f"{seconds // UNITS[unit]:.0f}{unit}"
    return f"{seconds:.6f}".rstrip("0").rstrip(".") + "s"


def fact_in_words(fact: str, value: Any) -> Any:
    """Return a fact of a definition for display: a duration as text, anything else unchanged.

    >>> fact_in_words("keep_for", 3600), fact_in_words("within", 500_000), fact_in_words("keep", 3600)
    ('1h', '0.5s', 3600)
    """
    return in_words(value / _FACTS[fact]) if fact in _FACTS and type(value) is int else value
