"""What the pages read: a few rows that an index finds, each page within a second, in one snapshot."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from time import monotonic
from typing import Any, NamedTuple, TypeVar

import roost
from roost.catalog.catalog import listed
from roost.catalog.measure import MOST, Count, Measure, exact_sum, few, measure
from roost.console.samples import Sample, Samples
from roost.dialects.dialect import Statement, Wanted
from roost.errors import Error, Invalid, Missing
from roost.structures.cache.declaration import NEVER
from roost.structures.capped.plan import CappedPlan
from roost.structures.clock import SECOND
from roost.structures.counter.plan import CounterPlan
from roost.structures.operation import Operation
from roost.structures.plan import Context, StructurePlan, each
from roost.structures.program import MOST as LIMIT
from roost.structures.program import ProgramPlan
from roost.structures.registry import from_definition
from roost.structures.ring import RingPlan
from roost.structures.rows import Entry
from roost.structures.structure import Structure

T = TypeVar("T")
Reading = Generator[Any, Any, T]

SECONDS = 1.0  # for all that a page reads
PAGE = 20  # keys, rows and members of a page
SLOTS = 120  # of a ring that are drawn one by one
WINDOWS = 60  # bars
RANKS = 25  # of a leaderboard
WATCHED = 1_000  # keys whose growth is watched

# Upper bounds of the bars that show when values expire: seconds, and in words.
TTLS = (
    *((60, "1 min"), (600, "10 min"), (3_600, "1 h"), (21_600, "6 h")),
    *((86_400, "1 d"), (604_800, "7 d"), (NEVER // SECOND, "later")),
)


class Listed(NamedTuple):
    """A line of the catalog: a structure, or what is wrong with its definition; and what was measured."""

    name: str
    structure: Structure | None
    problem: str = ""
    measure: Measure | None = None
    rate: float | None = None
    hot: Sequence[tuple[Any, int]] = ()


@dataclass
class KeyPage:
    """What is known of one key; which fields are set depends on the kind."""

    rows: list[Any] = field(default_factory=list)  # named tuples, dataclasses or entries
    members: list[Any] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    slots: dict[int, int] = field(default_factory=dict)  # of a ring: the sequence in each slot
    series: list[tuple[Any, int]] = field(default_factory=list)
    value: Any = None


class Looker:
    """Reads for the pages, from one store; seconds: for all that a page reads."""

    def __init__(self, store: roost.Store, seconds: float = SECONDS) -> None:
        self.store = store
        self.seconds = seconds
        self.samples = Samples()

    def glance(self, reading: Any, *args: Any, seconds: float | None = None) -> Any:
        """Run a generator that takes a context, and these arguments, on the connection of reads."""
        return self.store._core.glance(lambda context: reading(context, *args), seconds or self.seconds)

    def plan(self, structure: Structure) -> Any:
        """Return a structure in the database's words."""
        return self.store._core.known.plan(structure)

    # --- all structures -------------------------------------------------------------------------------------------

    def catalog(self) -> list[Listed]:
        """Return the structures, with those whose definition cannot be read."""

        def reading(_: Context) -> Reading[list[Any]]:
            return (yield from listed(self.store._core.known.catalog))

        try:
            entries = self.glance(reading)
        except Missing:
            return []
        found = []
        for name, _, definition in entries:
            try:
                found.append(Listed(name, from_definition(definition)))
            except Invalid as error:
                found.append(Listed(name, None, str(error)))
        return found

    def overview(self) -> list[Listed]:
        """Return the structures with what was measured, as far as the time goes."""
        end = monotonic() + self.seconds
        return [self.measured(entry, end - monotonic()) for entry in self.catalog()]

    def measured(self, entry: Listed, seconds: float | None = None) -> Listed:
        """Return a structure with what was measured; within so many seconds, or it says why not."""
        if entry.structure is None:
            return entry
        if seconds is not None and seconds <= 0:
            return entry._replace(problem="not read: the page had its second")
        try:
            found, keys = self.glance(self._measuring, entry.structure, seconds=seconds)
        except Error as error:
            return entry._replace(problem=str(error))
        if found.written is not None:
            self.samples.add(entry.name, Sample(monotonic(), found.written, keys))
        rate, hot = self.samples.rate(entry.name), self.samples.hot(entry.name)
        return entry._replace(measure=found, rate=rate, hot=hot)

    def _measuring(self, context: Context, structure: Structure) -> Reading[tuple[Measure, dict[Any, int]]]:
        plan = self.plan(structure)
        found = yield from measure(plan, context)
        keys = (yield from _watched(plan, context)) if found.keys and found.keys.n <= WATCHED else {}
        return found, keys

    def entry(self, name: str) -> Listed:
        """Return the structure of this name; `Missing` if there is none, `Invalid` if it cannot be read."""
        for entry in self.catalog():
            if entry.name == name:
                if entry.structure is None:
                    raise Invalid(entry.problem)
                return entry
        raise Missing(f"there is no structure {name!r}")

    # --- a structure ----------------------------------------------------------------------------------------------

    def keys(self, structure: Structure, after: Any) -> tuple[list[tuple[Any, Any]], bool]:
        """Return a page of keys, each with what it holds in short, and whether there are more."""

        def reading(context: Context) -> Reading[tuple[list[tuple[Any, Any]], bool]]:
            plan = self.plan(structure)
            found = yield from _keys(plan, context, after)
            keys = found[:PAGE]
            held = (yield from _holding(plan, context, keys)) if keys else []
            return list(zip(keys, held, strict=True)), len(found) > PAGE

        found: tuple[list[tuple[Any, Any]], bool] = self.glance(reading)
        return found

    def expiring(self, structure: roost.Cache[Any, Any]) -> dict[str, Any]:
        """Return of a cache how many values expire when, and which go next."""
        found: dict[str, Any] = self.glance(lambda context: _expiring(self.plan(structure), context))
        return found

    def aged(self, structure: roost.Capped[Any, Any, Any] | Any) -> dict[str, Any]:
        """Return of a table that is capped by age: how far that is behind, the oldest and the newest time."""

        def reading(context: Context) -> Reading[dict[str, Any]]:
            plan = self.plan(structure)
            words = yield from plan.adoption.reading(plan.cap)
            over = yield from _rows(
                plan, f"SELECT count(*) FROM {few('1 AS one', f'{words.table} i', words.over('i'))}"
            )
            by = words.column(plan.cap.by or "")
            oldest = f"SELECT {words.shown(f'min({by})')} FROM {words.table} WHERE {by} > {words.first}"
            newest = f"SELECT {words.shown(f'max({by})')} FROM {words.table}"
            ((old,),), ((new,),) = (yield from _rows(plan, oldest)), (yield from _rows(plan, newest))
            return {"over": Count(min(over[0][0], MOST), over[0][0] <= MOST), "oldest": old, "newest": new}

        found: dict[str, Any] = self.glance(reading)
        return found

    def key(self, structure: Structure, key: Any) -> KeyPage:
        """Return what is known of a key."""
        structure.key.check(key)

        def reading(context: Context) -> Reading[KeyPage]:
            found: KeyPage = yield from _LOOKS[structure.kind](self.plan(structure), context, key)
            return found

        if structure.kind not in _LOOKS:
            raise Invalid(f"a {structure.kind} has no page for its keys")
        found: KeyPage = self.glance(reading)
        return found


