"""What rings and capped collections have in common: dataclass rows, read newest first or from a sequence number on."""

from __future__ import annotations

import copy
import dataclasses
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from datetime import datetime
from operator import attrgetter, itemgetter
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

from roost.dialects.dialect import Dialect, Row, Statement, Template, Wanted, query
from roost.errors import Invalid
from roost.structures.clock import SECOND, datetime_of
from roost.structures.console import Console, Table
from roost.structures.operation import RUNS, Operation, few
from roost.structures.plan import AT, SEQUENCE, Context, same, write
from roost.structures.program import SOME, ProgramPlan
from roost.structures.steps import number
from roost.structures.structure import AnyKey, Group, Structure, facts_of
from roost.structures.wire import Values, Wire
from roost.types.column_types import INT_MAX, checked_whole
from roost.types.columns import Column, checked_columns, columns_of, parse_column, structure_name, unique_names

R = TypeVar("R")
PLACES = number("its place"), number("its adds")  # of a row in a set form; the last row of a key has both the same


@dataclasses.dataclass(frozen=True, slots=True)
class Entry(Generic[R]):
    """A row with its place: `sequence` is the only order; `at` is the store's clock in UTC, for showing only."""

    sequence: int
    at: datetime
    row: R


class RowStructure(Structure[AnyKey], Generic[R, AnyKey]):
    """The reading half of a ring and of a capped collection."""

    whole = ("push", "add", *RUNS)
    keep: Any  # rows per key

    def __init__(self, name: str, rows: Rows) -> None:
        super().__init__(name, rows.key)
        self.rows = rows

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the row."""
        return self.rows.columns

    def latest(self, key: AnyKey, n: int | None = None) -> Operation[list[R]]:
        """Read the last `n` rows (None: all), newest first; an empty list for a key without rows."""
        return Operation(self, "latest", (self.key.check(key), n if n is None else self._n(n)))

    def entries(self, key: AnyKey, *, after: int = 0, n: int | None = None) -> Operation[list[Entry[R]]]:
        """Read the entries whose sequence is greater than `after`, oldest first, at most `n` (None: all).

        A reader of a ring that resumes with its last sequence can see that it missed rows: the first sequence that it
        gets is greater by more than one. In a capped collection, removed and refreshed rows leave such gaps too.
        """
        what = f"{self.name}: after is a sequence, a whole number from 0 on"
        found = checked_whole(what, after, 0, INT_MAX)
        return Operation(self, "entries", (self.key.check(key), found, n if n is None else self._n(n)))

    def _ranked(self, entries: list[Entry[R]]) -> list[Entry[R]]:
        # From the one that is evicted first on.
        return entries

    @classmethod
    def from_facts(cls, name: str, facts: dict[str, Any]) -> Self:
        keys = [*facts["per"], *facts.get("unique", ())]
        options = {fact: value for fact, value in facts.items() if fact != "columns"}
        return super().from_facts(name, {**options, "Row": row_from(name, facts["columns"], keys)})

    def overlap(self, definition: str) -> Self | None:
        made = super().overlap(definition)
        if made is None:
            return None
        try:
            rows = self.rows.overlap(facts_of(definition)["columns"])
        except (KeyError, TypeError, ValueError):  # somebody has changed it by hand
            return None
        if rows is None:
            return None
        made.rows = rows
        return made

    def _arguments(self, verb: str, args: tuple[Any, ...]) -> list[str]:
        match verb:
            case "push" | "add":
                return [repr(self.rows.make(args[0]))]
            case "push_all" | "add_all":
                return [f"[{few(repr(self.rows.make(row)) for row in args)}]"]
            case "entries":
                return [repr(self.key.value(args[0])), f"after={args[1]}", f"n={args[2]}"]
        return super()._arguments(verb, args)


def option(structure: str, name: str, value: Any, choices: Sequence[str]) -> str:
    """Return the value of an option that has a few choices, or raise `Invalid`."""
    if value not in choices:
        raise Invalid(f"{structure}: {name} is {' or '.join(map(repr, choices))}, not {value!r}")
    return cast(str, value)


def keep_limit(structure: str, keep: Any) -> int:
    """Return `keep`, or raise `Invalid`."""
    return checked_whole(f"{structure}: keep is a whole number from 1 to 2147483647", keep, 1, 2**31 - 1)


class Rows:
    """The rows of a ring or a capped collection: a dataclass, its columns, and which of them are the key."""

    def __init__(self, structure: str, row: Any, per: Any, unique: Sequence[str] = ()) -> None:
        structure_name(structure)
        if not (isinstance(row, type) and dataclasses.is_dataclass(row)):
            raise Invalid(f"{structure}: a row is a dataclass, not {row!r}")
        self.type: type[Any] = row
        make = per if isinstance(per, type) and hasattr(per, "_fields") else None
        if make and len(make._fields) < 2:
            raise Invalid(f"{structure}.per: a NamedTuple of one field; name the field instead")
        self.per = names(structure, "per", make._fields if make else per)
        self.columns = columns_of(structure, row, [*self.per, *unique])
        by_name = {each.name: each for each in self.columns}
        for name in [*self.per, *unique]:
            if name not in by_name:
                raise Invalid(f"{structure}: {row.__name__} has no field {name!r}; it has {', '.join(by_name)}")
        if make and columns_of(structure, make, self.per) != tuple(by_name[name] for name in self.per):
            raise Invalid(f"{structure}: the fields of {make.__name__} and of {row.__name__} have different types")
        self.key: Group[Any] = Group(structure, "key", [by_name[name] for name in self.per], make)
        self._structure = structure
        self._declared = self.columns
        self._names = tuple(by_name)
        self._values = values_of(self._names, attrgetter)
        self._checks = tuple(each.checker(structure) for each in self.columns)
        self._by_keyword = any(field.kw_only for field in dataclasses.fields(row))
        self.unknown: tuple[Column, ...] = ()  # that are stored and not declared
        self.stored = self._names  # the names in the order of the definition that is stored
        self.absent: tuple[str, ...] = ()  # the names of those that are declared and not stored

    @property
    def others(self) -> list[Column]:
        """The columns besides those of the key that are declared and stored, in the order of what is stored."""
        others = [each for each in self.columns if each.name not in self.per]
        return sorted(others, key=lambda each: self.stored.index(each.name))

    def default(self, column: Column) -> Any:
        """Return what a row has in a column that it is made without; `LookupError` where it cannot be."""
        field = next(each for each in dataclasses.fields(self.type) if each.name == column.name)
        if field.default is not dataclasses.MISSING:
            return field.default
        if field.default_factory is not dataclasses.MISSING:
            return field.default_factory()
        if column.nullable:
            return None
        raise LookupError(column.name)

    def overlap(self, stored: Sequence[tuple[str, str]]) -> Rows | None:
        """Return the rows as they are stored with these columns; None where these rows cannot be made of them."""
        specs: dict[str, str] = dict(stored)
        made = copy.copy(self)
        made.columns = tuple(each for each in self.columns if each.name in specs)
        made.stored = tuple(specs)
        made.absent = tuple(each.name for each in self.columns if each.name not in specs)
        made.unknown = tuple(
            parse_column(self._structure, name, spec) for name, spec in specs.items() if name not in self._names
        )
        try:
            for column in self.columns:
                if column.name in specs:
                    if specs[column.name] != column.spec:
                        return None
                else:
                    self.default(column)
        except LookupError:
            return None
        return made

    def loses(self, values: Sequence[Any]) -> str:
        """Return the name of a column that is not stored and in which a row has more than its default; "" for none."""
        for name, column, value in zip(self._names, self._declared, values, strict=True):
            if name in self.absent and value != column.checker(self._structure)(self.default(column)):
                return name
        return ""

    def check(self, row: Any) -> tuple[Any, ...]:
        """Return the neutral values of a row in the order of the columns, or raise `Invalid`."""
        if not isinstance(row, self.type):
            raise Invalid(f"{self._structure}: {row!r} is not a {self.type.__name__}")
        return tuple([check(value) for check, value in zip(self._checks, self._values(row), strict=True)])

    def check_all(self, rows: Sequence[Any]) -> tuple[tuple[Any, ...], ...]:
        """Return the neutral values of many rows, or raise `Invalid`."""
        for kind in set(map(type, rows)):
            if not issubclass(kind, self.type):
                wrong = next(row for row in rows if type(row) is kind)
                raise Invalid(f"{self._structure}: {wrong!r} is not a {self.type.__name__}")
        values = tuple(map(self._values, rows))
        return tuple(checked_columns(self._declared, self._checks, values))

    def make(self, values: Sequence[Any]) -> Any:
        """Return the dataclass for the neutral values of a row, without those of columns that are absent."""
        if self.absent:
            there = iter(values)
            declared = self._declared
            values = [self.default(each) if each.name in self.absent else next(there) for each in declared]
        if self._by_keyword:
            return self.type(**dict(zip(self._names, values, strict=True)))
        return self.type(*values)

    def maker(self, decode: Callable[[Sequence[Any]], Any] | None) -> Callable[[Sequence[Any]], list[Any]]:
        """Return the function from stored rows to dataclasses; `decode` makes values neutral, where that is needed."""
        if decode is None and not self._by_keyword and not self.absent:
            make = self.type
            return lambda stored: [make(*row) for row in stored]
        return lambda stored: [self.make(decode(row) if decode else row) for row in stored]

    def taking(self, wanted: Sequence[str]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
        """Return the function that takes the columns of these names out of a declared row's values."""
        return values_of([self._names.index(name) for name in wanted], itemgetter)


