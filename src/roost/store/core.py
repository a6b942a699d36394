"""The common part of `Store` and `AsyncStore`: an engine, a writer queue, one or two reader queues, a link for each.

Single operations, the most frequent case, run in the caller's thread, without a queue and without a batch. A read is
one statement in a snapshot of its own. A write is a transaction of its own, if no other thread writes: on SQLite a few
statements, on a server one exchange. In every unusual case (another thread uses the connection, there is no connection
yet, the stored declaration differs, an error, a lock that is held) nothing is changed, and a batch runs the operation.
"""

from __future__ import annotations

import datetime as dt
import logging
import random as random_module
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from threading import active_count, get_ident
from time import monotonic, sleep
from typing import Any, TypeVar

from roost.batching.atoms import PAUSE, READING, RETRYING, Atom, Retries, SlowPath, names_of
from roost.batching.batch import Batch, taking
from roost.batching.known import Known
from roost.batching.queue import Queue, Take, Wake
from roost.batching.stats import Stats, summed
from roost.catalog.doctor import Finding, examine, pickled
from roost.databases import open_engine
from roost.databases.engine import Connection, Trace, Wait, commit, drive
from roost.databases.sqlite.filelock import open_transaction
from roost.databases.waits import GREEN
from roost.dialects import Control, Wanted
from roost.errors import Busy, Closed, Conflict, Error, Missing, OutcomeUnknown, ReadOnly, StatementFailed
from roost.store.links import Link, Patience, alive, cores, threads
from roost.structures.operation import READS, Operation
from roost.structures.plan import Careful, Context, Question, StructurePlan

T = TypeVar("T")
Work = Generator[Wanted, Any, T]

log = logging.getLogger("roost")

UNANSWERED: Any = object()  # a batch has to run the operation
STEPS = 10_000  # of SQLite's machine, about 0.1 ms, after which a read with a limit looks at the time
CROWDED = 50  # writes that take a batch after one that met another session's row lock


