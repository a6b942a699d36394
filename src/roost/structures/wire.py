"""Structures over HandlerSocket: a client opens a structure by its name, like a table, and its promises hold.

`Wire` has the default: `find` with `=` and the key's columns returns the rows of `latest` or `get`; an insert calls the
structure's `add`, `put` or `push`; a delete calls `clear`; everything else is answered `notimpl`. A structure that
differs has a subclass, which its plan names.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, cast

from roost.dialects import SQLITE
from roost.errors import Error, Invalid, Missing, StatementFailed, worded
from roost.structures.index.values import UNHELD, Unheld, as_bytes, exact, integer, is_utf8, number
from roost.structures.operation import Operation
from roost.structures.structure import Structure
from roost.types.column_types import CHECKS, INT_MAX, INT_MIN, Refused
from roost.types.columns import Column

Values = tuple[Any, ...]
Steps = Generator[Operation[Any], Any, Any]  # operations that run one by one, since each depends on the last result

SURE_DIGITS = 19  # an integer with fewer digits fits into 64 bits


class Wanted(NamedTuple):
    """The operations of a request, and a function that makes the request's result of theirs."""

    operations: list[Operation[Any]]
    tell: Callable[[list[Any]], Any]


def notimpl(what: str) -> Invalid:
    """Return the error for a request that has no meaning for a structure."""
    return worded(Invalid(what), "notimpl")