def values_of(parts: Sequence[Any], getter: Callable[..., Callable[[Any], Any]]) -> Callable[[Any], tuple[Any, ...]]:
    """Return the function that gets several parts as a tuple: `attrgetter` and `itemgetter` return one bare."""
    if not parts:
        return lambda _: ()
    get = getter(*parts)
    return get if len(parts) > 1 else lambda whole: (get(whole),)


def names(structure: str, what: str, given: Any) -> tuple[str, ...]:
    """Return the names of `per` or `unique`, given as one name or several, or raise `Invalid`."""
    found = (given,) if isinstance(given, str) else given
    several = isinstance(found, (tuple, list)) and all([isinstance(each, str) for each in found])
    if not several or not found or len(set(found)) < len(found):
        raise Invalid(f"{structure}: {what} is a field's name or several different ones, not {given!r}")
    return tuple(found)


def row_from(structure: str, columns: Sequence[tuple[str, str]], keys: Sequence[str]) -> type[Any]:
    """Make a dataclass from columns as a definition has them: `[["uid", "int"], ...]`."""
    made = [parse_column(structure, name, spec, key=name in keys) for name, spec in columns]
    unique_names(structure, made)
    title = "".join(part.title() for part in structure.split("_"))
    return dataclasses.make_dataclass(title, [(each.name, each.python) for each in made], frozen=True)


