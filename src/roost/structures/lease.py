"""Lease: a lock that expires.

A token is the moment of its grant, or the previous token plus one if that is larger. So keys need no common sequence,
and a row can be deleted: a later grant has a later moment. A row is kept for as long as a clock that jumps back can
set the time back, which is a second.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Generic

from roost.dialects.dialect import Row
from roost.errors import Invalid
from roost.structures.clock import SECOND, at_moment, datetime_of, duration, microseconds
from roost.structures.console import PeekConsole
from roost.structures.operation import Operation, first
from roost.structures.plan import Careful, Context, Rule, Verb
from roost.structures.program import Answering, ProgramPlan, Write
from roost.structures.reading import Ask
from roost.structures.relation import ReadOnly
from roost.structures.rules import rule, sweep
from roost.structures.steps import Do, Door, Give, Head, Leave, Let, Now, Program, Step, number
from roost.structures.structure import Group, Key, Structure, column_facts
from roost.structures.wire import Wire
from roost.structures.words.words import Words
from roost.types.column_types import ColumnType, shown
from roost.types.columns import Column

MOST = 10**15  # microseconds: about 31 years
STAYS = 2 * SECOND  # the time for which a row is kept after its lease has ended

HOLDER = Column("holder", ColumnType("text", 255))
TOKEN, TTL, EXPIRES, GRANTED, MOMENT = map(number, ("token", "ttl", "expires", "granted", "moment"))
SECONDS, ENDS = Column("ttl", ColumnType("float")), Column("expires", ColumnType("datetime"))
RESERVED = frozenset(["expires", "holder", "token", "ttl"])  # columns beside the key's


@dataclass(frozen=True, slots=True)
class Grant(Generic[Key]):
    """A granted lease.

    token: the fencing number. A later grant of the same key has a larger token; renewing keeps it. The resource that
        the lease guards should reject a request whose token is smaller than one it has already seen.
    expires: the time at which the lease expires unless it is renewed, by the structure's time: it is ahead of the
        database's clock once that has jumped back.
    """

    key: Key
    holder: str
    token: int
    expires: dt.datetime


class Lease(Structure[Key]):
    """Locks that expire: each key has at most one holder, for a time that the holder can renew.

    name: lower-case identifier, at most 40 characters.
    key: the type of a key, as for `roost.Counter`.

    A holder that dies, or cannot reach the database, loses its lease when the time is over. It may not notice at once:
    a process that was suspended for a while continues as if it still held the lease. Therefore each grant has a
    `token`, which grows with every new holder: send it with everything you write elsewhere, and reject writes there
    that come with a smaller token. No token of a key is ever issued twice, not even after its row was deleted.
    `store.holding(...)` renews in the background.

    Rows are deleted some time after their lease has ended: a bounded number with each write.

    >>> import roost
    >>> reports = roost.Lease("reports")
    >>> with roost.Store("sqlite://") as store:
    ...     store.create(reports)
    ...     grant = store.run(reports.acquire("daily", "worker 1", ttl=30))
    ...     store.run(reports.acquire("daily", "worker 2", ttl=30))
    ...     store.run(reports.holder("daily"))
    ...     store.run(reports.release(grant))
    'worker 1'
    True
    """

    kind = "lease"
    reads: ClassVar[tuple[str, ...]] = ("holder", "peek")

    def __init__(self, name: str, *, key: type[Key] | ColumnType[Key] = str) -> None:  # type: ignore[assignment]
        super().__init__(name, Group.declared(name, "key", key), RESERVED)
        self.second = Group(name, "holder", [HOLDER])
        self._check_holder = HOLDER.checker(self.name)
        self._define({"name": name, "key": key}, key=column_facts(self.key.columns))

    def acquire(self, key: Key, holder: str, ttl: dt.timedelta | float) -> Operation[Grant[Key] | None]:
        """Acquire the key for `ttl` (a timedelta, or seconds); None if another holder has it.

        If the same holder has the key already, this renews the lease: it expires `ttl` from now and keeps its token. So
        a holder's name must belong to one worker, not to a host: two workers with one name do not exclude each other.
        """
        return Operation(self, "acquire", (self.key.check(key), self._check_holder(holder), self._ttl(ttl)))

    def renew(self, grant: Grant[Key], ttl: dt.timedelta | float) -> Operation[Grant[Key] | None]:
        """Renew a lease to end `ttl` from now; None if it has ended already, even if nobody else has acquired it."""
        key, token = self._of(grant)
        return Operation(self, "renew", (key, self._check_holder(grant.holder), token, self._ttl(ttl)))

    def release(self, grant: Grant[Key]) -> Operation[bool]:
        """End a lease; False if it has ended already."""
        return Operation(self, "release", self._of(grant))

    def holder(self, key: Key) -> Operation[str | None]:
        """Read the name of the key's holder; None if there is none."""
        return Operation(self, "holder", (self.key.check(key),))

    def peek(self, key: Key) -> Operation[Grant[Key] | None]:
        """Read the grant of the key's holder; None if there is none."""
        return Operation(self, "peek", (self.key.check(key),))

    def _ttl(self, ttl: Any) -> int:
        return duration(f"{self.name}: ttl", ttl, MOST)

    def _of(self, grant: Any) -> tuple[Any, ...]:
        if not isinstance(grant, Grant):
            raise Invalid(f"{self.name}: {shown(grant)} is not a Grant")
        return self.key.check(grant.key), grant.token


