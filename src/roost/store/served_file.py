"""A SQLite file as a server has it: one connection, by apsw. What a statement did that fails, SQLite undoes."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Generator, Sequence
from random import Random
from typing import Any

from roost.batching.batch import Batch
from roost.batching.known import Known
from roost.batching.parts import Part, SlowPath
from roost.databases.engine import Wait, drive
from roost.databases.sqlite.apsw import DIALECT, ApswConnection
from roost.databases.sqlite.engine import SQLiteEngine
from roost.dialects import SQLITE, Control, Statement
from roost.errors import Busy, Error, Missing
from roost.store.served import Database, Opening, kept
from roost.structures.index.budget import Limits
from roost.structures.index.opened import OpenedIndex, open_index
from roost.structures.index.sqlite import SCHEMA_VERSION
from roost.structures.plan import Context
from roost.structures.registry import from_definition

log = logging.getLogger("roost.server")


class FileDatabase(Database):
    """One connection to a file, for reading alone or for writing.

    lock_wait: seconds that opening it waits for somebody else.

    Raises: CannotOpen, Missing, when made.
    """

    def __init__(self, url: str, *, writes: bool, lock_wait: float) -> None:
        # What is opened is looked at again when it has changed.
        super().__init__(DIALECT, Known(SQLITE, exact=True))  # DIALECT's arrays are apsw's
        self._lenient = Known(DIALECT)
        self.version = 0
        self._seen: tuple[int, int] | None = None  # how often the file was opened, and the version of its schema
        self._wait = Wait(time.monotonic() + lock_wait)
        engine = SQLiteEngine(url, timeout=lock_wait, trace=None, random=Random())
        self._connection: ApswConnection = ApswConnection(engine, self._wait, self.budget, writes=writes)
        self.names = ("main", os.path.splitext(os.path.basename(engine.file or ""))[0])

    def limit(self, limits: Limits) -> None:
        """Say what turns may take from now on."""
        self.budget.limits = limits
        self._connection.limit()

    def wait_for(self, seconds: float) -> None:
        """Say how long the next `begin` may wait for somebody else's write lock."""
        self._wait.deadline = time.monotonic() + seconds

    def forget(self) -> None:
        """Have everything that was opened looked at again."""
        self._seen = None

    def begin(self, writes: bool) -> Error | None:
        """Begin a transaction ahead of the next `transact`; return why there is none."""
        try:
            self._connection.execute(Control.BEGIN if writes else Control.BEGIN_READ)
        except Error as error:
            return self._not_begun(error)
        return None

    def transact(self, part: Part, slow_path: SlowPath | None = None, *, waits: bool = True) -> Error | None:
        """Run what has arrived as a batch; return why no transaction could be begun, where none could."""
        connection = self._connection
        batch = Batch(self._dialect, self._context, self._stats)
        try:
            drive(batch.run(Control.BEGIN if part.writes else Control.BEGIN_READ, lambda: part), connection)
        except Error as error:  # of the first BEGIN: every other is somebody's answer
            return self._not_begun(error)
        except BaseException:
            connection.settle()
            raise
        return None

    def _not_begun(self, error: Error) -> Error:
        self._connection.settle()
        if not isinstance(error, Busy):
            log.warning("no transaction could be begun: %s", error)
        return error

    def checkpoint(self) -> None:
        """Copy the write-ahead log into the file, as far as nobody needs it."""
        self._connection.checkpoint()

    def give_up(self) -> None:
        """Have the file opened anew before the next transaction: what became of the last one is not known."""
        self._connection.broken = True

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    # --- what clients ask -----------------------------------------------------------------------------------------

    def look(self, context: Context) -> Generator[Any, Any, None]:
        """Look, first in a transaction, whether what was opened may have changed."""
        ((version,),) = (yield Statement(SCHEMA_VERSION, [()]))[0]
        if self._seen != (self._connection.opened, version):
            self._seen = (self._connection.opened, version)
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
        self.budget.request()  # a text that is no UTF-8 is read as bytes; nothing has been written by then
        try:
            return (yield from index.undecoded.perform(verb, args))
        except Error as error:
            return kept(error)
