"""Structures of Roost over the wire: each opens like a table under its name, and keeps its promises.

`find` with `=` and the columns of the key answers a ring's and a capped collection's rows newest first, a set's
members, a counter's total; with the id behind the key, that row or member. Inserting pushes, adds or counts; deleting
removes from sets and capped collections, and sets a counter to 0. Everything else is `notimpl`.

Requests become the library's operations, and those of a turn run through their plans together.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Generator, Iterable, Sequence
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, NamedTuple

from roost.dialects import SQLITE
from roost.errors import Invalid, StatementFailed, worded
from roost.protocols.requests import Find, Insert, Open, Refused, Token
from roost.server import answers as say
from roost.structures.index.values import UNHELD, Unheld, as_bytes, is_utf8, number
from roost.structures.kinds import Adopted, Capped, Counter, Ring, Set
from roost.structures.operation import Operation
from roost.structures.plan import AT, SEQUENCE
from roost.structures.registry import from_definition
from roost.structures.structure import Structure
from roost.types.column_types import ColumnType
from roost.types.columns import Column

if TYPE_CHECKING:
    from roost.server.tables import Tables

TOTAL = Column("total", ColumnType("int"))
DEFINITION = "SELECT definition FROM roost_catalog WHERE name = ?"


class Wanted(NamedTuple):
    """What a request becomes: operations, and the answer that is made of their results."""

    operations: list[Operation[Any]]
    tell: Callable[[list[Any]], str]


class Several(NamedTuple):
    """A request that must see one answer before it asks the next: operations, one after the other."""

    steps: Generator[Operation[Any], Any, str]


def structure_of(tables: Tables, name: str) -> Structure | None:
    """Return the structure of this name; None where there is none, or the table of that name is the user's own."""
    if not tables.catalog:
        return None
    found = tables.connection.fetch(DEFINITION, (name,))
    structure = from_definition(found[0][0]) if found else None
    return None if isinstance(structure, Adopted) else structure


