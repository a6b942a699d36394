"""The parts of a structure's SQL view, in every dialect, and the functions that a dialect implements."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roost.dialects.conditions import refused, stored, wanted
from roost.dialects.dialect import Dialect, Statement
from roost.structures.plan import StructurePlan
from roost.types.columns import Column

MARK = "/* a view, made by Roost */"  # marks a view of Roost's: another object of that name belongs to somebody else


@dataclass(frozen=True, slots=True)
class View:
    """One view: the statements that make it and those that drop it, each in their order.

    objects: for each of its objects, by name, the text that a database returns for it, to be compared.
    undo: for each statement of `make` the one that undoes it, if a transaction cannot.
    """

    make: tuple[str, ...]
    drop: tuple[str, ...]
    objects: Mapping[str, str]
    undo: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FoundView:
    """A view in a database: its objects, as in `View.objects`; none if there is no view.

    own: the application's own triggers on it, as the statements that recreate them.
    drop: the statements that drop what is there, where only a part of the view may be.
    """

    objects: Mapping[str, str]
    own: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()


NO_VIEW = FoundView({})


def always(_: StructurePlan) -> Generator[Statement, Any, bool]:
    """Return True, for a dialect whose views can always be made."""
    yield from ()
    return True


@dataclass(frozen=True, slots=True)
class ViewDialect:
    """The functions that create and find the views of one engine."""

    view: Callable[[StructurePlan, bool], View]  # whether with inlets, where there are any
    found: Callable[[StructurePlan], Generator[Statement, Any, FoundView]]
    # Describes another object that has one of its names; "": none.
    taken: Callable[[StructurePlan], Generator[Statement, Any, str]]
    inlets: Callable[[StructurePlan], Generator[Statement, Any, bool]] = always  # whether they can be made
    # The statements that make another view of one that is whole, where it can be replaced; none: it is made anew.
    replace: Callable[[StructurePlan, FoundView], Generator[Statement, Any, Sequence[str]]] | None = None
    # What keeps others from writing through the view until the transaction ends, which then replaces it.
    lock: Callable[[StructurePlan], Sequence[str]] = lambda plan: ()


# A condition under which a row is refused; PostgreSQL's SQLSTATE; what follows the structure's name in the message.
Case = tuple[str, str, str]
VALUE, STATEMENT = "23514", "0A000"
NOTHING: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Made:
    """A view with INSTEAD OF triggers before it has its name: its query, and the statements of each trigger."""

    view: str
    insert: Sequence[str]
    update: Sequence[str]
    delete: Sequence[str]


class ViewWords:
    """The parts of the triggers of one structure's view; each database has its own."""

    differ = "IS DISTINCT FROM"

    def __init__(self, plan: StructurePlan) -> None:
        self.plan: Any = plan
        self.dialect: Dialect = plan.dialect
        self.name = plan.structure.name
        self.key = plan.structure.key.columns
        self.rows, self.head = plan.rows_table, plan.head_table

    def given(self, column: Column) -> str:
        """Return the value that a client gives for a column."""
        return f"NEW.{self.dialect.name_of(column)}"

    def new(self, column: Column) -> str:
        """Return this value as it is stored."""
        return stored(self.dialect, column, self.given(column))

    def old(self, column: Column) -> str:
        """Return the value of the row that is changed or removed."""
        return f"OLD.{self.dialect.name_of(column)}"

    def news(self, columns: Iterable[Column]) -> str:
        """Return what is stored of several columns."""
        return ", ".join(map(self.new, columns))

    def olds(self, columns: Iterable[Column]) -> str:
        """Return several columns of the row that is changed or removed."""
        return ", ".join(map(self.old, columns))

    def is_new(self, columns: Iterable[Column], prefix: str = "") -> str:
        """Return the condition that columns have the values that a client gives."""
        return " AND ".join(f"{prefix}{self.dialect.name_of(each)} = {self.new(each)}" for each in columns)

    def is_old(self, columns: Iterable[Column]) -> str:
        """Return the condition that columns have the values of the row that is changed or removed."""
        return " AND ".join(f"{self.dialect.name_of(each)} = {self.old(each)}" for each in columns)

    def living(self, prefix: str = "") -> str:
        """Return the condition that a row has not expired, to follow others; "" where none does."""
        return f" AND {prefix}until > {self.plan.shown_now}" if getattr(self.plan, "expires", False) else ""

    @property
    def where(self) -> str:
        """The WHERE clause of a query for rows that have not expired; "" where none does."""
        return self.living().replace(" AND ", " WHERE ", 1)

    def rules(self, columns: Iterable[Column]) -> list[Case]:
        """Return the cases in which a value is not allowed, except those that the column's type refuses itself."""
        return [
            (condition, VALUE, f".{each.name}: it takes {wanted(self.dialect, each)}")
            for each in columns
            if (condition := refused(self.dialect, each, self.given(each)))
        ]

    def changes(self, columns: Iterable[Column]) -> list[Case]:
        """Return the cases in which a value that an UPDATE changes is not allowed; unchanged values are not checked."""
        return [
            (f"{self._differs(each)} AND ({condition})", state, message)
            for each in columns
            for condition, state, message in self.rules([each])
        ]

    def fixed(self, columns: Iterable[Column], why: str) -> Case:
        """Return the case in which an UPDATE changes columns that cannot be changed."""
        return " OR ".join(map(self._differs, columns)), STATEMENT, f": {why}"

    def _differs(self, column: Column) -> str:
        return f"{self.given(column)} {self.differ} {self.old(column)}"

    def called(self, verb: str, passes: Mapping[str, str], new: Callable[[Column], str]) -> list[str]:
        """Return what a program is given: the row's columns, or what `passes` has in place of one."""
        given: Sequence[Column] = self.plan.program(verb).given
        return [passes[each.name] if each.name in passes else new(each) for each in given]


def indented(text: str) -> str:
    """Return lines of SQL one step further to the right; `textwrap` would break them at more than line feeds."""
    return "\n".join(f"  {line}" for line in text.split("\n"))


def dollar_tag(text: str) -> str:
    """Return a tag for PostgreSQL's dollar quotes: they end at the first one, also within a literal."""
    tag = "$roost$"
    while tag in text:
        tag = f"{tag[:-1]}_$"
    return tag
