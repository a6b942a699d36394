"""Latest: runs of like operations become statements, in each dialect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from roost.dialects.dialect import Answer, Dialect, Gather, Row, Statement, Template
from roost.structures.operation import Operation
from roost.structures.plan import Context, Operations, Plan, Question, StructurePlan, each, same, seizing, write
from tests.latest.declaration import Latest
from tests.latest.view import VIEWS
from tests.latest.wire import LatestWire

SET = {
    "sqlite": Template("""\
INSERT INTO {rows} ({columns}) VALUES ({holes})
  ON CONFLICT ({key}) DO UPDATE SET {value} = excluded.{value}"""),
    "mariadb": Template(
        """\
INSERT INTO {rows} ({columns}) VALUES {{rows}}
  ON DUPLICATE KEY UPDATE {value} = VALUES({value})""",
        Gather.VALUES,
    ),
    "mysql": Template(
        """\
INSERT INTO {rows} ({columns}) VALUES {{rows}} AS new
  ON DUPLICATE KEY UPDATE {value} = new.{value}""",
        Gather.VALUES,
    ),
    "postgresql": Template(
        """\
INSERT INTO {rows} ({columns}) SELECT * FROM unnest({arrays})
  ON CONFLICT ({key}) DO UPDATE SET {value} = excluded.{value}""",
        Gather.ARRAYS,
    ),
}
GET = {
    "sqlite": Template("SELECT {value} FROM {rows} WHERE {equal}", answer=Answer.ORDINAL),
    "mariadb": Template("SELECT {{i}}, {value} FROM {rows} WHERE {equal}", Gather.UNION, Answer.ORDINAL),
    "postgresql": Template(
        """\
SELECT (q."#" - 1)::integer, r.{value} FROM unnest({key_arrays}) WITH ORDINALITY AS q ({key}, "#")
  JOIN {rows} r ON {same}""",
        Gather.ARRAYS,
        Answer.ORDINAL,
    ),
}


class LatestPlan(StructurePlan):
    """The latest values in one dialect's words: one table, whose row is its own head."""

    structure: Latest[Any, Any]
    views = VIEWS
    wire = LatestWire

    def __init__(self, structure: Latest[Any, Any], dialect: Dialect) -> None:
        super().__init__(structure, dialect)
        key, value = structure.key.columns, structure.value.columns
        equal = dialect.equal(key)
        words = {
            "rows": self.rows_table,
            "columns": dialect.names(structure.columns),
            "key": dialect.names(key),
            "value": dialect.names(value),
            "holes": dialect.holes(len(structure.columns)),
            "arrays": dialect.arrays(structure.columns),
            "key_arrays": dialect.arrays(key),
            "equal": equal,
            "same": dialect.same(key, "q.", "r."),
        }
        self.tables = (self.create(self.rows_table, structure.columns, words["key"]),)
        self.seize = seizing(dialect, self.rows_table, key)
        self._set = dialect.choose(SET).format(words)
        self._get = dialect.choose(GET).format(words)
        self._delete = write(f"DELETE FROM {self.rows_table} WHERE {equal}")
        if dialect.for_update:
            self.take = each(f"SELECT 1 FROM {self.rows_table} WHERE {equal}{dialect.for_update}")
        self.first_keys, self.later_keys = self.key_after(self.rows_table)
        self._value_out: Callable[[Row], Row] = dialect.encoder(value) or same
        self._value_in: Callable[[Row], Row] = dialect.decoder(value) or same
        name = dialect.name_of(key[0])
        value_name = dialect.names(value, "r.")
        self._ask = self.question_sql(f"r.{name}, {value_name}", self.rows_table, dialect.equal(key, "r."))

    def plan_set(self, run: Operations, _: Context, __: bool) -> Plan:
        """Write the last value of each key, in key order."""
        values = {self.key_out(op.args[0]): self._value_out(op.args[1]) for op in run}
        yield Statement(self._set, [key + value for key, value in sorted(values.items())])
        return [None] * len(run)

    def plan_get(self, run: Operations, _: Context, __: bool) -> Plan:
        """Look up keys."""
        found = yield Statement(self._get, [self.key_out(op.args[0]) for op in run])
        return [self._value(rows[0]) if rows else None for rows in found]

    def ask_get(self, op: Operation[Any], _: Context) -> Question:
        """Look up one key, in one statement."""
        return Question(self._ask, self.key_out(op.args[0]), self._answer)

    def plan_clear(self, run: Operations, _: Context, locked: bool) -> Plan:
        """Delete the rows of keys."""
        return (yield from self.remove_keys(run, locked, self._delete, None))

    plan_forget = plan_clear

    def _answer(self, rows: list[Row]) -> Any:
        key, *value = rows[0]
        return None if key is None else self._value(value)

    def _value(self, stored: Any) -> Any:
        return self.structure.value.value(self._value_in(tuple(stored)))
