"""Runs: modifications of one kind through one index, one after the other, compiled once.

What a run cannot do as the plain way would, it does not take: `run_for` returns None, or the row goes the plain way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from roost.engines.apsw import ApswConnection, SQLiteError
from roost.engines.engine import drive
from roost.errors import Error
from roost.plans.index.opened import Change, OpenedIndex
from roost.plans.index.scan import Scan
from roost.plans.index.values import UNHELD
from roost.protocols.requests import Token
from roost.server.tables import Handle

NULL = "\0"
MOST_SHAPES = 64  # of runs that are kept for one opened index

Guard = Callable[[Callable[[], str]], str]
Waiting = Sequence[tuple[int, list[str]]]  # where the answer goes, and the tokens
Told = Iterator[tuple[int, str]]


def run_for(handle: Handle, tokens: list[str]) -> Run | None:
    """Return the run that a request belongs to; None where it is to go the plain way. No token is escaped."""
    op = tokens[1] if len(tokens) > 2 else ""
    short, long = handle.short, handle.long
    shape: tuple[str, str | int]
    if op == "+":
        width = tokens[2]
        if not width.isdigit() or len(width) > 4 or len(tokens) != 3 + int(width) or width == "0":
            return None
        shape = ("insert", width)
    elif op == "=" and 0 < long < len(tokens) and tokens[2] == handle.width and tokens[short:long] == ["1", "0"]:
        verb = tokens[long]
        if verb != "U" and NULL in tokens[3:short]:
            return None
        if verb not in ("U", "+", "-"):
            return None
        shape = (verb, len(tokens) - long - 1)
    else:
        return None
    if shape not in handle.runs:
        if len(handle.runs) >= MOST_SHAPES:
            handle.runs.clear()
        handle.runs[shape] = _compiled(handle, *shape)
    found: Run | None = handle.runs[shape]
    return found


def _compiled(handle: Handle, verb: str, given: str | int) -> Run | None:
    match verb:
        case "insert":
            return InsertRun.of(handle.index, int(given))
        case "U":
            return UpdateRun.of(handle, int(given))
    return SumRun.of(handle)


class _Plainly(Exception):
    """The row goes the plain way."""


class Run:
    """What a run of requests needs, compiled."""

    def play(self, connection: ApswConnection, waiting: Waiting, guarded: Guard) -> Told:
        """Do the requests in their order; yield where each one's answer goes, and the answer."""
        raise NotImplementedError


class InsertRun(Run):
    """Inserts with the same number of values."""

    def __init__(self, index: OpenedIndex, given: int) -> None:
        self._index = index
        columns = index.columns[:given]
        self._given = len(columns)
        self._held = [column.held for column in columns]
        names = [column.name for column in columns]
        automatic = index.table.automatic
        self._automatic = automatic is not None
        self._number = names.index(automatic) if automatic in names else -1
        self._text, _ = index.insertion({column.sql: None for column in columns})

    @classmethod
    def of(cls, index: OpenedIndex, given: int) -> InsertRun | None:
        """Return the run; None where the plain way is the only one."""
        columns = index.columns[:given]
        plain = index.table.triggers or index.table.view or any([column.generated for column in columns])
        if plain or not columns or len(set(columns)) < len(columns):
            return None
        return cls(index, given)

    def play(self, connection: ApswConnection, waiting: Waiting, guarded: Guard) -> Told:
        """Insert row by row, so that each has its own answer."""
        run, raw, text = connection.run, connection.raw, self._text
        held, automatic, number = self._held, self._automatic, self._number
        end = 3 + self._given
        for slot, tokens in waiting:
            values = tokens[3:end]
            row: list[Any] = [None if value == NULL else hold(value) for hold, value in zip(held, values, strict=True)]
            given = number >= 0 and values[number] not in ("", "0", NULL)
            if number >= 0 and not given:
                row[number] = None
            try:
                if UNHELD in row:
                    raise _Plainly
                run(text, row)
            except (_Plainly, SQLiteError, UnicodeError):
                yield slot, guarded(lambda values=values: self._plainly(connection, values))  # type: ignore[misc]
                continue
            if automatic:
                yield slot, "0\t1\t0" if given else f"0\t1\t{raw.last_insert_rowid()}"
            else:
                yield slot, "0\t1"

    def _plainly(self, connection: ApswConnection, values: list[str]) -> str:
        # It fails again, with its reason; or not, and that is as good.
        number = drive(self._index.insert(_values(values)), connection)
        return "0\t1" if number is None else f"0\t1\t{number}"


