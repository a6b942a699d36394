"""A capped collection's tables, programs and reads.

A row's place is its sequence, which only grows. On PostgreSQL the head of a full key is locked, not rewritten: dead
versions of it would make the next lock slow while somebody holds an old snapshot, or in one long transaction. So the
newest row tells the sequence, and the head has what rows that are gone have had: `sequence` is at least as great as any
of theirs. Elsewhere the head has the sequence of the newest row.

The search for the oldest row begins behind those that were evicted: the head has a sequence up to which none is left
(`roost_bound`), which is written from time to time. Otherwise it would pass everything that was ever evicted and still
is in the index.

Longer than 500 lines: a program's steps are read beside its tables and its reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from roost.dialects.dialect import Dialect, Row
from roost.errors import Duplicate, Error, Full
from roost.structures.capped import sets
from roost.structures.capped.adding import BOUND, FEW, expiring, finding_worst, putting
from roost.structures.capped.alter import change_keep, rules
from roost.structures.capped.declaration import Capped
from roost.structures.capped.wire import CappedWire
from roost.structures.clock import SECOND
from roost.structures.keep_for import UNTIL
from roost.structures.keep_for import change as change_keep_for
from roost.structures.operation import Operation
from roost.structures.plan import AT, SEQUENCE, Context, N, Rule, same
from roost.structures.program import ALL, MOST, Ask, ProgramPlan, Write, first
from roost.structures.relation import Relation
from roost.structures.rows import Entry
from roost.structures.rules import sweep
from roost.structures.steps import (
    DUPLICATE,
    FULL,
    IN_ORDER,
    INT,
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

AFTER = number("roost_after")
STORED = number("stored")  # the outcome of an add: whether the row was stored
FAR = 32  # sequences by which the bound lies behind before a full key's head is written


class CappedPlan(ProgramPlan):
    """A capped collection in one dialect's words."""

    structure: Capped[Any, Any, Any]
    heads = True

    def __init__(self, structure: Capped[Any, Any, Any], dialect: Dialect) -> None:
        key, ids = structure.key.columns, structure.id.columns
        self.others = structure.rows.others
        self.values = [each for each in self.others if each not in ids]
        self.given = [*key, *self.others]
        self.expires = structure.keep_for is not None
        self.by_head = dialect.family != "postgresql"  # whether the head has the sequence of the newest row
        self._row_out = dialect.encoder(self.given) or same
        self._id_out = dialect.encoder(ids) or same
        self._take = structure.rows.taking([each.name for each in self.given])
        self._take_id = structure.rows.taking([each.name for each in ids])
        self._rows_of = structure.rows.maker(dialect.decoder(structure.columns))
        self._at_in = dialect.decoder([AT]) or same
        self.newest = f"roost_{structure.name}_newest"
        self.best = f"roost_{structure.name}_best"
        super().__init__(structure, dialect)
        # Whatever the options of this process are, the programs may have others.
        self._refusals |= {self.there_already: DUPLICATE, f"{structure.name}: the collection is full": FULL}
        if dialect.family == "mariadb" and not sets.is_in_sets(structure):
            del self._programs["add_all"]
        elif dialect.row_locks:
            self.form = [*self.form, "add_all"]  # what processes call that have other options

    def made(self) -> Iterator[str]:
        """Yield the statements that make its tables and indexes."""
        structure, dialect, rows = self.structure, self.dialect, self.rows_table
        key, ids = structure.key.columns, structure.id.columns
        names, name = dialect.names(key), structure.name
        bound = [BOUND] if dialect.row_locks else []
        head, room = (f" WITH (fillfactor = {n})" if dialect.name == "postgresql" else "" for n in (50, 80))
        until = [UNTIL] if self.expires else []
        yield self.create(self.head_table, [*key, SEQUENCE, N, *bound], names) + head
        yield (
            self.create(rows, [*key, *ids, *self.values, SEQUENCE, AT, *until], f"{names}, {dialect.names(ids)}") + room
        )
        indexes = {}
        if structure.score is None or self.expires or not self.by_head:
            indexes[self.newest] = f"{names}, sequence"
        if structure.score is not None:
            indexes[self.best] = f"{names}, {dialect.name_of(structure.score)}, sequence DESC"
        if self.expires:
            indexes[f"roost_{name}_over"] = "until"
        self.indexes = tuple(indexes)
        for index, columns in indexes.items():
            yield f"CREATE INDEX {index} ON {rows} ({columns})"

    # --- programs -------------------------------------------------------------------------------------------------

    def programs(self) -> Iterator[Program]:
        """Yield the programs."""
        key, ids, given = self.structure.key.columns, self.structure.id.columns, self.given
        around: dict[str, Any] = {}
        if self.structure.score is not None:  # on SQLite the head tells whether the row was stored
            head = f"SELECT sequence FROM {self.head_table} WHERE {self.mine()}"
            around = {"before": head, "after": head, "tell": lambda before, after: int((before or (0,))[0] < after[0])}
        add = Program("add", given, self._adding, [STORED], whole=True, pinned=IN_ORDER, **around)
        yield add
        if self.dialect.row_locks:
            gives = [STORED] if self.dialect.family == "postgresql" else []
            yield Program(
                "add_all", given, lambda w: sets.adding_all(self, w, add), gives, many=True, whole=True, pinned=IN_ORDER
            )
            yield self.lock_program()
        there = f"SELECT 1 FROM {self.rows_table} WHERE {self.same_as([*key, *ids])}{self._living()}"
        yield Program("remove", [*key, *ids], self._removing, [number("had")], pinned=IN_ORDER, before=there)
        # Without a count a head is not written with each row, so an old snapshot may not show all rows.
        may_hide = self.structure.keep is None and self.dialect.family == "postgresql"
        yield from self.removals(
            counted=True, remember=self.remember, goes=self.dialect.read_committed if may_hide else ""
        )
        if self.expires:
            yield sweep([*key, *ids], head=True, remember=self.remember)

    def _living(self, prefix: str = "") -> str:
        return f" AND {prefix}until > {self.now}" if self.expires else ""

    def remember(self, w: Words, mine: str) -> Iterator[Do]:
        """Write the newest row's sequence into the head, before rows of the key are removed."""
        if not self.by_head:
            newest = f"SELECT max(sequence) FROM {w.rows} WHERE {mine}"
            yield Do(f"UPDATE {w.head} SET sequence = greatest(sequence, ({newest})) WHERE {mine}")

    @property
    def keep(self) -> str:
        """The number of rows of a key, with its type."""
        return f"{self.structure.keep}::bigint" if self.dialect.family == "postgresql" else str(self.structure.keep)

    def by_index(self, w: Words, index: str) -> str:
        """Return the table of rows, as FROM has it, read by an index; MariaDB would scan one with few rows."""
        return f"{w.rows} FORCE INDEX ({index})" if self.dialect.family == "mariadb" else w.rows

    def _adding(self, w: Words) -> Iterator[Step]:
        yield Head(["sequence", "n", *([BOUND.name] if w.loops else [])])
        if self.expires:
            yield Now()
        yield from self._adding_on_server(w) if w.loops else self._adding_on_file(w)
        if w.loops:
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
        values = {**given, "sequence": sequence, "at": w.at}
        if self.expires:
            values["until"] = f"{w['now']} + {(self.structure.keep_for or 0) * SECOND}"
        return values

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
                    gone = f"{is_full} AND sequence = (SELECT sequence {worst})"
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
        structure, keep = self.structure, self.keep
        head, mine, rows = w.head, w.mine(), self.by_index(w, self.newest)
        this = w.mine([*structure.key.columns, *structure.id.columns])
        lock = w.dialect.for_update if w.dialect.family == "mariadb" else ""
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
                yield Let("seen", INT, f"CASE WHEN NOT ({w.dialect.read_committed}) THEN ({seen}) END")
            yield Let("sequence", INT, f"greatest({w['sequence']}, ({newest}))")
        there, rejects = w["there"], structure.keep is not None and structure.on_full == "reject"
        first = w.dialect.family == "mariadb" and structure.score is None  # `putting`
        if self.expires and (rejects or not first):
            yield from expiring(self, w, f"{n} >= {keep}" if first else "")
        found = f"SELECT sequence FROM {w.rows} WHERE {this}"
        if not first:
            yield Let("there", INT, found, locking=True)
        elif rejects:
            yield Let("there", INT, f"{found} AND {n} >= {keep}", locking=True)  # CASE would read it all the same
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
            yield Let("counted", INT, f"CASE WHEN {is_full} THEN {count} ELSE {n} END")
            yield Refuse(f"{is_full} AND {w['counted']} >= {keep}", FULL, self.full)
            yield from putting(self, w) if first else ()
            yield Let(
                "stored", INT, f"CASE {unless_there}ELSE {w['counted']} + 1 END" if stays else f"{w['counted']} + 1"
            )
        elif structure.keep is not None:
            if structure.score is not None:
                yield from finding_worst(self, w, is_full, count, lock)
            else:
                oldest = f"{behind} AND sequence <= {w['sequence']} + 1 - {keep} ORDER BY sequence LIMIT 1"
                first_kept = f"{mine} ORDER BY sequence DESC LIMIT 1 OFFSET {(structure.keep or 0) - (not first)}"
                found = f"SELECT sequence FROM {rows} WHERE {oldest}{lock}"
                yield Let("victim", INT, f"CASE WHEN {is_full} AND {n} = {keep} THEN ({found}) END")
                # Where the count is wrong, all but the newest go, and the others are counted.
                wrong = f"{is_full} AND {w['victim']} IS NULL"
                cut = f"CASE WHEN {wrong} THEN (SELECT sequence FROM {rows} WHERE {first_kept}{lock}) END"
                yield Let("cut", INT, f"coalesce({w['victim']}, {cut})")
                gone = f"{behind} AND sequence <= {w['cut']}"
                yield Do(f"DELETE FROM {self.by_index(w, self.newest)} WHERE {gone}", when=f"{w['cut']} IS NOT NULL")
            known = f"WHEN {n} < {keep} THEN {n} + 1 WHEN {w['victim']} IS NULL THEN {count_after} ELSE {keep} END"
            yield Let("stored", INT, f"CASE {unless_there}{known}")
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
        yield Head(["n"] if w.loops and self.by_head else ["n", "sequence"], makes=False)
        if self.expires:
            yield Now()
        living = f" AND until > {w['now']}" if self.expires else ""
        if not w.loops:
            yield Do(f"DELETE FROM {w.rows} WHERE {this}{living}")
            if counts:
                yield Do(f"UPDATE {w.head} SET n = n - changes() WHERE {w.mine()}")
            return
        if not self.by_head:
            yield Let("last", INT, f"SELECT sequence FROM {w.rows} WHERE {this}")
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
        """Return what the verbs that write call."""

        def rows(op: Operation[Any]) -> Sequence[Row]:
            out, take = self._row_out, self._take
            return [out(take(row)) for row in op.args]

        def row(op: Operation[Any]) -> Sequence[Row]:
            return [self.key_out(op.args[0]) + self._id_out(op.args[1])]

        return {
            "add": Write("add", rows, self._added),
            "add_all": Write("add", rows, self._added),
            "remove": Write("remove", row, lambda op, outcomes: bool(first(op, outcomes)), makes=False),
        }

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
        """Return what the verbs that only read ask."""
        structure, rows = self.structure, self.rows_table
        key, ids, timed = structure.key.columns, structure.id.columns, [*self.timed] if self.expires else []
        values, mine, living = self.dialect.names(structure.columns), self.mine(), self._living()
        this = self.same_as([*key, *ids])

        def now(context: Context) -> Row:
            return self.moment(context) if self.expires else ()

        def of_key(op: Operation[Any], context: Context) -> Row:
            return (*self.key_out(op.args[0]), *now(context))

        def of_row(op: Operation[Any], context: Context) -> Row:
            return (*self.key_out(op.args[0]), *self._id_out(op.args[1]), *now(context))

        def several(op: Operation[Any], context: Context) -> Row:
            return (*of_key(op, context), op.args[1] or ALL)

        def later(op: Operation[Any], context: Context) -> Row:
            return (*of_key(op, context), op.args[1], op.args[2] or ALL)

        def counted(_: Operation[Any], found: list[Row]) -> int:
            return int(found[0][0]) if found else 0

        def listed(_: Operation[Any], found: list[Row]) -> Any:
            return self._rows_of(found)

        count = f"count(*) FROM {rows}" if self.expires else f"n FROM {self.head_table}"
        limit = f"LIMIT :{MOST.name}"
        latest = f"SELECT {values} FROM {rows} WHERE {mine}{living} ORDER BY sequence DESC {limit}"
        entries = (
            f"SELECT sequence, at, {values} FROM {rows} WHERE {mine}{living}"
            f" AND sequence > :{AFTER.name} ORDER BY sequence {limit}"
        )
        asks = {
            "get": Ask(
                self.read(f"SELECT {values} FROM {rows} WHERE {this}{living}", [*key, *ids, *timed]),
                of_row,
                lambda _, found: self._rows_of(found)[0] if found else None,
            ),
            "count": Ask(self.read(f"SELECT {count} WHERE {mine}{living}", [*key, *timed]), of_key, counted),
            "latest": Ask(self.read(latest, [*key, *timed, MOST]), several, listed),
            "entries": Ask(
                self.read(entries, [*key, *timed, AFTER, MOST]),
                later,
                lambda _, found: [self._entry(each) for each in found],
            ),
        }
        if structure.score is not None:
            score = self.dialect.name_of(structure.score)
            top = f"SELECT {values} FROM {rows} WHERE {mine}{living} ORDER BY {score} DESC, sequence {limit}"
            better = (
                f"SELECT count(*) FROM {rows} b WHERE {self.mine('b.')}{self._living('b.')}\n"
                f"    AND b.{score} >= r.{score} AND (b.{score} > r.{score} OR b.sequence < r.sequence)"
            )
            this = self.same_as([*key, *ids], "r.")
            rank = f"SELECT ({better}) + 1 FROM {rows} r WHERE {this}{self._living('r.')}"
            asks["top"] = Ask(self.read(top, [*key, *timed, MOST]), several, listed)
            asks["rank"] = Ask(
                self.read(rank, [*key, *ids, *timed]), of_row, lambda _, found: found[0][0] if found else None
            )
        return asks

    def _entry(self, stored: Row) -> Entry[Any]:
        return Entry(stored[0], self._at_in(stored[1:2])[0], self._rows_of([stored[2:]])[0])

    def verbs(self) -> dict[str, Any]:
        """Return what lists keys."""
        return {"keys": self.list_keys(self.head_table)}

    # --- SQL clients ----------------------------------------------------------------------------------------------

    def relation(self) -> Relation:
        """Return what SQL clients see: the newest rows first on SQLite, or the best, which needs no sort for that."""
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
        """Return what `check` verifies."""
        return rules(self)


CappedPlan.wire = CappedWire
CappedPlan.settled = frozenset(["keep"])
CappedPlan.alterations = {"keep": change_keep, "keep_for": change_keep_for}
