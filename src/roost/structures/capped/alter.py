"""What `check` verifies of a capped collection, and what `alter` does to its rows."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

from roost.dialects.dialect import Statement, Template, Wanted
from roost.errors import Invalid
from roost.structures.plan import Facts, Rule, each
from roost.structures.rules import RuleWords, counted, has_head, lasting, sequences

if TYPE_CHECKING:
    from roost.structures.capped.plan import CappedPlan


def rules(plan: CappedPlan) -> Iterator[Rule]:
    """Yield what `check` verifies: no key has more than `keep` rows, no two have a sequence, the count is right."""
    keep, words = plan.structure.keep, RuleWords(plan)
    yield has_head(plan)
    yield from sequences(plan, last=plan.by_head)
    if keep is not None:
        yield counted(plan)
        yield (
            "keep",
            f"SELECT {words.r_key}, {words.message(f'? rows, keep is {keep}', 'count(*)')} FROM {words.rows} r\n"
            f"  GROUP BY {words.r_key} HAVING count(*) > {keep}",
        )
    yield (
        "order",
        f"SELECT {words.r_key}, {words.message('? rows have sequence ?', 'count(*)', 'sequence')}\n"
        f"  FROM {words.rows} r GROUP BY {words.r_key}, sequence HAVING count(*) > 1",
    )
    if plan.dialect.row_locks:
        yield (
            "bound",
            f"SELECT {words.r_key}, {words.message('sequence ?, which the head says is gone', 'r.sequence')}\n"
            f"  FROM {words.rows} r JOIN {words.head} h ON {words.join} WHERE r.sequence <= h.roost_bound",
        )
    if plan.expires:
        yield lasting(plan)


def change_keep(plan: Any, old: Facts, new: Facts) -> Generator[Wanted, Any, None]:
    """Delete the rows beyond a smaller `keep`, and count the others; `Invalid` where rows are never dropped."""
    # As everywhere, the head is locked before its rows: a trigger of the view has not read the definition, so it waits
    # for no lock of it.
    keep, rows, head, key = new["keep"], plan.rows_table, plan.head_table, plan.structure.key.columns
    if keep is None or (old["keep"] is not None and keep > old["keep"]):
        return
    dialect, names, ids = plan.dialect, plan.dialect.names(key), plan.dialect.names(plan.structure.id.columns)
    same_key = dialect.same(key, "r.", f"{head}.")
    if "reject" in (old["on_full"], new["on_full"]):
        many = f"SELECT count(*) FROM (SELECT {names} FROM {rows} GROUP BY {names} HAVING count(*) > {keep}) q"
        found = yield Statement(each(many), [()])
        if found[0][0][0]:
            raise Invalid(
                f"{plan.structure.name}: keep cannot go down to {keep} while {found[0][0][0]} keys hold more: a "
                "collection that rejects never drops a row; remove some first"
            )
    yield Statement(each(f"SELECT n FROM {head}{dialect.for_update}"), [()])
    if not plan.by_head:
        newest = f"SELECT max(r.sequence) FROM {rows} r WHERE {same_key}"
        yield Statement(Template(f"UPDATE {head} SET sequence = greatest(sequence, ({newest}))"), [()])
    score = plan.structure.score
    best = "sequence DESC" if score is None else f"{dialect.name_of(score)} DESC, sequence"
    yield Statement(
        Template(
            f"DELETE FROM {rows} WHERE ({names}, {ids}) IN (SELECT {names}, {ids} FROM (SELECT {names}, {ids}, "
            f"row_number() OVER (PARTITION BY {names} ORDER BY {best}) AS place FROM {rows}) ranked "
            f"WHERE place > {keep})"
        ),
        [()],
    )
    yield Statement(Template(f"UPDATE {head} SET n = (SELECT count(*) FROM {rows} r WHERE {same_key})"), [()])
