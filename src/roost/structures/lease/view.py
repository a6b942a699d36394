"""Lease as a SQL view: who holds which key, and a DELETE ends a lease."""

from __future__ import annotations

from roost.structures.clock import at_moment, shown_now
from roost.structures.lease.declaration import HOLDER
from roost.structures.plan import StructurePlan
from roost.structures.views import mariadb, postgresql, sqlite

READ_ONLY = "a lease is held by acquire(), not by SQL; DELETE ends one"


def on_sqlite(plan: StructurePlan) -> sqlite.Made:
    """Return the view on SQLite, with its INSTEAD OF triggers."""
    words = sqlite.Words(plan)
    refuse = [words.refuse(("1", f": {READ_ONLY}"))]
    return sqlite.Made(view=_shown(plan), insert=refuse, update=refuse, delete=[_end(plan, words.is_old(words.key))])


def on_mariadb(plan: StructurePlan) -> mariadb.Made:
    """Return the view on MariaDB, with what is removed through its outlet or procedure."""
    key = plan.structure.key.columns

    def add(words: mariadb.Words) -> mariadb.Door:
        return words.door(key, [], [words.signal(f"{words.name}: {READ_ONLY}")])

    def remove(words: mariadb.Words) -> mariadb.Door:
        return words.door(key, [], [_end(plan, words.is_new(key, f"{words.rows}."))])

    return mariadb.Made(f"SELECT * FROM ({_shown(plan)}) {{mark}}", add, remove, False)


def on_postgresql(plan: StructurePlan) -> postgresql.Made:
    """Return the view on PostgreSQL, with its INSTEAD OF triggers."""
    words = postgresql.Words(plan)
    refuse = [words.stop("0A000", f": {READ_ONLY}")]
    return postgresql.Made(
        view=_shown(plan),
        insert=refuse,
        update=refuse,
        delete=[
            words.refuse(),
            f"{_end(plan, words.equal(words.key, 'OLD'))};",
            "IF NOT FOUND THEN\n  RETURN NULL;\nEND IF;",
            "RETURN OLD;",
        ],
    )


def _shown(plan: StructurePlan) -> str:
    dialect = plan.dialect
    return (
        f"SELECT {dialect.names([*plan.structure.key.columns, HOLDER], 'r.')}, r.token,"
        f" {at_moment(dialect, 'r.expires')} AS expires\n"
        f"  FROM {plan.rows_table} r CROSS JOIN (SELECT {shown_now(plan)} AS moment) m WHERE r.expires > m.moment"
    )


def _end(plan: StructurePlan, which: str) -> str:
    # The row stays until its token can be forgotten.
    now = shown_now(plan)
    return f"UPDATE {plan.rows_table} SET expires = {now} WHERE {which} AND expires > {now}"


VIEWS = {"sqlite": on_sqlite, "mariadb": on_mariadb, "postgresql": on_postgresql}
