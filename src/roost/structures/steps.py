"""Programs: what keeps a structure's promise, as a few steps over one given row, written once for all databases.

Each database's words (`words/`) make a stored routine of a program: a function on PostgreSQL, a procedure on MariaDB
and MySQL, on SQLite the INSTEAD OF trigger of a view. Whoever writes calls this routine: a single call, a batch,
`store.on`, the triggers of the structure's relation, a protocol.

The result of a program, its *outcome*, is a number from 0 on; a negative one says why the row is refused. SQLite's
triggers have no results: there the caller asks before or after the call (`Program.before`, `Program.after`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from roost.types.column_types import ColumnType
from roost.types.columns import Column

INT: ColumnType[int] = ColumnType("int")
OUTCOMES: ColumnType[str] = ColumnType("text", 2**24)  # of MariaDB's and MySQL's set forms: JSON, by the rows' numbers
TOTAL: ColumnType[int] = ColumnType("decimal", 65)  # a sum of 64-bit integers

# Settings of PostgreSQL's planner that are off in programs (`Program.pinned`). Compilation would seem to be worth what
# is switched off, and has to be done all the same.
BY_INDEX = ("enable_seqscan", "enable_bitmapscan", "jit")
IN_ORDER = (*BY_INDEX, "enable_sort", "enable_incremental_sort")

# The outcomes that refuse a row, each with the SQLSTATE and MySQL's number that a stranger's INSERT gets.
DUPLICATE, FULL = -1, -2
REFUSALS: Mapping[int, tuple[str, int]] = {DUPLICATE: ("23505", 1062), FULL: ("23514", 1644)}


class Head(NamedTuple):
    """Lock the row of the given key in the head table, and remember columns of it as `words[column]`.

    columns: they are numbers, 0 at first, or texts, which are empty at first.

    makes: whether it is created where it is missing, with zeros; or the condition for that. Otherwise the program ends
        there with the outcome 0: a key without a head has no rows, and whoever adds the first may be about to commit.
    given: other values of a created head, by column.
    """

    columns: Sequence[Column]
    makes: bool | str = True
    given: Mapping[str, str] = {}

    @property
    def first(self) -> Mapping[str, str]:
        """The values of a created head."""
        return {each.name: "''" if each.type.kind == "text" else "0" for each in self.columns} | {**self.given}


class Next(NamedTuple):
    """Lock the given key's head, created where it is missing, raise a column of it by 1, and remember its new value.

    first: other columns, with their values in a created head; they are remembered, too.
    """

    column: str
    first: Mapping[str, str] = {}

    @property
    def remembered(self) -> Sequence[Column]:
        """The columns that later steps can read."""
        return [number(self.column), *map(number, self.first)]


class Now(NamedTuple):
    """Remember the structure's time as `words["now"]`; store it, at most once a second, unless somebody is doing so.

    It comes after the locks. Where the clock is more than a second behind the time that was stored, it has jumped back:
    the difference is added to the clock from then on, so that time goes on from where it was.
    """


class Fact(NamedTuple):
    """Remember a number of the declaration, as the catalog has it now. On MariaDB and MySQL only.

    A call that waited for `alter` goes on with the text of before. Where the tables' owner may not read the catalog,
    the value is the program's.
    """

    name: str
    value: int
    when: str = ""


class Let(NamedTuple):
    """Remember a value. Later steps read it as `words[name]`; on SQLite it is written out where it is used.

    locking: a write depends on it, so it must not come from an older snapshot (MariaDB's and MySQL's REPEATABLE READ).
    """

    name: str
    value: str  # an expression, or a SELECT of one value
    type: ColumnType[Any] = INT
    locking: bool = False


class Fetch(NamedTuple):
    """Remember the values of a query's only row under the names of columns; NULLs if it has none.

    values: the expressions that it selects. source: the query from FROM on; it may lock the row.
    when: the condition under which it is asked; otherwise the columns stay as they were. Not on SQLite, which writes
        the expressions out.
    """

    columns: Sequence[Column]
    values: Sequence[str]
    source: str
    when: str = ""


class Do(NamedTuple):
    """Run a statement; with `when`, only if that condition holds (on SQLite it is added to the statement's WHERE).

    counts: later steps read how many rows it has changed as `words[counts]`; on SQLite only the next one can.
    """

    sql: str
    when: str = ""
    counts: str = ""


class Put(NamedTuple):
    """Insert a row, or change the one that is there; remember whether it was new: 1 or 0. Not on SQLite.

    change: what a row that is there gets, which is not what it has; without, it is left as it is. If several sessions
        may lock it at once, there must be a change: on MariaDB it is read, not locked, otherwise.
    """

    table: str
    values: Mapping[str, str]
    key: Sequence[str]
    new: str
    change: Mapping[str, str] = {}


class Refuse(NamedTuple):
    """End with a negative outcome if a condition holds: nothing of the row is stored.

    message: what a stranger is told; a literal text that has no other outcome in the same program.
    """

    when: str
    outcome: int
    message: str


class Leave(NamedTuple):
    """End with an ordinary outcome if a condition holds."""

    when: str
    values: Sequence[str]


class Each(NamedTuple):
    """Run steps for each row of a query, whose columns are remembered under their names. Not on SQLite."""

    columns: Sequence[Column]
    select: str
    steps: Sequence[Step]


class Give(NamedTuple):
    """End with the outcome: a value for each column that the program gives."""

    values: Sequence[str]


Step = Head | Next | Now | Fact | Let | Fetch | Do | Put | Refuse | Leave | Each | Give


class Door(NamedTuple):
    """What SQL clients call, NAME_VERB, where they want the outcome of a program as a row.

    On MariaDB and MySQL it is a procedure that begins a transaction where none is open, calls the program, and selects
    the row. On PostgreSQL the program's function is called directly, unless the door differs from it. In expressions,
    `{n}` is a parameter or a column of the program's outcome.

    given: the parameters; by default those of the program.
    passes: what the program is given, by column, where it is not the parameter of that name.
    refuses: conditions under which a call is an error, with what the client is told.
    gives: the columns of the row; by default those of the outcome.
    """

    given: Sequence[Column] | None = None
    passes: Mapping[str, str] = {}
    refuses: Mapping[str, str] = {}
    gives: Mapping[Column, str] = {}


Found = Sequence[Any] | None  # the first row of a query


class Program(NamedTuple):
    """One verb of a structure.

    given: the columns of the row that it is given; on SQLite the moment (`roost_now`) follows.
    steps: writes the program in the words of one database.
    gives: the columns of its outcome; none: it has no outcome.
    many: it is given many rows, as arrays on PostgreSQL, as JSON on MariaDB and MySQL.
    whole: it is given whole rows. `alter` leaves a form of it for each former declaration that had fewer columns.
    pinned: on PostgreSQL its plans do without these: `IN_ORDER`, or, where many rows are sorted, `BY_INDEX`. Where
        somebody holds an old snapshot, the planner believes in few rows, and would walk through all that are dead.
    before, after: on SQLite queries that are asked before and after a call, with the given columns and `roost_now` as
        named parameters; `tell` makes the outcome of their first rows. Without them there is no outcome.
    idle: whether a call would change nothing, as the first row of `before` tells; then it is left out.
    door: how SQL clients call it, if they want its outcome.
    """

    verb: str
    given: Sequence[Column]
    steps: Callable[[Any], Iterator[Step]]
    gives: Sequence[Column] = ()
    many: bool = False
    whole: bool = False
    pinned: Sequence[str] = ()
    before: str = ""
    after: str = ""
    tell: Callable[[Found, Found], Any] = lambda before, after: (before or after or [0])[0]
    idle: Callable[[Sequence[Any]], bool] = lambda before: False
    door: Door | None = None


class Routine(NamedTuple):
    """A program as a database stores it: the statements that make it or replace it, and those that drop it.

    text: how the database identifies this form of it, to be compared with what is stored.
    refusals: the outcomes of the messages with which SQLite's trigger refuses a row.
    """

    name: str
    make: Sequence[str]
    drop: Sequence[str]
    text: str
    refusals: Mapping[str, int] = {}


def number(name: str) -> Column:
    """Return a column of whole numbers."""
    return Column(name, INT)
