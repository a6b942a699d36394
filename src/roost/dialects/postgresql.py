"""PostgreSQL's words. There is no engine for it yet; its plans are asserted as text, so that the cut is proven."""

from __future__ import annotations

from roost.dialects.dialect import Dialect
from roost.structures.columns import Column


def _enum(column: Column) -> str:
    assert column.type.enum is not None
    return "bigint" if isinstance(next(iter(column.type.enum)).value, int) else 'text COLLATE "C"'


POSTGRESQL = Dialect(
    name="postgresql",
    quote='"',
    placeholder="%s",
    types={
        "int": lambda _: "bigint",
        "float": lambda _: "double precision",
        "bool": lambda _: "boolean",
        "text": lambda _: 'text COLLATE "C"',
        "binary": lambda _: "bytea",
        "datetime": lambda _: "timestamptz",
        "date": lambda _: "date",
        "decimal": lambda column: f"numeric({column.type.limit}, {column.type.scale})",
        "uuid": lambda _: "uuid",
        "enum": _enum,
    },
    encoders={"enum": lambda value: value.value},
    slots=16,
)
