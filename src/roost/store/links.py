"""What a store has in one process: threads, and links: connections, each opened on first use, for one thread at a time.

No child process may inherit a connection to a file. SQLite counts the locks of a process in its memory, so a child
would assume that it holds its parent's locks, and the two would overwrite each other's data. A fork therefore blocks
new uses, waits for the current ones, and closes the connections; parent and child open new ones on the next use. If a
use takes too long, the fork proceeds, and the child must not open that file at all (`CannotOpen`).
"""

from __future__ import annotations

import logging
import math
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from roost.batching.queue import INSIDE
from roost.batching.stats import Stats
from roost.databases.engine import HASTE, Connection, Engine, Wait, at_fork, uwsgi
from roost.databases.sqlite.engine import forbid
from roost.databases.waits import GREEN, NO_THREAD, Mutex, is_green
from roost.errors import Busy, CannotOpen, Closed

log = logging.getLogger("roost")

S = TypeVar("S")
T = TypeVar("T")

MOST_THREADS = 8  # of an `AsyncStore`
FORK_PATIENCE = 5.0  # seconds that a fork waits for connections in use, beyond the timeout of their store


class Link:
    """One connection, or none yet.

    path: the engine's file; None for a database in memory, which a child does not share, and for a server, whose
        drivers do not close a parent's connections in a child.
    timeout: seconds that the thread using it may wait for a lock of another session.
    using: the lock of the thread that uses the link. That thread sets `user`, drops a broken connection, and calls
        `leave` if `left` is set. `use` does so, and so do single operations, which do not wait for the lock.
    """

    def __init__(self, engine: Engine, timeout: float) -> None:
        self.connection: Connection | None = None
        self.path, self.place = engine.file, engine.place
        self.timeout = timeout
        self.forked = uwsgi is not None and not engine.memory
        self.using = Mutex()
        self.user = 0  # the id of the thread that uses it
        self.left = False  # its store is gone: the thread that uses the connection closes it afterwards
        self.stats = Stats()  # of the operations on it; only the thread that uses it counts
        self.single_wait = Wait(0.0, HASTE)  # for single operations
        if self.path is not None:
            _links[id(self)] = self

    def use(self, work: Callable[[Link], T]) -> T:
        """Run `work` while no other thread uses the connection; close the connection afterwards if it broke."""
        with _turnstile:
            pass
        if self.connection is None and not GREEN and is_green("socket"):
            raise CannotOpen(
                f"{self.place}: gevent or eventlet has patched sockets, but threads not before Roost was imported, so "
                "two greenlets would use one connection: patch first (for gunicorn --preload: in its configuration)"
            )
        thread = threading.get_ident()
        if self.user == thread:  # called by a trace function or a signal handler, inside another call
            raise Busy(INSIDE)
        try:
            with self.using:
                self.user = thread  # before anything is called: a signal handler may run then
                try:
                    return work(self)
                finally:
                    try:
                        over = self.forked and uwsgi.worker_id() == 0  # its workers would inherit it
                        if self.connection is not None and (over or self.connection.broken):
                            self.drop()
                    finally:
                        self.user = 0  # whatever interrupts the above
        finally:
            if self.left:
                self.leave()

    def drop(self) -> None:
        """Close the connection; only the thread that uses the link may call it."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Close the connection after its use, unless this thread uses it: a signal handler has interrupted the use."""
        thread = threading.get_ident()
        if self.user == thread:
            return
        with self.using:
            self.user = thread
            try:
                self.drop()
            finally:
                self.user = 0

    def leave(self) -> None:
        """Close the connection now or after its use. Never waits: a finalizer may run in the thread that uses it."""
        self.left = True
        if not self.using.is_mine() and self.using.acquire(blocking=False):
            try:
                self.drop()
            finally:
                self.using.release()


