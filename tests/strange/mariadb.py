"""A MariaDB of the strange servers' own, whose global settings a test changes and puts back."""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
from collections.abc import Iterator, Mapping
from enum import Enum
from itertools import count
from typing import Any
from uuid import UUID

import pymysql

from roost.databases.mariadb.address import arguments
from tests import servers

_numbers = count()
_kept: dict[tuple[str, ...], servers.Daemon] = {}
MOST = 2  # that run at once, of those with options of their own


def server(*options: str) -> servers.Server:
    """Return one with these options; never one that somebody has named, as its settings are others'.

    It ends when others were asked for since; the one without options stays.
    """
    daemon = _kept.pop(options, None)
    if daemon is None:
        while len([each for each in _kept if each]) >= MOST:
            _kept.pop(next(each for each in _kept if each)).end()
        daemon = servers.mariadb_daemon(*options)
    _kept[options] = daemon  # the last
    return servers.mariadb_server(daemon.url)


@contextlib.contextmanager
def strange(settings: Mapping[str, Any], options: tuple[str, ...] = (), charset: str = "") -> Iterator[str]:
    """Make a database on a server whose sessions begin with these settings; return its URL.

    charset: of the database, as CREATE DATABASE has it.
    """
    found = server(*options)
    name = f"strange_{next(_numbers)}"
    found.run(f"CREATE DATABASE {name} {charset}")
    with connection(f"{found.url}/mysql") as one:
        before = {each: one.read(f"SELECT @@GLOBAL.{each}")[0][0] for each in settings}
        try:
            for each, value in settings.items():
                one.read(f"SET GLOBAL {each} = %s", value)
            yield f"{found.url}/{name}"
        finally:
            for each, value in before.items():
                one.read(f"SET GLOBAL {each} = %s", value)
            found.run(f"DROP DATABASE {name}")


class Client(pymysql.connections.Connection):
    """A client that knows nothing of Roost, with MariaDB's views. Its literals are right in every sql_mode."""

    @property
    def number(self) -> int:
        """The server's number of it."""
        found: int = self.read("SELECT CONNECTION_ID()")[0][0]
        return found

    def read(self, sql: str, *values: Any) -> Any:
        """Run a statement, with %s for each value, and return the rows. A SELECT may examine any number of rows."""
        text = sql % tuple(map(_literal, values)) if values else sql
        if text.startswith("SELECT"):
            text = f"SET STATEMENT sql_big_selects = 1 FOR {text}"
        with self.cursor() as cursor:
            cursor.execute(text)
            return cursor.fetchall() if cursor.description else ()

    def insert(self, name: str, row: Mapping[str, Any]) -> None:
        """Insert a row through the view of a structure."""
        columns = ", ".join(f"`{each}`" for each in row)
        self.read(f"INSERT INTO {name}_in ({columns}) VALUES ({', '.join(['%s'] * len(row))})", *row.values())

    def remove(self, name: str, row: Mapping[str, Any]) -> None:
        """Remove one through the view."""
        columns = ", ".join(f"`{each}`" for each in row)
        self.read(f"INSERT INTO {name}_out ({columns}) VALUES ({', '.join(['%s'] * len(row))})", *row.values())

    def count(self, name: str) -> int:
        """Return how many rows the view shows."""
        # max_join_size is for the client's own statements; how many rows it may read is not the view's to say.
        found: int = self.read(f"SET STATEMENT sql_big_selects = 1 FOR SELECT count(*) FROM {name}")[0][0]
        return found


def connection(url: str, **options: Any) -> Client:
    """Connect as such a client."""
    return Client(**{**arguments(url)[0], "autocommit": True, **options})


def _literal(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case Enum():
            return _literal(value.value)
        case bool() | int():
            return str(int(value))
        case str():
            return f"_utf8mb4 X'{value.encode().hex()}'" if value else "''"
        case bytes():
            return f"X'{value.hex()}'"
        case float():
            return repr(value) if "e" in repr(value) else f"{value!r}e0"
        case UUID():
            return f"X'{value.hex}'"
        case dt.datetime():
            return f"'{value.replace(tzinfo=None).isoformat(' ')}'"
    return f"'{value}'"


@functools.cache
def default_mode() -> str:
    """Return the sql_mode that the server comes with."""
    with connection(f"{server().url}/mysql") as one:
        found: str = one.read("SELECT @@GLOBAL.sql_mode")[0][0]
        return found
