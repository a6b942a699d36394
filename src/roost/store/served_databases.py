"""A SQLite file behind `roost serve`, or a database of MariaDB or PostgreSQL: a few connections for all clients.

On a file each transaction begins by looking at the schema's version. On a server opening a table locks nothing. The
worker remembers the opened table. The first statement of a transaction that uses the table is sent together with a
query that checks whether the table has changed; if it has, the transaction is undone, and the table is opened again. So
an ALTER by another session costs one additional transaction.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterable
from math import inf
from random import Random
from typing import Any, ClassVar, cast

from roost.batching.atoms import SlowPath
from roost.batching.batch import Part
from roost.batching.known import Known
from roost.databases import open_engine
from roost.databases.engine import Connection, Engine, Undone, Wait, too_long
from roost.databases.replicas import ServerEngine
from roost.databases.sqlite.apsw import DIALECT, ApswConnection
from roost.databases.sqlite.engine import SQLiteEngine
from roost.databases.waits import THREAD, Waits
from roost.dialects import SQLITE, Statement, Together
from roost.dialects.dialect import Wanted, query
from roost.errors import (
    CannotOpen,
    Conflict,
    Duplicate,
    Error,
    Full,
    Invalid,
    Mismatch,
    Missing,
    Overflow,
    StatementFailed,
)
from roost.store.served import Database, Remembered, Requests, kept
from roost.structures.index.budget import Limits
from roost.structures.index.bulk import args_of, bulk_of
from roost.structures.index.opened import READ_TABLE, OpenedIndex, guarded
from roost.structures.index.runs import Columns, Results, Shape
from roost.structures.index.schema import Reading, Table
from roost.structures.plan import Careful, Context
from roost.structures.wire import Wire

LOCK_WAIT = 0.1  # seconds that a turn waits for a lock before the request that needs it is isolated
FOREVER = 10.0**6  # seconds, if a request may take any time
ASKED_EVERY = 1.0  # seconds between looks whether an opened structure was dropped and created with other types
SHORTEST = 2**20  # the lowest limit of an answer's bytes: the check of a table is part of the same answer
NAMES = {
    "mariadb": query("SELECT DATABASE(), DATABASE()"),
    "mysql": query("SELECT DATABASE(), DATABASE()"),
    "postgresql": query("SELECT current_database()::text, coalesce(current_schema()::text, '')"),
}

Work = Generator[Any, Any, Any]


class FileDatabase(Database):
    """One connection to a file, by apsw, for reads only or for writes too. SQLite undoes what a failing statement did.

    lock_wait: seconds that opening the file waits for locks of other sessions.

    Raises: CannotOpen, Missing (from the constructor).
    """

    def __init__(self, url: str, *, writes: bool, lock_wait: float) -> None:
        super().__init__(DIALECT, Remembered(Known(SQLITE, exact=True)))  # DIALECT's arrays are those of apsw
        self._seen: tuple[int, int] | None = None  # the number of times the file was opened, and its schema version
        self._seconds = lock_wait
        self._patience = Wait(time.monotonic() + lock_wait)
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

    def checkpoint(self) -> None:
        """Copy the write-ahead log into the file, as far as no reader needs it."""
        self._connection.checkpoint()

    def look(self, context: Context) -> None:
        super().look(context)
        seen = (self._connection.opened, self._connection.schema)
        if self._seen != seen:
            self._seen = seen
            self.forget()

    def _read_table(self, name: str, schema: str) -> Reading:
        return READ_TABLE["sqlite"](name)

    def _alone(self, index: OpenedIndex, verb: str, args: tuple[Any, ...]) -> Work:
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


def connect(url: str, connections: int, timeout: float, *, writes: bool, waits: Waits = THREAD) -> list[ServerDatabase]:
    """Open the connections of one worker.

    waits: the way in which they wait for the server.

    Raises: CannotOpen, Invalid.
    """
    engine = open_engine(url, timeout=timeout or FOREVER, trace=None, random=Random())
    cast(ServerEngine, engine).waits = waits
    # The first one tells the dialect.
    opened = [engine.connect(Wait(time.monotonic() + (timeout or FOREVER)), writes=writes) for _ in range(connections)]
    remembered = Remembered(Known(engine.dialect, exact=True), engine.events)
    return [ServerDatabase(engine, remembered, timeout, connection) for connection in opened]


class ServerDatabase(Database):
    """One connection, for reads only or for writes too; used by one task or thread at a time.

    timeout: seconds that a turn waits for the server; 0: without limit.
    """

    looks = False
    refusals: ClassVar[tuple[type[Error], ...]] = (
        *(Invalid, Missing, Mismatch, Duplicate, Full, Overflow, StatementFailed),
    )

    def __init__(self, engine: Engine, remembered: Remembered, timeout: float, connection: Connection) -> None:
        super().__init__(engine.dialect, remembered)
        self._timeout = timeout
        self._checked: set[Table] = set()  # tables that were found unchanged in this transaction
        self._unchecked: set[Table] = set()  # tables used in this transaction, checked or not
        self._connection: Any = connection
        ((found,),) = self._connection.execute(Statement(NAMES[engine.dialect.name], [()]))
        self.names = found
        self.schemas = engine.dialect.name == "postgresql"

    def limit(self, limits: Limits) -> None:
        self.budget.limits = limits
        self._timeout = 0 if limits.request == inf else limits.request
        self._connection.most = max(limits.answer, SHORTEST)

    def _wait(self, waits: bool) -> None:
        until, work = time.monotonic() + (self._timeout or FOREVER), self._timeout or None
        self._connection.wait = Wait(until, LOCK_WAIT if waits else 0.0, work=work)

    def transact(self, part: Part, slow_path: SlowPath | None = None, *, waits: bool = True) -> Error | None:
        failed = super().transact(part, slow_path, waits=waits)
        if failed is None:
            self._remembered.available()
        return failed

    def refused(self, error: Error) -> None:
        if isinstance(error, CannotOpen):
            self._remembered.unavailable(error)

    # --- requests of clients --------------------------------------------------------------------------------------

    def look(self, context: Context) -> None:
        super().look(context)
        self._checked.clear()
        self._unchecked.clear()

    def confirm(self) -> Generator[Any, Any, None]:
        tables = [table for table in self._unchecked - self._checked if table.seen is not None]
        if not tables:
            return
        try:
            answers = yield Together([table.seen[0] for table in tables if table.seen is not None])
        except (Missing, StatementFailed):
            self._has_changed(tables[0])
        for table, now in zip(tables, answers, strict=True):
            self._compare(table, now)

    def doubts(self) -> bool:
        """Whether a statement may have failed because its table has changed; if so, forget all that was opened."""
        if self._context.careful or self._unchecked <= self._checked:
            return False
        self.forget()
        return True

    def _compare(self, table: Table, now: Any) -> None:
        assert table.seen is not None
        if table.compared(now) != table.seen[1]:
            self._has_changed(table)
        self._checked.add(table)

    def _has_changed(self, table: Table) -> None:
        self.forget()
        if self._context.careful:
            raise Conflict(f"{table.name} was changed while it was being read")
        raise Careful

    def _checking(self, table: Table, work: Work, reads: bool = False, last: bool = False, whole: bool = False) -> Work:
        # Run work with the check of its table, which is sent with the first statement: that statement keeps the table
        # from being changed until the transaction ends. If a failing query undoes the transaction, the error is raised
        # here instead of in the work.
        # last: no other request follows, so COMMIT is sent along if the work is one statement.
        # whole: the work is one request, so the limit of one answer applies to all its answers together.
        ends = reads and table.words.aborts
        try:
            wanted = next(work)
            while True:
                try:
                    if table in self._checked or not isinstance(wanted, (Statement, Together)):
                        answer = yield wanted
                    else:
                        answer = yield from self._ask_too(table, wanted, last)
                except Error as error:
                    if ends:
                        raise
                    wanted = work.throw(error)
                else:
                    self.budget.used += self._connection.received
                    if whole and self.budget.used > self._connection.most:
                        wanted = work.throw(too_long(self._connection.most))
                    else:
                        wanted = work.send(answer)
        except StopIteration as stop:
            return stop.value

    def _ask_too(self, table: Table, wanted: Statement | Together, last: bool) -> Generator[Wanted, Any, Any]:
        if table.seen is None:
            return (yield wanted)
        self._unchecked.add(table)
        statements = wanted.statements if isinstance(wanted, Together) else (wanted,)
        last = last and isinstance(wanted, Statement) and wanted.only
        question = table.seen[0]._replace(last=last)
        *answers, now = yield Together((*statements, question))
        self._compare(table, now)
        return answers if isinstance(wanted, Together) else answers[0]

    def _read_table(self, name: str, schema: str) -> Reading:
        return guarded(READ_TABLE[self._dialect.name](name, True, *([schema] if schema else [])))

    def _uses(self, table: Table) -> None:
        self._unchecked.add(table)

    def run(self, index: Any, shape: Shape, columns: Columns, last: bool = False) -> Results:
        reads = shape.verb == "find"
        few = reads and len(columns[0]) == 1
        work = self._run_one(index, shape, columns) if few else super().run(index, shape, columns)
        try:
            results: list[Any] = yield from self._checking(index.table, work, reads, last, few)
        except Undone:  # their rows are too long for one answer: take fewer requests in the next transaction
            bulk = bulk_of(index, shape)
            bulk.lot = max(1, min(bulk.lot, len(columns[0])) // 8)
            raise
        return results

    def insert(self, wire: Any, columns: Columns) -> Results:
        yield from self._declared_still([wire])
        return (yield from super().insert(wire, columns))

    def perform(self, requests: Requests) -> Results:
        yield from self._declared_still([target for target, _, _ in requests if isinstance(target, Wire)])
        return (yield from super().perform(requests))

    def _declared_still(self, wires: Iterable[Wire]) -> Work:
        # Its values may be refused, or read otherwise, by the former types without an error of the database.
        asked, now = self._remembered.asked, time.monotonic()
        for opened in {(wire.structure.name, wire.definition) for wire in wires}:
            if self._context.careful or now < asked.get(opened, 0.0) + ASKED_EVERY:
                continue
            asked[opened] = now
            try:
                (found,) = yield Statement(self._known.catalog.definition, [opened[:1]])
            except (Missing, StatementFailed):  # the catalog
                found = []
            if [tuple(row) for row in found] != [opened[1:]]:
                self.forget()
                raise Careful

    def _run_one(self, index: OpenedIndex, shape: Shape, columns: Columns) -> Work:
        return [(yield from self._one_request(index, shape.verb, args_of(index, shape, columns, 0)))]

    def _alone(self, index: OpenedIndex, verb: str, args: tuple[Any, ...]) -> Work:
        return (
            yield from self._checking(index.table, self._one_request(index, verb, args), verb == "find", whole=True)
        )

    def _one_request(self, index: OpenedIndex, verb: str, args: tuple[Any, ...]) -> Work:
        self.budget.request()
        work = index.perform(verb, args)
        if verb != "find":
            result = yield from guarded(work)
            return kept(result) if isinstance(result, Error) else result
        try:
            return (yield from work)
        except (Invalid, Missing, StatementFailed) as error:
            return kept(error)
