"""The calling thread's own transaction on a database file, for which it would wait without end."""

from __future__ import annotations

import gc
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from roost.databases.sqlite.engine import file_of

# The bytes of SQLite's files that a writer locks: WAL_WRITE_LOCK in the index of the write-ahead log (walIndexLock in
# wal.c), RESERVED_BYTE in the file itself where there is no such log (os.h).
_WAL_WRITE = 120
_RESERVED = 0x40000001


class OpenTransaction(NamedTuple):
    """A transaction of the calling thread: whether it surely holds the write lock, and a sentence about it."""

    sure: bool
    message: str


def open_transaction(path: str, ours: Mapping[int, bool]) -> OpenTransaction | None:
    """Return the transaction that the calling thread has open on this file, on a connection of its own, or None.

    None too when its transaction is known not to hold the write lock. Asked only by a thread that has been waiting
    for some time: it looks at every object there is.

    ours: the ids of Roost's own connections; whether each holds the write lock.
    """
    holds = _process_holds(path)
    if holds is False:
        return None
    own, wrote, elsewhere = False, False, any(ours.values())
    for connection in _in_transaction(ours):
        if not _is_this_threads(connection):
            elsewhere = True  # on whatever file: only its own thread may ask it
        elif _is_on(connection, path):
            own = True
            # sqlite3 itself begins a transaction with the first change, unless it was told not to.
            began = connection.isolation_level is not None and getattr(connection, "autocommit", -1) == -1
            wrote = wrote or (began and connection.total_changes > 0)
    if not own:
        return None
    return OpenTransaction(
        bool(holds) and (wrote or not elsewhere),
        f"this thread has a transaction open on {path}, on a connection of its own, and would wait for itself: "
        "use store.on(connection), or commit first",
    )


def _in_transaction(ours: Mapping[int, bool]) -> Iterator[sqlite3.Connection]:
    for found in gc.get_objects():
        if issubclass(type(found), sqlite3.Connection) and id(found) not in ours:  # not what it may say it is
            try:
                if found.in_transaction:
                    yield found
            except sqlite3.Error:
                continue  # closed meanwhile


def _is_on(connection: sqlite3.Connection, path: str) -> bool:
    try:
        return os.path.realpath(file_of(connection) or "") == os.path.realpath(path)
    except sqlite3.Error:
        return False  # closed meanwhile, by another thread


def _is_this_threads(connection: sqlite3.Connection) -> bool:
    # Bound to one thread, as sqlite3 does unless told otherwise, and that is this one. No statement is run on what may
    # be another thread's: it could be closing it.
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
    # Whether this process holds the write lock, by Linux's list of locks; None where there is no such list. Never by
    # opening the files: closing one of them would drop every lock that this process has on it.
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
