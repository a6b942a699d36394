"""The tables that clients have opened, shared by their connections: resolved once for each version of the schema.

Nothing is locked by being open. Each turn looks at the schema's version; where it changed, an index is resolved again
when it is next asked for. The same where the file was opened anew, or other tables are allowed: `version` is a number
of this process that rises with each of these, so a handle that is compared with it alone cannot be out of date.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from math import inf
from typing import Any

from roost.databases.engine import drive
from roost.databases.sqlite.apsw import ApswConnection
from roost.protocols.requests import Open, Refused
from roost.server.counters import Counters
from roost.server.runs import Run
from roost.server.settings import Settings
from roost.server.structures import OpenedStructure, structure_of
from roost.structures.index.opened import OpenedIndex
from roost.structures.index.schema import TableColumn, opened_key, read_table


class NotOpened(Exception):
    """The index of a `P` is not there."""

    def __init__(self, code: int, word: str) -> None:
        super().__init__(word)
        self.code = code
        self.word = word


class Tables:
    """What can be opened in one database, by one connection to it.

    writes: whether there may be modifications.
    """

    def __init__(
        self, connection: ApswConnection, settings: Settings, names: Sequence[str], counters: Counters, *, writes: bool
    ) -> None:
        self.connection = connection
        self.counters = counters
        self.writes = writes
        self._settings = settings
        self._names = names  # the database's, as clients call it
        self.version = 0
        self.catalog = False  # whether there are structures of Roost
        self._seen: int | None = None  # the schema's version; None where it is to be looked at again
        self._handles: weakref.WeakValueDictionary[tuple[Any, ...], Handle] = weakref.WeakValueDictionary()

    def look(self) -> None:
        """Read the schema's version; in a transaction, so that what follows sees no other."""
        ((found,),) = self.connection.fetch("PRAGMA schema_version")
        if found != self._seen:
            there = self.connection.fetch("SELECT count(*) FROM sqlite_master WHERE name = 'roost_catalog'")
            self.catalog, self._seen = there == [(1,)], found
            self.version += 1

    def reopened(self) -> None:
        """Resolve everything anew: the connection has been opened again, perhaps to another file."""
        self._seen = None

    def reload(self, settings: Settings) -> None:
        """Go on with other settings: what they do not allow is no longer open."""
        self._settings = settings
        self._seen = None

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
        if asked.database not in self._names or not self._settings.allows(asked.table):
            raise NotOpened(1, "open_table")
        self.connection.allow(inf)
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
        "counters",
        "ends",
        "index",
        "runs",
        "structure",
        "version",
        "writes",
    )

    index: OpenedIndex
    structure: OpenedStructure | None  # in place of the index

    def __init__(self, tables: Tables, asked: Open) -> None:
        self._tables = tables
        self._asked = asked
        self.version = -1
        self.writes = tables.writes
        self.counters = tables.counters
        self.ends: dict[str, int] = {}  # where the values end that a find brings, by their number
        self.runs: dict[tuple[str | int, ...], Run | None] = {}  # by their shapes; None where there is none

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
        self.runs.clear()
        if isinstance(index, OpenedStructure):
            self.structure = index
            return
        self.structure = None
        self.index = index
        self.ends = {str(values): 3 + values for values in range(1, len(index.key.parts) + 1)}
