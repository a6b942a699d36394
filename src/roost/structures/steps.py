"""Programs: what keeps a structure's promise, as a few steps over one given row, written once for all databases.

Each database's words (`words/`) make a stored routine of a program: a function on PostgreSQL, a procedure on MariaDB
and MySQL, on SQLite the INSTEAD OF trigger of a view. Whoever writes calls this routine: a single call, a batch,
`store.on`, the triggers of the structure's relation, a protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from roost.types.column_types import ColumnType
from roost.types.columns import Column

INT: ColumnType[int] = ColumnType("int")
TOTAL: ColumnType[int] = ColumnType("decimal", 65)  # a sum of 64-bit integers


class Let(NamedTuple):
    """Remember a value. Later steps read it as `words[name]`; on SQLite it is written out where it is used.

    locking: a write depends on it, so it must not come from an older snapshot (MariaDB's and MySQL's REPEATABLE READ).
    """

    name: str
    type: ColumnType[int]
    value: str  # an expression, or a SELECT of one value
    locking: bool = False


class Do(NamedTuple):
    """Run a statement; with `when`, only if that condition holds (on SQLite it is added to the statement's WHERE)."""

    sql: str
    when: str = ""


class Take(NamedTuple):
    """Delete rows that are locked, and remember a sum over them."""

    name: str
    table: str
    where: str
    value: str


class Count(NamedTuple):
    """Remember how many rows the statement before it has changed. Not on SQLite."""

    name: str


class Give(NamedTuple):
    """End with a result. SQLite's triggers have none: there the caller asks for it."""

    value: str


Step = Let | Do | Count | Take | Give


class Program(NamedTuple):
    """One verb of a structure.

    given: the columns of the row that it is given; on SQLite the moment (`now`) follows.
    steps: writes the program in the words of one database.
    gives: the type of its result; None: it has no result.
    many: it is given many rows, as arrays on PostgreSQL, as JSON on MariaDB and MySQL.
    """

    verb: str
    given: Sequence[Column]
    steps: Callable[[Any], Iterator[Step]]
    gives: ColumnType[int] | None = None
    many: bool = False


class Routine(NamedTuple):
    """A program as a database stores it: the statements that make it or replace it, and those that drop it.

    text: how the database identifies this form of it, to be compared with what is stored.
    """

    name: str
    make: Sequence[str]
    drop: Sequence[str]
    text: str
