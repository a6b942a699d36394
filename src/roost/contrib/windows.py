"""Windows: how often each key did something, in a fixed, a moving, or a sliding window, for the storage of `limits`.

It is made as one of your own is (docs/own-structure.md), of `roost.own` alone. A key's hits are numbered: its head
has the number of the newest one. Of a moving window each acquisition has a row, with the number of its last hit and the
moment. `n` more are over the limit if hit number `newest + n - limit` is in the window: then its row is there, since
older rows alone are deleted. So a refusal is one look into an index, and writes and locks nothing.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from roost import own

SECOND = 1_000_000  # microseconds
MOST_HITS = 10_000  # of a moving window, which has a row for each acquisition
MOST_WITHIN = 100 * 366 * 86_400 * SECOND
MILLISECOND = 1_000  # in which the part of an earlier window is computed: the product stays within 64 bits
MOST_PRODUCT = 2**62

LIMIT, WITHIN, N = map(own.number, ("limit", "within", "n"))
NEWEST, UNTIL, COUNTED, ENDS, STARTED, HITS, EARLIER = HEAD = tuple(
    map(own.number, ("newest", "until", "counted", "ends", "started", "hits", "earlier"))
)
LAST, AT, SWEPT = own.number("last"), own.number("at"), own.number("roost_most")
RESERVED = frozenset(each.name for each in (*HEAD, LAST, AT, LIMIT, WITHIN, N))


class Window(NamedTuple):
    """What `peek` finds of a key. Times are seconds from now: negative for what has been.

    hits: how many there are in the moving window; began: when the oldest of them was.
    counted: how many there are in the fixed window; ends: when it ends.
    earlier, earlier_ends, current, current_ends: of the two windows between which a sliding window lies.
    """

    hits: int
    began: float
    counted: int
    ends: float
    earlier: int
    earlier_ends: float
    current: int
    current_ends: float


class Windows(own.Structure[own.Key]):
    """Hits of each key, counted in windows: `hit` a fixed one, `take` a moving one, `slide` a sliding one.

    A limit and the time for which it holds are given with each call. Those of `take`, and of `slide`, must not differ
    between the calls of a key: of what one no longer counts, another cannot know. `limits` has a key for each limit.

    >>> import roost
    >>> from roost.contrib.windows import Windows
    >>> requests = Windows("requests")
    >>> with roost.Store("sqlite://") as store:
    ...     store.create(requests)
    ...     store.run_all(*[requests.take("ada", limit=2, within=60) for _ in range(3)])
    ...     store.run(requests.hit("ada", within=60, n=5))
    (True, True, False)
    5
    """

    kind = "windows"
    reads: ClassVar[tuple[str, ...]] = ("peek",)

    def __init__(self, name: str, *, key: type[own.Key] | own.ColumnType[own.Key] = str) -> None:  # type: ignore[assignment]
        super().__init__(name, own.Group.declared(name, "key", key), RESERVED)
        self._define({"name": name, "key": key}, key=own.column_facts(self.key.columns))

    def hit(self, key: own.Key, within: dt.timedelta | float, n: int = 1) -> own.Operation[int]:
        """Count `n` hits and return how many the window has; it begins with the first one and lasts for `within`."""
        return own.Operation(self, "hit", (self.key.check(key), self._within(within), self._n(n)))

    def take(self, key: own.Key, limit: int, within: dt.timedelta | float, n: int = 1) -> own.Operation[bool]:
        """Take `n` unless there would be more than `limit` in the last `within`; whether they were taken."""
        if limit > MOST_HITS:
            raise own.Invalid(f"{self.name}: a moving window has at most {MOST_HITS:,} hits; take a sliding window")
        return self._taking("take", key, limit, within, n)

    def slide(self, key: own.Key, limit: int, within: dt.timedelta | float, n: int = 1) -> own.Operation[bool]:
        """Take `n` unless there would be more than `limit`, as two windows tell it; whether they were taken.

        Of the earlier window as large a part is counted as the last `within` still covers of it. Within two windows
        there may be a few more than `limit` in some `within`, but a key has one row, whatever the limit is.
        """
        operation = self._taking("slide", key, limit, within, n)
        if operation.args[2] < MILLISECOND:
            raise own.Invalid(f"{self.name}: a sliding window lasts for a millisecond at least")
        if limit * operation.args[2] // MILLISECOND > MOST_PRODUCT:
            raise own.Invalid(f"{self.name}: a limit of {limit:,} is too high for so long a window")
        return operation

    def peek(self, key: own.Key, within: dt.timedelta | float = MOST_WITHIN // SECOND) -> own.Operation[Window]:
        """Read what a key has in windows of `within`."""
        return own.Operation(self, "peek", (self.key.check(key), self._within(within)))

    def _taking(self, verb: str, key: own.Key, limit: int, within: Any, n: int) -> own.Operation[bool]:
        if type(n) is not int or not 1 <= n <= limit:
            raise own.Invalid(f"{self.name}: {n!r} cannot be taken at once; it is a whole number from 1 to {limit:,}")
        return own.Operation(self, verb, (self.key.check(key), limit, self._within(within), n))

    def _within(self, within: Any) -> int:
        return own.duration(f"{self.name}: within", within, MOST_WITHIN)


class WindowsPlan(own.RefusingPlan):
    """The programs and reads of `Windows`: a head for each key, and the rows of its moving window."""

    structure: Windows[Any]
    heads = expires = True

    def made(self) -> Iterator[str]:
        """Yield the statements that make the tables; a head is deleted some time after all its windows have ended."""
        key, names = self.structure.key.columns, self.dialect.names(self.structure.key.columns)
        yield self.create(self.head_table, [*key, *HEAD], names)
        yield self.create(self.rows_table, [*key, LAST, N, AT], f"{names}, last")
        yield self.index("over", "until", table=self.head_table)

    # --- programs -------------------------------------------------------------------------------------------------

    def programs(self) -> Iterator[own.Program]:
        key, told = self.structure.key.columns, own.number("allowed")
        after = f"SELECT counted FROM {self.head_table} WHERE {self.mine()}"
        yield own.Program("hit", [*key, WITHIN, N], self._hitting, [COUNTED], after=after)
        for verb, steps in (("take", self._taking), ("slide", self._sliding)):
            yield own.Program(
                verb,
                [*key, LIMIT, WITHIN, N],
                steps,
                [told],
                before=self._asked(verb),
                tell=lambda found, _: 0 if found and found[0] else 1,
                idle=lambda found: bool(found[0]),
            )
        count = f"SELECT count(*) FROM {self.head_table} WHERE {self.mine()}"
        for verb in ("clear", "forget"):
            yield own.Program(verb, key, self._clearing, [own.number("had")], before=count)
        if self.dialect.is_server:
            yield self.lock_program()
        yield own.Program("sweep", [SWEPT], self._sweeping)

    def expired(self) -> tuple[str, str]:
        return self.head_table, f"until <= {self.now}"

    def _asked(self, verb: str) -> str:
        # PostgreSQL would take the divisor of a number to be an integer.
        cast = "::bigint" if self.dialect.family == "postgresql" else ""
        given = [f":{each.name}{cast}" for each in (LIMIT, WITHIN, N)]
        return self._over_limit(verb, given, self.mine("h."), self.now, self.stands)

    def _over_limit(self, verb: str, given: Sequence[str], mine: str, now: str, stands: str) -> str:
        # The query for whether a key has had too many hits. They can only become more, so it is final, unless time
        # stands still: then a write mends it.
        limit, within, n = given
        moment, where = f"CROSS JOIN (SELECT {now} AS moment) m", f"WHERE {mine} AND NOT {stands}"
        if verb == "slide":
            over = f"{self._weight('h.', 'm.moment', within)} + {n} > {limit}"
            return f"SELECT count(*) FROM {self.head_table} h {moment} {where} AND {over}"
        same = self.dialect.same(self.structure.key.columns, "r.", "h.")
        first = f"h.newest + {n} - {limit}"
        row = (
            f"SELECT r.last - r.n AS begins, {first} AS first, r.at, m.moment FROM {self.head_table} h {moment}\n"
            f"  JOIN {self.rows_table} r ON {same} {where} AND r.last >= {first} ORDER BY r.last LIMIT 1"
        )
        return f"SELECT count(*) FROM ({row}) q WHERE q.begins < q.first AND q.at >= q.moment - {within}"

    def _weight(self, head: str, now: str, within: str) -> str:
        # The hits of the sliding window: those of the current one, and a part of those of the earlier one.
        age, divided = f"{now} - {head}started", self.words.divided

        def part(hits: str, ends: str) -> str:
            left = divided(f"{ends} - ({age}) + {MILLISECOND - 1}", str(MILLISECOND))
            return divided(f"{head}{hits} * ({left})", f"({divided(within, str(MILLISECOND))})")

        return (
            f"CASE WHEN {age} < {within} THEN {head}hits + {part('earlier', within)}\n"
            f"    WHEN {age} < 2 * {within} THEN {part('hits', f'2 * {within}')} ELSE 0 END"
        )

    def _lasting(self, until: str) -> str:
        return f"until = {self.words.greatest}(until, {until})"

    def _hitting(self, w: own.Words) -> Iterator[own.Step]:
        yield own.Head(HEAD)
        yield own.Now()
        n, now, fresh = w.new(N.name), w["now"], f"{w['now']} + {w.new(WITHIN.name)}"
        yield own.Let("told", f"CASE WHEN {w['ends']} > {now} THEN {w['counted']} + {n} ELSE {n} END")
        yield own.Do(
            f"UPDATE {w.head} SET counted = CASE WHEN ends > {now} THEN counted + {n} ELSE {n} END,\n"
            f"    {self._lasting(fresh)}, ends = CASE WHEN ends > {now} THEN ends ELSE {fresh} END WHERE {w.mine()}"
        )
        yield own.Give([w["told"]])

    def _taking(self, w: own.Words) -> Iterator[own.Step]:
        limit, within, n = (w.new(each.name) for each in (LIMIT, WITHIN, N))
        yield own.Let("refused", self._over_limit("take", [limit, within, n], w.mine((), "h."), w.now, w.stands))
        yield own.Leave(f"{n} > {limit} OR {w['refused']} > 0", ["0"])
        yield own.Head(HEAD)
        yield own.Now()
        first = f"{w['newest']} + {n} - {limit}"
        lock = self.dialect.for_update
        source = f"FROM {w.rows} r WHERE {w.mine((), 'r.')} AND r.last >= {first} ORDER BY r.last LIMIT 1{lock}"
        yield own.Fetch([own.number("begins"), AT], ["r.last - r.n", "r.at"], source)
        yield own.Leave(f"{w['begins']} < {first} AND {w['at']} >= {w['now']} - {within}", ["0"])
        yield own.Do(f"DELETE FROM {w.rows} WHERE {w.mine()} AND last <= {first}")
        values = {**w.values(w.key), "last": f"{w['newest']} + {n}", "n": n, "at": w["now"]}
        yield own.Do(f"INSERT INTO {w.rows} ({', '.join(values)}) VALUES ({', '.join(values.values())})")
        fresh = f"{w['now']} + {within}"
        yield own.Do(f"UPDATE {w.head} SET newest = newest + {n}, {self._lasting(fresh)} WHERE {w.mine()}")
        yield own.Give(["1"])

    def _sliding(self, w: own.Words) -> Iterator[own.Step]:
        limit, within, n = (w.new(each.name) for each in (LIMIT, WITHIN, N))
        yield own.Let("refused", self._over_limit("slide", [limit, within, n], w.mine((), "h."), w.now, w.stands))
        yield own.Leave(f"{n} > {limit} OR {w['refused']} > 0", ["0"])
        yield own.Head(HEAD)
        yield own.Now()
        now = w["now"]
        over = f"SELECT {self._weight('h.', now, within)} FROM {w.head} h WHERE {w.mine((), 'h.')}"
        yield own.Let("weight", over, locking=True)
        yield own.Leave(f"{w['weight']} + {n} > {limit}", ["0"])
        first, second = f"{now} - started < {within}", f"{now} - started < 2 * {within}"
        yield own.Do(
            f"UPDATE {w.head} SET earlier = CASE WHEN {first} THEN earlier WHEN {second} THEN hits ELSE 0 END,\n"
            f"    hits = CASE WHEN {first} THEN hits ELSE 0 END + {n}, {self._lasting(f'{now} + 2 * {within}')},\n"
            f"    started = CASE WHEN {first} THEN started WHEN {second} THEN started + {within} ELSE {now} END\n"
            f"  WHERE {w.mine()}"
        )
        yield own.Give(["1"])

    def _clearing(self, w: own.Words) -> Iterator[own.Step]:
        yield own.Head([NEWEST], makes=False)
        yield own.Do(f"DELETE FROM {w.rows} WHERE {w.mine()}")
        yield own.Do(f"DELETE FROM {w.head} WHERE {w.mine()}")
        yield own.Give(["1"])

    def _sweeping(self, w: own.Words) -> Iterator[own.Step]:
        # A head goes with its rows, so that a new one can number its hits from 1 on.
        yield own.Now()
        names = w.names(w.key)
        over = f"until <= {w['now']} - {SECOND} ORDER BY until{w.backwards} LIMIT {w.new(SWEPT.name)}"
        if not w.loops:
            for table in (w.rows, w.head):
                yield own.Do(f"DELETE FROM {table} WHERE ({names}) IN (SELECT {names} FROM {w.head} WHERE {over})")
            return
        index = f" FORCE INDEX ({self.indexes[0][0]})" if w.dialect.family == "mariadb" else ""
        this = " AND ".join(f"{w.dialect.name_of(each)} = {w[each.name]}" for each in w.key)
        gone = [own.Do(f"DELETE FROM {table} WHERE {this}") for table in (w.rows, w.head)]
        yield own.Each(w.key, f"SELECT {names} FROM {w.head}{index} WHERE {over} FOR UPDATE SKIP LOCKED", gone)

    # --- operations -----------------------------------------------------------------------------------------------

    def written(self) -> Mapping[str, own.Write]:

        def write(verb: str, answer: Any) -> own.Write:
            return own.Write(verb, lambda op: [(*self.key_out(op.args[0]), *op.args[1:])], answer)

        taking = {verb: write(verb, lambda _, outcomes: bool(outcomes[0])) for verb in ("take", "slide")}
        return {"hit": write("hit", own.first), **taking}

    def asked(self) -> Mapping[str, own.Ask]:
        of_rows = f"FROM {self.rows_table} r WHERE {self.mine('r.')} AND r.at >= m.moment - :{WITHIN.name}"
        found = (
            f"SELECT m.moment, (SELECT min(r.at) {of_rows}) AS began, (SELECT min(r.last - r.n) {of_rows}) AS begins,\n"
            f"    h.newest, h.counted, h.ends, h.started, h.hits, h.earlier\n"
            f"  FROM (SELECT {self.now} AS moment) m LEFT JOIN {self.head_table} h ON {self.mine('h.')}"
        )
        return {"peek": self.ask(found, _window, [WITHIN])}

    def refusing(self) -> Mapping[str, own.Ask]:

        def ask(verb: str) -> own.Ask:
            return self.ask(self._asked(verb), lambda _, found: False if found[0][0] else None, [LIMIT, WITHIN, N])

        return {verb: ask(verb) for verb in ("take", "slide")}

    def is_refusal(self, result: Any) -> bool:
        return not result

    def verbs(self) -> dict[str, Any]:
        return {"keys": self.list_keys(self.head_table, f"until > {self.now}")}

    def rules(self) -> Iterator[tuple[str, str]]:
        yield own.has_head(self)
        wrong = "r.last > h.newest OR r.n < 1 OR r.last < r.n"
        yield own.rule(self, "last", "hits up to ?, the head says ?", "r.last", "h.newest", where=wrong)


def _window(op: own.Operation[Any], found: list[own.Row]) -> Window:
    moment, began, begins, newest, counted, ends, started, hits, earlier = found[0]
    within, age = op.args[1], moment - (started or 0)
    if age >= within:
        earlier, hits, age = (hits if age < 2 * within else 0), 0, age - within
    left = max(within - age, 0)
    return Window(
        0 if began is None else newest - begins,
        0.0 if began is None else (began - moment) / SECOND,
        counted if ends is not None and ends > moment else 0,
        max((ends or moment) - moment, 0) / SECOND,
        earlier or 0,
        left / SECOND if earlier else 0.0,
        hits or 0,
        (left + within) / SECOND if hits else 0.0,
    )


class WindowsConsole(own.PeekConsole[Windows[Any]]):
    """Keys with what they have in their windows; nothing can be imported."""

    takes: ClassVar[Mapping[str, Any]] = {"key": ()}
    headers = ("hits", "counted", "current")


WindowsPlan.wire = None
own.register(Windows, WindowsPlan, WindowsConsole)
