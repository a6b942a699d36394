"""RateLimit as a SQL view: the remaining requests of each key that has used some; a DELETE restores the limit."""

from __future__ import annotations

from roost.structures.clock import at_moment, shown_now
from roost.structures.plan import StructurePlan
from roost.structures.rate_limit.declaration import RateLimit
from roost.structures.views.read_only import read_only


def _shown(plan: StructurePlan) -> str:
    # The key, how many remain, and when all are there again. As in the plan, but that only what is not over is shown.
    structure, dialect = plan.structure, plan.dialect
    assert isinstance(structure, RateLimit)
    limit, window = structure.limit, structure.window
    cap = limit * window
    least = "min({}, {})" if dialect.name == "sqlite" else "LEAST({}, {})"
    debt = least.format(f"{least.format('r.tat - m.moment', window)} * {limit} + r.part", cap)
    divide = "({}) DIV {}" if dialect.family == "mariadb" else "({}) / {}"
    remaining = divide.format(f"{cap} - {debt}", window)
    return (
        f"SELECT {dialect.names(structure.key.columns, 'r.')}, {remaining} AS remaining,"
        f" {at_moment(dialect, 'r.tat')} AS restored\n"
        f"  FROM {plan.rows_table} r CROSS JOIN (SELECT {shown_now(plan)} AS moment) m WHERE r.tat > m.moment"
    )


def _delete(plan: StructurePlan, which: str) -> str:
    return f"DELETE FROM {plan.rows_table} WHERE {which}"


VIEWS = read_only(_shown, _delete, "a rate limit is taken from by take(), not by SQL; DELETE lets a key take all again")
