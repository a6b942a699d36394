"""What both kinds of store are made of: an engine, a queue of writers, one of readers, and their connections."""

from __future__ import annotations

import datetime as dt
import logging
import os
import random as random_module
import threading
import time
import weakref
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from roost.batches import Atom, Batch, Known, Stats
from roost.dialects import Control, Statement
from roost.engines.engine import drive
from roost.engines.sqlite import SQLiteConnection, SQLiteEngine, Trace
from roost.errors import Busy, Error
from roost.joined import own_transaction
from roost.plans import Context
from roost.queues import Queue, Take

T = TypeVar("T")

log = logging.getLogger("roost")


def utc_now() -> dt.datetime:
    """Return the time of the column `at`; for showing only, never for order."""
    return dt.datetime.now(dt.UTC)


class Core:
    """The working part of a store.

    Connects at the first operation of a process; a child process starts anew and leaves its parent's connections alone.
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
        self.engine = SQLiteEngine(url, timeout=timeout, trace=trace, random=self._random)
        self.timeout = timeout
        self.lock_wait = lock_wait
        self._clock = clock
        self.known = Known(self.engine.dialect)
        self._start()
        _cores.add(self)

    def _start(self) -> None:
        self.stats = Stats()
        spot = self._random.randrange(2**31)
        self._context = Context(self._clock, spot)
        self.joined_context = Context(self._clock, spot, joined=True)
        self._worried = False
        self._writer: SQLiteConnection | None = None
        self._reader: SQLiteConnection | None = None
        self._waits_before = 0
        self._writing, self._reading = threading.Lock(), threading.Lock()  # held while a connection is used
        self._held: list[threading.Lock] = []  # of these, by a fork
        self._executor: ThreadPoolExecutor | None = None
        self.writers = Queue(self._locked_write, self.lock_wait, self._worry)
        self.readers = Queue(self._locked_read, self.lock_wait, self._worry)
        if self.engine.memory:
            self.readers = self.writers  # a second connection would see another database

    @property
    def executor(self) -> ThreadPoolExecutor:
        """The threads that work for asyncio; made when the first is needed."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(8, thread_name_prefix="roost")
        return self._executor

    def submit(self, atoms: Sequence[Atom]) -> None:
        """Return when every atom has its answer. All write, or all only read: those never wait for a commit."""
        queue = self.writers if atoms[0].writes else self.readers
        queue.submit(atoms, time.monotonic() + self.timeout)

    def waits(self) -> int:
        """Return how often a batch waited for a lock that somebody else held."""
        writer = self._writer
        if writer is None:
            return self._waits_before
        return self._waits_before + writer.waits + (writer.lock.waits if writer.lock else 0)

    def exclusive(self, work: Generator[Statement | Control, Any, T], *, create: bool = False) -> T:
        """Run one transaction of its own kind (create, alter) among the writers."""
        results: list[T] = []

        def errand(deadline: float) -> None:
            with self._writing:
                run(deadline)

        def run(deadline: float) -> None:
            connection = self._connected(deadline, create)
            try:
                connection.execute(Control.BEGIN)
                result = drive(work, connection)
                connection.execute(Control.COMMIT)
                results.append(result)
            finally:
                connection.settle()
                self._drop_if_broken(connection)

        self.writers.submit((), time.monotonic() + self.timeout, errand)
        return results[0]

    def snapshot(self, work: Generator[Statement | Control, Any, T]) -> T:
        """Run something that reads at length, in one snapshot, on a connection of its own."""
        if self.engine.memory:
            return self.exclusive(work)
        connection = self.engine.connect(writes=False)
        try:
            connection.execute(Control.BEGIN_READ)
            return drive(work, connection)
        finally:
            connection.close()

    def close(self) -> None:
        """Answer what waits, then close the connections."""
        self.writers.close()
        self.readers.close()
        self.dispose()

    def dispose(self) -> None:
        """Close the connections."""
        for connection in (self._writer, self._reader):
            if connection is not None:
                self._forget(connection)
        if self._executor is not None:
            self._executor.shutdown(wait=False)
            self._executor = None

    def before_fork(self) -> None:
        """Wait for the batches under way and close the connections: SQLite's own locks must not be inherited."""
        self._held = [lock for lock in (self._writing, self._reading) if lock.acquire(timeout=self.timeout)]
        for connection in (self._writer, self._reader):
            if connection is not None and len(self._held) == 2 and not self.engine.memory:
                self._forget(connection)

    def after_fork_in_parent(self) -> None:
        """Go on; the next operation connects anew."""
        for lock in self._held:
            lock.release()
        self._held = []

    def after_fork(self) -> None:
        """Start anew in a child process, which must not even close its parent's connections."""
        for connection in (self._writer, self._reader):
            if connection is not None:
                _inherited.append(connection)  # never collected, so never closed
        self._random.seed()  # or all children would have the same numbers
        self._start()

    def _locked_write(self, deadline: float, take: Take, wake: Callable[[], None]) -> None:
        with self._writing:
            self._write(deadline, take, wake)

    def _locked_read(self, deadline: float, take: Take, wake: Callable[[], None]) -> None:
        with self._reading:
            self._read(deadline, take, wake)

    def _write(self, deadline: float, take: Take, wake: Callable[[], None]) -> None:
        connection = self._connected(deadline, create=False)
        connection.before_waiting = wake
        batch = Batch(self.known, self._context, self.stats)
        try:
            drive(batch.run(Control.BEGIN, take), connection)
        except BaseException as error:
            if batch.committing and not connection.raw.in_transaction:
                batch.committed()  # an interrupt came between COMMIT and its answer
            connection.settle()
            found = own_transaction(self.engine.path, self._own()) if type(error) is Busy else None
            if found is None:
                raise
            raise Busy(f"{error}; {found[1]}") from error
        finally:
            self._drop_if_broken(connection)

    def _read(self, deadline: float, take: Take, wake: Callable[[], None]) -> None:
        wake()
        connection = self._reader
        if connection is None:
            connection = self._reader = self.engine.connect(writes=False)
        try:
            drive(Batch(self.known, self._context, self.stats).run(Control.BEGIN_READ, take), connection)
        except BaseException:
            connection.settle()
            raise
        finally:
            self._drop_if_broken(connection)

    def _connected(self, deadline: float, create: bool) -> SQLiteConnection:
        connection = self._writer
        if connection is None:
            connection = self._writer = self._connect(deadline, create)
            connection.on_wait = self._on_wait
        connection.deadline = deadline
        self._worried = False
        return connection

    def _on_wait(self) -> None:
        # Called by a leader while it waits for somebody else's lock.
        assert self._writer is not None
        if not self._worried and time.monotonic() >= self._writer.deadline - self.timeout + self.lock_wait:
            self._worried = True
            log.info("waiting for the write lock of %s, which somebody else holds", self.engine.path)
            error = self._worry()
            if error is not None:
                raise error

    def _connect(self, deadline: float, create: bool) -> SQLiteConnection:
        if not create:
            self.engine.must_exist()
        lock = self.engine.lock()
        if lock is None:
            return self.engine.connect(create=create)
        try:
            lock.acquire(deadline)  # two processes that switch a new file to WAL at once would meet SQLITE_BUSY
            try:
                connection = self.engine.connect(create=create)
            finally:
                lock.release()
        except BaseException:
            lock.close()
            raise
        connection.lock = lock
        return connection

    def _drop_if_broken(self, connection: SQLiteConnection) -> None:
        if connection.broken:
            log.warning("dropped a connection to %s after an error; the next operation connects anew", self.engine.path)
            self._forget(connection)

    def _forget(self, connection: SQLiteConnection) -> None:
        if connection is self._writer:
            self._waits_before = self.waits()
            self._writer = None
        elif connection is self._reader:
            self._reader = None
        connection.close()

    def _own(self) -> set[int]:
        return {
            id(connection.raw)
            for core in _cores
            for connection in (core._writer, core._reader)
            if connection is not None
        }

    def _worry(self) -> Error | None:
        # Asked by a thread that has waited for `lock_wait`: does it wait for its own transaction?
        found = own_transaction(self.engine.path, self._own())
        return Busy(found[1]) if found is not None and found[0] else None


_cores: weakref.WeakSet[Core] = weakref.WeakSet()
_inherited: list[SQLiteConnection] = []


def _before_fork() -> None:
    for core in tuple(_cores):
        core.before_fork()


def _after_fork_in_parent() -> None:
    for core in tuple(_cores):
        core.after_fork_in_parent()


def _after_fork() -> None:
    for core in tuple(_cores):
        core.after_fork()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork)
