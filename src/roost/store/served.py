"""The databases behind `roost serve`: each transaction on a connection answers requests of many clients.

A failing request affects no other request: its changes are undone, and its result is the error. If an error undoes the
whole transaction, or COMMIT fails, nothing was changed, and the batch runs its part again in smaller parts.
"""

from __future__ import annotations

import functools
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from itertools import count
from typing import Any, ClassVar, TypeVar

from roost.batching.atoms import SlowPath
from roost.batching.batch import NOWAIT, Batch, Part, retried
from roost.batching.known import Known
from roost.batching.once import Once
from roost.batching.stats import Stats
from roost.catalog.private import owned
from roost.databases.engine import Events, Undone, drive
from roost.dialects import Control, Dialect, Statement
from roost.errors import Busy, CannotOpen, Error, Mismatch, Missing, StatementFailed
from roost.store.store import utc_now
from roost.structures.index.budget import Budget, Limits
from roost.structures.index.bulk import args_of, bulk_of
from roost.structures.index.opened import OpenedIndex, Working, alone, guarded, index_of, undoing
from roost.structures.index.runs import Columns, Results, Shape
from roost.structures.index.schema import Reading, Table
from roost.structures.index.values import is_utf8
from roost.structures.operation import Operation
from roost.structures.plan import Careful, Context, Plan
from roost.structures.registry import from_definition
from roost.structures.structure import Structure
from roost.structures.wire import Steps, Wanted, Wire

__all__ = ["Budget", "Careful", "Context", "Database", "Limits", "Undone"]

log = logging.getLogger("roost.server")

T = TypeVar("T")

Asked = tuple[str, str, str, Sequence[str], Sequence[str]]
Opened = OpenedIndex | Wire
Opening = Generator[Any, Any, Opened | Error]
Requests = Sequence[tuple[Any, str, tuple[Any, ...]]]  # opened targets, with the verb and arguments of an operation

MOST_OPENED = 10_000  # tables, indexes and structures that are remembered, each
MOST_COLUMNS = 100_000  # that remembered indexes have in all: an index may have thousands, 50 bytes each
MOST_REASONS = 100  # that are remembered to be logged once in a while
REPEATED = 60.0  # seconds after which the same reason is logged again


class Reasons:
    """Logs reasons: the same one once in a while. text: of the line, with one %s."""

    def __init__(self, level: int, text: str) -> None:
        self._level, self._text = level, text
        self._said: dict[str, float] = {}

    def say(self, reason: str) -> None:
        now = time.monotonic()
        if now >= self._said.get(reason, -REPEATED) + REPEATED:
            if len(self._said) >= MOST_REASONS:
                self._said.clear()
            self._said[reason] = now
            log.log(self._level, self._text, reason)

    def end(self) -> bool:
        said = bool(self._said)
        self._said.clear()
        return said


