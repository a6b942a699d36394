"""RateLimit: how often a key may do something, by the generic cell rate algorithm in whole numbers.

A row has the time at which the whole limit is restored, the theoretical arrival time `tat`; its fraction of a
microsecond is counted in units of `1 / limit`, so an emission interval of `within / limit` is exact. The requests of a
key that are not yet restored are its debt, in the same unit: each request adds `within`, each microsecond subtracts
`limit`, and a debt above `limit * within` is refused. Concurrent requests can only increase a debt, so a refusal by a
plain read is final.

What reads need of the declaration is in the row of the structure's time, so they are right after an `alter`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar, overload

from roost.dialects.dialect import MOST_ANSWER, Dialect, Row, Statement, Template
from roost.errors import Invalid, StatementFailed, worded
from roost.structures.checks import RuleWords
from roost.structures.clock import MOST_REFUSED, SECOND, Seen, at_moment, duration, shown_now
from roost.structures.console import REQUIRED, Console, Table
from roost.structures.operation import Operation
from roost.structures.plan import Careful, Context, Facts, Locked, Operations, Plan, Question, Rule, Verb
from roost.structures.program import Answering, Ask, ProgramPlan, Write, first
from roost.structures.rules import sweep
from roost.structures.steps import INT, Do, Door, Give, Head, Leave, Let, Now, Program, Step, number
from roost.structures.structure import Group, Structure, column_facts, key_from
from roost.structures.views.read_only import read_only
from roost.structures.wire import Values, Wire
from roost.structures.words.words import Words
from roost.types.column_types import ColumnType, whole
from roost.types.columns import Column

K = TypeVar("K")

MOST = 2**62  # of limit times within: the computation adds two such products in 64 bits
STAYS = SECOND  # a row is kept that much longer than it is needed, so that it is not created again and again

PART, TAT, N = number("part"), number("tat"), number("n")
LIMIT, WITHIN = number("limit"), number("within")
ALLOWED, REMAINING, WAIT = number("allowed"), number("remaining"), number("wait")
RETRY_AFTER = Column("retry_after", ColumnType("float"))
RESERVED = frozenset(["part", "remaining", "restored", "retry_after", "tat"])  # columns beside the key's

_MICROSECOND = dt.timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Taken:
    """The result of `take`.

    allowed: whether the request is allowed; only then was it counted.
    remaining: how many more requests are allowed at once, now.
    retry_after: seconds after which the same `take` will be allowed, if nobody else takes any in the meantime; 0.0 if
        it was allowed.
    """

    allowed: bool
    remaining: int
    retry_after: float


class RateLimit(Structure, Generic[K]):
    """Limits how often each key may do something: at most `limit` times at once, then once every `within / limit`.

    name: lower-case identifier, at most 40 characters.
    key: the type of a key, as for `roost.Counter`.
    limit: how many requests a key that made none for `within` may make at once.
    within: the time in which the whole limit is restored, a timedelta or seconds.

    In any time t a key is allowed at most `limit + t * limit / within` requests, however many processes take at once.
    The algorithm is the generic cell rate algorithm (ITU-T I.371, annex A; for requests, see
    https://brandur.org/rate-limiting). Requests are restored evenly, one every `within / limit`, not all at the end of
    a window; so there is no edge of a window at which twice as many could pass. It is computed in whole numbers,
    without rounding, by the database's clock.

    A key has one row, which is deleted some time after the limit is fully restored: a bounded number of rows with each
    write. A read decides whether a request is refused; a refused request writes and locks nothing.

    >>> import roost
    >>> logins = roost.RateLimit("logins", limit=2, within=60)
    >>> with roost.Store("sqlite://") as store:
    ...     store.create(logins)
    ...     [store.run(logins.take("ada")).allowed for _ in range(3)]
    [True, True, False]
    """

    kind = "rate_limit"
    options = ("limit", "within")
    reads: ClassVar[tuple[str, ...]] = ("peek",)

    @overload
    def __init__(self: RateLimit[str], name: str, *, limit: int, within: dt.timedelta | float) -> None: ...
    @overload
    def __init__(
        self, name: str, *, key: type[K] | ColumnType[K], limit: int, within: dt.timedelta | float
    ) -> None: ...

    def __init__(self, name: str, *, key: Any = str, limit: int, within: dt.timedelta | float) -> None:
        super().__init__(name, Group.declared(name, "key", key))
        for column in self.key.columns:
            if column.name.lower() in RESERVED:
                raise Invalid(f"{name}: a column cannot be called {column.name!r}, which is a column of Roost's own")
        found = whole(limit, 1, MOST_ANSWER - 1)
        if found is None:
            raise Invalid(f"{name}: limit is a whole number from 1 on, not {limit!r}")
        self.limit = found
        self.microseconds = duration(f"{name}: within", within, MOST // found)
        self._define(
            {"name": name, "key": key, "limit": limit, "within": within},
            key=column_facts(self.key.columns),
            limit=self.limit,
            within=self.microseconds,
        )

    @property
    def within(self) -> dt.timedelta:
        """The time in which the whole limit is restored."""
        return self.microseconds * _MICROSECOND

    @within.setter
    def within(self, stored: int) -> None:  # of a declaration that follows the stored one
        self.microseconds = stored

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the key."""
        return self.key.columns

    def take(self, key: K, n: int = 1) -> Operation[Taken]:
        """Take `n` at once, 1 to `limit`; if fewer remain, take none."""
        found = whole(n, 1, self.limit)
        if found is None:
            raise Invalid(f"{self.name}: {n!r} cannot be taken at once; it is a whole number from 1 to {self.limit:,}")
        return Operation(self, "take", (self.key.check(key), found))

    def peek(self, key: K) -> Operation[Taken]:
        """Return what `take` of one would return, without taking it; `remaining` is how many there are now."""
        return Operation(self, "peek", (self.key.check(key),))

    def clear(self, key: K) -> Operation[int]:
        """Restore the key's whole limit; return 1 if some of it was still taken, else 0."""
        return super().clear(key)

    def keys(self, after: K | None = None, n: int = 100) -> Operation[list[K]]:
        """Read the first `n` keys after `after` that have taken some within `within`, in key order."""
        return super().keys(after, n)

    @classmethod
    def from_facts(cls, name: str, facts: dict[str, Any]) -> RateLimit[Any]:
        """Make the declaration from the facts of a definition."""
        key = key_from(name, "key", facts["key"])
        return cls(name, key=key, limit=facts["limit"], within=facts["within"] * _MICROSECOND)


class RateLimitPlan(ProgramPlan):
    """A rate limit in one dialect's words: one table, whose row is its own head."""

    structure: RateLimit[Any]
    expires = True

    def __init__(self, structure: RateLimit[Any], dialect: Dialect) -> None:
        self.limit, self.within = (
            f"{value}::bigint" if dialect.family == "postgresql" else str(value)
            for value in (structure.limit, structure.microseconds)
        )
        super().__init__(structure, dialect)

    def made(self) -> Iterator[str]:
        """Yield the statements that make its table and index; PostgreSQL leaves room for new versions of a row."""
        names = self.dialect.names(self.structure.key.columns)
        room = " WITH (fillfactor = 80)" if self.dialect.name == "postgresql" else ""
        yield self.create(self.rows_table, [*self.structure.key.columns, PART, TAT], names) + room
        self.indexes = (f"roost_{self.structure.name}_over",)
        yield f"CREATE INDEX {self.indexes[0]} ON {self.rows_table} (tat)"

    def timing(self) -> Mapping[Column, str]:
        """Return what reads need of the declaration, beside the structure's time."""
        return {LIMIT: str(self.structure.limit), WITHIN: str(self.structure.microseconds)}

    # --- programs -------------------------------------------------------------------------------------------------

    def _debt(self, row: Sequence[str], moment: str, limit: str, within: str) -> str:
        # A `tat` in the past counts as one microsecond ago, which keeps the product within 64 bits; one that lies
        # further ahead than possible, after the window was longer or a clock has jumped, as one window ahead.
        least, most = ("min", "max") if self.dialect.family == "sqlite" else ("LEAST", "GREATEST")
        part, tat = row
        ahead = f"{least}({most}({tat} - {moment}, {self._whole(-1)}), {within})"
        return f"{least}({most}({ahead} * {limit} + {part}, {self._whole(0)}), {limit} * {within})"

    def _whole(self, value: int) -> str:
        return f"({value})::bigint" if self.dialect.family == "postgresql" else str(value)

    def _divided(self, value: str, by: str) -> str:
        return f"({value}) {'DIV' if self.dialect.family == 'mariadb' else '/'} {by}"

    def _judged(self, debt: str, n: str, limit: str, within: str) -> tuple[str, str, str]:
        # Whether fewer than `n` remain; how many remain; and the microseconds until `n` will. For more than the limit
        # that is the time in which all of it is restored.
        cap = f"{limit} * {within}"
        least = "min" if self.dialect.family == "sqlite" else "LEAST"
        over = f"{debt} - {cap} + {least}({n}, {limit}) * {within}"
        refused = f"({n} > {limit} OR {debt} > {cap} - {n} * {within})"
        wait = self._divided(f"{over} + {limit} - {self._whole(1)}", limit)
        return refused, self._divided(f"{cap} - {debt}", within), wait

    def programs(self) -> Iterator[Program]:
        """Yield the programs."""
        key, gives = self.structure.key.columns, [ALLOWED, REMAINING, WAIT]
        seconds = "{wait}::double precision / 1000000::double precision"
        door = Door(
            refuses={f"{{n}} NOT BETWEEN 1 AND {self.structure.limit}": f"n is from 1 to {self.structure.limit}"},
            gives={
                Column("allowed", ColumnType("bool")): "{allowed} = 1",
                REMAINING: "{remaining}",
                RETRY_AFTER: seconds if self.dialect.family == "postgresql" else "{wait} / 1e6",
            },
        )
        yield Program(
            "take",
            [*key, N],
            self._taking,
            gives,
            before=self._found(True),
            tell=lambda before, _: before[:3] if before else (0, 0, 0),
            idle=_idle,
            door=door,
        )
        had = f"SELECT count(*) FROM {self.rows_table} WHERE {self.mine()} AND tat >= {self.now}"
        for verb in ("clear", "forget"):
            yield Program(verb, key, self._clearing, [number("had")], before=had)
        if self.dialect.row_locks:
            yield Program("peek", key, self._peeking, gives, door=Door(gives=door.gives))
            yield self.lock_program()
        yield sweep(key, TAT, STAYS)

    def _taking(self, w: Words) -> Iterator[Step]:
        limit, within, n = self.limit, self.within, w.new("n")
        moment = f"(SELECT {w.now} AS moment) m"
        seen = self._debt(("r.part", "r.tat"), "m.moment", limit, within)
        # Where time stands still, the program goes on, to mend it.
        sure = f"r.tat - m.moment <= {within} + {self._whole(SECOND)} AND NOT {w.stands}"
        plain = f"SELECT CASE WHEN {sure} THEN {seen} END"
        yield Let("seen", INT, f"{plain}\n  FROM {w.rows} r CROSS JOIN {moment} WHERE {w.mine((), 'r.')}")
        refused, remaining, wait = self._judged(w["seen"], n, limit, within)
        yield Leave(f"{w['seen']} IS NOT NULL AND {refused}", ["0", remaining, wait])
        yield Head([PART.name, TAT.name])
        yield Now()
        row = w[PART.name], w[TAT.name]
        yield Let("debt", INT, self._debt(row, w["now"], limit, within))
        refused, remaining, wait = self._judged(w["debt"], n, limit, within)
        beyond = f"{w[TAT.name]} - {w['now']} > {within} + {self._whole(SECOND)}"
        yield Do(
            f"UPDATE {w.rows} SET part = 0, tat = {w['now']} + {within} WHERE {w.mine()}",
            when=f"{beyond} AND {refused}",
        )
        yield Leave(refused, ["0", remaining, wait])
        debt = f"{w['debt']} + {n} * {within}"
        tat, part = self._divided(debt, limit), self.dialect.modulo.format(f"({debt})", limit)
        yield Do(f"UPDATE {w.rows} SET part = {part}, tat = {w['now']} + {tat} WHERE {w.mine()}")
        yield Give(["1", self._divided(f"{limit} * {within} - ({debt})", within), "0"])

    def _peeking(self, w: Words) -> Iterator[Step]:
        seen = self._debt(("r.part", "r.tat"), "m.moment", self.limit, self.within)
        source = f"{w.rows} r CROSS JOIN (SELECT {w.now} AS moment) m WHERE {w.mine((), 'r.')}"
        yield Let("debt", INT, f"SELECT COALESCE(MAX({seen}), 0) FROM {source}")
        refused, remaining, wait = self._judged(w["debt"], "1", self.limit, self.within)
        allowed, wait = (f"CASE WHEN {refused} THEN {one} ELSE {other} END" for one, other in (("0", "1"), (wait, "0")))
        yield Give([allowed, remaining, wait])

    def _clearing(self, w: Words) -> Iterator[Step]:
        yield Head([TAT.name], makes=False)
        yield Now()
        yield Let("had", INT, f"CASE WHEN {w[TAT.name]} >= {w['now']} THEN 1 ELSE 0 END")
        yield Do(f"DELETE FROM {w.rows} WHERE {w.mine()}")
        yield Give([w["had"]])

    # --- operations -----------------------------------------------------------------------------------------------

    def _found(self, takes: bool) -> str:
        # The query for what taking `n` answers, and whether a refusal by it alone is final. Without `takes`, what
        # remains is told as it is before.
        limit, within = (f"t.{self.dialect.name_of(each)}" for each in (LIMIT, WITHIN))
        most = "max" if self.dialect.family == "sqlite" else "GREATEST"
        clock = f"{self.clock} + t.ahead"
        debt = self._debt(("r.part", "r.tat"), "t.moment", "t.rate", "t.span")
        refused, remaining, wait = self._judged("e.debt", f":{N.name}", "e.rate", "e.span")
        taken = f"{remaining} - CASE WHEN {refused} THEN {self._whole(0)} ELSE :{N.name} END" if takes else remaining
        return (
            f"SELECT CASE WHEN {refused} THEN 0 ELSE 1 END AS allowed, {taken} AS remaining,\n"
            f"  {wait} AS wait, e.sure FROM (\n"
            f"  SELECT t.rate, t.span, CASE WHEN r.tat IS NULL THEN {self._whole(0)} ELSE {debt} END AS debt,\n"
            f"    CASE WHEN r.tat - t.moment <= t.span + {self._whole(SECOND)} AND t.late < {self._whole(SECOND)}"
            " THEN 1 ELSE 0 END AS sure\n"
            f"  FROM (SELECT {limit} AS rate, {within} AS span, {most}({clock}, t.latest) AS moment,\n"
            f"    t.latest - ({clock}) AS late FROM {self.words.times} t) t\n"
            f"    LEFT JOIN {self.rows_table} r ON {self.mine('r.')}) e"
        )

    def written(self) -> Mapping[str, Write]:
        """Return what the verbs that write call."""

        def answer(op: Operation[Any], context: Context) -> Answering:
            return "CASE WHEN {allowed} = 1 THEN {remaining} END", lambda remaining: Taken(True, remaining, 0.0)

        return {
            "take": Write("take", self._n_of, lambda _, outcomes: _taken(*outcomes[0]), answer=answer),
            "clear": Write("clear", self.key_of, first, makes=False),
            "forget": Write("forget", self.key_of, first, makes=False),
        }

    def _n_of(self, op: Operation[Any]) -> Sequence[Row]:
        return [(*self.key_out(op.args[0]), op.args[1] if op.verb == "take" else 1)]

    def asked(self) -> Mapping[str, Ask]:
        """Return what the verbs that only read ask."""
        given = [*self.structure.key.columns, N, *self.timed]
        peeked, self._take = (self.read(self._found(takes), given) for takes in (False, True))
        return {"peek": Ask(peeked, self._given, lambda _, found: _taken(*found[0][:3]))}

    def _given(self, op: Operation[Any], context: Context) -> Row:
        return (*self._n_of(op)[0], *self.moment(context))

    def verbs(self) -> dict[str, Verb]:
        """Return what lists keys, and a take's question; it is not asked of a server unless the key was refused."""
        if self.dialect.singles:
            self.questions["take"] = self._asking
        return {"keys": self.list_keys(self.rows_table, f"tat > {self.now}")}

    def _asking(self, op: Operation[Any], context: Context) -> Question | None:
        (row,) = self._n_of(op)
        if self.dialect.row_locks and self._refused_lately(context).pop(row[:-1], 1) is not None:
            return None

        def refused(_: Operation[Any], found: list[Row]) -> Taken:
            if not found or not _idle(found[0]):
                raise Careful
            self._remember(op, context)
            return _taken(*found[0][:3])

        return self._question(Ask(self._take, self._given, refused), op, context)

    def _refused_lately(self, context: Context) -> dict[Row, None]:
        return context.seen.setdefault(self.structure.name, Seen()).refused

    def _remember(self, op: Operation[Any], context: Context) -> None:
        refused = self._refused_lately(context)
        if len(refused) >= MOST_REFUSED:
            refused.clear()
        refused[self.key_out(op.args[0])] = None

    def _writes(self, write: Write, run: Operations, context: Context, locked: Locked) -> Plan:
        results = yield from super()._writes(write, run, context, locked)
        for op, taken in zip(run, results, strict=True):
            if op.verb == "take" and not taken.allowed:
                self._remember(op, context)
        return results

    # --- check and alter ------------------------------------------------------------------------------------------

    def rules(self) -> Iterator[Rule]:
        """Yield what `check` verifies: a row has a moment, and a part of a microsecond in units of the limit."""
        words = RuleWords(self)
        yield (
            "tat",
            f"SELECT {words.r_key}, {words.message('tat ? and part ? are no moment', 'r.tat', 'r.part')}\n"
            f"  FROM {words.rows} r WHERE r.tat < 0 OR r.part NOT BETWEEN 0 AND {self.structure.limit - 1}",
        )


def _idle(found: Sequence[Any]) -> bool:
    allowed, _, _, sure = found
    return bool(sure) and not allowed


def _taken(allowed: int, remaining: int, wait: int) -> Taken:
    return Taken(bool(allowed), max(int(remaining), 0), 0.0 if allowed else int(wait) / SECOND)


def _change(plan: RateLimitPlan, _: Facts, new: Facts) -> Generator[Statement, Any, None]:
    # Rounds the moments up to whole microseconds: their parts were counted by the old limit.
    name_of = plan.dialect.name_of
    yield Statement(Template(f"UPDATE {plan.rows_table} SET tat = tat + 1, part = 0 WHERE part > 0"), [()])
    facts = f"{name_of(LIMIT)} = {new['limit']}, {name_of(WITHIN)} = {new['within']}"
    yield Statement(Template(f"UPDATE {plan.words.times} SET {facts}"), [()])


# --- SQL, HandlerSocket, the command line --------------------------------------------------------------------------


def _shown(plan: Any) -> str:
    # The key, how many remain, and when all are there again. As in the plan, but that only what is not over is shown.
    debt = plan._debt(("r.part", "r.tat"), "m.moment", plan.limit, plan.within)
    remaining = plan._divided(f"{plan.limit} * {plan.within} - {debt}", plan.within)
    return (
        f"SELECT {plan.dialect.names(plan.structure.key.columns, 'r.')}, {remaining} AS remaining,"
        f" {at_moment(plan.dialect, 'r.tat')} AS restored\n"
        f"  FROM {plan.rows_table} r CROSS JOIN (SELECT {shown_now(plan)} AS moment) m WHERE r.tat > m.moment"
    )


def _delete(plan: Any, which: str) -> str:
    return f"DELETE FROM {plan.rows_table} WHERE {which}"


class RateLimitWire(Wire):
    """Every key has a row: how many remain, and the seconds until one more does."""

    more = (REMAINING, RETRY_AFTER)

    def reading(self, head: Any, id_: Values, n: int) -> Operation[Any]:
        """Ask for what remains."""
        return self.structure.peek(head)  # type: ignore[no-any-return]

    def rows(self, key: Values, found: Any) -> list[Values]:
        """Return the key with what remains."""
        return [(*key, found.remaining, found.retry_after)]

    def insert(self, head: Any, row: Values, given: dict[str, Any]) -> Operation[Any]:
        """Refuse: a client needs to know whether its request was allowed, and an insert cannot report that."""
        raise worded(StatementFailed(f"{self.structure.name} takes no insert"), "notimpl", 2)


class RateLimitConsole(Console[RateLimit[Any]]):
    """Keys with what remains to them; nothing can be imported."""

    takes: ClassVar[Mapping[str, Any]] = {"key": (), "limit": REQUIRED, "within": REQUIRED}
    changes = ("limit", "within")
    headers = (REMAINING.name, RETRY_AFTER.name)

    @classmethod
    def facts(cls, name: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the time in microseconds."""
        return {"within": given["within"] * SECOND}

    def summaries(self, keys: Sequence[Any]) -> Sequence[Operation[Any]]:
        """Return an operation for each key."""
        return [self.structure.peek(key) for key in keys]

    def summary(self, keys: Sequence[Any], results: Sequence[Any]) -> Table:
        """Return what remains to each key."""
        rows = [(found.remaining, found.retry_after) for found in results]
        return Table(self.headers, rows, [dict(zip(self.headers, row, strict=True)) for row in rows])

    def contents(self, key: Any, n: int | None) -> Operation[Any]:
        """Return the operation that reads what remains."""
        return self.structure.peek(key)

    def content(self, found: Any, n: int | None) -> Table:
        """Return what remains."""
        table = self.summary([None], [found])
        return table._replace(document=table.document[0])


RateLimitPlan.wire = RateLimitWire
RateLimitPlan.alterations = {"limit": _change, "within": _change}
RateLimitPlan.views = read_only(
    _shown, _delete, "a rate limit is taken from by take(), not by SQL; DELETE lets a key take all again"
)
