"""Keeps a cache within its bounds.

It has a head row, which every writer locks first, since a count that is exact at each COMMIT requires that writers wait
for each other; below it, nobody else changes rows. (With counts in slots, or a bound for each of several groups of
keys, writers would not wait, but a cache could exceed its bound, or evict while it is not full.) The head has the
number of values and their bytes, a sequence of uses, so that eviction does not depend on a clock, and `low`, the use up
to which all has been evicted: a search from there passes no dead rows.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from roost.dialects.dialect import Dialect, Statement, Wanted, execute, fetch, query
from roost.errors import Invalid
from roost.structures.cache.declaration import NEVER, TEXTS, Cache
from roost.structures.plan import SEQUENCE, Facts, N
from roost.structures.rules import DUE
from roost.structures.steps import TOTAL, Do, Fetch, Leave, Let, Now, Step, number
from roost.structures.words.words import Words
from roost.types.columns import Column

ID, BYTES, LOW, USED, SIZE = map(number, ("id", "bytes", "low", "used", "size"))
GONE, FREED = number("gone"), Column("freed", TOTAL)
FIXED = 8  # bytes that a value of fixed size counts for
BOUNDS = ("max_items", "max_bytes")
EXPIRED = 64  # expired rows that are deleted before others are evicted


class CacheBounds:
    """The steps by which the programs of a cache count and evict, in one dialect's words."""

    def __init__(self, plan: Any) -> None:
        self.cache: Cache[Any, Any] = plan.structure
        self.dialect: Dialect = plan.dialect
        self.key, self.family = self.cache.key.columns, self.dialect.family
        self.head, self.leases, self.expiry = plan.head_table, f"roost_{self.cache.name}_leases", plan.expiry
        self._mine, self._now = plan.mine(), plan.now  # of a query, with named parameters
        self._dues = [DUE.name] if self.expiry == DUE.name else []
        self._some = "" if self.family == "mariadb" else f" AND {self.expiry} < {NEVER}"  # the index has only these
        self._mixed = self.cache.value.type.kind in TEXTS

    def _locking_head(self, w: Words) -> Iterator[Step]:
        columns = [N, BYTES, SEQUENCE, LOW]
        yield Fetch(columns, [each.name for each in columns], f"FROM {self.head} WHERE id = 0{w.dialect.for_update}")

    @property
    def _integer(self) -> str:
        return {"sqlite": "INTEGER", "mariadb": "SIGNED"}.get(self.family, "bigint")

    def _size(self, w: Words, value: str) -> str:
        # The bytes for which a key and its value count.
        parts, fixed = [], 0
        for column in self.cache.columns:
            taken = value if column is self.cache.value else w.new(column.name)
            if column.type.kind not in TEXTS:
                fixed += FIXED
            elif self.family == "sqlite":
                parts.append(f"length(CAST({taken} AS BLOB))")
            else:
                parts.append(f"octet_length({taken})")
        return f"({' + '.join([*parts, str(fixed)])})"

    def _tally(self, w: Words, n: str, size: str, uses: Any) -> Iterator[Step]:
        # Counts what a write changes; on SQLite before it does.
        if w.loops:
            for name, more in (("n", n), ("bytes", size), ("sequence", uses)):
                if more != 0:
                    yield Let(name, f"{w[name]} + ({more})")
        else:
            more = f"n = n + {n}, bytes = bytes + {size}, sequence = sequence + {uses}"
            yield Do(f"UPDATE {self.head} SET {more} WHERE id = 0")

    def _closing(self, w: Words) -> Iterator[Step]:
        if w.loops:
            change = ", ".join(f"{name} = {w[name]}" for name in ("n", "bytes", "sequence", "low"))
            yield Do(f"UPDATE {self.head} SET {change} WHERE id = 0")

    def _over(self, w: Words) -> str:
        limits = {"n": self.cache.max_items, "bytes": self.cache.max_bytes}
        return " OR ".join(f"{w[name]} > {limit}" for name, limit in limits.items() if limit is not None)

    def _evicting(self, w: Words, own: str = "1") -> Iterator[Step]:
        # Deletes expired rows, then what was used longest ago, until the bounds are kept; own: uses of this call.
        if w.loops:
            over = self._over(w)
            yield Let("full", f"CASE WHEN {over} THEN 1 ELSE 0 END")
        else:
            yield from self._locking_head(w)
            over = self._over(w)
            yield Leave(f"NOT ({over})", ["1"])
            if own != "1":
                yield Now()
        yield from self._expiring(w, str(EXPIRED), f"{w['full']} = 1" if w.loops else "")
        yield from self._estimating(w)
        cut = self._cut(w)
        every = f"FROM {w.rows}{w.current}"
        counts = ["count(*)", f"CAST(coalesce(sum(size), 0) AS {self._integer})"]
        if not w.loops:
            # The count is wrong if what was stored just now is to go: somebody has emptied the table.
            wrong = f"({over}) AND coalesce({cut}, {w['sequence']}) > {w['sequence']} - {own}"
            recounted = f"SELECT {', '.join(counts)} {every}"
            yield Do(f"UPDATE {self.head} SET (n, bytes) = ({recounted}) WHERE id = 0", when=wrong)
            yield Do(f"UPDATE {self.head} SET low = coalesce({cut}, low) WHERE id = 0", when=f"({over})")
            old = f"FROM {w.rows} WHERE used <= {w['low']}"
            yield from self._tally(w, f"0 - (SELECT count(*) {old})", f"0 - (SELECT coalesce(sum(size), 0) {old})", 0)
            yield Do(f"DELETE FROM {w.rows} WHERE used <= {w['low']}")
            return
        yield Let("cut", f"CASE WHEN {over} THEN {cut} ELSE {w['low']} END")
        wrong = f"({over}) AND coalesce({w['cut']}, {w['sequence']}) > {w['sequence']} - {own}"
        yield Let("wrong", f"CASE WHEN {wrong} THEN 1 ELSE 0 END")
        yield Fetch([N, BYTES], counts, every, when=f"{w['wrong']} = 1")
        yield from self._estimating(w)
        yield Let("cut", f"CASE WHEN NOT ({over}) THEN {w['low']} WHEN {w['wrong']} = 1 THEN {cut} ELSE {w['cut']} END")
        old, full = f"used > {w['low']} AND used <= {w['cut']}", f"{w['cut']} > {w['low']}"
        yield Fetch([GONE, FREED], counts, f"FROM {w.by_index('used')} WHERE {old}{w.current}", when=full)
        yield Do(f"{w.delete_by('used')} WHERE {old}", when=full)
        change = f"CASE WHEN {full} THEN {{}} ELSE 0 END"
        yield from self._tally(w, f"0 - {change.format(w['gone'])}", f"0 - {change.format(w['freed'])}", 0)
        yield Let("low", f"{w.greatest}({w['low']}, coalesce({w['cut']}, 0))")
        yield from self._closing(w)

    def _estimating(self, w: Words) -> Iterator[Step]:
        # How many values go before the last one; among how many those are sought that have the bytes to be freed: an
        # estimate by the mean size.
        if self.cache.max_items:
            yield Let("skipped", f"{w.greatest}({w['n']} - {self.cache.max_items} - 1, 0)")
        if self.cache.max_bytes:
            values = f"{w.greatest}({w['n']}, 1)"
            mean = f"{w.greatest}({w.divided(w['bytes'], values)}, 1)"
            excess = f"{w['bytes']} - {self.cache.max_bytes}"
            yield Let("most", f"{w.greatest}(2 * ({w.divided(excess, mean)}), 0) + 16")

    def _cut(self, w: Words) -> str:
        # The use up to which values must go; NULL if all that there are do not suffice.
        cuts = []
        later, now = f"FROM {w.by_index('used')} WHERE used > {w['low']} ORDER BY used", w.current
        if self.cache.max_items is not None:
            found = f"(SELECT used {later} LIMIT 1 OFFSET {w['skipped']}{now})"
            cuts.append(f"CASE WHEN {w['n']} > {self.cache.max_items} THEN {found} ELSE {w['low']} END")
        if self.cache.max_bytes is not None:
            excess = f"{w['bytes']} - {self.cache.max_bytes}"
            excess = f"({excess})::numeric" if self.family == "postgresql" else excess
            sums = [
                f"(SELECT min(f.used) FROM (SELECT e.used, sum(e.size) OVER (ORDER BY e.used) AS total\n"
                f"      FROM (SELECT used, size {later}{limit}{now}) e) f WHERE f.total >= {excess})"
                for limit in (f" LIMIT {w['most']}", "")
            ]
            over = f"{w['bytes']} > {self.cache.max_bytes}"
            cuts.append(f"CASE WHEN {over} THEN coalesce({', '.join(sums)}) ELSE {w['low']} END")
        return cuts[0] if len(cuts) == 1 else f"{w.greatest}({', '.join(cuts)})"

    def _expiring(self, w: Words, most: str, when: str = "") -> Iterator[Step]:
        # Deletes some expired rows of a cache with bounds, and counts them.
        key = w.names(self.key)
        order = ", ".join(f"{name}{w.backwards}" for name in ["until", *map(w.dialect.name_of, self.key)])
        found = f"FROM {w.by_index('over')} WHERE until <= {w['now']}{self._some} ORDER BY {order} LIMIT {most}"
        counts = ["count(*)", f"CAST(coalesce(sum(q.size), 0) AS {self._integer})"]
        yield Fetch([GONE, FREED], counts, f"FROM (SELECT size {found}{w.current}) q", when=when)
        expired = f"DELETE FROM {w.rows} WHERE ({key}) IN (SELECT {key} {found})"
        if self.family == "postgresql":
            expired = f"DELETE FROM {w.rows} WHERE ctid = ANY (ARRAY(SELECT ctid {found}))"
        elif self.family == "mariadb":
            same = w.dialect.same(self.key, "q.", "r.")
            expired = f"DELETE r FROM (SELECT {key} {found}) q STRAIGHT_JOIN {w.rows} r FORCE INDEX (PRIMARY) ON {same}"
        tally = self._tally(w, f"0 - coalesce({w['gone']}, 0)", f"0 - coalesce({w['freed']}, 0)", 0)
        if w.loops:
            yield Do(expired, when=f"coalesce({w['gone']}, 0) > 0")
            yield from tally
        else:
            yield from tally
            yield Do(expired)

    def _using(self, w: Words) -> Iterator[Step]:
        yield from self._locking_head(w)
        yield Do(f"UPDATE {w.rows} SET used = {w['sequence']} + 1 WHERE {w.mine()}")
        yield Do(f"UPDATE {self.head} SET sequence = {w['sequence']} + 1 WHERE id = 0")


