"""How full structures are, in numbers that cost little: for the console and for metrics.

Rows are counted by an index, up to `MOST`; beyond that the number is the database's own estimate. SQLite has none:
there the number is the least that it can be.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, NamedTuple

from roost.dialects.dialect import Dialect, Statement, fetch
from roost.structures.cache.declaration import Cache
from roost.structures.counter.declaration import Counter
from roost.structures.plan import Context, StructurePlan
from roost.structures.program import ProgramPlan
from roost.structures.set.declaration import Set

MOST = 10_000  # rows that are counted

# By database: name of a table, about how many rows, bytes with indexes, dead rows; rows written, and rows deleted,
# since the statistics were reset.
STATISTICS = {
    "mariadb": "SELECT table_name, table_rows, data_length + index_length, NULL, NULL, NULL\n"
    "  FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name IN ({names})",
    "postgresql": "SELECT w.name, c.reltuples::bigint, pg_total_relation_size(c.oid), pg_stat_get_dead_tuples(c.oid),\n"
    "    pg_stat_get_tuples_inserted(c.oid) + pg_stat_get_tuples_updated(c.oid), pg_stat_get_tuples_deleted(c.oid)\n"
    "  FROM unnest(ARRAY[{names}]::text[]) AS w (name) JOIN pg_class c ON c.oid = to_regclass(quote_ident(w.name))",
}
# The age in seconds of the oldest snapshot for which the server keeps what was deleted or overwritten.
SNAPSHOT = (
    "SELECT coalesce(extract(epoch FROM max(clock_timestamp() - xact_start)), 0)::double precision\n"
    "  FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()"
)


class Count(NamedTuple):
    """A number of rows, keys or bytes. exact: counted; otherwise estimated, or the number at which counting ended."""

    n: int
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Measure:
    """How full a structure is; None where that is not known at little cost.

    bytes: of tables and indexes, as the database tells; of a cache with bounds, those of its keys and values.
    bound: the part of its room that is taken, from 0 to 1.
    backlog: expired rows that later writes will delete.
    written: a number that grows with what is written: sequences, totals, or on PostgreSQL rows.
    dead: versions of rows that VACUUM has not yet removed.
    deleted: of a table of the application's own: rows that its cap or anybody else has deleted, as the server counts.
    """

    keys: Count | None = None
    rows: Count | None = None
    bytes: Count | None = None
    bound: float | None = None
    backlog: Count | None = None
    written: int | None = None
    dead: int | None = None
    deleted: Count | None = None


Measuring = Generator[Statement, Any, Measure]


def measure(plan: StructurePlan, context: Context) -> Measuring:
    """Measure a structure, in a transaction that reads."""
    estimate, size, dead, written, deleted = yield from _statistics(plan)
    if not isinstance(plan, ProgramPlan):  # a table of the application's own
        rows = Count(estimate, False) if estimate and estimate > 0 else None  # -1: PostgreSQL has not counted yet
        return Measure(rows=rows, bytes=size, written=written, dead=dead, deleted=deleted)
    structure = plan.structure
    backlog = (yield from _backlog(plan, context)) if plan.expires else None
    if isinstance(structure, Cache) and structure.bounded:
        ((n, taken, sequence),) = yield from fetch(f"SELECT n, bytes, sequence FROM {plan.head_table} WHERE id = 0")
        parts = [n / structure.max_items] if structure.max_items else []
        parts += [taken / structure.max_bytes] if structure.max_bytes else []
        count = Count(n)
        return Measure(count, count, Count(taken), max(parts), backlog, sequence, dead)
    keys, rows, counted = yield from (_by_heads if plan.heads else _by_rows)(plan, estimate)
    keep, bound = getattr(structure, "keep", None), None
    if keep and keys.n and not isinstance(structure, Counter):
        bound = min(rows.n / (keys.n * keep), 1.0)
    return Measure(keys, rows, size, bound, backlog, counted if written is None else written, dead)


def oldest_snapshot(dialect: Dialect) -> Generator[Statement, Any, float | None]:
    """Return the age in seconds of the oldest snapshot of another session, on PostgreSQL; elsewhere None."""
    if dialect.family != "postgresql":
        return None
    ((age,),) = yield from fetch(SNAPSHOT)
    return float(age)


def few(columns: str, table: str, where: str = "", order: str = "") -> str:
    """Return the beginning of a table as FROM has it: one row more than are counted."""
    where, order = where and f" WHERE {where}", order and f" ORDER BY {order}"
    return f"(SELECT {columns} FROM {table}{where}{order} LIMIT {MOST + 1}) q"


def _statistics(
    plan: StructurePlan,
) -> Generator[Statement, Any, tuple[int | None, Count | None, int | None, int | None, Count | None]]:
    # About how many rows, bytes, dead rows, what was written, and deleted, as far as the database tells.
    query = STATISTICS.get(plan.dialect.family)
    if query is None:
        return (None,) * 5
    names = [*plan.layout] or [plan.structure.name]
    asked = query.format(names=", ".join(map(plan.dialect.literal, names)))
    found = {row[0]: row[1:] for row in (yield from fetch(asked))}
    rows, _, _, written, deleted = found.get(plan.rows_table if plan.layout else plan.structure.name, (None,) * 5)
    sizes, dead = ([row[place] for row in found.values()] for place in (1, 2))
    gone = None if deleted is None else Count(deleted, False)  # with those of transactions that were undone
    size = Count(int(sum(sizes))) if sizes and None not in sizes else None
    return rows, size, sum(dead) if dead and None not in dead else None, written, gone


def _count(n: int, estimate: int | None) -> Count:
    return Count(n) if n <= MOST else Count(max(int(estimate or 0), MOST), False)


def _by_heads(plan: ProgramPlan, estimate: int | None) -> Generator[Statement, Any, tuple[Count, Count, int | None]]:
    names = plan.dialect.names(plan.structure.key.columns)
    columns = [column.name for column in plan.layout[plan.head_table]]
    summed = [name for name in ("sequence", "n") if name in columns]
    sums = "".join(f", {plan.dialect.exact_sum(name)}" for name in summed)
    source = few(", ".join(summed) or "1 AS one", plan.head_table, order=names)
    ((n, *parts),) = yield from fetch(f"SELECT count(*){sums} FROM {source}")
    total = {name: int(parts[2 * i]) * 2**32 + int(parts[2 * i + 1]) for i, name in enumerate(summed)}
    keys = _count(n, None)
    if "n" in total and keys.exact:
        rows = Count(total["n"])
    else:
        ((n,),) = yield from fetch(f"SELECT count(*) FROM {few('1 AS one', plan.rows_table, order=names)}")
        rows = _count(n, estimate)
    return keys, rows, total.get("sequence") if keys.exact else None


def _by_rows(plan: ProgramPlan, estimate: int | None) -> Generator[Statement, Any, tuple[Count, Count, int | None]]:
    names, structure = plan.dialect.names(plan.structure.key.columns), plan.structure
    several = isinstance(structure, (Counter, Set))  # rows of a key
    counts = isinstance(structure, Counter)
    source = few(f"{names}, n" if counts else names, plan.rows_table, order=names)
    sums = f", {plan.dialect.exact_sum('n')}" if counts else ""
    ((n, *parts),) = yield from fetch(f"SELECT count(*){sums} FROM {source}")
    keys = rows = _count(n, estimate)
    if several:
        source = few(names, plan.rows_table, order=names)
        ((n,),) = yield from fetch(f"SELECT count(*) FROM (SELECT DISTINCT {names} FROM {source}) d")
        keys = Count(n, rows.exact)
    return keys, rows, int(parts[0]) * 2**32 + int(parts[1]) if counts and rows.exact else None


def _backlog(plan: ProgramPlan, context: Context) -> Generator[Statement, Any, Count]:
    table, past = plan.expired()
    query = plan.read(f"SELECT count(*) FROM {few('1 AS one', table, past)}", plan.timed)
    (((n,),),) = yield query.alone(plan.moment(context))
    return _count(n, None)
