"""Adopted: a table of the application's own that `roost cap` keeps short, as Python reads it."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections.abc import Sequence
from typing import Any, NoReturn

from roost.errors import Invalid
from roost.structures.operation import Operation
from roost.structures.rows import keep_limit
from roost.structures.structure import Group, Structure
from roost.types.column_types import INT_MAX, INT_MIN, shown
from roost.types.columns import Column

FACTS = ("per", "keep", "newest_by", "id", "index")
VALUES = (str, bytes, bool, float, decimal.Decimal, uuid.UUID, dt.date)  # beside int, whose size is bounded


class ApplicationTable(Structure):
    """A table of the application's own, whose columns and rows are the application's."""

    @staticmethod
    def _checked(name: str) -> str:
        if not isinstance(name, str) or not name or "\0" in name:
            raise Invalid(f"{shown(name)} is no name of a table")
        return name

    @property
    def columns(self) -> tuple[Column, ...]:
        """None: they may change at any time."""
        return ()

    def clear(self, key: Any) -> NoReturn:
        """Raise `Invalid`: the application deletes its rows by its own SQL."""
        raise Invalid(f"{self.name} is a table of the application's own: delete its rows with SQL")

    def forget(self, key: Any) -> NoReturn:
        """Raise `Invalid`; see `clear`."""
        self.clear(key)


class Adopted(ApplicationTable):
    """A table of the application's own, capped by `roost cap`: at most `keep` rows per key, the oldest go first.

    Made by `Capped.of`. The application writes it with its own SQL, or by `add`, and Python reads it. Rows come as
    named tuples of the table's columns, with the values that the database has. A key is what the columns of `--per`
    hold: a value, or a tuple when there are several.
    """

    kind = "adopted"

    def __init__(self, name: str, facts: dict[str, Any] | None = None) -> None:
        self.name = self._checked(name)
        if facts is not None:
            _check_facts(name, facts)
        self.facts = facts
        self.key = _Key(name, () if facts is None else facts["per"])
        self._define({"name": name, "facts": facts}, **(facts or {}))

    def latest(self, key: Any, n: int | None = None) -> Operation[list[Any]]:
        """Ask for the newest `n` rows of a key (all, when None), newest first."""
        return Operation(self, "latest", (self.key.check(key), n if n is None else self._n(n)))

    def count(self, key: Any) -> Operation[int]:
        """Ask how many rows the key holds; reads all of them in the index, which are few."""
        return Operation(self, "count", (self.key.check(key),))

    def keys(self, after: Any = None, n: int = 100) -> Operation[list[Any]]:
        """Ask for the first `n` keys behind `after`, in key order; NULL is no key."""
        return super().keys(after, n)

    def add(self, **values: Any) -> Operation[None]:
        """Ask to insert a row, by the names of its columns; what it pushes out is gone when it is there.

        So it is in MariaDB too, where the application's own INSERT leaves that to the next pass. Columns that are not
        named have their defaults; what the table refuses is `StatementFailed`.

        >>> import roost
        >>> roost.Capped.of("visits").add(uid=5, visitor=7)
        visits.add(uid=5, visitor=7)
        """
        if not values:
            raise Invalid(f"{self.name}: a row needs a value")
        for name, value in values.items():
            if value is not None and not _is_value(value):
                raise Invalid(f"{self.name}.{name}: {shown(value)} is no value of a column")
        return Operation(self, "add", (tuple(values.items()),))

    def _arguments(self, verb: str, args: tuple[Any, ...]) -> list[str]:
        if verb == "add":
            return [f"{name}={value!r}" for name, value in args[0]]
        return super()._arguments(verb, args)

    def column_at(self, operation: Operation[Any], path: Sequence[int]) -> str:
        """Return the name of the column whose value stands at a place in an operation's arguments."""
        if operation.verb == "add":
            name: str = operation.args[0][path[1]][0]
            return name
        return self.key.names[path[-1]] if path[-1] < len(self.key.names) else "key"

    @classmethod
    def from_facts(cls, name: str, facts: dict[str, Any]) -> Adopted:
        """Make the declaration from the facts of a definition."""
        return cls(name, {fact: facts[fact] for fact in FACTS})


def _check_facts(name: str, facts: dict[str, Any]) -> None:
    # SQL is made of them, which runs by the rights of whoever checks or caps, and others may write the catalog.
    keep_limit(name, facts["keep"])
    newest_by = [] if facts["newest_by"] is None else [facts["newest_by"]]
    for fact, names in (("per", facts["per"]), ("id", facts["id"]), ("newest_by", newest_by)):
        listed = isinstance(names, (list, tuple)) and (names or fact == "newest_by")
        if not listed or not all(isinstance(each, str) and each and "\0" not in each for each in names):
            raise Invalid(f"{name}: {fact} names columns, which {shown(facts[fact])} does not")
    if not isinstance(facts["index"], bool):
        raise Invalid(f"{name}: index is true or false, not {shown(facts['index'])}")


def _is_value(value: Any) -> bool:
    if type(value) is int:
        return INT_MIN <= value <= INT_MAX
    if isinstance(value, str) and not value.isascii():
        return value == value.encode(errors="replace").decode()  # a lone surrogate is no character
    return isinstance(value, VALUES)


class _Key(Group[Any]):
    """Values as databases store them: of how many columns is known to the catalog alone."""

    __slots__ = ("_names",)

    def __init__(self, structure: str, names: Sequence[str]) -> None:
        super().__init__(structure, "key", ())
        self._names = tuple(names)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, where they are known."""
        return self._names

    def check(self, value: Any) -> tuple[Any, ...]:
        """Return the values of the columns, or raise `Invalid`."""
        values = value if isinstance(value, tuple) else (value,)
        for each in values:
            if not _is_value(each):
                raise Invalid(f"{self._structure}: {shown(each)} is no key; it takes what a column holds")
        return values

    def value(self, values: Sequence[Any]) -> Any:
        """Return the caller's value."""
        return values[0] if len(values) == 1 else tuple(values)
