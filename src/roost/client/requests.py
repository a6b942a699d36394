"""Indexes and requests: values that can be kept at module level, compared, printed and sent as often as you like."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypedDict, TypeVar, Unpack

from roost.client.tokens import Value, Values, name, names, token, tokens
from roost.errors import Invalid, Mismatch
from roost.protocols.handlersocket import NULL, unescape
from roost.structures.index.declaration import Op, Where, While

T = TypeVar("T")
R = TypeVar("R", covariant=True)

MOST = 2**32 - 1  # limit and offset together; the original counts modulo 2^32


class Bounds(TypedDict, total=False):
    """What bounds a search, and what is found by it is modified: the keyword arguments of an index's methods.

    limit: at most so many rows; by default 1, or with `in_` as many as it has values. offset: rows to skip first,
        after the filters.
    in_: `(place, values)`: looks up each of the values in turn, in that place of the key; what the key has there is
        ignored. MariaDB's plugin finds one row for each, and takes None for a text of one NUL.
    filters: all of them must hold.
    """

    limit: int | None
    offset: int
    in_: tuple[int, Sequence[Value]] | None
    filters: Iterable[Where | While]


class Broken(Exception):
    """An answer is not valid for its request: nothing more on this connection can be trusted."""


@dataclass(frozen=True)
class Request(Generic[R]):
    r"""What one line asks of an opened index; `R` is what its answer is.

    Made by the methods of an `Index`. `tail` is the line behind the index id; `changes` says whether it modifies rows.

    >>> from roost.client import Index
    >>> users = Index("app", "users", "PRIMARY", ["id", "email"])
    >>> users.find("=", 7).tail
    b'\t=\t1\t7\n'
    """

    index: _Index[Any]
    tail: bytes
    changes: bool = False

    def read(self, found: list[bytes]) -> R:
        """Return the result from the tokens of an answer behind its code 0. Raises: Broken."""
        raise NotImplementedError


@dataclass(frozen=True)
class Opening(Request[None]):
    """Asks for nothing but that the index is open; its line has the answer, so there is nothing to read."""


@dataclass(frozen=True)
class Rows(Request[list[tuple[T | None, ...]]], Generic[T]):
    """Answered by rows, in the order of the index."""

    def read(self, found: list[bytes]) -> list[tuple[T | None, ...]]:
        """Cut the tokens into rows."""
        width = len(self.index.columns)
        if found[0] != b"%d" % width or (len(found) - 1) % width:
            raise Broken
        if len(found) == 1:
            return []
        values = self.index.values(found[1:])
        return [tuple(values[place : place + width]) for place in range(0, len(values), width)]


@dataclass(frozen=True)
class Insert(Request[int | None]):
    """Answered by the id that the row was given: 0 when it brought its own, None where the table gives none."""

    changes: bool = True

    def read(self, found: list[bytes]) -> int | None:
        """Read the id, where there is one."""
        if found[0] != b"1" or len(found) > 2:
            raise Broken
        return number(found[1]) if len(found) == 2 else None


@dataclass(frozen=True)
class Modify(Request[int], Generic[T]):
    """Answered by how many rows were modified."""

    changes: bool = True
    asking: Rows[T] | None = field(default=None, compare=False, repr=False)

    def returning(self) -> Request[list[tuple[T | None, ...]]]:
        """Return the same modification, answered by the rows as they were before."""
        assert self.asking is not None
        return self.asking

    def read(self, found: list[bytes]) -> int:
        """Read the number."""
        if found[0] != b"1" or len(found) != 2:
            raise Broken
        return number(found[1])


def number(text: bytes) -> int:
    """Read a number of an answer; a ring's sequence or a row's id has more than 32 bits, and may be negative."""
    if not text.removeprefix(b"-").isdigit() or len(text) > 40:
        raise Broken
    return int(text)


class _Index(Generic[T]):
    """What both kinds of index have in common; `T` is the type of an answer's values."""

    def __init__(
        self, database: str, table: str, index: str, columns: Iterable[str], filters: Iterable[str] = ()
    ) -> None:
        self.database, self.table, self.index = database, table, index
        self.columns, self.filters = tuple(columns), tuple(filters)
        if isinstance(columns, str) or isinstance(filters, str):
            raise Invalid("columns and filters are lists of names")
        if not self.columns:
            raise Invalid(f"an index of {table} without columns cannot return anything")
        opened = [name(database, "database"), name(table, "table"), name(index, "index"), names(self.columns, "column")]
        if self.filters:
            opened.append(names(self.filters, "filter column"))
        self.opened = b"\t" + b"\t".join(opened) + b"\n"  # the line that opens it, behind the index id

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, _Index) and other.opened == self.opened

    def __hash__(self) -> int:
        return hash((type(self), self.opened))

    def __repr__(self) -> str:
        filters = f", filters={[*self.filters]}" if self.filters else ""
        where = ", ".join(map(repr, (self.database, self.table, self.index)))
        return f"{type(self).__name__}({where}, {[*self.columns]}{filters})"

    def values(self, found: list[bytes]) -> list[T | None]:
        """Return the values of these tokens. Raises: Broken; Mismatch where they are not of this kind."""
        raise NotImplementedError

    def find(self, op: Op, key: Values, **bounds: Unpack[Bounds]) -> Request[list[tuple[T | None, ...]]]:
        r"""Find rows by the index, in its order: from the key upwards for `=`, `>`, `>=`, downwards for `<`, `<=`.

        key: the values of the index's first columns, as many as you like.
        bounds: `limit`, `offset`, `in_` and `filters`; see `Bounds`.

        >>> from roost.client import Index, Where
        >>> fruit = Index("test", "fruit", "by_name", ["name", "count"], filters=["count"])
        >>> fruit.find(">=", "b", limit=10, filters=[Where("count", ">", 3)]).tail
        b'\t>=\t1\tb\t10\t0\tF\t>\t0\t3\n'
        >>> fruit.find("=", "", in_=(0, ["fig", "plum"])).tail
        b'\t=\t1\t\t2\t0\t@\t0\t2\tfig\tplum\n'
        """
        head, bounded = self._search(op, key, **bounds)
        if bounded == [b"1", b"0"]:
            bounded = []
        return Rows(self, _line(head + bounded))

    def insert(self, row: Values) -> Request[int | None]:
        r"""Insert a row: the values of the columns. Those left out at the end, and columns not named, get defaults.

        Answers the row's new id; 0 when the row brought its own, None where the table gives none.

        >>> from roost.client import Index
        >>> Index("app", "users", "PRIMARY", ["id", "email"]).insert((7, None)).tail
        b'\t+\t2\t7\t\x00\n'
        """
        values = tokens(row)
        if not 1 <= len(values) <= len(self.columns):
            raise Invalid(f"{self!r}: a row has 1 to {len(self.columns)} values, not {len(values)}")
        return Insert(self, _line([b"+", b"%d" % len(values), *values]))

    def update(self, op: Op, key: Values, row: Values, **bounds: Unpack[Bounds]) -> Modify[T]:
        r"""Set all the columns of the rows that `find` would find. Answers their number; `.returning()` them.

        The plugin of MariaDB empties a column that is left out, so none may be: name fewer in an index of its own.

        >>> from roost.client import Index
        >>> Index("app", "users", "PRIMARY", ["email"]).update("=", 7, "a@b").returning().tail
        b'\t=\t1\t7\t1\t0\tU?\ta@b\n'
        """
        return self._modify(b"U", self._all(row), op, key, bounds)

    def delete(self, op: Op, key: Values, **bounds: Unpack[Bounds]) -> Modify[T]:
        r"""Delete the rows that `find` would find. Answers their number; `.returning()` them.

        >>> from roost.client import Index
        >>> Index("app", "users", "PRIMARY", ["email"]).delete("<", 100, limit=1000).tail
        b'\t<\t1\t100\t1000\t0\tD\n'
        """
        return self._modify(b"D", [], op, key, bounds)

    def increment(self, op: Op, key: Values, by: Values, **bounds: Unpack[Bounds]) -> Modify[T]:
        r"""Add whole numbers to all the columns of the rows that `find` would find; None leaves a column alone.

        Answers the number of rows; `.returning()` them as they were. A column that is NULL stays so.

        >>> from roost.client import Index
        >>> Index("app", "users", "PRIMARY", ["id", "visits"]).increment("=", 7, (None, 1)).tail
        b'\t=\t1\t7\t1\t0\t+\t\x00\t1\n'
        """
        return self._modify(b"+", self._whole(by), op, key, bounds)

    def decrement(self, op: Op, key: Values, by: Values, **bounds: Unpack[Bounds]) -> Modify[T]:
        r"""Subtract whole numbers, as `increment` adds them. A row of which a column would change its sign is left
        alone and not counted; 0 is no change of sign, neither before nor after.

        >>> from roost.client import Index
        >>> Index("app", "stock", "PRIMARY", ["count"]).decrement("=", 7, 1).tail
        b'\t=\t1\t7\t1\t0\t-\t1\n'
        """
        return self._modify(b"-", self._whole(by), op, key, bounds)

    def _all(self, row: Values) -> list[bytes]:
        values = tokens(row)
        if len(values) != len(self.columns):
            raise Invalid(f"{self!r}: {len(self.columns)} values are needed, one for each column, not {len(values)}")
        return values

    def _whole(self, by: Values) -> list[bytes]:
        operands = self._all(by)
        for each in operands:
            if each != NULL and not each.removeprefix(b"-").isdigit():
                raise Invalid(f"{self!r}: {each!r} is not a whole number, which it is to be changed by")
        return operands

    def _modify(self, word: bytes, operands: list[bytes], op: Op, key: Values, bounds: Bounds) -> Modify[T]:
        head, bounded = self._search(op, key, **bounds)
        asking: Rows[T] = Rows(self, _line([*head, *bounded, word + b"?", *operands]), changes=True)
        return Modify(self, _line([*head, *bounded, word, *operands]), asking=asking)

    def _search(
        self,
        op: str,
        key: Values,
        *,
        limit: int | None = None,
        offset: int = 0,
        in_: tuple[int, Sequence[Value]] | None = None,
        filters: Iterable[Where | While] = (),
    ) -> tuple[list[bytes], list[bytes]]:
        """Return the tokens of the key, and those that bound what is found."""
        if op not in ("=", "<", "<=", ">", ">="):
            raise Invalid(f"{op!r} is not one of = < <= > >=")
        parts = tokens(key)
        if not parts:
            raise Invalid(f"{self!r}: a key has at least one value")
        many: list[bytes] = []
        if in_ is not None:
            if not (isinstance(in_, tuple) and len(in_) == 2 and type(in_[0]) is int and isinstance(in_[1], Sequence)):
                raise Invalid(f"in_ is a place in the key and a list of values, not {in_!r}")
            place, among = in_
            if not 0 <= place < len(parts):
                raise Invalid(f"{self!r}: the key has no place {place} for the values of in_")
            if not among:
                raise Invalid(f"{self!r}: in_ has no values")
            many = [b"@", b"%d" % place, b"%d" % len(among), *map(token, among)]
        if limit is None:
            limit = len(in_[1]) if in_ is not None else 1
        if type(limit) is not int or type(offset) is not int:
            raise Invalid(f"limit {limit!r} and offset {offset!r} are whole numbers")
        if limit < 1 or offset < 0 or limit + offset > MOST:
            raise Invalid(f"limit {limit} is at least 1, offset {offset} not negative, both together below 2^32")
        bounded = [b"%d" % limit, b"%d" % offset, *many]
        for each in filters:
            if not isinstance(each, (Where, While)):
                raise Invalid(f"{each!r} is no filter: Where(column, op, value) or While(…)")
            if each.op not in ("=", "!=", "<", "<=", ">", ">="):
                raise Invalid(f"{each.op!r} is not one of = != < <= > >=")
            if each.column not in self.filters:
                raise Invalid(f"{self!r} has no filter column {each.column!r}")
            kind = b"W" if isinstance(each, While) else b"F"
            value: Any = each.value  # what no token can be is refused there
            bounded += [kind, each.op.encode(), b"%d" % self.filters.index(each.column), token(value)]
        return [op.encode(), b"%d" % len(parts), *parts], bounded


