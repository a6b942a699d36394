"""The common part of `Store` and `AsyncStore`: an engine, a writer queue, one or two reader queues, a link for each."""

from __future__ import annotations

import datetime as dt
import logging
import random as random_module
import threading
import time
import weakref
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from roost.batching.atoms import Atom
from roost.batching.batch import Batch
from roost.batching.known import Known
from roost.batching.once import cannot_make
from roost.batching.parts import SlowPath, taking
from roost.batching.queue import Queue, Take
from roost.batching.slow_path import PAUSE, READING, RETRYING, Retries, SlowReads, SlowWrites
from roost.batching.stats import Stats, summed
from roost.catalog.doctor import Finding, examine, pickled
from roost.databases import open_engine
from roost.databases.engine import Connection, Trace, Wait, commit, drive
from roost.databases.forks import at_fork
from roost.dialects import Control, Statement, Wanted
from roost.errors import (
    Busy,
    Closed,
    Conflict,
    Error,
    Invalid,
    Missing,
    OutcomeUnknown,
    ReadOnly,
    StatementFailed,
)
from roost.store.links import Link, alive
from roost.store.self_deadlock import OpenTransaction, open_transaction
from roost.store.single import UNANSWERED, Single
from roost.store.threads import Threads
from roost.structures.plan import Context

T = TypeVar("T")

