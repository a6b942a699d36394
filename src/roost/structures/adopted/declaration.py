"""Adopted: Python access to a table of the application's own that `roost cap` keeps short."""

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
        """Always empty: the application may change its columns at any time."""
        return ()

    def clear(self, key: Any) -> NoReturn:
        """Raise `Invalid`: the application deletes its rows with its own SQL."""
        raise Invalid(f"{self.name} is a table of the application's own: delete its rows with SQL")

    def forget(self, key: Any) -> NoReturn:
        """Raise `Invalid`; see `clear`."""
        self.clear(key)


class Adopted(ApplicationTable):
    """A table of the application's own, capped by `roost cap`: at most `keep` rows per key, the oldest deleted first.

    Made by `Capped.of`. The application writes it with its own SQL, or by `add`, and Python reads it. Rows are returned
    as named tuples of the table's columns, with the database's values. A key is the value of the column of `--per`, or
    a tuple if there are several columns.
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
        """Read the newest `n` rows of a key (None: all), newest first."""
        return Operation(self, "latest", (self.key.check(key), n if n is None else self._n(n)))

    def count(self, key: Any) -> Operation[int]:
        """Read how many rows the key holds, by counting its few entries in the index."""
        return Operation(self, "count", (self.key.check(key),))

    def keys(self, after: Any = None, n: int = 100) -> Operation[list[Any]]:
        """Read the first `n` keys after `after`, in key order; NULL is not a key."""
        return super().keys(after, n)

    def add(self, **values: Any) -> Operation[None]:
        """Insert a row, given by column names; the rows that it displaces are deleted in the same transaction.

        This holds on MariaDB too, where after the application's own INSERT the next pass deletes them. Only rows that
        another session holds are left to the next insert of the key, on MariaDB to the next pass. Columns that are not
        named get their defaults; a row that the table refuses raises `StatementFailed`.

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
        """Return the name of the column whose value is at this path in an operation's arguments."""
        if operation.verb == "add":
            name: str = operation.args[0][path[1]][0]
            return name
        return self.key.names[path[-1]] if path[-1] < len(self.key.names) else "key"

    @classmethod
    def from_facts(cls, name: str, facts: dict[str, Any]) -> Adopted:
        """Make the declaration from the facts of a definition."""
        return cls(name, {fact: facts[fact] for fact in FACTS})


def _check_facts(name: str, facts: dict[str, Any]) -> None:
    # These facts become part of SQL that runs with the rights of the account that checks or caps, and other accounts
    # may be able to write the catalog.
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
    """Values as databases store them; only the catalog knows how many columns there are."""

    __slots__ = ("_names",)

    def __init__(self, structure: str, names: Sequence[str]) -> None:
        super().__init__(structure, "key", ())
        self._names = tuple(names)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, if known."""
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
