"""Inserts, and modifications by a complete unique key: many in one statement or one message, each with its own outcome.

On SQLite, one statement is run for each request, so a refused one does not affect the others. On servers, the rows of
modifications are locked first, in the order of their keys, by one statement that also reports which rows exist. Then
each is written by a separate statement, in the order of the requests, all in one round trip. After a failure everything
is rolled back to a savepoint, and the requests are run one by one.

There sums are made in Python, in the order of the requests: whether one is refused, or changes nothing, depends on
those before it. Rows are distinguished by the columns that identify them, not by the text of the key: a collation may
treat two keys as equal.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Generator, Sequence
from functools import partial
from itertools import groupby, repeat
from typing import Any

from roost.dialects.dialect import Answer, Control, Row, Statement, Template, Together, Wanted, query
from roost.errors import Error, StatementFailed
from roost.structures.index.budget import Budget
from roost.structures.index.finds import ServerLookups
from roost.structures.index.opened import LAST_ID, OpenedIndex, asking
from roost.structures.index.runs import Alone, Bulk, Columns, Results, Shape, all_stored, exceptions, stored
from roost.structures.index.schema import TableColumn, ask
from roost.structures.index.values import UNHELD
from roost.structures.plan import write
from roost.types.column_types import INT_MAX

MOST_VALUES = 4_000  # values of inserts in one statement
MOST_BYTES = 2**20  # of their texts, approximately

Outcome = Generator[Wanted, Any, Any]


def changes_of(index: OpenedIndex, shape: Shape) -> Bulk | None:
    """Return the run of inserts, or of modifications by a complete unique key; None if each must be run alone."""
    table, verb, server = index.table, shape.verb, index.table.words.dialect.is_server
    to, sums = index.columns[: shape.to], verb in ("increment", "decrement")
    if any([column.generated for column in to]) or len(set(to)) != shape.to or (table.triggers and not server):
        return None
    if verb == "insert":
        made = Inserts if server else Changes
        return None if table.view or not to else made(index, shape)
    # A request may set a column by which a later one searches, or which identifies its row.
    own = {part.column.sql for part in index.key.parts} | {*table.identity, *[column.sql for column in table.named]}
    moves = bool({column.sql for column in to} & own)
    if not server:
        if sums:
            return None if moves else FileSums(index, shape)
        return Changes(index, shape) if to or verb == "delete" else None
    if not table.identity or moves or (sums and (len(set(index.columns)) < index.width or index.inexact)):
        return None
    lookups = ServerLookups(index, shape, changes=True)
    if lookups.template is None or (verb == "update" and not shape.to):
        return None
    return Modifications(index, shape, lookups)


class Changes(Bulk):
    """Inserts, updates or deletes on SQLite. A result is that of the operation."""

    def __init__(self, index: OpenedIndex, shape: Shape) -> None:
        super().__init__(index, shape)
        self.automatic = index.table.automatic
        names = [column.name for column in self.to]
        # The place of the column that generates ids among those of an INSERT.
        inserts = shape.verb == "insert" and self.automatic in names
        self.own = names.index(self.automatic) if inserts and self.automatic is not None else -1
        table, where = f"{index.table.sql}{index.key.hint}", index.key.whole
        if shape.verb == "insert":
            text = index.insertion(dict.fromkeys(self.to))[0]
        elif shape.verb == "delete":
            text = f"DELETE FROM {table} WHERE {where}"
        else:
            sets = ", ".join([f"{column.sql} = {self.set_to(column)}" for column in self.to])
            text = f"UPDATE OR ABORT {table} SET {sets} WHERE {where}"
        counted = Answer.DONE if shape.verb == "insert" else Answer.COUNTS
        self._counting, self._numbering = Template(text, answer=counted), Template(text, answer=Answer.IDS)

    def set_to(self, column: TableColumn) -> str:
        """Return the SQL of a column's new value."""
        return "?"

    def stored(self, columns: Columns) -> tuple[list[Row], set[int]]:
        """Return the rows of values, the new ones first; and the requests that must be run alone."""
        keys, to = all_stored(self.keys, columns), all_stored(self.to, columns[len(self.keys) :])
        if self.own >= 0:
            to[self.own] = asking(columns[self.own], partial(stored, self.to[self.own]))
        return list(zip(*to, *keys, strict=True)), exceptions(keys) | exceptions(to, nulls=False)

    def run(self, columns: Columns, alone: Alone, budget: Budget) -> Results:
        """Run the statement for one request after the other; exceptions, and requests that fail, are run alone."""
        return (yield from self._each(*self.stored(columns), alone, budget))

    def _each(self, rows: list[Row], alone_at: set[int], alone: Alone, budget: Budget) -> Results:
        inserts, own = self.shape.verb == "insert", self.own
        numbering = inserts and self.automatic is not None and (own < 0 or None in [row[own] for row in rows])
        template = self._numbering if numbering else self._counting
        number = 0 if self.automatic is not None else None  # the result for a row with its own id
        results: list[Any] = []
        for end in (*sorted(alone_at), len(rows)):
            while (begin := len(results)) < end:
                done = yield Statement(template, rows[begin:end])  # stops at a failure, or when the time is over
                if inserts and not numbering:
                    done = [number] * len(done)
                elif numbering and own >= 0:
                    done = [
                        number if row[own] is not None else id_ for row, id_ in zip(rows[begin:], done, strict=False)
                    ]
                results += done or [(yield from alone(begin))]
                if not budget.take(0):
                    return results
            if end < len(rows):
                results.append((yield from alone(end)))
        return results


