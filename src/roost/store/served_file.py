"""A SQLite file behind `roost serve`: one apsw connection. SQLite itself undoes the changes of a failing statement."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Sequence
from random import Random
from typing import Any

from roost.batching.known import Known
from roost.databases.engine import Wait
from roost.databases.sqlite.apsw import DIALECT, ApswConnection
from roost.databases.sqlite.engine import SQLiteEngine
from roost.dialects import SQLITE, Statement
from roost.errors import Error, Missing
from roost.store.served import Database, Opening, kept, not_begun
from roost.structures.index.budget import Limits
from roost.structures.index.opened import OpenedIndex, open_index
from roost.structures.plan import Context
from roost.structures.registry import from_definition


class FileDatabase(Database):
    """One connection to a file, for reads only or for writes too.

    lock_wait: seconds that opening the file waits for locks of other sessions.

    Raises: CannotOpen, Missing (from the constructor).
    """

    def __init__(self, url: str, *, writes: bool, lock_wait: float) -> None:
        # exact: a structure that differs from what was opened is an error, upon which it is opened again.
        super().__init__(DIALECT, Known(SQLITE, exact=True))  # DIALECT's arrays are those of apsw
        self._lenient = Known(DIALECT)
        self.version = 0
        self._seen: tuple[int, int] | None = None  # the number of times the file was opened, and its schema version
        self._seconds = lock_wait
        self._patience = Wait(time.monotonic() + lock_wait)
        self._not_begun = not_begun()
        engine = SQLiteEngine(url, timeout=lock_wait, trace=None, random=Random())
        self._connection: ApswConnection = ApswConnection(engine, self._patience, self.budget, writes=writes)
        self.names = ("main", os.path.splitext(os.path.basename(engine.file or ""))[0])

    def limit(self, limits: Limits) -> None:
        self.budget.limits = limits
        self._connection.limit()

    def wait_for(self, seconds: float) -> None:
        """Set how long turns may wait for another session's write lock."""
        self._seconds = seconds

    def _wait(self, waits: bool) -> None:
        self._patience.deadline = time.monotonic() + self._seconds

    def forget(self) -> None:
        self._seen = None

    def checkpoint(self) -> None:
        """Copy the write-ahead log into the file, as far as no reader needs it."""
        self._connection.checkpoint()

    # --- requests of clients --------------------------------------------------------------------------------------

    def look(self, context: Context) -> None:
        seen = (self._connection.opened, self._connection.schema)
        if self._seen != seen:
            self._seen = seen
            self.version += 1

    def _opening(self, database: str, name: str, index: str, columns: Sequence[str], filters: Sequence[str]) -> Opening:
        try:
            (stored,) = yield Statement(self._known.catalog.definition, [(name,)])
        except Missing:
            stored = []
        try:
            for (definition,) in stored:
                plan = self._known.plan(from_definition(definition))
                if plan.wire is not None:
                    return plan.wire(plan.structure, index, columns, filters)
        except Error as error:
            return error
        found: OpenedIndex | Error = yield from open_index(name, index, columns, filters)
        return found

    def _alone(self, index: OpenedIndex, verb: str, args: tuple[Any, ...]) -> Generator[Any, Any, Any]:
        self.budget.request()
        try:
            return (yield from index.perform(verb, args))
        except Error as error:
            if not isinstance(error.__cause__, UnicodeDecodeError):
                return kept(error)
        self.budget.request()  # a text that is not UTF-8 is read again as bytes; nothing has been written yet
        try:
            return (yield from index.undecoded.perform(verb, args))
        except Error as error:
            return kept(error)
