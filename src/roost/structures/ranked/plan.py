"""Ranked: like a capped collection, with the worst row of a key instead of the oldest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roost.dialects.dialect import Dialect, Row, Statement
from roost.structures.capped.plan import CappedPlan
from roost.structures.operation import Operation
from roost.structures.plan import Careful, Context, Operations, Plan, Question, Transaction, each, same
from roost.structures.ranked.alter import ALTERATIONS
from roost.structures.ranked.declaration import Ranked
from roost.structures.ranked.simulation import RankedGame
from roost.structures.ranked.view import VIEWS
from roost.structures.ranked.wire import RankedWire

# The number of rows of the same key that are better than r.
BETTER = """\
(SELECT count(*) FROM {rows} b WHERE {same_key} AND b.{score} >= r.{score}
    AND (b.{score} > r.{score} OR b.sequence < r.sequence))"""


class RankedPlan(CappedPlan):
    """A ranked collection in one dialect's words."""

    wire = RankedWire

    structure: Ranked[Any, Any]
    views = VIEWS
    alterations = ALTERATIONS
    together: Mapping[str, str] = {"add": "change", "add_all": "change", "remove": "change"}

    def __init__(self, structure: Ranked[Any, Any], dialect: Dialect) -> None:
        super().__init__(structure, dialect)
        self.optimistic = None  # whether a row is stored depends on the stored rows
        self._score_of = dialect.decoder([structure.score]) or same
        self._score_at = structure.columns.index(structure.score)
        rows, key, hole = self.rows_table, structure.key.columns, dialect.placeholder
        score = dialect.name_of(structure.score)
        values = dialect.names(structure.columns, "r.")
        of_key, of_id = dialect.equal(key, "r."), dialect.equal(structure.id.columns, "r.")
        best = f"ORDER BY r.{score} DESC, r.sequence LIMIT {hole}"
        better = BETTER.format(rows=rows, score=score, same_key=dialect.same(key, "b.", "r."))
        self.top = each(f"SELECT {values} FROM {rows} r WHERE {of_key} {best}")
        self.rank = each(f"SELECT {better} FROM {rows} r WHERE {of_key} AND {of_id}")
        self._one_top = self.question_sql(f"r.sequence, {values}", rows, of_key, f" {best}")
        self._one_rank = self.question_sql(f"r.sequence, {better}", rows, f"{of_key} AND {of_id}")
        self._one_place = self.question_sql(f"r.{score}, r.sequence", rows, f"{of_key} AND {of_id}")

    def game(self) -> RankedGame:
        """Return the simulation of one key's collection, before the run."""
        return RankedGame(self.structure, self._score_of)

    def transact_add(self, op: Operation[Any], context: Context) -> Transaction:
        """Add one row that is good enough; if the collection is full, delete the worst."""
        values, keep = op.args[0], self.structure.keep
        key, id_, others = self._key_of(values), self._id_of(values), self._others_of(values)
        found = yield self._one_place, (*key, *id_)
        if not found:
            raise Careful  # the declaration is not stored
        there = found[0][1] is not None
        if there:
            if self.structure.on_duplicate == "error":
                raise Careful
            if self.structure.on_duplicate == "best" and not self._is_better(values, found[0]):
                return False
        heads = yield self.head.sql, key
        sequence, n = heads[0] if heads else (0, 0)
        sequence += 1
        if not there and n >= keep:
            worst = yield self.oldest.sql, (*key, 1)
            if worst and not self._is_better(values, worst[0][-2:]):
                return False
            if not worst or n > keep or sequence % keep == 0:
                raise Careful  # the count is wrong, or due to be checked
            yield self.delete_row.sql, (*key, *worst[0][:-2])
        elif not there:
            n += 1
        yield self.put_head.sql, (*key, sequence, n)
        (at,) = self._at_out((context.clock(),))
        yield self.put_row.sql, (*key, *id_, *others, sequence, at)
        return True

    def _is_better(self, values: Row, place: Row) -> bool:
        (score,) = self._score_of(place[:1])
        return bool(values[self._score_at] > score)

    def answer(self, op: Operation[Any], played: list[Any]) -> Any:
        """Return the result of an operation: whether each of its rows was stored."""
        error = super().answer(op, played)
        return played if op.verb == "add_all" and error is None else error

    def plan_top(self, run: Operations, _: Context, __: bool) -> Plan:
        """Read the best rows by their index."""
        keep = self.structure.keep
        found = yield Statement(self.top, [(*self.key_out(op.args[0]), op.args[1] or keep) for op in run])
        return [self.rows_of(rows) for rows in found]

    def plan_rank(self, run: Operations, _: Context, __: bool) -> Plan:
        """Count the rows that are better."""
        found = yield Statement(self.rank, [self.key_out(op.args[0]) + self.id_out(op.args[1]) for op in run])
        return [rows[0][0] + 1 if rows else None for rows in found]

    def ask_top(self, op: Operation[Any], _: Context) -> Question:
        """Read the best rows of one key."""
        key, n = op.args
        return Question(self._one_top, (*self.key_out(key), n or self.structure.keep), self._newest_rows)

    def ask_rank(self, op: Operation[Any], _: Context) -> Question:
        """Count the rows that are better than one."""
        return Question(self._one_rank, self.key_out(op.args[0]) + self.id_out(op.args[1]), _rank)


def _rank(rows: list[Row]) -> int | None:
    sequence, better = rows[0]
    return None if sequence is None else better + 1
