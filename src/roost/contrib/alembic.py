"""Alembic: migrations create, alter and drop structures, and autogenerate ignores their tables.

In `env.py`::

    context.configure(..., include_name=roost.contrib.alembic.ignoring(visits, baskets))

In a migration::

    def upgrade():
        roost.contrib.alembic.create(op, visits)

    def downgrade():
        roost.contrib.alembic.drop(op, visits)

The work is done on the migration's own connection, in its transaction. With `--sql` it is printed instead.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import sqlalchemy as sa

from roost.batching.known import Known
from roost.catalog import alter as altering
from roost.catalog import catalog
from roost.contrib.executor import Executor, translated
from roost.databases.engine import drive
from roost.dialects import MARIADB, MYSQL, POSTGRESQL, SQLITE, Dialect, Wanted
from roost.dialects.dialect import Row
from roost.errors import DatabaseError, Error, Invalid
from roost.structures.plan import StructurePlan
from roost.structures.structure import Structure

T = TypeVar("T")
Rule = Callable[[str | None, Any, Mapping[Any, Any]], bool]

DIALECTS = {"sqlite": SQLITE, "mysql": MARIADB, "mariadb": MARIADB, "postgresql": POSTGRESQL}


def ignoring(*structures: Structure, also: Rule | None = None) -> Rule:
    """Return an `include_name` for Alembic's `context.configure`: autogenerate then ignores the tables of Roost,
    and the tables and indexes of `roost cap`.

    structures: the structures whose views are tables on MariaDB, `NAME_in` and `NAME_out`. Elsewhere they are views,
        which autogenerate does not examine.
    also: the application's own `include_name`, called for every other name.

    >>> from roost.contrib.alembic import ignoring
    >>> include_name = ignoring()
    >>> include_name("roost_visits_rows", "table", {}), include_name("orders", "table", {})
    (False, True)
    """
    inlets = {f"{structure.name}{way}" for structure in structures for way in ("_in", "_out")}

    def include_name(name: str | None, type_: Any, parents: Mapping[Any, Any]) -> bool:
        if name is not None and name.startswith("roostcap_"):  # a table, or an index of the application's table
            return False
        if type_ == "table" and name is not None and (name.startswith("roost_") or name in inlets):
            return False
        return also is None or also(name, type_, parents)

    return include_name


def create(op: Any, *structures: Structure, view: bool = True) -> None:
    """Create structures in a migration, as `store.create` does; `Mismatch` if one exists with another declaration.

    A structure that exists with the same declaration is left alone. Write the declaration into the migration: an
    imported one would change the old migration whenever the application changes.

    op: `alembic.op`.
    view: also create the view for SQL clients; see `roost.Store.create`.
    """
    known, plans = _plans(op, structures)
    if _is_printed(op):
        _print(op, known, catalog.ddl(known.catalog, plans, view))
    else:
        _run(op, known, catalog.create(known.catalog, plans, view))


def alter(op: Any, structure: Structure, *, view: bool | None = None, keep_columns: bool = False) -> list[str]:
    """Alter the stored structure to this declaration in a migration, as `store.alter` does; return the changes.

    keep_columns: columns that the declaration lacks stay, for `downgrade` after a column was added; otherwise they are
        refused, since their values would be lost.

    `Invalid` with `--sql`: the statements depend on what is stored.
    """
    known, plans = _plans(op, [structure])
    if _is_printed(op):
        raise Invalid(f"{structure.name}: what changes it depends on what is stored, so it cannot be printed (--sql)")
    return _run(op, known, altering.alter(known.catalog, plans[0], view, keep_columns=keep_columns))


def drop(op: Any, *structures: Structure, view: bool = True) -> None:
    """Drop structures with all their data in a migration: the reverse of `create`. Missing structures are skipped.

    view: with `--sql`, whether the view was created; otherwise an existing view is dropped.
    """
    known, plans = _plans(op, structures)
    if _is_printed(op):
        _print(op, known, catalog.drop_ddl(known.catalog, plans, view))
    else:
        _run(op, known, catalog.drop(known.catalog, plans))


def _plans(op: Any, structures: Sequence[Structure]) -> tuple[Known, list[StructurePlan]]:
    known = Known(_dialect(op))
    return known, [known.plan(structure) for structure in structures]


def _dialect(op: Any) -> Dialect:
    found = op.get_context().dialect
    if found.name not in DIALECTS:
        raise Invalid(f"Roost knows SQLite, MariaDB, MySQL 8 and PostgreSQL, and not {found.name}")
    # SQLAlchemy has asked the server whether it is MariaDB or MySQL; with --sql there is no server to ask.
    is_mysql = found.name == "mysql" and not _is_printed(op) and not found.is_mariadb
    return MYSQL if is_mysql else DIALECTS[found.name]


def _is_printed(op: Any) -> bool:
    return bool(op.get_context().as_sql)


def _print(op: Any, known: Known, statements: Sequence[str]) -> None:
    # Not by op.execute: it would look for parameters after colons, and double each %.
    for line in catalog.script(known.dialect, statements):
        op.get_context().impl.static_output(f"{line}\n")


def _run(op: Any, known: Known, work: Generator[Wanted, Any, T]) -> T:
    executor = _Executor(op.get_bind(), known.dialect)
    begin = executor.begin()
    try:
        executor.say(begin)
        made = drive(work, executor)
    except BaseException:
        with suppress(Error):
            executor.say(begin and "ROLLBACK")
        raise
    else:
        executor.say(begin and "COMMIT")
        return made
    finally:
        executor.unlock()


class _Executor(Executor):
    """Runs statements on the migration's connection, with any driver, including those of asyncio."""

    def __init__(self, connection: sa.Connection, dialect: Dialect) -> None:
        super().__init__(dialect, "the database")
        self._connection = connection

    def begin(self) -> str:
        """Return what begins a transaction, if the migration has none (AUTOCOMMIT): a change is done as a whole."""
        match self.dialect.family:
            case "sqlite":
                raw: Any = self._connection.connection.driver_connection
                return "BEGIN IMMEDIATE" if raw.isolation_level is None and not raw.in_transaction else ""
            case "postgresql":
                try:
                    self.say("SAVEPOINT roost_migration")
                    self.say("RELEASE SAVEPOINT roost_migration")
                except DatabaseError:
                    return "BEGIN"
        return ""

    def say(self, sql: str) -> None:
        """Run a statement, if there is one."""
        if sql:
            self.answer(sql)

    def answer(self, sql: str, row: Row = (), returns: bool = False) -> Any:
        text, values = self.sent(sql, row)
        # Without parameters a text is sent unchanged: no driver looks for % in it.
        options = {"no_parameters": not values}
        try:
            done = self._connection.exec_driver_sql(text, values, execution_options=options)
            return [tuple(each) for each in done.fetchall()] if returns else done.rowcount
        except sa.exc.DBAPIError as error:
            raise translated(self.dialect.family, error.orig, self.place, sql) from error
