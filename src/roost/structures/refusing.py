"""The plan of a structure that refuses: a plain read does so where it can, so a refusal writes and locks nothing."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from roost.dialects.dialect import Dialect, Exchange, Row
from roost.structures.operation import Operation
from roost.structures.plan import Careful, Context, Operations, Plan, Question
from roost.structures.program import ProgramPlan, Write
from roost.structures.reading import Ask


class RefusingPlan(ProgramPlan):
    """A plan whose verbs may be refused by a plain read; a server is asked that only if the key was refused lately."""

    def __init__(self, structure: Any, dialect: Dialect) -> None:
        super().__init__(structure, dialect)
        self._refusing = self.refusing()
        if dialect.singles:
            self.questions |= {verb: partial(self._asking, ask) for verb, ask in self._refusing.items()}

    def refusing(self) -> Mapping[str, Ask]:
        """Return the plain read of each verb that may be refused; its result is None for one that has to run."""
        raise NotImplementedError

    def is_refusal(self, result: Any) -> bool:
        """Return whether a result of such a verb is a refusal."""
        raise NotImplementedError

    def _asking(self, ask: Ask, op: Operation[Any], context: Context) -> Question | None:
        if self.dialect.is_server and not context.was_refused(self.structure.name, self._asked_for(op)):
            return None

        def answer(op: Operation[Any], found: list[Row]) -> Any:
            if (result := ask.result(op, found)) is None:
                raise Careful
            return self._noted(op, result, context)

        return self._question(ask._replace(result=answer), op, context)

    def _single_exchange(self, write: Write, op: Operation[Any], row: Row, context: Context) -> Exchange | None:
        made = super()._single_exchange(write, op, row, context)
        if made is None or made.result is None or op.verb not in self._refusing:
            return made
        result = made.result
        return made._replace(result=lambda answer: self._noted(op, result(answer), context))

    def _writes(self, run: Operations, context: Context) -> Plan:
        results = yield from super()._writes(run, context)
        return [self._noted(op, result, context) for op, result in zip(run, results, strict=True)]

    def _noted(self, op: Operation[Any], result: Any, context: Context) -> Any:
        if op.verb in self._refusing and self.is_refusal(result):
            context.remember_refused(self.structure.name, self._asked_for(op))
        return result

    def _asked_for(self, op: Operation[Any]) -> Row:
        return (op.verb, *self.key_out(op.args[0]))
