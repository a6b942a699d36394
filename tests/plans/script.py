"""A driver without a database: the answers are given beforehand, and what is sent is recorded as it would go out."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import roost
from roost.dialects import Control, Dialect, Gather, Statement, Together, render, scatter
from roost.dialects.dialect import Exchange, Row
from roost.structures.plan import Context, StructurePlan
from roost.structures.registry import plan_for
from roost.structures.structure import Structure

NOW = dt.datetime(2008, 1, 1, 22, 3, 23, 500, tzinfo=dt.UTC)
LOCKED = Control.LOCKED

Sent = list[tuple[str, Row] | Control]


class Played(NamedTuple):
    """What a plan has sent, as texts with their parameters, and what it returned."""

    sent: Sent
    results: list[Any]


def play(
    plan: StructurePlan,
    operations: roost.Operation[Any] | Sequence[roost.Operation[Any]],
    *answers: Any,
    spot: int = 0,
    joined: bool = False,
    careful: bool = False,
    nowait: bool = False,
) -> Played:
    """Drive a plan to its end with one answer for each of its statements.

    An answer is what an engine would fetch: how many rows were changed, when none come back; a list of rows for each
    text, when a statement goes out once per row; otherwise the rows of the one text, which `scatter` then deals out.
    An exception is thrown.
    """
    if isinstance(operations, roost.Operation):
        operations = [operations]
    work = plan.run(operations, Context(lambda: NOW, spot, joined, careful, nowait))
    given = iter(answers)
    sent: Sent = []
    try:
        wanted = next(work)
        while True:
            if isinstance(wanted, Control):
                sent.append(wanted)
                wanted = work.send(None)
                continue
            assert not isinstance(wanted, Exchange)
            statements = wanted.statements if isinstance(wanted, Together) else [wanted]
            dealt: list[Any] = []
            for statement in statements:
                sent += render(statement)
                answer = next(given, None)
                assert answer is not None, f"there is no answer for {render(statement)}"
                if isinstance(answer, Exception):
                    wanted = work.throw(answer)
                    break
                dealt.append(_dealt(statement, answer))
            else:
                wanted = work.send(dealt if isinstance(wanted, Together) else dealt[0])
    except StopIteration as stop:
        assert next(given, None) is None, "there are answers that nobody asked for"
        return Played(sent, stop.value)


def _dealt(statement: Statement, answer: Any) -> Any:
    template, rows = statement[:2]
    if not template.returns:
        assert isinstance(answer, int), "a statement that returns nothing is answered with a number"
        return answer
    if template.gather is not Gather.EACH:
        return scatter(statement, answer)
    assert len(answer) == len(rows), "a statement that goes out once per row is answered with a list for each"
    return [list(each) for each in answer]


def sends(
    structure: Structure, dialect: Dialect, operations: Any, answers: Iterable[Any] = (), **context: Any
) -> list[str]:
    """Return only the texts that a plan sends, and the names of control words."""
    sent, _ = play(plan_for(structure, dialect), operations, *answers, **context)
    return [each.name if isinstance(each, Control) else each[0] for each in sent]
