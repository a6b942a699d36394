"""The plan of an index's operations: the first operation reads the table's schema, once for each of its versions."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import groupby
from typing import Any

from roost.dialects.dialect import Dialect, Row, Statement, Together, Wanted
from roost.errors import Conflict, Error, Invalid, Missing, StatementFailed
from roost.structures.index.budget import Budget
from roost.structures.index.bulk import bulk_of, shape_of, values_of
from roost.structures.index.declaration import Index
from roost.structures.index.opened import OpenedIndex, Working, open_index
from roost.structures.index.runs import Results, Shape
from roost.structures.index.schema import ask
from roost.structures.index.sqlite import SCHEMA_VERSION
from roost.structures.operation import Operation
from roost.structures.plan import Careful, Context, Operations, Plan, TargetPlan

FEW = 4  # up to this number of operations of the same form, running them one by one is faster on SQLite


class IndexPlan(TargetPlan):
    """One index of a table in one dialect's words. Each store has its own plan, which caches its database's schema."""

    structure: Index

    def __init__(self, structure: Index, dialect: Dialect) -> None:
        self.structure = structure
        self._dialect = dialect
        self._version = -1
        self._opened: OpenedIndex | Error | None = None

    def heads_of(self, op: Operation[Any]) -> Iterable[Row]:
        """Return a value for the rows that an operation locks: equal for operations that search by the same values."""
        return ((repr(op.args[:2] if op.verb != "insert" else op.args),),)

    def run(self, operations: Operations, context: Context, only: bool = False) -> Plan:
        """Plan operations, in their order. A refusal before a statement affects only its own operation.

        only: the transaction has no other operations.
        """
        opened = yield from self._current(context)
        if isinstance(opened, Error):
            return [opened] * len(operations)
        work = self._done(opened, operations)
        if not self._dialect.is_server:
            return (yield from work)
        return (yield from self._unchanged(opened, work, context.careful, only and len(operations) == 1))

    def _current(self, context: Context) -> Working:
        if self._dialect.is_server:
            known = isinstance(self._opened, OpenedIndex) and not context.careful
            return self._opened if known else (yield from self._open())
        if context.joined:  # the application's connection may have opened any file
            return (yield from self._open())
        (((version,),),) = yield ask(SCHEMA_VERSION)
        if self._opened is None or version != self._version:
            yield from self._open()
            self._version = version
        return self._opened

    def _done(self, opened: OpenedIndex, operations: Operations) -> Results:
        few = 1 if self._dialect.is_server else FEW
        if len(operations) <= few:
            return (yield from self._each(opened, operations))
        results: list[Any] = []
        for shape, like in groupby(operations, partial(shape_of, changes=self._dialect.is_server)):
            some = list(like)
            if shape is None or len(some) <= few or shape.keys > opened.parts:
                results += yield from self._each(opened, some)
            else:
                results += yield from self._together(opened, shape, some)
        return results

    def _unchanged(self, opened: OpenedIndex, work: Results, careful: bool, only: bool) -> Results:
        # Runs work that was planned for a known schema. The first statement prevents changes of the table until the
        # transaction ends; the question whether the schema is still the same is sent along with it. So is COMMIT, if
        # the transaction consists of this one statement, which reads.
        first = True
        try:
            wanted = next(work)
            while True:
                asks, first = first, False
                try:
                    answer = (yield from self._ask_too(opened, careful, wanted, only)) if asks else (yield wanted)
                except Exception as error:
                    wanted = work.throw(error)
                else:
                    wanted = work.send(answer)
        except StopIteration as stop:
            if first:  # everything was refused, by the known schema
                yield from self._ask_too(opened, careful, Together(()))
            return stop.value  # type: ignore[no-any-return]

    def _ask_too(self, opened: OpenedIndex, careful: bool, wanted: Wanted, only: bool = False) -> Working:
        table = opened.table
        if table.seen is None or not isinstance(wanted, (Statement, Together)):
            return (yield wanted)
        statements = wanted.statements if isinstance(wanted, Together) else (wanted,)
        question, seen = table.seen
        last = only and isinstance(wanted, Statement) and wanted.only
        try:
            *answers, now = yield Together((*statements, question._replace(last=last)))
        except (Missing, StatementFailed):
            self._opened = None
            if careful:
                raise
            raise Careful from None
        if table.compared(now) != seen:
            self._opened = None
            if careful:
                raise Conflict(f"{table.name} was changed while it was looked at")
            raise Careful
        return answers if isinstance(wanted, Together) else answers[0]

    def _open(self) -> Working:
        index = self.structure
        self._opened = yield from open_index(index.name, index.index, index.columns, index.filters, self._dialect.name)
        return self._opened

    def _each(self, opened: OpenedIndex, operations: Operations) -> Results:
        results: list[Any] = []
        for op in operations:
            try:
                results.append((yield from opened.perform(op.verb, op.args)))
            except (Invalid, StatementFailed) as error:
                if isinstance(error, StatementFailed) and error.__cause__ is not None:
                    raise  # an error of the database: the engine knows whether the transaction can go on
                results.append(error)
        return results

    def _together(self, opened: OpenedIndex, shape: Shape, operations: Operations) -> Results:
        def alone(place: int) -> Working:
            (result,) = yield from self._each(opened, operations[place : place + 1])
            return result

        columns = list(zip(*[values_of(shape, op.args) for op in operations], strict=True))
        results = yield from bulk_of(opened, shape).run(columns, alone, Budget())
        return [opened.rows_of(result) for result in results]
