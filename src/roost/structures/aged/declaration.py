"""Aged: a table of the application's own that `roost cap --older-than` keeps short."""

from __future__ import annotations

from typing import Any

from roost.errors import Invalid
from roost.structures.adopted.declaration import ApplicationTable
from roost.structures.operation import Operation
from roost.structures.structure import Group
from roost.types.column_types import ColumnType, shown
from roost.types.columns import Column

AGED_FACTS = ("by", "older_than", "time", "offset", "id", "index")
TIMES = ("zoned", "plain", "date", "seconds", "milliseconds")  # how a column stores the time; see `capping/age.py`
DAY = 86_400
OLDEST = 18_250 * DAY  # seconds: fifty years, as numbers count from 1970
FURTHEST = 14 * 60  # minutes: the greatest offset of a time zone from UTC


class Aged(ApplicationTable):
    """A table of the application's own whose rows are deleted when older than `older_than`; listed in the catalog.

    The application reads and writes it with its own SQL; Roost only reports the progress of the deletions.
    """

    kind = "aged"
    reads = ("state",)

    def __init__(self, name: str, facts: dict[str, Any]) -> None:
        self.name = self._checked(name)
        _check_facts(name, facts)
        self.facts = facts
        self.key = Group(name, "key", [Column("table", ColumnType("text", 4000))])  # the table itself
        self._define({"name": name, "facts": facts}, **facts)

    def state(self) -> Operation[tuple[int, Any, Any]]:
        """Read how many rows are too old, and the oldest and the newest time."""
        return Operation(self, "state", ())

    @classmethod
    def from_facts(cls, name: str, facts: dict[str, Any]) -> Aged:
        """Make the declaration from the facts of a definition."""
        return cls(name, {fact: facts[fact] for fact in AGED_FACTS})


def _check_facts(name: str, facts: dict[str, Any]) -> None:
    # These facts become part of SQL that runs with the rights of the account that checks or caps, and other accounts
    # may be able to write the catalog.
    for fact, least, most in (("older_than", 1, OLDEST), ("offset", -FURTHEST, FURTHEST)):
        if type(facts[fact]) is not int or not least <= facts[fact] <= most:
            raise Invalid(f"{name}: {fact} is a whole number from {least} to {most}, not {shown(facts[fact])}")
    if facts["time"] not in TIMES:
        raise Invalid(f"{name}: time is one of {', '.join(TIMES)}, not {shown(facts['time'])}")
    listed = facts["id"] if isinstance(facts["id"], (list, tuple)) else [None]
    if not listed or not all(isinstance(each, str) and each and "\0" not in each for each in [facts["by"], *listed]):
        raise Invalid(f"{name}: by and id name columns, which {shown([facts['by'], facts['id']])} do not")
    if not isinstance(facts["index"], bool):
        raise Invalid(f"{name}: index is true or false, not {shown(facts['index'])}")
