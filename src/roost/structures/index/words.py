"""What a database's SQL looks like where an index speaks it: the differences, as data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class IndexWords:
    """One database's words. How a value stands in a text is its column's affair (`TableColumn.hole`)."""

    name: str
    quote: str
    number: str  # the place of a whole number: a limit, an offset
    resolution: str = ""  # behind INSERT and UPDATE: what a statement that is refused undoes, where that is a choice
    nothing: str = "DEFAULT VALUES"  # behind the table of an INSERT that names no column
    locks: str = ""  # behind a SELECT whose rows will be changed
    says_nulls: bool = False  # whether ORDER BY says where NULLs lie
    orders_equals: bool = (
        True  # whether ORDER BY may name a column that is NULL by the condition, and nothing is sorted
    )
    shown_first: bool = False  # whether a bare name in ORDER BY is that of what is shown, before that of a column
    row_by_row: bool = False  # whether rows are written by one statement each, which go out together
    same: str = "IS"  # equal, or both NULL
    counts: bool = True  # whether an UPDATE tells how many rows it met, and not how many have other values now
    aborts: bool = False  # whether a statement that fails undoes what its transaction has done

    def quoted(self, name: str) -> str:
        """Return a name as an identifier."""
        made = self.quote + name.replace(self.quote, 2 * self.quote) + self.quote
        return made.replace("%", "%%") if self.number == "%s" else made
