"""What a table or view is to an index: its columns, its keys, and how one of its rows is named.

Read from SQLite's own pragmas, inside the transaction that uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from roost.dialects.dialect import Statement, Template, Wanted
from roost.structures.index.values import KINDS, UNHELD, Unheld, Value, kind_of, number
from roost.structures.plan import each

Reading = Generator[Wanted, Any, "Table | None"]

SCHEMA_VERSION = each("PRAGMA schema_version")
_RELATION = each(
    "SELECT s.type, l.type, l.wr, (SELECT count(*) FROM sqlite_master t WHERE t.type = 'trigger'"
    " AND lower(t.tbl_name) = lower(s.name))\n"
    "  FROM sqlite_master s JOIN pragma_table_list l ON l.schema = 'main' AND l.name = s.name\n"
    "  WHERE s.name = ? AND s.type IN ('table', 'view')"
)
_COLUMNS = each('SELECT name, type, "notnull", pk, hidden FROM pragma_table_xinfo(?) ORDER BY cid')
_KEYS = each('SELECT seq, name, "unique", origin, partial FROM pragma_index_list(?) ORDER BY seq DESC')
_PARTS = each('SELECT name, "desc", coll FROM pragma_index_xinfo(?) WHERE key ORDER BY seqno')
_FOREIGN = each('SELECT "from" FROM pragma_foreign_key_list(?)')
ROWIDS = ("rowid", "_rowid_", "oid")


@dataclass(frozen=True, slots=True, eq=False)
class TableColumn:
    """A column: what it makes of values, and whether it may be written."""

    name: str
    kind: str  # see values.py
    nullable: bool
    generated: bool
    held: Callable[[Any], Value | Unheld]
    sql: str = field(init=False)  # the quoted name

    def __post_init__(self) -> None:
        object.__setattr__(self, "sql", quoted(self.name))

    def holds(self, value: Any) -> Value | Unheld:
        """Return the value as this column stores it; `UNHELD` where it cannot."""
        return None if value is None else self.held(value)

    def against(self, value: Any) -> Value | Unheld:
        """Return the value that a filter compares with: 10.4 lies between 10 and 11, though it is no integer."""
        if self.kind in ("integer", "real") and value is not None:
            return number(value)
        return self.holds(value)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One column of a key."""

    column: TableColumn
    descending: bool
    collation: str

    @property
    def term(self) -> str:
        """The column as a comparison has it: with the index's own collation, or the index could not serve it."""
        if self.collation == "BINARY" and self.column.kind != "text":
            return self.column.sql
        return f"{self.column.sql} COLLATE {quoted(self.collation)}"


@dataclass(frozen=True, slots=True, eq=False)
class Key:
    """A key of a table: the primary one, or an index."""

    name: str
    unique: bool
    parts: tuple[Part, ...]
    hint: str  # what follows the table's name, so that SQLite takes this key and no other

    @property
    def whole(self) -> str:
        """The condition that every column of the key has a given value."""
        return " AND ".join([f"{part.term} = ?" for part in self.parts])


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A table or view."""

    name: str
    view: bool
    columns: dict[str, TableColumn]
    keys: tuple[Key, ...]
    identity: tuple[str, ...]  # quoted columns that name one row; none for a view
    by_rowid: bool  # that is the one
    automatic: str | None  # the column that numbers itself
    triggers: bool
    unique: frozenset[str]  # columns of keys that take a value once
    children: frozenset[str]  # columns that refer to another table

    @property
    def sql(self) -> str:
        """The quoted name."""
        return quoted(self.name)

    def behind(self, key: Key) -> list[tuple[str, bool]]:
        """Return what orders the equals of an index, and whether downwards: the rowid, or what is left of PRIMARY."""
        if self.by_rowid:
            return [(name, False) for name in self.identity]
        own = {part.column for part in key.parts}
        primary = self.keys[0].parts if self.identity else ()
        return [(part.term, part.descending) for part in primary if part.column not in own]

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


def quoted(name: str) -> str:
    """Return a name as an identifier."""
    return '"' + name.replace('"', '""') + '"'


def ask(template: Template, *row: Any) -> Statement:
    """Make the statement of one question."""
    return Statement(template, [row])


def read_table(name: str) -> Reading:
    """Return what is known of a table or view; None where there is none that may be opened."""
    if name.startswith(("sqlite_", "roost_")) or "\0" in name:
        return None
    (found,) = yield ask(_RELATION, name)
    if not found:
        return None
    kind, kind_listed, without_rowid, triggers = found[0]
    if kind_listed not in ("table", "view"):
        return None  # a virtual table has no keys, and is its module's own business
    (listed,) = yield ask(_COLUMNS, name)
    columns = {}
    primary = []
    for column, declared, not_null, pk, hidden in listed:
        if hidden == 1:
            continue
        meaning = kind_of(declared)
        rowid = kind == "table" and not without_rowid and bool(pk) and declared.upper() == "INTEGER"
        columns[column] = TableColumn(
            column,
            meaning,
            not (not_null or (pk and (without_rowid or rowid))),
            hidden in (2, 3),
            KINDS[meaning],
        )
        if pk:
            primary.append((pk, column))
    order = [column for _, column in sorted(primary)]
    keys: list[Key] = []
    automatic = None
    identity: tuple[str, ...] = ()
    children: frozenset[str] = frozenset()
    if kind == "table":
        (indexes,) = yield ask(_KEYS, name)
        if order and not without_rowid and not any([origin == "pk" for _, _, _, origin, _ in indexes]):
            automatic = order[0]
            keys.append(Key("PRIMARY", True, (Part(columns[automatic], False, "BINARY"),), " NOT INDEXED"))
        for _, index, unique, origin, partial in sorted(indexes, key=lambda row: row[3] != "pk"):
            (parts,) = yield ask(_PARTS, index)
            if partial or any([part not in columns for part, _, _ in parts]):
                continue  # it does not have all rows, or is of expressions
            made = tuple([Part(columns[part], bool(desc), coll.upper()) for part, desc, coll in parts])
            # As MySQL names a constraint without a name of its own: after its first column.
            known = "PRIMARY" if origin == "pk" else made[0].column.name if origin == "u" else index
            keys.append(Key(known, bool(unique), made, f" INDEXED BY {quoted(index)}"))
        identity = tuple(map(quoted, order)) if without_rowid else _rowid(columns)
        (foreign,) = yield ask(_FOREIGN, name)
        children = frozenset([column for (column,) in foreign])
    by_rowid = not without_rowid and bool(identity)
    unique_columns = frozenset([part.column.name for key in keys if key.unique for part in key.parts])
    return Table(
        name,
        kind == "view",
        columns,
        tuple(keys),
        identity,
        by_rowid,
        automatic,
        triggers > 0,
        unique_columns,
        children,
    )


def _rowid(columns: dict[str, TableColumn]) -> tuple[str, ...]:
    # A column of the user's may have taken the name.
    taken = {column.lower() for column in columns}
    return tuple([name for name in ROWIDS if name not in taken][:1])


def opened_key(table: Table, name: str, columns: Sequence[TableColumn]) -> Key | None:
    """Return the key to open. A view has one, PRIMARY: the columns that are named first."""
    if table.view and name in ("", "PRIMARY", "0"):
        return Key("PRIMARY", False, tuple([Part(column, False, "BINARY") for column in columns]), "")
    return table.key(name)


__all__ = ["SCHEMA_VERSION", "UNHELD", "Key", "Part", "Table", "TableColumn", "ask", "opened_key", "read_table"]
