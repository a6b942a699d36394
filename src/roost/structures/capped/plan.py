"""A capped collection's tables, programs and reads.

A row's place is its sequence, which only grows. On PostgreSQL the head of a full key is locked, not rewritten: dead
versions of it would make the next lock slow while somebody holds an old snapshot, or in one long transaction. So the
newest row tells the sequence, and the head has what rows that are gone have had: `sequence` is at least as great as any
of theirs. Elsewhere the head has the sequence of the newest row.

The search for the oldest row begins behind those that were evicted: the head has a sequence up to which none is left
(`roost_bound`), which is written from time to time. Otherwise it would pass everything that was ever evicted and still
is in the index.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, ClassVar

from roost.dialects.dialect import Dialect, Row, Statement, Wanted, execute, query
from roost.errors import Duplicate, Error, Full, Invalid
from roost.structures.capped.adding import (
    BOUND,
    DISTINCT,
    FAR,
    FEW,
    SetForm,
    adding_all,
    expiring,
    finding_worst,
    is_in_sets,
    putting,
)
from roost.structures.capped.declaration import Capped, CappedWire
from roost.structures.operation import Operation, first
from roost.structures.plan import AT, SEQUENCE, Context, Facts, N, Rule, same
from roost.structures.program import Calling, Write
from roost.structures.reading import MOST, Ask
from roost.structures.relation import Relation
from roost.structures.rows import PLACES, RowsPlan, values_of
from roost.structures.rules import (
    UNTIL,
    beyond,
    change_keep_for,
    counted,
    has_head,
    lasting,
    removals,
    rule,
    sequences,
    sweep,
)
from roost.structures.steps import (
    DUPLICATE,
    FULL,
    IN_ORDER,
    OUTCOMES,
    Do,
    Give,
    Head,
    Leave,
    Let,
    Now,
    Program,
    Refuse,
    Step,
    number,
)
from roost.structures.views.sqlite import SQLiteViewWords
from roost.structures.words.words import Words
from roost.types.column_types import INT_MAX
from roost.types.columns import Column

AFTER = number("roost_after")
STORED = number("stored")  # the outcome of an add: whether the row was stored


def _change_keep(plan: Any, old: Facts, new: Facts) -> Generator[Wanted, Any, None]:
    """Delete the rows beyond a smaller `keep`, and count the others; `Invalid` where rows are never dropped."""
    # As everywhere, the head is locked before its rows: a trigger of the view has not read the definition, so it waits
    # for no lock of it.
    keep, rows, head, key = new["keep"], plan.rows_table, plan.head_table, plan.structure.key.columns
    if keep is None or (old["keep"] is not None and keep > old["keep"]):
        return
    dialect, names = plan.dialect, plan.dialect.names(key)
    same_key = dialect.same(key, "r.", f"{head}.")
    if "reject" in (old["on_full"], new["on_full"]):
        many = f"SELECT count(*) FROM (SELECT {names} FROM {rows} GROUP BY {names} HAVING count(*) > {keep}) q"
        found = yield Statement(query(many), [()])
        if found[0][0][0]:
            raise Invalid(
                f"{plan.structure.name}: keep cannot go down to {keep} while {found[0][0][0]} keys hold more: a "
                "collection that rejects never drops a row; remove some first"
            )
    yield Statement(query(f"SELECT n FROM {head}{dialect.for_update}"), [()])
    if not plan.by_head:
        newest = f"SELECT max(r.sequence) FROM {rows} r WHERE {same_key}"
        yield execute(f"UPDATE {head} SET sequence = greatest(sequence, ({newest}))")
    score = plan.structure.score
    best = "sequence DESC" if score is None else f"{dialect.name_of(score)} DESC, sequence"
    yield beyond(plan, [*key, *plan.structure.id.columns], best, keep)
    yield execute(f"UPDATE {head} SET n = (SELECT count(*) FROM {rows} r WHERE {same_key})")


class CappedPlan(RowsPlan):
    """A capped collection in one dialect's words."""

    structure: Capped[Any, Any, Any]
    wire = CappedWire
    settled: ClassVar[Any] = {**RowsPlan.settled, "keep": _change_keep}
    optimistic = frozenset(["add"])
    places = (*PLACES, DISTINCT)
    alterations: ClassVar[Any] = {"keep": _change_keep, "keep_for": change_keep_for}

    def __init__(self, structure: Capped[Any, Any, Any], dialect: Dialect) -> None:
        ids = structure.id.columns
        self.identity = [*structure.key.columns, *ids]
        self.values = [each for each in structure.rows.others if each not in ids]
        self.by_head = dialect.family != "postgresql"  # whether the head has the sequence of the newest row
        self._id_out = dialect.encoder(ids) or same
        self._take_id = structure.rows.taking([each.name for each in ids])
        super().__init__(structure, dialect)
        self.identity_of = values_of([self.given.index(column) for column in self.identity], itemgetter)
        # Whatever the options of this process are, the programs may have others.
        self._refusals |= {self.there_already: DUPLICATE, f"{structure.name}: the collection is full": FULL}
        evicts_the_oldest = structure.on_full == "evict" and structure.score is None
        self._set_form = SetForm(self) if self._by_store and evicts_the_oldest else None
        if dialect.family == "mariadb" and not is_in_sets(structure):
            del self._programs["add_all"]
        elif dialect.is_server:
            self.form = [*self.form, "add_all"]  # what processes call that have other options

    def made(self) -> Iterator[str]:
        structure, dialect = self.structure, self.dialect
        key, ids = structure.key.columns, structure.id.columns
        names = dialect.names(key)
        bound = [BOUND] if dialect.is_server else []
        until = [UNTIL] if self.expires else []
        yield self.create(self.head_table, [*key, SEQUENCE, N, *bound], names, 50)
        columns = [*key, *ids, *self.values, SEQUENCE, AT, *until]
        yield self.create(self.rows_table, columns, dialect.names([*key, *ids]), 80)
        if structure.score is None or self.expires or not self.by_head:
            yield self.index("newest", f"{names}, sequence")
        if structure.score is not None:
            yield self.index("best", f"{names}, {dialect.name_of(structure.score)}, sequence DESC")
        if self.expires:
            yield self.index("over", "until")

    # --- programs -------------------------------------------------------------------------------------------------

    def programs(self) -> Iterator[Program]:
        key, ids, given = self.structure.key.columns, self.structure.id.columns, self.given
        around: dict[str, Any] = {}
        if self.structure.score is not None:  # on SQLite the head tells whether the row was stored
            head = f"SELECT sequence FROM {self.head_table} WHERE {self.mine()}"
            around = {"before": head, "after": head, "tell": lambda before, after: int((before or (0,))[0] < after[0])}
        add = Program("add", given, self._adding, [STORED], whole=True, pinned=IN_ORDER, **around)
        yield add
        if self.dialect.is_server:
            gives = [STORED] if self.dialect.family == "postgresql" else [Column("told", OUTCOMES)]
            yield Program(
                "add_all",
                self.in_sets,
                lambda w: adding_all(self, w, add),
                gives,
                many=True,
                whole=True,
                pinned=IN_ORDER,
            )
            yield self.lock_program()
        there = f"SELECT 1 FROM {self.rows_table} WHERE {self.same_as([*key, *ids])}{self.living()}"
        yield Program("remove", [*key, *ids], self._removing, [number("had")], pinned=IN_ORDER, before=there)
        # Without a count a head is not written with each row, so an old snapshot may not show all rows.
        may_hide = self.structure.keep is None and self.dialect.family == "postgresql"
        yield from removals(self, self.dialect.read_committed if may_hide else "")
        if self.expires:
            yield sweep([*key, *ids], head=True, remember=self.remember)

    def remember(self, w: Words, mine: str) -> Iterator[Do]:
        """Write the newest row's sequence into the head, before rows of the key are removed."""
        if not self.by_head:
            newest = f"SELECT max(sequence) FROM {w.rows} WHERE {mine}"
            yield Do(f"UPDATE {w.head} SET sequence = greatest(sequence, ({newest})) WHERE {mine}")

    def _adding(self, w: Words) -> Iterator[Step]:
        yield Head([SEQUENCE, N, *([BOUND] if w.loops else [])])
        if self.expires:
            yield Now()
        yield from self._adding_on_server(w) if w.loops else self._adding_on_file(w)
        yield Give(["1"])

    @property
    def there_already(self) -> str:
        """What is said of a duplicate."""
        return f"{self.structure.name}: {' and '.join(self.structure.id.names)} is there already"

    @property
    def full(self) -> str:
        """What is said of a full key."""
        return f"{self.structure.name}: the collection is full; keep is {self.structure.keep}"

    def put(self, w: Words, sequence: str, given: Mapping[str, str], source: str = "") -> str:
        """Return the statement that writes a row, or one for each of a source's; with "error" there is none before."""
        structure, values = self.structure, self.values_of(w, sequence, given)
        if structure.on_duplicate == "error" and not source:
            return f"INSERT INTO {w.rows} ({', '.join(values)}) VALUES ({', '.join(values.values())})"
        names = [w.dialect.name_of(each) for each in (*structure.key.columns, *structure.id.columns)]
        return w.replace(w.rows, values, names, source, structure.rows.unknown)

    def values_of(self, w: Words, sequence: str, given: Mapping[str, str]) -> dict[str, str]:
        """Return what a row has, by the quoted names of its columns."""
        return {**given, "sequence": sequence, "at": w.at, **self.ends(w)}

    # On SQLite what is remembered is evaluated where it is used, and the head is as the last statement has left it.

    def _adding_on_file(self, w: Words) -> Iterator[Step]:
        structure, keep = self.structure, self.structure.keep
        rows, head, mine = w.rows, w.head, w.mine()
        this = w.mine([*structure.key.columns, *structure.id.columns])
        n, sequence, count = w["n"], w["sequence"], f"(SELECT count(*) FROM {rows} WHERE {mine})"
        if self.expires:
            first_living = (
                f"(SELECT sequence FROM {rows} WHERE {mine} AND until > {w['now']} ORDER BY sequence LIMIT 1)"
            )
            over = f"{mine} AND sequence < coalesce({first_living}, {INT_MAX})"
            if keep is not None:
                yield Do(f"UPDATE {head} SET n = n - (SELECT count(*) FROM {rows} WHERE {over}) WHERE {mine}")
            yield Do(f"DELETE FROM {rows} WHERE {over}")
        there = f"EXISTS (SELECT 1 FROM {rows} WHERE {this})"
        if structure.on_duplicate == "error":
            yield Refuse(there, DUPLICATE, self.there_already)
        elif structure.on_duplicate == "best":
            assert structure.score is not None
            score = w.dialect.name_of(structure.score)
            yield Leave(f"{w.new(structure.score.name)} <= (SELECT {score} FROM {rows} WHERE {this})", ["0"])
        more = "1" if structure.on_duplicate == "error" else f"NOT {there}"
        if keep is not None:
            is_full = f"{n} >= {keep}" + ("" if structure.on_duplicate == "error" else f" AND NOT {there}")
            if structure.on_full == "reject":
                yield Refuse(f"{is_full} AND {count} >= {keep}", FULL, self.full)
                more = f"CASE WHEN {is_full} THEN {count} - n + 1 ELSE {more} END"
            else:
                # How many had to go; where others went, the count was wrong.
                beyond = f"max(n - {keep} + 1, 0)"
                if structure.score is not None:
                    score = w.dialect.name_of(structure.score)
                    worst = f"FROM {rows} WHERE {mine} ORDER BY {score}, sequence DESC LIMIT 1"
                    if keep <= FEW:
                        is_full += f" AND {count} >= {keep}"
                    else:
                        is_full += f" AND ({sequence} % {keep} <> 0 OR {count} >= {keep})"
                    yield Leave(f"{is_full} AND {w.new(structure.score.name)} <= (SELECT {score} {worst})", ["0"])
                    gone = f"{is_full} AND {score} = (SELECT {score} {worst}) AND sequence = (SELECT sequence {worst})"
                else:
                    excess = f"(SELECT n - {keep} FROM {head} WHERE {mine})"
                    gone = (
                        f"sequence <= {sequence} + 1 - {keep} AND sequence <= (\n"
                        f"    SELECT sequence FROM {rows} WHERE {mine} AND {is_full}\n"
                        f"    ORDER BY sequence LIMIT 1 OFFSET {excess})"
                    )
                yield Do(f"DELETE FROM {rows} WHERE {mine} AND {gone}")
                more = (
                    f"CASE WHEN n < {keep} OR NOT {more} THEN {more}\n"
                    f"    WHEN changes() = {beyond} THEN {keep} - n ELSE {count} - n + 1 END"
                )
        count_it = f", n = n + {more}" if keep is not None else ""
        yield Do(f"UPDATE {head} SET sequence = sequence + 1{count_it} WHERE {mine}")
        yield Do(self.put(w, sequence, w.values(self.given)))

    def _adding_on_server(self, w: Words) -> Iterator[Step]:
        structure, keep = self.structure, w.whole(self.structure.keep)
        head, mine, rows = w.head, w.mine(), w.by_index("newest")
        this = w.mine([*structure.key.columns, *structure.id.columns])
        lock = w.current
        n, bound = w["n"], w[BOUND.name]
        behind = f"{mine} AND sequence > {bound}"
        refreshes = structure.on_duplicate != "error"
        score = w.dialect.name_of(structure.score) if structure.score is not None else ""
        newest = f"SELECT sequence FROM {w.rows} WHERE {mine} ORDER BY sequence DESC LIMIT 1"
        if not self.by_head:
            # Who adds to a full key does not write its head, so an old snapshot's lock of that does not fail: the lock
            # of the rows does, since the oldest is gone.
            seen = f"SELECT count(*) FROM (SELECT 1 FROM {w.rows} WHERE {mine} FOR UPDATE) q"
            if structure.keep is not None:
                yield Let("seen", f"CASE WHEN NOT ({w.dialect.read_committed}) THEN ({seen}) END")
            yield Let("sequence", f"greatest({w['sequence']}, ({newest}))")
        there, rejects = w["there"], structure.keep is not None and structure.on_full == "reject"
        first = w.dialect.family == "mariadb" and structure.score is None  # `putting`
        if self.expires and (rejects or not first):
            yield from expiring(self, w, f"{n} >= {keep}" if first else "")
        found = f"SELECT sequence FROM {w.rows} WHERE {this}"
        if not first:
            yield Let("there", found, locking=True)
        elif rejects:
            yield Let("there", f"{found} AND {n} >= {keep}", locking=True)  # CASE would read it all the same
        else:
            yield from putting(self, w)
            yield from expiring(self, w) if self.expires else ()
        if not refreshes and (rejects or not first):
            yield Refuse(f"{there} IS NOT NULL", DUPLICATE, self.there_already)
        elif structure.on_duplicate == "best":
            assert structure.score is not None
            better = f"{w.new(structure.score.name)} <= (SELECT {score} FROM {w.rows} WHERE {this}{lock})"
            yield Leave(f"{there} IS NOT NULL AND {better}", ["0"])
        stays = refreshes or (first and self.expires)  # whether a row that is there is overwritten
        is_full = f"{n} >= {keep}" + (f" AND {there} IS NULL" if stays else "")
        count = f"(SELECT count(*) FROM {w.rows} WHERE {mine}{lock})"
        count_after = count if first else f"{count} + 1"
        unless_there = f"WHEN {there} IS NOT NULL THEN {n} " if stays else ""
        if structure.keep is not None and structure.on_full == "reject":
            yield Let("counted", f"CASE WHEN {is_full} THEN {count} ELSE {n} END")
            yield Refuse(f"{is_full} AND {w['counted']} >= {keep}", FULL, self.full)
            yield from putting(self, w) if first else ()
            yield Let("stored", f"CASE {unless_there}ELSE {w['counted']} + 1 END" if stays else f"{w['counted']} + 1")
        elif structure.keep is not None:
            if structure.score is not None:
                yield from finding_worst(self, w, is_full, count, lock)
            else:
                oldest = f"{behind} AND sequence <= {w['sequence']} + 1 - {keep} ORDER BY sequence LIMIT 1"
                first_kept = f"{mine} ORDER BY sequence DESC LIMIT 1 OFFSET {(structure.keep or 0) - (not first)}"
                found = f"SELECT sequence FROM {rows} WHERE {oldest}{lock}"
                yield Let("victim", f"CASE WHEN {is_full} AND {n} = {keep} THEN ({found}) END")
                # Where the count is wrong, all but the newest go, and the others are counted.
                wrong = f"{is_full} AND {w['victim']} IS NULL"
                cut = f"CASE WHEN {wrong} THEN (SELECT sequence FROM {rows} WHERE {first_kept}{lock}) END"
                yield Let("cut", f"coalesce({w['victim']}, {cut})")
                gone = f"{behind} AND sequence <= {w['cut']}"
                yield Do(f"{w.delete_by('newest')} WHERE {gone}", when=f"{w['cut']} IS NOT NULL")
            known = f"WHEN {n} < {keep} THEN {n} + 1 WHEN {w['victim']} IS NULL THEN {count_after} ELSE {keep} END"
            yield Let("stored", f"CASE {unless_there}{known}")
        if not first:
            yield Do(self.put(w, f"{w['sequence']} + 1", w.values(self.given)))
        changes, due = {}, []
        if self.by_head:
            changes["sequence"] = f"{w['sequence']} + 1"
        if structure.keep is not None:
            changes["n"] = w["stored"]
            due.append(f"{w['stored']} <> {n}")
        if structure.keep is not None and structure.on_full == "evict" and structure.score is None:
            changes[BOUND.name] = f"coalesce({w['cut']}, {bound})"
            due.append(f"{w['cut']} - {bound} > {FAR}")
        if changes:
            assigned = ", ".join(f"{column} = {value}" for column, value in changes.items())
            yield Do(f"UPDATE {head} SET {assigned} WHERE {w.my_head}", when="" if self.by_head else " OR ".join(due))

    def _removing(self, w: Words) -> Iterator[Step]:
        this = w.mine([*self.structure.key.columns, *self.structure.id.columns])
        counts = self.structure.keep is not None
        yield Head([N] if self.by_head else [N, SEQUENCE], makes=False)
        if self.expires:
            yield Now()
        living = f" AND until > {w['now']}" if self.expires else ""
        if not self.by_head:
            yield Let("last", f"SELECT sequence FROM {w.rows} WHERE {this}")
        yield Do(f"DELETE FROM {w.rows} WHERE {this}{living}", counts="gone")
        if counts and not self.by_head:
            # A row added behind an old snapshot is not seen. If that left the head as it was, it has evicted this one.
            score = self.structure.score
            order = "sequence" if score is None else f"{w.dialect.name_of(score)}, sequence DESC"
            evicted = f"PERFORM 1 FROM {w.rows} WHERE {w.mine()} ORDER BY {order} LIMIT 1 FOR UPDATE"
            yield Do(evicted, when=f"{w['gone']} = 0 AND NOT ({w.dialect.read_committed})")
        changes = [f"n = {w['n']} - {w['gone']}"] if counts else []
        if not self.by_head:
            changes.append(f"sequence = greatest({w['sequence']}, {w['last']})")
        if changes:
            yield Do(f"UPDATE {w.head} SET {', '.join(changes)} WHERE {w.my_head}", when=f"{w['gone']} > 0")
        yield Give([w["gone"]])

    # --- verbs ----------------------------------------------------------------------------------------------------

    def written(self) -> Mapping[str, Write]:

        def row(op: Operation[Any]) -> Sequence[Row]:
            return [self.key_out(op.args[0]) + self._id_out(op.args[1])]

        return {
            "add": Write("add", self.rows_of, self._added),
            "add_all": Write("add", self.rows_of, self._added),
            "remove": Write("remove", row, lambda op, outcomes: bool(first(op, outcomes)), makes=False),
        }

    def on_file(self, verb: str, rows: Sequence[Row], context: Context) -> Calling:
        if verb == "add" and self._set_form and (yield from self.is_plain(rows, context)):
            outcomes = yield from self._set_form.add(rows, context)
            if outcomes:
                return outcomes
        return (yield from super().on_file(verb, rows, context))

    def placed(self, rows: Sequence[Row]) -> Sequence[Row] | None:
        # Of rows with the same identity only the last one is stored.
        last_of = {self.identity_of(row): place for place, row in enumerate(rows)}
        found = super().placed(rows)
        if found is None or (self.structure.on_duplicate == "error" and len(last_of) < len(rows)):
            return None
        distinct = Counter(identity[: self.key_width] for identity in last_of)
        return [(*found[place], distinct[identity[: self.key_width]]) for identity, place in last_of.items()]

    def completed(self, rows: Sequence[Row], outcomes: list[Any]) -> Calling:
        if self.dialect.family == "mariadb" and outcomes[0] is not None:  # one of them is a duplicate
            return (yield from self.call_each("add", rows))
        return outcomes

    def _added(self, op: Operation[Any], outcomes: Sequence[Any]) -> Any:
        for row, outcome in zip(op.args, outcomes, strict=True):
            if outcome is not None and outcome < 0:
                return self._refused_row(Operation(op.structure, "add", (row,)), row, outcome)
        if self.structure.score is None:
            return None
        stored = [bool(outcome) for outcome in outcomes]
        return stored if op.verb == "add_all" else stored[0]

    def _refused_row(self, op: Operation[Any], row: Row, outcome: int) -> Error:
        if outcome == DUPLICATE:
            return Duplicate(f"{op!r}: {self.structure.id.value(self._take_id(row))!r} is there already")
        return Full(f"{op!r}: the collection is full; keep is {self.structure.keep}")

    def asked(self) -> Mapping[str, Ask]:
        structure, rows = self.structure, self.rows_table
        key, ids = structure.key.columns, structure.id.columns
        values, mine, living = self.dialect.names(structure.columns), self.mine(), self.living()
        this = self.same_as([*key, *ids])

        def counted(_: Operation[Any], found: list[Row]) -> int:
            return int(found[0][0]) if found else 0

        def listed(_: Operation[Any], found: list[Row]) -> Any:
            return self._rows_of(found)

        def one(_: Operation[Any], found: list[Row]) -> Any:
            return self._rows_of(found)[0] if found else None

        count = f"count(*) FROM {rows}" if self.expires else f"n FROM {self.head_table}"
        limit = f"LIMIT :{MOST.name}"
        latest = f"SELECT {values} FROM {rows} WHERE {mine}{living} ORDER BY sequence DESC {limit}"
        entries = (
            f"SELECT sequence, at, {values} FROM {rows} WHERE {mine}{living}"
            f" AND sequence > :{AFTER.name} ORDER BY sequence {limit}"
        )
        asks = {
            "get": self.ask(f"SELECT {values} FROM {rows} WHERE {this}{living}", one, ids),
            "count": self.ask(f"SELECT {count} WHERE {mine}{living}", counted),
            "latest": self.ask(latest, listed, [MOST]),
            "entries": self.ask(entries, lambda _, found: [self._entry(each) for each in found], [AFTER, MOST]),
        }
        if structure.score is not None:
            score = self.dialect.name_of(structure.score)
            top = f"SELECT {values} FROM {rows} WHERE {mine}{living} ORDER BY {score} DESC, sequence {limit}"
            better = (
                f"SELECT count(*) FROM {rows} b WHERE {self.mine('b.')}{self.living('b.')}\n"
                f"    AND b.{score} >= r.{score} AND (b.{score} > r.{score} OR b.sequence < r.sequence)"
            )
            this = self.same_as([*key, *ids], "r.")
            rank = f"SELECT ({better}) + 1 FROM {rows} r WHERE {this}{self.living('r.')}"
            asks["top"] = self.ask(top, listed, [MOST])
            asks["rank"] = self.ask(rank, lambda _, found: found[0][0] if found else None, ids)
        return asks

    # --- SQL clients ----------------------------------------------------------------------------------------------

    def relation(self) -> Relation:
        key, ids = self.structure.key.columns, self.structure.id.columns
        return Relation(
            [*self.structure.columns, SEQUENCE, AT],
            insert="add",
            identity=[*key, *ids],
            changes=self.values,
            remove="remove",
            counted=True,
            place="sequence = {sequence}",
            skips=self.structure.score is not None,
            query={"sqlite": self._shown_on_sqlite},
        )

    def _shown_on_sqlite(self, words: SQLiteViewWords) -> str:
        shown = [
            words.shown([column]) if column in self.values else words.dialect.names([column])
            for column in self.structure.columns
        ]
        order = [f"{words.dialect.name_of(column)} DESC" for column in words.key]
        score = self.structure.score
        order += ["sequence DESC"] if score is None else [f"{words.dialect.name_of(score)} DESC", "sequence"]
        columns = ", ".join([*shown, "sequence, at"])
        return f"SELECT {columns} FROM {words.rows}{words.where}\n  ORDER BY {', '.join(order)}"

    # --- check and alter ------------------------------------------------------------------------------------------

    def rules(self) -> Iterator[Rule]:
        keep = self.structure.keep
        yield has_head(self)
        yield from sequences(self, last=self.by_head)
        if keep is not None:
            yield counted(self)
            yield rule(self, "keep", f"? rows, keep is {keep}", "count(*)", having=f"count(*) > {keep}")
        one_each = "sequence HAVING count(*) > 1"
        yield rule(self, "order", "? rows have sequence ?", "count(*)", "sequence", having=one_each)
        if self.dialect.is_server:
            said, gone = "sequence ?, which the head says is gone", "r.sequence <= h.roost_bound"
            yield rule(self, "bound", said, "r.sequence", where=gone)
        if self.expires:
            yield lasting(self)
