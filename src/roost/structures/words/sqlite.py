"""SQLite's words: a routine is a view without rows, whose INSTEAD OF trigger runs the steps for an inserted row."""

from __future__ import annotations

from collections.abc import Sequence

from roost.dialects.dialect import Dialect, Template
from roost.structures import steps
from roost.structures.clock import SECOND
from roost.structures.plan import write
from roost.structures.steps import Program, Routine
from roost.structures.words.words import MARK, Words
from roost.types.columns import Column


class SQLiteWords(Words):
    """One structure in SQLite's words.

    What a step remembers is written out where it is used, so it is evaluated there: a head's column is what it is then.
    """

    clock = 'NEW."roost_now"'
    at = f"strftime('%Y-%m-%d %H:%M:%S.', {clock} / 1000000, 'unixepoch') || substr({clock} % 1000000 + 1000000, 2)"
    loops = False
    least, greatest = "min", "max"

    def __init__(self, name: str, dialect: Dialect, key: Sequence[Column]) -> None:
        super().__init__(name, dialect, key)
        self._lets: dict[str, str] = {}
        self._given: list[str] = []  # of a statement for many rows

    @property
    def now(self) -> str:
        return f"(SELECT max({self.clock} + coalesce(max(t.ahead), 0), coalesce(max(t.latest), 0)) FROM {self.times} t)"

    def new(self, name: str) -> str:
        return f"column{self._given.index(name) + 1}" if self._given else f'NEW."{name}"'

    def __getitem__(self, name: str) -> str:
        return self._lets[name]

    def default(self, column: Column) -> str:
        return self.proposed(self.dialect.name_of(column))

    @property
    def source(self) -> str:
        # WHERE keeps ON CONFLICT from being read as the condition of a join.
        return f"(VALUES ({', '.join('?' * len(self._given))})) WHERE true"

    def statement(self, program: Program) -> str | None:
        """Return the text of a program that is a single statement over many rows: a trigger takes twice as long."""
        self._given = [each.name for each in program.given]
        run = program.steps(self)
        first = next(run)
        alone = first.sql if isinstance(first, steps.Do) and next(run, None) is None else None
        self._given = []
        return alone

    def routine(self, program: Program) -> Routine:
        """Return the view and its trigger. A trigger sees what its earlier statements have changed.

        Refusals come by RAISE(ABORT) in a SELECT: `INSERT OR IGNORE` and `OR REPLACE` override the handling of every
        other conflict inside a trigger, and would leave counts wrong.
        """
        self._lets.clear()
        door, body = self.routine_name(program), []
        refusals: dict[str, int] = {}
        for step in program.steps(self):
            match step:
                case steps.Head(makes=makes):
                    if makes:
                        values = {**self.values(self.key), **step.first}
                        body.append(self.put(self.head, values, self._key))
                    for each in step.first:
                        self._lets[each] = f"(SELECT {each} FROM {self.head} WHERE {self.mine()})"
                case steps.Next(column, first):
                    values = {**self.values(self.key), column: "1", **first}
                    body.append(self.put(self.head, values, self._key, {column: f"{self.head}.{column} + 1"}))
                    for name in (column, *first):
                        self._lets[name] = f"(SELECT {name} FROM {self.head} WHERE {self.mine()})"
                case steps.Now():
                    self._lets["now"] = self.now
                    body.append(self._store_time())
                case steps.Let(name, value):
                    self._lets[name] = f"({value})"
                case steps.Fetch(remembered, selected, source):
                    for column_, value in zip(remembered, selected, strict=True):
                        self._lets[column_.name] = f"(SELECT {value} {source})"
                case steps.Do(sql, when, counts):
                    body.append(f"{sql} AND ({when})" if when else sql)
                    if counts:
                        self._lets[counts] = "changes()"
                case steps.Refuse(when, outcome, message):
                    refusals[message] = outcome
                    body.append(f"SELECT RAISE(ABORT, {self.dialect.literal(message)}) WHERE {when}")
                case steps.Leave(when, _):
                    body.append(f"SELECT RAISE(IGNORE) WHERE {when}")
                case steps.Give():
                    pass
                case steps.Each() | steps.Fact() | steps.Put():
                    raise TypeError(f"{step!r} is not for SQLite")
        columns = ", ".join(f'NULL AS "{each}"' for each in [*(each.name for each in program.given), "roost_now"])
        text = "".join(f"  {each};\n" for each in body)
        view = f"CREATE VIEW {door} AS {MARK}\nSELECT {columns} WHERE 0"
        trigger = f"CREATE TRIGGER {door} INSTEAD OF INSERT ON {door} BEGIN\n{text}END"
        return Routine(door, (view, trigger), (f"DROP VIEW IF EXISTS {door}",), f"{view}\n{trigger}", refusals)

    def calls(self, program: Program) -> tuple[str, Template]:
        holes = f"{self.dialect.holes(len(program.given))}, ?"
        text = f"INSERT INTO {self.routine_name(program)} VALUES ({holes})"
        return text, write(text, holes)

    def _store_time(self) -> str:
        at = f"{self.clock} + ahead"
        return (
            f"UPDATE {self.times} SET latest = max({at}, latest),\n"
            f"    ahead = CASE WHEN latest - ({at}) >= {SECOND} THEN latest - {self.clock} ELSE ahead END\n"
            f"    WHERE id = 0 AND abs({at} - latest) >= {SECOND}"
        )

    @property
    def _key(self) -> list[str]:
        return [self.dialect.name_of(each) for each in self.key]
