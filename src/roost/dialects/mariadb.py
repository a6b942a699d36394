"""MariaDB's words."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable
from typing import Any

from roost.dialects.dialect import Dialect
from roost.structures.columns import Column

# A key has at most 3,072 bytes, so a longer column is none. It is kept beside the row then, as the columns of a table
# must not have more than 65,535 bytes together: two of VARCHAR(10000) do, and CREATE TABLE would be refused (1118).
KEY_BYTES = 3_072
BYTEWISE = "CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"  # utf8mb4_bin pads blanks: 'a' = 'a '


def _text(limit: int) -> str:
    return f"VARCHAR({limit}) {BYTEWISE}" if limit * 4 <= KEY_BYTES else f"MEDIUMTEXT {BYTEWISE}"


def _binary(limit: int) -> str:
    return f"VARBINARY({limit})" if limit <= KEY_BYTES else "MEDIUMBLOB"


def _enum(column: Column) -> str:
    assert column.type.enum is not None
    values = [member.value for member in column.type.enum]
    return "BIGINT" if isinstance(values[0], int) else _text(max(map(len, values)))


def _enum_decoder(column: Column) -> Callable[[Any], Any]:
    assert column.type.enum is not None
    return column.type.enum


def _moment(value: dt.datetime) -> dt.datetime:
    return value.replace(tzinfo=None)  # DATETIME knows no zone; a driver may refuse one, or convert it


def _read_moment(value: dt.datetime) -> dt.datetime:
    return value.replace(tzinfo=dt.UTC)


def _read_uuid(value: bytes) -> uuid.UUID:
    return uuid.UUID(bytes=value)


MARIADB = Dialect(
    name="mariadb",
    quote="`",
    placeholder="%s",
    types={
        "int": lambda _: "BIGINT",
        "float": lambda _: "DOUBLE",
        "bool": lambda _: "TINYINT",
        "text": lambda column: _text(column.type.limit or 0),
        "binary": lambda column: _binary(column.type.limit or 0),
        "datetime": lambda _: "DATETIME(6)",
        "date": lambda _: "DATE",
        "decimal": lambda column: f"DECIMAL({column.type.limit}, {column.type.scale})",
        "uuid": lambda _: "BINARY(16)",
        "enum": _enum,
    },
    encoders={
        "bool": int,
        "datetime": _moment,
        "uuid": lambda value: value.bytes,
        "enum": lambda value: value.value,
    },
    decoders={
        "bool": lambda _: bool,
        "datetime": lambda _: _read_moment,
        "uuid": lambda _: _read_uuid,
        "enum": _enum_decoder,
    },
    backslash_escapes=True,
    table_options=" ENGINE=InnoDB",
    slots=16,
    transactional_ddl=False,
    for_share=" LOCK IN SHARE MODE",
    for_update=" FOR UPDATE",
)
