"""Calls on one connection take turns: the savepoints of two calls at once would undo each other's work."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from roost.databases.forks import at_fork

L = TypeVar("L")

_guard = threading.RLock()  # a signal handler may join, too
_locks: WeakValueDictionary[tuple[Any, int], Any] = WeakValueDictionary()


def turn(connection: object, kind: Callable[[], L]) -> L:
    """Return the lock of a connection, or of a session, which exists while calls use it.

    kind: RLock, so that a trace function or a signal handler may call too; or asyncio's Lock.
    """
    with _guard:
        made = kind()
        found: L = _locks.setdefault((kind, id(connection)), made)
        return found


def _forget() -> None:
    # In a child process, where the threads that held them do not exist.
    global _guard
    _guard = threading.RLock()
    _locks.clear()


at_fork(after_in_child=_forget)
