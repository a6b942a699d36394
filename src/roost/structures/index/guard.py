"""A part of a transaction that may fail by itself: behind a savepoint, which goes out with its first statement."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from roost.dialects.dialect import Statement, Together, Wanted
from roost.errors import Error, Invalid, Missing, StatementFailed
from roost.structures.plan import write

SAVEPOINT = Statement(write("SAVEPOINT roost_index"), [()])
BACK = Statement(write("ROLLBACK TO SAVEPOINT roost_index"), [()])
RELEASE = Statement(write("RELEASE SAVEPOINT roost_index"), [()])


def guarded(work: Generator[Wanted, Any, Any]) -> Generator[Wanted, Any, Any]:
    """Do one request on a server; return its result, or its error, and then nothing of it was done.

    An error that is not its own (a lock that was not had, a lost connection) is raised.
    """
    begun = False
    result: Any
    try:
        wanted = next(work)
        while True:
            try:
                if begun or not isinstance(wanted, (Statement, Together)):
                    answer = yield wanted
                else:
                    begun = True
                    several = wanted.statements if isinstance(wanted, Together) else (wanted,)
                    _, *answers = yield Together((SAVEPOINT, *several))
                    answer = answers if isinstance(wanted, Together) else answers[0]
            except Error as error:
                wanted = work.throw(error)
            else:
                wanted = work.send(answer)
    except StopIteration as stop:
        result = stop.value
    except (Invalid, Missing, StatementFailed) as error:
        if begun:
            yield Together((BACK, RELEASE))
        return error
    if begun:
        yield RELEASE
    return result
