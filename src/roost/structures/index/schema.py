"""What a table or view is to an index: its columns, its keys, and how one of its rows is named."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

from roost.dialects.dialect import Statement, Template, Wanted
from roost.structures.index.values import UNHELD
from roost.structures.index.words import IndexWords

Reading = Generator[Wanted, Any, "Table | None"]


@dataclass(frozen=True, slots=True, eq=False)
class TableColumn:
    """A column: what it makes of values, and whether it may be written."""

    name: str
    kind: str  # integer, real, decimal, text, blob and others: see the values of each database
    nullable: bool
    generated: bool
    held: Callable[[Any], Any]
    sql: str  # the quoted name
    hole: str = "?"  # the place of a value that equals it, or is written to it
    ranged: str = ""  # of one that it is greater or less than, where that is another
    filtered: str = ""  # of one that a filter compares with, likewise
    compares: Callable[[Any], Any] | None = None  # what a filter makes of a value, where that is another
    plain: bool = False  # it holds every whole number of 64 bits if it is for numbers, every text if it is for texts
    array: str = ""  # what its values are in a list of many that a table is joined to; "" where they would be others
    addend: Callable[[Any], Any] | None = None  # what is added to it for a value, where that is another
    summed_by: tuple[str, str] = ("", "")  # what stands around it where it is added to, if its text has fewer digits
    shown_by: tuple[str, str] = ("", "")  # what stands around it in a SELECT, so that its value is a token's

    def shown(self, prefix: str = "") -> str:
        """Return the column as a SELECT shows it."""
        before, behind = self.shown_by
        return f"{before}{prefix}{self.sql}{behind}"

    def holds(self, value: Any) -> Any:
        """Return the value as this column stores it; `UNHELD` where it cannot."""
        return None if value is None else self.held(value)

    def against(self, value: Any) -> Any:
        """Return the value that a filter compares with: 10.4 lies between 10 and 11, though it is no integer."""
        if self.compares is not None and value is not None:
            return self.compares(value)
        return self.holds(value)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One column of a key."""

    column: TableColumn
    descending: bool
    term: str  # the column as a comparison has it: with the index's own collation where it is not the column's
    nulls_first: bool  # whether NULL comes before all values in the order of the index


@dataclass(frozen=True, slots=True, eq=False)
class Key:
    """A key of a table: the primary one, or an index."""

    name: str
    unique: bool
    parts: tuple[Part, ...]
    hint: str  # what follows the table's name, so that the database takes this key and no other
    whole_index: bool = True  # whether the index has no columns behind these

    @property
    def whole(self) -> str:
        """The condition that every column of the key has a given value."""
        return " AND ".join([f"{part.term} = {part.column.hole}" for part in self.parts])


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A table or view."""

    name: str
    words: IndexWords
    view: bool
    columns: dict[str, TableColumn]
    keys: tuple[Key, ...]
    identity: tuple[str, ...] = ()  # quoted columns that name one row; none for a view
    named_by: tuple[str, ...] = ()  # the conditions that each of them has a value
    named: tuple[TableColumn, ...] = ()  # these columns, where they are read as tokens: a driver may change a value
    by_rowid: bool = False  # SQLite's rowid is the one
    clustered: tuple[Part, ...] = ()  # the key by which rows are stored: equals of an index lie in its order
    automatic: str | None = None  # the column that numbers itself
    triggers: bool = False
    unique: frozenset[str] = frozenset()  # columns of keys that take a value once
    children: frozenset[str] = frozenset()  # columns that refer to another table
    undoes: bool = True  # what a transaction has changed in it is undone by ROLLBACK
    judged: bool = False  # values may be refused by more than these: a CHECK, what is generated, a unique expression
    mark: str = ""  # a comment behind its name: a statement that is prepared keeps the types that columns had by then
    seen: tuple[Statement, Any] | None = None  # a question by whose answer a change is seen, and its answer
    compared: Callable[[Any], Any] = list  # what of that answer counts
    schema: str = ""  # that it is in; "": where names without one are looked for

    @property
    def sql(self) -> str:
        """The table as a statement names it."""
        schema = f"{self.words.quoted(self.schema)}." if self.schema else ""
        return f"{schema}{self.words.quoted(self.name)}{self.mark}"

    def naming(self, prefix: str = "") -> list[str]:
        """Return what names a row, as a SELECT reads it."""
        return [column.shown(prefix) for column in self.named] or [prefix + name for name in self.identity]

    @property
    def one(self) -> str:
        """The condition that a row is the one that is named."""
        return " AND ".join(self.named_by)

    def behind(self, key: Key) -> list[tuple[str, bool]]:
        """Return what orders the equals of an index, and whether downwards: the rowid, or what is left of PRIMARY."""
        if self.by_rowid:
            return [(name, False) for name in self.identity]
        own = {part.column for part in key.parts}
        return [(part.term, part.descending) for part in self.clustered if part.column not in own]

    def key(self, name: str) -> Key | None:
        """Return a key by its name, or by its number where the name begins with a digit."""
        if name[:1].isdigit() and name[:1].isascii():
            digits = 0
            while digits < len(name) and name[digits] in "0123456789":
                digits += 1
            place = int(name[: min(digits, 9)])
            return self.keys[place] if digits <= 9 and place < len(self.keys) else None
        wanted = name or "PRIMARY"
        return next((key for key in self.keys if key.name == wanted), None)


def ask(template: Template, *row: Any) -> Statement:
    """Make the statement of one question."""
    return Statement(template, [row])


def opened_key(table: Table, name: str, columns: Sequence[TableColumn]) -> Key | None:
    """Return the key to open. A view has one, PRIMARY: the columns that are named first."""
    if table.view and name in ("", "PRIMARY", "0"):
        nulls_first = not table.words.says_nulls
        return Key("PRIMARY", False, tuple([Part(each, False, each.sql, nulls_first) for each in columns]), "")
    return table.key(name)


__all__ = ["UNHELD", "Key", "Part", "Table", "TableColumn", "ask", "opened_key"]
