"""Indexes and requests: values that can be kept at module level, compared, printed, and sent any number of times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Generic, TypeAlias, TypedDict, TypeVar, Unpack

from roost.errors import Invalid, Mismatch
from roost.protocols.handlersocket import NULL, escape, unescape
from roost.structures.index.declaration import Op, Where, While

T = TypeVar("T")
R = TypeVar("R", covariant=True)

MOST = 2**32 - 1  # limit and offset together; the original counts modulo 2^32

Value: TypeAlias = str | bytes | int | float | Decimal | bool | None
"""A value of a column; the server converts its text to the column's type."""

Values: TypeAlias = Value | Sequence[Value]
"""One value, or several in the order of the columns."""


def token(value: Value) -> bytes:
    r"""Return the token of a value: text in UTF-8, numbers in decimal, True as 1, None as NULL.

    Raises: Invalid for a type that is not a `Value`, for NaN and infinities, and for text with lone surrogates.

    >>> token("é\n"), token(-5), token(0.5), token(True), token(None), token(b"\xff")
    (b'\xc3\xa9\x01J', b'-5', b'0.5', b'1', b'\x00', b'\xff')
    """
    if value is None:
        return NULL
    if isinstance(value, (str, bytes)):
        return escape(_encoded(value, "a value") if isinstance(value, str) else value)
    if isinstance(value, int):
        return b"%d" % value
    if isinstance(value, (float, Decimal)):
        text = repr(value) if isinstance(value, float) else format(value, "f")
        if text.lstrip("-")[:1].isdigit():
            return text.encode()
    raise Invalid(f"{value!r} is not a value: str, bytes, int, float, Decimal, bool or None")


def tokens(values: Values) -> list[bytes]:
    """Return the tokens of one value, or of several."""
    if values is None or isinstance(values, (str, bytes, int, float, Decimal)):
        return [token(values)]
    if not isinstance(values, Sequence):
        raise Invalid(f"{values!r} is not a value, nor a sequence of values")
    return [token(value) for value in values]