def _shown(plan: Any) -> str:
    names = plan.dialect.names([*plan.structure.key.columns, HOLDER], "r.")
    shown = f"{names}, r.token, {at_moment(plan.dialect, 'r.expires')} AS expires"
    return f"SELECT {shown} {plan.held(plan.shown_now)}"


def _end(plan: Any, which: str) -> str:
    # The row stays until its token can be forgotten.
    now = plan.shown_now
    return f"UPDATE {plan.rows_table} SET expires = {now} WHERE {which} AND expires > {now}"


class LeaseWire(Wire):
    """A key that somebody holds has a row."""

    of_key = "peek"
    more = (TOKEN, ENDS)


class LeasePlan(ProgramPlan):
    """A lease in one dialect's words: one table, whose row is its own head."""

    structure: Lease[Any]
    wire = LeaseWire
    expires = True

    def made(self) -> Iterator[str]:
        key = self.structure.key.columns
        yield self.create(self.rows_table, [*key, HOLDER, TOKEN, TTL, EXPIRES], self.dialect.names(key), 80)
        yield self.index("over", "expires")

    # --- programs -------------------------------------------------------------------------------------------------

    def programs(self) -> Iterator[Program]:
        key, gives = self.structure.key.columns, [GRANTED, MOMENT]
        held = f"FROM {self.rows_table} WHERE {self.mine()} AND expires > {self.now}"
        after = f"SELECT token, {self.now} AS moment {held}"
        ttl = "CAST(ROUND({ttl} * 1e6) AS SIGNED)"
        least = "0.000001"
        if self.dialect.family == "postgresql":
            ttl, least = "round({ttl} * 1000000::double precision)::bigint", "'0.000001'::double precision"
        expires = {ENDS: f"CASE WHEN {{granted}} > 0 THEN {at_moment(self.dialect, f'({{moment}} + {ttl})')} END"}
        granted = Door(
            given=[*key, HOLDER, SECONDS],
            passes={TTL.name: ttl},
            refuses={f"NOT ({{ttl}} BETWEEN {least} AND {MOST // SECOND})": "ttl is a number of seconds"},
            gives={TOKEN: "NULLIF({granted}, 0)", **expires},
        )
        renewed = granted._replace(given=[*key, TOKEN, SECONDS], gives=expires)
        released = Door(gives={Column("released", ColumnType("bool")): "{had} = 1"})
        had = number("had")
        yield Program(
            "acquire",
            [*key, HOLDER, TTL],
            self._acquiring,
            gives,
            before=self._asked_by_other,
            after=f"{after} AND holder = :holder",
            tell=lambda _, row: tuple(row) if row else (0, 0),
            idle=lambda row: bool(row[0]),
            door=granted,
        )
        yield Program(
            "renew",
            [*key, TOKEN, TTL],
            self._renewing,
            gives,
            after=f"{after} AND token = :token",
            tell=lambda _, row: tuple(row) if row else (0, 0),
            door=renewed,
        )
        mine = f"SELECT count(*) {held}"
        yield Program(
            "release",
            [*key, TOKEN],
            lambda w: self._ending(w, w.new(TOKEN.name)),
            [had],
            before=f"{mine} AND token = :token",
            door=released,
        )
        for verb in ("clear", "forget"):
            yield Program(verb, key, self._ending, [had], before=mine)
        if self.dialect.is_server:
            shown = {HOLDER: "{holder}", TOKEN: "{token}", ENDS: at_moment(self.dialect, "{expires}")}
            yield Program("peek", key, self._peeking, [HOLDER, TOKEN, EXPIRES], door=Door(gives=shown))
            yield self.lock_program()
        yield sweep(key, EXPIRES, STAYS)

    def held(self, now: str, mine: str = "") -> str:
        # The leases `r` that have not ended, at the moment `m.moment`.
        source = f"FROM {self.rows_table} r CROSS JOIN (SELECT {now} AS moment) m"
        return f"{source}\n  WHERE {f'{mine} AND ' if mine else ''}r.expires > m.moment"

    def _held_by_other(self, now: str, mine: str, holder: str, stands: str) -> str:
        # The query for whether somebody else has the key, so that nothing is to be done. It is not where a clock has
        # jumped: no lease lasts longer than its `ttl` from now.
        lasts = f"r.expires - m.moment <= r.ttl + {SECOND} AND NOT {stands}"
        return f"SELECT count(*) {self.held(now, mine)} AND r.holder <> {holder} AND {lasts}"

    @property
    def _asked_by_other(self) -> str:
        return self._held_by_other(self.now, self.mine("r."), ":holder", self.stands)

    def _peeking(self, w: Words) -> Iterator[Step]:
        source, values = self.held(w.now, w.mine((), "r.")), {HOLDER: "r.holder", TOKEN: "r.token", EXPIRES: self._ends}
        for column, value in values.items():
            yield Let(column.name, f"SELECT {value} {source}", column.type)
        yield Give([w[column.name] for column in values])

    @property
    def _ends(self) -> str:
        # When a lease ends: no later than its whole `ttl` from now, even if a clock has jumped.
        return f"CASE WHEN r.expires - m.moment > r.ttl + {SECOND} THEN m.moment + r.ttl ELSE r.expires END"

    def _beyond(self, w: Words) -> Do:
        # No lease lasts that long, so the clock has jumped: it lasts for its whole `ttl` from now, and no longer.
        return Do(
            f"UPDATE {w.rows} SET expires = {w['now']} + ttl WHERE {w.mine()}",
            when=f"{w[EXPIRES.name]} - {w['now']} > {w[TTL.name]} + {SECOND}",
        )

    def _acquiring(self, w: Words) -> Iterator[Step]:
        holder = w.new(HOLDER.name)
        yield Let("held", self._held_by_other(w.now, w.mine((), "r."), holder, w.stands))
        yield Leave(f"{w['held']} > 0", ["0", "0"])
        yield Head([HOLDER, TOKEN, TTL, EXPIRES])
        yield Now()
        yield self._beyond(w)
        living = f"{w[EXPIRES.name]} > {w['now']}"
        yield Leave(f"{living} AND {w[HOLDER.name]} <> {holder}", ["0", "0"])
        token = f"CASE WHEN {living} THEN {w[TOKEN.name]} ELSE {w.greatest}({w['now']}, {w[TOKEN.name]} + 1) END"
        yield Let("granted", token)
        ttl = w.new(TTL.name)
        yield Do(
            f"UPDATE {w.rows} SET holder = {holder}, token = {w['granted']}, ttl = {ttl}, expires = {w['now']} + {ttl}"
            f" WHERE {w.mine()}"
        )
        yield Give([w["granted"], w["now"]])

    def _renewing(self, w: Words) -> Iterator[Step]:
        yield Head([TOKEN, TTL, EXPIRES], makes=False)
        yield Now()
        ttl, token = w.new(TTL.name), w.new(TOKEN.name)
        yield Leave(f"{w[EXPIRES.name]} <= {w['now']} OR {w[TOKEN.name]} <> {token}", ["0", "0"])
        yield Do(f"UPDATE {w.rows} SET ttl = {ttl}, expires = {w['now']} + {ttl} WHERE {w.mine()}")
        yield Give([token, w["now"]])

    def _ending(self, w: Words, mine: str = "") -> Iterator[Step]:
        # mine: a further condition of the lease.
        yield Head([TOKEN, EXPIRES], makes=False)
        yield Now()
        held = f"{w[EXPIRES.name]} > {w['now']}"
        if mine:
            held += f" AND {w[TOKEN.name]} = {mine}"
        yield Let("had", f"CASE WHEN {held} THEN 1 ELSE 0 END")
        yield Do(f"UPDATE {w.rows} SET expires = {w['now']} WHERE {w.mine()}", when=f"{w['had']} = 1")
        yield Give([w["had"]])

    # --- operations -----------------------------------------------------------------------------------------------

    def written(self) -> Mapping[str, Write]:

        def rows(op: Operation[Any]) -> Sequence[Row]:
            return [(*self.key_out(op.args[0]), *(op.args[2:] if op.verb == "renew" else op.args[1:]))]

        def grant(op: Operation[Any], outcomes: Sequence[Any]) -> Grant[Any] | None:
            token, moment = outcomes[0]
            return self._grant(op, int(token), int(moment)) if token else None

        def acquired(op: Operation[Any], context: Context) -> Answering | None:
            # One that renews is asked again for its token; the application's transaction would not be undone for that.
            since = _since(context)

            def result(answer: int) -> Grant[Any]:
                if not answer:
                    raise Careful
                return self._grant(op, since + answer, since + answer)

            fresh = f"CASE WHEN {{granted}} > 0 AND {{granted}} = {{moment}} THEN {{moment}} - {since} ELSE 0 END"
            return None if context.joined else (fresh, result)

        def renewed(op: Operation[Any], context: Context) -> Answering:
            since = _since(context)
            found = f"CASE WHEN {{granted}} > 0 THEN {{moment}} - {since} ELSE 0 END"
            return found, lambda answer: self._grant(op, op.args[2], since + answer) if answer else None

        return {
            "acquire": Write("acquire", rows, grant, answer=acquired),
            "renew": Write("renew", rows, grant, makes=False, answer=renewed),
            "release": Write("release", rows, lambda op, outcomes: bool(first(op, outcomes)), makes=False),
        }

    def _grant(self, op: Operation[Any], token: int, moment: int) -> Grant[Any]:
        return Grant(self.structure.key.value(op.args[0]), op.args[1], token, datetime_of(moment + op.args[-1]))

    def asked(self) -> Mapping[str, Ask]:
        held = f"SELECT r.holder, r.token, {self._ends} AS expires {self.held(self.now, self.mine('r.'))}"

        def refused(_: Operation[Any], found: list[Row]) -> None:
            if not found[0][0]:
                raise Careful

        self._by_other = self.ask(self._asked_by_other, refused, [HOLDER])

        def peeked(op: Operation[Any], found: list[Row]) -> Grant[Any] | None:
            if not found:
                return None
            holder, token, expires = found[0]
            return Grant(self.structure.key.value(op.args[0]), holder, token, datetime_of(expires))

        return {
            "peek": self.ask(held, peeked),
            "holder": self.ask(held, lambda _, found: found[0][0] if found else None),
        }

    @property
    def listed(self) -> str:
        return f"expires > {self.now}"

    def verbs(self) -> dict[str, Verb]:
        if self.dialect.singles:  # a plain read refuses what somebody else has
            self.questions["acquire"] = partial(self._question, self._by_other)
        return {}

    def relation(self) -> ReadOnly:
        why = "a lease is held by acquire(), not by INSERT or UPDATE; DELETE ends one"
        return ReadOnly(_shown, _end, why, [TOKEN])

    def expired(self) -> tuple[str, str]:
        return self.rows_table, f"expires <= {self.now}"

    def rules(self) -> Iterator[Rule]:
        wrong = "r.token < 0 OR r.ttl < 0 OR r.expires < 0 OR (r.token = 0) <> (r.ttl = 0)"
        yield rule(self, "token", "token ? of a lease that ends at ?", "r.token", "r.expires", where=wrong)


def _since(context: Context) -> int:
    # Some days ago, so that the microseconds since then are an answer. It seldom changes: it is in a prepared text.
    return ((microseconds(context.clock()) >> 39) - 1) << 39


# --- SQL, HandlerSocket, the command line --------------------------------------------------------------------------


class LeaseConsole(PeekConsole[Lease[Any]]):
    """Keys with their holders; nothing can be imported."""

    takes: ClassVar[Mapping[str, Any]] = {"key": ()}
    headers = ("holder", "token", "expires")

    def removed(self, number: int) -> str:
        return f"{number:,} lease{'' if number == 1 else 's'}"
