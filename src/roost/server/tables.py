"""The tables that clients have opened, shared by their connections: resolved once for each version of the schema.

Nothing is locked by being open. Each turn looks at the schema's version; where it changed, an index is resolved again
when it is next asked for.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from roost.engines.apsw import ApswConnection, integers, texts
from roost.engines.engine import drive
from roost.plans.index.opened import OpenedIndex
from roost.plans.index.schema import Key, TableColumn, opened_key, read_table
from roost.plans.index.values import UNHELD
from roost.protocols.requests import Open, Refused
from roost.server.answers import Lookup
from roost.server.settings import Settings
from roost.server.structures import OpenedStructure, structure_of

FEW = 2  # so many lookups, or fewer, are sooner done one by one
LOTS = (128, 16, 4)  # of keys of several columns, in one statement


class NotOpened(Exception):
    """The index of a `P` is not there."""

    def __init__(self, code: int, word: str) -> None:
        super().__init__(word)
        self.code = code
        self.word = word


class Tables:
    """What can be opened in one database, by one connection to it."""

    def __init__(self, connection: ApswConnection, settings: Settings, names: Sequence[str]) -> None:
        self.connection = connection
        self.settings = settings
        self._names = names  # the database's, as clients call it
        self.version = -1
        self.catalog = False  # whether there are structures of Roost
        self._seen = -1
        self._handles: weakref.WeakValueDictionary[tuple[Any, ...], Handle] = weakref.WeakValueDictionary()

    def look(self) -> None:
        """Read the schema's version; in a transaction, so that what follows sees no other."""
        ((self.version,),) = self.connection.fetch("PRAGMA schema_version")
        if self.version != self._seen:
            there = self.connection.fetch("SELECT count(*) FROM sqlite_master WHERE name = 'roost_catalog'")
            self.catalog, self._seen = there == [(1,)], self.version

    def open(self, asked: Open) -> Handle:
        """Return the handle of an index.

        Raises: NotOpened with the word for what is not there.
        """
        facts = tuple(asked[1:])
        handle = self._handles.get(facts)
        if handle is None or handle.version != self.version:
            resolved = self.resolve(asked)  # or a failing P would spoil a handle that others share
            if handle is None:
                handle = self._handles[facts] = Handle(self, asked)
            handle.take(resolved)
        return handle

    def resolve(self, asked: Open) -> OpenedIndex | OpenedStructure:
        """Return the index, or the structure, as it is now."""
        if asked.database not in self._names or not self.settings.allows(asked.table):
            raise NotOpened(1, "open_table")
        structure = structure_of(self, asked.table)
        if structure is not None:
            try:
                return OpenedStructure(structure, asked)
            except Refused as refused:
                raise NotOpened(2, refused.word) from None
        table = drive(read_table(asked.table), self.connection)
        if table is None:
            raise NotOpened(1, "open_table")
        columns = self._columns(table.columns, asked.columns)
        key = opened_key(table, asked.key, columns or ())
        if key is None:
            raise NotOpened(2, "idxnum")
        fcolumns = self._columns(table.columns, asked.fcolumns)
        if columns is None or fcolumns is None:
            raise NotOpened(2, "fld")
        return OpenedIndex(table, key, columns, fcolumns)

    def _columns(self, there: dict[str, TableColumn], names: Sequence[str]) -> list[TableColumn] | None:
        found = [there[name] for name in names if name in there]
        return found if len(found) == len(names) else None