def _run(plan: StructurePlan, context: Context, *operations: Operation[Any]) -> Generator[Wanted, Any, list[Any]]:
    results = yield from plan.run(operations, context)
    for result in results:
        if isinstance(result, Error):
            raise result
    return results


def _rows(plan: Any, sql: str, given: Sequence[Any] = (), row: Sequence[Any] = ()) -> Reading[list[Any]]:
    # The rows of a query with named parameters; of a table of the application's own it has none.
    if not isinstance(plan, ProgramPlan):
        return list((yield Statement(each(sql), [()]))[0])
    return list((yield plan.read(sql, given).alone(tuple(row)))[0])


def _watched(plan: Any, context: Context) -> Reading[dict[Any, int]]:
    # What was written to each key.
    names = plan.dialect.names(plan.structure.key.columns) if isinstance(plan, ProgramPlan) else ""
    if isinstance(plan, RingPlan) or (isinstance(plan, CappedPlan) and plan.by_head):
        query = f"SELECT {names}, 0, sequence FROM {plan.head_table} ORDER BY {names} LIMIT {WATCHED}"
    elif isinstance(plan, CounterPlan):
        source = few(f"{names}, n", plan.rows_table, order=names)
        query = f"SELECT {names}, {exact_sum(plan, 'n')} FROM {source} GROUP BY {names}"
    else:
        return {}
    found = yield from _rows(plan, query)
    return {plan.key_value(row[:-2]): int(row[-2]) * 2**32 + int(row[-1]) for row in found}


