"""Views on SQLite: a view of the structure's name, with INSTEAD OF triggers.

The triggers do what the plans do, for one row: the head first, then the rows. The library writes the private tables
directly, so no trigger fires and nothing is counted twice. Two rules for all triggers:

- Whatever can be refused is refused by the first statement, with RAISE(ABORT): `INSERT OR IGNORE` and `OR REPLACE`
  override the handling of every other conflict inside a trigger, and would leave counts wrong.
- Statements take the sequence from the head, never from the client's `sequence` or `at`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from roost.dialects.conditions import refused, stored, wanted
from roost.dialects.dialect import Dialect, Statement
from roost.structures.clock import SQLITE_CLOCK, shown_now
from roost.structures.plan import StructurePlan, each
from roost.structures.rows import RowStructure
from roost.structures.views.view import MARK, MARKS, NO_VIEW, Capabilities, FoundView, View, ViewDialect
from roost.types.column_types import ColumnType
from roost.types.columns import Column

SWEPT = 4  # expired rows that an INSERT deletes
NOW = "strftime('%Y-%m-%d %H:%M:%f000', 'now')"  # as `at` is stored
TOTAL = Column("total", ColumnType("int"))


def _view(plan: StructurePlan, _: Capabilities | None) -> View:
    made = plan.views["sqlite"](plan)
    name = plan.structure.name
    objects = {name: f"CREATE VIEW {quoted(name)} AS {MARK}\n{made.view}"}
    for event, body in (("insert", made.insert), ("update", made.update), ("delete", made.delete)):
        objects[f"roost_{name}_{event}"] = (
            f"CREATE TRIGGER roost_{name}_{event} INSTEAD OF {event.upper()} ON {quoted(name)} BEGIN\n"
            + "".join(f"  {statement};\n" for statement in body)
            + "END"
        )
    return View(tuple(objects.values()), (f"DROP VIEW {quoted(name)}",), objects)  # which drops its triggers


def _triggers(name: str) -> list[str]:
    return [f"roost_{name}_{event}" for event in ("insert", "update", "delete")]


def _found(plan: StructurePlan) -> Generator[Statement, Any, FoundView]:
    found = yield Statement(
        each("SELECT type, name, sql FROM sqlite_master WHERE tbl_name = ? AND type IN ('view', 'trigger')"),
        [(plan.structure.name,)],
    )
    if not any(type_ == "view" and mark in sql for type_, _, sql in found[0] for mark in MARKS):
        return NO_VIEW
    ours = {plan.structure.name, *_triggers(plan.structure.name)}
    return FoundView(
        {name: sql for _, name, sql in found[0] if name in ours},
        tuple(sql for _, name, sql in found[0] if name not in ours),
    )


def _taken(plan: StructurePlan) -> Generator[Statement, Any, str]:
    names = (plan.structure.name, *_triggers(plan.structure.name))
    found = yield Statement(
        each(
            "SELECT type || ' ' || name FROM sqlite_master\n"
            f"  WHERE name COLLATE NOCASE IN ({plan.dialect.holes(len(names))})"
        ),
        [names],
    )
    return found[0][0][0] if found[0] else ""


@dataclass(frozen=True, slots=True)
class Made:
    """One view before it has its name: the query of the view, and the statements of each trigger."""

    view: str
    insert: Sequence[str]
    update: Sequence[str]
    delete: Sequence[str]


class ViewWords:
    """The parts of the triggers of one structure."""

    def __init__(self, plan: StructurePlan) -> None:
        self.plan = plan
        self.dialect: Dialect = plan.dialect
        self.name = plan.structure.name
        self.key = plan.structure.key.columns
        self.rows, self.head = plan.rows_table, plan.head_table

    def new(self, column: Column) -> str:
        """Return the expression for the stored form of the value that a client gave for a column."""
        return stored(self.dialect, column, f"NEW.{quoted(column.name)}")

    def news(self, columns: Iterable[Column]) -> str:
        """Return these expressions for several columns."""
        return ", ".join(map(self.new, columns))

    def is_new(self, columns: Iterable[Column], prefix: str = "") -> str:
        """Return the condition that columns have the values that a client gave."""
        return " AND ".join(f"{prefix}{quoted(each.name)} = {self.new(each)}" for each in columns)

    def is_old(self, columns: Iterable[Column]) -> str:
        """Return the condition that columns have the values of OLD."""
        return " AND ".join(f"{quoted(each.name)} = OLD.{quoted(each.name)}" for each in columns)

    def same(self, columns: Iterable[Column], one: str, other: str) -> str:
        """Return the condition that columns of two tables are equal."""
        return " AND ".join(f"{one}{quoted(each.name)} = {other}{quoted(each.name)}" for each in columns)

    def shown(self, columns: Iterable[Column], prefix: str = "") -> str:
        """The changeable columns as the view shows them: texts without affinity, or UPDATE would make texts of numbers.

        SQLite applies a view's affinities before its trigger runs, and would round a decimal in doing so.
        """
        return ", ".join(
            f"+{prefix}{quoted(each.name)} AS {quoted(each.name)}"
            if self.dialect.types[each.type.kind](each) == "TEXT"
            else f"{prefix}{quoted(each.name)}"
            for each in columns
        )

    def excluded(self, columns: Iterable[Column]) -> str:
        """Return the assignments of an upsert."""
        return ", ".join(f"{quoted(each.name)} = excluded.{quoted(each.name)}" for each in columns)

    def refuse(self, *cases: tuple[str, str]) -> str:
        """Return the statement that refuses a row in the first of these cases: each a condition and a message."""
        refusals = "\n    ".join(
            f"WHEN {condition} THEN RAISE(ABORT, {self.dialect.literal(f'{self.name}{message}')})"
            for condition, message in cases
        )
        return f"SELECT CASE\n    {refusals} END"

    def rules(self, columns: Iterable[Column]) -> list[tuple[str, str]]:
        """Return the cases in which a value is not allowed."""
        return [
            (
                refused(self.dialect, each, f"NEW.{quoted(each.name)}"),
                f".{each.name}: it takes {wanted(self.dialect, each)}",
            )
            for each in columns
        ]

    def changes(self, columns: Iterable[Column]) -> list[tuple[str, str]]:
        """Return the cases in which a value that an UPDATE changes is not allowed; unchanged values are not checked."""
        return [
            (f"NEW.{quoted(each.name)} IS NOT OLD.{quoted(each.name)} AND ({condition})", message)
            for each, (condition, message) in zip(columns, self.rules(columns), strict=True)
        ]

    def fixed(self, columns: Iterable[Column], why: str) -> tuple[str, str]:
        """Return the case in which an UPDATE changes columns that cannot be changed."""
        changed = " OR ".join(f"NEW.{quoted(each.name)} IS NOT OLD.{quoted(each.name)}" for each in columns)
        return changed, f": {why}"

    @property
    def own(self) -> tuple[str, str]:
        """The case in which an INSERT sets a column that only Roost may set."""
        return "NEW.sequence IS NOT NULL OR NEW.at IS NOT NULL", ": sequence and at are set by Roost; leave them out"

    def living(self, prefix: str = "") -> str:
        """Return the condition that a row has not expired, to follow others; "" where none does."""
        return f" AND {prefix}until > {shown_now(self.plan)}" if getattr(self.plan, "expires", False) else ""

    @property
    def where(self) -> str:
        """The WHERE clause of a query for rows that have not expired; "" where none does."""
        return self.living().replace(" AND ", " WHERE ", 1)

    def call(self, verb: str, columns: Sequence[Column], row: str = "NEW") -> str:
        """Return the statement that calls a program for the row."""
        values = [self.new(each) if row == "NEW" else f"{row}.{quoted(each.name)}" for each in columns]
        return f"INSERT INTO roost_{self.name}_{verb} VALUES ({', '.join([*values, SQLITE_CLOCK])})"

    def sweep(self) -> list[str]:
        """Return the statement that deletes a few expired rows, as every INSERT does; none where no row expires."""
        return [f"INSERT INTO roost_{self.name}_sweep VALUES ({SWEPT}, {SQLITE_CLOCK})"] if self.living() else []

    def change(self, columns: Sequence[Column], where: str) -> list[str]:
        """Return the statement that updates the changeable columns of a row; none if there are no such columns."""
        if not columns:
            return []
        values = ", ".join(f"{quoted(each.name)} = {self.new(each)}" for each in columns)
        return [f"UPDATE {self.rows} SET {values} WHERE {where}"]


def others_of(structure: RowStructure[Any, Any], key: Sequence[Column]) -> list[Column]:
    """Return the columns of a row that are not in its key."""
    return [each for each in structure.columns if each not in key]


def fixed_row(words: ViewWords, columns: Sequence[Column]) -> tuple[str, str]:
    """Return the case in which an UPDATE changes the columns that identify a row."""
    own = [Column("sequence", ColumnType("int")), Column("at", ColumnType("text", 1))]
    names = ", ".join(each.name for each in columns)
    return words.fixed(
        [*columns, *own], f"{names}, sequence and at cannot be changed; delete the row and insert another"
    )


def quoted(name: str) -> str:
    """Return a name that needs no escape, quoted."""
    return f'"{name}"'


SQLITE_VIEWS = ViewDialect(_view, _found, _taken)
