"""A lock file on which the processes that write one SQLite database queue.

SQLite's own busy timeout polls: of four processes, two committed once in 2.5 s. The kernel's queue of `flock` is fair
enough (7.7, 5.4, 4.9 and 4.7 thousand commits). But `flock` has no timeout, so a helper thread waits for a lock that is
not free at once; a caller that gives up leaves its place to the next one.
"""

from __future__ import annotations

import os
import threading
import time
from io import FileIO
from queue import SimpleQueue

from roost.databases.engine import Wait, at_fork
from roost.databases.waits import NO_THREAD, Mutex
from roost.errors import Busy, CannotOpen

try:
    import fcntl
except ModuleNotFoundError:  # Windows, where stores on servers also import this module
    HAS_FLOCK = False
else:
    HAS_FLOCK = True

SUFFIX = "-lock"
GREEN_PAUSE = 0.001  # seconds between the attempts of a greenlet

# The bytes of SQLite's files that a writer locks: WAL_WRITE_LOCK in the index of the write-ahead log (walIndexLock in
# wal.c), or RESERVED_BYTE in the file itself if there is no such log (os.h).
_WAL_WRITE = 120
_RESERVED = 0x40000001


class FileLock:
    """An exclusive lock on a file beside the database, which is created if it does not exist and never removed.

    One thread of a process uses it at a time (the leader of the writer queue).
    """

    def __init__(self, path: str) -> None:
        if not HAS_FLOCK:
            raise CannotOpen(
                f"{path}: this system (Windows, say) has no flock, which the writers of a SQLite file need; use "
                "mysql://…, postgresql://…, or sqlite:// in memory"
            )
        self.path = path
        self._held = False
        self._file = _opened(path)
        _open.add(self._file)
        self._mutex = Mutex()  # guards the attributes below
        self._place: _Place | None = None  # in the kernel's queue, held by the helper
        self._places: SimpleQueue[_Place | None] | None = None

    def acquire(self, wait: Wait) -> None:
        """Take the lock, or raise `Busy` when the deadline has passed."""
        with self._mutex:
            place = self._place
            if place is None:
                try:
                    self._held = True  # set before it is true, so that an interrupt in between leaves no lock behind
                    fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return
                except BlockingIOError:
                    self._held = False
                    place = _Place()
                    if self._places is None:
                        places: SimpleQueue[_Place | None] = SimpleQueue()
                        try:
                            threading.Thread(target=self._wait, args=(places,), name="roost-lock", daemon=True).start()
                        except RuntimeError as error:
                            if not str(error).startswith(NO_THREAD):
                                raise  # "release unlocked lock": threading's own Condition, of an interrupt
                            raise Busy(f"another process holds {self.path}, and to wait for it: {error}") from error
                        self._places = places
                    self._places.put(place)
                    self._place = place
            place.wanted = True
        try:
            wait.pause()
            wait.blocked()
            while not place.granted.acquire(timeout=min(0.1, max(0.0, wait.deadline - time.monotonic()))):
                if time.monotonic() >= wait.deadline:
                    raise Busy(f"another process has held {self.path} for too long")
                wait.blocked()  # last: Python from 3.12 on has no `try` around the jump behind an `if`
        except BaseException:
            with self._mutex:
                if self._place is place:
                    place.wanted = False  # it is still in the kernel's queue: the helper will release the lock at once
                    raise
            # The lock was granted at the same moment.
            self._held = True
            self.release()
            raise
        self._held = True

    def release(self) -> None:
        """Release the lock to the next process; does nothing if it is not held."""
        if self._held:
            self._held = False
            if not self._file.closed:
                fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file, which also releases the lock; does nothing if it is closed."""
        with self._mutex:
            self.release()  # the helper may close it later
            if self._places is not None:
                self._places.put(None)  # the helper may be in flock on this file, so it closes the file
            else:
                _close(self._file)

    def _wait(self, places: SimpleQueue[_Place | None]) -> None:
        while place := places.get():
            fcntl.flock(self._file, fcntl.LOCK_EX)
            with self._mutex:
                self._place = None
                if place.wanted:
                    place.granted.release()
                else:
                    fcntl.flock(self._file, fcntl.LOCK_UN)
        _close(self._file)


class GreenLock(FileLock):
    """The same for greenlets: a helper would be one of them, and while it is in `flock`, none of the others runs."""

    def acquire(self, wait: Wait) -> None:
        while True:
            try:
                self._held = True
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                self._held = False
            wait.pause()
            wait.blocked()
            if time.monotonic() >= wait.deadline:
                raise Busy(f"another process has held {self.path} for too long")
            time.sleep(GREEN_PAUSE)


class _Place:
    """A place in the kernel's queue."""

    __slots__ = ("granted", "wanted")

    def __init__(self) -> None:
        self.wanted = False
        self.granted = threading.Lock()
        self.granted.acquire()


# All lock files of this process. File objects, not descriptors: a closed file object has no descriptor, so neither a
# second close nor a late lock can affect another file that has got the same number.
_open: set[FileIO] = set()


def _opened(path: str) -> FileIO:
    try:
        return FileIO(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    except PermissionError:
        return FileIO(os.open(path, os.O_RDONLY | os.O_CLOEXEC))  # another user's file can be locked, too
    except FileNotFoundError:
        pass
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except FileExistsError:  # another process has just created it
        return _opened(path)
    _same_access(fd, path.removesuffix(SUFFIX))
    return FileIO(fd)


def _same_access(fd: int, database: str) -> None:
    # Whoever may write the database may lock it; SQLite does the same for its own files.
    try:
        status = os.stat(database)
        os.fchmod(fd, status.st_mode & 0o666)
        if os.geteuid() == 0:
            os.fchown(fd, status.st_uid, status.st_gid)
    except OSError:
        pass  # the database is just being created, or the file system has no modes: the lock works without


def _close(file: FileIO) -> None:
    _open.discard(file)
    file.close()


def _after_fork() -> None:
    # Closed, not unlocked: the lock remains the parent's, and a child does not keep it after the parent's death.
    for file in tuple(_open):
        _close(file)


at_fork(after_in_child=_after_fork)


def open_transaction(path: str) -> str:
    """Return a sentence about the transaction by which this process holds the write lock; "" if none is known.

    Only Linux tells. SQLite does not tell which of a process's connections it is: it is the calling thread's own where
    there is no other thread.
    """
    # Rejected: opening the files to test the lock, since closing one releases every lock of this process on it; and a
    # search, through all objects that the thread's stack reaches, for the connection and the thread that it belongs to.
    try:
        files = {_inode(path): _RESERVED, _inode(f"{os.path.realpath(path)}-shm"): _WAL_WRITE}
        with open("/proc/locks") as listed:
            locks = [line.split() for line in listed if "->" not in line]
    except OSError:
        return ""
    for _, kind, _, access, pid, file, start, end in locks:
        byte = files.get(file.rpartition(":")[2])
        if kind == "POSIX" and byte is not None and access == "WRITE" and pid == str(os.getpid()):
            last = float("inf") if end == "EOF" else int(end)
            if int(start) <= byte <= last:
                return (
                    f"this process has a transaction open on {path}, on a connection of its own; if it is this "
                    "thread's, the call would wait for itself: use store.on(connection), or commit first"
                )
    return ""


def _inode(path: str) -> str:
    try:
        return str(os.stat(path).st_ino)
    except FileNotFoundError:
        return ""