class RowsPlan(ProgramPlan):
    """A structure of rows in one dialect's words: their conversion, and a head for each key."""

    structure: Any
    heads = True
    places: tuple[Column, ...] = PLACES

    def __init__(self, structure: Any, dialect: Dialect) -> None:
        self.others = structure.rows.others
        self.given = [*structure.key.columns, *self.others]
        self.expires = structure.keep_for is not None
        self._row_out = dialect.encoder(self.given) or same
        self._take = structure.rows.taking([each.name for each in self.given])
        self._rows_of = structure.rows.maker(dialect.decoder(structure.columns))
        self._at_in = dialect.decoder([AT]) or same
        self.at_out = dialect.encoder([AT]) or same
        super().__init__(structure, dialect)
        if self.expires and not dialect.is_server:
            self._time = query(f"SELECT {self.words.now.replace(self.words.clock, '?')}")

    def rows_of(self, op: Operation[Any]) -> Sequence[Row]:
        """Return the rows that an operation adds, as its program is given them."""
        out, take = self._row_out, self._take
        return [out(take(row)) for row in op.args]

    # --- many rows on MariaDB and MySQL ---------------------------------------------------------------------------

    @property
    def in_sets(self) -> list[Column]:
        """The columns that a set form is given: each row has its place among those of its key, and their number.

        Windows and groups of the database take longer to count them.
        """
        return [*self.given, *(self.places if self.dialect.family == "mariadb" else ())]

    def placed(self, rows: Sequence[Row]) -> Sequence[Row] | None:
        if len(rows) < SOME:  # a few long ones, of a call with more
            return None
        keys = [row[: self.key_width] for row in rows]
        adds, before = Counter(keys), dict.fromkeys(keys, 0)
        found = []
        for row, key in zip(rows, keys, strict=True):
            before[key] += 1
            found.append((*row, before[key], adds[key]))
        return found

    # --- many rows on SQLite, where a trigger for each takes longer -----------------------------------------------

    def is_plain(self, rows: Sequence[Row], context: Context) -> Generator[Wanted, Any, bool]:
        """Return whether rows are stored without the program: they are many, and stored as they are declared.

        Of few, a trigger for each is as fast. A joined transaction begins with a write: its snapshot is not old then.
        """
        if len(rows) < SOME or context.joined or self.structure.rows.unknown:
            return False
        (stored,) = yield self.stored
        return bool(stored) and stored[0][0] == self.structure.definition

    def moments(self, context: Context) -> Generator[Wanted, Any, tuple[Row, Row]]:
        """Return the structure's time, if rows expire, and what they have in the columns `at` and `until`."""
        moment = self.moment(context)
        at = self.at_out((datetime_of(*moment),))
        if not self.expires:
            return (), at
        ((time,),) = yield Statement(self._time, [moment])
        return time, (*at, time[0] + self.structure.keep_for * SECOND)

    def storing(
        self, table: str, columns: Sequence[Column], by: Sequence[Column], changed: Sequence[Column]
    ) -> Template:
        """Make the statement that stores rows; of one that is there, by these columns, it changes some."""
        holes, names = self.dialect.holes(len(columns)), self.dialect.names
        change = ", ".join(f"{self.dialect.name_of(one)} = excluded.{self.dialect.name_of(one)}" for one in changed)
        conflict = f" ON CONFLICT ({names(by)}) DO UPDATE SET {change}"
        return write(f"INSERT INTO {table} ({names(columns)}) VALUES ({holes}){conflict}", holes)

    def _entry(self, stored: Row) -> Entry[Any]:
        return Entry(stored[0], self._at_in(stored[1:2])[0], self._rows_of([stored[2:]])[0])


