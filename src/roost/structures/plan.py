"""The common part of all plans. A plan is a generator that yields statements, receives their answers, returns results.

It does no I/O, so one plan serves every engine, in threads and in asyncio, and is tested without a database. Each of
its results is a value, or an error that concerns that one operation; what it raises concerns the whole batch.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any, ClassVar, NamedTuple

from roost.dialects.dialect import Answer, Dialect, Exchange, Gather, Row, Statement, Template, Wanted, query
from roost.errors import Error, Invalid, Mismatch
from roost.structures.operation import Operation
from roost.structures.steps import Routine
from roost.structures.structure import Structure, difference
from roost.structures.wire import Wire
from roost.types.column_types import CHECKS, ColumnType, Refused
from roost.types.columns import Column

# Yields statements and control words, receives their answers (see `Statement`), and returns one result per operation,
# in their order.
Plan = Generator[Wanted, Any, list[Any]]
Operations = Sequence[Operation[Any]]

same: Callable[[Row], Row] = tuple  # the converter of columns that need none: it returns the row itself

PLAIN = {"int", "text", "bool", "binary", "uuid", "enum"}  # kinds whose text does not depend on a session's settings

MOST_OVERLAPS = 10  # definitions for which a declaration remembers its plan
MOST_REFUSED = 1_000  # keys of a structure that a store remembers as refused
MOST = 100  # violations of one rule that `check` reports
MORE = f"there are more than these {MOST}"

# Roost's own columns, in addition to the user's.
SLOT = Column("slot", ColumnType("int"))
SEQUENCE = Column("sequence", ColumnType("int"))
AT = Column("at", ColumnType("datetime"))
N = Column("n", ColumnType("int"))

_utc: Callable[[Any], dt.datetime] = partial(CHECKS[AT.type.kind], AT.type)


@dataclass(frozen=True, slots=True)
class Context:
    """The circumstances of a run that a plan may use; none of them decides an order."""

    clock: Callable[[], dt.datetime]  # for the column `at`, in UTC
    joined: bool = False  # inside the application's own transaction
    careful: bool = False  # an optimistic attempt has failed
    nowait: bool = False  # do not wait for locks that other sessions hold
    locked: bool = False  # what the operations write is locked already
    refused: dict[str, dict[Row, None]] = field(default_factory=dict)  # by structure, what was refused
    # By structure: keys that were read, whose use is to be stored.
    used: dict[str, dict[Row, None]] = field(default_factory=dict)

    def was_refused(self, name: str, asked: Row) -> bool:
        """Return whether this was refused lately by the structure of that name, and forget it."""
        return self.refused.get(name, {}).pop(asked, 1) is None

    def remember_refused(self, name: str, asked: Row) -> None:
        """Remember that this was refused, so that a plain read is asked first the next time."""
        refused = self.refused.setdefault(name, {})
        if len(refused) >= MOST_REFUSED:
            refused.clear()
        refused[asked] = None


def in_utc(clock: Callable[[], dt.datetime]) -> Callable[[], dt.datetime]:
    """Return a clock that returns the same times in UTC, as columns store them; `Invalid` for one without a zone."""

    def now() -> dt.datetime:
        moment = clock()
        if type(moment) is dt.datetime and moment.tzinfo is dt.UTC:
            return moment
        try:
            return _utc(moment)
        except Refused as refused:
            raise Invalid(f"the store's clock: {refused}") from None

    return now


Facts = dict[str, Any]  # of a definition
Alteration = Callable[[Any, Facts, Facts], Generator[Wanted, Any, None]]

# A rule that `check` verifies: its name, and a query for the keys that violate it; the last column describes how.
Rule = tuple[str, str]


Verb = Callable[[Operations, Context], Plan]  # what runs the operations of one verb


class Careful(Exception):
    """Raised by a plan whose optimistic statement failed: undo the batch, and run it again with `careful`."""


class Question(NamedTuple):
    """One operation that only reads, as one statement with its own snapshot.

    answer: makes the result from the fetched rows.
    """

    sql: str
    row: Row
    answer: Callable[[list[Row]], Any]


# On SQLite: one operation as a transaction of its own. Yields texts with their parameters, and receives the rows of
# each. Unusual cases (a duplicate, a full collection) raise `Careful`: a batch handles them.
Transaction = Generator[tuple[str, Row], list[Row], Any]


class TargetPlan:
    """A target of operations, in one dialect's words."""

    structure: Any

    def run(self, operations: Operations, context: Context) -> Plan:
        """Plan operations of this target, in their order."""
        raise NotImplementedError

    def heads_of(self, op: Operation[Any]) -> Iterable[Row]:
        """Return the keys, as they are stored, whose heads an operation locks."""
        raise NotImplementedError