class FileSums(Changes):
    """Increments, or decrements, on SQLite: each an UPDATE, which fails if the request has to be run alone."""

    def __init__(self, index: OpenedIndex, shape: Shape) -> None:
        super().__init__(index, shape)
        table, names = index.table, {column.name for column in self.to}
        # Adding several numbers in one step must not skip an intermediate value that would be refused or rounded.
        whole = all([column.kind == "integer" for column in self.to])
        self._merges = whole and not table.judged and not names & (table.unique | table.children)

    def set_to(self, column: TableColumn) -> str:
        """Return the sum, or what fails: of a text, beyond 64 bits, for a `-` over zero."""
        sql, held = column.sql, f"typeof({{}}) = '{column.kind}'"
        passes = [held.format(sql), held.format(f"{sql} + ?")]
        if self.shape.verb == "decrement":
            passes.append(f"sign({sql}) * sign({sql} + ?) >= 0")
        fails = f"abs((typeof({sql}) = '') - 1 - {INT_MAX})"  # not of constants, which might be computed beforehand
        added = f"WHEN {' AND '.join(passes)} THEN {sql} + ? ELSE {fails}"
        return f"CASE WHEN {sql} IS NULL OR ? IS NULL THEN {sql} {added} END"

    def stored(self, columns: Columns) -> tuple[list[Row], set[int]]:
        keys = all_stored(self.keys, columns)
        to = list(zip(*columns[len(keys) :], strict=True))
        addends = {each_: self._addends(each_) for each_ in set(to)}
        rows = [(*addends[each_], *key) for each_, key in zip(to, zip(*keys, strict=True), strict=True)]
        wrong = {each_ for each_, added in addends.items() if UNHELD in added}
        return rows, exceptions(keys) | {place for place, each_ in enumerate(to) if each_ in wrong}

    def _addends(self, to: Row) -> Row:
        # The numbers, each for all its places in the text.
        holes, sign = (4, -1) if self.shape.verb == "decrement" else (3, 1)
        try:
            given = dict(self.index.addends(to))
        except Error:
            return (UNHELD,)
        return tuple(
            [sign * given[place] if place in given else None for place in range(len(to)) for _ in range(holes)]
        )

    def run(self, columns: Columns, alone: Alone, budget: Budget) -> Results:
        """Run equal requests as one, if all of them can be: their order makes no difference then."""
        rows, alone_at = self.stored(columns)
        alike = Counter(rows)
        if self._merges and not alone_at and 2 * len(alike) <= len(rows):
            width = len(rows[0]) - len(self.keys)
            added = [value for row in alike for value in row[:width] if value is not None]
            one_way = min(added, default=0) >= 0 or max(added) <= 0
            many = [(*[value and n * value for value in row[:width]], *row[width:]) for row, n in alike.items()]
            yield Control.SAVEPOINT
            counts = (yield Statement(self._counting, many)) if one_way else []
            done = len(counts) == len(many)
            if not done:
                yield Control.BACK
            yield Control.RELEASE
            if done:
                budget.take(0)
                told = dict(zip(alike, counts, strict=True))
                return [told[row] for row in rows]
        return (yield from self._each(rows, alone_at, alone, budget))


