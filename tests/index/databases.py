"""Databases of one test, each with a table for the tests of indexes."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
from pymysql.constants import CLIENT

from roost.databases.mariadb.address import arguments
from tests import servers

NAMES = ("sqlite", "mariadb", "mysql", "postgresql")


class Database:
    """A database, and plain SQL in it."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self.url = url
        self._kept: Any = None

    def connect(self) -> Any:
        """Return a connection of the driver, as an application has one."""
        if self.name == "sqlite":
            return sqlite3.connect(self.url.removeprefix("sqlite:///"))
        if self.name in ("mariadb", "mysql"):
            return pymysql.connect(**arguments(self.url)[0], client_flag=CLIENT.MULTI_STATEMENTS)
        return psycopg.connect(self.url)

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Keep one connection meanwhile for what runs here: a new one for each statement costs more than most do."""
        with contextlib.closing(self.connect()) as self._kept:
            yield
        self._kept = None

    @contextlib.contextmanager
    def _connection(self) -> Iterator[Any]:
        if self._kept is not None:
            try:
                yield self._kept
            except BaseException:
                self._kept.rollback()  # the next test has the same connection
                raise
            return
        with contextlib.closing(self.connect()) as connection:
            yield connection

    def script(self, *texts: str) -> None:
        """Run statements."""
        with self._connection() as connection:
            cursor = connection.cursor()
            for text in texts:
                cursor.execute(text)
            connection.commit()

    def sql(self, text: str) -> list[Any]:
        """Run one statement, and return its rows."""
        with self._connection() as connection:
            cursor = connection.cursor()
            cursor.execute(text)
            found = list(cursor.fetchall()) if cursor.description else []
            connection.commit()
            return found


@contextlib.contextmanager
def database(name: str, folder: Path) -> Iterator[Database]:
    """Make a database."""
    with servers.own_database(name, f"{folder}/app.db") as url:
        yield Database(name, url)


@pytest.fixture(params=NAMES)
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """An empty database of each kind in turn."""
    with database(request.param, tmp_path) as made:
        yield made
