"""Expiring set as a SQL view: what plain SQL clients see, and what their statements do to it.

An INSERT adds a member or renews it, and removes what is over, as the library's writes do.
"""

from __future__ import annotations

from collections.abc import Sequence

from roost.structures.clock import SECOND, shown_now
from roost.structures.expiring_set.declaration import ExpiringSet
from roost.structures.plan import StructurePlan
from roost.structures.views import mariadb, postgresql, sqlite
from roost.structures.views.sweeping import sweep_on_mariadb, sweep_on_postgresql, sweep_on_sqlite
from roost.types.columns import Column

FIXED = ": a member cannot be changed; delete it and insert the other one"


def on_sqlite(plan: StructurePlan) -> sqlite.Made:
    """Return the view on SQLite, with its INSTEAD OF triggers."""
    pair, lasts, now = _parts(plan)
    words = sqlite.Words(plan)
    names = words.dialect.names(pair)
    return sqlite.Made(
        view=f"SELECT {names} FROM {words.rows} WHERE until > {now}",
        insert=[
            words.refuse(*words.rules(pair)),
            f"INSERT INTO {words.rows} ({names}, until) VALUES ({words.news(pair)}, {now} + {lasts})\n"
            f"    ON CONFLICT ({names}) DO UPDATE SET until = excluded.until",
            sweep_on_sqlite(words.rows, names, now),
        ],
        update=[words.refuse(("1", FIXED))],
        delete=[f"DELETE FROM {words.rows} WHERE {words.is_old(pair)}"],
    )


def on_mariadb(plan: StructurePlan) -> mariadb.Made:
    """Return the view on MariaDB, with what is inserted and removed through its inlets or procedures."""
    pair, _, now = _parts(plan)

    def add(words: mariadb.Words) -> mariadb.Door:
        declared, sweep = sweep_on_mariadb(plan, pair, now)
        return words.door(
            pair,
            ["DECLARE `the keep_for` BIGINT", *declared],
            [
                words.option("keep_for"),
                f"INSERT INTO {words.rows} ({words.names(pair)}, until)\n"
                f"    VALUES ({words.news(pair)}, {now} + `the keep_for` * {SECOND})\n"
                "    ON DUPLICATE KEY UPDATE until = VALUES(until)",
                sweep,
            ],
        )

    def remove(words: mariadb.Words) -> mariadb.Door:
        return words.door(pair, [], [f"DELETE FROM {words.rows} WHERE {words.is_new(pair, f'{words.rows}.')}"])

    shown = f"SELECT {plan.dialect.names(pair)} FROM {plan.rows_table} WHERE until > {now}"
    return mariadb.Made(f"SELECT * FROM ({shown}) {{mark}}", add, remove, False)


def on_postgresql(plan: StructurePlan) -> postgresql.Made:
    """Return the view on PostgreSQL, with its INSTEAD OF triggers."""
    pair, lasts, now = _parts(plan)
    words = postgresql.Words(plan)
    names = words.names(pair)
    return postgresql.Made(
        view=f"SELECT {names} FROM {words.rows} WHERE until > {now}",
        insert=[
            words.refuse(*words.rules(pair)),
            *words.normal(pair),
            f"it.now := {now};",
            f"INSERT INTO {words.rows} ({names}, until) VALUES ({words.values(pair)}, it.now + {lasts})\n"
            f"  ON CONFLICT ({names}) DO UPDATE SET until = excluded.until;",
            sweep_on_postgresql(words.rows),
            "RETURN NEW;",
        ],
        update=[words.stop("0A000", FIXED)],
        delete=[
            words.refuse(),
            f"DELETE FROM {words.rows} WHERE {words.equal(pair, 'OLD')};",
            "IF NOT FOUND THEN\n  RETURN NULL;\nEND IF;",
            "RETURN OLD;",
        ],
        variables=("now bigint",),
    )


def _parts(plan: StructurePlan) -> tuple[Sequence[Column], int, str]:
    # The columns of a member's row, how long it lasts, and the present moment.
    assert isinstance(plan.structure, ExpiringSet)
    return plan.structure.columns, plan.structure.keep_for * SECOND, shown_now(plan)


VIEWS = {"sqlite": on_sqlite, "mariadb": on_mariadb, "postgresql": on_postgresql}
