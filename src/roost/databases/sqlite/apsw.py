"""SQLite by apsw, for the server: a newer SQLite than Python brings, and less work per statement.

Two copies of SQLite in one process must never open one file: each would drop the other's POSIX locks when it closes
(https://sqlite.org/howtocorrupt.html, 2.2.1). So a process that opens a file here refuses it to `sqlite3`.
"""

from __future__ import annotations

import logging
import os
import time
from array import array
from collections.abc import Callable, Sequence
from math import inf
from typing import Any
from urllib.parse import quote

import apsw

from roost.databases.engine import Wait
from roost.databases.sqlite.engine import CACHE_KIB, WAL_BYTES, SQLiteEngine, failure, forbid
from roost.databases.sqlite.filelock import FileLock
from roost.dialects import Control, Statement, Together, Wanted
from roost.errors import CannotOpen, DatabaseError, Error, StatementFailed, worded

log = logging.getLogger("roost")

MMAP_BYTES = 2**30  # of the file, that are read without a copy
# What the write-ahead log grows to before COMMIT copies it into the file: a page that is changed again and again is
# copied once. With SQLite's own 1,000 pages, updates of random rows take a third longer (measured: 20.9 and 15.4 µs).
CHECKPOINT_BYTES = 3 * WAL_BYTES // 4

STEPS = 20_000  # of SQLite's machine, after which it looks at the time: about half a millisecond
HELD = 2**22  # bytes of rows that are fetched at once
SHORTEST = 2**20  # to which the length of values may be limited: the schema's own texts are values, too

SQLiteError = apsw.Error  # what `ApswConnection.run` raises


def integers(values: Sequence[int]) -> Any:
    """Return what one parameter of `carray(?)` takes: whole numbers of 64 bits."""
    return apsw.carray(array("q", values))


def texts(values: Sequence[str]) -> Any:
    """Return what one parameter of `carray(?)` takes: texts without NUL."""
    return apsw.carray(tuple(values))


def size_of(row: Sequence[Any]) -> int:
    """Return the bytes, or characters, of a row's texts and blobs."""
    return sum([len(value) for value in row if type(value) is str or type(value) is bytes])


