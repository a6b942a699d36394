"""SQLite through the standard library's sqlite3: connections, the order of writers, and errors by their codes.

The file is in WAL mode, so a reader never waits for a writer. Writers first queue on a lock file (`filelock.py`), and
then take the database's own lock with BEGIN IMMEDIATE, where they compete only with writers other than Roost.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from random import Random
from typing import Any
from urllib.parse import quote

from roost.databases.engine import FAILED, MAKES, REFUSED, Engine, Failure, Trace, Wait
from roost.databases.sqlite.filelock import SUFFIX, FileLock, GreenLock
from roost.databases.urls import parse_file
from roost.databases.waits import GREEN
from roost.dialects import SQLITE, Control, Statement, Together, Wanted
from roost.dialects.dialect import Answer, Gather, Row, Template, scatter
from roost.errors import Busy, CannotOpen, Conflict, DatabaseError, DiskFull, Error, Missing, ReadOnly, StatementFailed
from roost.structures.plan import Transaction

OLDEST = (3, 37, 0)  # STRICT tables
CACHE_KIB = 64 * 1024  # of pages, per connection
WAL_BYTES = 64 * 2**20  # the size to which a write-ahead log is truncated after it has grown in a burst

# Looked up once: an Enum's members are slow to reach.
_BEGIN, _BEGIN_ALONE, _BEGIN_READ = Control.BEGIN, Control.BEGIN_ALONE, Control.BEGIN_READ
_COMMIT, _ROLLBACK = Control.COMMIT, Control.ROLLBACK

# Takes the write lock without changing anything, before the first read. A transaction that has already read an older
# state fails at once; one that has not read yet will read the newest state.
TAKE_WRITE_LOCK = "DELETE FROM roost_catalog WHERE 0"


DAMAGED = " (the file is damaged, encrypted, or no SQLite database)"


class SQLiteEngine(Engine):
    """One SQLite database: a file, or a private one in memory."""

    dialect = SQLITE

    def __init__(self, url: str, *, timeout: float, trace: Trace | None, random: Random) -> None:
        path, options = parse_file(url)
        self.path = path or ":memory:"
        super().__init__(self.path, timeout, trace, random)
        # The same file for each connection, wherever the process changes to.
        self.memory, self.file = path is None, path and os.path.abspath(path)
        self.durability = options["synchronous"]
        self.read_only = options["mode"] == "ro"

    def lock(self) -> FileLock | None:
        if self.file is None or self.read_only:
            return None
        path = os.path.realpath(self.file)
        try:
            return (GreenLock if GREEN else FileLock)(f"{path}{SUFFIX}")
        except FileNotFoundError:
            raise CannotOpen(f"{self.path}: there is no directory {os.path.dirname(path)}") from None
        except (PermissionError, OSError) as error:
            raise ReadOnly(f"{path}{SUFFIX} cannot be made: {error.strerror}") from error

    def must_exist(self) -> None:
        """Raise `Missing` if there is no file: only `create` makes one."""
        if self.file is not None and not os.path.exists(self.file):
            raise Missing(f"there is no database {self.path}; store.create(...) makes it")

    def connect(self, wait: Wait, *, writes: bool = True, create: bool = False) -> SQLiteConnection:
        """Open a connection; `Missing` if there is no file and `create` is not set.

        A connection for writing is opened under the lock file: if two processes switched a new file to WAL mode at
        once, both could fail.
        """
        if not create:
            self.must_exist()
        self._must_be_ours()
        lock = self.lock() if writes else None
        if lock is None:
            return self._connected(wait, writes, create)
        try:
            lock.acquire(wait)
            try:
                connection = self._connected(wait, writes, create)
            finally:
                lock.release()
        except BaseException:
            lock.close()
            raise
        connection.lock = lock
        return connection

    def _connected(self, wait: Wait, writes: bool, create: bool) -> SQLiteConnection:
        mode = "ro" if self.read_only else "rwc" if create else "rw"
        uri = ":memory:" if self.file is None else f"file:{quote(self.file)}?mode={mode}"
        try:
            raw = sqlite3.connect(
                uri, uri=True, timeout=0, isolation_level=None, check_same_thread=False, cached_statements=512
            )
        except sqlite3.Error as error:
            raise self._cannot_open(error) from error
        try:
            self.patiently(lambda: self._configure(raw, writes), wait)
        except BaseException:
            raw.close()
            raise
        return SQLiteConnection(self, raw, wait)

    def _must_be_ours(self) -> None:
        if _forbidden and self.file and os.path.exists(self.file) and _identity(os.stat(self.file)) in _forbidden:
            raise CannotOpen(
                f"{self.path}: this process uses the file by another copy of SQLite (roost serve), or was forked while "
                "a thread of its parent had been using it for too long (fork before the threads begin, or use spawn)"
            )

    def patiently(self, attempt: Callable[[], None], wait: Wait) -> None:
        """Repeat an attempt until no other connection blocks it, or raise `Busy` when the deadline has passed.

        It sleeps for shorter times than SQLite's busy handler, which would sleep for up to 100 ms after the lock is
        released.
        """
        pause = 0.0005
        while True:
            try:
                return attempt()
            except Busy:
                wait.pause()
                wait.blocked()
                if time.monotonic() >= wait.deadline:
                    raise
            time.sleep(pause * (0.5 + self.random.random() / 2))
            pause = min(2 * pause, 0.01)

    def _configure(self, raw: sqlite3.Connection, writes: bool) -> None:
        if sqlite3.sqlite_version_info < OLDEST:
            raise CannotOpen(f"SQLite {sqlite3.sqlite_version} is too old: Roost needs 3.37 (STRICT tables)")
        try:
            self.configure(lambda sql: raw.execute(sql).fetchall(), writes)
        except sqlite3.Error as error:
            raise self._cannot_open(error) from error

    def configure(self, ask: Callable[[str], Any], writes: bool, *more: str) -> None:
        """Give a connection its settings, and more. A reader waits only while a log is recovered or removed."""
        settings = [f"cache_size = -{CACHE_KIB}", *more]
        if writes and not self.memory and not self.read_only:
            ((journal,),) = ask("PRAGMA journal_mode = WAL")
            if journal != "wal":
                raise CannotOpen(f"{self.path} cannot be put into WAL mode (it stays in {journal})")
            settings += [f"journal_size_limit = {WAL_BYTES}", f"synchronous = {self.durability}"]
        if not writes:
            settings.append("query_only = ON")
        for setting in settings:
            ask(f"PRAGMA {setting}")
        ask("SELECT 1 FROM sqlite_master")  # only this detects a file that is not a database
        ask(f"PRAGMA busy_timeout = {0 if writes else round(self.timeout * 1000)}")

    def begin_immediate(self, lock: FileLock | None, begin: Callable[[], None], wait: Wait) -> None:
        """Take the lock file, after all writers that have waited longer, and then the database's own lock."""
        if lock is not None:
            lock.acquire(wait)
        try:
            self.patiently(begin, wait)
        except BaseException:
            if lock is not None:
                lock.release()
            raise

    def _cannot_open(self, error: sqlite3.Error) -> Error:
        found = translate(error, self.path)
        kinds = (Busy, DiskFull, ReadOnly, CannotOpen)
        return found if isinstance(found, kinds) else CannotOpen(f"{self.path}: {error}")


