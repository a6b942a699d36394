"""Caps by age: how old rows of an application's own table are deleted, in the part common to all dialects.

Rows are deleted by a column with a time, oldest first. Rows that are too old are found by an index on that column and
the database's own clock. A column stores the time in one of these ways:

    zoned                    a time independent of the session's zone: timestamptz, MariaDB's TIMESTAMP
    plain                    a time without a zone: timestamp, DATETIME, SQLite's texts; in UTC, or `offset` from UTC
date                     a day; its age counts from its end
    seconds, milliseconds    since 1970, in an integer

Values before 2 January 1970 are not times: 0, '0000-00-00', an empty text, -infinity. Such rows stay, as with NULL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from roost.capping.cap import Cap
from roost.errors import Invalid
from roost.structures.adopted.declaration import Adopted
from roost.structures.aged.declaration import AGED_FACTS, DAY, Aged
from roost.structures.durations import in_words
from roost.structures.structure import Structure

EPOCHS = {"s": "seconds", "ms": "milliseconds"}
PER_SECOND = {"seconds": 1, "milliseconds": 1000}
FIRST = "1970-01-02"  # earlier values are not times; MariaDB's TIMESTAMP has no earlier day in every zone
EIGHTIES, FAR = 315_532_800, 100_000_000_000  # seconds: numbers in another unit would be before 1980, or after 5138


@dataclass(frozen=True, slots=True)
class Age(Cap):
    """How a table is capped by the age of its rows: there is no key, and `newest_by` is the column with their time."""

    older_than: int = 0  # seconds
    time: str = ""
    offset: int = 0  # minutes by which times that are `plain`, or a `date`, are ahead of UTC

    @property
    def by(self) -> str:
        """The column with the time."""
        assert self.newest_by is not None
        return self.newest_by

    @property
    def facts(self) -> dict[str, Any]:
        """The facts of the definition besides kind and name."""
        return {fact: getattr(self, fact) for fact in AGED_FACTS}

    @property
    def definition(self) -> str:
        """The definition in the catalog."""
        return Aged(self.table, self.facts).definition

    @property
    def led_to(self) -> str:
        """The purpose of the index, in words."""
        return f"the oldest rows by {self.by}"

    @property
    def without_index(self) -> str:
        """What a search without an index does, in words."""
        return "to find what is over reads the table"

    @property
    def older_than_in_words(self) -> str:
        """The age as the command line takes it."""
        return in_words(self.older_than)

    @property
    def epoch(self) -> str | None:
        """The unit of the numbers, as the command line takes it; None if the column's type is for times."""
        return {time: epoch for epoch, time in EPOCHS.items()}.get(self.time)

    @property
    def zone(self) -> str:
        """The offset of its times from UTC, as the command line expects it; "" if they are in UTC."""
        hours, minutes = divmod(abs(self.offset), 60)
        return f"{'-' if self.offset < 0 else '+'}{hours:02d}:{minutes:02d}" if self.offset else ""

    @property
    def seconds(self) -> int:
        """The number of seconds by which the limit lies before the current UTC time, for the column's offset."""
        return self.older_than - (self.offset * 60 if self.time in ("plain", "date") else 0)

    @property
    def units(self) -> int:
        """The age in the column's own unit, if that is a number."""
        return self.older_than * PER_SECOND[self.time]

    @property
    def first(self) -> str:
        """The least value that counts as a time, as a literal."""
        return str(DAY * PER_SECOND[self.time]) if self.time in PER_SECOND else f"'{FIRST}'"

    def tells_no_time(self, type_: str, epoch: str | None, integer: bool) -> Invalid:
        """Return what is wrong with a column of this type."""
        how = "say --epoch s or --epoch ms" if integer else "leave out --epoch" if epoch else "which tells no time"
        return Invalid(f"{self.table}.{self.by} has the type {type_}: {how}")

    def check_offset(self) -> None:
        """Raise `Invalid` if an offset was given and the column needs none."""
        if self.offset and self.time not in ("plain", "date"):
            raise Invalid(f"{self.table}.{self.by} needs no time zone: leave out --utc-offset")

    def check_unit(self, oldest: Any, newest: Any) -> None:
        """Raise `Invalid` if the oldest or the newest value shows that the numbers have another unit.

        A single extreme value proves nothing, such as 9999999999999 for "never": its row stays in any unit. Rows would
        be lost if seconds were taken for milliseconds, which the oldest value shows.
        """
        if self.time not in PER_SECOND or not isinstance(oldest, (int, float)) or not isinstance(newest, (int, float)):
            return
        unit = PER_SECOND[self.time]
        if newest / unit <= EIGHTIES:
            which, value, hint = "greatest", newest, " in any unit" if unit == 1 else ": is it --epoch s?"
        elif unit == 1 and oldest >= FAR:
            which, value, hint = "least", oldest, ": is it --epoch ms?"
        elif unit > 1 and oldest / unit <= EIGHTIES:
            which, value, hint = "least", oldest, ": is it --epoch s?"
        else:
            return
        raise Invalid(
            f"{self.table}.{self.by}: its {which} value, {value:,}, is not a recent time in {self.time} since 1970"
            f"{hint}"
        )


def cap_of(structure: Structure) -> Cap | None:
    """Return how a structure from the catalog is capped; None if it is not a table of the application."""
    if isinstance(structure, Aged):
        facts = structure.facts or {}
        return Age(
            structure.name,
            *((), 0, facts["by"], tuple(facts["id"]), facts["index"]),
            **{fact: facts[fact] for fact in ("older_than", "time", "offset")},
        )
    return Cap.of(structure) if isinstance(structure, Adopted) else None