class OpenedStructure:
    """One structure, and the columns that are read and written."""

    def __init__(self, structure: Structure, asked: Open) -> None:
        self.structure = structure
        key = list(structure.key.columns)
        ids: list[Column] = []
        if isinstance(structure, Capped):
            ids = list(structure.id.columns)
        elif isinstance(structure, Set):
            ids = list(structure.member.columns)
        self.parts = [*key, *ids]
        self._key = len(key)
        there = [*structure.columns]
        if isinstance(structure, Counter):
            there.append(TOTAL)
        elif not isinstance(structure, Set):
            there += [SEQUENCE, AT]
        self._there = {column.name: column for column in there}
        if asked.key not in ("", "PRIMARY", "0"):
            raise Refused("idxnum")
        for name in (*asked.columns, *asked.fcolumns):
            if name not in self._there:
                raise Refused("fld")
        self.columns = [self._there[name] for name in asked.columns]
        self.fcolumns = asked.fcolumns
        self.width = len(self.columns)
        self._places = {column.name: place for place, column in enumerate(self.columns)}
        self._encode = SQLITE.encoder(there)
        self._shown = [list(self._there).index(name) for name in asked.columns]

    def ask(self, asked: Find | Insert) -> Wanted | Several:
        """Return what a request becomes.

        Raises: Refused for what has no meaning; Error for a value that a column cannot hold.
        """
        if isinstance(asked, Insert):
            return self._insert(asked)
        if asked.op != "=" or asked.filters or asked.width not in (self._key, len(self.parts)):
            raise Refused("notimpl")
        verb = asked.modification[:1]
        if verb == "U":
            raise Refused("notimpl")
        if verb:
            return Several(self._modify(verb, asked))
        keys = [*self._keys(asked)]
        return Wanted([self._reading(key, asked.limit + asked.offset) for key in keys], self._teller(keys, asked))

    def _keys(self, asked: Find) -> Iterable[tuple[Any, ...]]:
        # The values to look for, as the structure has them; what a column cannot hold matches nothing.
        given = [*asked.values, *[""] * (asked.width - len(asked.values))]
        for value in asked.among if asked.place is not None else [None]:
            if asked.place is not None:
                given[asked.place] = value
            row = [neutral(column, token) for column, token in zip(self.parts, given, strict=False)]
            if UNHELD not in row and None not in row:
                yield tuple(row)

    def _reading(self, key: tuple[Any, ...], n: int) -> Operation[Any]:
        structure: Any = self.structure
        head = structure.key.value(key[: self._key])
        whole = len(key) == self._key
        match structure:
            case Counter():
                return structure.total(head)
            case Set():
                return structure.members(head) if whole else structure.contains(head, structure.member.value(key[1:]))
        if SEQUENCE in self.columns or AT in self.columns:
            return structure.entries(head)  # type: ignore[no-any-return]
        if not whole:
            return structure.get(head, structure.id.value(key[self._key :]))  # type: ignore[no-any-return]
        return structure.latest(head, n)  # type: ignore[no-any-return]

    def _teller(self, keys: list[tuple[Any, ...]], asked: Find) -> Callable[[list[Any]], str]:
        def tell(results: list[Any]) -> str:
            rows = [row for key, found in zip(keys, results, strict=True) for row in self._rows(key, found)]
            return say.found(rows[asked.offset : asked.offset + asked.limit], self.width)

        return tell

    def _rows(self, key: tuple[Any, ...], found: Any) -> list[tuple[Any, ...]]:
        # What was found, as rows of the opened columns.
        structure: Any = self.structure
        full: list[tuple[Any, ...]]
        match structure:
            case Counter():
                full = [(*key, found)]
            case Set() if len(key) == self._key:
                full = sorted([(*key, *structure.member.check(member)) for member in found], key=repr)
            case Set():
                full = [key] if found else []
            case _:
                full = self._kept(key, found)
        return [tuple([row[place] for place in self._shown]) for row in map(self._stored, full)]

    def _kept(self, key: tuple[Any, ...], found: Any) -> list[tuple[Any, ...]]:
        # The rows of a ring or a capped collection, newest first: of an id the one that has it.
        rows = [self._row(each) for each in _newest_first(found)]
        return rows if len(key) == self._key else [row for row in rows if self._id(row) == key[self._key :]]

    def _id(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        structure: Any = self.structure
        return tuple([row[place] for place in structure.rows.places(structure.unique)])

    def _row(self, found: Any) -> tuple[Any, ...]:
        structure: Any = self.structure
        sequence = at = None
        if hasattr(found, "sequence") and hasattr(found, "row"):
            sequence, at, found = found.sequence, found.at, found.row
        return (*structure.rows.check(found), sequence, at)

    def _stored(self, row: tuple[Any, ...]) -> Sequence[Any]:
        return row if self._encode is None else self._encode(row)

    # --- writing --------------------------------------------------------------------------------------------------

    def _insert(self, asked: Insert) -> Wanted:
        structure: Any = self.structure
        given: dict[str, Any] = {}
        tokens = [*asked.values, *[""] * (min(asked.width, self.width) - len(asked.values))]
        for column, token in zip(self.columns, tokens, strict=False):
            if column.name in ("sequence", "at") and column.name not in {each.name for each in structure.columns}:
                raise Refused("notimpl")
            value = neutral(column, token)
            if value is UNHELD:
                raise worded(StatementFailed(f"{structure.name}.{column.name} cannot hold it"), "type")
            given[column.name] = value
        row = []
        for column in structure.columns:
            value = given.get(column.name)
            if value is None and not column.nullable:
                raise worded(StatementFailed(f"{structure.name}.{column.name} takes no NULL"), "notnull")
            row.append(value)
        try:
            return self._inserting(structure, row, given)
        except Invalid as error:
            raise worded(StatementFailed(str(error)), "type") from error

    def _inserting(self, structure: Any, row: list[Any], given: dict[str, Any]) -> Wanted:
        head = structure.key.value(row[: self._key])
        match structure:
            case Counter():
                n = given.get("total", 1)
                return Wanted([structure.add(head, 1 if n is None else n)], lambda _: "0\t1")
            case Set():
                return Wanted([structure.add(head, structure.member.value(row[self._key :]))], lambda _: "0\t1")
            case Ring():
                return Wanted([structure.push(structure.rows.make(row))], lambda results: f"0\t1\t{results[0]}")
        return Wanted([structure.add(structure.rows.make(row))], lambda _: "0\t1")

    def _modify(self, verb: str, asked: Find) -> Generator[Operation[Any], Any, str]:
        structure: Any = self.structure
        returning = asked.modification[1:2] == "?"
        if isinstance(structure, Ring) or (verb != "D" and not isinstance(structure, Counter)):
            raise Refused("notimpl")
        before: list[tuple[Any, ...]] = []
        changed = 0
        skip, left = asked.offset, asked.limit
        for key in [*self._keys(asked)]:
            found = yield self._reading(key, asked.limit + asked.offset)
            rows = self._rows(key, found)[skip : skip + left]
            full = self._full(key, found)[skip : skip + left]
            skip = max(0, skip - len(self._full(key, found)))
            before += rows
            for row in full:
                changed += yield from self._change(verb, key, row, found, asked)
            left -= len(rows)
            if left <= 0:
                break
        return say.found(before, self.width) if returning else f"0\t1\t{changed}"

    def _full(self, key: tuple[Any, ...], found: Any) -> list[tuple[Any, ...]]:
        # The ids of what was found, in the same order as `_rows`.
        structure: Any = self.structure
        match structure:
            case Counter():
                return [()]
            case Set() if len(key) == self._key:
                return sorted([structure.member.check(member) for member in found], key=repr)
            case Set():
                return [key[self._key :]] if found else []
        return [self._id(row) for row in self._kept(key, found)]

    def _change(
        self, verb: str, key: tuple[Any, ...], row: tuple[Any, ...], found: Any, asked: Find
    ) -> Generator[Operation[Any], Any, int]:
        structure: Any = self.structure
        head = structure.key.value(key[: self._key])
        if isinstance(structure, Counter):
            if verb == "D":
                yield structure.clear(head)
                return 1
            addend = self._addend(asked.to)
            new = found + addend if verb == "+" else found - addend
            if verb == "-" and ((found > 0 and new < 0) or (found < 0 and new > 0)):
                return 0
            yield structure.add(head, addend if verb == "+" else -addend)
            return 1
        if isinstance(structure, Set):
            yield structure.remove(head, structure.member.value(row))
        else:
            yield structure.remove(head, structure.id.value(row))
        return 1

    def _addend(self, to: Sequence[Token]) -> int:
        total = 0
        for column, token in zip(self.columns, to, strict=False):
            if token is None:
                continue
            addend = number(token)
            if column is not TOTAL or type(addend) is not int:
                raise worded(StatementFailed(f"{self.structure.name}: {token!r} cannot be added"), "type")
            total += addend
        return total


def _newest_first(found: Any) -> list[Any]:
    if found is None:
        return []
    if not isinstance(found, list):
        return [found]
    return found[::-1] if found and hasattr(found[0], "sequence") and hasattr(found[0], "row") else found


def neutral(column: Column, token: Token) -> Any | Unheld:
    """Return the value of a structure's column that a token means, in the form that SQL sees; `UNHELD` for none."""
    if token is None:
        return None
    kind = column.type.kind
    if kind == "binary":
        return as_bytes(token)
    if not is_utf8(token):
        return UNHELD
    try:
        match kind:
            case "text":
                return token
            case "int" | "bool":
                found = number(token)
                if type(found) is not int or (kind == "bool" and found not in (0, 1)):
                    return UNHELD
                return bool(found) if kind == "bool" else found
            case "float":
                real = number(token)
                return real if isinstance(real, Unheld) else float(real)
            case "datetime":
                moment = dt.datetime.fromisoformat(token)
                return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
            case "date":
                return dt.date.fromisoformat(token)
            case "decimal":
                return Decimal(token)
            case "uuid":
                return uuid.UUID(token)
        return _member(column, token)
    except (ValueError, InvalidOperation):
        return UNHELD


def _member(column: Column, token: str) -> Any | Unheld:
    assert column.type.enum is not None
    for member in column.type.enum:
        if str(member.value) == token:
            return member
    return UNHELD
