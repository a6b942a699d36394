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
from functools import partial
from typing import Any, ClassVar, Self

from roost.dialects.dialect import MOST_ANSWER, Dialect, Row, Statement, execute
from roost.structures.clock import SECOND, at_moment, duration
from roost.structures.console import REQUIRED, PeekConsole
from roost.structures.operation import Operation
from roost.structures.plan import Context, Facts, Rule
from roost.structures.program import Answering, Calling, Write
from roost.structures.reading import Ask
from roost.structures.refusing import RefusingPlan
from roost.structures.relation import ReadOnly
from roost.structures.rules import DUE, due_with, rule, sweep
from roost.structures.steps import OUTCOMES, Do, Door, Give, Head, Leave, Let, Now, Program, Step, number
from roost.structures.structure import Group, Key, Structure, column_facts
from roost.structures.wire import Wire
from roost.structures.words.words import Words
from roost.types.column_types import ColumnType, checked_whole
from roost.types.columns import Column

MOST = 2**62  # of limit times within: the computation adds two such products in 64 bits
STAYS = SECOND  # a row is kept that much longer than it is needed, so that it is not created again and again

PART, TAT, N = number("part"), number("tat"), number("n")
LIMIT, WITHIN = number("limit"), number("within")
ALLOWED, REMAINING, WAIT = number("allowed"), number("remaining"), number("wait")
RETRY_AFTER = Column("retry_after", ColumnType("float"))
RESERVED = frozenset(["due", "part", "remaining", "restored", "retry_after", "tat"])  # columns beside the key's


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