class EntriesWire(Wire):
    """A structure whose rows have a sequence number and a moment; newest first."""

    more = (SEQUENCE, AT)
    of_key = "latest"

    def reading(self, head: Any, id_: Values, n: int) -> Operation[Any]:
        if SEQUENCE in self.columns or AT in self.columns:
            return self.structure.entries(head)  # type: ignore[no-any-return]
        return super().reading(head, id_, n)

    def rows(self, key: Values, found: Any) -> list[Values]:
        check = self.structure.rows.check
        if isinstance(found, list) and found and hasattr(found[0], "sequence") and hasattr(found[0], "row"):
            return [(*check(each.row), each.sequence, each.at) for each in reversed(self.structure._ranked(found))]
        return [(*row, None, None) for row in super().rows(key, found)]


S = TypeVar("S", bound=RowStructure[Any, Any])


class RowsConsole(Console[S]):
    """Keys with the number of their rows and the first one, and all rows of one key: the newest first, or the best."""

    changes: ClassVar[Sequence[str]] = ("keep", "keep_for", "add")
    shows, holds = "entries", "rows"

    def summaries(self, keys: Sequence[Any]) -> Sequence[Operation[Any]]:
        return [self.structure.entries(key) for key in keys]

    def summary(self, keys: Sequence[Any], results: Sequence[Any]) -> Table:
        headers, *_ = self.content([], 1)
        shown = [(len(found), self.content(found, 1)) for found in results]
        rows = [(n, *(table.rows[0] if n else [None] * len(headers))) for n, table in shown]
        documents = [{"rows": n, "first": table.document["entries"][0] if n else None} for n, table in shown]
        return Table(("rows", *headers), rows, documents)

    def content(self, found: Any, n: int | None) -> Table:
        entries = self.structure._ranked(found)[::-1][:n]
        names = [each.name for each in self.structure.columns if each not in self.structure.key.columns]
        rows = [(each.sequence, each.at, *[getattr(each.row, name) for name in names]) for each in entries]
        return Table(("sequence", "at", *names), rows, {"entries": [self._document(each) for each in entries]})

    def _document(self, entry: Entry[Any]) -> dict[str, Any]:
        row = {each.name: getattr(entry.row, each.name) for each in self.structure.columns}
        return {"sequence": entry.sequence, "at": entry.at, "row": row}

    def altered(self, options: Mapping[str, Any], added: Sequence[tuple[str, Any, Any]]) -> Structure:
        row = self.structure.rows.type
        if added:
            row = dataclasses.make_dataclass(row.__name__, added, bases=(row,), frozen=True)
        return self.structure.replaced(Row=row, **options)
