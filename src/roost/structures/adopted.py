"""Adopted: a table of the application's own that `roost cap` keeps short, as Python and the commands see it."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from roost.errors import Invalid
from roost.structures.clock import fact_in_words
from roost.structures.console import Console, Table
from roost.structures.index.values import is_utf8
from roost.structures.operation import Operation
from roost.structures.rows import keep_limit
from roost.structures.structure import Group, Structure
from roost.types.column_types import INT_MAX, INT_MIN, checked_whole, shown
from roost.types.columns import Column

BY_NUMBER, BY_AGE = ("per", "keep", "by"), ("by", "older_than", "time", "offset")  # the facts of each rule
DAY = 86_400
PER_SECOND = {"seconds": 1, "milliseconds": 1000}
TIMES = ("zoned", "plain", "date", *PER_SECOND)  # how a column stores the time; see `capping/cap.py`
OLDEST = 18_250 * DAY  # seconds: fifty years, as numbers count from 1970
FURTHEST = 14 * 60  # minutes: the greatest offset of a time zone from UTC
VALUES = (bytes, bool, float, decimal.Decimal, uuid.UUID, dt.date)  # beside int and str
STATE = ("over", "oldest", "newest")


@dataclass(frozen=True, slots=True)
class Cap:
    """How a table is kept short: by a number of rows per key (`per`, `keep`), or by their age (`older_than`)."""

    table: str
    id: tuple[str, ...]  # the columns that identify a row: SQLite's rowid, or the primary key
    by: str | None = None  # whose larger value is newer, None: the order of `id`; by age: the column with the time
    per: tuple[str, ...] = ()
    keep: int = 0
    older_than: int = 0  # seconds
    time: str = ""
    offset: int = 0  # minutes by which times that are `plain`, or a `date`, are ahead of UTC
    index: bool = False  # whether Roost has made an index
    # MariaDB: the account with whose rights triggers and event run; "" for the one that makes them.
    definer: str = field(default="", compare=False)

    @property
    def rule(self) -> dict[str, Any]:
        """The facts that say which rows are deleted."""
        return {fact: getattr(self, fact) for fact in (BY_AGE if self.older_than else BY_NUMBER)}

    @property
    def facts(self) -> dict[str, Any]:
        """The facts of the definition besides kind and name."""
        return {**self.rule, "id": self.id, "index": self.index}

    @property
    def order(self) -> tuple[str, ...]:
        """The columns that determine which row of a key is newer, in the order of their importance."""
        return tuple(dict.fromkeys([*([self.by] if self.by else []), *self.id]))

    @property
    def index_name(self) -> str:
        """The name of the index that Roost makes if none leads to the rows in their order."""
        return f"roostcap_{self.table}"

    @classmethod
    def from_facts(cls, table: str, facts: dict[str, Any]) -> Cap:
        """Make it from a definition of the catalog; `Invalid` if somebody has changed that by hand.

        The facts become part of SQL that runs with the rights of the account that checks or caps, and other accounts
        may be able to write the catalog.
        """
        if "older_than" in facts:
            names = [[facts["by"]], facts["id"]]
            for fact, least, most in (("older_than", 1, OLDEST), ("offset", -FURTHEST, FURTHEST)):
                checked_whole(f"{table}: {fact} is a whole number from {least} to {most}", facts[fact], least, most)
            if facts["time"] not in TIMES:
                raise Invalid(f"{table}: time is one of {', '.join(TIMES)}, not {shown(facts['time'])}")
        else:
            keep_limit(table, facts["keep"])
            names = [facts["per"], facts["id"], *([] if facts["by"] is None else [[facts["by"]]])]
        for listed in names:
            is_list = isinstance(listed, (list, tuple)) and listed
            if not is_list or not all(isinstance(each, str) and each and "\0" not in each for each in listed):
                raise Invalid(f"{table}: per, by and id name columns, which {shown(listed)} does not")
        if not isinstance(facts["index"], bool):
            raise Invalid(f"{table}: index is true or false, not {shown(facts['index'])}")
        rule = {fact: facts[fact] for fact in (BY_AGE if "older_than" in facts else BY_NUMBER)}
        return cls(table, tuple(facts["id"]), index=facts["index"], **{**rule, "per": tuple(rule.get("per", ()))})


class Adopted(Structure):
    """A table of the application's own, capped by `roost cap`; the application writes it with its own SQL.

    Made by `Capped.of`. By number it has at most `keep` rows per key, the oldest deleted first: rows are returned as
    named tuples of the table's columns, with the database's values, and a key is the value of the column of `--per`,
    or a tuple if there are several columns. By age it has no keys, and Python reads its `state` alone.
    """

    kind = "adopted"
    reads = ("state",)

    def __init__(self, name: str, cap: Cap | None = None) -> None:
        if not isinstance(name, str) or not name or "\0" in name:
            raise Invalid(f"{shown(name)} is no name of a table")
        self.name = name
        self.cap = cap
        self.key = _Key(name, () if cap is None else cap.per or ("table",))
        self._define({"name": name, "cap": cap}, **({} if cap is None else cap.facts))

    @property
    def columns(self) -> tuple[Column, ...]:
        """Always empty: the application may change its columns at any time."""
        return ()

    def latest(self, key: Any, n: int | None = None) -> Operation[list[Any]]:
        """Read the newest `n` rows of a key (None: all), newest first."""
        return Operation(self, "latest", (self.key.check(key), n if n is None else self._n(n)))

    def count(self, key: Any) -> Operation[int]:
        """Read how many rows the key holds, by counting its few entries in the index."""
        return Operation(self, "count", (self.key.check(key),))

    def keys(self, after: Any = None, n: int = 100) -> Operation[list[Any]]:
        """Read the first `n` keys after `after`, in key order; NULL is not a key."""
        return super().keys(after, n)

    def state(self) -> Operation[tuple[int, Any, Any]]:
        """Read how many rows are too old, and the oldest and the newest time of a table that is capped by age."""
        return Operation(self, "state", ())

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

    def clear(self, key: Any) -> NoReturn:
        """Raise `Invalid`: the application deletes its rows with its own SQL."""
        raise Invalid(f"{self.name} is a table of the application's own: delete its rows with SQL")

    forget = clear

    def _arguments(self, verb: str, args: tuple[Any, ...]) -> list[str]:
        if verb == "add":
            return [f"{name}={value!r}" for name, value in args[0]]
        return super()._arguments(verb, args) if args else []

    def column_at(self, operation: Operation[Any], path: Sequence[int]) -> str:
        """Return the name of the column whose value is at this path in an operation's arguments."""
        if operation.verb == "add":
            name: str = operation.args[0][path[1]][0]
            return name
        return self.key.names[path[-1]] if path[-1] < len(self.key.names) else "key"

    @classmethod
    def from_facts(cls, name: str, facts: dict[str, Any]) -> Adopted:
        """Make the declaration from the facts of a definition."""
        return cls(name, Cap.from_facts(name, facts))


