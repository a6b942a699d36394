"""Expiring set as a SQL view: what plain SQL clients see, and the effect of their statements.

An INSERT adds or renews a member, and deletes some expired ones, as the library's writes do.
"""

from __future__ import annotations

from roost.structures.plan import StructurePlan
from roost.structures.views import mariadb, postgresql, sqlite
from roost.structures.views.lasting import Ends

FIXED = ": a member cannot be changed; delete it and insert the other one"


def on_sqlite(plan: StructurePlan) -> sqlite.Made:
    """Return the view on SQLite, with its INSTEAD OF triggers."""
    words, pair = sqlite.ViewWords(plan), plan.structure.columns
    names, ends = words.dialect.names(pair), Ends(plan, pair)
    return sqlite.Made(
        view=f"SELECT {names} FROM {words.rows}{ends.where}",
        insert=[
            words.refuse(*words.rules(pair)),
            f"INSERT INTO {words.rows} ({names}{ends.column}) VALUES ({words.news(pair)}{ends.value})\n"
            f"    ON CONFLICT ({names}) DO UPDATE SET until = excluded.until",
            *ends.sweep,
        ],
        update=[words.refuse(("1", FIXED))],
        delete=[f"DELETE FROM {words.rows} WHERE {words.is_old(pair)}"],
    )


def on_mariadb(plan: StructurePlan) -> mariadb.Made:
    """Return the view on MariaDB, with what is inserted and removed through its inlets or procedures."""
    pair = plan.structure.columns
    ends = Ends(plan, pair)

    def add(words: mariadb.ViewWords) -> mariadb.Door:
        return words.door(
            pair,
            ends.declared,
            [
                *ends.read,
                f"INSERT INTO {words.rows} ({words.names(pair)}{ends.column})\n"
                f"    VALUES ({words.news(pair)}{ends.value})\n"
                "    ON DUPLICATE KEY UPDATE until = VALUES(until)",
            ],
        )

    def remove(words: mariadb.ViewWords) -> mariadb.Door:
        return words.door(pair, [], [f"DELETE FROM {words.rows} WHERE {words.is_new(pair, f'{words.rows}.')}"])

    return mariadb.Made(mariadb.shown(plan, pair, ends.where), add, remove, False)


def on_postgresql(plan: StructurePlan) -> postgresql.Made:
    """Return the view on PostgreSQL, with its INSTEAD OF triggers."""
    words, pair = postgresql.ViewWords(plan), plan.structure.columns
    names, ends = words.names(pair), Ends(plan, pair)
    return postgresql.Made(
        view=f"SELECT {names} FROM {words.rows}{ends.where}",
        insert=[
            words.refuse(*words.rules(pair)),
            *words.normal(pair),
            *ends.read,
            f"INSERT INTO {words.rows} ({names}{ends.column}) VALUES ({words.values(pair)}{ends.value})\n"
            f"  ON CONFLICT ({names}) DO UPDATE SET until = excluded.until;",
            "RETURN NEW;",
        ],
        update=[words.stop("0A000", FIXED)],
        delete=[
            words.refuse(),
            f"DELETE FROM {words.rows} WHERE {words.equal(pair, 'OLD')};",
            "IF NOT FOUND THEN\n  RETURN NULL;\nEND IF;",
            "RETURN OLD;",
        ],
        variables=ends.variables,
    )


VIEWS = {"sqlite": on_sqlite, "mariadb": on_mariadb, "postgresql": on_postgresql}
