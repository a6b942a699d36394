"""What the words of all databases have in common."""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from roost.dialects.dialect import Dialect
from roost.structures.steps import Program, Routine
from roost.types.columns import Column

MARK = "/* made by Roost */"


class Words(ABC):
    """One structure's names in one database, and the spelling of its program's steps.

    rows: the structure's private table.
    now: the moment, in microseconds since 1970: the database's clock; on SQLite it is given with the row.
    """

    now: str

    def __init__(self, name: str, dialect: Dialect, key: Sequence[Column]) -> None:
        self.name, self.dialect, self.key = name, dialect, key
        self.rows = f"roost_{name}_rows"

    def type_of(self, column: Column) -> str:
        """Return a column's type as a parameter or a variable has it."""
        return self.dialect.types[column.type.kind](column)

    def values(self, columns: Sequence[Column]) -> dict[str, str]:
        """Return the given values of columns, by quoted name, as `put` takes them."""
        return {self.dialect.name_of(each): self.new(each.name) for each in columns}

    def mine(self) -> str:
        """Return the condition that the columns of the key equal the given values."""
        return " AND ".join(f"{self.dialect.name_of(each)} = {self.new(each.name)}" for each in self.key)

    @abstractmethod
    def new(self, name: str) -> str:
        """Return the given value of a column."""

    @property
    @abstractmethod
    def source(self) -> str:
        """The given rows of a program for many, as FROM has them."""

    @abstractmethod
    def __getitem__(self, name: str) -> str:
        """Return a remembered value."""

    def put(
        self,
        table: str,
        values: Mapping[str, str],
        key: Sequence[str],
        change: Mapping[str, str] | None = None,
        source: str = "",
    ) -> str:
        """Return the upsert of a row, or, with a source, of a row for each of the source's.

        key: the quoted names of the columns that identify a row.
        change: what an existing row gets; the values of the refused row are `self.proposed(column)`.
        """
        given = f"VALUES ({', '.join(values.values())})"
        if source:
            given = f"SELECT {', '.join(values.values())} FROM {source}"
        return f"INSERT INTO {table} ({', '.join(values)}) {given} {self.upsert(key, change or {})}"

    def proposed(self, name: str) -> str:
        """Return the value that a row of `put` would have had."""
        return f"excluded.{name}"

    def upsert(self, key: Sequence[str], change: Mapping[str, str]) -> str:
        """Return the end of `put`."""
        assigned = ", ".join(f"{name} = {value}" for name, value in change.items())
        return f"ON CONFLICT ({', '.join(key)}) DO {f'UPDATE SET {assigned}' if change else 'NOTHING'}"

    @abstractmethod
    def routine_name(self, program: Program) -> str:
        """Return the name by which a program is called."""

    @abstractmethod
    def routine(self, program: Program) -> Routine:
        """Return a program as this database stores it."""


def digest(text: str) -> str:
    """Return what identifies a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


NAMED = re.compile(r"(?<!:):([A-Za-z_]\w*)")


def parameters(sql: str, placeholder: str) -> tuple[str, tuple[str, ...]]:
    """Replace named parameters by placeholders; return the text and the names in the order of the placeholders.

    >>> parameters("SELECT n FROM t WHERE k = :key LIMIT :n", "%s")
    ('SELECT n FROM t WHERE k = %s LIMIT %s', ('key', 'n'))
    """
    return NAMED.sub(placeholder, sql), tuple(NAMED.findall(sql))