class UpdateRun(Run):
    """Updates by a whole unique key, with the same number of values."""

    def __init__(self, handle: Handle, given: int) -> None:
        self._index = index = handle.index
        columns = index.columns[:given]
        self._given = len(columns)
        self._held = [column.held for column in columns] + [part.column.held for part in index.key.parts]
        where = " AND ".join([f"{part.term} = ?" for part in index.key.parts])
        sets = ", ".join([f"{column.sql} = ?" for column in columns])
        self._text = f"UPDATE OR ABORT {index.table.sql}{index.key.hint} SET {sets} WHERE {where}"
        self._short, self._long = handle.short, handle.long

    @classmethod
    def of(cls, handle: Handle, given: int) -> UpdateRun | None:
        """Return the run; None where the plain way is the only one."""
        columns = handle.index.columns[:given]
        if not columns or len(set(columns)) < len(columns) or any([column.generated for column in columns]):
            return None
        return cls(handle, given)

    def play(self, connection: ApswConnection, waiting: Waiting, guarded: Guard) -> Told:
        """Update row by row."""
        run, raw, text, held = connection.run, connection.raw, self._text, self._held
        begin, short = self._long + 1, self._short
        end = begin + self._given
        for slot, tokens in waiting:
            values, key = tokens[begin:end], tokens[3:short]
            row = [None if value == NULL else hold(value) for hold, value in zip(held, values + key, strict=True)]
            try:
                if UNHELD in row or NULL in key:
                    raise _Plainly
                run(text, row)
            except (_Plainly, SQLiteError, UnicodeError):
                yield slot, guarded(lambda k=key, v=values: self._plainly(connection, k, v))  # type: ignore[misc]
                continue
            yield slot, f"0\t1\t{raw.changes()}"

    def _plainly(self, connection: ApswConnection, key: list[str], values: list[str]) -> str:
        change = Change("U", tuple(_values(values)))
        return f"0\t1\t{drive(self._index.modify(_by_key(self._index, key), change), connection)}"


class SumRun(Run):
    """Increments and decrements by a whole unique key: each row is read once and written once.

    Rows are told apart by what names them, not by the key as it was written: a collation may take two for one.
    """

    def __init__(self, handle: Handle) -> None:
        self._index = index = handle.index
        self._held = [part.column.held for part in index.key.parts]
        where = " AND ".join([f"{part.term} = ?" for part in index.key.parts])
        self._named = len(index.table.identity)
        names = ", ".join(index.table.identity)
        self._read = f"SELECT {names}, {index.shown} FROM {index.table.sql}{index.key.hint} WHERE {where}"
        self._by = " AND ".join([f"{name} = ?" for name in index.table.identity])
        self._short, self._long = handle.short, handle.long

    @classmethod
    def of(cls, handle: Handle) -> SumRun | None:
        """Return the run; None where the plain way is the only one."""
        index = handle.index
        own = {part.column for part in index.key.parts} & set(index.columns)
        names = {column.sql for column in index.columns} & set(index.table.identity)
        if index.table.triggers or own or names or not index.table.identity or len(set(index.columns)) < index.width:
            return None
        return cls(handle)

    def play(self, connection: ApswConnection, waiting: Waiting, guarded: Guard) -> Told:
        """Read each row, add up in the order of the requests, and write each row that changed."""
        index = self._index
        keys: dict[tuple[str, ...], tuple[Any, ...] | None] = {}
        rows: dict[tuple[Any, ...], list[Any]] = {}
        changed: dict[tuple[Any, ...], list[tuple[int, list[str], Change]]] = {}
        touched: dict[tuple[Any, ...], set[int]] = {}
        told: dict[int, str] = {}
        begin, short = self._long, self._short
        for slot, tokens in waiting:
            key, change = tokens[3:short], Change(tokens[begin], tuple(_values(tokens[begin + 1 :])))
            name = self._meet(connection, tuple(key), keys, rows)
            if name is None:
                told[slot] = "0\t1\t0"
                continue
            old = rows[name]
            try:
                addends = index.addends(change)
                sums = index.sums(old, addends, change.verb)
            except Error as error:
                told[slot] = f"{error.code}\t1\t{error.word}"
                continue
            told[slot] = "0\t1\t0" if sums is None else "0\t1\t1"
            if sums is not None:
                for (place, _), value in zip(addends, sums, strict=True):
                    if value is not None:
                        old[place] = value
                        touched.setdefault(name, set()).add(place)
                changed.setdefault(name, []).append((slot, key, change))
        for name, items in changed.items():
            try:
                self._store(connection, name, rows[name], sorted(touched.get(name, ())))
            except SQLiteError:
                for slot, key, change in items:
                    told[slot] = guarded(lambda k=key, c=change: self._plainly(connection, k, c))  # type: ignore[misc]
        yield from told.items()

    def _meet(
        self,
        connection: ApswConnection,
        key: tuple[str, ...],
        keys: dict[tuple[str, ...], tuple[Any, ...] | None],
        rows: dict[tuple[Any, ...], list[Any]],
    ) -> tuple[Any, ...] | None:
        # What names the row of a key; its values are in `rows` then.
        if key in keys:
            return keys[key]
        values = [hold(value) for hold, value in zip(self._held, key, strict=True)]
        found: Any = None if UNHELD in values else connection.run(self._read, values).fetchone()
        name = keys[key] = None if found is None else tuple(found[: self._named])
        if name is not None:
            rows.setdefault(name, list(found[self._named :]))
        return name

    def _store(self, connection: ApswConnection, name: tuple[Any, ...], values: list[Any], places: list[int]) -> None:
        if places:
            columns = self._index.columns
            sets = ", ".join([f"{columns[place].sql} = ?" for place in places])
            text = f"UPDATE OR ABORT {self._index.table.sql} SET {sets} WHERE {self._by}"
            connection.run(text, [*[values[place] for place in places], *name])

    def _plainly(self, connection: ApswConnection, key: list[str], change: Change) -> str:
        return f"0\t1\t{drive(self._index.modify(_by_key(self._index, key), change), connection)}"


def _by_key(index: OpenedIndex, key: list[str]) -> Scan:
    values = zip(index.key.parts, _values(key), strict=True)
    return Scan("=", tuple([part.column.key(value) for part, value in values]))


def _values(tokens: list[str]) -> list[Token]:
    return [None if token == NULL else token for token in tokens]
