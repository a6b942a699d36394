"""A MariaDB or PostgreSQL database behind `roost serve`: a few connections for all clients of one worker.

Opening a table locks nothing. The worker remembers the opened table. The first statement of a transaction that uses the
table is sent together with a query that checks whether the table has changed; if it has, the transaction is undone, and
the table is opened again. So an ALTER by another session costs one additional transaction.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Sequence
from itertools import count
from math import inf
from random import Random
from typing import Any, ClassVar, TypeVar, cast

from roost.batching.atoms import SlowPath
from roost.batching.batch import Part
from roost.batching.known import Known
from roost.databases import open_engine
from roost.databases.engine import Connection, Engine, Undone, Wait, too_long
from roost.databases.replicas import ServerEngine
from roost.databases.waits import THREAD, Waits
from roost.dialects import Statement, Together
from roost.dialects.dialect import Wanted
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
from roost.store.served import Database, Opening, Reasons, kept, not_begun
from roost.store.store import utc_now
from roost.structures.index.budget import Limits
from roost.structures.index.bulk import args_of, bulk_of
from roost.structures.index.opened import READ_TABLE, OpenedIndex, guarded, index_of
from roost.structures.index.runs import Columns, Results, Shape
from roost.structures.index.schema import Table
from roost.structures.plan import Careful, Context, each
from roost.structures.registry import from_definition
from roost.structures.wire import Wire

log = logging.getLogger("roost.server")

LOCK_WAIT = 0.1  # seconds that a turn waits for a lock before the request that needs it is isolated
FOREVER = 10.0**6  # seconds, if a request may take any time
SHORTEST = 2**20  # the lowest limit of an answer's bytes: the check of a table is part of the same answer
MOST_OPENED = 10_000  # tables, indexes and structures that are remembered, each
NAMES = {
    "mariadb": each("SELECT DATABASE(), DATABASE()"),
    "mysql": each("SELECT DATABASE(), DATABASE()"),
    "postgresql": each("SELECT current_database()::text, coalesce(current_schema()::text, '')"),
}

K = TypeVar("K")
V = TypeVar("V")

Asked = tuple[str, str, str, Sequence[str], Sequence[str]]
Work = Generator[Any, Any, Any]


class Bounded(dict[K, V]):
    """A dictionary that forgets everything before it has more than `MOST_OPENED` entries."""

    def keep(self, key: K, value: V) -> V:
        if len(self) >= MOST_OPENED:
            self.clear()
        self[key] = value
        return value


class Remembered:
    """The tables, indexes and structures that the connections of one worker have opened, and their version."""

    def __init__(self, engine: Engine) -> None:
        self.known = Known(engine.dialect, exact=True)
        self._events = cast(ServerEngine, engine).events
        self.not_begun = not_begun()
        self._unavailable = Reasons(logging.ERROR, "the database is unavailable: %s")  # in the present outage
        self._reconnects = 0  # the number of reconnects at the last refused turn
        self._versions = count(1)
        self.forget()

    def forget(self) -> None:
        """Forget everything, so that it is read again."""
        self.tables: Bounded[tuple[str, str], Table] = Bounded()  # by schema and name
        self.indexes: Bounded[Asked, OpenedIndex] = Bounded()
        # One object each, so that clients' requests run together.
        self.structures: Bounded[str, Any] = Bounded()  # by definition
        self.wires: Bounded[tuple[str, Asked], Wire] = Bounded()  # by definition, and the names it was opened with
        self.version = next(self._versions)

    def unavailable(self, error: CannotOpen) -> None:
        """Log the reason for which requests are answered `unavailable`."""
        self._reconnects = self._events.counts["reconnects"]
        self._unavailable.say(str(error))

    def available(self) -> None:
        """Log that requests are answered again: after the first turn on a new connection."""
        if self._events.counts["reconnects"] > self._reconnects and self._unavailable.end():
            log.info("the database is available again")


def connect(url: str, connections: int, timeout: float, *, writes: bool, waits: Waits = THREAD) -> list[ServerDatabase]:
    """Open the connections of one worker.

    waits: the way in which they wait for the server.

    Raises: CannotOpen, Invalid.
    """
    engine = open_engine(url, timeout=timeout or FOREVER, trace=None, random=Random())
    cast(ServerEngine, engine).waits = waits
    # The first one tells the dialect.
    opened = [engine.connect(Wait(time.monotonic() + (timeout or FOREVER)), writes=writes) for _ in range(connections)]
    remembered = Remembered(engine)
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
        super().__init__(engine.dialect, remembered.known)
        self._context = Context(utc_now)
        self._remembered = remembered
        self._not_begun = remembered.not_begun
        self._timeout = timeout
        self._careful = False
        self._checked: set[Table] = set()  # tables that were found unchanged in this transaction
        self._unchecked: set[Table] = set()  # tables used in this transaction, checked or not
        self._connection: Any = connection
        ((found,),) = self._connection.execute(Statement(NAMES[engine.dialect.name], [()]))
        self.names = found
        self.schemas = engine.dialect.name == "postgresql"

    @property
    def version(self) -> int:  # type: ignore[override]
        """A number that increases in this process when the tables or structures may have changed."""
        return self._remembered.version

    def limit(self, limits: Limits) -> None:
        self.budget.limits = limits
        self._timeout = 0 if limits.request == inf else limits.request
        self._connection.most = max(limits.answer, SHORTEST)

    def forget(self) -> None:
        self._remembered.forget()

    def _wait(self, waits: bool) -> None:
        until, work = time.monotonic() + (self._timeout or FOREVER), self._timeout or None
        self._connection.wait = Wait(until, LOCK_WAIT if waits else 0.0, work=work)

    def transact(self, part: Part, slow_path: SlowPath | None = None, *, waits: bool = True) -> Error | None:
        """Run the requests of a turn as a batch; return the error if no transaction could be begun."""
        failed = super().transact(part, slow_path, waits=waits)
        if failed is None:
            self._remembered.available()
        return failed

    def refused(self, error: Error) -> None:
        """Log why the database is unavailable, if that is the error."""
        if isinstance(error, CannotOpen):
            self._remembered.unavailable(error)

    # --- requests of clients --------------------------------------------------------------------------------------

    def look(self, context: Context) -> None:
        self._careful = context.careful
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
        if self._careful or self._unchecked <= self._checked:
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
        if self._careful:
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

    def _opening(self, database: str, name: str, index: str, columns: Sequence[str], filters: Sequence[str]) -> Opening:
        schema = "" if database in self.names else database
        asked = (schema, name, index, columns, filters)
        remembered = self._remembered
        tables, indexes, version = remembered.tables, remembered.indexes, remembered.version
        known = indexes.get(asked)
        table: Any = tables.get((schema, name)) if known is None else known.table
        if table is not None:
            self._unchecked.add(table)
            if known is not None:
                return known
        else:
            found: Any = [] if schema else (yield from guarded(self._definition(name)))
            if isinstance(found, Error) and not isinstance(found, Missing):
                return found
            try:
                for (definition,) in [] if isinstance(found, Missing) else found:
                    structure = remembered.structures.get(definition)
                    if structure is None:
                        structure = remembered.structures.keep(definition, from_definition(definition))
                    plan = self._known.plan(structure)
                    if plan.wire is not None:
                        wire = remembered.wires.get((definition, asked))
                        return wire or remembered.wires.keep((definition, asked), plan.wire(structure, *asked[2:]))
            except Error as error:
                return error
            table = yield from guarded(READ_TABLE[self._dialect.name](name, True, *([schema] if schema else [])))
            if isinstance(table, Error):
                return kept(table)
            if table is not None and version == remembered.version:
                tables.keep((schema, name), table)
        made = index_of(table, *asked[1:])
        if isinstance(made, OpenedIndex) and version == remembered.version:
            indexes.keep(asked, made)
        return made

    def _definition(self, name: str) -> Work:
        (stored,) = yield Statement(self._known.catalog.definition, [(name,)])
        return stored

    def run(self, index: Any, shape: Shape, columns: Columns, last: bool = False) -> Results:
        """Run like requests; return the results of the first ones, at least one."""
        reads = shape.verb == "find"
        few = reads and len(columns[0]) == 1
        work = self._run_one(index, shape, columns) if few else super().run(index, shape, columns)
        try:
            results: list[Any] = yield from self._checking(index.table, work, reads, last, few)
        except Undone:  # their rows are too long for one answer: take fewer requests in the next transaction
            bulk = bulk_of(index, shape, self._dialect)
            bulk.lot = max(1, min(bulk.lot, len(columns[0])) // 8)
            raise
        return results

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
