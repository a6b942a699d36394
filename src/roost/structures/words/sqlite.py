"""SQLite's words: a routine is a view without rows, whose INSTEAD OF trigger runs the steps for an inserted row."""

from __future__ import annotations

from collections.abc import Sequence

from roost.dialects.dialect import Dialect
from roost.structures.steps import Do, Give, Let, Program, Routine, Take
from roost.structures.words.words import MARK, Words
from roost.types.columns import Column


class SQLiteWords(Words):
    """One structure in SQLite's words."""

    now = "NEW.roost_now"

    def __init__(self, name: str, dialect: Dialect, key: Sequence[Column]) -> None:
        super().__init__(name, dialect, key)
        self._lets: dict[str, str] = {}
        self._given: list[str] = []  # of a statement for many rows

    def new(self, name: str) -> str:
        """Return the given value of a column."""
        return f"column{self._given.index(name) + 1}" if self._given else f'NEW."{name}"'

    def __getitem__(self, name: str) -> str:
        """Return a remembered value: it is written out."""
        return self._lets[name]

    @property
    def source(self) -> str:
        """The given rows, as FROM has them. WHERE keeps ON CONFLICT from being read as the condition of a join."""
        return f"(VALUES ({', '.join('?' * len(self._given))})) WHERE true"

    def statement(self, program: Program) -> str | None:
        """Return the text of a program that is a single statement over many rows: a trigger takes twice as long."""
        self._given = [each.name for each in program.given]
        steps = program.steps(self)
        first = next(steps)
        alone = first.sql if isinstance(first, Do) and next(steps, None) is None else None
        self._given = []
        return alone

    def routine(self, program: Program) -> Routine:
        """Return the view and its trigger. A trigger sees what its earlier statements have changed."""
        self._lets.clear()
        door, body = self.routine_name(program), []
        for step in program.steps(self):
            match step:
                case Let(name, _, value):
                    self._lets[name] = f"({value})"
                case Do(sql, when):
                    body.append(f"{sql} AND {when}" if when else sql)
                case Take(_, table, where):
                    body.append(f"DELETE FROM {table} WHERE {where}")
                case Give():
                    pass
        columns = ", ".join(f'NULL AS "{each}"' for each in [*(each.name for each in program.given), "roost_now"])
        text = "".join(f"  {each};\n" for each in body)
        view = f"CREATE VIEW {door} AS {MARK}\nSELECT {columns} WHERE 0"
        trigger = f"CREATE TRIGGER {door} INSTEAD OF INSERT ON {door} BEGIN\n{text}END"
        return Routine(door, (view, trigger), (f"DROP VIEW IF EXISTS {door}",), f"{view}\n{trigger}")

    def routine_name(self, program: Program) -> str:
        """Return the name of a program's view."""
        return f"roost_{self.name}_{program.verb}"