class Inserts(Changes):
    """Inserts rows on a server by one statement; if one is refused, splits the rows in halves until it is alone."""

    def run(self, columns: Columns, alone: Alone, budget: Budget) -> Results:
        rows, alone_at = self.stored(columns)
        results: list[Any] = [None] * len(rows)

        def kind(place: int) -> int:
            asks = self.own >= 0 and rows[place][self.own] is None
            return 0 if place in alone_at or (asks and len(self.to) == 1) else 1 if asks else 2

        for what, some in groupby(range(len(rows)), kind):
            places = list(some)
            most = 1 if what == 0 else max(1, MOST_VALUES // len(self.to))
            for begin in range(0, len(places), most):
                yield from self._insert(places[begin : begin + most], rows, what == 1, alone, results)
        budget.take(0)
        return results

    def _insert(self, places: list[int], rows: Sequence[Row], numbered: bool, alone: Alone, results: list[Any]) -> Any:
        if len(places) == 1:
            results[places[0]] = yield from alone(places[0])
            return
        found = None
        if sum([len(value) for place in places for value in rows[place] if type(value) in (str, bytes)]) < MOST_BYTES:
            # If a trigger skips a row, it is unknown to which rows the generated ids belong.
            returns = self.automatic is not None and self.index.table.words.dialect.returning
            statements = [self._statement([rows[place] for place in places], numbered)]
            if self.automatic is not None and not returns:
                statements.append(ask(LAST_ID))
            found = yield from attempted(self.index, *statements, returned=len(places) if returns else None)
        if found is None:
            middle = len(places) // 2
            yield from self._insert(places[:middle], rows, numbered, alone, results)
            yield from self._insert(places[middle:], rows, numbered, alone, results)
        elif self.automatic is not None:
            if self.own >= 0 and not numbered:  # the rows have their own ids
                ids = [0] * len(places)
            elif len(found) == 1:
                ids = [number for (number,) in found[0][0]]
            else:
                (((first, step),),) = found[1]
                ids = [first + i * step for i in range(len(places))]
            for place, number in zip(places, ids, strict=True):
                results[place] = number

    def _statement(self, rows: Sequence[Row], numbered: bool) -> Statement:
        table = self.index.table
        places = [place for place in range(len(self.to)) if not numbered or place != self.own]
        columns = [self.to[place] for place in places]
        names, holes = ", ".join([column.sql for column in columns]), ", ".join([column.hole for column in columns])
        text = f"INSERT INTO {table.sql} ({names}) VALUES {', '.join([f'({holes})'] * len(rows))}"
        values = tuple([row[place] for row in rows for place in places])
        if table.automatic is None or not table.words.dialect.returning:
            return Statement(write(text), [values])
        return Statement(query(f"{text} RETURNING {table.columns[table.automatic].sql}"), [values])


# What a request does: what identifies its row, the places of columns, and their new values; none if the row is deleted.
Change = tuple[Row, tuple[int, ...], Sequence[Any]]


class Modifications(Bulk):
    """Modifications of one kind on a server. A result is the number of changed rows.

    Each is a statement of its own, so that triggers and constraints see every value. If a row does not have the sum
    that the previous UPDATE has set (because a trigger, or a FLOAT column, has changed it), all are undone and run
    alone.
    """

    def __init__(self, index: OpenedIndex, shape: Shape, lookups: ServerLookups) -> None:
        super().__init__(index, shape)
        self._lookups = lookups
        self._sums = shape.verb not in ("update", "delete")
        self._texts: dict[Any, Template] = {}  # by the places of the columns that they set and compare

    def run(self, columns: Columns, alone: Alone, budget: Budget) -> Results:
        keys, to = all_stored(self.keys, columns), columns[len(self.keys) :]
        # A key with an exception is NULL, or matches nothing: it is that of none of the other rows.
        alone_at, lines = exceptions(keys), list(zip(*keys, strict=True))
        if not self._sums:
            to = all_stored(self.to, to)
            alone_at |= exceptions(to, nulls=False)
        found = yield from self._lookups.present([key for place, key in enumerate(lines) if place not in alone_at])
        named = self._lookups.named
        present = {row[:named]: list(row[named:-1]) for row in found.values()}
        results: list[Any] = [0] * len(lines)
        changes: list[Change] = []
        rows = zip(*to, strict=True) if to else repeat(())
        for place, (key, given) in enumerate(zip(lines, rows, strict=False)):
            name = found[key][:named] if place not in alone_at and key in found else None
            if name is None or name not in present:
                continue
            try:
                change = self._change(present, name, given)
            except Error as error:
                results[place] = error
                continue
            if change is not None:
                changes += change
                results[place] = 1
        done = yield from self._done(changes)
        for place, key in enumerate(lines):
            if place in alone_at or (not done and key in found):
                results[place] = yield from alone(place)
                if not done and not budget.take(0):
                    return results[: place + 1]
        budget.take(0)
        return results

    def _change(self, present: dict[Row, list[Any]], name: Row, given: Row) -> list[Change] | None:
        # What is to be written, which may be nothing; None if the row must not change.
        if self.shape.verb == "delete":
            del present[name]
            return [(name, (), ())]
        if not self._sums:
            return [(name, tuple(range(len(given))), given)]
        addends = self.index.addends(given)
        sums = self.index.sums(present[name], addends, self.shape.verb)
        if sums is None:
            return None
        into = tuple([column for column, _ in addends])
        for column, value in zip(into, sums, strict=True):
            present[name][column] = value
        return [(name, into, sums)] if into else []

    def _done(self, changes: Sequence[Change]) -> Generator[Wanted, Any, bool]:
        # Writes the changes, all or none; returns whether it was done.
        passed: list[tuple[tuple[tuple[int, ...], tuple[int, ...]], Row]] = []  # the columns, and the values
        written: defaultdict[Row, dict[int, Any]] = defaultdict(dict)  # the sums of the previous requests
        for name, into, values in changes:
            own = written[name] if self._sums else {}
            passed.append(((into, tuple(own)), (*values, *self.index.named(name), *own.values())))
            own.update(zip(into, values, strict=True))
        grouped = [(each_, [row for _, row in some]) for each_, some in groupby(passed, lambda each_: each_[0])]
        statements = [Statement(self._text(*each_), rows) for each_, rows in grouped]
        # A trigger, or a foreign key, may have deleted other rows, too.
        counts = self.index.table.words.counts
        counted = [place for place, ((into, before), _) in enumerate(grouped) if before or counts or not into]
        return not statements or (yield from attempted(self.index, *statements, counted=counted)) is not None

    def _text(self, into: tuple[int, ...], before: tuple[int, ...]) -> Template:
        template = self._texts.get((into, before))
        if template is None:
            table, columns = self.index.table, self.index.columns
            same = [f"{columns[at].sql} {table.words.same} {columns[at].filtered or columns[at].hole}" for at in before]
            text = self.index.setting([columns[at] for at in into]) if into else f"DELETE FROM {table.sql}"
            template = self._texts[into, before] = write(f"{text} WHERE {' AND '.join([table.one, *same])}")
        return template


def attempted(
    index: OpenedIndex, *statements: Statement, counted: Sequence[int] = (), returned: int | None = None
) -> Outcome:
    """Run statements that may fail; return their answers, or None if one has failed, after which nothing was done.

    counted: the places of statements that also count as failed if they do not change one row for each row of values.
    returned: the number of rows that the first statement must return; otherwise it counts as failed.
    """
    alone = not index.table.words.aborts and len(statements) == 1 and len(statements[0].rows) == 1
    answers: Any = None
    if not alone:
        yield Control.SAVEPOINT
    try:
        answers = yield Together(statements)
        failed = any([answers[place] != len(statements[place].rows) for place in counted])
        failed = failed or (returned is not None and len(answers[0][0]) != returned)
    except StatementFailed:
        failed = True
    if not alone:
        if failed:
            yield Control.BACK
        yield Control.RELEASE
    return None if failed else answers
