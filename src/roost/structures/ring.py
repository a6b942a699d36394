"""Ring: the last rows per key, in a space that stops growing.

A key's head has the sequence of its newest row. A row's place is the slot `sequence % keep`, so the newest row
overwrites the oldest. The head also has the `keep` by which its rows were placed, so that a read is right whatever the
reader's declaration says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from operator import itemgetter
from typing import Any, ClassVar, TypeVar

from roost.dialects.dialect import Dialect, Row, Statement, Wanted, execute
from roost.structures.console import REQUIRED
from roost.structures.operation import Operation, first
from roost.structures.plan import AT, SEQUENCE, SLOT, Context, Facts, Rule
from roost.structures.program import Calling, Write
from roost.structures.reading import MOST, Ask
from roost.structures.relation import LOCKED, Relation
from roost.structures.rows import PLACES, EntriesWire, Rows, RowsConsole, RowsPlan, RowStructure, keep_limit
from roost.structures.rules import UNTIL, change_keep_for, has_head, lasting, removals, rule, seconds, sequences, sweep
from roost.structures.steps import IN_ORDER, OUTCOMES, Do, Door, Fact, Give, Next, Now, Program, Step, number
from roost.structures.structure import AnyKey, column_facts
from roost.structures.views.sqlite import SQLiteViewWords
from roost.structures.words.words import Words
from roost.types.column_types import INT_MAX
from roost.types.columns import Column

R = TypeVar("R")

KEEP = number("keep")
AFTER = number("roost_after")
FEW = 50  # rows of a key that a read fetches at once and sorts; of more, it reads the two runs of slots


class Ring(RowStructure[R, AnyKey]):
    """The last `keep` rows per key; the next one overwrites the oldest in place.

    name: lower-case identifier, at most 40 characters.
    Row: a dataclass (also frozen, with slots or defaults) whose annotations give the columns.
    per: the field that is the key, or several; or a NamedTuple whose fields are those of the row.
    keep: rows per key, at least 1. There are never more than keys × keep rows.
    keep_for: a timedelta of whole seconds, or their number: rows are never returned later than that after their push.
        Later pushes overwrite them, or delete some with each push. The clock is the database server's, on SQLite the
        store's; if it jumps back, expired rows do not reappear.

    The pushes of a key are numbered 1, 2, 3 … without gaps. For rows that have an identity and may appear only once
    ("the last 12 different visitors"), use `roost.Capped`.

    >>> import dataclasses, roost
    >>> @dataclasses.dataclass
    ... class Visit:
    ...     uid: int
    ...     visitor: int
    >>> visits = roost.Ring("visits", Visit, per="uid", keep=2)
    >>> with roost.Store("sqlite://") as store:
    ...     store.create(visits)
    ...     store.run_all(*[visits.push(Visit(5, visitor)) for visitor in (7, 8, 9)])
    ...     store.run(visits.latest(5))
    (1, 2, 3)
    [Visit(uid=5, visitor=9), Visit(uid=5, visitor=8)]
    """

    kind = "ring"

    def __init__(
        self,
        name: str,
        Row: type[R],
        *,
        per: str | Sequence[str] | type[AnyKey],
        keep: int,
        keep_for: timedelta | float | None = None,
    ) -> None:
        super().__init__(name, Rows(name, Row, per))
        self.keep: int = keep_limit(name, keep)
        self.keep_for = None if keep_for is None else seconds(name, keep_for)
        self.options = ("keep",) if self.keep_for is None else ("keep", "keep_for")
        facts: dict[str, Any] = {"columns": column_facts(self.columns), "per": self.rows.per, "keep": keep}
        if self.keep_for is not None:
            self._reserve(self.columns, [UNTIL.name])
            facts["keep_for"] = self.keep_for
        self._define({"name": name, "Row": Row, "per": per, "keep": keep, "keep_for": keep_for}, **facts)

    def push(self, row: R) -> Operation[int]:
        """Write the row over the key's oldest; return its sequence number: 1, 2, 3 … without gaps."""
        return Operation(self, "push", (self.rows.check(row),))

    def _record(self, values: Sequence[Any]) -> Any:
        return self.push(self.rows.make(values))

    def push_all(self, rows: Iterable[R]) -> Operation[list[int]]:
        """Write many rows in the given order, all or none; return their sequence numbers.

        The rows are checked and stored together, which is faster than one `push` per row.

        >>> import dataclasses, roost
        >>> @dataclasses.dataclass
        ... class Visit:
        ...     uid: int
        ...     visitor: int
        >>> visits = roost.Ring("visits", Visit, per="uid", keep=2)
        >>> with roost.Store("sqlite://") as store:
        ...     store.create(visits)
        ...     store.run(visits.push_all([Visit(5, 7), Visit(6, 7), Visit(5, 8)]))
        [1, 1, 2]
        """
        return Operation(self, "push_all", self.rows.check_all(self._several("push_all takes several rows", rows)))


