"""Operations of an index as a plan: the table is looked at once for each version of the schema, by who asks first."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from roost.dialects.dialect import Dialect
from roost.errors import Error, Invalid, StatementFailed
from roost.structures.index.budget import Budget
from roost.structures.index.bulk import bulk_of
from roost.structures.index.declaration import Index, While
from roost.structures.index.opened import OpenedIndex, Working, open_index
from roost.structures.index.runs import Results, Shape
from roost.structures.index.schema import SCHEMA_VERSION, ask
from roost.structures.operation import Operation
from roost.structures.plan import Context, Operations, Plan, TargetPlan

FEW = 4  # like operations, or fewer, are sooner done one by one


class IndexPlan(TargetPlan):
    """One index of a table in SQLite's words, as one store has it: a version of the schema is that of one file."""

    structure: Index

    def __init__(self, structure: Index, dialect: Dialect) -> None:
        if dialect.name != "sqlite":
            raise Invalid(f"{structure!r}: indexes are for SQLite, for now; {dialect.name} has none yet")
        self.structure = structure
        self._dialect = dialect
        self._version = -1
        self._opened: OpenedIndex | Error | None = None

    def run(self, operations: Operations, context: Context) -> Plan:
        """Plan operations, in their order. What is refused before a statement concerns its operation alone."""
        opened = yield from self._current(context)
        if isinstance(opened, Error):
            return [opened] * len(operations)
        if len(operations) <= FEW:
            return (yield from self._each(opened, operations))
        results: list[Any] = []
        for shape, like in groupby(operations, shape_of):
            some = list(like)
            if shape is None or len(some) <= FEW or shape.keys > opened.parts:
                results += yield from self._each(opened, some)
            else:
                results += yield from self._together(opened, shape, some)
        return results

    def _each(self, opened: OpenedIndex, operations: Operations) -> Results:
        results: list[Any] = []
        for op in operations:
            try:
                results.append((yield from opened.perform(op.verb, op.args)))
            except (Invalid, StatementFailed) as error:
                if isinstance(error, StatementFailed) and error.__cause__ is not None:
                    raise  # the database's own: whether the transaction stands, only the engine knows
                results.append(error)
        return results

    def _together(self, opened: OpenedIndex, shape: Shape, operations: Operations) -> Results:
        def alone(place: int) -> Working:
            (result,) = yield from self._each(opened, operations[place : place + 1])
            return result

        rows = [_values_of(shape, op.args) for op in operations]
        columns = list(zip(*rows, strict=True))
        results = yield from bulk_of(opened, shape, self._dialect).run(columns, alone, Budget())
        return [opened.rows_of(result) for result in results]

    def _current(self, context: Context) -> Working:
        index = self.structure
        names = (index.name, index.index, index.columns, index.filters)
        if context.joined:  # a connection of the application's may have opened any file
            return (yield from open_index(*names))
        (((version,),),) = yield ask(SCHEMA_VERSION)
        if self._opened is None or version != self._version:
            self._opened = yield from open_index(*names)
            self._version = version
        return self._opened


def shape_of(operation: Operation[Any]) -> Shape | None:
    """Return what operations have in common that are done together; None for one that is done by itself."""
    args = operation.args
    if operation.verb != "find":
        return None
    op, values, limit, offset, in_, filters = args
    if in_ is not None or any([isinstance(each, While) for each in filters]):
        return None
    index: Any = operation.structure
    columns = [(each.op, index.filters.index(each.column)) for each in filters]
    return Shape("find", op, len(values), (limit, offset) != (1, 0), tuple(columns))


def _values_of(shape: Shape, args: tuple[Any, ...]) -> tuple[Any, ...]:
    bounds = args[2:4] if shape.bounded else ()
    return (*args[1], *bounds, *[each.value for each in args[5]])
