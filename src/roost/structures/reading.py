"""The reads of a plan: queries with named parameters, for one key at a time and for many in one statement."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from roost.dialects.dialect import Answer, Dialect, Gather, Row, Statement, Template, query
from roost.structures.clock import CLOCK, SQLITE_CLOCK, microseconds
from roost.structures.operation import Operation
from roost.structures.plan import Context, Operations, Plan, Question, StructurePlan, Verb, same
from roost.structures.steps import number
from roost.structures.words.mysql import MySQLWords
from roost.structures.words.postgresql import PostgreSQLWords
from roost.structures.words.sqlite import SQLiteWords
from roost.structures.words.words import NAMED, Words, parameters, short_digest
from roost.types.columns import Column

WORDS: Mapping[str, type[Words]] = {"sqlite": SQLiteWords, "mariadb": MySQLWords, "postgresql": PostgreSQLWords}
# Parameters beside a structure's columns, whose names cannot be these.
NOW, MOST = number("roost_now"), number("roost_most")
ALL = 2**31 - 1  # the limit of a query that reads all rows
SEVERAL = 4  # fewer queries are as fast side by side as a join to the list of their parameters
_OF_ONE_TABLE = re.compile(r" FROM (roost_\w+)((?: \w)?)\s+WHERE ")
_NOT_OF_A_JOIN = re.compile(r"\b(LIMIT|UNION|GROUP|ORDER|DISTINCT|OVER)\b", re.IGNORECASE)
_OF_MANY_ROWS = re.compile(r"\b(avg|bit_\w+|count|group_concat|json_\w+|max|min|std\w*|sum|var\w*)\s*\(", re.IGNORECASE)


class Read(NamedTuple):
    """A query for the rows of one key: for one at a time, and for many in one statement."""

    sql: str  # with placeholders
    places: tuple[int, ...]  # of the parameters, for each placeholder
    template: Template
    in_order: bool = False  # whether the placeholders are those of the parameters, in their order
    listed: Template | None = None  # does the same for `SEVERAL` rows of parameters or more, on MariaDB and MySQL

    def row(self, values: Row) -> Row:
        """Return the values in the order of the placeholders."""
        return values if self.in_order else tuple([values[place] for place in self.places])

    def statement(self, rows: Sequence[Row]) -> Statement:
        """Return the query for many rows of parameters; the answer has a list of rows for each."""
        if self.listed is not None and len(rows) >= SEVERAL:
            return Statement(self.listed, rows)
        arrays = self.template.gather is Gather.ARRAYS
        return Statement(self.template, rows if arrays else [self.row(row) for row in rows])

    def alone(self, values: Row) -> Statement:
        """Return the query for one row of parameters, as one that need not be gathered."""
        return Statement(query(self.sql), [self.row(values)])


class Ask(NamedTuple):
    """What a verb that only reads asks.

    row: the parameters for an operation.
    result: makes the operation's result of the rows that were found.
    """

    read: Read
    row: Callable[[Operation[Any], Context], Row]
    result: Callable[[Operation[Any], list[Row]], Any]


class ReadPlan(StructurePlan):
    """The reads of one structure in one dialect's words.

    heads: whether a key has a row in the head table, which is locked first; otherwise the rows are their own heads.
    expires: whether rows expire. The structure then has a program `sweep`.
    """

    heads = False
    expires = False

    def __init__(self, structure: Any, dialect: Dialect) -> None:
        self.words = dialect.choose(WORDS)(structure.name, dialect, structure.key.columns)
        self.words.declaration = short_digest(structure.definition)
        if not self.heads:
            self.words.head = self.words.rows
        self._by_store = dialect.name == "sqlite"
        super().__init__(structure, dialect)

    def moment(self, context: Context) -> Row:
        """Return the moment that SQLite's programs and reads are given: the store's."""
        return (microseconds(context.clock()),) if self._by_store else ()

    @property
    def now(self) -> str:
        """The structure's time in a query; on SQLite it has the parameter `:roost_now`."""
        return self.words.now.replace(self.words.clock, self.clock)

    @property
    def shown_clock(self) -> str:
        """The clock in a view, which has no parameters."""
        return SQLITE_CLOCK if self._by_store else CLOCK[self.dialect.family]

    @property
    def shown_now(self) -> str:
        """The structure's time in a view."""
        return self.words.now.replace(self.words.clock, self.shown_clock)

    @property
    def stands(self) -> str:
        """The condition that this time stands still."""
        return self.words.stands.replace(self.words.clock, self.clock)

    @property
    def clock(self) -> str:
        """The clock in a query."""
        return f":{NOW.name}" if self._by_store else CLOCK[self.dialect.family]

    @property
    def timed(self) -> tuple[Column, ...]:
        """The parameters of `now`, whose values are `moment(context)`."""
        return (NOW,) if self._by_store else ()

    def mine(self, prefix: str = "") -> str:
        """Return the condition that the columns of the key equal the parameters of their names."""
        return self.same_as(self.structure.key.columns, prefix)

    def same_as(self, columns: Sequence[Column], prefix: str = "") -> str:
        """Return the condition that columns equal the parameters of their names."""
        return " AND ".join(f"{prefix}{self.dialect.name_of(each)} = :{each.name}" for each in columns)

    def read(self, sql: str, given: Sequence[Column], *, sums: bool = False) -> Read:
        """Make a query for one key that has named parameters: `SELECT … WHERE uid = :uid`.

        sums: whether it is a sum of rows, whose answer may have no row where there is none.
        """
        names = [column.name for column in given]
        if self.dialect.placeholder == "%s":
            sql = sql.replace("%", "%%")
        text, used = parameters(sql, self.dialect.placeholder)
        places, listed = tuple([names.index(name) for name in used]), None
        if self.dialect.family == "sqlite":
            template = query(text)
        elif self.dialect.family == "mariadb":
            whole = " UNION ALL " in text
            part = f"e.* FROM ({text}) e" if whole else text.removeprefix("SELECT ")
            template = Template(f"(SELECT {{i}}, {part})", Gather.UNION, Answer.ORDINAL)
            listed = self._listed(sql, given, sums)
        else:
            columns = ", ".join(f'"{name}"' for name in names)
            joined = NAMED.sub(r'q."\1"', sql)
            template = Template(
                f'SELECT (q."#" - 1)::integer, e.*\n'
                f'  FROM unnest({self.dialect.arrays(given)}) WITH ORDINALITY AS q ({columns}, "#")\n'
                f"  CROSS JOIN LATERAL ({joined} OFFSET 0) e",
                Gather.ARRAYS,
                Answer.ORDINAL,
            )
        return Read(text, places, template, places == tuple(range(len(names))), listed)

    def _listed(self, sql: str, given: Sequence[Column], sums: bool) -> Template | None:
        # MariaDB has no LATERAL, and a part of a UNION takes four times as long as a row of a join. The first part
        # of the list gives it the types of the table's columns.
        for found in _OF_ONE_TABLE.finditer(sql):
            columns, (table, alias), condition = sql[: found.start()], found.groups(), sql[found.end() :]
            of_key = self.mine(f"{alias.strip()}." if alias else "") in condition
            if of_key and columns.count("(") == columns.count(")"):
                break
        else:
            return None
        if _NOT_OF_A_JOIN.search(columns + condition) or (not sums and _OF_MANY_ROWS.search(columns)):
            return None
        own = {column.name: self.dialect.name_of(column) for column in self.layout[table]}
        parts = ", ".join(f"{own.get(each.name, '0')} AS `its {each.name}`" for each in given)
        rows = f"(SELECT 0 AS `#`, {parts} FROM {table} WHERE 0 UNION ALL VALUES {{rows}}) q"
        condition = NAMED.sub(r"q.`its \1`", condition)
        joined = f"{rows}\n  STRAIGHT_JOIN {table}{alias} FORCE INDEX (PRIMARY) ON {condition}"
        grouped = " GROUP BY q.`#`" if sums else ""
        text = f"SELECT q.`#`, {columns.removeprefix('SELECT ')}\n  FROM {joined}{grouped}"
        return Template(text, self.dialect.lists, Answer.ORDINAL)

    def finding(self, columns: str, table: str, by: Sequence[Column], more: str = "") -> Template:
        """Make SQLite's query for columns of rows `r` that are given by others; many in one statement.

        more: a condition to follow, whose `:roost_now` is given behind these.
        """
        moment = f":{NOW.name}"
        same = " AND ".join(f"r.{self.dialect.name_of(one)} = q.column{n}" for n, one in enumerate(by, 2))
        many = f"SELECT q.column1, {columns} FROM (VALUES {{rows}}) q CROSS JOIN {table} r ON {same}"
        many += more.replace(moment, f"q.column{len(by) + 2}")
        one = query(f"SELECT {columns} FROM {table} r WHERE {self.dialect.equal(by, 'r.')}{more.replace(moment, '?')}")
        return replace(one, many=Template(many, Gather.LIST, Answer.ORDINAL))

    def _asks(self, ask: Ask, run: Operations, context: Context) -> Plan:
        found = yield ask.read.statement([ask.row(op, context) for op in run])
        return [ask.result(op, rows) for op, rows in zip(run, found, strict=True)]

    def _question(self, ask: Ask, op: Operation[Any], context: Context) -> Question:
        read, row_of, result = ask
        row = row_of(op, context)
        return Question(read.sql, row if read.in_order else read.row(row), lambda rows: result(op, _tuples(rows)))

    def living(self, prefix: str = "") -> str:
        """Return the condition that a row has not expired, to follow others; "" where none does."""
        return f" AND {prefix}until > {self.now}" if self.expires else ""

    def ask(self, sql: str, result: Callable[[Operation[Any], list[Row]], Any], given: Sequence[Column] = ()) -> Ask:
        """Return what a verb asks of a key, by a query with named parameters: those of the key, and of `given`.

        given: the columns of an operation's arguments after the key; None, as a number of rows, is all.
        """
        timed = self.timed if f":{NOW.name}" in sql else ()
        read = self.read(sql, [*self.structure.key.columns, *given, *timed])
        if not given and not timed:
            return Ask(read, self._own_key, result)
        out, width = self.dialect.encoder(given) or same, len(given)

        def row(op: Operation[Any], context: Context) -> Row:
            values: list[Any] = []
            for arg in op.args[1:]:
                values += arg if type(arg) is tuple else [ALL if arg is None else arg]
            return (*self.key_out(op.args[0]), *out(tuple(values[:width])), *(self.moment(context) if timed else ()))

        return Ask(read, row, result)

    def _own_key(self, op: Operation[Any], _: Context) -> Row:
        return self.key_out(op.args[0])

    @property
    def listed(self) -> str:
        """The condition of the rows whose keys are listed; "": those of all heads, or rows."""
        return ""

    def later(self) -> str:
        """Return the condition of later keys than a given one. MariaDB and MySQL find no range for (a, b) > (…)."""
        columns = [(self.dialect.name_of(each), f":{each.name}") for each in self.structure.key.columns]
        if self.dialect.family != "mariadb":
            names, values = zip(*columns, strict=True)
            return f"({', '.join(names)}) > ({', '.join(values)})"
        same = [f"{name} = {value}" for name, value in columns]
        later = [[*same[:place], f"{name} > {value}"] for place, (name, value) in enumerate(columns)]
        return " OR ".join(map(" AND ".join, later))

    def list_keys(self, table: str = "", living: str = "") -> Verb:
        """Return what lists the keys of a table."""
        table = table or (self.head_table if self.heads and not living else self.rows_table)
        key = self.structure.key.columns
        names, timed = self.dialect.names(key), self.timed if living else ()
        begin = f"SELECT {'DISTINCT ' if table == self.rows_table else ''}{names} FROM {table}"
        tail = f"ORDER BY {names} LIMIT :{MOST.name}"
        first = self.read(f"{begin}{f' WHERE {living}' if living else ''} {tail}", [*timed, MOST])
        later = self.read(
            f"{begin} WHERE {f'{living} AND ' if living else ''}({self.later()}) {tail}", [*timed, *key, MOST]
        )

        def keys(run: Operations, context: Context) -> Plan:
            results = []
            for op in run:
                last, n = op.args
                now = self.moment(context) if living else ()
                read = first.alone((*now, n)) if last is None else later.alone((*now, *self.key_out(last), n))
                results.append([self.key_value(row) for row in (yield read)[0]])
            return results

        return keys


def _tuples(rows: list[Any]) -> list[Row]:
    # asyncpg has a type of its own.
    return rows if not rows or type(rows[0]) is tuple else [tuple(each) for each in rows]