class FileConnection:
    """What connections by both drivers have in common.

    failures: the base of the driver's errors.
    """

    failures: type[Exception]
    raw: Any
    session: int | None = None
    lock: FileLock | None = None
    broken = False  # something other than a statement failed: reconnect

    @property
    def in_transaction(self) -> bool:
        return bool(self.raw.in_transaction)

    def outcome(self) -> bool | None:
        return not self.raw.in_transaction

    def unlock(self) -> None:
        if self.lock is not None:
            self.lock.release()

    def settle(self) -> None:
        """Roll back an open transaction (SQLite may have done so itself), and release the lock. Never raises."""
        try:
            if self.raw.in_transaction:
                self.raw.execute("ROLLBACK")
        except self.failures:
            self.broken = True  # closing the connection rolls back as well
        finally:
            self.unlock()

    def close(self) -> None:
        """Close the connection, which rolls back an open transaction; does nothing if it is closed."""
        self.raw.close()
        lock, self.lock = self.lock, None
        if lock is not None:
            lock.close()


class SQLiteConnection(FileConnection):
    """One connection."""

    failures = sqlite3.Error

    def __init__(self, engine: SQLiteEngine, raw: sqlite3.Connection, wait: Wait) -> None:
        self.raw = raw
        self.wait = wait  # how BEGIN and COMMIT wait
        self._engine = engine
        self._cursor = raw.cursor()
        self._trace = engine.trace
        self._execute: Any = self._cursor.execute if self._trace is None else self._traced

    def execute(self, wanted: Wanted) -> Any:
        if type(wanted) is Statement:
            try:
                return run(self._cursor, wanted, self._trace)
            except sqlite3.Error as error:
                raise self._failed(error, wanted.template.sql) from error
        if isinstance(wanted, Together):
            return [self.execute(each) for each in wanted.statements]
        if wanted is _COMMIT:
            self.wait.pause()
            self._say("COMMIT")
            self.unlock()
        elif wanted is _BEGIN or wanted is _BEGIN_ALONE:
            self._engine.begin_immediate(self.lock, lambda: self._say("BEGIN IMMEDIATE"), self.wait)
        elif wanted is _BEGIN_READ:
            self._say("BEGIN")
        elif wanted is _ROLLBACK:
            self.settle()
        return None

    def ask(self, sql: str, row: Row, _: bool) -> list[Row]:
        try:
            rows: list[Row] = self._execute(sql, row).fetchall()
            return rows
        except sqlite3.Error as error:
            raise self._failed(error, sql) from error

    def transact(self, work: Transaction) -> Any:
        """Run a transaction that a plan yields as texts. After an error or the plan's `Careful`, nothing is changed."""
        lock, execute = self.lock, self._execute
        if lock is not None:
            lock.acquire(self.wait)
        sql = "BEGIN IMMEDIATE"
        try:
            execute(sql)
            sql, row = next(work)
            while True:
                rows = execute(sql, row).fetchall()
                try:
                    sql, row = work.send(rows)
                except StopIteration as stop:  # the plan's own: a trace function may raise one too
                    result = stop.value
                    break
            sql = "COMMIT"
            execute(sql)
            return result
        except sqlite3.Error as error:
            raise self._failed(error, sql) from error
        finally:
            if self.raw.in_transaction:
                self.settle()
            elif lock is not None:
                lock.release()

    def _traced(self, sql: str, row: Row = ()) -> sqlite3.Cursor:
        assert self._trace is not None
        self._trace(sql, row)
        return self._cursor.execute(sql, row)

    def _say(self, sql: str) -> None:
        try:
            self._execute(sql)
        except sqlite3.Error as error:
            raise self._failed(error, sql) from error

    def _failed(self, error: sqlite3.Error, sql: str) -> Error:
        found = translate(error, self._engine.path, sql)
        self.broken = isinstance(found, DatabaseError) and not isinstance(found, StatementFailed)
        return found


