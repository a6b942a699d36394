"""Leases of keys, which decide which of several callers computes a missing value.

`roost_NAME_leases` has a row for each key that is being computed, until it is released or expires. Nothing of it is in
the values' own rows, so it costs reads and writes nothing. The rows are locked in key order, after those of the values
if one transaction needs both.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from roost.dialects.dialect import Control, Dialect, Row, Statement, Template, Wanted
from roost.structures.cache.sql import LOCK, OVER, SWEEP, SWEPT
from roost.structures.clock import Clock
from roost.structures.operation import Operation
from roost.structures.plan import CUT, Context, Operations, Plan, StructurePlan, each, free, locking_free, write
from roost.types.column_types import ColumnType
from roost.types.columns import Column

UNTIL = Column("until", ColumnType("int"))
TOKEN = Column("token", ColumnType("int"))
LEASING = frozenset(["lease", "release"])  # verbs
SWEEPS = 8  # expired leases that are deleted with each lease that is granted

TAKE = "UPDATE {leases} SET until = {hole}, token = {hole} WHERE {equal}"
MAKE = "INSERT OR IGNORE INTO {leases} ({key}, until, token) VALUES ({key_holes}, 0, 0)"  # SQLite; LOCK elsewhere


class Leases:
    """The leases of one cache, in one dialect's words."""

    def __init__(self, plan: StructurePlan, dialect: Dialect, words: Mapping[str, str], clock: Clock) -> None:
        key = plan.structure.key.columns
        name = f"roost_{plan.structure.name}_leases"
        words = {**words, "leases": name, "rows": name, "size": "0"}
        self.table = plan.create(name, (*key, UNTIL, TOKEN), words["key"]).replace(", WITHOUT ROWID", "")
        self._plan = plan
        self._clock = clock
        self._cuts = dialect.name != "postgresql"  # whether a separate statement deletes what `_sweep` has found
        lock = dialect.choose(LOCK)
        self._lock = None if lock is None else lock.format(words)
        self._make = Template(MAKE.format(**words))
        self._find = each("SELECT until, token FROM {rows} WHERE {equal}".format(**words) + dialect.for_update)
        self._take = write(TAKE.format(**words))
        self._cut = dialect.choose(CUT).format(words)
        swept = OVER.format(**words, what=dialect.choose(SWEPT).format(**words))
        sweep = dialect.choose(SWEEP).format(**words, over=swept)
        self._sweep = each(sweep.format(moment=dialect.placeholder))
        self._free = locking_free(dialect, name, key, "until")

    def run(self, run: Operations, context: Context) -> Plan:
        """Grant and release leases, in the order of the operations."""
        keys = [self._plan.key_out(op.args[0]) for op in run]
        asked = sorted(set(keys))
        if self._lock is not None:
            yield Statement(self._lock, [(*key, 0, 0) for key in asked])
        else:
            yield Statement(self._make, asked)
        yield Control.LOCKED
        now = yield from self._clock.read(context)
        found = yield Statement(self._find, asked)
        was: dict[Row, Row] = {key: rows[0] for key, rows in zip(asked, found, strict=True)}
        have = dict(was)
        results = [_play(op, key, now, have) for op, key in zip(run, keys, strict=True)]
        gone = [key for key in asked if have[key][0] <= now]
        taken = [(*have[key], *key) for key in asked if have[key] != was[key] and have[key][0] > now]
        if taken:
            yield Statement(self._take, taken)
        if gone:
            yield Statement(self._cut, gone)
        yield from self._remove_old(now, context)
        return results

    def _remove_old(self, now: int, context: Context) -> Generator[Wanted, Any, None]:
        if context.joined and self._plan.dialect.row_locks:
            return  # see `sweep.py`
        found = yield Statement(self._sweep, [(now, SWEEPS)])
        if self._cuts:
            gone = yield from free(self._free, self._sweep, found[0], now, SWEEPS)
            if gone:
                yield Statement(self._cut, sorted([tuple(row[:-1]) for row in gone]))


def _play(op: Operation[Any], key: Row, now: int, have: dict[Row, Row]) -> Any:
    until, token = have[key]
    if op.verb == "lease":
        if until > now:
            return None
        have[key] = (now + op.args[1], max(now, token + 1))
        return have[key][1]
    held: bool = until > now and token == op.args[1]
    if held:
        have[key] = (0, token)
    return held
