"""The facts about a table or view that indexes need: its columns, its keys, and the columns that identify a row."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

from roost.dialects.dialect import Dialect, Statement, Template, Wanted

Reading = Generator[Wanted, Any, "Table | None"]


@dataclass(frozen=True, slots=True)
class IndexWords:
    """One database's words. The placeholder of a value depends on its column (`TableColumn.hole`)."""

    dialect: Dialect
    resolution: str = ""  # after INSERT and UPDATE: what a refused statement undoes, if the database has a choice
    nothing: str = "DEFAULT VALUES"  # after the table of an INSERT without columns
    says_nulls: bool = False  # whether ORDER BY must say where NULLs sort
    # Whether ORDER BY may name a column that is NULL by the condition without causing a sort.
    orders_equals: bool = True
    shown_first: bool = False  # whether a bare name in ORDER BY means a result column rather than a table's column
    same: str = "IS"  # equal, or both NULL
    counts: bool = True  # whether an UPDATE returns the number of rows found, and not of those whose values changed
    aborts: bool = False  # whether a statement that fails makes its transaction unusable

    def quoted(self, name: str) -> str:
        made = self.dialect.quoted(name)
        return made.replace("%", "%%") if self.dialect.placeholder == "%s" else made


@dataclass(frozen=True, slots=True, eq=False)
class TableColumn:
    """A column: how it stores values, and whether it can be written."""

    name: str
    kind: str  # integer, real, decimal, text, blob and others, depending on the database
    nullable: bool
    generated: bool
    held: Callable[[Any], Any]  # converts a value to the form in which the column stores it, or returns UNHELD
    sql: str  # the quoted name
    hole: str = "?"  # the placeholder of a value that it is compared with by =, or that is written to it
    ranged: str = ""  # the placeholder of a value that it is compared with by < or >, if different
    filtered: str = ""  # the placeholder of a filter's value, if different
    compares: Callable[[Any], Any] | None = None  # converts a filter's value, if different from `held`
    plain: bool = False  # it holds every whole number of 64 bits if it is for numbers, every text if it is for texts
    array: str = ""  # the type of its values in a list to which a table is joined; "" if a list would change them
    addend: Callable[[Any], Any] | None = None  # converts a value to be added to it, if different from `held`
    summed_by: tuple[str, str] = ("", "")  # the SQL around it where it is added to, if its text has fewer digits
    named_as: str = ""  # what identifies a row, with {} for the column; NULL if it would be another row's
    shown_by: tuple[str, str] = ("", "")  # the SQL around it in a SELECT, so that its value is that of a token

    def shown(self, prefix: str = "") -> str:
        before, behind = self.shown_by
        return f"{before}{prefix}{self.sql}{behind}"

    def named(self, prefix: str = "") -> str:
        """Return the column as a SELECT reads it to identify a row."""
        return self.named_as.replace("{}", prefix + self.sql) or self.shown(prefix)

    def holds(self, value: Any) -> Any:
        return None if value is None else self.held(value)

    def against(self, value: Any) -> Any:
        """Return the value with which a filter compares: 10.4 is between 10 and 11, although it is not an integer."""
        if self.compares is not None and value is not None:
            return self.compares(value)
        return self.holds(value)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One column of a key."""

    column: TableColumn
    descending: bool
    term: str  # the column as it stands in a comparison: with the index's collation if that is not the column's
    nulls_first: bool  # whether NULL comes before all values in the order of the index
    unranged: bool = False  # the database must not search for a range of it


@dataclass(frozen=True, slots=True, eq=False)
class Key:
    """A key of a table: the primary key, or an index."""

    name: str
    unique: bool
    parts: tuple[Part, ...]
    hint: str  # the SQL after the table's name that makes the database use this key and no other
    whole_index: bool = True  # whether the index has no columns after these

    @property
    def whole(self) -> str:
        return " AND ".join([f"{part.term} = {part.column.hole}" for part in self.parts])


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A table or view."""

    name: str
    words: IndexWords
    view: bool
    columns: dict[str, TableColumn]
    keys: tuple[Key, ...]
    identity: tuple[str, ...] = ()  # the quoted columns that identify a row; none for a view
    named_by: tuple[str, ...] = ()  # for each of them, the condition that it has a given value
    named: tuple[TableColumn, ...] = ()  # these columns if they are read as tokens, since a driver may change a value
    by_rowid: bool = False  # whether SQLite's rowid identifies a row
    clustered: tuple[Part, ...] = ()  # the key by which rows are stored: rows with equal keys are in its order
    automatic: str | None = None  # the column that generates ids
    triggers: bool = False
    unique: frozenset[str] = frozenset()  # columns of unique keys
    children: frozenset[str] = frozenset()  # columns that refer to another table
    undoes: bool = True  # whether ROLLBACK undoes changes of it
    judged: bool = False  # values may also be refused by a CHECK, a generated column or a unique expression
    mark: str = ""  # a comment after its name, different for each schema: prepared statements keep the columns' types
    seen: tuple[Statement, Any] | None = None  # a query whose answer shows a change of the table, and its last answer
    compared: Callable[[Any], Any] = list  # returns the part of that answer that is compared
    schema: str = ""  # the schema that contains it; "": found by the search path

    @property
    def sql(self) -> str:
        schema = f"{self.words.quoted(self.schema)}." if self.schema else ""
        return f"{schema}{self.words.quoted(self.name)}{self.mark}"

    def naming(self, prefix: str = "") -> list[str]:
        """Return the columns that identify a row, as they stand in a SELECT."""
        return [column.named(prefix) for column in self.named] or [prefix + name for name in self.identity]

    @property
    def one(self) -> str:
        """The condition that finds an identified row."""
        return " AND ".join(self.named_by)

    def behind(self, key: Key) -> list[tuple[str, bool]]:
        """Return what orders rows with equal keys: the rowid, or the rest of PRIMARY; and whether it is descending."""
        if self.by_rowid:
            return [(name, False) for name in self.identity]
        own = {part.column for part in key.parts}
        return [(part.term, part.descending) for part in self.clustered if part.column not in own]

    def key(self, name: str) -> Key | None:
        """Return a key by its name, or by its number if the name begins with a digit."""
        if name[:1].isdigit() and name[:1].isascii():
            digits = re.match("[0-9]*", name)[0]  # type: ignore[index]
            return self.keys[int(digits)] if len(digits) <= 9 and int(digits) < len(self.keys) else None
        return next((key for key in self.keys if key.name == (name or "PRIMARY")), None)


def ask(template: Template, *row: Any) -> Statement:
    """Make a statement with one row of parameters."""
    return Statement(template, [row])


def opened_key(table: Table, name: str, columns: Sequence[TableColumn]) -> Key | None:
    """Return the key to open. A view has one key, PRIMARY, which consists of the opened columns."""
    if table.view and name in ("", "PRIMARY", "0"):
        nulls_first = not table.words.says_nulls
        return Key("PRIMARY", False, tuple([Part(each, False, each.sql, nulls_first) for each in columns]), "")
    return table.key(name)