# --- statements for several rows ------------------------------------------------------------------------------------

# Rows in one text. A row then costs half of what it costs in a statement of its own; more rows than 64 gain nothing.
# There are only two sizes, since each size is another text that a connection keeps prepared.
SIZES = (64, 8)

# The attribute of a cursor that contains a row's outcome.
_ONE_BY_ONE = {Answer.COUNTS: "rowcount", Answer.IDS: "lastrowid", Answer.DONE: "rowcount"}


def run(cursor: sqlite3.Cursor, statement: Statement, trace: Trace | None) -> Any:
    """Run a statement for each of its rows; `Statement` describes the answer."""
    template, rows = statement[:2]
    if template.many is not None and len(rows) >= SIZES[-1]:
        return _run_many(cursor, template.many, statement, trace)
    if trace is not None:
        for row in rows:
            trace(template.sql, row)
    sql = template.sql
    if template.answer in _ONE_BY_ONE:
        one = attrgetter(_ONE_BY_ONE[template.answer])
        return [one(cursor.execute(sql, row)) for row in rows]
    if template.returns:
        if len(rows) == 1:
            return [cursor.execute(sql, rows[0]).fetchall()]
        execute = cursor.execute
        return [execute(sql, row).fetchall() for row in rows]
    if len(rows) == 1:
        return cursor.execute(sql, rows[0]).rowcount
    return cursor.executemany(sql, rows).rowcount


def _run_many(cursor: sqlite3.Cursor, many: Template, statement: Statement, trace: Trace | None) -> Any:
    template, rows = statement[:2]
    answers: list[list[Row]] = []
    changed = 0
    for sql, part in gathered(many, rows):
        values = tuple(chain.from_iterable(part))
        if trace is not None:
            trace(sql, values)
        cursor.execute(sql, values)
        if many.returns:
            answers += scatter(Statement(many, part), cursor.fetchall())
        else:
            changed += cursor.rowcount
    done: Any = answers if many.returns else changed
    left = len(rows) % SIZES[-1]
    return done + run(cursor, Statement(template, rows[-left:]), trace) if left else done