def _keys(plan: Any, context: Context, after: Any) -> Reading[list[Any]]:
    # The next keys, those whose contents have expired among them: `keys` would pass by any number of these.
    structure = plan.structure
    if not isinstance(plan, ProgramPlan):
        (found,) = yield from _run(plan, context, structure.keys(after, PAGE + 1))
        return list(found)
    table, columns = plan.head_table if plan.heads else plan.rows_table, structure.key.columns
    several = not plan.heads and structure.kind in ("counter", "set")  # rows of a key, which are passed by
    names, last = plan.dialect.names(columns), () if after is None else _mine(plan, after)
    rows: list[Any] = []
    while len(rows) <= PAGE:
        where = f" WHERE {_behind(plan)}" if last else ""
        query = f"SELECT {names} FROM {table}{where} ORDER BY {names} LIMIT {1 if several else PAGE + 1}"
        found = yield from _rows(plan, query, columns, last)
        rows += found
        if not several or not found:
            break
        last = tuple(found[-1])
    return [plan.key_value(row) for row in rows]


def _behind(plan: Any) -> str:
    # The condition of later keys. MariaDB and MySQL find no range for (a, b) > (…).
    columns = [(plan.dialect.name_of(each), f":{each.name}") for each in plan.structure.key.columns]
    if plan.dialect.family != "mariadb":
        names, values = zip(*columns, strict=True)
        return f"({', '.join(names)}) > ({', '.join(values)})"
    same = [f"{name} = {value}" for name, value in columns]
    return " OR ".join(
        " AND ".join([*same[:place], f"{name} > {value}"]) for place, (name, value) in enumerate(columns)
    )


def _holding(plan: Any, context: Context, keys: Sequence[Any]) -> Reading[list[Any]]:
    # What each of some keys holds, in short.
    structure = plan.structure
    match structure.kind:
        case "counter":
            last = None if structure.seconds is None else 1
            (totals,) = yield from _run(plan, context, structure.totals(keys, last))
            return list(totals.values())
        case "set" | "capped":
            return (yield from _sizes(plan, context, keys))
        case "rate_limit" | "lease":
            return (yield from _run(plan, context, *[structure.peek(key) for key in keys]))
        case "adopted" if structure.cap.older_than:
            return [None] * len(keys)
        case "adopted":
            return (yield from _run(plan, context, *[structure.count(key) for key in keys]))
        case "ring":
            columns, table = "sequence, keep", plan.head_table
        case "cache":
            columns, table = "until", plan.rows_table
        case _:
            return [None] * len(keys)
    query = plan.read(f"SELECT {columns} FROM {table} WHERE {plan.mine()}", structure.key.columns)
    found = yield query.statement([_mine(plan, key) for key in keys])
    if structure.kind == "cache":
        now = yield from _now(plan, context)
        return [(_left(rows[0][0], now),) if rows else None for rows in found]
    return [rows[0] if rows else None for rows in found]


def _sizes(plan: Any, context: Context, keys: Sequence[Any]) -> Reading[list[Count]]:
    # How many rows or members keys have: what the head counts, or where they expire, counted themselves.
    given, moment = [*plan.structure.key.columns], ()
    query = f"SELECT n FROM {plan.head_table} WHERE {plan.mine()}"
    if plan.expires:
        given, moment = [*given, *plan.timed], plan.moment(context)
        living = f"{plan.mine()} AND until > {plan.now}"
        query = f"SELECT count(*) FROM {few('1 AS one', plan.rows_table, living)}"
    rows = [(*_mine(plan, key), *moment) for key in keys]
    found = yield plan.read(query, given).statement(rows)
    return [Count(min(n, MOST), n <= MOST) for n in (each[0][0] if each else 0 for each in found)]


