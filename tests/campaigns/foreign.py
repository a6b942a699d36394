"""Somebody else: processes that hold SQLite's locks, by plain sqlite3, as an application or a shell would."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.campaigns.processes import Child, Line


class Holder:
    """A transaction that is open in another process until `release`."""

    def __init__(self, child: Child) -> None:
        self._child = child

    def release(self, how: str = "COMMIT") -> None:
        """End the transaction, and return when it has ended."""
        self._child.say(how)
        assert self._child.hear() == "released"

    def release_in(self, seconds: float) -> None:
        """Have the transaction ended in some time, and return at once."""
        self._child.say(f"in {seconds}")


@contextlib.contextmanager
def held(path: Path | str, *statements: str) -> Iterator[Holder]:
    """Have another process run statements on a database file, BEGIN IMMEDIATE if there are none, and hold on."""
    with Child(lambda line: _hold(line, str(path), statements or ("BEGIN IMMEDIATE",))) as child:
        assert child.hear() == "held"
        yield Holder(child)


def _hold(line: Line, path: str, statements: Sequence[str]) -> None:
    raw = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        raw.execute(statement).fetchall()
    line.say("held")
    how = line.hear()
    if how.startswith("in "):
        line.overhear(float(how.removeprefix("in ")))
        how = "COMMIT"
    raw.execute(how)
    line.say("released")
    raw.close()


def is_locked(path: Path | str) -> bool:
    """Whether somebody holds the database's write lock at this moment."""
    raw = sqlite3.connect(path, timeout=0, isolation_level=None)
    try:
        raw.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        return True
    finally:
        raw.close()
    return False


def is_flocked(path: Path | str) -> bool:
    """Whether somebody holds the lock file at this moment."""
    try:
        fd = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
