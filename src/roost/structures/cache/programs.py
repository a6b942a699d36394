"""The programs of a cache.

A row is its own head: it is locked before it is read. Whoever may make it makes it first, with an end of 0, so that no
reader ever sees it. With bounds (`bounds.py`) a head is locked first, and below it no row need be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from roost.dialects.conditions import refused
from roost.structures.cache.bounds import SIZE, CacheBounds
from roost.structures.cache.declaration import COUNTER_MAX, FLAGS_MAX, KEEP, NEVER, STALE, WON
from roost.structures.clock import SECOND
from roost.structures.rules import MOST, UNTIL, due_with, gone
from roost.structures.steps import (
    BY_INDEX,
    FULL,
    IN_ORDER,
    INT,
    TOTAL,
    Do,
    Fetch,
    Give,
    Leave,
    Let,
    Now,
    Program,
    Refuse,
    Step,
    number,
)
from roost.structures.words.words import Words
from roost.types.column_types import INT_MAX, INT_MIN, ColumnType
from roost.types.columns import Column

TOKEN, FLAGS = number("token"), number("flags")
OUTCOME, LEFT, WAS = map(number, ("outcome", "left", "was"))
# Parameters beside the columns of the key, whose names cannot be these.
TTL = Column("ttl", INT, nullable=True)  # None: it never expires
WANTED = Column("roost_wanted", INT, nullable=True)  # a token
MAKES, USES = number("roost_makes"), number("roost_uses")
MODE, INVALIDATES, SIGN, SLACK, RECACHE = (
    number(f"roost_{each}") for each in ("mode", "invalidates", "sign", "slack", "recache")
)
MODES = {"set": 0, "add": 1, "replace": 2, "append": 3, "prepend": 4, "cas": 0}
MODES |= dict(zip("SERAP", range(5), strict=True))  # as in memcached

# Outcomes, beside those of `steps.py`.
MISSING, STORED, THERE, CHANGED, MARKED = range(5)
TOO_LONG, NO_NUMBER, BEYOND = -3, -4, -5
SUM = Column("outcome", TOTAL)  # of a number: one more than it is, if it is not negative; otherwise 9 less

LEASED = "leased"  # the index of leases by their ends

HALF = 10**10  # of a number of 64 bits, in SQLite's integers
HIGH, LOWER = divmod(COUNTER_MAX + 1, HALF)


def number_of(outcome: Any) -> int | None:
    """Return the number that an outcome of arithmetic says; None if there is no value."""
    return None if not outcome else int(outcome) - 1 if outcome > 0 else int(outcome) + 9


class CachePrograms(CacheBounds):
    """The programs of one cache in one dialect's words."""

    def programs(self) -> Iterator[Program]:
        """Yield the programs."""
        key, cache, rows = [*self.key], self.cache, f"roost_{self.cache.name}_rows"
        row = [*key, cache.value, TTL, FLAGS]
        state = f"(SELECT max(until) AS until, max(token) AS token FROM {rows} WHERE {self._mine}) r"
        given: Callable[[str], str] = lambda name: f":{name}"  # noqa: E731
        living = f"FROM {rows} WHERE {self._mine} AND until > {self._now}"
        yield Program("set", row, self._setting, [OUTCOME] if cache.max_bytes else [], pinned=IN_ORDER)
        if self.dialect.is_server:
            yield Program("set_all", row, self._setting_all, many=True, pinned=BY_INDEX)
        verdict = self._verdict(given, "r.until", "r.token", self._now)
        yield Program(
            "store", [*row, MODE, WANTED, INVALIDATES], self._storing, [OUTCOME, TOKEN],
            before=f"SELECT {verdict} FROM {state}", tell=lambda before, _: (before[0] if before else 0, 0),
            idle=lambda before: before[0] in (MISSING, THERE, CHANGED),
        )  # fmt: skip
        verdict = self._compared(given, "r.until", "r.token", self._now)
        asked = f"SELECT {verdict} FROM {state}"
        yield Program("remove", [*key, WANTED, INVALIDATES, TTL], self._deleting, [OUTCOME], before=asked)
        yield Program("touch", [*key, TTL, SLACK], self._touching, [OUTCOME], before=f"SELECT 1 {living}")
        if self._mixed or cache.value.type.kind == "int":
            item = f"value, token, until - {self._now}, flags FROM {rows} WHERE {self._mine}"
            n = Column("roost_n", ColumnType("text", 20) if self._mixed else INT)  # digits
            yield Program(
                "count", [*key, n, SIGN, WANTED, TTL], self._counting, [SUM, TOKEN, LEFT], before=asked,
                after=f"SELECT {item}", tell=_counted,
            )  # fmt: skip
            yield Program(
                "peek", [*key, TTL, RECACHE], self._peeking, [OUTCOME, cache.value, TOKEN, LEFT, WAS, FLAGS],
                before=f"SELECT flags {living}", after=f"SELECT {item}",
                tell=lambda before, after: (
                    (1, *after[:3], before[0], after[3]) if before and after else (0, *[None] * 5)
                ),
            )  # fmt: skip
        lease = f"FROM {self.leases} WHERE {self._mine} AND until > {self._now}"
        yield Program(
            "lease", [*key, TTL], self._leasing, [TOKEN],
            before=f"SELECT 0 {lease}", after=f"SELECT token FROM {self.leases} WHERE {self._mine}",
        )  # fmt: skip
        yield Program(
            "release", [*key, TOKEN], self._releasing, [OUTCOME], before=f"SELECT 1 {lease} AND token = :token"
        )
        yield Program("sweep", [MOST], self._sweeping)
        if cache.bounded:
            yield Program("use", key, self._using)
            if not self.dialect.is_server:  # many values are stored before some are evicted
                yield Program("put", row, lambda w: self._setting(w, evicts=False))
                yield Program("evict", [USES], lambda w: self._evicting(w, w.new(USES.name)))
        elif self.dialect.is_server:
            yield Program("lock", [*key, MAKES], lambda w: self._taking(w, [UNTIL], f"{w.new(MAKES.name)} = 1"))

    # --- locks and the row --------------------------------------------------------------------------------------------

    def _taking(self, w: Words, columns: Sequence[Column], makes: str = "") -> Iterator[Step]:
        # Locks the head and the row, and remembers columns of them; `makes`: the condition under which a row is made.
        if self.cache.bounded:
            yield from self._locking_head(w)
            columns = [*columns, SIZE]
        found = Fetch(columns, w.names(columns).split(", "), f"FROM {w.rows} WHERE {w.mine()}{w.dialect.for_update}")
        if makes and w.loops and not self.cache.bounded:
            key = w.values(self.key)
            nothing = dict.fromkeys(["until", "token", "flags", *self._dues], "0")
            make = w.put(w.rows, {**key, **nothing}, [*key])
            if self.family == "postgresql":  # a locking read fails where the row has gone since an old snapshot
                yield found
                makes = f"{w['until']} IS NULL AND ({makes})"
                yield Do(make, when=makes)
                yield found._replace(when=makes)
            else:
                yield Do(make, when=makes if makes != "1" else "")
                yield found
        else:
            yield found
        yield Now()

    def _due_of(self, w: Words) -> dict[str, str]:
        return dict.fromkeys(self._dues, due_with(w.proposed("due"), f"{w.rows}.due"))

    def _until(self, until: str) -> str:
        # The assignment of another end.
        return ", ".join([f"until = {until}", *[f"due = {due_with(until)}" for _ in self._dues]])

    def _ends(self, w: Words, otherwise: str = "") -> str:
        # The moment at which the value expires.
        ttl = w.new("ttl")
        never = f"coalesce({w['now']} + {ttl}, {NEVER})"
        return f"CASE WHEN {ttl} = {KEEP} THEN {otherwise} ELSE {never} END" if otherwise else never

    def _issued(self, w: Words) -> str:
        # The token of a new value: the current time, or the former token plus one. Time never goes back, so a key that
        # was removed and stored again gets new tokens, though no record of it was kept.
        return f"{w.greatest}({w['now']}, coalesce({w['token']}, 0) + 1)"

    def _held(self, w: Words) -> str:
        return f"coalesce({w['until']}, 0) > {w['now']}"

    def _stored(self, w: Words, value: str, until: str, flags: str, evicts: bool = True) -> Iterator[Step]:
        # Stores a value; the row is locked.
        values = w.values(self.key)
        row = {**values, "value": value, "until": until, "token": self._issued(w), "flags": flags}
        if not self.cache.bounded:
            row |= dict.fromkeys(self._dues, until)
            yield Do(w.write(w.rows, row, [*values], {**w.changes(row, [*values], ()), **self._due_of(w)}))
            return
        size = self._size(w, value)
        if self.cache.max_bytes:
            message = f"{self.cache.name}: a value would have more than max_bytes"  # however many the declaration says
            yield Refuse(f"{size} > {self.cache.max_bytes}", FULL, message)
        more = f"CASE WHEN {w['token']} IS NULL THEN 1 ELSE 0 END"
        yield from self._tally(w, more, f"{size} - coalesce({w['size']}, 0)", 1)
        row |= {"used": w["sequence"], "size": size}
        yield Do(w.replace(w.rows, row, [*values], there=True))
        if evicts:
            yield from self._evicting(w)

    # --- storing ------------------------------------------------------------------------------------------------------

    def _setting(self, w: Words, evicts: bool = True) -> Iterator[Step]:
        result = [str(STORED)] if self.cache.max_bytes else []
        if self.cache.bounded:
            yield from self._taking(w, [TOKEN])
            yield from self._stored(w, w.new("value"), self._ends(w), w.new("flags"), evicts)
            if result:
                yield Give(result)
            return
        yield Now()
        yield Do(w.write(*self._put(w)))

    def _put(self, w: Words, more: Mapping[str, str] = {}) -> tuple[str, dict[str, str], list[str], dict[str, str]]:
        # What writes values that may not be locked: the table, a row, its key, and how one that is there is changed.
        key = w.values(self.key)
        row = {
            **key,
            "value": w.new("value"),
            "until": self._ends(w),
            "token": w["now"],
            "flags": w.new("flags"),
            **dict.fromkeys(self._dues, self._ends(w)),
            **more,
        }
        change = {name: w.proposed(name) for name in row if name not in key} | self._due_of(w)
        change["token"] = f"{w.greatest}({w.proposed('token')}, {w.rows}.token + 1)"
        return w.rows, row, [*key], change

    def _setting_all(self, w: Words) -> Iterator[Step]:
        # Of different keys.
        if not self.cache.bounded:
            yield Now()
            yield from w.write_all(*self._put(w))
            return
        yield from self._locking_head(w)
        yield Now()
        size = self._size(w, w.new("value"))
        yield Fetch(
            [number("replaced"), Column("frees", TOTAL), number("added"), Column("brings", TOTAL)],
            ["count(r.token)", "coalesce(sum(r.size), 0)", "count(*)", f"sum({size})"],
            f"FROM {w.source} LEFT JOIN {w.rows} r ON {w.mine((), 'r.')}",
        )
        more = {"used": f"{w['sequence']} + q.ord", "size": size}
        yield from w.write_all(*self._put(w, more))
        change = f"CAST({w['brings']} - {w['frees']} AS {self._integer})"
        yield from self._tally(w, f"{w['added']} - {w['replaced']}", change, w["added"])
        yield from self._evicting(w, w["added"])

    def _verdict(self, given: Callable[[str], str], until: str, token: str, now: str) -> str:
        # What becomes of a value that is to be stored.
        mode, wanted, marks = given(MODE.name), given(WANTED.name), given(INVALIDATES.name)
        refused = f"CASE WHEN {mode} >= 3 OR {marks} = 0 OR {wanted} > {token} THEN {CHANGED} ELSE {MARKED} END"
        missing = f"CASE WHEN {mode} IN (0, 2) AND {wanted} IS NOT NULL THEN {MISSING} WHEN {mode} >= 2 THEN {THERE}"
        return (
            f"CASE WHEN coalesce({until}, 0) <= {now} THEN {missing} ELSE {STORED} END\n"
            f"    WHEN {mode} = 1 THEN {THERE} WHEN {wanted} <> {token} THEN {refused} ELSE {STORED} END"
        )

    def _storing(self, w: Words) -> Iterator[Step]:
        mode, given = w.new(MODE.name), w.new("value")
        yield from self._taking(w, [UNTIL, TOKEN, FLAGS], f"{mode} = 1 OR {mode} = 0 AND {w.new(WANTED.name)} IS NULL")
        yield Let("outcome", self._verdict(w.new, w["until"], w["token"], w["now"]))
        outcome = w["outcome"]
        yield Leave(f"{outcome} IN ({MISSING}, {THERE}, {CHANGED})", [outcome, "0"])
        value, until = given, self._ends(w)
        marked = f"CASE WHEN {outcome} = {MARKED} THEN {w.new('flags')} | {STALE} | ({w['flags']} & {WON})"
        flags = f"{marked} ELSE {w.new('flags')} END"
        if self._mixed:
            former = f"FROM {w.rows} WHERE {w.mine()}{w.current}"
            yield Fetch([self._kept], ["value"], former, when=f"{mode} >= 3")
            behind, before = (self._joined(*each) for each in ((w["kept"], given), (given, w["kept"])))
            value = f"CASE {mode} WHEN 3 THEN {behind} WHEN 4 THEN {before} ELSE {given} END"
            yield Refuse(f"{mode} >= 3 AND ({self._too_long(value)})", TOO_LONG, f"{self.cache.name}: it is too long")
            until = f"CASE WHEN {mode} >= 3 THEN {w['until']} ELSE {until} END"
            flags = f"{marked} WHEN {mode} >= 3 THEN {w['flags']} & {FLAGS_MAX} ELSE {w.new('flags')} END"
        until = f"CASE WHEN {outcome} = {MARKED} THEN {w['until']} ELSE {until} END"
        yield Let("issued", self._issued(w))
        yield from self._stored(w, value, until, flags)
        yield Give([outcome, w["issued"]])

    @property
    def _kept(self) -> Column:
        return Column("kept", self.cache.value.type, nullable=True)

    def _joined(self, one: str, other: str) -> str:
        if self.family == "sqlite" and self.cache.value.type.kind == "binary":
            # In a file whose texts are UTF-16, `||` cuts an odd number of bytes by one.
            return f"substr(CAST({one} || ({other} || X'0000') AS BLOB), 1, length({one}) + length({other}))"
        return self.dialect.concat(one, other)

    def _too_long(self, value: str) -> str:
        condition = refused(self.dialect, self.cache.value, value)
        if self.family != "sqlite":
            return condition
        limit = self.cache.value.type.limit  # length() stops at a NUL: such a text is measured in bytes
        nul = f"length(CAST({value} AS BLOB)) > {limit} AND instr({value}, char(0)) > 0"
        return f"length({value}) > {limit}{f' OR {nul}' if self.cache.value.type.kind == 'text' else ''}"

    # --- the other verbs ----------------------------------------------------------------------------------------------

    def _compared(self, given: Callable[[str], str], until: str, token: str, now: str) -> str:
        # Whether there is a value, and with the token that is wanted.
        changed = f"WHEN {given(WANTED.name)} <> {token} THEN {CHANGED}"
        return f"CASE WHEN coalesce({until}, 0) <= {now} THEN {MISSING} {changed} ELSE {STORED} END"

    def _deleting(self, w: Words) -> Iterator[Step]:
        yield from self._taking(w, [UNTIL, TOKEN, FLAGS])
        yield Let("outcome", self._compared(w.new, w["until"], w["token"], w["now"]))
        outcome, marks = w["outcome"], w.new(INVALIDATES.name)
        yield Leave(f"{outcome} = {CHANGED} OR {w['token']} IS NULL", [outcome])
        marked = f"({w['flags']} & {FLAGS_MAX}) | {STALE}"
        change = f"{self._until(self._ends(w, w['until']))}, token = {self._issued(w)}, flags = {marked}"
        kept = f"{outcome} = {STORED} AND {marks} = 1"
        goes = f"NOT ({kept})" if w.loops else f"{marks} = 0"
        if self.cache.bounded:
            less = f"0 - CASE WHEN {goes} THEN {{}} ELSE 0 END"
            yield from self._tally(w, less.format(1), less.format(w["size"]), 0)
            yield from self._closing(w)
        yield Do(f"UPDATE {w.rows} SET {change} WHERE {w.mine()}", when=kept)
        yield Do(f"DELETE FROM {w.rows} WHERE {w.mine()}", when=goes)
        yield Give([outcome])

    def _touching(self, w: Words) -> Iterator[Step]:
        # Nothing is written if the end is the new one, or earlier by less than the slack.
        yield from self._taking(w, [UNTIL])
        yield Leave(f"NOT ({self._held(w)})", ["0"])
        until, ends = w["until"], self._ends(w)
        less = f"{ends} - {until} BETWEEN 0 AND {w.new(SLACK.name)} - 1"
        near = f"{ends} = {until} OR ({w.new('ttl')} IS NOT NULL AND {less})"
        yield Do(f"UPDATE {w.rows} SET {self._until(ends)} WHERE {w.mine()}", when=f"{self._held(w)} AND NOT ({near})")
        yield Give(["1"])

    def _peeking(self, w: Words) -> Iterator[Step]:
        # Reads a value, moves its end, and grants the right to compute it anew to the first who asks.
        yield from self._taking(w, [UNTIL, TOKEN, FLAGS])
        yield Leave(f"NOT ({self._held(w)})", ["0", "NULL", "0", "0", "0", "0"])
        recache, flags, until = w.new(RECACHE.name), w["flags"], self._ends(w, w["until"])
        soon = f"{until} < {NEVER} AND {until} - {w['now']} < {recache} * {SECOND}"
        wins = (
            f"{recache} >= {KEEP} AND ({flags} & {WON}) = 0"
            f" AND (({flags} & {STALE}) <> 0 OR ({recache} >= 0 AND {soon}))"
        )
        marked = f"CASE WHEN {wins} THEN {flags} | {WON} ELSE {flags} END"
        yield Fetch([self._kept], ["value"], f"FROM {w.rows} WHERE {w.mine()}{w.current}")
        yield Let("marked", marked)
        yield Let("ends", until)
        changed = f"{w['marked']} <> {flags} OR {w['ends']} <> {w['until']}"
        change = f"{self._until(w['ends'])}, flags = {w['marked']}"
        yield Do(f"UPDATE {w.rows} SET {change} WHERE {w.mine()}", when=changed)
        yield Give(["1", w["kept"], w["token"], f"{w['ends']} - {w['now']}", flags, w["marked"]])

    def _counting(self, w: Words) -> Iterator[Step]:
        yield from self._taking(w, [UNTIL, TOKEN, FLAGS])
        verdict = self._compared(w.new, w["until"], w["token"], w["now"])
        yield Let("outcome", verdict)
        # A value that is there, but not the wanted one, is told by a token of -1.
        yield Leave(f"{w['outcome']} <> {STORED}", ["0", f"CASE {w['outcome']} WHEN {CHANGED} THEN -1 ELSE 0 END", "0"])
        yield Fetch([self._kept], ["value"], f"FROM {w.rows} WHERE {w.mine()}{w.current}")
        kept, n, sign = w["kept"], w.new("roost_n"), w.new(SIGN.name)
        beyond, none = f"{self.cache.name}: the sum would leave 64 bits", f"{self.cache.name}: the value is no number"
        if not w.loops and not self._mixed:
            value = f"{kept} + {n}"
            yield Refuse(
                f"{n} > 0 AND {kept} > {INT_MAX} - {n} OR {n} < 0 AND {kept} < {INT_MIN} - {n}", BEYOND, beyond
            )
        elif not w.loops:
            text = f"CAST({kept} AS TEXT)"  # length() and GLOB see it up to a NUL
            digits = f"length({text}) BETWEEN 1 AND 20 AND {text} NOT GLOB '*[^0-9]*'"
            digits += f" AND length({text}) = length({kept}) AND NOT instr({text}, char(0))"
            most = f"substr('{'0' * 19}' || {text}, -20) > '{COUNTER_MAX}'"
            yield Refuse(f"NOT ({digits}) OR {most}", NO_NUMBER, none)
            value = _sum_on_sqlite(kept, n, sign)
            yield self._too_many_digits(f"length({value})")
            if self.cache.value.type.kind == "binary":
                value = f"CAST({value} AS BLOB)"
        else:
            value = yield from self._counting_on_servers(w, kept, n, sign, (beyond, none))
        yield Let("issued", self._issued(w))
        yield Let("ends", self._ends(w, w["until"]))
        yield from self._stored(w, value, w["ends"], w["flags"])
        if w.loops:
            said = f"CASE WHEN {w['sum']} < 0 THEN {w['sum']} - 9 ELSE {w['sum']} + 1 END"
            yield Give([said, w["issued"], f"{w['ends']} - {w['now']}"])

    def _too_many_digits(self, length: str) -> Refuse:
        return Refuse(f"{length} > {self.cache.value.type.limit}", TOO_LONG, f"{self.cache.name}: too many digits")

    def _counting_on_servers(self, w: Words, kept: str, n: str, sign: str, messages: tuple[str, str]) -> Any:
        postgresql = self.family == "postgresql"
        beyond, none = messages
        if not self._mixed:
            sum_ = f"{kept}::numeric + {n}::numeric" if postgresql else f"CAST({kept} AS DECIMAL(20)) + {n}"
            yield Let("sum", sum_, TOTAL)
            low, high = (f"{each}::numeric" if postgresql else str(each) for each in (f"({INT_MIN})", INT_MAX))
            yield Refuse(f"{w['sum']} NOT BETWEEN {low} AND {high}", BEYOND, beyond)
            return f"CAST({w['sum']} AS {self._integer})"
        binary = self.cache.value.type.kind == "binary"
        if postgresql:
            text = f"encode({kept}, 'escape')" if binary else kept
            digits, cast = f"{text} ~ '^[0-9]{{1,20}}$'", "{}::numeric"
        else:
            text = f"CONVERT({kept} USING latin1)" if binary else kept
            digits, cast = f"LENGTH({kept}) BETWEEN 1 AND 20 AND {text} NOT REGEXP '[^0-9]'", "CAST({} AS DECIMAL(65))"
        yield Let("number", f"CASE WHEN {digits} THEN {cast.format(text)} END", TOTAL)
        wrong = f"{w['number']} IS NULL OR {w['number']} > {COUNTER_MAX}"
        yield Refuse(wrong, NO_NUMBER, none)
        added = f"MOD({w['number']} + {cast.format(n)}, {COUNTER_MAX + 1})"
        less = f"GREATEST({w['number']} - {cast.format(n)}, 0)"
        yield Let("sum", f"CASE WHEN {sign} > 0 THEN {added} ELSE {less} END", TOTAL)
        shown = f"{w['sum']}::text" if postgresql else f"CAST({w['sum']} AS CHAR)"
        yield self._too_many_digits(f"char_length({shown})")
        return f"convert_to({shown}, 'UTF8')" if postgresql and binary else shown

    # --- leases: rows of their own, so they cost reads and writes of values nothing ----------------------------------

    def _leasing(self, w: Words) -> Iterator[Step]:
        key = w.values(self.key)
        found = f"FROM {self.leases} WHERE {w.mine()}{w.dialect.for_update}"
        yield Do(w.put(self.leases, {**key, "until": "0", "token": "0"}, [*key]))
        yield Fetch([UNTIL, TOKEN], ["until", "token"], found)
        yield Now()
        yield Leave(self._held(w), ["0"])
        yield Let("issued", self._issued(w))
        row = {**key, "until": f"{w['now']} + {w.new('ttl')}", "token": w["issued"]}
        yield Do(w.replace(self.leases, row, [*key]))
        yield Give([w["issued"]])

    def _releasing(self, w: Words) -> Iterator[Step]:
        yield Now()
        held = f"{w.mine()} AND token = {w.new('token')} AND until > {w['now']}"
        yield Do(f"DELETE FROM {self.leases} WHERE {held}", counts="had")
        yield Give([w["had"]])

    def _sweeping(self, w: Words) -> Iterator[Step]:
        if self.cache.bounded:
            yield from self._locking_head(w)
        yield Now()
        over = f"until <= {w['now']}"
        if self.cache.bounded:
            yield from self._expiring(w, w.new(MOST.name))
            yield from self._closing(w)
        else:
            past = f"{self.expiry} <= {w['now']}{self._some}"
            yield from gone(w, w.rows, self.key, over if self._dues else past, "until", past if self._dues else "")
        yield from gone(w, self.leases, self.key, over, "until", index=LEASED)


