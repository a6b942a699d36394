"""Statements on a connection that another library has opened, with whatever driver: Alembic's, Django's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Any

from roost.databases.sqlite import engine as sqlite
from roost.dialects import Control, Dialect, Statement, Together, Wanted
from roost.dialects.dialect import Row, collect, render
from roost.errors import Busy, Missing

LOCK_SECONDS = 5  # how long to wait for the lock on creating and altering structures


class Executor(ABC):
    """Runs what a plan yields.

    place: the database, in messages.
    """

    def __init__(self, dialect: Dialect, place: str) -> None:
        self.dialect, self.place = dialect, place
        self._unlocking = ""

    @abstractmethod
    def answer(self, sql: str, row: Row = (), returns: bool = False) -> Any:
        """Send a text; return its rows, or how many it has changed. Raise our error for one of the driver's."""

    def execute(self, wanted: Wanted) -> Any:
        if isinstance(wanted, Together):
            return [self.execute(each) for each in wanted.statements]
        if not isinstance(wanted, Statement):
            return self.obey(wanted)
        returns = wanted.template.returns
        return collect(wanted, [self.answer(sql, row, returns) for sql, row in render(wanted)])

    def obey(self, word: Any) -> Any:
        """Obey a control word: only the catalog's lock has an effect."""
        if word is Control.LOCK_CATALOG:
            self.lock()

    def sent(self, sql: str, row: Row) -> tuple[str, Row | None]:
        """Return a text as the connection takes it: with values in it, as each driver of a server has other marks."""
        match self.dialect.family:
            case "mariadb":
                from roost.databases.mariadb.statements import joined_text

                return joined_text(self.dialect, sql, row), None
            case "postgresql":
                from roost.databases.postgresql.connection import filled_in

                return filled_in(sql, row), None
        return sql, row or None

    def lock(self) -> None:
        """Take the catalog's lock. Where CREATE TABLE ends a transaction, it belongs to the session."""
        match self.dialect.family:
            case "sqlite":
                with suppress(Missing):  # the first structure is being created
                    self.answer(sqlite.TAKE_WRITE_LOCK)
            case "postgresql":
                from roost.databases.postgresql.connection import CREATE_LOCK as NUMBER

                self.answer(f"SELECT pg_advisory_xact_lock({NUMBER})")
            case "mariadb":
                from roost.databases.mariadb.statements import CREATE_LOCK as NAME

                ((taken,),) = self.answer(f"SELECT GET_LOCK({NAME}, {LOCK_SECONDS})", returns=True)
                if taken != 1:
                    raise Busy(f"{self.place}: another process is making or changing structures")
                self._unlocking = f"SELECT RELEASE_LOCK({NAME})"

    def unlock(self) -> None:
        unlocking, self._unlocking = self._unlocking, ""
        if unlocking:
            self.answer(unlocking)


def translated(family: str, cause: Any, place: str, sql: str) -> Exception:
    """Return our error for one of whatever driver; those of a database have the same names and arguments (PEP 249)."""
    match family:
        case "postgresql":
            from roost.databases.postgresql import errors as postgresql

            return postgresql.translate(postgresql.as_psycopg(cause), place, sql)
        case "mariadb":
            from roost.databases.mariadb import errors as mariadb

            return mariadb.translate(cause, place, sql)
    return sqlite.translate(cause, place, sql)
