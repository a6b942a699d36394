"""Index: key access to an existing table without SQL; the operations of HandlerSocket."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from roost.errors import Invalid
from roost.structures.index.values import is_utf8
from roost.structures.operation import Operation, Target
from roost.types.column_types import INT_MAX, INT_MIN, checked_whole, shown

Op: TypeAlias = Literal["=", "<", "<=", ">", ">="]
Comparison: TypeAlias = Literal["=", "!=", "<", "<=", ">", ">="]
Value: TypeAlias = str | bytes | int | float | Decimal | dt.date | dt.time | dt.timedelta | uuid.UUID | None
Values: TypeAlias = Value | Sequence[Value]
FoundRows: TypeAlias = list[tuple[Any, ...]]

OPS: Final = ("=", "<", "<=", ">", ">=")
COMPARISONS: Final = ("=", "!=", "<", "<=", ">", ">=")
KINDS: Final = frozenset([bytes, float, Decimal, dt.datetime, dt.date, dt.time, dt.timedelta, uuid.UUID])
MOST: Final = 2**32 - 1  # the maximum of limit and offset, as on the wire


class Where(NamedTuple):
    """A filter: rows that do not match are skipped. `column` is one of the index's `filters`."""

    column: str
    op: Comparison
    value: Value


class While(Where):
    """A filter: the first row that does not match ends the search. `column` is one of the index's `filters`."""

    __slots__ = ()


In: TypeAlias = tuple[int, Iterable[Value]] | None
Filters: TypeAlias = Iterable[Where | While | tuple[str, Comparison, Value]]