log = logging.getLogger("roost")


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
        self.engine.heard = self.known.speak
        self.closed = False
        self._start()
        _cores[id(self)] = self

    def _start(self) -> None:
        self._preparing = threading.Lock()
        self.known.stats = Stats()  # of overlaps
        self.engine.events.clear()
        self._links: list[Link] = []  # for batches
        spot = self._random.randrange(2**31)
        self._context = Context(self._clock, spot)
        self._slow_writes = SlowWrites(self.known, self._context)
        self._slow_reads = SlowReads()
        self.joined_context = replace(self._context, joined=True)
        self.threads = Threads()
        self._writer = self._batch_link()
        # A server works on one batch of reads while Python makes the results of another.
        self.reading = 2 if self.engine.dialect.exchanges else 1
        self._readers = [self._batch_link() for _ in range(self.reading)]
        self._looking: set[Link] = set()  # links of check() and structures()
        self.writers = Queue(self._write_batch, self.lock_wait, self._worry)
        self.readers = [Queue(partial(self._read, link), self.lock_wait, self._worry) for link in self._readers]
        self._slow_queues = (
            [self._slow_queue(number) for number in range(READING + 1)] if self.engine.dialect.row_locks else []
        )
        if self.engine.memory:
            self.readers = [self.writers]  # a second connection would see another database
        readers = [self._writer] if self.engine.memory else self._readers
        single = Single(
            *(self.known, self._context, readers, self.writers, self._writer, self._report, self.timeout),
            engine=self.engine,
        )
        self.run_single = single.run

    def _slow_queue(self, number: int) -> tuple[Queue, Link]:
        # A queue in which atoms wait for locks that other sessions hold for long, on a connection of its own.
        link = self._batch_link()

        def wait(deadline: float, take: Take, wake: Callable[[], None]) -> None:
            self._write(link, _Patience(self, deadline, wake, link=link), take, None)

        def try_(deadline: float, take: Take, wake: Callable[[], None]) -> None:
            retries = Retries()
            if number == READING:
                self._read(link, deadline, take, wake, retries)
            else:
                self._write(link, _Patience(self, deadline, wake, link=link), take, retries, Control.BEGIN_NOWAIT)
            if retries.again:
                wake()
                time.sleep(PAUSE * (1 + self._random.random()))

        return Queue(try_ if number in (RETRYING, READING) else wait, self.lock_wait, self._worry), link

    def _link(self) -> Link:
        return Link(self.engine.file, self.timeout)

    def _batch_link(self) -> Link:
        link = self._link()
        self._links.append(link)
        return link

    def total(self) -> Stats:
        """Return the statistics of this store in this process."""
        found = summed([self.known.stats, *[link.stats for link in self._links]])
        for name, number in self.engine.events.counts.items():
            setattr(found, name, number)
        return found

    def submit(self, atoms: Sequence[Atom]) -> None:
        """Run atoms until each has its answer. All must write, or all only read: reads never wait for a commit."""
        if not self._run_single(atoms):
            self.submit_batch(atoms)

    def _run_single(self, atoms: Sequence[Atom], reader: int = 0) -> bool:
        # Run a single operation without a batch; return whether it has its answer.
        if len(atoms) > 1 or len(atoms[0].operations) > 1 or atoms[0].once is not None:
            return False
        (atom,) = atoms
        deadline = atom.deadline or time.monotonic() + self.timeout
        result = self.run_single(atom.operations[0], deadline, reader)
        if result is UNANSWERED:
            return False
        atom.results = (result,)
        atom.done = True
        return True

    def submit_batch(self, atoms: Sequence[Atom]) -> None:
        """Run atoms as `submit` does, but always in a batch."""
        try:
            self._submit_some(atoms)
            for atom in atoms:
                if atom.slow_path is not None:
                    self.submit_slow([atom])
        except BaseException:
            for atom in atoms:
                self.give_up(atom)
            raise

    def submit_some(self, atoms: Sequence[Atom], reader: int = 0) -> None:
        """Run atoms until each has its answer or must go to the slow path. reader: the number of the reader queue."""
        if not self._run_single(atoms, reader):
            self._submit_some(atoms, reader)

    def _submit_some(self, atoms: Sequence[Atom], reader: int = 0) -> None:
        deadline = atoms[0].deadline or time.monotonic() + self.timeout
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
        queue, _ = self._slow_queues[atoms[0].slow_path]
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
            self._slow_writes.settled(atom)

    def repeated(self, make: Callable[[], Generator[Wanted, Any, T]], *, create: bool = False) -> T:
        """Run repeatable work as `exclusive` does, and repeat it while it conflicts with other transactions."""
        return self._again(lambda: self.exclusive(make(), create=create))

    def _again(self, work: Callable[[], T]) -> T:
        deadline = time.monotonic() + self.timeout
        while True:
            try:
                return work()
            except (Conflict, ReadOnly) as error:
                if time.monotonic() > deadline or (isinstance(error, ReadOnly) and not self.engine.dialect.exchanges):
                    raise
                time.sleep(PAUSE * (1 + self._random.random()))

    def prepare_once(self) -> None:
        """Make the table of tokens if it is missing; called with each token, until the table is known to exist."""
        once = self.known.once
        if once.made:
            return
        with self._preparing:
            if once.made:
                return
            try:
                there = self.snapshot(once.is_made, lasts=False)
            except Invalid:  # another session may be making it just now: find out under the lock, in `once.make`
                there = False
            if not there:
                try:
                    self.repeated(partial(once.make, self.known.catalog))
                except (Missing, StatementFailed) as error:
                    raise cannot_make(error) from error
            once.made = True

    def is_once_gone(self, atom: Atom) -> bool:
        """Whether an atom with a token failed, without effect, because the table of tokens is no longer there."""
        return isinstance(atom.error, Missing) and not self.known.once.made

    def exclusive(self, work: Generator[Wanted, Any, T], *, create: bool = False) -> T:
        """Run one transaction that is not a batch (create, alter) in the writer queue."""
        results: list[T] = []

        def transact(connection: Connection) -> None:
            try:
                connection.execute(Control.BEGIN_ALONE)
                result = drive(work, connection)
                commit(connection)
                results.append(result)
            except ReadOnly:
                connection.broken = True  # reconnect, since the server may have become a replica after a failover
                raise
            finally:
                connection.settle()

        self.with_writer(transact, create=create)
        return results[0]

    def with_writer(self, work: Callable[[Connection], None], *, create: bool = False) -> None:
        """Run one piece of work on the writers' connection, between two batches."""

        def errand(deadline: float) -> None:
            self._use(self._writer, _Patience(self, deadline, lasts=True, link=self._writer), work, create)

        self.writers.submit((), time.monotonic() + self.timeout, errand)

    def snapshot(self, make: Callable[[], Generator[Wanted, Any, T]], *, lasts: bool = True) -> T:
        """Run a long read in one snapshot, on a connection of its own; repeat it if another node's DDL has ended it."""
        if self.engine.memory:
            return self.exclusive(make())
        return self._again(lambda: self._look(lambda _: make(), lasts))

    def examine(self) -> list[Finding]:
        """Examine the database, and return the findings of `doctor`."""

        def ask(session: int | None) -> Generator[Statement, Any, list[Finding]]:
            found = yield from examine(self.engine.dialect, self.engine.durability, session)
            return found + (yield from pickled(self.known.catalog))

        if self.engine.memory:
            return self.exclusive(ask(None))
        return self._again(lambda: self._look(lambda connection: ask(connection.session)))

    def _look(self, make: Callable[[Connection], Generator[Wanted, Any, T]], lasts: bool = True) -> T:
        def look(link: Link) -> T:
            wait = _Patience(self, time.monotonic() + self.timeout, lasts=lasts)
            connection = link.connection = self.engine.connect(wait, writes=False)
            try:
                connection.execute(Control.BEGIN_READ)
                return drive(make(connection), connection)
            finally:
                connection.settle()  # a pooler closes the server session of a client that leaves inside a transaction
                link.drop()

        link = self._link()
        self._looking.add(link)
        try:
            if self.closed:
                raise Closed("the store was closed")
            return link.use(look)
        finally:
            self._looking.discard(link)

    def disconnect(self) -> None:
        """Close each connection when it is not in use; the next operation connects again."""
        for link in self._links:
            link.close()

    def close(self) -> None:
        """Answer the waiting operations, then close the connections."""
        self.closed = True
        for queue in (self.writers, *self.readers, *[queue for queue, _ in self._slow_queues]):
            queue.close()
        for link in (*self._links, *self._looking):
            link.close()
        self.threads.dismiss()

    def dispose(self) -> None:
        """Close the connections, now or after their use: the store was garbage-collected."""
        for link in self._links:
            link.leave()
        self.threads.dismiss()

    def after_fork(self) -> None:
        """Reset the store in a child process."""
        self._random.seed()  # otherwise all children would have the same numbers
        self._start()

    def _write_batch(self, deadline: float, take: Take, wake: Callable[[], None]) -> None:
        slow_path = self._slow_writes if self._slow_queues else None
        self._write(self._writer, _Patience(self, deadline, wake, self.lock_wait, link=self._writer), take, slow_path)

    def _write(
        self, link: Link, wait: _Patience, take: Take, slow_path: SlowPath | None, begin: Control = Control.BEGIN
    ) -> None:
        def work(connection: Connection) -> None:
            batch = Batch(self.engine.dialect, self._context, link.stats, slow_path, wait.deadline)
            try:
                drive(batch.run(begin, taking(take, self.known, slow_path)), connection)
            except BaseException:
                if batch.committing is not None:  # interrupted between COMMIT and its answer
                    committed = None
                    try:
                        committed = connection.outcome()
                    finally:  # `outcome` may be interrupted too
                        if committed:
                            batch.committed()
                        elif committed is None:
                            link.stats.unknown += len(batch.committing)
                            batch.committing.refuse(OutcomeUnknown("the store was interrupted during COMMIT"))
                connection.settle()
                raise

        self._use(link, wait, work)

    def _use(self, link: Link, wait: _Patience, work: Callable[[Connection], None], create: bool = False) -> None:
        def use(link: Link) -> None:
            try:
                connection = link.connection
                if connection is None:
                    connection = link.connection = self.engine.connect(wait, create=create)
                connection.wait = wait
                work(connection)
            except Busy as error:
                own = None if wait.said else self._open_transaction()
                if own is None:
                    raise
                raise Busy(f"{error}; {own.message}") from error
            finally:
                self._report(link.connection)

        link.use(use)

    def _read(
        self, link: Link, deadline: float, take: Take, wake: Callable[[], None], retries: Retries | None = None
    ) -> None:
        wake()
        slow_path = retries or (self._slow_reads if self._slow_queues else None)
        begin = Control.BEGIN_READ if retries is None else Control.BEGIN_READ_NOWAIT

        def use(link: Link) -> None:
            connection = link.connection
            if connection is None:
                connection = link.connection = self.engine.connect(_Patience(self, deadline), writes=False)
            connection.wait = Wait(deadline, self.lock_wait)
            try:
                batch = Batch(self.engine.dialect, self._context, link.stats, slow_path)
                drive(batch.run(begin, taking(take, self.known, slow_path)), connection)
            except BaseException:
                connection.settle()
                raise
            finally:
                self._report(link.connection)

        link.use(use)

    def _report(self, connection: Connection | None) -> None:
        if connection is not None and connection.broken:
            self.engine.events.count("reconnects")
            log.warning(
                "dropped a connection to %s after an error; the next operation connects anew", self.engine.place
            )

    def _open_transaction(self) -> OpenTransaction | None:
        # Only on a file can a thread wait for its own transaction, on another connection of the application. Where a
        # store of the process is writing, it may be that one's.
        if self.engine.file is None or any([_writes(core) for core in alive(_cores) if core.engine.file]):
            return None
        return open_transaction(self.engine.file)

    def _worry(self) -> Error | None:
        # Called by a thread that has waited for `lock_wait`: check whether its own transaction holds the lock.
        own = self._open_transaction()
        return Busy(own.message) if own is not None and own.sure else None