def _now(plan: Any, context: Context) -> Reading[int]:
    one = f"SELECT {plan.now} AS moment"
    ((now,),) = yield from _rows(plan, one, plan.timed, plan.moment(context))
    return int(now)


def _expiring(plan: Any, context: Context) -> Reading[dict[str, Any]]:
    now = yield from _now(plan, context)
    bounds = [now, *[min(now + seconds * SECOND, NEVER) for seconds, _ in TTLS[:-1]], NEVER]
    counts = []
    for least, most in pairwise(bounds):
        past = f"until > {least} AND until <= {most} AND until < {NEVER}"
        ((n,),) = yield from _rows(plan, f"SELECT count(*) FROM {few('1 AS one', plan.rows_table, past)}")
        counts.append(Count(min(n, MOST), n <= MOST))
    names, bounded = plan.dialect.names(plan.structure.key.columns), plan.structure.bounded
    living, order = (f"until > {now}", "used") if bounded else (f"until > {now} AND until < {NEVER}", "until")
    found = yield from _rows(
        plan, f"SELECT {names}, until FROM {plan.rows_table} WHERE {living} ORDER BY {order} LIMIT 5"
    )
    going = [(plan.key_value(row[:-1]), _left(row[-1], now)) for row in found]
    return {"bars": [(label, count) for (_, label), count in zip(TTLS, counts, strict=True)], "next": going}


def _left(until: int, now: int) -> float | None:
    return None if until >= NEVER else (until - now) / SECOND


# --- a key, by kind ------------------------------------------------------------------------------------------------


def _mine(plan: Any, key: Any) -> Any:
    return plan.key_out(plan.structure.key.check(key))


def _ring(plan: Any, context: Context, key: Any) -> Reading[KeyPage]:
    structure, columns = plan.structure, plan.structure.key.columns
    head = yield from _rows(
        plan, f"SELECT sequence, keep FROM {plan.head_table} WHERE {plan.mine()}", columns, _mine(plan, key)
    )
    if not head:
        return KeyPage(facts={"sequence": 0, "keep": structure.keep, "slot": None})
    (sequence, keep) = head[0]
    page = KeyPage(facts={"sequence": sequence, "keep": keep, "slot": sequence % keep if sequence else None})
    if keep <= SLOTS:
        living = f" AND until > {plan.now}" if plan.expires else ""
        timed, moment = (plan.timed, plan.moment(context)) if plan.expires else ((), ())
        slots = f"SELECT slot, sequence FROM {plan.rows_table} WHERE {plan.mine()}{living} ORDER BY slot LIMIT {SLOTS}"
        given = [*columns, *timed]
        page.slots = dict((yield from _rows(plan, slots, given, (*_mine(plan, key), *moment))))
    (entries,) = yield from _run(plan, context, structure.entries(key, after=max(0, sequence - PAGE)))
    page.rows = entries[::-1]
    return page


def _capped(plan: Any, context: Context, key: Any) -> Reading[KeyPage]:
    structure, columns = plan.structure, plan.structure.key.columns
    (count,) = yield from _sizes(plan, context, [key])
    page = KeyPage(facts={"rows": count.n, "keep": structure.keep})
    if structure.score is not None:
        score = plan.dialect.name_of(structure.score)
        (rows,) = yield from _run(plan, context, structure.top(key, min(structure.keep, RANKS)))
        worst = (
            f"SELECT {score} FROM {plan.rows_table} WHERE {plan.mine()} ORDER BY {plan.dialect.names(columns)},"
            f" {score}, sequence DESC LIMIT 1"
        )
        found = yield from _rows(plan, worst, columns, _mine(plan, key))
        page.rows = [Entry(rank, None, row) for rank, row in enumerate(rows, 1)]  # type: ignore[arg-type]
        page.facts["cut"] = found[0][0] if found and count.n >= structure.keep else None
        return page
    newest = (
        f"SELECT sequence FROM {plan.rows_table} WHERE {plan.mine()} ORDER BY {plan.dialect.names(columns, '')} DESC,"
        f" sequence DESC LIMIT {PAGE}"
    )
    if len(columns) > 1:  # `a, b DESC` would be two directions
        newest = newest.replace(f"ORDER BY {plan.dialect.names(columns, '')} DESC, ", "ORDER BY ")
    found = yield from _rows(plan, newest, columns, _mine(plan, key))
    if found:
        (entries,) = yield from _run(plan, context, structure.entries(key, after=max(0, found[-1][0] - 1)))
        page.rows = entries[::-1][:PAGE]
    return page


