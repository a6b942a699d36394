"""RateLimit as a SQL view: what remains to each key that has taken some, and a DELETE gives all back."""

from __future__ import annotations

from roost.structures.clock import at_moment, shown_now
from roost.structures.plan import StructurePlan
from roost.structures.rate_limit.declaration import RateLimit
from roost.structures.views import mariadb, postgresql, sqlite

READ_ONLY = "a rate limit is taken from by take(), not by SQL; DELETE lets a key take all again"


def on_sqlite(plan: StructurePlan) -> sqlite.Made:
    """Return the view on SQLite, with its INSTEAD OF triggers."""
    words = sqlite.Words(plan)
    refuse = [words.refuse(("1", f": {READ_ONLY}"))]
    return sqlite.Made(
        view=_shown(plan, "min({}, {})"),
        insert=refuse,
        update=refuse,
        delete=[f"DELETE FROM {words.rows} WHERE {words.is_old(words.key)}"],
    )


def on_mariadb(plan: StructurePlan) -> mariadb.Made:
    """Return the view on MariaDB, with what is removed through its outlet or procedure."""
    key = plan.structure.key.columns

    def add(words: mariadb.Words) -> mariadb.Door:
        return words.door(key, [], [words.signal(f"{words.name}: {READ_ONLY}")])

    def remove(words: mariadb.Words) -> mariadb.Door:
        return words.door(key, [], [f"DELETE FROM {words.rows} WHERE {words.is_new(key, f'{words.rows}.')}"])

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
            f"DELETE FROM {words.rows} WHERE {words.equal(words.key, 'OLD')};",
            "IF NOT FOUND THEN\n  RETURN NULL;\nEND IF;",
            "RETURN OLD;",
        ],
    )


def _shown(plan: StructurePlan, least: str = "LEAST({}, {})") -> str:
    # The key, how many remain, and when all are there again. As in the plan, but that only what is not over is shown.
    structure, dialect = plan.structure, plan.dialect
    assert isinstance(structure, RateLimit)
    limit, window = structure.limit, structure.window
    cap = limit * window
    debt = least.format(f"{least.format('r.tat - m.moment', window)} * {limit} + r.part", cap)
    divide = "({}) DIV {}" if dialect.family == "mariadb" else "({}) / {}"
    remaining = divide.format(f"{cap} - {debt}", window)
    return (
        f"SELECT {dialect.names(structure.key.columns, 'r.')}, {remaining} AS remaining,"
        f" {at_moment(dialect, 'r.tat')} AS restored\n"
        f"  FROM {plan.rows_table} r CROSS JOIN (SELECT {shown_now(plan)} AS moment) m WHERE r.tat > m.moment"
    )


VIEWS = {"sqlite": on_sqlite, "mariadb": on_mariadb, "postgresql": on_postgresql}
