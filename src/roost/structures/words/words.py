"""What the words of all databases have in common."""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from roost.dialects.dialect import Dialect, Template
from roost.structures import steps
from roost.structures.clock import SECOND
from roost.structures.steps import Do, Program, Routine, Step, number
from roost.types.columns import Column

MARK = "/* made by Roost */"


class Words(ABC):
    """One structure's names in one database, and the spelling of its program's steps.

    rows, head, times: the structure's private tables; `times` has one row, the structure's time (`clock.py`).
    clock: the moment by the database's clock, in microseconds since 1970; on SQLite it is given with the row.
    now: the same by the structure's time, which never goes back.
    at: the clock as the column `at` has it.
    loops: whether there are `Each`, `Put`, and variables.
    least, greatest: the functions of that.
    current: what ends a query that a write depends on, so that it does not read an older snapshot.
    backwards: what the order has in which expired rows are searched, if not the oldest first.
    """

    clock: str
    at: str
    loops = True
    least, greatest, current = "LEAST", "GREATEST", ""
    backwards = ""

    def __init__(self, name: str, dialect: Dialect, key: Sequence[Column]) -> None:
        self.name, self.dialect, self.key = name, dialect, key
        self.declaration = ""  # what identifies the stored declaration
        self.variant = ""  # ends the names of programs that are given whole rows of a declaration with fewer columns
        self.rows, self.head, self.times = (f"roost_{name}_{table}" for table in ("rows", "head", "clock"))

    @property
    @abstractmethod
    def now(self) -> str:
        """The structure's time, as an expression."""

    @property
    def stands(self) -> str:
        """The condition that this time stands still: the clock has jumped back, and no program has noticed it yet."""
        return f"EXISTS (SELECT 1 FROM {self.times} t WHERE t.latest - ({self.clock} + t.ahead) >= {SECOND})"

    @property
    def marks(self) -> Sequence[Routine]:
        """Routines beside the programs, which these call."""
        return ()

    def type_of(self, column: Column) -> str:
        """Return a column's type as a parameter or a variable has it."""
        return self.dialect.types[column.type.kind](column)

    def names(self, columns: Sequence[Column], prefix: str = "") -> str:
        return self.dialect.names(columns, prefix)

    def values(self, columns: Sequence[Column]) -> dict[str, str]:
        """Return the given values of columns, by quoted name, as `put` takes them."""
        return {self.dialect.name_of(each): self.new(each.name) for each in columns}

    def mine(self, columns: Sequence[Column] = (), prefix: str = "") -> str:
        """Return the condition that columns (those of the key, if none are named) equal the given values."""
        return " AND ".join(
            f"{prefix}{self.dialect.name_of(each)} = {self.new(each.name)}" for each in columns or self.key
        )

    @property
    def my_head(self) -> str:
        """The condition that finds the given key's head, once it is locked."""
        return self.mine()

    @abstractmethod
    def new(self, name: str) -> str:
        """Return the given value of a column."""

    @property
    @abstractmethod
    def source(self) -> str:
        """The given rows of a program for many, as FROM has them; `ord` is a row's number from 1 on."""

    @abstractmethod
    def __getitem__(self, name: str) -> str:
        """Return a remembered value."""

    def whole(self, value: int | None) -> str:
        """Return a number as a literal of 64 bits."""
        return str(value)

    def divided(self, value: str, by: str) -> str:
        return f"({value}) / {by}"

    def by_index(self, index: str) -> str:
        """Return the table of rows, as FROM has it, read by an index: MariaDB would scan one with few rows."""
        return self.rows

    def delete_by(self, index: str) -> str:
        """Return the beginning of a DELETE of rows that are found by an index."""
        return f"DELETE FROM {self.rows}"

    def put(
        self,
        table: str,
        values: Mapping[str, str],
        key: Sequence[str],
        change: Mapping[str, str] | None = None,
        source: str = "",
    ) -> str:
        """Return the upsert of a row, or, with a source, of a row for each of the source's.

        key: the quoted names of the columns that identify a row.
        change: what an existing row gets; the values of the refused row are `self.proposed(column)`.
        """
        given = f"VALUES ({', '.join(values.values())})"
        if source:
            given = f"SELECT {', '.join(values.values())} FROM {source}"
        return f"INSERT INTO {table} ({', '.join(values)}) {given} {self.upsert(key, change or {})}"

    def write(self, table: str, values: Mapping[str, str], key: Sequence[str], change: Mapping[str, str]) -> str:
        """Return what does the same as `put` to a row that is there most of the time; not in other statements."""
        return self.put(table, values, key, change)

    def write_all(
        self, table: str, values: Mapping[str, str], key: Sequence[str], change: Mapping[str, str]
    ) -> Iterator[Step]:
        """Yield the steps that do the same as `put` to rows of the source, of different keys."""
        yield Do(self.put(table, values, key, change, self.source))

    def heads(self, first: Mapping[str, str]) -> Iterator[Step]:
        """Yield the steps that lock the heads of the source's keys, in their order; those that are missing are made."""
        key = self.values(self.key)
        keys = ", ".join(key.values())
        yield Do(self.put(self.head, {**key, **first}, [*key], source=f"{self.source} GROUP BY {keys} ORDER BY {keys}"))

    def replace(
        self,
        table: str,
        values: Mapping[str, str],
        key: Sequence[str],
        source: str = "",
        unknown: Sequence[Column] = (),
        there: bool = False,
    ) -> str:
        """Return the same where an existing row gets all that a new one would have.

        unknown: stored columns that the declaration does not know: they get their defaults.
        there: whether there is one most of the time, as in `write`.
        """
        change = self.changes(values, key, unknown)
        return self.write(table, values, key, change) if there else self.put(table, values, key, change, source)

    def changes(self, values: Mapping[str, str], key: Sequence[str], unknown: Sequence[Column]) -> dict[str, str]:
        """Return what a row that is there gets, so that it has all that a new one would have."""
        change = {name: self.proposed(name) for name in values if name not in key}
        return change | {self.dialect.name_of(each): self.default(each) for each in unknown}

    def default(self, column: Column) -> str:
        """Return the default of a column that a row of `put` does not name, in its upsert."""
        return "DEFAULT"

    def proposed(self, name: str) -> str:
        """Return the value that a row of `put` would have had."""
        return f"excluded.{name}"

    def upsert(self, key: Sequence[str], change: Mapping[str, str]) -> str:
        assigned = ", ".join(f"{name} = {value}" for name, value in change.items())
        return f"ON CONFLICT ({', '.join(key)}) DO {f'UPDATE SET {assigned}' if change else 'NOTHING'}"

    def routine_name(self, program: Program) -> str:
        """Return the name by which a program is called."""
        return f"roost_{self.name}_{program.verb}{self.variant if program.whole else ''}"

    @abstractmethod
    def routine(self, program: Program) -> Routine:
        """Return a program as this database stores it."""

    @abstractmethod
    def calls(self, program: Program) -> tuple[str, Template]:
        """Return the text of a call of a program for one row, and the statement that calls it for many.

        The text has a placeholder for each value; on PostgreSQL it is an expression, on MariaDB and MySQL it has
        `{result}` for the variables of the outcome.
        """

    def door(self, program: Program) -> Routine | None:
        """Return what SQL clients call in place of a program; None where they call it directly."""
        return None


