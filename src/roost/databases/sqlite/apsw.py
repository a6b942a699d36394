"""SQLite through apsw, for the server: a newer SQLite than Python's own, and less work per statement.

Two copies of SQLite in one process must never open one file: each would drop the other's POSIX locks when it closes
(https://sqlite.org/howtocorrupt.html, 2.2.1). So a process that opens a file here refuses it to `sqlite3`.
"""

from __future__ import annotations

import logging
import os
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from operator import length_hint
from typing import Any
from urllib.parse import quote

import apsw

from roost.databases.engine import Undone, Wait, too_long
from roost.databases.sqlite.engine import SIZES, WAL_BYTES, FileConnection, SQLiteEngine, failure, forbid, gathered
from roost.dialects import SQLITE, Control, Statement, Template, Together, Wanted
from roost.dialects.dialect import Answer
from roost.errors import CannotOpen, DatabaseError, Error, StatementFailed, worded
from roost.structures.index.budget import Budget

log = logging.getLogger("roost")

# Looked up once: an Enum's members are slow to reach.
_COUNTS, _IDS, _DONE = Answer.COUNTS, Answer.IDS, Answer.DONE

MMAP_BYTES = 2**30  # of the file, which are read without copying them
# The size at which COMMIT copies the write-ahead log into the file: a page that changes again and again is copied once.
# With SQLite's default of 1,000 pages, updates of random rows take a third longer (measured: 20.9 and 15.4 µs).
CHECKPOINT_BYTES = 3 * WAL_BYTES // 4

STEPS = 20_000  # of SQLite's virtual machine between two looks at the time: about half a millisecond
HELD = 2**22  # bytes of rows that are fetched at once
SHORTEST = 2**20  # the smallest limit for the length of values: the schema's own texts are values, too


def _array(values: Sequence[Any]) -> Any:
    # Whole numbers of 64 bits, or texts without NUL.
    return apsw.carray(array("q", values) if type(values[0]) is int else tuple(values))


DIALECT = replace(SQLITE, array="carray(?)", pack=_array)


def size_of(row: Sequence[Any]) -> int:
    return sum([len(value) for value in row if type(value) is str or type(value) is bytes])


