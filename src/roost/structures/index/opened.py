"""An opened index: the statements that find, insert and modify rows through it.

A modification first finds its rows, and then changes each by its primary key or rowid: so a row is changed once, even
if the scanned column changes. All checks come before the single statement that writes, which SQLite executes wholly or
not at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Sequence
from decimal import Decimal
from functools import cached_property, partial
from typing import Any, Final, TypeVar

from roost.dialects import MARIADB, MYSQL
from roost.dialects.dialect import Control, Statement, Together, Wanted, query
from roost.errors import Error, Invalid, Missing, StatementFailed, worded
from roost.structures.index import mariadb, postgresql, sqlite
from roost.structures.index.declaration import Where, While
from roost.structures.index.scan import Filtering, Finder, RangeTexts, Rows, Scan, filtering
from roost.structures.index.schema import Key, Reading, Table, TableColumn, ask, opened_key
from roost.structures.index.values import DIGITS, UNHELD, number
from roost.structures.plan import write
from roost.types.column_types import INT_MAX

T = TypeVar("T")
Working = Generator[Wanted, Any, Any]

READ_TABLE: Final[dict[str, Callable[..., Reading]]] = {
    "sqlite": sqlite.read_table,
    "mariadb": mariadb.read_table,
    "mysql": partial(mariadb.read_table, dialect=MYSQL),
    "postgresql": postgresql.read_table,
}


# The first id that the session's last INSERT has generated, and the distance to the next one. InnoDB takes the ids of
# an INSERT ... VALUES at once.
LAST_ID: Final = query("SELECT LAST_INSERT_ID(), @@SESSION.auto_increment_increment")


class OpenedIndex:
    """One key of a table, the columns to read and write, and the columns for filters.

    undecoded: texts are read as bytes.
    """

    bulk = True  # requests of the same form run together

    def __init__(
        self, table: Table, key: Key, columns: Sequence[TableColumn], fcolumns: Sequence[TableColumn] = (), *,
        undecoded: bool = False,
    ) -> None:  # fmt: skip
        self.table, self.key = table, key
        self.columns, self.fcolumns = tuple(columns), tuple(fcolumns)
        self.width, self.parts = len(self.columns), len(key.parts)
        self.filters = [column.name for column in self.fcolumns]
        self.compiled: dict[Any, Any] = {}  # what runs requests of one shape together, by shape; see bulk.py
        shown = [column.shown() for column in self.columns]
        if undecoded:
            as_bytes = "CASE typeof({0}) WHEN 'text' THEN CAST({0} AS BLOB) ELSE {0} END"
            shown = [as_bytes.format(column.sql) for column in self.columns]
        self.shown = ", ".join(shown) or "NULL"
        self._read = Finder(table, key, self.shown, self.width)
        named, names = len(table.identity), ", ".join(table.naming())
        inexact = [(place, column) for place, column in enumerate(self.columns) if column.summed_by[1]]
        self.inexact = [place for place, _ in inexact]
        summed = [column.sql.join(column.summed_by) for _, column in inexact]
        met = named + max(1, self.width) + len(summed)
        self._meet = Finder(table, key, ", ".join([names, self.shown, *summed]), met, locks=True)
        self._name = Finder(table, key, names, named, locks=True)

    @cached_property
    def undecoded(self) -> OpenedIndex:
        """The same index, for rows with texts that are not UTF-8, so that they can be read nevertheless."""
        return OpenedIndex(self.table, self.key, self.columns, self.fcolumns, undecoded=True)

    def rows_of(self, result: Any) -> Any:
        """Convert a request's result from a run to the result of the operation."""
        if type(result) is tuple:
            return [] if result[-1] is None else [result[:-1]]
        if type(result) is not str:
            return result
        width = self.width
        values: list[Any] = result.split("\t")
        for place, column in enumerate(self.columns):
            if column.kind == "integer":
                values[place::width] = map(int, values[place::width])
        return list(zip(*[iter(values)] * width, strict=True))

    def perform(self, verb: str, args: Sequence[Any]) -> Working:
        if verb != "find" and not self.table.undoes:
            # A transaction that is run again would be done twice, and rows are not locked between reading and writing.
            message = f"{self.table.name} has an engine without transactions; its rows can be read, and not modified"
            raise worded(Invalid(message), "notimpl")
        work = self._perform(verb, args)
        if verb == "find" or not self.table.triggers or self.table.words.dialect.is_server:
            return (yield from work)
        return (yield from undoing(work))  # a trigger's RAISE(FAIL) ends a statement without undoing it

    def _perform(self, verb: str, args: Sequence[Any]) -> Working:
        if verb == "insert":
            return (yield from self.insert(args[0]))
        scan = self._scan(*args[:6])
        if verb == "find":
            return (yield from self._read.find(scan))
        return (yield from self._modify(verb, scan, *args[6:]))

    def _scan(
        self, op: str, values: Sequence[Any], limit: int, offset: int, in_: Any, filters: Sequence[Where | While]
    ) -> Scan:
        # Returns the search, with the values in the form in which the columns store them.
        columns = [part.column for part in self.key.parts]
        if len(values) > self.parts:
            message = f"the key {self.key.name} of {self.table.name} has {len(columns)} columns, not {len(values)}"
            raise worded(Invalid(message), "kpnum")
        held = tuple([column.holds(value) for column, value in zip(columns, values, strict=False)])
        place, listed = in_ or (None, ())
        if place is not None:
            listed = [columns[place].holds(value) for value in listed]
        judged = [(self.table.columns[each_.column], each_) for each_ in filters]
        made = [filtering(isinstance(f, While), f.op, column, column.against(f.value)) for column, f in judged]
        return Scan(op, held, limit, offset, place, tuple(listed), tuple(made))

    def statements(self, op: str, values: tuple[Any, ...], filters: Sequence[Filtering]) -> tuple[RangeTexts, ...]:
        return self._read.texts(op, values, filters)

    # --- insert ---------------------------------------------------------------------------------------------------

    def insert(self, values: Sequence[Any]) -> Working:
        """Insert a row; return the generated id, 0 if the row has its own, None if the table generates none.

        Columns that are not listed get their defaults. Values beyond the columns are ignored.
        """
        table = self.table
        if table.view and not table.triggers:
            raise worded(StatementFailed(f"{table.name} is a view without a trigger, and takes no rows"), "notimpl", 2)
        automatic = table.automatic
        numbered = automatic is not None
        given: dict[TableColumn, Any] = {}
        for column, value in zip(self.columns, values, strict=False):
            if column.name == automatic:
                numbered = asks(column, value)
                if numbered:
                    given.pop(column, None)
                    continue
            given[column] = self._stored(column, value)
        text, row = self.insertion(given)
        try:
            if automatic is None:
                yield Statement(write(text), [row])
                return None
            if table.words.dialect.returning:
                (found,) = yield ask(query(f"{text} RETURNING {table.columns[automatic].sql}"), *row)
            else:
                _, (found,) = yield Together((Statement(write(text), [row]), ask(LAST_ID)))
        except StatementFailed as error:
            # An error with a cause makes the caller undo more than the statement.
            raise self._refused(error, "151") from (error.__cause__ if table.words.aborts else None)
        return found[0][0] if numbered and found else 0

    def insertion(self, given: dict[TableColumn, Any]) -> tuple[str, tuple[Any, ...]]:
        words = self.table.words
        text = f"INSERT {words.resolution}INTO {self.table.sql} "
        if not given:
            made = text + words.nothing
            return (made if words.dialect.placeholder == "?" else made % ()), ()
        names, holes = [column.sql for column in given], [column.hole for column in given]
        return f"{text}({', '.join(names)}) VALUES ({', '.join(holes)})", tuple(given.values())

    def _stored(self, column: TableColumn, value: Any) -> Any:
        if column.generated:
            raise self._cannot(column, " is a generated column", "generated")
        stored = column.holds(value)
        if stored is UNHELD:
            raise self._cannot(column, f" ({column.kind}) cannot hold it", "type")
        return stored

    def _cannot(self, column: TableColumn, why: str, word: str) -> StatementFailed:
        return worded(StatementFailed(f"{self.table.name}.{column.name}{why}"), word)

    def _refused(self, error: StatementFailed, word: str) -> StatementFailed:
        # The error does not tell which side of a foreign key was violated; the statement decides it.
        return worded(error, word) if error.word == "foreign" else error

    # --- modify ---------------------------------------------------------------------------------------------------

    def _modify(self, verb: str, scan: Scan, to: Sequence[Any], returning: bool) -> Working:
        # Changes the rows that are found; returns their number, or, with `returning`, the rows as they were before.
        if self.table.view:
            raise worded(Invalid(f"{self.table.name} is a view; its rows cannot be named one by one"), "notimpl")
        if not self.table.identity:
            raise worded(Invalid(f"{self.table.name} hides its rowid behind columns of its own"), "notimpl")
        sums = verb in ("increment", "decrement")
        # A value may be listed twice, and ranges overlap. A row that is found again counts only once, so that the limit
        # is that of different rows: a deleted row would not be found again.
        again = verb == "delete" and scan.place is not None
        finder = self._meet if returning or sums else self._name
        found: Rows = yield from finder.find(scan._replace(limit=INT_MAX - scan.offset) if again else scan)
        named = len(self.table.identity)
        if scan.place is not None:
            found = list({row[:named]: row for row in found}.values())[: scan.limit]
        before = [row[named : named + self.width] for row in found]
        rows = [row[:named] for row in found]
        if not rows:
            return before if returning else 0
        if sums:
            changed = yield from self._add(rows, [self._exact(row[named:]) for row in found], verb, to)
        elif verb == "update":
            changed = yield from self._update(rows, to)
        else:
            changed = yield from self._write(f"DELETE FROM {self.table.sql}", [()] * len(rows), rows, "152")
        return before if returning else changed

    def _exact(self, values: Sequence[Any]) -> tuple[Any, ...]:
        # Returns the values of the columns, with all their digits, from a row that `_meet` has read.
        found = list(values[: self.width])
        for place, value in zip(self.inexact, values[max(1, self.width) :], strict=True):
            found[place] = value
        return tuple(found)

    def _update(self, rows: Rows, values: Sequence[Any]) -> Working:
        # A column that is listed twice gets the last of its values.
        given = {column: self._stored(column, value) for column, value in zip(self.columns, values, strict=False)}
        if not given:
            return len(rows)
        own = {column.name for column, _ in zip(self.columns, values, strict=False)}
        word = "151" if own & self.table.children else "152"
        return (yield from self._write(self.setting(list(given)), [tuple(given.values())] * len(rows), rows, word))

    def setting(self, columns: Iterable[TableColumn]) -> str:
        sets = ", ".join([f"{column.sql} = {column.hole}" for column in columns])
        return f"UPDATE {self.table.words.resolution}{self.table.sql} SET {sets}"

    def _add(self, rows: Rows, before: Rows, verb: str, to: Sequence[Any]) -> Working:
        # The rows are locked, so their new values are known.
        addends = self.addends(to)
        columns = [self.columns[place] for place, _ in addends]
        passed, changed = [], []
        for row, old in zip(rows, before, strict=True):
            sums = self.sums(old, addends, verb)
            if sums is not None:
                passed.append(row)
                changed.append(tuple(dict(zip(columns, sums, strict=True)).values()))
        if not passed or not addends:
            return len(passed)
        # SQLite adds to many rows by one statement. Whether a unique value is free depends on the rows changed before.
        own = {column.name for column in columns}
        if not self.table.words.dialect.is_server and len(own) == len(columns) and not own & self.table.unique:
            sign = "+" if verb == "increment" else "-"
            sets = ", ".join([f"{column.sql} = {column.sql} {sign} ?" for column in columns])
            text = f"UPDATE OR ABORT {self.table.sql} SET {sets}"
            return (yield from self._write(text, [tuple([a for _, a in addends])] * len(passed), passed, "152"))
        return (yield from self._write(self.setting(dict.fromkeys(columns)), changed, passed, "152"))

    def addends(self, to: Sequence[Any]) -> list[tuple[int, Any]]:
        """Return the places of the columns with the numbers to be added; a column with NULL or no value is left out."""
        found = []
        for place, (column, value) in enumerate(zip(self.columns, to, strict=False)):
            if value is None:
                continue
            if column.kind not in ("integer", "real", "decimal", "numeric", "any"):
                raise self._cannot(column, f" ({column.kind}) is not numeric", "type")
            if column.generated:
                raise self._cannot(column, " is a generated column", "generated")
            addend = number(value) if column.addend is None else column.addend(value)
            if addend is UNHELD or (column.kind == "integer" and type(addend) is not int):
                raise self._cannot(column, f": {value!r} cannot be added to it", "type")
            found.append((place, addend))
        return found

    def sums(self, old: Sequence[Any], addends: Sequence[tuple[int, Any]], verb: str) -> list[Any] | None:
        """Return the new values of the columns; None if a `-` would cross zero, and the row must not change."""
        found: list[Any] = []
        running: dict[str, Any] = {}  # a column that is listed twice is added to twice
        for place, addend in addends:
            column = self.columns[place]
            value = running.get(column.name, old[place])
            if value is None:
                found.append(None)
                continue
            if type(value) is str and column.shown_by[1] and column.addend is not None:
                value = column.addend(value)
            if verb == "decrement":
                addend = -addend
            if type(value) is int and type(addend) is int:
                new: Any = value + addend
            elif not isinstance(value, (int, float, Decimal)):
                raise self._cannot(column, f": {value!r} is no number", "type")
            elif isinstance(value, Decimal) or isinstance(addend, Decimal):
                new = DIGITS.add(Decimal(value), Decimal(addend))
            else:
                new = value + addend
            if verb == "decrement" and ((value > 0 and new < 0) or (value < 0 and new > 0)):
                return None
            if not isinstance(new, float) and column.holds(new) is UNHELD:
                raise self._cannot(column, f" ({column.kind}): the sum is out of its range", "range")
            running[column.name] = new
            found.append(new)
        return found

    def named(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the values that identify a row, as its columns store them, or if they cannot, as they were read."""
        named = self.table.named
        if not named:
            return row
        if None in row:
            message = f"{self.table.name}: a TIMESTAMP of the primary key lies in an hour that the time zone has twice"
            raise StatementFailed(f"{message}; another row would be modified")
        held = [column.holds(value) for column, value in zip(named, row, strict=True)]
        return tuple([value if each_ is UNHELD else each_ for value, each_ in zip(row, held, strict=True)])

    def _write(self, text: str, values: Rows, rows: Rows, word: str) -> Working:
        # Writes each row's values by the columns that identify it; the rows are locked, so all of them are changed.
        table, several = self.table, len(rows) > 1
        try:
            if several and table.by_rowid and values[0] is values[-1]:
                where = f"{table.identity[0]} IN (SELECT value FROM json_each(?))"
                listed = json.dumps([row[0] for row in rows])
                return (yield Statement(write(f"{text} WHERE {where}"), [(*values[0], listed)]))
            made = [(*new, *self.named(row)) for new, row in zip(values, rows, strict=True)]
            work = alone(Statement(write(f"{text} WHERE {table.one}"), made))
            # Of several rows, SQLite would keep those before one that fails.
            changed = yield from undoing(work) if several and not table.words.dialect.is_server else work
            if table.words.dialect is MARIADB and not values[0] and changed < len(rows):
                # A DELETE that is ended (KILL QUERY, a limit) before it has found its row is OK; of this form it fails.
                yield Statement(write(f"DELETE {table.sql} FROM {table.sql} WHERE {table.one}"), made)
        except StatementFailed as error:
            # An error with a cause makes the caller undo more than the statement.
            undone = table.words.aborts or (several and table.words.dialect.is_server)
            raise self._refused(error, word) from (error.__cause__ if undone else None)
        return changed if table.words.counts else len(rows)


def alone(statement: Statement) -> Working:
    """Run a statement; return its answer."""
    return (yield statement)


def undoing(work: Generator[Any, Any, T], errors: tuple[type[Error], ...] = (Error,)) -> Generator[Any, Any, T]:
    """Run work after a savepoint; if it raises such an error, nothing of it was done."""
    yield Control.SAVEPOINT
    try:
        result = yield from work
    except errors:
        yield Control.BACK
        yield Control.RELEASE
        raise
    yield Control.RELEASE
    return result


def guarded(work: Working) -> Working:
    """Run one request on a server; return its result, or its error, after which nothing of it was done.

    An error that does not concern the request itself (a lock that another session holds, a lost connection) is raised.
    """
    refusals = (Invalid, Missing, StatementFailed)
    try:
        return (yield from undoing(work, refusals))
    except refusals as error:
        return error


def asks(column: TableColumn, value: Any) -> bool:
    """Return whether a value requests a generated id: NULL, an empty one, or any form of 0, as in MariaDB."""
    return value is None or value == "" or bool(column.holds(value) == 0)


def asking(values: Sequence[Any], store: Callable[[Sequence[Any]], Sequence[Any]]) -> list[Any]:
    """Return the values of a column that generates ids as it stores them, None for each that requests an id."""
    return [None if value == 0 else value for value in store([None if each_ == "" else each_ for each_ in values])]


def open_index(
    name: str, index: str, columns: Sequence[str], filters: Sequence[str], dialect: str = "sqlite"
) -> Working:
    """Return the index that these names mean now, or a `Missing` that says what does not exist."""
    table: Table | None = yield from READ_TABLE[dialect](name)
    return index_of(table, name, index, columns, filters)


def index_of(
    table: Table | None, name: str, index: str, columns: Sequence[str], filters: Sequence[str]
) -> OpenedIndex | Missing:
    """Return an index of a table, or a `Missing` that says what does not exist."""
    if table is None:
        return Missing(f"there is no table or view {name} that can be opened")
    shown = [table.columns[each_] for each_ in columns if each_ in table.columns]
    key = opened_key(table, index, shown)
    if key is None:
        there = ", ".join([each_.name for each_ in table.keys]) or "none"
        return worded(Missing(f"{name} has no key {index}; there are: {there}"), "idxnum", 2)
    for each_ in (*columns, *filters):
        if each_ not in table.columns:
            return worded(Missing(f"{name} has no column {each_}"), "fld", 2)
    return OpenedIndex(table, key, shown, [table.columns[each_] for each_ in filters])
