"""One operation by itself: the commonest case, run where it is asked, without a queue and without a batch.

A read is one statement in a snapshot of its own. A write is a transaction of its own, begun when nobody else writes: on
SQLite a few statements, on a server one exchange, or two. Whatever is unusual (somebody else is at work, no connection
yet, another declaration than the stored one, an error, a lock that is held) is left to the batch, which knows what to
do: nothing has been changed then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from roost.engines.engine import Connection, Wait
from roost.engines.server import ServerConnection
from roost.engines.sqlite import SQLiteConnection
from roost.errors import Busy, Conflict, Error, Missing, OutcomeUnknown, StatementFailed
from roost.known import Known, Stats
from roost.links import Link
from roost.plans import Context, StructurePlan
from roost.plans.plan import Careful, Exchange, Question, Transaction
from roost.queues import Queue
from roost.structures.operation import READS, Operation

UNANSWERED: Any = object()  # the operation is the batch's

HURRIED = Wait(0.0)  # waits for nobody: who has to wait is the batch's


class Single:
    """Runs single operations of one store in a file, on the connections of its batches while these are not in use.

    reader, writers, writer: the links and the queue of those who read and write.
    report: told of a connection that may be broken.
    """

    def __init__(
        self,
        known: Known,
        counts: Mapping[Link, Stats],
        reader: Link,
        writers: Queue,
        writer: Link,
        report: Callable[[Connection | None], None],
    ) -> None:
        self._dialect = known.dialect.name
        self._counts = counts
        self._reader = reader
        self._writers = writers
        self._writer = writer
        self._report = report

    def run(self, op: Operation[Any], context: Context, _: Wait) -> Any:
        """Return the result of an operation, or `UNANSWERED`."""
        plan: StructurePlan | None = op.structure.plans.get(self._dialect)
        if plan is None:
            return UNANSWERED
        if op.verb in READS:
            ask = plan.questions.get(op.verb)
            question = None if ask is None else ask(op)
            if question is None:
                return UNANSWERED
            work = partial(self._work, _asked, question, self._counts[self._reader])
            return self._reader.try_use(work, UNANSWERED)
        transact = plan.transactions.get(op.verb)
        if transact is None:
            return UNANSWERED
        work = partial(self._work, _transacted, transact(op, context), self._counts[self._writer])
        return self._writers.try_alone(partial(self._writer.try_use, work, UNANSWERED), UNANSWERED)

    def _work(self, do: Callable[[SQLiteConnection, Any], Any], what: Any, counts: Stats, connection: Any) -> Any:
        connection.wait = HURRIED
        try:
            result = do(connection, what)
        except (Busy, Careful, Conflict, Missing, StatementFailed):
            return UNANSWERED  # nothing was changed; the batch meets it again, and knows whose it is
        except Error:
            self._report(connection)
            raise
        except BaseException:  # an interrupt: a statement may still be under way, or have been committed
            connection.broken = True
            raise
        if result is not UNANSWERED:
            counts.batches += 1
            counts.operations += 1
        return result
