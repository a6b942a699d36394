"""How long rows and members are kept that leave by themselves: whole seconds, as a definition has them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Generator
from typing import Any

from roost.dialects.dialect import Statement, Template
from roost.errors import Invalid
from roost.structures.clock import SECOND, duration
from roost.structures.plan import Alteration, Facts, StructurePlan
from roost.types.column_types import ColumnType, shown
from roost.types.columns import Column

MOST = 10**15  # microseconds: about 31 years
UNTIL = Column("until", ColumnType("int"))  # the moment after which a row is over


def seconds(name: str, keep_for: Any) -> int:
    """Return `keep_for` in whole seconds, or raise `Invalid`."""
    found, rest = divmod(duration(f"{name}: keep_for", keep_for, MOST), SECOND)
    if rest:
        raise Invalid(f"{name}: keep_for is a timedelta of whole seconds, or their number, not {shown(keep_for)}")
    return found


def reserved(name: str, columns: tuple[Column, ...]) -> None:
    """Refuse a column that is called as Roost's own."""
    for column in columns:
        if column.name.lower() == UNTIL.name:
            raise Invalid(f"{name}: a column cannot be called {column.name!r}, which is a column of Roost's own")


def leaves_earlier(what: str, old: int, new: int | None) -> str:
    """Say what a shorter `keep_for` lets go; "" where it is not shorter.

    >>> leaves_earlier("rows", 30 * 86400, 86400)
    'rows that were written longer than 1 day, 0:00:00 ago are deleted'
    """
    if new is None or new >= old:
        return ""
    return f"{what} that were written longer than {dt.timedelta(seconds=new)} ago are deleted"


def change(plan: StructurePlan, old: Facts, new: Facts) -> Generator[Statement, Any, None]:
    """Let what is there leave earlier, where `keep_for` becomes shorter.

    A longer one holds for what is written from then on: what is over, and is still stored, must not come back.
    """
    less = old["keep_for"] - new["keep_for"]
    if less > 0:
        yield Statement(Template(f"UPDATE {plan.rows_table} SET until = until - {less * SECOND}"), [()])


ALTERATIONS: dict[str, Alteration] = {"keep_for": change}
