"""MariaDB's words. There is no engine for it yet; its plans are asserted as text, so that the cut is proven."""

from __future__ import annotations

from roost.dialects.dialect import Dialect
from roost.structures.columns import Column

BYTEWISE = "CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"  # utf8mb4_bin pads blanks: 'a' = 'a '


def _text(limit: int) -> str:
    return f"VARCHAR({limit}) {BYTEWISE}" if limit <= 16_383 else f"MEDIUMTEXT {BYTEWISE}"


def _enum(column: Column) -> str:
    assert column.type.enum is not None
    values = [member.value for member in column.type.enum]
    return "BIGINT" if isinstance(values[0], int) else _text(max(map(len, values)))


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
            f"VARBINARY({column.type.limit})" if (column.type.limit or 0) <= 65_532 else "MEDIUMBLOB"
        ),
        "datetime": lambda _: "DATETIME(6)",
        "date": lambda _: "DATE",
        "decimal": lambda column: f"DECIMAL({column.type.limit}, {column.type.scale})",
        "uuid": lambda _: "BINARY(16)",
        "enum": _enum,
    },
    encoders={"uuid": lambda value: value.bytes, "enum": lambda value: value.value},
    table_options=" ENGINE=InnoDB",
    slots=16,
)
