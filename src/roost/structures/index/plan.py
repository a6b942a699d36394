"""Index operations as plans: the table is looked at once for each version of the schema, in the batch that asks."""

from __future__ import annotations

from typing import Any

from roost.dialects.dialect import Dialect
from roost.errors import Error, Invalid, Missing, StatementFailed, worded
from roost.structures.index.declaration import Index, While
from roost.structures.index.opened import Change, OpenedIndex, Working
from roost.structures.index.scan import Filtering, Scan
from roost.structures.index.schema import SCHEMA_VERSION, ask, opened_key, read_table
from roost.structures.operation import Operation
from roost.structures.plan import Context, Operations, Plan, TargetPlan

_VERBS = {"update": "U", "delete": "D", "increment": "+", "decrement": "-"}


class IndexPlan(TargetPlan):
    """One index of a table in SQLite's words, as one store has it: a version of the schema is that of one file."""

    structure: Index

    def __init__(self, structure: Index, dialect: Dialect) -> None:
        if dialect.name != "sqlite":
            raise Invalid(f"{structure!r}: indexes are for SQLite, for now; {dialect.name} has none yet")
        self.structure = structure
        self._version = -1
        self._opened: OpenedIndex | Error | None = None

    def run(self, operations: Operations, context: Context) -> Plan:
        """Plan operations, in their order. What is refused before a statement concerns its operation alone."""
        opened = yield from self._current(context)
        if isinstance(opened, Error):
            return [opened] * len(operations)
        results: list[Any] = []
        for op in operations:
            try:
                results.append((yield from self._one(opened, op)))
            except (Invalid, StatementFailed) as error:
                if isinstance(error, StatementFailed) and error.__cause__ is not None:
                    raise  # the database's own: whether the transaction stands, only the engine knows
                results.append(error)
        return results

    def _current(self, context: Context) -> Working:
        if context.joined:  # a connection of the application's may have opened any file
            return (yield from self._open())
        (((version,),),) = yield ask(SCHEMA_VERSION)
        if self._opened is None or version != self._version:
            self._opened = yield from self._open()
            self._version = version
        return self._opened

    def _open(self) -> Working:
        index = self.structure
        table = yield from read_table(index.name)
        if table is None:
            return Missing(f"there is no table or view {index.name} that can be opened")
        for name in (*index.columns, *index.filters):
            if name not in table.columns:
                return worded(Missing(f"{index.name} has no column {name}"), "fld", 2)
        columns = [table.columns[name] for name in index.columns]
        key = opened_key(table, index.index, columns)
        if key is None:
            there = ", ".join([key.name for key in table.keys]) or "none"
            return worded(Missing(f"{index.name} has no key {index.index}; there are: {there}"), "idxnum", 2)
        return OpenedIndex(table, key, columns, [table.columns[name] for name in index.filters])

    def _one(self, opened: OpenedIndex, op: Operation[Any]) -> Working:
        if op.verb == "insert":
            return (yield from opened.insert(op.args[0]))
        scan = self._scan(opened, op)
        if op.verb == "find":
            return (yield from opened.find(scan))
        to, returning = op.args[6:]
        return (yield from opened.modify(scan, Change(_VERBS[op.verb], to, returning)))

    def _scan(self, opened: OpenedIndex, op: Operation[Any]) -> Scan:
        sign, values, limit, offset, in_, filters = op.args[:6]
        if len(values) > len(opened.key.parts):
            told = f"{self.structure!r} has {len(opened.key.parts)} columns, and {len(values)} values were given"
            raise worded(Invalid(told), "kpnum")
        columns = opened.table.columns
        made = [
            Filtering(
                isinstance(each, While), each.op, columns[each.column].sql, columns[each.column].against(each.value)
            )
            for each in filters
        ]
        return opened.scan(sign, values, limit, offset, in_, made)
