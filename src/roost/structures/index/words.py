"""The differences between the databases' SQL for indexes, as data."""

from __future__ import annotations

from dataclasses import dataclass

from roost.dialects.dialect import Gather


@dataclass(frozen=True, slots=True)
class IndexWords:
    """One database's words. The placeholder of a value depends on its column (`TableColumn.hole`)."""

    name: str
    quote: str
    number: str  # the placeholder of a whole number: a limit, an offset
    resolution: str = ""  # after INSERT and UPDATE: what a refused statement undoes, if the database has a choice
    nothing: str = "DEFAULT VALUES"  # after the table of an INSERT without columns
    locks: str = ""  # after a SELECT whose rows will be changed
    says_nulls: bool = False  # whether ORDER BY must say where NULLs sort
    # Whether ORDER BY may name a column that is NULL by the condition without causing a sort.
    orders_equals: bool = True
    shown_first: bool = False  # whether a bare name in ORDER BY means a result column rather than a table's column
    row_by_row: bool = False  # whether each row is written by its own statement; these are sent together
    same: str = "IS"  # equal, or both NULL
    counts: bool = True  # whether an UPDATE returns the number of rows found, and not of those whose values changed
    lists: Gather = Gather.LIST  # how a list of rows is said
    returning: bool = True  # whether an INSERT can return the ids that it generates
    aborts: bool = False  # whether a statement that fails makes its transaction unusable

    def quoted(self, name: str) -> str:
        """Return a name as an identifier."""
        made = self.quote + name.replace(self.quote, 2 * self.quote) + self.quote
        return made.replace("%", "%%") if self.number == "%s" else made
