"""What the pages read, each within a second: the catalog, what is measured, and of a structure and a key, by kind.

Of a structure these are a few rows that an index finds, in one snapshot: each is a generator of a plan, a context and
what is asked for, as `Looker.ask` runs it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from time import monotonic
from typing import Any, NamedTuple, TypeVar

import roost
from roost.catalog.catalog import listed
from roost.catalog.measure import MOST, Count, Measure, few, measure
from roost.dialects.dialect import Wanted, fetch
from roost.errors import Error, Invalid, Missing
from roost.structures.cache.declaration import NEVER
from roost.structures.capped.plan import CappedPlan
from roost.structures.clock import SECOND
from roost.structures.counter.plan import CounterPlan
from roost.structures.operation import Operation
from roost.structures.plan import Context, StructurePlan
from roost.structures.program import ProgramPlan
from roost.structures.registry import console_of, from_definition
from roost.structures.ring import RingPlan
from roost.structures.rows import Entry
from roost.structures.structure import Structure

T = TypeVar("T")
Reading = Generator[Any, Any, T]

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


@dataclass
class KeyPage:
    """What is known of one key; which fields are set depends on the kind."""

    rows: list[Any] = field(default_factory=list)  # named tuples, dataclasses or entries
    members: list[Any] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    slots: dict[int, int] = field(default_factory=dict)  # of a ring: the sequence in each slot
    series: list[tuple[Any, int]] = field(default_factory=list)
    value: Any = None


def _run(plan: StructurePlan, context: Context, *operations: Operation[Any]) -> Generator[Wanted, Any, list[Any]]:
    results = yield from plan.run(operations, context)
    for result in results:
        if isinstance(result, Error):
            raise result
    return results


def _rows(plan: Any, sql: str, given: Sequence[Any] = (), row: Sequence[Any] = ()) -> Reading[list[Any]]:
    # The rows of a query with named parameters; of a table of the application's own it has none.
    if not isinstance(plan, ProgramPlan):
        return (yield from fetch(sql))
    return list((yield plan.read(sql, given).alone(tuple(row)))[0])


def watched(plan: Any, context: Context) -> Reading[dict[Any, int]]:
    """Return what was written to each key."""
    names = plan.dialect.names(plan.structure.key.columns) if isinstance(plan, ProgramPlan) else ""
    if isinstance(plan, RingPlan) or (isinstance(plan, CappedPlan) and plan.by_head):
        query = f"SELECT {names}, 0, sequence FROM {plan.head_table} ORDER BY {names} LIMIT {WATCHED}"
    elif isinstance(plan, CounterPlan):
        source = few(f"{names}, n", plan.rows_table, order=names)
        query = f"SELECT {names}, {plan.dialect.exact_sum('n')} FROM {source} GROUP BY {names}"
    else:
        return {}
    found = yield from _rows(plan, query)
    return {plan.key_value(row[:-2]): int(row[-2]) * 2**32 + int(row[-1]) for row in found}


def keys_of(plan: Any, context: Context, after: Any) -> Reading[tuple[list[tuple[Any, Any]], bool]]:
    """Return a page of keys, each with what it holds in short, and whether there are more."""
    found = yield from _keys(plan, context, after)
    held = (yield from _holding(plan, context, found[:PAGE])) if found else []
    return list(zip(found, held, strict=False)), len(found) > PAGE


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
        where = f" WHERE {plan.later()}" if last else ""
        query = f"SELECT {names} FROM {table}{where} ORDER BY {names} LIMIT {1 if several else PAGE + 1}"
        found = yield from _rows(plan, query, columns, last)
        rows += found
        if not several or not found:
            break
        last = tuple(found[-1])
    return [plan.key_value(row) for row in rows]


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
    ((now,),) = yield from _rows(plan, f"SELECT {plan.now} AS moment", plan.timed, plan.moment(context))
    return int(now)


def rows_of(plan: Any, estimate: Count | None) -> Reading[Count]:
    """Count the rows of a table of the application's own, if they are few; else return the estimate."""
    words = yield from plan.adoption.reading(plan.cap)
    ((n,),) = yield from _rows(plan, f"SELECT count(*) FROM {few('1 AS one', words.table)}")
    return Count(n) if n <= MOST else estimate or Count(MOST, False)


def aged(plan: Any, context: Context) -> Reading[dict[str, Any]]:
    """Return of a table that is capped by age: how far that is behind, the oldest and the newest time."""
    words = yield from plan.adoption.reading(plan.cap)
    ((over,),) = yield from _rows(plan, f"SELECT count(*) FROM {few('1 AS one', f'{words.table} i', words.over('i'))}")
    oldest, newest = yield from words.ends(words.shown)
    return {"over": Count(min(over, MOST), over <= MOST), "oldest": oldest, "newest": newest}