def change_bounds(plan: Any, old: Facts, new: Facts) -> Generator[Wanted, Any, None]:
    """Remove the values that exceed the new bounds; `Invalid` if bounds are added to or removed from a cache."""
    if any(all(facts.get(bound) is None for bound in BOUNDS) for facts in (old, new)):
        raise Invalid(
            f"{plan.structure.name}: the rows of a cache without bounds have no order of use; create another cache, "
            "and let it fill"
        )
    rows, head = plan.rows_table, plan.head_table
    yield Statement(query(f"SELECT n FROM {head} WHERE id = 0{plan.dialect.for_update}"), [()])
    for bound, by_use in zip(BOUNDS, ("count(*)", "sum(size)"), strict=True):
        if new[bound] is not None:
            ranked = f"SELECT used, {by_use} OVER (ORDER BY used DESC) AS total FROM {rows}"
            ((last,),) = yield from fetch(f"SELECT max(used) FROM ({ranked}) q WHERE total > {new[bound]}")
            if last is not None:
                yield execute(f"DELETE FROM {rows} WHERE used <= {last}")
    for name, sum_ in (("n", "count(*)"), ("bytes", "coalesce(sum(size), 0)")):
        yield execute(f"UPDATE {head} SET {name} = (SELECT {sum_} FROM {rows}) WHERE id = 0")