def _change_keep(plan: Any, old: Facts, new: Facts) -> Generator[Wanted, Any, None]:
    # Locks the heads, deletes the rows that are too old, and moves the others into the slots that they have now.
    keep, rows, head = new["keep"], plan.rows_table, plan.head_table
    same_key = plan.dialect.same(plan.structure.key.columns, "h.", f"{rows}.")
    slot = plan.dialect.modulo.format("sequence", keep)
    for sql in (
        f"UPDATE {head} SET keep = {keep} WHERE keep <> {keep}",
        f"DELETE FROM {rows} WHERE sequence <= (SELECT h.sequence FROM {head} h\n  WHERE {same_key}) - {keep}",
        # Through negative slots, so that none overwrites one still to move.
        f"UPDATE {rows} SET slot = -1 - {slot} WHERE slot <> {slot}",
        f"UPDATE {rows} SET slot = -1 - slot WHERE slot < 0",
    ):
        yield execute(sql)


class RingWire(EntriesWire):
    """A find returns the newest rows first; an insert pushes and returns the sequence.

    Only a whole key can be removed from a ring, and no request can express that.
    """

    verbs = frozenset()

    def inserted(self, result: Any) -> int | None:
        number: int = result
        return number


class RingPlan(RowsPlan):
    """A ring in one dialect's words."""

    structure: Ring[Any, Any]
    wire = RingWire
    alterations: ClassVar[Any] = {"keep": _change_keep, "keep_for": change_keep_for}

    def __init__(self, structure: Ring[Any, Any], dialect: Dialect) -> None:
        self.first = {"keep": str(structure.keep)}
        super().__init__(structure, dialect)
        self.late = f"SELECT 1 FROM {self.head_table} WHERE keep <> {structure.keep} LIMIT 1"

    def made(self) -> Iterator[str]:
        key, names = self.structure.key.columns, self.dialect.names(self.structure.key.columns)
        yield self.create(self.head_table, [*key, SEQUENCE, KEEP], names, 50)
        until = [UNTIL] if self.expires else []
        columns = [*key, SLOT, SEQUENCE, AT, *until, *self.others]
        yield self.create(self.rows_table, columns, f"{names}, slot", 80)
        if self.expires:
            yield self.index("over", "until")

    # --- programs -------------------------------------------------------------------------------------------------

    def programs(self) -> Iterator[Program]:
        key = self.structure.key.columns
        after = f"SELECT sequence FROM {self.head_table} WHERE {self.mine()}"
        gives, door = [SEQUENCE], Door()
        yield Program("push", self.given, self._pushing, gives, whole=True, pinned=IN_ORDER, after=after, door=door)
        if self.dialect.is_server:
            gives = gives if self.dialect.family == "postgresql" else [Column("sequences", OUTCOMES)]
            yield Program("push_all", self.in_sets, self._pushing_all, gives, many=True, whole=True)
            yield self.lock_program()
        yield from removals(self)
        if self.expires:
            yield sweep([*key, SLOT])

    def _pushing(self, w: Words) -> Iterator[Step]:
        keep, key, others = self.structure.keep, w.values(self.structure.key.columns), w.values(self.others)
        yield Next("sequence", self.first)
        if w.dialect.family == "mariadb":
            new = f"{w['sequence']} = 1"
            yield Fact("keep", keep, when=new)
            yield Do(f"UPDATE {w.head} SET keep = {w['keep']} WHERE {w.mine()} AND keep <> {w['keep']}", when=new)
        if self.expires:
            yield Now()
        if w.loops:
            yield Do(self._put(w, w["sequence"], w["keep"], key, others))
            yield Give([w["sequence"]])
        else:
            yield Do(self._put(w, "sequence", "keep", key, others, f"{w.head} WHERE {w.mine()}"))

    def _put(
        self, w: Words, sequence: str, keep: str, key: Mapping[str, str], others: Mapping[str, str], source: str = ""
    ) -> str:
        # Writes a row into the slot of its sequence.
        slot = w.dialect.modulo.format(sequence, keep)
        values = {**key, "slot": slot, "sequence": sequence, "at": w.at, **self.ends(w)}
        unknown, there = self.structure.rows.unknown, not source
        return w.replace(w.rows, {**values, **others}, [*key, "slot"], source, unknown, there)

    def _pushing_all(self, w: Words) -> Iterator[Step]:
        # Allocates for all rows of a key at once, and writes the last `keep` of them.
        key = w.values(self.structure.key.columns)
        names, given = ", ".join(key), ", ".join(key.values())
        if self.expires:
            yield Now()
        if w.dialect.family == "mariadb":
            yield Fact("keep", self.structure.keep)
            place, adds = (w.new(each.name) for each in PLACES)
            heads = {**key, "sequence": adds, "keep": w["keep"]}
            made = f"IF({w.head}.sequence = 0, VALUES(keep), {w.head}.keep)"  # one that `lock` has made
            change = {"keep": made, "sequence": f"{w.head}.sequence + VALUES(sequence)"}
            yield Do(w.put(w.head, heads, [*key], change, f"{w.source} WHERE {place} = {adds}"))
            source = f"{w.source} STRAIGHT_JOIN {w.head} h FORCE INDEX (PRIMARY) ON {w.mine((), 'h.')}"
            kept, sequence = f"{source} WHERE {place} > {adds} - h.keep", f"h.sequence - {adds} + {place}"
            yield Do(self._put(w, sequence, "h.keep", key, w.values(self.others), kept))
            yield Give([f"(SELECT JSON_OBJECTAGG(q.ord, {sequence}) FROM {source})"])
            return
        others = {w.dialect.name_of(each): f"s.{w.dialect.name_of(each)}" for each in self.others}
        put = self._put(w, 's."its sequence"', 's."its keep"', {name: f"s.{name}" for name in key}, others, "s")
        put = put.replace(" FROM s ", ' FROM s WHERE s."its place" > s."its count" - s."its keep" ')
        yield Give(
            [
                f"""WITH q AS MATERIALIZED (
    SELECT q.*, row_number() OVER (PARTITION BY {given} ORDER BY q.ord) AS "its place",
      count(*) OVER (PARTITION BY {given}) AS "its count" FROM {w.source}),
  h AS (INSERT INTO {w.head} AS h ({names}, sequence, keep)
    SELECT {given}, count(*), {self.structure.keep} FROM q GROUP BY {given} ORDER BY {given}
    ON CONFLICT ({names}) DO UPDATE SET sequence = h.sequence + excluded.sequence,
      keep = CASE WHEN h.sequence = 0 THEN excluded.keep ELSE h.keep END
    RETURNING {w.names(w.key, "h.")}, h.sequence, h.keep),
  s AS MATERIALIZED (
    SELECT q.*, h.keep AS "its keep", h.sequence - q."its count" + q."its place" AS "its sequence"
      FROM q JOIN h ON {w.dialect.same(w.key, "h.", "q.")}),
  r AS ({put})
  SELECT s."its sequence" FROM s ORDER BY s.ord"""
            ]
        )

    def on_file(self, verb: str, rows: Sequence[Row], context: Context) -> Calling:
        if verb != "push" or len(rows) == 1:
            return (yield from super().on_file(verb, rows, context))
        if (yield from self.is_plain(rows, context)):
            return (yield from self._pushed(rows, context))
        now = self.moment(context)
        yield Statement(self._many[verb], [row + now for row in rows])
        return (yield from self._numbered(rows))

    def _pushed(self, rows: Sequence[Row], context: Context) -> Calling:
        # Many rows on SQLite, where a trigger for each takes three times as long: the last ones of each key are
        # written, with the numbers and the slots that its head tells. Only the program makes heads.
        width = self.key_width
        _, moments = yield from self.moments(context)
        pushes = Counter([row[:width] for row in rows])
        heads = yield Statement(self._heads, [*pushes])
        there = {key: head[0] for key, head in zip(pushes, heads, strict=True) if head}
        if len(there) < len(pushes):
            now = self.moment(context)
            yield Statement(self._many["push"], [row + now for row in rows if row[:width] not in there])
        last = {key: sequence for key, (sequence, _) in there.items()}
        ends = {key: (last[key] + pushes[key], keep) for key, (_, keep) in there.items()}
        numbers, written = [], []
        for row in rows:
            key = row[:width]
            number = last[key] = last.get(key, 0) + 1
            numbers.append(number)
            end, keep = ends.get(key, (INT_MAX, 0))
            if number > end - keep:
                written.append((*key, number % keep, number, *moments, *row[width:]))
        if written:
            yield Statement(self._raised, [(*key, *end) for key, end in ends.items()])
            yield Statement(self._overwritten, written)
        return numbers

    def _numbered(self, rows: Sequence[Row]) -> Calling:
        # The sequences of rows that were pushed where no program gives them: the heads, which are locked, tell them.
        keys = [row[: self.key_width] for row in rows]
        pushes = Counter(keys)
        heads = yield self._head.statement([*pushes])
        last = {key: head[0][0] - pushes[key] for key, head in zip(pushes, heads, strict=True)}
        sequences = []
        for key in keys:
            last[key] += 1
            sequences.append(last[key])
        return sequences

    # --- verbs ----------------------------------------------------------------------------------------------------

    def written(self) -> Mapping[str, Write]:
        return {
            "push": Write("push", self.rows_of, first),
            "push_all": Write("push", self.rows_of, lambda _, outcomes: list(map(int, outcomes))),
        }

    def asked(self) -> Mapping[str, Ask]:
        key, columns = self.structure.key.columns, self.structure.columns
        self._head = self.read(f"SELECT sequence FROM {self.head_table} WHERE {self.mine()}", key)
        if self._by_store:
            self._make_set_form()
        living = self.living("r.")
        values, newest = self.dialect.names(columns, "r."), itemgetter(0)

        def asking(columns: str, after: str, order: str) -> str:
            # The rows of a key after a sequence: all of them, where they are few, or the first of both runs of slots.
            if self.structure.keep <= FEW:
                where = f"{self.mine('r.')} AND r.sequence > {after}{living}"
                return f"SELECT {columns} FROM {self.rows_table} r WHERE {where}"
            # The join whose order the planner keeps.
            cross = {"sqlite": "CROSS JOIN", "postgresql": "JOIN"}.get(self.dialect.family, "STRAIGHT_JOIN")
            begin = (
                f"SELECT {columns} FROM {self.head_table} h {cross} {self.rows_table} r\n"
                f"  ON {self.dialect.same(key, 'r.', 'h.')} WHERE {self.mine('h.')}{living}"
            )
            place = self.dialect.modulo.format("h.sequence", "h.keep")
            tail = f"ORDER BY r.slot{order} LIMIT :{MOST.name}"
            first_after = f"{least}({most}({after}, h.sequence), h.sequence - h.keep) - h.sequence + {place}"
            newer = f"{begin} AND r.slot > {first_after} AND r.slot <= {place} {tail}"
            older = f"{begin} AND r.slot > {place} AND r.slot > {first_after} + h.keep {tail}"
            return f"SELECT * FROM ({newer}) a UNION ALL SELECT * FROM ({older}) b"

        def latest(op: Operation[Any], found: list[Row]) -> Any:
            found.sort(key=newest, reverse=True)
            return self._rows_of([each[1:] for each in found[: op.args[1]]])

        def entries(op: Operation[Any], found: list[Row]) -> Any:
            found.sort(key=newest)
            return [self._entry(each) for each in found[: op.args[2]]]

        least, most = self.words.greatest, self.words.least
        return {
            "latest": self.ask(asking(f"r.sequence, {values}", "0", " DESC"), latest, [MOST]),
            "entries": self.ask(asking(f"r.sequence, r.at, {values}", f":{AFTER.name}", ""), entries, [AFTER, MOST]),
        }

    def _make_set_form(self) -> None:
        # The statements of `_pushed`.
        key, written = self.structure.key.columns, [SEQUENCE, AT, *([UNTIL] if self.expires else []), *self.others]
        self._heads = self.finding("r.sequence, r.keep", self.head_table, key)
        self._raised = self.storing(self.head_table, [*key, SEQUENCE, KEEP], key, [SEQUENCE])
        self._overwritten = self.storing(self.rows_table, [*key, SLOT, *written], [*key, SLOT], written)

    # --- SQL clients ----------------------------------------------------------------------------------------------

    def relation(self) -> Relation:
        key = self.structure.key.columns
        # MariaDB and MySQL replace an inlet's trigger after the rows have moved; elsewhere a transaction does both.
        keep = str(self.structure.keep)
        keep = {"mariadb": LOCKED, "postgresql": f"{keep}::bigint"}.get(self.dialect.family, keep)
        return Relation(
            [*key, SEQUENCE, AT, *self.others],
            insert="push",
            identity=[*key, SEQUENCE],
            changes=self.others,
            place=f"slot = {self.dialect.modulo.format('{sequence}', keep)}",
            locked="MAX(h.keep)",
            query={"sqlite": self._shown_on_sqlite},
        )

    def _shown_on_sqlite(self, words: SQLiteViewWords) -> str:
        # The slots up to the newest row's are newer than the others, and both are runs of the primary key.
        shown = [words.dialect.names(words.key, "h."), "r.sequence, r.at"]
        shown += [words.shown(self.others, "r.")] if self.others else []
        run = (
            f"SELECT * FROM (SELECT {', '.join(shown)}\n  FROM {words.head} h CROSS JOIN {words.rows} r"
            f" ON {words.dialect.same(words.key, 'r.', 'h.')} AND r.slot {{}} h.sequence % h.keep{words.living('r.')}\n"
            f"  ORDER BY {', '.join(f'h.{words.dialect.name_of(each)} DESC' for each in words.key)}, r.slot DESC)"
        )
        return f"{run.format('<=')}\nUNION ALL\n{run.format('>')}"

    # --- check and alter ------------------------------------------------------------------------------------------

    def rules(self) -> Iterator[Rule]:
        yield has_head(self)
        yield from sequences(self)
        keep, slot = self.structure.keep, self.dialect.modulo.format("sequence", self.structure.keep)
        said = f"slot ? holds sequence ?, keep is {keep}"
        yield rule(self, "slot", said, "slot", "sequence", where=f"slot <> {slot}")
        said, gone = "sequence ? should be gone, the head says ?", f"r.sequence <= h.sequence - {keep}"
        yield rule(self, "keep", said, "r.sequence", "h.sequence", where=gone)
        yield rule(self, "keep", f"the head says keep ?, not {keep}", "h.keep", where=f"h.keep <> {keep}")
        if self.expires:
            yield lasting(self)


# --- HandlerSocket, the command line -------------------------------------------------------------------------------


class RingConsole(RowsConsole[Ring[Any, Any]]):
    """An imported record is pushed."""

    takes: ClassVar[Mapping[str, Any]] = {"per": REQUIRED, "keep": REQUIRED, "keep_for": None, "column": ()}
