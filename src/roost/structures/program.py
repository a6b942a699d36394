"""The plan of a structure whose promise its programs keep: operations become calls of stored routines, and reads.

A call is a text, its columns, and how its results become those of operations. Nothing here knows what a program does.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

from roost.dialects.dialect import (
    MOST_BYTES,
    Answer,
    Dialect,
    Exchange,
    Gather,
    Row,
    Statement,
    Template,
    Together,
    Wanted,
)
from roost.structures.clock import microseconds
from roost.structures.plan import Context, StructurePlan, each
from roost.structures.steps import Program, Routine
from roost.structures.words.mysql import MySQLWords
from roost.structures.words.postgresql import PostgreSQLWords
from roost.structures.words.sqlite import SQLiteWords
from roost.structures.words.words import NAMED, Words, parameters
from roost.types.columns import Column

WORDS: Mapping[str, type[Words]] = {"sqlite": SQLiteWords, "mariadb": MySQLWords, "postgresql": PostgreSQLWords}
MOST_CALLS = 64  # procedures that one text calls on MariaDB and MySQL
MOST_JSON_ROWS = 5_000  # of one call

Calling = Generator[Wanted, Any, list[Any]]


class Read(NamedTuple):
    """A query for the rows of one key: for one at a time, and for many in one statement."""

    sql: str  # with placeholders
    places: tuple[int, ...]  # of the parameters, for each placeholder
    template: Template

    def row(self, values: Row) -> Row:
        """Return the values in the order of the placeholders."""
        return tuple([values[place] for place in self.places])

    def statement(self, rows: Sequence[Row]) -> Statement:
        """Return the query for many rows of parameters; the answer has a list of rows for each."""
        arrays = self.template.gather is Gather.ARRAYS
        return Statement(self.template, rows if arrays else [self.row(row) for row in rows])


class ProgramPlan(StructurePlan):
    """One structure in one dialect's words, with its programs.

    A structure's own plan defines `programs` and `verbs`.
    """

    def __init__(self, structure: Any, dialect: Dialect) -> None:
        super().__init__(structure, dialect)
        self.words = dialect.choose(WORDS)(structure.name, dialect, structure.key.columns)
        self._by_store = dialect.name == "sqlite"
        self._programs: dict[str, Program] = {}
        self._many: dict[str, Template] = {}
        self._one: dict[str, str] = {}
        routines = []
        for program in self.programs():
            if program.many and isinstance(self.words, SQLiteWords):
                if sql := self.words.statement(program):
                    values = self.dialect.holes(len(program.given))
                    many = Template(sql.replace(f"VALUES ({values})", "VALUES {rows}"), Gather.VALUES)
                    self._many[program.verb] = Template(sql, many=many)
                continue
            self._programs[program.verb] = program
            routines.append(self.words.routine(program))
        self.routines: tuple[Routine, ...] = tuple(routines)
        for verb, program in self._programs.items():
            self._call(verb, program)

    def programs(self) -> Iterable[Program]:
        """Return the programs, one for each verb that writes; those for many rows are made on servers."""
        raise NotImplementedError

    def _call(self, verb: str, program: Program) -> None:
        name, hole = self.words.routine_name(program), self.dialect.placeholder
        columns, given = self.dialect.names(program.given), self.dialect.holes(len(program.given))
        match self.dialect.family:
            case "sqlite":
                holes = f"{given}, ?"
                self._one[verb] = f"INSERT INTO {name} VALUES ({holes})"
                many = Template(f"INSERT INTO {name} VALUES {{rows}}", Gather.VALUES)
                self._many[verb] = Template(self._one[verb], many=many)
            case "postgresql" if program.many:
                self._many[verb] = Template(f"SELECT {name}({self.dialect.arrays(program.given)})", Gather.ARRAYS)
            case "postgresql":
                call = f"{name}({self.dialect.names(program.given, 'q.')})"
                self._many[verb] = Template(
                    f'SELECT (q."#" - 1)::integer, {call}\n'
                    f'  FROM unnest({self.dialect.arrays(program.given)}) WITH ORDINALITY AS q ({columns}, "#")',
                    Gather.ARRAYS,
                    Answer.ORDINAL,
                )
                self._one[verb] = f"{name}({given})"
            case _ if program.many:
                self._many[verb] = Template(f"CALL {name}({hole})")
            case _:
                self._one[verb] = f"CALL {name}({given}{{result}})"

    def moment(self, context: Context) -> Row:
        """Return the moment that SQLite's programs and reads are given: the store's."""
        return (microseconds(context.clock()),) if self._by_store else ()

    # --- calls ----------------------------------------------------------------------------------------------------

    def call_all(self, verb: str, rows: Sequence[Row], context: Context) -> Calling:
        """Call a program that gives no results with many rows. On servers `VERB_all` takes them together."""
        if self._by_store and (direct := self._many.get(f"{verb}_all")):
            yield Statement(direct, rows)
        elif self._by_store:
            now = self.moment(context)
            yield Statement(self._many[verb], [(*row, *now) for row in rows])
        elif self.dialect.family == "postgresql":
            yield Statement(self._many[f"{verb}_all"], rows)
        else:
            for text in _in_json(rows):
                yield Statement(self._many[f"{verb}_all"], [(text,)])
        return []

    def call_one(self, verb: str, row: Row, context: Context) -> Calling:
        """Call a program that gives no result with one row."""
        if self._by_store:
            return (yield from self.call_all(verb, [row], context))
        yield Statement(_one(self.dialect.family, self._one[verb]), [row])
        return []

    def call_each(self, verb: str, rows: Sequence[Row], context: Context) -> Calling:
        """Call a program once for each row; return the results, if it gives any."""
        if self.dialect.family == "postgresql":
            found = yield Statement(self._many[verb], rows)
            return [answer[0][0] for answer in found]
        results: list[Any] = []
        for begin in range(0, len(rows), MOST_CALLS):
            part = rows[begin : begin + MOST_CALLS]
            if self._programs[verb].gives is None:
                yield Together([Statement(_one(self.dialect.family, self._one[verb]), [row]) for row in part])
                continue
            calls = [Statement(_calling(self._one[verb], place), [row]) for place, row in enumerate(part)]
            *_, found = yield Together((*calls, Statement(_results(len(part)), [()])))
            results += found[0][0]
        return results

    def exchange(self, verb: str, row: Row, result: Callable[[int], Any] | None = None) -> Exchange:
        """Return the call of a program with one row as a transaction of its own, on a server.

        result: makes the operation's result of the program's, which is a number from 0 on; otherwise a batch runs it.
        """
        call = self._one[verb]
        if self.dialect.family == "postgresql":
            answer = "0" if result is None else _BOUNDED.format("o")
            return Exchange(f"a AS (SELECT {call} AS o)", row, answer, "FROM a", result)
        if result is None:
            return Exchange(call.format(result=""), row)
        return Exchange(call.format(result=", `the count`"), row, _BOUNDED.format("`the count`"), "", result)

    # --- reads ----------------------------------------------------------------------------------------------------

    def read(self, sql: str, given: Sequence[Column]) -> Read:
        """Make a query for one key that has named parameters: `SELECT … WHERE uid = :uid`."""
        names = [column.name for column in given]
        text, used = parameters(sql, self.dialect.placeholder)
        places = tuple([names.index(name) for name in used])
        if self.dialect.family == "sqlite":
            template = each(text)
        elif self.dialect.family == "mariadb":
            template = Template(f"(SELECT {{i}}, {text.removeprefix('SELECT ')})", Gather.UNION, Answer.ORDINAL)
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
        return Read(text, places, template)


_BOUNDED = "CASE WHEN {0} BETWEEN 0 AND 1099511627774 THEN ({0}) END"  # less than MOST_ANSWER


@lru_cache(1000)
def _one(family: str, call: str) -> Template:
    return Template(f"SELECT {call}" if family == "postgresql" else call.format(result=""))


@lru_cache(1000)
def _calling(call: str, place: int) -> Template:
    return Template(call.format(result=f", @roost_{place}"))


@lru_cache(MOST_CALLS)
def _results(number: int) -> Template:
    return each(f"SELECT {', '.join(f'@roost_{place}' for place in range(number))}")


def _in_json(rows: Sequence[Row]) -> Iterable[str]:
    # As many rows at a time as one text may have.
    begin = 0
    while begin < len(rows):
        texts: list[str] = []
        size = 0
        while begin < len(rows) and size < MOST_BYTES and len(texts) < MOST_JSON_ROWS:
            texts.append(json.dumps(rows[begin], default=_json_value, ensure_ascii=False))
            size += len(texts[-1])
            begin += 1
        yield f"[{','.join(texts)}]"


def _json_value(value: Any) -> str:
    match value:
        case bytes():
            return value.hex()
        case dt.datetime():
            return value.isoformat(" ")
        case dt.date():
            return value.isoformat()
        case Decimal():
            return format(value, "f")
    raise TypeError(f"{value!r} is no value of MariaDB's")
