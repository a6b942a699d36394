"""The set form of a rate limit's `take`: many rows in one call, on servers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from roost.structures.steps import INT, OUTCOMES, Do, Give, Leave, Let, Now, Step
from roost.structures.words.words import Words


def taking_all(plan: Any, w: Words) -> Iterator[Step]:
    """Yield the steps that take for the keys of which all is allowed that is asked; other rows have no outcome."""
    limit, within = plan.limit, plan.within
    names = [plan.dialect.name_of(each) for each in plan.structure.key.columns]
    given = w.values(plan.structure.key.columns)
    key, keys = ", ".join(names), ", ".join(f"{value} AS {name}" for name, value in given.items())
    same = " AND ".join(f"r.{name} = t.{name}" for name in names)
    part = ", ".join(given.values())

    def fits(moment: str) -> str:
        debt = plan.debt(("r.part", "r.tat"), moment, limit, within)
        return f"t.total <= {limit} AND {debt} <= {limit} * {within} - t.total * {within}"

    whole = "{}::bigint" if plan.dialect.family == "postgresql" else "CAST({} AS SIGNED)"
    total = whole.format(f"sum({w.new('n')})")
    debt = plan.debt(("r.part", "r.tat"), w["now"], limit, within)
    left = plan.divided(f"{limit} * {within} - d.debt - t.upto * {within}", within)
    upto = whole.format(f"sum({w.new('n')}) OVER (PARTITION BY {part} ORDER BY q.ord)")
    of_key = whole.format(f"sum({w.new('n')}) OVER (PARTITION BY {part})")
    numbered = f"SELECT {keys}, q.ord, {upto} AS upto, {of_key} AS total FROM {w.source}"
    put = {**{name: f"t.{name}" for name in names}, "part": "0", "tat": "0"}
    after = f"d.debt + d.total * {within}"
    if plan.dialect.family == "postgresql":
        yield Let("moment", INT, w.now)
        beyond = f"EXISTS (SELECT 1 FROM {w.rows} r WHERE {same} AND NOT ({fits(w['moment'])}))"
        totals = f"(SELECT {keys}, {total} AS total FROM {w.source} GROUP BY {part}) t"
        free = f"{totals} WHERE t.total <= {limit} AND NOT {beyond} ORDER BY {key}"
        yield Do(w.put(w.rows, put, names, source=free))
        yield Now()
        yield Give(
            [
                f"""WITH t AS MATERIALIZED ({numbered}),
d AS MATERIALIZED (SELECT t.*, {debt} AS debt FROM (SELECT DISTINCT {key}, total FROM t) t
JOIN {w.rows} r ON {same} WHERE {fits(w["now"])} FOR UPDATE OF r),
u AS (UPDATE {w.rows} r SET part = {plan.dialect.modulo.format(f"({after})", limit)},
tat = {w["now"]} + {plan.divided(after, limit)} FROM d WHERE {same.replace("t.", "d.")})
SELECT {left} FROM t LEFT JOIN d ON {same.replace("r.", "d.")} ORDER BY t.ord"""
            ]
        )
        return
    moment = f"(SELECT {w.now} AS moment) m"
    fit = f"(r.tat IS NULL AND t.total <= {limit} OR {fits('m.moment')})"
    joined = f"({numbered}) t CROSS JOIN {moment} LEFT JOIN {w.rows} r ON {same}"
    yield Let("kept", OUTCOMES, f"SELECT JSON_ARRAYAGG(t.ord) FROM {joined} WHERE {fit}")
    yield Leave(f"{w['kept']} IS NULL", ["'{}'"])
    kept = f"JSON_TABLE({w['kept']}, '$[*]' COLUMNS (ord BIGINT PATH '$')) k"
    rows = f"(SELECT t.* FROM {kept} STRAIGHT_JOIN ({numbered}) t ON t.ord = k.ord)"
    source = f"(SELECT DISTINCT {key} FROM {rows} t) t ORDER BY {key}"
    yield Do(w.put(w.rows, put, names, {"part": f"{w.rows}.part"}, source))
    yield Now()
    locked = f"{rows} t STRAIGHT_JOIN {w.rows} r FORCE INDEX (PRIMARY) ON {same}"
    told = f"SELECT t.ord, {left.replace('d.debt', debt)} AS remaining FROM {locked} WHERE {fits(w['now'])} FOR UPDATE"
    yield Let("told", OUTCOMES, f"SELECT JSON_OBJECTAGG(o.ord, o.remaining) FROM ({told}) o")
    new = f"SELECT DISTINCT {', '.join(f't.{name}' for name in names)}, t.total, {debt} AS debt FROM {locked}"
    yield Do(
        f"UPDATE ({new} WHERE {fits(w['now'])}) d STRAIGHT_JOIN {w.rows} r FORCE INDEX (PRIMARY)"
        f" ON {same.replace('t.', 'd.')}\n  SET r.part = {plan.dialect.modulo.format(f'({after})', limit)},"
        f" r.tat = {w['now']} + {plan.divided(after, limit)}"
    )
    yield Give([w["told"]])