class Wire:
    """One structure, and those of its columns that a client reads and writes.

    index, columns, filters: the names with which the client opened it.

    Raises: Missing, if the structure has no such index or column.
    """

    bulk = False
    definition = ""  # as it was stored when it was opened
    more: ClassVar[tuple[Column, ...]] = ()  # columns besides the declared ones
    verbs: ClassVar[frozenset[str]] = frozenset(["delete"])
    of_key = "get"  # the verb that reads a key; `latest` is given how many rows
    of_id = ""  # the verb that reads a row, if it has an id within its key; `remove` deletes it

    def __init__(self, structure: Any, index: str, columns: Sequence[str], filters: Sequence[str]) -> None:
        self.structure = structure
        self.asked = (index, columns, filters)
        self._declared = list(structure.columns)
        self._declared_names = [column.name for column in self._declared]
        self._record = [column.name for column in structure._record_columns]
        self._writable = {*self._record}
        there = [*self._declared, *[column for column in self.more if column.name not in self._declared_names]]
        by_name = {column.name: column for column in there}
        if index not in ("", "PRIMARY", "0"):
            raise worded(Missing(f"{structure.name} has no key {index}, only PRIMARY"), "idxnum", 2)
        for name in (*columns, *filters):
            if name not in by_name:
                raise worded(Missing(f"{structure.name} has no column {name}"), "fld", 2)
        self.columns = [by_name[name] for name in columns]
        self.width = len(columns)
        self.filters = tuple(filters)
        self.key = len(structure.key.columns)
        self._beyond_key = [*by_name][self.key :]
        self._parts = [*structure.key.columns, *self.ids()]
        self.parts = len(self._parts)
        places = list(by_name)
        self._part_places = [places.index(column.name) for column in self._parts]
        self._shown = [places.index(name) for name in columns]
        self._encode = SQLITE.encoder(there)
        self._writes_all = self._writable.issuperset(columns)

    # --- overridden by structures that differ ----------------------------------------------------------------------

    def ids(self) -> Sequence[Column]:
        """Return the columns that identify a row within its key."""
        columns: Sequence[Column] = self.structure.second.columns if self.of_id else ()
        return columns

    def reading(self, head: Any, id_: Values, n: int) -> Operation[Any]:
        """Return the operation that reads the first `n` rows of a key, or the row with an id."""
        if id_:
            rest: tuple[Any, ...] = (self.structure.second.value(id_),)
            read = self.of_id
        else:
            read, rest = self.of_key, (n,) if self.of_key in ("latest", "top") else ()
        operation: Operation[Any] = getattr(self.structure, read)(head, *rest)
        return operation

    def rows(self, key: Values, found: Any) -> list[Values]:
        """Return the rows that `reading` has found, with the values of all columns. key: the values asked for."""
        several = found if isinstance(found, list) else [] if found is None else [found]
        if hasattr(self.structure, "rows"):
            return [self.structure.rows.check(row) for row in several]
        return [(*key, *[getattr(each, name, each) for name in self._beyond_key]) for each in several]

    def inserted(self, result: Any) -> int | None:
        """Return the number that the structure gave to an inserted row."""
        return None

    def change(self, verb: str, head: Any, id_: Values, found: Any, to: Sequence[Any]) -> Steps:
        """Change or delete one of the rows that were read; return whether that was done."""
        yield self.structure.remove(head, self.structure.second.value(id_)) if id_ else self.structure.clear(head)
        return True

    # --- requests -------------------------------------------------------------------------------------------------

    def ask(self, verb: str, args: Sequence[Any]) -> Wanted | Steps:
        """Return the operations of a request, given as the verb and the arguments of an operation of `roost.Index`.

        Raises: Error, if the request has no meaning for the structure, or a column cannot hold a value.
        """
        if verb == "insert":
            return self._insert(args[0])
        op, values, limit, offset, in_, filters = args[:6]
        if op != "=" or filters or len(values) not in (self.key, self.parts):
            raise notimpl(f"{self.structure.name} is found by its key, with =")
        keys = list(self._keys(values, in_))
        n = limit + offset
        if verb != "find":
            if verb not in self.verbs:
                raise notimpl(f"{self.structure.name} takes no {verb}")
            return self._modify(verb, keys, limit, offset, args[6], args[7])

        def tell(results: list[Any]) -> list[Values]:
            rows = [row for key, found in zip(keys, results, strict=True) for row in self._found(key, found)]
            return [self._show(row) for row in rows[offset:n]]

        return Wanted([self._reading(key, n) for key in keys], tell)

    def _keys(self, values: Sequence[Any], in_: tuple[int, Sequence[Any]] | None) -> Iterator[Values]:
        # Yield the keys to read, as the structure's values. A value that a column cannot hold matches no row.
        given = list(values)
        for value in [None] if in_ is None else in_[1]:
            if in_ is not None:
                given[in_[0]] = value
            row = [neutral(column, each) for column, each in zip(self._parts, given, strict=False)]
            if UNHELD not in row and None not in row:
                yield tuple(row)

    def _reading(self, key: Values, n: int) -> Operation[Any]:
        return self.reading(self.structure.key.value(key[: self.key]), key[self.key :], n)

    def _found(self, key: Values, found: Any) -> list[Values]:
        places = self._part_places[: len(key)]
        return [row for row in self.rows(key, found) if tuple([row[place] for place in places]) == key]

    def _show(self, row: Values) -> Values:
        stored = row if self._encode is None else self._encode(row)
        return tuple([stored[place] for place in self._shown])

    def inserts(self, columns: Sequence[Sequence[Any]]) -> list[Operation[Any] | Error]:
        """Return an operation for each insert, or the error with which it is refused.

        columns: the tokens of the first columns, column by column. Equal inserts, such as adds to one hot counter, are
            converted once.
        """
        values = [neutrals(column, tokens) for column, tokens in zip(self.columns, columns, strict=False)]
        made: dict[Values, Operation[Any] | Error] = {}
        found = []
        for tokens, row in zip(zip(*columns, strict=True), zip(*values, strict=True), strict=True):
            operation = made.get(tokens)
            if operation is None:
                try:
                    operation = self._inserting(row)
                except Error as error:
                    operation = error
                made[tokens] = operation
            found.append(operation)
        return found

    def _insert(self, tokens: Sequence[Any]) -> Wanted:
        values = [neutral(column, token) for column, token in zip(self.columns, tokens, strict=False)]
        return Wanted([self._inserting(values)], lambda results: self.inserted(results[0]))

    def _inserting(self, values: Sequence[Any]) -> Operation[Any]:
        structure = self.structure
        if type(structure)._record is Structure._record:
            # A client needs to know whether it got what it asked for, and an insert cannot report that.
            raise worded(StatementFailed(f"{structure.name} takes no insert"), "notimpl", 2)
        if not self._writes_all or UNHELD in values:
            for column, value in zip(self.columns, values, strict=False):
                if column.name not in self._writable:
                    raise notimpl(f"{structure.name}.{column.name} is not written")
                if value is UNHELD:
                    raise worded(StatementFailed(f"{structure.name}.{column.name} cannot hold it"), "type")
        given = dict(zip(self.asked[1], values, strict=False))
        row = tuple([given.get(name) for name in self._declared_names])
        if None in row:
            for column, value in zip(self._declared, row, strict=True):
                if value is None and not column.nullable:
                    raise worded(StatementFailed(f"{structure.name}.{column.name} takes no NULL"), "notnull")
        try:
            operation: Operation[Any] = structure._record([given.get(name) for name in self._record])
            return operation
        except Invalid as error:
            raise worded(StatementFailed(str(error)), "type") from error

    def _modify(
        self, verb: str, keys: list[Values], limit: int, offset: int, to: Sequence[Any], returning: bool
    ) -> Steps:
        before: list[Values] = []
        changed = 0
        skip, left = offset, limit
        for key in keys:
            found = yield self._reading(key, limit + offset)
            rows = self._found(key, found)
            for row in rows[skip : skip + left]:
                before.append(self._show(row))
                id_ = tuple([row[place] for place in self._part_places[self.key :]])
                head = self.structure.key.value(key[: self.key])
                changed += yield from self.change(verb, head, id_, found, to)
                left -= 1
            skip = max(0, skip - len(rows))
            if left <= 0:
                break
        return before if returning else changed