class RateLimit(Structure[Key]):
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

    def __init__(
        self,
        name: str,
        *,
        key: type[Key] | ColumnType[Key] = str,  # type: ignore[assignment]
        limit: int,
        within: dt.timedelta | float,
    ) -> None:
        super().__init__(name, Group.declared(name, "key", key), RESERVED)
        self.limit = checked_whole(f"{name}: limit is a whole number from 1 on", limit, 1, MOST_ANSWER - 1)
        self.microseconds = duration(f"{name}: within", within, MOST // self.limit)
        self._define(
            {"name": name, "key": key, "limit": limit, "within": within},
            key=column_facts(self.key.columns),
            limit=self.limit,
            within=self.microseconds,
        )

    @property
    def within(self) -> dt.timedelta:
        """The time in which the whole limit is restored."""
        return dt.timedelta(microseconds=self.microseconds)

    @within.setter
    def within(self, stored: int) -> None:  # of a declaration that follows the stored one
        self.microseconds = stored

    def take(self, key: Key, n: int = 1) -> Operation[Taken]:
        """Take `n` at once, 1 to `limit`; if fewer remain, take none."""
        what = f"{self.name}: what is taken at once is a whole number from 1 to {self.limit:,}"
        return Operation(self, "take", (self.key.check(key), checked_whole(what, n, 1, self.limit)))

    def peek(self, key: Key) -> Operation[Taken]:
        """Return what `take` of one would return, without taking it; `remaining` is how many there are now."""
        return Operation(self, "peek", (self.key.check(key),))

    @classmethod
    def from_facts(cls, name: str, facts: dict[str, Any]) -> Self:
        """Make the declaration from the facts of a definition."""
        return super().from_facts(name, {**facts, "within": dt.timedelta(microseconds=facts["within"])})


def _change(plan: RateLimitPlan, _: Facts, new: Facts) -> Generator[Statement, Any, None]:
    # Rounds the moments up to whole microseconds: their parts were counted by the old limit.
    name_of = plan.dialect.name_of
    yield execute(f"UPDATE {plan.rows_table} SET tat = tat + 1, part = 0 WHERE part > 0")
    facts = f"{name_of(LIMIT)} = {new['limit']}, {name_of(WITHIN)} = {new['within']}"
    yield execute(f"UPDATE {plan.words.times} SET {facts}")


def _shown(plan: Any) -> str:
    # The key, how many remain, and when all are there again. As in the plan, but that only what is not over is shown.
    debt = plan.debt(("r.part", "r.tat"), "m.moment", plan.limit, plan.within)
    remaining = plan.words.divided(f"{plan.limit} * {plan.within} - {debt}", plan.within)
    if plan.dialect.name == "sqlite":
        remaining = f"CAST({remaining} AS INTEGER)"  # an expression has no type there: to a text every number is less
    return (
        f"SELECT {plan.dialect.names(plan.structure.key.columns, 'r.')}, {remaining} AS remaining,"
        f" {at_moment(plan.dialect, 'r.tat')} AS restored\n"
        f"  FROM {plan.rows_table} r CROSS JOIN (SELECT {plan.shown_now} AS moment) m WHERE r.tat > m.moment"
    )


class RateLimitWire(Wire):
    """Every key has a row: how many remain, and the seconds until one more does."""

    of_key = "peek"
    more = (REMAINING, RETRY_AFTER)


class RateLimitPlan(RefusingPlan):
    """A rate limit in one dialect's words: one table, whose row is its own head."""

    structure: RateLimit[Any]
    wire = RateLimitWire
    alterations: ClassVar[Any] = {"limit": _change, "within": _change}
    expires = True

    def __init__(self, structure: RateLimit[Any], dialect: Dialect) -> None:
        self.limit, self.within = (
            f"{value}::bigint" if dialect.family == "postgresql" else str(value)
            for value in (structure.limit, structure.microseconds)
        )
        self.expiry = DUE.name if dialect.is_server else TAT.name
        super().__init__(structure, dialect)

    def made(self) -> Iterator[str]:
        key = self.structure.key.columns
        due = [DUE] if self.expiry == DUE.name else []
        yield self.create(self.rows_table, [*key, PART, TAT, *due], self.dialect.names(key), 80)
        yield self.index("over", self.expiry)

    def timing(self) -> Mapping[Column, str]:
        return {LIMIT: str(self.structure.limit), WITHIN: str(self.structure.microseconds)}

    # --- programs -------------------------------------------------------------------------------------------------

    def debt(self, row: Sequence[str], moment: str, limit: str, within: str) -> str:
        """Return the expression of the debt at a moment of a row: its `part` and its `tat`."""
        # A `tat` in the past counts as one microsecond ago, which keeps the product within 64 bits; one that lies
        # further ahead than possible, after the window was longer or a clock has jumped, as one window ahead.
        w, (part, tat) = self.words, row
        ahead = f"{w.least}({w.greatest}({tat} - {moment}, {w.whole(-1)}), {within})"
        return f"{w.least}({w.greatest}({ahead} * {limit} + {part}, {w.whole(0)}), {limit} * {within})"

    def _judged(self, debt: str, n: str, limit: str, within: str) -> tuple[str, str, str]:
        # Whether fewer than `n` remain; how many remain; and the microseconds until `n` will. For more than the limit
        # that is the time in which all of it is restored.
        cap = f"{limit} * {within}"
        over = f"{debt} - {cap} + {self.words.least}({n}, {limit}) * {within}"
        refused = f"({n} > {limit} OR {debt} > {cap} - {n} * {within})"
        wait = self.words.divided(f"{over} + {limit} - {self.words.whole(1)}", limit)
        return refused, self.words.divided(f"{cap} - {debt}", within), wait

    def programs(self) -> Iterator[Program]:
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
        before = self._found().replace("SELECT ", f"SELECT :{N.name}, ", 1)
        if self.dialect.is_server:
            before = ""
        yield Program(
            "take",
            [*key, N],
            self._taking,
            gives,
            before=before,
            tell=lambda found, _: _judged_by(found)[0],
            idle=_idle,
            door=door,
        )
        had = f"SELECT count(*) FROM {self.rows_table} WHERE {self.mine()} AND tat >= {self.now}"
        for verb in ("clear", "forget"):
            yield Program(verb, key, self._clearing, [number("had")], before=had)
        if self.dialect.is_server:
            yield Program("peek", key, self._peeking, gives, door=Door(gives=door.gives))
            yield self.lock_program()
            told = [REMAINING] if self.dialect.family == "postgresql" else [Column("told", OUTCOMES)]
            yield Program("take_all", [*key, N], partial(taking_all, self), told, many=True)
        yield sweep(key, TAT, STAYS, due=self.expiry == DUE.name)

    def _taking(self, w: Words) -> Iterator[Step]:
        limit, within, n = self.limit, self.within, w.new("n")
        if not w.loops:
            yield from self._taking_on_file(w, n)
            return
        moment = f"(SELECT {w.now} AS moment) m"
        seen = self.debt(("r.part", "r.tat"), "m.moment", limit, within)
        # Where time stands still, the program goes on, to mend it.
        sure = f"r.tat - m.moment <= {within} + {self.words.whole(SECOND)} AND NOT {w.stands}"
        plain = f"SELECT CASE WHEN {sure} THEN {seen} END"
        yield Let("seen", f"{plain}\n  FROM {w.rows} r CROSS JOIN {moment} WHERE {w.mine((), 'r.')}")
        refused, remaining, wait = self._judged(w["seen"], n, limit, within)
        yield Leave(f"{w['seen']} IS NOT NULL AND {refused}", ["0", remaining, wait])
        yield Head([PART, TAT, DUE])
        yield Now()
        row = w[PART.name], w[TAT.name]
        yield Let("debt", self.debt(row, w["now"], limit, within))
        refused, remaining, wait = self._judged(w["debt"], n, limit, within)
        beyond = f"{w[TAT.name]} - {w['now']} > {within} + {self.words.whole(SECOND)}"
        change = self._changed("0", f"{w['now']} + {within}")
        yield Do(f"UPDATE {w.rows} SET {change} WHERE {w.mine()}", when=f"{beyond} AND {refused}")
        yield Leave(refused, ["0", remaining, wait])
        debt = f"{w['debt']} + {n} * {within}"
        tat, part = self.words.divided(debt, limit), self.dialect.modulo.format(f"({debt})", limit)
        tat = f"{w['now']} + {tat}"
        yield Do(f"UPDATE {w.rows} SET {self._changed(part, tat)} WHERE {w.mine()}")
        yield Give(["1", self.words.divided(f"{limit} * {within} - ({debt})", within), "0"])

    def _changed(self, part: str, tat: str) -> str:
        return f"part = {part}, tat = {tat}, due = {due_with(tat)}"

    def _taking_on_file(self, w: Words, n: str) -> Iterator[Step]:
        # As what is remembered is computed wherever it is used, it is one statement; `before` has found refusals.
        yield Now()
        given = w.values(self.structure.key.columns)
        row = "coalesce(r.part, 0)", "coalesce(r.tat, 0)"
        debt = self.debt(row, "m.moment", self.limit, self.within)
        moment = f"(SELECT {w['now']} AS moment) m LEFT JOIN {w.rows} r ON {w.mine((), 'r.')}"
        after = f"SELECT {debt} + {n} * {self.within} AS debt, m.moment FROM {moment}"
        put = {**given, "part": f"d.debt % {self.limit}", "tat": f"d.moment + d.debt / {self.limit}"}
        source = f"({after}) d WHERE d.debt <= {self.limit} * {self.within}"
        yield Do(w.replace(w.rows, put, [*given], source))
        beyond = f"tat - {w['now']} > {self.within} + {SECOND}"
        yield Do(f"UPDATE {w.rows} SET part = 0, tat = {w['now']} + {self.within} WHERE {w.mine()} AND {beyond}")

    def completed(self, rows: Sequence[Row], outcomes: list[Any]) -> Calling:
        left = [row for row, remaining in zip(rows, outcomes, strict=True) if remaining is None]
        again = iter((yield from self.call_each("take", left)) if left else ())
        return [next(again) if remaining is None else (1, remaining, 0) for remaining in outcomes]

    def _peeking(self, w: Words) -> Iterator[Step]:
        seen = self.debt(("r.part", "r.tat"), "m.moment", self.limit, self.within)
        source = f"{w.rows} r CROSS JOIN (SELECT {w.now} AS moment) m WHERE {w.mine((), 'r.')}"
        yield Let("debt", f"SELECT COALESCE(MAX({seen}), 0) FROM {source}")
        refused, remaining, wait = self._judged(w["debt"], "1", self.limit, self.within)
        allowed, wait = (f"CASE WHEN {refused} THEN {one} ELSE {other} END" for one, other in (("0", "1"), (wait, "0")))
        yield Give([allowed, remaining, wait])

    def _clearing(self, w: Words) -> Iterator[Step]:
        yield Head([TAT], makes=False)
        yield Now()
        yield Let("had", f"CASE WHEN {w[TAT.name]} >= {w['now']} THEN 1 ELSE 0 END")
        yield Do(f"DELETE FROM {w.rows} WHERE {w.mine()}")
        yield Give([w["had"]])

    # --- operations -----------------------------------------------------------------------------------------------

    def _found(self) -> str:
        # The query for a key's row, the moment, by how much time stands behind the clock, and what is stored of the
        # declaration: numbers for `_judged_by`. Computing with them there takes half as long as in the query.
        most = self.words.greatest
        clock = f"{self.clock} + t.ahead"
        stored = ", ".join(f"t.{self.dialect.name_of(each)}" for each in (LIMIT, WITHIN))
        return (
            f"SELECT r.part, r.tat, {most}({clock}, t.latest) AS moment, t.latest - ({clock}) AS late, {stored}\n"
            f"  FROM {self.words.times} t LEFT JOIN {self.rows_table} r ON {self.mine('r.')}\n"
            # Else SQLite, after an ANALYZE of the rows alone, reads all of them to filter this table's only row.
            "  WHERE t.id = 0"
        )

    def written(self) -> Mapping[str, Write]:

        def answer(op: Operation[Any], context: Context) -> Answering:
            return "CASE WHEN {allowed} = 1 THEN {remaining} END", lambda remaining: Taken(True, remaining, 0.0)

        def rows(op: Operation[Any]) -> Sequence[Row]:
            return [(*self.key_out(op.args[0]), op.args[1])]

        return {"take": Write("take", rows, lambda _, outcomes: _taken(*outcomes[0]), answer=answer)}

    def asked(self) -> Mapping[str, Ask]:
        def peeked(_: Operation[Any], found: list[Row]) -> Taken:
            allowed, remaining, wait = _judged_by((1, *found[0]))[0]
            return _taken(allowed, remaining + allowed, wait)

        return {"peek": self.ask(self._found(), peeked)}

    @property
    def listed(self) -> str:
        return f"tat > {self.now}"

    def relation(self) -> ReadOnly:
        why = "a rate limit is taken from by take(), not by INSERT or UPDATE; DELETE lets a key take all again"
        return ReadOnly(_shown, lambda plan, which: f"DELETE FROM {plan.rows_table} WHERE {which}", why)

    def expired(self) -> tuple[str, str]:
        ends = dict.fromkeys([TAT.name, self.expiry])  # the index has the second
        return self.rows_table, " AND ".join(f"{each} <= {self.now}" for each in ends)

    def refusing(self) -> Mapping[str, Ask]:
        def refused(op: Operation[Any], found: list[Row]) -> Taken | None:
            outcome, final = _judged_by((op.args[1], *found[0]))
            return _taken(*outcome) if final and not outcome[0] else None

        return {"take": self.asks["peek"]._replace(result=refused)}

    def is_refusal(self, result: Any) -> bool:
        return not result.allowed

    # --- check and alter ------------------------------------------------------------------------------------------

    def rules(self) -> Iterator[Rule]:
        wrong = f"r.tat < 0 OR r.part NOT BETWEEN 0 AND {self.structure.limit - 1}"
        yield rule(self, "tat", "tat ? and part ? are no moment", "r.tat", "r.part", where=wrong)
        if self.expiry == DUE.name:
            yield rule(self, "due", "due at ?, the end is ?", "r.due", "r.tat", where="r.due > r.tat")


def _judged_by(found: Sequence[Any] | None) -> tuple[tuple[int, int, int], bool]:
    # The outcome of taking `n`, by what `_found` has read, and whether it is final if it is a refusal: not where time
    # stands still, or a row lies further ahead than possible, both of which a write mends.
    assert found is not None
    n, part, tat, moment, late, limit, within = found
    cap, debt, final = limit * within, 0, late < SECOND
    if tat is not None:
        debt = min(max(min(tat - moment, within) * limit + part, 0), cap)
        final = final and tat - moment <= within + SECOND
    over = debt + n * within - cap
    if over <= 0:
        return (1, -over // within, 0), final
    over = min(over, debt)  # for more than the limit: until all of it is restored
    return (0, (cap - debt) // within, -(-over // limit)), final


def _idle(found: Sequence[Any]) -> bool:
    (allowed, _, _), final = _judged_by(found)
    return final and not allowed


def _taken(allowed: int, remaining: int, wait: int) -> Taken:
    return Taken(bool(allowed), max(int(remaining), 0), 0.0 if allowed else int(wait) / SECOND)


def taking_all(plan: Any, w: Words) -> Iterator[Step]:
    """Yield the steps that take for the keys of which all is allowed that is asked; other rows have no outcome."""
    limit, within = plan.limit, plan.within
    names = [plan.dialect.name_of(each) for each in plan.structure.key.columns]
    given = w.values(plan.structure.key.columns)
    key, keys = ", ".join(names), ", ".join(f"{value} AS {name}" for name, value in given.items())
    same = plan.dialect.same(plan.structure.key.columns, "r.", "t.")
    part = ", ".join(given.values())

    def fits(moment: str) -> str:
        debt = plan.debt(("r.part", "r.tat"), moment, limit, within)
        return f"t.total <= {limit} AND {debt} <= {limit} * {within} - t.total * {within}"

    whole = "{}::bigint" if plan.dialect.family == "postgresql" else "CAST({} AS SIGNED)"
    total = whole.format(f"sum({w.new('n')})")
    debt = plan.debt(("r.part", "r.tat"), w["now"], limit, within)
    left = plan.words.divided(f"{limit} * {within} - d.debt - t.upto * {within}", within)
    upto = whole.format(f"sum({w.new('n')}) OVER (PARTITION BY {part} ORDER BY q.ord)")
    of_key = whole.format(f"sum({w.new('n')}) OVER (PARTITION BY {part})")
    numbered = f"SELECT {keys}, q.ord, {upto} AS upto, {of_key} AS total FROM {w.source}"
    put = {**{name: f"t.{name}" for name in names}, "part": "0", "tat": "0", "due": "0"}
    after = f"d.debt + d.total * {within}"
    tat = f"{w['now']} + {plan.words.divided(after, limit)}"
    if plan.dialect.family == "postgresql":
        yield Let("moment", w.now)
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
tat = {tat}, due = {due_with(tat, "r.due")} FROM d WHERE {same.replace("t.", "d.")})
SELECT {left} FROM t LEFT JOIN d ON {same.replace("r.", "d.")} ORDER BY t.ord"""
            ]
        )
        return
    moment = f"(SELECT {w.now} AS moment) m"
    fit = f"(r.tat IS NULL AND t.total <= {limit} OR {fits('m.moment')})"
    joined = f"({numbered}) t CROSS JOIN {moment} LEFT JOIN {w.rows} r ON {same}"
    yield Let("kept", f"SELECT JSON_ARRAYAGG(t.ord) FROM {joined} WHERE {fit}", OUTCOMES)
    yield Leave(f"{w['kept']} IS NULL", ["'{}'"])
    kept = f"JSON_TABLE({w['kept']}, '$[*]' COLUMNS (ord BIGINT PATH '$')) k"
    rows = f"(SELECT t.* FROM {kept} STRAIGHT_JOIN ({numbered}) t ON t.ord = k.ord)"
    source = f"(SELECT DISTINCT {key} FROM {rows} t) t ORDER BY {key}"
    yield Do(w.put(w.rows, put, names, {"part": f"{w.rows}.part"}, source))  # which locks all that follows reads
    yield Now()
    locked = f"{rows} t STRAIGHT_JOIN {w.rows} r FORCE INDEX (PRIMARY) ON {same}"
    told = f"SELECT t.ord, {left.replace('d.debt', debt)} AS remaining FROM {locked} WHERE {fits(w['now'])}"
    yield Let("told", f"SELECT JSON_OBJECTAGG(o.ord, o.remaining) FROM ({told}) o", OUTCOMES)
    new = f"SELECT DISTINCT {', '.join(f't.{name}' for name in names)}, t.total, {debt} AS debt FROM {locked}"
    yield Do(
        f"UPDATE ({new} WHERE {fits(w['now'])}) d STRAIGHT_JOIN {w.rows} r FORCE INDEX (PRIMARY)"
        f" ON {same.replace('t.', 'd.')}\n  SET r.part = {plan.dialect.modulo.format(f'({after})', limit)},"
        f" r.tat = {tat}, r.due = {due_with(tat, 'r.due')}"
    )
    yield Give([w["told"]])


# --- SQL, HandlerSocket, the command line --------------------------------------------------------------------------


class RateLimitConsole(PeekConsole[RateLimit[Any]]):
    """Keys with what remains to them; nothing can be imported."""

    takes: ClassVar[Mapping[str, Any]] = {"key": (), "limit": REQUIRED, "within": REQUIRED}
    changes = ("limit", "within")
    headers = (REMAINING.name, RETRY_AFTER.name)

    @classmethod
    def facts(cls, name: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"within": given["within"] * SECOND}
