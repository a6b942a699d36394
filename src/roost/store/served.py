"""A database as a server has it: one connection, whose transactions answer what many clients have asked.

A request that fails costs itself alone: what it did is undone by SQLite, statement by statement, and its result is the
error. Where an error undoes the whole transaction, or COMMIT fails, nothing was done at all: the batch runs its part
again in halves.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Sequence
from random import Random
from typing import Any

from roost.batching.batch import Batch, retried
from roost.batching.known import Known, Stats
from roost.batching.parts import Part
from roost.databases.engine import Undone, Wait, drive
from roost.databases.sqlite.apsw import ApswConnection
from roost.databases.sqlite.engine import SQLiteEngine
from roost.dialects import Control, Statement
from roost.errors import Busy, Error, Mismatch, Missing
from roost.store.core import utc_now
from roost.structures.index.budget import Budget, Limits
from roost.structures.index.bulk import args_of, bulk_of
from roost.structures.index.opened import OpenedIndex, open_index
from roost.structures.index.runs import Columns, Results, Shape
from roost.structures.index.sqlite import SCHEMA_VERSION
from roost.structures.operation import Operation
from roost.structures.plan import Context, Plan
from roost.structures.registry import from_definition
from roost.structures.wire import Steps, Wanted, Wire

__all__ = ["Budget", "Database", "Limits", "Undone"]

log = logging.getLogger("roost.server")

Opened = OpenedIndex | Wire
Requests = Sequence[tuple[Any, str, tuple[Any, ...]]]  # of what was opened: verbs and arguments of its operations


class Database:
    """One connection to a file, for reading alone or for writing.

    lock_wait: seconds that opening it waits for somebody else.
    version: a number of this process that rises when what can be opened may have changed.

    Raises: CannotOpen, Missing, when made.
    """

    def __init__(self, url: str, *, writes: bool, lock_wait: float) -> None:
        self.budget = Budget(Limits(), time.monotonic)
        self.version = 0
        self._writes = writes
        self._seen: tuple[int, int] | None = None  # how often the file was opened, and the version of its schema
        self._wait = Wait(time.monotonic() + lock_wait)
        engine = SQLiteEngine(url, timeout=lock_wait, trace=None, random=Random())
        self._connection = ApswConnection(engine, self._wait, self.budget, writes=writes)
        self._dialect = self._connection.dialect
        self._known = Known(self._dialect, exact=True)  # what is opened is looked at again when it has changed
        self._context = Context(utc_now, 0)
        self._begin = Control.BEGIN if writes else Control.BEGIN_READ
        self._stats = Stats()

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

    def begin(self) -> Error | None:
        """Begin a transaction ahead of the next `transact`; return why there is none."""
        try:
            self._connection.execute(self._begin)
        except Error as error:
            return self._not_begun(error)
        return None

    def transact(self, part: Part) -> Error | None:
        """Run what has arrived as a batch; return why no transaction could be begun, where none could."""
        connection = self._connection
        batch = Batch(self._dialect, self._context, self._stats)
        try:
            drive(batch.run(self._begin, lambda: part), connection)
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

    def look(self) -> Generator[Any, Any, None]:
        """Look, first in a transaction, whether what was opened may have changed."""
        ((version,),) = (yield Statement(SCHEMA_VERSION, [()]))[0]
        if self._seen != (self._connection.opened, version):
            self._seen = (self._connection.opened, version)
            self.version += 1

    def open(
        self, name: str, index: str, columns: Sequence[str], filters: Sequence[str]
    ) -> Generator[Any, Any, Opened | Error]:
        """Return what these names stand for now: an index of a table, or a structure; or the error that says why not.

        Raises: Undone.
        """
        self.budget.unlimited()
        try:
            return (yield from self._opening(name, index, columns, filters))
        except Error as error:
            return _without_frames(error)

    def _opening(
        self, name: str, index: str, columns: Sequence[str], filters: Sequence[str]
    ) -> Generator[Any, Any, Opened | Error]:
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
        found: Opened | Error = yield from open_index(name, index, columns, filters)
        return found

    def run(self, index: Any, shape: Shape, columns: Columns) -> Results:
        """Do like requests; return the results of the first ones, at least one.

        Raises: Undone.
        """
        writes = shape.verb != "find"

        def alone(place: int) -> Generator[Any, Any, Any]:
            result = yield from self._alone(index, shape.verb, args_of(index, shape, columns, place))
            self.budget.take(self.budget.used)
            self.budget.run(writes)
            return result

        self.budget.run(writes)
        return (yield from bulk_of(index, shape, self._dialect).run(columns, alone, self.budget))

    def _alone(self, index: OpenedIndex, verb: str, args: tuple[Any, ...]) -> Generator[Any, Any, Any]:
        # One request by itself: its result, or its error.
        self.budget.request()
        try:
            return (yield from index.perform(verb, args))
        except Error as error:
            if not isinstance(error.__cause__, UnicodeDecodeError):
                return _without_frames(error)
        self.budget.request()  # a text that is no UTF-8 is read as bytes; nothing has been written by then
        try:
            return (yield from index.undecoded.perform(verb, args))
        except Error as error:
            return _without_frames(error)

    def perform(self, requests: Requests) -> Results:
        """Do requests one after the other, those of structures together; return the results of the first, at least one.

        Raises: Undone.
        """
        results: list[Any] = yield from self._performed_once(requests)
        for place, (target, verb, args) in enumerate(requests[: len(results)]):
            if isinstance(results[place], Mismatch) and isinstance(target, Wire):  # it was altered since it was opened
                self.forget()
                found = yield from self._opening(target.structure.name, *target.asked)
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
            yield from self._together(waiting, results)  # what follows must see what they did
            waiting = []
            if wanted is None:
                results[place] = yield from self._alone(target, verb, args)
                self.budget.take(self.budget.used)
            else:
                results[place] = yield from self._by_steps(wanted)
        yield from self._together(waiting, results)
        return results

    def _together(self, waiting: list[tuple[int, Wanted]], results: list[Any]) -> Results:
        # Each by itself where that fails.
        operations = [operation for _, wanted in waiting for operation in wanted.operations]
        try:
            found = (yield from self._performed(operations)) if operations else []
        except Error:
            for place, wanted in waiting:
                results[place] = yield from self._one(wanted)
            return []
        begin = 0
        for place, wanted in waiting:
            end = begin + len(wanted.operations)
            results[place] = _result(wanted, found[begin:end])
            begin = end
        return []

    def _one(self, wanted: Wanted) -> Generator[Any, Any, Any]:
        try:
            return _result(wanted, (yield from self._performed(wanted.operations)))
        except Error as error:
            return _without_frames(error)

    def _by_steps(self, steps: Steps) -> Generator[Any, Any, Any]:
        # A request that must see one result before it asks the next; all of it or nothing.
        yield Control.SAVEPOINT
        try:
            operation = next(steps)
            while True:
                (result,) = yield from self._performed([operation])
                if isinstance(result, Error):
                    raise result
                operation = steps.send(result)
        except StopIteration as stop:
            result = stop.value
        except Error as error:
            yield Control.BACK
            result = _without_frames(error)
        yield Control.RELEASE
        return result

    def _performed(self, operations: Sequence[Operation[Any]]) -> Plan:
        # Operations of structures, each with its own outcome; what a statement refuses undoes all of them.
        self.budget.request()
        yield Control.SAVEPOINT
        try:
            results = yield from retried(operations, self._known, self._context)
        except Error:
            yield Control.BACK
            yield Control.RELEASE
            raise
        yield Control.RELEASE
        return results


def _without_frames(error: Error) -> Error:
    # A result is kept until the turn is answered; the frames of its traceback hold rows, as many as there was room for.
    each: BaseException | None = error
    while each is not None:
        each.__traceback__ = None
        each = each.__cause__ or each.__context__
    return error


def _result(wanted: Wanted, found: list[Any]) -> Any:
    for each in found:
        if isinstance(each, Error):
            return each
    return wanted.tell(found)
