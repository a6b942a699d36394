"""Detect a self-deadlock: the calling thread waits for a lock that its own transaction on the file holds."""

from __future__ import annotations

import gc
import os
import sqlite3
import sys
import threading
from collections.abc import Mapping
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import NamedTuple

from roost.databases.sqlite.engine import file_of

# The bytes of SQLite's files that a writer locks: WAL_WRITE_LOCK in the index of the write-ahead log (walIndexLock in
# wal.c), or RESERVED_BYTE in the file itself if there is no such log (os.h).
_WAL_WRITE = 120
_RESERVED = 0x40000001

DEPTH = 8  # references from a frame to a connection; with SQLAlchemy's session there are seven
MOST_OBJECTS = 50_000  # objects that the search visits
NOT_FOLLOWED = (type, ModuleType, FunctionType, BuiltinFunctionType, CodeType, str, bytes, int, float)


class OpenTransaction(NamedTuple):
    """A transaction of the calling thread: whether it surely holds the write lock, and a sentence about it."""

    sure: bool
    message: str


def open_transaction(path: str, ours: Mapping[int, bool]) -> OpenTransaction | None:
    """Return the transaction that the calling thread has open on this file, on a connection of its own, or None.

    Also return None if that transaction is known not to hold the write lock, or if its connection is not found. Only a
    thread that has been waiting for some time calls this, since it searches all objects that the functions on the
    thread's stack can reach.

    ours: the ids of Roost's own connections, and whether each holds the write lock.
    """
    holds = _process_holds(path)
    if holds is False:
        return None
    found = wrote = sure = False
    for connection in _reachable(sys._getframe(), ours):
        if _is_in_transaction(connection) and _is_this_threads(connection) and _is_on(connection, path):
            found = True
            # sqlite3 begins a transaction at the first change, unless the application begins transactions itself.
            began = connection.isolation_level is not None and getattr(connection, "autocommit", -1) == -1
            wrote = wrote or connection.total_changes > 0
            sure = sure or (began and connection.total_changes > 0)
    if not found:
        return None
    return OpenTransaction(
        bool(holds) and (sure or (not any(ours.values()) and (wrote or threading.active_count() == 1))),
        f"this thread has a transaction open on {path}, on a connection of its own, and would wait for itself: "
        "use store.on(connection), or commit first",
    )


def _reachable(frame: FrameType | None, ours: Mapping[int, bool]) -> list[sqlite3.Connection]:
    # Search breadth first, by references, from the variables of the functions on this thread's stack. Rejected:
    # gc.get_objects(), which also returns objects that other threads are just making; a tuple to which another
    # reference exists cannot be finished.
    level: list[object] = []
    while frame is not None:
        level += [*frame.f_locals.values(), frame.f_globals]
        frame = frame.f_back
    found: list[sqlite3.Connection] = []
    seen: set[int] = set()
    for _ in range(DEPTH):
        fresh: list[object] = []
        for each in level:
            if id(each) not in seen and not issubclass(type(each), NOT_FOLLOWED):  # type(), as __class__ may pretend
                seen.add(id(each))
                fresh.append(each)
                if issubclass(type(each), sqlite3.Connection) and id(each) not in ours:
                    found.append(each)  # type: ignore[arg-type]
        if not fresh or len(seen) > MOST_OBJECTS:
            break
        level = gc.get_referents(*fresh)
    return found


def _is_in_transaction(connection: sqlite3.Connection) -> bool:
    try:
        return connection.in_transaction
    except sqlite3.Error:
        return False  # closed meanwhile


def _is_on(connection: sqlite3.Connection, path: str) -> bool:
    try:
        return os.path.realpath(file_of(connection) or "") == os.path.realpath(path)
    except sqlite3.Error:
        return False  # closed meanwhile, by another thread


def _is_this_threads(connection: sqlite3.Connection) -> bool:
    # Whether the connection is bound to this thread, as sqlite3 does by default: usable here and not in another thread.
    # No statement is run on it, since it may belong to another thread, which could be closing it.
    def usable() -> bool:
        try:
            connection.cursor().close()
        except sqlite3.Error:
            return False
        return True

    if not usable():
        return False
    elsewhere: list[bool] = []
    thread = threading.Thread(target=lambda: elsewhere.append(usable()))
    thread.start()
    thread.join()
    return not elsewhere[0]


def _process_holds(path: str) -> bool | None:
    # Whether this process holds the write lock, by Linux's list of locks; None if the system has no such list.
    # Rejected: opening the files to test the lock, since closing one releases every lock of this process on it.
    try:
        files = {_inode(path): _RESERVED, _inode(f"{os.path.realpath(path)}-shm"): _WAL_WRITE}
        with open("/proc/locks") as listed:
            locks = [line.split() for line in listed if "->" not in line]
    except OSError:
        return None
    seen = False
    for _, kind, _, access, pid, file, start, end in locks:
        byte = files.get(file.rpartition(":")[2])
        if kind == "POSIX" and byte is not None:
            seen = True
            if access == "WRITE" and pid == str(os.getpid()) and int(start) <= byte <= (_end(end)):
                return True
    return False if seen else None


def _end(offset: str) -> float:
    return float("inf") if offset == "EOF" else int(offset)


def _inode(path: str) -> str:
    try:
        return str(os.stat(path).st_ino)
    except FileNotFoundError:
        return ""
