"""One operation by itself: the commonest case, run where it is asked, without a queue and without a batch.

A read is one statement in a snapshot of its own. A write is a transaction of its own, begun when nobody else writes.
Whatever is unusual (somebody else is at work, no connection yet, another declaration than the stored one, an error, a
lock that is held) is left to the batch, which knows what to do: nothing has been changed then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from roost.batching.known import Known, Stats
from roost.batching.queue import Queue
from roost.databases.engine import Connection, Wait
from roost.databases.sqlite.engine import SQLiteConnection
from roost.errors import Busy, Conflict, Error, Missing, StatementFailed
from roost.store.links import Link
from roost.structures.operation import READS, Operation
from roost.structures.plan import Careful, Context, Question, Transaction

UNANSWERED: Any = object()  # the operation is the batch's

HURRIED = Wait(0.0)  # waits for nobody: who has to wait is the batch's


class Single:
    """Runs single operations of one store, on the connections of its batches while these are not in use.

    reader: None where reads are the batch's; queue, writer: of those who write, None likewise.
    report: told of a connection that may be broken.
    """

    def __init__(
        self,
        known: Known,
        counts: Mapping[Link, Stats],
        reader: Link | None,
        queue: Queue,
        writer: Link | None,
        report: Callable[[Connection | None], None],
    ) -> None:
        self._dialect = known.dialect.name
        self._counts = counts
        self._reader = reader
        self._queue = queue
        self._writer = writer
        self._report = report

    def run(self, op: Operation[Any], context: Context) -> Any:
        """Return the result of an operation, or `UNANSWERED`."""
        plan = op.structure.plans.get(self._dialect)
        if plan is None:
            return UNANSWERED
        if op.verb in READS:
            ask = plan.questions.get(op.verb)
            question = None if ask is None else ask(op)
            if question is None or self._reader is None:
                return UNANSWERED
            work = partial(self._work, _asked, question, self._counts[self._reader])
            return self._reader.try_use(work, UNANSWERED)
        transact = plan.transactions.get(op.verb)
        if transact is None or self._writer is None:
            return UNANSWERED
        work = partial(self._work, _transacted, transact(op, context), self._counts[self._writer])
        return self._queue.try_alone(partial(self._writer.try_use, work, UNANSWERED), UNANSWERED)

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


def _asked(connection: SQLiteConnection, question: Question) -> Any:
    rows = connection.ask(question.sql, question.row)
    return question.answer(rows) if rows else UNANSWERED


def _transacted(connection: SQLiteConnection, work: Transaction) -> Any:
    return connection.transact(work)
