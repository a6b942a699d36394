"""Single operations, the most frequent case: run in the caller's thread, without a queue and without a batch.

A read is one statement in a snapshot of its own. A write is a transaction of its own, if no other thread writes: on
SQLite a few statements, on a server one exchange. Everything unusual (another thread uses the connection, there is no
connection yet, the stored declaration differs, an error, a lock that is held) is left to a batch: nothing has been
changed then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from roost.batching.known import Known
from roost.batching.queue import Queue
from roost.batching.stats import Stats
from roost.databases.engine import HASTE, Connection, Engine, Wait
from roost.errors import Busy, Conflict, Error, Missing, OutcomeUnknown, StatementFailed
from roost.store.links import Link
from roost.structures.operation import READS, Operation
from roost.structures.plan import Careful, Context, Question, StructurePlan

UNANSWERED: Any = object()  # a batch has to run the operation

HURRIED = Wait(0.0)  # waits for no lock: an operation that has to wait is left to a batch

CROWDED = 50  # writes that take a batch after one that met somebody else's row lock


class Single:
    """Runs single operations of one store, on the connections of its batches while these are not in use.

    readers: the links for reading.
    writers, writer: the queue and the link for writing.
    report: called with a connection that may be broken.
    timeout: seconds from a call to its deadline.
    engine: says whether readers may lack what was written just now; then no write is answered by what they find.
    """

    def __init__(
        self,
        known: Known,
        counts: Mapping[Link, Stats],
        readers: Sequence[Link],
        writers: Queue,
        writer: Link,
        report: Callable[[Connection | None], None],
        timeout: float,
        engine: Engine,
    ) -> None:
        self._known = known
        self._dialect = known.dialect
        self._counts = counts
        self._readers = readers
        self._writers = writers
        self._writer = writer
        self._report = report
        self._timeout = timeout
        self._engine = engine
        self._crowded = 0

    def run(self, op: Operation[Any], context: Context, deadline: float, reader: int = 0) -> Any:
        """Return the result of an operation, or `UNANSWERED`; the deadline is by the monotonic clock."""
        dialect = self._dialect
        plan: StructurePlan | None = op.structure.plans.get(dialect.name)
        if plan is None or not dialect.alone:
            return UNANSWERED
        if dialect.exchanges and not self._known.trusts(plan):
            return UNANSWERED  # the statement would fail if another declaration is stored
        wait = Wait(deadline, HASTE) if dialect.exchanges else HURRIED
        reads = op.verb in READS
        begun = deadline - self._timeout
        question = plan.question(op, context) if reads or not self._engine.stale else None
        if question is not None:
            link = self._readers[reader]
            found = link.try_use(partial(self._work, question, plan, wait, self._counts[link], begun), UNANSWERED)
            if reads or found is not UNANSWERED:
                return found
        elif reads:
            return UNANSWERED
        transaction = plan.transaction(op, context)
        if transaction is None:
            return UNANSWERED
        if self._crowded:
            self._crowded -= 1
            return UNANSWERED
        link = self._writer
        work = partial(self._work, transaction, plan, wait, self._counts[link], begun)
        return self._writers.try_alone(partial(link.try_use, work, UNANSWERED), UNANSWERED)

    def _work(self, work: Any, plan: StructurePlan, wait: Wait, counts: Stats, begun: float, connection: Any) -> Any:
        # work: a `Question`, or what the connection runs as a transaction.
        connection.wait = wait
        try:
            if type(work) is Question:
                rows = connection.ask(work.sql, work.row, plan.by_settings)
                if not rows:
                    return UNANSWERED
                result = work.answer(rows)
            else:
                result = connection.transact(work)
        except (Busy, Careful, Conflict, Missing, StatementFailed) as error:
            return self._left(error, counts, connection)
        except Error as error:
            unknown = isinstance(error, OutcomeUnknown)
            counts.unknown += unknown
            if self._dialect.exchanges and not unknown:
                return self._left(error, counts, connection)
            self._report(connection)
            raise
        except BaseException:  # an interrupt: a statement may still be under way, or have been committed
            connection.broken = True
            raise
        counts.batches += 1
        counts.operations += 1
        micros, taken = counts.micros, int((time.monotonic() - begun) * 1e6)
        micros.counts[taken.bit_length()] += 1  # not by `add`, which would take a tenth of a microsecond more
        micros.total += taken
        return result

    def _left(self, error: Exception, counts: Stats, connection: Any) -> Any:
        # Nothing was changed; the batch will meet the error again and handle it.
        if self._dialect.exchanges:
            connection.settle()
            counts.retries += not isinstance(error, Careful)
            if isinstance(error, Busy):
                self._crowded = CROWDED
        return UNANSWERED
