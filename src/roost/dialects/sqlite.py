"""SQLite's dialect. Tables are STRICT and WITHOUT ROWID: column types are enforced, and rows are stored in the key."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from decimal import Decimal

from roost.dialects.dialect import Dialect, enum_of


def moment(value: dt.datetime) -> str:
    """Return a datetime in UTC as it is stored: it sorts as text, and SQLite's date functions take it.

    >>> moment(dt.datetime(2008, 1, 1, 22, 3, 23, tzinfo=dt.UTC))
    '2008-01-01 22:03:23.000000'
    """
    return value.isoformat(" ", "microseconds")[:26]  # without the zone


def _read_moment(value: str) -> dt.datetime:
    return dt.datetime.fromisoformat(value).replace(tzinfo=dt.UTC)


SQLITE = Dialect(
    name="sqlite",
    quote='"',
    placeholder="?",
    types={
        "int": lambda _: "INTEGER",
        "float": lambda _: "REAL",
        "bool": lambda _: "INTEGER",
        "text": lambda _: "TEXT",
        "binary": lambda _: "BLOB",
        "datetime": lambda _: "TEXT",
        "date": lambda _: "TEXT",
        "decimal": lambda _: "TEXT",
        "uuid": lambda _: "TEXT",
        "enum": lambda column: "INTEGER" if column.type.numbered else "TEXT",
    },
    encoders={
        "bool": int,
        "datetime": moment,
        "date": dt.date.isoformat,
        "decimal": lambda value: format(value, "f"),
        "uuid": str,
        "enum": lambda value: value.value,
    },
    decoders={
        "bool": lambda _: bool,
        "datetime": lambda _: _read_moment,
        "date": lambda _: dt.date.fromisoformat,
        "decimal": lambda _: Decimal,
        "uuid": lambda _: uuid.UUID,
        "enum": enum_of,
    },
    table_options=" STRICT, WITHOUT ROWID",
    slots=1,
    is_server=False,
    array="json_each(?)",
    pack=json.dumps,
)