class Handle:
    """One opened index, as the sessions that opened it have it."""

    __slots__ = (
        "__weakref__",
        "_asked",
        "_tables",
        "every",
        "index",
        "long",
        "lookup",
        "lots",
        "many",
        "one",
        "runs",
        "short",
        "structure",
        "version",
        "width",
    )

    index: OpenedIndex
    structure: OpenedStructure | None  # in place of the index
    short: int  # how many tokens the shortest lookup of one row has; -1 where the key names more rows than one
    long: int  # with limit and offset
    width: str  # the number of its values, as a token
    every: bool  # whether many are looked up by one statement

    def __init__(self, tables: Tables, asked: Open) -> None:
        self._tables = tables
        self._asked = asked
        self.version = -1

    def current(self) -> bool:
        """Make sure that it is what the schema has now; return whether there still is such an index."""
        if self.version == self._tables.version:
            return True
        try:
            self.take(self._tables.resolve(self._asked))
        except NotOpened:
            return False
        return True

    @property
    def fcolumns(self) -> int:
        """How many columns were opened for filters."""
        return len(self.index.fcolumns if self.structure is None else self.structure.fcolumns)

    @property
    def parts(self) -> int:
        """How many columns the key has."""
        return len(self.index.key.parts if self.structure is None else self.structure.parts)

    def again(self) -> OpenedStructure | None:
        """Return the structure as the catalog has it now: its declaration may change without the schema."""
        self.version = -1
        return self.structure if self.current() else None

    def take(self, index: OpenedIndex | OpenedStructure) -> None:
        """Become this index."""
        self.version = self._tables.version
        self.structure = None
        if isinstance(index, OpenedStructure):
            self.structure = index
            self.short = self.long = -1
            return
        self.index = index
        key = index.key
        parts = len(key.parts)
        self.short = 3 + parts if key.unique and not index.table.view else -1
        self.long = 5 + parts if key.unique and not index.table.view else -1
        self.width = str(parts)
        self.lookup = Lookup(index.width)
        self.runs: dict[tuple[str, Any], Any] = {}  # see runs.py; None where there can be none
        shown = "".join([f"t.{column.sql}, " for column in index.columns])
        source = f"{index.table.sql} t{key.hint}"
        there = f"t.{key.parts[0].column.sql}" if parts else "1"
        terms = [f"t.{part.term}" for part in key.parts]
        self.one = f"SELECT {shown}{there} FROM {source} WHERE {' AND '.join([f'{term} = ?' for term in terms])}"
        self.many = _many(key, shown, there, source, terms)
        self.every = bool(self.many)
        self.lots: dict[int, str] = {}

    def look_up(self, connection: ApswConnection, keys: Sequence[Sequence[str]]) -> list[str]:
        """Return the answers of finds by a whole unique key, of which none is NULL.

        Raises: SQLiteError, UnicodeDecodeError.
        """
        parts = self.index.key.parts
        if len(parts) == 1:
            held = parts[0].column.held
            if parts[0].column.kind == "integer" and _digits(keys):
                values: list[Any] = [int(key[0]) for key in keys]
            else:
                values = [held(key[0]) for key in keys]
            bound: list[Any] = [(value,) for value in values] if not self.every or len(values) <= FEW else []
        else:
            bound = [tuple([part.column.held(value) for part, value in zip(parts, key, strict=True)]) for key in keys]
        run = connection.run
        if self.every and len(keys) > FEW and len(parts) == 1:
            return self.lookup.answers(self._all(run, values))
        if self.every and len(keys) > FEW and not any([UNHELD in row for row in bound]):
            return self.lookup.answers(self._in_lots(run, bound))
        rows = [None if UNHELD in row else run(self.one, row).fetchone() for row in bound]
        return self.lookup.answers([row or (None,) for row in rows])

    def _all(self, run: Any, values: list[Any]) -> list[Any]:
        if UNHELD in values:
            got = iter(self._all(run, [value for value in values if value is not UNHELD]))
            return [(None,) if value is UNHELD else next(got) for value in values]
        if not values:
            return []
        if self.index.key.parts[0].column.kind == "integer":
            return run(self.many, (integers(values),)).fetchall()  # type: ignore[no-any-return]
        return run(self.many, (texts(values),)).fetchall()  # type: ignore[no-any-return]

    def _in_lots(self, run: Any, keys: list[tuple[Any, ...]]) -> list[Any]:
        # Keys of several columns: lots of a few fixed sizes, so that each has its text, and what is left one by one.
        rows: list[Any] = []
        begin = 0
        for size in LOTS:
            while len(keys) - begin >= size:
                lot = keys[begin : begin + size]
                rows += run(self._lot(size), [value for key in lot for value in key]).fetchall()
                begin += size
        return rows + [run(self.one, key).fetchone() or (None,) for key in keys[begin:]]

    def _lot(self, size: int) -> str:
        text = self.lots.get(size)
        if text is None:
            holes = f"({', '.join(['?'] * len(self.index.key.parts))})"
            text = self.lots[size] = self.many.format(rows=", ".join([holes] * size))
        return text


def _digits(keys: Sequence[Sequence[str]]) -> bool:
    text = "".join([key[0] for key in keys])
    return text.isascii() and text.isdigit() and all([0 < len(key[0]) < 19 for key in keys])


def _many(key: Key, shown: str, there: str, source: str, terms: list[str]) -> str:
    # The lookup of many keys at once, in their order; "" where it could not find them so.
    if not key.unique:
        return ""
    if len(key.parts) == 1:
        if key.parts[0].column.kind not in ("integer", "text"):
            return ""
        return f"SELECT {shown}{there} FROM carray(?) k LEFT JOIN {source} ON {terms[0]} = k.value"
    names = [f"k{place}" for place in range(len(terms))]
    on = " AND ".join([f"{term} = k.{name}" for term, name in zip(terms, names, strict=True)])
    wanted = f"WITH k ({', '.join(names)}) AS (VALUES {{rows}})"
    braced = [each.replace("{", "{{").replace("}", "}}") for each in (f"{shown}{there}", f"{source} ON {on}")]
    return f"{wanted} SELECT {braced[0]} FROM k LEFT JOIN {braced[1]}"
