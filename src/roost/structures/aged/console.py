"""A table that loses its rows by their age, on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roost.structures.aged.declaration import Aged
from roost.structures.console import Console, Table
from roost.structures.durations import in_words
from roost.structures.operation import Operation

STATE = ("over", "oldest", "newest")


class AgedConsole(Console[Aged]):
    """Shows the table as a single key, with the number of rows that are too old and the times of the others."""

    read_only = "{name} is a table of your own: write it with SQL; `roost cap {name}` changes how long rows stay"

    def listed(self) -> tuple[str, str, str]:
        """Return no key, and the rule in words."""
        facts = self.structure.facts
        return "", "rows of its own", f"older_than {in_words(facts['older_than'])}, by {facts['by']}"

    def summaries(self, keys: Sequence[Any]) -> Sequence[Operation[Any]]:
        """Return the operation that reads it."""
        return [self.structure.state() for _ in keys]

    def summary(self, keys: Sequence[Any], results: Sequence[Any]) -> Table:
        """Return the number of rows that are too old, and the oldest and newest times."""
        return Table(STATE, results, [dict(zip(STATE, state, strict=True)) for state in results])
