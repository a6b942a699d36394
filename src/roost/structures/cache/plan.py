"""A cache's tables and verbs. A batch of different verbs is one text, in which each key's own stay in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from roost.dialects.dialect import Dialect, Row, Statement, Template, Wanted, execute, query
from roost.errors import Error, Full, Invalid, Overflow, worded
from roost.structures.cache.bounds import BOUNDS, BYTES, FIXED, ID, LOW, SIZE, USED, change_bounds
from roost.structures.cache.declaration import FLAGS_MAX, KEEP, NEVER, PLAIN, STALE, TEXTS, WON, Cache, CacheWire
from roost.structures.cache.programs import (
    BEYOND,
    CHANGED,
    FLAGS,
    LEASED,
    MARKED,
    MISSING,
    MODES,
    NO_NUMBER,
    STORED,
    THERE,
    TOKEN,
    TOO_LONG,
    CachePrograms,
    number_of,
)
from roost.structures.cache.reads import SLACK, CacheReads, left_of
from roost.structures.cache.relation import CACHE_RELATION
from roost.structures.operation import Operation, first
from roost.structures.plan import SEQUENCE, Context, N, Operations, Plan, Rule, Verb, same, seizing
from roost.structures.program import Calling, Write
from roost.structures.relation import ByDatabase
from roost.structures.rules import DUE, UNTIL, rule
from roost.structures.steps import FULL, Program
from roost.types.columns import Column

MOST_NOTED = 64  # uses that one batch writes down
LEASING = frozenset(["lease", "release"])
META = frozenset(["meta_get", "meta_set", "meta_delete", "meta_arithmetic"])
SAID = {MISSING: b"NF", STORED: b"HD", THERE: b"NS", CHANGED: b"EX", MARKED: b"HD"}


class CachePlan(CacheReads):
    """A cache in one dialect's words."""

    structure: Cache[Any, Any]
    alterations = dict.fromkeys(BOUNDS, change_bounds)
    wire = CacheWire
    expires = True

    def __init__(self, structure: Cache[Any, Any], dialect: Dialect) -> None:
        # The indexed column by which a sweep finds expired rows.
        self.expiry = DUE.name if dialect.is_server and not structure.bounded else "until"
        self._value_out = dialect.encoder([structure.value]) or same
        self._value_in = dialect.decoder([structure.value]) or same
        super().__init__(structure, dialect)
        key = structure.key.columns
        bounded, table = structure.bounded, self.head_table if structure.bounded else self.rows_table
        self.seize = seizing(dialect, table, [ID] if bounded else key)
        self.apart = 0 if bounded else self.key_width
        self.together = {verb: verb if verb in LEASING else "change" for verb in self.writes}
        self._verbs |= {verb: self._change for verb, run in self.together.items() if run == "change"}
        for verb in ("lease", "set_many", *META):  # their outcomes are no small numbers
            self.transactions.pop(verb, None)

    def made(self) -> Iterator[str]:
        structure, name, dialect = self.structure, self.structure.name, self.dialect
        key, names = structure.key.columns, dialect.names(structure.key.columns)
        value = Column("value", structure.value.type, nullable=True)  # none in a row that was made to be locked
        used = [USED, SIZE] if structure.bounded else [DUE] if self.expiry == DUE.name else []
        for table, more in (
            (self.rows_table, [value, UNTIL, TOKEN, FLAGS, *used]),
            (f"roost_{name}_leases", [UNTIL, TOKEN]),
        ):
            yield self.create(table, [*key, *more], names, 80).replace(", WITHOUT ROWID", "")  # values may be long
        some = "" if dialect.family == "mariadb" else f" WHERE {self.expiry} < {NEVER}"
        yield self.index("over", f"{self.expiry}{f', {names}' if structure.bounded else ''}", some)
        yield self.index(LEASED, "until", table=f"roost_{name}_leases")
        if structure.bounded:
            yield self.index("used", "used")
            head = [ID, N, BYTES, SEQUENCE, LOW]
            yield self.create(self.head_table, head, "id")
            yield f"INSERT INTO {self.head_table} ({dialect.names(head)}) VALUES (0, 0, 0, 0, 0)"

    def programs(self) -> Iterator[Program]:
        return CachePrograms(self).programs()

    # --- what the verbs call ------------------------------------------------------------------------------------------

    def _out(self, value: Any) -> Any:
        return self._value_out((value,))[0]

    def written(self) -> Mapping[str, Write]:
        out, value, digits = self.key_out, self._out, self.structure.value.type.kind in TEXTS

        def given(op: Operation[Any]) -> Sequence[Row]:
            rows = op.args if op.verb == "set_many" else [op.args]
            return [(*out(key), value(content), *rest) for key, content, *rest in rows]

        def fits(op: Operation[Any], outcomes: Sequence[Any]) -> Error | None:
            return self._refusal(op, FULL) if FULL in outcomes else None

        def stored(op: Operation[Any]) -> Sequence[Row]:
            key, content, *rest = op.args
            ttl, flags = rest[:2] if rest else (None, 0)
            return [(*out(key), value(content), ttl, flags, MODES[op.verb], rest[2] if op.verb == "cas" else None, 0)]

        def meta_set(op: Operation[Any]) -> Sequence[Row]:
            key, content, ttl, flags, mode, token, marks = op.args
            return [(*out(key), value(content), ttl, flags, MODES[mode], token, int(marks))]

        def counted(op: Operation[Any]) -> Sequence[Row]:
            key, n, sign, token, ttl = (*op.args, 1 if op.verb == "increment" else -1, None, KEEP)[:5]
            return [(*out(key), str(n) if digits else sign * n, sign, token, ttl)]

        def removed(op: Operation[Any]) -> Sequence[Row]:
            return [] if op.args[0] is None else [(*out(op.args[0]), None, 0, KEEP)]

        def plain(op: Operation[Any]) -> Sequence[Row]:
            key, *rest = op.args
            return [(*out(key), *(int(each) if isinstance(each, bool) else each for each in rest))]

        def touched(op: Operation[Any]) -> Sequence[Row]:
            key, ttl = op.args
            return [(*out(key), ttl, (ttl or 0) // SLACK)]

        def is_stored(op: Operation[Any], outcomes: Sequence[Any]) -> Any:
            outcome = _first(outcomes)
            return outcome == STORED if outcome >= 0 else self._refusal(op, outcome)

        def peeked(op: Operation[Any]) -> Sequence[Row]:
            key, ttl, _, recached = op.args
            return [(*out(key), ttl, recached)]

        return {
            **dict.fromkeys(("set", "set_many"), Write("set", given, fits)),
            "add": Write("store", stored, is_stored),
            **dict.fromkeys(("replace", "append", "prepend"), Write("store", stored, is_stored, makes=False)),
            "cas": Write("store", stored, self._compared, makes=False),
            "meta_set": Write("store", meta_set, self._meta_stored),
            **dict.fromkeys(("increment", "decrement"), Write("count", counted, self._number, makes=False)),
            "meta_arithmetic": Write("count", counted, self._meta_counted, makes=False),
            "touch": Write("touch", touched, is_stored, makes=False),
            "meta_get": Write("peek", peeked, self._peeked, makes=False),
            "delete": Write("remove", removed, is_stored, makes=False),
            "meta_delete": Write("remove", plain, lambda _, outcomes: SAID[_first(outcomes)], makes=False),
            **dict.fromkeys(("clear", "forget"), Write("remove", removed, first, makes=False)),
            "lease": Write("lease", plain, lambda _, outcomes: _first(outcomes) or None),
            "release": Write("release", plain, is_stored),
        }

    def _refusal(self, op: Operation[Any], outcome: int) -> Error:
        spec = self.structure.value.spec
        match outcome:
            case _ if outcome == FULL:
                return Full(f"{op!r}: a value would have more than max_bytes")
            case _ if outcome == TOO_LONG and op.verb in ("append", "prepend", "meta_set"):
                return worded(Invalid(f"{op!r}: the value would be longer than {spec}"), "toobig")
            case _ if outcome == TOO_LONG:
                return Invalid(f"{op!r}: the number would be longer than {spec}")
            case _ if outcome == NO_NUMBER:
                return Invalid(f"{op!r}: the value is no number in decimal digits below 2^64")
        assert outcome == BEYOND
        return Overflow(f"{op!r}: the sum would leave 64 bits")

    def _compared(self, op: Operation[Any], outcomes: Sequence[Any]) -> Any:
        outcome = _first(outcomes)
        return {MISSING: None, STORED: True, CHANGED: False}[outcome] if outcome >= 0 else self._refusal(op, outcome)

    def _meta_stored(self, op: Operation[Any], outcomes: Sequence[Any]) -> Any:
        ((outcome, token),) = map(_pair, outcomes)
        if outcome < 0:
            return self._refusal(op, outcome)
        return SAID[outcome], token if outcome in (STORED, MARKED) else 0

    def _number(self, op: Operation[Any], outcomes: Sequence[Any]) -> Any:
        outcome = _first(outcomes)
        return self._refusal(op, int(outcome)) if outcome in (FULL, TOO_LONG, NO_NUMBER, BEYOND) else number_of(outcome)

    def _meta_counted(self, op: Operation[Any], outcomes: Sequence[Any]) -> Any:
        result = self._number(op, outcomes)
        if isinstance(result, Error):
            return result
        _, token, left = outcomes[0]
        if result is None:
            return b"EX" if token == -1 else b"NF", 0, 0, None
        return b"HD", result, token, left_of(left)

    def _peeked(self, op: Operation[Any], outcomes: Sequence[Any]) -> Any:
        # The result: the stored value, the token, the remaining time, the flags, and the marks of the answer.
        found, value, token, left, was, flags = outcomes[0]
        if not found:
            return None
        marks = b""
        if op.args[3] != PLAIN:
            marks = b" Z" * bool(was & WON) + b" X" * bool(was & STALE) + b" W" * bool(flags & ~was & WON)
        return value, token, left_of(left), flags & FLAGS_MAX, marks

    # --- batches ------------------------------------------------------------------------------------------------------

    def heads_of(self, op: Operation[Any]) -> Iterable[Row]:
        return {()} if self.structure.bounded and op.verb not in LEASING else super().heads_of(op)

    def seized(self, operations: Operations) -> list[Row]:
        writing = [op for op in operations if op.writes and op.verb not in LEASING]
        if self.structure.bounded:
            return [(0,)] if writing else []
        return super().seized(writing)

    def _makes(self, op: Operation[Any]) -> bool:
        return op.args[4] in "SE" and op.args[5] is None if op.verb == "meta_set" else super()._makes(op)

    def locks(self, operations: Operations, context: Context) -> list[Row]:
        """A key that several of them write is made, so that nobody comes between them: there is no head to lock."""
        written = [op for op in operations if op.writes and op.verb not in LEASING]  # a lease has a row of its own
        writes = Counter(key for op in written for key in self.heads_of(op))
        return [(*key, max(makes, int(writes[tuple(key)] > 1))) for *key, makes in super().locks(operations, context)]

    def verbs(self) -> dict[str, Verb]:
        self.make_reads()
        return {
            "get": self._gets,
            "gets": self._gets,
            "get_many": self._gets,
            "gets_many": self._gets,
            "fetch": self._gets,
            "change": self._change,
        }

    @property
    def listed(self) -> str:
        return f"until > {self.now}"

    def _single(self, write: Write, op: Operation[Any], context: Context) -> Any:
        return None if context.used.get(self.structure.name) else super()._single(write, op, context)

    def call(self, verb: str, rows: Sequence[Row], context: Context) -> Calling:
        if self.structure.bounded and verb not in LEASING and not self._by_store:
            return (yield from self.call_each(verb, rows))
        return (yield from super().call(verb, rows, context))

    def placed(self, rows: Sequence[Row]) -> Sequence[Row] | None:
        return rows if len(rows) > 1 else None  # a long one: as JSON in hexadecimal a packet may be too small for it

    def _change(self, run: Operations, context: Context) -> Plan:
        # Runs writes in their order; `clear()` of all keys splits a run in two.
        notes = context.used.get(self.structure.name)
        if notes and not context.joined:
            taken = list(notes)[:MOST_NOTED]
            for key in taken:
                notes.pop(key, None)
            yield from self.call("use", taken, context)
        results: list[Any] = []
        for of_all, part in groupby(run, lambda op: op.args[:1] == (None,)):
            if of_all:
                for _ in part:
                    results.append((yield from self._clear_all(context)))
            else:
                results += yield from self._changed(list(part), context)
        return results

    def _changed(self, run: Operations, context: Context) -> Plan:
        programs = {self.writes[op.verb].program for op in run}
        if any([_vivifies(op) or (self._by_store and op.verb == "meta_set") for op in run]):
            results = []
            for op in run:
                results.append((yield from self._by_itself_in(op, context)))
            return results
        if programs == {"set"}:
            return (yield from self._set_all(run, context))
        return (yield from self._writes(run, context))

    def _set_all(self, run: Operations, context: Context) -> Plan:
        # The last value of each key.
        rows: dict[Row, Row] = {}
        for op in run:
            for row in self.writes[op.verb].rows(op):
                rows.pop(row[: self.key_width], None)  # the last one is the use
                rows[row[: self.key_width]] = row
        bounded, most = self.structure.bounded, self.structure.max_bytes
        largest = max([self._size(row) for row in rows.values()], default=0) if bounded else 0
        if bounded and (context.careful or (most is not None and largest > most)):
            return (yield from self._writes(run, context))
        if len(rows) > 1 and self._by_store:
            yield from self.put_all([*rows.values()], context)
        elif len(rows) > 1 and not context.joined:
            keys = [*rows] if bounded else sorted(rows)
            yield from self.call_all(self._programs["set_all"], [rows[key] for key in keys])
        elif rows and FULL in (yield from self.call("set", [*rows.values()], context)):
            return (yield from self._writes(run, context))
        if bounded and len(rows) > 1:
            yield from self.fits(largest)
        return [None] * len(run)

    def _size(self, row: Row) -> int:
        # As the programs count it.
        size = 0
        for column, value in zip(self.structure.columns, row, strict=False):
            if column.type.kind not in TEXTS:
                size += FIXED
            else:
                size += len(value.encode() if isinstance(value, str) else value)
        return size

    def _by_itself_in(self, op: Operation[Any], context: Context) -> Generator[Wanted, Any, Any]:
        # One operation of a batch. One that may make a value makes it, or does to it what the operation does to others.
        if _vivifies(op):
            empty: Any = b"" if self.structure.value.type.kind == "binary" else ""
            if op.verb == "meta_get":
                key, ttl, vivified, _ = op.args
                value, flags = empty, WON
            else:
                key, _, _, _, ttl, vivified, number = op.args
                value, flags = str(number).encode() if isinstance(empty, bytes) else str(number), 0
            until = vivified if ttl == KEEP else ttl
            row = (*self.key_out(key), value, until, flags, MODES["add"], None, 0)
            (outcome,) = yield from self.call("store", [row], context)
            if _pair(outcome)[0] == STORED:
                token = yield from self._token(op, outcome)
                return (value, token, until, 0, b" W") if op.verb == "meta_get" else (b"HD", number, token, until)
        (result,) = yield from self._writes([op], context)
        if self._by_store and op.verb == "meta_set" and isinstance(result, tuple) and result[0] == b"HD":
            return b"HD", (yield from self._token(op, result))
        return result

    def _token(self, op: Operation[Any], outcome: Any) -> Generator[Wanted, Any, int]:
        # The token of the value that was stored just now; a trigger gives none.
        if not self._by_store:
            return int(outcome[1])
        (rows,) = yield self._tokens.alone(self.key_out(op.args[0]))
        return int(rows[0][0])

    def _clear_all(self, context: Context) -> Generator[Wanted, Any, int]:
        # It waits for nobody's lock, since it would hold all the others meanwhile.
        if self.structure.bounded:
            yield Statement(query(f"SELECT n FROM {self.head_table} WHERE id = 0{self.dialect.for_update}"), [()])
        read, delete = (self._count, Template(f"DELETE FROM {self.rows_table}"))
        if not context.joined:
            read, delete = self._count_now, self._delete_now
        found = yield read.alone(self.moment(context))
        yield Statement(delete, [()])
        if self.structure.bounded:
            yield execute(f"UPDATE {self.head_table} SET n = 0, bytes = 0 WHERE id = 0")
        number: int = found[0][0][0]
        return number

    def relation(self) -> ByDatabase:
        return CACHE_RELATION

    def expired(self) -> tuple[str, str]:
        # The index has `due` where there is one, and only values that expire.
        ends = {"until": None, self.expiry: None}
        return self.rows_table, " AND ".join(f"{each} <= {self.now} AND {each} < {NEVER}" for each in ends)

    # --- check and alter ----------------------------------------------------------------------------------------------

    def rules(self) -> Iterator[Rule]:
        if self.structure.bounded:
            nulls = ", ".join(["NULL"] * self.key_width)
            said = "the head says ? values of ? bytes, there are ? of ?", "h.n", "h.bytes", "q.n", "q.b"
            yield (
                "count",
                f"SELECT {nulls}, {self.dialect.message(*said)} FROM {self.head_table} h,\n"
                f"    (SELECT count(*) AS n, coalesce(sum(size), 0) AS b FROM {self.rows_table}) q\n"
                f"  WHERE h.n <> q.n OR h.bytes <> q.b",
            )
        beyond = f"r.flags NOT BETWEEN 0 AND {4 * FLAGS_MAX + 3}"
        yield rule(self, "flags", "flags are ?", "r.flags", where=beyond)
        if self.expiry == DUE.name:
            yield rule(self, "due", "due at ?, the end is ?", "r.due", "r.until", where="r.due > r.until")
        # A key that was made to be locked ends at 0.
        yield rule(self, "value", "no value, with the end ?", "r.until", where="r.value IS NULL AND r.until <> 0")


def _vivifies(op: Operation[Any]) -> bool:
    place = {"meta_get": 2, "meta_arithmetic": 5}.get(op.verb)
    return place is not None and op.args[place] != KEEP


def _first(outcomes: Sequence[Any]) -> Any:
    # The outcome of an operation's only row; of several columns, the first.
    return _pair(outcomes[0])[0]


def _pair(outcome: Any) -> tuple[Any, ...]:
    return outcome if isinstance(outcome, tuple) else (outcome, 0)
