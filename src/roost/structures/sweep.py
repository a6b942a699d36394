"""Later writes delete expired rows: a bounded number with each write, found by an index on their expiry time.

Expired rows are not returned by reads, so it does not matter when they are deleted. They are found without locks, and
rows that another session holds are skipped without waiting: the order of the rows is not an order of locks.

On servers only a store's own transactions delete them. The application's own would keep other keys locked until its
end, and an expired key is one that somebody is about to write.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

from roost.dialects.dialect import Answer, Statement, Template, Together, Wanted
from roost.structures.plan import CUT, free, locking_free

if TYPE_CHECKING:
    from roost.structures.plan import Context, StructurePlan, Transaction
    from roost.types.columns import Column

EACH = 2  # expired rows that are deleted for each row that is written, so that a table that is too large shrinks
MOST = 1_000  # rows that one batch deletes

SELECT = "SELECT {key} FROM {rows} WHERE {column} <= {hole} ORDER BY {column} LIMIT {hole}{skip}"
# On PostgreSQL an array is evaluated once, before the search; a subquery could be run several times. The other
# databases read first, and then delete: in a DELETE, MariaDB cannot skip locked rows, and SQLite would make a temporary
# table.
DELETE = {"postgresql": "DELETE FROM {rows} WHERE ctid = ANY (ARRAY({select}))"}


class Sweep:
    """Deletes the expired rows of a structure, in one dialect's words.

    index: the statement that creates the index on the column. Its name must be among the plan's `indexes`.
    columns: those that identify a row.
    """

    def __init__(self, plan: StructurePlan, column: str, columns: Sequence[Column]) -> None:
        dialect, rows = plan.dialect, plan.rows_table
        self.name = f"roost_{plan.structure.name}_over"
        self.index = f"CREATE INDEX {self.name} ON {rows} ({column})"
        self._deletes: Template | None = None  # deletes the rows that were read, if reading is a separate statement
        key = dialect.names(columns)
        words = {
            "rows": rows,
            "key": "ctid" if dialect.name == "postgresql" else key,
            "column": column,
            "hole": dialect.placeholder,
            "skip": " FOR UPDATE SKIP LOCKED" if dialect.name in DELETE else "",
        }
        if dialect.name not in DELETE:
            same, equal = dialect.same(columns, "q.", "r."), dialect.equal(columns)
            pairs = {"pairs": key, "same_pair": same, "equal_pair": equal}
            self._deletes = dialect.choose(CUT).format({"rows": rows, **pairs})
        select = SELECT.format(**words)
        if self._deletes is not None:
            self._statement = Template(select, answer=Answer.ORDINAL)
        else:
            self._statement = Template(DELETE[dialect.name].format(rows=rows, select=select))
        self._free = locking_free(dialect, rows, columns, column)
        self._row_locks = dialect.row_locks

    def remove_alone(self, moment: int) -> Transaction:
        """Do the same for a single operation, on SQLite."""
        assert self._deletes is not None
        for key in (yield self._statement.sql, (moment, EACH)):
            yield self._deletes.sql, tuple(key)

    def remove(
        self, moment: int, written: int, context: Context, before: Sequence[Statement] = ()
    ) -> Generator[Wanted, Any, list[int]]:
        """Delete rows that had expired at a moment, some for each row that is written.

        before: statements that are sent along with it, whose answers are returned.
        """
        work = list(before)
        if context.joined and self._row_locks:
            written = 0
        limit = min(EACH * written, MOST)
        if written:
            work.append(Statement(self._statement, [(moment, limit)]))
        if not work:
            return []
        answers = yield Together(work)
        found = answers[-1]
        if written and self._deletes is not None and found[0]:
            gone = yield from free(self._free, self._statement, found[0], moment, limit)
            if gone:
                yield Statement(self._deletes, [tuple(key) for key in gone])
        return list(answers[: len(before)])
