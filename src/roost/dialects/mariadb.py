"""MariaDB's words, and those of MySQL 8.0.20 and later, where they differ."""

from __future__ import annotations

import datetime as dt
import math
import re
import uuid
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from functools import lru_cache
from typing import Any

from roost.dialects.dialect import Dialect, Gather, doubled, enum_of
from roost.types.columns import Column

# A key has at most 3,072 bytes, so a longer column cannot be part of one. It has a type that is stored outside of the
# row, since the columns of a table may have at most 65,535 bytes together: two of VARCHAR(10000) have more, and CREATE
# TABLE would be refused (1118).
KEY_BYTES = 3_072
BYTEWISE = "CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"  # utf8mb4_bin pads blanks: 'a' = 'a '


def _text(limit: int) -> str:
    return f"VARCHAR({limit}) {BYTEWISE}" if limit * 4 <= KEY_BYTES else f"MEDIUMTEXT {BYTEWISE}"


def literal(text: str) -> str:
    r"""Return text as a literal that means the same in every sql_mode.

    A backslash escapes what follows it, or does not (NO_BACKSLASH_ESCAPES), and '' may be NULL (EMPTY_STRING_IS_NULL),
    but X'' is not. A driver cannot know: a text is written before the server has told its mode, and what comes before
    it in the same text may change that. What is not plain ASCII is in hexadecimal too: information_schema shows the
    bodies of triggers in an encoding of three bytes, with control characters escaped, and `check` compares them.

    >>> literal("it's"), literal("C:\\"), literal("")
    ("'it''s'", "_utf8mb4 X'433A5C'", "_utf8mb4 X''")
    """
    return doubled(text) if text.isascii() and text.isprintable() and text and "\\" not in text else hexadecimal(text)


def compared(body: str) -> str:
    """Return the body of a trigger or an event so that it can be compared with what information_schema has.

    MariaDB shows literals without their character sets, MySQL a quote within a text once.
    """
    return re.sub("'+", "'", body.replace("_utf8mb4 X'", " X'"))


def hexadecimal(text: str) -> str:
    """Return a text as SQL has it, whatever the character sets of the session."""
    return f"_utf8mb4 X'{text.encode().hex().upper()}'"


@lru_cache(256)
def _written_moment(value: dt.datetime) -> str:
    return f"'{value.isoformat(' ')}'"  # a batch has one for all its rows


def written(value: Any) -> str:
    """Return a value as SQL has it, in every sql_mode."""
    match value:
        case str():  # as short as can be
            return hexadecimal(value) if not value or "\\" in value or "\0" in value else doubled(value)
        case None:
            return "NULL"
        case bool():
            return str(int(value))
        case int():
            return str(value)
        case bytes():
            return f"X'{value.hex()}'"
        case dt.datetime():
            return _written_moment(value)
        case Decimal():
            return format(value, "f")
        case float() if math.isfinite(value):
            text = repr(value)
            return text if "e" in text else f"{text}e0"  # without, it would be a DECIMAL
        case uuid.UUID():  # of a column of that type
            return f"'{value}'"
        case dt.date() | dt.time():
            return f"'{value.isoformat()}'"
        case dt.timedelta():  # of a column of type TIME
            seconds = abs(value) // dt.timedelta(seconds=1)
            sign = "-" if value < dt.timedelta() else ""
            return f"'{sign}{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}.{abs(value).microseconds:06}'"
    raise TypeError(f"{value!r} is no value of MariaDB's")


def _moment(value: dt.datetime) -> dt.datetime:
    return value.replace(tzinfo=None)  # DATETIME knows no zone; a driver may refuse one, or convert it


def _read_moment(value: dt.datetime) -> dt.datetime:
    return value.replace(tzinfo=dt.UTC)


MARIADB = Dialect(
    name="mariadb",
    quote="`",
    placeholder="%s",
    types={
        "int": lambda _: "BIGINT",
        "float": lambda _: "DOUBLE",
        "bool": lambda _: "TINYINT",
        "text": lambda column: _text(column.type.limit or 0),
        "binary": lambda column: (
            f"VARBINARY({column.type.limit})" if (column.type.limit or 0) <= KEY_BYTES else "MEDIUMBLOB"
        ),
        "datetime": lambda _: "DATETIME(6)",
        "date": lambda _: "DATE",
        "decimal": lambda column: f"DECIMAL({column.type.limit}, {column.type.scale})",
        "uuid": lambda _: "BINARY(16)",
        "enum": lambda column: "BIGINT" if column.type.numbered else _text(max(map(len, column.type.members))),
    },
    encoders={"bool": int, "datetime": _moment, "uuid": lambda value: value.bytes, "enum": lambda value: value.value},
    decoders={
        "bool": lambda _: bool,
        "datetime": lambda _: _read_moment,
        "uuid": lambda _: lambda value: uuid.UUID(bytes=value),
        "enum": enum_of,
    },
    order={"text": "{0}, LENGTH({0})"},  # a sort fills texts up with NUL, so 'a' and 'a\0' tie
    literal=literal,
    modulo="MOD({}, {})",  # % is no operator under sql_mode=ORACLE
    # || is OR, unless the session's sql_mode says otherwise when the text is parsed.
    concat=lambda *parts: f"CONCAT({', '.join(parts)})",
    table_options=" ENGINE=InnoDB ROW_FORMAT=DYNAMIC",  # keys have more than 767 bytes
    slots=16,
    transactional_ddl=False,
    for_share=" LOCK IN SHARE MODE",
    for_update=" FOR UPDATE",
    read_committed="@@tx_isolation = 'READ-COMMITTED'",
)


def with_its_collation(type_: Callable[[Column], str]) -> Callable[[Column], str]:
    """Return the types of columns that MariaDB has, with a collation of MySQL's that compares bytes."""
    return lambda column: type_(column).replace(BYTEWISE, "CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin")


MYSQL = replace(
    MARIADB,
    name="mysql",
    read_committed="@@transaction_isolation = 'READ-COMMITTED'",
    # utf8mb4_bin pads blanks here too, and what MariaDB has beside it is not known.
    types={kind: with_its_collation(type_) for kind, type_ in MARIADB.types.items()},
    replaces=False,
    singles=False,  # it has no SET STATEMENT
    for_share=" FOR SHARE",
    nowait=" NOWAIT",
    returning=False,
    lists=Gather.ROW_LIST,
)
