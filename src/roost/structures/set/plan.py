"""A set's tables, programs and reads.

A key's head has the number of its members. With `keep_for` alone there is none: members leave without a write, so they
are counted when they are read; each row is its own head, and adds of different members of a key do not wait for each
other. With `keep` the rows have a sequence, by which the oldest one goes: a moment, or one more than the newest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from itertools import compress
from typing import Any, ClassVar

from roost.dialects.dialect import Dialect, Row, Statement, Wanted, execute, query
from roost.errors import Invalid
from roost.structures.clock import SECOND
from roost.structures.console import Console, Table
from roost.structures.operation import RUNS, Operation, first
from roost.structures.plan import SEQUENCE, Context, Facts, N, Operations, Rule, same
from roost.structures.program import MAKES, Calling, ProgramPlan, Write
from roost.structures.reading import Ask
from roost.structures.relation import Relation
from roost.structures.rules import UNTIL, beyond, change_keep_for, counted, has_head, lasting, removals, rule, sweep
from roost.structures.set.declaration import Set
from roost.structures.steps import BY_INDEX, IN_ORDER, OUTCOMES, Do, Give, Head, Let, Now, Program, Put, Step, number
from roost.structures.views.postgresql import newest_version
from roost.structures.wire import Values, Wire
from roost.structures.words.words import Words
from roost.types.columns import Column

ADDED, REMOVED, HAD = number("added"), number("removed"), number("had")
NEWS = Column("news", OUTCOMES)


class SetWire(Wire):
    """A set over HandlerSocket: its members, or one of them; an insert adds, a delete removes.

    The columns of the member follow those of the key.
    """

    of_key, of_id = "members", "contains"

    def rows(self, key: Values, found: Any) -> list[Values]:
        if isinstance(found, bool):
            return [key] if found else []
        return sorted([(*key, *self.structure.member.check(member)) for member in found], key=repr)


class SetConsole(Console[Set[Any, Any]]):
    """Keys with their sizes, and the members of one; an imported record is a member that is added now."""

    takes: ClassVar[Mapping[str, Any]] = {"key": (), "member": (), "keep": None, "keep_for": None}
    changes: ClassVar[Sequence[str]] = ("keep", "keep_for")
    reads = "size"
    headers = ("size",)
    shows = holds = "members"

    def content(self, found: Any, n: int | None) -> Table:
        group = self.structure.member
        members = sorted(found, key=_ordered)[:n]
        return Table(group.names, [group.check(member) for member in members], {"members": members})


def _ordered(member: Any) -> Any:
    # Members of one set are of one type; of the types, only an Enum's values have no order of their own.
    return [getattr(part, "value", part) for part in (member if isinstance(member, tuple) else (member,))]


def _change_keep(plan: SetPlan, old: Facts, new: Facts) -> Generator[Wanted, Any, None]:
    # The head comes before its rows, as everywhere.
    before, keep = old.get("keep"), new["keep"]
    if before is None:
        raise Invalid(f"{plan.structure.name}: keep cannot change from None to {keep}: the members have no order")
    if keep <= before:
        head = plan.head_table
        yield Statement(query(f"SELECT n FROM {head} WHERE n > {keep}{plan.dialect.for_update}"), [()])
        yield beyond(plan, plan.pair, "sequence DESC", keep)
        yield execute(f"UPDATE {head} SET n = {keep} WHERE n > {keep}")


class SetPlan(ProgramPlan):
    """A set in one dialect's words."""

    structure: Set[Any, Any]
    settled: ClassVar[Any] = {**ProgramPlan.settled, "keep": _change_keep}
    alterations: ClassVar[Any] = {"keep": _change_keep, "keep_for": change_keep_for}
    wire = SetWire

    def __init__(self, structure: Set[Any, Any], dialect: Dialect) -> None:
        member = structure.member.columns
        self.expires, self.keep = structure.keep_for is not None, structure.keep
        self.heads = not self.expires or self.keep is not None
        self.pair = [*structure.key.columns, *member]
        self._pair_out: Callable[[Row], Row] = dialect.encoder(self.pair) or same
        self._member_in: Callable[[Row], Row] = dialect.decoder(member) or same
        super().__init__(structure, dialect)
        self.apart = self.key_width if self.keep else len(self.pair)  # with `keep` the oldest one goes
        if not self.heads:
            self.lock_width = len(self.pair)

    def made(self) -> Iterator[str]:
        key = self.structure.key.columns
        if self.heads:
            yield self.create(self.head_table, [*key, N], self.dialect.names(key))
        more = [*([SEQUENCE] if self.keep else []), *([UNTIL] if self.expires else [])]
        yield self.create(self.rows_table, [*self.pair, *more], self.dialect.names(self.pair))
        if self.keep:
            yield self.index("newest", f"{self.dialect.names(key)}, sequence")
        if self.expires:
            yield self.index("over", "until")

    # --- programs -------------------------------------------------------------------------------------------------

    def programs(self) -> Iterator[Program]:
        self._there = f"FROM {self.rows_table} WHERE {self.same_as(self.pair)}{self.living()}"
        before = f"SELECT 1 {self._there}"
        add = self._adding if self.heads else self._renewing
        plain = not self.structure.options
        new = lambda there, _: int(there is None)  # noqa: E731
        yield Program("add", self.pair, add, [ADDED], pinned=IN_ORDER, before=before, tell=new)
        yield Program("remove", self.pair, self._removing, [REMOVED], pinned=IN_ORDER, before=before)
        if self.dialect.is_server:
            if not self.keep and (self.heads or self.dialect.family == "postgresql"):
                gives = [ADDED if self.dialect.family == "postgresql" else NEWS]
                yield Program("add_all", self.pair, self._adding_all, gives, many=True, pinned=BY_INDEX)
            yield self.lock_program()
        elif plain:  # each is one statement, for rows that are known to be new
            more = {"n": f"{self.head_table}.n + excluded.n"}
            given = [*self.structure.key.columns, N]

            def rows(w: Words) -> Iterator[Step]:
                yield Do(w.put(w.rows, w.values(self.pair), [*w.values(self.pair)], source=w.source))

            def heads(w: Words) -> Iterator[Step]:
                yield Do(w.put(w.head, w.values(given), [*w.values(w.key)], more, w.source))

            yield Program("add_all", self.pair, rows, many=True)
            yield Program("count_all", given, heads, many=True)
        if self.heads:
            yield from removals(self)
        else:
            had = f"SELECT count(*) FROM {self.rows_table} WHERE {self.mine()}{self.living()}"
            yield Program("clear", self.structure.key.columns, self._clearing, [HAD], before=had)
        if self.expires:
            yield sweep(self.pair, head=self.heads)

    def lock_program(self) -> Program:
        if self.heads:
            return super().lock_program()
        given = [*self.pair, MAKES]

        def steps(w: Words) -> Iterator[Step]:
            # One that is made has expired already; who asked for it adds the member in the same transaction.
            pair = w.values(self.pair)
            yield Do(w.put(w.rows, {**pair, "until": "0"}, [*pair]), when=f"{w.new(MAKES.name)} = 1")
            yield Let("until", self._locked(w))

        return Program("lock", given, steps)

    def _locked(self, w: Words) -> str:
        return f"SELECT until FROM {w.rows} WHERE {w.mine(self.pair)}{w.dialect.for_update}"

    def _values(self, w: Words) -> dict[str, str]:
        # A row as it is added now.
        sequence = {"sequence": w["sequence"]} if self.keep else {}
        return {**w.values(self.pair), **sequence, **self.ends(w)}

    def _adding(self, w: Words) -> Iterator[Step]:
        # Of a set with heads: adds the member, counts it if it is new, and deletes the oldest one beyond `keep`.
        pair, key, keep = [*w.values(self.pair)], [*w.values(w.key)], self.keep
        there = f"SELECT 1 FROM {w.rows} WHERE {w.mine(self.pair)}"
        if not w.loops and not keep:
            one = {**w.values(w.key), "n": "1"}
            new = f"(SELECT 1) WHERE NOT EXISTS ({there})"
            yield Do(w.put(w.head, one, key, {"n": f"{w.head}.n + 1"}, new))
            yield Do(w.put(w.rows, w.values(self.pair), pair))
            return
        yield Head([N])
        # The rows that have expired are the oldest: they need not go before others do.
        reads_first = w.dialect.family == "postgresql"
        if self.expires:
            if reads_first:
                yield Let("before", f"SELECT until FROM {w.rows} WHERE {w.mine(self.pair)}")
            yield Now()
        change: dict[str, str] = {}
        if keep:
            newest = f"(SELECT max(sequence) + 1 FROM {w.rows} WHERE {w.mine()})"
            yield Let("sequence", f"{w.greatest}(coalesce({newest}, 0), {w.clock})")
            change = {name: w.proposed(name) for name in self._values(w) if name not in pair}
        if not w.loops:
            yield Do(f"UPDATE {w.head} SET n = n + 1 WHERE {w.mine()} AND NOT EXISTS ({there})")
            yield Do(w.put(w.rows, self._values(w), pair, change))
            more = f"max(0, (SELECT n FROM {w.head} WHERE {w.mine()}) - {keep})"
            oldest = f"SELECT sequence FROM {w.rows} WHERE {w.mine()} ORDER BY sequence LIMIT {more}"
            yield Do(f"DELETE FROM {w.rows} WHERE {w.mine()} AND sequence IN ({oldest})")
            yield Do(f"UPDATE {w.head} SET n = {keep} WHERE {w.mine()} AND n > {keep}")
            return
        values = self._values(w)
        yield Put(w.rows, values, pair, "added", change if reads_first else {})
        size, added = w["n"], w["added"]
        if change and not reads_first:
            # Not by an upsert: in a trigger, ROW_COUNT() does not tell whether it has inserted.
            if self.expires:
                yield Let("before", self._locked(w))
            renewed = ", ".join(f"{name} = {values[name]}" for name in change)
            yield Do(f"UPDATE {w.rows} SET {renewed} WHERE {w.mine(self.pair)}", when=f"{added} = 0")
        if keep:
            # From the newest end: before the oldest row, an old snapshot keeps all that was ever evicted.
            over = f"{w.mine()} AND {added} = 1 AND {size} >= {keep}"
            last = f"SELECT sequence FROM {w.rows} WHERE {over} ORDER BY sequence DESC LIMIT 1 OFFSET {keep}"
            yield Let("last", last, locking=True)
            gone = f"{w.mine()} AND sequence <= {w['last']}"
            if w.dialect.family == "postgresql":
                number = f"greatest({size} + 1 - {keep}, 1)"
                beyond = f"SELECT ctid FROM {w.rows} WHERE {gone} ORDER BY sequence DESC LIMIT {number}"
                gone = f"ctid = ANY (ARRAY({beyond}))"
            yield Do(f"DELETE FROM {w.rows} WHERE {gone}", when=f"{w['last']} IS NOT NULL")
            size = f"least({size} + 1, {keep})"
        else:
            size = f"{size} + 1"
        # By its value: a trigger counts what is deleted, too (MariaDB). The head of a full set need not be written.
        unless_full = f" AND {size} <> {w['n']}" if keep and w.dialect.family == "postgresql" else ""
        yield Do(f"UPDATE {w.head} SET n = {size} WHERE {w.my_head}", when=f"{added} = 1{unless_full}")
        yield Give([self._new(w) if self.expires else added])

    def _new(self, w: Words) -> str:
        return f"CASE WHEN {w['added']} = 1 OR {w['before']} <= {w['now']} THEN 1 ELSE 0 END"

    def _renewing(self, w: Words) -> Iterator[Step]:
        # Of a set without heads: one that has expired, and is still there, counts as new.
        pair, rows, renewed = [*w.values(self.pair)], w.rows, {"until": w.proposed("until")}
        if not w.loops:
            yield Now()
            yield Do(w.put(rows, self._values(w), pair, renewed))
            return
        if w.dialect.family == "postgresql":
            yield Let("before", self._locked(w))
            yield Now()
            yield Put(rows, self._values(w), pair, "added", renewed)
        else:
            # Locked by the upsert: under REPEATABLE READ, to look for a row that is not there locks its neighbours. It
            # does not read the structure's time: what a statement that writes reads is locked.
            until = f"{w.clock} + {(self.structure.keep_for or 0) * SECOND}"
            yield Put(rows, {**w.values(self.pair), "until": until}, pair, "added", {"until": "until + 1"})
            yield Let("before", self._locked(w))
            yield Now()
            change = f"UPDATE {rows} SET until = {self._values(w)['until']} WHERE {w.mine(self.pair)}"
            yield Do(change, when=f"{w['added']} = 0 OR {w['now']} <> {w['clock']}")
        yield Give([self._new(w)])

    def _removing(self, w: Words) -> Iterator[Step]:
        this = f"DELETE FROM {w.rows} WHERE {w.mine(self.pair)}"
        if self.heads:
            yield Head([N], makes=False)
        if self.expires:
            yield Now()
            if w.loops:
                yield Do(f"{this} AND until <= {w['now']}", counts="over")
        yield Do(this, counts="removed")
        if self.heads and not w.loops:
            yield Do(f"UPDATE {w.head} SET n = n - {w['removed']} WHERE {w.mine()}")
        elif self.heads:
            count = f"({w['removed']} + {w['over']})" if self.expires else w["removed"]
            yield Do(f"UPDATE {w.head} SET n = {w['n']} - {count} WHERE {w.my_head}", when=f"{count} > 0")
        yield Give([w["removed"]])

    def _clearing(self, w: Words) -> Iterator[Step]:
        # Of a set without heads.
        if w.dialect.family == "postgresql":  # MariaDB goes by the primary key
            yield Do(f"PERFORM 1 FROM {w.rows} WHERE {w.mine()} ORDER BY {w.names(self.pair)} FOR UPDATE")
        yield Now()
        yield Do(f"DELETE FROM {w.rows} WHERE {w.mine()} AND until <= {w['now']}")
        yield Do(f"DELETE FROM {w.rows} WHERE {w.mine()}", counts="had")
        yield Give([w["had"]])

    def _adding_all(self, w: Words) -> Iterator[Step]:
        # Adds rows of which none is there twice.
        pair, key = w.values(self.pair), w.values(w.key)
        here = w.mine(self.pair, "r.")
        if self.expires:
            yield Now()
            over = f"DELETE FROM {w.rows} AS r USING {w.source} WHERE {here} AND r.until <= {w['now']}"
            put = w.put(w.rows, self._values(w), [*pair], {"until": w.proposed("until")}, f"{w.source} ORDER BY ord")
            yield Do(over)
            new = "(xmax = 0)::integer"
        else:
            yield from w.heads({"n": "0"})
            if w.dialect.family == "mariadb":
                missing = f"{w.source} LEFT JOIN {w.rows} r ON {here} WHERE r.{next(iter(pair))} IS NULL"
                yield from self._counting(w, missing)
                return
            put = f"{w.put(w.rows, pair, [*pair], source=w.source)}"
            new = "1"
        newest = newest_version({name: f"i.{name}" for name in key})
        heads = f"""
  h AS (UPDATE {w.head} AS h SET n = h.n + i.n
    FROM (SELECT {", ".join(key)}, count(*) AS n FROM i GROUP BY {", ".join(key)}) i
      CROSS JOIN LATERAL (SELECT r.ctid FROM {w.head} r WHERE {newest}) p
    WHERE h.ctid = p.ctid),"""
        yield Give(
            [
                f"""WITH i AS ({put.replace(f"INSERT INTO {w.rows}", f"INSERT INTO {w.rows} AS i", 1)}
    RETURNING {w.names(self.pair, "i.")}, {new}::bigint AS added),{"" if self.expires else heads}
  q AS (SELECT * FROM {w.source})
  SELECT coalesce(i.added, 0) FROM q LEFT JOIN i ON {w.mine(self.pair, "i.")} ORDER BY q.ord"""
            ]
        )

    def _counting(self, w: Words, missing: str) -> Iterator[Step]:
        # MariaDB and MySQL.
        pair, key = w.values(self.pair), w.values(w.key)
        yield Let("news", f"SELECT JSON_OBJECTAGG(q.ord, 1) FROM {missing}", NEWS.type)
        counts = f"{missing} GROUP BY {', '.join(key.values())}"
        more = {"n": f"{w.head}.n + VALUES(n)"}
        yield Do(w.put(w.head, {**key, "n": "COUNT(*)"}, [*key], more, counts))
        yield Do(w.put(w.rows, pair, [*pair], source=w.source))
        yield Give([w["news"]])

    # --- writes ---------------------------------------------------------------------------------------------------

    def written(self) -> Mapping[str, Write]:

        def rows(op: Operation[Any]) -> Sequence[Row]:
            out = self._pair_out
            if op.verb in RUNS:
                return list(map(out, op.args))
            key, members = op.args
            return [out(key + member) for member in members]

        def changed(_: Operation[Any], outcomes: Sequence[Any]) -> int:
            return sum([int(outcome or 0) for outcome in outcomes])

        return {
            "add": Write("add", rows, changed, together="change"),
            "add_all": Write("add", rows, lambda _, outcomes: list(map(bool, outcomes)), together="change"),
            "remove": Write("remove", rows, changed, makes=False, together="change"),
            "forget": Write("forget" if self.heads else "clear", self.key_of, first, makes=False),
        }

    def locks(self, operations: Operations, context: Context) -> list[Row]:
        if self.heads:
            return super().locks(operations, context)
        made: dict[Row, int] = {}
        for op in operations:
            if op.verb in ("add", "add_all", "remove"):
                for row in self.writes[op.verb].rows(op):
                    made[row] = max(made.get(row, 0), int(self._makes(op)))
        return sorted([(*row, makes) for row, makes in made.items()])

    def on_file(self, verb: str, rows: Sequence[Row], context: Context) -> Calling:
        if verb not in ("add", "remove") or (self.keep and verb == "add") or len(rows) == 1:
            return (yield from super().on_file(verb, rows, context))
        given = [row + self.moment(context) for row in rows] if self.expires else rows
        there = yield Statement(self._find, given)
        seen: set[Row] = set()
        outcomes = []
        for row, found in zip(rows, there, strict=True):
            outcomes.append(int(row not in seen and bool(found) is (verb == "remove")))
            seen.add(row)
        if verb == "add" and self.expires:  # the others are renewed
            yield Statement(self._many[verb], given)
        elif changed := list(compress(rows, outcomes)):
            if verb == "add":
                counts = Counter([row[: self.key_width] for row in changed])
                yield Statement(self._many["add_all"], changed)
                yield Statement(self._many["count_all"], [(*key, n) for key, n in counts.items()])
            else:
                yield Statement(self._many[verb], [row + self.moment(context) for row in changed])
        return outcomes

    def call_all(self, program: Program, rows: Sequence[Row]) -> Calling:
        different = list(dict.fromkeys(rows))
        found = yield from super().call_all(program, different)
        outcomes = dict(zip(different, found, strict=True))
        return [outcomes.pop(row, 0) for row in rows]

    # --- reads ----------------------------------------------------------------------------------------------------

    def asked(self) -> Mapping[str, Ask]:
        member, mine = self.structure.member.columns, f"{self.mine()}{self.living()}"
        size = f"SELECT count(*) FROM {self.rows_table} WHERE {mine}"
        if not self.expires:
            size = f"SELECT n FROM {self.head_table} WHERE {self.mine()}"
        value, convert = self.structure.member.value, self._member_in
        contains = self.ask(f"SELECT 1 {self._there}", lambda _, rows: bool(rows), member)
        if self._by_store:
            self._find = self.finding("1", self.rows_table, self.pair, self.living("r."))

        members = f"SELECT {self.dialect.names(member)} FROM {self.rows_table} WHERE {mine}"
        return {
            "members": self.ask(members, lambda _, rows: {value(convert(row)) for row in rows}),
            "contains": contains,
            "size": self.ask(size, lambda _, rows: rows[0][0] if rows else 0),
        }

    @property
    def listed(self) -> str:
        return f"until > {self.now}" if self.expires else ""

    # --- SQL clients, check, alter --------------------------------------------------------------------------------

    def relation(self) -> Relation:
        remove = "remove" if self.heads else ""
        counted = self.heads and not self.expires
        plain = not self.structure.options  # otherwise it renews the member
        return Relation(self.pair, "add", self.pair, remove=remove, skips=plain, counted=counted)

    def rules(self) -> Iterator[Rule]:
        if self.heads:
            yield has_head(self)
            yield counted(self)
        if self.keep:
            yield rule(self, "keep", f"? members, keep is {self.keep}", "h.n", where=f"h.n > {self.keep}")
        if self.expires:
            yield lasting(self)