def _is_value(value: Any) -> bool:
    if type(value) is int:
        return INT_MIN <= value <= INT_MAX
    return is_utf8(value) if isinstance(value, str) else isinstance(value, VALUES)


class _Key(Group[Any]):
    """Values as databases store them; only the catalog knows how many columns there are."""

    __slots__ = ("_names",)

    def __init__(self, structure: str, names: Sequence[str]) -> None:
        super().__init__(structure, "key", ())
        self._names = tuple(names)

    @property
    def names(self) -> tuple[str, ...]:
        return self._names

    def check(self, value: Any) -> tuple[Any, ...]:
        values = value if isinstance(value, tuple) else (value,)
        for each in values:
            if not _is_value(each):
                raise Invalid(f"{self._structure}: {shown(each)} is no key; it takes what a column holds")
        return values

    def value(self, values: Sequence[Any]) -> Any:
        return values[0] if len(values) == 1 else tuple(values)


class AdoptedConsole(Console[Adopted]):
    """Lists keys with their numbers of rows, and the rows of a key; by age the table as one key, with its state."""

    read_only = "{name} is a table of your own: write it with SQL; `roost cap {name}` changes what it keeps"

    def listed(self) -> tuple[str, str, str]:
        rule = {} if self.structure.cap is None else self.structure.cap.rule
        words = [
            f"{fact} {fact_in_words(fact, rule[fact])}"
            for fact in ("keep", "older_than", "by")
            if rule.get(fact) is not None
        ]
        return ", ".join(rule.get("per", ())), "rows of its own", ", ".join(words)

    @property
    def _by_age(self) -> bool:
        return self.structure.cap is not None and bool(self.structure.cap.older_than)

    def summaries(self, keys: Sequence[Any]) -> Sequence[Operation[Any]]:
        return [self.structure.state() if self._by_age else self.structure.count(key) for key in keys]

    def summary(self, keys: Sequence[Any], results: Sequence[Any]) -> Table:
        names, rows = (STATE, results) if self._by_age else (("rows",), [(count,) for count in results])
        return Table(names, rows, [dict(zip(names, row, strict=True)) for row in rows])

    def contents(self, key: Any, n: int | None) -> Operation[Any]:
        return self.structure.latest(key, n)

    def content(self, found: Any, n: int | None) -> Table:
        names = found[0]._fields if found else self.structure.key.names
        return Table(names, found[:n], {"rows": [row._asdict() for row in found[:n]]})
