"""How a connection to a server waits: for its socket, for a short time, for blocking work.

In a store, the thread waits. In `roost serve`, several turns share one thread: while one of them waits, the others
continue (`server/tasks.py`).
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable
from math import inf
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

# How Python says that the process has as many as it may, or (3.12) is about to end.
NO_THREAD = "can't start new thread", "can't create new thread"
READ, WRITE = 1, 2  # what a socket is ready for; flags, as psycopg has them


class Mutex(type(threading.RLock())):  # type: ignore[misc]  # not final, whatever the stubs say
    """A lock for `with` that no interrupt leaves locked.

    Python from 3.14 on may run a signal handler between `__enter__` and the block, where `__exit__` is not called any
    more (https://github.com/python/cpython/issues/148874). Only a lock that knows its thread can be given back then.
    """

    if sys.version_info >= (3, 14):  # before, only that of the superclass, in C, is whole or not there

        def __enter__(self) -> None:
            try:
                self.acquire()
            except BaseException:
                if self.is_mine():
                    self.release()
                raise

    def is_mine(self) -> bool:
        """Whether this thread holds it."""
        return bool(self._is_owned())  # as threading.Condition asks it


def is_green(module: str) -> bool:
    """Whether gevent or eventlet has patched `socket` or `threading`: who waits there lets another greenlet go on."""
    gevent, eventlet = sys.modules.get("gevent.monkey"), sys.modules.get("eventlet.patcher")
    return bool(
        (gevent is not None and gevent.is_module_patched(module))
        or (eventlet is not None and eventlet.is_monkey_patched(module.removesuffix("ing")))
    )


GREEN = is_green("threading")  # the locks of this process, `Mutex` too, know greenlets


class Watch(Protocol):
    """A socket that tasks wait for."""

    def waits(self) -> bool:
        """Whether the caller is a task, and has to wait by `until`."""

    def until(self, events: int, seconds: float) -> int:
        """Wait; return what the socket is ready for, 0 after so many seconds without anything."""

    def received(self) -> int:
        """Return how many bytes have arrived by now; 0 where the system does not know."""

    def close(self) -> None:
        """Watch no longer."""


class Watched:
    """A driver's connection to a server, whose socket may be watched, and whose waits have a limit.

    patience: called when nothing arrived within the limit; returns how many more seconds to wait, or 0 if the
        connection is lost.
    """

    watch: Watch | None = None
    patience: Callable[[], float] | None = None
    most: float = inf  # the maximum number of bytes to read of an answer
    received = 0  # bytes received of the present answer
    server = ""  # which one it is: a number of a session means nothing on another
    home = ""  # the server that accepted writes when it was connected
    only_reads: Any = False  # as the server says it
    replica = False  # whether it was chosen for reads
    pooled = False  # whether a pooler may run each transaction in another session
    galera = False  # whether the server is a node of a cluster that writes anywhere

    def unwatch(self) -> None:
        """Watch no longer: the driver is about to close its socket, and the duplicate would keep the session alive."""
        watch, self.watch = self.watch, None
        if watch is not None:
            watch.close()


class Waits:
    """The thread waits."""

    def watch(self, fd: int) -> Watch | None:
        """Return what tasks wait for a socket by; None: it is the driver that waits."""
        return None

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def call(self, work: Callable[[], T]) -> T:
        """Do what blocks in a way of its own, such as connecting."""
        return work()


THREAD = Waits()

BYTES_RECEIVED = slice(128, 136)  # in Linux's struct tcp_info


def bytes_received(sock: socket.socket) -> int:
    """Return how many bytes have arrived on a connection; 0 where the system does not know."""
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, BYTES_RECEIVED.stop)
        return int.from_bytes(info[BYTES_RECEIVED], sys.byteorder)
    except (AttributeError, OSError):  # it is not Linux, or the socket is a file
        return 0
