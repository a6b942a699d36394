"""The parts of views for structures whose rows expire, at the moment in their column `until`.

On SQLite an INSERT also deletes a few expired rows, by the index on that column. On servers only stores do that
(`sweep.py`): a client's transaction would keep other keys locked until its end.
"""

from __future__ import annotations

from collections.abc import Sequence

from roost.structures.clock import SECOND, shown_now
from roost.structures.plan import StructurePlan
from roost.types.columns import Column

MOST = 4  # expired rows that are deleted with each inserted row


class Ends:
    """The words of one structure's view; all of them are empty if its rows do not expire.

    row: the columns that identify a row.
    column, excluded, values: the SQL after the columns of an INSERT, and after the assignments of its upsert.
    value: the SQL after its values.
    where: the condition of a query for rows that have not expired.
    declared: on MariaDB the variables of an INSERT.
    read: on MariaDB the statements that set them; on PostgreSQL one that sets `now`.
    sweep: the statements that delete expired rows; only on SQLite.
    """

    def __init__(self, plan: StructurePlan, row: Sequence[Column]) -> None:
        self.column = self.excluded = self.values = self.value = self.where = ""
        self.declared: list[str] = []
        self.variables: tuple[str, ...] = ()
        self.read: list[str] = []
        self.sweep: list[str] = []
        keep_for = getattr(plan.structure, "keep_for", None)
        self.lasts = keep_for is not None
        if keep_for is None:
            return
        self.column, self.excluded, self.values = ", until", ", until = excluded.until", ", until = VALUES(until)"
        self.now = shown_now(plan)
        self.where = f" WHERE until > {self.now}"
        rows, names = plan.rows_table, plan.dialect.names(row)
        match plan.dialect.name:
            case "sqlite":
                self.value = f", {self.now} + {keep_for * SECOND}"
                self.sweep = [
                    f"DELETE FROM {rows} WHERE ({names}) IN (SELECT {names} FROM {rows}\n"
                    f"    WHERE until <= {self.now} ORDER BY until LIMIT {MOST})"
                ]
            case "postgresql":
                self.variables = ("now bigint",)
                self.read = [f"it.now := {self.now};"]  # read once
                self.value = f", it.now + {keep_for * SECOND}"
            case _:
                self._on_mariadb(plan)
        if not row:
            self.sweep = []

    def living(self, prefix: str) -> str:
        """Return the condition that a row has not expired, to follow others."""
        return f" AND {prefix}until > {self.now}" if self.lasts else ""

    def _on_mariadb(self, plan: StructurePlan) -> None:
        dialect = plan.dialect
        self.until = f"`the now` + `the keep_for` * {SECOND}"
        self.declared = ["DECLARE `the keep_for`, `the now` BIGINT"]
        self.read = [
            "SELECT JSON_VALUE(definition, '$.keep_for') INTO `the keep_for` FROM roost_catalog\n"
            f"    WHERE name = {dialect.literal(plan.structure.name)} LOCK IN SHARE MODE",
            f"SET `the now` = {self.now}",
        ]
        self.value = f", {self.until}"
