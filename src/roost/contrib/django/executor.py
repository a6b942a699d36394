"""Runs statements through Django's own cursor, so that Django's logs, wrappers and transactions include them."""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Generator, Sequence
from typing import Any, TypeVar

from django.db import Error as DjangoError
from django.db import IntegrityError, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.transaction import TransactionManagementError

from roost.batching.atoms import Atom
from roost.batching.batch import joined
from roost.batching.known import Known
from roost.contrib.django.address import DIALECTS, dialect_of
from roost.contrib.executor import Executor
from roost.contrib.executor import translated as translated_by
from roost.databases.callers.caller import Caller, now, turn
from roost.databases.callers.sqlite import SINCE_IT_READ, has_read
from roost.databases.engine import drive
from roost.databases.sqlite import engine as sqlite
from roost.dialects import Control, Wanted
from roost.dialects.dialect import Exchange, Row
from roost.dialects.mariadb import written
from roost.errors import Busy, Conflict
from roost.structures.plan import Context

T = TypeVar("T")


class DjangoExecutor(Executor):
    """Runs the plans' statements on Django's connection: in Django's own savepoints, never committed.

    writes: whether SQLite's write lock is taken at the savepoint, before anything is read.
    """

    def __init__(self, connection: BaseDatabaseWrapper, *, writes: bool = False) -> None:
        self._cursor: Any = connection.cursor()
        super().__init__(dialect_of(connection), _place(connection))
        self._connection = connection
        self._vendor = connection.vendor
        self._takes_write_lock = writes and self._vendor == "sqlite"
        self._savepoints: list[str | None] = []  # one inside the other
        self.lost = False  # the whole transaction was rolled back, and the savepoint with it
        if self._vendor == "postgresql":
            from roost.databases.postgresql.session import PlainCursor, refuse

            # Django's wrappers still apply. Django's own cursor is not used: it writes values into the text and reads
            # texts, both subject to the session's settings, and drops the zone of a datetime when USE_TZ is off.
            refuse(connection.connection.info, self.place)
            self._cursor.cursor.close()
            self._cursor.cursor = PlainCursor(connection.connection)

    def execute(self, wanted: Wanted) -> Any:
        return self.at_once(wanted) if isinstance(wanted, Exchange) else super().execute(wanted)

    def answer(self, sql: str, row: Row = (), returns: bool = False) -> Any:
        """Send one text with its parameters; a value that the driver cannot read raises an error like a server's."""
        try:
            self._cursor.execute(*self.sent(sql, row))
            return self._cursor.fetchall() if returns else self._cursor.rowcount
        except DjangoError as error:
            raise self.failed(error, sql) from error

    def sent(self, sql: str, row: Row) -> tuple[str, Row | None]:
        """Return a text in the form for Django's cursor, which changes nothing in one without parameters."""
        return super().sent(_as_django_has_it(sql) if row and self._vendor == "sqlite" else sql, row)

    def printed(self, sql: str, row: Row) -> tuple[str, Row | None]:
        """Return a text as `sqlmigrate` shows it: for a session with the settings that Roost needs."""
        if self._vendor == "mysql":
            return sql % tuple([written(value) for value in row]) if row else sql, None
        return self.sent(sql, row)

    def _look(self) -> None:
        # Whether Roost's statements can run in this session.
        if self._vendor == "mysql":
            from roost.databases.mariadb.statements import judge, question

            raw = self._connection.connection
            if asked := question(raw, self.dialect):
                judge(raw, self.dialect, self.answer(asked, returns=True)[0], self.place)

    def at_once(self, wanted: Exchange) -> Row | None:
        """Do an operation in one round trip, in a savepoint; return a row that begins with its result.

        None: nothing was done, because of an unusual condition; the caller uses the general way.
        """
        if self._vendor == "sqlite":
            return None
        made: Any
        given = (self._connection.connection, self.place, True, self, None)
        if self._vendor == "mysql":
            from roost.databases.callers.mariadb import MariaDBCaller

            made = _on_django(MariaDBCaller)(*given, dialect=self.dialect)
            made.where = self.place
        else:
            from roost.databases.callers.postgresql import PostgreSQLCaller

            made = _on_django(PostgreSQLCaller)(*given)
        row: Row | None = now(made.at_once(wanted))
        return row

    def answered(self, text: str) -> Sequence[Row]:
        """Send a text of several statements; return the rows of the one that has any."""
        cursor, rows = self._cursor, list[Row]()
        if self._vendor == "postgresql":
            from roost.databases.postgresql.session import BINARY, TEXT

            cursor.cursor.format = TEXT
        try:
            cursor.execute(text)
            while True:
                rows = cursor.fetchall() if cursor.description else rows
                if not cursor.nextset():
                    return rows
        finally:
            if self._vendor == "postgresql":
                cursor.cursor.format = BINARY

    def failed_at_once(self, error: DjangoError, text: str) -> Exception:
        """Return our error for one of an operation by itself."""
        if self._vendor == "mysql" and error.__cause__ is not None:
            from roost.databases.callers.mariadb import GONE, is_gone

            if is_gone(error.__cause__):
                self.lose()
                return Conflict(f"{self.place}: {GONE}")
        return self.failed(error, text)

    def obey(self, word: Any) -> None:
        try:
            match word:
                case Control.SAVEPOINT:
                    self._set_savepoint()
                case Control.BACK:
                    self._back()
                case Control.RELEASE:
                    self._release()
                case Control.LOCK_CATALOG:
                    self._look()
                    self.lock()
                case _:
                    pass  # the others are for batches; MariaDB itself begins a new transaction after a CREATE or ALTER
        except DjangoError as error:
            raise self.failed(error, word.value) from error

    def _set_savepoint(self) -> None:
        self._look()
        self._savepoints.append(self._connection.savepoint())
        if self._takes_write_lock and len(self._savepoints) == 1:
            try:
                self.answer(sqlite.TAKE_WRITE_LOCK)
            except Exception as error:
                if isinstance(error, Busy) and has_read(self._connection.connection):
                    self.lose()
                    raise Conflict(SINCE_IT_READ) from error
                self._back()
                self._release()
                raise

    def _back(self) -> None:
        if self.lost:
            return
        try:
            if self._savepoints[-1] is None:  # DDL outside of a transaction: it cannot be rolled back
                self._connection.needs_rollback = True
            else:
                self._connection.savepoint_rollback(self._savepoints[-1])
        except DjangoError:
            # As Django's atomic() does: the original error is raised; this one only shows that the transaction is lost.
            self.lose()

    def _release(self) -> None:
        savepoint = self._savepoints.pop()
        if savepoint is not None and not self.lost:
            self._connection.savepoint_commit(savepoint)

    def lose(self) -> None:
        """Abandon the transaction: Django refuses further queries in the block and rolls it back."""
        self.lost = True
        self._connection.needs_rollback = True

    def failed(self, error: DjangoError, sql: str) -> Exception:
        """Return our error for the driver's error that Django has wrapped; raise an error of Django's own unchanged."""
        found = translated(self._connection, error, sql)
        if found is None:
            raise error
        if isinstance(found, Conflict):
            self.lose()
        return found

    def close(self) -> None:
        """Leave Django's connection as it is."""
        try:
            self.unlock()
        finally:
            self._cursor.close()