class Index(Target):
    """A key of a table or view of your own, opened for some of its columns.

    table: its name, exactly.
    index: the name of an index; or `PRIMARY`; or the number of a key, where the primary key is 0. Partial indexes and
        indexes on expressions cannot be opened. For a view, `PRIMARY` means the columns that are named first.
    columns: the columns to read and write, in this order.
    filters: the columns that filters may name.

    Making an `Index` reads nothing: an operation raises `Missing` if the table, index or column does not exist. Values
    are returned as the database's driver returns them: int, float, str, bytes, None, and on MariaDB and PostgreSQL
    Decimal, datetime, date, time, timedelta, bool and UUID; arguments may be strings instead. Writing a value that a
    column cannot hold raises `StatementFailed`; searching for one matches nothing. NULL is ordered as in the index:
    first, but on PostgreSQL last, unless the index is declared otherwise.

    The operations and their meaning are those of HandlerSocket
    (https://github.com/DeNA/HandlerSocket-Plugin-for-MySQL/blob/master/docs-en/protocol.en.txt).

    >>> import roost
    >>> users = roost.Index("users", "PRIMARY", ["id", "email"])
    >>> users.find("=", 5)
    users.find('=', (5,))
    >>> users.update(">=", 5, (5, "new"), limit=10)
    users.update('>=', (5,), (5, 'new'), limit=10)
    """

    kind = "index"

    def __init__(
        self, table: str, index: str = "PRIMARY", columns: Iterable[str] = (), filters: Iterable[str] = ()
    ) -> None:
        if isinstance(columns, str) or isinstance(filters, str):
            raise Invalid(f"{shown(table)}: columns and filters are lists of names")
        self.name = table
        self.index = index
        self.columns = tuple(columns)
        self.filters = tuple(filters)
        for what, names in (("table", [table]), ("index", [index]), ("column", [*self.columns, *self.filters])):
            for name in names:
                if not isinstance(name, str) or "\0" in name or (not name and what != "index"):
                    raise Invalid(f"{shown(name)} is no name of a {what}")
        facts = {"kind": self.kind, "name": table, "index": index, "columns": self.columns, "filters": self.filters}
        self.definition = json.dumps(facts, separators=(",", ":"))
        self.plans: dict[str, Any] = {}

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Index) and self.definition == other.definition)

    def __hash__(self) -> int:
        return hash(self.definition)

    def __repr__(self) -> str:
        return f"<{self.kind} {self.index or 'PRIMARY'} of {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Index, (self.name, self.index, self.columns, self.filters)

    def is_like(self, other: Target) -> bool:
        """Compare with another index; the rows have no classes to compare."""
        return self == other

    def describe(self, operation: Operation[Any]) -> str:
        """Return the call that made an operation."""
        if operation.verb == "insert":
            return f"{self.name}.insert({operation.args[0]!r})"
        op, values, limit, offset, in_, filters, *more = operation.args
        arguments = [repr(op), repr(values)]
        if more and operation.verb != "delete":
            arguments.append(repr(more[0]))
        usual = {"limit": 1, "offset": 0, "in_": None, "filters": ()}
        for name, value in zip(usual, (limit, offset, in_, filters), strict=True):
            if value != usual[name]:
                arguments.append(f"{name}={value!r}")
        call = f"{self.name}.{operation.verb}({', '.join(arguments)})"
        return f"{self.name}.returning({call})" if more and more[-1] is True else call

    def find(
        self, op: Op, values: Values, limit: int = 1, offset: int = 0, in_: In = None, filters: Filters = ()
    ) -> Operation[FoundRows]:
        """Read rows in the order of the index: ascending for `=`, `>`, `>=`, descending for `<` and `<=`.

        values: values of one or more of the index's first columns.
        limit: the maximum number of rows. offset: the number of rows to skip first, after the filters.
        in_: `(place, values)`: look up each of these values in turn, at that position of the search values; the value
            given at that position is ignored.
        filters: all must match; `Where(column, op, value)`, a tuple of the three, or `While`.

        Every find is one search in the index, or one per column of it: nothing is sorted and no table is scanned. But
        rows that filters skip are read.
        """
        return Operation(self, "find", self._search(op, values, limit, offset, in_, filters))

    def insert(self, values: Values) -> Operation[int | None]:
        """Insert a row with values for the columns, in order; trailing columns left out, and all others, get defaults.

        If the table generates ids (`INTEGER PRIMARY KEY`, `AUTO_INCREMENT`, identity and serial columns), the result is
        the generated id, or 0 if the row had its own; the values None, 0 and "" request a generated id. In other tables
        the result is None.
        """
        row = self._values(values)
        if len(row) > len(self.columns):
            raise Invalid(f"{self.name}: a row of {len(row)} values, and {len(self.columns)} columns")
        return Operation(self, "insert", (row,))

    def update(
        self, op: Op, values: Values, to: Values, limit: int = 1, offset: int = 0, in_: In = None, filters: Filters = ()
    ) -> Operation[int]:
        """Set the columns of the rows that `find` would find; columns beyond the length of `to` do not change.

        Returns the number of rows. Each row is changed once, even if the change moves it along the index.
        """
        return self._modify("update", self._values(to), op, values, limit, offset, in_, filters)

    def delete(
        self, op: Op, values: Values, limit: int = 1, offset: int = 0, in_: In = None, filters: Filters = ()
    ) -> Operation[int]:
        """Delete the rows that `find` would find; return how many there were."""
        return self._modify("delete", (), op, values, limit, offset, in_, filters)

    def increment(
        self, op: Op, values: Values, by: Values, limit: int = 1, offset: int = 0, in_: In = None, filters: Filters = ()
    ) -> Operation[int]:
        """Add numbers to the columns of the rows that `find` would find; None leaves a column unchanged.

        A column that is NULL stays NULL. A sum that the column cannot hold raises `StatementFailed`; nothing changes.
        """
        return self._modify("increment", self._values(by), op, values, limit, offset, in_, filters)

    def decrement(
        self, op: Op, values: Values, by: Values, limit: int = 1, offset: int = 0, in_: In = None, filters: Filters = ()
    ) -> Operation[int]:
        """Subtract numbers, as `increment` adds them.

        A row in which a column would change its sign is neither changed nor counted; a change from or to 0 is not a
        change of sign.
        """
        return self._modify("decrement", self._values(by), op, values, limit, offset, in_, filters)

    def returning(self, operation: Operation[int]) -> Operation[FoundRows]:
        """Return the same modification, with the rows as they were before it as its result.

        >>> import roost
        >>> stock = roost.Index("stock", columns=["count"])
        >>> stock.returning(stock.decrement("=", 7, 1))
        stock.returning(stock.decrement('=', (7,), (1,)))
        """
        if operation.structure != self or operation.verb in ("find", "insert"):
            raise Invalid(f"{operation!r} is not a modification of {self!r}")
        return Operation(self, operation.verb, (*operation.args[:-1], True))

    def _modify(self, verb: str, to: tuple[Value, ...], *search: Any) -> Operation[int]:
        if len(to) > len(self.columns):
            raise Invalid(f"{self.name}: {len(to)} values, and {len(self.columns)} columns")
        return Operation(self, verb, (*self._search(*search), to, False))

    def _search(self, op: str, values: Values, limit: int, offset: int, in_: In, filters: Filters) -> tuple[Any, ...]:
        if op not in OPS:
            raise Invalid(f"{self.name}: {shown(op)} is not one of {' '.join(OPS)}")
        row = self._values(values)
        if not row:
            raise Invalid(f"{self.name}: a find takes a value of the index's first column at least")
        bounds = []
        for what, number, least in (("limit", limit, 1), ("offset", offset, 0)):
            said = f"{self.name}: {what} is a whole number from {least} to {MOST}"
            bounds.append(checked_whole(said, number, least, MOST))
        among = None
        if in_ is not None:
            given, listed = in_
            said = f"{self.name}: in_ takes the place of one of the {len(row)} values"
            place = checked_whole(said, given, 0, len(row) - 1)
            among = (place, tuple([self._value(value) for value in listed]))
        return op, row, *bounds, among, tuple([self._filter(each) for each in filters])

    def _filter(self, given: Where | While | tuple[str, Comparison, Value]) -> Where | While:
        made = given if isinstance(given, Where) else Where(*given)
        if made.column not in self.filters:
            raise Invalid(f"{self.name}: {shown(made.column)} is not among the filters it was opened with")
        if made.op not in COMPARISONS:
            raise Invalid(f"{self.name}: {shown(made.op)} is not one of {' '.join(COMPARISONS)}")
        self._value(made.value)
        return made

    def _values(self, values: Values) -> tuple[Value, ...]:
        if isinstance(values, (tuple, list)):
            return tuple([self._value(value) for value in values])
        return (self._value(values),)

    def _value(self, value: Any) -> Value:
        kind = type(value)
        if value is None or kind in KINDS:
            found: Value = value
        elif isinstance(value, int):
            found = int(value)
            if not INT_MIN <= found <= INT_MAX:
                raise Invalid(f"{self.name}: {value} has more than 64 bits")
        elif isinstance(value, str):
            if not is_utf8(value):
                raise Invalid(f"{self.name}: {shown(value)} has lone surrogates, which are no characters")
            found = str(value)
        else:
            raise Invalid(f"{self.name}: {shown(value)} is not a column value: str, bytes, a number, a date or None")
        return found
