"""What `alter` does to the rows of a capped collection."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from roost.dialects.dialect import Statement, Template
from roost.errors import Invalid
from roost.structures.capped.declaration import Capped
from roost.structures.plan import Facts, StructurePlan, each


def change_keep(plan: StructurePlan, old: Facts, new: Facts) -> Generator[Statement, Any, None]:
    """Delete excess rows and recount the others; `Invalid` for a collection that never drops rows."""
    assert isinstance(plan.structure, Capped)
    keep, head = new["keep"], plan.head_table
    if keep > old["keep"]:
        return
    if "reject" in (old["on_full"], new["on_full"]):
        found = yield Statement(each(f"SELECT count(*) FROM {head} WHERE n > {keep}"), [()])
        if found[0][0][0]:
            raise Invalid(
                f"{plan.structure.name}: keep cannot go down to {keep} while {found[0][0][0]} keys hold more: a "
                "collection that rejects never drops a row; remove some first"
            )
    yield from drop_beyond(plan, keep, "sequence DESC")


def drop_beyond(plan: StructurePlan, keep: int, best: str) -> Generator[Statement, Any, None]:
    """Delete all but the first `keep` rows of each key in the order of `best`, and recount."""
    assert isinstance(plan.structure, Capped)
    rows, head, key = plan.rows_table, plan.head_table, plan.structure.key.columns
    names, ids = plan.dialect.names(key), plan.dialect.names(plan.structure.id.columns)
    # As everywhere, the head comes before its rows: a view's trigger that removes a row has not read the definition, so
    # that it does not wait for the definition's lock.
    yield Statement(each(f"SELECT n FROM {head} WHERE n > {keep}{plan.dialect.for_update}"), [()])
    yield Statement(
        Template(
            f"DELETE FROM {rows} WHERE ({names}, {ids}) IN (SELECT {names}, {ids} FROM (SELECT {names}, {ids}, "
            f"row_number() OVER (PARTITION BY {names} ORDER BY {best}) AS place FROM {rows}) ranked "
            f"WHERE place > {keep})"
        ),
        [()],
    )
    yield Statement(
        Template(
            f"UPDATE {head} SET n = (SELECT count(*) FROM {rows} r WHERE {plan.dialect.same(key, 'r.', f'{head}.')})\n"
            f"  WHERE n > {keep}"
        ),
        [()],
    )


ALTERATIONS = {"keep": change_keep}
