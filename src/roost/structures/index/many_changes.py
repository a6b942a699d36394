"""Inserts, and modifications by a complete unique key, on servers: many are sent together, each with its own outcome.

The rows of modifications are locked first, in the order of their keys, by one statement that also reports which rows
exist. Then each is written by a separate statement, in the order of the requests, all in one round trip. After a
failure everything is rolled back to a savepoint, and the requests are run one by one.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from roost.dialects.dialect import Control, Row, Statement, Template, Together, Wanted
from roost.errors import Error, StatementFailed
from roost.structures.index.budget import Budget
from roost.structures.index.many import Lookups
from roost.structures.index.opened import LAST_ID, OpenedIndex, asking
from roost.structures.index.runs import Alone, Bulk, Columns, Results, Shape, exceptions, stored
from roost.structures.index.schema import ask
from roost.structures.index.values import UNHELD
from roost.structures.plan import each, write

MOST_VALUES = 4_000  # values of inserts in one statement
MOST_BYTES = 2**20  # of their texts, approximately

Outcome = Generator[Wanted, Any, Any]


def of(index: OpenedIndex, shape: Shape) -> Bulk | None:
    """Return the run of modifications; None if each request must be run alone."""
    table, columns = index.table, index.columns[: shape.to]
    if not table.identity or any([column.generated for column in columns]) or len(set(columns)) < len(columns):
        return None
    lookups = Lookups(index, names=True, locks=True)
    if lookups.template is None:
        return None
    if shape.verb == "delete":
        return Modifications(index, lookups, ())
    # A request may set a column by which a later one searches, or which identifies its row.
    names = {column.name for column in columns}
    if names & {part.column.name for part in index.key.parts} or names & {column.name for column in table.named}:
        return None
    if shape.verb == "update":
        return Modifications(index, lookups, columns) if columns else None
    if index.inexact or len(set(index.columns)) < index.width:
        return None
    return Sums(index, shape, lookups)


def attempted(
    index: OpenedIndex, *statements: Statement, counted: Sequence[int] = (), returned: int | None = None
) -> Outcome:
    """Run statements that may fail; return their answers, or None if one has failed, after which nothing was done.

    counted: the places of statements that also count as failed if they do not change one row for each row of values.
    returned: the number of rows that the first statement must return; otherwise it counts as failed.
    """
    alone = not index.table.words.aborts and len(statements) == 1 and len(statements[0].rows) == 1
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


class Inserts(Bulk):
    """Inserts rows by one statement; if a row is refused, splits the rows in halves until that row is alone."""

    def __init__(self, index: OpenedIndex, shape: Shape) -> None:
        self._index = index
        self._columns = index.columns[: shape.to]
        self._automatic = index.table.automatic
        names = [column.name for column in self._columns]
        self._own = (
            names.index(self._automatic) if self._automatic in names else -1
        )  # the place of the column that generates ids

    @classmethod
    def of(cls, index: OpenedIndex, shape: Shape) -> Inserts | None:
        """Return the run; None if each request must be run alone."""
        columns = index.columns[: shape.to]
        if index.table.view or any([column.generated for column in columns]):
            return None
        return cls(index, shape) if shape.to and len(set(columns)) == len(columns) == shape.to else None

    def run(self, columns: Columns, alone: Alone, budget: Budget) -> Results:
        """Insert the rows."""
        total = len(columns[0])
        values = [stored(column, each_) for column, each_ in zip(self._columns, columns, strict=True)]
        if self._own >= 0:
            values[self._own] = asking(columns[self._own], partial(stored, self._columns[self._own]))
        rows = list(zip(*values, strict=True))
        results: list[Any] = [None] * total

        def kind(place: int) -> int:
            asks = self._own >= 0 and rows[place][self._own] is None
            if UNHELD in rows[place] or (asks and len(self._columns) == 1):
                return 0
            return 1 if asks else 2

        for what, some in groupby(range(total), kind):
            places = list(some)
            if what == 0:
                for place in places:
                    results[place] = yield from alone(place)
                continue
            most = max(1, MOST_VALUES // len(self._columns))
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
            returns = self._automatic is not None and self._index.table.words.returning
            statements = [self._statement([rows[place] for place in places], numbered)]
            if self._automatic is not None and not returns:
                statements.append(ask(LAST_ID))
            found = yield from attempted(self._index, *statements, returned=len(places) if returns else None)
        if found is None:
            middle = len(places) // 2
            yield from self._insert(places[:middle], rows, numbered, alone, results)
            yield from self._insert(places[middle:], rows, numbered, alone, results)
        elif self._automatic is not None:
            own = self._own >= 0 and not numbered  # the rows have their own ids
            if len(found) == 1:
                ids = [number for (number,) in found[0][0]]
            else:
                (((first, step),),) = found[1]
                ids = [first + i * step for i in range(len(places))]
            for place, number in zip(places, ids, strict=True):
                results[place] = 0 if own else number

    def _statement(self, rows: Sequence[Row], numbered: bool) -> Statement:
        table = self._index.table
        places = [place for place in range(len(self._columns)) if not numbered or place != self._own]
        columns = [self._columns[place] for place in places]
        names, holes = ", ".join([column.sql for column in columns]), ", ".join([column.hole for column in columns])
        text = f"INSERT INTO {table.sql} ({names}) VALUES {', '.join([f'({holes})'] * len(rows))}"
        values = tuple([row[place] for row in rows for place in places])
        if table.automatic is None or not table.words.returning:
            return Statement(write(text), [values])
        return Statement(each(f"{text} RETURNING {table.columns[table.automatic].sql}"), [values])


class Modifications(Bulk):
    """Updates that set the same columns, or deletes. A result is the number of rows."""

    def __init__(self, index: OpenedIndex, lookups: Lookups, columns: Sequence[Any]) -> None:
        self._index = index
        self._lookups = lookups
        self._keys = [part.column for part in index.key.parts]
        self._set = columns
        table = index.table
        sets = ", ".join([f"{column.sql} = {column.hole}" for column in columns])
        text = f"UPDATE {table.sql} SET {sets}" if columns else f"DELETE FROM {table.sql}"
        self._template = write(f"{text} WHERE {table.one}")

    def run(self, columns: Columns, alone: Alone, budget: Budget) -> Results:
        """Lock the rows, and write them."""
        width, index = len(self._keys), self._index
        keys = [stored(column, values) for column, values in zip(self._keys, columns, strict=False)]
        to = [stored(column, values) for column, values in zip(self._set, columns[width:], strict=False)]
        alone_at = exceptions(keys)
        for values in to:
            alone_at.update([place for place, value in enumerate(values) if value is UNHELD])
        total = len(keys[0])
        results: list[Any] = [0] * total
        whole = [key for place, key in enumerate(zip(*keys, strict=True)) if place not in alone_at]
        names = yield from locked(self._lookups, whole)
        lines = list(zip(*keys, *to, strict=True))
        begin = 0
        for end in (*sorted(alone_at), total):  # a request that is run alone must see the effects of those before it
            places, rows, done = [], [], set()
            for place in range(begin, end):
                name = names.get(lines[place][:width])
                if name is not None and (self._set or name not in done):
                    done.add(name)
                    places.append(place)
                    rows.append((*lines[place][width:], *index.named(name)))
            if rows and (yield from self._write(rows)) is not None:
                for place in places:
                    results[place] = 1
            elif rows:
                done.clear()  # those that are refused alone are still there
                for place in range(begin, end):
                    results[place] = yield from alone(place)
            if not self._set:
                names = {key: name for key, name in names.items() if name not in done}
            if end < total:
                results[end] = yield from alone(end)
            begin = end + 1
        budget.take(0)
        return results

    def _write(self, rows: Sequence[Row]) -> Outcome:
        # A trigger, or a foreign key, may have changed other rows, too.
        counted = [0] if not self._set or self._index.table.words.counts else []
        return (yield from attempted(self._index, Statement(self._template, rows), counted=counted))


class Sums(Bulk):
    """Increments and decrements, added in Python in the order of the requests. A result is the number of changed rows.

    Each is an UPDATE of its own, so that triggers and constraints see every value. If a row does not have the sum that
    the previous UPDATE has set (because a trigger, or a FLOAT column, has changed it), all are undone and run alone.
    """

    def __init__(self, index: OpenedIndex, shape: Shape, lookups: Lookups) -> None:
        self._index, self._verb = index, shape.verb
        self._lookups = lookups
        self._keys = [part.column for part in index.key.parts]
        self._updates: dict[
            tuple[tuple[int, ...], tuple[int, ...]], Template
        ] = {}  # by the columns they set and compare

    def run(self, columns: Columns, alone: Alone, budget: Budget) -> Results:
        """Lock and read the rows, and write their sums."""
        index, width = self._index, len(self._keys)
        keys = [stored(column, values) for column, values in zip(self._keys, columns, strict=False)]
        lines = list(zip(*keys, strict=True))
        alone_at = exceptions(keys)
        asked = sorted({key for place, key in enumerate(lines) if place not in alone_at})
        found = dict(zip(asked, (yield from self._lookups.fetch(asked)) if asked else (), strict=True))
        named = self._lookups.named
        present = {row[:named]: list(row[named:-1]) for row in found.values() if row[-1] is not None}
        results: list[Any] = [0] * len(lines)
        passed: list[tuple[tuple[tuple[int, ...], tuple[int, ...]], Row]] = []  # the columns, and the values
        written: dict[Row, dict[int, Any]] = {}  # the values of rows after the previous requests
        for place, values in enumerate(zip(*columns[width:], strict=True) if columns[width:] else [()] * len(lines)):
            row = None if place in alone_at else found[lines[place]]
            if row is None or row[-1] is None:
                continue  # keys of requests that are run alone are NULL, or match nothing: none of these rows
            name = row[:named]
            try:
                addends = index.addends(values)
                sums = index.sums(present[name], addends, self._verb)
            except Error as error:
                results[place] = error
                continue
            if sums is None:
                continue
            results[place] = 1
            places = tuple([each_ for each_, _ in addends])
            for each_, value in zip(places, sums, strict=True):
                present[name][each_] = value
            if places:
                own = written.setdefault(name, {})
                passed.append(((places, tuple(own)), (*sums, *index.named(name), *own.values())))
                own.update(zip(places, sums, strict=True))
        grouped = [(each_, [row for _, row in some]) for each_, some in groupby(passed, lambda each_: each_[0])]
        statements = [Statement(self._update(*each_), rows) for each_, rows in grouped]
        counts = index.table.words.counts
        counted = [place for place, ((_, before), _) in enumerate(grouped) if before or counts]
        if statements and (yield from attempted(index, *statements, counted=counted)) is None:
            for place, line in enumerate(lines):
                if place in alone_at or found[line][-1] is not None:
                    results[place] = yield from alone(place)
                if not budget.take(0):
                    return results[: place + 1]
            return results
        for place in sorted(alone_at):
            results[place] = yield from alone(place)
        budget.take(0)
        return results

    def _update(self, places: tuple[int, ...], before: tuple[int, ...]) -> Template:
        template = self._updates.get((places, before))
        if template is None:
            table, columns = self._index.table, self._index.columns
            sets = ", ".join([f"{columns[place].sql} = {columns[place].hole}" for place in places])
            same = [f"{columns[at].sql} {table.words.same} {columns[at].filtered or columns[at].hole}" for at in before]
            text = f"UPDATE {table.sql} SET {sets} WHERE {' AND '.join([table.one, *same])}"
            template = self._updates[places, before] = write(text)
        return template


def locked(lookups: Lookups, keys: Sequence[Row]) -> Generator[Wanted, Any, dict[Row, Row]]:
    """Lock the rows of some keys, in the order of the keys; return the columns that identify them, if they exist."""
    asked = sorted(set(keys))
    found = (yield from lookups.fetch(asked)) if asked else []
    width = lookups.named
    return {key: row[:width] for key, row in zip(asked, found, strict=True) if row[-1] is not None}
