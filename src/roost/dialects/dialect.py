"""The differences between engines, as data, and the conversion of a list of rows to statements.

A plan yields `Statement(template, rows)`: the same statement for several rows. The template's `Gather` decides how it
is sent: SQLite runs it once per row, since there is no network; MariaDB receives one text with many values, PostgreSQL
one text with arrays. `render` and `scatter` implement this, as pure functions.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple, TypeVar

from roost.types.columns import Column

Row = tuple[Any, ...]
T = TypeVar("T")


def doubled(text: str) -> str:
    """Return text as a literal of standard SQL: quotes are doubled, and a backslash is a character.

    >>> doubled("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def enum_of(column: Column) -> Callable[[Any], Any]:
    """Return the function from stored values of an Enum to its members."""
    assert column.type.enum is not None
    return column.type.enum


class Gather(enum.Enum):
    """How one statement over several rows goes out."""

    EACH = "each"  # once per row
    VALUES = "values"  # {rows} becomes (…), (…)
    LIST = "list"  # {rows} becomes (0, …), (1, …): a row's ordinal, and its values
    ROW_LIST = "row list"  # the same as ROW(0, …), ROW(1, …)
    UNION = "union"  # the text once per row, joined by UNION ALL; {i} is the row's ordinal
    ARRAYS = "arrays"  # one array parameter per column


class Answer(enum.Enum):
    """How the returned rows are assigned to the rows of the statement."""

    NONE = "none"  # nothing comes back but how many rows were changed
    ORDINAL = "ordinal"  # the first column is the ordinal of the asking row
    COUNTS = "counts"  # no rows: how many each row changed, as far as none fails and there is time
    IDS = "ids"  # the same, with the number that each inserted row was given
    DONE = "done"  # the same, of what changes one row or fails: 1 for each


@dataclass(frozen=True, slots=True)
class Template:
    """The text of one statement in one dialect's words."""

    sql: str
    gather: Gather = Gather.EACH
    answer: Answer = Answer.NONE
    many: Template | None = None  # does the same for several rows at once; only where `gather` is EACH
    returns: bool = field(init=False)  # whether rows come back

    def __post_init__(self) -> None:
        object.__setattr__(self, "returns", self.answer is not Answer.NONE)


class Statement(NamedTuple):
    """What a plan yields: a template, and the rows it is to be run for.

    The plan receives a list with a list of result rows for each given row, or, for a template that returns no rows, the
    total number of changed rows.
    """

    template: Template
    rows: Sequence[Row]
    last: bool = False  # nothing is asked after it: a transaction that only reads is over with it
    values: int = 0  # that come back at most, if known: so few need not be counted while they are read
    only: bool = False  # all that is asked for its run, which only reads; others may follow in the transaction


def query(sql: str) -> Template:
    """Make the template of a query that is sent once per row."""
    return Template(sql, answer=Answer.ORDINAL)


def fetch(sql: str, *values: Any) -> Generator[Statement, Any, list[Any]]:
    """Ask a query, with the values of its placeholders; return its rows."""
    (rows,) = yield Statement(query(sql), [values])
    return list(rows)


def execute(sql: str, *values: Any) -> Statement:
    """Return the statement that changes something, with the values of its placeholders."""
    return Statement(Template(sql), [values])


class Together(NamedTuple):
    """Independent statements, which a server receives as one text, in one round trip.

    The plan receives the list of their results.
    """

    statements: Sequence[Statement]


class Exchange(NamedTuple):
    """On a server: one operation in one text, as a transaction, COMMIT included, or inside the application's own.

    work: its statements, on PostgreSQL the parts of a WITH, with a placeholder for each value of the row. It fails, or
        changes nothing, where the declaration is not stored, and where something is out of the ordinary.
    answer: an expression of less than `MOST_ANSWER`, which is written along with the transaction's number, so that it
        can be looked up; where it is NULL, the work is undone.
    source: the FROM clause of the answer, on PostgreSQL. Where it has no row, nothing was changed.
    result: makes the operation's result of the answer; None: the result is None.
    """

    work: str
    row: Row
    answer: str = "0"
    source: str = ""
    result: Callable[[int], Any] | None = None


MOST_ANSWER = 2**40 - 1


LEAVES = 2  # servers that only read which a batch leaves: an account, or a table, may be one that nobody writes


class Control(enum.Enum):
    """The control words that a batch yields besides statements; each engine implements them."""

    BEGIN = "begin"
    BEGIN_NOWAIT = "begin, and wait for nobody's lock"
    BEGIN_ALONE = "begin what no batch is: to make or change structures"
    BEGIN_READ = "begin read"
    BEGIN_READ_NOWAIT = "begin read, and wait for nobody's lock"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    SAVEPOINT = "savepoint"
    RELEASE = "release"
    BACK = "rollback to savepoint"
    LOCK_CATALOG = "lock the catalog"  # until the end of the transaction, no other process creates or alters structures
    LOCK_CLUSTER = "lock the catalog of all nodes"  # after LOCK_CATALOG has reported that its lock covers one node only
    JITTER = "jitter"  # wait for a short random time before trying again
    LEAVE = "leave"  # leave a read-only server for the one that accepts writes
    RECONNECT = "reconnect"  # reconnect after the connection was lost, and with it the transaction
    OUTCOME = "outcome"  # whether a COMMIT succeeded whose connection was lost: True, False, or None if unknown

    __hash__ = object.__hash__  # enum's own is Python, and words are looked up for each transaction


Wanted = Statement | Together | Exchange | Control  # what is yielded to whoever executes it


@dataclass(frozen=True, slots=True)
class Dialect:
    """One engine's SQL: types, placeholders, quoting, and how a value is stored."""

    name: str
    quote: str
    placeholder: str
    types: Mapping[str, Callable[[Column], str]]
    encoders: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    decoders: Mapping[str, Callable[[Column], Callable[[Any], Any]]] = field(default_factory=dict)
    order: Mapping[str, str] = field(default_factory=dict)  # by kind: ORDER BY, if not the column itself
    table_options: str = ""
    literal: Callable[[str], str] = doubled  # a text as a literal
    modulo: str = "{} % {}"
    concat: Callable[..., str] = lambda *parts: " || ".join(parts)  # texts and numbers as one text
    slots: int = 1  # of a counter that names none
    key_bytes: int = 0  # of a row's identity at most; 0: it is refused when its table is made, if at all
    nul: bool = True  # whether a text may have a NUL in it
    # Writers wait for single rows, and statements go together where they can, since a round trip has a cost. Without,
    # on SQLite, writers wait for the whole file.
    is_server: bool = True
    singles: bool = True  # one operation by itself needs no batch
    replaces: bool = True  # CREATE OR REPLACE of routines and triggers
    transactional_ddl: bool = True  # without, every CREATE and ALTER commits
    for_share: str = ""  # what a SELECT ends with that keeps its row from being changed
    for_update: str = ""  # what a SELECT ends with whose row will be changed
    # Whether a transaction of the application's has a new snapshot in each statement, and locks no gaps between rows;
    # empty where it never does.
    read_committed: str = ""
    lock_table: str = ""  # LOCK TABLE, for a table and a mode; empty where the row of a definition is locked instead
    nowait: str = ""  # follows these where nothing but they can be told not to wait: no limit is below a second
    array: str = ""  # the table of an array, as `FROM` has it, with one parameter
    pack: Callable[[Sequence[Any]], Any] = tuple  # makes that parameter of whole numbers, or of texts
    returning: bool = True  # whether an INSERT or DELETE can give back the rows that it wrote
    lists: Gather = Gather.LIST  # how a list of rows is said
    family: str = ""  # the name of the dialect that this one was derived from; its own where it was not

    def __post_init__(self) -> None:
        if not self.family:
            object.__setattr__(self, "family", self.name)

    def choose(self, words: Mapping[str, T]) -> T:
        """Return what is there under the dialect's name, or else under its family's."""
        return words[self.name if self.name in words else self.family]

    def names(self, columns: Sequence[Column], prefix: str = "") -> str:
        """Return the quoted names of columns, separated by commas."""
        return ", ".join(f"{prefix}{self.quote}{each.name}{self.quote}" for each in columns)

    def in_order(self, columns: Sequence[Column]) -> str:
        """Return what ORDER BY sorts columns by where no index has them in order."""
        return ", ".join([self.order.get(each.type.kind, "{0}").format(self.name_of(each)) for each in columns])

    def name_of(self, column: Column) -> str:
        """Return the quoted name of a column."""
        return f"{self.quote}{column.name}{self.quote}"

    def quoted(self, name: str) -> str:
        """Return a name as an identifier, whatever is in it."""
        return self.quote + name.replace(self.quote, 2 * self.quote) + self.quote

    def message(self, text: str, *parts: str) -> str:
        """Return the expression for a text with each ? replaced by what an expression has."""
        first, *rest = text.split("?")
        literals = [self.literal(each) if each else "" for each in rest]
        pieces = [
            self.literal(first) if first else "",
            *[each for pair in zip(parts, literals, strict=True) for each in pair],
        ]
        return self.concat(*filter(None, pieces))

    def declared(self, column: Column) -> str:
        """Return a column as CREATE TABLE has it."""
        made = f"{self.name_of(column)} {self.types[column.type.kind](column)}"
        return made if column.nullable else f"{made} NOT NULL"

    def equal(self, columns: Sequence[Column], prefix: str = "") -> str:
        """Return `a = ? AND b = ?`."""
        return " AND ".join(f"{prefix}{self.name_of(each)} = {self.placeholder}" for each in columns)

    def same(self, columns: Sequence[Column], one: str, other: str) -> str:
        """Return `q.a = r.a AND q.b = r.b`."""
        return " AND ".join(f"{one}{self.name_of(each)} = {other}{self.name_of(each)}" for each in columns)

    def arrays(self, columns: Sequence[Column]) -> str:
        """Return one array parameter per column, with PostgreSQL's casts."""
        bare = [re.split(r"\(| COLLATE", self.types[each.type.kind](each))[0] for each in columns]
        return ", ".join(f"{self.placeholder}::{type_}[]" for type_ in bare)

    def exact_sum(self, column: str) -> str:
        """Return a sum as two columns: in units of 2^32, and the rest. SQLite's sums have 64 bits, and fail beyond."""
        if self.is_server:
            return f"0, coalesce(sum({column}), 0)"
        return f"coalesce(sum({column} >> 32), 0), coalesce(sum({column} & 4294967295), 0)"

    def holes(self, n: int) -> str:
        """Return `n` placeholders, separated by commas."""
        return ", ".join([self.placeholder] * n)

    def encoder(self, columns: Sequence[Column]) -> Callable[[Sequence[Any]], Row] | None:
        """Return the function from neutral values to stored ones; None where they are the same."""
        found = [self.encoders.get(each.type.kind) for each in columns]
        return _each(found)

    def decoder(self, columns: Sequence[Column]) -> Callable[[Sequence[Any]], Row] | None:
        """Return the function from stored values to neutral ones; None where they are the same."""
        found = [self.decoders[each.type.kind](each) if each.type.kind in self.decoders else None for each in columns]
        return _each(found)


def _each(found: Sequence[Callable[[Any], Any] | None]) -> Callable[[Sequence[Any]], Row] | None:
    if not any(found):
        return None
    if len(found) == 1:
        (of_one,) = found
        return lambda values: (None if values[0] is None or of_one is None else of_one(values[0]),)
    pairs = tuple(enumerate(found))

    def convert(values: Sequence[Any]) -> Row:
        return tuple([values[i] if f is None or values[i] is None else f(values[i]) for i, f in pairs])

    return convert


# Of one text: a parser has a stack.
MOST_ROWS = {Gather.VALUES: 2_000, Gather.LIST: 2_000, Gather.ROW_LIST: 2_000, Gather.UNION: 250}
MOST_BYTES = 2**20  # of their values, or of one text, about: a server takes 16 MiB as one packet unless told otherwise


def render(statement: Statement) -> list[tuple[str, Row]]:
    """Return the texts, with their parameters, that a statement becomes."""
    template, rows = statement[:2]
    if template.gather is Gather.EACH or not rows:
        return [(template.sql, row) for row in rows]
    if template.gather is Gather.ARRAYS:
        return [(template.sql, tuple(list(column) for column in zip(*rows, strict=True)))]
    texts: list[tuple[str, Row]] = []
    holes, tail = ", ".join(["%s"] * len(rows[0])), ", %s" * len(rows[0])
    word = "ROW" if template.gather is Gather.ROW_LIST else ""
    for first, part in parts(rows, MOST_ROWS[template.gather]):
        ordinals = range(first, first + len(part))
        values = tuple([value for row in part for value in row])
        if template.gather is Gather.UNION:
            texts.append(("\nUNION ALL\n".join([template.sql.replace("{i}", str(i)) for i in ordinals]), values))
        else:
            numbered = template.gather in (Gather.LIST, Gather.ROW_LIST)
            made = [f"{word}({i}{tail})" for i in ordinals] if numbered else [f"{word}({holes})"] * len(part)
            texts.append((template.sql.replace("{rows}", ", ".join(made)), values))
    return texts


def parts(rows: Sequence[Row], most: int, most_bytes: int = MOST_BYTES) -> Iterator[tuple[int, Sequence[Row]]]:
    """Yield as many rows at a time as one text may have, and at least one; with the ordinal of the first."""
    long = [place for place, value in enumerate(rows[0]) if value is None or isinstance(value, (str, bytes))]
    if len(rows) <= most and sum([_length([row[place] for row in rows]) for place in long]) <= most_bytes:
        yield 0, rows
        return
    begin = size = 0
    for place, row in enumerate(rows):
        weight = sum([len(row[column]) for column in long if isinstance(row[column], (str, bytes))])
        if place > begin and (place - begin >= most or size + weight > most_bytes):
            yield begin, rows[begin:place]
            begin, size = place, 0
        size += weight
    yield begin, rows[begin:]


def _length(values: Sequence[Any]) -> float:
    try:
        return sum(map(len, filter(None, values)))
    except TypeError:  # there are numbers, too
        return inf


def collect(statement: Statement, answers: Sequence[Any]) -> Any:
    """Return a statement's answer for those of its texts: the rows that each fetched, or how many it changed."""
    template = statement.template
    if not template.returns:
        return sum(answers)
    if template.gather is Gather.EACH:
        return [list(each) for each in answers]
    return scatter(statement, [row for each in answers for row in each])


def scatter(statement: Statement, fetched: Sequence[Row]) -> list[list[Row]]:
    """Return what a gathered statement fetched as a list of rows for each asking row, without the ordinal."""
    answers: list[list[Row]] = [[] for _ in statement.rows]
    for row in fetched:
        answers[row[0]].append(row[1:])
    return answers
