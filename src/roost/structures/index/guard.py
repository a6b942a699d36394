"""A part of a transaction that may fail alone: it runs after a savepoint, which is sent with its first statement."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from roost.dialects.dialect import Control, Statement, Wanted
from roost.errors import Invalid, Missing, StatementFailed
from roost.structures.plan import write

SAVEPOINT = Statement(write("SAVEPOINT roost_index"), [()])
BACK = Statement(write("ROLLBACK TO SAVEPOINT roost_index"), [()])
RELEASE = Statement(write("RELEASE SAVEPOINT roost_index"), [()])


def guarded(work: Generator[Wanted, Any, Any]) -> Generator[Wanted, Any, Any]:
    """Run one request on a server; return its result, or its error, after which nothing of it was done.

    An error that does not concern the request itself (a lock that another session holds, a lost connection) is raised.
    """
    yield Control.SAVEPOINT
    try:
        result = yield from work
    except (Invalid, Missing, StatementFailed) as error:
        result = error
        yield Control.BACK
    yield Control.RELEASE
    return result