def _line(parts: list[bytes]) -> bytes:
    return b"\t" + b"\t".join(parts) + b"\n"


def _unescaped(found: list[bytes], then: Callable[[bytes], T]) -> list[T | None]:
    try:
        return [None if each == NULL else then(unescape(each)) for each in found]
    except Invalid as error:
        raise Broken from error


class Index(_Index[str]):
    """An index of a table, with the columns that are read and written; its values are text, in UTF-8.

    database, table, index: on Roost's server over SQLite the database is `main`. `PRIMARY` is the primary key; the
        name of another index that begins with a digit is taken for its number.
    columns: what `find` returns and the others set, in this order. filters: what filters may name.

    Carries no connection: `HandlerSocket.run` opens it where it is not open yet.

    >>> from roost.client import Index
    >>> users = Index("app", "users", "PRIMARY", ["id", "email"])
    >>> users.find("=", 7)
    Rows(index=Index('app', 'users', 'PRIMARY', ['id', 'email']), tail=b'\\t=\\t1\\t7\\n', changes=False)
    """

    def values(self, found: list[bytes]) -> list[str | None]:
        """Return the tokens as text. Raises: Broken; Mismatch where one is no UTF-8."""
        try:
            return _unescaped(found, bytes.decode)
        except UnicodeDecodeError as error:
            raise Mismatch(
                f"{self!r}: it was done, but {error.object[:40]!r} in the answer is not UTF-8; "
                "`as_bytes()` gives an index that answers with bytes"
            ) from error

    def as_bytes(self) -> BytesIndex:
        """Return the same index, its values as bytes. They share what is open on a connection."""
        return BytesIndex(self.database, self.table, self.index, self.columns, self.filters)


class BytesIndex(_Index[bytes]):
    """An `Index` whose values are bytes, whatever their character set.

    >>> from roost.client import BytesIndex
    >>> BytesIndex("app", "pictures", "PRIMARY", ["image"]).insert(b"\\xff\\x00").tail
    b'\\t+\\t1\\t\\xff\\x01@\\n'
    """

    def values(self, found: list[bytes]) -> list[bytes | None]:
        """Return the tokens as bytes. Raises: Broken."""
        return _unescaped(found, bytes)