def _writes(core: Core) -> bool:
    connection = core._writer.connection
    return connection is not None and connection.in_transaction


class _Patience(Wait):
    """Waits until the deadline; counts and logs the wait, and after `lock_wait` checks for a self-deadlock."""

    __slots__ = ("_core", "_counted", "_link", "_wake", "_worried", "said")

    def __init__(
        self,
        core: Core,
        deadline: float,
        wake: Callable[[], None] | None = None,
        most: float | None = None,
        lasts: bool = False,
        link: Link | None = None,
    ) -> None:
        super().__init__(deadline, most, lasts)
        self._core = core
        self._link = link
        self._wake = wake
        self._counted = False
        self._worried = False
        self.said = False  # it has raised that the thread waits for its own lock

    def pause(self) -> None:
        """Wake the callers that the previous batch has answered."""
        if self._wake is not None:
            self._wake()

    def blocked(self) -> None:
        """Count a wait once, and check for a self-deadlock once."""
        core = self._core
        if not self._counted:
            self._counted = True
            if self._link is not None:
                self._link.stats.waits += 1
        if self._worried or time.monotonic() < self.deadline - core.timeout + core.lock_wait:
            return
        self._worried = True
        log.info("waiting for the write lock of %s, which another session holds", core.engine.place)
        error = core._worry()
        if error is not None:
            self.said = True
            raise error


_cores: weakref.WeakValueDictionary[int, Core] = weakref.WeakValueDictionary()


def _after_fork() -> None:
    for core in alive(_cores):
        core.after_fork()


at_fork(after_in_child=_after_fork)
