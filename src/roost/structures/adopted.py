"""Adopted: a table of the application's own that `roost cap` keeps short, as Python reads it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from roost.errors import Invalid
from roost.structures.columns import Column
from roost.structures.operation import Operation
from roost.structures.structure import Group, Structure
from roost.structures.types import INT_MAX, INT_MIN, shown

FACTS = ("per", "keep", "newest_by", "id", "index")


class Adopted(Structure):
    """A table of the application's own, capped by `roost cap`: at most `keep` rows per key, the oldest go first.

    Made by `Capped.of`. The application writes it with its own SQL, and Python reads it. Rows come as named tuples of
    the table's columns, with the values that the database has. A key is what the columns of `--per` hold: a value, or
    a tuple when there are several.
    """

    kind = "adopted"

    def __init__(self, name: str, facts: dict[str, Any] | None = None) -> None:
        if not isinstance(name, str) or not name or "\0" in name:
            raise Invalid(f"{shown(name)} is no name of a table")
        self.name = name
        self.facts = facts
        self.key = _Key(name, () if facts is None else facts["per"])
        self._define({"name": name, "facts": facts}, **(facts or {}))

    @property
    def columns(self) -> tuple[Column, ...]:
        """None: they are the application's, and may change at any time."""
        return ()

    def latest(self, key: Any, n: int | None = None) -> Operation[list[Any]]:
        """Ask for the newest `n` rows of a key (all, when None), newest first."""
        return Operation(self, "latest", (self.key.check(key), n if n is None else self._n(n)))

    def count(self, key: Any) -> Operation[int]:
        """Ask how many rows the key holds; reads all of them in the index, which are few."""
        return Operation(self, "count", (self.key.check(key),))

    def keys(self, after: Any = None, n: int = 100) -> Operation[list[Any]]:
        """Ask for the first `n` keys behind `after`, in key order; NULL is no key."""
        return super().keys(after, n)

    def clear(self, key: Any) -> NoReturn:
        """Raise `Invalid`: the rows are the application's, which deletes them by its own SQL."""
        raise Invalid(f"{self.name} is a table of the application's own: delete its rows with SQL")

    def forget(self, key: Any) -> NoReturn:
        """Raise `Invalid`; see `clear`."""
        self.clear(key)

    @classmethod
    def from_facts(cls, name: str, facts: dict[str, Any]) -> Adopted:
        """Make the declaration from the facts of a definition."""
        return cls(name, {fact: facts[fact] for fact in FACTS})


class _Key(Group[Any]):
    """Values as SQLite stores them: of how many columns is known to the catalog alone."""

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
            fits = INT_MIN <= each <= INT_MAX if type(each) is int else isinstance(each, (str, bytes, float))
            if isinstance(each, str) and not each.isascii():
                fits = each == each.encode(errors="replace").decode()  # a lone surrogate is no character
            if not fits:
                raise Invalid(f"{self._structure}: {shown(each)} is no key; it takes an int, a float, a str or bytes")
        return values

    def value(self, values: Sequence[Any]) -> Any:
        """Return the caller's value."""
        return values[0] if len(values) == 1 else tuple(values)
