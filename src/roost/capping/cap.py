"""Caps: how a table of the application's own is kept short, in the part common to all dialects.

There is neither a head row nor a count: an excess row is found by its position in an index, which is correct whatever
happened to the table before. It costs `keep` steps in the index. The triggers and the trimming are in the file of each
dialect: `sqlite.py`, `postgresql.py`, `mariadb.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from roost.dialects.dialect import Dialect, Row, Statement, Template
from roost.structures.adopted.declaration import FACTS, Adopted
from roost.structures.plan import each


@dataclass(frozen=True, slots=True)
class Cap:
    """How a table is capped."""

    table: str
    per: tuple[str, ...]
    keep: int
    newest_by: str | None  # None: the order of `id`
    id: tuple[str, ...]  # the columns that identify a row: SQLite's rowid, or the primary key
    index: bool = False  # whether Roost has made an index
    # MariaDB: the account with whose rights triggers and event run; "" for the one that makes them.
    definer: str = field(default="", compare=False)

    @property
    def facts(self) -> dict[str, Any]:
        """The facts of the definition besides kind and name."""
        return {fact: getattr(self, fact) for fact in FACTS}

    @classmethod
    def of(cls, structure: Adopted) -> Cap:
        """Return how a structure from the catalog is capped."""
        facts = structure.facts or {}
        return cls(
            structure.name, tuple(facts["per"]), facts["keep"], facts["newest_by"], tuple(facts["id"]), facts["index"]
        )

    @property
    def definition(self) -> str:
        """The definition in the catalog."""
        return Adopted.from_facts(self.table, self.facts).definition

    @property
    def order(self) -> tuple[str, ...]:
        """The columns that determine which row of a key is newer, in the order of their importance."""
        return tuple(dict.fromkeys([*([self.newest_by] if self.newest_by else []), *self.id]))

    @property
    def led_to(self) -> str:
        """The purpose of the index, in words."""
        return "a key's rows in their order"

    @property
    def without_index(self) -> str:
        """What a search without an index does, in words."""
        return "every INSERT reads the table"

    @property
    def index_name(self) -> str:
        """The name of the index that Roost makes if none gives a key's rows in their order."""
        return f"roostcap_{self.table}"


class CapWords:
    """The parts of a cap's SQL that all dialects have in common."""

    def __init__(self, cap: Cap, dialect: Dialect) -> None:
        self.cap = cap
        self.dialect = dialect
        self.table = dialect.quoted(cap.table)

    def column(self, name: str) -> str:
        """Return a column qualified with its table: SQLite would take the bare name of a renamed column for a text."""
        return f"{self.table}.{self.dialect.quoted(name)}"

    def columns(self, names: Sequence[str], prefix: str = "") -> str:
        """Return the quoted names of columns, each after a prefix."""
        return ", ".join(prefix + self.dialect.quoted(name) for name in names)

    @property
    def order(self) -> str:
        """The order of a key's rows, newest first."""
        return ", ".join(f"{self.column(name)} DESC" for name in self.cap.order)

    @property
    def key(self) -> str:
        """The columns of the key."""
        return ", ".join(map(self.column, self.cap.per))

    @property
    def id(self) -> str:
        """The columns that identify a row."""
        return ", ".join(map(self.column, self.cap.id))

    def over(self, row: str) -> str:
        """Return the condition that a row is too old; only for a cap by age."""
        raise NotImplementedError

    def shown(self, expression: str) -> str:
        """Return a time in a form that a driver can read."""
        return expression

    @property
    def has_key(self) -> str:
        """The condition that a row has a key: NULL is not a key."""
        return " AND ".join(f"{self.column(name)} IS NOT NULL" for name in self.cap.per)

    def is_key(self) -> str:
        """Return the condition for the rows of one key."""
        return " AND ".join(f"{self.column(name)} = {self.dialect.placeholder}" for name in self.cap.per)

    @property
    def behind(self) -> str:
        """The condition for the keys after one; its parameters are those of `after`."""

        # Not (a, b) > (?, ?): MariaDB would read the whole index for it.
        def is_(i: int, how: str) -> str:
            name = self.cap.per[i]
            return f"{self.column(name)} {self.compares(name, how)} {self.dialect.placeholder}"

        later = [" AND ".join([*(is_(j, "=") for j in range(i)), is_(i, ">")]) for i in range(len(self.cap.per))]
        return f"{is_(0, '>=')} AND ({' OR '.join(later)})"

    def compares(self, name: str, how: str) -> str:
        """Return an operator for a column."""
        return how

    @staticmethod
    def after(key: Sequence[Any]) -> Row:
        """Return the parameters of `behind` for a key."""
        return (key[0], *[value for i in range(len(key)) for value in key[: i + 1]])

    def delete(self, which: str) -> str:
        """Return the statement that deletes one row."""
        return f"DELETE FROM {self.table} WHERE {f'({self.id})' if len(self.cap.id) > 1 else self.id} = {which}"

    @property
    def index_columns(self) -> tuple[str, ...]:
        """The columns of the index that Roost makes if none gives a key's rows in their order."""
        # In SQLite and MariaDB every index ends with the columns that identify a row.
        newest = [self.cap.newest_by] if self.cap.newest_by and self.cap.id != (self.cap.newest_by,) else []
        return (*self.cap.per, *newest)

    @property
    def index_sql(self) -> str:
        """The statement that creates the index."""
        name = self.dialect.quoted(self.cap.index_name)
        return f"CREATE INDEX {name} ON {self.table} ({self.columns(self.index_columns)})"


def read(sql: str, *values: Any) -> Statement:
    """Return a statement that reads, with one row of parameters."""
    return Statement(each(sql), [values])


def write(sql: str, *values: Any) -> Statement:
    """Return a statement that writes."""
    return Statement(Template(sql), [values])
