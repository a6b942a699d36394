"""SQLite: reads the schema of a table from the pragmas, inside the transaction that uses it.

The type of a column decides what it holds, by SQLite's affinity (https://sqlite.org/datatype3.html), but more strictly
in three points, since a value that cannot be stored as it is meant is an error here: an integer column takes only whole
numbers of 64 bits, a real one numbers, a text one valid UTF-8.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from roost.dialects.dialect import query
from roost.dialects.sqlite import SQLITE
from roost.structures.index.schema import IndexWords, Key, Part, Reading, Table, TableColumn, ask
from roost.structures.index.values import UNHELD, Unheld, as_bytes, binary, is_utf8, number
from roost.types.column_types import INT_MAX, INT_MIN

SCHEMA_VERSION = query("PRAGMA schema_version")
_RELATION = query(
    "SELECT s.type, l.type, l.wr, (SELECT count(*) FROM sqlite_master t WHERE t.type = 'trigger'"
    " AND lower(t.tbl_name) = lower(s.name)),\n"
    "    s.sql LIKE '%check%' OR EXISTS (SELECT 1 FROM pragma_table_xinfo(s.name) WHERE hidden IN (2, 3))"
    " OR EXISTS (SELECT 1 FROM pragma_index_list(s.name) i JOIN pragma_index_xinfo(i.name) x"
    ' WHERE i."unique" AND (i.partial OR x.cid = -2))\n'
    "  FROM sqlite_master s JOIN pragma_table_list l ON l.schema = 'main' AND l.name = s.name\n"
    "  WHERE s.name = ? AND s.type IN ('table', 'view')"
)
_COLUMNS = query('SELECT name, type, "notnull", pk, hidden FROM pragma_table_xinfo(?) ORDER BY cid')
_KEYS = query('SELECT seq, name, "unique", origin, partial FROM pragma_index_list(?) ORDER BY seq DESC')
_PARTS = query('SELECT name, "desc", coll FROM pragma_index_xinfo(?) WHERE key ORDER BY seqno')
_FOREIGN = query('SELECT "from" FROM pragma_foreign_key_list(?)')
Value = int | str | float | bytes | None
KNOWN: Final = frozenset([int, float, str, bytes])  # SQLite's own types
ROWIDS = ("rowid", "_rowid_", "oid")

WORDS: Final = IndexWords(SQLITE, resolution="OR ABORT ")


def read_table(name: str) -> Reading:
    """Return the facts about a table or view; None if there is none that can be opened."""
    if name.startswith(("sqlite_", "roost_")) or "\0" in name:
        return None
    (found,) = yield ask(_RELATION, name)
    if not found:
        return None
    kind, kind_listed, without_rowid, triggers, judged = found[0]
    if kind_listed not in ("table", "view"):
        return None  # a virtual table has no keys
    (listed,) = yield ask(_COLUMNS, name)
    columns = {}
    primary = []
    for column, declared, not_null, pk, hidden in listed:
        if hidden == 1:
            continue
        meaning = kind_of(declared)
        rowid = kind == "table" and not without_rowid and bool(pk) and declared.upper() == "INTEGER"
        nullable, compares = not (not_null or (pk and (without_rowid or rowid))), meaning in ("integer", "real")
        columns[column] = TableColumn(
            *(column, meaning, nullable, hidden in (2, 3), KINDS[meaning], WORDS.quoted(column)),
            compares=number if compares else None,
            plain=True,
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
            keys.append(Key("PRIMARY", True, (_part(columns[automatic], False, "BINARY"),), " NOT INDEXED"))
        for _, index, unique, origin, partial in sorted(indexes, key=lambda row: row[3] != "pk"):
            (parts,) = yield ask(_PARTS, index)
            if partial or any([part not in columns for part, _, _ in parts]):
                continue  # a partial index, or one on expressions
            made = tuple([_part(columns[part], bool(desc), coll.upper()) for part, desc, coll in parts])
            # A constraint without a name is named after its first column, as in MySQL.
            known = "PRIMARY" if origin == "pk" else made[0].column.name if origin == "u" else index
            keys.append(Key(known, bool(unique), made, f" INDEXED BY {WORDS.quoted(index)}"))
        identity = tuple(map(WORDS.quoted, order)) if without_rowid else _rowid(columns)
        (foreign,) = yield ask(_FOREIGN, name)
        children = frozenset([column for (column,) in foreign])
    return Table(
        name,
        WORDS,
        kind == "view",
        columns,
        tuple(keys),
        identity,
        tuple([f"{each_} = ?" for each_ in identity]),
        by_rowid=not without_rowid and bool(identity),
        clustered=keys[0].parts if without_rowid and identity else (),
        automatic=automatic,
        triggers=triggers > 0,
        unique=frozenset([part.column.name for key in keys if key.unique for part in key.parts]),
        children=children,
        judged=bool(judged),
    )


def _part(column: TableColumn, descending: bool, collation: str) -> Part:
    # Compared with the index's own collation; otherwise SQLite could not use the index.
    plain = collation == "BINARY" and column.kind != "text"
    term = column.sql if plain else f"{column.sql} COLLATE {WORDS.quoted(collation)}"
    return Part(column, descending, term, not descending)


def _rowid(columns: dict[str, TableColumn]) -> tuple[str, ...]:
    # A column of the table may have one of these names.
    taken = {column.lower() for column in columns}
    return tuple([name for name in ROWIDS if name not in taken][:1])


def _integer(value: Any) -> Value | Unheld:
    if type(value) is int:
        return value if INT_MIN <= value <= INT_MAX else UNHELD
    if type(value) is str and value.isascii() and value.isdigit() and len(value) < 19:
        return int(value)
    found = number(value)
    return found if type(found) is int and INT_MIN <= found <= INT_MAX else UNHELD


def _real(value: Any) -> Value | Unheld:
    found = number(value)
    return float(found) if type(found) is int else found


def _numeric(value: Any) -> Value | Unheld:
    if type(value) is str and "\0" in value and number(value.partition("\0")[0]) is not UNHELD:
        return UNHELD  # SQLite 3.54 would cut it at the NUL, and store the number
    return _any(value)


def _text(value: Any) -> Value | Unheld:
    if type(value) is bytes:
        try:
            return value.decode()
        except UnicodeDecodeError:
            return UNHELD
    if type(value) is not str:
        return str(value) if type(value) in KNOWN else UNHELD
    return value if is_utf8(value) else UNHELD


def _any(value: Any) -> Value | Unheld:
    if type(value) is str:
        return value if is_utf8(value) else as_bytes(value)
    too_large = type(value) is int and not INT_MIN <= value <= INT_MAX
    refused = type(value) not in KNOWN or too_large or (type(value) is float and math.isnan(value))
    return UNHELD if refused else value


KINDS: dict[str, Callable[[Any], Value | Unheld]] = {
    "integer": _integer,
    "real": _real,
    "numeric": _numeric,
    "text": _text,
    "blob": partial(binary, None, False),
    "any": _any,
}


def kind_of(declared: str) -> str:
    """Return the kind of a declared type, by SQLite's rules (section 3.1 of datatype3.html) and one more.

    A type with BINARY in its name would be numeric by those rules; here it is for bytes, as its name says.

    >>> kind_of("VARCHAR(64)"), kind_of("BIGINT UNSIGNED"), kind_of("DATETIME"), kind_of("VARBINARY(16)"), kind_of("")
    ('text', 'integer', 'numeric', 'blob', 'any')
    """
    name = declared.upper()
    if "INT" in name:
        return "integer"
    if "CHAR" in name or "CLOB" in name or "TEXT" in name:
        return "text"
    if "BLOB" in name or "BINARY" in name:
        return "blob"
    if name in ("", "ANY"):
        return "any"
    if "REAL" in name or "FLOA" in name or "DOUB" in name:
        return "real"
    return "numeric"