class ApswConnection(FileConnection):
    """One connection to a file: only for reading, or for writing, in turn with all other writers of Roost.

    budget: how long a statement may run, after which it fails with the word `timeout`; and the maximum size of one
        request's rows, and of a value: larger ones are neither read nor written.
    """

    dialect = DIALECT
    failures = apsw.Error
    _longest = 0  # the maximum length of a value, as set in SQLite

    def __init__(self, engine: SQLiteEngine, wait: Wait, budget: Budget, *, writes: bool) -> None:
        self.wait = wait  # how BEGIN waits
        self.path = engine.path
        self.budget = budget
        self.opened = 0  # the number of times that the file was opened
        self.schema = 0  # the version of the schema in the present transaction
        self._engine = engine
        self._writes = writes
        self._obeyed: dict[Wanted, Callable[[], object]] = {
            Control.BEGIN: self.begin,
            Control.BEGIN_ALONE: self.begin,
            Control.BEGIN_READ: self.begin_read,
            Control.COMMIT: self.commit,
            Control.ROLLBACK: self.settle,
            Control.SAVEPOINT: lambda: self.fetch("SAVEPOINT roost"),
            Control.BACK: self._back,
            Control.RELEASE: self._release,
            Control.LOCK_CATALOG: lambda: None,
        }
        self._begun = False
        self._open()

    def _open(self) -> None:
        engine, writes, budget = self._engine, self._writes, self.budget
        self.broken = True  # until it is known to work
        self.opened += 1
        self._begun = False
        engine.must_exist()
        forbid(engine.path)
        mode = "rw" if writes and not engine.read_only else "ro"
        flags = apsw.SQLITE_OPEN_URI | (apsw.SQLITE_OPEN_READWRITE if mode == "rw" else apsw.SQLITE_OPEN_READONLY)
        try:
            self.raw = apsw.Connection(f"file:{quote(os.path.abspath(engine.path))}?mode={mode}", flags=flags)
        except apsw.Error as error:
            raise self._failed(error, "") from error
        self.raw.set_progress_handler(lambda: time.monotonic() > budget.until, STEPS)
        self._own_longest = self.raw.limit(apsw.SQLITE_LIMIT_LENGTH)
        self.limit()
        cursor = self.raw.cursor()
        self.run, self._run_many = cursor.execute, cursor.executemany
        try:
            self.lock = engine.lock() if writes else None
            engine.patiently(lambda: self._set_up(writes), self.wait)
        except BaseException:
            self.close()
            raise
        self.broken = False

    def _set_up(self, writes: bool) -> None:
        more = [f"mmap_size = {MMAP_BYTES}"]
        if writes and not self._engine.read_only:
            ((page,),) = self.fetch("PRAGMA page_size")
            more += [f"wal_autocheckpoint = {CHECKPOINT_BYTES // page}", "foreign_keys = ON"]
        self._engine.configure(self.fetch, writes and not self._engine.read_only, *more)

    def limit(self) -> None:
        self._longest = int(min(self._own_longest, max(self.budget.limits.answer, SHORTEST)))
        self.raw.limit(apsw.SQLITE_LIMIT_LENGTH, self._longest)

    def execute(self, wanted: Wanted) -> Any:
        if type(wanted) is Statement:
            return self._statement(wanted)
        if isinstance(wanted, Together):
            return [self.execute(each) for each in wanted.statements]
        return self._obeyed[wanted]()

    def _back(self) -> None:
        if self.raw.in_transaction:  # otherwise the whole transaction was rolled back
            self.fetch("ROLLBACK TO roost")

    def _release(self) -> None:
        if self.raw.in_transaction:
            self.fetch("RELEASE roost")

    def _statement(self, statement: Statement) -> Any:
        template, rows, _, values, _ = statement
        sql, answer = template.sql, template.answer
        if answer is _DONE:
            return self._done(sql, rows)
        if answer is _COUNTS or answer is _IDS:
            return self._one_by_one(sql, rows, self.raw.changes if answer is _COUNTS else self.raw.last_insert_rowid)
        try:
            if values:
                return self._few(sql, rows, values)
            if template.returns:
                return [self._rows(sql, row) for row in rows]
            return self._changed(template, rows)
        except (apsw.Error, UnicodeError, TypeError, OverflowError) as error:
            raise self._failed(error, sql) from error

    def _changed(self, template: Template, rows: Sequence[Sequence[Any]]) -> int:
        # Returns the number of changed rows; many rows are sent in one text.
        run, changes, sql = self.run, self.raw.changes, template.sql
        changed = 0
        if template.many is not None:
            for text, part in gathered(template.many, rows):
                run(text, tuple(chain.from_iterable(part)))
                changed += changes()
            rows = rows[len(rows) - len(rows) % SIZES[-1] :]
        for row in rows:
            run(sql, row)
            changed += changes()
        return changed

    def _done(self, sql: str, rows: Sequence[Sequence[Any]]) -> list[int]:
        # Stops at the first row that fails: its error is found when it is run alone.
        left = iter(rows)
        try:
            self._run_many(sql, left)
        except (apsw.Error, UnicodeError, TypeError, OverflowError) as error:
            if self._begun and not self.raw.in_transaction:
                raise self._failed(error, sql) from error
            return [1] * (len(rows) - length_hint(left) - 1)
        return [1] * len(rows)

    def _one_by_one(self, sql: str, rows: Sequence[Sequence[Any]], outcome: Callable[[], int]) -> list[int]:
        # Stops at the first row that fails, or when the time is over.
        run, clock, deadline = self.run, time.monotonic, self.budget.deadline
        outcomes = []
        try:
            for row in rows:
                run(sql, row)
                outcomes.append(outcome())
                if clock() >= deadline:
                    break
        except (apsw.Error, UnicodeError, TypeError, OverflowError) as error:
            if self._begun and not self.raw.in_transaction:
                raise self._failed(error, sql) from error
        return outcomes

    def _rows(self, sql: str, row: Sequence[Any]) -> list[Any]:
        # Counts the bytes of the rows while it reads them.
        budget = self.budget
        most = budget.limits.answer
        found: list[Any] = []
        for each in self.run(sql, row):
            found.append(each)
            budget.used += size_of(each)
            if budget.used > most:
                raise too_long(most)
        return found

    def _few(self, sql: str, rows: Sequence[Sequence[Any]], values: int) -> list[list[Any]]:
        # SQLite refuses long values, so all rows can be fetched at once. SQLite checks each length at no cost; in
        # Python the check would take as long as the rest of a short row.
        limit, run = self.raw.limit, self.run
        limit(apsw.SQLITE_LIMIT_LENGTH, int(min(HELD, self.budget.limits.answer)) // values)
        try:
            return [run(sql, row).fetchall() for row in rows]
        finally:
            limit(apsw.SQLITE_LIMIT_LENGTH, self._longest)

    def fetch(self, sql: str, row: Sequence[Any] = ()) -> list[Any]:
        try:
            found: list[Any] = self.run(sql, row).fetchall()
        except apsw.Error as error:
            raise self._failed(error, sql) from error
        return found

    def begin_read(self) -> None:
        """Begin a transaction that reads, unless one has begun."""
        if self._begun:
            return
        self._prepare()
        ((self.schema,),) = self.fetch("BEGIN; PRAGMA schema_version")
        self._begun = True

    def _prepare(self) -> None:
        self.budget.unlimited()
        if self.broken:  # by an error that concerned the file
            self.close()
            self._open()  # if that fails, too, it stays broken

    def begin(self) -> None:
        """Begin a transaction that writes, unless one has begun, after all writers that have waited longer."""
        if self._begun:
            return
        self._prepare()
        try:
            self._engine.begin_immediate(self.lock, self._begin_immediate, self.wait)
        except OSError as error:  # of the lock file
            raise CannotOpen(str(error)) from error
        self._begun = True

    def _begin_immediate(self) -> None:
        ((self.schema,),) = self.fetch("BEGIN IMMEDIATE; PRAGMA schema_version")

    def commit(self) -> None:
        """Commit, and release the lock to the next writer; if it fails, call `settle`."""
        self.budget.unlimited()
        self._begun = False  # a COMMIT that fails is an error like any other
        self.fetch("COMMIT")
        if self.lock is not None:
            self.lock.release()

    def checkpoint(self) -> None:
        """Copy the write-ahead log into the file, except what readers still need. Does not wait."""
        try:
            self.fetch("PRAGMA wal_checkpoint(PASSIVE)")
        except Error as error:
            log.warning("%s: the write-ahead log could not be copied into the file: %s", self.path, error)

    def outcome(self) -> bool | None:
        """Return whether a COMMIT that was interrupted was done; the file is opened anew before another one."""
        self.broken = True
        return super().outcome()

    def settle(self) -> None:
        """Roll back an open transaction, and release the lock to other writers. Never raises."""
        self._begun = False
        super().settle()

    def _failed(self, error: BaseException, sql: str) -> Error:
        # Returns Roost's error for one of apsw's.
        if isinstance(error, apsw.InterruptError):
            found: Error = worded(StatementFailed(f"{self.path}: it took too long"), "timeout")
        else:
            code = getattr(error, "extendedresult", None) or getattr(error, "result", None) or 0
            found = failure(code, str(error), self.path, sql)
        if isinstance(found, DatabaseError) and not isinstance(found, StatementFailed):
            self.broken = True
        if self._begun and not self.raw.in_transaction:
            raise Undone from found
        return found