def _sum_on_sqlite(kept: str, n: str, sign: str) -> str:
    # In two halves of ten digits: the numbers have 64 bits without a sign.
    halves = "CAST(substr('{0}' || CAST({1} AS TEXT), -20, 10) AS INTEGER) AS {2}h, "
    halves += "CAST(substr('{0}' || CAST({1} AS TEXT), -10) AS INTEGER) AS {2}l"
    both = ", ".join(halves.format("0" * 20, value, prefix) for value, prefix in ((kept, "a"), (n, "b")))
    added = f"SELECT ah + bh + (al + bl) / {HALF} AS h, (al + bl) % {HALF} AS l FROM (SELECT {both}) WHERE {sign} > 0"
    fits = f"h < {HIGH} OR h = {HIGH} AND l < {LOWER}"
    wrapped = (
        f"SELECT CASE WHEN {fits} THEN h ELSE h - {HIGH} - (l < {LOWER}) END AS h,\n"
        f"    CASE WHEN {fits} THEN l ELSE (l - {LOWER} + {HALF}) % {HALF} END AS l FROM ({added})"
    )
    less = (
        f"SELECT max(ah - bh - (al < bl), 0), CASE WHEN ah < bh OR ah = bh AND al < bl THEN 0\n"
        f"    ELSE (al - bl + {HALF}) % {HALF} END FROM (SELECT {both}) WHERE {sign} < 0"
    )
    text = "CASE WHEN h > 0 THEN printf('%d%010d', h, l) ELSE CAST(l AS TEXT) END"
    return f"(SELECT {text} FROM ({wrapped} UNION ALL {less}))"


def _counted(before: Sequence[Any] | None, after: Sequence[Any] | None) -> tuple[Any, int, int]:
    # The outcome of arithmetic on SQLite.
    if before is None or after is None or before[0] != STORED:
        return 0, -1 if before is not None and before[0] == CHANGED else 0, 0
    value, token, left, _ = after
    found = int(value)
    return found + 1 if found >= 0 else found - 9, token, left