class StructurePlan(TargetPlan):
    """One structure in one dialect's words: the statements that make its tables, and the plan of its operations."""

    structure: Structure
    made_by: str  # the advice to be given if it is missing
    tables: tuple[str, ...]
    indexes: tuple[tuple[str, str], ...] = ()  # those that `check` looks for, each with its table
    # The columns of a row in the order in which its programs are given them; on MySQL also the programs' names.
    form: Sequence[str] = ()
    routines: tuple[Routine, ...] = ()  # its programs; a structure without any is kept by its plan
    altering: str = ""  # what `alter` locks its tables with, where the row of its definition is not enough
    alterations: ClassVar[Mapping[str, Alteration]] = {}  # by fact, what `alter` does to the rows
    settled: ClassVar[Mapping[str, Alteration]] = {}  # what it does behind the last call of a former program
    late: str = ""  # the query for a key whose `keep` a call has written by a former declaration, after `alter`
    wire: ClassVar[type[Wire] | None] = Wire  # its behaviour over HandlerSocket; None: that of a table

    def __init__(self, structure: Structure, dialect: Dialect) -> None:
        self.structure = structure
        self.dialect = dialect
        name, key = structure.name, structure.key.columns
        self.rows_table = f"roost_{name}_rows"
        self.head_table = f"roost_{name}_head"
        self.made_by = f"store.create({name}) makes it"
        self.layout: dict[str, tuple[Column, ...]] = {}
        self.primary: dict[str, str] = {}  # the names in the primary keys of these tables
        self.key_width = len(key)
        self.key_out: Callable[[Row], Row] = dialect.encoder(key) or same
        self._key_in: Callable[[Row], Row] = dialect.decoder(key) or same
        self.by_settings = not {column.type.kind for column in structure.columns} <= PLAIN
        # By the tokens of stores that have looked into their catalogs: the plan by which they run, mostly this one.
        self.found_by: dict[object, StructurePlan] = {}
        self._as_stored: dict[str, StructurePlan] = {}
        self.stored = Statement(definition_of(dialect), [(name,)])
        self.current = Statement(definition_of(dialect, dialect.for_share), [(name,)])
        self._verbs: dict[str, Verb] = {}
        # The forms of a single operation, by its verb: one statement that reads, or a transaction of its own. If it has
        # neither, or the function returns None, it needs a batch.
        self.questions: dict[str, Callable[[Operation[Any], Context], Question | None]] = {}
        self.transactions: dict[str, Callable[[Operation[Any], Context], Transaction | Exchange | None]] = {}

    def rules(self) -> Iterator[Rule]:
        """Return the invariants of its tables, besides those of all structures: that values fit their columns."""
        return iter(())

    def broken(self) -> Generator[Statement, Any, list[tuple[str, Row | None, str]]]:
        """Return violations that are not found by queries for keys: a rule, the key, and a description."""
        yield from ()
        return []

    def relation(self) -> Any:
        """Return what SQL clients see, and what they may do (`relation.py`); None if there is no view."""

    @property
    def has_view(self) -> bool:
        """Whether plain SQL clients can have a view of it."""
        return self.relation() is not None

    def as_stored(self, definition: str) -> StructurePlan | Error:
        """Return the plan for the stored declaration, if it differs; `Mismatch` if this one cannot be used with it."""
        found = self._as_stored.get(definition)
        if found is None:
            structure = self.structure.overlap(definition)
            if structure is None:
                return Mismatch(
                    f"{self.structure.name} is declared otherwise than it is stored: "
                    f"{difference(definition, self.structure.definition)}"
                )
            if len(self._as_stored) >= MOST_OVERLAPS:
                self._as_stored.clear()
            found = self._as_stored[definition] = type(self)(structure, self.dialect)
        return found

    def run(self, operations: Operations, context: Context) -> Plan:
        results: list[Any] = []
        for verb, run in groupby(operations, attrgetter("verb")):
            results += yield from self._verbs[verb](list(run), context)
        return results

    def heads_of(self, op: Operation[Any]) -> Iterable[Row]:
        return [self.key_out(op.args[0])]

    def key_value(self, stored: Sequence[Any]) -> Any:
        """Return the caller's key for the stored columns of one."""
        return self.structure.key.value(self._key_in(tuple(stored)))

    def create(self, table: str, columns: Sequence[Column], primary: str, fill: int = 100) -> str:
        """Return a CREATE TABLE statement, and remember the layout for `check`.

        fill: the percentage to which PostgreSQL fills a page: with room for new versions of rows, updates are HOT.
        """
        self.layout[table] = tuple(columns)
        self.primary[table] = primary.replace(self.dialect.quote, "")
        identity = primary.split(", ")
        longest = sum([_most_bytes(each) for each in columns if self.dialect.name_of(each) in identity])
        if self.dialect.key_bytes and longest > self.dialect.key_bytes:
            raise Invalid(
                f"{self.structure.name}: what identifies a row, {primary}, may have {longest:,} bytes; this database"
                f" takes {self.dialect.key_bytes:,}, a character of a text being 4; give shorter texts, as"
                " roost.text(100)"
            )
        lines = ",\n  ".join([*map(self.dialect.declared, columns), f"PRIMARY KEY ({primary})"])
        room = f" WITH (fillfactor = {fill})" if fill < 100 and self.dialect.name == "postgresql" else ""
        return f"CREATE TABLE {table} (\n  {lines}\n){self.dialect.table_options}{room}"

    def index(self, suffix: str, columns: str, where: str = "", table: str = "") -> str:
        """Return a CREATE INDEX statement, and remember the index for `check`.

        suffix: a word without `_`: otherwise an index of the structure NAME_WORD could have the same name, which only
            MariaDB and MySQL allow.
        """
        name = f"roost_{self.structure.name}_{suffix}"
        self.indexes += ((name, table or self.rows_table),)
        return f"CREATE INDEX {name} ON {table or self.rows_table} ({columns}){where}"


