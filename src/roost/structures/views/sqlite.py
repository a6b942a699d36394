"""Views on SQLite: a view of the structure's name, with INSTEAD OF triggers.

The triggers do what the plans do, for one row: the head first, then the rows. The library writes the private tables
directly, so no trigger fires and nothing is counted twice. Two rules for all triggers:

- Whatever can be refused is refused by the first statement, with RAISE(ABORT): `INSERT OR IGNORE` and `OR REPLACE`
  override the handling of every other conflict inside a trigger, and would leave counts wrong.
- Statements take the sequence from the head, never from the client's `sequence` or `at`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any

from roost.dialects.dialect import Statement, fetch
from roost.structures.clock import SQLITE_CLOCK
from roost.structures.plan import StructurePlan
from roost.structures.views.view import MARK, NO_VIEW, NOTHING, Case, FoundView, View, ViewDialect, ViewWords
from roost.types.columns import Column

SWEPT = 4  # expired rows that an INSERT deletes


def _view(plan: StructurePlan, _: bool) -> View:
    made = plan.relation().triggers(plan, SQLiteViewWords(plan))
    name = plan.structure.name
    objects = {name: f"CREATE VIEW {plan.dialect.quoted(name)} AS {MARK}\n{made.view}"}
    for event, body in (("insert", made.insert), ("update", made.update), ("delete", made.delete)):
        trigger = f"roost_{name}_{event} INSTEAD OF {event.upper()} ON {plan.dialect.quoted(name)}"
        statements = "".join(f"  {statement};\n" for statement in body)
        objects[f"roost_{name}_{event}"] = f"CREATE TRIGGER {trigger} BEGIN\n{statements}END"
    drop = f"DROP VIEW {plan.dialect.quoted(name)}"  # which drops its triggers
    return View(tuple(objects.values()), (drop,), objects)


def _triggers(name: str) -> list[str]:
    return [f"roost_{name}_{event}" for event in ("insert", "update", "delete")]


def _found(plan: StructurePlan) -> Generator[Statement, Any, FoundView]:
    asked = "SELECT type, name, sql FROM sqlite_master WHERE tbl_name = ? AND type IN ('view', 'trigger')"
    found = yield from fetch(asked, plan.structure.name)
    if not any(type_ == "view" and MARK in sql for type_, _, sql in found):
        return NO_VIEW
    ours = {plan.structure.name, *_triggers(plan.structure.name)}
    own = tuple(sql for _, name, sql in found if name not in ours)
    return FoundView({name: sql for _, name, sql in found if name in ours}, own)


def _taken(plan: StructurePlan) -> Generator[Statement, Any, str]:
    names = (plan.structure.name, *_triggers(plan.structure.name))
    named = f"name COLLATE NOCASE IN ({plan.dialect.holes(len(names))})"
    found = yield from fetch(f"SELECT type || ' ' || name FROM sqlite_master WHERE {named}", *names)
    return found[0][0] if found else ""


class SQLiteViewWords(ViewWords):
    """The parts of the triggers on SQLite."""

    differ = "IS NOT"

    def shown(self, columns: Iterable[Column], prefix: str = "") -> str:
        """The changeable columns as the view shows them: texts without affinity, or UPDATE would make texts of numbers.

        SQLite applies a view's affinities before its trigger runs, and would round a decimal in doing so.
        """
        return ", ".join(
            f"+{prefix}{self.dialect.name_of(each)} AS {self.dialect.name_of(each)}"
            if self.dialect.types[each.type.kind](each) == "TEXT"
            else f"{prefix}{self.dialect.name_of(each)}"
            for each in columns
        )

    def refuse(self, *cases: Case) -> str:
        """Return the statement that refuses a row in the first of these cases."""
        refusals = "\n    ".join(
            f"WHEN {condition} THEN RAISE(ABORT, {self.dialect.literal(f'{self.name}{message}')})"
            for condition, _, message in cases
        )
        return f"SELECT CASE\n    {refusals} END"

    def call(self, verb: str, passes: Mapping[str, str] = NOTHING, *, removes: bool = False) -> list[str]:
        """Return the statement that calls a program for the row."""
        values = self.called(verb, passes, self.old if removes else self.new)
        return [f"INSERT INTO roost_{self.name}_{verb} VALUES ({', '.join([*values, SQLITE_CLOCK])})"]

    def told(self, *_: Any) -> list[str]:
        """Return the statement that deletes a few expired rows, as every INSERT does; none where no row expires."""
        return [f"INSERT INTO roost_{self.name}_sweep VALUES ({SWEPT}, {SQLITE_CLOCK})"] if self.living() else []

    def change(self, columns: Sequence[Column], where: str) -> list[str]:
        """Return the statement that updates the changeable columns of a row; none if there are no such columns."""
        values = ", ".join(f"{self.dialect.name_of(each)} = {self.new(each)}" for each in columns)
        return [f"UPDATE {self.rows} SET {values} WHERE {where}"] if columns else []

    def remove(self, place: str, _: Sequence[Column], verb: str) -> list[str]:
        """Return the statement that removes a row, by a program if there is one."""
        return self.call(verb, removes=True) if verb else [f"DELETE FROM {self.rows} WHERE {place}"]


SQLITE_VIEWS = ViewDialect(_view, _found, _taken)