def gathered(many: Template, rows: Sequence[Any]) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield texts for several rows each, with the rows, as far as these fill one."""
    begin = 0
    for size in SIZES:
        while len(rows) - begin >= size:
            yield text_of(many, size, len(rows[0])), rows[begin : begin + size]
            begin += size


@lru_cache(1000)
def text_of(many: Template, size: int, width: int) -> str:
    holes = ", ".join("?" * width)
    if many.gather is Gather.LIST:
        rows = ", ".join([f"({ordinal}, {holes})" for ordinal in range(size)])
    else:
        rows = ", ".join([f"({holes})"] * size)
    return many.sql.replace("{rows}", rows)


# --- files ----------------------------------------------------------------------------------------------------------

# Files that this process may not open, by device and inode number. A descriptor keeps each of them in existence: if a
# file is deleted, its number is given to a new file, which would be refused. O_PATH, since closing any other descriptor
# would release the locks that SQLite has on the file.
_forbidden: dict[tuple[int, int], int] = {}
_HOLD: int = getattr(os, "O_PATH", os.O_RDONLY)


def forbid(path: str) -> None:
    try:
        if _identity(os.stat(path)) in _forbidden:
            return
        held = os.open(path, _HOLD)
    except OSError:
        return  # it was deleted: a new file of this name is another file
    for identity, other in list(_forbidden.items()):
        if os.fstat(other).st_nlink == 0:
            del _forbidden[identity]
            os.close(other)
    _forbidden[_identity(os.fstat(held))] = held


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def file_of(raw: sqlite3.Connection) -> str | None:
    """Return the path of a connection's database; None in memory."""
    cursor = raw.cursor(sqlite3.Cursor)
    cursor.row_factory = None
    try:
        for _, name, path in cursor.execute("PRAGMA database_list"):
            if name in ("main", b"main"):
                return os.fsdecode(path) or None
        return None
    finally:
        cursor.close()


def translate(error: sqlite3.Error, path: str, sql: str = "") -> Error:
    return failure(getattr(error, "sqlite_errorcode", 0), str(error), path, sql)


# By SQLite's extended codes, or by the primary ones.
FAILURES = {
    0: Failure(StatementFailed),  # sqlite3 itself refused a parameter that it cannot bind
    517: Failure(  # SQLITE_BUSY_SNAPSHOT
        Conflict,
        says="another connection wrote after this transaction had begun to read, so it can no longer write: roll it "
        "back and begin it with BEGIN IMMEDIATE",
    ),
    4874: Failure(DiskFull, says="no space for the write-ahead log's index, -shm"),  # SQLITE_IOERR_SHMSIZE
    sqlite3.SQLITE_BUSY: Failure(Busy, says="another connection holds the write lock"),
    sqlite3.SQLITE_LOCKED: Failure(Busy, says="another connection holds the write lock"),
    sqlite3.SQLITE_FULL: Failure(DiskFull),
    sqlite3.SQLITE_READONLY: Failure(ReadOnly),
    sqlite3.SQLITE_CANTOPEN: Failure(CannotOpen),
    sqlite3.SQLITE_NOTADB: Failure(CannotOpen, more=DAMAGED),
    sqlite3.SQLITE_CORRUPT: Failure(CannotOpen, more=DAMAGED),
    275: Failure(StatementFailed, "check"),
    787: Failure(StatementFailed, "foreign"),  # 151 or 152, depending on the statement
    1299: Failure(StatementFailed, "notnull"),
    1555: Failure(StatementFailed, "121"),
    1811: Failure(StatementFailed, "trigger"),
    2067: Failure(StatementFailed, "121"),
    2579: Failure(StatementFailed, "121"),
    3091: Failure(StatementFailed, "type"),
    sqlite3.SQLITE_MISMATCH: Failure(StatementFailed, "type"),
    sqlite3.SQLITE_TOOBIG: Failure(StatementFailed, "toobig"),
    sqlite3.SQLITE_CONSTRAINT: REFUSED,
    sqlite3.SQLITE_ERROR: REFUSED,
}


def failure(code: int, message: str, path: str, sql: str = "") -> Error:
    """Return Roost's error for one of SQLite's extended codes; the code is 0 if the driver itself refused a value."""
    found = FAILURES.get(code) or FAILURES.get(code & 0xFF, FAILED)
    if code & 0xFF == sqlite3.SQLITE_CANTOPEN:
        message = _why_not(path) or message
    elif found is REFUSED and "no such table: " in message and "roost_" in message:
        # The only place that reads messages: SQLite has no code for a missing table, nor for a missing parameter.
        found = Failure(Missing, more=MAKES)
    elif found.error is StatementFailed and " values were supplied" in message:
        found = Failure(StatementFailed, "routine")
    return found.made(path, message, message, sql)


def _why_not(path: str) -> str | None:
    directory = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(directory):
        return f"there is no directory {directory}"
    return "it is a directory" if os.path.isdir(path) else None