class ServerWords(Words):
    """Words in which a routine is a list of statements, with variables."""

    variable: str  # how one is declared, of its name and its type
    moments: tuple[str, ...] = ("clock", "now", "latest", "ahead")  # the variables of `Now`
    # The statements of steps, and their parts.
    _lock_head: Callable[[steps.Head], list[str]]
    _raise_head: Callable[[steps.Next], list[str]]
    _store_time: Callable[[], list[str]]
    _put: Callable[[steps.Put], str]
    _loop: Callable[[steps.Each, dict[str, str]], str]
    _looked_up: Callable[[str, int], str]
    _let: Callable[[str, str, bool], str]
    _fetch: Callable[[Sequence[str], Sequence[str], str], str]
    _do: Callable[[str, str], str]
    _leave: Callable[[Sequence[str]], str]
    _give: Callable[[Sequence[str]], str]
    _if: Callable[[str, str], str]

    def __init__(self, name: str, dialect: Dialect, key: Sequence[Column]) -> None:
        super().__init__(name, dialect, key)
        self._program: Program
        self.refusals: dict[str, int] = {}

    def routine(self, program: Program) -> Routine:
        self._program, self.refusals = program, {}
        declared: dict[str, str] = {}
        lines = self._lines(program.steps(self), declared)
        return self._stored(self.routine_name(program), lines, [*declared.values()])._replace(refusals=self.refusals)

    @abstractmethod
    def _stored(self, name: str, lines: Sequence[str], declared: Sequence[str]) -> Routine:
        """Return a routine of these statements."""

    def _declare(self, declared: dict[str, str], *columns: Column) -> None:
        declared |= {each.name: self.variable.format(each.name, self.type_of(each)) for each in columns}

    def _lines(self, run: Iterable[Step], declared: dict[str, str]) -> list[str]:
        # The statements of steps; `declared` gets the variables, by name.
        lines: list[str] = []
        for step in run:
            match step:
                case steps.Head():
                    self._declare(declared, *step.columns)
                    lines += self._lock_head(step)
                case steps.Next():
                    self._declare(declared, *step.remembered)
                    lines += self._raise_head(step)
                case steps.Now():
                    self._declare(declared, *map(number, self.moments))
                    lines += self._store_time()
                case steps.Fact(fact, value, when):
                    self._declare(declared, number(fact))
                    lines.append(self._if(when, self._looked_up(fact, value)))
                case steps.Let(variable, value, type_, locking):
                    self._declare(declared, Column(variable, type_))
                    lines.append(self._let(variable, value, locking))
                case steps.Fetch(columns, values, source, when):
                    self._declare(declared, *columns)
                    lines.append(self._if(when, self._fetch([self[each.name] for each in columns], values, source)))
                case steps.Do(sql, when, counts):
                    if counts:
                        self._declare(declared, number(counts))
                    lines.append(self._if(when, self._do(sql, counts)))
                case steps.Put():
                    self._declare(declared, number(step.new))
                    lines.append(self._put(step))
                case steps.Refuse(when, outcome, message):
                    self.refusals[message] = outcome
                    lines.append(self._if(when, self._leave([str(outcome)])))
                case steps.Leave(when, results):
                    lines.append(self._if(when, self._leave(results)))
                case steps.Each():
                    lines.append(self._loop(step, declared))
                case steps.Give(results):
                    lines.append(self._give(results))
        return lines


def digest(text: str) -> str:
    """Return what identifies a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def short_digest(text: str) -> str:
    """Return what tells apart the texts of one name: with that of a structure, a name has room for no more."""
    return digest(text)[:8]


NAMED = re.compile(r"(?<!:):([A-Za-z_]\w*)")


def parameters(sql: str, placeholder: str) -> tuple[str, tuple[str, ...]]:
    """Replace named parameters by placeholders; return the text and the names in the order of the placeholders.

    >>> parameters("SELECT n FROM t WHERE k = :key LIMIT :n", "%s")
    ('SELECT n FROM t WHERE k = %s LIMIT %s', ('key', 'n'))
    """
    return NAMED.sub(placeholder, sql), tuple(NAMED.findall(sql))
