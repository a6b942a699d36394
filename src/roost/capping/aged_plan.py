"""Reads of tables that are capped by age, for Roost's commands."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from roost.capping.age import Age, cap_of
from roost.capping.cap import read
from roost.capping.plan import ADOPTIONS
from roost.dialects.dialect import Dialect, Row, Statement
from roost.structures.aged.declaration import Aged
from roost.structures.plan import Context, Operations, Plan, StructurePlan


class AgedPlan(StructurePlan):
    """A table that is capped by age, in one dialect's words."""

    wire = None

    structure: Aged

    def __init__(self, structure: Aged, dialect: Dialect) -> None:
        super().__init__(structure, dialect)
        self.adoption = dialect.choose(ADOPTIONS)
        self.tables = ()
        self.made_by = f"`roost cap {structure.name} --older-than … --by …` makes it one that loses its old rows"
        self.stored = self.adoption.stored(structure.name)
        cap = cap_of(structure)
        assert isinstance(cap, Age)
        self.age = cap

    def broken(self) -> Generator[Statement, Any, list[tuple[str, Row | None, str]]]:
        """Return the promises of `roost cap` that the table violates."""
        return (yield from self.adoption.broken(self.age))

    def plan_keys(self, run: Operations, context: Context, _: bool) -> Plan:
        """List the one key that there is."""
        yield from ()
        names = [self.age.table]
        return [[name for name in names if op.args[0] is None or name > op.args[0][0]][: op.args[1]] for op in run]

    def plan_state(self, run: Operations, _: Context, __: bool) -> Plan:
        """Count the rows that are too old, and read the oldest and newest times, by the index."""
        if unsafe := (yield from self.adoption.unsafe(self.age.table)):
            return [unsafe] * len(run)
        words = self.adoption.words(self.age)
        by = words.column(self.age.by)
        over = yield read(f"SELECT count(*) FROM {words.table} i WHERE {words.over('i')}")
        # In separate queries: a single one would read the whole table.
        oldest = yield read(f"SELECT {words.shown(f'min({by})')} FROM {words.table} WHERE {by} > {self.age.first}")
        newest = yield read(f"SELECT {words.shown(f'max({by})')} FROM {words.table}")
        return [(over[0][0][0], oldest[0][0][0], newest[0][0][0])] * len(run)