def expiring(plan: Any, context: Context) -> Reading[dict[str, Any]]:
    """Return of a cache how many values expire when, and which go next.

    On servers one that was stored anew counts by its former end, until that has come.
    """
    now, ends = (yield from _now(plan, context)), plan.expiry
    bounds = [now, *[min(now + seconds * SECOND, NEVER) for seconds, _ in TTLS[:-1]], NEVER]
    counts = []
    for least, most in pairwise(bounds):
        past = f"{ends} > {least} AND {ends} <= {most} AND {ends} < {NEVER}"
        ((n,),) = yield from _rows(plan, f"SELECT count(*) FROM {few('1 AS one', plan.rows_table, past)}")
        counts.append(Count(min(n, MOST), n <= MOST))
    names, order = plan.dialect.names(plan.structure.key.columns), "used" if plan.structure.bounded else ends
    living = f"{ends} > {now}" if plan.structure.bounded else f"{ends} > {now} AND {ends} < {NEVER}"
    query = f"SELECT {names}, until FROM {plan.rows_table} WHERE {living} ORDER BY {order} LIMIT 5"
    found = yield from _rows(plan, query)
    going = [(plan.key_value(row[:-1]), _left(row[-1], now)) for row in found]
    return {"bars": [(label, count) for (_, label), count in zip(TTLS, counts, strict=True)], "next": going}


def _left(until: int, now: int) -> float | None:
    return None if until >= NEVER else (until - now) / SECOND


# --- a key, by kind ------------------------------------------------------------------------------------------------


def _mine(plan: Any, key: Any) -> Any:
    return plan.key_out(plan.structure.key.check(key))


def _of_key(plan: Any, context: Context, key: Any, what: str, tail: str = "", table: str = "") -> Reading[list[Any]]:
    # Rows of a key that have not expired, or what another table has of it.
    given, row, living = [*plan.structure.key.columns], _mine(plan, key), ""
    if plan.expires and not table:
        given, row, living = [*given, *plan.timed], (*row, *plan.moment(context)), f" AND until > {plan.now}"
    query = f"SELECT {what} FROM {table or plan.rows_table} WHERE {plan.mine()}{living} {tail}"
    return (yield from _rows(plan, query, given, row))


def _ring(plan: Any, context: Context, key: Any) -> Reading[KeyPage]:
    structure = plan.structure
    head = yield from _of_key(plan, context, key, "sequence, keep", table=plan.head_table)
    (sequence, keep) = head[0] if head else (0, structure.keep)
    page = KeyPage(facts={"sequence": sequence, "keep": keep, "slot": sequence % keep if sequence else None})
    if keep <= SLOTS:
        page.slots = dict((yield from _of_key(plan, context, key, "slot, sequence", f"ORDER BY slot LIMIT {SLOTS}")))
    (entries,) = yield from _run(plan, context, structure.entries(key, after=max(0, sequence - PAGE)))
    page.rows = entries[::-1]
    return page


def _capped(plan: Any, context: Context, key: Any) -> Reading[KeyPage]:
    structure = plan.structure
    (count,) = yield from _sizes(plan, context, [key])
    page = KeyPage(facts={"rows": count.n, "keep": structure.keep})
    if structure.score is not None:
        score = plan.dialect.name_of(structure.score)
        (rows,) = yield from _run(plan, context, structure.top(key, min(structure.keep, RANKS)))
        worst = yield from _of_key(plan, context, key, score, f"ORDER BY {score}, sequence DESC LIMIT 1")
        page.rows = [Entry(rank, None, row) for rank, row in enumerate(rows, 1)]  # type: ignore[arg-type]
        page.facts["cut"] = worst[0][0] if worst and count.n >= structure.keep else None
        return page
    found = yield from _of_key(plan, context, key, "sequence", f"ORDER BY sequence DESC LIMIT {PAGE}")
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
    names = plan.dialect.names(member)
    order = f"ORDER BY {plan.dialect.names([*structure.key.columns, *member])} LIMIT {PAGE}"
    found = yield from _of_key(plan, context, key, names, order)
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
    found = yield from _of_key(plan, context, key, "ttl, expires", table=plan.rows_table)
    now = yield from _now(plan, context)
    ttl, expires = found[0] if found else (0, now)
    left = max(0.0, (expires - now) / SECOND)
    return KeyPage(facts={"holder": grant.holder, "token": grant.token, "left": left, "ttl": ttl / SECOND})


def _adopted(plan: Any, context: Context, key: Any) -> Reading[KeyPage]:
    (count,) = yield from _run(plan, context, plan.structure.count(key))
    (rows,) = yield from _run(plan, context, plan.structure.latest(key, PAGE))
    return KeyPage(rows=rows, facts={"rows": count, "keep": plan.structure.cap.keep})


def _other(plan: Any, context: Context, key: Any) -> Reading[KeyPage]:
    # A kind of another package: what the command line shows.
    console = console_of(plan.structure)
    (found,) = yield from _run(plan, context, console.contents(key, PAGE))
    table = console.content(found, PAGE)
    return KeyPage(rows=list(table.rows), facts={"headers": table.headers})


def key_of(plan: Any, context: Context, key: Any) -> Reading[KeyPage]:
    found: KeyPage = yield from _LOOKS.get(plan.structure.kind, _other)(plan, context, key)
    return found


