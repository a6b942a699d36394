"""Plain SQL clients: a driver's connection, and nothing of Roost. Tests write `?` for a value on every engine."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pymysql

from roost.databases.mariadb.address import arguments

# What a server has of sessions that wait for a lock, as FROM has it, by the scheme of its URL. InnoDB shows the same
# again to those that ask more often than ten times a second.
WAITS = {
    "postgresql": "pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
    "mysql": "(SELECT SLEEP(0.2)) s JOIN information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
}


class SQLiteClient(sqlite3.Connection):
    """A client of SQLite."""

    def view_objects(self) -> list[str]:
        """Return the names of the objects that views consist of."""
        mine = "type IN ('view', 'trigger') AND tbl_name NOT LIKE 'roost%'"  # those are of programs
        found = self.execute(f"SELECT name FROM sqlite_master WHERE {mine} ORDER BY name")
        return [name for (name,) in found]

    def private_tables(self) -> list[str]:
        """Return the names of Roost's tables."""
        found = self.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'roost%' ORDER BY name")
        return [name for (name,) in found]

    def view(self, name: str) -> Any:
        """Return the text of a view."""
        return self.execute("SELECT sql FROM sqlite_master WHERE name = ?", (name,)).fetchone()

    def drop_trigger(self, name: str, _: str) -> None:
        """Drop a trigger of a relation."""
        self.execute(f"DROP TRIGGER {name}")

    def as_stored(self, column: str) -> str:
        """Return the expression that shows a value exactly as it is stored."""
        return f"quote({column})"


class PostgreSQLClient(psycopg.Connection[Any]):
    """A client of PostgreSQL."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> psycopg.Cursor[Any]:
        """Run a statement; `?` stands for a value where there are any."""
        return super().execute(_in_format(query) if params else query, params or None, **options)

    def executemany(self, query: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement for each of several rows."""
        with self.cursor() as cursor:
            cursor.executemany(_in_format(query).encode(), rows)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, one that has failed included."""
        return self.info.transaction_status is not psycopg.pq.TransactionStatus.IDLE

    def view_objects(self) -> list[str]:
        """Return the names of the objects that views consist of; a trigger and its function have one name."""
        found = self.execute(
            "SELECT viewname FROM pg_views WHERE schemaname = current_schema()\n"
            "UNION SELECT tgname FROM pg_trigger WHERE NOT tgisinternal\n"
            "UNION SELECT proname FROM pg_proc\n"
            "  WHERE proname LIKE 'roost%' AND prorettype = 'trigger'::regtype ORDER BY 1"
        )
        return [name for (name,) in found]

    def private_tables(self) -> list[str]:
        """Return the names of Roost's tables."""
        found = self.execute("SELECT tablename FROM pg_tables WHERE tablename LIKE 'roost%' ORDER BY 1")
        return [name for (name,) in found]

    def view(self, name: str) -> Any:
        """Return the text of a view."""
        return self.execute("SELECT pg_get_viewdef(?::regclass)", (name,)).fetchone()

    def drop_trigger(self, name: str, relation: str) -> None:
        """Drop a trigger of a relation."""
        self.execute(f"DROP TRIGGER {name} ON {relation}")

    def as_stored(self, column: str) -> str:
        """Return the expression that shows a value exactly as it is stored."""
        return f"{column}::text"

    def copy(self, statement: str, *rows: Sequence[Any]) -> None:
        """Run a COPY … FROM STDIN."""
        with self.cursor() as cursor, cursor.copy(statement.encode()) as lines:
            for row in rows:
                lines.write_row(row)


class MariaDBClient(pymysql.connections.Connection):
    """A client of MariaDB."""

    def execute(self, query: str, params: Sequence[Any] = ()) -> Any:
        """Run a statement; `?` stands for a value where there are any. Returns the cursor."""
        cursor = self.cursor()
        cursor.execute(_in_format(query) if params else query, params or None)
        return cursor

    def view_objects(self) -> list[str]:
        """Return the names of the objects that views consist of."""
        found = self.execute(
            "SELECT table_name FROM information_schema.tables\n"
            "  WHERE table_schema = DATABASE() AND (engine IS NULL OR engine = 'BLACKHOLE')\n"
            "UNION SELECT trigger_name FROM information_schema.triggers WHERE event_object_schema = DATABASE()\n"
            "UNION SELECT routine_name FROM information_schema.routines\n"
            "  WHERE routine_schema = DATABASE() AND routine_comment NOT LIKE 'a program%'"
        )
        return sorted(name for (name,) in found.fetchall())

    def private_tables(self) -> list[str]:
        """Return the names of Roost's tables."""
        return [name for (name,) in self.execute("SHOW TABLES LIKE 'roost%'").fetchall()]


def is_mariadb(sql: MariaDBClient, least: int = 0) -> bool:
    """Return whether it is not MySQL, and of this major version at least."""
    version = sql.execute("SELECT VERSION()").fetchone()[0]
    return "MariaDB" in version and int(version.partition(".")[0]) >= least


# Has a row where a write on what others changed behind the snapshot is a conflict: by default from MariaDB 11.6 on.
ISOLATES = "SHOW VARIABLES WHERE Variable_name = 'innodb_snapshot_isolation' AND Value = 'ON'"


def _in_format(query: str) -> str:
    return query.replace("%", "%%").replace("?", "%s")


Client = SQLiteClient | PostgreSQLClient  # of one relation that takes every statement


def connect(url: str) -> Any:
    """Connect to the database that a store's URL names."""
    if url.startswith("postgresql"):
        return PostgreSQLClient.connect(url, autocommit=True)
    if url.startswith("mysql"):
        return MariaDBClient(**arguments(url)[0], autocommit=True)
    in_memory = url.partition("?")[0] == "sqlite://"  # which is a store's own: a client has an empty one
    path = ":memory:" if in_memory else Path(url.removeprefix("sqlite:///").partition("?")[0])
    return sqlite3.connect(path, isolation_level=None, factory=SQLiteClient)


def numbers(n: int) -> str:
    """Return a table `n` of the numbers `seq` from 1 on, as MariaDB and MySQL have it."""
    return f"JSON_TABLE(CONCAT('[1', REPEAT(',1', {n - 1}), ']'), '$[*]' COLUMNS (seq FOR ORDINALITY)) n"