class Remembered:
    """The tables, indexes and structures that connections of one worker have opened, and their version.

    events: of the engine, which count the connections that were lost.
    """

    def __init__(self, known: Known, events: Events | None = None) -> None:
        self.known = known
        self.not_begun = Reasons(logging.WARNING, "no transaction could be begun: %s")
        self._unavailable = Reasons(logging.ERROR, "the database is unavailable: %s")  # in the present outage
        self._events = events or Events()
        self._reconnects = 0  # the number of reconnects at the last refused turn
        self._versions = count(1)
        self.forget()

    def forget(self) -> None:
        """Forget everything, so that it is read again."""
        self.tables: dict[tuple[str, str], Table] = {}  # by schema and name
        self.indexes: dict[Asked, OpenedIndex] = {}
        self.asked: dict[tuple[str, str], float] = {}  # when a structure's definition was last found stored
        self._columns = 0
        # One object each, so that clients' requests run together.
        self._declared = functools.lru_cache(MOST_OPENED)(from_definition)
        self.wire = functools.lru_cache(MOST_OPENED // 10)(self._wire)  # one may have thousands of columns
        self.version = next(self._versions)

    def _wire(self, definition: str, asked: Asked) -> Wire | None:
        structure = self._declared(definition)
        make = self.known.plan(structure).wire
        made: Wire | None = None if make is None else make(structure, *asked[2:])
        if made is not None:
            made.definition = definition
        return made

    def keep(self, asked: Asked, index: OpenedIndex) -> None:
        columns = len(asked[3]) + len(asked[4])
        if len(self.indexes) >= MOST_OPENED or self._columns + columns > MOST_COLUMNS:
            self.tables.clear()
            self.indexes.clear()
            self._columns = 0
        self._columns += columns
        self.tables[asked[:2]] = index.table
        self.indexes[asked] = index

    def unavailable(self, error: CannotOpen) -> None:
        """Log the reason for which requests are answered `unavailable`."""
        self._reconnects = self._events.counts["reconnects"]
        self._unavailable.say(str(error))

    def available(self) -> None:
        """Log that requests are answered again: after the first turn on a new connection."""
        if self._events.counts["reconnects"] > self._reconnects and self._unavailable.end():
            log.info("the database is available again")


class Database(ABC):
    """One connection, for reads only or for writes too; used by one turn at a time.

    names: the names by which clients may open the database.
    schemas: whether clients may name a schema as the database.
    looks: whether a turn begins by comparing the version, so that what was opened in this version needs no other check.
    """

    looks: ClassVar[bool] = True
    schemas = False
    refusals: ClassVar[tuple[type[Error], ...]] = (Error,)  # errors of a single request, whose changes can be undone
    names: tuple[str, ...]
    _connection: Any

    def __init__(self, dialect: Dialect, remembered: Remembered) -> None:
        self.budget = Budget(Limits(), time.monotonic)
        self._dialect = dialect
        self._remembered = remembered
        self._known = remembered.known
        self._fresh = Context(utc_now)
        self._context = self._fresh  # of the present transaction
        self._lenient = Known(dialect)  # for operations on structures that no client has opened
        self._stats = Stats()
        self._tokens: dict[float, Once] = {}  # by the seconds for which tokens are stored

    @abstractmethod
    def limit(self, limits: Limits) -> None:
        """Set the limits of turns from now on."""

    @property
    def version(self) -> int:
        """A number that increases in this process when the tables or structures may have changed."""
        return self._remembered.version

    def forget(self) -> None:
        """Invalidate everything opened, so that it is checked again before its next use."""
        self._remembered.forget()

    @abstractmethod
    def _wait(self, waits: bool) -> None:
        """Set how the next turn waits for other sessions."""

    def transact(self, part: Part, slow_path: SlowPath | None = None, *, waits: bool = True) -> Error | None:
        """Run the requests of a turn as a batch; return the error if no transaction could be begun.

        slow_path: gets the requests that need a lock which another session holds for long.
        waits: whether statements wait for locks at all.
        """
        self._wait(waits)
        connection = self._connection
        batch = Batch(self._dialect, self._fresh, self._stats, slow_path)
        begin = Control.BEGIN if part.writes else Control.BEGIN_READ
        try:
            batch.drive(begin if waits else NOWAIT[begin], lambda: part, connection)
        except Error as error:  # of the first BEGIN: all later errors are answers of requests
            if not isinstance(error, (Busy, CannotOpen)):  # one is answered later; `refused` logs the other
                self._remembered.not_begun.say(str(error).partition(" in ")[0])
            return error
        return None

    def close(self) -> None:
        self._connection.close()

    @property
    def nul(self) -> bool:
        return self._dialect.nul

    def refused(self, error: Error) -> None:  # noqa: B027 - a file has no outages
        """Note the error with which all requests of a turn are answered, since none of them could run."""

    def structure(self, name: str) -> Structure:
        """Return the structure stored under a name; not inside a transaction.

        Raises: Missing, Invalid.
        """
        connection = self._connection
        try:
            connection.execute(Control.BEGIN_READ)
            found = drive(self.declared(name), connection)
            connection.execute(Control.COMMIT)
        finally:
            connection.settle()
        if isinstance(found, Error):
            raise found
        return found

    # --- requests of clients --------------------------------------------------------------------------------------

    def declared(self, name: str) -> Generator[Any, Any, Structure | Error]:
        """Return the structure stored under a name now, or the error if there is none."""
        self.budget.unlimited()
        try:
            return (yield from undoing(self._declared(name), self.refusals))
        except self.refusals as error:
            return kept(error)

    def _declared(self, name: str) -> Generator[Any, Any, Structure]:
        missing = Missing(f"{name} is not in this database; roost create makes it")
        try:
            if not (yield from owned(self._dialect, f"roost_{name}_rows")):
                raise missing
            stored = yield from self._known.catalog.stored(name)
        except Missing as error:  # the catalog
            raise missing from error
        if stored is None:
            raise missing
        return from_definition(stored)

    def operate(self, operations: Sequence[Operation[Any]]) -> Plan:
        """Run operations of structures, each with its own outcome; a failing statement is the error of all of them."""
        self.budget.request()
        return (yield from self._lenient.perform(operations, self._context))

    def once(
        self,
        token: str,
        seconds: float,
        operations: Sequence[Operation[Any]],
        answered: Callable[[Sequence[Any]], bytes],
    ) -> Generator[Any, Any, bytes | Error]:
        """Run operations and return their answer, which is stored for a token; or return the stored one.

        If results are errors, the first one is returned, and nothing was changed.
        """
        self.budget.request()
        tokens = self._tokens.get(seconds) or self._tokens.setdefault(seconds, Once(self._dialect, seconds))

        def work() -> Plan:
            results = yield from self._lenient.perform(operations, self._context)
            error = next((each for each in results if isinstance(each, Error)), None)
            return [answered(results).decode("latin-1") if error is None else error]

        yield Control.SAVEPOINT
        trusts = self._known.trusts(self._known.target(operations[0].structure))
        (answer,) = yield from tokens.perform(token, trusts, work(), self._context)
        if isinstance(answer, Error):
            yield Control.BACK
        yield Control.RELEASE
        return kept(answer) if isinstance(answer, Error) else answer.encode("latin-1")

    def look(self, context: Context) -> None:
        """At the start of a transaction, note whether opened tables or structures may have changed."""
        self._context = context

    def confirm(self) -> Generator[Any, Any, None]:
        """At the end of a transaction, check the opened tables that no statement has checked."""
        return
        yield

    def doubts(self) -> bool:
        """Whether a statement may have failed because an opened table has changed; if so, all are checked again."""
        return False

    def open(self, database: str, name: str, index: str, columns: Sequence[str], filters: Sequence[str]) -> Opening:
        """Open the index of a table, or the structure, that has these names now; return it, or the error.

        Raises: Undone.
        """
        self.budget.unlimited()
        missing = Missing(f"there is no table {name!a}")
        if not is_utf8(database + name):
            return missing
        try:
            found = yield from self._opening(database, name, index, columns, filters)
        except self.refusals as error:
            found = kept(error)
        # MariaDB's catalog has three bytes per character: it can neither hold some names nor be asked for them.
        if isinstance(found, StatementFailed) and found.word == "error" and not (database + name).isascii():
            return missing
        return found

    def _defined(self, name: str) -> Working:
        trusts = yield from owned(self._dialect, f"roost_{name}_rows")
        return (yield from alone(Statement(self._known.catalog.definition, [(name,)]))) if trusts else [[]]

    def _opening(self, database: str, name: str, index: str, columns: Sequence[str], filters: Sequence[str]) -> Opening:
        schema = "" if database in self.names else database
        asked = (schema, name, index, columns, filters)
        remembered, version = self._remembered, self._remembered.version
        known = remembered.indexes.get(asked)
        table: Any = remembered.tables.get((schema, name)) if known is None else known.table
        if table is not None:
            self._uses(table)
            if known is not None:
                return known
        else:
            found: Any = [[]] if schema else (yield from guarded(self._defined(name)))
            if isinstance(found, Error) and not isinstance(found, Missing):
                return found
            try:
                for (definition,) in [] if isinstance(found, Missing) else found[0]:
                    if (wire := remembered.wire(definition, asked)) is not None:
                        return wire
            except Error as error:
                return error
            table = yield from self._read_table(name, schema)
            if isinstance(table, Error):
                return kept(table)
        made = index_of(table, *asked[1:])
        if isinstance(made, OpenedIndex) and version == remembered.version:
            remembered.keep(asked, made)
        return made

    @abstractmethod
    def _read_table(self, name: str, schema: str) -> Reading:
        """Return the facts about a table, None if there is none that can be opened, or the error."""

    def _uses(self, table: Table) -> None:  # noqa: B027 - on a file the version says whether it has changed
        """Note that the transaction uses an opened table."""

    def run(self, index: Any, shape: Shape, columns: Columns, last: bool = False) -> Results:
        """Run like requests; return the results of the first ones, at least one.

        last: no other request follows in the transaction.

        Raises: Undone.
        """
        writes = shape.verb != "find"

        def alone(place: int) -> Generator[Any, Any, Any]:
            result = yield from self._alone(index, shape.verb, args_of(index, shape, columns, place))
            self.budget.take(self.budget.used)
            self.budget.run(writes)
            return result

        self.budget.run(writes)
        bulk = index.compiled.get(shape) or bulk_of(index, shape)
        return (yield from bulk.run(columns, alone, self.budget))

    @abstractmethod
    def _alone(self, index: OpenedIndex, verb: str, args: tuple[Any, ...]) -> Generator[Any, Any, Any]:
        """Run one request by itself; return its result, or its error."""

    def insert(self, wire: Any, columns: Columns) -> Results:
        """Insert the rows of these columns into a structure; return the results of the first requests, at least one.

        Raises: Undone.
        """
        made: list[Operation[Any] | Error] = wire.inserts(columns)
        operations = [each for each in made if isinstance(each, Operation)]
        requests = [(wire, "insert", (row,)) for row in zip(*columns, strict=True)]
        try:
            found = iter((yield from self._performed(operations)) if operations else ())
        except self.refusals:
            return (yield from self.perform(requests))
        inserted = wire.inserted
        results: list[Any] = []
        for place, each in enumerate(made):
            result = each if isinstance(each, Error) else next(found)
            if isinstance(result, Mismatch):
                (result,) = yield from self.perform([requests[place]])
                results.append(result)
            else:
                results.append(result if isinstance(result, Error) else inserted(result))
        return results

    def perform(self, requests: Requests) -> Results:
        """Run requests in order, those for structures together; return the results of the first ones, at least one.

        Raises: Undone.
        """
        results: list[Any] = yield from self._performed_once(requests)
        for place, (target, verb, args) in enumerate(requests[: len(results)]):
            if isinstance(results[place], Mismatch) and isinstance(target, Wire):  # altered since it was opened
                self.forget()
                found = yield from self._opening(self.names[0], target.structure.name, *target.asked)
                again = (
                    [found] if isinstance(found, Error) else (yield from self._performed_once([(found, verb, args)]))
                )
                results[place] = again[0]
        return results

    def _performed_once(self, requests: Requests) -> Results:
        results: list[Any] = []
        waiting: list[tuple[int, Wanted]] = []
        for place, (target, verb, args) in enumerate(requests):
            if results and not self.budget.open:
                break
            results.append(None)
            try:
                wanted = None if isinstance(target, OpenedIndex) else target.ask(verb, args)
            except Error as error:
                results[place] = error
                continue
            if isinstance(wanted, Wanted):
                waiting.append((place, wanted))
                continue
            yield from self._together(waiting, results)  # first, since the next request must see their changes
            waiting = []
            if wanted is None:
                results[place] = yield from self._alone(target, verb, args)
                self.budget.take(self.budget.used)
            else:
                results[place] = yield from self._by_steps(wanted)
        yield from self._together(waiting, results)
        return results

    def _together(self, waiting: list[tuple[int, Wanted]], results: list[Any]) -> Results:
        # Run them in one go; if that fails, run each by itself.
        operations = [operation for _, wanted in waiting for operation in wanted.operations]
        try:
            found = (yield from self._performed(operations)) if operations else []
        except self.refusals as error:
            if len(waiting) == 1:
                results[waiting[0][0]] = kept(error)
            for each in waiting if len(waiting) > 1 else ():
                yield from self._together([each], results)
            return []
        begin = 0
        for place, wanted in waiting:
            end = begin + len(wanted.operations)
            results[place] = _result(wanted, found[begin:end])
            begin = end
        return []

    def _by_steps(self, steps: Steps) -> Generator[Any, Any, Any]:
        # Run a request of several operations, each of which depends on the result before: all of them or none.
        def work() -> Generator[Any, Any, Any]:
            try:
                operation = next(steps)
                while True:
                    (result,) = yield from self._performed([operation])
                    if isinstance(result, Error):
                        raise result
                    operation = steps.send(result)
            except StopIteration as stop:
                return stop.value

        try:
            return (yield from undoing(work(), self.refusals))
        except self.refusals as error:
            return kept(error)

    def _performed(self, operations: Sequence[Operation[Any]]) -> Plan:
        # Run operations of structures, each with its own outcome; a failing statement undoes all of them.
        self.budget.request()
        return (yield from undoing(retried(operations, self._known, self._context), self.refusals))


def kept(error: Error) -> Error:
    """Strip an error's tracebacks, whose frames may hold many rows until the turn is answered; return the error.

    An error about a missing right is logged.
    """
    if error.word == "denied":
        _log_denied(str(error).partition(" in ")[0])
    each: BaseException | None = error
    while each is not None:
        each.__traceback__ = None
        each = each.__cause__ or each.__context__
    return error


@functools.lru_cache(maxsize=100)
def _log_denied(message: str) -> None:
    # Each message is logged once: the account will go on without the right, and the client gets only `denied`.
    log.warning("a request was refused: %s", message)


def _result(wanted: Wanted, found: list[Any]) -> Any:
    for each in found:
        if isinstance(each, Error):
            return each
    return wanted.tell(found)