_LOOKS: dict[str, Any] = {
    "ring": _ring,
    "capped": _capped,
    "counter": _counter,
    "set": _set,
    "cache": _cache,
    "lease": _lease,
    "rate_limit": _rate_limit,
    "adopted": _adopted,
}


SECONDS = 1.0  # for all that a page reads
MINUTE, LATELY = 60.0, 10.0  # seconds, of what was written


class Sample(NamedTuple):
    """What was read at a moment: a structure's total, and that of each key where there are few."""

    at: float
    total: int
    keys: Mapping[Any, int]


class Samples:
    """The samples of the last minute, by structure; used by several threads.

    >>> samples = Samples()
    >>> samples.add("visits", Sample(0.0, 100, {5: 90, 7: 10}))
    >>> samples.add("visits", Sample(2.0, 120, {5: 95, 7: 25}))
    >>> samples.rate("visits"), samples.hot("visits")
    (10.0, [(7, 15), (5, 5)])
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, deque[Sample]] = {}

    def add(self, name: str, sample: Sample) -> None:
        """Add a sample; older ones than a minute go, and one that is less than half a second old stays alone."""
        with self._lock:
            kept = self._kept.setdefault(name, deque())
            if not kept or sample.at - kept[-1].at >= 0.5:
                kept.append(sample)
            while sample.at - kept[0].at > MINUTE:
                kept.popleft()

    def rate(self, name: str) -> float | None:
        """Return what was written per second lately; None before there are two samples."""
        with self._lock:
            kept: list[Sample] = [*self._kept.get(name, ())]
        if len(kept) < 2:
            return None
        last = kept[-1]
        first = next((each for each in kept[:-1] if last.at - each.at <= LATELY), kept[-2])
        return max(last.total - first.total, 0) / (last.at - first.at)

    def hot(self, name: str, n: int = 5) -> list[tuple[Any, int]]:
        """Return the keys to which most was written within the minute, each with how much."""
        with self._lock:
            kept = self._kept.get(name)
            if not kept:
                return []
            first, last = kept[0].keys, kept[-1].keys
        grown = [(key, total - first.get(key, 0)) for key, total in last.items() if first]
        return sorted([each for each in grown if each[1] > 0], key=lambda each: -each[1])[:n]


class Listed(NamedTuple):
    """A line of the catalog: a structure, or what is wrong with its definition; and what was measured."""

    name: str
    structure: Structure | None
    problem: str = ""
    measure: Measure | None = None
    rate: float | None = None
    hot: Sequence[tuple[Any, int]] = ()


class Looker:
    """Reads for one page, from one store.

    samples: what was written, as it was seen by the pages before.
    seconds: for all that the page reads.
    """

    def __init__(self, store: roost.Store, samples: Samples, seconds: float = SECONDS) -> None:
        self.store = store
        self._samples = samples
        self._end = monotonic() + seconds

    def glance(self, reading: Callable[[Context], Reading[T]]) -> T:
        """Run a generator on the connection of reads, in what is left of the time."""
        return self.store._core.glance(reading, max(self._end - monotonic(), 0.001))

    def plan(self, structure: Structure) -> Any:
        return self.store._core.known.plan(structure)

    def catalog(self) -> list[Listed]:
        """Return the structures, with those whose definition cannot be read."""
        try:
            entries = self.glance(lambda _: listed(self.store._core.known.catalog))
        except Missing:
            return []
        found = []
        for name, _, definition in entries:
            try:
                found.append(Listed(name, from_definition(definition)))
            except Invalid as error:
                found.append(Listed(name, None, str(error)))
        return found

    def measured(self, entry: Listed) -> Listed:
        """Return a structure with what was measured, or why it was not."""
        if entry.structure is None:
            return entry
        if monotonic() >= self._end:
            return entry._replace(problem="not read: the page has had its time")
        try:
            found, keys = self.ask(_measuring, entry.structure)
        except Error as error:
            return entry._replace(problem=str(error))
        if found.written is not None:
            self._samples.add(entry.name, Sample(monotonic(), found.written, keys))
        rate, hot = self._samples.rate(entry.name), self._samples.hot(entry.name)
        return entry._replace(measure=found, rate=rate, hot=hot)

    def entry(self, name: str) -> Listed:
        """Return the structure of this name; `Missing` if there is none, `Invalid` if it cannot be read."""
        for entry in self.catalog():
            if entry.name == name:
                if entry.structure is None:
                    raise Invalid(entry.problem)
                return entry
        raise Missing(f"there is no structure {name!r}")

    def ask(self, reading: Callable[..., Reading[T]], structure: Structure, *args: Any) -> T:
        """Run one of the generators of `reading`, for a structure."""
        return self.glance(lambda context: reading(self.plan(structure), context, *args))


def _measuring(plan: Any, context: Context) -> Reading[tuple[Measure, dict[Any, int]]]:
    found = yield from measure(plan, context)
    if plan.structure.kind == "adopted":
        found = replace(found, rows=(yield from rows_of(plan, found.rows)))
    keys = (yield from watched(plan, context)) if found.keys and found.keys.n <= WATCHED else {}
    return found, keys
