"""Runs statements through Django's own cursor, so that Django's logs, wrappers and transactions include them."""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Generator
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
from roost.databases.callers import SAVEPOINT, Caller, now, turn
from roost.databases.callers.sqlite import SQLiteCaller
from roost.databases.engine import drive
from roost.dialects import Control, Wanted
from roost.dialects.dialect import Row
from roost.dialects.mariadb import written
from roost.errors import Conflict, Error
from roost.structures.plan import Context

T = TypeVar("T")


class DjangoExecutor(Executor):
    """Runs statements on Django's connection, in whatever transaction it has; nothing is committed."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self.cursor: Any = connection.cursor()
        super().__init__(dialect_of(connection), _place(connection))
        self._connection = connection
        self._vendor = connection.vendor
        self.lost = False  # the whole transaction was rolled back
        if self._vendor == "postgresql":
            from roost.databases.postgresql.session import PlainCursor, refuse

            # Django's wrappers still apply. Django's own cursor is not used: it writes values into the text and reads
            # texts, both subject to the session's settings, and drops the zone of a datetime when USE_TZ is off.
            refuse(connection.connection.info, self.place)
            self.cursor.cursor.close()
            self.cursor.cursor = PlainCursor(connection.connection)

    def answer(self, sql: str, row: Row = (), returns: bool = False) -> Any:
        """Send one text with its parameters; a value that the driver cannot read raises an error like a server's."""
        try:
            self.cursor.execute(*self.sent(sql, row))
            return self.cursor.fetchall() if returns else self.cursor.rowcount
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

    def lock(self) -> None:
        if self._vendor == "mysql":  # whether Roost's statements can run in this session
            from roost.databases.mariadb.statements import judge, question

            raw = self._connection.connection
            if asked := question(raw, self.dialect):
                judge(raw, self.dialect, self.answer(asked, returns=True)[0], self.place)
        super().lock()

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
            self.cursor.close()

    def caller(self, writes: bool) -> Caller:
        """Return what runs a call in a savepoint as on the driver's connection, by texts on Django's cursor."""
        kind, more = _caller_of(self._vendor), {"dialect": self.dialect} if self._vendor == "mysql" else {}
        made: Caller = _on_django(kind)(self._connection.connection, self.place, writes, self.cursor, None, **more)
        made.where, made.executor = self.place, self  # type: ignore[attr-defined]
        return made


def _caller_of(vendor: str) -> type[Caller]:
    if vendor == "mysql":
        from roost.databases.callers.mariadb import MariaDBCaller

        return MariaDBCaller
    if vendor == "postgresql":
        from roost.databases.callers.postgresql import PostgreSQLCaller

        return PostgreSQLCaller
    return SQLiteCaller


@functools.cache
def _on_django(kind: type[Caller]) -> Any:
    class OnDjango(kind):  # type: ignore[misc,valid-type]
        executor: DjangoExecutor
        failures = DjangoError
        execute, statement = Caller.execute, Caller.statement

        async def obey(self, word: Control) -> None:
            try:
                await super().obey(word)
            except Conflict:
                raise
            except Error:
                if word is not Control.BACK:
                    raise
                self.abandon()  # the original error is raised; this one only shows that the transaction is lost

        async def begin(self) -> None:
            if self.executor.dialect.family != "mariadb":
                await super().begin()
                return
            await self._look()  # and no more, since mysqlclient does not tell whether there is a transaction
            await self.say(SAVEPOINT)
            self.depth = 1

        def sent(self, sql: str, row: Row) -> tuple[str, Row | None]:
            return self.executor.sent(sql, row)

        async def answer(self, sql: str, row: Row, returns: bool | None, several: bool) -> Any:
            if self.executor.dialect.family == "postgresql":
                from roost.databases.postgresql.session import BINARY, TEXT

                self.cursor.cursor.format = TEXT if several else BINARY  # that of the driver, below Django's wrapper
            return await Caller.answer(self, sql, row, returns, several)

        def failed(self, error: DjangoError, sql: str) -> Exception:
            return self.executor.failed(error, sql)

        def is_lost(self) -> bool:
            return self.executor.lost

        def abandon(self) -> None:
            self.executor.lose()

    return OnDjango


def run_joined(atom: Atom, connection: BaseDatabaseWrapper, known: Known, context: Context) -> None:
    """Run an atom inside the transaction that is open on Django's connection."""
    with turn(connection, threading.RLock):  # a LiveServerTestCase shares it between threads
        executor = DjangoExecutor(connection)
        try:
            now(executor.caller(atom.writes).play(joined(atom, known, context)))
        except BaseException as error:
            # Interrupted, a half-done operation must not be committed; and a snapshot may be too old for any write.
            if isinstance(error, Conflict) or not isinstance(error, Exception):
                executor.lose()
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