def _counter(plan: Any, context: Context, key: Any) -> Reading[KeyPage]:
    structure = plan.structure
    if structure.seconds is None:
        (total,) = yield from _run(plan, context, structure.total(key))
        return KeyPage(facts={"total": total})
    (series,) = yield from _run(plan, context, structure.series(key, last=min(structure.keep, WINDOWS)))
    return KeyPage(facts={"total": sum(n for _, n in series)}, series=series)


def _set(plan: Any, context: Context, key: Any) -> Reading[KeyPage]:
    structure, member = plan.structure, plan.structure.member.columns
    (size,) = yield from _sizes(plan, context, [key])
    living = f" AND until > {plan.now}" if plan.expires else ""
    names, given = plan.dialect.names(member), _mine(plan, key)
    timed, moment = (plan.timed, plan.moment(context)) if plan.expires else ((), ())
    query = (
        f"SELECT {names} FROM {plan.rows_table} WHERE {plan.mine()}{living}"
        f" ORDER BY {plan.dialect.names(structure.key.columns)}, {names} LIMIT :{LIMIT.name}"
    )
    found = yield from _rows(plan, query, [*structure.key.columns, *timed, LIMIT], (*given, *moment, PAGE))
    decode = plan.dialect.decoder(member) or tuple
    members = [structure.member.value(decode(row)) for row in found]
    return KeyPage(facts={"size": size.n, "keep": structure.keep}, members=members)


def _cache(plan: Any, context: Context, key: Any) -> Reading[KeyPage]:
    (item,) = yield from _run(plan, context, plan.structure.gets(key))
    if item is None:
        return KeyPage()
    return KeyPage(value=item.value, facts={"token": item.token, "ttl": item.ttl, "flags": item.flags})


def _rate_limit(plan: Any, context: Context, key: Any) -> Reading[KeyPage]:
    (taken,) = yield from _run(plan, context, plan.structure.peek(key))
    return KeyPage(facts={"remaining": taken.remaining, "limit": plan.structure.limit, "wait": taken.retry_after})


def _lease(plan: Any, context: Context, key: Any) -> Reading[KeyPage]:
    (grant,) = yield from _run(plan, context, plan.structure.peek(key))
    if grant is None:
        return KeyPage()
    query = f"SELECT ttl, expires FROM {plan.rows_table} WHERE {plan.mine()}"
    found = yield from _rows(plan, query, plan.structure.key.columns, _mine(plan, key))
    now = yield from _now(plan, context)
    ttl, expires = found[0] if found else (0, now)
    left = max(0.0, (expires - now) / SECOND)
    return KeyPage(facts={"holder": grant.holder, "token": grant.token, "left": left, "ttl": ttl / SECOND})


def _adopted(plan: Any, context: Context, key: Any) -> Reading[KeyPage]:
    (count,) = yield from _run(plan, context, plan.structure.count(key))
    (rows,) = yield from _run(plan, context, plan.structure.latest(key, PAGE))
    return KeyPage(rows=rows, facts={"rows": count, "keep": plan.structure.cap.keep})


_LOOKS: dict[str, Any] = {
    "ring": _ring,
    "capped": _capped,
    "counter": _counter,
    "set": _set,
    "cache": _cache,
    "rate_limit": _rate_limit,
    "lease": _lease,
    "adopted": _adopted,
}