@functools.cache
def _on_django(kind: type[Caller]) -> Any:
    # A driver's call, whose texts are sent on Django's cursor.
    class OnDjango(kind):  # type: ignore[misc,valid-type]
        failures = DjangoError

        async def answer(self, sql: str, row: Row, returns: bool | None, several: bool) -> Any:
            return self.cursor.answered(sql)

        def failed(self, error: Any, sql: str) -> Exception:
            found: Exception = self.cursor.failed_at_once(error, sql)
            return found

        def is_lost(self) -> bool:
            lost: bool = self.cursor.lost
            return lost

    return OnDjango


def run_joined(atom: Atom, connection: BaseDatabaseWrapper, known: Known, context: Context) -> None:
    """Run an atom inside the transaction that is open on Django's connection."""
    with turn(connection, threading.RLock):  # a LiveServerTestCase shares it between threads
        executor = DjangoExecutor(connection, writes=atom.writes)
        try:
            drive(joined(atom, known, context), executor)
        except Exception:
            raise
        except BaseException:
            executor.lose()  # interrupted: a half-done operation must not be committed
            raise
        finally:
            executor.close()


def run_atomic(work: Generator[Wanted, Any, T], connection: BaseDatabaseWrapper) -> T:
    """Run a generator on Django's connection, all or nothing if the engine supports it."""
    executor = DjangoExecutor(connection)
    try:
        with transaction.atomic(using=connection.alias):
            return drive(work, executor)
    finally:
        executor.close()


def change(work: Generator[Wanted, Any, T], connection: BaseDatabaseWrapper) -> T:
    """Run a plan that creates, alters or drops structures."""
    if connection.in_atomic_block and not connection.features.can_rollback_ddl:
        raise TransactionManagementError(
            f"making, changing and dropping structures on {connection.display_name} commits the transaction that is "
            "open: do it outside of atomic()"
        )
    return run_atomic(work, connection)


def _place(connection: BaseDatabaseWrapper) -> str:
    facts = connection.settings_dict
    host, port = facts.get("HOST") or "", facts.get("PORT") or ""
    return f"{connection.alias} ({facts['NAME']}{f' on {host}' * bool(host)}{f':{port}' * bool(port)})"


def translated(connection: BaseDatabaseWrapper, error: DjangoError, sql: str) -> Exception | None:
    """Return our error for the driver's error that Django has wrapped; None for an error of Django's own."""
    cause, place = error.__cause__, _place(connection)
    driver: Any = connection
    if cause is None and isinstance(error, IntegrityError):
        cause = error.__context__  # MySQL's backend converts an OperationalError without setting __cause__
    if not isinstance(cause, driver.Database.Error):
        return None  # TransactionManagementError, "connection is closed"
    return translated_by(DIALECTS[connection.vendor].family, cause, place, sql)


_QUOTED_OR_MARK = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\?|%""")


@functools.lru_cache(maxsize=1024)
def _as_django_has_it(sql: str) -> str:
    """Return a text for SQLite with %s for each parameter and every other % doubled, as Django's cursor expects.

    >>> _as_django_has_it("SELECT '?%', n % 5 FROM t WHERE k = ?")
    "SELECT '?%%', n %% 5 FROM t WHERE k = %s"
    """
    return _QUOTED_OR_MARK.sub(lambda found: "%s" if found[0] == "?" else found[0].replace("%", "%%"), sql)
