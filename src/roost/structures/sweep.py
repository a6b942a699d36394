"""Rows that are over go with the writes that come: a bounded number with each, found by an index on their moment.

They are answered no more before they go, so it does not matter when they do. What somebody else holds is skipped, and
nobody is waited for: the rows' order is no order of locks.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

from roost.dialects.dialect import Answer, Statement, Template, Together, Wanted
from roost.structures.plan import CUT

if TYPE_CHECKING:
    from roost.structures.plan import Context, StructurePlan
    from roost.types.columns import Column

EACH = 2  # rows that go with each one that is written: so the table becomes smaller while it is too large
MOST = 1_000  # that go with one batch

SELECT = "SELECT {key} FROM {rows} WHERE {column} <= {hole} ORDER BY {column} LIMIT {hole}{skip}"
DELETE = {
    "sqlite": "DELETE FROM {rows} WHERE ({key}) IN ({select})",
    # An array is made once, before the rows are looked for; a plan may run a subquery more than once.
    "postgresql": "DELETE FROM {rows} WHERE ctid = ANY (ARRAY({select}))",
}
# An index must be named: ordered by another, rows would be locked that stay.
INDEXED = {"mariadb": " FORCE INDEX ({index})"}


class Sweep:
    """Removes rows of a structure whose moment has passed, in one dialect's words.

    index: the statement that makes the index on the column. Its name is to be among the plan's `indexes`.
    columns: the key of a row.
    """

    def __init__(self, plan: StructurePlan, column: str, columns: Sequence[Column]) -> None:
        dialect, rows = plan.dialect, plan.rows_table
        self.name = f"roost_{plan.structure.name}_over"
        self.index = f"CREATE INDEX {self.name} ON {rows} ({column})"
        self._row_locks = dialect.row_locks
        self._deletes: Template | None = None  # what was read, where that is a statement of its own
        key = dialect.names(columns)
        words = {
            "rows": rows + INDEXED.get(dialect.family, "").format(index=self.name),
            "key": "ctid" if dialect.name == "postgresql" else key,
            "column": column,
            "hole": dialect.placeholder,
            "skip": " FOR UPDATE SKIP LOCKED" if dialect.row_locks else "",
        }
        select = SELECT.format(**words)
        if dialect.family == "mariadb":
            self.statement = Template(select, answer=Answer.ORDINAL)
            same = dialect.same(columns, "q.", "r.")
            self._deletes = dialect.choose(CUT).format({"rows": rows, "pairs": key, "same_pair": same})
        else:
            self.statement = Template(DELETE[dialect.name].format(rows=rows, key=key, select=select))

    def remove(
        self, moment: int, written: int, context: Context, before: Sequence[Statement] = ()
    ) -> Generator[Wanted, Any, list[int]]:
        """Remove rows that were over at a moment, some for each of those that are written.

        What the application's own transaction would lock stays so until its end, so there it is left to others.

        before: statements that go out along with it, of which the answers are returned.
        """
        work = list(before)
        removes = written and not (context.joined and self._row_locks)
        if removes:
            work.append(Statement(self.statement, [(moment, min(EACH * written, MOST))]))
        if not work:
            return []
        answers = yield Together(work)
        found = answers[-1]
        if removes and self._deletes is not None and found[0]:
            yield Statement(self._deletes, [tuple(key) for key in found[0]])
        return list(answers[: len(before)])
