"""Cache: a row per key. A run of sets is one upsert; operations that depend on stored values run under row locks.

Statements, in their order, of a run of writes:

1. On servers, lock the rows that the run names, in key order; create those that it may need first, with the expiry 0.
2. Read the time (`structures/clock.py`) and the rows.
3. Simulate the run in Python (`play.py`), and write its net effect: changed rows, changed expiry times, removed keys.
4. Delete a bounded number of expired rows of any keys: twice as many as were written, so that expired rows cannot make
   the table grow. On MariaDB single sets leave this to batches.

A run that contains only sets needs neither step 1 nor 2: one upsert replaces them. A cache with bounds has a head row
with counts, which is locked before all others and written last (`bounds.py`); a cache without bounds has no such cost.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

from roost.dialects.dialect import Control, Dialect, Exchange, Row, Statement, Template, Wanted
from roost.errors import Full
from roost.structures.cache.alter import ALTERATIONS
from roost.structures.cache.bounded_set import SET, BoundedSet
from roost.structures.cache.bounds import MORE, OLD, PART, SIZE, USED, Bounds, Tally, as_texts
from roost.structures.cache.check import rules
from roost.structures.cache.declaration import NEVER, Cache
from roost.structures.cache.leases import LEASING, TOKEN, UNTIL, Leases
from roost.structures.cache.meta import META, makes, play_meta, reads_value
from roost.structures.cache.play import MAKING, READ_VALUES, VALUED, Held, play, stored
from roost.structures.cache.reads import CacheReads
from roost.structures.cache.sql import FETCH, FIND, LOCK, ONE_SET, ONE_SWEEP, OVER, PUT, READ, SWEEP, SWEPT
from roost.structures.cache.view import VIEWS
from roost.structures.cache.wire import CacheWire
from roost.structures.clock import Clock
from roost.structures.operation import Operation
from roost.structures.plan import (
    CUT,
    LOCK_SEEN,
    Careful,
    Context,
    Locked,
    Operations,
    Plan,
    Rule,
    Transaction,
    each,
    free,
    is_locked,
    locking_free,
    same,
    seizing,
    write,
)
from roost.types.column_types import ColumnType
from roost.types.columns import Column

FLAGS = Column("flags", ColumnType("int"), nullable=True)  # like the value, NULL in a row that was created to be locked
SWEEPS = 2  # expired rows that are deleted for each row that is written
MOST_NOTED_ALONE = 8  # uses that a single set stores
SWEEP_LEAST = 32  # the minimum number of expired rows that a batch deletes
MARIADB_BATCHES = 16  # of this number of single sets, one runs as a batch, which deletes expired rows

WRITES = ("set", "set_many", "add", "replace", "cas", "touch", "increment", "decrement", "append", "prepend", "delete")


class CachePlan(CacheReads):
    """A cache in one dialect's words."""

    wire = CacheWire

    structure: Cache[Any, Any]
    views = VIEWS
    alterations = ALTERATIONS
    together: Mapping[str, str] = {
        **dict.fromkeys([*WRITES, *META, "clear", "forget"], "change"),
        **dict.fromkeys(LEASING, "leases"),
    }

    def __init__(self, structure: Cache[Any, Any], dialect: Dialect) -> None:
        super().__init__(structure, dialect)
        key = structure.key.columns
        kept = Column("value", structure.value.type, nullable=True)  # NULL in a row that was created to be locked
        bounded = structure.bounded
        columns = (*key, kept, UNTIL, TOKEN, FLAGS, *([USED, SIZE] if bounded else []))
        rows, equal = self.rows_table, dialect.equal(key)
        self.table = self.create(rows, columns, dialect.names(key)).replace(", WITHOUT ROWID", "")  # long values
        self.clock = Clock(self)
        hole = dialect.placeholder
        words = {
            "rows": rows,
            "columns": dialect.names(columns),
            "key": dialect.names(key),
            "holes": dialect.holes(len(columns)),
            "key_holes": dialect.holes(len(key)),
            "arrays": dialect.arrays(columns),
            "key_arrays": dialect.arrays(key),
            "equal": equal,
            "q_rows": dialect.same(key, "q.", "r."),
            "now": self.clock.now,
            "never": str(NEVER),
            "hole": hole,
            "one_token": self.guarded(hole if dialect.name == "sqlite" else self.clock.now),
            "sweep": str(SWEEPS),
            "size": "size" if bounded else "0",
            "old": OLD.format(head=self.head_table, part=PART) if bounded else "0",
            "one_more": f", {dialect.holes(2)}" if bounded else "",
            "more": dialect.choose(MORE) if bounded else "",
            # For CUT, which takes a key and an id.
            "pairs": dialect.names(key),
            "equal_pair": equal,
            "same_pair": dialect.same(key, "q.", "r."),
            "pair_arrays": dialect.arrays(key),
        }
        some = "" if dialect.family == "mariadb" else f" WHERE until < {NEVER}"
        self.indexes = (f"roost_{structure.name}_until",)
        self.leases = Leases(self, dialect, words, self.clock)
        until = f"CREATE INDEX {self.indexes[0]} ON {rows} (until){some}"
        self.tables = (self.table, until, *self.clock.tables, self.leases.table)
        self.read, self.put, self.cut = (dialect.choose(each).format(words) for each in (READ, PUT, CUT))
        self.bounds = Bounds(self, dialect, words, self.cut) if bounded else None
        if self.bounds is not None:
            self.tables += self.bounds.tables
            self.indexes += (self.bounds.index,)
        if dialect.name == "sqlite" and [column.type.kind for column in key] == ["text"]:
            self.fetch = each(FETCH.format(**words, array=dialect.array))
        find = dialect.choose(FIND)
        self.find_value = find.format({**words, "value": "value"})
        self.find = find.format({**words, "value": "NULL"})
        lock = dialect.choose(LOCK)
        self.lock = None if lock is None else lock.format(words)
        self.take = None if self.lock is None else each(f"SELECT 1 FROM {rows} WHERE {equal} FOR UPDATE")
        self.seize = seizing(dialect, rows, key)
        swept = dialect.choose(SWEPT).format(**words)
        sweep = dialect.choose(SWEEP).format(**words, over=OVER.format(**words, what=swept))
        self.sweep = each(sweep.format(moment=hole))
        self._free = locking_free(dialect, rows, key, "until")
        self._one_sweep = sweep.format(moment=self.clock.now)
        self.move = write(f"UPDATE {rows} SET until = {hole}, token = {hole}, flags = {hole} WHERE {equal}")
        # Of all rows, by `clear`. On MariaDB it waits for nobody's lock, since it would hold all the others meanwhile.
        self.count = each(f"SELECT count(*) FROM {rows} WHERE until > {hole}")
        self.delete_all = Template(f"DELETE FROM {rows}")
        self.clear_now = (self.count, self.delete_all)
        if dialect.family == "mariadb":
            of_all = f"SELECT count(CASE WHEN until > {hole} THEN 1 END) FROM {rows} FORCE INDEX (PRIMARY)"
            unwaiting = "SET STATEMENT innodb_lock_wait_timeout = 0 FOR " if dialect.name == "mariadb" else ""
            self.clear_now = (each(f"{of_all} FOR UPDATE NOWAIT"), Template(f"{unwaiting}DELETE FROM {rows}"))
        head, tail = f"SELECT {words['key']} FROM {rows} WHERE until > {hole}", f"ORDER BY {words['key']} LIMIT {hole}"
        self.first_keys = each(f"{head} {tail}")
        self.later_keys = each(f"{head} AND ({words['key']}) > ({words['key_holes']}) {tail}")
        self._value_out: Callable[[Row], Row] = dialect.encoder([structure.value]) or same
        self._value_in: Callable[[Row], Row] = dialect.decoder([structure.value]) or same
        self._timed = dialect.name == "sqlite"  # the store's clock is a parameter
        self._now = each(f"SELECT {self.clock.now}")
        counts = f"h.n, h.bytes, h.sequence, (SELECT r.size FROM {rows} r WHERE {dialect.equal(key, 'r.')})"
        self._head_and_size = (
            f"SELECT {counts} FROM roost_catalog c LEFT JOIN {self.head_table} h ON h.id = 0 WHERE {self.is_stored}"
        )
        self._bounded_set: BoundedSet | None = None
        if structure.max_items is not None and structure.max_bytes is None and dialect.name in SET:
            more = {
                "head": self.head_table,
                "max_items": str(structure.max_items),
                "r_equal": dialect.equal(key, "r."),
                "v_equal": dialect.equal(key, "v."),
                "v_key": dialect.names(key, "v."),
                "same_key": dialect.same(key, "r.", "v."),
            }
            self._bounded_set = BoundedSet(dialect.name, {**words, **more})
        one_set, over = ONE_SET.get(dialect.name, ""), ONE_SWEEP.get(dialect.name, "").format(**words)
        seen, unseen = (each.format(**words, head=rows) for each in LOCK_SEEN.get(dialect.name, ("", "")))
        self._one_set = one_set.format(**words, lock="", locked="", over=over)
        self._one_set_joined = one_set.format(**words, lock=seen, locked=unseen, over="")
        living = f"{dialect.equal(key, 'r.')} AND r.until > {self.clock.now}"
        noted = f", {words['old']}" if bounded else ""
        self._one = self.question_sql(f"r.value{noted}", rows, living)
        self._one_left = self.question_sql(f"r.until - {self.clock.now}", rows, living)
        self._one_item = self.question_sql(
            f"r.value, r.token, r.until - {self.clock.now}, r.flags{noted}", rows, living
        )

    def rules(self) -> Iterator[Rule]:
        """Return the invariants of its tables."""
        return rules(self)

    # --- writing: single operations -----------------------------------------------------------------------------------

    def transact_set(self, op: Operation[Any], context: Context) -> Transaction | None:
        """Store a value."""
        if self.clock.is_due(context):
            return None
        return self._set(op, context) if self.bounds is None else self._set_within(self.bounds, op, context)

    def _set(self, op: Operation[Any], context: Context) -> Transaction:
        key, value, ttl, flags = op.args
        now = self.clock.row(context)
        row = (*self.key_out(key), *self._value_out((value,)), *now, ttl, now[1], flags)
        yield self._one_set, row
        for *gone, _ in (yield self._one_sweep, (*now, SWEEPS)):
            yield self.cut.sql, tuple(gone)

    def _set_within(self, bounds: Bounds, op: Operation[Any], context: Context) -> Transaction:
        key, value, ttl, flags = op.args
        key, value = self.key_out(key), self._out(value)
        now, size = self.clock.row(context), bounds.size((*key, value))
        found = yield self._head_and_size, key
        if not found or found[0][0] is None or (bounds.max_bytes is not None and size > bounds.max_bytes):
            raise Careful
        n, stored_bytes, sequence, former = found[0]
        tally = Tally(n, stored_bytes, sequence, sequence)
        tally.removed([former])
        for used in bounds.noted(context, MOST_NOTED_ALONE):
            tally.sequence += 1
            yield bounds.use.sql, (tally.sequence, *used)
        tally.sequence += 1
        tally.n += 1
        tally.bytes += size
        yield self._one_set, (*key, value, *now, ttl, now[1], flags, tally.sequence, size)
        for *gone, swept in (yield self._one_sweep, (*now, max(SWEEPS, bounds.excess(tally)))):
            yield self.cut.sql, tuple(gone)
            tally.removed([swept])
        yield from as_texts(bounds.evict(tally))
        yield bounds.write.sql, (tally.n, tally.bytes, tally.sequence)

    def exchange_set(self, op: Operation[Any], context: Context) -> Exchange | None:
        """Store a value."""
        if self.clock.is_due(context):
            return None
        if self.dialect.family == "mariadb" and not context.clock().microsecond % MARIADB_BATCHES:
            return None
        if self.bounds is not None:
            return self._exchange_within(self.bounds, op, context)
        key, value, ttl, flags = op.args
        stored = self.key_out(key)
        row = (*stored, *self._value_out((value,)), ttl, flags)
        if self.dialect.family == "mariadb":
            return Exchange(self._one_set, row)
        return Exchange(self._one_set_joined, stored + row) if context.joined else Exchange(self._one_set, row + stored)

    def _exchange_within(self, bounds: Bounds, op: Operation[Any], context: Context) -> Exchange | None:
        found = self._bounded_set
        if found is None or context.joined or context.used.get(self.structure.name):  # a batch stores the recorded uses
            return None
        key, value, ttl, flags = op.args
        key, value = self.key_out(key), self._out(value)
        size = bounds.size((*key, value))
        if self.dialect.family == "mariadb":
            row = (size, *key, *key, value, ttl, flags, size)
        else:
            row = (size, *key, *key, value, ttl, flags, size, *key, *key)
        return Exchange(found.text, row, found.answer, found.source)

    # --- writing: batches -----------------------------------------------------------------------------------------

    def heads_of(self, op: Operation[Any]) -> Iterable[Row]:
        """Return the stored form of the keys that an operation locks; with bounds, one value for all operations."""
        if self.bounds is not None and _counts([op]):
            return {()}
        return self._keys_of(op)

    def _keys_of(self, op: Operation[Any]) -> set[Row]:
        return {self.key_out(key) for key, _ in self._keyed(op)}

    def seized(self, operations: Operations, context: Context) -> list[Row]:
        """Return the parameters of `seize` for the rows that operations write, in the order of locks."""
        return sorted({key for op in operations if op.writes for key in self._keys_of(op)})

    @staticmethod
    def _keyed(op: Operation[Any]) -> list[tuple[Row, Any]]:
        # Returns the keys of an operation that writes, each with its new value; none for one that removes all keys.
        if op.verb == "set_many":
            return [(key, value) for key, value, *_ in op.args]
        key, *rest = op.args
        return [] if key is None else [(key, rest[0] if rest else None)]

    def take_heads(self, operations: Operations, context: Context) -> Generator[Wanted, Any, Locked]:
        """Create or lock the rows of keys that may get a value, and lock those of the other keys that are written."""
        return (yield from self._lock_all(operations, set(), context))

    def _lock_all(self, operations: Operations, noted: set[Row], context: Context) -> Generator[Wanted, Any, Locked]:
        made = {key for op in operations if op.verb in MAKING or makes(op) for key in self._keys_of(op)}
        taken = {key for op in operations if op.writes and op.verb not in LEASING for key in self._keys_of(op)}
        counted = self.bounds is not None and _counts(operations)
        if not taken and not counted:
            return False
        if counted and self.bounds is not None:
            yield from self.bounds.lock()
        return (yield from self.make_or_take(made, taken | noted, context, 0, 0))[0]

    def plan_leases(self, run: Operations, context: Context, _: bool) -> Plan:
        """Grant leases and release them."""
        return (yield from self.leases.run(run, context))

    def plan_change(self, run: Operations, context: Context, locked: Locked) -> Plan:
        """Run writes in their order; `clear()` of all keys splits a run in two."""
        bounds = self.bounds
        if bounds is None and locked is False and all([op.verb in ("set", "set_many") for op in run]):
            return (yield from self._set_all(run, context))
        counted = bounds is not None and _counts(run)
        noted = bounds.noted(context) if bounds is not None and counted and locked is False else []
        if locked is False and self.lock is not None:
            locked = yield from self._lock_all(run, set(noted), context)
        elif bounds is not None and counted and self.lock is None:
            yield from bounds.lock()
        if locked is False:
            yield Control.LOCKED
        now = yield from self.clock.read(context)
        tally = (yield from bounds.tally()) if bounds is not None and counted else None
        if bounds is not None and tally is not None and noted:
            first = tally.sequence + 1
            yield Statement(bounds.use, [(place, *key) for place, key in enumerate(noted, first)])
            tally.sequence += len(noted)
        results: list[Any] = []
        part: list[Operation[Any]] = []
        for op in run:
            if op.args[:1] == (None,):
                results += yield from self._played(part, now, tally, locked)
                part = []
                results.append((yield from self._clear_all(now, context)))
                if tally is not None:
                    tally.n = tally.bytes = 0
            else:
                part.append(op)
        results += yield from self._played(part, now, tally, locked)
        if bounds is None or tally is not None:
            yield from self._sweep(len(run), now, context, tally)
        if bounds is not None and tally is not None:
            yield from bounds.evict(tally)
            yield Statement(bounds.write, [(tally.n, tally.bytes, tally.sequence)])
        return results

    def _set_all(self, run: Operations, context: Context) -> Plan:
        # The last value of each key, in key order.
        now = yield from self.clock.read(context)
        rows: dict[Row, Row] = {}
        for op in run:
            for key, value, ttl, flags in op.args if op.verb == "set_many" else [op.args]:
                rows[self.key_out(key)] = stored(now, self._out(value), ttl, flags, None)
        if rows:
            yield from self.take_seen(sorted(rows), context)
            yield Statement(self.put, [key + row for key, row in sorted(rows.items(), key=_by_key)])
        yield Control.LOCKED
        yield from self._sweep(len(rows), now, context, None)
        return [None] * len(run)

    def _played(self, run: Operations, now: int, tally: Tally | None, locked: Locked) -> Plan:
        if not run:
            return []
        keyed = [[(self.key_out(key), value) for key, value in self._keyed(op)] for op in run]
        needing = {keys[0][0] for op, keys in zip(run, keyed, strict=True) if op.verb in READ_VALUES or reads_value(op)}
        asked = sorted({key for keys in keyed for key, _ in keys})
        found: dict[Row, Row] = {}  # the stored rows, expired or not, with their sizes
        for find, some in ((self.find_value, needing), (self.find, {*asked} - needing)):
            those = sorted([key for key in some if is_locked(key, locked)])
            if those:
                rows = yield Statement(find, those)
                found |= {key: each[0] for key, each in zip(those, rows, strict=True) if each}
        have: dict[Row, Held | None] = dict.fromkeys(asked)
        have |= {key: Held(*row[:4]) for key, row in found.items() if row[1] > now}
        was = dict(have)
        put: dict[Row, None] = {}  # keys, in the order of their last use
        results: list[Any] = []
        for op, keys in zip(run, keyed, strict=True):
            result: Any = None
            after: dict[Row, Held | None] = {}
            if op.verb == "set_many":
                for (key, value), (*_, ttl, flags) in zip(keys, op.args, strict=True):
                    after[key] = stored(now, self._out(value), ttl, flags, have[key])
            else:
                ((key, value),) = keys
                brings = self._out(value) if op.verb in VALUED else None
                result, after[key] = (play_meta if op.verb in META else play)(
                    self.structure, op, brings, now, have[key]
                )
            for key, held in after.items():
                if held is not None and held.until <= now:  # it expired in the past: clients of memcached may set that
                    after[key] = None
            changed = [key for key, held in after.items() if held is not have[key]]
            if self._is_too_large(after, changed):
                results.append(Full(f"{op!r}: a value would have more than max_bytes, {self.structure.max_bytes:,}"))
                continue
            have |= after
            results.append(result)
            for key in changed:
                before, held = was[key], after[key]
                if before is None or held is None or before.value is not held.value:
                    put.pop(key, None)
                    put[key] = None
        yield from self._write(found, was, have, put, tally)
        return results

    def _is_too_large(self, after: Mapping[Row, Held | None], changed: Sequence[Row]) -> bool:
        bounds = self.bounds
        if bounds is None or bounds.max_bytes is None:
            return False
        sizes = [bounds.size((*key, held.value)) for key in changed if (held := after[key]) and held.value is not None]
        return max(sizes, default=0) > bounds.max_bytes

    def _write(
        self,
        found: Mapping[Row, Row],
        was: Mapping[Row, Held | None],
        have: Mapping[Row, Held | None],
        put: Mapping[Row, None],
        tally: Tally | None,
    ) -> Generator[Wanted, Any, None]:
        # Writes the difference between the stored rows and those that the keys have now.
        puts: list[Row] = []
        for key in put:
            held = have[key]
            if held is None:
                continue
            if tally is None or self.bounds is None:
                puts.append(key + held)
                continue
            size = self.bounds.size((*key, held.value))
            tally.sequence += 1
            puts.append((*key, *held, tally.sequence, size))
            tally.removed([found[key][4]] if key in found else [])
            tally.n += 1
            tally.bytes += size
        moves = [
            (*held[1:], *key)
            for key, held in have.items()
            if held and key not in put and (former := was[key]) and former != held
        ]
        gone = []
        if tally is not None or self.bounds is None:  # otherwise a run that counts deletes them
            gone = sorted([key for key in found if have[key] is None])  # expired ones, too
        if tally is not None:
            tally.removed([found[key][4] for key in gone])
        if puts:
            yield Statement(self.put, sorted(puts, key=lambda row: row[: self.key_width]))
        if moves:
            yield Statement(self.move, moves)
        if gone:
            yield Statement(self.cut, gone)

    def _out(self, value: Any) -> Any:
        return self._value_out((value,))[0]

    def _clear_all(self, now: int, context: Context) -> Generator[Wanted, Any, int]:
        count, delete = (self.count, self.delete_all) if context.joined else self.clear_now
        found = yield Statement(count, [(now,)])
        yield Statement(delete, [()])
        number: int = found[0][0][0]
        return number

    def _sweep(self, written: int, now: int, context: Context, tally: Tally | None) -> Generator[Wanted, Any, None]:
        most = SWEEPS * written + SWEEP_LEAST
        if tally is not None and self.bounds is not None:
            most = max(most, self.bounds.excess(tally))  # expired values are deleted before others
        if context.joined and self.dialect.row_locks:
            return  # see `sweep.py`
        found = (yield Statement(self.sweep, [(now, most)]))[0]
        if self.dialect.name != "postgresql" and found:
            found = yield from free(self._free, self.sweep, found, now, most)
            if found:
                yield Statement(self.cut, sorted([tuple(row[:-1]) for row in found]))
        if tally is not None:
            tally.removed([row[-1] for row in found])


def _counts(run: Operations) -> bool:
    # Whether something is stored or removed. A touch removes a value if the new expiry time is in the past.
    return any([op.writes and op.verb not in LEASING and (op.verb != "touch" or op.args[1] == 0) for op in run])


def _by_key(item: tuple[Row, Row]) -> Row:
    return item[0]
