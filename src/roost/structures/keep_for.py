"""Rows and members that expire: their lifetime, and the common part of their plans."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from roost.dialects.dialect import Statement, Template
from roost.errors import Invalid
from roost.structures.clock import SECOND, duration
from roost.structures.durations import in_words
from roost.structures.plan import Alteration, Facts, StructurePlan
from roost.types.column_types import ColumnType, shown
from roost.types.columns import Column

MOST = 10**15  # microseconds: about 31 years
UNTIL = Column("until", ColumnType("int"))  # the moment at which a row expires


def seconds(name: str, keep_for: Any) -> int:
    """Return `keep_for` in whole seconds, or raise `Invalid`."""
    found, rest = divmod(duration(f"{name}: keep_for", keep_for, MOST), SECOND)
    if rest:
        raise Invalid(f"{name}: keep_for is a timedelta of whole seconds, or their number, not {shown(keep_for)}")
    return found


def reserved(name: str, columns: tuple[Column, ...], own: Sequence[Column] = (UNTIL,)) -> None:
    """Refuse a column with the name of a column of Roost's own."""
    for column in columns:
        if column.name.lower() in [each.name for each in own]:
            raise Invalid(f"{name}: a column cannot be called {column.name!r}, which is a column of Roost's own")


def leaves_earlier(what: str, old: Any, new: Any) -> str:
    """Describe what a shorter `keep_for` of another declaration lets expire; "" if it is not shorter."""
    after = getattr(new, "keep_for", old.keep_for)
    if None in (after, old.keep_for) or after >= old.keep_for:
        return ""
    return f"{what} that were written longer than {in_words(after)} ago are deleted"


def change(plan: StructurePlan, old: Facts, new: Facts) -> Generator[Statement, Any, None]:
    """Let stored rows expire earlier if `keep_for` becomes shorter.

    A longer one applies only to rows written from then on: expired rows that are still stored must not reappear.
    """
    if old.get("keep_for") is None:
        raise Invalid(
            f"{plan.structure.name}: keep_for cannot change from None to {in_words(new['keep_for'])}: the rows have no "
            "times; create another structure and import into it"
        )
    less = old["keep_for"] - new["keep_for"]
    if less > 0:
        yield Statement(Template(f"UPDATE {plan.rows_table} SET until = until - {less * SECOND}"), [()])


ALTERATIONS: dict[str, Alteration] = {"keep_for": change}
