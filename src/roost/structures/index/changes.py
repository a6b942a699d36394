"""Inserts, and modifications by a complete unique key: many in one statement or one message, each with its own outcome.

On SQLite, one statement is run for each request, so a refused one does not affect the others. On servers, the rows of
modifications are locked first, in the order of their keys, by one statement that also reports which rows exist. Then
each is written by a separate statement, in the order of the requests, all in one round trip. After a failure everything
is rolled back to a savepoint, and the requests are run one by one.

Sums are made in Python, in the order of the requests: whether one is refused, or changes nothing, depends on those
before it. Rows are distinguished by the columns that identify them, not by the text of the key: a collation may treat
two keys as equal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from roost.dialects.dialect import Answer, Control, Dialect, Row, Statement, Template, Together, Wanted
from roost.errors import Error, StatementFailed
from roost.structures.index.budget import Budget
from roost.structures.index.finds import FileLookups, Lookups, ServerLookups
from roost.structures.index.opened import LAST_ID, OpenedIndex, asking
from roost.structures.index.runs import Alone, Bulk, Columns, Results, Shape, all_stored, each_alone, exceptions, stored
from roost.structures.index.schema import ask
from roost.structures.plan import each, write
from roost.types.column_types import INT_MAX

MOST_VALUES = 4_000  # values of inserts in one statement
MOST_BYTES = 2**20  # of their texts, approximately

Outcome = Generator[Wanted, Any, Any]


def changes_of(index: OpenedIndex, shape: Shape, dialect: Dialect) -> Bulk | None:
    """Return the run of inserts, or of modifications by a complete unique key; None if each must be run alone."""
    table, verb, server = index.table, shape.verb, dialect.exchanges
    to = index.columns[: shape.to]
    if any([column.generated for column in to]) or len(set(to)) != shape.to or (table.triggers and not server):
        return None
    if verb == "insert":
        made = Inserts if server else Changes
        return None if table.view or not to else made(index, shape)
    if not server and verb in ("update", "delete"):
        return Changes(index, shape) if to or verb == "delete" else None
    return _by_lookups(index, shape, dialect)


def _by_lookups(index: OpenedIndex, shape: Shape, dialect: Dialect) -> Bulk | None:
    table, server = index.table, dialect.exchanges
    sums = shape.verb in ("increment", "decrement")
    # A request may set a column by which a later one searches, or which identifies its row.
    names = {column.name for column in (index.columns[: shape.to] if server else index.columns)}
    own = {part.column.name for part in index.key.parts} | {column.name for column in table.named}
    if not table.identity or names & own or (sums and len(set(index.columns)) < index.width):
        return None
    if not server:
        # Adding several numbers in one step must not skip an intermediate value that would be refused.
        moved = {column.sql for column in index.columns} & set(table.identity)
        alone = moved or table.judged or names & (table.unique | table.children)
        return None if alone else FileSums(index, shape, FileLookups(index, shape, dialect, names=True))
    lookups = ServerLookups(index, shape, dialect, names=True, locks=True)
    if lookups.template is None or (sums and index.inexact) or (shape.verb == "update" and not shape.to):
        return None
    return Sums(index, shape, lookups) if sums else Modifications(index, shape, lookups)


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
        elif shape.verb == "update":
            sets = ", ".join([f"{column.sql} = ?" for column in self.to])
            text = f"UPDATE OR ABORT {table} SET {sets} WHERE {where}"
        else:
            text = f"DELETE FROM {table} WHERE {where}"
        counted = Answer.DONE if shape.verb == "insert" else Answer.COUNTS
        self._counting, self._numbering = Template(text, answer=counted), Template(text, answer=Answer.IDS)

    def stored(self, columns: Columns) -> tuple[list[Row], set[int]]:
        """Return the rows of values, the new ones first; and the requests that must be run alone."""
        keys, to = all_stored(self.keys, columns), all_stored(self.to, columns[len(self.keys) :])
        if self.own >= 0:
            to[self.own] = asking(columns[self.own], partial(stored, self.to[self.own]))
        return list(zip(*to, *keys, strict=True)), exceptions(keys) | exceptions(to, nulls=False)

    def run(self, columns: Columns, alone: Alone, budget: Budget) -> Results:
        """Run the statement for one request after the other; exceptions, and requests that fail, are run alone."""
        rows, alone_at = self.stored(columns)
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


class Inserts(Changes):
    """Inserts rows on a server by one statement; if one is refused, splits the rows in halves until it is alone."""

    def run(self, columns: Columns, alone: Alone, budget: Budget) -> Results:
        """Insert the rows."""
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
            returns = self.automatic is not None and self.index.table.words.returning
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
        if table.automatic is None or not table.words.returning:
            return Statement(write(text), [values])
        return Statement(each(f"{text} RETURNING {table.columns[table.automatic].sql}"), [values])


class Modifications(Bulk):
    """Updates that set the same columns, or deletes, on a server. A result is the number of rows."""

    def __init__(self, index: OpenedIndex, shape: Shape, lookups: Lookups) -> None:
        super().__init__(index, shape)
        self._lookups = lookups
        sets = ", ".join([f"{column.sql} = {column.hole}" for column in self.to])
        text = f"UPDATE {index.table.sql} SET {sets}" if self.to else f"DELETE FROM {index.table.sql}"
        self._template = write(f"{text} WHERE {index.table.one}")

    def run(self, columns: Columns, alone: Alone, budget: Budget) -> Results:
        """Lock the rows, and write them."""
        index, width = self.index, self._lookups.named
        keys, to = all_stored(self.keys, columns), all_stored(self.to, columns[len(self.keys) :])
        alone_at = exceptions(keys) | exceptions(to, nulls=False)
        lines, values = list(zip(*keys, strict=True)), list(zip(*to, strict=True)) or [()] * len(keys[0])
        total = len(lines)
        results: list[Any] = [0] * total
        found = yield from self._lookups.present([key for place, key in enumerate(lines) if place not in alone_at])
        names = {key: row[:width] for key, row in found.items()}
        begin = 0
        for end in (*sorted(alone_at), total):  # a request that is run alone must see the effects of those before it
            places, rows, done = [], [], set()
            for place in range(begin, end):
                name = names.get(lines[place])
                if name is not None and (self.to or name not in done):
                    done.add(name)
                    places.append(place)
                    rows.append((*values[place], *index.named(name)))
            # A trigger, or a foreign key, may have changed other rows, too.
            counted = [0] if not self.to or index.table.words.counts else []
            write_all = attempted(index, Statement(self._template, rows), counted=counted)
            if rows and (yield from write_all) is None:
                done.clear()  # those that are refused alone are still there
                for place in range(begin, end):
                    results[place] = yield from alone(place)
            else:
                for place in places:
                    results[place] = 1
            if not self.to:
                names = {key: name for key, name in names.items() if name not in done}
            if end < total:
                results[end] = yield from alone(end)
            begin = end + 1
        budget.take(0)
        return results


# Requests that change their row: their places, what identifies it, the places of the columns, and their new values.
Summed = tuple[Sequence[int], Row, tuple[int, ...], Sequence[Any]]


class Sums(Bulk):
    """Increments, or decrements, with the same number of values. A result is the number of changed rows.

    On servers each is an UPDATE of its own, so that triggers and constraints see every value. If a row does not have
    the sum that the previous UPDATE has set (because a trigger, or a FLOAT column, has changed it), all are undone and
    run alone.
    """

    def __init__(self, index: OpenedIndex, shape: Shape, lookups: Lookups) -> None:
        super().__init__(index, shape)
        self._lookups = lookups
        self._updates: dict[Any, Template] = {}  # by the places of the columns that they set and compare

    def run(self, columns: Columns, alone: Alone, budget: Budget) -> Results:
        """Read the rows, add the numbers, and write the rows that changed."""
        alike: defaultdict[Row, list[int]] = defaultdict(list)  # the places of equal requests
        for place, request in enumerate(zip(*columns, strict=True)):
            alike[request].append(place)
        keys = all_stored(self.keys, list(zip(*alike, strict=True)))
        nameless = exceptions(keys)
        lines = [None if which in nameless else key for which, key in enumerate(zip(*keys, strict=True))]
        try:
            found = yield from self._lookups.present([key for key in lines if key is not None])
        except StatementFailed:  # the rows are too long to be fetched together
            if self.index.table.words.row_by_row:
                raise
            return (yield from each_alone(range(len(columns[0])), alone, budget))
        named = self._lookups.named
        present = {row[:named]: list(row[named:-1]) for row in found.values()}
        results: list[Any] = [0] * len(columns[0])
        # The row that a request adds to, the numbers, and the places of their columns. A key with an exception is NULL,
        # or matches nothing: none of these rows.
        known: dict[Row, tuple[Row, list[tuple[int, Any]], tuple[int, ...]]] = {}
        read = {to: self._addends(to) for to in {request[len(keys) :] for request in alike}}
        for (request, places), key in zip(alike.items(), lines, strict=True):
            addends = read[request[len(keys) :]]
            if key not in found:
                continue
            if not isinstance(addends, Error):
                known[request] = found[key][:named], addends, tuple([column for column, _ in addends])
                continue
            for place in places:
                results[place] = addends
        summed: list[Summed] = []
        units: Any = alike.items()
        if not self._merges(alike, known, present):
            units = [(request, (place,)) for place, request in enumerate(zip(*columns, strict=True))]
        for request, places in units:
            if request not in known:
                continue
            name, addends, into = known[request]
            if len(places) > 1:
                addends = [(column, len(places) * addend) for column, addend in addends]
            old = present[name]
            try:
                sums = self.index.sums(old, addends, self.shape.verb)
            except Error as error:
                result: Any = error
            else:
                if sums is None:
                    continue
                for column, value in zip(into, sums, strict=True):
                    old[column] = value
                if into:
                    summed.append((places, name, into, sums))
                result = 1
            for place in places:
                results[place] = result
        refused = yield from self._store(summed, present)
        singles = [place for which, places in enumerate(alike.values()) if which in nameless for place in places]
        if refused is None:
            singles += [
                place for (_, places), key in zip(alike.items(), lines, strict=True) if key in found for place in places
            ]
        for place in sorted([*(refused or ()), *singles]):
            results[place] = yield from alone(place)
            if refused is None and not budget.take(0):
                return results[: place + 1]
        budget.take(0)
        return results

    def _addends(self, to: Row) -> Any:
        try:
            return self.index.addends(to)
        except Error as error:
            return error

    def _merges(self, alike: dict[Row, list[int]], known: dict[Row, Any], present: dict[Row, list[Any]]) -> bool:
        # Whether equal requests are one.
        return False

    def _store(self, summed: Sequence[Summed], present: dict[Row, list[Any]]) -> Outcome:
        # Writes the sums; returns the requests that could not be stored, or None if nothing was.
        passed: list[tuple[tuple[tuple[int, ...], tuple[int, ...]], Row]] = []  # the columns, and the values
        written: defaultdict[Row, dict[int, Any]] = defaultdict(dict)  # the values of rows after the previous requests
        for _, name, into, sums in summed:
            own = written[name]
            passed.append(((into, tuple(own)), (*sums, *self.index.named(name), *own.values())))
            own.update(zip(into, sums, strict=True))
        grouped = [(each_, [row for _, row in some]) for each_, some in groupby(passed, lambda each_: each_[0])]
        statements = [Statement(self._update(*each_), rows) for each_, rows in grouped]
        counts = self.index.table.words.counts
        counted = [place for place, ((_, before), _) in enumerate(grouped) if before or counts]
        done = not statements or (yield from attempted(self.index, *statements, counted=counted)) is not None
        return [] if done else None

    def _update(self, into: tuple[int, ...], before: tuple[int, ...], answer: Answer = Answer.NONE) -> Template:
        template = self._updates.get((into, before))
        if template is None:
            table, columns = self.index.table, self.index.columns
            same = [f"{columns[at].sql} {table.words.same} {columns[at].filtered or columns[at].hole}" for at in before]
            text = f"{self.index.setting([columns[at] for at in into])} WHERE {' AND '.join([table.one, *same])}"
            template = self._updates[into, before] = Template(text, answer=answer)
        return template


class FileSums(Sums):
    """Sums on SQLite, where nothing sees a value that is written over: each row is read once and written once."""

    def _merges(self, alike: dict[Row, list[int]], known: dict[Row, Any], present: dict[Row, list[Any]]) -> bool:
        # If the order does not matter: for whole numbers that stay within 64 bits in any order.
        numbers: list[Any] = [value for row in present.values() for value in row if value is not None]
        for request, (_, addends, _) in known.items():
            numbers += [len(alike[request]) * addend for _, addend in addends]
        return self.shape.verb == "increment" and set(map(type, numbers)) <= {int} and sum(map(abs, numbers)) <= INT_MAX

    def _store(self, summed: Sequence[Summed], present: dict[Row, list[Any]]) -> Outcome:
        requests: defaultdict[Row, list[Summed]] = defaultdict(list)
        for each_ in summed:
            requests[each_[1]].append(each_)
        columns = {name: tuple(set().union(*{each_[2] for each_ in some})) for name, some in requests.items()}
        refused: list[int] = []
        for into, some in groupby(requests, lambda name: columns[name]):
            names = list(some)
            while names:  # one statement; it stops at a failure, or when the time is over
                rows = [(*[present[name][column] for column in into], *name) for name in names]
                counts = yield Statement(self._update(into, (), Answer.COUNTS), rows)
                done = next((place for place, count in enumerate(counts) if not count), len(counts))
                if not done:
                    refused += [place for each_ in requests[names[0]] for place in each_[0]]
                names = names[done or 1 :]
        return refused


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