class Patience(Wait):
    """Waits until the deadline; counts and logs the wait, and looks for a self-deadlock at `worried`.

    wake: wakes the callers that the previous batch has answered.
    waits_for_itself: whether the thread does; then the wait ends.
    """

    __slots__ = ("_counted", "_link", "_waits_for_itself", "_wake", "_worried")

    def __init__(
        self,
        link: Link,
        deadline: float,
        worried: float,
        waits_for_itself: Callable[[], bool],
        *,
        wake: Callable[[], None] | None = None,
        most: float | None = None,
        lasts: bool = False,
    ) -> None:
        super().__init__(deadline, most, lasts)
        self._link = link
        self._wake = wake
        self._waits_for_itself = waits_for_itself
        self._worried = worried
        self._counted = False

    def pause(self) -> None:
        if self._wake is not None:
            self._wake()

    def blocked(self) -> None:
        if not self._counted:
            self._counted = True
            self._link.stats.waits += 1
        if time.monotonic() >= self._worried:
            self._worried = math.inf  # once
            log.info("waiting for the write lock of %s, which another session holds", self._link.place)
            if self._waits_for_itself():
                self.deadline = 0.0


def threads() -> ThreadPoolExecutor:
    """Return the threads of an `AsyncStore`: each starts with its first work.

    It has some for batches, and others for what may work for longer than `timeout`, which must not keep batches back.
    """
    return ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="roost")


def fulfil(answer: Future[T], call: Callable[[], T]) -> None:
    """Call in this thread, unless the future was cancelled, and set its result or exception."""
    if answer.set_running_or_notify_cancel():
        try:
            answer.set_result(call())
        except BaseException as error:
            answer.set_exception(error)


def start(pool: ThreadPoolExecutor, work: Callable[[], object]) -> None:
    """Have a thread do some work; `Closed` after the pool's end, `Busy` if no thread can be started.

    A pool that cannot start one has queued the work all the same, and would do it later, unknown to its caller.
    """
    taken = iter([work])  # by a thread, or back

    def run() -> None:
        for mine in taken:
            mine()

    try:
        pool.submit(run)
    except RuntimeError as error:
        if next(taken, None) is not None:
            if str(error).startswith("cannot schedule"):
                raise Closed("the store was closed") from None
            if str(error).startswith(NO_THREAD):
                raise Busy(f"{error}; nothing was done") from None
            raise  # of an interrupt


_links: weakref.WeakValueDictionary[int, Link] = weakref.WeakValueDictionary()
cores: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()  # the working parts of all stores
_turnstile = Mutex()  # held during a fork; reentrant, so the forking thread can use links not closed yet
_stopped: list[Link] = []  # the links whose lock a fork holds
_inherited: list[Connection] = []  # the parent's connections; referred to, so that they are never closed


def alive(kept: weakref.WeakValueDictionary[int, S]) -> list[S]:
    """Return the values that still exist. The references are copied in one step, since other threads may add some."""
    return [each for each in [ref() for ref in kept.valuerefs()] if each is not None]


def _before_fork() -> None:
    _turnstile.acquire()
    links = alive(_links)
    end = time.monotonic() + FORK_PATIENCE + max((link.timeout for link in links if link.user), default=0)
    for link in links:
        if link.user == threading.get_ident():
            continue  # a trace function forks, inside a batch
        if link.using.acquire(timeout=max(0.0, min(end - time.monotonic(), threading.TIMEOUT_MAX))):
            _stopped.append(link)
            link.drop()


def _after_fork_in_parent() -> None:
    while _stopped:
        _stopped.pop().using.release()
    _turnstile.release()


def _after_fork_in_child() -> None:
    global _turnstile
    _turnstile = Mutex()
    for link in alive(_links):
        connection, link.connection = link.connection, None
        if connection is not None:
            _inherited.append(connection)
        if connection is not None or link not in _stopped:  # the parent was using it, or opening it, during the fork
            forbid(str(link.path))
    _stopped.clear()
    _links.clear()  # the child's stores make new links
    for core in alive(cores):
        core.after_fork()


at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