def neutrals(column: Column, tokens: Sequence[str | None]) -> Sequence[Any]:
    """Return the value of `neutral` for each token."""
    kind = column.type.kind
    if kind in ("int", "text") and None not in tokens:
        text = "".join(cast(Sequence[str], tokens))
        if text.isascii():
            if kind == "text":
                return tokens
            if text.isdigit() and "" not in tokens and max(map(len, cast(Sequence[str], tokens))) < SURE_DIGITS:
                return list(map(int, cast(Sequence[str], tokens)))
    return [neutral(column, token) for token in tokens]


def _whole(token: str) -> int:
    found = integer(INT_MIN, INT_MAX, token)
    if found is UNHELD:
        raise ValueError(token)
    return int(found)


def _moment(token: str) -> dt.datetime:
    moment = dt.datetime.fromisoformat(token)
    return moment.astimezone(dt.UTC) if moment.tzinfo else moment.replace(tzinfo=dt.UTC)


# By kind of column; an enum's values are found by their texts.
_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "text": str,
    "int": _whole,
    "bool": lambda token: {0: False, 1: True}[_whole(token)],
    "float": lambda token: float(cast(float, number(token))),
    "datetime": _moment,
    "date": dt.date.fromisoformat,
    "uuid": uuid.UUID,
}


def neutral(column: Column, token: str | None) -> Any | Unheld:
    """Convert a token to a value of a structure's column, as SQL sees it; `UNHELD` if the column cannot hold it."""
    if token is None:
        return None
    kind = column.type.kind
    if kind == "binary":
        return as_bytes(token)
    try:
        if not is_utf8(token):
            return UNHELD
        if kind == "decimal":  # as it is stored, with every digit of its scale
            return CHECKS[kind](column.type, exact(token))
        parse = _PARSERS.get(kind) or {str(each.value): each for each in column.type.enum or ()}.__getitem__
        return parse(token)
    except (ValueError, TypeError, ArithmeticError, LookupError, Refused):
        return UNHELD