class ApswConnection:
    """One connection to a file: for reading alone, or for writing, in turn with every other writer of Roost.

    deadline: until when a statement may run, by the monotonic clock; it fails with the word `timeout` then.
    most_bytes: what the rows of one request may have, and a value; longer ones are neither read nor written.
    left: what is left of it, of the statements of a request together.
    """

    deadline = inf
    left = inf
    _most_bytes = inf
    _longest = 0  # value; as SQLite is told

    def __init__(self, engine: SQLiteEngine, wait: Wait, *, writes: bool) -> None:
        self.wait = wait  # for what BEGIN waits for
        self.path = engine.path
        self._engine = engine
        self._writes = writes
        self._lock: FileLock | None = None
        self._open()

    def _open(self) -> None:
        engine, writes = self._engine, self._writes
        self.broken = True  # until it is known to be well
        engine.must_exist()
        forbid(engine.path)
        mode = "rw" if writes and not engine.read_only else "ro"
        flags = apsw.SQLITE_OPEN_URI | (apsw.SQLITE_OPEN_READWRITE if mode == "rw" else apsw.SQLITE_OPEN_READONLY)
        try:
            self.raw = apsw.Connection(f"file:{quote(os.path.abspath(engine.path))}?mode={mode}", flags=flags)
        except apsw.Error as error:
            raise self._failed(error, "") from error
        self.raw.set_progress_handler(self._is_late, STEPS)
        self._own_longest = self.raw.limit(apsw.SQLITE_LIMIT_LENGTH)
        self.most_bytes = self._most_bytes
        cursor = self.raw.cursor()
        self.run, self.run_many = cursor.execute, cursor.executemany  # bare, for who has no use for the rest
        try:
            self._lock = engine.lock() if writes else None
            engine.patiently(lambda: self._set_up(writes), self.wait)
        except BaseException:
            self.close()
            raise
        self.broken = False

    def reopen(self) -> None:
        """Open the file anew, after an error that concerns it; whoever has this connection goes on with it.

        Raises: Error; it is broken then, and may be reopened later.
        """
        self.close()
        self._open()

    def _set_up(self, writes: bool) -> None:
        # A reader waits only where SQLite recovers a log, or the last writer has just gone.
        patience = 0 if writes else round(self._engine.timeout * 1000)
        pragmas = [f"cache_size = -{CACHE_KIB}", f"mmap_size = {MMAP_BYTES}", f"busy_timeout = {patience}"]
        if writes and not self._engine.read_only:
            ((journal,),) = self.fetch("PRAGMA journal_mode = WAL")
            if journal != "wal":
                raise CannotOpen(f"{self.path} cannot be put into WAL mode (it stays in {journal})")
            ((page,),) = self.fetch("PRAGMA page_size")
            pragmas += [
                f"wal_autocheckpoint = {CHECKPOINT_BYTES // page}",
                f"journal_size_limit = {WAL_BYTES}",
                f"synchronous = {self._engine.durability}",
                "foreign_keys = ON",
            ]
        else:
            pragmas.append("query_only = ON")
        for pragma in pragmas:
            self.fetch(f"PRAGMA {pragma}")
        self.fetch("SELECT 1 FROM sqlite_master")

    def _is_late(self) -> bool:
        return time.monotonic() > self.deadline

    @property
    def most_bytes(self) -> float:
        """What the rows of one request may have."""
        return self._most_bytes

    @most_bytes.setter
    def most_bytes(self, most: float) -> None:
        self._most_bytes = most
        self._longest = int(min(self._own_longest, max(most, SHORTEST)))
        self.raw.limit(apsw.SQLITE_LIMIT_LENGTH, self._longest)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self.raw.in_transaction

    def execute(self, wanted: Wanted) -> Any:
        """Run a statement and return its answer, or obey a control word."""
        if type(wanted) is Statement:
            return self._statement(wanted)
        if isinstance(wanted, Together):
            return [self.execute(each) for each in wanted.statements]
        match wanted:
            case Control.BEGIN | Control.BEGIN_ALONE:
                self.begin()
            case Control.BEGIN_READ:
                self.fetch("BEGIN")
            case Control.COMMIT:
                self.commit()
            case Control.ROLLBACK:
                self.settle()
            case Control.SAVEPOINT:
                self.fetch("SAVEPOINT roost")
            case Control.BACK:
                if self.raw.in_transaction:
                    self.fetch("ROLLBACK TO roost")
            case Control.RELEASE:
                if self.raw.in_transaction:
                    self.fetch("RELEASE roost")
            case Control.LOCKED:
                pass  # BEGIN IMMEDIATE has locked everything
            case _:
                raise AssertionError(wanted)
        return None

    def _statement(self, statement: Statement) -> Any:
        template, rows, _ = statement
        sql = template.sql
        run = self.run
        try:
            if template.returns:
                return [self.rows(sql, row * template.copies) for row in rows]
            changed = 0
            for row in rows:
                run(sql, row * template.copies)
                changed += self.raw.changes()
            return changed
        except (apsw.Error, UnicodeError, TypeError, OverflowError) as error:
            raise self._failed(error, sql) from error

    def allow(self, seconds: float) -> None:
        """Begin a request: what it may take, in the database."""
        self.deadline = time.monotonic() + seconds
        self.left = self._most_bytes

    def rows(self, sql: str, row: Sequence[Any]) -> list[Any]:
        """Run one statement; its rows are counted while they are read.

        Raises: SQLiteError; StatementFailed where those of the request have more than `most_bytes`.
        """
        found = []
        for each in self.run(sql, row):
            found.append(each)
            self.left -= size_of(each)
            if self.left < 0:
                raise worded(StatementFailed(f"the rows have more than {self.most_bytes} bytes"), "limit", 2)
        return found

    def short(self, fetch: Callable[[], list[Any]], values: int) -> list[Any] | None:
        """Return the rows of statements that read, so many values at most, where none of them is long.

        None when one of them is, or something fails: the rows are to be fetched one by one then, and counted. SQLite
        looks at each length, which costs nothing; Python would take as long for it as for the rest of a short row.
        """
        limit = self.raw.limit
        limit(apsw.SQLITE_LIMIT_LENGTH, int(min(HELD, self._most_bytes)) // values)
        try:
            return fetch()
        except (apsw.Error, UnicodeDecodeError):
            return None
        finally:
            limit(apsw.SQLITE_LIMIT_LENGTH, self._longest)

    def fetch(self, sql: str, row: Sequence[Any] = ()) -> list[Any]:
        """Run one statement."""
        try:
            found: list[Any] = self.run(sql, row).fetchall()
        except apsw.Error as error:
            raise self._failed(error, sql) from error
        return found

    def begin(self) -> None:
        """Begin to write, when everybody who waited before has."""
        if self._lock is not None:
            self._lock.acquire(self.wait)
        try:
            self._engine.patiently(lambda: self._say("BEGIN IMMEDIATE"), self.wait)
        except BaseException:
            self._unlock()
            raise

    def _say(self, sql: str) -> None:
        self.fetch(sql)

    def commit(self) -> None:
        """Commit, and let the next writer in; when it fails, `settle`."""
        self.fetch("COMMIT")
        self._unlock()

    def checkpoint(self) -> None:
        """Copy the write-ahead log into the file, as far as nobody needs it. Waits for nobody."""
        try:
            self.fetch("PRAGMA wal_checkpoint(PASSIVE)")
        except Error as error:
            log.warning("%s: the write-ahead log could not be copied into the file: %s", self.path, error)

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def settle(self) -> None:
        """Roll back what is open, and let other writers in. Never raises."""
        try:
            if self.raw.in_transaction:
                self.run("ROLLBACK")
        except apsw.Error:
            self.broken = True
        finally:
            self._unlock()

    def _failed(self, error: BaseException, sql: str) -> Error:
        found = self.failure(error, sql)
        if isinstance(found, DatabaseError) and not isinstance(found, StatementFailed):
            self.broken = True
        return found

    def failure(self, error: BaseException, sql: str = "") -> Error:
        """Return our error for one of apsw's."""
        code = getattr(error, "extendedresult", None) or getattr(error, "result", None) or 0
        if isinstance(error, apsw.InterruptError):
            return worded(StatementFailed(f"{self.path}: it took too long"), "timeout")
        return failure(code, str(error), self.path, sql)

    def close(self) -> None:
        """Close the connection; whatever is open is rolled back. Nothing happens when it is closed."""
        self.raw.close()
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.close()