def _encoded(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise Invalid(f"{what} {text!r} has lone surrogates, which UTF-8 cannot encode") from None


def _name(text: str, what: str) -> bytes:
    # Names are never escaped.
    if not isinstance(text, str):
        raise Invalid(f"{what} {text!r} is not a name")
    written = _encoded(text, what)
    if escape(written) != written:
        raise Invalid(f"{what} {text!r} has control characters, which the protocol cannot express")
    return written


def _names(texts: Iterable[str], what: str) -> bytes:
    # The names of columns, separated by commas.
    written = [_name(text, what) for text in texts]
    for each in written:
        if not each or b"," in each:
            raise Invalid(f"{what} {each.decode()!r}: the protocol cannot express an empty name or a comma")
    return b",".join(written)


class Bounds(TypedDict, total=False):
    """The keyword arguments of an index's methods: they restrict the rows that are found, and so those modified.

    limit: the maximum number of rows; by default 1, or with `in_` the number of its values. offset: rows to skip first,
        counted after the filters.
    in_: `(place, values)`: looks up each of the values in turn, at that place of the key; the key's own value there is
        ignored. MariaDB's plugin finds one row for each value, and treats None as a text of one NUL.
    filters: conditions, all of which a row must meet.
    """

    limit: int | None
    offset: int
    in_: tuple[int, Sequence[Value]] | None
    filters: Iterable[Where | While]


class Broken(Exception):
    """An answer is not valid for its request: no further answer on this connection can be trusted."""


@dataclass(frozen=True)
class Request(Generic[R]):
    r"""A request to an opened index, which is one line; `R` is the type of its result.

    The methods of an `Index` make requests. `tail` is the line behind the index id; `changes` says whether the request
    modifies rows.

    >>> from roost.client import Index
    >>> users = Index("app", "users", "PRIMARY", ["id", "email"])
    >>> users.find("=", 7).tail
    b'\t=\t1\t7\n'
    """

    index: _Index[Any]
    tail: bytes
    changes: bool = False

    def read(self, found: list[bytes]) -> R:
        """Make the result from the tokens of an answer behind its code 0. Raises: Broken."""
        raise NotImplementedError


@dataclass(frozen=True)
class Opening(Request[None]):
    """Only opens the index. It has no line of its own, so there is no answer to read."""


@dataclass(frozen=True)
class Rows(Request[list[tuple[T | None, ...]]], Generic[T]):
    """A request whose result is rows, in the order of the index."""

    def read(self, found: list[bytes]) -> list[tuple[T | None, ...]]:
        """Split the tokens into rows."""
        width = len(self.index.columns)
        if found[0] != b"%d" % width or (len(found) - 1) % width:
            raise Broken
        if len(found) == 1:
            return []
        values = self.index.values(found[1:])
        return [tuple(values[place : place + width]) for place in range(0, len(values), width)]


@dataclass(frozen=True)
class Insert(Request[int | None]):
    """An insert, whose result is the row's generated id: 0 if the row had one, None if the table generates none."""

    changes: bool = True

    def read(self, found: list[bytes]) -> int | None:
        """Parse the id, if there is one."""
        if found[0] != b"1" or len(found) > 2:
            raise Broken
        return number(found[1]) if len(found) == 2 else None


@dataclass(frozen=True)
class Modify(Request[int], Generic[T]):
    """A modification, whose result is the number of modified rows."""

    changes: bool = True
    asking: Rows[T] | None = field(default=None, compare=False, repr=False)

    def returning(self) -> Request[list[tuple[T | None, ...]]]:
        """Return the same modification with the rows as its result, as they were before it."""
        assert self.asking is not None
        return self.asking

    def read(self, found: list[bytes]) -> int:
        """Parse the number."""
        if found[0] != b"1" or len(found) != 2:
            raise Broken
        return number(found[1])


def number(text: bytes) -> int:
    """Parse a number in an answer; a ring's sequence or a row's id may exceed 32 bits, and may be negative."""
    if not text.removeprefix(b"-").isdigit() or len(text) > 40:
        raise Broken
    return int(text)


class _Index(Generic[T]):
    """The common part of both kinds of index; `T` is the type of the values in results."""

    def __init__(
        self, database: str, table: str, index: str, columns: Iterable[str], filters: Iterable[str] = ()
    ) -> None:
        self.database, self.table, self.index = database, table, index
        self.columns, self.filters = tuple(columns), tuple(filters)
        if isinstance(columns, str) or isinstance(filters, str):
            raise Invalid("columns and filters are lists of names")
        if not self.columns:
            raise Invalid(f"an index of {table} without columns cannot return anything")
        opened = [_name(text, what) for text, what in ((database, "database"), (table, "table"), (index, "index"))]
        opened.append(_names(self.columns, "column"))
        if self.filters:
            opened.append(_names(self.filters, "filter column"))
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
        """Convert tokens to values. Raises: Broken; Mismatch if they are not of this kind."""
        raise NotImplementedError

    def find(self, op: Op, key: Values, **bounds: Unpack[Bounds]) -> Request[list[tuple[T | None, ...]]]:
        r"""Find rows by the index, in its order: from the key upwards for `=`, `>`, `>=`, downwards for `<`, `<=`.

        key: the values of the index's first columns: one, or more, or all of them.
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
        r"""Insert a row, given the values of the columns; columns omitted at the end, and unnamed ones, get defaults.

        The result is the id generated for the row; 0 if the row had one, None if the table generates none.

        >>> from roost.client import Index
        >>> Index("app", "users", "PRIMARY", ["id", "email"]).insert((7, None)).tail
        b'\t+\t2\t7\t\x00\n'
        """
        values = tokens(row)
        if not 1 <= len(values) <= len(self.columns):
            raise Invalid(f"{self!r}: a row has 1 to {len(self.columns)} values, not {len(values)}")
        return Insert(self, _line([b"+", b"%d" % len(values), *values]))

    def update(self, op: Op, key: Values, row: Values, **bounds: Unpack[Bounds]) -> Modify[T]:
        r"""Set all columns of the rows that `find` would find. The result is their number; `.returning()`: the rows.

        A value is required for every column, since MariaDB's plugin empties an omitted one; to set fewer columns, make
        another `Index` with these columns only.

        >>> from roost.client import Index
        >>> Index("app", "users", "PRIMARY", ["email"]).update("=", 7, "a@b").returning().tail
        b'\t=\t1\t7\t1\t0\tU?\ta@b\n'
        """
        return self._modify(b"U", row, op, key, bounds)

    def delete(self, op: Op, key: Values, **bounds: Unpack[Bounds]) -> Modify[T]:
        r"""Delete the rows that `find` would find. The result is their number; with `.returning()`, the rows.

        >>> from roost.client import Index
        >>> Index("app", "users", "PRIMARY", ["email"]).delete("<", 100, limit=1000).tail
        b'\t<\t1\t100\t1000\t0\tD\n'
        """
        return self._modify(b"D", None, op, key, bounds)

    def increment(self, op: Op, key: Values, by: Values, **bounds: Unpack[Bounds]) -> Modify[T]:
        r"""Add whole numbers to all columns of the rows that `find` would find; None leaves a column unchanged.

        The result is the number of rows; with `.returning()`, the rows as they were. A column that is NULL stays NULL.

        >>> from roost.client import Index
        >>> Index("app", "users", "PRIMARY", ["id", "visits"]).increment("=", 7, (None, 1)).tail
        b'\t=\t1\t7\t1\t0\t+\t\x00\t1\n'
        """
        return self._modify(b"+", by, op, key, bounds)

    def decrement(self, op: Op, key: Values, by: Values, **bounds: Unpack[Bounds]) -> Modify[T]:
        r"""Subtract whole numbers, as `increment` adds them.

        A row in which a column would change its sign is left unchanged, and not counted. A change from or to 0 is not a
        change of sign.

        >>> from roost.client import Index
        >>> Index("app", "stock", "PRIMARY", ["count"]).decrement("=", 7, 1).tail
        b'\t=\t1\t7\t1\t0\t-\t1\n'
        """
        return self._modify(b"-", by, op, key, bounds)

    def _modify(self, word: bytes, to: Values, op: Op, key: Values, bounds: Bounds) -> Modify[T]:
        operands = [] if word == b"D" else tokens(to)
        if word != b"D" and len(operands) != len(self.columns):
            many = len(self.columns)
            raise Invalid(f"{self!r}: {many} values are needed, one for each column, not {len(operands)}")
        for each in operands if word in b"+-" else ():
            if each != NULL and not each.removeprefix(b"-").isdigit():
                raise Invalid(f"{self!r}: {each!r} is not a whole number to add or subtract")
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
        """Return the tokens of the key, and those of the bounds."""
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
                raise Invalid(f"{each!r} is not a filter: Where(column, op, value) or While(…)")
            if each.op not in ("=", "!=", "<", "<=", ">", ">="):
                raise Invalid(f"{each.op!r} is not one of = != < <= > >=")
            if each.column not in self.filters:
                raise Invalid(f"{self!r} has no filter column {each.column!r}")
            kind = b"W" if isinstance(each, While) else b"F"
            value: Any = each.value  # `token` refuses invalid types
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
        name of another index, if it begins with a digit, is interpreted as the index's number.
    columns: the columns that `find` returns and the other methods set, in this order. filters: the columns that filters
        may name.

    It is not bound to a connection: `HandlerSocket.run` opens it if it is not open yet.

    >>> from roost.client import Index
    >>> users = Index("app", "users", "PRIMARY", ["id", "email"])
    >>> users.find("=", 7)
    Rows(index=Index('app', 'users', 'PRIMARY', ['id', 'email']), tail=b'\\t=\\t1\\t7\\n', changes=False)
    """

    def values(self, found: list[bytes]) -> list[str | None]:
        """Convert tokens to text. Raises: Broken; Mismatch if one is not UTF-8."""
        try:
            return _unescaped(found, bytes.decode)
        except UnicodeDecodeError as error:
            raise Mismatch(
                f"{self!r}: the request was executed, but {error.object[:40]!r} in the answer is not UTF-8; "
                "`as_bytes()` gives an index that answers with bytes"
            ) from error

    def as_bytes(self) -> BytesIndex:
        """Return the same index with bytes as its values. On a connection, both use the same opened index."""
        return BytesIndex(self.database, self.table, self.index, self.columns, self.filters)


class BytesIndex(_Index[bytes]):
    """An `Index` whose values are bytes, whatever their character set.

    >>> from roost.client import BytesIndex
    >>> BytesIndex("app", "pictures", "PRIMARY", ["image"]).insert(b"\\xff\\x00").tail
    b'\\t+\\t1\\t\\xff\\x01@\\n'
    """

    def values(self, found: list[bytes]) -> list[bytes | None]:
        """Convert tokens to bytes. Raises: Broken."""
        return _unescaped(found, bytes)
