"""Lease as a SQL view: who holds which key, and a DELETE ends a lease."""

from __future__ import annotations

from roost.structures.clock import at_moment, shown_now
from roost.structures.lease.declaration import HOLDER
from roost.structures.plan import StructurePlan
from roost.structures.views.read_only import read_only
from roost.types.column_types import ColumnType
from roost.types.columns import Column

TOKEN = Column("token", ColumnType("int"))  # of each grant another


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


VIEWS = read_only(_shown, _end, "a lease is held by acquire(), not by SQL; DELETE ends one", [TOKEN])
