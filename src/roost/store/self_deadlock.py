"""Detect that a thread waits for a transaction of its own process, on a connection of the application, on a file."""

from __future__ import annotations

import os
import threading
from typing import NamedTuple

# The bytes of SQLite's files that a writer locks: WAL_WRITE_LOCK in the index of the write-ahead log (walIndexLock in
# wal.c), or RESERVED_BYTE in the file itself if there is no such log (os.h).
_WAL_WRITE = 120
_RESERVED = 0x40000001


class OpenTransaction(NamedTuple):
    """A transaction of this process: whether it surely is the calling thread's, and a sentence about it."""

    sure: bool
    message: str


def open_transaction(path: str) -> OpenTransaction | None:
    """Return the transaction by which this process holds the write lock; None if it has none, or none that is known.

    Only Linux tells. SQLite does not tell which of a process's connections it is: it is the calling thread's own where
    there is no other thread.
    """
    if not _process_holds(path):
        return None
    return OpenTransaction(
        threading.active_count() == 1,
        f"this process has a transaction open on {path}, on a connection of its own; if it is this thread's, the call "
        "would wait for itself: use store.on(connection), or commit first",
    )


def _process_holds(path: str) -> bool:
    # Rejected: opening the files to test the lock, since closing one releases every lock of this process on it; and a
    # search, through all objects that the thread's stack reaches, for the connection and the thread that it belongs to.
    try:
        files = {_inode(path): _RESERVED, _inode(f"{os.path.realpath(path)}-shm"): _WAL_WRITE}
        with open("/proc/locks") as listed:
            locks = [line.split() for line in listed if "->" not in line]
    except OSError:
        return False
    for _, kind, _, access, pid, file, start, end in locks:
        byte = files.get(file.rpartition(":")[2])
        if kind == "POSIX" and byte is not None and access == "WRITE" and pid == str(os.getpid()):
            last = float("inf") if end == "EOF" else int(end)
            if int(start) <= byte <= last:
                return True
    return False


def _inode(path: str) -> str:
    try:
        return str(os.stat(path).st_ino)
    except FileNotFoundError:
        return ""