def _most_bytes(column: Column) -> int:
    # Of a value in an index.
    match column.type.kind:
        case "text":
            return 4 * (column.type.limit or 0)
        case "binary":
            return column.type.limit or 0
    return 16


def definition_of(dialect: Dialect, lock: str = "") -> Template:
    """Make the template that reads a definition from the catalog, by name."""
    return query(f"SELECT definition FROM roost_catalog WHERE name = {dialect.placeholder}{lock}")


def seizing(dialect: Dialect, table: str, columns: Sequence[Column]) -> Template | None:
    """Make the template that locks existing rows, or fails at once; None if every statement can do so itself.

    A row that another session has inserted and not committed exists, too.
    """
    if not dialect.nowait:
        return None
    where = dialect.equal(columns)
    return Template(
        f"(SELECT {{i}} FROM {table} WHERE {where}{dialect.for_update}{dialect.nowait})", Gather.UNION, Answer.ORDINAL
    )


def write(sql: str, values: str = "") -> Template:
    """Make the template of a modification that is sent once per row.

    values: the SQL in the parentheses after VALUES, if SQLite can take several rows there.
    """
    many = Template(sql.replace(f"VALUES ({values})", "VALUES {rows}"), Gather.VALUES) if values else None
    return Template(sql, many=many)


def in_place(places: Iterable[int], found: Sequence[Any]) -> list[Any]:
    """Return what was found in the order of the places to which it belongs.

    >>> in_place([2, 0, 1], ["c", "a", "b"])
    ['a', 'b', 'c']
    """
    return [each for _, each in sorted(zip(places, found, strict=True), key=itemgetter(0))]


def in_turns(calls: Sequence[tuple[str, Row]], width: int) -> list[tuple[str, list[int]]]:
    """Return programs with the places of their calls, so that those with the same first columns stay in order.

    >>> in_turns([("add", (7,)), ("remove", (7,)), ("add", (8,)), ("add", (7,))], 1)
    [('add', [0, 2]), ('remove', [1]), ('add', [3])]
    """
    groups: dict[tuple[int, str], list[int]] = {}
    last: dict[Row, tuple[int, str]] = {}
    for place, (program, row) in enumerate(calls):
        turn, before = last.get(row[:width], (0, program))
        turn += before != program
        last[row[:width]] = turn, program
        groups.setdefault((turn, program), []).append(place)
    return [(program, groups[turn, program]) for turn, program in sorted(groups)]


def in_rounds(rows: Sequence[Row]) -> list[list[int]]:
    """Return the places of rows in rounds, of which none has two equal rows.

    >>> in_rounds([(7,), (8,), (7,), (7,)])
    [[0, 1], [2], [3]]
    """
    rounds: list[list[int]] = []
    calls: Counter[Row] = Counter()
    for place, row in enumerate(rows):
        if calls[row] == len(rounds):
            rounds.append([])
        rounds[calls[row]].append(place)
        calls[row] += 1
    return rounds
