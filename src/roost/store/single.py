"""Single operations, the most frequent case: run in the caller's thread, without a queue and without a batch.

A read is one statement in a snapshot of its own. A write is a transaction of its own, if no other thread writes: on
SQLite a few statements, on a server one exchange. In every unusual case (another thread uses the connection, there is
no connection yet, the stored declaration differs, an error, a lock that is held) nothing is changed, and a batch runs
the operation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import get_ident
from time import monotonic
from typing import Any

from roost.batching.known import Known
from roost.batching.queue import Queue
from roost.databases.engine import Connection, Engine
from roost.errors import Busy, Conflict, Error, Missing, OutcomeUnknown, StatementFailed
from roost.store.links import Link
from roost.structures.operation import READS, Operation
from roost.structures.plan import Careful, Context, Question, StructurePlan

UNANSWERED: Any = object()  # a batch has to run the operation

CROWDED = 50  # writes that take a batch after one that met another session's row lock


class Single:
    """Runs single operations of one store, on the connections of its batches while these are not in use.

    readers: the links for reading.
    writers, writer: the queue and the link for writing.
    report: called with a connection that may be broken.
    timeout: seconds from a call to its deadline.
    engine: its `stale` tells whether readers may lack the latest writes; if so, no write is answered by a read alone.
    """

    def __init__(
        self,
        known: Known,
        context: Context,
        readers: Sequence[Link],
        writers: Queue,
        writer: Link,
        report: Callable[[Connection | None], None],
        timeout: float,
        engine: Engine,
    ) -> None:
        self._token = known.token
        self._known = known
        self._exchanges = known.dialect.exchanges
        self._context = context
        self._readers = readers
        self._writers = writers
        self._writer = writer
        self._report = report
        self._timeout = timeout
        self._engine = engine
        self._crowded = 0

    def run(self, op: Operation[Any], deadline: float, reader: int = 0) -> Any:
        """Return the result of an operation, or `UNANSWERED`; the deadline is by the monotonic clock."""
        if type(op) is not Operation:
            return UNANSWERED  # a batch refuses it
        plan: StructurePlan | None = op.structure.plans.get(self._known.dialect.name)
        if plan is None:
            return UNANSWERED
        if (self._exchanges or plan.routines) and self._token not in plan.trusted_by:
            return UNANSWERED  # the statement would fail if another declaration is stored
        verb = op.verb
        reads = verb in READS
        ask = plan.questions.get(verb) if reads or not self._engine.stale else None
        question = None if ask is None else ask(op, self._context)
        if question is not None:
            link = self._readers[reader]
            if not reads and link.connection is None:
                link = self._writer  # the store has read nothing yet
            result = self._run_on(link, question, plan, deadline)
            if reads or result is not UNANSWERED:
                return result
        make = plan.transactions.get(verb)
        transaction = None if make is None else make(op, self._context)
        if transaction is None:
            return UNANSWERED
        if self._crowded:
            self._crowded -= 1
            return UNANSWERED
        if self._writers.led:
            return UNANSWERED  # others wait for a batch already
        return self._run_on(self._writer, transaction, plan, deadline)

    def _run_on(self, link: Link, work: Any, plan: StructurePlan, deadline: float) -> Any:
        # work: a `Question`, or the argument of the connection's `transact`. A batch that begins meanwhile waits for
        # the link. Rejected: acquire(blocking=False), which may be interrupted between taking the lock and the `try`.
        if link.using.locked():
            return UNANSWERED
        try:
            with link.using:
                connection: Any = link.connection
                if connection is None or connection.broken:
                    return UNANSWERED
                wait = connection.wait = link.single_wait
                if self._exchanges:
                    wait.deadline = deadline  # of the exchange; on a file there is no wait for the lock
                link.user = get_ident()
                try:
                    if type(work) is Question:
                        rows = connection.ask(work.sql, work.row, plan.by_settings)
                        result = work.answer(rows)
                    else:
                        result = connection.transact(work)
                except Exception as error:
                    self._failed(error, link, connection)
                    return UNANSWERED
                except BaseException:  # an interrupt: a statement may still be under way, or have been committed
                    connection.broken = True
                    raise
                finally:
                    link.user = 0
                    if connection.broken:
                        link.drop()
                stats = link.stats
                stats.batches += 1
                stats.operations += 1
                micros, taken = stats.micros, int((monotonic() - deadline + self._timeout) * 1e6)
                micros.counts[taken.bit_length()] += 1  # inlined: a call of `add` would cost 0.1 µs more
                micros.total += taken
                if isinstance(result, Error):  # the program has refused the operation
                    raise result
                return result
        finally:
            if link.left:
                link.leave()

    def _failed(self, error: Exception, link: Link, connection: Any) -> None:
        # Re-raise the error being handled; or return if nothing was changed: a batch runs the operation again.
        stats = link.stats
        left = isinstance(error, (Busy, Careful, Conflict, Missing, StatementFailed))
        if not left and not isinstance(error, Error):  # an exception raised by a signal handler of the application
            connection.broken = True
            raise
        if isinstance(error, OutcomeUnknown) or not (left or self._exchanges):
            stats.unknown += isinstance(error, OutcomeUnknown)
            self._report(connection)
            raise
        if self._exchanges:
            connection.settle()
            self._report(connection)
            stats.retries += not isinstance(error, Careful)
            if isinstance(error, Busy):
                self._crowded = CROWDED
