"""Cache: a row per key. What a run sets is one upsert; what depends on what is there is played under the rows' locks.

Statements, in their order, of a run of writes:

1. On servers the rows that it names are locked in key order; those that it may make are made first, with the end 0.
2. The time is read (`structures/clock.py`), and what the rows have.
3. The run is played in Python (`play.py`), and its net effect is written: rows that are put, ends that are moved, keys
   that are removed.
4. A bounded number of rows that are over is removed, whoever's they are: twice as many as were written, so a table
   cannot grow by more than what lives. On MariaDB single sets leave that to the batches.

A run of nothing but sets skips the locks and the look: its upsert takes both in one statement.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from roost.dialects.dialect import Control, Dialect, Exchange, Row, Statement, Template, Wanted
from roost.structures.cache.check import rules
from roost.structures.cache.declaration import NEVER, Cache, Item
from roost.structures.cache.play import MAKING, READ_VALUES, Held, play, stored
from roost.structures.cache.sql import FIND, LOCK, ONE_SET, OVER, PUT, READ, SWEEP, SWEPT
from roost.structures.cache.view import VIEWS
from roost.structures.cache.wire import CacheWire
from roost.structures.clock import Clock
from roost.structures.operation import Operation
from roost.structures.plan import (
    CUT,
    Context,
    Operations,
    Plan,
    Question,
    Rule,
    StructurePlan,
    Transaction,
    each,
    same,
    seizing,
    write,
)
from roost.types.column_types import ColumnType
from roost.types.columns import Column

UNTIL = Column("until", ColumnType("int"))
TOKEN = Column("token", ColumnType("int"))

SWEEPS = 2  # rows that are over and are removed, for each that is written
SWEEP_LEAST = 32  # and at least so many by a batch
MARIADB_BATCHES = 16  # of single sets, one goes by a batch, which removes what is over

WRITES = ("set", "set_many", "add", "replace", "cas", "touch", "increment", "decrement", "append", "prepend", "delete")


class CachePlan(StructurePlan):
    """A cache in one dialect's words."""

    wire = CacheWire

    structure: Cache[Any, Any]
    views = VIEWS
    together: ClassVar[Mapping[str, str]] = dict.fromkeys([*WRITES, "clear", "forget"], "change")

    def __init__(self, structure: Cache[Any, Any], dialect: Dialect) -> None:
        super().__init__(structure, dialect)
        key = structure.key.columns
        kept = Column("value", structure.value.type, nullable=True)  # NULL in a row that is made for its lock
        columns = (*key, kept, UNTIL, TOKEN)
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
            # For CUT, which takes a key and an id.
            "pairs": dialect.names(key),
            "equal_pair": equal,
            "same_pair": dialect.same(key, "q.", "r."),
            "pair_arrays": dialect.arrays(key),
        }
        some = "" if dialect.family == "mariadb" else f" WHERE until < {NEVER}"
        self.indexes = (f"roost_{structure.name}_until",)
        self.tables = (self.table, f"CREATE INDEX {self.indexes[0]} ON {rows} (until){some}", self.clock.table)
        self.read, self.put, self.cut = (dialect.choose(each).format(words) for each in (READ, PUT, CUT))
        find = dialect.choose(FIND)
        self.find_value = find.format({**words, "value": "value"})
        self.find = find.format({**words, "value": "NULL"})
        lock = dialect.choose(LOCK)
        self.lock = None if lock is None else lock.format(words)
        self.take = None if self.lock is None else each(f"SELECT 1 FROM {rows} WHERE {equal} FOR UPDATE")
        self.seize = seizing(dialect, rows, key)
        swept = dialect.choose(SWEPT).format(**words)
        sweep = dialect.choose(SWEEP).format(**words, over=OVER.format(**words, what=swept))
        self.sweep = (each if dialect.family == "mariadb" else write)(sweep.format(moment=hole))
        self._one_sweep = sweep.format(moment=self.clock.now)
        self.move = write(f"UPDATE {rows} SET until = {hole} WHERE {equal}")
        self.count = each(f"SELECT count(*) FROM {rows} WHERE until > {hole}")
        self.delete_all = Template(f"DELETE FROM {rows}")
        head, tail = f"SELECT {words['key']} FROM {rows} WHERE until > {hole}", f"ORDER BY {words['key']} LIMIT {hole}"
        self.first_keys = each(f"{head} {tail}")
        self.later_keys = each(f"{head} AND ({words['key']}) > ({words['key_holes']}) {tail}")
        self._value_out: Callable[[Row], Row] = dialect.encoder([structure.value]) or same
        self._value_in: Callable[[Row], Row] = dialect.decoder([structure.value]) or same
        self._timed = dialect.name == "sqlite"  # the store's clock is a parameter
        self._now = each(f"SELECT {self.clock.now}")
        one_set = ONE_SET.get(dialect.name, "")
        self._one_set = one_set.format(**words)
        self._one = self.asked_alone(
            "r.value, r.token", rows, f"{dialect.equal(key, 'r.')} AND r.until > {self.clock.now}"
        )
        self._one_found = self.asked_alone("r.value, r.until, r.token", rows, dialect.equal(key, "r."))

    def rules(self) -> Iterator[Rule]:
        """Return the invariants of its tables."""
        return rules(self)

    # --- reading --------------------------------------------------------------------------------------------------

    def _found(self, keys: Sequence[Row], context: Context) -> Generator[Wanted, Any, list[Any]]:
        # The value and the token of each key, none where there is none.
        asked: list[Row] = [self.key_out(key) for key in keys]
        if self._timed and asked:
            now = yield from self._moment(context)
            asked = [(now, *key) for key in asked]
        found = (yield Statement(self.read, asked)) if asked else []
        return [rows[0] if rows else None for rows in found]

    def _moment(self, context: Context) -> Generator[Wanted, Any, int]:
        # The present moment, for what only reads.
        found = yield Statement(self._now, [self.clock.row(context)])
        moment: int = found[0][0][0]
        return moment

    def _value(self, stored: Any) -> Any:
        return self._value_in((stored,))[0]

    def plan_get(self, run: Operations, context: Context, _: bool) -> Plan:
        """Look up keys."""
        found = yield from self._found([op.args[0] for op in run], context)
        return [None if row is None else self._value(row[0]) for row in found]

    def plan_gets(self, run: Operations, context: Context, _: bool) -> Plan:
        """Look up keys, with their tokens."""
        found = yield from self._found([op.args[0] for op in run], context)
        return [None if row is None else Item(self._value(row[0]), row[1]) for row in found]

    def plan_get_many(self, run: Operations, context: Context, _: bool) -> Plan:
        """Look up many keys."""
        found = iter((yield from self._found([key for op in run for key in op.args[0]], context)))
        value = self.structure.key.value
        results = []
        for op in run:
            rows = [(value(key), next(found)) for key in op.args[0]]
            results.append({key: self._value(row[0]) for key, row in rows if row is not None})
        return results

    def ask_get(self, op: Operation[Any], context: Context) -> Question:
        """Look up one key."""
        return Question(self._one, (*self.key_out(op.args[0]), *self.clock.row(context)), self._answer)

    def ask_gets(self, op: Operation[Any], context: Context) -> Question:
        """Look up one key, with its token."""
        return Question(self._one, (*self.key_out(op.args[0]), *self.clock.row(context)), self._item)

    def _answer(self, rows: list[Row]) -> Any:
        value = rows[0][0]
        return None if value is None else self._value(value)

    def _item(self, rows: list[Row]) -> Any:
        value, token = rows[0]
        return None if value is None else Item(self._value(value), token)

    def plan_keys(self, run: Operations, context: Context, __: bool) -> Plan:
        """List keys whose value is not over."""
        now = yield from self._moment(context)
        results = []
        for op in run:
            after, n = op.args
            if after is None:
                found = yield Statement(self.first_keys, [(now, n)])
            else:
                found = yield Statement(self.later_keys, [(now, *self.key_out(after), n)])
            results.append([self.key_value(row) for row in found[0]])
        return results

    # --- writing: one by itself -----------------------------------------------------------------------------------

    def transact_set(self, op: Operation[Any], context: Context) -> Transaction | None:
        """Store a value."""
        return None if self.clock.is_due(context) else self._set(op, context)

    def _set(self, op: Operation[Any], context: Context) -> Transaction:
        key, value, ttl = op.args
        now = self.clock.row(context)
        row = (*self.key_out(key), *self._value_out((value,)), *now, ttl, now[1])
        yield self._one_set, row
        yield self._one_sweep, (*now, SWEEPS)

    def exchange_set(self, op: Operation[Any], context: Context) -> Exchange | None:
        """Store a value."""
        if self.clock.is_due(context):
            return None
        if self.dialect.family == "mariadb" and not context.clock().microsecond % MARIADB_BATCHES:
            return None
        key, value, ttl = op.args
        stored = self.key_out(key)
        row = (*stored, *self._value_out((value,)), ttl)
        return Exchange(self._one_set, row if self.dialect.family == "mariadb" else (*row, *stored))

    # --- writing: batches -----------------------------------------------------------------------------------------

    def heads_of(self, op: Operation[Any]) -> Iterable[Row]:
        """Return the keys, as they are stored, that an operation locks."""
        return {self.key_out(key) for key, _ in self._keyed(op)}

    @staticmethod
    def _keyed(op: Operation[Any]) -> list[tuple[Row, Any]]:
        # The keys of an operation that writes, each with the value that it brings; of one that removes all, none.
        if op.verb == "set_many":
            return [(key, value) for key, value, _ in op.args]
        key, *rest = op.args
        return [] if key is None else [(key, rest[0] if rest else None)]

    def take_heads(self, operations: Operations, _: Context) -> Generator[Wanted, Any, bool]:
        """Make or lock the rows of keys that may get a value, and lock those of the others that are written."""
        made = {head for op in operations if op.verb in MAKING for head in self.heads_of(op)}
        taken = {head for op in operations if op.writes for head in self.heads_of(op)}
        if not taken:
            return False
        yield from self.make_or_take(made, taken, 0, 0)
        return True

    def plan_change(self, run: Operations, context: Context, locked: bool) -> Plan:
        """Run writes in their order; `clear()` of all keys cuts a run in two."""
        if not locked and all([op.verb in ("set", "set_many") for op in run]):
            return (yield from self._set_all(run, context))
        if not locked and self.lock is not None:
            locked = yield from self.take_heads(run, context)
        if not locked:
            yield Control.LOCKED
        now = yield from self.clock.read(context)
        results: list[Any] = []
        part: list[Operation[Any]] = []
        for op in run:
            if op.args[:1] == (None,):
                results += yield from self._played(part, now)
                part = []
                results.append((yield from self._clear_all(now)))
            else:
                part.append(op)
        results += yield from self._played(part, now)
        yield from self._sweep(len(run), now, context)
        return results

    def _set_all(self, run: Operations, context: Context) -> Plan:
        # The last value of each key, in key order.
        now = yield from self.clock.read(context)
        rows: dict[Row, Row] = {}
        for op in run:
            for key, value, ttl in op.args if op.verb == "set_many" else [op.args]:
                rows[self.key_out(key)] = stored(now, self._out(value), ttl, None)
        if rows:
            yield Statement(self.put, [key + row for key, row in sorted(rows.items(), key=_by_key)])
        yield Control.LOCKED
        yield from self._sweep(len(rows), now, context)
        return [None] * len(run)

    def _played(self, run: Operations, now: int) -> Plan:
        if not run:
            return []
        keyed = [[(self.key_out(key), value) for key, value in self._keyed(op)] for op in run]
        needing = {keys[0][0] for op, keys in zip(run, keyed, strict=True) if op.verb in READ_VALUES}
        asked = sorted({key for keys in keyed for key, _ in keys})
        before: dict[Row, Held | None] = {}
        for find, some in ((self.find_value, needing), (self.find, {*asked} - needing)):
            if some:
                those = sorted(some)
                found = yield Statement(find, those)
                before |= {key: Held(*rows[0]) if rows else None for key, rows in zip(those, found, strict=True)}
        have = {key: held if held is not None and held.until > now else None for key, held in before.items()}
        was = dict(have)
        put: set[Row] = set()
        results: list[Any] = []
        for op, keys in zip(run, keyed, strict=True):
            result: Any = None
            if op.verb == "set_many":
                for (key, value), (*_, ttl) in zip(keys, op.args, strict=True):
                    have[key] = stored(now, self._out(value), ttl, have[key])
                    put.add(key)
            else:
                ((key, value),) = keys
                held = have[key]
                brings = self._out(value) if op.verb in VALUED else None
                result, have[key] = play(self.structure, op, brings, now, held)
                if have[key] is not held and op.verb != "touch":
                    put.add(key)
            results.append(result)
        puts: list[Row] = []
        moves: list[Row] = []
        gone: list[Row] = []
        for key in asked:
            held, former = have[key], was[key]
            if held is None:
                if before[key] is not None:  # one that is over goes along
                    gone.append(key)
            elif key in put:
                puts.append(key + held)
            elif former is not None and held.until != former.until:
                moves.append((held.until, *key))
        if puts:
            yield Statement(self.put, puts)
        if moves:
            yield Statement(self.move, moves)
        if gone:
            yield Statement(self.cut, gone)
        return results

    def _out(self, value: Any) -> Any:
        return self._value_out((value,))[0]

    def _clear_all(self, now: int) -> Generator[Wanted, Any, int]:
        found = yield Statement(self.count, [(now,)])
        yield Statement(self.delete_all, [()])
        number: int = found[0][0][0]
        return number

    def _sweep(self, written: int, now: int, context: Context) -> Generator[Wanted, Any, None]:
        # Not in the application's own transaction on MariaDB: one at REPEATABLE READ would lock the gaps between them.
        if context.joined and self.dialect.family == "mariadb":
            return
        most = SWEEPS * written + SWEEP_LEAST
        found = yield Statement(self.sweep, [(now, most)])
        if self.dialect.family == "mariadb" and found[0]:
            yield Statement(self.cut, sorted(found[0]))


VALUED = frozenset(["set", "add", "replace", "cas", "append", "prepend"])  # verbs whose second argument is a value


def _by_key(item: tuple[Row, Row]) -> Row:
    return item[0]