class Core:
    """The working part of a store.

    It connects at the first operation of a process. A child process opens connections of its own, and does not touch
    its parent's.
    """

    def __init__(
        self,
        url: str,
        timeout: float,
        lock_wait: float,
        trace: Trace | None,
        clock: Callable[[], dt.datetime],
        random: random_module.Random | None,
    ) -> None:
        self._random = random or random_module.Random()
        self.engine = open_engine(url, timeout=timeout, trace=trace, random=self._random)
        self.timeout = timeout
        self.lock_wait = lock_wait
        self._clock = clock
        self.known = Known(self.engine.dialect)
        self._token = self.known.token
        self._is_server = self.engine.dialect.is_server
        self.engine.heard = self.known.speak
        self.closed = False
        self._start()
        cores[id(self)] = self

    def _start(self) -> None:
        self.known.stats = Stats()  # of overlaps
        self.engine.events.clear()
        self._links: list[Link] = []  # for batches
        self._looking: set[Link] = set()  # links of check() and structures()
        self._context = Context(self._clock)
        self.joined_context = replace(self._context, joined=True)
        self.threads, self.aside = threads(), threads()
        self._crowded = 0
        self._slow_writes, self._slow_reads = SlowPath(self.known.heads), SlowPath(names_of, READING)
        self._writer = self._batch_link()
        writes = partial(self._lead, self._writer, Control.BEGIN, self._slow_writes if self._is_server else None)
        self.writers = Queue(writes)
        # A server works on one batch of reads while Python makes the results of another.
        self.reading = 2 if self._is_server else 1
        if self.engine.memory:
            self._readers, self.readers = [self._writer], [self.writers]  # another connection sees another database
        else:
            self._readers = [self._batch_link() for _ in range(self.reading)]
            slow_reads = self._slow_reads if self._is_server else None
            reads = [partial(self._lead, link, Control.BEGIN_READ, slow_reads) for link in self._readers]
            self.readers = [Queue(work) for work in reads]
        self._slow_queues = [self._slow_queue(number) for number in range(READING + 1)] if self._is_server else []

    def _slow_queue(self, number: int) -> Queue:
        # A queue in which atoms wait for locks that other sessions hold for long, on a connection of its own.
        link = self._batch_link()

        def retry(deadline: float, take: Take, wake: Wake) -> None:
            retries = Retries()
            begin = Control.BEGIN_READ_NOWAIT if number == READING else Control.BEGIN_NOWAIT
            self._lead(link, begin, retries, deadline, take, wake)
            if retries.again:
                wake()
                self._rest()

        waits = partial(self._lead, link, Control.BEGIN, None)
        return Queue(retry if number in (RETRYING, READING) else waits)

    def _batch_link(self) -> Link:
        link = Link(self.engine, self.timeout)
        self._links.append(link)
        return link

    def _patience(self, link: Link, deadline: float, **options: Any) -> Patience:
        return Patience(link, deadline, deadline - self.timeout + self.lock_wait, self._waits_for_itself, **options)

    def _rest(self) -> None:
        sleep(PAUSE * (1 + self._random.random()))

    def total(self) -> Stats:
        counted = summed([self.known.stats, *[link.stats for link in self._links]])
        return replace(counted, **self.engine.events.counts)

    # --- atoms of callers -----------------------------------------------------------------------------------------

    def run(self, atoms: Sequence[Atom], *, single: bool = True) -> None:
        """Run atoms until each has its answer. All must write, or all only read: reads never wait for a commit.

        single: one operation may run without a batch.
        """
        try:
            self.submit(atoms, single=single)
            for atom in atoms:
                if atom.slow_path is not None:
                    self.submit_slow([atom])
        except BaseException:
            for atom in atoms:
                self.give_up(atom)
            raise

    def submit(self, atoms: Sequence[Atom], reader: int = 0, *, single: bool = True) -> None:
        """Run atoms until each has its answer or must go to the slow path. reader: the number of the reader queue."""
        deadline = atoms[0].deadline or monotonic() + self.timeout
        if single and len(atoms) == 1 and len(atoms[0].operations) == 1 and atoms[0].once is None:
            (atom,) = atoms
            result = self.run_single(atom.operations[0], deadline, reader)
            if result is not UNANSWERED:
                atom.results = (result,)
                atom.done = True
                return
        for atom in atoms:
            atom.deadline = deadline
            atom.begun = atom.begun or deadline - self.timeout
        queue = self.writers if atoms[0].writes else self.readers[reader]
        left = atoms
        while left:  # before the deadline a leader may return without all answers
            queue.submit(left, deadline)
            left = [atom for atom in left if not atom.done and atom.slow_path is None]

    def submit_slow(self, atoms: Sequence[Atom]) -> None:
        """Run atoms of the same slow-path queue until each has its answer."""
        assert atoms[0].slow_path is not None
        queue = self._slow_queues[atoms[0].slow_path]
        for atom in atoms:
            atom.slow_path = None
        left = atoms
        try:
            while left:  # a leader may return without its own answer, to retry
                queue.submit(left, left[0].deadline)
                left = [atom for atom in left if not atom.done]
        finally:
            for atom in atoms:
                (self._slow_writes if atom.writes else self._slow_reads).settled(atom)

    def give_up(self, atom: Atom) -> None:
        """Forget an atom that no caller waits for any more, so that its key sends no others to the slow path."""
        if atom.slow_path is not None:
            atom.slow_path = None
            (self._slow_writes if atom.writes else self._slow_reads).settled(atom)

    # --- single operations ----------------------------------------------------------------------------------------

    def run_single(self, op: Operation[Any], deadline: float, reader: int = 0) -> Any:
        """Return the result of an operation, or `UNANSWERED`; the deadline is by the monotonic clock."""
        if type(op) is not Operation:
            return UNANSWERED  # a batch refuses it
        plan: StructurePlan | None = op.structure.plans.get(self.known.dialect.name)
        if plan is None:
            return UNANSWERED
        if plan.found_by.get(self._token) is not plan:
            return UNANSWERED  # the statement would fail if another declaration is stored
        verb = op.verb
        reads = verb in READS
        # Where readers may lack the latest writes, no write is answered by a read alone.
        ask = plan.questions.get(verb) if reads or not self.engine.stale else None
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
        if self.writers.led:
            return UNANSWERED  # others wait for a batch already
        return self._run_on(self._writer, transaction, plan, deadline)

    def _run_on(self, link: Link, work: Any, plan: StructurePlan, deadline: float) -> Any:
        # work: a `Question`, or the argument of the connection's `transact`. A batch that begins meanwhile waits for
        # the link. Rejected: acquire(blocking=False), which may be interrupted between taking the lock and the `try`.
        if link.user:
            return UNANSWERED
        thread = get_ident()
        try:
            with link.using:
                link.user = thread  # before anything is called: a signal handler may run then
                try:
                    connection: Any = link.connection
                    if connection is None or connection.broken:
                        return UNANSWERED
                    wait = connection.wait = link.single_wait
                    if self._is_server:
                        wait.deadline = deadline  # of the exchange; on a file there is no wait for the lock
                    try:
                        if type(work) is Question:
                            rows = connection.ask(work.sql, work.row, plan.by_settings)
                            result = work.answer(rows)
                        else:
                            result = connection.transact(work)
                    except Exception as error:
                        self._single_failed(error, link, connection)
                        return UNANSWERED
                    except BaseException:  # an interrupt: a statement may still be under way, or have been committed
                        connection.broken = True
                        raise
                    stats = link.stats
                    stats.batches += 1
                    stats.operations += 1
                    micros, taken = stats.micros, int((monotonic() - deadline + self.timeout) * 1e6)
                    micros.counts[taken.bit_length()] += 1  # inlined: a call of `add` would cost 0.1 µs more
                    micros.total += taken
                    if isinstance(result, Error):  # the program has refused the operation
                        raise result
                    return result
                finally:
                    try:
                        if link.connection is not None and link.connection.broken:
                            link.drop()
                    finally:
                        link.user = 0  # whatever interrupts the above
        finally:
            if link.left:
                link.leave()

    def _single_failed(self, error: Exception, link: Link, connection: Any) -> None:
        # Re-raise the error being handled; or return if nothing was changed: a batch runs the operation again.
        stats = link.stats
        left = isinstance(error, (Busy, Careful, Conflict, Missing, StatementFailed))
        if not left and not isinstance(error, Error):  # an exception raised by a signal handler of the application
            connection.broken = True
            raise
        if isinstance(error, OutcomeUnknown) or not (left or self._is_server):
            stats.unknown += isinstance(error, OutcomeUnknown)
            self._report(connection)
            raise
        if self._is_server:
            connection.settle()
            self._report(connection)
            stats.retries += not isinstance(error, Careful)
            if isinstance(error, Busy):
                self._crowded = CROWDED

    # --- batches --------------------------------------------------------------------------------------------------

    def _lead(
        self, link: Link, begin: Control, slow_path: SlowPath | None, deadline: float, take: Take, wake: Wake
    ) -> None:
        # What the leader of a queue does. Without a slow path, it waits for locks until the deadline.
        reads = begin in (Control.BEGIN_READ, Control.BEGIN_READ_NOWAIT)
        if reads:
            wake()
        wait = self._patience(link, deadline, wake=wake, most=None if slow_path is None else self.lock_wait)

        def work(connection: Connection) -> None:
            batch = Batch(self.engine.dialect, self._context, link.stats, slow_path, deadline)
            batch.drive(begin, taking(take, self.known, slow_path), connection)

        self._use(link, wait, work, writes=not reads)

    def _use(
        self, link: Link, wait: Patience, work: Callable[[Connection], None], create: bool = False, writes: bool = True
    ) -> None:
        def use(link: Link) -> None:
            try:
                connection = link.connection
                if connection is None:
                    connection = link.connection = self.engine.connect(wait, create=create, writes=writes)
                connection.wait = wait
                work(connection)
            except Busy as error:
                own = self._open_transaction() if writes else ""
                if not own:
                    raise
                raise Busy(f"{error}; {own}") from error
            finally:
                self._report(link.connection)

        link.use(use)

    def _report(self, connection: Connection | None) -> None:
        if connection is not None and connection.broken:
            self.engine.events.count("reconnects")
            log.warning("dropped a connection to %s after an error; the next call connects anew", self.engine.place)

    def _open_transaction(self) -> str:
        # Only on a file can a thread wait for its own transaction, on another connection of the application. Where a
        # store of the process is writing, it may be that one's.
        file, files = self.engine.file, [core for core in alive(cores) if isinstance(core, Core) and core.engine.file]
        writers = [core._writer.connection for core in files]
        if file is None or any([writer is not None and writer.in_transaction for writer in writers]):
            return ""
        return open_transaction(file)

    def _waits_for_itself(self) -> bool:
        # Called by a thread that has waited for `lock_wait`: whether its own transaction surely has the lock.
        return active_count() == 1 and not GREEN and self._open_transaction() != ""

    # --- work that is not a batch ---------------------------------------------------------------------------------

    def repeated(self, make: Callable[[], Work[T]], *, create: bool = False) -> T:
        """Run repeatable work as `exclusive` does, and repeat it while it conflicts with other transactions."""
        return self._again(lambda: self.exclusive(make(), create=create))

    def _again(self, work: Callable[[], T]) -> T:
        deadline = monotonic() + self.timeout
        while True:
            try:
                return work()
            except (Conflict, ReadOnly) as error:
                if monotonic() > deadline or (isinstance(error, ReadOnly) and not self._is_server):
                    raise
                self._rest()

    def exclusive(self, work: Work[T], *, create: bool = False) -> T:
        """Run one transaction that is not a batch (create, alter) in the writer queue."""

        def transact(connection: Connection) -> T:
            try:
                connection.execute(Control.BEGIN_ALONE)
                result = drive(work, connection)
                commit(connection)
                return result
            except ReadOnly:
                connection.broken = True  # reconnect, since the server may have become a replica after a failover
                raise
            finally:
                connection.settle()

        return self.with_writer(transact, create=create)

    def with_writer(self, work: Callable[[Connection], T], *, create: bool = False) -> T:
        """Run one piece of work on the writers' connection, between two batches."""
        results: list[T] = []

        def errand(deadline: float) -> None:
            wait = self._patience(self._writer, deadline, lasts=True)
            self._use(self._writer, wait, lambda connection: results.append(work(connection)), create=create)

        self.writers.submit((), monotonic() + self.timeout, errand)
        return results[0]

    def snapshot(self, make: Callable[[], Work[T]]) -> T:
        """Run a long read in one snapshot, on a connection of its own; repeat it if another node's DDL has ended it."""
        return self._on_own_connection(lambda _: make())

    def doctor(self) -> list[Finding]:
        def ask(session: int | None) -> Work[list[Finding]]:
            found = yield from examine(self.engine.dialect, self.engine.durability, session)
            return found + (yield from pickled(self.known.catalog))

        return self._on_own_connection(ask)

    def _on_own_connection(self, make: Callable[[int | None], Work[T]]) -> T:
        # make: is given the number of the session.
        def read() -> T:
            link = Link(self.engine, self.timeout)
            self._looking.add(link)
            try:
                if self.closed:
                    raise Closed("the store was closed")
                wait = self._patience(link, monotonic() + self.timeout, lasts=True)
                return self._read(link, wait, lambda connection: make(connection.session), alone=True)
            finally:
                self._looking.discard(link)

        return self.exclusive(make(None)) if self.engine.memory else self._again(read)

    def glance(self, make: Callable[[Context], Work[T]], seconds: float, *, alone: bool = False) -> T:
        """Run a short read in one snapshot, which fails after so many seconds: for a console or a metric.

        alone: on a connection of its own, closed afterwards, as the application's reads use the store's: a server goes
            on to limit the statements of a connection.
        """
        if self.engine.memory:
            return self.exclusive(make(self._context))
        link = Link(self.engine, self.timeout) if alone else self._readers[0]
        wait = Wait(monotonic() + seconds, self.lock_wait, work=seconds)
        return self._read(link, wait, lambda _: make(self._context), alone)

    def _read(self, link: Link, wait: Wait, make: Callable[[Connection], Work[T]], alone: bool) -> T:
        # Reads in one snapshot.
        limits = wait.work is not None and self.engine.file is not None  # servers end a statement themselves

        def read(link: Link) -> T:
            if link.connection is None:
                link.connection = self.engine.connect(wait, writes=False)
            connection = link.connection
            connection.wait = wait
            with ExitStack() as last:  # all of it, also if some is interrupted
                if alone:
                    last.callback(link.drop)
                last.callback(connection.settle)  # a pooler closes the session of who leaves inside a transaction
                if limits:
                    connection.raw.set_progress_handler(lambda: monotonic() > wait.deadline, STEPS)
                    last.callback(connection.raw.set_progress_handler, None, 0)
                connection.execute(Control.BEGIN_READ)
                return drive(make(connection), connection)

        return link.use(read)

    def disconnect(self) -> None:
        """Close each connection when it is not in use; the next operation connects again."""
        for link in self._links:
            link.close()

    def close(self) -> None:
        """Answer the waiting operations, then close the connections."""
        self.closed = True
        for queue in (self.writers, *self.readers, *self._slow_queues):
            queue.close()
        for link in (*self._links, *self._looking):
            link.left = True  # a call that was interrupted by this one goes on
            link.close()
        self.threads.shutdown(wait=False)
        self.aside.shutdown(wait=False)

    def dispose(self) -> None:
        """Close the connections, now or after their use: the store was garbage-collected."""
        for link in self._links:
            link.leave()
        self.threads.shutdown(wait=False)
        self.aside.shutdown(wait=False)

    def after_fork(self) -> None:
        self._random.seed()  # otherwise all children would have the same numbers
        self._start()
